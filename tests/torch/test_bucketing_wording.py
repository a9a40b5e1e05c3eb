"""What people read of padded graphs."""

from __future__ import annotations

import logging
from typing import Any

import neuroncache
import pytest
import torch
from bucketing_tools import StaticBackend, bucketed
from neuroncache.bucketing import report, wording


def test_places_are_named_as_the_program_names_them() -> None:
    assert wording.place("L['x']:1") == "dimension 1 of x"
    assert wording.place("L['kwargs']['input_ids']:0") == "dimension 0 of input_ids"
    assert wording.place("L['self'].table:0") == "dimension 0 of self.table"
    assert wording.place("s7") == "s7"
    names = ["L['x']:0", "L['x']:1", "L['y'][0]:2", "L['x']:3", "s7"]
    assert wording.places(names) == "dimensions 0, 1 and 3 of x; dimension 2 of y[0]; s7"
    assert wording.places([]) == "none"
    text = wording.legend("a view of (s0, s12)", {"s0": ["L['x']:0"], "s1": ["L['x']:1"], "s12": ["L['y']:1"]})
    assert text == "a view of (s0, s12) [s0: dimension 0 of x; s12: dimension 1 of y]"
    assert wording.legend("no rule", {"s0": ["L['x']:0"]}) == "no rule"


def test_long_names_stay_apart_and_within_what_the_daemon_takes() -> None:
    source = "L['kwargs']" + "['ü']" * 40
    first, second = wording.family(source, 0), wording.family(source, 1)
    assert first != second and all(len(name.encode()) <= 128 for name in (first, second, wording.bounded(source)))
    assert wording.family("L['x']", 1) == "L['x']:1"


class Rows(torch.nn.Module):
    def forward(self, *args: Any) -> torch.Tensor:
        return torch.nn.functional.gelu(args[0])


def test_a_module_is_named_by_its_class() -> None:
    with bucketed(StaticBackend(), strict=True) as name:
        torch.compile(Rows(), backend=name, dynamic=True)(torch.randn(3, 5, 4))
        account = neuroncache.explain_last()
        assert account is not None and account["function"].startswith("Rows.forward (")
        assert account["symbols"]["s0"] == ["L['args'][0]:0"]


def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x)


def test_one_line_says_what_is_padded(caplog: pytest.LogCaptureFixture) -> None:
    with bucketed(StaticBackend(), strict=True) as name, caplog.at_level(logging.INFO, "neuroncache"):
        compiled = torch.compile(rows, backend=name, dynamic=True)
        for length in (5, 7, 7, 20):
            compiled(torch.randn(3, length, 4))
        (line,) = [record.getMessage() for record in caplog.records if "padded" in record.getMessage()]
        assert line.startswith("neuroncache: rows (test_bucketing_wording.py:")
        assert "nodes, for static_for_tests: runs padded; sizes that vary: dimensions 0, 1 and 2 of x; 0 masks" in line
        account = neuroncache.explain_last()
        assert account is not None and account["outcome"] == "buckets" and account["function"].startswith("rows (")
        places = [f"L['x']:{dim}" for dim in range(3)]
        assert account["symbols"] == {f"s{dim}": [place] for dim, place in enumerate(places)}
        assert [list(bucket["sizes"]) for bucket in account["buckets"]] == [places] * 3
        assert [bucket["calls"] for bucket in account["buckets"]] == [1, 2, 1]
        assert account["epoch"] == 0 and account["quarantined"] == ""
    assert "details" not in account


def test_a_refusal_says_where_and_what_happens_instead(caplog: pytest.LogCaptureFixture) -> None:
    def engine(request: dict[str, Any]) -> dict[str, Any]:
        reason = "a view makes s1 of s0"
        return {
            "plan": 1,
            "engine": "x",
            "refusal": {"graph": "forward", "node": 0, "op": "aten.gelu", "reason": reason},
        }

    with bucketed(StaticBackend(), engine, strict=True) as name, caplog.at_level(logging.INFO, "neuroncache"):
        torch.compile(rows, backend=name, dynamic=True)(torch.randn(3, 5, 4))
        (line,) = [record.getMessage() for record in caplog.records if "padded" in record.getMessage()]
        assert "for static_for_tests: not padded, compiled once per shape: aten.gelu: a view makes s1 of s0 [" in line
        assert "s1: dimension 1 of x; s0: dimension 0 of x]" in line and "in rows" in line
        (refusal,) = neuroncache.stats()["refusals"]
        assert refusal["reason"].endswith("[s1: dimension 1 of x; s0: dimension 0 of x]")


def test_sizes_that_are_always_equal_do_not_bound_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, mask and labels have six sizes, of which two say everything."""
    asked: list[dict[str, Any]] = []

    class Daemon:
        def buckets_observe(self, seen: dict[str, Any]) -> None:
            pass

        def buckets_plan(self, request: dict[str, Any]) -> dict[str, Any]:
            asked.append(request)
            raise ValueError("none")

    def pairs(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        return x.exp(), y.exp(), z.exp()

    monkeypatch.setattr(report, "default_client", Daemon)
    with bucketed(StaticBackend(), strict=True) as name:
        compiled = torch.compile(pairs, backend=name, dynamic=True)
        for shape in ((3, 5), (4, 7)):
            compiled(*(torch.randn(shape) for _ in range(3)))
        report.replan()
        compiled(torch.randn(3, 5), torch.randn(3, 6), torch.randn(3, 5))
        report.replan()
    assert [len(request["families"]) for request in asked] == [6, 6]
    assert [request["max_artifacts"] for request in asked] == [1024**3, 1024**2]
