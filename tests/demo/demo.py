"""What neuroncache does, shown on a small Llama that is trained for a few steps by an ordinary script (train.py):

  eager          without torch.compile
  cold           the first process: everything is compiled, and stored
  warm           the second process: nothing is compiled
  four at once   four processes on a store that is empty: everything is compiled once

then on batches whose lengths are those of real sentences (lengths.py), with buckets:

  eager          without torch.compile
  first job      finds its buckets as it goes
  second job     starts with those that the first one's lengths make best
  third job      finds them compiled

Each process has an empty cache of torch's own, so that whatever is not compiled came from neuroncache. Store and daemon are
private to the demo and removed at its end. The exit status is 1 when a count or a loss is not what it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Run:
    """One process of the demo, and what it told."""

    def __init__(self, directory: Path, environment: dict[str, str], arguments: Sequence[str]) -> None:
        directory.mkdir(parents=True)
        self._counts = directory / "counts.json"
        script, *rest = arguments
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "run_and_count.py"), str(self._counts), str(HERE / script), *rest],
            env={**environment, "TORCHINDUCTOR_CACHE_DIR": str(directory / "torch")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> Run:
        out, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise SystemExit(f"the training script failed with status {self._process.returncode}; see above")
        self.told: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        self.counts: dict[str, Any] = json.loads(self._counts.read_text())
        return self

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def graphs(self, *names: str) -> int:
        """How many graphs were built, or came in another way, in this process."""
        kinds = self.counts["kinds"].values() if names != ("builds",) else [self.counts["kinds"].get("graph", {})]
        return sum(kind.get(name, 0) for kind in kinds for name in names)


def environment(directory: Path) -> dict[str, str]:
    """This environment with a store and a daemon of the demo's own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NEURONCACHE", "TORCHINDUCTOR", "TORCH_COMPILE"))
    }
    built = ROOT / "build" / "bin" / "neuroncached"
    daemon = str(built) if built.exists() else shutil.which("neuroncached")
    named = os.environ.get("NEURONCACHE_DAEMON_PATH") or daemon
    if named is None:
        raise SystemExit("neuroncached is not built; run ./x build first")
    settings = directory / "config.toml"
    settings.touch()
    return {
        **kept,
        "NEURONCACHE_CONFIG": str(settings),
        "NEURONCACHE_DIR": str(directory / "store"),
        "NEURONCACHE_SOCKET": str(directory / "daemon.sock"),
        "NEURONCACHE_DAEMON_PATH": named,
        "NEURONCACHE_CONNECT_TIMEOUT": "30s",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


@contextmanager
def private_store() -> Iterator[dict[str, str]]:
    """A directory with a store whose daemon is started by the first process that needs it, and stopped at the end."""
    directory = Path(tempfile.mkdtemp(prefix="neuroncache-demo-"))
    settings = environment(directory)
    try:
        yield settings
    finally:
        stop_daemon(settings["NEURONCACHE_SOCKET"])
        shutil.rmtree(directory, ignore_errors=True)


def stop_daemon(socket: str) -> None:
    from neuroncache.client import Client
    from neuroncache.errors import NeuroncacheError

    client = Client(socket, trust_any_owner=True, breaker_seconds=0)
    try:
        pid = int(client.hello()["pid"])
        client.shutdown()
    except NeuroncacheError:
        return
    finally:
        client.close()
    deadline = time.monotonic() + 15
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)


def go(name: str, env: dict[str, str], arguments: Sequence[str], processes: int = 1) -> list[Run]:
    print(f"  {name} ...", flush=True)
    base = Path(env["NEURONCACHE_CONFIG"]).parent
    runs = [Run(base / f"{name} {number}".replace(" ", "-"), env, arguments) for number in range(processes)]
    try:
        return [run.finish() for run in runs]
    finally:
        for run in runs:
            run.stop()


def table(rows: list[tuple[str, list[Run]]]) -> str:
    titles = (
        "",
        "processes",
        "graphs compiled",
        "from the cache",
        "first step s",
        "CPU s",
        "next steps ms",
        "last loss",
    )
    lines = [titles]
    for name, runs in rows:
        told = [run.told for run in runs]
        lines.append(
            (
                name,
                str(len(runs)),
                str(sum(run.graphs("builds") for run in runs)),
                str(sum(run.graphs("hits", "waits") for run in runs)),
                f"{max(one['first_s'] for one in told):.1f}",
                f"{sum(one['first_cpu_s'] for one in told):.1f}",
                f"{1000 * max(one['step_s'] for one in told):.0f}",
                f"{told[0]['losses'][-1]:.6f}",
            )
        )
    return columns(lines)


