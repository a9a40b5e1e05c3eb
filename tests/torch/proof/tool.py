"""The engine as a process: one request per line in, one answer per line out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


class ToolError(Exception):
    """The tool is missing, died, or answered with an error instead of a plan or a refusal."""


def path() -> Path:
    """NC_PADDING_TOOL, NC_BIN_DIR/padding_tool or what `./x build` made."""
    if named := os.environ.get("NC_PADDING_TOOL"):
        return Path(named)
    if folder := os.environ.get("NC_BIN_DIR"):
        return Path(folder) / "padding_tool"
    return ROOT / "build/bin/padding_tool"


class Tool:
    """Starts the tool at the first request, and again after it died."""

    def __init__(self, program: Path | None = None) -> None:
        self.program = program or path()
        self._process: subprocess.Popen[bytes] | None = None

    def plan(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer: a plan or a refusal. Raises `ToolError` for anything else."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            status = process.wait()
            self._process = None
            raise ToolError(f"padding_tool ended with status {status}")
        answer: dict[str, Any] = json.loads(line)
        if "refusal" not in answer and "forward" not in answer:
            raise ToolError(f"padding_tool answered {line[:2000].decode()}")
        return answer

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            if not os.access(self.program, os.X_OK):
                raise ToolError(f"{self.program} is missing: build it with ./x build, or set NC_PADDING_TOOL")
            self._process = subprocess.Popen([str(self.program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process


_shared: Tool | None = None


def shared() -> Tool:
    """One tool for the whole process."""
    global _shared
    if _shared is None:
        _shared = Tool()
    return _shared
