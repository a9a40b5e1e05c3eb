"""Canonical text of an FX graph: the input of keys and of the size analysis. The grammar is in docs/ir.md.

Two graphs have the same text exactly when they are the same computation on inputs of the same types: node and variable
names, symbol names, source places and everything else in `meta` that does not decide what is computed leaves no trace.
What has no text of its own (an opaque object, a function outside torch) makes the export fail with `Unsupported`: what
cannot be keyed is not cached.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from neuroncache import compat, functions
from neuroncache.errors import Unsupported
from neuroncache.expr import Symbols

VERSION = 1

# Operators with an implementation in torch itself. Anybody else's may change while its name stays.
BUILTIN_NAMESPACES = frozenset("aten prims prim inductor rngprims mkldnn mkl quantized".split())
# Higher-order operators whose meaning is wholly in their arguments and subgraphs.
HIGHER_ORDER = frozenset(
    """autograd_function_apply tag_activation_checkpoint wrap_with_set_grad_enabled wrap_with_autocast cond
    run_and_save_rng_state run_with_rng_state""".split()
)
MAX_CONSTANT_BYTES = 64 << 20

_DTYPES: dict[torch.dtype, str] = {}
for _name, _value in vars(torch).items():
    if isinstance(_value, torch.dtype):
        # float, half and the like are second names of the same object.
        _DTYPES[_value] = str(_value).removeprefix("torch.")
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass
class Graph:
    """A graph in canonical form. `document` is what the grammar describes; everything in it is identity."""

    document: dict[str, Any]
    symbols: Symbols
    constants: list[torch.Tensor] = field(default_factory=list)
    origins: list[fx.Node] = field(default_factory=list)  # where the nodes of the document come from, in their order
    _text: str | None = None

    @property
    def text(self) -> str:
        """The canonical text: JSON without blanks, ASCII, keys in the order of the grammar."""
        if self._text is None:
            self._text = json.dumps(self.document, separators=(",", ":"), allow_nan=False)
        return self._text

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def with_hints(self) -> str:
        """The text plus the sizes the graph was traced with; for analysis, never for keys."""
        return json.dumps({**self.document, "hints": self.symbols.hints()}, separators=(",", ":"), allow_nan=False)

    def uses_dtype(self, names: Iterable[str]) -> bool:
        """Whether any value of the graph has one of the dtypes."""
        return any(f'"{name}"' in self.text for name in names)


def export_captured(gm: fx.GraphModule) -> Graph:
    """The graph as Dynamo captured it: torch functions and methods, in program order, mutation and all."""
    exporter = _Exporter("captured", "example_value")
    return exporter.export(gm, [node.meta.get("example_value") for node in _placeholders(gm)], keep_order=True)


def export_functional(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    role: str,
    output_kinds: Sequence[str] | None = None,
    *,
    foreign: bool = False,
) -> Graph:
    """A graph that AOTAutograd made, `role` being "forward", "backward" or "inference". `foreign`: operators from outside torch
    are let pass, by their names; what they compute is in no digest then.

    `example_inputs` are what it will be compiled for; their strides may differ from what the placeholders say. Independent
    nodes are put in an order that follows from the structure alone, unless the graph mutates anything.
    """
    exporter = _Exporter(role, "val", foreign=foreign)
    return exporter.export(gm, example_inputs, keep_order=_mutates(gm), output_kinds=output_kinds)


def _placeholders(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def _mutates(gm: fx.GraphModule) -> bool:
    for node in gm.graph.nodes:
        if node.op == "call_function":
            schema = getattr(node.target, "_schema", None)
            if schema is None:
                if not _is_symbolic_or_getitem(node):
                    return True  # a higher-order operator: order may matter
            elif schema.is_mutable:
                return True
        elif node.op not in ("placeholder", "get_attr", "output"):
            return True
    return False


def _is_symbolic_or_getitem(node: fx.Node) -> bool:
    module = getattr(node.target, "__module__", "")
    return module in ("_operator", "operator", "math", "torch.utils._sympy.functions", "torch", "builtins")


_RANDOM_HINTS = (
    "rand",
    "rng",
    "seed",
    "dropout",
    "bernoulli",
    "normal",
    "multinomial",
    "exponential",
    "poisson",
    "uniform",
)


def _is_random(node: fx.Node) -> bool:
    """Whether a node draws from a random stream, so that its place among the others that do matters."""
    target = node.target
    if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
        return True
    # Wider than needed on purpose ("native_layer_norm" is caught, too): this only keeps nodes in program order.
    return any(hint in str(target) for hint in _RANDOM_HINTS)


def random_states(gm: fx.GraphModule) -> frozenset[int]:
    """Which inputs are states of the random generator, saved by the forward graph for a recomputation."""
    placeholders = _placeholders(gm)
    users = [node for node in gm.graph.nodes if str(node.target) == "run_with_rng_state"]
    states = {node.args[0] for node in users if node.args}
    return frozenset(index for index, node in enumerate(placeholders) if node in states)


def _structural_order(gm: fx.GraphModule) -> list[fx.Node]:
    """Placeholders, then every node right before the first that needs it, starting from the random ones and the outputs.

    Swapping independent statements of the program does not change this order, and nodes that nothing needs are left out.
    """
    nodes = list(gm.graph.nodes)
    order: list[fx.Node] = [node for node in nodes if node.op == "placeholder"]
    done = set(order)
    roots = [node for node in nodes if node.op == "call_function" and _is_random(node)]
    roots += [node for node in nodes if node.op == "output"]
    for root in roots:
        stack: list[tuple[fx.Node, int]] = [(root, 0)]
        while stack:
            node, next_input = stack.pop()
            if node in done:
                continue
            inputs = node.all_input_nodes
            while next_input < len(inputs) and inputs[next_input] in done:
                next_input += 1
            if next_input < len(inputs):
                stack.append((node, next_input + 1))
                stack.append((inputs[next_input], 0))
            else:
                done.add(node)
                order.append(node)
    return order


class _Exporter:
    def __init__(self, role: str, value_key: str, symbols: Symbols | None = None, *, foreign: bool = False) -> None:
        self.role = role
        self.foreign = foreign
        self.value_key = value_key
        self.symbols = symbols or Symbols()
        self.values: dict[fx.Node, int | list[int]] = {}
        self.graphs: dict[fx.Node, int] = {}
        self.constant_ids: dict[fx.Node, int] = {}
        self.constants: list[torch.Tensor] = []
        self.subgraphs: list[dict[str, Any]] = []
        self.next_value = 0

    def export(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[Any],
        *,
        keep_order: bool,
        output_kinds: Sequence[str] | None = None,
        nested: bool = False,
    ) -> Graph:
        document: dict[str, Any] = {"ir": VERSION, "role": self.role}
        constants: list[dict[str, Any]] = []
        placeholders = _placeholders(gm)
        if len(placeholders) != len(inputs):
            raise Unsupported(f"{len(inputs)} inputs are given for {len(placeholders)} placeholders")
        # Symbols that are a value or a whole dimension by themselves are numbered first: products are then made of known ones.
        for value in inputs:
            if isinstance(value, _SYMBOLIC):
                self.symbols.declare(value)
        for value in inputs:
            if isinstance(value, torch.Tensor):
                for size in value.shape:
                    if isinstance(size, torch.SymInt):
                        self.symbols.declare(size)
        input_types = [self._input(node, value) for node, value in zip(placeholders, inputs, strict=True)]
        nodes: list[dict[str, Any]] = []
        origins: list[fx.Node] = []
        outputs: Any = None
        for node in gm.graph.nodes if keep_order else _structural_order(gm):
            try:
                if node.op == "placeholder":
                    continue
                if node.op == "output":
                    outputs = self._argument(node.args[0])
                elif node.op == "get_attr":
                    self._attribute(gm, node, constants)
                elif not self._folds(node):
                    nodes.append(self._node(node))
                    origins.append(node)
            except Unsupported as error:
                if not error.source:
                    error.source = source_line(node)
                raise
        if not nested:
            document["symbols"] = self.symbols.ranges()
        document["inputs"] = input_types
        if constants:
            document["constants"] = constants
        if self.subgraphs:
            document["graphs"] = self.subgraphs
        document["nodes"] = nodes
        document["outputs"] = outputs
        if output_kinds is not None:
            document["output_kinds"] = list(output_kinds)
        return Graph(document, self.symbols, self.constants, origins)

    # -- values ---------------------------------------------------------------------------------------------------

    def _new_value(self) -> int:
        self.next_value += 1
        return self.next_value - 1

    def _input(self, node: fx.Node, value: Any) -> dict[str, Any]:
        self.values[node] = self._new_value()
        kind = "data"
        if isinstance(value, _SYMBOLIC):
            kind = "symbol"
        elif self.role == "captured":
            kind = _captured_kind(node)
        elif node.name.startswith("tangents"):
            kind = "tangent"
        elif node.name.startswith("primals"):
            kind = "primal"
        elif self.role == "backward":
            kind = "saved"
        return {"kind": kind, "type": self.type_of(value)}

    def type_of(self, value: Any) -> Any:
        """The type of a value, as the grammar has it."""
        if isinstance(value, torch.Tensor):
            return self._tensor_type(value)
        if isinstance(value, torch.SymInt):
            return {"int": self.symbols.export(value)}
        if isinstance(value, torch.SymFloat):
            return {"float": self.symbols.export(value)}
        if isinstance(value, torch.SymBool):
            return {"bool": self.symbols.export(value)}
        if value is None:
            return None
        if isinstance(value, (list, tuple)):
            return [self.type_of(item) for item in value]
        if isinstance(value, (bool, int, float, str, torch.dtype, torch.device, complex)):
            return {"is": self._argument(value)}
        raise Unsupported(f"a value is a {type(value).__name__}")

    def _tensor_type(self, value: torch.Tensor) -> dict[str, Any]:
        if value.layout is not torch.strided:
            raise Unsupported(f"a tensor has layout {value.layout}")
        export = self.symbols.export
        result: dict[str, Any] = {
            "t": _dtype(value.dtype),
            "d": [export(size) for size in value.shape],
            "s": [export(stride) for stride in value.stride()],
        }
        offset = value.storage_offset()
        if type(offset) is not int or offset != 0:
            result["o"] = export(offset)
        if value.device.type != "cpu":
            result["dev"] = value.device.type
        if self.role == "captured" and value.requires_grad:
            result["rg"] = True
        return result

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _folds(self, node: fx.Node) -> bool:
        """Picking one result of a node with several is no node of its own."""
        if node.op != "call_function" or getattr(node.target, "__name__", "") != "getitem" or len(node.args) != 2:
            return False
        source, index = node.args
        packed = self.values.get(source) if isinstance(source, fx.Node) else None
        if not isinstance(packed, list) or type(index) is not int or not -len(packed) <= index < len(packed):
            return False
        self.values[node] = packed[index]
        return True

    def _node(self, node: fx.Node) -> dict[str, Any]:
        result: dict[str, Any] = {"op": self._target(node), "a": [self._argument(argument) for argument in node.args]}
        if node.kwargs:
            result["k"] = {name: self._argument(node.kwargs[name]) for name in sorted(node.kwargs)}
        if notes := _notes(node):
            result["m"] = notes
        value = node.meta.get(self.value_key, _MISSING)
        if value is _MISSING:
            value = None
            result["out"] = "?"
        if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
            self.values[node] = [self._new_value() for _ in value]
            result["outs"] = [self.type_of(item) for item in value]
        else:
            self.values[node] = self._new_value()
            if "out" not in result:
                result["out"] = self.type_of(value)
        return result

    def _target(self, node: fx.Node) -> str:
        target = node.target
        if node.op == "call_method":
            return f"method:{target}"
        if node.op != "call_function":
            raise Unsupported(f"a node is a {node.op}")
        return self._callable(target)

    def _callable(self, target: Any) -> str:
        if isinstance(target, torch._ops.OpOverload):
            if target.namespace not in BUILTIN_NAMESPACES and not self.foreign:
                raise Unsupported("an operator from outside torch", op=str(target))
            return str(target)
        if isinstance(target, torch._ops.OpOverloadPacket):
            namespace = target._qualified_op_name.partition("::")[0]
            if namespace not in BUILTIN_NAMESPACES:
                raise Unsupported("an operator from outside torch", op=str(target))
            return f"{target}.*"
        if isinstance(target, torch._ops.HigherOrderOperator):
            name = target.name()
            if name not in HIGHER_ORDER:
                raise Unsupported("a higher-order operator that is not known", op=name)
            return f"higher_order.{name}"
        return functions.qualified_name(target)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self._reference(value)
        kind = type(value)
        if value is None or kind is bool or kind is int:
            return value
        if kind is float:
            return {"f": value.hex()}
        if kind is str:
            return {"str": value}
        if isinstance(value, _SYMBOLIC):
            return {"e": self.symbols.export(value)}
        if isinstance(value, torch.Size) or kind in (tuple, fx.immutable_collections.immutable_list, list):
            items = [self._argument(item) for item in value]
            return {"tuple": items} if isinstance(value, tuple) and self.role == "captured" else items
        if kind is torch.dtype:
            return {"dtype": _dtype(value)}
        if kind is torch.device:
            return {"device": str(value)}
        if kind is torch.memory_format or kind is torch.layout:
            return {"enum": str(value)}
        if kind is complex:
            return {"c": [value.real.hex(), value.imag.hex()]}
        if kind is slice:
            return {"slice": [self._argument(part) for part in (value.start, value.stop, value.step)]}
        if value is Ellipsis:
            return {"ellipsis": True}
        if isinstance(value, dict):
            if not all(type(key) is str for key in value):
                raise Unsupported("an argument is a dictionary whose keys are not text")
            return {"dict": [[key, self._argument(value[key])] for key in sorted(value)]}
        if isinstance(value, torch._ops.OpOverload):
            return {"op": self._callable(value)}
        if kind is type and value.__module__ in ("builtins", "torch"):
            return {"class": f"{value.__module__}.{value.__qualname__}"}
        raise Unsupported(f"an argument is a {kind.__module__}.{kind.__qualname__}")

    def _reference(self, node: fx.Node) -> dict[str, Any]:
        if node in self.graphs:
            return {"graph": self.graphs[node]}
        if node in self.constant_ids:
            return {"const": self.constant_ids[node]}
        value = self.values[node]
        return {"pack": value} if isinstance(value, list) else {"v": value}

    # -- attributes -----------------------------------------------------------------------------------------------

    def _attribute(self, gm: fx.GraphModule, node: fx.Node, constants: list[dict[str, Any]]) -> None:
        target: Any = gm
        for part in str(node.target).split("."):
            target = getattr(target, part)
        if isinstance(target, fx.GraphModule):
            self.graphs[node] = len(self.subgraphs)
            self.subgraphs.append(self._subgraph(target))
        elif isinstance(target, torch.Tensor):
            self.constant_ids[node] = len(constants)
            constants.append({"type": self._constant_type(target), "sha256": content_digest(target)})
            self.constants.append(target)
        else:
            raise Unsupported(f"the graph holds a {type(target).__name__}")

    def _constant_type(self, value: torch.Tensor) -> dict[str, Any]:
        result = self._tensor_type(value)
        if isinstance(value, torch.nn.Parameter):
            result["parameter"] = True
        return result

    def _subgraph(self, gm: fx.GraphModule) -> dict[str, Any]:
        if gm.meta.get("_checkpoint_context_fn") is not None:
            raise Unsupported("activation checkpointing with a policy of the user's own")
        inner = _Exporter(self.role, self.value_key, self.symbols, foreign=self.foreign)
        inputs = [node.meta.get(self.value_key) for node in _placeholders(gm)]
        graph = inner.export(gm, inputs, keep_order=True, nested=True)
        self.constants += graph.constants
        return graph.document


_MISSING = object()


def _captured_kind(node: fx.Node) -> str:
    example = getattr(node.meta.get("grapharg"), "_example", None)
    if isinstance(node.meta.get("example_value"), torch.nn.Parameter) or isinstance(example, torch.nn.Parameter):
        return "param"
    if (node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type"):
        return "static"
    return "data"


# Notes on nodes that passes of torch act upon: what to recompute, how much memory, where to cut.
_NOTE_KEYS = ("recompute", "ac_graph_id", "partitioner_tag", "custom", "must_be_in_backward", "has_backward_hook")


def _notes(node: fx.Node) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    for key in _NOTE_KEYS:
        value = node.meta.get(key)
        if value is None or value == {}:
            continue
        if isinstance(value, dict):
            if not all(isinstance(item, (str, int, float, bool)) for item in (*value, *value.values())):
                raise Unsupported(f"a node carries '{key}' notes that cannot be compared")
            value = sorted([str(name), repr(item)] for name, item in value.items())
        elif not isinstance(value, (str, int, bool)):
            value = str(value)
        notes[key] = value
    return notes


def source_line(node: fx.Node) -> str:
    """The user's line that a node comes from, for refusals."""
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip().startswith("File ")]
    return lines[-1] if lines else ""


def _dtype(dtype: torch.dtype) -> str:
    return _DTYPES[dtype]


def content_digest(value: torch.Tensor) -> str:
    """SHA-256 of a constant's elements in row-major order."""
    return hashlib.sha256(content_bytes(value)).hexdigest()


def content_bytes(value: torch.Tensor) -> bytes:
    """A plain CPU tensor's elements in row-major order. Raises `Unsupported` for any other tensor."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type != "cpu":
        raise Unsupported(f"a constant is a {type(value).__name__} on {value.device.type}")
    if value.layout is not torch.strided or value.is_quantized or value.is_conj() or value.is_neg():
        raise Unsupported("a constant is not a plain tensor")
    size = value.numel() * value.element_size()
    if size > MAX_CONSTANT_BYTES:
        raise Unsupported(f"a constant has {size} bytes")
    if size == 0:
        return b""
    with compat.no_modes():  # AOTAutograd calls with its fake mode in force
        plain = value.detach().contiguous()
        return ctypes.string_at(plain.data_ptr(), size)
