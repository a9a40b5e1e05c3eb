"""neuroncache tiers, push, pull, and prune and verify of a tier."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from cli_support import Home


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_a_tier_by_hand(home: Home) -> None:
    tier = home.dir / "tier"
    tier.mkdir()
    address = f"file://{tier}"
    home.env["NEURONCACHE_TIERS"] = f"{address}?write_only=true redis://user:hunter2@127.0.0.1:1/0?colour=blue"
    home.env["NEURONCACHE_TRUST"] = "any"
    assert "There is no store yet" in home.run("tiers").out
    home.ok("daemon", "start")
    store = home.connect()
    key = store.store("graph one", {"out": b"x" * 10_000}, model="tiny")
    store.close()
    assert eventually(lambda: bool(home.json("tiers", "tiers")["tiers"][0]["counters"]["sent"]))
    assert (tier / "v1/entries" / key[:2] / key).exists()
    listed = home.json("tiers", "tiers")
    assert "colour" in listed["problems"][0]["problem"]
    assert listed["tiers"][0]["address"] == address and listed["tiers"][0]["counters"]["sent"] == 1
    for words in (("tiers",), ("tiers", "--format", "tab"), ("config", "show"), ("config", "explain", "tiers")):
        ran = home.run(*words)
        assert "hunter2" not in ran.out + ran.err
    would = home.json("tier-entries", "push", "--tier", address, "--model", "tiny", "--dry-run")
    assert [row["key"] for row in would["entries"]] == [key]
    assert home.json("tier-entries", "push", "--tier", address, "--older-than", "1h")["entries"] == []
    assert "Queued for sending: 1 entry" in home.run("push", "--tier", address).out
    pulled = home.json("tier-entries", "pull", "--tier", address, "--compiler", "inductor")
    assert [row["state"] for row in pulled["entries"]] == ["here"] and pulled["bytes"] == 0
    checked = home.json("verify", "verify", "--tier", address)
    assert checked["checked"] == 2 and checked["bad"] == []
    (blob,) = [path for path in (tier / "v1/blobs").rglob("*") if path.is_file()]
    blob.write_bytes(blob.read_bytes()[:-1])
    damaged = home.run("verify", "--tier", address)
    assert damaged.status == 1 and "is damaged" in damaged.out
    assert home.run("verify", "--tier", address, "--repair", "--dry-run").out == damaged.out
    odd = tier / "v1/entries/zz" / ("a" * 30)
    odd.parent.mkdir()
    odd.touch()
    assert f"v1/entries/zz/{odd.name}" in home.run("verify", "--tier", address).out
    odd.unlink()
    home.ok("verify", "--tier", address, "--repair")
    assert home.json("verify", "verify", "--tier", address)["checked"] == 0
    pruned = home.json("tier-entries", "prune", "--tier", address, "--namespace", "default")
    assert pruned["entries"] == [] and pruned["collected"]["blobs"] == 0
    home.fails(2, "prune", "--tier", address, "--unused-since", "1d")
    assert "no tier" in home.fails(1, "pull", "--tier", "file:///nowhere").err


def test_doctor_looks_at_keys_and_tiers(home: Home) -> None:
    tier = home.dir / "tier"
    tier.mkdir()
    home.env["NEURONCACHE_TIERS"] = f"file://{tier}"

    def seen() -> dict[str, tuple[str, str]]:
        ran = home.run("doctor", "--format", "json")
        assert "hunter2" not in ran.out + ran.err
        return {f["check"]: (f["level"], f["detail"] + " " + f["fix"]) for f in json.loads(ran.out)["findings"]}

    found = seen()
    assert found["trust"][0] == found["key"][0] == "problem" and "keys init" in found["key"][1]
    assert found["tier"][0] == "ok" and "is read and written" in found["tier"][1]
    assert not [path for path in tier.rglob("*") if path.is_file()], "nothing is left there"
    made = home.json("keys", "keys", "init")
    found = seen()
    assert found["trust"][0] == found["key"][0] == "ok"

    os.chmod(made["sign_key"], 0o644)
    assert seen()["key"][0] == "problem" and "chmod 600" in seen()["key"][1]
    os.chmod(made["sign_key"], 0o600)
    os.chmod(made["keyring"], 0o666)
    assert seen()["trust"][0] == "problem"
    os.chmod(made["keyring"], 0o644)
    home.ok("keys", "revoke", made["own"])
    found = seen()
    assert found["trust"][0] == found["key"][0] == "problem" and "rotate" in found["key"][1]

    home.env["NEURONCACHE_TIERS"] = f"file://{tier}/gone redis://me:hunter2@127.0.0.1:1/0?colour=blue"
    home.env["NEURONCACHE_LISTEN"] = "127.0.0.1:0"
    ran = home.run("doctor")
    assert ran.status == 1 and "is not there" in ran.out and "'colour'" in ran.out and "hunter2" not in ran.out
    assert "listen needs a certificate" in ran.out and "nobody may come in" in ran.out


def test_no_secret_is_in_an_error(home: Home) -> None:
    for value in ("redis:/me:hunter2@host", "redis://me:hunter 2@host", "hunter2"):
        for ran in (
            home.run("config", "set", "tiers", value),
            home.run("tiers", NEURONCACHE_TIERS=value),
            home.run("doctor", NEURONCACHE_TIERS=value),
        ):
            assert ran.status != 0 and "hunter" not in ran.out + ran.err, ran
    assert "hunter2" not in home.fails(2, "tiers", "redis://me:hunter2@host/0").err


def test_strangers_of_a_tier_are_shown_and_left_alone(home: Home) -> None:
    tier = home.dir / "tier"
    tier.mkdir()
    home.env["NEURONCACHE_TIERS"] = f"file://{tier}?write_only=true"
    home.env["NEURONCACHE_TRUST"] = "any"
    home.ok("daemon", "start")
    store = home.connect()
    key = store.store("graph one", {"out": b"x" * 100})
    store.close()
    entry = tier / "v1/entries" / key[:2] / key
    assert eventually(entry.exists)
    home.ok("daemon", "stop")
    home.env["NEURONCACHE_TIERS"] = f"file://{tier}"
    home.env["NEURONCACHE_TRUST"] = "signed"
    home.ok("daemon", "start")
    shown = home.run("verify", "--tier", f"file://{tier}", "--repair")
    assert shown.status == 0 and "1 of them is not trusted here" in shown.out and "is not signed" in shown.out
    assert entry.exists()
    assert "1 are not trusted here" in home.ok("pull", "--tier", f"file://{tier}").out
    home.fails(2, "verify", "--tier", f"file://{tier}", "--untrusted")
    assert home.json("verify", "verify", "--tier", f"file://{tier}", "--repair", "--untrusted")["untrusted"]
    assert not entry.exists()
