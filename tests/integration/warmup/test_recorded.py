"""warmup --recorded: a working set is built again without the program that once needed it."""

from __future__ import annotations

import json
import os
import signal
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from warmup_support import Warm
from wrapper_support import eventually


def record(warm: Warm, *names: str, recording: str = "r", keep: bool = False, **env: str) -> list[str]:
    """Records these modules; what was built goes again unless it is to be kept."""
    command = warm.modules(*names)
    assert warm.verb("warmup", "--recording", recording, "--", *command, **env).status == 0
    if not keep:
        assert warm.verb("prune", "--kind", "neff").status == 0
    warm.log.unlink()
    return command


def rebuild(warm: Warm, *words: str, **env: str) -> tuple[int, dict[str, int], Any]:
    return warm.json("warmup", "--recorded", "--recording", "r", *words, **env)


def test_what_was_recorded_is_built_again(warm: Warm) -> None:
    command = record(warm, "a", "b", "c")
    status, counts, report = rebuild(warm)
    assert (status, counts) == (0, {"needed": 3, "built": 3})
    assert report["status"] is None and report["command"] == [] and report["whole"]
    assert sorted(one["label"] for one in report["actions"]) == ["a.pb", "b.pb", "c.pb"]
    assert rebuild(warm)[:2] == (0, {"needed": 3, "there": 3})
    assert warm.compiles() == 3
    assert warm.json("replay", "--fail-on-miss", "--", *command)[:2] == (0, {"needed": 3, "there": 3})


def test_for_another_compiler_and_another_target(warm: Warm) -> None:
    command = record(warm, "a", "b", keep=True)
    new = warm.compiler("2.99.7.0+x")
    path = f"{new}:{warm.env['PATH']}"
    status, counts, report = rebuild(warm, "--compiler", "2.99", PATH=path)
    assert (status, counts) == (0, {"needed": 2, "built": 2})
    assert {one["compiler"] for one in report["actions"]} == {"neuronx-cc 2.99.7.0+x"}
    # Who upgrades finds everything there; and what was there for the old one stays.
    assert warm.json("replay", "--fail-on-miss", "--", *command, PATH=path)[:2] == (0, {"needed": 2, "there": 2})
    assert warm.json("replay", "--fail-on-miss", "--", *command)[:2] == (0, {"needed": 2, "there": 2})
    status, counts, _ = rebuild(warm, "--compiler", str(new / "neuronx-cc"), "--target", "trn3")
    assert (status, counts) == (0, {"needed": 2, "built": 2})
    found = warm.json("replay", "--fail-on-miss", "--", *command, PATH=path, TARGET="trn3")[:2]
    assert found == (0, {"needed": 2, "there": 2})
    missing = warm.verb("warmup", "--recorded", "--recording", "r", "--compiler", "2.9")
    assert missing.status == 1 and warm.version() in missing.err


def test_without_its_compiler_it_is_left_undone(warm: Warm) -> None:
    record(warm, "a")
    new = warm.compiler("2.99.7.0+x")
    env = {"NEURONCACHE_REAL_CC": str(new / "neuronx-cc"), "PATH": "/usr/bin:/bin"}
    status, counts, report = rebuild(warm, **env)
    assert (status, counts) == (1, {"needed": 1, "unfinished": 1})
    assert warm.version() in report["actions"][0]["message"]
    assert warm.compiles() == 0


def test_the_parts_of_a_whole(warm: Warm) -> None:
    names = [f"m{i}" for i in range(6)]
    record(warm, *names)
    built: list[str] = []
    for i in (1, 2, 3):
        status, counts, report = rebuild(warm, "--shard", f"{i}/3")
        assert status == 0 and counts.get("there", 0) == 0
        built += [one["label"] for one in report["actions"]]
    assert sorted(built) == [f"{name}.pb" for name in names] and warm.compiles() == 6


