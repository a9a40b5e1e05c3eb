"""prune, pin, verify --repair, config set: what they do to a store."""

from __future__ import annotations

import os

from conftest import Filled


def test_prune_needs_a_filter_or_all(filled: Filled) -> None:
    ran = filled.home.fails(2, "prune")
    assert "--all" in ran.err
    filled.home.fails(2, "prune", "--all", "--model", "x")
    filled.daemon.close()  # what it looked up is in use no more
    assert filled.home.json("ls", "ls")["total"] == 4
    document = filled.home.json("prune", "prune", "--all")
    assert document["count"] == 4 and not document["dry_run"]
    assert filled.home.json("ls", "ls")["total"] == 0


def test_filters_combine(filled: Filled) -> None:
    assert filled.home.json("prune", "prune", "--model", "llama", "--namespace", "team-a")["count"] == 0
    assert filled.home.json("prune", "prune", "--unused-since", "1h", "--older-than", "1h")["count"] == 0
    assert filled.home.json("prune", "prune", "--failed")["count"] == 1
    assert "Removed 1 entry and freed" in filled.home.ok("prune", "--compiler", "2.12").out
    # The dearest to rebuild stays.
    gone = filled.home.ok("prune", "--max-entries", "1", "--format", "tab").rows()
    assert [row["key"] for row in gone] == [filled.bert]
    assert [e["key"] for e in filled.home.json("ls", "ls")["entries"]] == [filled.llama]
    assert filled.home.json("prune", "prune", "--max-size", "10GiB")["count"] == 0
    assert filled.home.json("prune", "prune", "--max-size", "0")["count"] == 1


def test_pinned_entries_stay(filled: Filled) -> None:
    document = filled.home.json("pin", "pin", filled.llama[:9], filled.bert)
    assert [e["key"] for e in document["entries"]] == [filled.llama, filled.bert]
    assert "pinned" in filled.home.ok("ls").out
    pruned = filled.home.json("prune", "prune", "--all")
    assert {k["key"] for k in pruned["kept"]} == {filled.llama, filled.bert}
    assert "2 pinned" in filled.home.ok("prune", "--all").out
    assert filled.home.ok("unpin", filled.bert).out.startswith("Unpinned " + filled.bert[:12])
    assert [e["key"] for e in filled.home.json("prune", "prune", "--all")["entries"]] == [filled.bert]
    assert filled.home.ok("unpin", filled.llama, "--format", "tab").rows() == [{"key": filled.llama, "pinned": "0"}]


def test_verify_finds_and_repairs_damage(filled: Filled) -> None:
    blob = max((p for p in (filled.home.store / "cas").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    os.chmod(blob, 0o600)
    with open(blob, "r+b") as file:
        file.seek(blob.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    ran = filled.home.run("verify")
    assert ran.status == 1 and "1 damaged" in ran.out and "--repair" in ran.out
    ran = filled.home.run("verify", "--format", "json")
    assert ran.status == 1 and len(ran.json["bad"]) == 1
    repaired = filled.home.json("verify", "verify", "--repair")
    assert len(repaired["bad"]) == 1 and repaired["repair"]
    assert filled.home.json("verify", "verify")["bad"] == []
    assert filled.home.json("ls", "ls")["total"] == 3
    assert filled.home.json("stats", "stats")["health"]["numbers"]["quarantined"] == 1


def test_config_set_is_saved_and_taken_at_once(filled: Filled) -> None:
    home = filled.home
    document = home.json("config-set", "config", "set", "max_entries", "5000")
    assert document["saved"] and document["applied"]
    assert home.json("config-explain", "config", "explain", "max_entries")["daemon_value"] == "5000"
    assert home.json("stats", "stats")["limits"]["max_entries"] == 5000
    live = home.json("config-set", "config", "set", "--live", "max_entries", "6000")
    assert live["applied"] and not live["saved"]
    shown = home.json("config-show", "config", "show", "max_entries")["settings"][0]
    assert shown["value"] == "5000" and shown["origin"] == "file" and shown["daemon_value"] == "6000"
    assert "6000" in home.ok("config", "show").out
    assert "restart" in home.ok("config", "set", "io_threads", "3").out
    overridden = home.ok("config", "set", "dir", "/elsewhere")
    assert "NEURONCACHE_DIR" in overridden.out
    assert "max_entries = 5000" in (home.dir / ".config/neuroncache/config.toml").read_text().replace('"', "")
