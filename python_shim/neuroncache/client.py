"""The daemon's protocol (docs/protocol.md, version 1) over its Unix socket, with the standard library.

`Client` never blocks without a time limit and raises only `DaemonUnavailable`, `ProtocolError` and `BlobError`. It is
safe in threads (each request has a connection of its own while it runs) and over ``fork`` (a child never touches its
parent's connections).
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import http.client
import json
import os
import socket
import struct
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from neuroncache import config, log, spawn
from neuroncache.errors import BlobError, DaemonUnavailable, ProtocolError
from neuroncache.locks import module_lock

PROTOCOL = 1
REQUEST_TIMEOUT = 10.0  # seconds for one answer of the daemon, beyond the time it was asked to wait
BREAKER_SECONDS = 30.0  # after a failure the daemon is left alone for this long
BUSY_SECONDS = 3.0  # how long a daemon that says `busy` or `draining` is asked again
MAX_CONTROL_BYTES = 64 << 20
MAX_IDLE_CONNECTIONS = 4


def action_key(parts: Iterable[tuple[str, str]]) -> str:
    """The key of an action: SHA-256 over its parts in the order of their names, as 64 hex digits."""
    digest = hashlib.sha256(b"neuroncache-action-v1\0")
    previous: bytes | None = None
    for name, value in sorted((name.encode(), value.encode()) for name, value in parts):
        if name == previous:
            raise ValueError(f"two key parts are named {name.decode()!r}")
        previous = name
        digest.update(struct.pack("<I", len(name)) + name + struct.pack("<Q", len(value)) + value)
    return digest.hexdigest()


@dataclass(frozen=True)
class Lease:
    """The right to build one action."""

    key: str
    id: str
    fence: int
    ttl_s: float
    heartbeat_s: float


class _Connection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._socket_path = path

    def connect(self) -> None:
        deadline = time.monotonic() + (self.timeout or REQUEST_TIMEOUT)
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.settimeout(self.timeout)
                sock.connect(self._socket_path)
            except BaseException as error:
                sock.close()
                # A full backlog answers at once; anybody else's patience is ours as well.
                if isinstance(error, BlockingIOError) and time.monotonic() < deadline:
                    time.sleep(0.01)
                    continue
                raise
            self.sock = sock
            return


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Client:
    """One daemon, as seen from this process."""

    def __init__(
        self,
        path: str,
        *,
        start: Callable[[], bool] | None = None,
        trust_any_owner: bool = False,
        connect_timeout: float = 5.0,
        request_timeout: float = REQUEST_TIMEOUT,
        breaker_seconds: float = BREAKER_SECONDS,
    ) -> None:
        """`start` launches the daemon and says whether it could; None: never start one. Unless `trust_any_owner`, a
        socket served by anybody but this user and root is refused: what it sends would be run."""
        self.path = path
        self._start = start
        self._trust_any_owner = trust_any_owner
        self._connect_timeout = connect_timeout
        self._request_timeout = request_timeout
        self._breaker_seconds = breaker_seconds
        self._down_until = 0.0
        self._down_reason = ""
        self._met = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        _clients.add(self)

    # ---- Requests ----

    def acquire(self, key: str, request: Mapping[str, Any], wait_s: float = 0.0) -> dict[str, Any]:
        """Looks up, gets the right to build, or waits up to `wait_s` for who builds."""
        body = {**request, "wait_ms": int(wait_s * 1000)}
        return self._control("POST", f"/v1/actions/{key}/acquire", body, extra_s=wait_s)

    def heartbeat(self, lease: Lease, progress: str = "") -> dict[str, Any]:
        body = {"key": lease.key, "fence": lease.fence, "progress": progress}
        return self._control("POST", f"/v1/leases/{lease.id}/heartbeat", body)

    def put_blob(self, data: bytes, *, lease: Lease | None = None, compress: bool = True) -> str:
        """Uploads bytes and returns their digest."""
        digest = hashlib.sha256(data).hexdigest()
        query = {"compress": "auto" if compress else "never"}
        if lease is not None:
            query["lease"] = lease.id
        path = f"/v1/blobs/{digest}?{urllib.parse.urlencode(query)}"
        self._checked("PUT", path, data, "application/octet-stream", extra_s=len(data) / 4e6)
        return digest

    def get_blob(self, digest: str, size: int) -> bytes:
        """The bytes of a blob, verified. Raises `BlobError` when they are gone or not what the digest says."""
        try:
            _, data = self._checked(
                "GET", f"/v1/blobs/{digest}", None, "", extra_s=size / 4e6, limit=max(size, 1 << 20)
            )
        except ProtocolError as error:
            raise BlobError(f"blob {digest[:12]}: {error}") from error
        if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
            raise BlobError(f"blob {digest[:12]}: the daemon sent other bytes than its name says")
        return data

    def commit(self, lease: Lease, manifest: Mapping[str, Any]) -> dict[str, Any]:
        path = f"/v1/actions/{lease.key}?lease={lease.id}&fence={lease.fence}"
        return self._control("PUT", path, manifest)

    def fail(self, lease: Lease, failure_class: str, message: str, log_text: str = "") -> dict[str, Any]:
        body = {"key": lease.key, "fence": lease.fence, "class": failure_class, "message": message}
        return self._control("POST", f"/v1/leases/{lease.id}/fail", {**body, "log": log_text, "exit_code": 0})

    def bypass(self, namespace: str, reason: str, ticket: str | None = None) -> None:
        self._control(
            "POST",
            "/v1/bypass",
            {"namespace": namespace, "reason": reason, "ticket": ticket, "count": 1},
        )

    def padding_plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's answer to a request of docs/padding.md."""
        return self._control("POST", "/v1/padding/plan", request, extra_s=60.0)

    def buckets_observe(self, report: Mapping[str, Any]) -> None:
        self._control("POST", "/v1/buckets/observe", report)

    def buckets_plan(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._control("POST", "/v1/buckets/plan", request)

    def buckets(self, program: str) -> dict[str, Any]:
        """What is known of a program's sizes."""
        return self._control("GET", f"/v1/buckets?program={program}", None)

    def hello(self) -> dict[str, Any]:
        return self._control("GET", "/v1/hello", None)

    def shutdown(self, drain_s: float = 5.0) -> None:
        self._control("POST", "/v1/shutdown", {"drain_ms": int(drain_s * 1000)})

    def stats(self, namespace: str = "") -> dict[str, Any]:
        query = f"?namespace={urllib.parse.quote(namespace)}" if namespace else ""
        return self._control("GET", f"/v1/stats{query}", None)

    @property
    def down(self) -> str:
        """Why the daemon is being left alone at the moment, else ''."""
        return self._down_reason if time.monotonic() < self._down_until else ""

    @property
    def in_use(self) -> bool:
        """Whether the daemon answered before and is not being left alone."""
        return self._met and not self.down

    def retry_now(self) -> None:
        """Forgets an earlier failure: for a caller with a result of minutes in its hands, one more attempt is cheap."""
        self._down_until = 0.0

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # ---- Transport ----

    def _control(self, method: str, path: str, body: Mapping[str, Any] | None, extra_s: float = 0.0) -> dict[str, Any]:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        deadline = time.monotonic() + BUSY_SECONDS
        pause = 0.05
        while True:
            try:
                _, answer = self._checked(method, path, data, "application/json", extra_s=extra_s)
                break
            except ProtocolError as error:
                if error.code not in ("busy", "draining") or time.monotonic() > deadline:
                    raise
                self.close()  # a draining daemon may be followed by another one
                time.sleep(pause)
                pause = min(pause * 2, 0.5)
        try:
            document = json.loads(answer or b"{}")
        except ValueError as error:
            raise self._trip(f"its answer to {method} {path.split('?')[0]} is no JSON: {error}") from error
        if not isinstance(document, dict):
            raise self._trip(f"its answer to {method} {path.split('?')[0]} is no JSON object")
        return document

    def _checked(
        self, method: str, path: str, body: bytes | None, kind: str, *, extra_s: float = 0.0, limit: int | None = None
    ) -> tuple[int, bytes]:
        """One exchange; error documents become `ProtocolError`."""
        status, data = self._exchange(method, path, body, kind, self._request_timeout + extra_s, limit)
        if status < 400:
            return status, data
        try:
            error = json.loads(data)["error"]
            code, message, action = str(error["code"]), str(error["message"]), str(error.get("action", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._trip(f"it answered {status} to {method} {path.split('?')[0]} without a reason") from None
        if code in ("unsupported_protocol", "denied"):
            raise self._trip(f"{message}{': ' + action if action else ''}")
        raise ProtocolError(status, code, message, action)

    def _exchange(
        self, method: str, path: str, body: bytes | None, kind: str, timeout: float, limit: int | None
    ) -> tuple[int, bytes]:
        reason = self.down
        if reason:
            raise DaemonUnavailable(reason)
        headers = {"X-Neuroncache-Protocol": str(PROTOCOL)}
        if body is not None:
            headers["Content-Type"] = kind
        for attempt in (1, 2):
            connection = self._take()
            try:
                connection.sock.settimeout(timeout)
                try:
                    connection.request(method, path, body, headers)
                except (BrokenPipeError, ConnectionResetError):
                    if body is None:
                        raise
                    # An upload that is refused is answered before it is read: the answer says why.
                response = connection.getresponse()
                data = response.read((MAX_CONTROL_BYTES if limit is None else limit) + 1)
                if not response.isclosed():
                    raise http.client.HTTPException("the answer is cut short, or longer than it may be")
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # A kept connection may have died with an earlier daemon, and a daemon may be restarted while it answers;
                # every request may be repeated.
                if attempt == 1 and not isinstance(error, TimeoutError):
                    self.close()
                    continue
                raise self._trip(_describe(error, timeout)) from error
            except BaseException:
                connection.close()
                raise
            self._put(connection, keep=not response.will_close)
            return response.status, data
        raise AssertionError("unreachable")

    def _take(self) -> _Connection:
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except OSError as error:
            raise self._trip(_describe(error, self._connect_timeout)) from error

    def _put(self, connection: _Connection, *, keep: bool) -> None:
        if keep and self._pid == os.getpid():
            with self._lock:
                if len(self._idle) < MAX_IDLE_CONNECTIONS:
                    self._idle.append(connection)
                    return
        connection.close()

    def _connect(self) -> _Connection:
        """A new connection; starts the daemon when nobody listens."""
        deadline = time.monotonic() + self._connect_timeout
        pause = 0.002
        started = False
        while True:
            connection = _Connection(self.path, self._connect_timeout)
            try:
                connection.connect()
                self._check_owner(connection)
                self._met = True
                return connection
            except (FileNotFoundError, ConnectionRefusedError):
                if not started:
                    # One that was here a moment ago is probably being restarted by whoever looks after it.
                    if (self._start is None or not self._start()) and not self._met:
                        raise
                    started = True
                    deadline = time.monotonic() + self._connect_timeout
                if time.monotonic() > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 1.5, 0.1)

    def _check_owner(self, connection: _Connection) -> None:
        if self._trust_any_owner:
            return
        credentials = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        uid = struct.unpack("3i", credentials)[1]
        if uid not in (0, os.getuid()):
            connection.close()
            raise PermissionError(errno.EPERM, f"it is served by user {uid}; name it in NEURONCACHE_SOCKET to trust it")

    def _trip(self, reason: str) -> DaemonUnavailable:
        """Opens the breaker."""
        self._down_until = time.monotonic() + self._breaker_seconds
        self._met = False
        self._down_reason = f"the daemon at {self.path}: {reason}"
        log.debug("%s; not asked again for %.0f s", self._down_reason, self._breaker_seconds)
        return DaemonUnavailable(self._down_reason)

    def _forget(self) -> None:
        """Drops inherited connections. Closing our copies of the descriptors leaves the parent's alone."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _describe(error: BaseException, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:.0f} s"
    if isinstance(error, FileNotFoundError):
        return "nobody listens there (start it with `neuroncache daemon start`)"
    if isinstance(error, OSError) and "too long" in str(error):
        return "the path is too long for a Unix socket; set NEURONCACHE_SOCKET to a shorter one"
    return str(error) or type(error).__name__


def _after_fork() -> None:
    for client in list(_clients):
        client._forget()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()


_default: tuple[tuple[Any, ...], Client] | None = None
_default_lock = module_lock()


def default_client() -> Client:
    """The client for the settings in force."""
    global _default
    path = config.socket_path()
    settings = (
        path,
        config.get("autostart"),
        config.get("daemon_path"),
        config.get("dir"),
        config.get("connect_timeout"),
    )
    with _default_lock:
        if _default is None or _default[0] != settings:
            _default = (
                settings,
                Client(
                    path,
                    start=spawn.start_daemon if config.get("autostart") else None,
                    trust_any_owner=bool(config.get("socket")),
                    connect_timeout=config.get("connect_timeout"),
                ),
            )
        return _default[1]
