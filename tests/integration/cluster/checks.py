"""What has to hold of a fleet after whatever happened to it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

import fleet_tiers
from cluster_support import Cluster, Host
from daemon_support import BIN, key_of


def command(host: Host, *words: str) -> subprocess.CompletedProcess[str]:
    env = host.environment() | {"NEURONCACHE_SOCKET": host.socket, "NEURONCACHE_DIR": str(host.store)}
    return subprocess.run(
        [str(BIN / "neuroncache"), *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=host.place.go if host.place else None,
    )


def tiers_of(host: Host) -> list[Any]:
    client = host.client()
    try:
        return list(client.get("/v1/tiers")["tiers"])
    finally:
        client.close()


def at_rest(host: Host) -> bool:
    cluster = host.stats()["cluster"]
    busy = cluster["publishing"] + cluster["waiting"] + cluster["held"]
    return busy == 0 and all(tier["queued"] + tier["sending"] == 0 for tier in tiers_of(host))


def wait_for_rest(cluster: Cluster) -> None:
    deadline = time.monotonic() + cluster.patience_s
    while not all(at_rest(host) for host in cluster.hosts):
        assert time.monotonic() < deadline, [(host.stats()["cluster"], tiers_of(host)) for host in cluster.hosts]
        time.sleep(0.05)


def check_hosts(cluster: Cluster) -> None:
    for host in cluster.hosts:
        done = command(host, "verify")
        assert done.returncode == 0, done.stdout + done.stderr


def check_tier(cluster: Cluster, tier: fleet_tiers.Tier) -> None:
    """Whole, and nothing in it that `prune --tier` does not see."""
    one = cluster.hosts[-1]
    done = command(one, "verify", "--tier", tiers_of(one)[0]["address"])
    assert done.returncode == 0, done.stdout + done.stderr
    seen = command(one, "prune", "--tier", tiers_of(one)[0]["address"], "--dry-run", "--format", "json")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    collected = json.loads(seen.stdout)["collected"]
    names = tier.objects()
    entries = [name for name in names if re.fullmatch(r"v1/entries/../[0-9a-f]{64}", name)]
    blobs = {name[:78] for name in names if re.fullmatch(r"v1/blobs/../[0-9a-f]{64}(\.zst)?", name)}
    rows = {name[:79] for name in names if re.fullmatch(r"v1/leases/../[0-9a-f]{64}/[0-9]{20}", name)}
    asides = [name for name in names if name.startswith("~aside/")]  # removed after a day by whoever writes there
    others = [name for name in names if not name.startswith(("v1/entries/", "v1/blobs/", "v1/leases/", "~aside/"))]
    assert others == []
    assert (collected["entries"], collected["blobs"]) == (len(entries), len(blobs))
    named = set()
    for name in cluster.noted("built"):
        if key_of(name) in {entry[-64:] for entry in entries}:
            named |= cluster.digests(name)
    assert collected["unused"] == len({blob[-64:] for blob in blobs} - named)
    assert collected["leases"] == len(rows)
    assert len(asides) <= 10


def check_counters(cluster: Cluster, names: list[str], restarted: list[Host] | None = None) -> None:
    """Of hosts whose daemons lived throughout, and so have counted everything:
    look-ups = hits + waits + builds + failures + bypasses (Client.counters);
    builds = those that its processes began; those that they ended <= leases taken + alone + apart;
    builds of the fleet - keys <= what is told of: alone, apart, lost, taken over, and entries that could not be read.
    """
    extra = len(cluster.noted("built")) - len(set(names))
    told = 0
    for host in cluster.hosts:
        stats = host.stats()
        leases, counters = stats["cluster"], stats["counters"]
        for tier in tiers_of(host):
            counted = tier["counters"]
            told += sum(counted[name] for name in ("denied", "failed", "timed_out", "refused", "corrupt"))
        told += leases["alone"] + leases["apart"] + leases["lost"] + leases["takeovers"]
        if host in (restarted or []):
            continue
        begun, built = (
            sum(cluster.host_of[number] is host for number in cluster.noted_by(what)) for what in ("begun", "built")
        )
        assert counters["builds"] == begun, (counters, begun)
        assert built <= leases["taken"] + leases["alone"] + leases["apart"], leases
        assert counters["failures"] == 0
    each = [(host.stats()["cluster"], [tier["counters"] for tier in tiers_of(host)]) for host in cluster.hosts]
    assert 0 <= extra <= told, (extra, told, each, cluster.noted("built"), cluster.logs())


def check(cluster: Cluster, tier: fleet_tiers.Tier, names: list[str], restarted: list[Host] | None = None) -> None:
    wait_for_rest(cluster)
    check_hosts(cluster)
    check_tier(cluster, tier)
    check_counters(cluster, names, restarted)
