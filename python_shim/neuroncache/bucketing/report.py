"""What the calls were like: to the counters of this process, and in batches to the daemon, from whose history plans are made.

Calls only count themselves, on their records. Everything else happens when somebody asks for the figures, and in one thread
that runs every few seconds while there is something to tell.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from neuroncache import config, counters, log
from neuroncache.bucketing import check
from neuroncache.bucketing.buckets import distributed
from neuroncache.bucketing.epochs import BucketPlan
from neuroncache.client import default_client
from neuroncache.errors import DaemonUnavailable, ProtocolError
from neuroncache.locks import module_lock

if TYPE_CHECKING:
    from neuroncache.bucketing.dispatch import Dispatcher

INTERVAL_S = 5.0
FIRST_REPLAN = (
    32  # calls of one graph until its buckets are planned from what this process saw; then twice as many, and so on
)

_lock = module_lock()
_sending = module_lock()
_pid = 0
_wake = threading.Event()


def start() -> None:
    """Has the thread run. Called when a graph gets buckets; does nothing where it runs already."""
    global _pid, _wake
    with _lock:
        if _pid == os.getpid():
            return
        _pid = os.getpid()
        _wake = threading.Event()
        threading.Thread(target=_run, args=(_wake,), name="neuroncache-report", daemon=True).start()


def _run(wake: threading.Event) -> None:
    while not wake.wait(INTERVAL_S):
        try:
            send()
        except Exception as error:
            counters.count("errors")
            log.debug("sizes are not reported: %s: %s", type(error).__name__, error)


def settle() -> None:
    """Brings the counters up to date with the calls."""
    from neuroncache.bucketing import dispatch

    for dispatcher in list(dispatch.everyone):
        for record in dispatcher.records():
            calls = record.calls
            fresh = calls - record.counted
            if fresh > 0:
                record.counted = calls
                counters.padding(fresh * record.forward.padding, fresh * record.forward.elements)


counters.before_snapshot(settle)


def send() -> None:
    """Tells the daemon what was seen since the last time, and plans anew what has seen enough."""
    from neuroncache.bucketing import dispatch

    with _sending:
        for dispatcher in list(dispatch.everyone):
            _send_one(dispatcher)
            _replan(dispatcher)
            _sample(dispatcher)


def job() -> str:
    """One name for all ranks of a run of a distributed program; for a program by itself, one of its own."""
    named: str = config.get("job")
    if named:
        return named[:128]
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        value = os.environ.get(name)
        if value and value != "none":
            restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
            return f"{value}-{restarts}"[:128]
    return f"{socket.gethostname()}-{os.getpid()}-{int(_STARTED)}"[:128]


_STARTED = time.time()


def first_plan(dispatcher: Dispatcher, varied: frozenset[str]) -> None:
    """The plan that earlier runs of the program left, if its sizes varied in them."""
    if not varied or not any(family in varied for family in _families(dispatcher)):
        return
    _ask(dispatcher, after=0)


def _families(dispatcher: Dispatcher) -> list[str]:
    chooser = dispatcher.chooser
    padded = [name for name in chooser.symbols if name in chooser.padded]
    return sorted({chooser.family(name) for name in padded})


def _send_one(dispatcher: Dispatcher) -> None:
    """All places that a size stands for are reported: at the next start each is known by its own name."""
    sizes: dict[str, dict[int, int]] = {}
    told = []
    for record in dispatcher.records():
        calls = record.calls
        fresh = calls - record.reported
        if fresh <= 0:
            continue
        told.append((record, calls))
        for name, size in record.sizes.items():
            for family in dispatcher.chooser.families[name]:
                counts = sizes.setdefault(family, {})
                counts[size] = counts.get(size, 0) + fresh
    if not told or not dispatcher.program:
        return
    families = [
        {"family": family, "sizes": [[size, count] for size, count in sorted(counts.items())]}
        for family, counts in sorted(sizes.items())
    ]
    with contextlib.suppress(DaemonUnavailable, ProtocolError):
        default_client().buckets_observe(
            {"program": dispatcher.program, "job": job(), "families": families, "label": dispatcher.label}
        )
        for record, calls in told:
            record.reported = calls


def _replan(dispatcher: Dispatcher) -> None:
    """A process by itself may change its plan between any two calls. Ranks of a distributed program keep theirs: see `replan`."""
    if distributed() or not dispatcher.program:
        return
    calls = sum(record.calls for record in dispatcher.records())
    if calls < dispatcher.next_plan:
        return
    dispatcher.next_plan = 2 * calls
    if len({tuple(record.sizes.values()) for record in dispatcher.records()}) > 1:
        plan = dispatcher.chooser.plan
        _ask(dispatcher, after=0 if plan is None else plan.epoch)


def _sample(dispatcher: Dispatcher) -> None:
    """With ``verify = sample``: the next call of the sizes that were used last is compared to the exact graph."""
    if config.get("verify") != "sample" or not dispatcher.checkable or dispatcher.quarantined:
        return
    records = [
        record for record in dispatcher.records() if not record.unit.exact and record.unit.ready and record.calls
    ]
    if records:
        check.arm(dispatcher, records[-1])


def replan() -> None:
    """A safe point: has the buckets of all graphs planned anew. All ranks of a distributed program call it between the same
    two steps."""
    from neuroncache.bucketing import dispatch

    send()
    for dispatcher in list(dispatch.everyone):
        plan = dispatcher.chooser.plan
        _ask(dispatcher, after=0 if plan is None else plan.epoch)


def _ask(dispatcher: Dispatcher, after: int) -> None:
    families = _families(dispatcher)
    if not families or not dispatcher.program:
        return
    request: dict[str, Any] = {
        "program": dispatcher.program,
        "job": job(),
        "families": [{"family": family, **dispatcher.limits(family)} for family in families],
        "max_buckets": config.get("max_buckets"),
        "after": after,
    }
    if (waste := config.get("max_waste")) > 0:
        request["max_waste"] = waste
    try:
        answer = default_client().buckets_plan(request)
        plan = BucketPlan.from_answer(dispatcher.program, answer)
    except (DaemonUnavailable, ProtocolError, ValueError) as error:
        log.debug("no plan of buckets for %s: %s", dispatcher.label, error)
        return
    dispatcher.use(plan)


@atexit.register
def _last_words() -> None:
    if _pid == os.getpid():
        _wake.set()
        with contextlib.suppress(Exception):
            send()


def program_key(program: str, graph_digest: str) -> str:
    """The program of a graph that no frame is known for."""
    return program or hashlib.sha256(f"neuroncache-graph-v1 {graph_digest}".encode()).hexdigest()
