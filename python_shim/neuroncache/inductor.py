"""How inductor is used to make the code of a graph: pinned to a CPU class, without its own compiler runs.

Imported only when something is compiled: everything here imports inductor, which takes over a CPU second.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._inductor.compile_fx import compile_fx, compile_fx_inner  # first: its parts import each other in a circle

# isort: split
import torch._inductor.async_compile
import torch._inductor.codecache
import torch._inductor.codegen.cpp_micro_gemm
import torch._inductor.select_algorithm
from torch._inductor import config as inductor_config
from torch._inductor import cpp_builder, cpu_vec_isa

from neuroncache import cpu
from neuroncache.errors import Unsupported
from neuroncache.wrapper import EXTERN_KERNELS


class _PinnedAvx2(cpu_vec_isa.VecAVX2):
    def __bool__(self) -> bool:  # stock compiles and loads a test library to find out
        return True

    __hash__ = cpu_vec_isa.VecISA.__hash__


class _PinnedAvx512(cpu_vec_isa.VecAVX512):
    def __bool__(self) -> bool:
        return True

    __hash__ = cpu_vec_isa.VecISA.__hash__


_INSTRUCTION_SETS = {cpu.V3.name: _PinnedAvx2(), cpu.V4.name: _PinnedAvx512()}
_PICKERS = (
    cpu_vec_isa,
    torch._inductor.codecache,
    torch._inductor.codegen.cpp_micro_gemm,
)


@contextlib.contextmanager
def pinned(cpu_class: cpu.CpuClass) -> Iterator[None]:
    """For the length of the block, inductor makes code for the CPU class, whatever this host can do beyond it."""
    isa = _INSTRUCTION_SETS[cpu_class.name]
    saved = [module.pick_vec_isa for module in _PICKERS]
    for module in _PICKERS:
        module.pick_vec_isa = lambda: isa
    try:
        with inductor_config.patch(
            {"cpp.simdlen": cpu_class.simd_bits, "cpp.march": cpu_class.name, "cpp.vec_isa_ok": True}
        ):
            yield
    finally:
        for module, picker in zip(_PICKERS, saved, strict=True):
            module.pick_vec_isa = picker


class _Deferred:
    """Stands for a kernel that is not compiled by itself, until somebody needs it after all."""

    def __init__(self, compile_kernel: Callable[[], Any]) -> None:
        self.compile = compile_kernel

    def __call__(self, *arguments: Any) -> Any:
        raise RuntimeError("a kernel that was set aside is called")


@dataclass
class Generated:
    """What inductor made of a graph. `compiled` cannot run before `finish`."""

    compiled: Any
    source: str
    constants: dict[str, Any]
    output_strides: list[tuple[str, ...] | None] | None
    scopes: list[dict[str, Any]] = field(default_factory=list)

    def finish(self) -> Any:
        """Compiles the kernels one by one, as stock does, for a graph that cannot be an artifact."""
        for scope in self.scopes:
            waiting = {name: value.compile() for name, value in scope.items() if isinstance(value, _Deferred)}
            for name, value in waiting.items():
                scope[name] = value.result() if hasattr(value, "result") else value
        return self.compiled


@contextlib.contextmanager
def _kernels_set_aside(scopes: list[dict[str, Any]]) -> Iterator[None]:
    """For the length of the block, generated modules get their C++ kernels as text only."""
    asynchronous = torch._inductor.async_compile.AsyncCompile
    original = asynchronous.cpp_pybinding
    original_wait = asynchronous.wait

    def cpp_pybinding(self: Any, argtypes: list[str], source_code: str) -> Any:
        return _Deferred(lambda: original(self, argtypes, source_code))

    def wait(self: Any, scope: dict[str, Any]) -> None:
        scopes.append(scope)
        original_wait(self, scope)

    asynchronous.cpp_pybinding = cpp_pybinding
    asynchronous.wait = wait
    try:
        yield
    finally:
        asynchronous.cpp_pybinding = original
        asynchronous.wait = original_wait


def generate(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], keywords: dict[str, Any]) -> Generated:
    """Lowers a functional graph and makes its code, without compiling the kernels."""
    scopes: list[dict[str, Any]] = []
    with _kernels_set_aside(scopes), inductor_config.patch(fx_graph_cache=False, fx_graph_remote_cache=False):
        compiled = compile_fx_inner(gm, example_inputs, **keywords)
    source = getattr(compiled, "source_code", None)
    return Generated(
        compiled=compiled,
        source=source if isinstance(source, str) else "",
        constants=dict(getattr(compiled, "constants", None) or {}),
        output_strides=getattr(compiled, "output_strides", None),
        scopes=scopes,
    )


def stock(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """A functional graph by inductor alone."""
    return compile_fx_inner(gm, example_inputs, **keywords)


def whole(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], inner_compile: Callable[..., Any]
) -> Callable[..., Any]:
    """Inductor's whole way for a captured graph: its passes, AOTAutograd, partitioning; `inner_compile` gets the results."""
    function: Callable[..., Any] = compile_fx(gm, example_inputs, inner_compile=inner_compile)
    return function