def test_a_dry_run_builds_nothing_and_knows_what_it_takes(warm: Warm) -> None:
    record(warm, "a", "b", STUB_SCRIPT=json.dumps({"delay": 0.3}))
    record(warm, "c", keep=True)
    done = warm.verb("warmup", "--recorded", "--recording", "r", "--dry-run", "--format", "json")
    plan = warm.check(done, "warmup-dry-run")
    assert (done.status, warm.compiles()) == (0, 0)
    assert plan["counts"] == {"there": 1, "build": 2, "cannot": 0, "unknown": 0}
    assert plan["build_seconds"] >= 0.6
    states = {one["label"]: (one["state"], one["guessed"], one["target"]) for one in plan["actions"]}
    assert states == {
        "a.pb": ("build", False, "trn2"),
        "b.pb": ("build", False, "trn2"),
        "c.pb": ("there", False, "trn2"),
    }
    # Known for another compiler, too; and without a daemon.
    new = warm.compiler("2.99.7.0+x")
    warm.kill_daemons()
    words = ["warmup", "--recorded", "--recording", "r", "--dry-run", "--compiler", str(new / "neuronx-cc")]
    text = warm.verb(*words)
    assert text.status == 0 and "3 to build, 0 already there" in text.out and "2.99.7.0+x" in text.out


def test_interrupted_and_resumed(warm: Warm) -> None:
    record(warm, "a", "b", "c", "d")
    slow = json.dumps({"delay": 1})
    process = warm.start(
        "warmup", "--recorded", "--recording", "r", "--jobs", "1", "--format", "json", STUB_SCRIPT=slow
    )  # fmt: skip
    assert eventually(lambda: warm.compiles() == 2)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 1 and not report["whole"]
    assert report["counts"]["built"] == 1 and report["counts"]["unfinished"] == 3
    # Killed, and nothing of it is left running.
    process = warm.start(
        "warmup", "--recorded", "--recording", "r", "--jobs", "1", STUB_SCRIPT=json.dumps({"delay": 60})
    )
    assert eventually(lambda: warm.compiles() == 3)
    compiler = int(warm.log.read_text().split()[-1])
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert eventually(lambda: not Path(f"/proc/{compiler}").exists())
    status, counts, _ = rebuild(warm)
    assert (status, counts) == (0, {"needed": 4, "built": 3, "there": 1})


def test_failures_are_reported_as_of_a_command(warm: Warm) -> None:
    record(warm, "a", "bad")
    file = warm.work / "report.xml"
    script = json.dumps({"exit": 70, "err": "ERROR: [NCC_EVRF001] operator not supported\n"})
    status, counts, report = rebuild(warm, "--junit", str(file), STUB_SCRIPT=script)
    assert (status, counts) == (1, {"needed": 2, "failed": 2})
    assert "NCC_EVRF001" in report["actions"][0]["log_line"] and report["actions"][0]["class"] == "deterministic"
    suite = ET.parse(file).getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert rebuild(warm)[:2] == (1, {"needed": 2, "failed": 2}), "they are remembered"
    assert rebuild(warm, NEURONCACHE_RETRY_FAILED="1")[:2] == (0, {"needed": 2, "built": 2})


def test_builds_of_others_are_waited_for(warm: Warm) -> None:
    command = record(warm, "a")
    other = warm.start("warmup", "--", *command, STUB_SCRIPT=json.dumps({"delay": 3}))
    assert eventually(lambda: warm.compiles() == 1)
    assert rebuild(warm)[:2] == (0, {"needed": 1, "waited": 1})
    assert other.wait(timeout=60) == 0 and warm.compiles() == 1


def test_workers_build_it(warm: Warm) -> None:
    record(warm, "a", "b", "c")
    workers = [warm.start("worker", "--queue", "--jobs", "1", STUB_SCRIPT=json.dumps({"delay": 0.3})) for _ in range(2)]
    status, counts, _ = rebuild(warm, "--queue")
    assert (status, counts) == (0, {"needed": 3, "built": 3}) and warm.compiles() == 3
    assert rebuild(warm, "--queue")[:2] == (0, {"needed": 3, "there": 3})
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0


