"""A private home with the wrapper first on PATH and a scriptable compiler behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("NC_BIN_DIR", ROOT / "build" / "bin"))
LIBEXEC = BIN.parent / "libexec"
STUB = ROOT / "tests" / "stub_compiler"


@dataclass
class Ran:
    status: int
    out: bytes
    err: bytes

    @property
    def ours(self) -> list[str]:
        """What the wrapper itself said."""
        lines = self.err.decode(errors="replace").splitlines()
        return [line.removeprefix("neuroncache: ") for line in lines if line.startswith("neuroncache: ")]


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Home:
    """A user with nothing set but what a test sets."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.work = directory / "work"
        self.store = directory / "store"
        self.log = directory / "compiles.log"
        for made in (self.work, directory / "run"):
            made.mkdir(mode=0o700)
        self.env = {
            "HOME": str(directory),
            "PATH": f"{LIBEXEC}:{STUB}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(directory / "run"),
            "NEURONCACHE_DIR": str(self.store),
            "NEURONCACHE_SOCKET": str(directory / "run" / "daemon.sock"),
            "NEURONCACHE_CONNECT_TIMEOUT": "60s",
            "NEURONCACHE_BUILD_MEMORY_GUESS": "16MiB",
            "STUB_LOG": str(self.log),
            "LC_ALL": "C.UTF-8",
        }
        if marker := os.environ.get("X_TEST_RUN"):
            self.env["X_TEST_RUN"] = marker
        self.started: list[subprocess.Popen[bytes]] = []

    def input(
        self, name: str = "model.hlo_module.pb", data: bytes = b"an HLO module", where: Path | None = None
    ) -> str:
        path = (where or self.work) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def popen(
        self, *words: str | bytes, cwd: Path | None = None, script: Any = None, program: str | None = None, **env: str
    ) -> subprocess.Popen[bytes]:
        more = dict(env)
        if script is not None:
            more["STUB_SCRIPT"] = json.dumps(script)
        process = subprocess.Popen(
            [program or str(LIBEXEC / "neuronx-cc"), *words], env={**self.env, **more}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd or self.work,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, *words: str | bytes, **more: Any) -> Ran:
        process = self.popen(*words, **more)
        out, err = process.communicate(timeout=120)
        return Ran(process.returncode, out, err)

    def compile(
        self, *more: str | bytes, output: str | bytes = "out.neff", source: str | bytes | None = None, **rest: Any
    ) -> Ran:
        """The command as most callers give it."""
        words: list[str | bytes] = ["compile", source or self.input(), "--framework", "XLA", "--target", "trn2"]
        return self.run(*words, *more, "--output", output, **rest)

    def compiles(self, word: str = "start") -> int:
        if not self.log.exists():
            return 0
        return sum(line.startswith(word) for line in self.log.read_text().splitlines())

    def cli(self, *words: str) -> Any:
        done = subprocess.run(
            [str(BIN / "neuroncache"), *words, "--format", "json"],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.cli("stats")["counters"]
        return counters

    def daemons(self) -> list[int]:
        mine = f"NEURONCACHE_DIR={self.store}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if (entry / "comm").read_text().strip() == "neuroncached" and mine in (
                    entry / "environ"
                ).read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def kill_daemons(self) -> None:
        for pid in self.daemons():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert eventually(lambda: not self.daemons())

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.kill_daemons()
