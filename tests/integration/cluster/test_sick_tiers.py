"""Tiers that break everything that they say, each in one way: nobody gets a wrong entry, nobody waits for good, each host
builds a key once at most, and all is well when the tier is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import checks
import faulty_proxy
import faulty_redis
import fleet_tiers
import pytest
from cluster_support import SHORT, Cluster, eventually, keys

FAULTS = ("busy", "denied", "garbage", "short", "other")
QUICK = {"test_s3": ("denied", "garbage"), "test_redis": ("busy", "short"), "test_directory": ("other",)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With --long all of them."""
    long = bool(metafunc.config.getoption("--long", default=False))
    name = metafunc.function.__name__
    metafunc.parametrize("fault", FAULTS[2 if name == "test_directory" else 0 :] if long else QUICK[name])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], fleet_tiers.Server]]:
    """One of each kind that is wanted, for all the tests."""
    with contextlib.ExitStack() as stack:
        made: dict[str, Any] = {}

        def server(kind: str) -> fleet_tiers.Server:
            if kind not in made:
                made[kind] = fleet_tiers.make(kind, tmp_path_factory.mktemp(kind))
                stack.callback(fleet_tiers.end, made[kind])
            found: fleet_tiers.Server = made[kind]
            return found

        yield server


def fleet_beside(cluster: Cluster, address: str, env: dict[str, str], names: list[str]) -> None:
    for _ in range(2):
        cluster.add([address], env, cluster_lease_period=SHORT)
    for _ in range(2):
        for host in cluster.hosts:
            cluster.run(host, names)
    cluster.join()  # each rank has compared what it got


def all_is_well(cluster: Cluster, tier: fleet_tiers.Tier, names: list[str]) -> None:
    """Afterwards."""
    for host in cluster.hosts:
        assert host.stats()["counters"]["builds"] <= len(names)
    assert set(cluster.noted("built")) == set(names)
    checks.check(cluster, tier, names)
    assert eventually(lambda: len([name for name in tier.objects() if name.startswith("v1/entries/")]) == len(names))
    before = len(cluster.noted("begun"))
    late = cluster.add([tier.address], tier.env)
    cluster.run(late, names)
    cluster.join()
    assert len(cluster.noted("begun")) == before


def test_s3(cluster: Cluster, servers: Callable[[str], fleet_tiers.S3], fault: str) -> None:
    tier, names = servers("s3"), keys(3)
    tier.use(fault)
    with faulty_proxy.proxy(tier.port, 1, 7, (fault,)) as proxy:
        address = tier.through(proxy.server_address[1])
        fleet_beside(cluster, address + "&timeout=3s", tier.env, names)
        assert proxy.done[fault] > 0
        proxy.share = 0
        all_is_well(cluster, tier, names)


def test_redis(cluster: Cluster, servers: Callable[[str], fleet_tiers.Redis], fault: str) -> None:
    tier, names = servers("redis"), keys(3)
    tier.use(fault)
    with faulty_redis.proxy(tier.port, fault) as proxy:
        fleet_beside(cluster, tier.through(proxy.server_address[1]) + "&timeout=3s", tier.env, names)
        assert proxy.done[fault] > 0
        proxy.well = True
        all_is_well(cluster, tier, names)


def spoil(tier: fleet_tiers.Directory, fault: str) -> None:
    """Every entry and blob, as `fault` says."""
    files = [tier.folder / name for name in tier.objects()]
    for folder in ("entries", "blobs"):
        some = sorted(path for path in files if path.is_relative_to(tier.folder / "v1" / folder))
        texts = [path.read_bytes() for path in some]
        for number, path in enumerate(some):
            path.unlink()
            if fault == "garbage":
                path.write_bytes(bytes(byte ^ 0x5A for byte in texts[number]))
            elif fault == "short":
                path.write_bytes(texts[number][: len(texts[number]) // 2])
            else:
                path.write_bytes(texts[number - 1])


def test_directory(cluster: Cluster, fault: str) -> None:
    tier, names = fleet_tiers.Directory(cluster.dir), keys(3)
    cluster.run(cluster.add(), names)
    cluster.join()
    checks.check(cluster, tier, names)
    spoil(tier, fault)
    before = cluster.hosts.pop()
    fleet_beside(cluster, tier.address, {}, names)
    assert len(cluster.noted("built")) > len(names)
    for name in names:
        assert cluster.noted("built").count(name) <= 3
    all_is_well(cluster, tier, names)
    before.clean()
