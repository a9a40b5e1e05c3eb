"""A program of inductor under `neuroncache warmup`, then under `replay --fail-on-miss`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from running import SHIM, Daemon, real_daemon

SCRIPT = """
    import sys, torch
    import neuroncache
    neuroncache.enable()  # what an installation does by itself
    size = int(sys.argv[1])
    @torch.compile
    def f(x):
        return x.sin().sum(1)
    f(torch.ones(3, size, requires_grad=True)).sum().backward()
"""


@pytest.mark.skipif(real_daemon() is None, reason="the programs are not built")
def test_warmed_up_nothing_is_missing(tmp_path: Path) -> None:
    program = real_daemon()
    assert program is not None
    command = program.with_name("neuroncache")
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    daemon = Daemon(tmp_path, program)
    daemon.start()
    runs = 0

    def run(*words: str, size: int) -> tuple[int, Any]:
        nonlocal runs
        runs += 1
        env = {
            **os.environ,
            **daemon.env,
            "PYTHONPATH": str(SHIM),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"inductor-{runs}"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        done = subprocess.run(
            [command, *words, "--format", "json", "--", sys.executable, script, str(size)],
            env=env, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    try:
        status, report = run("warmup", size=8)
        assert status == 0, report
        assert report["counts"]["built"] >= 1 and report["counts"]["there"] == 0
        status, report = run("replay", "--fail-on-miss", size=8)
        assert status == 0, report
        assert report["counts"]["needed"] == report["counts"]["there"] >= 1
        status, report = run("replay", "--fail-on-miss", size=9)
        assert status == 4, report
        assert {one["outcome"] for one in report["actions"]} == {"built"}
    finally:
        daemon.kill()
