"""What the verbs that only look say about a store with known contents, in every format."""

from __future__ import annotations

import re

from cli_support import ROOT
from conftest import Filled


def test_stats(shared: Filled) -> None:
    document = shared.home.json("stats", "stats")
    counters = document["counters"]
    assert document["source"] == "daemon"
    assert counters["entries"] >= 3
    assert counters["builds"] == 4
    assert counters["hits"] == 1
    assert counters["bypasses"] == 2
    assert counters["lookups"] == sum(counters[n] for n in ("hits", "waits", "builds", "failures", "bypasses"))
    assert counters["compile_seconds_saved"] == 60
    assert counters["bytes"] > 0
    assert document["hit_rate"] == counters["hits"] / counters["lookups"]
    assert document["bypass_reasons"] == {"random_op": 2}
    assert document["health"]["ok"]
    assert document["kinds"]["graph"]["entries"] >= 3
    assert document["builds"]["running"] == 0 and document["builds"]["budget_bytes"] > 0

    text = shared.home.ok("stats").out
    assert re.search(r"Hit rate +14\.3 %", text)
    assert "random_op" in text and "team-a" in text and "1m" in text
    rows = {row["name"]: row["value"] for row in shared.home.ok("stats", "--format", "tab").rows()}
    assert rows["builds"] == "4" and rows["bypass.random_op"] == "2"


def test_stats_of_a_namespace(shared: Filled) -> None:
    document = shared.home.json("stats", "stats", "--namespace", "team-a")
    assert document["namespace"] == "team-a"
    assert document["counters"]["builds"] == 1
    assert document["counters"]["hits"] == 0
    assert document["counters"]["entries"] == 1
    assert document["counters"]["bytes"] > 1 << 20
    nobody = shared.home.json("stats", "stats", "--namespace", "nobody")
    assert nobody["counters"]["lookups"] == 0
    assert nobody["hit_rate"] is None


def test_ls(shared: Filled) -> None:
    document = shared.home.json("ls", "ls", "--sort", "build")
    good = [e["label"] for e in document["entries"] if not e["failed"]]
    assert good == ["llama fw", "bert fw", "mlp"]
    reverse = shared.home.json("ls", "ls", "--sort", "build", "--reverse")
    assert [e["key"] for e in reverse["entries"]] == [e["key"] for e in document["entries"]][::-1]
    assert [e["key"] for e in shared.home.json("ls", "ls", "--model", "lla")["entries"]] == [shared.llama]
    assert [e["key"] for e in shared.home.json("ls", "ls", "--namespace", "team-a")["entries"]] == [shared.bert]
    assert [e["key"] for e in shared.home.json("ls", "ls", "--compiler", "2.12")["entries"]] == [shared.small]
    assert [e["key"] for e in shared.home.json("ls", "ls", "--failed")["entries"]] == [shared.failed]
    assert shared.home.json("ls", "ls", "--older-than", "1d")["entries"] == []
    limited = shared.home.json("ls", "ls", "--limit", "1")
    assert len(limited["entries"]) == 1 and limited["total"] == 4

    text = shared.home.ok("ls").out
    assert shared.llama[:12] in text and shared.llama not in text
    assert len({line.index("graph") for line in text.splitlines() if "graph" in line}) == 1  # aligned
    assert shared.home.ok("ls", "--older-than", "1d").out == "No entries.\n"
    rows = shared.home.ok("ls", "--format", "tab", "--sort", "key").rows()
    assert [r["key"] for r in rows] == sorted(r["key"] for r in rows)


def test_show(shared: Filled) -> None:
    document = shared.home.json("show", "show", shared.llama[:10])
    assert document["key"] == shared.llama
    assert {o["name"] for o in document["manifest"]["outputs"]} == {"kernel.so", "wrapper.py"}
    assert ["graph", "llama fw"] in document["manifest"]["parts"]
    assert document["manifest"]["meta"] == {"why": "test"}
    assert document["uses"] >= 1
    text = shared.home.ok("show", shared.llama).out
    for word in (shared.llama, "kernel.so", "llama fw", "inductor 2.13.0", "test.py on here"):
        assert word in text
    rows = {r["name"]: r["value"] for r in shared.home.ok("show", shared.llama, "--format", "tab").rows()}
    assert rows["part.graph"] == "llama fw"


