"""The Python half of an artifact: inductor's generated wrapper, taken apart and kept as data.

Inductor writes a Python module per graph: imports, aliases, kernels as C++ text, and a `call` that allocates, calls the
kernels and operators, and returns. Only what is on the lists below is kept; anything else, and the artifact is refused
when it is made. What is kept are functions and a class without imports of their own: every global name they use is either
defined among them or handed in by the loader, which therefore imports nothing of inductor.
"""

from __future__ import annotations

import ast
import json
import marshal
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from neuroncache.errors import LoadRefused, Unsupported

MAGIC = b"NCGRAPH1"

# Aliases that the generated module sets up; the loader provides the same names.
ALIASES: dict[str, str] = {
    "aten": "torch.ops.aten",
    "inductor_ops": "torch.ops.inductor",
    "_quantized": "torch.ops._quantized",
    "assert_size_stride": "torch._C._dynamo.guards.assert_size_stride",
    "assert_alignment": "torch._C._dynamo.guards.assert_alignment",
    "empty_strided_cpu": "torch._C._dynamo.guards._empty_strided_cpu",
    "reinterpret_tensor": "torch._C._dynamo.guards._reinterpret_tensor",
    "alloc_from_pool": "torch.ops.inductor._alloc_from_pool",
}
# Aliases for other devices: dropped, and refused where they are used.
_DROPPED_ALIASES = frozenset(
    "empty_strided_cpu_pinned empty_strided_cuda empty_strided_xpu empty_strided_mtia empty_strided_p2p async_compile".split()
)
_KNOWN_IMPORTS = frozenset(
    """ctypes torch math random os tempfile cmath torch._inductor.hooks torch._inductor.utils
    torch._inductor.codegen.memory_planning torch._inductor.async_compile torch._inductor.select_algorithm""".split()
)
# Global names that code may use besides its own definitions and ALIASES. The loader provides exactly these.
PROVIDED = frozenset("torch math inf nan nanj device empty_strided align extern_kernels".split())
# Calls into libraries that inductor makes through a namespace of its own.
EXTERN_KERNELS: dict[str, str] = {
    "mm": "torch.mm",
    "addmm": "torch.addmm",
    "bmm": "torch.bmm",
    "baddbmm": "torch.baddbmm",
    "_int_mm": "torch._int_mm",
    "convolution": "torch.convolution",
}
_BUILTINS = frozenset("len range int float bool max min abs isinstance AssertionError RuntimeError tuple list".split())
# Methods of tensors and numbers that the generated code calls, besides operators.
_METHODS = frozenset(
    """size stride storage_offset item copy_ append clear numel data_ptr fill_ zero_ clone to view dtype shape
    partitions call default out""".split()
)
_STATEMENTS = (
    ast.Assign,
    ast.AugAssign,
    ast.Delete,
    ast.Expr,
    ast.Return,
    ast.If,
    ast.For,
    ast.While,
    ast.Assert,
    ast.Pass,
    ast.Raise,
    ast.FunctionDef,
    ast.Break,
    ast.Continue,
)
_EXPRESSIONS = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.IfExp,
    ast.List,
    ast.Name,
    ast.Slice,
    ast.Starred,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
    ast.JoinedStr,
    ast.FormattedValue,
)
_GLUE = (
    ast.arguments,
    ast.arg,
    ast.keyword,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)


@dataclass(frozen=True)
class Kernel:
    """A C++ function of the graph: the types of its parameters and the text that defines ``kernel``."""

    argument_types: tuple[str, ...]
    source: str


@dataclass
class Wrapper:
    """What is kept of a generated module."""

    body: str
    kernels: list[Kernel] = field(default_factory=list)  # distinct ones
    names: dict[str, int] = field(default_factory=dict)  # global name -> index in `kernels`
    operators: list[str] = field(default_factory=list)  # "aten.add.out": must be there when it is loaded
    externs: list[str] = field(default_factory=list)  # keys of EXTERN_KERNELS
    constants: list[str] = field(default_factory=list)  # global names that hold tensors


