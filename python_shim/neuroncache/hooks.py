"""The places where a graph is caught, and nothing else of torch is touched.

- ``torch._TorchCompileInductorWrapper.__call__``: every ``torch.compile`` with backend "inductor", with whatever mode and
  options. The class attribute is replaced, so identity, equality and ``isinstance`` of the wrappers stay as they are.
- ``torch._TorchCompileWrapper.__call__``: ``torch.compile`` with inductor's own function as the backend. Other functions are
  called as they are.
- The table of named backends, for ``torch._dynamo.optimize("inductor")`` and others that look the name up there, and for the
  backends that compile fixed sizes only (setting ``static_backends``), which get buckets.
- Dynamo's compilation of a frame, for those same frames alone: which sizes it traces as symbols.

This module is imported at ``import torch``: it imports nothing heavy and creates nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing costs more than everything here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    _Table = dict[str, Any]
else:
    _Table = dict

_REGISTRY = "torch._dynamo.backends.registry"
_FRAMES = "torch._dynamo.convert_frame"
_MARK = "_neuroncache_original"
_unusable = False


def install() -> bool:
    """Puts both hooks in place; doing it again changes nothing. False: this torch has no such place, or is not imported."""
    torch = sys.modules.get("torch")
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if wrapper is None:
        return False
    if not hasattr(wrapper.__call__, _MARK):
        _hook_wrapper(wrapper)
    other = getattr(torch, "_TorchCompileWrapper", None)
    if other is not None and not hasattr(other.__call__, _MARK):
        _hook_other_wrapper(other)
    registry = sys.modules.get(_REGISTRY)
    if registry is not None:
        _hook_registry(registry)
    else:
        after_import(_REGISTRY, _hook_registry)
    frames = sys.modules.get(_FRAMES)
    if hasattr(frames, "_compile"):
        _hook_frames(frames)
    else:
        after_import(_FRAMES, _hook_frames)
    return True


def installed() -> bool:
    wrapper = getattr(sys.modules.get("torch"), "_TorchCompileInductorWrapper", None)
    return wrapper is not None and hasattr(wrapper.__call__, _MARK)


def _hook_wrapper(wrapper: Any) -> None:
    original = wrapper.__call__

    def __call__(self: Any, model_: Any, inputs_: Any, **keywords: Any) -> Any:
        # Subclasses (AOTInductor) wrap a different product and call this one by super().
        if type(self) is not wrapper:
            return original(self, model_, inputs_, **keywords)
        options = {**self.config, **(keywords.get("config_patches") or {})}
        return _caught("inductor", model_, inputs_, options, lambda gm, inputs: original(self, gm, inputs, **keywords))

    setattr(__call__, _MARK, original)
    wrapper.__call__ = __call__


# The functions of torch that are inductor, by where their code is from (a copy of the names proves nothing: wrappers copy them).
_INDUCTOR: dict[Any, str] = {
    ("torch._inductor", "compile"): "options",
    ("torch._inductor.compile_fx", "compile_fx"): "config_patches",
    ("torch._dynamo.backends.inductor", "inductor"): "config_patches",
}


def _hook_other_wrapper(wrapper: Any) -> None:
    original = wrapper.__call__

    def __call__(self: Any, model_: Any, inputs_: Any) -> Any:
        function = self.compiler_fn
        place = (getattr(function, "__globals__", {}).get("__name__"), getattr(function, "__name__", None))
        options = _INDUCTOR.get(place)
        if type(self) is not wrapper or options is None or self.kwargs.keys() - {options}:
            return original(self, model_, inputs_)
        settings = dict(self.kwargs.get(options) or {})
        return _caught("inductor", model_, inputs_, settings, lambda gm, inputs: original(self, gm, inputs))

    setattr(__call__, _MARK, original)
    wrapper.__call__ = __call__


def _hook_registry(registry: Any) -> None:
    table = getattr(registry, "_COMPILER_FNS", None)
    if isinstance(table, dict) and not isinstance(table, _Backends):
        registry._COMPILER_FNS = _Backends(table)


def _hook_frames(module: Any) -> None:
    try:
        from neuroncache.bucketing import policy
    except Exception:  # a damaged installation, which the first graph will tell of
        return
    policy.install(module)


def _caught_names() -> tuple[str, ...]:
    """The named backends that are caught; any other is never touched."""
    try:
        from neuroncache import config

        return ("inductor", *config.get("static_backends"))
    except Exception:  # a damaged installation must not stop anybody
        return ("inductor",)


class _Backends(_Table):
    """The table of named backends; wraps those that are caught when they are registered, in whatever order that happens."""

    def __init__(self, table: dict[str, Any]) -> None:
        super().__init__()
        for name, function in table.items():
            self[name] = function

    def __setitem__(self, name: str, function: Any) -> None:
        if not isinstance(function, NamedBackend) and name in _caught_names():
            function = NamedBackend(name, function)
        super().__setitem__(name, function)

    def __getitem__(self, name: str) -> Any:
        function = super().__getitem__(name)
        if not isinstance(function, NamedBackend) and name in _caught_names():
            # It was made one of them after it was registered.
            function = NamedBackend(name, function)
            super().__setitem__(name, function)
        if isinstance(function, NamedBackend):
            function.follow()
        return function


class NamedBackend:
    """Stands for a registered backend function: one object per name, and everything but the call is the function's own.

    Attributes are copied, never looked up by ``__getattr__``: Dynamo asks backends for attributes from within its frame
    evaluation, where running any Python function would enter it again without end.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._neuroncache_name = name
        self._neuroncache_original = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = getattr(function, "__module__", __name__)
        self.follow()

    def follow(self) -> None:
        """Takes over attributes that the function was given meanwhile: its tags are set after it is registered."""
        own = self.__dict__
        for attribute, value in getattr(self._neuroncache_original, "__dict__", {}).items():
            own.setdefault(attribute, value)

    def __call__(self, gm: Any, example_inputs: Any, **keywords: Any) -> Any:
        function = self._neuroncache_original

        def stock(gm: Any, inputs: Any) -> Any:
            return function(gm, inputs, **keywords)

        stock.neuroncache_thread_safe = getattr(function, "neuroncache_thread_safe", False)  # type: ignore[attr-defined]
        if self._neuroncache_name == "inductor" and keywords.keys() - {"config_patches"}:
            return stock(gm, example_inputs)
        options = dict(keywords.get("config_patches") or {})
        return _caught(self._neuroncache_name, gm, example_inputs, options, stock)

    def __reduce__(self) -> Any:
        return _named_backend, (self._neuroncache_name,)


