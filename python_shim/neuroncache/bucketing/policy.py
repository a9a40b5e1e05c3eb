"""Which sizes Dynamo traces as symbols, for frames whose backend gets buckets: one symbolic entry instead of one per shape.

Dynamo makes a size symbolic when it has seen two of it, one dimension after the other, each at the price of an entry. Here the
first difference makes all sizes of all inputs symbolic at once (those that the program fixes turn out to be constants in
the trace), and what the daemon remembers of earlier runs of the program does so at the first call. Equal sizes get symbols
of their own: that they were equal once says nothing. Frames for other backends, and all settings outside of the trace, are
left as they are.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from neuroncache import compat, config, counters, log
from neuroncache.bucketing import wording
from neuroncache.bucketing.small import SmallSizes
from neuroncache.client import default_client
from neuroncache.errors import DaemonUnavailable, ProtocolError
from neuroncache.locks import module_lock

_MARK = "_neuroncache_original"


class Frame:
    """What is known of a code object that is compiled for a backend with buckets."""

    def __init__(self, code: types.CodeType, arguments: Mapping[str, Any]) -> None:
        self.program = program_of(code)
        self.label = f"{_owner(arguments)}{code.co_name} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"
        self.varies = False  # some size was seen to change: all may
        self.known: frozenset[str] = frozenset()  # families that varied in earlier runs
        self.asked = False
        self.small = SmallSizes()

    def ask(self) -> None:
        """What earlier runs have seen, once."""
        if self.asked:
            return
        self.asked = True
        try:
            answer = default_client().buckets(self.program)
            programs = answer.get("programs") or []
            families = [family for program in programs for family in program["families"]]
            self.known = frozenset(str(family["family"]) for family in families if family["varies"])
        except (DaemonUnavailable, ProtocolError, KeyError, TypeError) as error:
            log.debug("the sizes that %s had before are not known: %s", self.label, error)


class _Compile(threading.local):
    frame: Frame | None = None
    everything = False  # the user asks for symbols
    static = 0  # sizes that this attempt took as constants


_compile = _Compile()
_frames: weakref.WeakKeyDictionary[types.CodeType, Frame] = weakref.WeakKeyDictionary()
_lock = module_lock()


def current() -> Frame | None:
    """The frame that this thread compiles, when it is one that gets buckets."""
    return _compile.frame


def program_of(code: types.CodeType) -> str:
    """A name for a function, the same in every run and on every host: what it does, not where it lies."""
    digest = hashlib.sha256(b"neuroncache-program-v1")
    _digest_code(digest, code)
    return digest.hexdigest()


def _digest_code(digest: Any, code: types.CodeType) -> None:
    digest.update(repr((code.co_name, code.co_argcount, code.co_varnames, code.co_names, code.co_freevars)).encode())
    digest.update(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _digest_code(digest, constant)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(repr(constant).encode())


def install(convert_frame: Any) -> None:
    """Wraps Dynamo's compilation of a frame; does nothing where this torch has another one."""
    original = convert_frame._compile
    if hasattr(original, _MARK):
        return
    names = list(inspect.signature(original).parameters)
    if names[:6] != ["code", "globals", "locals", "builtins", "closure", "compiler_fn"]:
        return

    def _compile_frame(*args: Any, **keywords: Any) -> Any:
        frame = None
        arguments: Mapping[str, Any] = {}
        with contextlib.suppress(Exception):
            compiler = args[5] if len(args) > 5 else keywords["compiler_fn"]
            given = args[2] if len(args) > 2 else keywords.get("locals")
            arguments = given if isinstance(given, dict) else {}
            frame = _frame_for(args[0] if args else keywords["code"], arguments, compiler, keywords.get("export"))
        if frame is None:
            return original(*args, **keywords)
        pattern = frame.small.pattern(arguments)
        if frame.small.as_python(pattern):
            counters.bypass("size_zero_or_one")
            log.debug("%s runs as it is once: %s", frame.label, ", ".join(sorted(pattern)))
            return compat.run_frame_as_it_is()
        with _in_force(frame):
            result = original(*args, **keywords)
        if getattr(result, "guarded_code", None) is not None:
            frame.small.made(pattern)
        return result

    setattr(_compile_frame, _MARK, original)
    convert_frame._compile = _compile_frame


