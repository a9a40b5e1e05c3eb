"""From a functional graph to StableHLO, in another process (`lowering_child`), which is started once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import fx

from neuron_emulator import lowering_child, wire


@dataclass(frozen=True)
class Lowered:
    """`bytecode` has places in the source, `text` has none."""

    name: str
    bytecode: bytes
    text: str


def lower(
    gm: fx.GraphModule, name: str, memory: int = lowering_child.MEMORY, seconds: int = lowering_child.SECONDS
) -> Lowered:
    """Raises `RuntimeError` with what torch-mlir said, or that it took more than `memory` bytes or `seconds`."""
    outcome, *rest = _child.ask((wire.pack(gm), memory, seconds))
    if outcome != "ok":
        raise RuntimeError(f"neuron: {name} cannot be lowered to StableHLO: {rest[0]}")
    return Lowered(name, *rest)


def start() -> None:
    """Starts the process, so that it is ready when the first graph comes."""
    _child.start()


class _Child:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        with self.lock:
            return self._start()

    def ask(self, request: Any) -> Any:
        with self.lock:
            process = self._start()
            assert process.stdin is not None and process.stdout is not None
            answer = None
            try:
                lowering_child.write(process.stdin, request)
                answer = lowering_child.read(process.stdout)
            except OSError:
                pass
            if answer is None:
                process.kill()
                raise RuntimeError(f"neuron: the process that lowers graphs ended with status {process.wait()}")
            return answer

    def _start(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("lowering_child.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # What torch-mlir says of an error is in the answer; at its exit it reports leaks of its own.
                stderr=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
                },
            )
        return self.process

    def forget(self) -> None:
        self.lock = threading.Lock()
        self.process = None  # it is the parent's


_child = _Child()
os.register_at_fork(after_in_child=_child.forget)