def _named_backend(name: str) -> Any:
    from torch._dynamo.backends.registry import lookup_backend

    return lookup_backend(name)


def _caught(name: str, gm: Any, inputs: Any, options: dict[str, Any], stock: Callable[[Any, Any], Any]) -> Any:
    global _unusable
    if _unusable:
        return stock(gm, inputs)
    try:
        from neuroncache import backend
    except Exception as error:  # a damaged installation must not stop anybody
        import logging

        _unusable = True
        logging.getLogger("neuroncache").warning("neuroncache: cannot be used: %s", error)
        return stock(gm, inputs)
    return backend.on_graph(name, gm, inputs, options, stock)


def after_import(name: str, action: Callable[[Any], None]) -> None:
    """Has `action` called with the module when `name` is imported later."""
    for finder in sys.meta_path:
        if isinstance(finder, _AfterImport) and finder.name == name:
            return
    sys.meta_path.insert(0, _AfterImport(name, action))


class _AfterImport:
    """A finder that finds nothing itself: it asks the others, and has the loader call back once."""

    def __init__(self, name: str, action: Callable[[Any], None]) -> None:
        self.name = name
        self.action = action

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                break
        loader: Any = getattr(spec, "loader", None)
        run = getattr(loader, "exec_module", None)
        if run is None:
            return spec

        def exec_module(module: Any) -> None:
            run(module)
            try:
                self.action(module)
            except Exception:
                # Only the hook is lost: the import itself succeeded.
                pass

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass
        return spec
