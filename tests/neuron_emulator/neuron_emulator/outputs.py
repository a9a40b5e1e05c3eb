"""What torch-mlir is not to see of a graph: outputs that are inputs, twice the same or nothing, and ends behind the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx


@dataclass(frozen=True)
class Split:
    """`graph` computes each tensor once, of the types `types`; None when there is nothing to compute."""

    graph: fx.GraphModule | None
    types: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    places: tuple[tuple[str, Any], ...]

    def merge(self, inputs: Sequence[Any], computed: Sequence[torch.Tensor]) -> list[Any]:
        """The outputs of the whole graph."""
        sources = {"input": inputs, "computed": computed}
        return [value if kind == "constant" else sources[kind][value] for kind, value in self.places]


def split(gm: fx.GraphModule) -> Split:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, lambda other: copies[other])
            copies[node].name = node.name
    (output,) = gm.graph.find_nodes(op="output")
    results = output.args[0] if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
    inputs = {node: number for number, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    computed: dict[fx.Node, int] = {}
    places: list[tuple[str, Any]] = []
    for result in results:
        if not isinstance(result, fx.Node):
            places.append(("constant", result))
        elif result in inputs:
            places.append(("input", inputs[result]))
        else:
            places.append(("computed", computed.setdefault(result, len(computed))))
    types = tuple((tuple(node.meta["val"].shape), node.meta["val"].dtype) for node in computed)
    if not computed:
        return Split(None, types, tuple(places))
    graph.output(tuple(copies[node] for node in computed))
    graph.eliminate_dead_code()
    return Split(fx.GraphModule(gm, graph), types, tuple(places))


def clamp_ends(gm: fx.GraphModule) -> None:
    """Slices to the end say 2**63 - 1, and for `slice_scatter` torch-mlir makes an index of as many elements."""
    aten = torch.ops.aten
    for node in gm.graph.nodes:
        if node.target not in (aten.slice_scatter.default, aten.slice.Tensor):
            continue
        names = [argument.name for argument in node.target._schema.arguments]
        given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        end = given.get("end")
        size = given[names[0]].meta["val"].shape[given.get("dim", 0)]
        if end is None or end > size:
            given["end"] = size
            ordered = {name: given.pop(name) for name in names[:2] if name in given}
            first = tuple(ordered.values())
            node.args, node.kwargs = first, {name: value for name, value in given.items() if name not in ordered}
