"""The cases of the tests as jobs for a few processes, so that a suite uses the cores there are.

A job is a tuple: its kind and plain arguments. `verdicts` is a session fixture: called with a job, it gives the verdict.
All jobs that the selected tests are parametrized with (as `job`) start at its first use.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest

from . import check

Job = tuple[Any, ...]


def run(job: Job) -> Any:
    """Runs one job: in a process of the pool, or here when it has to be looked into."""
    kind, *arguments = job
    result: Any = _KINDS[kind](*arguments)
    return result


def _small(name: str, decompositions: str) -> check.Verdict:
    from . import small

    case = small.CASES[name]
    arguments = [case.arguments(*size) for size in case.shapes[:3]]
    return check.prove(case.function, arguments, case.dynamic, decompositions=decompositions, alternate=True)


def _unmasked(name: str) -> check.Verdict:
    """The negative control: plans without their masks, padding never overwritten, only inputs as bad as can be."""
    from . import small

    case = small.CASES[name]
    arguments = [case.arguments(*size) for size in case.shapes[:2]]
    return check.prove(case.function, arguments, case.dynamic, runs=check.RUNS[:1], masks=False, poisoned=False)


def _operator(name: str) -> dict[str, Any]:
    from . import operators

    return operators.prove(name, "float32", quick=True)


def _model(name: str, training: bool) -> check.Verdict:
    from . import models

    return models.prove(name, training=training, alternate=True)


def _graphs(first: int, count: int) -> list[tuple[int, str, str, str]]:
    from . import random_graphs

    results = []
    for seed in range(first, first + count):
        graph = random_graphs.build(seed, 8)
        verdict = random_graphs.prove(graph, seed)
        text = graph.text()
        if verdict.status in ("wrong", "error"):
            text = random_graphs.shrink(graph, seed, verdict).text()
        results.append((seed, verdict.status, verdict.reason, text))
    return results


_KINDS: dict[str, Callable[..., Any]] = {
    "small": _small,
    "unmasked": _unmasked,
    "operator": _operator,
    "model": _model,
    "graphs": _graphs,
}


def _start() -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)


@pytest.fixture(scope="session")
def verdicts(request: pytest.FixtureRequest) -> Iterator[Callable[[Job], Any]]:
    jobs = []
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "job" in parameters and parameters["job"] not in jobs:
            jobs.append(parameters["job"])
    processes = min(2, len(os.sched_getaffinity(0)))
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_start)
    futures: dict[Job, Future[Any]] = {job: pool.submit(run, job) for job in jobs}
    yield lambda job: futures[job].result()
    pool.shutdown(cancel_futures=True)
