"""What a hit costs through the neuronx-cc wrapper, as a whole process, beside ccache and sccache delivering the same bytes, the
compiler itself (a stub) and cp; and what a miss costs on top of the compiler.

The compilers behind ccache and sccache are scripts that copy the same bytes, so that all deliver one output. Ratios within one run.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("NC_BIN_DIR", ROOT / "build" / "bin"))
WRAPPER = BIN.parent / "libexec" / "neuronx-cc"

# Answers like gcc where a cache asks what it is; "compiles" by copying.
FAKE_GCC = """#!/bin/sh
out=a.o
mode=c
for word in "$@"; do
  case "$last" in -o) out=$word ;; esac
  case "$word" in
    -E) mode=E ;;
    --version) echo "gcc (fake) 12.2.0"; exit 0 ;;
    -dumpmachine) echo x86_64-linux-gnu; exit 0 ;;
    *.c) source=$word ;;
  esac
  last=$word
done
if [ $mode = E ]; then
  if [ "$out" != a.o ]; then exec > "$out"; fi
  echo "# 1 \\"$source\\""
  exec sed "s/__VERSION__/\\"12\\"/; s/__GNUC__/12/" "$source"
fi
exec cp "$BENCH_BYTES" "$out"
"""
# As fast as a compiler can be.
FAKE_NEURONX_CC = """#!/bin/sh
case "$1" in --version) echo "NeuronX Compiler version 2.20.9961.0+0acef03a"; exit 0 ;; esac
for word in "$@"; do
  case "$last" in --output) out=$word ;; esac
  last=$word
done
cp "$BENCH_BYTES" "$out"
echo "Compiler status PASS"
"""


BATCH = 5  # runs between two readings of the clock


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1000


class Bench:
    def __init__(self, directory: Path, size: int) -> None:
        self.dir = directory
        self.bytes = directory / "bytes"
        self.bytes.write_bytes(os.urandom(size))
        self.source = directory / "model.hlo_module.pb"
        self.c = directory / "model.c"
        self.sdk = directory / "sdk"
        self.sdk.mkdir()
        self.script(self.sdk / "neuronx-cc", FAKE_NEURONX_CC)
        self.gcc = self.script(directory / "gcc", FAKE_GCC)
        self.change(0)
        self.env = {
            "PATH": f"{WRAPPER.parent}:{self.sdk}:{os.environ['PATH']}",
            "HOME": str(directory),
            "XDG_RUNTIME_DIR": str(directory),
            "NEURONCACHE_DIR": str(directory / "store"),
            "NEURONCACHE_SOCKET": str(directory / "daemon.sock"),
            "NEURONCACHE_BUILD_MEMORY_GUESS": "16MiB",
            "CCACHE_DIR": str(directory / "ccache"),
            "CCACHE_COMPILERTYPE": "gcc",
            "SCCACHE_DIR": str(directory / "sccache"),
            "SCCACHE_SERVER_UDS": str(directory / "sccache.sock"),
            "BENCH_BYTES": str(self.bytes),
        }

    @staticmethod
    def script(path: Path, text: str) -> Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    def change(self, n: int) -> None:
        """Another input, so that what follows is a miss."""
        self.source.write_bytes(b"module %d" % n + b"." * 200_000)
        self.c.write_text(f"int x{n};\n" + "//" + "." * 200_000 + "\n")

    def run(self, *words: str | Path, times: int = 1) -> None:
        """From a small shell, `times` times: starting a process from a large one costs more than some of the rows."""
        loop = 'for i in $0; do "$@" >/dev/null || exit; done'
        numbers = " ".join(["1"] * times)
        subprocess.run(
            ["/bin/sh", "-c", loop.replace("$0", numbers), "sh", *words], env=self.env, cwd=self.dir, check=True
        )

    def repeated(self, words: Sequence[str | Path], times: int) -> None:
        self.run(*words, times=times)

    def compile(self, program: Path, times: int = 1) -> None:
        words = ["compile", self.source, "--framework", "XLA", "--target", "trn2", "--output", "out.neff"]
        self.run(program, *words, times=times)

    def commands(self) -> tuple[dict[str, Callable[[int], None]], dict[str, str]]:
        found: dict[str, Callable[[int], None]] = {
            "wrapper, hit": lambda times: self.compile(WRAPPER, times),
            "stub compiler": lambda times: self.compile(self.sdk / "neuronx-cc", times),
            "cp": lambda times: self.run("cp", self.bytes, "out.cp", times=times),
        }
        missing = {}
        for name in ("ccache", "sccache"):
            program = shutil.which(name)
            if not program:
                missing[name] = "not installed"
                continue
            command = (program, self.gcc, "-c", self.c, "-o", "out.o")
            try:
                self.run(*command)
                self.run(*command)
            except subprocess.CalledProcessError as error:
                missing[name] = f"does not work here: {error}"
                continue
            if name == "ccache":
                stats = subprocess.run([program, "--print-stats"], env=self.env, capture_output=True, text=True).stdout
                hits = sum(
                    int(line.split()[1])
                    for line in stats.splitlines()
                    if line.startswith(("direct_cache_hit", "preprocessed_cache_hit"))
                )
                if not hits:
                    missing[name] = "no hit"
                    continue
            found[f"{name}, hit"] = functools.partial(self.repeated, command)
        return found, missing

    def end(self) -> None:
        subprocess.run([BIN / "neuroncache", "daemon", "stop"], env=self.env, capture_output=True)
        if shutil.which("sccache"):
            subprocess.run(["sccache", "--stop-server"], env=self.env, capture_output=True)


def measure(size: int, rounds: int) -> bool:
    directory = Path(tempfile.mkdtemp(prefix="nc-bench-"))
    bench = Bench(directory, size)
    good = True
    try:
        commands, missing = bench.commands()
        for run in commands.values():  # what comes first is a miss, and brings daemons up
            run(2)
        assert (directory / "out.neff").read_bytes() == bench.bytes.read_bytes()
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):  # in turns, so that a busy moment hits all
            for name, run in commands.items():
                os.sync()  # nobody pays for what the one before left to be written
                times[name].append(milliseconds(functools.partial(run, BATCH)) / BATCH)
        misses = []
        for n in range(1, max(3, rounds // 4) + 1):
            bench.change(n)
            misses.append(
                milliseconds(functools.partial(commands["wrapper, hit"], 1)) - statistics.median(times["stub compiler"])
            )
        medians = {name: statistics.median(values) for name, values in times.items()}
        ours = medians["wrapper, hit"]
        print(f"{size / 1e6:.0f} MB output, input 0.2 MB, median of {rounds} times {BATCH}")
        for name, median in medians.items():
            print(
                f"  {name:16} {median:8.2f} ms   {median / ours:5.2f} x the wrapper's hit (best {min(times[name]):.2f} ms)"
            )
            if name in ("ccache, hit", "sccache, hit") and median < 2 * ours:
                good = False
        print(
            f"  {'miss, overhead':16} {statistics.median(misses):8.2f} ms over the stub compiler, with storing the output"
        )
        for name, why in missing.items():
            print(f"  {name}: {why}")
    finally:
        bench.end()
        shutil.rmtree(directory, ignore_errors=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    good = [measure(size, rounds) for size in (1_000_000, 16_000_000)]
    if not all(good):
        print("the wrapper's hit is not twice as fast as the other caches' hits")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
