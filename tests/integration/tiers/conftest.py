from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import tier_servers


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    with tier_servers.moto() as url:
        yield url


@pytest.fixture(scope="module")
def dav() -> Iterator[tier_servers.Nginx]:
    with tier_servers.nginx() as server:
        yield server
