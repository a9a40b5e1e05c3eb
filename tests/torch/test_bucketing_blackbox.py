"""Backends that differentiate a graph themselves, on padded forward graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import neuroncache
import pytest
import torch
import torch.nn.functional as F
from bucketing_tools import StaticBackend, ToolEngine, bucketed, entries, naive_engine, padding_tool
from neuroncache.bucketing import blackbox
from test_bucketing_engine import Model as Transformer
from test_bucketing_engine import batch_of
from torch import nn


class SelfMade(torch.autograd.Function):
    """The function that such a backend returns: nobody sees what its backward does."""

    @staticmethod
    def forward(ctx: Any, gm: torch.fx.GraphModule, *inputs: torch.Tensor) -> Any:
        with torch.enable_grad():
            leaves = [value.detach().requires_grad_(value.requires_grad) for value in inputs]
            outputs = gm(*leaves)
        ctx.leaves, ctx.outputs = leaves, outputs
        results = tuple(output.detach() for output in outputs)
        ctx.mark_non_differentiable(
            *(one for one, made in zip(results, outputs, strict=True) if not made.requires_grad)
        )
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: torch.Tensor) -> Any:
        open_ = [(one, tangent) for one, tangent in zip(ctx.outputs, tangents, strict=True) if one.requires_grad]
        leaves = [leaf for leaf in ctx.leaves if leaf.requires_grad]
        found = iter(
            torch.autograd.grad([one for one, _ in open_], leaves, [one for _, one in open_], allow_unused=True)
        )
        return (None, *(next(found) if leaf.requires_grad else None for leaf in ctx.leaves))


class BlackBox(StaticBackend):
    """Only the forward graph, please."""

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        checked = super().__call__(gm, example_inputs)
        self.open = [value.requires_grad for value in example_inputs]

        def run(*inputs: torch.Tensor) -> Any:
            with torch.no_grad():
                checked(*inputs)  # looks at the sizes
            return SelfMade.apply(gm, *inputs)

        return run


@pytest.fixture(scope="module")
def engine() -> Iterator[ToolEngine]:
    program = padding_tool()
    if program is None:
        pytest.skip("the engine is not built")
    result = ToolEngine(program)
    yield result
    result.close()


class Classifier(nn.Module):
    """A perceptron per token, and the mean over those that the mask lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> Any:
        hidden = self.body(x) * mask[..., None]
        logits = self.head(hidden.sum(1) / mask.sum(1, keepdim=True).clamp(min=1))
        return F.cross_entropy(logits, labels), logits


