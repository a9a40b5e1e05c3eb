"""PyTorch's own operator and module databases through the engine.

`python -m tests.torch.proof.operators` runs everything in processes of their own (a crash costs one operator), keeps the
results under build/operators, and writes docs/operators.md. `--only NAME...` runs a few operators and prints each case;
`--table` writes the table from what is there. A result that is there is not made again unless `--fresh`.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import os
import re
import selectors
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import check, samples, tool

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "build/operators"
TABLE = ROOT / "docs/operators.md"
# How long one operator may take in one configuration, in seconds.
LIMIT = 240

# Memory that nobody wrote has no right value.
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
# They read beyond arguments of the wrong sizes, so the sizes that fit cannot be found by trying.
UNCHECKED = ("_native_batch_norm_legit", "native_batch_norm", "_batch_norm_with_update", "lu_unpack")

# name -> (dtype, decompositions, samples per operator)
CONFIGURATIONS: dict[str, tuple[torch.dtype, str, int]] = {
    "float32": (torch.float32, "core", 6),
    "float64": (torch.float64, "inductor", 2),
    "bfloat16": (torch.bfloat16, "core", 1),
    "complex64": (torch.complex64, "core", 1),
}


class _Dispatched(TorchDispatchMode):
    """Which operators a call dispatches to."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(function)
        return function(*args, **(kwargs or {}))


def is_core(call: samples.Call) -> bool:
    """Whether the call is made of core ATen operators alone."""
    mode = _Dispatched()
    tensors = [one.detach() for one in call.tensors]
    try:
        with torch.no_grad(), mode:
            call.function([])(*tensors)
    except Exception:
        return False
    return bool(mode.seen) and all(torch.Tag.core in getattr(one, "tags", ()) for one in mode.seen)


def operator_names() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [_op_name(op) for op in op_db]


def _op_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def module_names() -> list[str]:
    from torch.testing._internal.common_modules import module_db

    return [f"module {info.name}" for info in module_db]


_index: dict[str, Any] = {}


def _entry(name: str) -> Any:
    if not _index:
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.common_modules import module_db

        _index.update({_op_name(op): op for op in op_db})
        _index.update({f"module {info.name}": info for info in module_db})
    return _index[name]


def calls(name: str, dtype: torch.dtype, limit: int) -> Iterator[samples.Call]:
    """Sample calls of an operator or module with a dimension and with elements, spread evenly over those that its database has."""
    if name in UNINITIALISED + UNCHECKED:
        return
    entry = _entry(name)
    made = _module_calls(entry, dtype) if name.startswith("module ") else _operator_calls(entry, dtype)
    every = [call for call in made if call.tensors[0].dim() and all(one.numel() for one in call.tensors)]
    step = max(1, len(every) / limit)
    chosen = sorted({int(index * step) for index in range(limit)})
    for index in chosen:
        if index < len(every):
            yield every[index]


def _operator_calls(op: Any, dtype: torch.dtype) -> Iterator[samples.Call]:
    if dtype not in op.dtypes:
        return
    gradients = dtype in op.supported_backward_dtypes("cpu") if op.supports_autograd else False
    for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=gradients)):
        if index == 400:
            break
        after = sample.output_process_fn_grad

        def target(*args: Any, _after: Any = after, **kwargs: Any) -> Any:
            return _after(op(*args, **kwargs))

        try:
            yield samples.Call(target, [sample.input, *sample.args], dict(sample.kwargs))
        except Exception:
            continue


def _module_calls(info: Any, dtype: torch.dtype) -> Iterator[samples.Call]:
    if dtype not in info.dtypes:
        return
    for training in (True, False):
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for made in inputs:
            if made.forward_input is None:
                continue
            args, kwargs = made.constructor_input.args, made.constructor_input.kwargs
            torch.manual_seed(0)
            try:
                module = info.module_cls(*args, **{**kwargs, "device": "cpu", "dtype": dtype})
            except TypeError:
                module = info.module_cls(*args, **kwargs).to(dtype)
            module.train(training)
            state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            state = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}

            def target(*args: Any, _state: Any = None, _module: Any = module, **kwargs: Any) -> Any:
                return torch.func.functional_call(_module, _state, args, kwargs)

            given = {**made.forward_input.kwargs, "_state": state}
            yield samples.Call(target, list(made.forward_input.args), given)


