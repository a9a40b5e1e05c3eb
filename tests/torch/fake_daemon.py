#!/usr/bin/env python3
"""A daemon of protocol v1 in a few lines, for tests of the shim that need one to misbehave, or need none built.

It keeps blobs and manifests in a directory, so that a restarted one still has them; leases die with their process.
`--fault` makes it go wrong on purpose:

  garbage      acquire answers no JSON            error500     acquire answers an error document
  mute         acquire never answers              badblob      hits carry other bytes than the manifest says
  no_space     uploads are answered 507           close        the connection is closed in place of an answer
  old          every request is answered 400 unsupported_protocol
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import hashlib
import http.server
import json
import os
import signal
import socketserver
import struct
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TTL_S = 2.0


class State:
    def __init__(self, directory: Path, fault: str) -> None:
        self.directory = directory
        self.fault = fault
        self.changed = threading.Condition()
        self.leases: dict[str, dict[str, Any]] = {}  # by key
        self.failures: dict[str, dict[str, Any]] = {}
        self.fence = int(time.time() * 1000)
        names = ("lookups", "hits", "waits", "builds", "failures", "bypasses")
        self.counters = dict.fromkeys(names, 0)
        self.reasons: dict[str, int] = {}
        (directory / "blobs").mkdir(parents=True, exist_ok=True)
        (directory / "manifests").mkdir(exist_ok=True)

    def manifest(self, key: str) -> dict[str, Any] | None:
        try:
            return json.loads((self.directory / "manifests" / key).read_text())
        except FileNotFoundError:
            return None

    def live_lease(self, key: str) -> dict[str, Any] | None:
        lease = self.leases.get(key)
        if lease and (
            lease["expires"] < time.monotonic() or not Path(f"/proc/{lease['pid']}").exists() or _zombie(lease["pid"])
        ):
            del self.leases[key]
            return None
        return lease

    def count(self, name: str) -> None:
        self.counters[name] += 1
        self.counters["lookups"] += 1


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def address_string(self) -> str:
        return "local"

    def log_message(self, *arguments: object) -> None:
        pass

    def reply(self, status: int, document: Any) -> None:
        self.send(status, json.dumps(document).encode(), "application/json")

    def error(self, status: int, code: str, message: str = "on purpose", action: str = "") -> None:
        self.reply(status, {"error": {"code": code, "message": message, "action": action}})

    def send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do(self) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        parts = url.path.strip("/").split("/")[1:]
        if self.state.fault == "old":
            return self.error(400, "unsupported_protocol", "this daemon speaks protocol 7", "update the client")
        match (self.command, parts):
            case ("GET", ["hello"]):
                self.reply(
                    200, {"protocol": {"min": 1, "max": 1}, "version": "fake", "capabilities": [], "pid": os.getpid()}
                )
            case ("GET", ["stats"]):
                self.reply(200, {"counters": self.state.counters, "bypass_reasons": self.state.reasons})
            case ("POST", ["actions", key, "acquire"]):
                self.acquire(key, json.loads(self.body))
            case ("PUT", ["actions", key]):
                self.commit(key, json.loads(self.body))
            case ("POST", ["leases", _, "heartbeat"]):
                self.heartbeat(json.loads(self.body))
            case ("POST", ["leases", _, "fail"]):
                self.fail(json.loads(self.body))
            case ("PUT", ["blobs", digest]):
                self.put_blob(digest)
            case ("GET", ["blobs", digest]):
                path = self.state.directory / "blobs" / digest
                if self.state.fault == "badblob" or not path.exists():
                    return self.error(404, "not_found", f"no blob {digest[:12]}")
                self.send(200, path.read_bytes(), "application/octet-stream")
            case ("POST", ["shutdown"]):
                self.reply(200, {})
                threading.Timer(0.1, os._exit, [0]).start()
            case ("POST", ["bypass"]):
                reason = json.loads(self.body)["reason"]
                with self.state.changed:
                    self.state.count("bypasses")
                    self.state.reasons[reason] = self.state.reasons.get(reason, 0) + 1
                self.reply(200, {})
            case _:
                self.error(404, "not_found", f"no {self.command} {url.path}")
        return None

    do_GET = do_PUT = do_POST = do_DELETE = do

    def acquire(self, key: str, request: dict[str, Any]) -> None:
        state = self.state
        if state.fault == "garbage":
            return self.send(200, b"<html>", "text/html")
        if state.fault == "error500":
            return self.error(500, "internal")
        if state.fault == "close":
            self.close_connection = True
            return None
        if state.fault == "mute":
            time.sleep(60)
        deadline = time.monotonic() + request.get("wait_ms", 0) / 1000
        waited = bool(request.get("ticket"))
        pid = struct.unpack("3i", self.connection.getsockopt(1, 17, 12))[0]
        with state.changed:
            while True:
                if (manifest := state.manifest(key)) and not (state.fault == "badblob" and request.get("again")):
                    state.count("waits" if waited else "hits")
                    return self.reply(200, self.hit(manifest, waited))
                if request["intent"] == "lookup":
                    return self.reply(200, {"state": "miss", "miss": {}})
                if failure := state.failures.get(key):
                    state.count("failures")
                    return self.reply(200, {"state": "failed", "failure": failure})
                lease = state.live_lease(key)
                if lease is None:
                    state.fence += 1
                    lease = {"id": uuid.uuid4().hex, "fence": state.fence, "pid": pid, "since": time.monotonic()}
                    lease["expires"] = time.monotonic() + TTL_S
                    state.leases[key] = lease
                    state.count("builds")
                    answer = {
                        "id": lease["id"],
                        "fence": lease["fence"],
                        "ttl_ms": int(TTL_S * 1000),
                        "heartbeat_ms": 300,
                    }
                    miss = {"cause": "never_built", "nearest": None}
                    return self.reply(200, {"state": "lease", "lease": answer, "miss": miss})
                waited = True
                if time.monotonic() >= deadline:
                    builder = {"pid": lease["pid"], "host": "here", "program": "test"}
                    elapsed = time.monotonic() - lease["since"]
                    answer = {"state": "building", "ticket": uuid.uuid4().hex, "builder": builder, "elapsed_s": elapsed}
                    return self.reply(200, {**answer, "usual_s": None, "waiters": 1})
                state.changed.wait(0.1)

    def hit(self, manifest: dict[str, Any], waited: bool) -> dict[str, Any]:
        blobs = {}
        for output in manifest["outputs"]:
            path = self.state.directory / "blobs" / output["digest"]
            entry: dict[str, Any] = {"digest": output["digest"], "size": output["size"], "path": None, "inline": None}
            if self.state.fault == "badblob":
                entry["inline"] = base64.b64encode(b"x" * output["size"]).decode()
            elif output["size"] < 100:
                entry["inline"] = base64.b64encode(path.read_bytes()).decode()
            else:
                entry["path"] = str(path)
            blobs[output["name"]] = entry
        return {"state": "hit", "waited": waited, "manifest": manifest, "blobs": blobs}

    def commit(self, key: str, manifest: dict[str, Any]) -> None:
        state = self.state
        with state.changed:
            lease = state.live_lease(key)
            if lease is None or lease["id"] != self.query["lease"]:
                return self.error(409, "lease_lost", "another process holds this lease")
            path = state.directory / "manifests" / key
            path.with_suffix(".new").write_text(json.dumps(manifest))
            path.with_suffix(".new").rename(path)
            del state.leases[key]
            state.changed.notify_all()
        return self.reply(201, {"published": True})

    def heartbeat(self, request: dict[str, Any]) -> None:
        state = self.state
        identity = self.path.split("/")[3]
        pid = struct.unpack("3i", self.connection.getsockopt(1, 17, 12))[0]
        with state.changed:
            lease = state.live_lease(request["key"])
            if lease is None and state.manifest(request["key"]) is None:
                lease = {"id": identity, "fence": request["fence"], "pid": pid, "since": time.monotonic()}
                state.leases[request["key"]] = lease
            if lease is None or lease["id"] != identity:
                return self.error(409, "lease_lost", "another process holds this lease")
            lease["expires"] = time.monotonic() + TTL_S
        return self.reply(200, {"ttl_ms": int(TTL_S * 1000)})

    def fail(self, request: dict[str, Any]) -> None:
        state = self.state
        with state.changed:
            state.leases.pop(request["key"], None)
            remembered = request["class"] in ("deterministic", "uncacheable")
            if remembered:
                state.failures[request["key"]] = {"class": request["class"], "message": request["message"]}
            state.changed.notify_all()
        self.reply(200, {"remembered": remembered, "expires_ms": 0})

    def put_blob(self, digest: str) -> None:
        if self.state.fault == "no_space":
            return self.error(507, "no_space", "the disk is full", "make room")
        if hashlib.sha256(self.body).hexdigest() != digest:
            return self.error(422, "digest_mismatch")
        path = self.state.directory / "blobs" / digest
        temporary = path.with_suffix(f".{threading.get_ident()}")
        temporary.write_bytes(self.body)
        temporary.rename(path)
        return self.reply(201, {"digest": digest, "size": len(self.body), "existed": False})


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", default=os.environ.get("NEURONCACHE_SOCKET"))
    parser.add_argument("--dir", default=os.environ.get("NEURONCACHE_DIR"))
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--fault", default=os.environ.get("FAKE_DAEMON_FAULT", ""))
    arguments = parser.parse_args()
    socket_path = Path(arguments.socket)
    socket_path.parent.mkdir(parents=True, exist_ok=True)
    lock = open(f"{socket_path}.lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    socket_path.unlink(missing_ok=True)
    server = Server(str(socket_path), Handler)
    if arguments.detach:
        if os.fork():
            os._exit(0)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
    Handler.state = State(Path(arguments.dir), arguments.fault)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
