"""Plans of docs/padding.md: decoding, and putting a bucket vector in by substitution alone.

A `Plan` belongs to one pair of graphs. `SubPlan.instantiate` gives the graph of fixed sizes as plain ATen nodes, for any
compiler; `SubPlan.run` computes it node by node; `SubPlan.call` does all that a call needs, padding and cutting included.
Sizes are given by symbol id (``{"s0": 8}``), those of both sub-plans by the ids of the forward graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from neuroncache.bucketing.layout import Fit, Layout, Sizes, parse_layout
from neuroncache.errors import Unsupported
from neuroncache.expr import Expr, evaluate, rename

VERSION = 1

# Called with the number of a value and the value, as soon as it is computed; what it returns takes the value's place.
Hook = Callable[[int, Any], Any]


class Refusal(Unsupported):
    """The engine cannot prove that padding changes nothing. `graph` and `node` say where in the request."""

    def __init__(self, reason: str, *, op: str = "", graph: str = "forward", node: int | None = None) -> None:
        super().__init__(reason, op=op)
        self.graph = graph
        self.node = node


@dataclass(frozen=True)
class Slot:
    """An input with padded dimensions. `kept`: the forward graph has left it padded already."""

    layout: Layout
    kept: bool


@dataclass(frozen=True)
class Truth:
    """A true size, given to the graph as a tensor of no dimensions."""

    size: Expr
    dtype: torch.dtype

    def tensor(self, sizes: Sizes) -> torch.Tensor:
        return torch.tensor(evaluate(self.size, sizes), dtype=self.dtype)


@dataclass(frozen=True)
class Node:
    """One operation. `results`: the numbers of its values; `several`: whether the operator returns a tuple of them."""

    target: Any
    args: list[Any]
    kwargs: dict[str, Any]
    results: range
    several: bool
    source: int | None


@dataclass(frozen=True)
class Result:
    """One output: the value number `value`, cut by `layout` unless it is `kept`; else a `size`, taken at n; else `constant`."""

    value: int | None = None
    layout: Layout | None = None
    kept: bool = False
    size: Expr | None = None
    constant: Any = None


class SubPlan:
    """The plan of one graph. `graph` is the document of docs/ir.md that it was made of."""

    def __init__(
        self, document: Mapping[str, Any], graph: Mapping[str, Any], constants: Sequence[torch.Tensor] = ()
    ) -> None:
        self.document = document
        self.graph = graph
        self.constants = list(constants)
        self.inputs: list[Slot | None] = [
            None if slot is None else Slot(parse_layout(slot["d"]), bool(slot.get("kept")))
            for slot in document["inputs"]
        ]
        kinds = [entry["kind"] for entry in graph["inputs"]]
        if len(kinds) != len(self.inputs):
            raise Unsupported(f"a plan has {len(self.inputs)} inputs for the {len(kinds)} of its graph")
        self.symbol_inputs = [index for index, kind in enumerate(kinds) if kind == "symbol"]
        self.tensor_inputs = [index for index, kind in enumerate(kinds) if kind != "symbol"]
        self.truths = [Truth(entry["e"], getattr(torch, entry["t"])) for entry in document["truths"]]
        self.first_truth = len(self.inputs)
        self.nodes: list[Node] = []
        number = self.first_truth + len(self.truths)
        foreign = {node["op"] for node in graph.get("nodes", ())}
        for entry in document["nodes"]:
            count = entry.get("n")
            results = range(number, number + (1 if count is None else count))
            number = results.stop
            self.nodes.append(
                Node(
                    _operator(entry["op"], foreign),
                    entry.get("a", []),
                    entry.get("k") or {},
                    results,
                    count is not None,
                    entry.get("from"),
                )
            )
        self.values = number  # how many there are
        self.outputs = [self._result(entry) for entry in document["outputs"]]
        self.require: list[Expr] = list(document.get("require") or ())
        self.grow: list[Expr] = list(document.get("grow") or ())
        self.claims: list[dict[str, Any]] | None = document.get("claims")

    @staticmethod
    def exact(
        graph: Mapping[str, Any], constants: Sequence[torch.Tensor] = (), names: Mapping[str, str] | None = None
    ) -> SubPlan:
        """The graph itself as a plan in which nothing is padded. `names`: other ids for its symbols."""
        return SubPlan(_Exact(graph, names).document(), graph, constants)

    @staticmethod
    def _result(entry: Any) -> Result:
        if not isinstance(entry, dict):
            return Result(constant=entry)
        if "v" in entry:
            layout = parse_layout(entry["d"]) if entry.get("d") is not None else None
            return Result(value=entry["v"], layout=layout, kept=bool(entry.get("kept")))
        if "e" in entry:
            return Result(size=entry["e"])
        return Result(constant=_decode(entry, {}, _no_value))

    # -- checks -----------------------------------------------------------------------------------------------------

    def fits(self, buckets: Sizes) -> bool:
        """Whether everything that the plan requires holds at a bucket vector."""
        return all(evaluate(expression, buckets) >= 0 for expression in self.require)

    def has_room(self, buckets: Sizes, sizes: Sizes) -> bool:
        """Whether everything of these true sizes fits into what a bucket vector makes of it: some sizes fall as others grow."""
        return all(evaluate(expression, buckets) >= max(1, evaluate(expression, sizes)) for expression in self.grow)

    # -- the graph of fixed sizes -----------------------------------------------------------------------------------

    def instantiate(self, buckets: Sizes) -> fx.GraphModule:
        """The graph at a bucket vector. It takes the graph's inputs without the symbols, then the truths, and returns a tuple
        of those outputs that are values, padded. Nodes carry the number of the graph's node they come from as ``meta["from"]``."""
        graph = fx.Graph()
        root = torch.nn.Module()
        values: dict[int, Any] = {}
        attributes: dict[int, fx.Node] = {}
        for index in self.tensor_inputs:
            values[index] = graph.placeholder(f"input_{index}")
        for index in range(len(self.truths)):
            values[self.first_truth + index] = graph.placeholder(f"truth_{index}")
        needed = self._needed()
        for number in sorted(needed.constants):
            root.register_buffer(f"constant_{number}", self.constants[number])
            attributes[number] = graph.get_attr(f"constant_{number}")

        for node in self.nodes:
            if not needed.values.intersection(node.results):
                continue

            def look_up(kind: str, number: int) -> Any:
                return values[number] if kind == "v" else attributes[number]

            args = tuple(_decode(argument, buckets, look_up) for argument in node.args)
            kwargs = {name: _decode(argument, buckets, look_up) for name, argument in node.kwargs.items()}
            made = graph.call_function(node.target, args, kwargs)
            made.meta["from"] = node.source
            if not node.several:
                values[node.results.start] = made
                continue
            for position, number in enumerate(node.results):
                if number in needed.values:
                    values[number] = graph.call_function(operator.getitem, (made, position))
                    values[number].meta["from"] = node.source
        graph.output(tuple(values[result.value] for result in self.outputs if result.value is not None))
        return fx.GraphModule(root, graph)

    def _needed(self) -> _Needed:
        needed = _Needed({result.value for result in self.outputs if result.value is not None}, set())
        for node in reversed(self.nodes):
            if needed.values.intersection(node.results):

                def note(kind: str, number: int) -> Any:
                    (needed.values if kind == "v" else needed.constants).add(number)

                for argument in (*node.args, *node.kwargs.values()):
                    _decode(argument, None, note)
        return needed

    def run(
        self,
        buckets: Sizes,
        inputs: Sequence[Any],
        truths: Sequence[torch.Tensor],
        interpreter: Hook | None = None,
    ) -> list[Any]:
        """Computes the graph node by node. `inputs`: all of the graph's, padded, those that are symbols as anything.
        Returns one value per output: padded, and None for one that is no value of the graph. `interpreter` sees, and may
        replace, each value that a node returns."""
        values: dict[int, Any] = dict(enumerate([*inputs, *truths]))

        def look_up(kind: str, number: int) -> Any:
            return values[number] if kind == "v" else self.constants[number]

        for node in self.nodes:
            args = [_decode(argument, buckets, look_up) for argument in node.args]
            kwargs = {name: _decode(argument, buckets, look_up) for name, argument in node.kwargs.items()}
            returned = node.target(*args, **kwargs)
            for number, value in zip(node.results, returned if node.several else [returned], strict=True):
                values[number] = value if interpreter is None else interpreter(number, value)
        return [None if result.value is None else values[result.value] for result in self.outputs]

    # -- around it --------------------------------------------------------------------------------------------------

    def pad_inputs(self, inputs: Sequence[Any], buckets: Sizes, sizes: Sizes, fill: float = 0) -> list[Any]:
        """The inputs of a call as the graph of fixed sizes wants them; symbols stay as they are."""
        return [
            value if slot is None or slot.kept else Fit(slot.layout, buckets, sizes).pad(value, fill)
            for slot, value in zip(self.inputs, inputs, strict=True)
        ]

    def truth_tensors(self, sizes: Sizes) -> list[torch.Tensor]:
        return [truth.tensor(sizes) for truth in self.truths]

    def cut_outputs(self, raw: Sequence[Any], buckets: Sizes, sizes: Sizes) -> list[Any]:
        """What the graph itself would return, of what `run` returned. Values that are kept stay padded."""
        outputs: list[Any] = []
        for result, value in zip(self.outputs, raw, strict=True):
            if result.value is None:
                outputs.append(result.constant if result.size is None else evaluate(result.size, sizes))
            elif result.kept or result.layout is None:
                outputs.append(value)
            else:
                outputs.append(Fit(result.layout, buckets, sizes).cut(value))
        return outputs

    def call(self, inputs: Sequence[Any], buckets: Sizes, sizes: Sizes, interpreter: Hook | None = None) -> list[Any]:
        """The graph on inputs of true sizes (those that are kept: padded), by way of the bucket vector."""
        padded = self.pad_inputs(inputs, buckets, sizes)
        return self.cut_outputs(self.run(buckets, padded, self.truth_tensors(sizes), interpreter), buckets, sizes)