def tokens(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(batch, length, 6, dtype=torch.float64, requires_grad=True)
    mask = (torch.arange(length) < torch.randint(1, length + 1, (batch, 1))).double()
    return x, mask, torch.randint(0, 3, (batch,))


def step(function: Any, model: nn.Module, given: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    model.zero_grad()
    given = tuple(value.detach().requires_grad_(value.requires_grad) for value in given)
    loss, logits = function(*given)
    (loss + logits.square().mean()).backward()
    inputs = [value.grad for value in given if value.grad is not None]
    return [loss.detach(), logits.detach(), *inputs, *(parameter.grad.clone() for parameter in model.parameters())]


SHAPES = [(3, 5), (4, 7), (6, 9), (3, 5), (5, 20), (2, 33), (7, 8), (4, 30), (3, 31)]


@pytest.mark.parametrize("kind", ["classifier", "transformer"])
def test_two_models_are_padded_before_they_are_differentiated(engine: ToolEngine, kind: str) -> None:
    torch.manual_seed(0)
    model = (Classifier() if kind == "classifier" else Transformer()).double()
    make = tokens if kind == "classifier" else batch_of
    backend = BlackBox()
    with bucketed(backend, engine, strict=True, autograd_backends="static_for_tests") as name:
        compiled = torch.compile(model, backend=name, dynamic=True)
        for shape in SHAPES:
            given = make(*shape)
            for got, expected in zip(step(compiled, model, given), step(model, model, given), strict=True):
                torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
                assert got.stride() == expected.stride()
        stats = neuroncache.stats()
        assert entries(type(model).forward) == 1 and not stats["refusals"] and stats["errors"] == 0
        # One graph per bucket vector, no backward graphs; each compared once with what the user wrote.
        assert len(backend.graphs) == stats["buckets"] == stats["verified"] < len(set(SHAPES)) + 1
        assert stats["mismatches"] == 0 and stats["padding_waste"] > 0 and any(backend.open)
        with torch.no_grad():
            given = make(4, 11)
            torch.testing.assert_close(compiled(*given), model(*given))


def run(backend: BlackBox, engine: Any, function: Callable[..., Any], sizes: tuple[int, ...], **settings: Any) -> Any:
    """Compiles a function of rows, and compares it and its gradient with the plain one at some sizes."""
    with bucketed(backend, engine, strict=True, autograd_backends="static_for_tests", **settings) as name:
        compiled = torch.compile(function, backend=name, dynamic=True)
        for size in sizes:
            x = torch.randn(size, 4, dtype=torch.float64)
            results = []
            for one in (compiled, function):
                given = x.clone().requires_grad_()
                value = one(given)
                value.pow(2).sum().backward()
                results.append((value.detach(), given.grad))
            torch.testing.assert_close(*results)
        return neuroncache.stats()


def with_detach(x: torch.Tensor) -> torch.Tensor:
    return x * x.detach().exp()


def without_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x.exp()
    return x * scale


def with_dropout(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x * 2, 0.0 + 1e-12)


def in_place(x: torch.Tensor) -> torch.Tensor:
    BUFFER.mul_(1.0)
    return x * BUFFER


def with_view(x: torch.Tensor) -> torch.Tensor:
    return x[:, 1:]


def with_root(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum(1).sqrt()


BUFFER = torch.ones(4, dtype=torch.float64)


def mean_of_nothing(x: torch.Tensor) -> torch.Tensor:
    """What a row of padding has is zero divided by zero, which nobody sees: its gradient would go to all parameters."""
    return x.sum(1) / (x != 0).double().sum(1)


@pytest.mark.parametrize(
    "function, problem",
    [
        (mean_of_nothing, "padding need not be finite behind it"),
        (with_detach, "gradients are cut off"),
        (without_grad, "gradients are cut off"),
        (with_dropout, "random numbers are drawn"),
        (in_place, "is changed in place"),
        (with_view, "is a view of an input"),
        (with_root, "its derivative may be infinite in padding"),
    ],
)
def test_where_gradients_could_change_every_shape_is_compiled(
    engine: ToolEngine, function: Callable[..., Any], problem: str
) -> None:
    backend = BlackBox()
    random = "statistical" if function is with_dropout else "strict"
    stats = run(backend, engine, function, (5, 6, 9), padded_random=random)
    (refusal,) = stats["refusals"]
    assert problem in refusal["reason"] and stats["buckets"] == 0
    assert len(backend.graphs) == 3  # one per shape, as without padding


def test_roots_of_what_is_positive_are_padded(engine: ToolEngine) -> None:
    stats = run(BlackBox(), engine, lambda x: (x * x + 1).sqrt(), (5, 6, 9, 12, 13))
    assert not stats["refusals"] and 0 < stats["buckets"] < 5


def test_infinite_padding_only_goes_where_it_has_no_gradient(engine: ToolEngine) -> None:
    stats = run(BlackBox(), engine, lambda x: x.softmax(0) * x, (5, 6, 9, 12, 13))
    assert not stats["refusals"] and 0 < stats["buckets"] < 5


def wrong(request: dict[str, Any]) -> dict[str, Any]:
    """Right results with a wrong gradient are not to be had from a plan; this one is wrong in both."""
    answer = naive_engine(request)
    for node in answer["forward"]["nodes"]:
        if node["op"] == "aten.mul.Tensor":
            node["op"] = "aten.add.Tensor"
    return answer


def test_a_wrong_plan_is_found_by_the_first_call() -> None:
    backend = BlackBox()
    stats = run(backend, wrong, lambda x: x * x.exp(), (5, 6, 7), verify="off")
    assert stats["mismatches"] == 1 and stats["buckets"] == 1


def test_a_wrong_gradient_is_a_difference() -> None:
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    x = torch.randn(3, requires_grad=True)
    assert blackbox.difference(lambda given: [given[0] * 2], lambda given: (given[0] * 2,), [x]) == ""
    assert blackbox.difference(lambda given: [Halved.apply(given[0])], lambda given: (given[0] * 2,), [x]).startswith(
        "gradient 0 differs"
    )
