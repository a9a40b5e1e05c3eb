"""The artifact of one graph: what may be in it, how it is loaded, and what is not let in."""

from __future__ import annotations

import marshal
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from neuroncache import admit, compat, cpu, keys, library, loader, wrapper
from neuroncache.errors import LoadRefused, Unsupported

HEAD = """
from ctypes import c_void_p
import torch
import math
from torch._inductor.async_compile import AsyncCompile
aten = torch.ops.aten
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
async_compile = AsyncCompile()
"""
KERNEL = """
#include <cstdint>
extern "C"  void  kernel(const float* in, float* out, const int64_t count, double scale)
{
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i] * scale);
}
"""
CALL = """
async_compile.wait(globals())
del async_compile

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def recursively_apply_fns(self, fns):
        self.partitions = [fn(c) for fn, c in zip(fns, self.partitions)]

    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        buf0 = empty_strided_cpu((3, 4), (4, 1), torch.float32)
        kernel_0(arg0_1, buf0, 12, 2.0)
        return (buf0, aten.add.Tensor(arg1_1, 1), None, )

runner = Runner(partitions=[])
call = runner.call
recursively_apply_fns = runner.recursively_apply_fns

def benchmark_compiled_module(args, times=10, repeat=10):
    import os
    os.system("true")

if __name__ == "__main__":
    benchmark_compiled_module(None)
"""
TYPES = ["const float*", "float*", "const int64_t", "double"]


def source(kernel: str = KERNEL, call: str = CALL, types: list[str] = TYPES) -> str:
    return f"{HEAD}kernel_0 = async_compile.cpp_pybinding({types!r}, r'''{kernel}''')\n{call}"


def header(**changes: Any) -> dict[str, Any]:
    return {
        "torch": keys.torch_build(),
        "python": keys.python_abi(),
        "cpu_class": cpu.V3.name,
        "outputs": 3,
        "guards": None,
        "output_strides": None,
        **changes,
    }


# -- the wrapper ------------------------------------------------------------------------------------------------------


def test_a_wrapper_is_taken_apart() -> None:
    taken = wrapper.take_apart(source())
    assert taken.names == {"kernel_0": 0}
    assert taken.kernels == [wrapper.Kernel(tuple(TYPES), KERNEL)]
    assert taken.operators == ["aten.add.Tensor"]
    assert "import" not in taken.body and "os" not in taken.body.split() and "zip" not in taken.body


def test_equal_kernels_are_one() -> None:
    text = source().replace(
        "\nasync_compile.wait",
        f"\nkernel_1 = async_compile.cpp_pybinding({TYPES!r}, r'''{KERNEL}''')\nasync_compile.wait",
    )
    taken = wrapper.take_apart(text)
    assert len(taken.kernels) == 1
    assert taken.names == {"kernel_0": 0, "kernel_1": 0}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import math", "import subprocess"),
        ("import math", "from torch._inductor.runtime import triton_heuristics"),
        ("aten = torch.ops.aten", "aten = torch.ops.mine"),
        ("async_compile.cpp_pybinding", "async_compile.triton"),
        ("args.clear()", "import os"),
        ("args.clear()", "open('/etc/passwd')"),
        ("args.clear()", "eval('1')"),
        ("args.clear()", "args.__class__"),
        ("args.clear()", "torch.load('x')"),
        ("args.clear()", "torch._C._cuda_init()"),
        ("args.clear()", "extern_kernels.mine(args)"),
        ("args.clear()", "math.__loader__"),
        ("args.clear()", "lambda: 1"),
        ("args.clear()", "[x for x in args]"),
        ("args.clear()", "with args: pass"),
        ("args.clear()", "empty_strided_cuda((1, ), (1, ), torch.float32)"),
        ("class Runner:", "class Runner(list):"),
        ("runner = Runner(partitions=[])", "runner = Runner(partitions=[])\nextra = torch.load"),
        ("call = runner.call", ""),
        ("runner = Runner(partitions=[])", "print('hello')"),
    ],
)
def test_what_is_not_expected_is_refused(old: str, new: str) -> None:
    text = source()
    assert old in text
    with pytest.raises(Unsupported):
        wrapper.take_apart(text.replace(old, new))


