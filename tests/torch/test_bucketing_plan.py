"""Plans: decoding, substitution, and the way in and out by factors. The plans here are written by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from neuroncache.bucketing.layout import Fit, parse_layout
from neuroncache.bucketing.plan import Plan, Refusal
from neuroncache.errors import Unsupported
from neuroncache.expr import evaluate

P0 = {"e": "s0", "p": True}
P1 = {"e": "s1", "p": True}


def _input(kind: str, dtype: str = "float32") -> dict[str, Any]:
    return {"kind": kind, "type": {"t": dtype}}


def _mean_plan() -> tuple[dict[str, Any], dict[str, Any]]:
    """x -> (exp(x).mean(1), s0, None) for x of sizes [s0, s1]."""
    request = {"request": 1, "forward": {"inputs": [{"kind": "symbol"}, {"kind": "symbol"}, _input("data")]}}
    nodes = [
        {"op": "aten.exp.default", "a": [{"v": 2}], "from": 0},
        {"op": "aten.arange.default", "a": [{"e": "s1"}], "k": {"dtype": {"dtype": "int64"}}},
        {"op": "aten.lt.Tensor", "a": [{"v": 5}, {"v": 3}]},
        {"op": "aten.scalar_tensor.default", "a": [{"f": "0x0.0p+0"}]},
        {"op": "aten.where.self", "a": [{"v": 6}, {"v": 4}, {"v": 7}]},
        {"op": "aten.sum.dim_IntList", "a": [{"v": 8}, [1]], "from": 1},
        {"op": "aten.div.Tensor", "a": [{"v": 9}, {"v": 3}], "from": 1},
    ]
    answer = {
        "plan": 1,
        "engine": "by hand",
        "symbols": ["s0", "s1"],
        "unify": [],
        "forward": {
            "inputs": [None, None, {"d": [[P0], [P1]], "kept": False}],
            "truths": [{"e": "s1", "t": "int64"}],
            "nodes": nodes,
            "outputs": [{"v": 10, "d": [[P0]]}, {"e": "s0"}, None],
        },
        "masks": 1,
        "unproven": [],
    }
    return answer, request


def test_a_plan_gives_the_unpadded_result() -> None:
    answer, request = _mean_plan()
    plan = Plan.parse(answer, request)
    x = torch.randn(3, 5)
    sizes, buckets = {"s0": 3, "s1": 5}, {"s0": 4, "s1": 8}
    mean, size, nothing = plan.forward.call([3, 5, x], buckets, sizes)
    torch.testing.assert_close(mean, x.exp().mean(1))
    assert (size, nothing) == (3, None)


def test_an_instance_is_a_plain_graph() -> None:
    answer, request = _mean_plan()
    plan = Plan.parse(answer, request)
    graph = plan.forward.instantiate({"s0": 4, "s1": 8})
    assert [node.name for node in graph.graph.nodes if node.op == "placeholder"] == ["input_2", "truth_0"]
    assert all(not isinstance(arg, torch.SymInt) for node in graph.graph.nodes for arg in node.args)
    x = torch.randn(4, 8)
    (mean,) = graph(x, torch.tensor(5))
    torch.testing.assert_close(mean, x[:, :5].exp().mean(1))


def test_the_interpreter_sees_and_replaces_every_value() -> None:
    answer, request = _mean_plan()
    plan = Plan.parse(answer, request)
    seen = []

    def poison(number: int, value: torch.Tensor) -> torch.Tensor:
        seen.append(number)
        if number == 4:
            value = value.clone()
            value[:, 5:] = float("nan")
        return value

    x = torch.randn(3, 5)
    mean, *_ = plan.forward.call([3, 5, x], {"s0": 4, "s1": 8}, {"s0": 3, "s1": 5}, poison)
    torch.testing.assert_close(mean, x.exp().mean(1))
    assert seen == list(range(4, 11))


def test_several_results_constants_and_dead_nodes() -> None:
    request = {"request": 1, "forward": {"inputs": [_input("data")]}}
    nodes = [
        {"op": "aten.topk.default", "a": [{"v": 0}, 2], "n": 2},
        {"op": "aten.neg.default", "a": [{"v": 1}]},
        {"op": "aten.add.Tensor", "a": [{"v": 2}, {"const": 1}], "k": {"alpha": 2}},
    ]
    answer = {
        "plan": 1,
        "engine": "by hand",
        "symbols": [],
        "unify": [],
        "forward": {"inputs": [None], "truths": [], "nodes": nodes, "outputs": [{"v": 4}, {"v": 1, "d": [[{"e": 2}]]}]},
        "masks": 0,
        "unproven": [],
    }
    constants = [torch.tensor(0), torch.tensor([10, 20])]
    plan = Plan.parse(answer, request, constants)
    x = torch.tensor([3.0, 9.0, 7.0])
    graph = plan.forward.instantiate({})
    assert not any("neg" in node.name for node in graph.graph.nodes)
    for indices, values in (graph(x), plan.forward.call([x], {}, {})):
        assert indices.tolist() == [21, 42]
        assert values.tolist() == [9.0, 7.0]


def test_a_refusal_says_where() -> None:
    refusal = {"graph": "backward", "node": 7, "op": "aten.sort.default", "reason": "no rule"}
    with pytest.raises(Refusal) as caught:
        Plan.parse({"plan": 1, "engine": "x", "refusal": refusal}, {})
    assert (caught.value.op, caught.value.graph, caught.value.node) == ("aten.sort.default", "backward", 7)


def test_another_version_and_unknown_operators_are_not_guessed_at() -> None:
    answer, request = _mean_plan()
    with pytest.raises(Unsupported):
        Plan.parse({**answer, "plan": 2}, request)
    for op in ("aten.no_such.default", "mine.op.default", "aten.add"):
        answer["forward"]["nodes"][0]["op"] = op
        with pytest.raises(Unsupported):
            Plan.parse(answer, request)


def test_requirements_are_taken_at_the_buckets() -> None:
    answer, request = _mean_plan()
    answer["forward"]["require"] = [["+", 8, ["*", -1, "s1"]]]
    plan = Plan.parse(answer, request)
    assert plan.fits({"s0": 4, "s1": 8})
    assert not plan.fits({"s0": 4, "s1": 9})


def test_sizes_that_fall_need_room_for_the_true_ones() -> None:
    answer, request = _mean_plan()
    answer["forward"]["grow"] = [["+", "s1", ["*", -2, ["//", ["+", "s1", 2], 3]]]]
    plan = Plan.parse(answer, request)
    assert plan.has_room({"s0": 4, "s1": 65}, {"s0": 3, "s1": 63})
    assert not plan.has_room({"s0": 4, "s1": 64}, {"s0": 3, "s1": 63})  # 20 places for 21
    assert not plan.has_room({"s0": 4, "s1": 4}, {"s0": 3, "s1": 4})  # nothing to point to


@pytest.mark.parametrize(
    "dims",
    [
        [[P0], [P1]],
        [[P0, P1]],
        [[P0, P1, {"e": 3}]],
        [[{"e": 3}, P0], [P1]],
        [[P0, {"e": 3}], [], [P1]],
        [[{"e": ["*", "s0", "s1"], "p": True}], [{"e": 2}]],
        [[{"e": ["//", ["+", "s1", 3], 4], "p": True}, {"e": 4}]],
    ],
)
def test_fit_pads_and_cuts_by_factors(dims: Any) -> None:
    layout = parse_layout(dims)
    sizes, buckets = {"s0": 3, "s1": 5}, {"s0": 4, "s1": 16}
    fit = Fit(layout, buckets, sizes)
    x = torch.randn(fit.true_shape)
    padded = fit.pad(x, 7)
    assert padded.shape == fit.padded_shape and padded.is_contiguous()
    assert (padded == 7).sum() == fit.waste == padded.numel() - x.numel()
    torch.testing.assert_close(fit.cut(padded), x, rtol=0, atol=0)
    # The true part is where a slice by factors says.
    factors = [[evaluate(f.size, buckets) for f in dim] for dim in layout]
    true = [[evaluate(f.size, sizes) for f in dim] for dim in layout]
    flat = padded.reshape([size for dim in factors for size in dim])
    part = flat[tuple(slice(0, size) for dim in true for size in dim)]
    torch.testing.assert_close(part.reshape(x.shape), x, rtol=0, atol=0)


def test_a_cut_has_the_strides_that_are_asked_for() -> None:
    fit = Fit(parse_layout([[P0], [P1]]), {"s0": 4, "s1": 8}, {"s0": 3, "s1": 5})
    padded = torch.arange(32).reshape(4, 8)
    assert fit.cut(padded, (5, 1)).is_contiguous()
    assert fit.cut(padded, (1, 3)).stride() == (1, 3)
    assert fit.cut(padded, (8, 1)).untyped_storage().data_ptr() == padded.untyped_storage().data_ptr()