def check_extern_kernels(names: Sequence[str]) -> None:
    """Raises `Unsupported` when a name in inductor's table of library calls is not the function that the loader takes."""
    table = torch._inductor.select_algorithm.extern_kernels
    for name in names:
        if getattr(table, name, None) is not getattr(torch, EXTERN_KERNELS[name].removeprefix("torch.")):
            raise Unsupported(f"extern_kernels.{name} is not {EXTERN_KERNELS[name]}")


# -- the C++ compiler -------------------------------------------------------------------------------------------------

# Of the flags that inductor's builder gives, those that only concern people.
_DROPPED_FLAGS = frozenset("Wall pedantic g g1 gline-tables-only".split())


def compiler() -> str:
    """The C++ compiler that inductor would run. Raises `Unsupported` when there is none."""
    try:
        path: str = cpp_builder.get_cpp_compiler()
    except Exception as error:
        raise Unsupported(f"there is no C++ compiler: {error}", passing=True) from None
    if shutil.which(path) is None:
        raise Unsupported(f"there is no C++ compiler: {path} is not on PATH", passing=True)
    return path


_versions: dict[str, str] = {}


def compiler_version() -> str:
    """First line of what the compiler says of itself, for the manifest."""
    path = compiler()
    if path not in _versions:
        text: str = cpp_builder.get_compiler_version_info(path)
        _versions[path] = text.splitlines()[0].strip() if text else path
    return _versions[path]


def compiler_command(cpu_class: cpu.CpuClass, source: str, output: str) -> list[str]:
    """The command that makes a library of a file: inductor's own flags, for the CPU class, without warnings and symbols."""
    path = compiler()
    with pinned(cpu_class):
        options = cpp_builder.CppTorchOptions(vec_isa=_INSTRUCTION_SETS[cpu_class.name], warning_all=False)
    flags = [flag for flag in options.get_cflags() if flag not in _DROPPED_FLAGS and not flag.startswith("W")]
    if not any(flag == f"march={cpu_class.name}" for flag in flags) or any("native" in flag for flag in flags):
        raise Unsupported("the compiler's flags are not pinned to the CPU class")
    include = os.path.join(os.path.dirname(torch.__file__), "include")
    library = os.path.join(os.path.dirname(torch.__file__), "lib")
    command = [path, source, "-w"]
    command += [f"-{flag}" for flag in flags]
    command += [f"-D{definition.strip()}" for definition in options.get_definitions()]
    command += [f"-I{directory}" for directory in options.get_include_dirs()]
    for argument in options.get_passthrough_args():
        command += shlex.split(argument)
    # Texts of assertions name the headers; not by a place on this host, so that equal kernels are equal bytes.
    command += [f"-ffile-prefix-map={include}=torch/include", "-fvisibility=hidden", "-o", output]
    command += [f"-{flag}" for flag in options.get_ldflags()]
    # Libraries of torch are found by name among those that the process has loaded; unresolved names fail at load,
    # where it is a refusal, and not at the first call.
    command += [f"-L{directory}" for directory in options.get_libraries_dirs()] + [f"-L{library}"]
    command += ["-Wl,--as-needed", "-Wl,-z,now"]
    named = list(options.get_libraries())
    named += [name for name in ("torch_cpu", "c10") if name not in named]
    command += [f"-l{name}" for name in named if name not in ("torch", "torch_python")]
    return command
