"""The one way in: a graph that Dynamo captured, to the callable that Dynamo runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from neuroncache import compat, config, counters, cpu
from neuroncache.aot import Compilation
from neuroncache.cache import Cache
from neuroncache.errors import Unsupported

# Options under which the code is another kind of thing than our artifacts, or where a user asks for a look inside.
_UNSUPPORTED_SETTINGS: dict[str, str] = {
    "cpp_wrapper": "the wrapper would be C++",
    "fx_wrapper": "the wrapper would be a graph",
    "freezing": "weights would be part of the code",
    "force_disable_caches": "caches are switched off",
    "save_args": "arguments are to be saved",
    "generate_intermediate_hooks": "the code would call back into inductor",
    "profile_bandwidth": "the code would be measured",
    "cpp.enable_kernel_profile": "the code would be measured",
    "wrap_inductor_compiled_regions": "regions are to be visible to dispatch modes",
    "trace.enabled": "inductor's work is to be traced",
    "nan_asserts": "the code would check every value",
}


def compile_graph(
    gm: torch.fx.GraphModule, example_inputs: list[Any], *, options: dict[str, Any], cache: Cache
) -> Callable[..., Any]:
    """Compiles a captured graph through the cache; the result takes the graph's inputs and returns a tuple.

    `options` are inductor's settings for this graph (mode and options of ``torch.compile``). Raises `Unsupported` for a
    graph that must be left to stock inductor; nothing has been changed then. Signals to Dynamo pass through.
    """
    if absent := compat.missing():
        raise Unsupported(f"this torch has no {absent}")
    settings = compat.inductor_config()
    with settings.patch(dict(options)):
        _check(settings, gm)
        cpu_class = cpu_class_for(settings)
        compilation = Compilation(gm, example_inputs, dict(options), cache, cpu_class)
        try:
            return compilation.run()
        finally:
            for reason in compilation.refusals:
                counters.refusal("", reason, "")


def cpu_class_for(settings: Any) -> cpu.CpuClass:
    """The CPU class to compile for, by inductor's settings in force and ours. Raises `Unsupported` when there is none."""
    return cpu.choose(_class_setting(settings), os.environ.get("ATEN_CPU_CAPABILITY"))


def _check(settings: Any, gm: torch.fx.GraphModule) -> None:
    for name, why in _UNSUPPORTED_SETTINGS.items():
        if getattr(settings, name, None):
            raise Unsupported(f"{name}: {why}")
    if settings.cpu_backend != "cpp":
        raise Unsupported(f"the CPU backend is {settings.cpu_backend}")
    if not isinstance(gm, torch.fx.GraphModule):
        raise Unsupported(f"the graph is a {type(gm).__name__}")
    if any(node.op == "placeholder" and _on_other_device(node) for node in gm.graph.nodes):
        raise Unsupported("an input is not on the CPU")


def _on_other_device(node: Any) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.device.type != "cpu"


def _class_setting(settings: Any) -> str:
    """The CPU class that is asked for: by our setting, or by inductor's own vector width."""
    width = getattr(settings, "cpp.simdlen")
    march = getattr(settings, "cpp.march")
    chosen: str = config.get("cpu_class")
    if width is None and march is None:
        return chosen
    for cpu_class in cpu.CLASSES.values():
        if width in (None, cpu_class.simd_bits) and march in (None, cpu_class.name):
            return cpu_class.name if chosen == "auto" else chosen
    raise Unsupported(f"inductor is set to vectors of {width} bits and -march={march}, which is no CPU class")
