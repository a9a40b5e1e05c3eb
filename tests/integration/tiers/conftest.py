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