def test_the_blob_survives_and_damage_is_refused() -> None:
    data = wrapper.pack(wrapper.take_apart(source()), header())
    fields, code = wrapper.unpack(data)
    assert fields["kernels"] == {"kernel_0": 0} and fields["outputs"] == 3
    assert marshal.loads(code)
    for damaged in (b"", data[:8], b"X" + data[1:], data[:20], data[:8] + struct.pack("<I", 1 << 30) + data[12:]):
        with pytest.raises(LoadRefused):
            wrapper.unpack(damaged)
    with pytest.raises(LoadRefused):
        loader.load(data[: len(data) // 2], None)


# -- the library ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["std::string", "float**", "PyObject", "void (*)()"])
def test_unknown_parameter_types_are_refused(kind: str) -> None:
    with pytest.raises(Unsupported):
        library.translation_unit([wrapper.Kernel((kind,), KERNEL)])


def test_kernels_of_another_make_are_refused() -> None:
    for text in (KERNEL.replace("kernel(", "other("), KERNEL + KERNEL, KERNEL + '\nextern "C" void more() {}\n'):
        with pytest.raises(Unsupported):
            library.translation_unit([wrapper.Kernel(tuple(TYPES), text)])


def test_includes_come_first_and_once() -> None:
    kernel = wrapper.Kernel(tuple(TYPES), KERNEL)
    other = wrapper.Kernel(tuple(TYPES), KERNEL.replace("* scale", "+ scale"))
    text = library.translation_unit([kernel, other])
    assert text.count("#include <cstdint>") <= 2 and text.index("#include <cstdint>") < text.index("namespace k0")
    assert "namespace k1" in text and 'extern "C"' not in text


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> admit.Files:
    """The artifact of the wrapper above, in files."""
    directory = tmp_path_factory.mktemp("artifact")
    taken = wrapper.take_apart(source())
    (directory / "wrapper").write_bytes(wrapper.pack(taken, header()))
    (directory / "library").write_bytes(library.compile_library(taken.kernels, cpu.V3))
    return admit.Files(str(directory / "wrapper"), str(directory / "library"), None)


def load(files: admit.Files, **changes: Any) -> loader.LoadedGraph:
    data = Path(files.wrapper).read_bytes()
    if changes:
        data = wrapper.pack(wrapper.take_apart(source()), header(**changes))
    return loader.load(data, files.library)


X = torch.arange(12.0).reshape(3, 4)


def test_a_loaded_graph_runs(built: admit.Files) -> None:
    graph = load(built)
    outputs = graph([X, torch.ones(2)])
    assert torch.equal(outputs[0], X * 2) and torch.equal(outputs[1], torch.full((2,), 2.0)) and outputs[2] is None


def test_two_libraries_do_not_meet(built: admit.Files, tmp_path: Path) -> None:
    other = wrapper.take_apart(source(KERNEL.replace("* scale", "+ scale")))
    path = tmp_path / "library"
    path.write_bytes(library.compile_library(other.kernels, cpu.V3))
    first, second = load(built), loader.load(wrapper.pack(other, header()), str(path))
    path.unlink()  # a store may remove what is in use
    assert torch.equal(second([X, X])[0], X + 2)
    assert torch.equal(first([X, X])[0], X * 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"torch": "2.12.0"},
        {"python": "cpython-312"},
        {"cpu_class": "x86-64-v9"},
    ],
)
def test_another_build_is_refused(built: admit.Files, changes: dict[str, Any]) -> None:
    with pytest.raises(LoadRefused, match="made for"):
        load(built, **changes)


