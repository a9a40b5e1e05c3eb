"""Runs a loaded graph on made-up inputs and takes fingerprints of what it returns.

Used by the builder and by the verifier process, which must do exactly the same: inputs follow from the specification and a
seed alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch

Spec = dict[str, Any]


class Run:
    """One run: fingerprints of the outputs and of the inputs that it changed, and the outputs themselves."""

    def __init__(self, fingerprints: list[Any], mutated: dict[str, str], outputs: list[Any]) -> None:
        self.fingerprints = fingerprints
        self.mutated = mutated
        self.outputs = outputs

    def differences(self, fingerprints: Sequence[Any], mutated: dict[str, str]) -> tuple[list[int], str]:
        """Outputs whose contents alone differ, and, when more than that differs, what."""
        if len(fingerprints) != len(self.fingerprints):
            return [], f"{len(fingerprints)} outputs in place of {len(self.fingerprints)}"
        contents: list[int] = []
        for index, (here, there) in enumerate(zip(self.fingerprints, fingerprints, strict=True)):
            if here == there:
                continue
            if isinstance(here, list) and isinstance(there, list) and here[:-1] == there[:-1]:
                contents.append(index)
            else:
                return [], f"output {index} is {_describe(there)} in place of {_describe(here)}"
        if mutated != self.mutated:
            return [], f"changed inputs {sorted(mutated)} in place of {sorted(self.mutated)}"
        return contents, ""


def _describe(fingerprint: Any) -> str:
    return " ".join(str(part) for part in fingerprint[:-1]) if isinstance(fingerprint, list) else str(fingerprint)


def input_bytes(specs: Sequence[Spec]) -> int:
    """How much memory the inputs take."""
    return sum(_storage_elements(spec) * _dtype(spec).itemsize for spec in specs if "dtype" in spec)


def run(graph: Any, specs: Sequence[Spec], seed: int, largest_index: int) -> Run:
    """Makes inputs, runs the graph once, and leaves the process's random state as it was.

    Integers are between 0 and `largest_index`, so that they are good as indices into anything.
    """
    generator = torch.default_generator
    state = generator.get_state()
    try:
        inputs = make_inputs(specs, seed, largest_index)
        given = list(inputs)
        before = [_fingerprint(value) for value in given]
        generator.manual_seed(seed)
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            outputs = list(graph(inputs))
        mutated: dict[str, str] = {}
        for index, value in enumerate(given):
            after = _fingerprint(value)
            if after != before[index]:
                mutated[str(index)] = str(after)
        return Run([_fingerprint(value) for value in outputs], mutated, outputs)
    finally:
        generator.set_state(state)


def make_inputs(specs: Sequence[Spec], seed: int, largest_index: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [_make(spec, generator, largest_index) for spec in specs]


def _make(spec: Spec, generator: torch.Generator, largest_index: int) -> Any:
    if "value" in spec:
        return spec["value"]
    if "random_state" in spec:
        return torch.Generator().manual_seed(7).get_state()
    dtype = _dtype(spec)
    count = _storage_elements(spec)
    if dtype is torch.bool:
        flat = torch.randint(0, 2, (count,), generator=generator).to(dtype)
    elif dtype.is_floating_point or dtype.is_complex:
        base = dtype if dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128) else torch.float32
        flat = torch.randn(count, generator=generator, dtype=base).to(dtype)
    else:
        flat = torch.randint(0, largest_index + 1, (count,), generator=generator).to(dtype)
    return torch.as_strided(flat, spec["shape"], spec["stride"], spec["offset"])


def _dtype(spec: Spec) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, spec["dtype"])
    return dtype


def _storage_elements(spec: Spec) -> int:
    shape, stride = spec["shape"], spec["stride"]
    if math.prod(shape) == 0:
        return int(spec["offset"])
    return int(spec["offset"]) + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def _fingerprint(value: Any) -> Any:
    """Type, shape, strides and a digest of the elements of a tensor; anything else as text. Equal bits, equal print."""
    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {value!r}"
    return [
        str(value.dtype),
        [int(size) for size in value.shape],
        [int(stride) for stride in value.stride()],
        hashlib.sha256(element_bytes(value)).hexdigest(),
    ]


def element_bytes(value: torch.Tensor) -> Any:
    """The elements in row-major order, as something that hashes and writes without a copy."""
    plain = value.detach().resolve_conj().resolve_neg().contiguous()
    size = plain.numel() * plain.element_size()
    if size == 0:
        return b""
    buffer = (ctypes.c_char * size).from_address(plain.data_ptr())
    buffer._keep = plain
    return buffer


def settings() -> dict[str, Any]:
    """State of this process that changes what operators compute."""
    return {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "onednn": torch.backends.mkldnn.enabled,
    }


def apply_settings(values: dict[str, Any]) -> None:
    """Makes the state of this process that of `values`. What is equal is not touched: setting it may set more than it says."""
    here = settings()

    def differs(*names: str) -> bool:
        return any(here[name] != values[name] for name in names)

    if differs("threads"):
        torch.set_num_threads(values["threads"])
    if differs("deterministic", "warn_only"):
        torch.use_deterministic_algorithms(values["deterministic"], warn_only=values["warn_only"])
    if differs("matmul"):
        torch.set_float32_matmul_precision(values["matmul"])
    if differs("default_dtype"):
        torch.set_default_dtype(getattr(torch, values["default_dtype"]))
    if differs("onednn"):
        torch.backends.mkldnn.enabled = values["onednn"]
