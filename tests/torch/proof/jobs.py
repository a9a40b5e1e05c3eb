"""The cases of the tests as jobs for a few processes, so that a suite uses the cores there are.

A job is a tuple: its kind and plain arguments. The session fixture `verdicts`, called with a job, gives the verdict.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

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


@contextlib.contextmanager
def runner(first: Iterable[Job], processes: int) -> Iterator[Callable[[Job], Any]]:
    """Gives a function that waits for the verdict of a job. Those in `first` start at once, others when they are asked for;
    each runs once."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_start) as pool:
        futures: dict[Job, Future[Any]] = {}

        def submit(job: Job) -> Future[Any]:
            if job not in futures:
                futures[job] = pool.submit(run, job)
            return futures[job]

        for job in first:
            submit(job)
        try:
            yield lambda job: submit(job).result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