def test_a_lesser_cpu_is_refused(built: admit.Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_host", cpu.V3.features - {"fma"})
    with pytest.raises(LoadRefused, match="this CPU has no fma"):
        load(built)


def test_missing_parts_are_refused(built: admit.Files, tmp_path: Path) -> None:
    data = Path(built.wrapper).read_bytes()
    with pytest.raises(LoadRefused):
        loader.load(data, None)
    (tmp_path / "library").write_bytes(b"not a library")
    with pytest.raises(LoadRefused):
        loader.load(data, str(tmp_path / "library"))
    absent = source(call=CALL.replace("aten.add.Tensor", "torch.ops.aten.no_such_operator.default"))
    with pytest.raises(LoadRefused, match="not registered"):
        loader.load(wrapper.pack(wrapper.take_apart(absent), header()), built.library)


def test_wrong_outputs_are_seen_at_the_first_call(built: admit.Files) -> None:
    with pytest.raises(RuntimeError, match="in place of 2 outputs"):
        load(built, outputs=2)([X, X])


def test_a_kernel_that_throws_is_an_exception(tmp_path: Path) -> None:
    text = KERNEL.replace("for (", 'throw std::runtime_error("too far"); for (')
    taken = wrapper.take_apart(source(text))
    (tmp_path / "library").write_bytes(library.compile_library(taken.kernels, cpu.V3))
    graph = loader.load(wrapper.pack(taken, header()), str(tmp_path / "library"))
    with pytest.raises(RuntimeError, match="too far"):
        graph([X, X])


def test_a_compiler_error_is_a_refusal() -> None:
    with pytest.raises(Unsupported, match="compiler failed.*error"):
        library.compile_library([wrapper.Kernel(tuple(TYPES), KERNEL.replace("count; ++i", "nonsense; ++i"))], cpu.V3)


def test_constants_keep_their_form(built: admit.Files) -> None:
    from neuroncache import canonical

    values = {
        "a": torch.tensor([[1.5, float("nan")], [float("-inf"), -0.0]]),
        "b": torch.arange(6, dtype=torch.int16).reshape(2, 3).t(),
        "c": torch.zeros(0, 4, dtype=torch.bool),
        "d": torch.tensor(7, dtype=torch.int64),
        "e": torch.randn(3).to(torch.bfloat16),
    }
    data, table = loader.pack_constants(
        [(name, value, canonical.content_bytes(value)) for name, value in values.items()]
    )
    read = loader._read_constants({"constants": list(values), "constant_table": table}, data)
    for name, value in values.items():
        assert read[name].dtype == value.dtype and read[name].stride() == value.stride()
        assert canonical.content_bytes(read[name]) == canonical.content_bytes(value)
    with pytest.raises(LoadRefused):
        loader._read_constants({"constants": list(values), "constant_table": table}, data[:-1])
    with pytest.raises(LoadRefused):
        loader._read_constants({"constants": ["z"], "constant_table": table}, data)


# -- admission --------------------------------------------------------------------------------------------------------


def trial(directory: Path, kernel: str, call: str = CALL, **options: Any) -> None:
    taken = wrapper.take_apart(source(kernel, call))
    # A library that is loaded must never be written over.
    place = Path(tempfile.mkdtemp(dir=directory))
    (place / "wrapper").write_bytes(wrapper.pack(taken, header()))
    (place / "library").write_bytes(library.compile_library(taken.kernels, cpu.V3))
    files = admit.Files(str(place / "wrapper"), str(place / "library"), None)
    graph = loader.load(Path(files.wrapper).read_bytes(), files.library)
    admit.admit(graph, files, [X, torch.zeros(5, dtype=torch.int64)], **{"unordered_sums": False, **options})


def test_a_good_artifact_is_admitted(built: admit.Files, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    trial(tmp_path, KERNEL)
    assert torch.equal(torch.get_rng_state(), before)


def test_random_numbers_follow_the_seed(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    trial(tmp_path, KERNEL, CALL.replace("aten.add.Tensor(arg1_1, 1)", "torch.ops.aten.rand.default([4])"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        # What the compiler's environment decides, a crash, and what another run changes.
        ('out[i] = static_cast<float>(in[i] * scale + (getenv("PATH") && getenv("PATH")[0] ? 1 : 0));', "other bits"),
        ("*reinterpret_cast<volatile int*>(8) = 1;", "ended with status -11"),
        ('throw std::runtime_error("no");', "trial run failed"),
    ],
    ids=["environment", "crash", "exception"],
)
def test_a_bad_artifact_is_not_admitted(tmp_path: Path, statement: str, reason: str) -> None:
    kernel = KERNEL.replace("#include <cstdint>", "#include <cstdint>\n#include <cstdlib>").replace(
        "out[i] = static_cast<float>(in[i] * scale);", statement
    )
    assert statement in kernel
    with pytest.raises(Unsupported, match=reason):
        trial(tmp_path, kernel)


def test_unordered_sums_may_differ_a_little(tmp_path: Path) -> None:
    little = KERNEL.replace("* scale", '* scale * (getenv("PATH") && getenv("PATH")[0] ? 1.000001 : 1)')
    little = little.replace("#include <cstdint>", "#include <cstdint>\n#include <cstdlib>")
    trial(tmp_path, little, unordered_sums=True)
    with pytest.raises(Unsupported, match="other bits"):
        trial(tmp_path, little)
    with pytest.raises(Unsupported, match="another value"):
        trial(tmp_path, little.replace("1.000001", "1.01"), unordered_sums=True)


def test_inputs_too_large_for_a_trial(monkeypatch: pytest.MonkeyPatch, built: admit.Files) -> None:
    monkeypatch.setattr(admit, "_memory_limit", lambda: 10)
    with pytest.raises(Unsupported, match="too much for a trial run"):
        admit.admit(load(built), built, [X, X], unordered_sums=False)


def test_the_verifier_has_no_compiler_and_ends_with_us() -> None:
    admit.prepare()
    process = admit._child()._process
    assert process is not None
    environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    assert b"PATH=" in environment
    admit._child().stop()
    assert process.poll() is not None


def test_this_torch_has_what_is_needed() -> None:
    assert compat.missing() is None
    assert os.path.exists(torch.__file__)
