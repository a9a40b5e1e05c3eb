"""Daemons of two hosts with a shared tier between them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_support import Client, Home, digest, eventually, key_of, manifest

DATA = {"out": bytes(range(256)) * 1500, "log": b"what the compiler said"}


class Cluster:
    """Homes of hosts, each with its own store, and the directory that they share."""

    def __init__(self) -> None:
        self.a, self.b = Home(), Home()
        self.dir = self.a.dir / "tier"
        self.dir.mkdir()
        self.clients: list[Client] = []

    def start(self, home: Home, *flags: str, options: str = "", trust: str = "any") -> Client:
        home.start("--tiers", f"file://{self.dir}{options}", "--trust", trust, *flags)
        client = home.client()
        self.clients.append(client)
        return client

    def entry(self, name: str) -> Path:
        key = key_of(name)
        return self.dir / "v1" / "entries" / key[:2] / key

    def blobs(self) -> list[Path]:
        return sorted(p for p in (self.dir / "v1" / "blobs").rglob("*") if p.is_file())

    def clean(self) -> None:
        for client in self.clients:
            client.close()
        self.a.clean()
        self.b.clean()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.clean()


def ask(client: Client, name: str, **fields: Any) -> Any:
    """As programs do: while the daemon asks the tiers, wait."""
    answer = client.acquire(name, wait_ms=20_000, **fields)
    while answer["state"] == "building":
        assert answer["builder"]["program"] == "neuroncached"
        answer = client.acquire(name, wait_ms=20_000, ticket=answer["ticket"], **fields)
    return answer


def build(client: Client, name: str) -> None:
    answer = ask(client, name)
    assert answer["state"] == "lease", answer
    assert client.commit(name, answer["lease"], DATA).status == 201


def bytes_of(client: Client, answer: Any) -> dict[str, bytes]:
    return {name: client.call("GET", f"/v1/blobs/{blob['digest']}").body for name, blob in answer["blobs"].items()}


def tier(client: Client) -> Any:
    (one,) = client.get("/v1/tiers")["tiers"]
    counters = one["counters"]
    outcomes = ("hits", "absent", "denied", "failed", "timed_out", "refused", "corrupt", "skipped")
    assert counters["asked"] == sum(counters[name] for name in outcomes)
    return one


def test_what_tiers_did_is_counted_over_restarts(cluster: Cluster) -> None:
    a = cluster.start(cluster.a)
    build(a, "one")
    assert eventually(lambda: tier(a)["counters"]["sent"] == 1)
    before = tier(a)
    assert before["counters"]["absent"] == 1 and before["counters"]["bytes_out"] > 0
    stopping = cluster.a.started[-1]
    stopping.terminate()
    assert stopping.wait(60) == 0
    a = cluster.start(cluster.a)
    assert tier(a)["counters"] == before["counters"] and tier(a)["entry_ms"] == before["entry_ms"]
    build(a, "two")
    assert eventually(lambda: tier(a)["counters"]["sent"] == 2)
    cluster.a.started[-1].kill()  # which may cost what was counted in the last second or so
    cluster.a.started[-1].wait()
    assert tier(cluster.start(cluster.a))["counters"]["sent"] in (1, 2)
    # A tier that was left out of the settings meanwhile begins anew.
    cluster.a.started[-1].terminate()
    cluster.a.started[-1].wait(60)
    cluster.a.start("--trust", "any")
    assert cluster.a.client().get("/v1/tiers")["tiers"] == []
    cluster.a.started[-1].terminate()
    cluster.a.started[-1].wait(60)
    assert tier(cluster.start(cluster.a))["counters"]["asked"] == 0


def test_what_one_host_built_another_has(cluster: Cluster) -> None:
    a, b = cluster.start(cluster.a), cluster.start(cluster.b)
    build(a, "one")
    assert eventually(cluster.entry("one").exists)
    answer = ask(b, "one")
    assert answer["state"] == "hit" and not answer["waited"]
    assert bytes_of(b, answer) == DATA
    counters = b.counters()
    assert (counters["hits"], counters["builds"], counters["waits"], counters["tier_hits"]) == (1, 0, 0, 1)
    assert tier(b)["counters"]["hits"] == 1 and tier(b)["hit_share"] == 1
    assert ask(b, "one")["state"] == "hit" and tier(b)["counters"]["asked"] == 1
    # Who only looks is answered from there, too; and what nobody has is a miss for both kinds.
    build(a, "two")
    assert eventually(cluster.entry("two").exists)
    assert ask(b, "two", intent="lookup")["state"] == "hit"
    assert ask(b, "three", intent="lookup")["state"] == "miss"
    assert ask(b, "three")["state"] == "lease"
    counters = a.counters()
    assert (counters["builds"], counters["lease_takeovers"], counters["bypasses"]) == (2, 0, 0)
    sent = tier(a)
    assert sent["counters"]["sent"] == 2 and sent["queued"] == 0
    assert sent["address"] == f"file://{cluster.dir}" and sent["reading"]["state"] == "closed"


def test_many_clients_ask_the_tier_once(cluster: Cluster) -> None:
    a, b = cluster.start(cluster.a), cluster.start(cluster.b)
    build(a, "one")
    assert eventually(cluster.entry("one").exists)
    clients = [cluster.b.client() for _ in range(8)]
    try:
        for client in clients:
            body = '{"intent":"build","wait_ms":20000,"parts":[["compiler","stub 1"],["graph","one"]]}'
            client.http.request("POST", f"/v1/actions/{key_of('one')}/acquire", body.encode())
        for client in clients:
            response = client.http.getresponse()
            assert b'"state":"hit"' in response.read()
    finally:
        for client in clients:
            client.close()
    assert tier(b)["counters"]["asked"] == 1
    counters = b.counters()
    assert (counters["hits"], counters["builds"], counters["tier_hits"]) == (8, 0, 1)


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x" * 100_000)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("spoil", [garbage, cut, grow, link])
def test_what_is_spoiled_is_never_served(cluster: Cluster, spoil: Callable[[Path], None]) -> None:
    # Without leases the tier is asked exactly once for each key.
    a, b = cluster.start(cluster.a), cluster.start(cluster.b, "--cluster-leases", "off")
    for name in ("one", "two", "three"):
        build(a, name)
        assert eventually(cluster.entry(name).exists)
    spoil(cluster.entry("one"))
    # Another key's entry under this name.
    shutil.copy(cluster.entry("three"), cluster.entry("two"))
    assert ask(b, "one")["state"] == "lease"
    assert ask(b, "two")["state"] == "lease"
    for path in cluster.blobs():
        spoil(path)
    answer = ask(b, "three")
    assert answer["state"] == "lease"
    assert b.commit("three", answer["lease"], DATA).status == 201
    assert bytes_of(b, ask(b, "three")) == DATA
    counters = tier(b)["counters"]
    assert counters["hits"] == 0 and counters["corrupt"] == 3
    checked = b.call("POST", "/v1/verify", {"limit": 1000}).json
    assert checked["bad"] == []


def test_what_is_no_file_masks_no_entry(cluster: Cluster) -> None:
    a, b = cluster.start(cluster.a), cluster.start(cluster.b)
    cluster.entry("one").mkdir(parents=True)
    build(a, "one")
    assert eventually(cluster.entry("one").with_name(key_of("one") + ".1").exists)
    answer = ask(b, "one")
    assert answer["state"] == "hit" and bytes_of(b, answer) == DATA


def test_what_a_tier_has_no_place_for_is_told_of_and_sent_later(cluster: Cluster) -> None:
    aside = cluster.dir / "~aside"
    aside.symlink_to("/etc")
    a = cluster.start(cluster.a, "--cluster-leases", "off")
    build(a, "one")
    assert eventually(lambda: tier(a)["counters"]["send_failed"] >= 1)
    assert tier(a)["queued"] == 1 and f"{aside} in the tier is not what belongs there" in cluster.a.log_text()
    aside.unlink()
    assert eventually(lambda: tier(a)["counters"]["sent"] == 1)
    assert ask(cluster.start(cluster.b), "one")["state"] == "hit"


def test_a_job_goes_on_without_the_tier(cluster: Cluster) -> None:
    a = cluster.start(cluster.a)
    cluster.dir.rename(cluster.dir.with_name("away"))
    for number in range(5):
        build(a, f"lost {number}")
    one = tier(a)
    assert one["counters"]["failed"] + one["counters"]["skipped"] == 5
    assert one["queued"] + one["sending"] == 5 and not cluster.dir.exists()
    cluster.dir.with_name("away").rename(cluster.dir)
    assert eventually(lambda: all(cluster.entry(f"lost {number}").exists() for number in range(5)))
    assert eventually(lambda: tier(a)["queued"] + tier(a)["sending"] == 0)


@pytest.mark.skipif(not Path("/dev/full").exists() or os.geteuid() != 0, reason="needs to mount a small file system")
def test_a_full_tier_is_told_of_and_delivered_to_later(cluster: Cluster) -> None:
    if os.system(f"mount -t tmpfs -o size=64k tmpfs {cluster.dir} 2>/dev/null") != 0:
        pytest.skip("this container may not mount")
    try:
        a = cluster.start(cluster.a, options="?compression=none")
        build(a, "one")
        assert eventually(lambda: "space" in tier(a)["writing"]["problem"])
        assert not cluster.entry("one").exists() and tier(a)["counters"]["sent"] == 0
        assert ask(a, "one")["state"] == "hit"
        assert os.system(f"mount -o remount,size=8m {cluster.dir}") == 0
        assert eventually(cluster.entry("one").exists)
    finally:
        for home in (cluster.a, cluster.b):
            for pid in home.pids():
                os.kill(pid, signal.SIGKILL)
        os.system(f"umount -l {cluster.dir}")


def test_pending_write_backs_survive_a_kill(cluster: Cluster) -> None:
    a = cluster.start(cluster.a)
    cluster.dir.rename(cluster.dir.with_name("away"))
    for number in range(6):
        build(a, f"late {number}")
    (pid,) = cluster.a.pids()
    os.kill(pid, signal.SIGKILL)
    cluster.a.started[0].wait()
    cluster.dir.with_name("away").rename(cluster.dir)
    a = cluster.start(cluster.a)
    # And killed once more while it sends.
    assert eventually(lambda: any(cluster.entry(f"late {number}").exists() for number in range(6)))
    (pid,) = cluster.a.pids()
    os.kill(pid, signal.SIGKILL)
    cluster.a.started[1].wait()
    a = cluster.start(cluster.a)
    assert eventually(lambda: all(cluster.entry(f"late {number}").exists() for number in range(6)))
    assert eventually(lambda: tier(a)["queued"] + tier(a)["sending"] == 0)
    b = cluster.start(cluster.b)
    for number in range(6):
        answer = ask(b, f"late {number}")
        assert answer["state"] == "hit" and bytes_of(b, answer) == DATA
    checked = b.call("POST", "/v1/tiers/verify", {"deep": True}).json
    assert checked["bad"] == [] and checked["checked"] >= 6


def test_unsigned_entries_are_not_believed_and_not_sent(cluster: Cluster) -> None:
    a, b = cluster.start(cluster.a), cluster.start(cluster.b, "--cluster-leases", "off", trust="signed")
    build(a, "one")
    assert eventually(cluster.entry("one").exists)
    build(b, "one")
    build(b, "two")
    assert tier(b)["counters"]["refused"] == 1
    assert eventually(lambda: tier(b)["counters"]["unsigned"] == 2)
    assert tier(b)["queued"] == 0 and not cluster.entry("two").exists()
    trust = b.get("/v1/stats")["trust"]
    assert trust["refused"]["unsigned"] == 1


def test_read_only_and_write_only(cluster: Cluster) -> None:
    a, b = cluster.start(cluster.a, options="?write_only=true"), cluster.start(cluster.b, options="?read_only=true")
    build(a, "one")
    assert eventually(cluster.entry("one").exists)
    assert ask(b, "one")["state"] == "hit"
    build(b, "two")
    build(a, "two")
    assert tier(a)["counters"]["asked"] == 0
    assert tier(b)["counters"]["sent"] == 0 and tier(b)["queued"] == 0
    assert b.call("POST", "/v1/tiers/push", {}).code == "read_only"


def test_an_address_that_cannot_be_used_is_told_of(home: Home) -> None:
    home.start("--tiers", "file:///a?colour=blue redis://user:hunter2@localhost/x?wrong=1")
    client = home.client()
    problems = client.get("/v1/tiers")["problems"]
    assert len(problems) == 2 and "colour" in problems[0]["problem"]
    client.build("one")  # without tiers, as ever
    (setting,) = [row for row in client.get("/v1/config")["settings"] if row["name"] == "tiers"]
    assert "redis://***@localhost/x" in setting["value"]
    for text in (home.log_text(), client.call("GET", "/v1/tiers").body.decode(), setting["value"]):
        assert "hunter2" not in text
    client.close()


def test_push_pull_prune_and_collect(cluster: Cluster) -> None:
    a, b = cluster.start(cluster.a, options="?read_only=true"), cluster.start(cluster.b)
    for name in ("one", "two"):
        build(a, name)
    a.close()
    cluster.a.started[0].terminate()
    cluster.a.started[0].wait()
    a = cluster.start(cluster.a)
    would = a.call("POST", "/v1/tiers/push", {"compiler": "stub", "dry_run": True}).json
    assert [row["state"] for row in would["entries"]] == ["found", "found"]
    assert not cluster.entry("one").exists()
    assert a.call("POST", "/v1/tiers/push", {"model": "none"}).json["entries"] == []
    a.call("POST", "/v1/tiers/push", {})
    assert eventually(lambda: cluster.entry("one").exists() and cluster.entry("two").exists())
    first = b.call("POST", "/v1/tiers/pull", {"limit": 1}).json
    rest = b.call("POST", "/v1/tiers/pull", {"after": first["next"]}).json
    assert [row["state"] for row in first["entries"] + rest["entries"]] == ["pulled", "pulled"]
    assert rest["next"] is None
    assert b.acquire("one")["state"] == "hit"
    assert b.call("POST", "/v1/tiers/prune", {"older_than_s": 3600}).json["entries"] == []
    gone = b.call("POST", "/v1/tiers/prune", {"compiler": "stub"}).json
    assert len(gone["entries"]) == 2 and not cluster.entry("one").exists()
    collected = b.call("POST", "/v1/tiers/collect", {}).json
    assert (collected["unused"], collected["marked"], collected["removed"]) == (2, 2, 0)
    # Two days later, as the marks tell it.
    for mark in (cluster.dir / "v1" / "marks").rglob("*"):
        if mark.is_file():
            mark.write_text(str(int(time.time() * 1000) - 2 * 86_400_000))
    # One of the two blobs is wanted again before that.
    third = {"log": DATA["log"]}
    lease = ask(b, "three")["lease"]
    assert b.commit("three", lease, third).status == 201
    assert eventually(cluster.entry("three").exists)
    collected = b.call("POST", "/v1/tiers/collect", {}).json
    assert (collected["unused"], collected["removed"]) == (1, 1)
    (left,) = cluster.blobs()
    assert left.name == digest(DATA["log"])


def test_without_tiers_nothing_is_asked(home: Home) -> None:
    home.start()
    client = home.client()
    assert client.get("/v1/tiers") == {"tiers": [], "problems": [], "dropped": 0}
    assert client.call("POST", "/v1/tiers/pull", {}).code == "not_found"
    assert client.acquire("one")["state"] == "lease"
    assert client.call("PUT", f"/v1/actions/{key_of('x')}?import=1", manifest("x", {})).status in (201, 400)
    client.close()
