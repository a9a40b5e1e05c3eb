"""The engine that proves and writes plans: it lives in the daemon. One answer per pair of graphs and process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from neuroncache.client import default_client
from neuroncache.errors import DaemonUnavailable, ProtocolError, Unsupported
from neuroncache.locks import module_lock

_MAX_ANSWERS = 256

_answers: dict[str, dict[str, Any]] = {}
_lock = module_lock()


def _ask_daemon(request: dict[str, Any]) -> dict[str, Any]:
    return default_client().padding_plan(request)


# Who is asked, and what is remembered of it: replaced by tests.
ask: Callable[[dict[str, Any]], dict[str, Any]] = _ask_daemon


def digest(request: dict[str, Any]) -> str:
    """SHA-256 of a request as it is sent."""
    return hashlib.sha256(json.dumps(request, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def plan_for(request: dict[str, Any]) -> dict[str, Any]:
    """The engine's answer. Raises `Unsupported` when there is nobody to ask."""
    key = digest(request)
    with _lock:
        known = _answers.get(key)
    if known is not None:
        return known
    try:
        answer = ask(request)
    except DaemonUnavailable as error:
        raise Unsupported(f"nobody can plan the padding: {error}", passing=True) from error
    except ProtocolError as error:
        raise Unsupported(f"the daemon does not plan this graph: {error}", passing=error.status >= 500) from error
    with _lock:
        while len(_answers) >= _MAX_ANSWERS:
            del _answers[next(iter(_answers))]
        _answers[key] = answer
    return answer


def forget() -> None:
    """Drops all remembered answers."""
    with _lock:
        _answers.clear()
