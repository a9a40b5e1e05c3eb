"""Admission: no artifact is stored before a process without a compiler ran it with the very results that we get.

A fresh process, started once per builder, loads the artifact and runs it on made-up inputs first, so that a crash costs a
refusal and nothing else; then this process runs the same. Outputs must be equal bit by bit, in dtype, strides, None
places and changed inputs. Only where sums of floats are collected by threads in whatever order (atomic additions) are
contents compared by closeness, because there the graph itself does not give the same bits twice.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from neuroncache import verify
from neuroncache.errors import Unsupported
from neuroncache.loader import LoadedGraph
from neuroncache.locks import module_lock

SEED = 20250711
RUN_TIMEOUT_S = 600.0
_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}


@dataclass(frozen=True)
class Files:
    """Where the parts of the artifact lie while it is looked at."""

    wrapper: str
    library: str | None
    constants: str | None


def prepare() -> None:
    """Starts the verifier early: it takes seconds to import torch, while this process lowers the graph."""
    with contextlib.suppress(OSError):
        _child().start()


def admit(
    graph: LoadedGraph,
    files: Files,
    inputs: Sequence[Any],
    *,
    unordered_sums: bool,
    random_states: frozenset[int] = frozenset(),
) -> None:
    """Raises `Unsupported` with the reason when the artifact must not be stored. Leaves the random state as it was."""
    specs = [
        {"random_state": True} if index in random_states else specification(value) for index, value in enumerate(inputs)
    ]
    size = verify.input_bytes(specs)
    if size > _memory_limit():
        raise Unsupported(f"the graph's inputs take {size >> 20} MiB, too much for a trial run here", passing=True)
    problem = ""
    for largest_index in (1, 0):
        answer = _child().ask(
            {
                "wrapper": files.wrapper,
                "library": files.library,
                "constants": files.constants,
                "inputs": specs,
                "seed": SEED,
                "largest_index": largest_index,
                "settings": verify.settings(),
            }
        )
        problem = answer.get("error", "")
        if not problem:
            break
    if problem:
        raise Unsupported(f"the trial run failed: {problem}", passing=bool(answer.get("passing")))
    if answer["loaded"]:
        raise Unsupported(f"the trial run imported {answer['loaded'][0]}")
    try:
        here = verify.run(graph, specs, SEED, largest_index)
    except Exception as error:
        raise Unsupported(f"the trial run failed in this process: {type(error).__name__}: {error}") from None
    contents, problem = here.differences(answer["fingerprints"], answer["mutated"])
    if problem:
        raise Unsupported(f"the trial run gave {problem}")
    if not contents:
        return
    if not unordered_sums:
        again = verify.run(graph, specs, SEED, largest_index)
        if not again.differences(here.fingerprints, here.mutated)[0]:
            raise Unsupported(f"the trial run gave other bits in output {contents[0]}")
    _compare_by_closeness(here, contents)


def _compare_by_closeness(here: verify.Run, contents: list[int]) -> None:
    directory = tempfile.mkdtemp(prefix="neuroncache-verify-")
    try:
        if error := _child().ask({"dump": contents, "directory": directory}).get("error"):
            raise Unsupported(f"the trial run's outputs cannot be compared: {error}")
        for index in contents:
            value = here.outputs[index]
            limit = _CLOSE.get(value.dtype)
            with open(os.path.join(directory, str(index)), "rb") as file:
                data = bytearray(file.read())
            there = torch.frombuffer(data, dtype=torch.uint8).view(value.dtype).view(value.shape)
            if limit is None or not _close(value, there, limit):
                raise Unsupported(f"the trial run gave another value in output {index}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _close(here: torch.Tensor, there: torch.Tensor, limit: float) -> bool:
    a, b = here.double(), there.double()
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()) or not torch.equal(a.isnan(), b.isnan()):
        return False
    scale = float(a[finite].abs().max()) if bool(finite.any()) else 0.0
    return bool(((a - b)[finite].abs() <= limit * max(scale, 1.0)).all())


def specification(value: Any) -> verify.Spec:
    """An input as the verifier makes it: sizes are those of the trace. Raises `Unsupported`."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout is not torch.strided or value.is_quantized:
            raise Unsupported(f"an input is on {value.device.type} with layout {value.layout}")
        return {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": [_size(size) for size in value.shape],
            "stride": [_size(stride) for stride in value.stride()],
            "offset": _size(value.storage_offset()),
        }
    if isinstance(value, (int, float, torch.SymInt)):
        return {"value": value if isinstance(value, (int, float)) else _size(value)}
    raise Unsupported(f"an input of the graph is a {type(value).__name__}")


def _size(value: Any) -> int:
    if isinstance(value, int):
        return value
    from torch.fx.experimental.symbolic_shapes import guarding_hint_or_throw

    try:
        return int(guarding_hint_or_throw(value))
    except Exception:
        raise Unsupported("an input's size is only known when the graph runs") from None


def _memory_limit() -> int:
    """A fifth of the memory that is free now: inputs and outputs exist twice during a trial."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024 // 5
    except (OSError, ValueError):
        pass
    return 1 << 30


# -- the verifier process ---------------------------------------------------------------------------------------------


class _Child:
    """The verifier of this process. One request at a time."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            self._running()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer, or ``{"error": ...}`` when the process died or took too long."""
        text = json.dumps(request) + "\n"
        with self._lock:
            for _ in range(2):
                try:
                    process = self._running()
                    assert process.stdin is not None
                    process.stdin.write(text)
                    process.stdin.flush()
                except OSError as error:
                    status = self.stop()
                    problem = f"the verifier cannot be reached: {error} (status {status})"
                    continue
                answer = self._answer(process)
                if answer is not None:
                    return answer
                status = self.stop()
                problem = f"the process ended with status {status}"
                if status != 0:
                    break
                # It had been idle for so long that it ended by itself just now.
            # Killed from outside, most likely for want of memory, or never started: no fault of the artifact.
            return {"error": problem, "passing": status is None or status in (0, -signal.SIGKILL, -signal.SIGTERM)}

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any] | None:
        """The next answer; None when the process has ended."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], RUN_TIMEOUT_S)
        if not ready:
            process.kill()
            self.stop()
            return {"error": f"it took more than {RUN_TIMEOUT_S:g} s", "passing": True}
        line = process.stdout.readline()
        answer: dict[str, Any] | None = json.loads(line) if line else None
        return answer

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        environment = {
            **os.environ,
            "PATH": "",
            "NEURONCACHE": "0",
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", os.path.join(os.path.dirname(os.path.abspath(__file__)), "_verify_child.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"path": sys.path}) + "\n")
        self._process.stdin.flush()
        return self._process

    def stop(self) -> int | None:
        process, self._process = self._process, None
        if process is None or self.pid != os.getpid():
            return None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        try:
            return process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


_current: _Child | None = None
_current_lock = module_lock()


def _child() -> _Child:
    global _current
    with _current_lock:
        if _current is None or _current.pid != os.getpid():
            _current = _Child()
            atexit.register(_current.stop)
        return _current
