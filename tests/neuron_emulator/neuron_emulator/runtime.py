"""Loads what the emulated `neuronx-cc` made, and runs it on tensors."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy
import torch


class Program:
    """A loaded program. `types`: shape and type of each of its results."""

    def __init__(self, neff: bytes, types: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> None:
        import iree.runtime

        config = _config()
        context = iree.runtime.SystemContext(config=config)
        module = iree.runtime.VmModule.copy_buffer(context.instance, neff)
        context.add_vm_module(module)
        self._function = context.modules[module.name]["main"]
        self.types = list(types)

    def __call__(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        returned = self._function(*[_to_array(value) for value in inputs])
        results = returned if isinstance(returned, (list, tuple)) else [returned]
        if len(results) != len(self.types):
            raise RuntimeError(f"neuron: a program returned {len(results)} tensors instead of {len(self.types)}")
        return [_to_tensor(result, *kind) for result, kind in zip(results, self.types, strict=True)]


@functools.cache
def _config() -> Any:
    import iree.runtime

    atexit.register(_silence)
    return iree.runtime.Config("local-sync")


def _silence() -> None:
    """At the end of the process IREE's bindings tell of leaks, a hundred lines, because Dynamo still holds programs then."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)


def _to_array(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu().contiguous()
    if value.dtype == torch.bfloat16:
        import ml_dtypes

        return value.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


def _to_tensor(result: Any, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    array = numpy.array(result.to_host() if hasattr(result, "to_host") else result)
    if tuple(array.shape) != shape:
        raise RuntimeError(f"neuron: a program returned a tensor of shape {tuple(array.shape)} instead of {shape}")
    if dtype == torch.bfloat16:
        return torch.from_numpy(array.view(numpy.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array).to(dtype)
