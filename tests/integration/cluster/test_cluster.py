"""One compile per cluster, with real daemons, real processes and a real tier."""

from __future__ import annotations

import os
import time

import faulty_proxy
import tier_servers
from cluster_support import SHORT, Cluster, eventually, keys
from daemon_support import key_of

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def test_a_daemon_that_restarts_keeps_its_lease(cluster: Cluster) -> None:
    first, second = cluster.add(), cluster.add()
    names = keys(1)
    cluster.run(first, names, build_s=4, patient=True)
    assert eventually(lambda: cluster.noted("begun") == names)
    cluster.run(second, names)
    assert eventually(lambda: second.stats()["cluster"]["waiting"] == 1)
    first.kill()
    first.start()
    assert eventually(lambda: first.stats()["cluster"]["held"] == 1)
    cluster.join()
    assert cluster.noted("begun") == names
    cluster.settled()


def test_waiters_see_who_builds_elsewhere(cluster: Cluster) -> None:
    first, second = cluster.add(), cluster.add()
    cluster.run(first, keys(1), build_s=2)
    assert eventually(lambda: cluster.noted("begun") == keys(1))
    client = second.client()
    seen = []

    def told() -> bool:
        answer = client.acquire(keys(1)[0], wait_ms=100)
        seen.append(answer)
        return answer["state"] == "building" and answer["builder"]["program"] != "neuroncached"

    assert eventually(told), seen[-1]
    assert seen[-1]["builder"]["host"] == os.uname().nodename
    assert seen[-1]["elapsed_s"] < 60
    client.close()
    cluster.join()


def test_a_tier_that_is_gone_does_not_stop_anybody(cluster: Cluster) -> None:
    port = tier_servers.free_port()  # nobody listens
    for _ in range(2):
        cluster.add([f"s3://tier-bucket/fleet?endpoint=http://127.0.0.1:{port}&region=us-east-1"], CREDENTIALS)
    for host in cluster.hosts:
        cluster.run(host, keys(3))
    cluster.join()
    assert len(cluster.noted("built")) == 6
    for host in cluster.hosts:
        assert host.stats()["cluster"]["alone"] >= 1


def test_a_tier_that_is_sick_in_every_way_gives_nobody_a_wrong_entry(cluster: Cluster) -> None:
    names = keys(6)
    with tier_servers.moto() as url, faulty_proxy.proxy(int(url.rsplit(":", 1)[1]), 0.15, 7) as proxy:
        tier = f"s3://tier-bucket/fleet?endpoint=http://127.0.0.1:{proxy.server_address[1]}&region=us-east-1"
        for _ in range(2):
            cluster.add([tier + "&timeout=3s"], CREDENTIALS)
        for _ in range(2):
            for host in cluster.hosts:
                cluster.run(host, names)
        cluster.join()  # each rank has compared what it got
        proxy.share = 0
        assert sum(proxy.done[fault] for fault in faulty_proxy.FAULTS) > 0
        assert set(cluster.noted("built")) == set(names)
        for host in cluster.hosts:
            assert host.stats()["counters"]["builds"] <= len(names)
            assert host.stats()["counters"]["failures"] == 0
        cluster.settled()


def test_the_wait_for_another_host_can_be_bounded(cluster: Cluster) -> None:
    first = cluster.add()
    second = cluster.add(cluster_wait="1s")
    cluster.run(first, keys(1), build_s=60)  # killed at the end
    assert eventually(lambda: cluster.noted("begun") == keys(1))
    impatient = cluster.run(second, keys(1))
    impatient.join(60)
    assert impatient.exitcode == 0
    assert cluster.noted("built") == keys(1)
    assert second.stats()["cluster"]["alone"] == 1


def test_leases_that_anybody_scribbled_on_hold_nobody_up(cluster: Cluster) -> None:
    key = key_of(keys(1)[0])
    row = cluster.tier / "v1" / "leases" / key[:2] / key
    row.mkdir(parents=True)
    (row / f"{1:020}").write_bytes(b"\0garbage" * 100)
    host = cluster.add(cluster_lease_period=SHORT)
    cluster.run(host, keys(1))
    cluster.join()
    assert host.stats()["cluster"]["garbage"] == 1
    cluster.settled()
    assert cluster.lease_objects() == []


def test_a_tier_that_cannot_be_written_lets_each_host_build(cluster: Cluster) -> None:
    for _ in range(2):
        cluster.add([f"file://{cluster.tier}?read_only=true"])
    for host in cluster.hosts:
        cluster.run(host, keys(2))
    cluster.join()
    assert len(cluster.noted("built")) == 4
    assert [path for path in cluster.tier.rglob("*") if path.is_file()] == []


def test_nobody_waits_for_what_the_tier_does_not_take(cluster: Cluster) -> None:
    for _ in range(2):
        cluster.add([f"file://{cluster.tier}?max_bytes=1"])
    first, second = cluster.hosts
    cluster.run(first, ["fits"])
    cluster.join()
    cluster.run(first, keys(1), build_s=2)
    assert eventually(lambda: cluster.noted("begun") == sorted(["fits", *keys(1)]))
    waiter = cluster.run(second, keys(1))
    begun = time.monotonic()
    waiter.join(60)
    assert waiter.exitcode == 0 and time.monotonic() - begun < 8, "less than a period"
    assert cluster.noted("built").count(keys(1)[0]) == 2
    cluster.join()


def test_a_host_whose_disk_is_full_leaves_the_build_to_another(cluster: Cluster) -> None:
    full, well = cluster.add(min_free="1000000GiB"), cluster.add()
    client = full.client()

    def leased() -> bool:
        answer = client.acquire(keys(1)[0], wait_ms=100)
        state.append(answer)
        return answer["state"] == "lease"

    state: list[dict[str, object]] = []
    assert eventually(leased)
    lease = state[-1]["lease"]
    assert isinstance(lease, dict)
    waiter = cluster.run(well, keys(1))
    assert eventually(lambda: well.stats()["cluster"]["waiting"] == 1)
    assert client.put_blob(b"x" * 100_000, f"?lease={lease['id']}").code == "no_space"
    failed = {"key": key_of(keys(1)[0]), "fence": lease["fence"], "class": "disk_full", "message": "the store is full"}
    assert client.call("POST", f"/v1/leases/{lease['id']}/fail", failed).status == 200
    waiter.join(60)
    assert waiter.exitcode == 0
    assert cluster.noted("built") == keys(1)
    assert well.stats()["cluster"]["takeovers"] == 0  # it was told, and waited for nothing
    client.close()


def test_leases_can_be_switched_off(cluster: Cluster) -> None:
    host = cluster.add(cluster_leases="off")
    cluster.run(host, keys(2))
    cluster.join()
    assert host.stats()["cluster"] is None
    assert cluster.lease_objects() == []
