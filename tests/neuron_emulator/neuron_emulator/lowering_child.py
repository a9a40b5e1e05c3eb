"""The process that lowers graphs to StableHLO: torch-mlir can loop for ever, and take all memory of the machine while it does.

It imports torch-mlir once, and forks for each graph a process with bounded memory and time. Requests and answers are pickles,
each behind its length in eight bytes. Answer: ``("ok", MLIR bytecode, MLIR text)`` or ``("error", what happened)``.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO

MEMORY = 4 << 30  # bytes, on top of what the process has
SECONDS = 60


def read(stream: BinaryIO) -> Any:
    """The next message; None when there is none."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (size,) = struct.unpack(">Q", head)
    return pickle.loads(stream.read(size))


def write(stream: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    stream.write(struct.pack(">Q", len(data)) + data)
    stream.flush()


def lower(wire: Any) -> tuple[bytes, str]:
    """StableHLO for a graph, as bytecode and as text without places in the source."""
    import io

    from torch_mlir import fx

    from neuron_emulator.wire import unpack

    module = fx.stateless_fx_import(unpack(wire), output_type="stablehlo", model_name="main")
    data = io.BytesIO()
    module.operation.write_bytecode(data)
    return data.getvalue(), module.operation.get_asm(enable_debug_info=False)


def limit(memory: int, seconds: int) -> None:
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def answer(request: Any) -> Any:
    """Lowers in a process of its own, which may die of it."""
    wire, memory, seconds = request
    file = os.memfd_create("lowered")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            limit(memory, seconds)
            try:
                message: Any = ("ok", *lower(wire))
            except Exception as error:
                text = str(error).partition("\nFor Torch-MLIR developers")[0].strip()
                message = ("error", f"{type(error).__name__}: {text}")
            with os.fdopen(file, "wb") as out:
                out.write(pickle.dumps(message))
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    with os.fdopen(file, "rb") as result:
        result.seek(0)
        data = result.read()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        cause = f"it took over {seconds} s" if number == signal.SIGALRM else "perhaps for want of memory"
        return ("error", f"torch-mlir was ended by signal {number}, {cause}")
    if os.WEXITSTATUS(status) != 0 or not data:
        return ("error", f"torch-mlir left with status {os.WEXITSTATUS(status)}, perhaps for want of memory")
    return pickle.loads(data)


def main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not get into the answers
    with contextlib.suppress(ImportError):  # it is imported again for a graph, which tells
        import torch_mlir.fx  # noqa: F401
    while (request := read(requests)) is not None:
        write(answers, answer(request))


if __name__ == "__main__":
    main()
