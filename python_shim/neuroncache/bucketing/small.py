"""Sizes 0 and 1, which Dynamo takes as constants: an entry for each dimension that has one, and for each two that do, and so on.

A few of these entries are worth their price (a batch of one, again and again), most are not (the last batch of an epoch, an empty
one). So a call in which a size that is otherwise larger is 0 or 1 gets an entry only when it comes a second time, when nothing in
it is empty, and while the function has few entries; else it runs as plain Python, which needs no entry and is right by itself.
Dynamo's own limit on entries, past which nothing is compiled any more, is never reached this way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

MAX_ENTRIES = (
    4  # of a function, for calls with gradients and for calls without: one fixed, one open, two with sizes of 1
)

_PLACE = re.compile(r"L\['(\w+)'\]((?:\[(?:\d+|'[^'\\]*')\])*)")
_STEP = re.compile(r"\[(\d+|'[^'\\]*')\]")


class SmallSizes:
    """What is known of one function: where its larger sizes are, and what was done about small ones. Guarded by Dynamo's
    compile lock but for counts that may be off by one."""

    def __init__(self) -> None:
        self._larger: dict[str, set[int]] = {}  # tensor inputs by their names: dimensions that had a size of 2 or more
        self._seen: dict[frozenset[str], int] = {}
        self._entries = {True: 0, False: 0}
        self._open = {True: False, False: False}

    def note(self, name: str, value: torch.Tensor) -> None:
        """Remembers an input of the call that is being traced."""
        dims = {dim for dim in range(value.dim()) if value.size(dim) > 1}
        if dims and _PLACE.fullmatch(name):
            self._larger.setdefault(name, set()).update(dims)

    def made(self, pattern: frozenset[str]) -> None:
        """A call with this pattern got an entry."""
        self._entries[torch.is_grad_enabled()] += 1
        if not pattern:
            self._open[torch.is_grad_enabled()] = self._entries[torch.is_grad_enabled()] > 1

    def pattern(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        """The dimensions that have a size of 0 or 1 in a call, and had a larger one in another."""
        found = []
        for name, dims in self._larger.items():
            value = _look_up(name, arguments)
            if value is not None:
                found += [
                    f"{name}:{dim}={value.size(dim)}" for dim in dims if dim < value.dim() and value.size(dim) < 2
                ]
        return frozenset(found)

    def as_python(self, pattern: frozenset[str]) -> bool:
        """Whether a call with this pattern, for which there is no entry, is to run without one."""
        if not pattern:
            return False
        if len(self._seen) < 1024 or pattern in self._seen:
            self._seen[pattern] = self._seen.get(pattern, 0) + 1
        empty = any(place.endswith("=0") for place in pattern)
        if empty or self._seen.get(pattern, 0) < 2:
            return True
        grad = torch.is_grad_enabled()
        return self._entries[grad] >= MAX_ENTRIES - (not self._open[grad])


def _look_up(name: str, arguments: Mapping[str, Any]) -> torch.Tensor | None:
    """The tensor at a place such as ``L['batch'][0]['ids']``. Only containers whose look-up runs nobody's code are followed."""
    found = _PLACE.fullmatch(name)
    if found is None:
        return None
    value: Any = arguments.get(found[1])
    for step in _STEP.findall(found[2]):
        key = step[1:-1] if step.startswith("'") else int(step)
        if type(value) in (list, tuple) and isinstance(key, int):
            value = value[key] if key < len(value) else None
        elif type(value) is dict:
            value = value.get(key)
        else:
            return None
    return value if isinstance(value, torch.Tensor) else None
