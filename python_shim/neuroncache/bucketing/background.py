"""Builds bucket vectors behind the calls that would like to have them.

Compilers change global state of the process while they trace (``torch.nn.Module.__call__``, random states), and settings of
torch belong to a thread. So inductor's graphs are built in a process of their own (`builder`), which leaves the artifact
in the store, where the next call finds it. A static-only backend is known to its own process only: it is called
in a thread where it has said that it may be (``neuroncache_thread_safe``), and by the call that needs it otherwise.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from neuroncache import counters, log
from neuroncache.bucketing import builder, recipe
from neuroncache.bucketing.buckets import distributed
from neuroncache.bucketing.layout import dense_strides
from neuroncache.bucketing.records import Half, Record
from neuroncache.bucketing.units import Unit
from neuroncache.locks import module_lock

if TYPE_CHECKING:
    from neuroncache.bucketing.dispatch import Dispatcher

_MAX_WAITING = 64
_PATIENCE_S = 5.0  # at the end of the program, for a build in the thread

_lock = module_lock()
_queue: queue.Queue[Any] = queue.Queue()
_thread: threading.Thread | None = None
_pid = 0


def submit(dispatcher: Dispatcher, unit: Unit, record: Record, args: Sequence[Any]) -> bool:
    """Has a unit built; False when the call itself has to. `args`: those of a call with the record's sizes."""
    if unit.inner.background == "never" or unit.stored:
        return False
    if distributed():
        # Which bucket serves meanwhile would depend on what this rank has built: all ranks must choose alike.
        return False
    with _lock:
        jobs = _running()
        if unit.queued:
            return not unit.given_up
        if jobs.qsize() >= _MAX_WAITING:
            return False
        half = Half(unit, "forward", record.sizes, ())
        try:
            task = _task(unit, half, args)
        except Exception as error:
            log.debug("a bucket is not built in the background: %s: %s", type(error).__name__, error)
            unit.queued = unit.given_up = True
            return False
        unit.queued = True
        jobs.put((dispatcher, unit, task))
    return True


def drain() -> None:
    """Waits until everything that was submitted is built, or has failed."""
    if _pid == os.getpid():
        _queue.join()


def _running() -> queue.Queue[Any]:
    global _queue, _thread, _pid
    if _pid != os.getpid():
        _pid, _queue = os.getpid(), queue.Queue()
        _thread = threading.Thread(target=_work, args=(_queue,), name="neuroncache-buckets", daemon=True)
        _thread.start()
    return _queue


def _task(unit: Unit, half: Half, args: Sequence[Any]) -> Callable[[], None]:
    """What the thread has to do, with all that it needs of this thread."""
    specs = _specs(half, args)
    if unit.inner.background == "process":
        job = builder.job(unit, half, specs)

        def build() -> None:
            builder.run(job)
            unit.stored = True

        return build

    context = contextvars.copy_context()
    truths = list(half.truths)

    def build_here() -> None:
        parts = recipe.Parts.of(unit)
        recipe.build(parts, recipe.tensors(specs) + truths, unit.function)

    return lambda: context.run(build_here)


def _specs(half: Half, args: Sequence[Any]) -> list[recipe.Spec]:
    """The inputs of the wanted sizes."""
    values = half.take(args)
    specs = [(tuple(value.shape), tuple(value.stride()), value.dtype, str(value.device)) for value in values]
    for position, fit in half.pads:
        shape = tuple(fit.padded_shape)
        specs[position] = (shape, dense_strides(shape), values[position].dtype, str(values[position].device))
    return specs


def _work(jobs: queue.Queue[Any]) -> None:
    while True:
        dispatcher, unit, task = jobs.get()
        if task is None:
            return
        try:
            task()
            counters.count("background_builds")
        except Exception as error:
            # The next call of these sizes builds it itself.
            unit.given_up = True
            counters.count("errors")
            log.debug("a bucket cannot be built in the background: %s: %s", type(error).__name__, error)
        finally:
            dispatcher.built(unit)
            del dispatcher, unit, task
            jobs.task_done()


@atexit.register
def _stop() -> None:
    """A thread inside a compiler must not be cut off by the end of the interpreter: C++ would abort the process."""
    if _pid != os.getpid() or _thread is None:
        return
    with _lock:
        while True:
            try:
                _queue.get_nowait()
                _queue.task_done()
            except queue.Empty:
                break
        _queue.put((None, None, None))
    builder.stop()
    _thread.join(_PATIENCE_S)
