"""The emulated backend by itself, without neuroncache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import neuroncache
import pytest
import torch
from neuron_emulator import lowering, toolchain
from torch import nn


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    neuroncache.disable()  # active by itself where it is installed
    torch.manual_seed(0)
    torch._dynamo.reset()
    toolchain.counts.update(dict.fromkeys(toolchain.counts, 0))
    yield
    neuroncache.enable()


def trained(module: nn.Module, function: Callable[..., Any], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The result and all gradients, of inputs and parameters."""
    leaves = [value.clone().requires_grad_(value.is_floating_point()) for value in inputs]
    module.zero_grad()
    result = function(*leaves)
    result.backward(torch.linspace(-1, 1, result.numel()).reshape(result.shape))
    grads = [leaf.grad for leaf in (*leaves, *module.parameters()) if leaf.requires_grad]
    return [result.detach(), *[grad.clone() for grad in grads if grad is not None]]


def check(module: nn.Module, *inputs: torch.Tensor) -> None:
    expected = trained(module, module, *inputs)
    compiled = torch.compile(module, backend="neuron", dynamic=False, fullgraph=True)
    torch.testing.assert_close(trained(module, compiled, *inputs), expected, rtol=1e-4, atol=1e-5)


def test_a_perceptron_trains_as_in_eager_mode() -> None:
    check(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)), torch.randn(6, 8))
    assert toolchain.counts == {"graphs": 2, "hits": 0, "compiles": 2}


def test_open_sizes_are_refused() -> None:
    compiled = torch.compile(nn.Linear(4, 4), backend="neuron", dynamic=True)
    with pytest.raises(Exception, match="has the dynamic size s"):
        compiled(torch.randn(3, 4))
    with pytest.raises(Exception, match="dynamic shapes are not supported"):
        torch.compile(lambda x: x + 1, backend="neuron", options={"dynamic": True})(torch.randn(3))


@pytest.mark.parametrize(
    ("memory", "seconds", "message"), [(256 << 20, 60, "bad_alloc|memory"), (8 << 30, 1, "it took over 1 s")]
)
def test_lowering_that_never_ends_is_ended(memory: int, seconds: int, message: str) -> None:
    graph = torch.fx.Graph()
    x, part = graph.placeholder("x"), graph.placeholder("part")
    x.meta["val"], part.meta["val"] = torch.empty(8, 2, 8, 8), torch.empty(8, 2, 8, 4)
    wide = graph.call_function(torch.ops.aten.slice_scatter.default, (x, part, 3, 4, 2**63 - 1))
    wide.meta["val"] = x.meta["val"]
    graph.output((wide,))
    with pytest.raises(RuntimeError, match=f"endless cannot be lowered to StableHLO: (?s:.*)({message})"):
        lowering.lower(torch.fx.GraphModule(nn.Module(), graph), "endless", memory, seconds)
    assert "stablehlo" in lowered(lambda x: x + 1, torch.randn(3)).text  # the next one is served


def lowered(function: Callable[..., Any], *inputs: torch.Tensor) -> lowering.Lowered:
    from torch.fx.experimental.proxy_tensor import make_fx

    def flat(*given: torch.Tensor) -> tuple[Any, ...]:
        results = function(*given)
        return tuple(results) if isinstance(results, tuple) else (results,)

    return lowering.lower(make_fx(flat, tracing_mode="fake")(*inputs), "graph")
