"""One build per artifact: look-up, single flight and publishing, over the daemon.

`Cache.obtain` is the only way the rest of the package gets an artifact. Whatever goes wrong with the cache, it ends in a
build by this process: it never hangs (every wait has a limit or a live builder), and it never changes what is built.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from neuroncache import config, log
from neuroncache.artifact import Built, Hit
from neuroncache.client import Client, default_client
from neuroncache.errors import DaemonUnavailable, ProtocolError
from neuroncache.flight import Flight

__all__ = ["Built", "Cache", "Hit"]

T = TypeVar("T")


class Cache:
    """The cache as one process sees it. Threads may share one."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client

    def obtain(
        self,
        kind: str,
        parts: list[tuple[str, str]],
        *,
        label: str,
        compiler: str,
        build: Callable[[], Built[T]],
        load: Callable[[Hit], T],
    ) -> T:
        """The artifact of the action that `parts` describe: loaded, waited for, or built here (and published).

        Exceptions of `build` pass through. May be called from within a `build` or a `load`.
        """
        return Flight(self._client or default_client(), kind, parts, label, compiler, build, load).run()

    def find(self, key: str) -> Hit | None:
        """What the store holds under a key, without a build in mind. None also when the daemon cannot be reached."""
        client = self._client or default_client()
        try:
            answer = client.acquire(key, {"namespace": config.get("namespace"), "intent": "lookup"})
            return Hit(client, key, answer["manifest"], answer["blobs"]) if answer.get("state") == "hit" else None
        except (DaemonUnavailable, ProtocolError, KeyError, TypeError) as error:
            log.debug("look-up of %s: %s", key[:12], error)
            return None

    def bypassed(self, reason: str) -> None:
        """Has the daemon count that something went without it, where it is in use anyway."""
        client = self._client or default_client()
        if client.in_use:
            with contextlib.suppress(DaemonUnavailable, ProtocolError):
                client.bypass(config.get("namespace"), reason)
