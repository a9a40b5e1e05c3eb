"""The real daemon in a private home, and sockets to use and abuse it with."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("NC_BIN_DIR", ROOT / "build" / "bin"))
PROGRAM = BIN / "neuroncached"
PATIENCE_S = 30.0  # generous: the machine may be busy; nothing below waits this long when all is well


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return holds()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def parts_of(name: str) -> list[list[str]]:
    return [["compiler", "stub 1"], ["graph", name]]


def key_of(name: str) -> str:
    text = b"neuroncache-action-v1\0"
    for part, value in parts_of(name):
        text += struct.pack("<I", len(part)) + part.encode() + struct.pack("<Q", len(value)) + value.encode()
    return hashlib.sha256(text).hexdigest()


def manifest(name: str, blobs: dict[str, bytes]) -> dict[str, Any]:
    return {
        "v": 1,
        "key": key_of(name),
        "kind": "graph",
        "namespace": "default",
        "label": name,
        "model": "",
        "compiler": "stub 1",
        "created_ms": int(time.time() * 1000),
        "build_ms": 2000,
        "peak_rss_bytes": 0,
        "producer": {"host": "h", "pid": os.getpid(), "program": "test", "version": "0"},
        "parts": parts_of(name),
        "outputs": [
            {"name": output, "digest": digest(data), "size": len(data), "mode": 0o644} for output, data in blobs.items()
        ],
        "meta": {},
        "signature": None,
    }


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Client:
    """One keep-alive connection."""

    def __init__(self, path: str) -> None:
        self.http = UnixConnection(path)
        self.http.connect()

    def close(self) -> None:
        self.http.close()

    def call(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self.http.request(method, target, data, {name.replace("_", "-"): value for name, value in headers.items()})
        response = self.http.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())

    def get(self, target: str) -> Any:
        answer = self.call("GET", target)
        assert answer.status == 200, answer.body
        return answer.json

    def acquire(self, name: str, **fields: Any) -> Any:
        body = {"intent": "build", "parts": parts_of(name), **fields}
        answer = self.call("POST", f"/v1/actions/{key_of(name)}/acquire", body)
        assert answer.status == 200, answer.body
        return answer.json

    def put_blob(self, data: bytes, query: str = "") -> Answer:
        return self.call("PUT", f"/v1/blobs/{digest(data)}{query}", data)

    def commit(self, name: str, lease: dict[str, Any], blobs: dict[str, bytes]) -> Answer:
        for data in blobs.values():
            assert self.put_blob(data, f"?lease={lease['id']}").status in (200, 201)
        target = f"/v1/actions/{key_of(name)}?lease={lease['id']}&fence={lease['fence']}"
        return self.call("PUT", target, manifest(name, blobs))

    def build(self, name: str, blobs: dict[str, bytes] | None = None) -> None:
        lease = self.acquire(name, wait_ms=10_000)["lease"]  # where a tier is asked first
        answer = self.commit(name, lease, blobs or {"out": name.encode()})
        assert answer.status == 201, answer.body

    def counters(self) -> dict[str, float]:
        counters: dict[str, float] = self.get("/v1/stats")["counters"]
        outcomes = sum(counters[name] for name in ("hits", "waits", "builds", "failures", "bypasses"))
        assert counters["lookups"] == outcomes
        return counters


class Raw:
    """A bare socket, for what no HTTP client would send."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self.left = b""

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what matters is the answer

    def answer(self) -> Answer:
        """Reads one answer; fails when the connection ends before it."""
        while b"\r\n\r\n" not in self.left:
            self._more()
        head, self.left = self.left.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        status = int(lines[0].split()[1])
        length = int(headers.get("Content-Length", "0"))
        while len(self.left) < length:
            self._more()
        body, self.left = self.left[:length], self.left[length:]
        return Answer(status, headers, body)

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, f"the connection ended after {self.left!r}"
        self.left += data

    def ended(self) -> bool:
        """Waits for the end of the stream."""
        try:
            while data := self.socket.recv(65536):
                self.left += data
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()


class Home:
    """A directory with a store, a socket and the daemons started in it."""

    def __init__(self) -> None:
        # Not pytest's own directory: a socket's path must be short.
        self.dir = Path(tempfile.mkdtemp(prefix="nc-daemon-"))
        self.socket = str(self.dir / "run" / "d.sock")
        self.store = self.dir / "store"
        self.log = self.dir / "daemon.log"
        self.started: list[subprocess.Popen[bytes]] = []
        self.before_start: Callable[[], None] | None = None  # called in the daemon's process

    def command(self, *flags: str) -> list[str]:
        return [str(PROGRAM), "--socket", self.socket, "--dir", str(self.store), *flags]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NEURONCACHE")}
        return {**kept, "HOME": str(self.dir)}

    def start(self, *flags: str, wait: bool = True) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self.command(*flags),
                stdin=subprocess.DEVNULL,
                stderr=log,
                env=self.environment(),
                cwd="/",
                preexec_fn=self.before_start,
            )
        self.started.append(process)
        if wait:
            assert eventually(lambda: self.answers() or process.poll() is not None)
            assert process.poll() is None, self.log_text()
        return process

    def detach(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("--detach", *flags), capture_output=True, text=True, timeout=120, env=self.environment()
        )

    def answers(self) -> bool:
        try:
            Raw(self.socket).close()
        except OSError:
            return False
        return True

    def client(self) -> Client:
        return Client(self.socket)

    def raw(self) -> Raw:
        return Raw(self.socket)

    def log_text(self) -> str:
        own = self.store / "daemon.log"
        return self.log.read_text() + (own.read_text() if own.exists() else "")

    def pids(self) -> list[int]:
        """The daemons of this home that live, whoever started them."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if command[0].endswith(b"neuroncached") and self.socket.encode() in command and state != "Z":
                found.append(int(entry.name))
        return found

    def clean(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.kill()
            process.wait()
        subprocess.run(["rm", "-rf", str(self.dir)], check=False)
