"""A proxy in front of a Redis server that breaks answers, in the ways of faulty_proxy.py."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections import Counter

from faulty_proxy import serving

FAULTS = ("busy", "denied", "garbage", "short", "other", "refused")
PIECE = 1 << 20
SAYS = {"busy": b"-LOADING Redis is loading the dataset in memory\r\n", "denied": b"-NOPERM no permissions\r\n"}


class Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, port: int, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = port  # of what is behind
        self.fault = fault
        self.well = False
        self.done: Counter[str] = Counter()
        self.last = b""  # an earlier string

    @property
    def spoiling(self) -> str:
        fault = "none" if self.well else self.fault
        self.done[fault] += 1
        return fault


class Handler(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.server.port)) as behind:
            asking = threading.Thread(target=self.ask, args=(behind,), daemon=True)
            asking.start()
            self.tell(behind)
            behind.shutdown(socket.SHUT_RDWR)
            self.request.shutdown(socket.SHUT_RDWR)
            asking.join()

    def ask(self, behind: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while asked := self.request.recv(PIECE):
                behind.sendall(asked)
            behind.shutdown(socket.SHUT_WR)

    def tell(self, behind: socket.socket) -> None:
        """Element by element of the answers."""
        with behind.makefile("rb") as said:
            while answer := said.readline():
                if answer.startswith(b"$") and answer != b"$-1\r\n":
                    answer += said.read(int(answer[1:]) + 2)
                fault = self.server.spoiling
                if fault == "refused":
                    return
                self.request.sendall(self.spoil(fault, answer))
                if fault in ("busy", "denied", "short"):
                    return

    def spoil(self, fault: str, answer: bytes) -> bytes:
        if fault in SAYS:
            return SAYS[fault]
        if fault == "garbage":
            return bytes(byte ^ 0x5A for byte in answer)
        if fault == "short":
            return answer[: len(answer) // 2]
        if fault == "other" and answer.startswith(b"$") and answer != b"$-1\r\n":
            answer, self.server.last = self.server.last or answer, answer
        return answer


def proxy(port: int, fault: str) -> contextlib.AbstractContextManager[Proxy]:
    return serving(Proxy(port, fault))