@dataclass
class _Needed:
    values: set[int]
    constants: set[int]


@dataclass(frozen=True)
class Plan:
    """An answer of the engine. `unify`: pairs of symbols that must be equal in a call."""

    forward: SubPlan
    backward: SubPlan | None
    symbols: tuple[str, ...]
    unify: tuple[tuple[str, str], ...]
    unproven: tuple[str, ...]
    masks: int
    engine: str

    @staticmethod
    def parse(
        answer: Mapping[str, Any],
        request: Mapping[str, Any],
        forward_constants: Sequence[torch.Tensor] = (),
        backward_constants: Sequence[torch.Tensor] = (),
    ) -> Plan:
        """The plan in an answer to `request`. Raises `Refusal` for one that holds none, `Unsupported` for one of another
        version, or with an operator that this torch does not have. Constants are those of the graphs, in their order."""
        version = answer.get("plan")
        if version != VERSION:
            raise Unsupported(f"the plan is of version {version}, known is {VERSION}")
        refusal = answer.get("refusal")
        if refusal is not None:
            raise Refusal(
                str(refusal.get("reason", "")),
                op=str(refusal.get("op") or ""),
                graph=str(refusal.get("graph", "forward")),
                node=refusal.get("node"),
            )
        backward = answer.get("backward")
        return Plan(
            forward=SubPlan(answer["forward"], request["forward"], forward_constants),
            backward=None if backward is None else SubPlan(backward, request["backward"], backward_constants),
            symbols=tuple(answer["symbols"]),
            unify=tuple((first, second) for first, second in answer["unify"]),
            unproven=tuple(answer.get("unproven") or ()),
            masks=int(answer.get("masks", 0)),
            engine=str(answer.get("engine", "")),
        )

    def fits(self, buckets: Sizes) -> bool:
        return self.forward.fits(buckets) and (self.backward is None or self.backward.fits(buckets))

    def has_room(self, buckets: Sizes, sizes: Sizes) -> bool:
        return self.forward.has_room(buckets, sizes) and (
            self.backward is None or self.backward.has_room(buckets, sizes)
        )


