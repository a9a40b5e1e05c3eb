"""Hosts as Linux namespaces: each with a network, a name and mounts of its own. They are gone when the process that keeps
them ends, however it ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = {"mnt": 0x00020000, "uts": 0x04000000, "net": 0x40000000}


def address(number: int) -> str:
    return f"10.83.0.{number}"


def enter(pid: int, kinds: tuple[str, ...] = ("net",)) -> None:
    """This thread (with "mnt": this process, which must have one only) goes where process `pid` is."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind in kinds:
        with open(f"/proc/{pid}/ns/{kind}") as file:
            if libc.setns(file.fileno(), KINDS[kind]) != 0:
                raise OSError(ctypes.get_errno(), f"setns to the {kind} namespace of {pid}")


class Place:
    """One host. What runs there are processes that have called go()."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.address = address(number)
        self.name = f"host-{number}"
        script = f"hostname {self.name} && ip link set lo up && echo ready && exec cat"
        self.process = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode()
        if said != "ready\n":
            self.process.kill()
            self.process.wait()
            raise OSError(said.strip())

    def go(self) -> None:
        """This process goes there, for good; for children between fork and exec."""
        enter(self.process.pid, ("net", "uts", "mnt"))

    def inside(self, run: Callable[[], Any]) -> Any:
        """What `run` gives with the network of this place."""
        found: list[Any] = []

        def there() -> None:
            enter(self.process.pid)
            try:
                found.append(run())
            except OSError as error:
                found.append(error)

        thread = threading.Thread(target=there)
        thread.start()
        thread.join()
        if isinstance(found[0], OSError):
            raise found[0]
        return found[0]

    def mount_small_disk(self, where: Path, size: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "nc-test", str(where)]
        subprocess.run(command, check=True, preexec_fn=self.go)

    def fill_disk(self, where: Path) -> None:
        command = ["sh", "-c", f"cat /dev/zero >'{where}/filler'"]
        subprocess.run(command, preexec_fn=self.go, stderr=subprocess.DEVNULL)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Network:
    """Places and the wire between them; the first is where the tier is."""

    def __init__(self, count: int) -> None:
        self.places: list[Place] = []
        self.wire: subprocess.Popen[str] | None = None
        try:
            for number in range(1, count + 1):
                self.places.append(Place(number))
            self.wire = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "wire.py"), *(str(p.process.pid) for p in self.places)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert self.wire.stdout is not None
            said = self.wire.stdout.readline()
            if said != "ready\n":
                raise OSError((said + self.wire.stdout.read()).strip().splitlines()[-1])
        except BaseException:
            self.end()
            raise

    def shape(self, delay: float = 0, loss: float = 0, cut: list[int] | None = None) -> None:
        """From now on: seconds each way, share of packets that are lost, places that nothing reaches or leaves."""
        assert self.wire is not None and self.wire.stdin is not None
        self.wire.stdin.write(json.dumps({"delay": delay, "loss": loss, "cut": cut or []}) + "\n")
        self.wire.stdin.flush()

    def end(self) -> None:
        if self.wire is not None:
            self.wire.kill()
            self.wire.wait()
        for place in self.places:
            place.end()


def why_not() -> str:
    """Why this machine cannot have such hosts; empty: it can."""
    if os.geteuid() != 0:
        return "hosts as namespaces need root"
    try:
        Network(1).end()
    except OSError as error:
        return f"hosts as namespaces with a TUN device cannot be made here: {error}"
    return ""
