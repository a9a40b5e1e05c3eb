"""Inputs that are no modules, and stored outputs that went bad: never a lie, and never worse than no cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from wrapper_support import STUB, Home

DEEP = b"module {" + b"{" * 100_000
HOSTILE = {
    "empty.pb": b"",
    "cut.pb": b"\x0a\x04main\x1a\xff\xff\xff\xff\x0f",  # a message that says to be longer than the file
    "varint.pb": b"\xff" * 64,
    "deep.mlir": DEEP,
    "open.mlir": b'module @a { "stablehlo.add"(',
    "bytecode.mlir": b"ML\xefR\x06" + b"\xff" * 32,
    "zeros.bin": bytes(4096),
}


def test_what_is_no_module_is_compiled_once_as_it_is(home: Home) -> None:
    for name, data in HOSTILE.items():
        source = home.input(name, data)
        made = []
        for _ in range(2):
            ran = home.compile(source=source)
            assert (ran.status, ran.ours) == (0, []), name
            made.append((home.work / "out.neff").read_bytes())
        assert made[0] == made[1], name
    assert home.compiles() == len(HOSTILE)
    # One byte more is another module.
    home.compile(source=home.input("cut.pb", HOSTILE["cut.pb"] + b"\0"))
    assert home.compiles() == len(HOSTILE) + 1


def test_a_diagnostic_about_an_input_is_for_that_input_only(home: Home) -> None:
    script = {"exit": 70, "err": "ERROR: [NCC_EHLO001] cannot parse the module\n"}
    empty = home.input("empty.pb", b"")
    for _ in range(2):
        assert home.compile(source=empty, script=script).status == 70
    assert home.compiles() == 1
    assert home.compile(source=home.input("whole.pb", b"module")).status == 0


def test_an_input_of_a_gibibyte(home: Home) -> None:
    source = home.work / "huge.pb"
    with open(source, "wb") as file:
        file.truncate(1 << 30)
    compiler = home.dir / "compiler"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo NeuronX Compiler version 1.0; exit; }\n'
        "echo start 1 >>$STUB_LOG; echo a NEFF >out.neff; echo Compiler status PASS\n"
    )
    compiler.chmod(0o755)
    for _ in range(2):
        ran = home.compile(source=str(source), NEURONCACHE_REAL_CC=str(compiler))
        assert (ran.status, ran.ours) == (0, [])
    assert home.compiles() == 1


def stored_file(home: Home, data: bytes) -> Path:
    (found,) = [path for path in home.store.rglob("*") if path.is_file() and path.read_bytes() == data]
    return found


def spoil(path: Path, at: int) -> None:
    """As a disk does: nothing but the byte changes."""
    info = path.stat()
    path.chmod(0o644)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
    path.chmod(info.st_mode & 0o777)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_a_stored_output_that_rots_is_built_again(home: Home, size: int) -> None:
    script = {"size": size}
    assert home.compile(script=script).status == 0
    output = home.work / "out.neff"
    good = output.read_bytes()
    assert home.compile(script=script).ours == [] and home.compiles() == 1
    spoil(stored_file(home, good), size - 5)
    output.write_bytes(b"what was there before")
    ran = home.compile(script=script)
    assert ran.status == 0 and len(ran.ours) == 1 and "is damaged; it is built again" in ran.ours[0]
    assert output.read_bytes() == good and home.compiles() == 2
    assert home.compile(script=script).ours == [] and home.compiles() == 2
    assert output.read_bytes() == good


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_a_stored_output_that_somebody_took_away_is_built_again(home: Home, size: int) -> None:
    script = {"size": size}
    assert home.compile(script=script).status == 0
    good = (home.work / "out.neff").read_bytes()
    stored_file(home, good).unlink()
    ran = home.compile(script=script)
    assert ran.status == 0 and home.compiles() == 2
    assert (home.work / "out.neff").read_bytes() == good
    assert home.compile(script=script).ours == [] and home.compiles() == 2


def test_a_log_that_cannot_be_written_is_the_compilers_business(home: Home) -> None:
    place = home.work / "nowhere" / "l.txt"
    direct = home.compile("--logfile", str(place), program=str(STUB / "neuronx-cc"))
    assert home.compile().status == 0
    ran = home.compile("--logfile", str(place))
    assert ran.status == direct.status and len(ran.ours) == 1 and str(place) in ran.ours[0]
