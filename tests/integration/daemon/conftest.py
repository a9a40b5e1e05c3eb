from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from daemon_support import Client, Home


@pytest.fixture
def home() -> Iterator[Home]:
    made = Home()
    yield made
    made.clean()


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    """A client of a daemon with default settings."""
    home.start()
    made = home.client()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Home]:
    """A daemon for tests that leave no trace that matters to others."""
    made = Home()
    made.start("--request-timeout", "1s")
    yield made
    made.clean()
