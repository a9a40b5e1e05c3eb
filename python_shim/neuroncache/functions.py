"""Names of the Python functions that a captured graph calls, given only when the name means what it says."""

from __future__ import annotations

import importlib
import os
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

import torch

from neuroncache.errors import Unsupported

# Modules of functions in C that graphs call by themselves.
_BUILTIN_MODULES = {"_operator": "operator", "operator": "operator", "math": "math", "builtins": "builtins"}
_BUILTINS = frozenset("getattr abs max min pow round divmod len float int bool".split())
_TORCH_DIRECTORY = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

_names: dict[int, tuple[Any, str]] = {}  # id -> (the function, its name); holding it keeps the id its own


def qualified_name(function: Any) -> str:
    """``fn:module.name`` of a function of torch, operator or math. Raises `Unsupported` for any other.

    The name is looked up again and must give this very object: a function that somebody put in torch's place has another
    meaning than the name, and no text that could be compared.
    """
    known = _names.get(id(function))
    if known is not None and known[0] is function:
        return known[1]
    name = _resolve(function)
    _names[id(function)] = (function, name)
    return name


def _resolve(function: Any) -> str:
    qualified = _candidates(function)
    for module_name, attribute in qualified:
        if not (module_name == "torch" or module_name.startswith("torch.") or module_name in _BUILTIN_MODULES.values()):
            continue
        try:
            found: Any = importlib.import_module(module_name)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        if found is function or (isinstance(function, MethodType) and found == function):
            if module_name == "builtins" and attribute not in _BUILTINS:
                break
            _check_code(function)
            return f"fn:{module_name}.{attribute}"
    raise Unsupported("a function from outside torch", op=_display(function))


def _candidates(function: Any) -> list[tuple[str, str]]:
    names = [getattr(function, attribute, None) for attribute in ("__qualname__", "__name__")]
    full = next((name for name in names if isinstance(name, str)), None)
    if full is None:
        return []
    # Functions that other functions make have their public name in __name__ alone.
    short = names[1] if isinstance(names[1], str) else full.rpartition(".")[2]
    module = getattr(function, "__module__", None)
    found: list[tuple[str, str]] = []
    if isinstance(module, str):
        home = _BUILTIN_MODULES.get(module, module)
        found += [(home, full), (home, short)]
    if isinstance(function, (BuiltinFunctionType, MethodDescriptorType)) or module is None:
        # Functions in C name a class of torch._C as their home, but live in these modules.
        found += [
            (home, short)
            for home in ("torch", "torch._C._nn", "torch._C._linalg", "torch._C._special", "torch._C._fft", "torch._C")
        ]
        if isinstance(function, MethodDescriptorType):
            found.append(("torch", f"Tensor.{short}"))
    return found


def _check_code(function: Any) -> None:
    inner = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    if isinstance(inner, MethodType):
        inner = inner.__func__
    if isinstance(inner, FunctionType):
        file = os.path.abspath(inner.__code__.co_filename)
        if not file.startswith(_TORCH_DIRECTORY) and not file.startswith("<"):
            raise Unsupported("a function of torch was replaced", op=_display(function))


def _display(function: Any) -> str:
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', type(function).__name__)}"