def values_in(node: Node) -> list[int]:
    """The numbers of the values that a node takes, in order."""
    found: list[int] = []

    def note(kind: str, number: int) -> Any:
        if kind == "v":
            found.append(number)

    for argument in (*node.args, *node.kwargs.values()):
        _decode(argument, None, note)
    return found


class _Exact:
    """Writes a graph of docs/ir.md as a plan: numbers that are sizes become expressions, all else stays."""

    def __init__(self, graph: Mapping[str, Any], names: Mapping[str, str] | None) -> None:
        self.graph = graph
        self.names = names
        self.values: list[dict[str, Any]] = []  # what stands for each value of the graph
        self.next_value = 0

    def document(self) -> dict[str, Any]:
        for entry in self.graph["inputs"]:
            self._value(entry["type"])
        nodes: list[dict[str, Any]] = []
        for node in self.graph["nodes"]:
            if "out" in node and _number(node["out"]) is not None:
                self.values.append({"e": self._expression(_number(node["out"]))})
                continue
            entry = {"op": node["op"], "a": [self._argument(argument) for argument in node["a"]]}
            if "k" in node:
                entry["k"] = {name: self._argument(argument) for name, argument in node["k"].items()}
            if "outs" in node:
                entry["n"] = len(node["outs"])
            nodes.append(entry)
            for kind in node.get("outs", [node.get("out")]):
                self._value(kind)
        outputs = [self._argument(output) for output in self.graph["outputs"]]
        return {"inputs": [None] * len(self.graph["inputs"]), "truths": [], "nodes": nodes, "outputs": outputs}

    def _value(self, kind: Any) -> None:
        number = _number(kind)
        self.values.append({"v": self.next_value} if number is None else {"e": self._expression(number)})
        self.next_value += 1

    def _expression(self, expression: Any) -> Expr:
        return expression if self.names is None else rename(expression, self.names)

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, list):
            return [self._argument(item) for item in argument]
        if not isinstance(argument, dict):
            return argument
        if "v" in argument:
            return self.values[argument["v"]]
        if "pack" in argument:
            return [self.values[number] for number in argument["pack"]]
        if "e" in argument:
            return {"e": self._expression(argument["e"])}
        if "tuple" in argument:
            return {"tuple": [self._argument(item) for item in argument["tuple"]]}
        return argument


