"""A private home for the real programs, and just enough of the protocol to fill a store."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("NC_BIN_DIR", ROOT / "build" / "bin"))
SCHEMAS = ROOT / "docs" / "json-schemas"


def action_key(parts: list[tuple[str, str]]) -> str:
    text = b"neuroncache-action-v1\0"
    for name, value in sorted((n.encode(), v.encode()) for n, v in parts):
        text += struct.pack("<I", len(name)) + name + struct.pack("<Q", len(value)) + value
    return hashlib.sha256(text).hexdigest()


def _registry() -> Registry[Any]:
    resources = []
    for path in SCHEMAS.glob("*.json"):
        schema = json.loads(path.read_text())
        resources.append((schema["$id"], Resource.from_contents(schema)))
    return Registry().with_resources(resources)


_REGISTRY = _registry()


def validate(document: Any, schema: str) -> Any:
    contents = json.loads((SCHEMAS / f"{schema}.json").read_text())
    Draft202012Validator(contents, registry=_REGISTRY).validate(document)
    return document


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(30)
        self.sock.connect(self._path)


class Daemon:
    """One keep-alive connection to the daemon."""

    def __init__(self, socket_path: Path) -> None:
        self._http = _UnixConnection(socket_path)

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, target: str, body: bytes | None = None) -> tuple[int, Any]:
        self._http.request(method, target, body, {"X-Neuroncache-Protocol": "1"})
        response = self._http.getresponse()
        data = response.read()
        return response.status, json.loads(data) if data else None

    def post(self, target: str, document: Any) -> Any:
        status, answer = self.call("POST", target, json.dumps(document).encode())
        assert status < 400, answer
        return answer

    def acquire(self, parts: list[tuple[str, str]], **more: Any) -> Any:
        request = {"intent": "build", "parts": parts, "program": "test.py", **more}
        return self.post(f"/v1/actions/{action_key(parts)}/acquire", request)

    def store(self, name: str, outputs: dict[str, bytes], build_ms: int = 1000, **fields: Any) -> str:
        """Asks for an entry, builds it, and gives its key."""
        parts = [("graph", name), ("compiler", str(fields.get("compiler", "inductor 2.13.0")))]
        key = action_key(parts)
        asked = {k: v for k, v in fields.items() if k in ("namespace", "model", "compiler")}
        answer = self.acquire(parts, kind="graph", label=name, **asked)
        assert answer["state"] == "lease", answer
        lease = answer["lease"]
        listed = []
        for output, data in outputs.items():
            digest = hashlib.sha256(data).hexdigest()
            status, uploaded = self.call("PUT", f"/v1/blobs/{digest}?lease={lease['id']}", data)
            assert status in (200, 201), uploaded
            listed.append({"name": output, "digest": digest, "size": len(data), "mode": 0o644})
        manifest = {
            "v": 1, "key": key, "kind": "graph", "namespace": "default", "label": name, "model": "",
            "compiler": "inductor 2.13.0", "created_ms": int(time.time() * 1000), "build_ms": build_ms,
            "peak_rss_bytes": 1 << 20, "producer": {"host": "here", "pid": 1, "program": "test.py", "version": "0.1.0"},
            "parts": parts, "outputs": listed, "meta": {"why": "test"}, "signature": None, **fields,
        }  # fmt: skip
        status, done = self.call(
            "PUT", f"/v1/actions/{key}?lease={lease['id']}&fence={lease['fence']}", json.dumps(manifest).encode()
        )
        assert status == 201, done
        return key

    def fail(self, name: str, message: str, log: str) -> str:
        parts = [("graph", name)]
        answer = self.acquire(parts, kind="graph", label=name)
        lease = answer["lease"]
        report = {"key": action_key(parts), "fence": lease["fence"], "class": "deterministic", "message": message,
                  "log": log, "exit_code": 70}  # fmt: skip
        assert self.post(f"/v1/leases/{lease['id']}/fail", report)["remembered"]
        return action_key(parts)


@dataclass
class Ran:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def rows(self) -> list[dict[str, str]]:
        """Tab output: the first line names the fields."""
        head, *lines = [line.split("\t") for line in self.out.splitlines()]
        assert all(len(line) == len(head) for line in lines), self.out
        return [dict(zip(head, line, strict=True)) for line in lines]


class Home:
    """A user with nothing set but what a test sets. Everything is under one directory."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.store = directory / "store"
        self.socket = directory / "run" / "daemon.sock"
        self.env = {
            "HOME": str(directory),
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(directory / "run"),
            "NEURONCACHE_DIR": str(self.store),
            "NEURONCACHE_SOCKET": str(self.socket),
            "NEURONCACHE_CONNECT_TIMEOUT": "60s",
            "LC_ALL": "C.UTF-8",
        }
        if marker := os.environ.get("X_TEST_RUN"):
            self.env["X_TEST_RUN"] = marker
        (directory / "run").mkdir(mode=0o700)

    def popen(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(BIN / "neuroncache"), *words], env={**self.env, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.dir,
        )  # fmt: skip

    def run(self, *words: str, **env: str) -> Ran:
        process = self.popen(*words, **env)
        out, err = process.communicate(timeout=120)
        return Ran(process.returncode, out, err)

    def ok(self, *words: str, **env: str) -> Ran:
        ran = self.run(*words, **env)
        assert ran.status == 0, f"{words}: {ran.status}\n{ran.out}\n{ran.err}"
        return ran

    def json(self, schema: str, *words: str) -> Any:
        return validate(self.ok(*words, "--format", "json").json, schema)

    def fails(self, status: int, *words: str, **env: str) -> Ran:
        """It fails so, and says in two lines what happened and what to do; in JSON, too."""
        ran = self.run(*words, **env)
        assert ran.status == status, f"{words}: {ran.status}\n{ran.out}\n{ran.err}"
        lines = [line for line in ran.err.splitlines() if line]
        assert len(lines) >= 2 and lines[-2].startswith("neuroncache: ") and lines[-1].startswith("  to do: "), ran.err
        return ran

    def daemon_pid(self) -> int | None:
        ran = self.run("daemon", "status", "--format", "json")
        return ran.json.get("pid")

    def connect(self) -> Daemon:
        return Daemon(self.socket)

    def daemons(self) -> list[int]:
        """Every living neuroncached of this home."""
        mine = f"NEURONCACHE_DIR={self.store}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if (entry / "comm").read_text().strip() != "neuroncached":
                    continue
                if mine in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def kill_daemons(self) -> None:
        for pid in self.daemons():
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while self.daemons() and time.monotonic() < deadline:
            time.sleep(0.01)


class DyingProxy:
    """Stands for a daemon that is killed once it has sent so many bytes."""

    def __init__(self, target: Path, path: Path, after_bytes: int) -> None:
        self.path = path
        self._target = target
        self._left = after_bytes
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._stop_listening()
        for thread in self._threads:
            thread.join(timeout=30)
            assert not thread.is_alive()

    def _stop_listening(self) -> None:
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._target))
            for source, sink, counted in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._pump, args=(source, sink, counted))
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if counted:
                    self._left -= len(data)
                    if self._left < 0:
                        self._stop_listening()
                        break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
