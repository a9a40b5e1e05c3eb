"""neuroncache tiers, push, pull, and prune and verify of a tier."""

from __future__ import annotations

import time

from cli_support import Home


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
    deadline = time.monotonic() + 30
    while home.json("tiers", "tiers")["tiers"][0]["counters"]["sent"] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
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
    assert [row["state"] for row in pulled["entries"]] == ["here"]
    checked = home.json("verify", "verify", "--tier", address)
    assert checked["checked"] == 2 and checked["bad"] == []
    (blob,) = [path for path in (tier / "v1/blobs").rglob("*") if path.is_file()]
    blob.write_bytes(blob.read_bytes()[:-1])
    damaged = home.run("verify", "--tier", address)
    assert damaged.status == 1 and "is damaged" in damaged.out
    home.ok("verify", "--tier", address, "--repair")
    assert home.json("verify", "verify", "--tier", address)["checked"] == 0
    pruned = home.json("tier-entries", "prune", "--tier", address, "--namespace", "default")
    assert pruned["entries"] == [] and pruned["collected"]["blobs"] == 0
    home.fails(2, "prune", "--tier", address, "--unused-since", "1d")
    assert "no tier" in home.fails(1, "pull", "--tier", "file:///nowhere").err
