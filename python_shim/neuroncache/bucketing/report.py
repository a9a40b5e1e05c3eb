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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from neuroncache import config, counters, log
from neuroncache.bucketing import check, wording
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

_MOST_US, _MOST_MS = 2**40 - 1, 7 * 24 * 3_600_000  # what the daemon takes
_MOST_POINTS = 1024
_MOST_FAMILIES, _MOST_PAIRS = 64, 16
_ARTIFACTS, _MOST_ARTIFACTS = 1024, 10**12

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
    if (pod := _kubernetes_job()) is not None:
        return pod[:128]
    return f"{socket.gethostname()}-{os.getpid()}-{int(_STARTED)}"[:128]


def _kubernetes_job() -> str | None:
    """The name of the indexed Job that this pod is one of: its host name without the index."""
    index = os.environ.get("JOB_COMPLETION_INDEX", "")
    name, dash, last = socket.gethostname().rpartition("-")
    return name if index.isdigit() and dash and last == index else None


_STARTED = time.time()


def first_plan(dispatcher: Dispatcher, varied: frozenset[str]) -> None:
    """The plan that earlier runs of the program left, if its sizes varied in them."""
    if not varied or not any(family in varied for family in _families(dispatcher)):
        return
    _ask(dispatcher, after=0)


def _families(dispatcher: Dispatcher) -> list[str]:
    chooser = dispatcher.chooser
    padded = [name for name in chooser.symbols if name in chooser.padded]
    return sorted({chooser.family(name) for name in padded})[:_MOST_FAMILIES]


def _joint(families: list[str]) -> list[tuple[str, str]]:
    """The families that are planned in pairs: by their order, which is that of the inputs and of their dimensions."""
    return list(zip(families[0::2], families[1::2], strict=False))[:_MOST_PAIRS]


def _send_one(dispatcher: Dispatcher) -> None:
    """All places that a size stands for are reported: at the next start each is known by its own name."""
    sizes: dict[str, dict[int, int]] = {}
    told = []
    timed, took = 0, 0.0
    pairs: dict[tuple[str, str], dict[tuple[int, int], int]] = {pair: {} for pair in _joint(_families(dispatcher))}
    leaders = {dispatcher.chooser.family(name): name for name in dispatcher.chooser.symbols}
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
        for (first, second), cells in pairs.items():
            both = record.sizes[leaders[first]], record.sizes[leaders[second]]
            cells[both] = cells.get(both, 0) + fresh
        if (each := record.unit.call_us) > 0 and not record.unit.exact:
            timed, took = timed + fresh, took + fresh * each
    if not told or not dispatcher.program:
        return
    planned = [family for family in _families(dispatcher) if family in sizes]
    others = sorted(sizes.keys() - set(planned))
    families = [
        {"family": family, "sizes": [[size, count] for size, count in sorted(sizes[family].items())]}
        for family in sorted([*planned, *others][:_MOST_FAMILIES])
    ]
    seen: dict[str, Any] = {
        "program": dispatcher.program,
        "job": job(),
        "families": families,
        "label": wording.bounded(dispatcher.label),
    }
    if pairs:
        seen["joint"] = [
            {
                "families": list(pair),
                "sizes": [[first, second, count] for (first, second), count in sorted(cells.items())],
            }
            for pair, cells in pairs.items()
        ]
    if timed:
        seen |= {"calls": timed, "calls_us": min(int(took) + 1, _MOST_US)}
    if built := dispatcher.untold_builds():
        seen["compile_ms"] = min(int(sum(unit.built_ms for unit in built) / len(built)) + 1, _MOST_MS)
    with contextlib.suppress(DaemonUnavailable, ProtocolError):
        default_client().buckets_observe(seen)
        for record, calls in told:
            record.reported = calls
        for unit in built:
            unit.built_told = True


def _groups(dispatcher: Dispatcher) -> int:
    """How many of the padded sizes are not always equal to another, by what was traced and seen: ids and their mask are alike."""
    captured = dispatcher.pair.captured
    assert captured.forward is not None
    leaders = {dispatcher.chooser.leaders[name] for name in dispatcher.chooser.padded}
    seen: list[Mapping[str, Any]] = [
        captured.forward.graph.symbols.hints(),
        *(record.sizes for record in dispatcher.records()),
    ]
    return len({tuple(sizes.get(name) for sizes in seen) for name in leaders})


def _cost(dispatcher: Dispatcher) -> list[list[int]] | None:
    """What a call takes by its size, as measured; None where more than one size varies, or too little is known."""
    chooser = dispatcher.chooser
    leaders = {name for name in chooser.symbols if chooser.leaders[name] == name}
    if len(leaders) != 1 or not leaders <= chooser.padded:
        return None
    (leader,) = leaders
    points = {unit.buckets[leader]: unit.call_us for unit in dispatcher.units() if not unit.exact and unit.call_us > 0}
    points.pop(0, None)
    if len(points) < 2:
        return None
    # Below the smallest bucket the planner takes the time to be that of the smallest: the line through the others says more.
    mean_size, mean_us = sum(points) / len(points), sum(points.values()) / len(points)
    spread = sum((size - mean_size) ** 2 for size in points)
    slope = max(0.0, sum((size - mean_size) * (us - mean_us) for size, us in points.items()) / spread)
    points.setdefault(1, min(max(mean_us - slope * (mean_size - 1), 0.0), *points.values()))
    return [[size, min(int(us) + 1, _MOST_US)] for size, us in sorted(points.items())][-_MOST_POINTS:]


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
    if (alike := _groups(dispatcher)) < len(families):
        # The bound is on bucket vectors; sizes that are always equal make no more of them.
        request["max_artifacts"] = min(int(_ARTIFACTS ** (len(families) / alike)), _MOST_ARTIFACTS)
    if pairs := _joint(families):
        request["joint"] = [list(pair) for pair in pairs]
    if cost := _cost(dispatcher):
        request["cost"] = {"table": cost}
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
