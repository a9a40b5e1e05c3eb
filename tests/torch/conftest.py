"""Fixtures: a daemon on a private store and socket, and programs in fresh processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import FAKE, ROOT, SHIM, Daemon, Program, Programs, Result, real_daemon

__all__ = ["FAKE", "ROOT", "SHIM", "Daemon", "Program", "Programs", "Result", "real_daemon"]


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="nct"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def daemon(short_dir: Path) -> Iterator[Daemon]:
    """The real daemon where it is built, else the one for tests; running."""
    result = Daemon(short_dir, real_daemon() or FAKE)
    result.start()
    yield result
    result.kill()


@pytest.fixture
def faulty(short_dir: Path) -> Iterator[Callable[[str], Daemon]]:
    """Starts a daemon that goes wrong in a given way."""
    result = Daemon(short_dir, FAKE)

    def start(fault: str) -> Daemon:
        result.start(fault)
        return result

    yield start
    result.kill()


@pytest.fixture
def programs(tmp_path: Path, daemon: Daemon) -> Iterator[Programs]:
    """Programs that use `daemon`."""
    result = Programs(tmp_path, daemon.env)
    yield result
    result.close()


@pytest.fixture
def lone_programs(tmp_path: Path, short_dir: Path) -> Iterator[Programs]:
    """Programs whose daemon is not there and is not started."""
    result = Programs(
        tmp_path,
        {
            "NEURONCACHE_SOCKET": str(short_dir / "none.sock"),
            "NEURONCACHE_AUTOSTART": "0",
            "XDG_CONFIG_HOME": str(short_dir),
        },
    )
    yield result
    result.close()


@pytest.fixture(scope="session")
def verdicts(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    """Called with a job of proof/jobs.py: its verdict."""
    from proof import jobs

    if "PYTEST_XDIST_WORKER" in os.environ:  # the cores are in use: what this worker's tests ask for, one by one
        wanted, processes = [], 1
    else:
        parameters = [getattr(getattr(item, "callspec", None), "params", {}) for item in request.session.items]
        wanted, processes = [one["job"] for one in parameters if "job" in one], min(2, len(os.sched_getaffinity(0)))
    with jobs.runner(wanted, processes) as verdict:
        yield verdict
