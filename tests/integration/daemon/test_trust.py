"""Entries on their way between hosts: whom a daemon believes, and that nobody slips it anything."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_support import Client, Home, eventually, key_of, manifest
from remote_support import RemoteHome


class Host(RemoteHome):
    """A host with a key of its own that shares a directory with others."""

    def __init__(self, shared: Path) -> None:
        Home.__init__(self)
        self.conf = self.dir / "conf"
        self.conf.mkdir(mode=0o700)
        self.key = self.cli("keys", "init")["keys"][0]
        self.shared = shared

    def go(self) -> Client:
        self.start("--tiers", f"file://{self.shared}?compression=none")
        return self.client()

    def trusts(self, other: Host, *words: str) -> None:
        self.cli("keys", "trust", other.key["key"], *words)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host, Path]]:
    shared = tmp_path / "shared"
    shared.mkdir()
    one, two = Host(shared), Host(shared)
    yield one, two, shared
    one.clean()
    two.clean()


def entry_file(shared: Path, name: str) -> Path:
    key = key_of(name)
    return shared / "v1" / "entries" / key[:2] / key


def sent(shared: Path, name: str) -> dict[str, Any]:
    assert eventually(lambda: entry_file(shared, name).exists())
    document: dict[str, Any] = json.loads(entry_file(shared, name).read_text())
    return document


def build(client: Client, name: str, namespace: str = "default") -> None:
    """Waits for the tiers to be asked, and then builds."""
    asked = client.acquire(name, namespace=namespace, wait_ms=20_000)
    assert asked["state"] == "lease", asked
    lease, blobs = asked["lease"], {"out": name.encode()}
    assert client.put_blob(blobs["out"], f"?lease={lease['id']}").status in (200, 201)
    target = f"/v1/actions/{key_of(name)}?lease={lease['id']}&fence={lease['fence']}"
    assert client.call("PUT", target, {**manifest(name, blobs), "namespace": namespace}).status == 201


def refused(client: Client) -> dict[str, int]:
    counts: dict[str, int] = client.get("/v1/stats")["trust"]["refused"]
    return {reason: count for reason, count in counts.items() if count}


def test_only_trusted_entries_are_taken_and_bad_ones_are_replaced(hosts: tuple[Host, Host, Path]) -> None:
    one, two, shared = hosts
    first, second = one.go(), two.go()
    build(first, "a")
    assert sent(shared, "a")["signature"]["key"] == one.key["id"]
    lookup = second.acquire("a", intent="lookup")
    assert lookup["state"] == "miss" and refused(second) == {"unknown_key": 1}
    two.trusts(one)

    def believed() -> bool:
        return bool(second.acquire("b", intent="lookup")["state"] == "hit")

    build(first, "b")
    sent(shared, "b")
    assert eventually(believed)

    # Somebody who can write to the directory, and no more.
    entry = sent(shared, "a")
    entry["outputs"][0]["mode"] = 0o755
    entry_file(shared, "a").write_text(json.dumps(entry))
    assert second.acquire("a", wait_ms=20_000)["state"] == "lease", "as if there were none"
    assert refused(second)["bad_signature"] >= 1
    log = two.log_text()
    assert "is not believed" in log and str(shared) in log
    build(second, "c")
    assert sent(shared, "c")["signature"]["key"] == two.key["id"]
    first.close()
    second.close()


def test_strangers_share_a_directory_without_harm_to_either(hosts: tuple[Host, Host, Path]) -> None:
    one, two, shared = hosts
    first, second = one.go(), two.go()
    build(first, "a")
    assert sent(shared, "a")["signature"]["key"] == one.key["id"]
    build(second, "a")
    beside = entry_file(shared, "a").with_name(key_of("a") + ".1")
    assert eventually(beside.exists)
    assert second.acquire("a", intent="lookup")["state"] == "hit"
    assert json.loads(beside.read_text())["signature"]["key"] == two.key["id"]
    assert sent(shared, "a")["signature"]["key"] == one.key["id"], "it is there still"

    # Neither a repair nor a collection takes the other's away; what is no use to anybody goes.
    spoiled = entry_file(shared, "b")
    spoiled.parent.mkdir(parents=True, exist_ok=True)
    spoiled.write_bytes(entry_file(shared, "a").read_bytes())
    large = entry_file(shared, "c")
    large.parent.mkdir(parents=True, exist_ok=True)
    large.write_bytes(b" " * (2 << 20))
    (blob,) = [path for path in (shared / "v1/blobs").rglob("*") if path.is_file()]
    for digit in "01":
        (shared / "v1/blobs" / (digit * 2)).mkdir(exist_ok=True)
    (shared / "v1/blobs/00" / ("0" * 64)).symlink_to("/etc/passwd")
    os.mkfifo(shared / "v1/blobs/11" / ("1" * 64))
    counted = second.call("POST", "/v1/tiers/collect", {"dry_run": True}).json
    assert (counted["entries"], counted["damaged"], counted["unused"]) == (4, 1, 2)
    checked = second.call("POST", "/v1/tiers/verify", {"deep": True, "repair": True}).json
    assert sorted(bad["what"] for bad in checked["bad"]) == sorted((key_of("b"), key_of("c")))
    assert [untrusted["what"] for untrusted in checked["untrusted"]] == [key_of("a")]
    assert entry_file(shared, "a").exists() and beside.exists() and not spoiled.exists() and not large.exists()
    assert refused(second)["wrong_key"] == 1
    log = two.log_text()
    assert f"{shared}: entry {key_of('a')}" in log and key_of("b") in log, "with its origin"

    # An entry whose blob is no file.
    blob.unlink()
    blob.symlink_to("/etc/passwd")
    checked = second.call("POST", "/v1/tiers/verify", {"deep": True, "repair": True}).json
    assert [bad["problem"] for bad in checked["bad"]] == ["the blob is no file"]
    assert not beside.exists() and not blob.exists()
    checked = second.call("POST", "/v1/tiers/verify", {"repair": True, "untrusted": True}).json
    assert len(checked["untrusted"]) == 1 and not entry_file(shared, "a").exists()

    # Whoever imports a file vouches for it, whoever signed what is in it.
    build(first, "z")
    document = first.call("GET", f"/v1/actions/{key_of('z')}").json
    assert document["signature"]["key"] == one.key["id"]
    assert second.put_blob(b"z").status in (200, 201)
    assert second.call("PUT", f"/v1/actions/{key_of('z')}?import=1", document).status == 201
    assert second.acquire("z", intent="lookup")["state"] == "hit"
    first.close()
    second.close()


def test_a_role_is_for_its_namespaces_alone(hosts: tuple[Host, Host, Path]) -> None:
    one, two, shared = hosts
    two.trusts(one, "--write", "team-a")
    first, second = one.go(), two.go()
    build(first, "x", "team-a")
    sent(shared, "x")

    assert second.acquire("x", intent="lookup")["state"] == "miss", "the key is the same, the namespace is not"
    assert refused(second) == {"role": 1}
    assert eventually(lambda: second.acquire("x", intent="lookup", namespace="team-a")["state"] == "hit")
    assert second.acquire("x", intent="lookup")["state"] == "miss", "also when it is here"
    assert second.acquire("x", intent="lookup", namespace="team-a")["state"] == "hit"

    two.cli("keys", "revoke", one.key["id"])
    assert eventually(lambda: second.acquire("x", intent="lookup", namespace="team-a")["state"] == "miss")
    assert refused(second)["revoked"] >= 1
    # What is built instead takes its place here, and is signed when it is.
    build(second, "x", "team-a")
    assert second.acquire("x", intent="lookup", namespace="team-a")["state"] == "hit"
    kept = second.call("GET", f"/v1/actions/{key_of('x')}").json
    assert kept["signature"]["key"] == two.key["id"]
    first.close()
    second.close()


def test_no_credential_of_a_tier_is_told(home: Home) -> None:
    secret = "s3cr3t-of-the-tier"
    home.start("--tiers", f"redis://me:{secret}@127.0.0.1:1/0 https://me:{secret}@127.0.0.1:1/x")
    client = home.client()
    build(client, "x")
    client.acquire("y", intent="lookup")
    texts = [
        client.call("GET", target).body.decode() for target in ("/v1/stats", "/v1/config", "/v1/misses", "/v1/tiers")
    ]
    texts.append(home.log_text())
    for pid in home.pids():
        texts.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode())
    assert any("redis://" in text for text in texts)
    assert not [text for text in texts if secret in text]
    client.close()
