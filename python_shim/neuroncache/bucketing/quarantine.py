"""Plans that gave wrong results somewhere: remembered by the daemon, so that no other process uses them either."""

from __future__ import annotations

from neuroncache.artifact import Built, Hit
from neuroncache.cache import Cache
from neuroncache.client import action_key

_REASON = "reason"


class Quarantine:
    """The mark on one plan. `request` is the digest of what it was asked by, `engine` the version that made it."""

    def __init__(self, cache: Cache, request: str, engine: str) -> None:
        self.cache = cache
        self.parts = [("engine", engine), ("kind", "quarantine"), ("request", f"sha256:{request}")]

    def reason(self) -> str:
        """Why the plan must not be used; '' when nothing is known against it."""
        hit = self.cache.find(action_key(self.parts))
        return _read(hit) if hit is not None else ""

    def impose(self, reason: str) -> None:
        self.cache.obtain(
            "quarantine",
            self.parts,
            label="padding plan in quarantine",
            compiler="neuroncache",
            build=lambda: Built(reason, {_REASON: reason.encode()}),
            load=_read,
        )


def _read(hit: Hit) -> str:
    return hit.data(_REASON).decode(errors="replace") or "no reason is given"
