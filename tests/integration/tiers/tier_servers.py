"""Servers that tiers live on, each on a free port of this host with files of its own, gone with the test: moto's S3, a
strict S3 of ours, Redis, nginx.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("NC_BIN_DIR", ROOT / "build" / "bin"))
CONTRACT = BIN.parent / "tests" / "tier_contract"
SERVERS = ROOT / "build" / "servers"  # where ./x unpacks Debian's redis-tools and nginx
PATIENCE_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def program(*names: str) -> Path:
    """The first of these that is unpacked by ./x or installed."""
    for name in names:
        for folder in ("usr/bin", "usr/sbin"):
            if (SERVERS / folder / name).exists():
                return SERVERS / folder / name
        if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
            return Path(found)
    raise AssertionError(f"none of {', '.join(names)} is there; `./x build` unpacks them into {SERVERS}")


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, f"the server ended: {log.read_text()}"
        time.sleep(0.02)
    raise AssertionError(f"the server does not answer: {log.read_text()}")


@contextlib.contextmanager
def running(command: list[str], port: int, executable: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, executable=executable, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        try:
            wait_for(port, process, log)
            yield process
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """An S3 service with one bucket, "tier-bucket"; gives its address. It checks no signatures."""
    port = free_port()
    with running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        url = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(urllib.request.Request(f"{url}/tier-bucket", method="PUT")) as answer:
            assert answer.status == 200
        yield url


@contextlib.contextmanager
def strict_s3(*options: str) -> Iterator[str]:
    """The S3 service of tests/tools/strict_s3.py; gives its address."""
    script = ROOT / "tests" / "tools" / "strict_s3.py"
    process = subprocess.Popen([sys.executable, str(script), *options], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def contract(url: str, root: str, tests: str = "*", expect: str = "", **variables: str) -> str:
    """Runs the contract against a tier; gives what it printed."""
    env = {"PATH": os.environ["PATH"], "NC_TIER_URL": url, "NC_TIER_ROOT": root, "NC_TIER_EXPECT": expect} | variables
    done = subprocess.run(
        [CONTRACT, "--gtest_brief=1", f"--gtest_filter=TierContract.{tests}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{url}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