def cases(call: samples.Call, quick: bool = False) -> Iterator[tuple[str, samples.Sized | None, str]]:
    """("1" or "2" dynamic dimensions, the call, "") or (dimensions, None, why it cannot vary)."""
    if any(one.layout is not torch.strided or one.is_quantized for one in call.tensors):
        yield "1", None, "a layout other than strided"
        return
    if not check.finite(call.tensors):
        yield "1", None, "the sample's inputs are not finite"
        return
    if not call.works([]):
        yield "1", None, "the sample has no plain tensors as results"
        return
    groups = samples.find_groups(call, 1 if quick else 2)
    if not groups:
        yield "1", None, "no dimension of the first tensor can vary"
        return
    for group in groups:
        yield "1", samples.sized(call, [group]), "the dimension cannot vary"
    if quick:
        return
    for pair in list(samples.pairs(groups))[:1]:
        yield "2", samples.sized(call, pair), "the dimensions cannot vary together"


def prove(
    name: str, configuration: str, quick: bool = False, engine: tool.Tool | None = None, limit: int = 0
) -> dict[str, Any]:
    """All cases of one operator in one configuration. `limit`: how many samples, if not as many as usual."""
    dtype, decompositions, usual = CONFIGURATIONS[configuration]
    # Half as many of those that are not of core ATen: most of them are made of others.
    limit = limit or (2 if quick else usual if _is_core_name(name) else (usual + 1) // 2)
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = list(calls(name, dtype, limit))
        except Exception as error:
            return {"name": name, "cases": [], "note": f"{type(error).__name__}: {error}"}
        for number, call in enumerate(made):
            core: bool | None = None
            for dims, one, why in cases(call, quick):
                if one is None:
                    verdict = check.Verdict("skipped", why)
                elif time.monotonic() - start > LIMIT * 0.6:
                    verdict = check.Verdict("skipped", "out of time")
                else:
                    verdict = check.prove(
                        one.function,
                        one.arguments,
                        one.dynamic,
                        decompositions=decompositions,
                        gradients=not getattr(call, "no_gradients", False),
                        runs=check.QUICK_RUNS,
                        engine=engine,
                        tied=True,
                        alternate=quick,
                    )
                    core = is_core(call) if core is None else core
                shapes = [list(one.shape) for one in call.tensors]
                rows.append(
                    {
                        "sample": number,
                        "dims": dims,
                        "status": verdict.status,
                        "reason": verdict.reason,
                        "core": bool(core),
                        "shapes": shapes[:6],
                        "dynamic": [] if one is None else [[d.argument, d.dim] for d in one.dynamic],
                    }
                )
    return {"name": name, "cases": rows}


def _is_core_name(name: str) -> bool:
    packet = getattr(torch.ops.aten, name.rpartition("functional.")[2].partition(".")[0], None)
    overloads = packet.overloads() if packet is not None else ()
    return any(torch.Tag.core in getattr(packet, one).tags for one in overloads)


# -- running all ----------------------------------------------------------------------------------------------------


def _worker(limit: int) -> None:
    """Takes lines "configuration<tab>name" and answers each with one line of JSON."""
    torch.set_num_threads(1)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        configuration, name = line.rstrip("\n").split("\t")
        out.write(json.dumps(prove(name, configuration, limit=limit)) + "\n")
        out.flush()


class _Workers:
    def __init__(self, count: int, limit: int) -> None:
        self.count = count
        self.limit = limit
        self.idle: list[Any] = []
        self.selector = selectors.DefaultSelector()

    def run(self, jobs: list[tuple[str, str]]) -> None:
        waiting = list(reversed(jobs))
        running: dict[Any, tuple[str, str, float]] = {}
        done = 0
        while waiting or running:
            while waiting and len(running) < self.count:
                process = self._idle() or self._start()
                configuration, name = waiting.pop()
                process.stdin.write(f"{configuration}\t{name}\n".encode())
                process.stdin.flush()
                running[process] = (configuration, name, time.monotonic())
            for key, _ in self.selector.select(timeout=1):
                process = key.data
                if process not in running:
                    continue
                configuration, name, _ = running.pop(process)
                line = process.stdout.readline()
                if line:
                    _store(configuration, name, json.loads(line))
                    self.idle.append(process)
                else:
                    self._ended(process, configuration, name, f"the process ended with status {process.wait()}")
                done += 1
                if done % 25 == 0:
                    print(f"{done} of {len(jobs)}", flush=True)
            for process, (configuration, name, since) in list(running.items()):
                if time.monotonic() - since > LIMIT:
                    running.pop(process)
                    process.kill()
                    self._ended(process, configuration, name, f"took longer than {LIMIT} s")
                    done += 1
        for process in self.idle:
            process.stdin.close()
            process.wait()

    def _idle(self) -> Any:
        return self.idle.pop() if self.idle else None

    def _start(self) -> Any:
        command = [sys.executable, "-W", "ignore", "-m", "tests.torch.proof.operators", "--worker"]
        command += ["--samples", str(self.limit)]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.selector.register(process.stdout, selectors.EVENT_READ, process)  # type: ignore[arg-type]
        return process

    def _ended(self, process: Any, configuration: str, name: str, reason: str) -> None:
        self.selector.unregister(process.stdout)
        process.wait()
        row = {
            "sample": 0,
            "dims": "1",
            "status": "error",
            "reason": reason,
            "core": False,
            "shapes": [],
            "dynamic": [],
        }
        _store(configuration, name, {"name": name, "cases": [row]})


def _path(configuration: str, name: str) -> Path:
    return RESULTS / configuration / (re.sub(r"[^A-Za-z0-9_.]", "_", name) + ".json")


def _store(configuration: str, name: str, result: dict[str, Any]) -> None:
    path = _path(configuration, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**result, "engine": _engine()}))


