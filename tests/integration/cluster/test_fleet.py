"""One compile per cluster on hosts that are namespaces, with every kind of tier and every kind of fault.

Each test is short; `--long` gives all of them 3 hosts, 8 processes each and 20 keys, and every kind of tier.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import checks
import fleet_tiers
import places
import pytest
from cluster_support import SHORT, Cluster, Host, eventually, keys
from tier_servers import SERVERS

PATIENCE_LONG_S = 1500.0  # each request takes seconds


class Fleet:
    """Three hosts and a tier; without namespaces they are the daemons of one host, and have no network to spoil."""

    def __init__(self, cluster: Cluster, network: places.Network | None, kind: str, long: bool) -> None:
        self.cluster = cluster
        self.network = network
        self.long = long
        self.tier = fleet_tiers.make(kind, cluster.dir, network.places[0] if network else None)

    def add(self, options: str = "", env: dict[str, str] | None = None, disk: str = "", **settings: str) -> Host:
        place = self.network.places[len(self.cluster.hosts) + 1] if self.network else None
        address = self.tier.address
        if options:
            address += ("&" if "?" in address else "?") + options
        return self.cluster.add([address], self.tier.env | (env or {}), place, disk, **settings)

    def three(self, options: str = "", **settings: str) -> list[Host]:
        return [self.add(options, None, "", **settings) for _ in range(3)]

    def want(self, count: int, ranks: int, **how: Any) -> list[str]:
        """On every host `ranks` processes that want `count` keys; with --long 8 that want 20."""
        names = keys(20 if self.long else count)
        for _ in range(8 if self.long else ranks):
            for host in self.cluster.hosts:
                self.cluster.run(host, names, **how)
        return names

    def began(self, count: int) -> bool:
        return eventually(lambda: len(self.cluster.noted("begun")) >= count)

    def done(self, names: list[str], restarted: list[Host] | None = None) -> None:
        self.cluster.join()
        assert sorted(set(self.cluster.noted("built") + self.cluster.noted("unsaved"))) == names
        checks.check(self.cluster, self.tier, names, restarted)

    def once(self) -> None:
        """No build was made twice, or for nothing."""
        assert self.cluster.noted("begun") == self.cluster.noted("built") == sorted(set(self.cluster.noted("built")))


@pytest.fixture(scope="module")
def network() -> Iterator[places.Network | None]:
    if places.why_not():
        yield None
        return
    made = places.Network(4)
    yield made
    made.end()


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long", default=False))


@pytest.fixture
def fleet(request: pytest.FixtureRequest, cluster: Cluster, network: Any, long: bool) -> Iterator[Fleet]:
    if network is not None:
        network.shape()
    made = Fleet(cluster, network, request.param, long)
    yield made
    fleet_tiers.end(made.tier)


def over(*kinds: str) -> pytest.MarkDecorator:
    """The tiers that a test is about: these; with --long all of them."""
    return pytest.mark.over(kinds)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("over")
    if marker is not None:
        long = bool(metafunc.config.getoption("--long", default=False))
        metafunc.parametrize("fleet", fleet_tiers.KINDS if long else marker.args[0], indirect=True)


def clock_library() -> Path:
    """libfaketime, which gives a program another wall clock."""
    found = sorted(SERVERS.glob("usr/lib/*/faketime/libfaketimeMT.so.1"))
    if not found:
        pytest.skip("Debian's libfaketime is not unpacked in build/servers, which ./x does")
    return found[0]


def clock(library: Path, hours: int) -> dict[str, str]:
    if hours == 0:
        return {}
    return {"LD_PRELOAD": str(library), "FAKETIME": f"{hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def real_network(fleet: Fleet) -> places.Network:
    if fleet.network is None:
        pytest.skip(places.why_not())
    return fleet.network


@over("directory", "s3", "redis")
def test_three_hosts_build_each_key_once(fleet: Fleet) -> None:
    fleet.three()
    fleet.done(fleet.want(20, 8))
    fleet.once()
    assert sum(host.stats()["cluster"]["taken"] for host in fleet.cluster.hosts) == 20
    for host in fleet.cluster.hosts:
        leases = host.stats()["cluster"]
        assert leases["alone"] == leases["apart"] == leases["lost"] == leases["takeovers"] == leases["errors"] == 0
    assert [name for name in fleet.tier.objects() if name.startswith("v1/leases/")] == []


@over("redis")
def test_killed_builders_cost_their_builds(fleet: Fleet) -> None:
    hosts = fleet.three()
    names = keys(20 if fleet.long else 6)
    for host in hosts[:2]:
        fleet.cluster.run(host, names, die=True)
    fleet.want(6, 2)
    fleet.done(names)
    assert fleet.cluster.noted("built") == names
    assert len(fleet.cluster.noted("begun")) <= len(names) + 2


@over("s3")
def test_a_killed_daemon_costs_what_it_held(fleet: Fleet) -> None:
    hosts = fleet.three(cluster_lease_period=SHORT)
    names = fleet.want(6, 2, patient=True, build_s=0.4)
    assert fleet.began(2)
    held = fleet.cluster.noted("begun")
    hosts[0].kill()
    time.sleep(1)
    hosts[0].start()
    fleet.done(names, [hosts[0]])
    assert len(fleet.cluster.noted("begun")) <= len(names) + len(held)


@over("redis")
def test_a_killed_tier_delays_and_no_more(fleet: Fleet) -> None:
    hosts = fleet.three("timeout=1s", cluster_lease_period=SHORT)
    names = fleet.want(6, 2)
    assert fleet.began(2)
    fleet.tier.kill()
    time.sleep(2)
    fleet.tier.start()
    fleet.done(names)
    for host in hosts:
        assert host.stats()["counters"]["builds"] <= len(names)


@over("redis")
def test_a_slow_network_costs_no_build(fleet: Fleet) -> None:
    network = real_network(fleet)
    fleet.cluster.patience_s = PATIENCE_LONG_S
    fleet.three(cluster_lease_period="60s" if fleet.long else "10s")
    network.shape(delay=1 if fleet.long else 0.05)
    names = fleet.want(2, 2)
    fleet.cluster.join()
    checks.wait_for_rest(fleet.cluster)
    network.shape()  # what reads all of the tier need not be patient
    fleet.done(names)
    fleet.once()


@over("s3")
def test_a_lossy_network_costs_no_build(fleet: Fleet) -> None:
    network = real_network(fleet)
    # What TCP makes up for in a few seconds each time is not to be taken for silence.
    fleet.three("timeout=30s", cluster_lease_period="60s" if fleet.long else "20s")
    network.shape(delay=0.002, loss=0.05 if fleet.long else 0.01)
    fleet.done(fleet.want(3, 2))
    fleet.once()


@over("redis")
def test_a_network_that_is_too_slow_costs_what_it_says(fleet: Fleet) -> None:
    """Slower than the tier's timeout: now and then at first, then always."""
    network = real_network(fleet)
    fleet.cluster.patience_s = PATIENCE_LONG_S  # entries that could not be sent wait for up to ten minutes
    hosts = fleet.three("timeout=500ms", cluster_lease_period=SHORT)
    network.shape(delay=0.03, loss=0.2)
    names = fleet.want(4, 2)
    assert fleet.began(2)
    network.shape(delay=0.4)
    fleet.cluster.join()  # nobody waits for it to be mended
    network.shape()
    fleet.done(names)
    for host in hosts:
        assert host.stats()["counters"]["builds"] <= len(names)


