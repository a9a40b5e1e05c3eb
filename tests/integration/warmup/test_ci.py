"""The steps of the CI files, run as their systems would."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import yaml
from warmup_support import Warm
from wrapper_support import BIN, ROOT, eventually


def _variables(warm: Warm, command: list[str], recording: str) -> dict[str, str]:
    return {
        "WARMUP_COMMAND": shlex.join(command),
        "WARMUP_RECORDING": recording,
        "WARMUP_DIRECTORY": str(warm.store),
        "WARMUP_REPORT": str(warm.work / "report.xml"),
        "PATH": f"{BIN}:{warm.env['PATH']}",
    }


def _action() -> dict[str, Any]:
    action: dict[str, Any] = yaml.safe_load((ROOT / "deploy/ci/warmup/action.yml").read_text())
    return action


def _steps(system: str) -> tuple[list[str], list[str]]:
    """What is run, and what is run afterwards in any case."""
    if system == "action":
        steps = [step for step in _action()["runs"]["steps"] if "run" in step]
        return [s["run"] for s in steps if "if" not in s], [s["run"] for s in steps if "if" in s]
    (job,) = yaml.safe_load((ROOT / "deploy/ci/gitlab-warmup.yml").read_text()).values()
    return job["script"], job["after_script"]


@pytest.mark.parametrize("system", ["action", "gitlab"])
def test_the_steps_fill_the_store_and_fail_with_what_fails(warm: Warm, system: str, tmp_path: Path) -> None:
    steps, afterwards = _steps(system)

    def job(command: list[str], **env: str) -> list[int]:
        variables = {**_variables(warm, command, system), **env}
        statuses = [warm.shell(step, **variables) for step in steps]
        assert [warm.shell(step, **variables) for step in afterwards] == [0]
        assert eventually(lambda: not warm.daemons())
        return statuses

    assert job(warm.modules("a", "b")) == [0]
    assert job(warm.modules("a", "b")) == [0]
    assert warm.compiles() == 2
    suite = ET.parse(warm.work / "report.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")
    assert job(warm.modules("bad"), STUB_SCRIPT='{"exit": 70}', STATUS="0") == [1]


def test_every_input_of_the_action_is_used() -> None:
    action = _action()
    text = str(action["runs"])
    assert all(f"inputs.{name} " in text for name in action["inputs"])
