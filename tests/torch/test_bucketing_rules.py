"""Padding rules for a user's own operators: what may be declared, and what their test finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import neuroncache
import pytest
import torch
from bucketing_tools import StaticBackend, bucketed
from neuroncache.bucketing import rules
from neuroncache.errors import PaddingRuleError
from rule_operators import WEIGHT, Model, X, define, keep_inputs


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    rules.forget()
    yield
    rules.forget()


RIGHT: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("swish", {"kind": "pointwise", "gives": "zero"}, [X, (X[0],)]),
    ("swish_gradient", {"kind": "pointwise", "gives": "zero"}, [(X, X), (X, X[:1])]),
    ("waves", {"kind": "pointwise", "gives": "finite"}, [X.float()]),
    (
        "project",
        {"outputs": [[("x", 0), ("weight", 1)]], "sums": [("x", 1), ("weight", 0)], "gives": "zero"},
        [(X, WEIGHT)],
    ),
    ("project", {"outputs": [[(0, 0), None]], "needs": {0: "any"}, "gives": "finite"}, [((X, WEIGHT), {})]),
    ("standing", {"outputs": [{"follows": [(0, 0), None], "gives": "positive"}, [(0, 0)]], "gives": "finite"}, [X]),
    ("centred", {"outputs": [[None, (0, -1)]], "gives": "zero"}, [X]),
    ("pick", {"outputs": [[(1, 0), (0, 1)]], "needs": {1: "zero"}, "gives": "finite"}, [(X, torch.tensor([2, 0]))]),
    ("totals", {"outputs": [[(0, 1)]], "sums": [(0, 0)], "gives": "zero"}, [X]),
]

WRONG: list[tuple[str, dict[str, Any], list[Any], str]] = [
    ("waves", {"kind": "pointwise", "gives": "zero"}, [X], "result 0 is not zero when all arguments are"),
    ("waves", {"kind": "pointwise", "gives": "nonnegative"}, [X], "result 0 is not nonnegative everywhere"),
    ("centred", {"kind": "pointwise"}, [X], "result 0 changes where it is true"),
    ("centred", {"outputs": [[(0, 0), (0, 1)]]}, [X], "result 0 changes where it is true"),
    ("standing", {"outputs": [[(0, 0), (0, 1)], [(0, 0)]], "gives": "finite"}, [X], "result 0 changes"),
    ("project", {"outputs": [[(0, 0), (1, 1)]], "sums": [(0, 1)]}, [(X, WEIGHT)], "it fails (RuntimeError"),
    ("project", {"outputs": [[(0, 0), (0, 1)]]}, [(X, WEIGHT)], "has size 5, and dimension 1 of argument 0"),
    ("project", {"outputs": [[(0, 0), None, None]]}, [(X, WEIGHT)], "has 2 dimensions, and 'follows' 3"),
    ("pick", {"outputs": [[(1, 0), (0, 1)]]}, [(X, torch.tensor([2, 0]))], "it fails (IndexError"),
    ("totals", {"outputs": [[None]]}, [X], "it lets nothing be padded"),
    ("swish", {"outputs": [[(0, 0), (0, 1)]], "needs": {0: "any"}, "gives": "positive"}, [X], "not positive"),
]


@pytest.mark.parametrize("name, rule, samples", RIGHT, ids=[case[0] for case in RIGHT])
def test_right_rules_pass(name: str, rule: dict[str, Any], samples: list[Any]) -> None:
    neuroncache.register_padding_rule(f"nctest::{name}", **rule, samples=samples)
    neuroncache.check_padding_rule(getattr(torch.ops.nctest, name), samples)


@pytest.mark.parametrize("name, rule, samples, problem", WRONG, ids=[case[0] for case in WRONG])
def test_wrong_rules_are_found(name: str, rule: dict[str, Any], samples: list[Any], problem: str) -> None:
    with pytest.raises(PaddingRuleError) as found:
        neuroncache.register_padding_rule(f"nctest::{name}", **rule, samples=samples)
    assert problem in str(found.value) and f"nctest.{name}.default" in str(found.value)
    assert not rules.table([f"nctest.{name}.default"])  # what is wrong is not declared


def test_a_wrong_backward_is_found() -> None:
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / gradient.shape[0]

    define("halves(Tensor x) -> Tensor", lambda x: x / 2, None, backward, keep_inputs)
    with pytest.raises(PaddingRuleError, match="the gradient of argument 0 changes"):
        neuroncache.register_padding_rule("nctest::halves", "pointwise", samples=[X])


@pytest.mark.parametrize(
    "op, rule, problem",
    [
        ("nctest::nothing", {}, "there is no operator 'nctest::nothing'"),
        ("nctest::two", {}, "has the overloads one, other"),
        ("nctest::change", {}, "changes an argument"),
        (torch.ops.aten.add.Tensor, {}, "is an operator of torch"),
        (torch.add, {}, "is no operator"),
        ("nctest::swish", {"kind": "somehow"}, "kinds are 'pointwise' and 'along'"),
        ("nctest::swish", {"kind": "pointwise", "gives": "NaN"}, "allowed are any, finite"),
        ("nctest::swish", {"kind": "pointwise", "sums": [(0, 0)]}, "has 'gives' and nothing else"),
        ("nctest::swish", {}, "has no outputs"),
        ("nctest::standing", {"outputs": [[(0, 0)]]}, "one output for each of its 2 results"),
        ("nctest::swish", {"outputs": [[("y", 0)]]}, "has no argument 'y'; it has x"),
        ("nctest::swish", {"outputs": [[(1, 0)]]}, "has no argument 1"),
        ("nctest::swish", {"outputs": [[(0, 0.5)]]}, "is no pair of an argument and a dimension"),
        ("nctest::swish", {"outputs": [{"follow": []}]}, "an output of a rule for nctest.swish.default has 'follow'"),
        ("nctest::swish", {"outputs": [[(0, 0)]], "needs": {0: "NaN"}}, "allowed are any, finite, zero"),
        ("nctest::totals", {"outputs": [[None]], "sums": [(0, 0)], "needs": {0: "any"}}, "needs to be zero"),
    ],
)
def test_what_cannot_be_meant_is_refused(op: Any, rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(PaddingRuleError) as found:
        neuroncache.register_padding_rule(op, **rule)
    assert problem in str(found.value)


def test_a_rule_that_nobody_declared_cannot_be_tested() -> None:
    with pytest.raises(PaddingRuleError, match="has no padding rule"):
        neuroncache.check_padding_rule("nctest::swish", [X])


def test_the_rules_of_the_operators_at_hand_are_part_of_the_request() -> None:
    asked: list[dict[str, Any]] = []

    def engine(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {"plan": 1, "engine": "x", "refusal": {"graph": "forward", "node": 0, "op": "x", "reason": "none"}}

    neuroncache.register_padding_rule("nctest::swish", "pointwise", gives="zero")
    neuroncache.register_padding_rule("nctest::waves", "pointwise", gives="finite")
    with bucketed(StaticBackend(), engine, strict=True) as name:
        torch.compile(Model(), backend=name, dynamic=True)(X[None], torch.ones(1, 3, dtype=torch.float64))
    assert asked[0]["rules"] == {"nctest.swish.default": {"kind": "pointwise", "gives": "zero"}}
