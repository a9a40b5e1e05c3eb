"""The backend: AOTAutograd, then for each functional graph StableHLO, `neuronx-cc`, and a loaded program.

Like TorchNeuron it takes fixed sizes only, knows no mode, and writes into the options that it is given.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from neuron_emulator import decompositions, lowering, outputs, runtime, toolchain

_OPTIONS = frozenset(["dynamic", "model_name", "fallback_execution", "use_tensorizer_backend"])


def neuron(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Raises `RuntimeError` for a graph with an open size, and for one that does not compile."""
    from torch._dynamo.backends.common import aot_autograd

    options = {} if options is None else options
    options.setdefault("dynamic", False)
    if options["dynamic"]:
        raise RuntimeError("neuron: dynamic shapes are not supported; compile with dynamic=False")
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        warnings.warn(f"neuron: options that mean nothing here: {', '.join(unknown)}", stacklevel=2)
    if mode not in (None, "default"):
        warnings.warn(f"neuron: mode '{mode}' is not supported; the default is used", stacklevel=2)
    refuse_symbols(gm)
    name = str(options.get("model_name", "model"))
    fallback = bool(options.get("fallback_execution", not _set("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", True)))

    def compiler(role: str) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
        return lambda graph, inputs: compile_graph(graph, f"{name}_{role}", fallback)

    made = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions.table(),
    )
    function: Callable[..., Any] = made(gm, example_inputs)
    return function


def refuse_symbols(gm: fx.GraphModule) -> None:
    """Raises `RuntimeError` when a value of the graph has a size that is open."""
    for node in gm.graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        for one in value if isinstance(value, (tuple, list)) else [value]:
            sizes = one.shape if isinstance(one, torch.Tensor) else [one]
            symbols = [size for size in sizes if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool))]
            if symbols:
                raise RuntimeError(
                    f"neuron: '{node.name}' has the dynamic size {symbols[0]}; shapes must be static: "
                    "compile with dynamic=False, or pad to a few fixed sizes"
                )


def compile_graph(gm: fx.GraphModule, name: str, fallback: bool) -> Callable[..., Any]:
    """One functional graph of fixed sizes, as a function that takes AOTAutograd's list of inputs."""
    from functorch.compile import make_boxed_func

    outputs.clamp_ends(gm)
    plan = outputs.split(gm)
    if plan.graph is None:  # every output is an input, or nothing
        return make_boxed_func(lambda *inputs: plan.merge(inputs, ()))
    lowered = lowering.lower(plan.graph, name)
    program = runtime.Program(toolchain.neff(lowered), plan.types)

    def run(*inputs: Any) -> list[Any]:
        try:
            computed = program(inputs)
        except Exception:
            if not fallback:
                raise
            return list(gm(*inputs))
        return plan.merge(inputs, computed)

    return make_boxed_func(run)


def _set(name: str, default: bool) -> bool:
    value = os.environ.get(name)
    return default if value is None else value.lower() in ("1", "true")