# -- the table ------------------------------------------------------------------------------------------------------

_HEAD = """# Operators

Generated by `python -m tests.torch.proof.operators` from PyTorch's own operator and module databases: do not edit.

Each sample is a function of its own, traced with one and then with two dynamic dimensions, forward and (where there is one)
backward. It is run at three sizes with the worst that padding may hold after every operation, and compared with the unpadded
run. A case is one sample with one choice of dynamic dimensions: **bucketed** means equal for all sizes, **refused** that the
engine does not pad it and says why. Samples in which no dimension can vary, that cannot be traced with symbols, or whose results
change as much when their inputs are rounded, do not count.
"""


def short(reason: str) -> str:
    """A refusal without what is particular to the sample."""
    reason = re.sub(r"^(forward|backward) ", "", reason)
    reason = re.sub(r"\bs\d+\b", "s", reason)
    return re.sub(r"\d+", "n", reason)[:110]


def collect(configurations: Sequence[str] = tuple(CONFIGURATIONS)) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for configuration in configurations:
        for path in sorted((RESULTS / configuration).glob("*.json")):
            result = json.loads(path.read_text())
            more = {"configuration": configuration, "engine": result["engine"]}
            rows[result["name"]] += [{**case, **more} for case in result["cases"]]
    return rows


def shares(rows: dict[str, list[dict[str, Any]]]) -> tuple[collections.Counter[str], collections.Counter[str]]:
    """Cases by status: of all, and of those made of core operators alone."""
    every: collections.Counter[str] = collections.Counter()
    core: collections.Counter[str] = collections.Counter()
    for cases_ in rows.values():
        for case in cases_:
            every[case["status"]] += 1
            if case["core"]:
                core[case["status"]] += 1
    return every, core


