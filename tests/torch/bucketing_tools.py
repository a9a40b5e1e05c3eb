"""What the tests of bucketing share: engines that answer requests for plans, and a backend that takes fixed sizes only."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def naive_engine(request: dict[str, Any]) -> dict[str, Any]:
    """Pads everything and masks nothing: right for graphs that mix no rows, such as a perceptron and its backward."""
    forward = request["forward"]
    answer: dict[str, Any] = {
        "plan": 1,
        "engine": "naive",
        "symbols": [symbol["id"] for symbol in forward["symbols"]],
        "unify": [],
        "forward": _naive_sub(forward, {}, set(), {f for _, f in request.get("link", {}).get("saved", ())}),
        "masks": 0,
        "unproven": [],
    }
    if "backward" in request:
        link = request["link"]
        ids = [symbol["id"] for symbol in forward["symbols"]]
        names = {
            symbol["id"]: ids[number]
            for symbol, number in zip(request["backward"]["symbols"], link["symbols"], strict=True)
        }
        answer["backward"] = _naive_sub(request["backward"], names, {b for b, _ in link["saved"]}, set())
    return answer


def _naive_sub(graph: dict[str, Any], names: dict[str, str], kept: set[int], saved: set[int]) -> dict[str, Any]:
    from neuroncache.bucketing.plan import _Exact

    exact = _Exact(graph, names or None)
    sub = exact.document()
    for node in sub["nodes"]:
        if node["op"] in ("aten.view.default", "aten._unsafe_view.default"):
            node["op"] = "aten.reshape.default"
    types = [entry["type"] for entry in graph["inputs"]]
    dims = [_dims(kind, names) if isinstance(kind, dict) and "d" in kind else None for kind in types]
    sub["inputs"] = [
        {"d": one, "kept": index in kept} if one is not None and _padded(one) else None
        for index, one in enumerate(dims)
    ]
    by_value = {index: dims[index] for index in range(len(types))}
    number = len(types)
    for node in graph["nodes"]:
        kinds = node.get("outs", [node.get("out")])
        if len(kinds) == 1 and isinstance(kinds[0], dict) and "int" in kinds[0]:
            continue
        for kind in kinds:
            by_value[number] = _dims(kind, names) if isinstance(kind, dict) and "d" in kind else None
            number += 1
    for index, output in enumerate(sub["outputs"]):
        if isinstance(output, dict) and "v" in output and by_value[output["v"]] is not None:
            one = {**output, "d": by_value[output["v"]]}
            sub["outputs"][index] = {**one, "kept": True} if index in saved else one
    return sub


def _dims(kind: dict[str, Any], names: dict[str, str]) -> list[list[dict[str, Any]]]:
    return [_factors(size, names) for size in kind["d"]]


def _factors(size: Any, names: dict[str, str]) -> list[dict[str, Any]]:
    if size == 1:
        return []
    if isinstance(size, int):
        return [{"e": size}]
    if isinstance(size, str):
        return [{"e": names.get(size, size), "p": True}]
    assert size[0] == "*", size
    ordered = sorted(size[1:], key=lambda one: isinstance(one, int))
    return [factor for one in ordered for factor in _factors(one, names)]


def _padded(dims: list[list[dict[str, Any]]]) -> bool:
    return any(factor.get("p") for dim in dims for factor in dim)


class ToolEngine:
    """The real engine as a program that answers one line for one line."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.answers: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.answers.append(answer)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def padding_tool() -> str | None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    named = os.environ.get("NC_PADDING_TOOL") or os.path.join(root, "build", "bin", "padding_tool")
    return named if os.access(named, os.X_OK) else None


class StaticBackend:
    """Runs graphs operator by operator, as a compiler would that knows fixed sizes only: anything open is an error."""

    neuroncache_thread_safe = True

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.calls = 0
        self.fail = False

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        if self.fail:
            raise ValueError("this compiler is broken")
        for value in example_inputs:
            assert isinstance(value, torch.Tensor), f"a static compiler is given a {type(value).__name__}"
        for node in gm.graph.nodes:
            value = node.meta.get("example_value", node.meta.get("val"))
            for one in value if isinstance(value, (tuple, list)) else [value]:
                assert not isinstance(one, (torch.SymInt, torch.SymFloat)), node
                if isinstance(one, torch.Tensor):
                    assert all(type(size) is int for size in one.shape), node
        self.graphs.append(gm)
        expected = [tuple(value.shape) for value in example_inputs]

        def run(*inputs: Any) -> Any:
            assert [tuple(value.shape) for value in inputs] == expected
            self.calls += 1
            return gm(*inputs)

        return run


@contextmanager
def bucketed(backend: StaticBackend | None = None, engine: Any = naive_engine, **settings: Any) -> Iterator[str]:
    """For the length of the block, the name of a registered backend with buckets."""
    import neuroncache
    from neuroncache import config, counters
    from neuroncache.bucketing import background, dispatch
    from neuroncache.bucketing import engine as engines
    from torch._dynamo.backends import registry

    name = "static_for_tests"
    torch._dynamo.reset()
    neuroncache.enable()
    config.reload()
    config.set("static_backends", f"neuron,{name}")
    config.set("autostart", False)
    config.set("socket", "/nonexistent/neuroncache-tests.sock")
    for setting, value in settings.items():
        config.set(setting, value)
    counters.reset()
    dispatch.everyone.clear()
    engines.forget()
    previous = engines.ask
    engines.ask = engine
    registry._COMPILER_FNS.pop(name, None)
    registry._BACKENDS.pop(name, None)
    if backend is not None:
        registry.register_backend(backend, name=name)
    try:
        yield name if backend is not None else "inductor"
    finally:
        background.drain()
        engines.ask = previous
        registry._COMPILER_FNS.pop(name, None)
        registry._BACKENDS.pop(name, None)
        torch._dynamo.reset()
        config.reload()


def entries(function: Any) -> int:
    """How many entries Dynamo has for a function."""
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

    return len(_debug_get_cache_entry_list(function.__code__))
