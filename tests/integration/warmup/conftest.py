"""Fixtures of the tests of warm-ups: the home of the wrapper's tests."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tiers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
sys.path.insert(0, str(Path(__file__).parents[1] / "wrapper"))
sys.path.insert(0, str(Path(__file__).parent))

from warmup_support import Warm


@pytest.fixture
def warm() -> Iterator[Warm]:
    # Not pytest's own directory: a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="nc-warm-"))
    made = Warm(directory)
    yield made
    made.end()
    shutil.rmtree(directory, ignore_errors=True)
