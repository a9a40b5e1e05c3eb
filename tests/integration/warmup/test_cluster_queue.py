"""The cluster's queue: what one host queues, workers of any host that shares the tier build, once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fleet_tiers
import pytest
from warmup_support import Warm
from wrapper_support import eventually

SLOW = json.dumps({"delay": 60})


class Farm:
    """Hosts with daemons, stores and keys of their own, one tier, and one list of what was compiled."""

    def __init__(self, kind: str) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="nc-farm-"))
        self.tier = fleet_tiers.make(kind, self.dir)
        self.hosts: list[Warm] = []
        self.keys: list[str] = []

    def add(self, trusted: bool = True) -> Warm:
        directory = self.dir / f"h{len(self.hosts)}"
        directory.mkdir()
        host = Warm(directory)
        host.log = self.dir / "compiles.log"
        host.env |= {
            "STUB_LOG": str(host.log),
            "NEURONCACHE_TIERS": self.tier.address,
            "NEURONCACHE_CLUSTER_LEASE_PERIOD": "3s",
            **self.tier.env,
        }
        key = host.cli("keys", "init")["keys"][0]["key"]
        if trusted:
            for other, known in zip(self.hosts, self.keys, strict=True):
                other.cli("keys", "trust", key)
                host.cli("keys", "trust", known)
            self.keys.append(key)
            self.hosts.append(host)
        return host

    def objects(self, *names: str) -> list[str]:
        return [one for one in self.tier.objects() if one.startswith(tuple(f"v1/{name}/" for name in names))]

    def clean(self) -> None:
        for host in self.hosts:
            host.end()
        fleet_tiers.end(self.tier)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def farm(request: pytest.FixtureRequest) -> Iterator[Farm]:
    made = Farm(getattr(request, "param", "directory"))
    yield made
    made.clean()


every_kind = pytest.mark.parametrize("farm", fleet_tiers.KINDS, indirect=True)


def recorded(host: Warm, *names: str) -> None:
    """Records these modules; nobody has them built."""
    tiers = host.env.pop("NEURONCACHE_TIERS")
    assert host.verb("warmup", "--recording", "r", "--", *host.modules(*names)).status == 0
    assert host.verb("prune", "--kind", "neff").status == 0
    assert host.verb("daemon", "stop").status == 0
    host.env["NEURONCACHE_TIERS"] = tiers
    host.log.unlink()


def queued(host: Warm) -> dict[str, int]:
    counts = host.call("GET", "/v1/queue/cluster")["counts"]
    return {name: n for name, n in counts.items() if n}


def put(host: Warm, *names: str) -> None:
    recorded(host, *names)
    assert host.verb("daemon", "start").status == 0
    assert host.call("POST", "/v1/queue/cluster", {"recording": "r"})["queued"] == len(names)
    assert queued(host) == {"queued": len(names)}


def serve(host: Warm, *words: str, **env: str) -> tuple[int, dict[str, int], Any]:
    done = host.verb("worker", "--queue", "--cluster", "--once", "--format", "json", *words, **env)
    report = host.check(done, "worker")
    return done.status, {name: n for name, n in report["counts"].items() if n}, report


def shown(host: Warm, *words: str) -> Any:
    return host.check(host.verb("queue", "--cluster", "--format", "json", *words), "queue")


@every_kind
def test_one_host_queues_and_waits_and_the_farm_builds(farm: Farm) -> None:
    a, b, c = farm.add(), farm.add(), farm.add()
    recorded(a, "m", "n", "o")
    waiting = a.start("warmup", "--recorded", "--queue", "--cluster", "--recording", "r", "--format", "json")
    assert b.verb("daemon", "start").status == 0
    assert eventually(lambda: queued(b) == {"queued": 3})
    second = c.start("worker", "--queue", "--cluster", "--once", "--format", "json")
    status, built, _ = serve(b, "--jobs", "2")
    out, _ = second.communicate(timeout=120)
    assert (status, second.returncode) == (0, 0)
    assert built.get("built", 0) + json.loads(out)["counts"]["built"] == 3 == a.compiles("end")
    out, err = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, err
    assert json.loads(out)["counts"]["built"] == 3
    # All that was asked for is here, and nothing of the queue is left.
    assert a.json("replay", "--fail-on-miss", "--", *a.modules("m", "n", "o"))[:2] == (0, {"needed": 3, "there": 3})
    assert eventually(lambda: not farm.objects("queue", "leases"))
    assert len(farm.objects("entries")) == 3
    # What is there already is not queued again.
    again = a.call("POST", "/v1/queue/cluster", {"recording": "r"})
    assert again == {"queued": 0, "already": 0, "built": 3, "lost": 0}


@every_kind
def test_a_host_that_dies_is_succeeded_and_one_artifact_comes_out(farm: Farm) -> None:
    a, b, c = farm.add(), farm.add(), farm.add()
    put(a, "m")
    dead = b.start("worker", "--queue", "--cluster", STUB_SCRIPT=SLOW)
    assert eventually(lambda: b.compiles() == 1)
    assert eventually(lambda: [(one["state"], one["attempts"]) for one in shown(a)["jobs"]] == [("building", 1)])
    compiler = int(b.log.read_text().split()[1])
    dead.kill()  # the host as a whole: worker, daemon, and what it ran
    b.kill_daemons()
    os.kill(compiler, signal.SIGKILL)
    # The next one waits for the dead one's lease, and takes over.
    assert serve(c)[:2] == (0, {"built": 1})
    assert eventually(lambda: queued(a) == {} and not farm.objects("queue", "leases"))
    assert len(farm.objects("entries")) == 1 and a.compiles("end") == 1 and a.compiles() == 2
    assert a.verb("verify", "--tier", a.call("GET", "/v1/tiers")["tiers"][0]["address"]).status == 0


def test_what_fails_the_same_way_fails_once_for_all(farm: Farm) -> None:
    a, b = farm.add(), farm.add()
    put(a, "bad", "unlucky")
    script = json.dumps({"exit": 70, "err": "ERROR: [NCC_EVRF001] operator not supported\n"})
    status, ended, _ = serve(b, "--jobs", "1", STUB_SCRIPT=script)
    assert (status, ended, b.compiles()) == (1, {"failed": 2}, 2)
    assert serve(a)[:2] == (0, {}) and a.compiles() == 2
    for job in shown(a, "--state", "failed")["jobs"]:
        assert (job["state"], job["attempts"], job["class"]) == ("failed", 1, "deterministic")
        assert "NCC_EVRF001" in job["message"] and "operator not supported" in job["log"]
    done = a.verb("warmup", "--recorded", "--queue", "--cluster", "--recording", "r", "--dry-run", "--format", "json")
    assert a.check(done, "warmup-dry-run")["counts"]["build"] == 2 and queued(a) == {"failed": 2}
    # By hand it goes from the beginning; bad luck has its three attempts.
    assert a.verb("queue", "--cluster", "--clear", "--state", "failed", "--dry-run").out == "2 would be removed.\n"
    assert a.verb("queue", "--cluster", "--clear", "--state", "failed").out == "2 removed.\n"
    assert eventually(lambda: not farm.objects("queue"))


def test_jobs_of_strangers_are_not_taken(farm: Farm) -> None:
    a = farm.add()
    stranger = farm.add(trusted=False)
    put(a, "m")
    try:
        assert serve(stranger)[:2] == (0, {}) and a.compiles() == 0
        (job,) = shown(stranger)["jobs"]
        assert job["state"] == "queued" and "not trusted" in job["problem"]
        # Nor does a worker that serves its own daemon take what the cluster wants.
        own = a.verb("worker", "--queue", "--once", "--format", "json")
        assert own.report["counts"]["built"] == 0
        assert serve(a)[:2] == (0, {"built": 1})
        assert eventually(lambda: not farm.objects("queue"))
    finally:
        stranger.end()


def test_a_host_without_a_queue_says_so(warm: Warm) -> None:
    done = warm.verb("worker", "--queue", "--cluster", "--once")
    assert done.status != 0 and "tiers" in done.err
    done = warm.verb("queue", "--cluster")
    assert done.status != 0 and "tiers" in done.err
    done = warm.verb("warmup", "--recorded", "--cluster")
    assert done.status == 2 and "--queue" in done.err
    empty = warm.check(warm.verb("queue", "--format", "json"), "queue")
    assert empty["counts"] == {"queued": 0, "building": 0, "built": 0, "failed": 0}
