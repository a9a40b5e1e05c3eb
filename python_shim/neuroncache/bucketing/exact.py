"""A symbolic graph for a static-only backend where padding is out of the question: one static graph per shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from neuroncache import compat, config, counters, log

MAX_SHAPES = 64


class ExactShapes:
    """Gives the backend Dynamo's own graph with the sizes of each call in place of the symbols."""

    def __init__(self, gm: fx.GraphModule, name: str, stock: Callable[[Any, Any], Any]) -> None:
        self.gm = gm
        self.name = name
        self.stock = stock
        self._functions: dict[tuple[Any, ...], Callable[..., Any]] = {}
        placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
        self._numbers = [
            index
            for index, node in enumerate(placeholders)
            if isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymFloat))
        ]
        self._tensors = [index for index in range(len(placeholders)) if index not in self._numbers]

        def function(*args: Any) -> Any:
            # Other sizes than those that are inputs can be open as well: the key has all shapes.
            key = tuple(tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in args)
            compiled = self._functions.get(key)
            if compiled is None:
                compiled = self._functions[key] = self._compile(key, args)
            return compiled(*(args[index] for index in self._tensors))

        self.function = torch._dynamo.disable(function, reason="one graph per shape")

    def _compile(self, key: tuple[Any, ...], args: tuple[Any, ...]) -> Callable[..., Any]:
        graph = self._at([args[index] for index in self._numbers])
        if len(self._functions) >= MAX_SHAPES:
            log.warn(
                f"shapes-{id(self)}",
                f"a graph for {self.name} that cannot be padded has more than {MAX_SHAPES} shapes; the others run "
                "operator by operator",
            )
            return graph
        inputs = [args[index] for index in self._tensors]
        counters.bypass("exact_shape")
        try:
            with compat.compile_lock(), compat.no_tracing():
                compat.propagate_fakes(graph, inputs, keep_grad=True)
                function: Callable[..., Any] = self.stock(graph, inputs)
            return function
        except Exception as error:
            if config.get("strict"):
                raise
            counters.count("errors")
            log.warn(
                "shape", f"{self.name} cannot compile a graph, which runs as it is: {type(error).__name__}: {error}"
            )
            return graph

    def _at(self, numbers: list[Any]) -> fx.GraphModule:
        """The graph with these numbers as constants."""
        graph = fx.Graph()
        values: dict[fx.Node, Any] = {}
        placeholders = [node for node in self.gm.graph.nodes if node.op == "placeholder"]
        for index, number in zip(self._numbers, numbers, strict=True):
            values[placeholders[index]] = number
        for node in self.gm.graph.nodes:
            if node in values:
                continue
            copied = graph.node_copy(node, lambda other: values[other])
            for name in ("example_value", "val", "grapharg"):
                copied.meta.pop(name, None)
            values[node] = copied
        return fx.GraphModule(self.gm, graph)
