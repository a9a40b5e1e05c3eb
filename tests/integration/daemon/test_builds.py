"""Look-ups, leases and uploads over a real socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from daemon_support import Client, Home, digest, eventually, key_of, manifest


def test_build_then_hit_by_path_and_inline(client: Client) -> None:
    large = os.urandom(300_000)
    client.build("a", {"lib.so": large, "note": b"small"})
    hit = client.acquire("a")
    assert hit["state"] == "hit"
    assert Path(hit["blobs"]["lib.so"]["path"]).read_bytes() == large
    assert hit["blobs"]["note"]["inline"] == "c21hbGw="
    assert hit["manifest"]["label"] == "a"
    assert client.counters()["hits"] == 1
    assert client.counters()["compile_seconds_saved"] == 2


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_bytes_come_back_as_they_went(client: Client, size: int) -> None:
    data = os.urandom(size)
    for query in ("", "?compress=never"):
        assert client.put_blob(data, query).status in (200, 201)
        answer = client.call("GET", f"/v1/blobs/{digest(data)}")
        assert answer.body == data
        head = client.call("HEAD", f"/v1/blobs/{digest(data)}")
        assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", str(size))


def test_a_compressible_blob_comes_back_too(client: Client) -> None:
    data = b"all the same " * 500_000
    assert client.put_blob(data, "?compress=auto").json["existed"] is False
    assert client.put_blob(data).json["existed"] is True
    assert client.call("GET", f"/v1/blobs/{digest(data)}").body == data


def test_wrong_bytes_are_refused_and_the_connection_goes_on(client: Client) -> None:
    answer = client.call("PUT", f"/v1/blobs/{digest(b'right')}", b"wrong")
    assert (answer.status, answer.code) == (422, "digest_mismatch")
    assert client.call("HEAD", f"/v1/blobs/{digest(b'right')}").status == 404
    assert client.put_blob(b"right").status == 201


def test_sixty_four_processes_one_build(home: Home, client: Client) -> None:
    lease = client.acquire("a")["lease"]
    answers: list[Any] = []
    lock = threading.Lock()

    def wait() -> None:
        mine = home.client()
        answer = mine.acquire("a", wait_ms=20_000)
        while answer["state"] == "building":
            answer = mine.acquire("a", wait_ms=20_000, ticket=answer["ticket"])
        with lock:
            answers.append(answer)
        mine.close()

    threads = [threading.Thread(target=wait) for _ in range(63)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: client.get("/v1/stats")["health"]["tickets"] == 63)
    assert client.commit("a", lease, {"out": b"x"}).status == 201
    for thread in threads:
        thread.join()
    assert [answer["state"] for answer in answers] == ["hit"] * 63
    counters = client.counters()
    assert (counters["builds"], counters["waits"], counters["lookups"]) == (1, 63, 64)


BUILDER = """
import sys
sys.path.insert(0, sys.argv[1])
from daemon_support import Client
client = Client(sys.argv[2])
print(client.acquire("a", wait_ms=20_000)["state"], flush=True)
sys.stdin.read()
"""


def builder(home: Home) -> subprocess.Popen[bytes]:
    """Another process that acquires the key "a", says what it got and stays."""
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(Path(__file__).parent), home.socket],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def said(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_lease_of_a_killed_builder_goes_to_the_next_at_once(home: Home) -> None:
    home.start("--lease-ttl", "10m")
    client = home.client()
    first = builder(home)
    assert said(first) == b"lease"
    second = builder(home)
    assert eventually(lambda: client.get("/v1/stats")["health"]["tickets"] == 1)
    first.send_signal(signal.SIGKILL)
    assert said(second) == b"lease"
    second.kill()
    assert eventually(lambda: client.get("/v1/leases")["leases"] == [])
    assert client.counters()["builds"] == 2
    assert client.counters()["lease_takeovers"] == 1
    for process in (first, second):
        process.wait()


def test_a_waiter_that_is_killed_is_counted_and_gets_nothing(home: Home, client: Client) -> None:
    lease = client.acquire("a")["lease"]
    waiter = builder(home)
    assert eventually(lambda: client.get("/v1/stats")["health"]["tickets"] == 1)
    waiter.kill()
    waiter.wait()
    assert eventually(lambda: client.get("/v1/stats")["bypass_reasons"].get("abandoned") == 1)
    released = client.call("DELETE", f"/v1/leases/{lease['id']}?key={key_of('a')}&fence={lease['fence']}")
    assert released.status == 200
    assert client.get("/v1/leases")["leases"] == []


def test_silence_ends_a_lease(home: Home) -> None:
    home.start("--lease-ttl", "1s")
    silent = home.client()
    old = silent.acquire("a")["lease"]
    assert old["ttl_ms"] == 1000
    other = home.client()
    new = other.acquire("a", wait_ms=20_000)["lease"]
    assert new["fence"] > old["fence"]
    late = silent.call("POST", f"/v1/leases/{old['id']}/heartbeat", {"key": key_of("a"), "fence": old["fence"]})
    assert (late.status, late.code) == (409, "lease_lost")
    stale = silent.commit("a", old, {"out": b"old"})
    assert (stale.status, stale.code) == (409, "lease_lost")


def test_a_commit_without_its_blobs_is_refused(client: Client) -> None:
    lease = client.acquire("a")["lease"]
    target = f"/v1/actions/{key_of('a')}?lease={lease['id']}&fence={lease['fence']}"
    answer = client.call("PUT", target, manifest("a", {"out": b"never sent"}))
    assert (answer.status, answer.code) == (404, "not_found")


def test_an_upload_that_breaks_off_gives_its_space_back(home: Home, client: Client) -> None:
    raw = home.raw()
    size = 64 << 20
    raw.send(f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nContent-Length: {size}\r\n\r\n".encode())
    raw.send(b"x" * (3 << 20))
    assert eventually(lambda: client.get("/v1/stats")["limits"]["reserved"] >= size)
    raw.close()
    assert eventually(lambda: client.get("/v1/stats")["limits"]["reserved"] == 0)
    assert list((home.store / "staging").iterdir()) == []


def test_an_upload_that_cannot_fit_is_refused_before_it_is_sent(home: Home) -> None:
    home.start("--max-blob", "1MiB")
    raw = home.raw()
    raw.send(f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nContent-Length: {1 << 40}\r\n\r\n".encode())
    answer = raw.answer()
    assert (answer.status, answer.code) == (413, "too_large")
    assert answer.headers["Connection"] == "close"
    client = home.client()
    client.build("a")
    assert client.acquire("a")["state"] == "hit"


def test_a_full_store_serves_hits_and_says_no_space(home: Home) -> None:
    home.start()
    client = home.client()
    client.build("a")
    client.close()
    # No file system has this much free: from now on nothing may be written.
    client = home.client()
    assert client.call("POST", "/v1/config", {"name": "min_free", "value": "1000000GiB"}).status == 200
    assert client.acquire("a")["state"] == "hit"
    lease = client.acquire("b")["lease"]
    answer = client.put_blob(b"z" * 100_000, f"?lease={lease['id']}")
    assert (answer.status, answer.code) == (507, "no_space")
    assert client.get("/v1/hello")["pid"]


def test_a_read_only_store_answers_misses(home: Home) -> None:
    home.start()
    client = home.client()
    client.build("a")
    beside = Home()
    beside.store = home.store
    try:
        beside.start("--read-only", "--exit-with-parent")
        reader = beside.client()
        assert reader.get("/v1/hello")["store"]["read_only"] is True
        assert reader.acquire("a")["state"] == "hit"
        assert reader.acquire("b")["state"] == "miss"
        refused = reader.put_blob(b"x" * 100_000)
        assert (refused.status, refused.code) == (403, "read_only")
    finally:
        beside.clean()
