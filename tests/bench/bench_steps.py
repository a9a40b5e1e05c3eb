"""A small Llama trained on batches whose lengths are those of real sentences: ways to live with shapes that vary, in one run.

  every shape      dynamic=False: a compilation per length
  symbolic         dynamic=True: one compilation, kernels for any size
  by hand          batches padded to powers of two with a mask, dynamic=False
  ours             buckets with inductor; `learned`: a second job, whose buckets fit what the first one saw; `again`: a third, which
                   finds them built
  ours, fixed      buckets with a backend that takes fixed sizes only, and whose compilations take as long as one is told
                   (--price seconds): what a compiler such as Neuron's would be asked for
  fixed, no cache  the same backend for every shape

Each row is a process of its own. Wall time of shared machines is noise: read the ratios, and the number of compilations.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
SCRIPT = ROOT / "tests" / "demo" / "lengths.py"
TRACE = ROOT / "tests" / "data" / "lengths" / "opennmt-ende.csv"
FIXED = "fixed_sizes"


# ---- In the process that is measured ----


def worker(price: float, arguments: Sequence[str]) -> None:
    """Runs the script, and tells what was compiled in it."""
    import torch
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends import common, registry

    built = [0]

    def compile_fixed(gm: Any, inputs: Sequence[Any]) -> Any:
        if not all(
            isinstance(size, int) for value in inputs if isinstance(value, torch.Tensor) for size in value.shape
        ):
            raise TypeError("a compiler of fixed sizes was given a symbol")
        built[0] += 1
        time.sleep(price)
        return gm

    def boxed(gm: Any, inputs: Sequence[Any]) -> Any:
        return make_boxed_func(compile_fixed(gm, inputs))

    with_autograd = common.aot_autograd(fw_compiler=boxed, bw_compiler=boxed)
    ours = os.environ.get("NEURONCACHE") != "0"
    registry.register_backend(compile_fixed if ours else with_autograd, name=FIXED)
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
    sys.argv = [str(SCRIPT), *arguments]
    runpy.run_path(str(SCRIPT), run_name="__main__")
    told: dict[str, Any] = {}
    if ours:
        import neuroncache

        counts = neuroncache.stats()
        told = {name: counts[name] for name in ("buckets", "background_builds", "padding_waste", "errors", "refusals")}
        graphs = counts["kinds"].get("graph", {}).get("builds", 0)
    else:
        graphs = torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"]
    told["compiled"] = built[0] or graphs
    print(json.dumps(told))


# ---- Around it ----


def run(name: str, env: dict[str, str], price: float, arguments: Sequence[str], ours: bool = True) -> dict[str, Any]:
    base = Path(env["NEURONCACHE_CONFIG"]).parent
    done = subprocess.run(
        [sys.executable, str(HERE), "--worker", "--price", str(price), "--", str(TRACE), *arguments],
        env={
            **env,
            "NEURONCACHE": "1" if ours else "0",
            "NEURONCACHE_BUCKETING": "on",
            "NEURONCACHE_STATIC_BACKENDS": FIXED,
            "TORCHINDUCTOR_CACHE_DIR": str(base / name.replace(" ", "-")),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{name}: the measured process failed with status {done.returncode}; see above")
    steps, told = (json.loads(line) for line in done.stdout.strip().splitlines()[-2:])
    result: dict[str, Any] = {**steps, **told}
    print(
        f"  {name}: {sum(result['seconds']):.1f} s in steps, {result['compiled']} graphs", file=sys.stderr, flush=True
    )
    return result


def steady(result: dict[str, Any]) -> float:
    """Seconds of a usual step: the median of those that did not wait for a compiler, which take many times the fastest."""
    seconds = sorted(result["seconds"])
    usual = [one for one in seconds if one < 10 * seconds[0]]
    return float(usual[len(usual) // 2])


def table(rows: dict[str, dict[str, Any]]) -> str:
    from demo import columns

    base = rows["every shape"]
    lines = [("", "graphs compiled", "all steps s", "ratio", "usual step ms", "ratio", "padding")]
    for name, row in rows.items():
        whole, usual = sum(row["seconds"]), steady(row)
        waste = f"{100 * row['padding_waste']:.0f} %" if "padding_waste" in row else "-"
        lines.append(
            (
                name,
                str(row["compiled"]),
                f"{whole:.1f}",
                f"{whole / sum(base['seconds']):.2f}",
                f"{1000 * usual:.1f}",
                f"{usual / steady(base):.2f}",
                waste,
            )
        )
    return columns(lines)


def judge(rows: dict[str, dict[str, Any]]) -> list[tuple[str, float, float]]:
    """What is compared, the figure, and the most that it may be."""
    shapes = len(set(rows["every shape"]["lengths"]))
    exact = rows["every shape"]["losses"]
    worst = max(
        abs(one - other)
        for name, row in rows.items()
        if name != "by hand"
        for one, other in zip(exact, row["losses"], strict=True)
    )
    return [
        ("graphs that ours compiles / all shapes (forward and backward)", rows["ours"]["compiled"] / (2 * shapes), 0.5),
        ("graphs that a second job compiles", rows["ours, again"]["compiled"], 2.0),
        (
            "graphs for fixed sizes, ours / every shape",
            rows["ours, fixed"]["compiled"] / rows["fixed, no cache"]["compiled"],
            0.5,
        ),
        (
            "all steps, ours again / every shape",
            sum(rows["ours, again"]["seconds"]) / sum(rows["every shape"]["seconds"]),
            0.5,
        ),
        ("largest difference of a loss", worst, 1e-4),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="16", help="batches (16)")
    parser.add_argument("--layers", default="1")
    parser.add_argument("--hidden", default="64")
    parser.add_argument("--buckets", default="4", help="at most so many (4)")
    parser.add_argument("--price", type=float, default=2.0, help="seconds that a compilation for fixed sizes takes (2)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("script", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.price, given.script)
        return 0

    sys.path.insert(0, str(ROOT / "tests" / "demo"))
    from demo import private_store

    script = ["--steps", given.steps, "--layers", given.layers, "--hidden", given.hidden]
    fixed = [*script, "--backend", FIXED]
    rows: dict[str, dict[str, Any]] = {}
    with private_store() as env:
        env["NEURONCACHE_MAX_BUCKETS"] = given.buckets

        def note(name: str, arguments: Sequence[str], ours: bool) -> None:
            rows[name] = run(name, env, given.price, arguments, ours)

        note("every shape", [*script, "--dynamic", "false"], False)
        note("symbolic", [*script, "--dynamic", "true"], False)
        note("by hand", [*script, "--dynamic", "false", "--by-hand"], False)
        note("ours", script, True)
        note("ours, learned", script, True)
        note("ours, again", script, True)
        note("ours, fixed", fixed, True)
        note("fixed, no cache", [*fixed, "--dynamic", "false"], False)

    checks = judge(rows)
    missed = sum(figure > most for _, figure, most in checks)
    if given.format == "json":
        print(json.dumps({"rows": rows, "checks": [{"what": w, "figure": f, "most": m} for w, f, m in checks]}))
        return 1 if missed else 0
    print(table(rows))
    print()
    for what, figure, most in checks:
        print(f"{'ok  ' if figure <= most else 'MISS'} {what}: {figure:.3g} (at most {most:g})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
