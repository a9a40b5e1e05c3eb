"""neuroncache keys: this host's key, and whom it believes."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

from cli_support import Home


def keys(home: Home, *words: str) -> Any:
    return home.json("keys", "keys", *words)


def secret_of(path: Path) -> str:
    return next(line.split()[1] for line in path.read_text().splitlines() if line.startswith("private "))


def test_a_first_key_is_private_and_trusted_here(home: Home) -> None:
    made = keys(home, "init", "--comment", "ci builders")
    key_file, ring = Path(made["sign_key"]), Path(made["keyring"])
    assert key_file == home.dir / ".config/neuroncache/sign.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    (own,) = made["keys"]
    assert made["own"] == own["id"] and own["own"] and own["state"] == "active"
    assert (own["write"], own["read"], own["comment"]) == ("*", "*", "ci builders")
    assert keys(home, "list")["keys"] == made["keys"]
    again = home.fails(1, "keys", "init")
    assert "holds a key already" in again.err
    secret = secret_of(key_file)
    for words in (("keys", "list"), ("keys", "list", "--format", "tab"), ("config", "show"), ("doctor",)):
        ran = home.run(*words)
        assert secret not in ran.out + ran.err
    assert secret not in ring.read_text()

    os.chmod(key_file, 0o644)
    assert "others may read the private key" in home.fails(1, "keys", "list").err


def test_trust_and_revoke_another_hosts_key(home: Home) -> None:
    other = keys(home, "init")["keys"][0]
    Path(home.dir / ".config").rename(home.dir / "other-host")
    assert keys(home, "list")["keys"] == []
    keys(home, "init")
    home.fails(2, "keys", "trust", "ed25519:AAAA")
    home.fails(2, "keys", "trust", other["key"], "--write", "a b")
    (trusted,) = keys(home, "trust", other["key"], "--write", "team-a", "--read", "team-*", "--comment", "other")[
        "keys"
    ]
    assert not trusted["own"] and (trusted["write"], trusted["read"]) == ("team-a", "team-*")
    (changed,) = keys(home, "trust", other["id"][:8], "--write", "*", "--not-after", "2030-01-01T00:00:00Z")["keys"]
    assert (changed["write"], changed["read"], changed["comment"]) == ("*", "team-*", "other")
    assert changed["not_after_ms"] == 1893456000000

    (later,) = keys(home, "revoke", other["id"][:8], "--after", "1h")["keys"]
    assert later["state"] == "active" and later["revoked_ms"] > time.time() * 1000
    (now,) = keys(home, "revoke", other["id"][:8])["keys"]
    assert now["state"] == "revoked"
    assert "is revoked" in home.fails(1, "keys", "trust", other["key"]).err
    rows = home.ok("keys", "list", "--format", "tab").rows()
    assert [row["state"] for row in rows] == ["active", "revoked"]
    assert "revoked" in home.ok("keys", "list").out


def test_a_keyring_elsewhere_is_written_there(home: Home) -> None:
    keys(home, "init")
    ring = home.dir / ".config/neuroncache/trusted_keys"
    kept = home.dir / "shared-keyring"
    ring.rename(kept)
    ring.symlink_to(kept)
    (key,) = keys(home, "list")["keys"]
    keys(home, "revoke", key["id"])
    assert ring.is_symlink() and "revoked" in kept.read_text()


def test_rotation_overlaps(home: Home) -> None:
    old = keys(home, "init", "--comment", "host 7", "--write", "team-a")["keys"][0]
    assert "no rotation has begun" in home.fails(1, "keys", "rotate", "--finish").err
    begun = keys(home, "rotate")
    assert begun["own"] == old["id"], "the old key signs on"
    new = next(key for key in begun["keys"] if key["id"] != old["id"])
    assert (new["write"], new["comment"], new["state"]) == ("team-a", "host 7", "active")
    assert keys(home, "rotate")["keys"] == begun["keys"], "one rotation at a time"

    done = keys(home, "rotate", "--finish", "--overlap", "2d")
    assert done["own"] == new["id"]
    retired = next(key for key in done["keys"] if key["id"] == old["id"])
    assert retired["state"] == "active", "until the overlap is over"
    assert 1.9 < (retired["not_after_ms"] / 1000 - time.time()) / 86400 < 2.1
    left = sorted(path.name for path in Path(done["sign_key"]).parent.iterdir())
    assert left == ["sign.key", "trusted_keys"], "the old private key is gone"

    at_once = keys(home, "rotate", "--now", "--overlap", "0s")
    assert at_once["own"] not in (old["id"], new["id"])
    assert len(keys(home, "list")["keys"]) == 3


def test_the_daemon_tells_whom_it_believes(home: Home) -> None:
    home.ok("daemon", "start")
    daemon = home.connect()
    trust = daemon.call("GET", "/v1/stats")[1]["trust"]
    assert trust["mode"] == "signed" and trust["key"] is None and trust["trusted_keys"] == 0
    made = keys(home, "init")
    deadline = time.monotonic() + 60
    while trust["key"] is None and time.monotonic() < deadline:
        time.sleep(0.2)
        trust = daemon.call("GET", "/v1/stats")[1]["trust"]
    assert (trust["key"], trust["trusted_keys"], trust["problem"]) == (made["own"], 1, "")
    assert set(trust["refused"].values()) == {0}
    log = (home.store / "daemon.log").read_text()
    assert secret_of(Path(made["sign_key"])) not in log
    daemon.close()


def test_believing_everybody_is_told_loudly(home: Home) -> None:
    home.ok("daemon", "start", NEURONCACHE_TRUST="any")
    assert "trust = any" in (home.store / "daemon.log").read_text()
