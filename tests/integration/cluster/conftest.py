from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tiers"))
sys.path.insert(0, str(Path(__file__).parent.parent / "daemon"))
sys.path.insert(0, str(Path(__file__).parent))

from cluster_support import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the fleet's tests in full size, with every kind of tier")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "over(kinds): the kinds of tier that a test of the fleet is about")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.clean()
