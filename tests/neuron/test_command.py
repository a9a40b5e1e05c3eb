"""The emulated `neuronx-cc`: forms of its command line, messages, side files, exit status."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

MODULE = """
module @jit {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %sum = stablehlo.add %x, %x : tensor<4xf32>
    return %sum : tensor<4xf32>
  }
}
"""
OPEN = MODULE.replace("tensor<4xf32>", "tensor<?xf32>")
FLAGS = "--framework XLA --target trn2 --lnc 2 -O2 --model-type transformer --auto-cast=none"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "module.mlir").write_text(MODULE)
    return tmp_path


def neuronx_cc(place: Path, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["neuronx-cc", *words.split()], cwd=place, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "words",
    [
        f"compile {{here}}/module.mlir {FLAGS} --output {{here}}/out.neff",
        "--target=trn1 compile --framework XLA module.mlir --output out.neff --verbose=35",
        "compile --target=trn1 --framework=XLA module.mlir --output=out.neff -O1 --output=other.neff --output=out.neff",
        "compile --framework XLA module.mlir --pipeline compile SaveTemps --target trn2 --output=out.neff",
    ],
)
def test_forms_of_compile(place: Path, words: str) -> None:
    done = neuronx_cc(place, words.format(here=place))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\.+\nCompiler status PASS\n", done.stdout)
    kept = {"module.mlir", "out.neff", "log-neuron-cc.txt"}
    left = {path.name for path in place.iterdir()} - kept
    assert len(left) == ("SaveTemps" in words) and all(name.startswith("neuronxcc-") for name in left)
    assert (place / "out.neff").stat().st_size > 1000


def test_the_log_goes_where_it_is_told(place: Path) -> None:
    assert neuronx_cc(place, f"compile module.mlir {FLAGS} --logfile there.log").returncode == 0
    assert {path.name for path in place.iterdir()} == {"module.mlir", "file.neff", "there.log"}
    assert "Compiler status PASS" in (place / "there.log").read_text()


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (OPEN, "NCC_EMOD025"),
        ("", "NCC_EHLO001"),
        ("\x0a\x04name", "NCC_EHLO002"),
        (MODULE.replace("add", "addd"), "NCC_EVRF001"),
    ],
    ids=["open", "empty", "proto", "wrong"],
)
def test_a_graph_at_fault_is_70_and_leaves_its_files(place: Path, source: str, code: str) -> None:
    (place / "module.mlir").write_text(source)
    done = neuronx_cc(place, f"compile module.mlir {FLAGS} --output out.neff")
    assert done.returncode == 70 and f"ERROR: [{code}]" in done.stderr and "PASS" not in done.stdout
    assert not (place / "out.neff").exists()
    assert len(list(place.glob("neuronxcc-*"))) == 1 and code in (place / "log-neuron-cc.txt").read_text()


@pytest.mark.parametrize(
    "words",
    [
        "compile",
        "compile module.mlir --target trn2",
        "compile --framework XLA module.mlir",
        "compile --framework XLA module.mlir --target trn9",
        "compile --framework TENSORFLOW module.mlir --target trn2",
        f"compile nothing.mlir {FLAGS}",
        f"compile module.mlir {FLAGS} --no-such-flag",
        f"compile module.mlir {FLAGS} --output",
    ],
)
def test_a_command_line_at_fault_is_1_and_does_nothing(place: Path, words: str) -> None:
    done = neuronx_cc(place, words)
    assert done.returncode == 1 and done.stderr.startswith("neuronx-cc: error: ")
    assert [path.name for path in place.iterdir()] == ["module.mlir"]


def test_what_it_says_of_itself(place: Path) -> None:
    first, empty, *rest = neuronx_cc(place, "--version").stdout.splitlines()
    assert re.fullmatch(r"NeuronX Compiler version \d+\.\d+\.\d+\.\d+\+[0-9a-f]{8}", first) and empty == ""
    assert [line.split(" version ")[0] for line in rest] == ["Python", "HWM", "NumPy", "Emulator"]
    assert "usage: neuronx-cc" in neuronx_cc(place, "--help").stdout
    assert "dot_general" in neuronx_cc(place, "list-operators --framework XLA").stdout.splitlines()


def test_a_signal_ends_it_with_what_it_started(place: Path) -> None:
    # Many operations on constants of some size, so that there is time for it.
    lines = "".join(f"%{n + 1} = stablehlo.sine %{n} : tensor<4xf32>\n" for n in range(20000))
    text = MODULE.replace("%sum = stablehlo.add %x, %x", "%0 = stablehlo.add %x, %x")
    (place / "module.mlir").write_text(text.replace("return %sum", f"{lines}return %20000"))
    process = subprocess.Popen(["neuronx-cc", "compile", "module.mlir", *FLAGS.split()], cwd=place)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (started := children.read_text().split()):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == -signal.SIGTERM
    deadline = time.monotonic() + 60
    while Path(f"/proc/{started[0]}").exists():
        assert time.monotonic() < deadline, "IREE's compiler lives on"
        time.sleep(0.02)
    assert not (place / "file.neff").exists()
