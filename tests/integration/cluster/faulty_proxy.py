"""An HTTP proxy in front of a tier that breaks some of the answers, by turns in all the ways in which a tier may be sick."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import random
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

FAULTS = ("busy", "denied", "garbage", "short", "other", "lost", "refused")
Server = TypeVar("Server", bound=socketserver.BaseServer)


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, share: float, seed: int, faults: tuple[str, ...]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = port  # of what is behind
        self.faults = faults
        self.share = share
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.last = b""  # body of an earlier answer
        self.lock = threading.Lock()

    def next_fault(self) -> str:
        with self.lock:
            fault = self.random.choice(self.faults) if self.random.random() < self.share else "none"
            self.done[fault] += 1
            return fault


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *_: object) -> None:
        pass

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.next_fault()
        if fault == "refused":
            self.close_connection = True
            return
        if fault in ("busy", "denied"):
            self.answer(503 if fault == "busy" else 403, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        behind = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        behind.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k != "Expect"})
        answer = behind.getresponse()
        data = answer.read()
        behind.close()
        if fault == "lost":  # it happened, and nobody hears of it
            self.close_connection = True
            return
        headers = {k: v for k, v in answer.getheaders() if k.lower() in ("etag", "content-type", "last-modified")}
        if self.command == "HEAD":
            headers["Content-Length"] = answer.headers.get("Content-Length", "0")
        if answer.status == 200 and self.command == "GET" and data:
            if fault == "garbage":
                data = bytes(byte ^ 0x5A for byte in data)
            elif fault == "short":
                self.answer(200, headers, data, len(data) // 2)
                return
            elif fault == "other":
                data, self.server.last = self.server.last or data, data
        self.answer(answer.status, headers, data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = forward

    def answer(self, status: int, headers: dict[str, str], data: bytes, cut: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:cut])
        if cut is not None:
            self.close_connection = True


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server, on a thread of its own until the end."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def proxy(
    port: int, share: float, seed: int, faults: tuple[str, ...] = FAULTS
) -> contextlib.AbstractContextManager[Proxy]:
    return serving(Proxy(port, share, seed, faults))
