"""Builds bucket vectors behind the calls that would like to have them: one thread, started when there is work."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from neuroncache import counters, log
from neuroncache.bucketing.records import Half, Record
from neuroncache.bucketing.units import Unit
from neuroncache.expr import evaluate
from neuroncache.locks import module_lock

if TYPE_CHECKING:
    from neuroncache.bucketing.dispatch import Dispatcher

_MAX_WAITING = 64

_lock = module_lock()
_queue: queue.Queue[Any] = queue.Queue()
_pid = 0


def submit(dispatcher: Dispatcher, unit: Unit, record: Record, args: Sequence[Any]) -> bool:
    """Has a unit built; False when too much is waiting. `args`: those of a call with the record's sizes."""
    global _queue, _pid
    with _lock:
        if _pid != os.getpid():
            _pid, _queue = os.getpid(), queue.Queue()
            threading.Thread(target=_work, args=(_queue,), name="neuroncache-buckets", daemon=True).start()
        if unit.queued:
            return True
        if _queue.qsize() >= _MAX_WAITING:
            return False
        unit.queued = True
        half = Half(unit, "forward", record.sizes, ())
        _queue.put((dispatcher, unit, half, _stand_ins(half, args), dict(record.sizes)))
    return True


def drain() -> None:
    """Waits until everything that was submitted is built."""
    if _pid == os.getpid():
        _queue.join()


def _stand_ins(half: Half, args: Sequence[Any]) -> list[Any]:
    """Inputs of the wanted sizes: zeros for what is padded, the call's own for the rest (parameters, mostly)."""
    values: list[Any] = list(half.take(args))
    for position, fit in half.pads:
        values[position] = (fit.padded_shape, values[position].dtype, values[position].device)
    return values


def _work(jobs: queue.Queue[Any]) -> None:
    while True:
        dispatcher, unit, half, values, sizes = jobs.get()
        try:
            _build(unit, half, values, sizes)
            counters.count("background_builds")
        except Exception as error:
            counters.count("errors")
            log.debug("a bucket cannot be built in the background: %s: %s", type(error).__name__, error)
        finally:
            dispatcher.built(unit)
            del dispatcher, unit, half, values
            jobs.task_done()


def _build(unit: Unit, half: Half, values: list[Any], sizes: dict[str, int]) -> None:
    inputs = [
        torch.zeros(value[0], dtype=value[1], device=value[2]) if isinstance(value, tuple) else value.detach()
        for value in values
    ]
    inputs += half.truths
    function = unit.function("forward", inputs)
    captured = unit.pair.captured
    if captured.inference:
        return
    with torch.no_grad():
        raw = list(function(list(inputs)))
    outputs: list[Any] = []
    left = iter(raw)
    for result in half.plan.outputs:
        outputs.append(next(left) if result.value is not None else None)
    backward = Half(unit, "backward", sizes, ())
    given: list[Any] = [None] * len(backward.plan.inputs)
    for index, source in captured.saved:
        given[index] = outputs[source]
    for index, source in captured.tangents:
        given[index] = _tangent(unit, backward, index, outputs[source])
    unit.function("backward", [*backward.take(given), *backward.truths])


def _tangent(unit: Unit, backward: Half, index: int, output: torch.Tensor) -> torch.Tensor:
    slot = backward.plan.inputs[index]
    if slot is not None:
        return torch.zeros(output.shape, dtype=output.dtype, device=output.device)
    kind = backward.plan.graph["inputs"][index]["type"]
    names = unit.pair.captured.backward_names()
    at = {name: unit.buckets[names[name]] for name in names}
    shape = [int(evaluate(size, at)) for size in kind["d"]]
    strides = [int(evaluate(stride, at)) for stride in kind["s"]]
    return torch.empty_strided(shape, strides, dtype=getattr(torch, kind["t"]), device=output.device).zero_()
