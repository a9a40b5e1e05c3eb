"""From a symbolic graph of Dynamo to a pair of functional graphs, and to the request for their plan.

AOTAutograd runs here with compilers of our own, which keep the functional forward and backward graphs and hand back the two
halves of a dispatcher. The forward graph saves one number more than the backward needs: the ticket of the call, by which the
backward call finds the sizes and buckets of its forward call, whatever happened in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from neuroncache import canonical, compat
from neuroncache.bucketing import rules
from neuroncache.bucketing.layout import Sizes
from neuroncache.errors import Unsupported
from neuroncache.expr import Expr, evaluate

TICKET = "neuroncache_ticket"


@dataclass(frozen=True)
class OutputType:
    """How an output of the forward graph lies in memory by the trace, in expressions. `alias`: AOTAutograd makes a view of
    another tensor by this description."""

    strides: tuple[Expr, ...]
    offset: Expr
    alias: bool

    def strides_differ(self, buckets: Sizes, sizes: Sizes) -> bool:
        """Whether it lies otherwise at a bucket vector, be its own sizes the true ones or not (`y[:, 0]`)."""
        return any(evaluate(stride, buckets) != evaluate(stride, sizes) for stride in self.strides)


@dataclass
class Side:
    """One functional graph, and its canonical form."""

    gm: fx.GraphModule
    graph: canonical.Graph
    outputs: int


@dataclass
class Captured:
    """What AOTAutograd made of a graph. Sizes are named by the ids of the forward graph."""

    forward: Side | None = None
    backward: Side | None = None
    inference: bool = False
    user_outputs: int = 0  # outputs of the forward graph that are not saved for the backward
    output_types: list[OutputType | None] = field(default_factory=list)
    saved: list[tuple[int, int]] = field(default_factory=list)
    tangents: list[tuple[int, int]] = field(default_factory=list)
    failure: Unsupported | None = None

    def sides(self) -> list[Side]:
        return [side for side in (self.forward, self.backward) if side is not None]

    def backward_names(self) -> dict[str, str]:
        """The forward graph's ids of the backward graph's symbols."""
        assert self.forward is not None and self.backward is not None
        forward = self.forward.graph.symbols.ids
        names: dict[str, str] = {}
        for symbol, name in self.backward.graph.symbols.ids.items():
            if symbol not in forward:
                raise Unsupported("the backward graph has a size that the forward graph does not know")
            names[name] = forward[symbol]
        return names

    def request(self, *, random: str, fixed: Sequence[tuple[Any, int]] = ()) -> dict[str, Any]:
        """The request for a plan (docs/padding.md). `fixed`: sizes that the guards of the trace bind to a number."""
        assert self.forward is not None
        hints = self.forward.graph.symbols.hints()
        names = [name for name in self.forward.graph.symbols.ids.values() if name in hints]
        equal = [
            [first, second]
            for index, first in enumerate(names)
            for second in names[index + 1 :]
            if hints[first] == hints[second] and first[0] == second[0] == "s"
        ]
        request: dict[str, Any] = {"request": 1, "forward": self.forward.graph.document}
        if self.backward is not None:
            numbers = {name: number for number, name in enumerate(self.forward.graph.symbols.ids.values())}
            request["backward"] = self.backward.graph.document
            request["link"] = {
                "symbols": [numbers[name] for name in self.backward_names().values()],
                "saved": [list(pair) for pair in self.saved],
                "tangents": [list(pair) for pair in self.tangents],
            }
        request |= {"equal": equal, "inputs": "zero", "random": random, "claims": False}
        declared = rules.table(node["op"] for side in self.sides() for node in side.graph.document["nodes"])
        if declared:
            request["rules"] = declared
        known = self.forward.graph.symbols.known(fixed)
        if known:
            request["known"] = known
        return request


def capture(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    decompositions: dict[Any, Any],
    forward: Callable[[list[Any]], Any],
    backward: Callable[[list[Any]], Any],
    improve: Callable[[fx.GraphModule], fx.GraphModule] = lambda graph: graph,
) -> tuple[Callable[..., Any], Captured]:
    """Runs AOTAutograd. `forward` and `backward` become the compiled graphs: they take and return lists as AOTAutograd's own do,
    `forward` with the ticket as its last output, `backward` with the ticket among its inputs (`ticket_position`).
    `improve`: what the compiler does to a joint graph, or to one that has no backward, before anything else.
    Raises `Unsupported` for what cannot be captured; the graph is as it was then."""
    captured = Captured()
    try:
        function = compat.run_aot_autograd(
            gm,
            example_inputs,
            forward_compiler=lambda graph, inputs: _took(captured, graph, inputs, "forward", forward),
            backward_compiler=lambda graph, inputs: _took(captured, graph, inputs, "backward", backward),
            inference_compiler=lambda graph, inputs: _took(captured, improve(graph), inputs, "inference", forward),
            partition=lambda joint, inputs, **keywords: _partition(captured, improve(joint), inputs, keywords),
            decompositions=decompositions,
        )
    except Unsupported:
        raise
    if captured.failure is not None:
        raise captured.failure
    if captured.forward is None or (captured.backward is None) != captured.inference:
        raise Unsupported("AOTAutograd gave no pair of graphs")
    return function, captured


def ticket_position(captured: Captured) -> int:
    """Where the backward graph's inputs hold the ticket: behind the saved sizes."""
    assert captured.backward is not None
    kinds = [entry["kind"] for entry in captured.backward.graph.document["inputs"]]
    return next((index for index, kind in enumerate(kinds) if kind != "symbol"), len(kinds))


