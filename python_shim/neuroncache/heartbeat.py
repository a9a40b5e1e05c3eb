"""Keeping a lease alive while its holder builds."""

from __future__ import annotations

import threading
from types import TracebackType

from neuroncache import log
from neuroncache.client import Client, Lease
from neuroncache.errors import DaemonUnavailable, ProtocolError


class Heartbeat:
    """A thread that beats for one lease from entry to exit of a ``with`` block."""

    def __init__(self, client: Client, lease: Lease) -> None:
        self._client = client
        self._lease = lease
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neuroncache-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        # Not joined: it may be inside a request, and ends by itself after that.
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._lease.heartbeat_s):
            self._client.retry_now()
            try:
                self._client.heartbeat(self._lease)
            except ProtocolError as error:
                if error.code == "lease_lost":
                    log.debug("lease of %s was lost; the build goes on", self._lease.key[:12])
                    return
            except DaemonUnavailable:
                # It may come back, and knows the lease then.
                continue
