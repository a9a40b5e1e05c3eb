"""How the two graphs of a bucket vector are built without a call: on stand-ins for the inputs of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from neuroncache.bucketing.plan import SubPlan
from neuroncache.expr import evaluate

if TYPE_CHECKING:
    from neuroncache.bucketing.units import Unit

# Shape, strides, dtype, device of an input.
Spec = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, str]


@dataclass(frozen=True)
class Parts:
    """A pair of graphs, at one bucket vector. `backward` is None in inference; `names`: see `Captured.backward_names`."""

    forward: SubPlan
    backward: SubPlan | None
    saved: Sequence[tuple[int, int]]
    tangents: Sequence[tuple[int, int]]
    names: Mapping[str, str]
    buckets: Mapping[str, int]

    @staticmethod
    def of(unit: Unit) -> Parts:
        captured = unit.pair.captured
        inference = captured.inference
        return Parts(
            unit.pair.plan("forward", unit.exact),
            None if inference else unit.pair.plan("backward", unit.exact),
            captured.saved,
            captured.tangents,
            {} if inference else captured.backward_names(),
            unit.buckets,
        )


def tensors(specs: Sequence[Spec]) -> list[torch.Tensor]:
    return [torch.empty_strided(shape, strides, dtype=dtype, device=at).zero_() for shape, strides, dtype, at in specs]


def build(
    parts: Parts, inputs: list[Any], function: Callable[[str, list[Any]], Callable[[list[Any]], Sequence[Any]]]
) -> None:
    """Has `function(role, inputs)` make both graphs. `inputs`: those of the forward graph, truths included. The
    forward graph is run once: how it leaves what it saves decides how the backward graph is compiled."""
    compiled = function("forward", inputs)
    if parts.backward is None:
        return
    with torch.no_grad():
        returned = iter(compiled(list(inputs)))
    outputs = [next(returned) if result.value is not None else None for result in parts.forward.outputs]
    given: list[Any] = [None] * len(parts.backward.inputs)
    for index, source in parts.saved:
        given[index] = outputs[source]
    for index, source in parts.tangents:
        given[index] = _tangent(parts, index, outputs[source])
    taken = [given[index] for index in parts.backward.tensor_inputs]
    function(
        "backward", [*taken, *(truth.to(inputs[0].device) for truth in parts.backward.truth_tensors(parts.buckets))]
    )


def _tangent(parts: Parts, index: int, output: Any) -> torch.Tensor:
    assert parts.backward is not None
    if parts.backward.inputs[index] is not None:
        return torch.zeros(output.shape, dtype=output.dtype, device=output.device)
    kind = parts.backward.graph["inputs"][index]["type"]
    at = {name: parts.buckets[source] for name, source in parts.names.items()}
    shape = [int(evaluate(size, at)) for size in kind["d"]]
    strides = [int(evaluate(stride, at)) for stride in kind["s"]]
    return torch.empty_strided(shape, strides, dtype=getattr(torch, kind["t"]), device=output.device).zero_()
