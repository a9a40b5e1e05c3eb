"""The process that builds inductor's graphs beside the user's program: one, started when there is work, of low priority.

It gets a pickle per pair of graphs and answers with a line of JSON. What it builds goes to the store by way of the daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from neuroncache import compat, config, keys, verify
from neuroncache.bucketing import recipe
from neuroncache.errors import Unsupported

if TYPE_CHECKING:
    from neuroncache.bucketing.records import Half
    from neuroncache.bucketing.units import Unit

_process: subprocess.Popen[bytes] | None = None
_stopping = False


def job(unit: Unit, half: Half, specs: Sequence[recipe.Spec]) -> bytes:
    """Everything that the process must know, and the state of this one, which decides the keys. Raises what pickle
    raises for a setting that cannot be taken along, and `Unsupported` for graphs of another device."""
    if any(spec[3] != "cpu" for spec in specs):
        raise Unsupported("an input is not on the CPU")
    parts = recipe.Parts.of(unit)
    document: dict[str, Any] = {
        "forward": _plan(parts.forward),
        "backward": None if parts.backward is None else _plan(parts.backward),
        "saved": list(parts.saved),
        "tangents": list(parts.tangents),
        "names": dict(parts.names),
        "buckets": dict(parts.buckets),
        "inputs": list(specs),
        "truths": [(truth.item(), truth.dtype) for truth in half.truths],
        "options": dict(getattr(unit.inner, "options", {})),
        "settings": verify.settings(),
        "inductor": compat.changed_settings(compat.inductor_config()),
        "functorch": compat.changed_settings(compat.functorch_config()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "state": keys.process_state(),
    }
    return pickle.dumps(document)


def _plan(plan: Any) -> tuple[Any, Any, Any]:
    return plan.document, plan.graph, plan.constants


def run(data: bytes) -> None:
    """Builds and stores a job's graphs. Raises `RuntimeError` with what the process said when it did not."""
    process = _running()
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(struct.pack(">Q", len(data)) + data)
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = b""
    if not line:
        stop(final=False)
        raise RuntimeError(f"the process that builds ended with status {process.returncode}")
    answer = json.loads(line)
    if answer.get("error"):
        raise RuntimeError(str(answer["error"]))


def _running() -> subprocess.Popen[bytes]:
    global _process
    if _stopping:
        raise RuntimeError("the program ends")
    if _process is not None and _process.poll() is None:
        return _process
    child = os.path.join(os.path.dirname(os.path.abspath(__file__)), "build_child.py")
    environment = config.daemon_environment() | {
        "NEURONCACHE_BUCKETING": "off",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    _process = subprocess.Popen(
        [sys.executable, "-I", child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert _process.stdin is not None
    path = json.dumps(sys.path).encode()
    _process.stdin.write(struct.pack(">Q", len(path)) + path)
    return _process


def stop(final: bool = True) -> None:
    """Ends the process, in the middle of a build too: nothing is stored before it is whole."""
    global _process, _stopping
    _stopping = _stopping or final
    process, _process = _process, None
    if process is None:
        return
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()


def _after_fork() -> None:
    global _process
    _process = None  # it is the parent's


os.register_at_fork(after_in_child=_after_fork)