def test_two_runs_under_one_name_do_not_meet(warm: Warm) -> None:
    slow = warm.start(
        "warmup", "--recording", "r", "--format", "json", "--", *warm.modules("a"), STUB_SCRIPT=json.dumps({"delay": 3})
    )  # fmt: skip
    assert eventually(lambda: warm.compiles() == 1)
    assert warm.json("warmup", "--recording", "r", "--", *warm.modules("b"))[:2] == (0, {"needed": 1, "built": 1})
    out, _ = slow.communicate(timeout=60)
    report = json.loads(out)
    assert [(one["label"], one["outcome"]) for one in report["actions"]] == [("a.pb", "built")]
    assert warm.call("GET", "/v1/recordings/r")["actions"].__len__() == 2


def test_usage(warm: Warm) -> None:
    assert warm.verb("warmup", "--recorded", "--", "true").status == 2
    assert warm.verb("warmup", "--shard", "1/2", "--", "true").status == 2
    assert warm.verb("warmup", "--recorded", "--shard", "0/3").status == 2
    assert warm.verb("warmup", "--recorded", "--recording", "none").status == 1


def test_a_plan(warm: Warm) -> None:
    record(warm, "a", "b")
    plan = warm.work / "plan.toml"
    written = warm.verb("warmup", "--write-plan", str(plan), "--recording", "r")
    assert written.status == 0 and "2 actions" in written.err
    assert warm.json("warmup", "--plan", str(plan))[:2] == (0, {"needed": 2, "built": 2})
    new = warm.compiler("2.99.7.0+x")
    script = 'for s in $1; do echo "module $s" >$s.pb; neuronx-cc compile $s.pb --target trn2 --output $s.neff; done'
    warm.work.joinpath("run.sh").write_text(script)
    plan.write_text(
        f"""version = 1
[[run]]
recording = "sizes"
command = ["sh", "run.sh", "m{{batch}}x{{length}}"]
buckets = [{{batch = 1, length = 128}}, {{batch = 8, length = 16}}]
[[build]]
recording = "r"
labels = ["a.*"]
compilers = ["recorded", "{new}/neuronx-cc"]
targets = ["trn1", "trn3"]
"""
    )
    dry = warm.check(warm.verb("warmup", "--plan", str(plan), "--dry-run", "--format", "json"), "warmup-dry-run")
    assert [words[-1] for words in dry["commands"]] == ["m1x128", "m8x16"]
    assert dry["counts"]["build"] == 4
    parts: list[tuple[str, str]] = []
    for i in (1, 2):
        status, counts, report = warm.json("warmup", "--plan", str(plan), "--shard", f"{i}/2")
        assert status == 0 and set(counts) <= {"needed", "built"}
        parts += [(one["label"], one["compiler"]) for one in report["actions"]]
    assert len(parts) == 6 and {label for label, _ in parts} == {"a.pb", "m1x128.pb", "m8x16.pb"}
    assert warm.json("warmup", "--plan", str(plan))[:2] == (0, {"needed": 6, "there": 6})
    again = warm.verb("warmup", "--write-plan", str(plan), "--recording", "r")
    assert again.status != 0 and "is there already" in again.err and "m{batch}x{length}" in plan.read_text()
    # One that cannot be started does not keep the others from running.
    plan.write_text(
        """version = 1
[[run]]
recording = "sizes"
command = ["/nowhere/train"]
[[run]]
recording = "sizes"
command = ["sh", "run.sh", "m3x4"]
"""
    )
    status, counts, report = warm.json("warmup", "--plan", str(plan))
    assert status == 1 and counts == {"needed": 1, "built": 1}
    plan.write_text("version = 1\n[[build]]\nrecordings = 'r'\n")
    wrong = warm.verb("warmup", "--plan", str(plan))
    assert wrong.status == 2 and "did you mean recording?" in wrong.err


