"""Fixtures of the wrapper's tests."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from wrapper_support import Home


@pytest.fixture
def home() -> Iterator[Home]:
    # Not pytest's own directory: a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="nc-cc-"))
    made = Home(directory)
    yield made
    made.end()
    shutil.rmtree(directory, ignore_errors=True)
