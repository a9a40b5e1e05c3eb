"""One call, with everything that depends on its sizes worked out before: a `Record` per sizes that occurred.

The way of a call is a look-up of its sizes, and then `Half.run`: take the tensors, pad what needs it, call, cut.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from neuroncache import compat, config, counters, log
from neuroncache.bucketing.capture import OutputType
from neuroncache.bucketing.layout import Fit, Sizes, dense_strides, restride
from neuroncache.bucketing.units import Unit
from neuroncache.expr import evaluate

TIMED = 3  # calls of each sizes that are timed, after the first


def taker(positions: Sequence[int]) -> Callable[[Sequence[Any]], list[Any]]:
    """Picks entries of a list into a new one."""
    if not positions:
        return lambda values: []
    if len(positions) == 1:
        position = positions[0]
        return lambda values: [values[position]]
    pick = operator.itemgetter(*positions)
    return lambda values: list(pick(values))


class _Cut:
    """Takes one output to its true sizes and to the place in memory that the trace gave it."""

    def __init__(self, fit: Fit | None, kind: OutputType | None, sizes: Sizes, differentiable: bool) -> None:
        self.fit = fit
        self.differentiable = differentiable
        self.strides = None if kind is None else tuple(int(evaluate(stride, sizes)) for stride in kind.strides)
        self.offset = 0 if kind is None or not kind.alias else int(evaluate(kind.offset, sizes))
        self.alias = kind is not None and kind.alias
        self.shared = False  # its memory is that of another value: nobody may write there
        # Mostly the trace has dense tensors: one copy gives that, unless the padding lies behind everything, where a view does.
        self.copy = (
            fit is not None
            and not fit.same
            and not self.alias
            and self.strides == dense_strides(fit.true_shape)
            and self.strides != dense_strides(fit.padded_shape)
        )

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        if self.differentiable:
            result = value if self.fit is None else self.fit.cut(value)
            if self.strides is None or self.strides == dense_strides(result.shape):
                return result.clone(memory_format=torch.contiguous_format)
            return restride(result, self.strides)
        if self.fit is None:
            result = value
        elif self.copy:
            result = self.fit.cut_copy(value)
            return result if result.stride() == self.strides else restride(result, self.strides or ())
        else:
            result = self.fit.cut(value)
        if self.strides is None:
            return result
        if result.stride() != self.strides or (self.alias and result.storage_offset() != self.offset) or self.shared:
            return restride(result, self.strides, self.offset).data
        # Not a view for autograd: a user may write to it.
        return result.data


class Half:
    """One direction of a record."""

    def __init__(
        self, unit: Unit, role: str, sizes: Sizes, kinds: Sequence[OutputType | None], ticket: int | None = None
    ) -> None:
        self.unit = unit
        self.role = role
        plan = unit.pair.plan(role, unit.exact)
        self.plan = plan
        self.take = taker(plan.tensor_inputs)
        self.tensors = len(plan.tensor_inputs)
        self.pads: list[tuple[int, Fit]] = []
        for position, index in enumerate(plan.tensor_inputs):
            slot = plan.inputs[index]
            if slot is not None and not slot.kept:
                self.pads.append((position, Fit(slot.layout, unit.buckets, sizes)))
        self.truths = [truth.tensor(sizes).to(unit.pair.device) for truth in plan.truths]
        self.cuts: list[tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = []
        self._plain: list[int] = []  # values for the user that are given as they are
        self.inserts: list[tuple[int, Any]] = []
        self.values = 0
        for index, result in enumerate(plan.outputs):
            if result.value is None:
                constant = result.constant if result.size is None else _number(evaluate(result.size, sizes))
                self.inserts.append((index, constant))
                continue
            kind = kinds[index] if index < len(kinds) else None
            fit = Fit(result.layout, unit.buckets, sizes) if result.layout is not None and not result.kept else None
            if (fit is not None and not fit.same) or (
                kind is not None and (kind.alias or kind.strides_differ(unit.buckets, sizes))
            ):
                self.cuts.append((self.values, _Cut(fit, kind, sizes, unit.inner.differentiates)))
            elif kind is not None and not unit.inner.differentiates:
                self._plain.append(self.values)
            self.values += 1
        if ticket is not None:
            self.inserts.append((len(plan.outputs), ticket))
        self.padding = sum(fit.waste for _, fit in self.pads)
        self.elements = sum(_product(fit.padded_shape) for _, fit in self.pads)
        self.calls = 0
        self.function: Any = None
        self.run: Callable[[list[Any]], list[Any]] = self._first

    def prepare(self, args: Sequence[Any]) -> list[Any]:
        """The inputs of the compiled graph."""
        inputs = self.take(args)
        for position, fit in self.pads:
            inputs[position] = fit.pad(inputs[position])
        inputs.extend(self.truths)
        return inputs

    def finish(self, raw: Sequence[Any]) -> list[Any]:
        """The outputs of the call."""
        outputs = list(raw)
        for position, cut in self.cuts:
            outputs[position] = cut(outputs[position])
        for position, value in self.inserts:
            outputs.insert(position, value)
        return outputs

    def _run(self, args: list[Any]) -> list[Any]:
        inputs = self.take(args)
        args.clear()
        for position, fit in self.pads:
            inputs[position] = fit.pad(inputs[position])
        inputs.extend(self.truths)
        outputs = list(self.function(inputs))
        for position, cut in self.cuts:
            outputs[position] = cut(outputs[position])
        for position, value in self.inserts:
            outputs.insert(position, value)
        self.calls += 1
        return outputs

    def _timed(self, args: list[Any]) -> list[Any]:
        """As `_run`; the planner wants to know what a call takes. A few calls, as a device must be waited for."""
        compat.synchronize(self.unit.pair.device)
        started = time.perf_counter()
        outputs = self._run(args)
        compat.synchronize(self.unit.pair.device)
        self.unit.took(self.role, 1e6 * (time.perf_counter() - started))
        if self.calls > TIMED:
            self.run = self._run
        return outputs

    def _first(self, args: list[Any]) -> list[Any]:
        """As `_run`, with checks, and with a second way where the first fails: the graph changes nothing that is given to it."""
        self._check_inputs(args)
        inputs = self.prepare(args)
        function = self.unit.function(self.role, inputs)
        try:
            raw = list(function(list(inputs)))
            self._check(raw)
        except Exception as error:
            if config.get("strict"):
                raise
            counters.count("errors")
            log.warn(
                "bucket-run",
                f"a padded graph of {self.unit.inner.name} fails, and runs operator by operator: "
                f"{type(error).__name__}: {error}",
            )
            log.logger.debug("neuroncache: cause of the above", exc_info=True)
            function = self.unit.replace(self.role, function)
            raw = list(function(list(inputs)))
            self._check(raw)
        self._find_shared(raw, inputs)
        self._find_views(raw)
        self.function = function
        self.run = self._timed
        self.calls += 1
        return self.finish(raw)

    def _check_inputs(self, args: Sequence[Any]) -> None:
        values = self.take(args)
        for position, fit in self.pads:
            if tuple(values[position].shape) != fit.true_shape:
                raise RuntimeError(
                    f"neuroncache: input {position} of a {self.role} graph has sizes {tuple(values[position].shape)} "
                    f"in place of {fit.true_shape}"
                )

    def _check(self, raw: Sequence[Any]) -> None:
        if len(raw) != self.values:
            raise RuntimeError(f"it returned {len(raw)} values in place of {self.values}")
        for position, cut in self.cuts:
            if isinstance(cut, _Cut) and cut.fit is not None and tuple(raw[position].shape) != cut.fit.padded_shape:
                raise RuntimeError(
                    f"output {position} has sizes {tuple(raw[position].shape)} in place of {cut.fit.padded_shape}"
                )

    def _find_shared(self, raw: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Marks the outputs to be cut whose memory is also that of an input or of another output."""
        uses: dict[int, int] = {}
        for value in (*raw, *inputs):
            if isinstance(value, torch.Tensor):
                address = value.untyped_storage().data_ptr()
                uses[address] = uses.get(address, 0) + 1
        for position, cut in self.cuts:
            if not isinstance(cut, _Cut):
                continue
            address = raw[position].untyped_storage().data_ptr()
            cut.shared = address != 0 and uses[address] > 1

    def _find_views(self, raw: Sequence[Any]) -> None:
        """Has outputs that are views of other tensors given as tensors of their own: a view would get the gradient of what it
        is a view of, even where the user has cut it off (`y[:, 0].detach()` beside y)."""
        for position in self._plain:
            if isinstance(raw[position], torch.Tensor) and raw[position]._is_view():
                self.cuts.append((position, _on_its_own))
        self._plain = []


class Record:
    """A call with given sizes: its unit, its ticket and its two halves."""

    def __init__(self, unit: Unit, sizes: Mapping[str, int], ticket: int) -> None:
        captured = unit.pair.captured
        self.unit = unit
        self.sizes = dict(sizes)
        self.ticket = ticket
        self.provisional = False  # another unit will take over when it is built
        self.reported = 0  # calls that the daemon knows of
        self.counted = 0  # calls that the counters know of
        self.forward = Half(unit, "forward", sizes, captured.output_types, None if captured.inference else ticket)
        self._backward: Half | None = None

    @property
    def calls(self) -> int:
        return self.forward.calls

    @property
    def backward(self) -> Half:
        if self._backward is None:
            self._backward = Half(self.unit, "backward", self.sizes, ())
        return self._backward


def _on_its_own(value: torch.Tensor) -> torch.Tensor:
    return value.detach()  # of the same version counter, so that changes in place are noticed as ever


def _number(value: int | float) -> int | bool:
    return value if isinstance(value, bool) else int(value)


def _product(shape: Sequence[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result
