"""The native half of an artifact: all kernels of a graph as one translation unit, compiled once to one shared library.

Inductor compiles every kernel by itself, and each time the headers of torch cost the compiler over two CPU seconds before
it sees a line of the kernel; here they are paid once per graph. A precompiled header would save most of the rest, but takes
as long to make as five graphs and 150 MB of disk, so none is made.

The library is an extension module without dependencies on Python's import of anything: one entry per kernel, and `bind`,
which takes the address of torch's function that finds a tensor's data.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

from neuroncache import cpu
from neuroncache.errors import Unsupported
from neuroncache.wrapper import Kernel

MODULE = "neuroncache_kernels"
COMPILE_TIMEOUT_S = 1800
_EXHAUSTED = ("No space left", "Disk quota", "Killed", "out of memory", "cannot allocate")

# How an argument is read from Python, by the C++ type that inductor gives.
_SCALARS = {
    "int64_t": "as_int",
    "long": "as_int",
    "uintptr_t": "as_address",
    "float": "as_float",
    "double": "as_double",
}
_POINTER = re.compile(r"(const )?[A-Za-z_][A-Za-z0-9_:]*\*")
_INCLUDE = re.compile(r"^\s*#include\s+[<\"][^<>\"\n]+[>\"]\s*$", re.MULTILINE)
_ENTRY = re.compile(r'extern\s+"C"\s+void\s+kernel\s*\(')

_PROLOGUE = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cstdint>
#include <stdexcept>
"""

_ACCESS = """
namespace nc {
using DataPointer = void* (*)(PyObject*);
static DataPointer data_pointer = nullptr;

template <typename T> static inline T as_pointer(PyObject* value) { return static_cast<T>(data_pointer(value)); }
static inline int64_t as_int(PyObject* value) {
  const Py_ssize_t result = PyLong_AsSsize_t(value);
  if (result == -1 && PyErr_Occurred()) throw std::runtime_error("a kernel needs an int here");
  return result;
}
static inline uintptr_t as_address(PyObject* value) {
  void* result = PyLong_AsVoidPtr(value);
  if (result == nullptr && PyErr_Occurred()) throw std::runtime_error("a kernel needs an address here");
  return reinterpret_cast<uintptr_t>(result);
}
static inline double as_double(PyObject* value) {
  const double result = PyFloat_AsDouble(value);
  if (result == -1.0 && PyErr_Occurred()) throw std::runtime_error("a kernel needs a float here");
  return result;
}
static inline float as_float(PyObject* value) { return static_cast<float>(as_double(value)); }

template <typename Body> static inline PyObject* guarded(Py_ssize_t given, Py_ssize_t wanted, Body&& body) {
  try {
    if (given != wanted) throw std::runtime_error("a kernel was called with another number of arguments");
    if (data_pointer == nullptr) throw std::runtime_error("bind() was not called");
    body();
  } catch (const std::exception& error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  } catch (...) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "a kernel failed");
    return nullptr;
  }
  Py_RETURN_NONE;
}

static PyObject* bind(PyObject*, PyObject* address) {
  void* function = PyLong_AsVoidPtr(address);
  if (function == nullptr) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "an address is needed");
    return nullptr;
  }
  data_pointer = reinterpret_cast<DataPointer>(function);
  Py_RETURN_NONE;
}
}  // namespace nc
"""


