"""Telling whoever sits at a terminal what is being waited for."""

from __future__ import annotations

import os
import sys
from typing import Any

from neuroncache import log


class Progress:
    """One line that is rewritten, on a terminal and for the first rank only; one message in the log elsewhere."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._width = 0
        self._said = False
        self._terminal = _is_terminal() and os.environ.get("LOCAL_RANK", "0") == "0"

    def show(self, answer: dict[str, Any]) -> None:
        """`answer`: the daemon's ``building`` document."""
        line = _line(self._label, answer)
        if self._terminal:
            sys.stderr.write("\r" + line.ljust(self._width))
            sys.stderr.flush()
            self._width = len(line)
        elif not self._said:
            log.info("%s", line)
        self._said = True

    def clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError, OSError):
        return False


def _line(label: str, answer: dict[str, Any]) -> str:
    builder = answer.get("builder") or {}
    who = f"process {builder.get('pid', '?')}"
    if builder.get("program"):
        who += f" ({builder['program']})"
    line = f"neuroncache: waiting for {who} to build {label}: {float(answer.get('elapsed_s') or 0):.0f} s"
    usual = answer.get("usual_s")
    return line + (f" of usually {float(usual):.0f} s" if usual else "")