def _took(
    captured: Captured, gm: fx.GraphModule, inputs: Sequence[Any], role: str, compiled: Callable[[list[Any]], Any]
) -> Callable[[list[Any]], Any]:
    try:
        if role == "backward":
            _take_backward(captured, gm, inputs)
        else:
            _take_forward(captured, gm, inputs, role)
    except Unsupported as error:
        # Not raised here: AOTAutograd wraps or hides what its compilers raise.
        captured.failure = captured.failure or error
    return compiled


def _output(gm: fx.GraphModule) -> fx.Node:
    (node,) = gm.graph.find_nodes(op="output")
    return node


def _take_forward(captured: Captured, gm: fx.GraphModule, inputs: Sequence[Any], role: str) -> None:
    gm = fx.GraphModule(gm, _copy(gm))
    output = _output(gm)
    results = list(output.args[0])
    if role == "inference":
        captured.inference = True
        captured.user_outputs = len(results)
    else:
        results.pop()  # the ticket
        output.args = (tuple(results),)
    kinds = ["user" if index < captured.user_outputs else "other" for index in range(len(results))]
    graph = canonical.export_functional(gm, inputs, role, kinds, foreign=True)
    for value in inputs:
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            raise Unsupported("an input is a number that is no size")
    if any(name[0] != "s" for name in graph.symbols.ids.values()):
        raise Unsupported("a size is known at run time only")
    captured.forward = Side(gm, graph, len(results))
    captured.output_types = _output_types(graph, results[: captured.user_outputs])


def _output_types(graph: canonical.Graph, results: Sequence[Any]) -> list[OutputType | None]:
    aliases = compat.alias_outputs()
    types: list[OutputType | None] = []
    for index, result in enumerate(results):
        value = result.meta.get("val") if isinstance(result, fx.Node) else None
        if not isinstance(value, torch.Tensor):
            types.append(None)
            continue
        export = graph.symbols.export
        types.append(
            OutputType(
                tuple(export(stride) for stride in value.stride()), export(value.storage_offset()), index in aliases
            )
        )
    return types


def _take_backward(captured: Captured, gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    if captured.forward is None:
        raise captured.failure or Unsupported("a backward graph without its forward graph")
    gm = fx.GraphModule(gm, _copy(gm))
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    (ticket,) = [index for index, node in enumerate(placeholders) if node.name == TICKET]
    gm.graph.erase_node(placeholders.pop(ticket))
    inputs = [value for index, value in enumerate(inputs) if index != ticket]
    graph = canonical.export_functional(gm, inputs, "backward", ["other"] * len(_output(gm).args[0]), foreign=True)
    captured.backward = Side(gm, graph, len(_output(gm).args[0]))
    _link(captured, placeholders)


def _link(captured: Captured, placeholders: Sequence[fx.Node]) -> None:
    assert captured.forward is not None
    output = _output(captured.forward.gm)
    results = list(output.args[0])
    saved = {
        result.name: index
        for index, result in enumerate(results)
        if index >= captured.user_outputs and isinstance(result, fx.Node)
    }
    descriptions = list(output.meta.get("desc") or ())
    for index, node in enumerate(placeholders):
        if node.name in saved:
            captured.saved.append((index, saved[node.name]))
            continue
        target = getattr(node.meta.get("desc"), "output", None)
        if not node.name.startswith("tangents") or target is None or target not in descriptions:
            raise Unsupported(f"the backward graph's input {node.name} has an unknown origin")
        captured.tangents.append((index, descriptions.index(target)))


def _copy(gm: fx.GraphModule) -> fx.Graph:
    """The graph once more, with its nodes' names and notes, to be changed."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        values[node] = graph.node_copy(node, lambda other: values[other])
        values[node].name = node.name
    return graph


def _partition(
    captured: Captured, joint: fx.GraphModule, inputs: Sequence[Any], keywords: dict[str, Any]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    forward, backward = compat.min_cut_partition(joint, inputs, **keywords)
    captured.user_outputs = int(keywords["num_fwd_outputs"])
    _add_ticket(forward, backward, captured.user_outputs)
    return forward, backward


def _add_ticket(forward: fx.GraphModule, backward: fx.GraphModule, user_outputs: int) -> None:
    """Has the forward graph save one size more, behind the others. What is really saved is the ticket."""
    symbol = next(
        (
            node
            for node in forward.graph.nodes
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.SymInt)
        ),
        None,
    )
    if symbol is None:
        raise Unsupported("the forward graph has no size among its inputs")
    output = _output(forward)
    results = tuple(output.args[0])
    sizes = sum(
        isinstance(node, fx.Node) and isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))
        for node in results[user_outputs:]
    )
    output.args = ((*results, symbol),)
    if isinstance(descriptions := output.meta.get("desc"), list) and descriptions:
        output.meta["desc"] = [*descriptions, None]
    forward.recompile()
    placeholders = [node for node in backward.graph.nodes if node.op == "placeholder"]
    before = placeholders[sizes] if sizes < len(placeholders) else next(iter(backward.graph.nodes))
    with backward.graph.inserting_before(before):
        ticket = backward.graph.placeholder(TICKET)
    if ticket.name != TICKET:
        raise Unsupported(f"the graph has a value named {TICKET}")
    ticket.meta["val"] = symbol.meta["val"]
    backward.recompile()
