"""What fixtures of several suites are made of: a daemon on a private store and socket, and programs in fresh processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SHIM = ROOT / "python_shim"
FAKE = Path(__file__).with_name("fake_daemon.py")
sys.path.insert(0, str(SHIM))

# Nothing that this user has set may reach the programs under test.
_CLEAN = ("NEURONCACHE", "TORCHINDUCTOR", "TORCH_", "FAKE_DAEMON", "XDG_", "PYTHONPATH")


for _name in [name for name in os.environ if name.startswith(_CLEAN[0])]:
    del os.environ[_name]


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_CLEAN)}


def real_daemon() -> Path | None:
    named = os.environ.get("TEST_NEURONCACHED")
    path = Path(named) if named else ROOT / "build/bin/neuroncached"
    return path if os.access(path, os.X_OK) else None


class Result:
    """What a program in a process of its own did. `value`: the JSON that it printed last."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @property
    def value(self) -> Any:
        assert self.status == 0, f"exit status {self.status}\n{self.out}\n{self.err}"
        return json.loads(self.out.strip().splitlines()[-1])

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("neuroncache: ")]


class Program:
    """A running program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def wait(self, timeout: float = 300) -> Result:
        out, err = self.process.communicate(timeout=timeout)
        return Result(self.process.returncode, out, err)

    def wait_for(self, text: str) -> str:
        """Reads its output up to a line that holds `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return line
        raise AssertionError(f"the program ended without '{text}':\n{self.wait().err}")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Programs:
    """Starts Python programs with the shim on their path, each with inductor caches of its own unless told otherwise."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.environment = dict(environment)
        self._running: list[Program] = []
        self._count = 0

    def start(
        self, code: str, *arguments: str, env: Mapping[str, str | None] | None = None, python: str = ""
    ) -> Program:
        self._count += 1
        given = {
            "PYTHONPATH": str(SHIM),
            "TORCHINDUCTOR_CACHE_DIR": str(self.directory / f"inductor-{self._count}"),
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            **self.environment,
            **(env or {}),
        }
        script = self.directory / f"program_{self._count}.py"
        script.write_text(textwrap.dedent(code))
        process = subprocess.Popen(
            [python or sys.executable, str(script), *arguments],
            env={**_clean_environment(), **{name: value for name, value in given.items() if value is not None}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        program = Program(process)
        self._running.append(program)
        return program

    def run(self, code: str, *arguments: str, env: Mapping[str, str | None] | None = None) -> Result:
        return self.start(code, *arguments, env=env).wait()

    def close(self) -> None:
        for program in self._running:
            if program.process.poll() is None:
                program.kill()


class Daemon:
    """A daemon with a store and a socket of its own."""

    def __init__(self, directory: Path, program: Path) -> None:
        self.directory = directory
        self.program = program
        self.process: subprocess.Popen[bytes] | None = None
        self.socket = directory / "d.sock"
        self.store = directory / "store"

    @property
    def env(self) -> dict[str, str]:
        """What a client needs to find it. Clients do not start it by themselves."""
        return {
            "NEURONCACHE_SOCKET": str(self.socket),
            "NEURONCACHE_DIR": str(self.store),
            "NEURONCACHE_AUTOSTART": "0",
            "NEURONCACHE_DAEMON_PATH": str(self.program),
            "NEURONCACHE_CONFIG": str(self.directory / "config.toml"),
        }

    def start(self, fault: str = "") -> None:
        (self.directory / "config.toml").touch()
        self.process = subprocess.Popen(
            [str(self.program)],
            env={**_clean_environment(), **self.env, "FAKE_DAEMON_FAULT": fault},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 20
        while not self._answers():
            assert self.process.poll() is None, f"the daemon left with status {self.process.returncode}"
            assert time.monotonic() < deadline, "the daemon does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def client(self) -> Any:
        from neuroncache.client import Client

        return Client(str(self.socket), trust_any_owner=True, breaker_seconds=0)

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.client().stats()["counters"]
        return counters

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0
