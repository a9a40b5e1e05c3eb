"""CPU seconds to the first step of a fresh process, ours beside stock torch's own caches, in one run.

Counted from after imports and construction of the model to the end of the first step, compilers included. The model is a
Llama of 4 layers, 256 wide. Each row is a process of its own:

  stock, cold            no cache at all
  stock, warm disk       the caches that the first left on this host
  stock, new host        empty directories, torch's portable cache (mega-cache) loaded
  ours, cold             empty store
  ours, warm             empty directories, the daemon has the artifacts: a new host and this host alike
  ours, four at once     four processes on an empty store, together

Budgets are ratios within the run. CPU seconds are steadier than wall time, but quote no figure of a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
PHASES = ("imports", "trace", "backend", "look-up", "load", "first run")


# ---- In the process that is measured ----


class Stopwatch:
    """CPU seconds of this process in calls of a function, those of nested watches included."""

    def __init__(self, owner: Any, name: str) -> None:
        self.seconds = 0.0
        self._depth = 0
        original = getattr(owner, name)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            started = time.process_time()
            self._depth += 1
            try:
                return original(*arguments, **keywords)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.process_time() - started

        setattr(owner, name, timed)


def children_seconds() -> float:
    import resource

    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def worker(mode: str, portable: str) -> None:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=2000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.randint(0, 2000, (4, 64))

    begin, begin_children = time.process_time(), children_seconds()
    if portable and os.path.exists(portable):
        torch.compiler.load_cache_artifacts(Path(portable).read_bytes())
    compiled = torch.compile(model)
    import torch._dynamo.convert_frame as convert_frame
    from torch._dynamo.output_graph import OutputGraph

    imports = time.process_time() - begin
    whole = Stopwatch(convert_frame, "_compile")
    backend = Stopwatch(OutputGraph, "call_user_compiler")
    if mode == "train":
        loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
    else:
        with torch.no_grad():
            loss = compiled(input_ids=tokens, labels=tokens).loss
    own = time.process_time() - begin
    result: dict[str, Any] = {"cpu": own + children_seconds() - begin_children, "loss": loss.item()}
    seconds: dict[str, float] = {}
    if os.environ.get("NEURONCACHE") != "0":
        import neuroncache

        counts = neuroncache.stats()
        seconds = counts["seconds"]
        result["builds"] = counts["kinds"].get("graph", {}).get("builds", 0)
        result["bypasses"] = counts["bypasses"]
    result["phases"] = dict(
        zip(
            PHASES,
            (
                imports,
                whole.seconds - backend.seconds,
                backend.seconds,
                seconds.get("lookup", 0.0),
                seconds.get("load", 0.0),
                own - imports - whole.seconds,
            ),
            strict=True,
        )
    )
    if portable and not os.path.exists(portable):
        saved = torch.compiler.save_cache_artifacts()
        if saved is not None:
            Path(portable).write_bytes(saved[0])
    print(json.dumps(result))


# ---- Around it ----


class Bench:
    """Runs the worker under given conditions, and counts the compiler processes that it starts."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self.environment = environment
        self._count = 0
        shims = directory / "path"
        shims.mkdir(exist_ok=True)
        for name in ("g++", "c++", "clang++"):
            shim = shims / name
            shim.write_text(f'#!/bin/sh\necho x >> "$BENCH_COMPILER_LOG"\nPATH="${{PATH#{shims}:}}" exec {name} "$@"\n')
            shim.chmod(0o755)
        self._path = f"{shims}:{environment['PATH']}"

    def start(
        self, mode: str, *, ours: bool, cache: Path | None = None, portable: Path | None = None
    ) -> Callable[[], Any]:
        """Starts one process; the result waits for it. `cache`: torch's own directory, else an empty one."""
        self._count += 1
        log = self.directory / f"compilers-{self._count}"
        process = subprocess.Popen(
            [sys.executable, str(HERE), "--worker", mode, "--portable", str(portable or "")],
            env={
                **self.environment,
                "PATH": self._path,
                "BENCH_COMPILER_LOG": str(log),
                "NEURONCACHE": "1" if ours else "0",
                "TORCHINDUCTOR_CACHE_DIR": str(cache or self.directory / f"torch-{self._count}"),
                "TORCHINDUCTOR_COMPILE_THREADS": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

        def wait() -> Any:
            out, _ = process.communicate()
            if process.returncode:
                raise SystemExit(f"the measured process failed with status {process.returncode}; see above")
            result = json.loads(out.strip().splitlines()[-1])
            result["compilers"] = len(log.read_text().splitlines()) if log.exists() else 0
            return result

        return wait

    def best(self, repeat: int, mode: str, **conditions: Any) -> Any:
        """The run with the fewest CPU seconds of `repeat`."""
        return min((self.start(mode, **conditions)() for _ in range(repeat)), key=lambda result: result["cpu"])


def measure(bench: Bench, mode: str, repeat: int) -> dict[str, list[Any]]:
    cache, portable = bench.directory / f"stock-{mode}", bench.directory / f"portable-{mode}"
    rows: dict[str, list[Any]] = {}

    def note(name: str, *results: Any) -> None:
        rows[name] = list(results)
        print(f"  {mode}: {name}: {sum(result['cpu'] for result in results):.1f} CPU s", file=sys.stderr, flush=True)

    note("stock, cold", bench.start(mode, ours=False, cache=cache, portable=portable)())
    note("stock, warm disk", bench.best(repeat, mode, ours=False, cache=cache))
    note("stock, new host", bench.start(mode, ours=False, portable=portable)())
    note("ours, cold", bench.start(mode, ours=True)())
    note("ours, warm", bench.best(repeat, mode, ours=True))
    return rows


def table(rows: dict[str, list[Any]]) -> str:
    lines = [("", "CPU s", *PHASES, "compilers", "graphs compiled")]
    for name, results in rows.items():
        phases = (f"{sum(result['phases'][phase] for result in results):.2f}" for phase in PHASES)
        total = f"{sum(result['cpu'] for result in results):.2f}"
        compilers = str(sum(result["compilers"] for result in results))
        builds = str(sum(result["builds"] for result in results)) if "builds" in results[0] else "-"
        lines.append((name, total, *phases, compilers, builds))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    cells = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    text = ["  ".join(line).rstrip() for line in cells]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def budgets(rows: dict[str, list[Any]]) -> list[tuple[str, float, float]]:
    """What is compared, the ratio that was measured, and the most that it may be."""
    cpu = {name: sum(result["cpu"] for result in results) for name, results in rows.items()}
    found = [
        ("warm / stock on a new host", cpu["ours, warm"] / cpu["stock, new host"], 1 / 3),
        ("warm / stock's warm disk cache", cpu["ours, warm"] / cpu["stock, warm disk"], 0.7),
        ("cold / stock cold", cpu["ours, cold"] / cpu["stock, cold"], 0.7),
    ]
    if "ours, four at once" in rows:
        # Each of the four imports, traces and runs; what three of them need beyond the first is a warm start.
        expected = cpu["ours, cold"] + 3 * cpu["ours, warm"]
        found.append(("four at once / one cold and three warm", cpu["ours, four at once"] / expected, 1.3))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("train", "infer", "both"), default="both")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each warm row, of which the best counts (2)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--portable", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.portable)
        return 0

    sys.path.insert(0, str(ROOT / "tests" / "demo"))
    from demo import private_store

    measured: dict[str, dict[str, list[Any]]] = {}
    for mode in ("infer", "train") if arguments.mode == "both" else (arguments.mode,):
        with private_store() as environment:
            rows = measure(Bench(Path(environment["NEURONCACHE_CONFIG"]).parent, environment), mode, arguments.repeat)
        if mode == "train":
            with private_store() as environment:
                bench = Bench(Path(environment["NEURONCACHE_CONFIG"]).parent, environment)
                together = [bench.start(mode, ours=True) for _ in range(4)]
                rows["ours, four at once"] = [wait() for wait in together]
        measured[mode] = rows

    missed = 0
    results: dict[str, Any] = {}
    for mode, rows in measured.items():
        checks = budgets(rows)
        results[mode] = {
            "rows": rows,
            "ratios": {
                name: {"ratio": ratio, "budget": limit, "held": ratio <= limit} for name, ratio, limit in checks
            },
        }
        warm = rows["ours, warm"][0]
        silent = warm["compilers"] == 0 and warm["builds"] == 0
        missed += (not silent) + sum(ratio > limit for _, ratio, limit in checks)
        if arguments.format == "text":
            print(f"\n{mode}: CPU seconds to the first step\n{table(rows)}")
            for name, ratio, limit in checks:
                print(f"  {name}: {ratio:.2f} (at most {limit:.2f}) {'ok' if ratio <= limit else 'MISSED'}")
            print(f"  warm: no compiler process, no build: {'ok' if silent else 'MISSED'}")
    if arguments.format == "json":
        print(json.dumps(results))
    else:
        print(
            "\nimports: of torch's compiler; trace: Dynamo; backend: AOTAutograd and inductor, or ours, in this process;"
        )
        print("look-up and load (wall): of ours, within backend; first run: the rest. CPU s adds the compilers'.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