@over("redis")
def test_a_host_that_is_cut_off_builds_for_itself(fleet: Fleet) -> None:
    network = real_network(fleet)
    hosts = fleet.three("timeout=1s", cluster_lease_period=SHORT)
    names = fleet.want(4, 2, build_s=0.4)
    assert fleet.began(2)
    network.shape(cut=[hosts[0].place.number if hosts[0].place else 0])
    fleet.cluster.join()  # nobody waits for it to be mended
    network.shape()
    fleet.done(names)
    for host in hosts:
        assert host.stats()["counters"]["builds"] <= len(names)


@over("directory")
def test_a_full_disk_is_one_hosts_trouble(fleet: Fleet) -> None:
    real_network(fleet)
    full = fleet.add(disk="48m", min_free="1MiB")
    fleet.add()
    fleet.add()
    assert full.place is not None
    full.place.fill_disk(full.store)
    names = fleet.want(6, 2)
    fleet.done(names)
    assert fleet.cluster.noted("unsaved") != []
    assert len(fleet.cluster.noted("begun")) <= len(names) + len(fleet.cluster.noted("unsaved"))


@over("s3")
def test_clocks_that_are_an_hour_off_cost_nothing(fleet: Fleet) -> None:
    library = clock_library()
    hosts = [fleet.add(env=clock(library, hours)) for hours in (-1, 0, 1)]
    names = fleet.want(8, 2)
    fleet.done(names)
    fleet.once()
    started = [host.client().get("/v1/hello")["started_ms"] / 3_600_000 for host in hosts]
    assert [round(one - started[1]) for one in started] == [-1, 0, 1]  # they do differ


@over("redis")
def test_a_builder_that_dies_with_its_daemon_is_succeeded(fleet: Fleet) -> None:
    dead, well = fleet.add(cluster_lease_period=SHORT), fleet.add(cluster_lease_period=SHORT)
    names = keys(1)
    builder = fleet.cluster.run(dead, names, build_s=120)
    assert fleet.began(1)
    waiter = fleet.cluster.run(well, names)
    assert eventually(lambda: well.stats()["cluster"]["waiting"] == 1)
    dead.kill()
    os.kill(builder.pid, signal.SIGKILL)
    waiter.join(60)
    assert waiter.exitcode == 0
    assert fleet.cluster.noted("built") == names
    assert well.stats()["cluster"]["takeovers"] == 1
    # The dead one comes back, gives back what it held, and has what the other built.
    dead.start()
    fleet.cluster.run(dead, names)
    fleet.done(names, [dead])
    assert fleet.cluster.noted("built") == names
