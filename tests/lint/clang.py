"""Clang's verdict on every C++ source: `clang.py syntax|tidy BUILD JOBS`.

syntax: compiles without output with all warnings, the thread-safety analysis among them, as errors.
tidy: clang-tidy by .clang-tidy. A source whose preprocessed text passed before is not looked at again.
BUILD is a build directory that was configured for Clang.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tree


def commands(build: Path) -> list[tuple[str, Path, list[str]]]:
    """Source, directory and compiler command (without output) of our own sources."""
    rows = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        if not source.is_relative_to(tree.ROOT) or source.is_relative_to(tree.ROOT / "build"):
            continue
        words = shlex.split(entry["command"])
        if "ccache" in words[0]:
            words = words[1:]
        output = words.index("-o")
        del words[output : output + 2]
        words.remove("-c")
        rows.append((str(source), Path(entry["directory"]), words))
    return rows


def syntax(source: str, directory: Path, words: list[str]) -> str:
    command = [*words, "-fsyntax-only", "-Wthread-safety", "-Werror"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    return f"{source}\n{done.stderr}" if done.returncode else ""


def tidy(source: str, directory: Path, words: list[str], build: Path) -> str:
    text = subprocess.run([*words, "-E"], cwd=directory, capture_output=True).stdout
    digest = hashlib.sha256(text + (tree.ROOT / ".clang-tidy").read_bytes() + b"14").hexdigest()
    passed = build / "tidy-passed" / digest
    if passed.exists():
        return ""
    command = ["clang-tidy-14", "-p", str(build), "--quiet", source]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if done.returncode:
        return f"{source}\n{done.stdout}{done.stderr}"
    passed.parent.mkdir(exist_ok=True)
    passed.touch()
    return ""


def main() -> None:
    kind, build, jobs = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    rows = commands(build)

    def check(row: tuple[str, Path, list[str]]) -> str:
        source, directory, words = row
        return syntax(source, directory, words) if kind == "syntax" else tidy(source, directory, words, build)

    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(check, rows))
    tree.finish(kind, [text for text in outcomes if text], len(rows))


main()