def _share(counts: collections.Counter[str]) -> str:
    total = sum(counts[status] for status in ("bucketed", "refused", "wrong", "error"))
    return f"{counts['bucketed']} of {total} cases ({100 * counts['bucketed'] / max(total, 1):.1f} %)"


@functools.cache
def _engine() -> str:
    """The version of the engine in this tree."""
    found = re.search(r'kEngineVersion = "(.*?)"', (ROOT / "bucketing/padding/engine.hpp").read_text())
    return found.group(1) if found else "unknown"


def _runs(rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    """One line of a table for each configuration that was run."""
    lines = [
        "| run | engine | decompositions | samples of an operator of core ATen, of another | operators and modules | bucketed | made of core ATen operators |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name, (_, decompositions, samples_each) in CONFIGURATIONS.items():
        own = {key: [case for case in cases_ if case["configuration"] == name] for key, cases_ in rows.items()}
        own = {key: cases_ for key, cases_ in own.items() if cases_}
        if own:
            every, core = shares(own)
            engines = ", ".join(sorted({case["engine"] for cases_ in own.values() for case in cases_}))
            lines.append(
                f"| {name} | {engines} | {decompositions} | {samples_each}, {(samples_each + 1) // 2} | {len(own)} | {_share(every)} | {_share(core)} |"
            )
    return lines


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    every, core = shares(rows)
    lines = [_HEAD]
    lines.append(f"- All operators and modules: {_share(every)} bucketed.")
    lines.append(f"- Samples made of core ATen operators alone: {_share(core)} bucketed.")
    lines.append(f"- Wrong results: {every['wrong']}. Internal errors: {every['error']}.")
    lines += ["", *_runs(rows)]
    bad = [(name, case) for name in sorted(rows) for case in rows[name] if case["status"] in ("wrong", "error")]
    if bad:
        lines += ["", "## Wrong results and errors", ""]
        for name, case in bad:
            place = f"shapes {case['shapes']}, dynamic {case['dynamic']}, {case['configuration']}"
            lines.append(f"- {name}, {place}: {case['status']}: {case['reason']}")
    lines += ["", "| operator | cases | bucketed | refused because |", "|---|---|---|---|"]
    for name in sorted(rows):
        counts = collections.Counter(case["status"] for case in rows[name])
        total = sum(counts[status] for status in ("bucketed", "refused", "wrong", "error"))
        if not total:
            continue
        reasons = collections.Counter(short(case["reason"]) for case in rows[name] if case["status"] == "refused")
        told = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3)).replace("|", "\\|")
        for status in ("wrong", "error"):
            if counts[status]:
                told = f"**{status}: {counts[status]}** " + told
        lines.append(f"| {name} | {total} | {counts['bucketed']} | {told} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these operators, here, each case printed")
    parser.add_argument("--configurations", nargs="+", default=list(CONFIGURATIONS), choices=list(CONFIGURATIONS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--samples", type=int, default=0, help="per operator; as many as usual when left out")
    parser.add_argument("--fresh", action="store_true", help="make results again that are there")
    parser.add_argument("--table", action="store_true", help="only write the table")
    options = parser.parse_args()
    if options.worker:
        _worker(options.samples)
        return
    if options.only:
        torch.set_num_threads(1)
        for configuration in options.configurations:
            for name in options.only:
                for case in prove(name, configuration, limit=options.samples)["cases"]:
                    print(configuration, name, case)
        return
    if not options.table:
        names = operator_names() + module_names()
        # Those of core ATen first: a run that is cut short has what matters most.
        names.sort(key=lambda name: not _is_core_name(name))
        jobs = [(configuration, name) for configuration in options.configurations for name in names]
        if not options.fresh:
            jobs = [job for job in jobs if not _path(*job).exists()]
        _Workers(options.processes, options.samples).run(jobs)
    rows = collect()
    TABLE.write_text(table(rows))
    every, core = shares(rows)
    print(f"all: {_share(every)}; core: {_share(core)}; wrong {every['wrong']}, errors {every['error']}")


if __name__ == "__main__":
    main()