def _number(kind: Any) -> Any:
    """The expression of a value that is a number, None for any other."""
    if isinstance(kind, dict):
        for name in ("int", "float", "bool"):
            if name in kind:
                return kind[name]
    return None


_NAMESPACES = frozenset(
    ["aten", "prims", "prim", "inductor", "rngprims", "mkldnn", "mkl", "quantized", "_c10d_functional"]
)


def _operator(name: str, foreign: Set[str]) -> Any:
    """`foreign`: the operators of the graph itself, which may be a user's own."""
    parts = name.split(".")
    if len(parts) != 3 or (parts[0] not in _NAMESPACES and name not in foreign):
        raise Unsupported("a plan has an operator of another kind", op=name)
    try:
        return getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2])
    except AttributeError:
        raise Unsupported("this torch does not have an operator of a plan", op=name) from None


def _no_value(kind: str, number: int) -> Any:
    raise Unsupported("a plan has a value inside of a constant output")


def _decode(argument: Any, buckets: Sizes | None, look_up: Callable[[str, int], Any]) -> Any:
    """An argument of docs/ir.md as the object it stands for. Values and constants are taken from `look_up`, sizes at
    `buckets`; with None for those, the walk is only made for what `look_up` sees."""
    if argument is None or isinstance(argument, (int, float)):
        return argument
    if isinstance(argument, list):
        return [_decode(item, buckets, look_up) for item in argument]
    if len(argument) != 1:
        raise Unsupported(f"a plan has an argument with {len(argument)} members")
    ((kind, content),) = argument.items()
    if kind == "v":
        return look_up("v", content)
    if kind == "e":
        return None if buckets is None else evaluate(content, buckets)
    if kind == "f":
        return float.fromhex(content)
    if kind == "const":
        return look_up("const", content)
    if kind == "pack":
        return [look_up("v", number) for number in content]
    if kind == "c":
        return complex(float.fromhex(content[0]), float.fromhex(content[1]))
    if kind == "str":
        return content
    if kind == "tuple":
        return tuple(_decode(item, buckets, look_up) for item in content)
    if kind == "dtype":
        return getattr(torch, content)
    if kind == "device":
        return torch.device(content)
    if kind == "enum":
        return getattr(torch, content.removeprefix("torch."))
    if kind == "slice":
        return slice(*(_decode(item, buckets, look_up) for item in content))
    if kind == "ellipsis":
        return ...
    raise Unsupported(f"a plan has an argument of kind '{kind}'")