def test_what_is_compiled_without_the_cache_is_seen(warm: Warm) -> None:
    command = warm.modules("a")
    no_daemon = {"NEURONCACHE_SOCKET": "/nowhere/x.sock", "NEURONCACHE_AUTOSTART": "false"}
    outside = ["env", *(f"{name}={value}" for name, value in no_daemon.items()), *command]
    status, counts, report = warm.json("warmup", "--", *outside)
    assert (status, counts) == (1, {"uncached": 1}) and not report["whole"]
    assert report["uncached"][0]["label"] == "a.pb" and "/nowhere/x.sock" in report["uncached"][0]["why"]
    done = warm.verb("replay", "--fail-on-miss", "--", *outside)
    assert done.status == 4 and "compiled without the cache" in done.out
    lines = warm.verb("warmup", "--format", "tab", "--", *outside).out.splitlines()
    assert "uncached" in lines[-1].split("\t") and "a.pb" in lines[-1].split("\t")
    # Who says so gets it, and nobody is at fault.
    for word, why in {"NEURON_CC_FLAGS=--no_cache": "no_cache", "NEURONCACHE=0": "off"}.items():
        status, counts, report = warm.json("warmup", "--", "env", word, *command)
        assert (status, counts) == (0, {}) and report["uncached"][0]["why"] == why


def test_a_part_is_not_taken_for_the_whole(warm: Warm) -> None:
    # A directory as input is compiled, stored, and cannot be recorded.
    (warm.work / "model").mkdir()
    warm.input("model/graph.pb", b"module of a directory")
    script = "neuronx-cc compile model/graph.pb model --target trn2 --output d.neff >/dev/null 2>&1"
    assert warm.verb("warmup", "--recording", "r", "--", "sh", "-c", script).status == 0
    record(warm, "a")
    status, counts, report = rebuild(warm)
    assert (status, counts) == (1, {"needed": 2, "built": 1, "unfinished": 1})
    assert "is no file" in next(one["message"] for one in report["actions"] if one["outcome"] == "unfinished")
    dry = warm.check(
        warm.verb("warmup", "--recorded", "--recording", "r", "--dry-run", "--format", "json"), "warmup-dry-run"
    )
    assert dry["counts"] == {"there": 1, "build": 0, "cannot": 1, "unknown": 0}
    # While its entry is there nothing is missing.
    assert warm.verb("warmup", "--recording", "r", "--", "sh", "-c", script).status == 0
    assert rebuild(warm)[:2] == (0, {"needed": 2, "there": 2})
    # Inputs that went for want of room.
    assert warm.verb("config", "set", "--live", "recordings_bytes", "1").status == 0
    assert warm.verb("prune", "--kind", "neff").status == 0
    status, counts, report = rebuild(warm)
    assert (status, counts) == (1, {"needed": 2, "unfinished": 2})
    assert any("dropped" in one["message"] for one in report["actions"])


def take_away(warm: Warm) -> None:
    """Somebody deletes what the store has put into files of their own."""
    for file in (warm.store / "cas").rglob("*"):
        if file.is_file():
            file.unlink()


def test_what_somebody_took_away_is_built_in_the_same_run(warm: Warm) -> None:
    # The outputs lie in files, the inputs do not: they are small.
    record(warm, "a", "b", keep=True, STUB_SCRIPT='{"size": 3000000}')
    take_away(warm)
    assert rebuild(warm)[:2] == (0, {"needed": 2, "built": 2})
    assert rebuild(warm)[:2] == (0, {"needed": 2, "there": 2})


def test_an_input_that_somebody_took_away_is_said(warm: Warm) -> None:
    script = "neuronx-cc compile a.pb --target trn2 --output a.neff >/dev/null 2>&1"
    warm.input("a.pb", os.urandom(300_000))
    assert warm.verb("warmup", "--recording", "r", "--", "sh", "-c", script).status == 0
    assert warm.verb("prune", "--kind", "neff").status == 0
    take_away(warm)
    status, _, report = rebuild(warm)
    assert status == 1 and not report["whole"]
    assert "the recorded input a.pb is gone" in report["actions"][0]["message"]
    # By now the daemon has dropped the record as well.
    status, counts, report = rebuild(warm)
    assert (status, counts) == (1, {"needed": 1, "unfinished": 1})
    assert "record it again" in report["actions"][0]["message"]
    plan = warm.work / "plan.toml"
    assert warm.verb("warmup", "--recording", "r", "--write-plan", str(plan)).status == 0
    assert warm.verb("warmup", "--plan", str(plan)).status == 1
