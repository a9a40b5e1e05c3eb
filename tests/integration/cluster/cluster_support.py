"""Several hosts on one machine: daemons with stores and sockets of their own that share a tier, and ranks that want the
same keys from them. Each build is noted in a file, so that builds can be counted whatever the daemons say.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from daemon_support import Answer, Client, Home, digest, eventually, key_of, manifest
from places import Place

PERIOD = "10s"  # no daemon is starved for so long, however busy the machine
SHORT = "2s"  # for tests that wait for it to pass
GIVE_UP_S = 150.0


def entry_bytes(name: str) -> dict[str, bytes]:
    """Of one build of `name`; the same on all hosts. Of different kinds: inline, a file, compressed in the tier."""
    seed = random.Random(name)
    return {"small": name.encode(), "large": seed.randbytes(70_000), "text": (name * 400).encode()}


class Host(Home):
    def __init__(self, tiers: list[str], settings: dict[str, str], place: Place | None = None) -> None:
        super().__init__()
        self.place = place
        self.before_start = place.go if place else None
        self.settings = {
            "NEURONCACHE_TIERS": ",".join(tiers),
            "NEURONCACHE_TRUST": "any",
            "NEURONCACHE_CLUSTER_LEASE_PERIOD": PERIOD,
            **settings,
        }

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.settings}

    def stats(self) -> Any:
        client = self.client()
        try:
            client.counters()  # they add up
            return client.get("/v1/stats")
        finally:
            client.close()

    def kill(self) -> None:
        self.started[-1].kill()
        self.started[-1].wait()

    def has_published(self) -> bool:
        return bool(self.stats()["cluster"]["publishing"] == 0)


class Cluster:
    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="nc-cluster-"))
        self.tier = self.dir / "tier"
        self.tier.mkdir()
        self.notes = self.dir / "notes"
        self.notes.mkdir()
        self.hosts: list[Host] = []
        self.ranks: list[Any] = []
        self.host_of: dict[int, Home] = {}  # by the rank's number
        self.patience_s = GIVE_UP_S

    def add(
        self,
        tiers: list[str] | None = None,
        env: dict[str, str] | None = None,
        place: Place | None = None,
        disk: str = "",
        **settings: str,
    ) -> Host:
        """One more host; `env` are further variables of its daemon's environment, `disk` is the size of its store's."""
        names = {f"NEURONCACHE_{name.upper()}": text for name, text in settings.items()}
        host = Host(tiers or [f"file://{self.tier}"], names | (env or {}), place)
        self.hosts.append(host)
        if disk:
            assert place is not None
            host.store.mkdir(mode=0o700)
            place.mount_small_disk(host.store, disk)
        host.start()
        return host

    def run(self, host: Home, names: list[str], **how: Any) -> Any:
        """A rank: a process that needs all of `names`, in an order of its own."""
        context = multiprocessing.get_context("fork")
        number = len(self.ranks)
        how.setdefault("patience_s", self.patience_s)
        rank = context.Process(target=rank_main, args=(host, names, self.notes, number), kwargs=how)
        rank.start()
        self.host_of[number] = host
        self.ranks.append(rank)
        return rank

    def join(self) -> None:
        """All ranks came to an end, well but for those that were killed."""
        for rank in self.ranks:
            rank.join(self.patience_s)
            assert rank.exitcode is not None, "a rank never got all that it needs: " + self.logs()
            assert rank.exitcode in (0, -signal.SIGKILL), self.logs()

    def noted(self, what: str) -> list[str]:
        """The names that were `begun`, `built`, or built and `unsaved`, one for each time."""
        return sorted(path.name.split(".")[0] for path in self.notes.glob(f"*.{what}.*"))

    def noted_by(self, what: str) -> list[int]:
        return [int(path.name.split(".")[2]) for path in self.notes.glob(f"*.{what}.*")]

    def digests(self, name: str) -> set[str]:
        return {digest(data) for data in entry_bytes(name).values()}

    def logs(self) -> str:
        return "\n".join(host.log_text() for host in self.hosts)

    def settled(self) -> None:
        """What was built is everywhere it should be, no lease is left, and nothing is damaged anywhere."""
        for host in self.hosts:
            assert eventually(host.has_published), host.log_text()
            client = host.client()
            after: str | None = ""
            while after is not None:
                page = client.call("POST", "/v1/verify", {"after": after, "limit": 1000, "repair": False}).json
                assert page["bad"] == []
                after = page["next"]
            client.close()

    def lease_objects(self) -> list[Path]:
        return [path for path in (self.tier / "v1" / "leases").rglob("*") if path.is_file()]

    def clean(self) -> None:
        for rank in self.ranks:
            if rank.is_alive():
                rank.kill()
                rank.join()
        for host in self.hosts:
            host.clean()
        shutil.rmtree(self.dir, ignore_errors=True)


def rank_main(host: Home, names: list[str], notes: Path, number: int, **how: Any) -> None:
    try:
        place = getattr(host, "place", None)
        if place is not None:
            place.go()
        Rank(host.socket, notes, number, **how).run(names)
    except BaseException as error:  # whatever it is, the test has to see it
        print(f"rank {number}: {error!r}", flush=True)
        os._exit(1)
    os._exit(0)


class Rank:
    def __init__(
        self,
        socket: str,
        notes: Path,
        number: int,
        build_s: float = 0.2,
        die: bool = False,
        patient: bool = False,
        patience_s: float = GIVE_UP_S,
    ) -> None:
        self.socket = socket
        self.notes = notes
        self.number = number
        self.build_s = build_s
        self.die = die  # in the middle of its first build
        self.patient = patient  # goes on when the daemon is gone for a while
        self.patience_s = patience_s
        self.client: Client | None = None

    def note(self, name: str, what: str) -> None:
        (self.notes / f"{name}.{what}.{self.number}.{time.monotonic_ns()}").touch()

    def run(self, names: list[str]) -> None:
        names = list(names)
        random.Random(self.number).shuffle(names)
        deadline = time.monotonic() + self.patience_s
        for name in names:
            ticket = None
            while time.monotonic() < deadline:
                try:
                    if self.client is None:
                        self.client = Client(self.socket)
                    answer = self.client.acquire(name, wait_ms=5000, ticket=ticket)
                    if answer["state"] == "hit":
                        self.check(name, answer)
                        break
                    if answer["state"] == "lease" and not self.build(name, answer["lease"]):
                        break  # it goes on with what it built
                    ticket = answer.get("ticket")
                except (OSError, AssertionError) as error:
                    if not self.patient:
                        raise
                    print(f"rank {self.number}: {error!r}", flush=True)
                    self.client = None
                    time.sleep(0.1)
            else:
                raise TimeoutError(f"no entry for {name}")

    def build(self, name: str, lease: dict[str, Any]) -> bool:
        """False: it could not be stored."""
        assert self.client is not None
        self.note(name, "begun")
        if self.die:
            time.sleep(self.build_s / 2)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.build_s)
        if self.patient:  # the daemon may be another by now
            assert eventually(self.connected)
        answer = self.commit(name, lease)
        if answer.status == 507:
            why = {"key": key_of(name), "fence": lease["fence"], "class": "disk_full", "message": "the disk is full"}
            self.client.call("POST", f"/v1/leases/{lease['id']}/fail", why)
            self.note(name, "unsaved")
            return False
        assert answer.status in (200, 201), answer.body
        self.note(name, "built")
        return True

    def commit(self, name: str, lease: dict[str, Any]) -> Answer:
        assert self.client is not None
        blobs = entry_bytes(name)
        for data in blobs.values():
            answer = self.client.put_blob(data, f"?lease={lease['id']}")
            if answer.status not in (200, 201):
                return answer
        target = f"/v1/actions/{key_of(name)}?lease={lease['id']}&fence={lease['fence']}"
        return self.client.call("PUT", target, manifest(name, blobs))

    def connected(self) -> bool:
        try:
            self.client = Client(self.socket)
        except OSError:
            return False
        return True

    def check(self, name: str, answer: dict[str, Any]) -> None:
        assert self.client is not None
        for output, data in entry_bytes(name).items():
            found = answer["blobs"][output]
            got = Path(found["path"]).read_bytes() if found["path"] else None
            if got is None:
                got = self.client.call("GET", f"/v1/blobs/{found['digest']}").body
            assert got == data, f"{name}: {output} is not what was built"


def keys(count: int) -> list[str]:
    names = [f"key{i:02}" for i in range(count)]
    assert len({key_of(name) for name in names}) == count
    return names
