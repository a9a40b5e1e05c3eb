"""What a call of a bucketed function costs beyond its graph, beside the same graph called by stock torch.compile, in one run.

The function takes four tensors whose length varies and does almost nothing; the compiler gives the graph back as it is, so what
is left is Dynamo, AOTAutograd's wrappers and, with buckets, the dispatcher. Each row is the best of many rounds, as on a shared
machine everything else is somebody else's time:

  stock            torch.compile with fixed sizes
  ours, no padding a call that has its bucket's size: the look-ups alone
  ours, padded     a call that is smaller than its bucket: four tensors are padded, one is cut
  padding alone    the same padding and cutting, written by hand

The bound is on the difference of the first two, and on what padded calls cost beyond the same padding by hand.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BACKEND = "fixed_sizes"
MOST_US = 20.0
WIDTH = 8


def fixed(gm: Any, inputs: Sequence[Any]) -> Any:
    """A compiler for fixed sizes."""
    return gm


def microseconds(call: Callable[[], Any], rounds: int, calls: int) -> float:
    """Of one call, in the best of the rounds."""
    results = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        results.append((time.perf_counter() - started) / calls)
    return 1e6 * min(results)


def measure(rounds: int, calls: int) -> dict[str, float]:
    import neuroncache
    import torch
    import torch.nn.functional as F
    from neuroncache import config
    from torch._dynamo.backends import common, registry

    torch.set_num_threads(1)
    registry.register_backend(fixed, name=BACKEND)
    registry.register_backend(common.aot_autograd(fw_compiler=fixed), name="stock_fixed_sizes")
    config.set("static_backends", BACKEND)
    config.set("verify", "off")

    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a + b * c - d

    def inputs(length: int) -> list[Any]:
        return [torch.randn(2, length, WIDTH) for _ in range(4)]

    rows: dict[str, float] = {}
    with torch.no_grad():
        whole, part = inputs(64), inputs(40)
        stock = torch.compile(function, backend="stock_fixed_sizes", dynamic=False)
        stock(*whole)
        rows["stock"] = microseconds(lambda: stock(*whole), rounds, calls)
        torch._dynamo.reset()

        ours = torch.compile(function, backend=BACKEND)
        for length in (33, 64, 40, 64, 40):
            ours(*inputs(length))
        counts = neuroncache.stats()
        if not counts["buckets"] or counts["errors"] or counts["refusals"]:
            raise SystemExit(f"the function did not get buckets: {counts}")
        rows["ours, no padding"] = microseconds(lambda: ours(*whole), rounds, calls)
        rows["ours, padded"] = microseconds(lambda: ours(*part), rounds, calls)

        def by_hand() -> Any:
            padded = [F.pad(value, (0, 0, 0, 24)) for value in part]
            return function(*padded)[:, :40].contiguous()

        def without() -> Any:
            return function(*part)

        rows["padding alone"] = microseconds(by_hand, rounds, calls) - microseconds(without, rounds, calls)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(measure(given.rounds, given.calls)))
        return 0

    sys.path.insert(0, str(ROOT / "tests" / "demo"))
    from demo import private_store

    command = [sys.executable, __file__, "--worker", "--rounds", str(given.rounds), "--calls", str(given.calls)]
    with private_store() as env:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    rows: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    added = rows["ours, no padding"] - rows["stock"]
    beyond = rows["ours, padded"] - rows["ours, no padding"] - rows["padding alone"]
    checks = [("added to a call with four inputs, us", added), ("of a padded call, beyond padding by hand, us", beyond)]
    if given.format == "json":
        document = {"rows": rows, "checks": [{"what": what, "figure": f, "most": MOST_US} for what, f in checks]}
        print(json.dumps(document))
    else:
        for name, value in rows.items():
            print(f"{name:18} {value:8.1f} us  {value / rows['stock']:5.2f}")
        print()
        for what, figure in checks:
            print(f"{'ok  ' if figure <= MOST_US else 'MISS'} {what}: {figure:.1f} (at most {MOST_US:g})")
    return 1 if any(figure > MOST_US for _, figure in checks) else 0


if __name__ == "__main__":
    sys.exit(main())