def test_show_a_failure(shared: Filled) -> None:
    document = shared.home.json("show", "show", shared.failed)
    assert document["failed"] and document["manifest"] is None
    assert document["failure"]["exit_code"] == 70
    assert document["failure"]["log"].startswith("line one\nline two")
    text = shared.home.ok("show", shared.failed).out
    assert "unsupported op" in text and "  line two" in text
    assert "\x1b" not in text  # nobody's log drives the terminal
    log = shared.home.ok("show", shared.failed, "--log").out
    assert log.startswith("line one\nline two ") and "\x1b" not in log
    assert shared.home.json("show", "show", shared.failed, "--log")["log"] == document["failure"]["log"]
    assert shared.home.ok("show", shared.small, "--log").out == "compiled well\n"
    assert "without a log" in shared.home.fails(1, "show", shared.llama, "--log").err


def test_misses(shared: Filled) -> None:
    document = shared.home.json("misses", "misses")
    causes = {m["label"]: m["cause"] for m in document["misses"]}
    assert causes["llama fw"] == "never_built"
    assert shared.home.json("misses", "misses", "--limit", "1")["misses"][0]["label"] == "broken"
    assert len(shared.home.json("misses", "misses", shared.llama[:8])["misses"]) == 1
    assert len(shared.home.json("misses", "misses", "--namespace", "team-a")["misses"]) == 1
    assert shared.home.ok("misses").out.count("never built") >= 1
    assert len(shared.home.ok("misses", "--format", "tab").rows()) == 4


def test_verify(shared: Filled) -> None:
    document = shared.home.json("verify", "verify")
    assert document["bad"] == [] and document["checked"] > 0 and document["bytes"] > 1000
    assert "all good" in shared.home.ok("verify").out
    assert shared.home.ok("verify", "--format", "tab").rows() == []


def test_prune_preview_changes_nothing(shared: Filled) -> None:
    before = shared.home.json("ls", "ls")["total"]
    document = shared.home.json("prune", "prune", "--model", "llama", "--dry-run")
    assert [e["key"] for e in document["entries"]] == [shared.llama]
    assert document["rebuild_seconds"] == 60 and document["bytes"] > 1000
    text = shared.home.ok("prune", "--all", "--dry-run").out
    assert "Would remove" in text and "1m 5s" in text and shared.bert[:12] in text
    assert shared.home.json("ls", "ls")["total"] == before


def test_config(shared: Filled) -> None:
    document = shared.home.json("config-show", "config", "show")
    values = {s["name"]: s for s in document["settings"]}
    assert values["dir"]["value"] == str(shared.home.store)
    assert values["dir"]["origin"] == "environment"
    assert values["lease_ttl"]["origin"] == "default" and values["lease_ttl"]["daemon_value"] == "15s"
    assert "NEURONCACHE_DIR" in shared.home.ok("config", "show", "--changed").out
    assert "lease_ttl" not in shared.home.ok("config", "show", "--changed").out
    assert shared.home.ok("config", "show", "lease-ttl", "--format", "tab").rows()[0]["name"] == "lease_ttl"
    assert shared.home.json("config-explain", "config", "explain", "NEURONCACHE_LEASE_TTL")["live"] is True
    assert "1s..10m" in shared.home.ok("config", "explain", "lease_ttl").out


def test_doctor(shared: Filled) -> None:
    document = shared.home.json("doctor", "doctor")
    levels = {f["check"]: f["level"] for f in document["findings"]}
    assert document["ok"] and levels["daemon"] == "ok" and levels["program"] == "ok" and levels["clock"] == "ok"
    assert "running, pid" in shared.home.ok("doctor").out
    assert {r["level"] for r in shared.home.ok("doctor", "--format", "tab").rows()} <= {"ok", "warning"}


def test_what_needs_no_store(shared: Filled) -> None:
    home = shared.home
    assert re.match(r"neuroncache \d+\.\d+\.\d+ ", home.ok("version").out)
    assert home.ok("--version").out == home.ok("version").out
    home.json("version", "version")
    document = home.json("help", "help")
    assert {"stats", "daemon start"} <= {v["name"] for v in document["verbs"]}
    assert home.ok("help", "prune").out == home.ok("prune", "--help").out
    assert home.ok("help", "--man").out == (ROOT / "client/man/neuroncache.1").read_text()
    for shell in ("bash", "zsh", "fish"):
        assert home.json("completion", "completion", shell)["script"] == home.ok("completion", shell).out