def backend_name(compiler: Any) -> str:
    """The name of the backend behind what Dynamo calls, '' when it is none that we know."""
    for _ in range(8):
        name = getattr(compiler, "_neuroncache_name", None)
        if isinstance(name, str):
            return name
        if type(compiler) is torch._TorchCompileInductorWrapper:
            return "inductor"
        inner = compiler.__dict__.get("_torchdynamo_orig_backend") if hasattr(compiler, "__dict__") else None
        if inner is None:
            inner = getattr(compiler, "compiler_fn", None)
        if inner is None:
            break
        compiler = inner
    return ""


def _owner(arguments: Mapping[str, Any]) -> str:
    """The class of the module whose method is compiled, with a dot; '' for a function. A decorated method has it among its
    positional arguments."""
    first = arguments.get("self")
    if first is None and isinstance(positional := arguments.get("args"), tuple) and positional:
        first = positional[0]
    return f"{type(first).__name__}." if isinstance(first, torch.nn.Module) else ""


def _frame_for(code: types.CodeType, arguments: Mapping[str, Any], compiler: Any, export: Any) -> Frame | None:
    if export or not config.get("enabled") or config.get("bucketing") == "off":
        return None
    name = backend_name(compiler)
    from neuroncache.bucketing import entry

    if not name or not entry.wanted(name) or not _hook_builder():
        return None
    with _lock:
        frame = _frames.get(code)
        if frame is None:
            frame = _frames[code] = Frame(code, arguments)
    frame.ask()
    return frame


@contextlib.contextmanager
def _in_force(frame: Frame) -> Iterator[None]:
    from torch._dynamo import config as dynamo_config
    from torch.fx.experimental import _config as symbolic_config

    outer = (_compile.frame, _compile.everything, _compile.static)
    _compile.frame = frame
    # `dynamic=True`: every size of the inputs is open. Numbers that are no tensors start as constants all the same, or
    # each epsilon would be a symbol. `dynamic=False` asks for kernels without symbols, which is what buckets give.
    _compile.everything = not dynamo_config.assume_static_by_default
    _compile.static = 0
    try:
        with (
            dynamo_config.patch(automatic_dynamic_shapes=True, assume_static_by_default=True),
            symbolic_config.patch(use_duck_shape=False),
        ):
            yield
    finally:
        _compile.frame, _compile.everything, _compile.static = outer


def _hook_builder() -> bool:
    from torch._dynamo.variables import builder

    original: Callable[..., Any] | None = getattr(builder, "record_automatic_dynamic", None)
    if original is None:
        return False
    if hasattr(original, _MARK):
        return True

    def record_automatic_dynamic(tx: Any, name: str, e: torch.Tensor) -> Any:
        entry = original(tx, name, e)
        frame = _compile.frame
        return entry if frame is None else _open_sizes(frame, name, e, entry)

    setattr(record_automatic_dynamic, _MARK, original)
    builder.record_automatic_dynamic = record_automatic_dynamic
    return True


def _open_sizes(frame: Frame, name: str, value: torch.Tensor, entry: Any) -> Any:
    from torch._dynamo import exc, pgo

    if isinstance(value, torch.nn.Parameter) or "._buffers[" in name or "._parameters[" in name:
        return entry
    frame.small.note(name, value)
    if not _compile.everything and not frame.varies and any(entry.is_size_dynamic(dim) for dim in range(value.dim())):
        frame.varies = True
        if _compile.static:
            # Others were taken as constants before this one was seen to change: once more from the start.
            _compile.static = 0
            raise exc.SpeculationRestartAnalysis(restart_reason="sizes of the inputs vary")
    everything = _compile.everything or frame.varies
    wanted = [
        value.size(dim) > 1 and (everything or wording.family(name, dim) in frame.known) for dim in range(value.dim())
    ]
    _compile.static += len(wanted) - sum(wanted)
    if not any(wanted):
        return entry
    # A copy: the entry itself is Dynamo's memory of what it has seen.
    opened = copy.copy(entry)
    opened |= pgo.FrameStateSizeEntry.make_size(
        size=tuple(pgo.auto_dynamic if flag else pgo.auto_unset for flag in wanted)
    )
    return opened
