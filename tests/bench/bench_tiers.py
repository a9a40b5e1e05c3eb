"""What shared tiers cost: a cold fetch of 16 MB through the daemon beside cp (a directory) and curl (S3 by moto) moving the same
bytes, and local hits while entries are sent beside hits while none are. Ratios within one run, by alternating. Wanted: 0.80 of
curl's speed or more; hits at most 1.05 times as long.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("daemon", "tiers"):
    sys.path.insert(0, str(ROOT / "tests" / "integration" / folder))

from daemon_support import Client, Home, eventually, key_of  # noqa: E402

SIZE = 16 << 20


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1000


def ask(client: Client, name: str) -> str:
    answer = client.acquire(name, wait_ms=30_000)
    while answer["state"] == "building":
        answer = client.acquire(name, wait_ms=30_000, ticket=answer["ticket"])
    return str(answer["state"])


def build(client: Client, name: str, data: bytes) -> None:
    lease = client.acquire(name, wait_ms=30_000)
    while lease["state"] == "building":
        lease = client.acquire(name, wait_ms=30_000, ticket=lease["ticket"])
    assert client.commit(name, lease["lease"], {"out": data}).status == 201


def idle(client: Client) -> bool:
    return all(tier["queued"] + tier["sending"] == 0 for tier in client.get("/v1/tiers")["tiers"])


def row(title: str, values: list[float]) -> None:
    values = sorted(values)
    print(f"  {title:44} p50 {statistics.median(values):9.3f} ms   least {values[0]:9.3f} ms")


def start(home: Home, address: str) -> Client:
    home.start("--tiers", address, "--trust", "any")
    return home.client()


Copy = Callable[[str, str, Path], object]  # of the blob of that digest (and the entry of that key) to that file


def cold_fetch(address: str, title: str, copies: dict[str, Copy], rounds: int) -> None:
    writer, reader = Home(), Home()
    try:
        a, b = start(writer, address), start(reader, address)
        for number in range(rounds + 1):
            build(a, f"{title} {number}", os.urandom(SIZE))
        assert eventually(lambda: idle(a))
        took: dict[str, list[float]] = {how: [] for how in (*copies, "")}
        for number in range(rounds + 1):
            name = f"{title} {number}"
            digest = str(a.get(f"/v1/actions/{key_of(name)}")["outputs"][0]["digest"])
            target = reader.dir / "copy"
            turns = list(took)
            for how in turns[number % len(turns) :] + turns[: number % len(turns)]:
                if how:
                    ms = milliseconds(lambda how=how: copies[how](key_of(name), digest, target))  # noqa: B023
                    target.unlink()
                else:
                    ms = milliseconds(lambda: ask(b, name))  # noqa: B023
                if number > 0:  # the first of each warms things up
                    took[how].append(ms)
        assert b.counters()["tier_hits"] == rounds + 1
        for how, ms in took.items():
            row(f"{title}: {how or 'cold fetch through the daemon'}", ms)
        for how in copies:
            share = statistics.median(p / c for p, c in zip(took[how], took[""], strict=True))
            print(f"  {title}: of the speed of {how} {share:.2f}")
    finally:
        writer.clean()
        reader.clean()


def directory(rounds: int) -> None:
    home = Home()
    tier = home.dir / "tier"
    tier.mkdir()

    def copy(_key: str, digest: str, target: Path) -> None:
        shutil.copyfile(tier / "v1" / "blobs" / digest[:2] / digest, target)

    try:
        cold_fetch(f"file://{tier}", "directory", {"cp": copy}, rounds)
    finally:
        home.clean()


def bucket(rounds: int) -> None:
    curl = shutil.which("curl")
    try:
        import tier_servers
    except ImportError as error:
        print(f"  S3: not measured: {error}")
        return
    if curl is None:
        print("  S3: not measured: there is no curl")
        return
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(tier_servers.moto())
        except (AssertionError, OSError) as error:
            print(f"  S3: not measured: {error}")
            return
        subprocess.run([curl, "-sf", "-X", "PUT", f"{url}/bench"], check=True, stdout=subprocess.DEVNULL)
        os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_EC2_METADATA_DISABLED="true")
        signed = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", "bench:bench"]  # moto gives strangers nothing

        def blob(_key: str, digest: str, target: Path) -> None:
            source = f"{url}/bench/p/v1/blobs/{digest[:2]}/{digest}"
            subprocess.run([curl, "-sf", *signed, "-o", target, source], check=True)

        def both(key: str, digest: str, target: Path) -> None:
            entry = f"{url}/bench/p/v1/entries/{key[:2]}/{key}"
            source = f"{url}/bench/p/v1/blobs/{digest[:2]}/{digest}"
            command = [curl, "-sf", *signed, "-o", "/dev/null", entry, "-o", str(target), source]
            subprocess.run(command, check=True)

        copies: dict[str, Copy] = {"curl, the same two objects": both, "curl, the blob alone": blob}
        cold_fetch(f"s3://bench/p?endpoint={url}&region=us-east-1", "S3", copies, rounds)


def hits_beside_write_back(rounds: int) -> None:
    home = Home()
    (home.dir / "tier").mkdir()
    try:
        client = start(home, f"file://{home.dir}/tier")
        build(client, "hot", os.urandom(100_000))
        assert eventually(lambda: idle(client))
        quiet: list[float] = []
        busy: list[float] = []
        for number in range(rounds):
            quiet.append(statistics.median(milliseconds(lambda: ask(client, "hot")) for _ in range(300)))
            for part in range(4):
                build(client, f"w {number} {part}", os.urandom(SIZE // 2))
            assert not idle(client)
            samples = []
            while not idle(client) and len(samples) < 3000:
                samples += [milliseconds(lambda: ask(client, "hot")) for _ in range(50)]
            busy.append(statistics.median(samples))
            assert eventually(lambda: idle(client))
        row("hit, nothing is sent", quiet)
        row("hit, entries are sent", busy)
        print(
            f"  hits beside write-back, paired ratio {statistics.median(b / q for b, q in zip(busy, quiet, strict=True)):.2f}"
        )
    finally:
        home.clean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    directory(rounds)
    bucket(rounds)
    hits_beside_write_back(rounds)


if __name__ == "__main__":
    main()
