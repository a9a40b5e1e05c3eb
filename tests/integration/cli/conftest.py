"""Fixtures of the command line's tests."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tiers"))
sys.path.insert(0, str(Path(__file__).parent))

from cli_support import Daemon, Home


@pytest.fixture
def home() -> Iterator[Home]:
    # Not pytest's own directory: a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="nc-cli-"))
    made = Home(directory)
    yield made
    made.kill_daemons()
    shutil.rmtree(directory, ignore_errors=True)


@dataclass
class Filled:
    home: Home
    daemon: Daemon
    llama: str
    bert: str
    small: str
    failed: str


def fill(home: Home) -> Filled:
    """Three entries, one of them large, a remembered failure, a hit, and a bypass."""
    home.ok("daemon", "start")
    daemon = home.connect()
    big = bytes(range(256)) * 4096
    llama = daemon.store("llama fw", {"kernel.so": big, "wrapper.py": b"print('hi')\n" * 50}, 60_000, model="llama")
    bert = daemon.store(
        "bert fw", {"kernel.so": big[::-1], "wrapper.py": b"x"}, 5_000, namespace="team-a", model="bert"
    )
    small = daemon.store("mlp", {"wrapper.py": b"tiny", "log": b"compiled well\n"}, 100, compiler="inductor 2.12.0")
    failed = daemon.fail("broken", "unsupported op", "line one\nline two\x1b[31m\n")
    assert daemon.acquire([("graph", "llama fw"), ("compiler", "inductor 2.13.0")])["state"] == "hit"
    daemon.post("/v1/bypass", {"namespace": "default", "reason": "random_op", "ticket": None, "count": 2})
    daemon.close()  # what it looked up is in use no more; the next call opens it again
    return Filled(home, daemon, llama, bert, small, failed)


@pytest.fixture
def filled(home: Home) -> Iterator[Filled]:
    made = fill(home)
    yield made
    made.daemon.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Filled]:
    """A filled store for tests that only read."""
    directory = Path(tempfile.mkdtemp(prefix="nc-cli-"))
    made = Home(directory)
    try:
        filled = fill(made)
        yield filled
        filled.daemon.close()
    finally:
        made.kill_daemons()
        shutil.rmtree(directory, ignore_errors=True)