def take_apart(source: str, constants: Sequence[str] = ()) -> Wrapper:
    """The parts of a generated module. Raises `Unsupported` with the first thing that is not on the lists."""
    try:
        module = ast.parse(source)
    except (SyntaxError, RecursionError) as error:
        raise Unsupported(f"the generated code cannot be read: {type(error).__name__}") from None
    result = Wrapper(body="", constants=sorted(constants))
    kept: list[ast.stmt] = []
    for statement in module.body:
        if kept_statement := _top_level(statement, result):
            kept.append(kept_statement)
    known = {statement.name for statement in kept if isinstance(statement, (ast.FunctionDef, ast.ClassDef))}
    known |= {
        target.id for s in kept if isinstance(s, ast.Assign) for target in s.targets if isinstance(target, ast.Name)
    }
    known |= set(result.names) | set(constants)
    if "call" not in known:
        raise Unsupported("the generated code defines no 'call'")
    checker = _Checker(known)
    for statement in kept:
        checker.top(statement)
    result.operators = sorted(checker.operators)
    result.externs = sorted(checker.externs)
    result.body = ast.unparse(ast.Module(kept, []))
    return result


def _top_level(statement: ast.stmt, result: Wrapper) -> ast.stmt | None:
    """What to keep of one statement of the module; None to drop it."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        names = [statement.module or ""] if isinstance(statement, ast.ImportFrom) else [a.name for a in statement.names]
        for name in names:
            if name not in _KNOWN_IMPORTS:
                raise Unsupported(f"the generated code imports {name}")
        return None
    if isinstance(statement, ast.FunctionDef):
        # Code to try the module out by itself.
        return None if statement.name in ("get_args", "benchmark_compiled_module") else statement
    if isinstance(statement, ast.ClassDef):
        if statement.name != "Runner" or statement.bases or statement.decorator_list or statement.keywords:
            raise Unsupported(f"the generated code defines class {statement.name}")
        # One method wraps parts of the graph for CUDA graphs.
        statement.body = [inner for inner in statement.body if getattr(inner, "name", "") != "recursively_apply_fns"]
        return statement
    if isinstance(statement, ast.Expr):
        text = ast.unparse(statement)
        if isinstance(statement.value, ast.Constant) or text == "async_compile.wait(globals())":
            return None
    if isinstance(statement, ast.Delete) and ast.unparse(statement) == "del async_compile":
        return None
    if isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'":
        return None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return _assignment(statement.targets[0].id, statement, result)
    raise Unsupported(f"the generated code has at its top: {ast.unparse(statement)[:80]}")


def _assignment(name: str, statement: ast.Assign, result: Wrapper) -> ast.stmt | None:
    value = ast.unparse(statement.value)
    if name in ALIASES:
        if value != ALIASES[name]:
            raise Unsupported(f"the generated code sets {name} to {value[:80]}")
        return None
    if name in _DROPPED_ALIASES or (name, value) == ("recursively_apply_fns", "runner.recursively_apply_fns"):
        return None
    if value.startswith("async_compile."):
        result.names[name] = _kernel(statement.value, result.kernels)
        return None
    if name in result.constants and value == "None":
        return None
    if (name, value) in (
        ("runner", "Runner(partitions=[])"),
        ("call", "runner.call"),
    ):
        return statement
    if name == "runner" and value.startswith("Runner(partitions=["):
        return statement
    raise Unsupported(f"the generated code has at its top: {name} = {value[:80]}")


def _kernel(call: ast.expr, kernels: list[Kernel]) -> int:
    """The index of the kernel that a call of ``async_compile`` defines."""
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "async_compile.cpp_pybinding" or call.keywords:
        raise Unsupported(f"the generated code makes a kernel by {ast.unparse(call)[:60]}")
    try:
        types, source = (ast.literal_eval(argument) for argument in call.args)
    except ValueError:
        raise Unsupported("the generated code defines a kernel by an expression") from None
    kernel = Kernel(tuple(types), source)
    if kernel not in kernels:
        kernels.append(kernel)
    return kernels.index(kernel)


class _Checker(ast.NodeVisitor):
    """Walks what is kept, and refuses every construct and every name that is not expected."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.operators: set[str] = set()
        self.externs: set[str] = set()
        self.local: set[str] = set()

    def top(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.ClassDef):
            for inner in statement.body:
                if not isinstance(inner, ast.FunctionDef):
                    raise Unsupported(f"class {statement.name} holds {ast.unparse(inner)[:80]}")
                self._function(inner)
        elif isinstance(statement, ast.FunctionDef):
            self._function(statement)
        else:
            self.visit(statement)

    def _function(self, function: ast.FunctionDef) -> None:
        if function.decorator_list:
            raise Unsupported(f"function {function.name} has decorators")
        before = set(self.local)
        self.local |= {argument.arg for argument in function.args.args}
        self.local |= {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self.local |= {node.name for node in ast.walk(function) if isinstance(node, ast.FunctionDef)}
        for statement in function.body:
            self.visit(statement)
        self.local = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_Name(self, node: ast.Name) -> None:
        name = node.id
        if name in self.local or name in self.known or name in PROVIDED or name in ALIASES or name in _BUILTINS:
            return
        raise Unsupported(f"the generated code uses the name {name}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = _dotted(node)
        if path is None:
            # An attribute of a value: a method or a property, by name.
            if node.attr not in _METHODS:
                raise Unsupported(f"the generated code uses the attribute {node.attr}")
            self.visit(node.value)
            return
        root, _, rest = path.partition(".")
        if root in self.local or root in self.known or root == "self":
            for part in rest.split("."):
                if part not in _METHODS:
                    raise Unsupported(f"the generated code uses {path}")
            return
        if root == "extern_kernels":
            if rest not in EXTERN_KERNELS:
                raise Unsupported(f"the generated code calls extern_kernels.{rest}")
            self.externs.add(rest)
        elif path.startswith("torch.ops.") and path.count(".") >= 3:
            self.operators.add(path.removeprefix("torch.ops."))
        elif root in ("aten", "inductor_ops", "_quantized") and rest:
            self.operators.add(f"{ALIASES[root].removeprefix('torch.ops.')}.{rest}")
        elif root == "torch" and rest in _TORCH_NAMES:
            pass
        elif root == "math" and "." not in rest and not rest.startswith("_"):
            pass
        else:
            raise Unsupported(f"the generated code uses {path}")

    def generic_visit(self, node: ast.AST) -> None:
        if not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS, *_GLUE)):
            raise Unsupported(f"the generated code has a {type(node).__name__}")
        super().generic_visit(node)


