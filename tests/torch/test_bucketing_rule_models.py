"""Models with operators of a user's own, on padded graphs by declared rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import neuroncache
import pytest
import torch
from bucketing_tools import StaticBackend, ToolEngine, bucketed, entries, padding_tool
from neuroncache.bucketing import rules
from rule_operators import WEIGHT, Model, X


@pytest.fixture(autouse=True)
def no_rules() -> Iterator[None]:
    rules.forget()
    yield
    rules.forget()


@pytest.fixture(scope="module")
def engine() -> Iterator[ToolEngine]:
    program = padding_tool()
    if program is None:
        pytest.skip("the engine is not built")
    result = ToolEngine(program)
    yield result
    result.close()


def step(function: Any, model: Model, batch: int, length: int) -> list[torch.Tensor]:
    numbers = torch.Generator().manual_seed(batch * 100 + length)
    x = torch.randn(batch, length, 4, dtype=torch.float64, generator=numbers)
    mask = (torch.arange(length) < torch.randint(1, length + 1, (batch, 1), generator=numbers)).double()
    model.zero_grad()
    result = function(x, mask)
    result.square().sum().backward()
    return [result.detach(), model.weight.grad.clone()]


SHAPES = [(3, 5), (4, 7), (6, 9), (5, 20)]


def test_a_model_with_a_declared_operator_is_padded_and_equal(engine: ToolEngine) -> None:
    neuroncache.register_padding_rule("nctest::swish", "pointwise", gives="zero", samples=[X])
    neuroncache.register_padding_rule("nctest::swish_gradient", "pointwise", gives="zero", samples=[(X, X)])
    model = Model()
    with bucketed(StaticBackend(), engine, strict=True) as name:
        compiled = torch.compile(model, backend=name, dynamic=True)
        for shape in SHAPES:
            for got, expected in zip(step(compiled, model, *shape), step(model, model, *shape), strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
        stats = neuroncache.stats()
        assert entries(Model.forward) == 1 and not stats["refusals"] and stats["buckets"] >= 3
        # Declared, not proven: the first calls were compared with exact ones.
        assert stats["verified"] >= 3 and stats["mismatches"] == 0


def test_a_wrong_rule_is_found_on_the_users_data(engine: ToolEngine) -> None:
    """Without samples nobody tests it before; `centred` mixes the rows."""

    def centred(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.nctest.centred(x + 1) * 2

    neuroncache.register_padding_rule("nctest::centred", "pointwise")
    with bucketed(StaticBackend(), engine, strict=True) as name, torch.no_grad():
        compiled = torch.compile(centred, backend=name, dynamic=True)
        for length in (5, 7, 9):
            x = torch.randn(length, 4, dtype=torch.float64)
            torch.testing.assert_close(compiled(x), centred(x))
        assert neuroncache.stats()["mismatches"] == 1


def test_an_operator_that_nobody_declared_is_refused_by_name(engine: ToolEngine) -> None:
    model = Model()
    with bucketed(StaticBackend(), engine, strict=True) as name:
        compiled = torch.compile(model, backend=name, dynamic=True)
        for shape in SHAPES[:2]:
            for got, expected in zip(step(compiled, model, *shape), step(model, model, *shape), strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
        (refusal,) = neuroncache.stats()["refusals"]
        assert refusal["op"] == "nctest.swish.default" and "rule_operators.py" in refusal["source"]
        assert neuroncache.stats()["buckets"] == 0


def test_an_undeclared_operator_that_meets_no_padding_runs_as_it_is(engine: ToolEngine) -> None:
    weight = torch.nn.Parameter(WEIGHT)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ops.nctest.waves(weight)

    with bucketed(StaticBackend(), engine, strict=True) as name, torch.no_grad():
        compiled = torch.compile(function, backend=name, dynamic=True)
        for length in (5, 7, 9):
            x = torch.randn(length, 4, dtype=torch.float64)
            torch.testing.assert_close(compiled(x), function(x))
        assert not neuroncache.stats()["refusals"] and neuroncache.stats()["buckets"] >= 2
