"""Faults met on purpose: each says what happened and what to do, with the right exit status."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from cli_support import BIN, Home, validate
from conftest import Filled


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["stast"], "did you mean stats?"),
        (["daemon", "strat"], "did you mean start?"),
        (["prune", "--older-then", "7d"], "did you mean --older-than?"),
        (["ls", "--sort", "sise"], "did you mean size?"),
        (["ls", "--format", "yaml"], "text, json, tab"),
        (["ls", "--limit", "many"], "--limit"),
        (["ls", "--older-than", "yesterday"], "--older-than"),
        (["prune", "--max-size", "lots"], "--max-size"),
        (["show", "not-hex"], "hex digits"),
        (["show"], "KEY"),
        (["config", "explain", "lease_tll"], "lease_ttl"),
        (["config", "set", "lease_ttl", "soon"], "lease_ttl"),
        (["config", "set", "--live", "io_threads", "3"], "io_threads"),
        (["completion", "tcsh"], "bash, zsh, fish"),
    ],
)
def test_usage(home: Home, words: list[str], says: str) -> None:
    ran = home.fails(2, *words)
    assert says in ran.err and ran.out == ""
    if "--format" not in words:
        as_json = home.run(*words, "--format", "json")
        assert as_json.status == 2 and validate(as_json.json, "error")["error"]["code"] == "invalid"


def test_a_misspelt_variable_is_refused_and_explained(home: Home) -> None:
    ran = home.fails(2, "stats", NEURONCACHE_DIRR="/x")
    assert "NEURONCACHE_DIR" in ran.err.replace("NEURONCACHE_DIRR", "")
    ran = home.run("doctor", NEURONCACHE_DIRR="/x", NEURONCACHE_SOKET="/y")
    assert ran.status == 1
    assert ran.out.count("problem  environment") == 2


def test_a_bad_settings_file(home: Home) -> None:
    config = home.dir / "c.toml"
    config.write_text("max_bytez = 1\n")
    ran = home.fails(2, "stats", "--config", "c.toml")
    assert "max_bytes" in ran.err
    assert home.run("doctor", "--config", str(config)).status == 1
    home.fails(1, "stats", "--config", "absent.toml")


def test_unknown_and_ambiguous_keys(filled: Filled) -> None:
    home = filled.home
    home.fails(1, "show", "0" * 64)
    home.fails(1, "pin", "0" * 64)
    keys = [filled.daemon.store(f"n{i}", {"x": b"1"}) for i in range(17)]  # two of them begin alike
    first = [k[0] for k in keys]
    twice = next(c for c in first if first.count(c) > 1)
    ran = home.fails(1, "show", twice)
    assert twice in ran.err


def test_no_permission(home: Home) -> None:
    if os.geteuid() == 0:
        # Root may do everything; a directory in the way is refused to it, too.
        home.store.write_text("in the way")
        ran = home.run("daemon", "start")
        assert ran.status in (1, 3) and "to do:" in ran.err and str(home.store) in ran.err
        return
    home.store.mkdir(mode=0o500)
    ran = home.run("daemon", "start")
    assert ran.status in (1, 3) and str(home.store) in ran.err
    assert home.run("doctor").status == 1


def test_a_full_store(home: Home) -> None:
    home.env["NEURONCACHE_MIN_FREE"] = "8000TiB"
    home.ok("daemon", "start")
    daemon = home.connect()
    status, answer = daemon.call("PUT", "/v1/blobs/" + "0" * 64, b"x" * 100_000)
    assert status == 507 and answer["error"]["action"]
    daemon.close()
    ran = home.run("doctor")
    assert ran.status == 1 and "problem  space" in ran.out


def test_somebody_else_at_the_socket(home: Home) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(home.socket))
    server.listen()

    def speak() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), peer:  # the first only looks whether somebody listens
                peer.recv(1000)
                peer.sendall(b"220 mail.example ESMTP\r\n\r\n")

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    ran = home.fails(1, "stats")
    assert "not HTTP" in ran.err
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(timeout=10)


def test_output_that_cannot_be_written(shared: Filled) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [BIN / "neuroncache", "ls"],
            env=shared.home.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 1 and "standard output" in ran.stderr


def test_completion_in_bash(shared: Filled, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(shared.home.ok("completion", "bash").out)

    def complete(*words: str) -> set[str]:
        listed = " ".join(f"'{w}'" for w in words)
        ran = subprocess.run(
            ["bash", "-c", f"source {script}; COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _neuroncache; "
             'printf "%s\\n" "${COMPREPLY[@]}"'],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return set(ran.stdout.split())

    assert complete("neuroncache", "st") == {"stats"}
    assert complete("neuroncache", "daemon", "") == {"start", "stop", "restart", "status"}
    assert complete("neuroncache", "prune", "--max") == {"--max-size", "--max-entries"}
    assert complete("neuroncache", "ls", "--format", "") == {"text", "json", "tab"}
    assert complete("neuroncache", "completion", "f") == {"fish"}
