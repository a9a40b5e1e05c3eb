"""A command through the wrapper: once compiled, then served, and never worse than without it."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest
from wrapper_support import LIBEXEC, STUB, Home, eventually


def test_the_second_compile_is_served(home: Home) -> None:
    first = home.compile(script={"size": 300_000})
    made = (home.work / "out.neff").read_bytes()
    log = (home.work / "log-neuron-cc.txt").read_bytes()
    assert (first.status, first.ours) == (0, [])
    elsewhere = home.dir / "elsewhere"
    elsewhere.mkdir()
    second = home.compile(cwd=elsewhere, source=home.input(where=elsewhere))
    assert (second.status, second.out, second.err) == (0, first.out, first.err)
    assert b"Compiler status PASS" in second.out
    assert (elsewhere / "out.neff").read_bytes() == made
    assert (elsewhere / "log-neuron-cc.txt").read_bytes() == log
    assert home.compiles() == 1
    counters = home.counters()
    assert (counters["builds"], counters["hits"], counters["entries"]) == (1, 1, 1)


def test_what_matters_makes_another_entry(home: Home) -> None:
    home.compile()
    home.compile("--optlevel", "1")
    home.compile("-O1")
    home.compile(source=home.input("other.pb", b"another module"))
    home.compile(NEURON_PLATFORM_TARGET_OVERRIDE="trn1")
    assert home.compiles() == 4


def test_what_does_not_matter_makes_none(home: Home) -> None:
    home.compile("--lnc=2", "-O", "2")
    home.compile("--verbose=35", "-O1", "--optlevel=2", "--logical-nc-config", "2", "--logfile", "l.txt")
    home.compile("--lnc", "2", "-O2", "--workdir=/tmp", NEURON_RT_VISIBLE_CORES="3", NEURON_CC_FLAGS="--lnc 2")
    assert home.compiles() == 1
    assert (home.work / "l.txt").exists()


@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["list-operators", "--framework", "XLA"], [], ["frobnicate"]]
)
def test_other_commands_are_the_compilers_own(home: Home, words: list[str]) -> None:
    through = home.run(*words)
    direct = home.run(*words, program=str(STUB / "neuronx-cc"))
    assert through == direct
    assert not home.daemons()


def test_without_a_daemon_the_compiler_runs(home: Home) -> None:
    ran = home.compile(NEURONCACHE_AUTOSTART="false")
    assert ran.status == 0 and len(ran.ours) == 1 and ran.ours[0].startswith("compiling without the cache: ")
    assert (home.work / "out.neff").exists() and home.compiles() == 1


def test_switched_off(home: Home) -> None:
    for _ in range(2):
        ran = home.compile(NEURONCACHE="0")
        assert (ran.status, ran.ours) == (0, [])
    assert home.compiles() == 2 and not home.daemons()


def test_a_broken_setting_is_said_and_the_compiler_runs(home: Home) -> None:
    ran = home.compile(NEURONCACHE_DIRR="/x")
    assert ran.status == 0 and len(ran.ours) == 1 and "NEURONCACHE_DIRR" in ran.ours[0]
    assert (home.work / "out.neff").exists()


def test_a_broken_settings_file_is_said_and_the_compiler_runs(home: Home) -> None:
    file = home.dir / "config.toml"
    file.write_text("this is no TOML")
    ran = home.compile(NEURONCACHE_CONFIG=str(file))
    assert ran.status == 0 and len(ran.ours) == 1 and "config.toml" in ran.ours[0]


def test_path_without_a_compiler(home: Home) -> None:
    ran = home.compile(PATH=f"{LIBEXEC}:/usr/bin:/bin")
    assert ran.status == 127 and "no neuronx-cc on PATH" in ran.ours[0]


def test_a_named_compiler(home: Home) -> None:
    assert home.compile(PATH="/usr/bin:/bin", NEURONCACHE_REAL_CC=str(STUB / "neuronx-cc")).status == 0
    gone = home.compile(NEURONCACHE_REAL_CC="/nowhere/neuronx-cc")
    assert gone.status == 126 and "does not exist" in gone.ours[0]
    itself = home.compile(NEURONCACHE_REAL_CC=str(LIBEXEC / "neuronx-cc"))
    assert itself.status == 126 and "is the wrapper" in itself.ours[0]


def test_links_and_copies_of_the_wrapper_are_passed_over(home: Home) -> None:
    linked = home.dir / "linked"
    copied = home.dir / "copied"
    for made in (linked, copied):
        made.mkdir()
    (linked / "neuronx-cc").symlink_to(LIBEXEC / "neuronx-cc")
    (copied / "neuronx-cc").write_bytes((LIBEXEC / "neuronx-cc").read_bytes())
    (copied / "neuronx-cc").chmod(0o755)
    ran = home.compile(PATH=f"{linked}:{copied}:{home.env['PATH']}", program=str(linked / "neuronx-cc"))
    assert (ran.status, ran.ours) == (0, [])


def script_that_runs(directory: Path, program: Path) -> Path:
    directory.mkdir()
    made = directory / "neuronx-cc"
    made.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
    made.chmod(0o755)
    return directory


def test_a_script_that_leads_back_is_passed_over(home: Home) -> None:
    script = script_that_runs(home.dir / "script", LIBEXEC / "neuronx-cc")
    ran = home.compile(PATH=f"{script}:{home.env['PATH']}")
    assert (ran.status, ran.ours) == (0, [])
    assert home.compiles() == 1


def test_a_loop_is_an_error(home: Home) -> None:
    script = script_that_runs(home.dir / "script", LIBEXEC / "neuronx-cc")
    ran = home.compile(PATH=f"{script}:/usr/bin:/bin")
    assert ran.status != 0 and any("leads back to itself" in line for line in ran.ours)


def test_a_compiler_that_runs_itself(home: Home) -> None:
    ran = home.compile(script={"calls_itself": True})
    assert (ran.status, ran.ours) == (0, [])
    assert home.compiles() == 2 and home.counters()["builds"] == 1


def test_the_output_is_a_copy_with_usual_permissions(home: Home) -> None:
    home.compile(script={"size": 200_000})
    output = home.work / "out.neff"
    made = output.read_bytes()
    output.unlink()
    home.compile()
    info = output.stat()
    assert (stat.S_IMODE(info.st_mode), info.st_nlink) == (0o666 & ~umask(), 1)
    output.write_bytes(b"scribbled over")
    home.compile()
    assert output.read_bytes() == made and home.compiles() == 1


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_an_output_behind_a_link_and_its_mode(home: Home) -> None:
    home.compile()
    target = home.work / "target.neff"
    target.write_bytes(b"old")
    target.chmod(0o640)
    (home.work / "link.neff").symlink_to("target.neff")
    assert home.compile(output="link.neff").status == 0
    assert (home.work / "link.neff").is_symlink()
    assert target.read_bytes() == (home.work / "out.neff").read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert home.compiles() == 1


def test_odd_names(home: Home) -> None:
    for name in ("with space", "with\nnewline", "'quoted\"", os.fsdecode(b"\xff\xfe")):
        source = home.input(name + ".pb", name.encode(errors="surrogateescape"))
        for _ in range(2):
            ran = home.compile(source=source, output=name + ".neff")
            assert (ran.status, ran.ours) == (0, [])
        assert (home.work / (name + ".neff")).stat().st_size > 0
    assert home.compiles() == 4


def test_a_response_file(home: Home) -> None:
    source = home.input()
    (home.work / "words.txt").write_text(f"compile\n{source}\n--target=trn2\n--output=out.neff\n")
    assert home.run("@words.txt").status == 0
    (home.work / "out.neff").unlink()
    assert home.run("compile", source, "--target", "trn2", "--output", "out.neff").status == 0
    assert (home.work / "out.neff").exists() and home.compiles() == 1


def test_missing_input_is_the_compilers_matter(home: Home) -> None:
    ran = home.compile(source="nowhere.pb")
    assert ran.ours == [] and home.compiles() == 1


def test_nobody_else_sees_half_an_output(home: Home) -> None:
    source = home.input()
    dead = home.compile(source=source, script={"output": "half", "size": 100_000})
    assert dead.status == -signal.SIGKILL
    good = home.compile(source=source, script={"size": 100_000})
    assert good.status == 0 and home.compiles() == 2
    assert (home.work / "out.neff").stat().st_size == 100_000
    assert eventually(lambda: home.counters()["entries"] == 1)


@pytest.mark.parametrize("log", ["out.neff", "./out.neff", "link"])
def test_a_log_that_is_the_output_is_the_compilers_matter(home: Home, log: str) -> None:
    (home.work / "link").symlink_to("out.neff")
    source = home.input()
    words = ["compile", source, "--framework", "XLA", "--target", "trn2", "--output", "out.neff", "--logfile", log]
    home.run(*words, program=str(STUB / "neuronx-cc"))
    alone = (home.work / "out.neff").read_bytes()
    for times in range(2, 5):
        (home.work / "out.neff").unlink()
        assert home.run(*words).status == 0
        assert (home.work / "out.neff").read_bytes() == alone
        assert home.compiles() == times


def test_links_that_lead_nowhere_are_not_replaced(home: Home) -> None:
    assert home.compile().status == 0
    (home.work / "one").symlink_to("two")
    (home.work / "two").symlink_to("one")
    ran = home.compile(output="one")
    assert ran.status == 70 and len(ran.ours) == 1 and "symbolic links" in ran.ours[0]
    assert (home.work / "one").is_symlink()
