"""One call of `Cache.obtain`: asks the daemon, and loads, waits for or builds the artifact."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from neuroncache import config, counters, log
from neuroncache._version import VERSION
from neuroncache.artifact import Built, Hit
from neuroncache.client import Client, Lease, action_key
from neuroncache.errors import BlobError, DaemonUnavailable, LoadRefused, ProtocolError, Unsupported, passes_through
from neuroncache.heartbeat import Heartbeat
from neuroncache.progress import Progress

T = TypeVar("T")

WAIT_SLICE_S = 2.0  # one answer of the daemon while another builds

_local = threading.local()


class _Frame:
    """What calls of `obtain` within one build or load took, which is theirs and not that build's."""

    seconds = 0.0  # of this process
    build_ms = 0  # of whoever built what they gave


@contextlib.contextmanager
def _nested() -> Iterator[_Frame]:
    frames: list[_Frame] = _local.__dict__.setdefault("frames", [])
    frame = _Frame()
    frames.append(frame)
    try:
        yield frame
    finally:
        frames.remove(frame)


class Flight(Generic[T]):
    """One call of `Cache.obtain`."""

    def __init__(
        self,
        client: Client,
        kind: str,
        parts: list[tuple[str, str]],
        label: str,
        compiler: str,
        build: Callable[[], Built[T]],
        load: Callable[[Hit], T],
    ) -> None:
        self.client = client
        self.kind = kind
        self.parts = parts
        self.label = label
        self.compiler = compiler
        self.build = build
        self.load = load
        self.key = action_key(parts)
        self.namespace: str = config.get("namespace")
        self.miss: dict[str, Any] = {}
        self.cost_ms = 0  # what this call would take without the cache

    def run(self) -> T:
        started = time.monotonic()
        outcome = "error"
        try:
            outcome, value = self._run()
            return value
        finally:
            elapsed = time.monotonic() - started
            if frames := getattr(_local, "frames", None):
                frames[-1].seconds += elapsed
                frames[-1].build_ms += self.cost_ms
            counters.step(
                {
                    "kind": self.kind,
                    "label": self.label,
                    "key": self.key,
                    "outcome": outcome,
                    "miss": self.miss,
                    "seconds": round(elapsed, 6),
                }
            )

    def _run(self) -> tuple[str, T]:
        rejected = 0
        while True:
            try:
                answer = self._ask()
                state = answer["state"]
                if state == "lease":
                    self.miss = dict(answer.get("miss") or {})
                    lease = _lease(self.key, answer["lease"])
            except (DaemonUnavailable, ProtocolError, KeyError, TypeError, ValueError) as error:
                return "bypass", self._without_cache(
                    "daemon_unreachable", "daemon", f"building without the cache: {error}"
                )
            if state == "lease":
                return "built", self._build_under(lease)
            if state == "hit":
                try:
                    return ("waited" if answer.get("waited") else "hit"), self._load(answer)
                except (BlobError, FileNotFoundError) as error:
                    # The daemon has seen the damage or the loss too by now, and grants a lease to repair it.
                    rejected += 1
                    if rejected == 1:
                        log.debug("%s: %s; asking again", self.label, error)
                        continue
                    return "bypass", self._without_cache(
                        "load_failed", "load", f"{self.label}: {error}; building it here"
                    )
                except LoadRefused as error:
                    return "bypass", self._without_cache(
                        "load_refused", "refused", f"{self.label}: {error}; building it here"
                    )
                except Exception as error:
                    if passes_through(error):
                        raise
                    what = f"{self.label}: a stored artifact does not load ({_text(error)}); building it here"
                    return "bypass", self._without_cache("load_failed", "load", what)
            if state == "failed":
                counters.count("failures", kind=self.kind)
                log.debug("%s: remembered failure: %s", self.label, answer.get("failure"))
                return "failed", self._build_plain()
            if state == "timeout":
                what = f"{self.label}: another process has been building it for over {config.get('wait_timeout'):.0f} s"
                return "bypass", self._without_cache("wait_timeout", "wait", f"{what}; building it here as well")
            return "bypass", self._without_cache(
                "daemon_answer", "daemon", f"the daemon answered '{state}', which is unknown"
            )

    # ---- Asking and waiting ----

    def _ask(self) -> dict[str, Any]:
        """The daemon's answer once it is not `building`; ``{"state": "timeout"}`` when our patience ended."""
        request: dict[str, Any] = {
            "namespace": self.namespace,
            "kind": self.kind,
            "intent": "build",
            "parts": [list(part) for part in self.parts],
            "label": self.label,
            "program": _program(),
            "compiler": self.compiler,
            "model": "",
        }
        if recording := config.get("record"):
            request["recording"] = recording
        patience: float = config.get("wait_timeout")
        started = time.monotonic()
        progress = Progress(self.label)
        wait_s = WAIT_SLICE_S
        try:
            while True:
                if patience:
                    wait_s = max(0.0, min(WAIT_SLICE_S, patience - (time.monotonic() - started)))
                try:
                    answer = self.client.acquire(self.key, request, wait_s)
                except ProtocolError:
                    # A ticket does not outlive its daemon; a new one is given on asking without.
                    if request.pop("ticket", None) is None:
                        raise
                    continue
                if answer.get("state") != "building":
                    return answer
                request["ticket"] = answer["ticket"]
                progress.show(answer)
                if patience and time.monotonic() - started >= patience:
                    with contextlib.suppress(DaemonUnavailable, ProtocolError):
                        self.client.bypass(self.namespace, "wait_timeout", answer["ticket"])
                    return {"state": "timeout"}
        finally:
            progress.clear()
            waited = time.monotonic() - started
            counters.seconds("wait" if "ticket" in request else "lookup", waited)

    def _load(self, answer: dict[str, Any]) -> T:
        hit = Hit(self.client, self.key, answer["manifest"], answer["blobs"])
        started = time.monotonic()
        with _nested() as inner:
            value = self.load(hit)
        counters.seconds("load", time.monotonic() - started - inner.seconds)
        counters.count("waits" if answer.get("waited") else "hits", kind=self.kind)
        self.cost_ms = int(answer["manifest"].get("build_ms", 0))
        return value

    # ---- Building ----

    def _build_under(self, lease: Lease) -> T:
        started = time.monotonic()
        with Heartbeat(self.client, lease), _nested() as inner:
            try:
                built = self.build()
            except BaseException as error:
                self._report(lease, _failure_class(error), _text(error))
                raise
            build_s = max(0.0, time.monotonic() - started - inner.seconds)
            counters.count("builds", kind=self.kind)
            counters.seconds("build", build_s)
            if built.outputs is None:
                reason = built.refusal or "not storable"
                counters.bypass(f"uncacheable: {reason}", kind=self.kind)
                self._report(lease, "environment" if built.passing else "uncacheable", reason)
            else:
                if inner.build_ms:
                    # A hit on this entry saves what is in it as well.
                    built.meta["nested_build_ms"] = str(inner.build_ms)
                self._publish(lease, built, built.outputs, build_s)
            self.cost_ms = int(build_s * 1000) + inner.build_ms
        return built.value

    def _publish(self, lease: Lease, built: Built[T], outputs: dict[str, bytes], build_s: float) -> None:
        started = time.monotonic()
        self.client.retry_now()
        try:
            named = []
            for name, data in sorted(outputs.items()):
                digest = self.client.put_blob(data, lease=lease, compress=name not in built.uncompressed)
                named.append({"name": name, "digest": digest, "size": len(data), "mode": 0o644})
            manifest = self._manifest(named, built.meta, build_s)
            try:
                self.client.commit(lease, manifest)
            except ProtocolError as error:
                # After a restart the daemon may not know the lease; a heartbeat makes it ours again unless another has it.
                if error.code not in ("lease_lost", "not_found"):
                    raise
                self.client.heartbeat(lease)
                self.client.commit(lease, manifest)
        except ProtocolError as error:
            if error.code == "lease_lost":
                log.info("%s: another process took over the build; its result is kept", self.label)
                return
            log.warn(f"publish-{error.code}", f"{self.label} was built but not stored: {error}")
            counters.count("errors")
            self._report(lease, "disk_full" if error.code == "no_space" else "environment", str(error))
        except DaemonUnavailable as error:
            log.warn("publish", f"{self.label} was built but not stored: {error}")
            counters.count("errors")
        finally:
            counters.seconds("publish", time.monotonic() - started)

    def _manifest(self, outputs: list[dict[str, Any]], meta: dict[str, str], build_s: float) -> dict[str, Any]:
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return {
            "v": 1,
            "key": self.key,
            "kind": self.kind,
            "namespace": self.namespace,
            "label": self.label,
            "model": "",
            "compiler": self.compiler,
            "created_ms": int(time.time() * 1000),
            "build_ms": int(build_s * 1000),
            "peak_rss_bytes": peak * 1024,
            "producer": {"host": socket.gethostname(), "pid": os.getpid(), "program": _program(), "version": VERSION},
            "parts": sorted([list(part) for part in self.parts]),
            "outputs": outputs,
            "meta": meta,
            "signature": None,
        }

    def _report(self, lease: Lease, failure_class: str, message: str) -> None:
        with contextlib.suppress(DaemonUnavailable, ProtocolError):
            self.client.fail(lease, failure_class, message)

    def _without_cache(self, reason: str, kind: str, message: str) -> T:
        """Builds here, with one warning per `kind`. The daemon is told where it can be."""
        log.warn(f"bypass-{kind}", message)
        counters.bypass(reason, kind=self.kind)
        if reason not in ("daemon_unreachable", "wait_timeout") and not self.client.down:
            with contextlib.suppress(DaemonUnavailable, ProtocolError):
                self.client.bypass(self.namespace, reason)
        return self._build_plain()

    def _build_plain(self) -> T:
        started = time.monotonic()
        with _nested() as inner:
            value = self.build().value
        counters.count("builds", kind=self.kind)
        counters.seconds("build", max(0.0, time.monotonic() - started - inner.seconds))
        return value


def _lease(key: str, answer: dict[str, Any]) -> Lease:
    return Lease(key, str(answer["id"]), int(answer["fence"]), answer["ttl_ms"] / 1000, answer["heartbeat_ms"] / 1000)


def _failure_class(error: BaseException) -> str:
    """What a failed build means for who else needs it. Only the classes `deterministic` and `uncacheable` are remembered."""
    if isinstance(error, Unsupported):
        return "environment" if error.passing else "uncacheable"
    if isinstance(error, MemoryError):
        return "out_of_memory"
    if not isinstance(error, Exception) or passes_through(error):
        return "cancelled"
    if isinstance(error, OSError):
        return "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "environment"
    # A compiler that is missing or broken here may be well elsewhere.
    if "Invalid" in type(error).__name__ and "Compiler" in type(error).__name__:
        return "environment"
    return "deterministic"


def _text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _program() -> str:
    return os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) and sys.argv[0] else "python"
