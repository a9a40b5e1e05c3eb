"""What processes learn of each other through the daemon: plans, sizes that vary, buckets, quarantine."""

from __future__ import annotations

import random

import pytest
from conftest import Daemon, Programs

PROGRAM = """
    import json, logging, sys, torch, neuroncache

    neuroncache.enable()
    from torch._dynamo.backends import registry
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
    from neuroncache.bucketing import background, dispatch, report

    logging.basicConfig()
    graphs = []

    def static(gm, inputs):
        assert all(isinstance(value, torch.Tensor) for value in inputs)
        graphs.append(gm)
        return gm

    registry.register_backend(static, name="neuron")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).double()

    def f(x):
        return model(x).softmax(1).mean((0, 1))

    compiled = torch.compile(f, backend="neuron")
    for length in json.loads(sys.argv[1]):
        x = torch.randn(6, length, 4, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), f(x))
        compiled(x).sum().backward()
    background.drain()
    report.send()
    stats = neuroncache.stats()
    buckets = [record.unit.buckets for dispatcher in dispatch.everyone for record in dispatcher.records()]
    print(json.dumps({
        "entries": len(_debug_get_cache_entry_list(f.__code__)), "graphs": len(graphs), "stats": stats, "buckets": buckets,
        "epochs": [dispatcher.chooser.plan.epoch if dispatcher.chooser.plan else 0 for dispatcher in dispatch.everyone],
    }))
"""


@pytest.fixture
def planning(daemon: Daemon) -> Daemon:
    if "buckets" not in daemon.client().hello()["capabilities"]:
        pytest.skip("the daemon is not built")
    return daemon


def test_a_second_job_starts_with_what_the_first_one_learned(planning: Daemon, programs: Programs) -> None:
    lengths = [5, 17, 18, 19, 20, 21, 18, 19, 20] * 3
    first = programs.run(PROGRAM, str(lengths)).value
    assert first["entries"] == 2 and first["stats"]["errors"] == 0
    second = programs.run(PROGRAM, str([19, 18, 21, 5])).value
    assert second["entries"] == 1  # symbolic at the first call: nobody had to see a second size
    assert second["epochs"][0] >= 1
    # The batch never varied and is a constant; the length has buckets of what was seen, not powers of two.
    used = [tuple(bucket.values()) for bucket in second["buckets"]]
    assert used and all(len(bucket) == 1 and bucket[0] in (5, 17, 18, 19, 20, 21) for bucket in used)


def test_sizes_that_hang_together_are_planned_together(planning: Daemon, programs: Programs) -> None:
    """Batches of about as many tokens each: a long one has few rows. Buckets of each size alone would waste a lot."""
    program = PROGRAM.replace("for length in", "for batch, length in").replace("randn(6, ", "randn(batch, ")
    program = program.replace('backend="neuron")', 'backend="neuron", dynamic=True)')
    program = program.replace('"epochs":', '"joint": [list(plan.joints.values()) for plan in plans], "epochs":')
    program = program.replace(
        "    print(json", "    plans = [one.chooser.plan for one in dispatch.everyone]\n    print(json"
    )
    numbers = random.Random(1)
    shapes = [[max(2, 192 // length), length] for length in (numbers.randint(3, 64) for _ in range(30))]
    first = programs.run(program.replace("plan.joints", "{}"), str(shapes), env={"NEURONCACHE_MAX_BUCKETS": "4"}).value
    assert first["stats"]["errors"] == 0
    second = programs.run(program, str(shapes[:6]), env={"NEURONCACHE_MAX_BUCKETS": "4"}).value
    ((rectangles,),) = second["joint"]
    used = [list(bucket.values()) for bucket in second["buckets"]]
    assert len(used) == len({tuple(shape) for shape in shapes[:6]}) and all(bucket in rectangles for bucket in used)
    # Known times make a price: what a program takes to build and to run is told.
    (known,) = planning.client()._control("GET", "/v1/buckets", None)["programs"]
    assert known["compile_ms"] > 0 and known["call_us"] > 0


def test_a_plan_in_quarantine_is_used_by_nobody(planning: Daemon, programs: Programs) -> None:
    change = """
    from neuroncache.bucketing import check
    neuroncache.config.verify = "sample"
    check.TOLERANCE[torch.float64] = -1.0

    compiled = torch"""
    program = PROGRAM.replace('backend="neuron")', 'backend="neuron", dynamic=True)')
    spoiled = programs.run(program.replace("\n    compiled = torch", change), "[5, 6, 7]").value
    assert spoiled["stats"]["mismatches"] == 1
    other = programs.run(program, "[5, 6, 7]").value
    assert other["stats"]["buckets"] == 0
    assert "wrong result" in other["stats"]["refusals"][0]["reason"]


def test_a_daemon_that_leaves_stops_nobody(planning: Daemon, programs: Programs) -> None:
    change = """
        print("step", flush=True)
        if length == 7:
            __import__("time").sleep(2)
        compiled(x).sum()"""
    program = programs.start(PROGRAM.replace("\n        compiled(x).sum()", change), "[5, 6, 7, 8, 30, 31]")
    program.wait_for("step")
    program.wait_for("step")
    planning.kill()
    value = program.wait().value
    assert value["stats"]["errors"] == 0 and value["stats"]["buckets"] > 0
