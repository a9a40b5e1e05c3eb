"""Small graphs through `compile_graph` and a cache in a directory; run by test_aot.py in processes of its own.

``aot_cases.py STORE OUT CASE...``: writes {case: {"values": [tensor], "events": [...], "refusals": [...]}} and, under "", which
modules of inductor's compiler were imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from local_cache import LocalCache
from neuroncache import compat, counters
from neuroncache.compile import compile_graph
from torch import nn
from torch.nn import functional as F
from torch.utils import checkpoint

Case = Callable[[Callable[..., Any]], Iterator[torch.Tensor]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def train(module: nn.Module, compiled: Callable[..., Any], *inputs: torch.Tensor) -> Iterator[torch.Tensor]:
    """One step: the output and all gradients."""
    module.zero_grad()
    torch.manual_seed(3)
    output = compiled(*inputs)
    yield output
    output.pow(2).sum().backward()
    yield from (parameter.grad for parameter in module.parameters() if parameter.grad is not None)
    yield torch.rand(1)  # the random state afterwards


@case
def mlp(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.25), nn.Linear(32, 8))
    yield from train(model, compile_(lambda x: model(x)), torch.randn(4, 16))


@case
def cnn(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    compiled = compile_(lambda x: model(x))
    x = torch.randn(2, 3, 8, 8)
    yield from train(model, compiled, x)
    yield from train(model, compiled, x)
    yield from (buffer.clone() for buffer in model.buffers())


@case
def sizes(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    # A float of a module is traced as a symbol first, and Dynamo starts again.
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU())
    compiled = compile_(lambda x: model(x) * x.shape[0], dynamic=True)
    for count in (6, 5, 9):
        yield from train(model, compiled, torch.randn(count, 16))


@case
def attention(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    model = nn.ModuleDict({"embedding": nn.Embedding(50, 16), "out": nn.Linear(16, 4)})

    def forward(ids: torch.Tensor) -> torch.Tensor:
        hidden = model["embedding"](ids)[:, None]
        hidden = F.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True)
        result: torch.Tensor = model["out"](hidden[:, 0])
        return result

    yield from train(model, compile_(forward), torch.randint(0, 50, (2, 7)))


@case
def inference(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    table = [float(index) for index in range(64)]
    counter = torch.zeros(1)

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        counter.add_(1)
        constant = torch.tensor(table).reshape(8, 8)
        return x @ constant, x.t(), x[1:].relu(), (x > 0).any(), counter * 2

    compiled = compile_(forward)
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(2):
            yield from (value.clone() for value in compiled(x))
    yield counter.clone()
    with torch.inference_mode():
        yield from (value.clone() for value in compiled(x))


@case
def autocast(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    model = nn.Linear(16, 16)

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            result: torch.Tensor = model(x).relu()
        return result

    yield from train(model, compile_(forward), torch.randn(4, 16))


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 5


@case
def custom_function(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    model = nn.Linear(8, 8)
    yield from train(model, compile_(lambda x: _Scale.apply(model(x)).sin()), torch.randn(4, 8))


@case
def own_policy(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    """Checkpointing by a function of the program: what it decides is in no graph that Dynamo captures."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    save = [torch.ops.aten.addmm.default]

    def contexts() -> Any:
        return checkpoint.create_selective_checkpoint_contexts(save)

    def forward(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint.checkpoint(model, x, use_reentrant=False, context_fn=contexts)
        return result

    yield from train(model, compile_(forward), torch.randn(4, 8))


@case
def other_guards(compile_: Callable[..., Any]) -> Iterator[torch.Tensor]:
    """The entries of `sizes` exist, but their guards are said not to hold: others are made beside them."""
    hold = compat.guards_hold
    compat.guards_hold = lambda *arguments: False
    try:
        yield from CASES["sizes"](compile_)
    finally:
        compat.guards_hold = hold


def main() -> None:
    store, out, *names = sys.argv[1:]
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for name in names:
        torch.manual_seed(11)
        torch._dynamo.reset()
        counters.reset()
        cache = LocalCache(store)

        def backend(gm: torch.fx.GraphModule, inputs: list[Any], cache: LocalCache = cache) -> Any:
            return compile_graph(gm, inputs, options={}, cache=cache)  # type: ignore[arg-type]

        def compile_(function: Callable[..., Any], dynamic: bool | None = None, backend: Any = backend) -> Any:
            return torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)

        values = [value.detach().clone() for value in CASES[name](compile_)]
        refusals = [entry["reason"] for entry in counters.snapshot()["refusals"]]
        results[name] = {"values": values, "events": cache.events, "refusals": refusals}
    compiler = ("torch._inductor.compile_fx", "torch._inductor.async_compile", "torch._inductor.lowering")
    results[""] = [name for name in compiler if name in sys.modules]
    torch.save(results, out)


if __name__ == "__main__":
    main()
