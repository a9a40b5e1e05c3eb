"""warmup and replay with the real daemon and wrapper, and a scriptable compiler."""

from __future__ import annotations

import json
import os
import signal
import xml.etree.ElementTree as ET

from warmup_support import Warm
from wrapper_support import eventually


def test_everything_is_built_and_then_there(warm: Warm) -> None:
    command = warm.modules("a", "b", "c")
    status, counts, report = warm.json("warmup", "--", *command)
    assert (status, counts) == (0, {"needed": 3, "built": 3})
    assert report["whole"] and report["status"] == 0 and report["command"] == command
    assert [(one["label"], one["kind"]) for one in report["actions"]] == [(f"{n}.pb", "neff") for n in "abc"]
    assert warm.compiles() == 3
    status, counts, _ = warm.json("warmup", "--", *command)
    assert (status, counts) == (0, {"needed": 3, "there": 3})
    assert warm.compiles() == 3


def test_the_inputs_are_recorded_once(warm: Warm) -> None:
    command = warm.modules("a", "b")
    for _ in range(2):
        assert warm.verb("warmup", "--recording", "nightly", "--", *command).status == 0
    recordings = warm.call("GET", "/v1/recordings")["recordings"]
    assert [(one["name"], one["actions"]) for one in recordings] == [("nightly", 2)]
    (key,) = [one["key"] for one in warm.call("GET", "/v1/recordings/nightly")["actions"] if one["label"] == "a.pb"]
    record = warm.call("GET", f"/v1/recordings/nightly/actions/{key}")
    assert record["argv"] == ["compile", "{in/a.pb}", "--target", "trn2", "--output", "{out/neff}"]
    assert [one["name"] for one in record["inputs"]] == ["a.pb"]


def test_interrupted_and_resumed(warm: Warm) -> None:
    command = warm.modules("a", "b", "c", "d")
    script = json.dumps({"delay": 1})
    first = warm.start("warmup", "--", "env", f"STUB_SCRIPT={script}", *command)
    assert eventually(lambda: warm.compiles("end") >= 1)
    # The verb alone is killed; what it runs goes with it in a CI job.
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert eventually(lambda: warm.compiles("end") == 4)
    status, counts, _ = warm.json("warmup", "--", *command)
    assert status == 0 and counts["needed"] == 4
    assert warm.compiles() == 4, "nothing was built again"


def test_a_signal_is_passed_on_and_leaves_the_rest_undone(warm: Warm) -> None:
    command = warm.modules("a")
    script = json.dumps({"delay": 120})
    process = warm.start("warmup", "--format", "json", "--", *command, STUB_SCRIPT=script)
    assert eventually(lambda: warm.compiles() == 1)
    compiler = int(warm.log.read_text().split()[1])
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    os.kill(compiler, signal.SIGKILL)
    assert process.returncode == 128 + signal.SIGTERM
    report = json.loads(out)
    assert report["counts"]["unfinished"] == 1 and not report["whole"]
    assert warm.verb("warmup", "--", *command).status == 0


def test_a_failing_action_is_named_with_its_class_and_log(warm: Warm) -> None:
    script = json.dumps({"exit": 70, "err": "ERROR: [NCC_EVRF001] operator not supported\n"})
    command = [*warm.modules("bad")]
    done = warm.verb("warmup", "--", *command, STUB_SCRIPT=script)
    assert done.status == 9, "the command's own status"
    assert "deterministic" in done.out and "NCC_EVRF001" in done.out
    # A command that hides it does not make it whole, nor does a failure that is only remembered.
    status, counts, report = warm.json("warmup", "--", *command, STUB_SCRIPT=script, STATUS="0")
    assert (status, counts) == (1, {"needed": 1, "failed": 1})
    assert report["actions"][0]["class"] == "deterministic"
    assert "NCC_EVRF001" in report["actions"][0]["log_line"]


def test_the_status_is_the_commands(warm: Warm) -> None:
    assert warm.verb("warmup", "--", "sh", "-c", "exit 23").status == 23
    assert warm.verb("warmup", "--", "sh", "-c", "kill -9 $$").status == 137
    assert warm.verb("warmup").status == 2
    assert warm.verb("warmup", "--recording", "a/b", "--", "true").status == 2
    missing = warm.verb("warmup", "--", "no-such-program")
    assert missing.status == 1 and "no-such-program" in missing.err


def test_a_document_is_not_mixed_with_what_the_command_prints(warm: Warm) -> None:
    done = warm.verb("warmup", "--format", "json", "--", "echo", "hello")
    assert done.report["counts"]["needed"] == 0 and "hello" in done.err
    assert "hello" in warm.verb("warmup", "--", "echo", "hello").out


def test_replay_names_the_misses_and_what_differs(warm: Warm) -> None:
    command = warm.modules("a", "b")
    assert warm.verb("warmup", "--", *command).status == 0
    status, counts, _ = warm.json("replay", "--fail-on-miss", "--", *command)
    assert (status, counts) == (0, {"needed": 2, "there": 2})
    status, counts, _ = warm.json("replay", "--fail-on-miss", "--", *warm.modules("a", "c"))
    assert (status, counts) == (4, {"needed": 2, "there": 1, "built": 1})
    done = warm.verb("replay", "--fail-on-miss", "--", *warm.modules("a"), TARGET="trn1")
    assert done.status == 4
    assert "a.pb" in done.out and "flag.target" in done.out and "trn1" in done.out
    # Misses alone are no failure without the option; and what was missing is there now.
    assert warm.verb("replay", "--", *warm.modules("d")).status == 0
    assert warm.verb("replay", "--fail-on-miss", "--", *warm.modules("d")).status == 0


def test_a_replay_leaves_no_recording(warm: Warm) -> None:
    assert warm.verb("replay", "--", *warm.modules("a")).status == 0
    assert warm.call("GET", "/v1/recordings")["recordings"] == []


def test_junit(warm: Warm) -> None:
    file = warm.work / "report.xml"
    assert warm.verb("warmup", "--junit", str(file), "--", *warm.modules("a", "b")).status == 0
    suite = ET.parse(file).getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")
    script = json.dumps({"exit": 70, "err": "ERROR: <not> & supported\n"})
    done = warm.verb("warmup", "--junit", str(file), "--", *warm.modules("a", "bad"), STUB_SCRIPT=script, STATUS="0")
    assert done.status == 1
    suite = ET.parse(file).getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.find("failure") is not None for case in suite] == [False, True]


def test_a_report_that_cannot_be_written_stops_the_run_before_it_begins(warm: Warm) -> None:
    for verb in ("warmup", "replay"):
        done = warm.verb(verb, "--junit", str(warm.log.parent / "nowhere" / "r.xml"), "--", *warm.modules("a"))
        assert done.status == 1 and "--junit" in done.err
    assert warm.compiles() == 0


def test_outcomes_survive_the_daemon(warm: Warm) -> None:
    command = warm.modules("a")
    assert warm.verb("warmup", "--", *command).status == 0
    warm.kill_daemons()
    assert warm.verb("stats").status == 0
    status, counts, _ = warm.json("warmup", "--", *command)
    assert (status, counts) == (0, {"needed": 1, "there": 1})
