"""Buckets that inductor builds while the program goes on: in another process, and without a trace in this one."""

from __future__ import annotations

import neuroncache
import pytest
import torch
from bucketing_tools import StaticBackend, bucketed
from conftest import Daemon, Programs
from neuroncache.bucketing import dispatch

PROGRAM = """
    import json, sys, time, torch, neuroncache

    neuroncache.enable()
    torch._inductor.config.epilogue_fusion = False  # the other process has to know
    from neuroncache.bucketing import background, builder, dispatch, report

    report.INTERVAL_S = 3600.0  # no new buckets in the middle of this

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).double()

    def f(x):
        return model(x).softmax(1).mean((0, 1))

    compiled = torch.compile(f)

    def step(length):
        x = torch.randn(6, length, 4, dtype=torch.float64)
        model.zero_grad()
        compiled(x).square().sum().backward()
        got = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        f(x).square().sum().backward()
        for one, parameter in zip(got, model.parameters()):
            torch.testing.assert_close(one, parameter.grad)

    for length in (60, 50):
        step(length)
    before = neuroncache.stats()
    step(20)  # served by what is there
    (dispatcher,) = dispatch.everyone
    waiting = [record.sizes for record in dispatcher.records() if record.provisional]
    patched = set()
    while background._queue.unfinished_tasks:
        patched.add(torch.nn.Module.__call__)
        step(20)
        time.sleep(0.1)
    background.drain()
    after = neuroncache.stats()
    step(20)
    step(21)
    last = neuroncache.stats()
    print(json.dumps({
        "waiting": waiting, "patched": len(patched), "last": last,
        "built": [stats["kinds"]["graph"]["builds"] for stats in (before, after, last)],
        "hits": [stats["kinds"]["graph"].get("hits", 0) for stats in (before, after, last)],
        "buckets": [record.unit.buckets["s0"] for record in dispatcher.records()],
        "process": builder._process is not None,
    }))
"""


def test_another_process_builds_what_the_next_call_finds(daemon: Daemon, programs: Programs) -> None:
    result = programs.run(PROGRAM, env={"NEURONCACHE_BUCKETING": "on"})
    told = result.value
    assert len(told["waiting"]) == 1
    assert told["patched"] == 1  # no tracer was at work in this process meanwhile
    assert told["last"]["background_builds"] == 1 and told["last"]["errors"] == 0
    assert told["built"][0] == told["built"][2]  # this process built nothing more
    assert told["hits"][2] == told["hits"][0] + 2  # forward and backward, as the other one left them
    assert result.warnings == []


def test_a_program_may_end_in_the_middle_of_it(daemon: Daemon, programs: Programs) -> None:
    head, _, _ = PROGRAM.partition("    (dispatcher,)")
    result = programs.run(head + "    print(json.dumps(background._queue.unfinished_tasks))\n")
    assert result.value == 0  # inductor keeps its symbolic kernels unless asked
    result = programs.run(
        head + "    print(json.dumps(background._queue.unfinished_tasks))\n", env={"NEURONCACHE_BUCKETING": "on"}
    )
    assert result.value == 1 and result.warnings == []


def test_where_the_process_cannot_be_started_the_call_builds(daemon: Daemon, programs: Programs) -> None:
    broken = PROGRAM.replace(
        "torch.manual_seed(0)", "sys.executable = '/nowhere/python'\n    torch.manual_seed(0)", 1
    ).replace("(dispatcher,)", "background.drain()\n    (dispatcher,)", 1)
    told = programs.run(broken, env={"NEURONCACHE_BUCKETING": "on"}).value
    assert told["last"]["background_builds"] == 0 and not told["process"]
    assert told["built"][2] == told["built"][0] + 2


def squares(x: torch.Tensor) -> torch.Tensor:
    return x * x


def test_ranks_choose_alike_and_never_by_what_they_have_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with bucketed(StaticBackend(), strict=True) as name:
        compiled = torch.compile(squares, backend=name)
        for length in (60, 50, 20):
            x = torch.randn(4, length)
            torch.testing.assert_close(compiled(x), x * x)
        (dispatcher,) = dispatch.everyone
        assert not any(record.provisional for record in dispatcher.records())
        assert dispatcher.records()[-1].unit.buckets["s1"] < 60
        assert neuroncache.stats()["background_builds"] == 0
