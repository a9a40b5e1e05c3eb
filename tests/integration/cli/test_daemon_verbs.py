"""daemon start | stop | restart | status, and starting by itself."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess

from cli_support import BIN, Home
from conftest import Filled


def test_start_and_stop_may_be_said_twice(home: Home) -> None:
    assert home.run("daemon", "status").status == 1
    first = home.json("daemon", "daemon", "start")
    second = home.json("daemon", "daemon", "start")
    assert first["changed"] and not second["changed"] and first["pid"] == second["pid"]
    assert "running already" in home.ok("daemon", "start").out
    status = home.json("daemon", "daemon", "status")
    assert status["pid"] == first["pid"] and status["store"]["path"] == str(home.store) and status["builds"] == []
    assert home.ok("daemon", "status", "--format", "tab").rows()[0]["running"] == "1"
    restarted = home.json("daemon", "daemon", "restart")
    assert restarted["running"] and restarted["pid"] != first["pid"]
    stopped = home.json("daemon", "daemon", "stop", "--drain", "1s")
    assert stopped["changed"] and not stopped["running"]
    assert home.daemons() == []
    assert "not running" in home.ok("daemon", "stop").out
    ran = home.run("daemon", "status", "--format", "json")
    assert ran.status == 1 and ran.json["running"] is False
    assert "was not running" in home.ok("daemon", "restart").out


def test_status_shows_builds_under_way(filled: Filled) -> None:
    filled.daemon.acquire([("graph", "slow")], kind="graph", label="slow one")
    builds = filled.home.json("daemon", "daemon", "status")["builds"]
    assert [b["label"] for b in builds] == ["slow one"]
    assert "slow one" in filled.home.ok("daemon", "status").out


def test_numbers_survive_a_restart(filled: Filled) -> None:
    before = filled.home.json("stats", "stats")["counters"]
    filled.daemon.close()
    filled.home.ok("daemon", "restart")
    after = filled.home.json("stats", "stats")["counters"]
    assert {n: after[n] for n in ("lookups", "hits", "builds", "bypasses", "entries")} == {
        n: before[n] for n in ("lookups", "hits", "builds", "bypasses", "entries")
    }


def test_64_at_once_start_one_daemon(home: Home) -> None:
    processes = [home.popen("daemon", "start", "--format", "json") for _ in range(64)]
    pids = set()
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        pids.add(json.loads(out)["pid"])
    assert len(pids) == 1
    assert home.daemons() == list(pids)


def test_a_verb_that_changes_starts_the_daemon(filled: Filled) -> None:
    filled.daemon.close()
    filled.home.ok("daemon", "stop")
    filled.home.ok("pin", filled.llama)
    assert len(filled.home.daemons()) == 1
    filled.home.ok("daemon", "stop")
    ran = filled.home.fails(3, "unpin", filled.llama, NEURONCACHE_AUTOSTART="false")
    assert "neuroncache daemon start" in ran.err
    assert filled.home.daemons() == []


def test_a_killed_daemon_is_no_obstacle(filled: Filled) -> None:
    filled.daemon.close()
    filled.home.kill_daemons()
    assert filled.home.socket.exists()  # it had no time to clean up
    assert filled.home.json("daemon", "daemon", "start")["changed"]
    assert filled.home.json("ls", "ls")["total"] == 4


def test_a_silent_daemon_is_a_timeout(filled: Filled) -> None:
    (pid,) = filled.home.daemons()
    os.kill(pid, signal.SIGSTOP)
    try:
        ran = filled.home.run("daemon", "status", NEURONCACHE_CONNECT_TIMEOUT="1s")
        assert ran.status == 3 and "did not answer in time" in ran.err
    finally:
        os.kill(pid, signal.SIGCONT)
    filled.home.ok("daemon", "status")


def test_progress_is_for_terminals_only(home: Home) -> None:
    slow = home.dir / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {BIN}/neuroncached "$@"\n')
    slow.chmod(0o755)
    env = {**home.env, "NEURONCACHE_DAEMON_PATH": str(slow)}
    leader, follower = pty.openpty()
    words = [str(BIN / "neuroncache"), "daemon", "start"]
    subprocess.run(words, env=env, stdout=subprocess.DEVNULL, stderr=follower, check=True, timeout=60)
    os.close(follower)
    seen = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "starting the daemon" in seen and seen.endswith("\r\x1b[K")  # and it wipes its line
    home.ok("daemon", "stop")
    assert home.ok("daemon", "start", NEURONCACHE_DAEMON_PATH=str(slow)).err == ""
