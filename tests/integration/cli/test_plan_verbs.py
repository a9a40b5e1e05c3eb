"""`plan simulate` on files of every kind, and `plan show` after sizes were seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import ROOT, Home

TRACES = ROOT / "tests" / "data" / "lengths"


def simulate(home: Home, *words: str) -> dict[str, object]:
    document: dict[str, object] = home.json("plan-simulate", "plan", "simulate", *words)
    return document


def test_a_trace(home: Home) -> None:
    trace = str(TRACES / "azure23-conv.csv")
    words = (trace, "--column", "length", "--weight", "rest", "--max-buckets", "8", "--tile", "128")
    document = home.json("plan-simulate", "plan", "simulate", *words)
    assert len(document["buckets"]) == 8 and document["used"] == 8
    assert document["waste"] == document["optimum"]["waste"] == document["optimum_by_count"][7]
    assert document["waste"] == pytest.approx(0.162, abs=0.001)
    assert document["powers_of_two"]["buckets"] == [128 << i for i in range(8)]
    assert document["powers_of_two"]["waste"] == pytest.approx(0.435, abs=0.001)
    assert document["calls"] == 17429
    quadratic = home.json("plan-simulate", "plan", "simulate", *words, "--cost", "quadratic")
    assert quadratic["waste"] == pytest.approx(0.26, abs=0.001)
    text = home.ok("plan", "simulate", *words).out
    assert "powers of two" in text and "43.5 %" in text and "####" in text
    assert home.ok("plan", "simulate", *words, "--format", "tab").rows()[0]["plan"] == "plan"


def test_learning_on_the_first_rows(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    rows = [10, 20] * 10 + [30, 100] * 90
    file.write_text('"step","tokens, padded"\r\n' + "".join(f'{i},"{n}"\r\n' for i, n in enumerate(rows)))
    document = simulate(home, str(file), "--column", "tokens, padded", "--learn", "0.1", "--max-buckets", "3")
    assert document["buckets"] == [10, 20, 100]
    assert document["optimum"] == {"buckets": [30, 100], "used": 2, "waste": 0.0}
    assert document["evaluated_calls"] == 180
    assert (
        "learned from the first 10 %"
        in home.ok("plan", "simulate", str(file), "--column", "tokens, padded", "--learn", "0.1").out
    )


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("", ("--column", "n"), "is empty"),
        ("n\n", ("--column", "n"), "no row"),
        ("m\n1\n", ("--column", "n"), "no column 'n'; there are 'm'"),
        ("n\n1\n-2\n", ("--column", "n"), "line 3, column 'n': '-2' is negative"),
        ("n\nlong\n", ("--column", "n"), "'long' is not a number"),
        ('n\n"1\n', ("--column", "n"), "quote is not closed"),
        ("n\n1\n", (), "--column"),
        ("n\n1\n", ("--column", "n", "--tile", "0"), "--tile"),
        ("n\n1\n", ("--column", "n", "--learn", "2"), "--learn"),
        ("n\n1\n", ("--column", "n", "--learn", "0.5"), "--learn"),
        ("n\n1\n", ("--column", "n", "--cost", "cubic"), "cubic"),
    ],
)
def test_what_is_wrong_is_said(home: Home, tmp_path: Path, content: str, words: tuple[str, ...], message: str) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text(content)
    assert message in home.fails(2, "plan", "simulate", str(file), *words).err


def test_a_file_that_is_not_there(home: Home, tmp_path: Path) -> None:
    assert "No such file" in home.fails(1, "plan", "simulate", str(tmp_path / "none.csv"), "--column", "n").err


def test_show(home: Home) -> None:
    assert home.json("plan-show", "plan", "show") == {"source": "none", "programs": []}
    home.ok("daemon", "start")
    assert home.ok("plan", "show").out == "No sizes were seen yet.\n"
    daemon = home.connect()
    program = "cd" * 32
    sizes = [[n, 10] for n in range(1, 500)]
    families = [{"family": "seq", "sizes": sizes}, {"family": "batch", "sizes": [[6, 9]]}]
    seen = {"program": program, "job": "a", "label": "train.py: forward", "families": families}
    assert daemon.post("/v1/buckets/observe", seen) is None
    wanted = [{"family": "seq", "tile": 64}, {"family": "batch"}]
    plan = daemon.post("/v1/buckets/plan", {"program": program, "job": "a", "families": wanted, "max_buckets": 4})
    document = home.json("plan-show", "plan", "show", program[:8])
    (shown,) = document["programs"]
    assert (shown["epoch"], shown["digest"], shown["jobs"]) == (plan["epoch"], plan["digest"], 1)
    by_name = {family["family"]: family for family in shown["families"]}
    assert by_name["seq"]["plan"]["buckets"] == plan["families"]["seq"]["buckets"]
    assert by_name["seq"]["waste"] == pytest.approx(plan["families"]["seq"]["waste"])
    assert by_name["batch"]["plan"]["buckets"] == [6] and by_name["batch"]["waste"] == 0
    text = home.ok("plan", "show").out
    assert "train.py: forward" in text and "the only size seen" in text and "1 job" in text
    rows = home.ok("plan", "show", "--format", "tab").rows()
    assert {row["family"] for row in rows} == {"seq", "batch"}
    assert home.json("plan-show", "plan", "show", "00")["programs"] == []
    daemon.close()
