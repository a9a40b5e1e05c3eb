"""What a process tells the daemon of its calls, and what it asks for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bucketing_tools import StaticBackend, bucketed
from neuroncache.bucketing import dispatch, report
from neuroncache.errors import DaemonUnavailable

WEIGHT = torch.nn.Parameter(torch.randn(4, 8, dtype=torch.float64))


class Daemon:
    """In place of the client: keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.gone = False

    def buckets_observe(self, seen: dict[str, Any]) -> None:
        if self.gone:
            raise DaemonUnavailable("gone")
        self.seen.append(seen)

    def buckets_plan(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        raise DaemonUnavailable("no plan here")

    def buckets(self, program: str) -> dict[str, Any]:
        return {"programs": []}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    result = Daemon()
    monkeypatch.setattr(report, "default_client", lambda: result)
    return result


def run(function: Any, shapes: list[tuple[int, int]]) -> None:
    for batch, length in shapes:
        function(torch.randn(batch, length, 4, dtype=torch.float64)).sum().backward()


def test_pairs_builds_and_times_are_told_once(daemon: Daemon) -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ WEIGHT)

    with bucketed(StaticBackend(), strict=True) as name:
        compiled = torch.compile(rows, backend=name, dynamic=True)
        run(compiled, [(3, 5), (3, 5), (4, 9), (3, 5), (3, 5), (3, 5)])
        daemon.gone = True
        report.send()
        daemon.gone = False
        report.send()
        (seen,) = daemon.seen
        first, second = (family["family"] for family in seen["families"])
        assert seen["families"][0]["sizes"] == [[3, 5], [4, 1]] and seen["families"][1]["sizes"] == [[5, 5], [9, 1]]
        assert seen["joint"] == [{"families": [first, second], "sizes": [[3, 5, 5], [4, 9, 1]]}]
        # The times of a bucket are known from its second call on.
        assert seen["calls"] == 5 and 0 < seen["calls_us"] < 60_000_000 and seen["compile_ms"] > 0
        report.send()
        assert len(daemon.seen) == 1
        run(compiled, [(3, 5)])
        report.send()
        assert daemon.seen[1]["joint"][0]["sizes"] == [[3, 5, 1]] and "compile_ms" not in daemon.seen[1]
        report.replan()
        assert daemon.asked[-1]["joint"] == [[first, second]] and "cost" not in daemon.asked[-1]


def test_the_cost_of_one_size_is_asked_for_as_it_was_measured(daemon: Daemon) -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ WEIGHT)

    with bucketed(StaticBackend(), strict=True) as name:
        compiled = torch.compile(rows, backend=name)
        run(compiled, [(3, length) for length in (40, 60, 64, 64, 20, 24, 24)])
        (dispatcher,) = dispatch.everyone
        dispatcher.chooser.padded.discard("s0")
        names = dispatcher.symbols
        report.replan()
        assert "cost" not in daemon.asked[-1]  # two sizes are open
        dispatcher.chooser.symbols = names[1:]
        for unit in dispatcher.units():
            unit._took = {"forward": 10.0 * unit.buckets["s1"], "backward": 500.0}
        report.replan()
        points = dict(daemon.asked[-1]["cost"]["table"])
        buckets = {unit.buckets["s1"] for unit in dispatcher.units()}
        assert points == {1: 511, **{bucket: 501 + 10 * bucket for bucket in buckets}} and len(buckets) > 1


@pytest.mark.parametrize(
    ("environment", "host", "expected"),
    [
        ({"TORCHELASTIC_RUN_ID": "run7", "TORCHELASTIC_RESTART_COUNT": "2"}, "node", "run7-2"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "815"}, "node", "815-"),
        ({"JOB_COMPLETION_INDEX": "3"}, "train-llama-3", "train-llama"),
    ],
)
def test_ranks_of_a_run_have_one_job(
    environment: dict[str, str], host: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "JOB_COMPLETION_INDEX", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: host)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert report.job() == expected
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "4")  # of another Job than the host name says
    assert (report.job() == expected) == ("JOB_COMPLETION_INDEX" not in environment)


def test_no_more_is_told_than_the_daemon_takes(daemon: Daemon) -> None:
    """A request with too many sizes would be refused as a whole."""

    def many(xs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [x.exp() for x in xs]

    with bucketed(StaticBackend(), strict=True) as name:
        compiled = torch.compile(many, backend=name, dynamic=True)
        compiled([torch.randn(3, 4) for _ in range(35)])
        report.send()
        report.replan()
    assert len(daemon.seen[0]["families"]) == len(daemon.asked[0]["families"]) == 64
    assert len(daemon.seen[0]["joint"]) == len(daemon.asked[0]["joint"]) == 16
