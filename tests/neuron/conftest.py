"""Fixtures: the emulated toolchain, a daemon on a private store, and programs in fresh processes that use both."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
EMULATOR = TESTS / "neuron_emulator"
sys.path[:0] = [str(TESTS / "torch"), str(EMULATOR)]

from running import SHIM, Daemon, Programs, real_daemon  # noqa: E402

# The command finds IREE's compiler in the environment that these tests run in, and is the one on PATH.
os.environ["X_NEURON_VENV"] = sys.prefix
os.environ["PATH"] = f"{EMULATOR}:{os.environ['PATH']}"
for name in [name for name in os.environ if name.startswith(("NEURON_", "TORCH_NEURONX_"))]:
    del os.environ[name]
os.environ["TORCH_NEURONX_NEFF_DISABLE_CACHE"] = "1"


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="ncn"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def daemon(short_dir: Path) -> Iterator[Daemon]:
    program = real_daemon()
    assert program is not None, "the daemon is not built; TEST_NEURONCACHED names one that is somewhere else"
    result = Daemon(short_dir, program)
    result.start()
    yield result
    result.kill()


class Chain:
    """Programs that use the shim, the daemon, the wrapper and the emulated toolchain, with a log of what is compiled."""

    def __init__(self, directory: Path, daemon: Daemon) -> None:
        wrapper = daemon.program.parents[1] / "libexec" / "neuronx-cc"
        assert os.access(wrapper, os.X_OK), f"the wrapper is not built: {wrapper}"
        self.log = directory / "compiles.log"
        self.programs = Programs(
            directory,
            {
                **daemon.env,
                "PATH": f"{wrapper.parent}:{os.environ['PATH']}",
                "PYTHONPATH": f"{SHIM}:{EMULATOR}",
                "NEURON_EMULATOR_LOG": str(self.log),
                "TORCH_NEURONX_NEFF_CACHE_DIR": str(directory / "neff"),
            },
        )

    def run(self, code: str, *arguments: str, env: Mapping[str, str] | None = None) -> Any:
        """The JSON that a program prints last."""
        return self.programs.start(code, *arguments, env=env).wait(timeout=1500).value

    def compiles(self) -> int:
        """How often the compiler itself has run."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def chain(tmp_path: Path, daemon: Daemon) -> Iterator[Chain]:
    result = Chain(tmp_path, daemon)
    yield result
    result.programs.close()
