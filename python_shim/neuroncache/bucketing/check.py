"""Padded against exact, on the user's own data (setting ``verify``): outputs and gradients of single calls.

The exact graph runs operator by operator beside the padded one. Where they differ by more than rounding explains, the user gets
the exact results, and the graph is never padded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from neuroncache import config, counters, log
from neuroncache.bucketing.plan import Node, SubPlan
from neuroncache.bucketing.records import Record

if TYPE_CHECKING:
    from neuroncache.bucketing.dispatch import Dispatcher

# Largest difference, as a share of the largest element, that other sizes and so other orders of summation may make.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}
MAX_WAITING = 4  # checked forward calls whose backward is still to come

_LEAST = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def applies(plan: SubPlan) -> bool:
    """Whether running a graph twice is without consequences: nothing is drawn from a random stream."""
    return not any(_draws(node) for node in plan.nodes)


def _draws(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    if "dropout_p" in names:
        position = names.index("dropout_p")
        given = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", 0.0)
        return given not in (0, 0.0, {"f": (0.0).hex()})
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) or any(
        hint in str(node.target) for hint in ("rand", "rng", "dropout", "bernoulli")
    )


def due(dispatcher: Dispatcher, record: Record) -> bool:
    """Whether the next call of a record is to be checked: the first that its unit runs."""
    mode = config.get("verify")
    if mode == "off" or record.unit.exact or record.unit.checked or not dispatcher.checkable:
        return False
    return bool(mode == "sample" or dispatcher.plan.unproven)


def arm(dispatcher: Dispatcher, record: Record) -> None:
    """Has the next forward call of a record checked."""
    plain = record.forward.run

    def run(args: list[Any]) -> list[Any]:
        record.forward.run = plain
        return _forward(dispatcher, record, args)

    record.unit.checked = True
    record.forward.run = run


def _exact(dispatcher: Dispatcher, role: str, args: Sequence[Any], sizes: dict[str, int]) -> list[Any]:
    plan = dispatcher.pair.plan(role, True)
    with torch.no_grad():
        raw = plan.run(sizes, args, ())
    return plan.cut_outputs(raw, sizes, sizes)


def _forward(dispatcher: Dispatcher, record: Record, args: list[Any]) -> list[Any]:
    given = list(args)
    outputs = record.forward.run(args)
    expected = _exact(dispatcher, "forward", given, record.sizes)
    captured = dispatcher.pair.captured
    counters.count("verified")
    problem = _difference(outputs[: captured.user_outputs], expected[: captured.user_outputs])
    if problem:
        _mismatch(dispatcher, record, f"output {problem}")
        if captured.inference:
            return expected
        return [*expected, dispatcher.exact_record(record.sizes).ticket]
    if not captured.inference:
        outputs[-1] = dispatcher.add(_Checked(dispatcher, record, expected))
    return outputs


class _Checked:
    """In place of a record: the backward call of a forward call that was checked."""

    def __init__(self, dispatcher: Dispatcher, record: Record, expected: list[Any]) -> None:
        self.dispatcher = dispatcher
        self.record = record
        self.saved: list[tuple[int, Any]] | None = [
            (index, expected[source]) for index, source in dispatcher.pair.captured.saved
        ]
        waiting = dispatcher.waiting_checks
        waiting.append(self)
        while len(waiting) > MAX_WAITING:
            waiting.pop(0).saved = None

    @property
    def backward(self) -> _Checked:
        return self

    def run(self, args: list[Any]) -> list[Any]:
        saved, self.saved = self.saved, None
        if saved is None:
            return self.record.backward.run(args)
        if self in self.dispatcher.waiting_checks:
            self.dispatcher.waiting_checks.remove(self)
        given = list(args)
        for index, value in saved:
            given[index] = value
        outputs = self.record.backward.run(args)
        expected = _exact(self.dispatcher, "backward", given, self.record.sizes)
        problem = _difference(outputs, expected)
        if not problem:
            return outputs
        _mismatch(self.dispatcher, self.record, f"gradient {problem}")
        return expected


def _mismatch(dispatcher: Dispatcher, record: Record, problem: str) -> None:
    counters.count("mismatches")
    dispatcher.quarantine(problem)
    log.warn(
        f"mismatch-{dispatcher.label}",
        f"{dispatcher.label}: padded to {record.unit.buckets} the sizes {record.sizes} gave another result ({problem}); "
        "the exact one was used, and this graph is not padded any more. Please report this",
    )


def _difference(values: Sequence[Any], expected: Sequence[Any]) -> str:
    """Which value differs, and by how much; '' when none does."""
    for index, (value, right) in enumerate(zip(values, expected, strict=True)):
        if not isinstance(right, torch.Tensor):
            continue
        if not isinstance(value, torch.Tensor) or value.shape != right.shape or value.dtype != right.dtype:
            return f"{index} is of another kind"
        if not right.dtype.is_floating_point:
            if not torch.equal(value, right):
                return f"{index} is not equal"
            continue
        got, wanted = value.detach().double(), right.detach().double()
        special = ~torch.isfinite(wanted)
        if not torch.equal(special, ~torch.isfinite(got)):
            return f"{index} has other elements that are not finite"
        if bool(special.any()):
            if not torch.equal(got[special].nan_to_num(), wanted[special].nan_to_num()):
                return f"{index} has other elements that are not finite"
            got, wanted = got[~special], wanted[~special]
        if got.numel():
            largest = float((got - wanted).abs().max())
            allowed = TOLERANCE.get(right.dtype, 6e-2) * float(wanted.abs().max()) + _LEAST.get(right.dtype, 1e-2)
            if largest > allowed:
                return f"{index} differs by {largest:.3g}, allowed is {allowed:.3g}"
    return ""
