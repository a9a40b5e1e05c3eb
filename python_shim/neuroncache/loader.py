"""Makes a stored graph callable: without inductor, without a compiler, without a look at what the CPU might do beyond
what the artifact says it needs.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import importlib.util
import marshal
import math
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from neuroncache import compat, cpu, wrapper
from neuroncache.errors import LoadRefused
from neuroncache.keys import python_abi, torch_build

_MODULE = "neuroncache_kernels"


class LoadedGraph:
    """A compiled graph. Takes its inputs as one list, which it empties, and returns a tuple or list of outputs."""

    def __init__(self, header: dict[str, Any], call: Callable[[list[Any]], Any]) -> None:
        self.header = header
        self._call = call
        self._checked = False

    def __call__(self, inputs: list[Any]) -> Any:
        outputs = self._call(inputs)
        if not self._checked:
            self._check(outputs)
            self._checked = True
        return outputs

    def _check(self, outputs: Any) -> None:
        # A bare tensor would be cut into its rows by whoever unpacks the outputs, without an error.
        wanted = self.header["outputs"]
        if not isinstance(outputs, (tuple, list)) or len(outputs) != wanted:
            what = f"{len(outputs)} outputs" if isinstance(outputs, (tuple, list)) else f"a {type(outputs).__name__}"
            raise RuntimeError(f"neuroncache: a stored graph returned {what} in place of {wanted} outputs")

    @property
    def guards(self) -> str | None:
        """Guards on the symbolic sizes among the inputs, under which the code holds."""
        text: str | None = self.header.get("guards")
        return text

    @property
    def output_strides(self) -> list[list[int] | None] | None:
        strides: list[list[int] | None] | None = self.header.get("output_strides")
        return strides


def load(data: bytes, library: str | None, constants: bytes | None = None) -> LoadedGraph:
    """A graph from its verified parts: the wrapper, the path of the library, the constants.

    Raises `LoadRefused` when it was made for another build of torch or Python or for a CPU that this host is not, or when
    an operator is missing here.
    """
    header, code = wrapper.unpack(data)
    _check_header(header)
    names: dict[str, Any] = _globals(header)
    kernels = header["kernels"]
    if kernels:
        if library is None:
            raise LoadRefused("the artifact has kernels but no library")
        module = _load_library(library)
        for name, index in kernels.items():
            try:
                names[name] = getattr(module, f"k{index}")
            except AttributeError:
                raise LoadRefused(f"the library has no kernel k{index}") from None
    if header["constants"]:
        names.update(_read_constants(header, constants))
    try:
        exec(marshal.loads(code), names)
    except (ValueError, EOFError, TypeError) as error:
        raise LoadRefused(f"the wrapper's code cannot be read: {error}") from None
    call = names.get("call")
    if not callable(call):
        raise LoadRefused("the wrapper defines no 'call'")
    return LoadedGraph(header, call)


def _check_header(header: dict[str, Any]) -> None:
    for field, here in (("torch", torch_build()), ("python", python_abi())):
        if header.get(field) != here:
            raise LoadRefused(f"made for {field} {header.get(field)}, this is {here}")
    cpu_class = cpu.CLASSES.get(str(header.get("cpu_class")))
    if cpu_class is None:
        raise LoadRefused(f"made for the CPU class {header.get('cpu_class')}, which is not known here")
    if lacking := cpu.missing(cpu_class):
        raise LoadRefused(f"made for {cpu_class.name}, but this CPU has no {', '.join(lacking)}")


def _globals(header: dict[str, Any]) -> dict[str, Any]:
    """The names that a wrapper may use, and no others."""
    names: dict[str, Any] = {
        # All of them: functions in C import through those of their caller. What the code itself uses was checked.
        "__builtins__": builtins,
        "__name__": "neuroncache.graph",
        "torch": torch,
        "math": math,
        "inf": math.inf,
        "nan": math.nan,
        "nanj": complex(0.0, math.nan),
        "device": torch.device,
        "empty_strided": torch.empty_strided,
        "align": _align,
        "extern_kernels": types.SimpleNamespace(**{name: _extern(name) for name in header["externs"]}),
    }
    for name, path in wrapper.ALIASES.items():
        with contextlib.suppress(AttributeError):
            names[name] = _resolve(path)
    for operator in header["operators"]:
        try:
            _resolve(f"torch.ops.{operator}")
        except (AttributeError, RuntimeError):
            raise LoadRefused(f"the operator {operator} is not registered in this process") from None
    return names


def _align(size: int) -> int:
    """Sizes of pieces in a pool of memory, as inductor rounds them."""
    return (size + 63) & -64


def _extern(name: str) -> Any:
    path = wrapper.EXTERN_KERNELS.get(name)
    if path is None:
        raise LoadRefused(f"the library call {name} is not known here")
    return _resolve(path)


def _resolve(path: str) -> Any:
    value: Any = torch
    for part in path.split(".")[1:]:
        value = getattr(value, part)
    return value


def _load_library(path: str) -> types.ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, path)
    spec = importlib.util.spec_from_loader(_MODULE, loader)
    if spec is None:
        raise LoadRefused("the library has no module")
    try:
        # A module of its own for every library: nothing is put into sys.modules.
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        module.bind(compat.tensor_data_pointer_function())
    except (ImportError, OSError, AttributeError) as error:
        raise LoadRefused(f"the library does not load: {error}") from None
    return module


# -- constants --------------------------------------------------------------------------------------------------------
# One after the other, each from an offset that is a multiple of 64: the elements in row-major order. Everything else
# (dtype, shape, strides, offset) is in the header.


def pack_constants(values: Sequence[tuple[str, torch.Tensor, bytes]]) -> tuple[bytes, list[dict[str, Any]]]:
    """The blob and the header's table of named constants."""
    table: list[dict[str, Any]] = []
    data = bytearray()
    for name, value, content in values:
        data += bytes(-len(data) % 64)
        table.append(
            {
                "name": name,
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "offset": len(data),
                "size": len(content),
            }
        )
        data += content
    return bytes(data), table


def _read_constants(header: dict[str, Any], data: bytes | None) -> dict[str, torch.Tensor]:
    if data is None:
        raise LoadRefused("the artifact has constants but no data for them")
    result: dict[str, torch.Tensor] = {}
    for entry in header["constant_table"]:
        dtype = getattr(torch, entry["dtype"], None)
        shape, stride = tuple(entry["shape"]), tuple(entry["stride"])
        if not isinstance(dtype, torch.dtype) or entry["offset"] + entry["size"] > len(data):
            raise LoadRefused(f"the constant {entry['name']} is damaged")
        value = torch.empty_strided(shape, stride, dtype=dtype)
        if entry["size"]:
            piece = bytearray(data[entry["offset"] : entry["offset"] + entry["size"]])
            value.copy_(torch.frombuffer(piece, dtype=torch.uint8).view(dtype).view(shape))
        result[entry["name"]] = value
    missing = set(header["constants"]) - set(result)
    if missing:
        raise LoadRefused(f"there is no data for the constant {sorted(missing)[0]}")
    return result
