"""What hosts share in these tests: a directory, moto's S3 and a real Redis, each of which can die and come back."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from pathlib import Path

from daemon_support import eventually
from places import Place
from tier_servers import MOTO, free_port, program, reachable

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
KINDS = ("directory", "s3", "redis")


class Directory:
    def __init__(self, folder: Path, _place: Place | None = None) -> None:
        self.folder = folder / "tier"
        self.aside = folder / "tier-unmounted"
        self.folder.mkdir(exist_ok=True)
        self.address = f"file://{self.folder}"
        self.env: dict[str, str] = {}

    def start(self) -> None:
        if self.aside.exists():
            self.aside.rename(self.folder)

    def kill(self) -> None:
        """As when its file server is gone, and the mount with it."""
        self.folder.rename(self.aside)

    def objects(self) -> list[str]:
        return [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()]


class Server:
    """A server in a place, or on loopback."""

    def __init__(self, folder: Path, place: Place | None) -> None:
        self.folder = folder
        self.place = place
        self.host = place.address if place else "127.0.0.1"
        self.port = free_port()  # in a place all are free
        self.log = folder / "tier.log"
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str], executable: Path | None = None) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                executable=executable,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=self.place.go if self.place else None,
            )
        assert eventually(self.answers), self.log.read_text()

    def answers(self) -> bool:
        there = lambda: reachable(self.host, self.port)  # noqa: E731
        return bool(self.place.inside(there) if self.place else there())

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def get(self, path: str, method: str = "GET") -> bytes:
        def call() -> bytes:
            request = urllib.request.Request(f"http://{self.host}:{self.port}{path}", method=method)
            with urllib.request.urlopen(request) as answer:
                data: bytes = answer.read()
                return data

        found: bytes = self.place.inside(call) if self.place else call()
        return found


class S3(Server):
    """Forgets everything when it dies."""

    def __init__(self, folder: Path, place: Place | None = None) -> None:
        super().__init__(folder, place)
        self.env = CREDENTIALS
        self.use("fleet")

    def use(self, prefix: str) -> None:
        self.prefix = prefix
        self.address = self.through(self.port)

    def through(self, port: int) -> str:
        """The address of whoever stands before it."""
        return f"s3://tier-bucket/{self.prefix}?endpoint=http://{self.host}:{port}&region=us-east-1&insecure=true"

    def start(self) -> None:
        self.run([*MOTO, "-H", self.host, "-p", str(self.port)])
        self.get("/tier-bucket", "PUT")

    def objects(self) -> list[str]:
        text = self.get(f"/tier-bucket?list-type=2&max-keys=1000&prefix={self.prefix}/").decode()
        assert "<IsTruncated>false" in text
        return [name.removeprefix(f"{self.prefix}/") for name in re.findall("<Key>([^<]*)</Key>", text)]


class Redis(Server):
    """Writes everything down at once, so that it has it all when it comes back."""

    def __init__(self, folder: Path, place: Place | None = None) -> None:
        super().__init__(folder, place)
        self.env: dict[str, str] = {}
        self.use("neuroncache")

    def use(self, prefix: str) -> None:
        self.prefix = prefix
        self.address = self.through(self.port)

    def through(self, port: int) -> str:
        """The address of whoever stands before it."""
        return f"redis://{self.host}:{port}?prefix={self.prefix}/"

    def start(self) -> None:
        command = ["redis-server", "--bind", self.host, "--port", str(self.port), "--protected-mode", "no"]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "no", "--dir", str(self.folder)]
        self.run(command, program("redis-check-rdb", "redis-server"))

    def objects(self) -> list[str]:
        command = [str(program("redis-cli")), "-h", self.host, "-p", str(self.port), "--raw"]
        command += ["KEYS", f"{self.prefix}/*"]
        place = self.place.go if self.place else None
        out = subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=place).stdout
        return [name.removeprefix(f"{self.prefix}/") for name in out.split()]


Tier = Directory | S3 | Redis


def make(kind: str, folder: Path, place: Place | None = None) -> Tier:
    kinds: dict[str, type[Directory] | type[S3] | type[Redis]] = {"directory": Directory, "s3": S3, "redis": Redis}
    made = kinds[kind](folder, place)
    made.start()
    return made


def end(tier: Tier) -> None:
    if isinstance(tier, Server):
        tier.kill()
