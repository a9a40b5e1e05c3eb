"""What this process did: counters, refusals, and an account of the last graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from neuroncache.locks import module_lock

_MAX_REFUSALS = 200
_COUNTERS = (
    "graphs",  # graphs that torch.compile handed to us
    "entries",  # of them: callables that we gave back (the rest went to stock)
    "buckets",  # bucket vectors in use
    "background_builds",  # bucket vectors that were built behind calls that another one served
    "verified",  # padded calls that were compared to exact ones
    "mismatches",  # of them: those that differed
    "builds",  # artifacts that this process built (also without the cache)
    "hits",  # artifacts that were there
    "waits",  # artifacts that another process built while we waited
    "failures",  # remembered failures that we were told of
    "bypasses",  # graphs or artifacts that went without the cache
    "errors",  # faults of ours that were caught
)

_lock = module_lock()
_counts: dict[str, int] = dict.fromkeys(_COUNTERS, 0)
_kinds: dict[str, dict[str, int]] = {}
_bypasses: dict[str, int] = {}
_refusals: list[dict[str, str]] = []
_seconds: dict[str, float] = {}
_padding = [0, 0]  # elements of padding, elements in all
_last: dict[str, Any] | None = None
_current = threading.local()
_actions: list[Callable[[], None]] = []


def count(name: str, number: int = 1, *, kind: str | None = None) -> None:
    """Adds to a counter, and to the same counter of an artifact kind."""
    with _lock:
        _counts[name] += number
        if kind is not None:
            per_kind = _kinds.setdefault(kind, {})
            per_kind[name] = per_kind.get(name, 0) + number


def value(name: str) -> int:
    """A counter as it is now."""
    return _counts[name]


def bypass(reason: str, *, kind: str | None = None) -> None:
    count("bypasses", kind=kind)
    with _lock:
        _bypasses[reason] = _bypasses.get(reason, 0) + 1


def refusal(op: str, reason: str, source: str) -> None:
    with _lock:
        if len(_refusals) < _MAX_REFUSALS:
            _refusals.append({"op": op, "reason": reason, "source": source})


def seconds(phase: str, value: float) -> None:
    """Adds wall seconds to a phase: ``key``, ``lookup``, ``load``, ``build``, ``wait``, ``publish``."""
    with _lock:
        _seconds[phase] = _seconds.get(phase, 0.0) + value


def padding(pad_elements: int, all_elements: int) -> None:
    """Notes one padded call: elements of padding, and elements in all."""
    with _lock:
        _padding[0] += pad_elements
        _padding[1] += all_elements


def before_snapshot(action: Callable[[], None]) -> None:
    """Has `action` called before a snapshot is taken, to add what it has not counted yet."""
    _actions.append(action)


def snapshot() -> dict[str, Any]:
    """A copy of everything, see `neuroncache.api.stats`."""
    for action in _actions:
        action()
    with _lock:
        result: dict[str, Any] = dict(_counts)
        result["refusals"] = [dict(entry) for entry in _refusals]
        result["padding_waste"] = _padding[0] / _padding[1] if _padding[1] else 0.0
        result["bypass_reasons"] = dict(_bypasses)
        result["kinds"] = {kind: dict(counts) for kind, counts in _kinds.items()}
        result["seconds"] = {phase: round(value, 6) for phase, value in _seconds.items()}
    return result


def reset() -> None:
    """Everything back to nothing."""
    global _last
    with _lock:
        for name in _counts:
            _counts[name] = 0
        for table in (_kinds, _bypasses, _refusals, _seconds):
            table.clear()
        _padding[:] = [0, 0]
        _last = None


def begin(backend: str, nodes: int) -> dict[str, Any]:
    """Starts the account of one graph on this thread."""
    record = {"backend": backend, "nodes": nodes, "outcome": "", "reason": "", "steps": []}
    _current.record = record
    return record


def step(fields: Mapping[str, Any]) -> None:
    """Adds one look-up to the account of this thread's graph, when there is one."""
    record = getattr(_current, "record", None)
    if record is not None:
        record["steps"].append(dict(fields))


def note(**fields: Any) -> None:
    """Adds fields to the account of this thread's graph, when there is one."""
    record = getattr(_current, "record", None)
    if record is not None:
        record.update(fields)


def outcome() -> str:
    """``built`` when this thread's graph built anything so far, else ``hit``."""
    record = getattr(_current, "record", None) or {"steps": []}
    return "hit" if all(entry["outcome"] in ("hit", "waited") for entry in record["steps"]) else "built"


def end(outcome: str, reason: str = "") -> None:
    """Closes the account: ``hit``, ``built``, ``stock``, with the reason for the last."""
    global _last
    record = getattr(_current, "record", None)
    _current.record = None
    if record is not None:
        record["outcome"] = outcome
        record["reason"] = reason
        with _lock:
            _last = record


def last() -> dict[str, Any] | None:
    """The account of the graph that was finished last."""
    with _lock:
        if _last is None:
            return None
        result = {**_last, "steps": [dict(entry) for entry in _last["steps"]]}
    # What goes on changing after the graph was finished, while the graph exists.
    details = result.pop("details", None)
    now = details() if details is not None else None
    return result if now is None else {**result, **now()}
