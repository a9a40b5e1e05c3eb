"""A functional graph of fixed sizes as plain data, for another process: no code and no tensors with a graph behind them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx


@dataclass(frozen=True)
class Ref:
    """Stands for the node of this number."""

    number: int


@dataclass(frozen=True)
class Type:
    """What a node computes: a tensor of this shape."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Step:
    """One node. `kind` is that of FX; `value` a `Type`, a tuple of them, or None."""

    kind: str
    name: str
    target: str
    args: Any
    kwargs: Any
    value: Any


@dataclass(frozen=True)
class Wire:
    steps: tuple[Step, ...]
    constants: dict[str, torch.Tensor]


def pack(gm: fx.GraphModule) -> Wire:
    """Raises `TypeError` for a graph with an open size, or with something that is no operator of ATen."""
    numbers = {node: number for number, node in enumerate(gm.graph.nodes)}
    constants: dict[str, torch.Tensor] = {}
    steps = []
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            constants[node.target] = operator.attrgetter(node.target)(gm).detach()

        args, kwargs = _each((node.args, node.kwargs), lambda value: Ref(numbers[value]), fx.Node)
        value = None if node.op == "output" else _type(node.meta.get("val"))
        steps.append(Step(node.op, node.name, _name(node), args, kwargs, value))
    return Wire(tuple(steps), constants)


def unpack(wire: Wire) -> fx.GraphModule:
    """The graph again, with fake tensors in ``meta["val"]``."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    graph = fx.Graph()
    root = torch.nn.Module()
    for name, tensor in wire.constants.items():
        root.register_buffer(name, tensor)
    nodes: list[fx.Node] = []
    with FakeTensorMode():
        for step in wire.steps:
            args, kwargs = _each((step.args, step.kwargs), lambda ref: nodes[ref.number], Ref)
            target: Any = step.target
            if step.kind == "call_function":
                target = operator.getitem if target == "getitem" else operator.attrgetter(target)(torch.ops)
            node = graph.create_node(step.kind, target, args, kwargs, name=step.name)
            node.meta["val"] = _each(step.value, _fake, Type)
            nodes.append(node)
    return fx.GraphModule(root, graph)


def _name(node: fx.Node) -> str:
    if node.op != "call_function":
        return str(node.target)
    if node.target is operator.getitem:
        return "getitem"
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    raise TypeError(f"{node.format_node()}: is no operator of ATen")


def _type(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if not all(type(size) is int for size in (*value.shape, *value.stride())):
            raise TypeError(f"a tensor has an open size: {tuple(value.shape)}")
        return Type(tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (tuple, list)):
        return tuple(_type(one) for one in value)
    return None


def _fake(kind: Type) -> torch.Tensor:
    return torch.empty_strided(kind.shape, kind.stride, dtype=kind.dtype)


def _each(value: Any, change: Callable[[Any], Any], kind: type) -> Any:
    """The structure with everything of a kind changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, list):
        return [_each(one, change, kind) for one in value]
    if isinstance(value, tuple):
        return tuple(_each(one, change, kind) for one in value)
    if isinstance(value, dict):
        return {key: _each(one, change, kind) for key, one in value.items()}
    return value
