"""Room to build, recorded actions and their queue: several processes, real deaths, real restarts."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from daemon_support import Client, Home, digest, eventually, key_of, parts_of

MB = 1_000_000
LIMITED = ("--build-memory", "1000MB", "--build-memory-guess", "300MB", "--build-cores", "64")


def admit(client: Client, name: str, lease: dict[str, Any], **fields: Any) -> Any:
    body = {"lease": lease["id"], "key": key_of(name), "fence": lease["fence"], "compiler": "stub 1", **fields}
    answer = client.call("POST", "/v1/admission", body)
    assert answer.status == 200, answer.body
    return answer.json


BUILDER = """
import sys
sys.path.insert(0, sys.argv[1])
from daemon_support import Client
from test_admission import admit
client = Client(sys.argv[2])
lease = client.acquire(sys.argv[3])["lease"]
while admit(client, sys.argv[3], lease, wait_ms=20_000)["state"] != "admitted":
    pass
print("admitted", flush=True)
sys.stdin.read()
"""
WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from daemon_support import Client
print(Client(sys.argv[2]).call("POST", "/v1/queue/take", {}).json["state"], flush=True)
sys.stdin.read()
"""


def process(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(Path(__file__).parent), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def said(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(*processes: subprocess.Popen[bytes]) -> None:
    for one in processes:
        one.kill()
        one.wait()


def reserved(client: Client) -> int:
    return int(client.get("/v1/builds")["reserved_bytes"])


def test_sixty_four_keys_at_once_stay_within_the_budget(home: Home) -> None:
    home.start(*LIMITED)
    lock = threading.Lock()
    now: set[str] = set()
    most = 0
    wrong: list[str] = []

    def build(name: str) -> None:
        nonlocal most
        mine = home.client()
        lease = mine.acquire(name)["lease"]
        while admit(mine, name, lease, wait_ms=20_000)["state"] != "admitted":
            pass
        with lock:
            now.add(name)
            most = max(most, len(now))
        view = mine.get("/v1/builds")
        if view["reserved_bytes"] > view["budget_bytes"]:
            wrong.append(str(view))
        time.sleep(0.005)
        with lock:
            now.remove(name)
        assert mine.commit(name, lease, {"out": name.encode()}).status == 201
        mine.close()

    threads = [threading.Thread(target=build, args=(f"k{i}",)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 1 <= most <= 3
    client = home.client()
    view = client.get("/v1/builds")
    assert (view["reserved_bytes"], view["running"], view["waiting"]) == (0, [], [])
    assert client.counters()["published"] == 64


def test_a_killed_builder_makes_room_at_once(home: Home) -> None:
    home.start(*LIMITED, "--lease-ttl", "10m", "--build-memory", "400MB")
    first = process(BUILDER, home.socket, "a")
    assert said(first) == b"admitted"
    second = process(BUILDER, home.socket, "b")
    client = home.client()
    assert eventually(lambda: len(client.get("/v1/builds")["waiting"]) == 1)
    stats = client.get("/v1/stats")["builds"]
    assert (stats["running"], stats["waiting"], stats["reserved_bytes"]) == (1, 1, 300 * MB)
    first.send_signal(signal.SIGKILL)
    assert said(second) == b"admitted"
    assert reserved(client) == 300 * MB
    assert client.counters()["admission_waits"] == 1
    end(first, second)
    assert eventually(lambda: reserved(client) == 0)


def test_a_daemon_killed_and_started_again_knows_what_runs(home: Home) -> None:
    limits = (*LIMITED, "--lease-ttl", "10m", "--build-memory", "400MB")
    daemon = home.start(*limits)
    first = process(BUILDER, home.socket, "a")
    assert said(first) == b"admitted"
    end(daemon)
    home.start(*limits)
    client = home.client()
    assert reserved(client) == 300 * MB
    lease = client.acquire("b")["lease"]
    assert admit(client, "b", lease)["state"] == "waiting"
    end(first)
    assert admit(client, "b", lease, wait_ms=20_000)["state"] == "admitted"
    assert eventually(lambda: reserved(client) == 300 * MB)


def test_unset_the_budget_is_made_from_what_the_host_has(home: Home) -> None:
    home.start("--build-memory-guess", "1MB")
    client = home.client()
    view = client.get("/v1/builds")
    total = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
    assert view["automatic"] is True
    assert 0 < view["budget_bytes"] <= total * 1024 * 8 // 10
    assert view["cores"] >= 1
    assert admit(client, "a", client.acquire("a")["lease"])["state"] == "admitted"


def record(client: Client, name: str) -> None:
    data = b"input of " + name.encode()
    assert client.put_blob(data).status in (200, 201)
    body = {"v": 1, "key": key_of(name), "kind": "neff", "parts": parts_of(name), "argv": ["compile", "{in/model}"]}
    body["inputs"] = [{"name": "model", "digest": digest(data), "size": len(data), "mode": 0o644}]
    assert client.call("PUT", f"/v1/recordings/run/actions/{key_of(name)}", body).status == 201


def counts(client: Client) -> Any:
    return client.get("/v1/queue")["counts"]


def test_the_queue_survives_deaths_of_workers_and_daemon(home: Home) -> None:
    daemon = home.start("--lease-ttl", "10m")
    client = home.client()
    for name in ("a", "b", "c"):
        record(client, name)
    assert client.call("POST", "/v1/queue", {"recording": "run"}).json["queued"] == 3
    first, second = process(WORKER, home.socket), process(WORKER, home.socket)
    assert said(first) == said(second) == b"job"
    assert counts(client) == {"queued": 1, "building": 2, "built": 0, "failed": 0}
    end(daemon)
    end(first)  # while nobody looks
    home.start("--lease-ttl", "10m")
    client = home.client()
    assert counts(client) == {"queued": 2, "building": 1, "built": 0, "failed": 0}
    end(second)
    assert eventually(lambda: bool(counts(client)["queued"] == 3))
    for _ in range(3):
        job = client.call("POST", "/v1/queue/take", {}).json
        assert job["state"] == "job"
        name = next(n for n in ("a", "b", "c") if key_of(n) == job["key"])
        data = job["record"]["inputs"][0]["digest"]
        assert client.call("GET", f"/v1/blobs/{data}").body == b"input of " + name.encode()
        assert client.commit(name, job["lease"], {"out": b"x"}).status == 201
    assert counts(client) == {"queued": 0, "building": 0, "built": 3, "failed": 0}
    assert client.acquire("a")["state"] == "hit"


def test_inputs_of_recordings_are_not_pruned(home: Home) -> None:
    home.start("--orphan-grace", "0s")
    client = home.client()
    record(client, "a")
    pruned = client.call("POST", "/v1/prune", {}).json
    assert pruned["count"] == 0
    assert [kept["why"] for kept in pruned["kept"]] == ["in_use"]
    assert client.call("DELETE", "/v1/recordings/run").status == 200
    assert client.call("POST", "/v1/prune", {}).json["count"] == 1
    assert client.call("HEAD", f"/v1/blobs/{digest(b'input of a')}").status == 404
