"""From StableHLO to the bytes of a NEFF: the backend's own cache on disk, then `neuronx-cc`, in TorchNeuron's way."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from neuron_emulator.lowering import Lowered

# What happened in this process: graphs lowered, NEFFs found in the own cache, runs of neuronx-cc.
counts = {"graphs": 0, "hits": 0, "compiles": 0}


def neff(lowered: Lowered) -> bytes:
    """Raises `RuntimeError` with the compiler's messages."""
    counts["graphs"] += 1
    arguments = _arguments()
    path = _path(_key(lowered, arguments))
    if path is not None:
        with contextlib.suppress(OSError):
            if data := path.read_bytes():
                counts["hits"] += 1
                return data
    data = _compile(lowered, arguments)
    if path is not None:
        _put(path, data)
    return data


def _arguments() -> list[str]:
    target = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or "trn2"
    cores = os.environ.get("NEURON_LOGICAL_NC_CONFIG") or ("1" if target in ("trn1", "inf2") else "2")
    level = os.environ.get("NEURON_COMPILER_OPT_LEVEL") or "-O2"
    more = shlex.split(os.environ.get("NEURON_CC_FLAGS", ""))
    return [
        *("--framework", "XLA", "--target", target, "--lnc", cores, level),
        *("--model-type", "transformer", "--auto-cast=none", *more),
    ]


def _key(lowered: Lowered, arguments: list[str]) -> str:
    """32 hexadecimal digits of the graph, its arguments and, as there, the bytecode with the places in the source."""
    graph = hashlib.sha256(lowered.text.encode()).hexdigest()
    return hashlib.blake2b("_".join([graph, *arguments]).encode() + lowered.bytecode, digest_size=16).hexdigest()


def _path(key: str) -> Path | None:
    if os.environ.get("TORCH_NEURONX_NEFF_DISABLE_CACHE") == "1":
        return None
    root = Path(os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR") or "/tmp/neff_cache_emulator")
    return root / key[:2] / key[2:4] / f"{key}.neff"


def _put(path: Path, data: bytes) -> None:
    """Failing only costs the next process time."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        file, temporary = tempfile.mkstemp(prefix=".tmp.", dir=path.parent)
        with os.fdopen(file, "wb") as out:
            out.write(data)
        os.rename(temporary, path)


def _compile(lowered: Lowered, arguments: list[str]) -> bytes:
    counts["compiles"] += 1
    with tempfile.TemporaryDirectory(prefix="neuron_backend_") as directory:
        source, result = Path(directory, "module.mlir"), Path(directory, "module.neff")
        source.write_bytes(lowered.bytecode)
        command = ["neuronx-cc", "compile", str(source), *arguments, "--output", str(result)]
        try:
            done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except FileNotFoundError:
            raise RuntimeError(f"neuron: {lowered.name}: there is no neuronx-cc on PATH") from None
        if done.returncode != 0:
            raise RuntimeError(
                f"neuron: neuronx-cc failed for {lowered.name} with status {done.returncode}:\n{done.stderr or done.stdout}"
            )
        return result.read_bytes()
