"""Without a daemon: what only reads works from the files, starts nothing that lasts, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import Home, validate
from conftest import Filled


@pytest.fixture
def offline(filled: Filled) -> Filled:
    filled.daemon.close()
    filled.home.ok("daemon", "stop")
    return filled


def listing(directory: Path) -> list[str]:
    """The store's own files; the index's log of a read-only visit does not count."""
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file() and "LOG" not in p.name)


def test_reading_verbs(offline: Filled, tmp_path: Path) -> None:
    home = offline.home
    before = listing(home.store)
    stats = home.json("stats", "stats")
    assert stats["source"] == "offline" and stats["counters"]["builds"] == 4 and stats["counters"]["entries"] >= 3
    ran = home.ok("ls")
    assert offline.llama[:12] in ran.out and "no daemon is running" in ran.err
    assert home.json("show", "show", offline.llama)["key"] == offline.llama
    assert home.json("show", "show", offline.failed)["failure"]["exit_code"] == 70
    assert home.json("misses", "misses")["source"] == "offline"
    assert home.json("verify", "verify")["bad"] == []
    assert home.json("prune", "prune", "--all", "--dry-run")["count"] == 4
    assert home.json("export", "export", str(tmp_path / "x"))["entries"] == 3
    home.json("config-show", "config", "show")
    assert home.json("doctor", "doctor")["ok"]
    assert home.daemons() == []
    assert listing(home.store) == before
    assert list((home.dir / "run").glob("neuroncache-offline-*")) == []


def test_nothing_was_ever_cached(home: Home) -> None:
    stats = home.json("stats", "stats")
    assert stats["source"] == "none" and stats["counters"]["lookups"] == 0 and stats["hit_rate"] is None
    assert "nothing was cached yet" in home.ok("stats").out
    assert home.json("ls", "ls")["entries"] == []
    assert home.json("misses", "misses")["misses"] == []
    assert home.json("verify", "verify")["checked"] == 0
    assert home.json("prune", "prune", "--all", "--dry-run")["count"] == 0
    home.fails(1, "show", "abc")
    home.fails(1, "export", "x")
    home.json("doctor", "doctor")
    assert home.daemons() == [] and not home.store.exists()


def test_without_any_daemon_program(home: Home) -> None:
    ran = home.fails(1, "daemon", "start", NEURONCACHE_DAEMON_PATH="/nowhere/neuroncached")
    assert "/nowhere/neuroncached" in ran.err
    ran = home.run("daemon", "start", "--format", "json", NEURONCACHE_DAEMON_PATH="/nowhere/neuroncached")
    assert validate(ran.json, "error")["error"]["code"] == "not_found"
    home.ok("version")
    home.ok("config", "show")
    assert home.run("doctor", NEURONCACHE_DAEMON_PATH="/nowhere/neuroncached").status == 1
