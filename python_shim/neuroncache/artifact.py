"""What a build gives and what the store gives back."""

from __future__ import annotations

import atexit
import base64
import contextlib
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from neuroncache.client import Client
from neuroncache.errors import BlobError
from neuroncache.locks import module_lock

T = TypeVar("T")


@dataclass
class Built(Generic[T]):
    """What a build gave. `outputs` None: usable here and not storable, for the reason in `refusal`."""

    value: T
    outputs: dict[str, bytes] | None
    uncompressed: frozenset[str] = frozenset()  # outputs that are loaded by path
    meta: dict[str, str] = field(default_factory=dict)
    refusal: str | None = None
    passing: bool = False  # the refusal is of this host or moment, and is not remembered


class Hit:
    """An artifact in the store. Bytes are verified (size and SHA-256) before they are handed out."""

    def __init__(self, client: Client, key: str, manifest: dict[str, Any], blobs: dict[str, Any]) -> None:
        self.key = key
        self.manifest = manifest
        self._client = client
        self._blobs = blobs
        self._outputs: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in manifest["outputs"]}
        self._verified: dict[str, bytes] = {}

    def data(self, name: str) -> bytes:
        """The bytes of an output. Raises `BlobError`."""
        if name not in self._verified:
            self._verified[name] = self._read(name)
        return self._verified[name]

    def path(self, name: str) -> str:
        """A local file that holds the output, to be opened at once. Raises `BlobError`."""
        entry = self._output(name)
        path = self._blobs.get(name, {}).get("path")
        if path and name not in self._verified:
            with contextlib.suppress(OSError):
                if _file_is(path, entry["digest"], entry["size"]):
                    return str(path)
        return _private_file(entry["digest"], self.data(name))

    def _output(self, name: str) -> dict[str, Any]:
        try:
            return self._outputs[name]
        except KeyError:
            raise BlobError(f"artifact {self.key[:12]} has no output '{name}'") from None

    def _read(self, name: str) -> bytes:
        entry = self._output(name)
        blob = self._blobs.get(name, {})
        data: bytes | None = None
        if blob.get("inline") is not None:
            with contextlib.suppress(ValueError):
                data = base64.b64decode(blob["inline"], validate=True)
        elif blob.get("path"):
            with contextlib.suppress(OSError), open(blob["path"], "rb") as file:
                data = file.read(entry["size"] + 1)
        if data is not None and len(data) == entry["size"] and hashlib.sha256(data).hexdigest() == entry["digest"]:
            return data
        # Compressed, evicted since, or damaged: the daemon's own read checks the blob, and puts a bad one aside.
        return self._client.get_blob(entry["digest"], entry["size"])


_lock = module_lock()
_known_files: dict[str, tuple[int, int, int, str]] = {}  # path -> (inode, mtime, size, digest), verified once
_private: tuple[int, str] | None = None  # (process, its directory for files that the store has no path for)


def _file_is(path: str, digest: str, size: int) -> bool:
    with open(path, "rb") as file:
        state = os.fstat(file.fileno())
        known = (state.st_ino, state.st_mtime_ns, state.st_size, digest)
        if state.st_size != size:
            return False
        if _known_files.get(path) == known:
            return True
        if hashlib.sha256(file.read()).hexdigest() != digest:
            return False
    with _lock:
        if len(_known_files) > 4096:
            _known_files.clear()
        _known_files[path] = known
    return True


def _private_file(digest: str, data: bytes) -> str:
    """Writes verified bytes where only this user can change them; removed when the process ends."""
    global _private
    with _lock:
        if _private is None or _private[0] != os.getpid():
            _private = (os.getpid(), tempfile.mkdtemp(prefix="neuroncache-"))
            atexit.register(_remove, *_private)
        path = os.path.join(_private[1], digest)
        if not os.path.exists(path):
            # Written aside and renamed: a library that is loaded must never change under its users.
            with open(f"{path}.new", "wb") as file:
                file.write(data)
            os.rename(f"{path}.new", path)
    return path


def _remove(pid: int, directory: str) -> None:
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)
