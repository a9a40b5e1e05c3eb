"""Locks of modules, which must be free in a forked child whatever the parent's threads were doing."""

from __future__ import annotations

import os
import threading

_all: list[threading.Lock] = []


def module_lock() -> threading.Lock:
    """A lock that lives as long as the process and is new in every forked child."""
    lock = threading.Lock()
    _all.append(lock)
    return lock


def _after_fork() -> None:
    for lock in _all:
        lock._at_fork_reinit()  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_after_fork)
