"""Eleven models, training and inference: stock, cold and loaded runs compute the same bits.

Three processes per group of models: stock torch.compile; ours on an empty cache; ours in a fresh process with nothing but
the daemon's artifacts, no inductor cache and no compiler on PATH.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import FAKE, Daemon, Programs, real_daemon

HERE = Path(__file__).parent / "models"
GROUPS = {
    "plain": ["mlp", "cnn", "dropout", "speech"],
    "decoders": ["llama", "gpt2", "mixtral"],
    "encoders": ["bert", "bert_inference", "t5", "vit"],
}
CASES = [(group, name) for group, names in GROUPS.items() for name in names]
Runs = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Runs]]:
    """{"stock" | "cold" | "loaded": {case: results}}, each mode with its shim counters under ("", group)."""
    with tempfile.TemporaryDirectory(prefix="nct") as name:
        directory = Path(name)
        daemon = Daemon(directory, real_daemon() or FAKE)
        daemon.start()
        programs = Programs(directory, daemon.env)
        try:
            yield {mode: _run(programs, directory, mode) for mode in ("stock", "cold", "loaded")}
        finally:
            programs.close()
            daemon.kill()


def _run(programs: Programs, directory: Path, mode: str) -> Runs:
    env: dict[str, str | None] = {"PYTHONPATH": f"{HERE}:{HERE.parents[2] / 'python_shim'}"}
    if mode == "stock":
        env |= {"NEURONCACHE": "0"}
    if mode == "loaded":
        (directory / "empty").mkdir(exist_ok=True)
        env |= {"PATH": str(directory / "empty"), "CXX": None}
    code = (HERE / "run.py").read_text()
    started = []
    for group, names in GROUPS.items():
        out = directory / f"{mode}-{group}.pt"
        started.append((group, out, programs.start(code, str(out), *names, env=env)))
    results: Runs = {}
    for group, out, program in started:
        result = program.wait(1800)
        assert result.status == 0, result.out + result.err
        for name, values in torch.load(out).items():
            results[name or f"stats {group}"] = values
    return results


def _compare(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """What differs, bit for bit (NaN equals itself)."""
    problems = [f"{key}: only on one side" for key in left.keys() ^ right.keys()]
    for key in left.keys() & right.keys():
        a, b = left[key], right[key]
        same = a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
        if not same or not torch.equal(a.isnan(), b.isnan()):
            problems.append(f"{key}: {(a.double() - b.double()).abs().max():.2e}" if a.shape == b.shape else key)
    return sorted(problems)


@pytest.mark.parametrize(("group", "name"), CASES, ids=[name for _, name in CASES])
def test_loaded_equals_cold(runs: dict[str, Runs], group: str, name: str) -> None:
    assert runs["cold"][name], "the run computed nothing"
    assert not _compare(runs["cold"][name], runs["loaded"][name])


@pytest.mark.parametrize(("group", "name"), CASES, ids=[name for _, name in CASES])
def test_cold_equals_stock(runs: dict[str, Runs], group: str, name: str) -> None:
    assert not _compare(runs["stock"][name], runs["cold"][name])


@pytest.mark.parametrize("group", GROUPS)
def test_everything_came_from_the_cache(runs: dict[str, Runs], group: str) -> None:
    cold, loaded = runs["cold"][f"stats {group}"], runs["loaded"][f"stats {group}"]
    assert cold["builds"] > 0 and not cold["refusals"] and cold["bypasses"] == 0, cold
    assert loaded["builds"] == 0 and loaded["hits"] > 0, loaded
    assert not loaded["refusals"] and loaded["bypasses"] == 0, loaded


def test_stock_ran_without_us(runs: dict[str, Runs]) -> None:
    assert all(runs["stock"][f"stats {group}"] == {} for group in GROUPS)
