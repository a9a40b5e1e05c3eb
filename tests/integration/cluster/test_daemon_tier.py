"""One compile per cluster where the tier is another host's neuroncached, which holds the leases as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from cluster_support import SHORT, Cluster, Host, eventually, keys
from places import Place
from remote_support import RemoteHome
from tier_servers import free_port


class Middle(RemoteHome):
    """The host that others have for a tier, at a port that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.place: Place | None = None  # as a host of the cluster
        self.port = free_port()
        self.token_of = {scope: self.token("--scope", scope) for scope in ("read", "write")}

    def serve_here(self) -> None:
        tls = ["--listen-cert", str(self.conf / "server.pem"), "--listen-key", str(self.conf / "server.key")]
        self.start("--listen", f"127.0.0.1:{self.port}", "--trust", "any", "--cluster-lease-period", SHORT, *tls)

    def tier(self) -> str:
        place = f"https://127.0.0.1:{self.port}"
        return f"{place}?layout=neuroncached&compression=none&token_env=TOKEN&ca_file={self.conf / 'ca.pem'}"

    def guests(self) -> int:
        client = self.client()
        try:
            return int(client.get("/v1/stats")["guest_leases"])
        finally:
            client.close()

    def kill(self) -> None:
        self.started[-1].kill()
        self.started[-1].wait()


@pytest.fixture
def middle() -> Iterator[Middle]:
    made = Middle()
    made.serve_here()
    yield made
    made.clean()


def add(cluster: Cluster, middle: Middle, scope: str = "write") -> Host:
    return cluster.add([middle.tier()], {"TOKEN": middle.token_of[scope]}, cluster_lease_period=SHORT)


def once(cluster: Cluster, names: list[str]) -> None:
    assert cluster.noted("begun") == cluster.noted("built") == names


def test_hosts_and_the_one_in_the_middle_build_each_key_once(cluster: Cluster, middle: Middle) -> None:
    names = keys(8)
    hosts = [add(cluster, middle) for _ in range(2)]
    for _ in range(3):
        for host in [*hosts, middle]:
            cluster.run(cast(Host, host), names)  # which is all that a rank needs of it
    cluster.join()
    once(cluster, names)
    cluster.settled()
    for host in hosts:
        leases = host.stats()["cluster"]
        assert leases["tier"].startswith("https://127.0.0.1")
        assert leases["alone"] == leases["apart"] == leases["lost"] == leases["errors"] == 0
    assert eventually(lambda: middle.guests() == 0)


def test_its_leases_outlive_it(cluster: Cluster, middle: Middle) -> None:
    first, second = add(cluster, middle), add(cluster, middle)
    names = keys(1)
    cluster.run(first, names, build_s=6)
    assert eventually(lambda: cluster.noted("begun") == names)
    cluster.run(second, names)
    assert eventually(lambda: second.stats()["cluster"]["waiting"] == 1)
    middle.kill()
    middle.serve_here()
    assert middle.guests() >= 1
    cluster.join()
    assert set(cluster.noted("built")) == set(names)
    cluster.settled()
    assert eventually(lambda: middle.guests() == 0)
    client = middle.client()
    assert client.acquire(names[0], intent="lookup")["state"] == "hit"
    client.close()


def test_a_host_that_dies_is_succeeded(cluster: Cluster, middle: Middle) -> None:
    first, second = add(cluster, middle), add(cluster, middle)
    names = keys(1)
    rank = cluster.run(first, names, build_s=600)
    assert eventually(lambda: cluster.noted("begun") == names)
    cluster.run(second, names)
    assert eventually(lambda: second.stats()["cluster"]["waiting"] == 1)
    first.kill()
    rank.kill()
    cluster.ranks[1].join(60)
    assert cluster.ranks[1].exitcode == 0
    assert cluster.noted("built") == names
    assert second.stats()["cluster"]["takeovers"] == 1


def test_who_may_only_read_builds_alone(cluster: Cluster, middle: Middle) -> None:
    host = add(cluster, middle, "read")
    cluster.run(host, keys(2))
    cluster.join()
    assert cluster.noted("built") == keys(2)
    assert host.stats()["cluster"]["alone"] >= 1
    assert middle.guests() == 0
    client = middle.client()
    assert client.acquire(keys(2)[0], intent="lookup")["state"] == "miss"
    client.close()