_TORCH_NAMES = frozenset(
    """float16 float32 float64 bfloat16 half float double int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex32
    complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz strided preserve_format
    contiguous_format channels_last channels_last_3d device Tensor sym_min sym_max sym_not sym_float sym_int""".split()
)


def _dotted(node: ast.Attribute) -> str | None:
    parts: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Attribute):
        parts.append(current.attr)
        current = current.value
    if not isinstance(current, ast.Name):
        return None
    return ".".join([current.id, *reversed(parts)])


# -- the blob ---------------------------------------------------------------------------------------------------------


def pack(wrapper: Wrapper, header: dict[str, Any]) -> bytes:
    """The wrapper as one blob: magic, length and text of the header (JSON), and the compiled body (marshal).

    Byte code is kept because reading it back costs a tenth of compiling the text; it is tied to the interpreter, whose
    version is in the key and in the header.
    """
    document = {
        **header,
        "kernels": wrapper.names,
        "operators": wrapper.operators,
        "externs": wrapper.externs,
        "constants": wrapper.constants,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    code = marshal.dumps(compile(wrapper.body, "<neuroncache>", "exec", dont_inherit=True, optimize=0))
    return MAGIC + struct.pack("<I", len(text)) + text + code


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and marshalled code of a blob. Raises `LoadRefused`."""
    if data[: len(MAGIC)] != MAGIC or len(data) < len(MAGIC) + 4:
        raise LoadRefused("the wrapper has another format")
    (length,) = struct.unpack_from("<I", data, len(MAGIC))
    start = len(MAGIC) + 4
    if start + length > len(data):
        raise LoadRefused("the wrapper is cut short")
    try:
        header = json.loads(data[start : start + length])
    except ValueError:
        raise LoadRefused("the wrapper's header cannot be read") from None
    if not isinstance(header, dict):
        raise LoadRefused("the wrapper's header is no object")
    return header, data[start + length :]