def columns(lines: Sequence[tuple[str, ...]]) -> str:
    """The first line as a head, all columns but the first to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = []
    for line in lines:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def problems(eager: list[Run], cold: list[Run], warm: list[Run], four: list[Run]) -> list[str]:
    compiled = cold[0].graphs("builds")
    found = []
    if compiled < 2:
        found.append(f"the cold process compiled {compiled} graphs; a forward and a backward one were expected")
    if warm[0].graphs("builds"):
        found.append(f"the warm process compiled {warm[0].graphs('builds')} graphs; it should compile none")
    together = sum(run.graphs("builds") for run in four)
    if together != compiled:
        found.append(f"four processes compiled {together} graphs together; it should be {compiled}")
    if any(run.told["losses"] != cold[0].told["losses"] for run in [*warm, *four]):
        found.append("losses of compiled runs differ")
    if any(abs(one - other) > 1e-3 for one, other in zip(eager[0].told["losses"], cold[0].told["losses"], strict=True)):
        found.append("losses of the compiled and the eager run differ by more than rounding")
    for run in [*cold, *warm, *four]:
        if run.counts["bypasses"] or run.counts["errors"]:
            found.append(f"the cache was bypassed: {run.counts['bypass_reasons']}, {run.counts['refusals']}")
    return found


TRACE = ROOT / "tests" / "data" / "lengths" / "opennmt-ende.csv"
BUCKETS = 3


def varying(batches: str) -> list[str]:
    """The part with batches of many lengths; what is not as it should be."""
    arguments = ["lengths.py", str(TRACE), "--steps", batches]
    print(
        f"\nA Llama of 1 layer, {batches} batches of 4 sentences, each as long as its longest; at most {BUCKETS} buckets:"
    )
    with private_store() as env:
        (eager,) = go("eager", {**env, "NEURONCACHE": "0"}, [*arguments, "--eager"])
        env = {**env, "NEURONCACHE_BUCKETING": "on", "NEURONCACHE_MAX_BUCKETS": str(BUCKETS)}
        jobs = [(name, go(name, env, arguments)[0]) for name in ("first job", "second job", "third job")]
    lengths = len(set(eager.told["lengths"]))
    lines = [
        (
            "",
            "lengths seen",
            "buckets used",
            "graphs compiled",
            "steps that waited",
            "padding",
            "largest difference",
        )
    ]
    found = []
    for name, run in jobs:
        difference = max(abs(one - other) for one, other in zip(eager.told["losses"], run.told["losses"], strict=True))
        lines.append(
            (
                name,
                str(lengths),
                str(run.counts["buckets"]),
                str(run.graphs("builds") + 2 * run.counts["background_builds"]),
                str(waited(run.told["seconds"])),
                f"{100 * run.counts['padding_waste']:.0f} %",
                f"{difference:.1e}",
            )
        )
        if difference > 1e-4:
            found.append(f"losses of the {name} and of the eager run differ by {difference:.1e}")
        if run.counts["mismatches"] or run.counts["errors"]:
            found.append(f"the {name} had errors: {run.counts}")
        if run.counts["buckets"] == 0:
            found.append(f"the {name} had no buckets: {run.counts['refusals']}")
    if jobs[-1][1].graphs("builds"):
        found.append(f"the third job compiled {jobs[-1][1].graphs('builds')} graphs; it should compile none")
    print()
    print(columns(lines))
    print()
    print(
        f"A compiler of fixed sizes would have compiled {2 * lengths} graphs, forward and backward, in every job. A step that waited took more than"
    )
    print(
        "five times as long as half of the steps did. Difference: of the losses of all steps, from the run without torch.compile."
    )
    return found


def waited(seconds: Sequence[float]) -> int:
    usual = sorted(seconds)[len(seconds) // 2]
    return sum(one > 5 * usual for one in seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="4", help="training steps per process (4)")
    parser.add_argument("--layers", default="2", help="layers of the Llama (2)")
    parser.add_argument("--hidden", default="64", help="width of the Llama (64)")
    parser.add_argument("--batches", default="40", help="training steps on lengths that vary (40)")
    parser.add_argument("--only-fixed", action="store_true", help="without the part with lengths that vary")
    given = parser.parse_args()
    arguments = ["train.py", "--steps", given.steps, "--layers", given.layers, "--hidden", given.hidden]

    print(f"A Llama of {given.layers} layers, {given.steps} training steps in each process:", flush=True)
    with private_store() as env:
        eager = go("eager", {**env, "NEURONCACHE": "0"}, [*arguments, "--eager"])
        cold = go("cold", env, arguments)
        warm = go("warm", env, arguments)
    with private_store() as env:
        four = go("four at once", env, arguments, processes=4)

    print()
    print(table([("eager", eager), ("cold", cold), ("warm", warm), ("four at once", four)]))
    print()
    print(
        "First step: wall time, the slowest process; CPU: all processes and their compilers together, up to that point;"
    )
    print("both after imports and construction of the model. Look-ups served: by what another process had built.")
    found = problems(eager, cold, warm, four)
    if not given.only_fixed:
        found += varying(given.batches)
    for problem in found:
        print(f"NOT AS IT SHOULD BE: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
