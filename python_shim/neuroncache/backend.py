"""One graph from Dynamo: ours or stock's. Whatever fails on our side, the caller gets what stock torch would give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import config as dynamo_config
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

from neuroncache import config, counters, log
from neuroncache.cache import Cache
from neuroncache.errors import Unsupported, passes_through

SUPPORTED_TORCH = ("2.13.",)

_cache = Cache()


def on_graph(
    name: str,
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    options: dict[str, Any],
    stock: Callable[[Any, Any], Any],
) -> Any:
    """Compiles a graph that was meant for the backend `name`; `stock` is what would have compiled it."""
    counters.count("graphs")
    counters.begin(name, len(gm.graph.nodes))
    reason = "error"
    outcome = "stock"
    static = _is_static(name)
    try:
        try:
            bypass = _bypass_reason(example_inputs, any_device=static)
            if bypass is not None:
                reason = bypass
                counters.bypass(reason)
            elif (bucketed := _with_buckets(name, gm, example_inputs, options, stock))[0] is not None:
                counters.count("entries")
                outcome, reason = "exact" if bucketed[1] else "buckets", bucketed[1]
                return bucketed[0]
            elif static:
                reason = "fixed_sizes"  # nothing is open: the backend's own affair
            else:
                function = _checked(_compile(gm, example_inputs, options), gm)
                counters.count("entries")
                outcome, reason = counters.outcome(), ""
                return function
        except Unsupported as error:
            reason = error.reason
            counters.bypass("unsupported")
            counters.refusal(error.op, error.reason, error.source)
            _cache.bypassed("unsupported")
            log.debug("a graph is left to stock torch: %s", error.reason)
        except Exception as error:
            if passes_through(error) or config.get("strict"):
                reason = type(error).__name__
                raise
            reason = f"{type(error).__name__}: {error}"
            counters.count("errors")
            counters.bypass("error")
            _cache.bypassed("error")
            log.warn("error", f"a graph is left to stock torch.compile after {reason}")
            log.logger.debug("neuroncache: cause of the above", exc_info=True)
        return stock(gm, example_inputs)
    finally:
        counters.end(outcome, reason)


def _compile(gm: torch.fx.GraphModule, example_inputs: list[Any], options: dict[str, Any]) -> Callable[..., Any]:
    from neuroncache.compile import compile_graph

    return compile_graph(gm, example_inputs, options=options, cache=_cache)


def _is_static(name: str) -> bool:
    return name != "inductor" and name in config.get("static_backends")


def _with_buckets(
    name: str,
    gm: torch.fx.GraphModule,
    example_inputs: list[Any],
    options: dict[str, Any],
    stock: Callable[[Any, Any], Any],
) -> tuple[Callable[..., Any] | None, str]:
    """The graph on padded sizes; None when it has no open sizes, or when it shall or must be compiled as it is. With the reason
    where it runs at its exact shapes."""
    if config.get("bucketing") == "off":
        return None, ""
    from neuroncache.bucketing import entry

    if not entry.wanted(name) or not entry.has_symbols(gm):
        return None, ""
    return entry.with_buckets(name, gm, example_inputs, options, stock, _cache)


def _bypass_reason(example_inputs: list[Any], *, any_device: bool = False) -> str | None:
    """Why this graph is stock's before it is looked at, or None."""
    if not config.get("enabled"):
        return "disabled"
    if not torch.__version__.startswith(SUPPORTED_TORCH):
        return "torch_version"
    for value in example_inputs:
        if not any_device and isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return f"device_{value.device.type}"
    # Saving or serialising what is compiled needs stock's own kinds of result.
    if functorch_config.bundled_autograd_cache or functorch_config.bypass_autograd_cache_key:
        return "aot_compile"
    if dynamo_config.caching_precompile:
        return "precompile"
    # Tools that take the compiler apart must see the real one.
    if dynamo_config.repro_after is not None or _bisecting():
        return "debugging"
    if inductor_config.force_disable_caches:
        return "caches_disabled"
    return None


def _bisecting() -> bool:
    from torch._inductor.compiler_bisector import CompilerBisector

    return CompilerBisector.get_backend() is not None


class OutputMismatch(RuntimeError):
    """A loaded artifact returned something else than its graph does."""


def _checked(function: Callable[..., Any], gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """`function`, with the count and the types of its outputs compared to the graph's on the first call.

    Dynamo takes whatever sequence a backend returns: a bare tensor, for one, would silently be cut into its rows.
    """
    if not callable(function):
        raise TypeError(f"the compiled graph is a {type(function).__name__}, which cannot be called")
    (results,) = next(node for node in reversed(gm.graph.nodes) if node.op == "output").args
    expected = [_is_tensor(result) for result in results]
    current: Callable[..., Any] = function

    def first(*arguments: Any) -> Any:
        nonlocal current
        outputs = function(*arguments)
        problem = _mismatch(outputs, expected)
        if problem:
            # The inputs may have been changed in place by now: running the graph again could give a wrong result.
            counters.count("errors")
            raise OutputMismatch(
                f"neuroncache: {problem}; set NEURONCACHE=0 to go on without the cache, and report this"
            )
        current = function
        return outputs

    def run(*arguments: Any) -> Any:
        return current(*arguments)

    current = first
    return run


def _is_tensor(result: Any) -> bool | None:
    """Whether a result of the graph is a tensor; None where the graph does not say."""
    if not isinstance(result, torch.fx.Node):
        return False
    value = result.meta.get("example_value", result.meta.get("val"))
    return None if value is None else isinstance(value, torch.Tensor)


def _mismatch(outputs: Any, expected: list[bool | None]) -> str:
    if not isinstance(outputs, (tuple, list)):
        return f"a compiled graph returned a {type(outputs).__name__}, not a tuple"
    if len(outputs) != len(expected):
        return f"a compiled graph returned {len(outputs)} values in place of {len(expected)}"
    for index, (output, tensor) in enumerate(zip(outputs, expected, strict=True)):
        if tensor is not None and isinstance(output, torch.Tensor) != tensor:
            return f"value {index} of a compiled graph is a {type(output).__name__}"
    return ""
