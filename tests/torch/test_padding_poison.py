"""Padding plans of small functions, run while all padding is as bad as the plan's claims allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from proof import poison, small, tool

# Those whose results are wrong as soon as the masks are dropped.
NEED_MASKS = [
    "mean",
    "mean_all",
    "softmax",
    "norm",
    "mlp",
    "cross_entropy",
    "attention",
    "conv1d",
    "argmax",
    "batch_norm",
]
# Backward graphs of inductor's table hold other operators.
INDUCTOR = [
    "softmax",
    "log_softmax",
    "mlp",
    "cross_entropy",
    "attention",
    "router",
    "batch_norm",
    "embedding",
    "conv1d",
]


def test_the_engine_is_there() -> None:
    assert tool.path().exists(), f"{tool.path()} is missing: build it with ./x build"


@pytest.mark.parametrize("job", [("small", name, "core") for name in small.CASES], ids=lambda job: job[1])
def test_small(job: tuple[Any, ...], verdicts: Callable[..., Any]) -> None:
    _judge(job, verdicts(job))


@pytest.mark.parametrize("job", [("small", name, "inductor") for name in INDUCTOR], ids=lambda job: job[1])
def test_small_as_inductor_decomposes(job: tuple[Any, ...], verdicts: Callable[..., Any]) -> None:
    _judge(job, verdicts(job))


def _judge(job: tuple[Any, ...], verdict: Any) -> None:
    expected = small.CASES[job[1]].expect
    allowed = ("bucketed", "refused") if expected == "either" else (expected,)
    assert verdict.status in allowed, verdict


@pytest.mark.parametrize("job", [("unmasked", name) for name in NEED_MASKS], ids=lambda job: job[1])
def test_without_masks_results_are_wrong(job: tuple[Any, ...], verdicts: Callable[..., Any]) -> None:
    assert verdicts(job).status in ("wrong", "error")


# -- the interpreter itself -----------------------------------------------------------------------------------------

TRUE = {"s0": 2, "s1": 3}
BUCKETS = {"s0": 4, "s1": 4}


def _claim(state0: Any, state1: Any, **more: Any) -> poison.Claim:
    dims = [[{"e": "s0", "s": state0}], [{"e": "s1", "s": state1}]]
    return poison.Claim({"v": 0, "t": "float32", "d": dims, "data": "finite", **more}, TRUE, BUCKETS)


def _value(row: float, column: float, corner: float) -> torch.Tensor:
    value = torch.full((4, 4), float(corner))
    value[2:, :3] = row
    value[:2, 3:] = column
    value[:2, :3] = torch.arange(6.0).view(2, 3)
    return value


ZERO = {"c": {"f": "0x0.0p+0"}}
MINUS = {"c": {"f": "-inf"}}


@pytest.mark.parametrize(
    ("claim", "value", "holds"),
    [
        (_claim("any", "any"), _value(float("nan"), float("inf"), 1), True),
        (_claim("finite", "any"), _value(1, float("nan"), 1), True),
        (_claim("finite", "any"), _value(1, float("nan"), float("nan")), False),
        (_claim("finite", "positive"), _value(-1, 1, 1), True),
        (_claim("finite", "positive"), _value(-1, 1, -1), False),
        (_claim("nonnegative", "any"), _value(0, 1, 0), True),
        (_claim("nonnegative", "any"), _value(-0.5, 1, 0), False),
        (_claim(ZERO, ZERO), _value(0, 0, 0), True),
        (_claim(ZERO, ZERO), _value(0, 0, 1), False),
        (_claim(ZERO, MINUS), _value(0, float("-inf"), float("-inf")), False),
        (_claim(ZERO, MINUS, over=[[1, 0]]), _value(0, float("-inf"), float("-inf")), True),
        (_claim(ZERO, MINUS, over=[[1, 0]]), _value(0, float("-inf"), 0), False),
        (_claim("any", "any", uniform={"f": "0x1.0p+0"}), torch.ones(4, 4), True),
        (_claim("any", "any", uniform={"f": "0x1.0p+0"}), _value(1, 1, 1), False),
        (_claim("any", "any"), torch.ones(4, 3), False),
        (_claim("any", "any"), torch.ones(4, 4, dtype=torch.float64), False),
        (_claim("any", "any"), _value(1, 1, 1) / 0, False),
    ],
)
def test_claims_are_checked(claim: poison.Claim, value: torch.Tensor, holds: bool) -> None:
    if holds:
        claim.check(value, "here", True)
    else:
        with pytest.raises(poison.PoisonError):
            claim.check(value, "here", True)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
)
@pytest.mark.parametrize("state", ["any", "finite", "nonnegative", "positive", ZERO])
def test_poison_is_what_the_claim_allows(state: Any, dtype: torch.dtype) -> None:
    if dtype == torch.complex64 and state in ("nonnegative", "positive"):
        pytest.skip("complex numbers have no order")
    if dtype == torch.bool and state == "positive":
        pytest.skip("of a bool nothing but a constant is positive")
    name = str(dtype).removeprefix("torch.")
    claim = poison.Claim(
        {"v": 0, "t": name, "d": [[{"e": "s0", "s": state}, {"e": "s1", "s": state}]], "data": "any"}, TRUE, BUCKETS
    )
    true = torch.arange(16).to(dtype)
    bad = claim.poison(true, poison.Poison(3))
    claim.check(bad, "here", False)
    inside = torch.tensor([row < 2 and column < 3 for row in range(4) for column in range(4)])
    assert torch.equal(bad[inside], true[inside])
    if state == "any" and dtype.is_floating_point:
        assert bad.isnan().any() and bad.isinf().any()
    elif state in ("any", "finite") and dtype == torch.int64:
        assert bad.min() < 0 and bad.max() > 1000
    elif state == ZERO:
        assert (bad[~inside] == 0).all()


def test_a_packed_factor_is_cut_as_a_prefix_and_merged_ones_by_factor() -> None:
    packed = poison.factors([[{"e": ["*", "s0", "s1"], "p": True}]], TRUE, BUCKETS)
    merged = poison.factors([[{"e": "s0", "p": True}, {"e": "s1", "p": True}]], TRUE, BUCKETS)
    line = torch.arange(1, 7)

    def zeros(shape: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    assert poison.pad(line, packed, zeros).tolist() == [1, 2, 3, 4, 5, 6] + [0] * 10
    assert poison.pad(line, merged, zeros).tolist() == [1, 2, 3, 0, 4, 5, 6, 0] + [0] * 8
