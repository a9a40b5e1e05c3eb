"""Lengths of real traces: how many graphs a job compiles that starts with what an earlier one learned."""

from __future__ import annotations

import csv
import json
import random

import pytest
from conftest import ROOT, Daemon, Programs

SHAPES = 200
BUCKETS = 8
TRACES = ["azure23-conv", "arxiv-summ", "librispeech-dev", "opennmt-ende"]

PROGRAM = """
    import json, sys, torch, neuroncache

    neuroncache.enable()
    from torch._dynamo.backends import registry
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
    from neuroncache.bucketing import dispatch, report

    report.INTERVAL_S = 3600.0  # this job keeps the plan that it starts with
    graphs = []

    def static(gm, inputs):
        assert all(type(size) is int for value in inputs for size in value.shape)
        graphs.append(gm)
        return gm

    registry.register_backend(static, name="neuron")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.GELU(), torch.nn.Linear(4, 2)).double()

    def f(x):
        return model(x).softmax(1).cumsum(1).mean((0, 1))

    compiled = torch.compile(f, backend="neuron")
    for number, length in enumerate(json.loads(sys.argv[1])):
        x = torch.randn(3, length, 2, dtype=torch.float64)
        result = compiled(x)
        model.zero_grad()
        result.square().sum().backward()
        if number % 10 == 0:
            got = [parameter.grad.clone() for parameter in model.parameters()]
            model.zero_grad()
            expected = f(x)
            expected.square().sum().backward()
            torch.testing.assert_close(result, expected)
            torch.testing.assert_close(got, [parameter.grad for parameter in model.parameters()])
    report.send()
    plans = [dispatcher.chooser.plan for dispatcher in dispatch.everyone]
    print(json.dumps({
        "entries": len(_debug_get_cache_entry_list(f.__code__)), "graphs": len(graphs), "stats": neuroncache.stats(),
        "plans": [[len(family.buckets) for family in plan.families.values()] for plan in plans if plan],
    }))
"""


def lengths(trace: str) -> list[int]:
    with (ROOT / "tests/data/lengths" / f"{trace}.csv").open(newline="") as file:
        rows = [(int(row["length"]), int(row["first"]) + int(row["rest"])) for row in csv.DictReader(file)]
    rows = [(min(length, 4096), count) for length, count in rows if length > 1]
    return random.Random(16).choices([length for length, _ in rows], [count for _, count in rows], k=SHAPES)


@pytest.mark.parametrize("trace", TRACES)
def test_a_job_compiles_the_buckets_of_its_plan(trace: str, daemon: Daemon, programs: Programs) -> None:
    if "buckets" not in daemon.client().hello()["capabilities"]:
        pytest.skip("the daemon is not built")
    seen = lengths(trace)
    assert len(set(seen)) > 3 * BUCKETS
    env = {"NEURONCACHE_MAX_BUCKETS": str(BUCKETS)}
    first = programs.run(PROGRAM, json.dumps(seen), env=env).value
    second = programs.run(PROGRAM, json.dumps(seen), env=env).value
    for job in (first, second):
        assert job["entries"] <= 4 and job["stats"]["errors"] == 0 and job["stats"]["mismatches"] == 0
    assert second["entries"] == 1  # symbolic from its first call
    assert len(second["plans"]) == 1
    (buckets,) = second["plans"][0]
    assert buckets <= BUCKETS
    assert second["graphs"] <= 2 * buckets  # forward and backward
    assert second["stats"]["padding_waste"] < first["stats"]["padding_waste"]
