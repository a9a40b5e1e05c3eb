"""Many at once, and builders, daemons and compilers that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from wrapper_support import Home, Ran, eventually

WORDS = ("--framework", "XLA", "--target", "trn2")


def start(home: Home, source: str, name: str, **more: object) -> subprocess.Popen[bytes]:
    directory = home.dir / name
    directory.mkdir(exist_ok=True)
    return home.popen("compile", source, *WORDS, "--output", "out.neff", cwd=directory, **more)  # type: ignore[arg-type]


def end(process: subprocess.Popen[bytes]) -> Ran:
    out, err = process.communicate(timeout=120)
    return Ran(process.returncode, out, err)


def test_sixty_four_at_once_compile_once(home: Home) -> None:
    source = home.input()
    home.compile(source=home.input("warm.pb", b"brings the daemon up"))
    processes = [start(home, source, f"rank{i}", script={"delay": 1, "size": 100_000}) for i in range(64)]
    for process in processes:
        ran = end(process)
        assert (ran.status, ran.ours) == (0, [])
    assert home.compiles() == 2
    outputs = {(home.dir / f"rank{i}" / "out.neff").read_bytes() for i in range(64)}
    assert len(outputs) == 1 and len(outputs.pop()) == 100_000
    counters = home.counters()
    assert (counters["builds"], counters["waits"] + counters["hits"]) == (2, 63)


def test_a_killed_builder_is_replaced(home: Home) -> None:
    source = home.input()
    slow = {"delay": 60}
    first = start(home, source, "first", script=slow)
    assert eventually(lambda: home.compiles() == 1)
    second = start(home, source, "second", script={}, NEURONCACHE_PROGRESS="on")
    assert second.stderr is not None and b"waiting for" in second.stderr.readline()
    compiler = int(home.log.read_text().split()[1])
    first.kill()
    assert end(second).status == 0 and home.compiles() == 2
    assert not (home.dir / "first" / "out.neff").exists()
    # Its compiler went with it.
    assert eventually(lambda: not Path(f"/proc/{compiler}").exists())


def test_a_daemon_that_dies_under_a_build(home: Home) -> None:
    source = home.input()
    builder = start(home, source, "builder", script={"delay": 3})
    assert eventually(lambda: home.compiles() == 1)
    home.kill_daemons()
    ran = end(builder)
    assert ran.status == 0 and (home.dir / "builder" / "out.neff").exists()
    assert end(start(home, source, "later", script={})).status == 0
    # Another daemon took the lease over, so that the build was not in vain.
    assert ran.ours == [] and home.compiles() == 1


def test_a_daemon_that_does_not_come_back(home: Home) -> None:
    source = home.input()
    assert home.compile(source=home.input("warm.pb", b"brings the daemon up")).status == 0
    builder = start(home, source, "builder", script={"delay": 2}, NEURONCACHE_AUTOSTART="false")
    assert eventually(lambda: home.compiles() == 2)
    home.kill_daemons()
    ran = end(builder)
    assert ran.status == 0 and len(ran.ours) == 1 and ran.ours[0].startswith("the output was not stored")
    assert (home.dir / "builder" / "out.neff").exists()


def test_waiting_is_shown(home: Home) -> None:
    source = home.input()
    builder = start(home, source, "builder", script={"delay": 4})
    assert eventually(lambda: home.compiles() == 1)
    waiter = start(home, source, "waiter", script={}, NEURONCACHE_PROGRESS="on")
    quiet = start(home, source, "quiet", script={})
    ran = end(waiter)
    assert any(line.startswith(f"waiting for neuronx-cc (pid {builder.pid} on ") for line in ran.ours), ran.err
    assert end(quiet).ours == [] and end(builder).status == 0


def test_a_wait_that_is_too_long(home: Home) -> None:
    source = home.input()
    builder = start(home, source, "builder", script={"delay": 60})
    assert eventually(lambda: home.compiles() == 1)
    ran = end(start(home, source, "waiter", script={}, NEURONCACHE_WAIT_TIMEOUT="1s"))
    assert ran.status == 0 and len(ran.ours) == 1 and "wait_timeout" in ran.ours[0]
    assert home.compiles() == 2 and builder.poll() is None


@pytest.mark.parametrize(
    "kind,said", [("none", "wrote no"), ("empty", "wrote an empty"), ("directory", "no regular file")]
)
def test_a_success_without_an_output_is_not_believed(home: Home, kind: str, said: str) -> None:
    ran = home.compile(script={"output": kind})
    assert ran.status == 0 and len(ran.ours) == 1 and said in ran.ours[0]
    assert home.counters()["entries"] == 0


def test_an_old_output_is_not_taken_for_a_new_one(home: Home) -> None:
    (home.work / "out.neff").write_bytes(b"of yesterday")
    ran = home.compile(script={"output": "none"})
    assert ran.status == 0 and "did not write" in ran.ours[0]
    assert home.counters()["entries"] == 0


DIAGNOSTIC = {"exit": 70, "out": "working\n", "err": "ERROR: [NCC_EVRF009] needs too much memory\n"}


def test_a_diagnostic_is_replayed_until_told_otherwise(home: Home) -> None:
    first = home.compile(script=DIAGNOSTIC)
    assert (first.status, first.ours) == (70, [])
    again = home.compile(script={})
    assert (again.status, again.out) == (70, first.out)
    assert again.err.startswith(first.err) and len(again.ours) == 1
    assert "NEURONCACHE_RETRY_FAILED=1" in again.ours[0] and home.compiles() == 1
    assert home.compile("--retry_failed_compilation", script=DIAGNOSTIC).status == 70
    assert home.compile(script={}).status == 70 and home.compiles() == 2
    assert home.compile(script={}, NEURON_CC_FLAGS="--retry_failed_compilation").status == 0
    assert home.compile(script=DIAGNOSTIC).status == 0 and home.compiles() == 3


@pytest.mark.parametrize(
    "script",
    [
        {"exit": 1, "err": "OSError: [Errno 28] No space left on device\n"},
        {"exit": 70, "err": "internal error\n"},
        {"signal": signal.SIGKILL},
        {"signal": signal.SIGSEGV},
    ],
)
def test_what_may_pass_is_tried_again(home: Home, script: dict[str, object]) -> None:
    flaky = {**script, "flaky": str(home.dir / "was-here")}
    first = home.compile(script=flaky)
    assert first.status == script.get("exit", -int(str(script.get("signal", 0))))
    second = home.compile(script=flaky)
    assert (second.status, second.ours) == (0, []) and home.compiles() >= 2


def test_waiters_share_a_diagnostic(home: Home) -> None:
    source = home.input()
    processes = [start(home, source, f"rank{i}", script={**DIAGNOSTIC, "delay": 2}) for i in range(6)]
    assert [end(process).status for process in processes] == [70] * 6
    assert home.compiles() == 1


def test_a_compiler_that_takes_too_long(home: Home) -> None:
    ran = home.compile(script={"delay": 60}, NEURONCACHE_BUILD_TIMEOUT="1s")
    assert ran.status == 124 and "build_timeout" in ran.ours[0]
    home.kill_daemons()  # which go by the setting that they were started with
    assert home.compile(script={}).status == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_compiler(home: Home, number: signal.Signals) -> None:
    source = home.input()
    process = start(home, source, "one", script={"delay": 60})
    assert eventually(lambda: home.compiles() == 1)
    compiler = int(home.log.read_text().split()[1])
    time.sleep(0.1)
    process.send_signal(number)
    ran = end(process)
    # What the same program does when it is asked directly: Python ends by the signal.
    assert ran.status == -number
    assert eventually(lambda: not Path(f"/proc/{compiler}").exists())
    assert end(start(home, source, "two", script={})).status == 0


def test_a_directory_that_takes_no_files(home: Home) -> None:
    home.compile(script={})
    ran = home.compile(output="/proc/out.neff", script={})
    direct = home.compile(output="/proc/out.neff", script={}, NEURONCACHE="0")
    assert ran.status == direct.status == 70 and direct.err in ran.err
    assert len(ran.ours) == 1


def test_a_working_directory_that_takes_no_files(home: Home) -> None:
    source, output = home.input(), str(home.work / "o.neff")
    nowhere = Path("/proc")
    first = home.compile(source=source, output=output, cwd=nowhere, script={})
    direct = home.compile(source=source, output=output, cwd=nowhere, script={}, NEURONCACHE="0")
    assert (first.status, first.err) == (direct.status, direct.err)
    assert home.compile(source=source, output=output, script={}).status == 0
    # A hit needs no log.
    assert home.compile(source=source, output=output, cwd=nowhere, script={}).status == 0


def test_output_onto_its_own_input(home: Home) -> None:
    source = home.input("same", b"module")
    assert home.compile(source=source, output="same", script={}).ours == []
    made = Path(source).read_bytes()
    home.input("same", b"module")
    assert home.compile(source=source, output="same", script={}).status == 0
    assert Path(source).read_bytes() == made and home.compiles() == 1


def test_an_input_that_changes_meanwhile_is_not_stored(home: Home) -> None:
    source = home.input()
    process = start(home, source, "one", script={"delay": 2})
    assert eventually(lambda: home.compiles() == 1)
    Path(source).write_bytes(b"another module")
    ran = end(process)
    assert ran.status == 0 and "changed meanwhile" in ran.ours[0]
    assert home.counters()["entries"] == 0


def test_two_outputs_in_one_directory(home: Home) -> None:
    sources = [home.input(f"m{i}.pb", b"%d" % i) for i in range(4)]
    processes = [
        home.popen("compile", source, *WORDS, "--output", f"o{i}.neff", "--logfile", f"l{i}.txt", script={"delay": 0.5})
        for i, source in enumerate(sources)
    ]
    assert [end(process).status for process in processes] == [0] * 4
    assert len({(home.work / f"o{i}.neff").read_bytes() for i in range(4)}) == 4


def test_inputs_that_cannot_be_read_twice(home: Home) -> None:
    os.mkfifo(home.work / "pipe.pb")
    process = home.popen("compile", "pipe.pb", *WORDS, "--output", "out.neff", script={})
    assert end(process).status == 0
    assert not (home.store / "db").exists() or home.counters()["entries"] == 0


def test_the_peak_of_the_whole_tree_is_kept(home: Home) -> None:
    home.compile(script={"memory": 150, "delay": 0.5})
    key = home.cli("ls")["entries"][0]["key"]
    assert home.cli("show", key)["manifest"]["peak_rss_bytes"] > 150 << 20


def test_standard_streams_that_are_closed(home: Home) -> None:
    source = home.input()
    for _ in range(2):
        done = subprocess.run(
            ["sh", "-c", f'exec neuronx-cc compile "{source}" --target trn2 --output o.neff <&- >&- 2>&-'],
            env=home.env, cwd=home.work, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0 and (home.work / "o.neff").stat().st_size > 0
        (home.work / "o.neff").unlink()
    assert home.compiles() == 1


def test_killed_for_memory_is_tried_again_alone(home: Home) -> None:
    script = {"exit": 70, "err": "[F137] neuronx-cc was forcibly killed\n", "flaky": str(home.dir / "was-here")}
    ran = home.compile(script=script)
    assert ran.status == 0 and len(ran.ours) == 1 and "killed for want of memory" in ran.ours[0]
    assert home.compiles() == 2 and home.counters()["entries"] == 1


def test_what_always_runs_out_of_memory_ends(home: Home) -> None:
    ran = home.compile(script={"exit": 70, "err": "[F137] neuronx-cc was forcibly killed\n"})
    assert ran.status == 70 and home.compiles() == 3
    assert home.compile(script={}).status == 0


def test_builds_stay_within_the_memory(home: Home) -> None:
    sources = [home.input(f"m{i}.pb", b"%d" % i) for i in range(6)]
    more = {"NEURONCACHE_BUILD_MEMORY": "40MiB"}  # room for two
    processes = [start(home, source, f"r{i}", script={"delay": 0.7}, **more) for i, source in enumerate(sources)]
    assert [end(process).status for process in processes] == [0] * 6
    running = most = 0
    for line in home.log.read_text().splitlines():
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
    assert 1 <= most <= 2 and home.compiles() == 6


def test_one_output_for_two_commands_is_stored_as_what_it_is(home: Home) -> None:
    sources = [home.input(f"{name}.pb", f"module {name}".encode()) for name in "ab"]
    words = ("--output", str(home.work / "same.neff"))
    running = []
    for source in sources * 2:
        running.append(home.popen("compile", source, *WORDS, *words, script={"linger": 2}))
        time.sleep(0.5)
    assert [end(process).status for process in running] == [0] * 4 and home.compiles() == 2
    for source in sources:
        alone = home.run("compile", source, *WORDS, "--output", "x.neff", NEURONCACHE="0")
        good = (home.work / "x.neff").read_bytes()
        assert alone.status == 0
        assert home.compile(source=source, output="y.neff").status == 0
        assert (home.work / "y.neff").read_bytes() == good
    assert home.compiles() == 4


@pytest.mark.parametrize("trouble", ["store", "output"])
def test_what_is_built_and_cannot_be_stored_is_not_built_in_a_row(home: Home, trouble: str) -> None:
    if trouble == "store":
        home.env["NEURONCACHE_MAX_BLOB"] = "1MiB"
    script = {"delay": 2, "size": 3_000_000, "output": "good" if trouble == "store" else "none"}
    source = home.input()
    began = time.monotonic()
    first = start(home, source, "first", script=script)
    assert eventually(lambda: home.compiles() == 1)
    others = [start(home, source, f"other{i}", script=script) for i in range(5)]
    ran = [end(process) for process in [first, *others]]
    assert time.monotonic() - began < 9  # as long as two of them, not as six
    assert [one.status for one in ran] == [0] * 6 and home.compiles() == 6
    assert ran[0].ours[0].startswith("the output was not stored: ")
    assert {one.ours[0] for one in ran[1:]} == {
        f"compiling without the cache: another process built this, but {ran[0].ours[0]}"
    }
    # Who comes later tries anew.
    home.env["NEURONCACHE_MAX_BLOB"] = ""
    home.kill_daemons()
    assert end(start(home, source, "later", script={"size": 3_000_000})).ours == []
    assert end(start(home, source, "last", script={})).ours == [] and home.compiles() == 7


def test_a_reader_that_goes_away_does_not_cost_the_build(home: Home) -> None:
    source = home.input()
    process = start(home, source, "builder", script={"delay": 1})
    assert process.stdout is not None and process.stdout.read(2) == b".."
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert (home.dir / "builder" / "out.neff").exists()
    assert end(start(home, source, "later")).status == 0 and home.compiles() == 1


def says(home: Home, text: str) -> str:
    """A script whose compiler says more than fits into an environment."""
    script = home.dir / "script.json"
    script.write_text(json.dumps({"out": text}))
    return str(script)


def test_a_reader_that_does_not_read_is_no_shelter_from_signals(home: Home) -> None:
    process = start(home, home.input(), "builder", STUB_SCRIPT=says(home, "much " * 100_000))
    assert eventually(lambda: home.compiles() == 1)
    time.sleep(1)  # until the pipe is full
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == -signal.SIGTERM


def test_a_slow_reader_gets_all(home: Home) -> None:
    text = "".join(f"{i}\n" for i in range(100_000))
    process = start(home, home.input(), "builder", STUB_SCRIPT=says(home, text))
    time.sleep(2)
    ran = end(process)
    assert ran.status == 0 and ran.out.decode() == f"..{text}\nCompiler status PASS\n"
