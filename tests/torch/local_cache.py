"""A stand-in for the daemon's cache: one directory, no single flight. For tests of what is cached, not of how."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

from neuroncache.artifact import Built
from neuroncache.errors import LoadRefused
from neuroncache.keys import action_key


class LocalHit:
    def __init__(self, directory: str, manifest: dict[str, Any]) -> None:
        self.directory = directory
        self.manifest = manifest
        self.key = manifest["key"]

    def data(self, name: str) -> bytes:
        with open(self.path(name), "rb") as file:
            data = file.read()
        (digest,) = (entry["digest"] for entry in self.manifest["outputs"] if entry["name"] == name)
        assert hashlib.sha256(data).hexdigest() == digest
        return data

    def path(self, name: str) -> str:
        (digest,) = (entry["digest"] for entry in self.manifest["outputs"] if entry["name"] == name)
        return os.path.join(self.directory, digest)


class LocalCache:
    """Counts what was obtained and how, by kind, in `events`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.events: list[tuple[str, str, str]] = []  # kind, hit | built | refused: why, key
        self.parts: list[tuple[str, list[tuple[str, str]]]] = []
        os.makedirs(directory, exist_ok=True)

    def count(self, kind: str, event: str) -> int:
        return sum(1 for known_kind, known, _ in self.events if known_kind == kind and known.startswith(event))

    def obtain(
        self,
        kind: str,
        parts: list[tuple[str, str]],
        *,
        label: str,
        compiler: str,
        build: Callable[[], Built[Any]],
        load: Callable[[Any], Any],
    ) -> Any:
        key = action_key(parts)
        self.parts.append((kind, parts))
        manifest_path = os.path.join(self.directory, f"{key}.json")
        if os.path.exists(manifest_path):
            with open(manifest_path, encoding="utf-8") as file:
                manifest = json.load(file)
            try:
                value = load(LocalHit(self.directory, manifest))
                self.events.append((kind, "hit", key))
                return value
            except LoadRefused as error:
                self.events.append((kind, f"refused to load: {error}", key))
        built = build()
        if built.outputs is None:
            self.events.append((kind, f"refused: {built.refusal}", key))
            return built.value
        outputs = []
        for name, data in built.outputs.items():
            digest = hashlib.sha256(data).hexdigest()
            path = os.path.join(self.directory, digest)
            if not os.path.exists(path):
                with open(f"{path}.{os.getpid()}", "wb") as file:
                    file.write(data)
                os.rename(f"{path}.{os.getpid()}", path)
            outputs.append({"name": name, "digest": digest, "size": len(data)})
        if not os.path.exists(manifest_path):
            with open(manifest_path, "w", encoding="utf-8") as file:
                json.dump({"key": key, "kind": kind, "label": label, "outputs": outputs, "meta": built.meta}, file)
        self.events.append((kind, "built", key))
        return built.value
