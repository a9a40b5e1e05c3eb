"""Random graphs, forward and backward; `python -m tests.torch.proof.random_graphs` is the long run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proof import random_graphs

COUNT, STEP = 200, 20
KEPT = sorted(random_graphs.KEPT.glob("*.json"))


@pytest.mark.parametrize(
    "job", [("graphs", first, STEP) for first in range(0, COUNT, STEP)], ids=lambda job: f"from_{job[1]}"
)
def test_random_graphs(job: tuple[Any, ...], verdicts: Callable[..., Any]) -> None:
    results = verdicts(job)
    failed = [result for result in results if result[1] in ("wrong", "error")]
    assert not failed, "\n".join(map(str, failed))
    # A generator whose graphs are all refused would prove nothing.
    assert sum(result[1] == "bucketed" for result in results) >= STEP // 2


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_counterexample(path: Path) -> None:
    document = json.loads(path.read_text())
    graph = random_graphs.Graph.parse(json.dumps(document["graph"]))
    verdict = random_graphs.prove(graph, document["seed"], document["decompositions"])
    assert verdict.status in ("bucketed", "refused", "skipped"), verdict
