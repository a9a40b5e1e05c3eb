from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tiers"))
sys.path.insert(0, str(Path(__file__).parent.parent / "daemon"))
sys.path.insert(0, str(Path(__file__).parent))

from cluster_support import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.clean()