def translation_unit(kernels: Sequence[Kernel]) -> str:
    """All kernels and their entries as one C++ file. Raises `Unsupported` for a kernel that is not as expected."""
    includes: list[str] = []
    bodies: list[str] = []
    entries: list[str] = []
    methods: list[str] = []
    for index, kernel in enumerate(kernels):
        body, found = _split(kernel.source)
        includes += [line for line in found if line not in includes]
        # Each kernel is in a namespace of its own, as are the helpers that may come with it.
        bodies.append(f"namespace k{index} {{\n{body}\n}}  // namespace k{index}\n")
        arguments = ", ".join(_argument(kind, position) for position, kind in enumerate(kernel.argument_types))
        entries.append(
            f"static PyObject* entry_{index}(PyObject*, PyObject* const* a, Py_ssize_t n) {{\n"
            f"  return nc::guarded(n, {len(kernel.argument_types)}, [&] {{ k{index}::kernel({arguments}); }});\n}}\n"
        )
        methods.append(f'  {{"k{index}", reinterpret_cast<PyCFunction>(entry_{index}), METH_FASTCALL, nullptr}},\n')
    table = "".join(methods)
    return (
        f"{_PROLOGUE}{''.join(line + chr(10) for line in includes)}{_ACCESS}\n{''.join(bodies)}\n{''.join(entries)}\n"
        f'static PyMethodDef methods[] = {{\n  {{"bind", nc::bind, METH_O, nullptr}},\n{table}'
        "  {nullptr, nullptr, 0, nullptr}};\n"
        "static PyModuleDef_Slot slots[] = {{0, nullptr}};\n"
        f'static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{MODULE}", nullptr, 0, methods, slots, nullptr, nullptr,'
        " nullptr};\n"
        f"PyMODINIT_FUNC PyInit_{MODULE}() {{ return PyModuleDef_Init(&definition); }}\n"
    )


def _split(source: str) -> tuple[str, list[str]]:
    """A kernel's text without its includes and with `kernel` of internal linkage, and the includes."""
    includes = [line.strip() for line in _INCLUDE.findall(source)]
    body = _INCLUDE.sub("", source)
    body, entries = _ENTRY.subn("static void kernel(", body)
    if entries != 1:
        raise Unsupported(f"a generated kernel has {entries} entries")
    if "#include" in body or 'extern "C"' in body:
        raise Unsupported("a generated kernel includes or exports something within its text")
    return body, includes


def _argument(kind: str, position: int) -> str:
    plain = kind.strip()
    if _POINTER.fullmatch(plain):
        return f"nc::as_pointer<{plain.removeprefix('const ')}>(a[{position}])"
    reader = _SCALARS.get(plain.removeprefix("const "))
    if reader is None:
        raise Unsupported(f"a generated kernel has a parameter of type {kind}")
    return f"nc::{reader}(a[{position}])"


def compile_library(kernels: Sequence[Kernel], cpu_class: cpu.CpuClass) -> bytes:
    """The shared library of a graph's kernels. Raises `Unsupported` when the compiler is missing or fails."""
    from neuroncache import inductor

    source = translation_unit(kernels)
    with _directory() as directory:
        with open(os.path.join(directory, "kernels.cpp"), "w", encoding="utf-8") as file:
            file.write(source)
        command = inductor.compiler_command(cpu_class, "kernels.cpp", "kernels.so")
        _run(command, directory)
        with open(os.path.join(directory, "kernels.so"), "rb") as file:
            return file.read()


@contextlib.contextmanager
def _directory() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="neuroncache-build-") as directory:
        yield directory


def _run(command: Sequence[str], directory: str) -> None:
    try:
        # Quiet compilers speak the user's language and write temporary files wherever TMPDIR says.
        result = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise Unsupported(f"the C++ compiler cannot be started: {error}", passing=True) from None
    except subprocess.TimeoutExpired:
        raise Unsupported(f"the C++ compiler took more than {COMPILE_TIMEOUT_S} s", passing=True) from None
    if result.returncode != 0:
        lines = [line for line in result.stdout.decode(errors="replace").splitlines() if "error" in line.lower()]
        first = lines[0].strip()[:300] if lines else f"status {result.returncode}"
        # A compiler that was killed, or ran out of disk or memory, says nothing about the graph.
        passing = result.returncode < 0 or any(text in first for text in _EXHAUSTED)
        raise Unsupported(f"the C++ compiler failed: {first} ({shlex.quote(command[0])})", passing=passing)
