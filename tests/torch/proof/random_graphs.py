"""Random graphs of the operations of `graph_ops`: forward and backward, padded as badly as claims allow, against eager.

A graph is grown by trying operations on real tensors at several sizes at once, so it makes sense at all of them. A graph that
fails is shrunk; `counterexamples/` holds those that were found, as text, and the tests replay them.
`python -m tests.torch.proof.random_graphs --count 10000 [--seed N]` is the long run.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import check
from .graph_ops import CLASSES, OPS, H
from .trace import Dynamic

SIZES = [(3, 5), (2, 7), (4, 6)]
KEPT = Path(__file__).parent / "counterexamples"
# x [b, s, H], a second x, labels [b, s], weights.
KINDS = "ffiwv"
DIMS = [(0, 1), (1,), (0,)]  # which are dynamic, by seed


def dynamic(seed: int) -> list[Dynamic]:
    return [Dynamic(tensor, dim) for tensor in (0, 1, 2) for dim in DIMS[seed % 3]]


def sizes(seed: int) -> list[tuple[int, int]]:
    """At each size of `SIZES`, what is not dynamic stays as it is."""
    dims = DIMS[seed % 3]
    first = SIZES[0]
    return [(b if 0 in dims else first[0], s if 1 in dims else first[1]) for b, s in SIZES]


@dataclass
class Step:
    op: str
    operands: list[int]
    parameters: list[Any]


@dataclass
class Graph:
    """Values are the inputs, then what each step gives."""

    steps: list[Step]
    outputs: list[int]

    def text(self) -> str:
        steps = [[step.op, step.operands, step.parameters] for step in self.steps]
        return json.dumps({"steps": steps, "outputs": self.outputs})

    @staticmethod
    def parse(text: str) -> Graph:
        document = json.loads(text)
        return Graph([Step(*one) for one in document["steps"]], document["outputs"])

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for step in self.steps:
            values.append(OPS[step.op].function(step.parameters, *(values[one] for one in step.operands)))
        return tuple(values[one] for one in self.outputs)

    def needed(self) -> Graph:
        """Without the steps that no output needs."""
        count = len(KINDS)
        wanted = set(self.outputs)
        for number in range(count + len(self.steps) - 1, count - 1, -1):
            if number in wanted:
                wanted.update(self.steps[number - count].operands)
        place = {number: number for number in range(count)}
        steps = []
        for index, step in enumerate(self.steps):
            if count + index in wanted:
                place[count + index] = count + len(steps)
                steps.append(Step(step.op, [place[one] for one in step.operands], step.parameters))
        return Graph(steps, [place[one] for one in self.outputs])


def inputs(b: int, s: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed * 1000 + 31 * b + s)
    fixed = torch.Generator().manual_seed(seed)

    def normal(*shape: int, of: torch.Generator = generator) -> torch.Tensor:
        return torch.randn(shape, generator=of, dtype=torch.float64).requires_grad_()

    labels = torch.randint(0, CLASSES, (b, s), generator=generator)
    return [normal(b, s, H), normal(b, s, H), labels, normal(H, H, of=fixed), normal(H, of=fixed)]


def _kind(value: torch.Tensor) -> str:
    return "b" if value.dtype == torch.bool else "f" if value.dtype.is_floating_point else "i"


class _Builder:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values: list[list[torch.Tensor]] = []  # per value, at each size
        self.kinds: list[str] = []
        self.steps: list[Step] = []
        columns = [inputs(b, s, seed) for b, s in SIZES]
        for index, kind in enumerate(KINDS):
            self.values.append([column[index].detach() for column in columns])
            self.kinds.append(kind)

    def build(self, length: int) -> Graph:
        names = list(OPS)
        for _ in range(length * 40):
            if len(self.steps) == length:
                break
            self._try(self.rng.choice(names))
        count = len(KINDS)
        used = {one for step in self.steps for one in step.operands}
        ends = [count + index for index in range(len(self.steps)) if count + index not in used]
        ends = [one for one in ends if self.kinds[one] == "f"] or ends
        return Graph(self.steps, ends[-4:]).needed() if ends else Graph([], [0])

    def _try(self, name: str) -> None:
        op = OPS[name]
        operands = []
        for kind in op.kinds:
            known = [index for index, one in enumerate(self.kinds) if one == kind]
            if not known:
                return
            # Recent values are preferred, so that graphs get deep.
            recent = known[-6:]
            operands.append(self.rng.choice(recent if self.rng.random() < 0.7 else known))
        shapes = [tuple(self.values[one][0].shape) for one in operands]
        parameters = op.choose(self.rng, shapes)
        if parameters is None:
            return
        results = []
        for column in range(len(SIZES)):
            given = [self.values[one][column] for one in operands]
            if not op.smooth and any(_close(value) for value in given):
                return
            try:
                result = op.function(parameters, *given)
            except Exception:
                return
            if not _fine(result):
                return
            results.append(result)
        if len({one.dim() for one in results}) != 1:
            return
        self.values.append(results)
        self.kinds.append(_kind(results[0]))
        self.steps.append(Step(name, operands, parameters))


def _close(value: torch.Tensor) -> bool:
    """Whether rounding could change which element is larger."""
    if not value.dtype.is_floating_point:
        return False
    flat = value.flatten()
    # The constants of the operations, and the elements among each other.
    marks = torch.tensor([0.0, 0.0137, -0.0137, 0.0171, -1.03, 0.97], dtype=flat.dtype)
    ordered = torch.cat([flat, marks]).sort()[0]
    return bool((ordered.diff() < 1e-7).any())


def _fine(value: torch.Tensor) -> bool:
    if value.numel() == 0 or value.numel() > 20000 or value.dim() > 5:
        return False
    return not value.dtype.is_floating_point or bool((value.abs() < 100).all())


def build(seed: int, longest: int = 40) -> Graph:
    """Five operations up to `longest`, mostly few."""
    rng = random.Random(seed)
    length = min(5 + int(rng.expovariate(1 / 5)), longest)
    return _Builder(seed).build(length)


def prove(graph: Graph, seed: int, decompositions: str = "", runs: Sequence[Any] = check.RUNS) -> check.Verdict:
    """At each size another way to pad; `seed` makes the inputs, and picks the decompositions."""
    return check.prove(
        graph,
        [inputs(b, s, seed) for b, s in sizes(seed)],
        dynamic(seed),
        decompositions=decompositions or ("core", "inductor")[seed % 2],
        runs=runs,
        tolerance=1e-7,
        alternate=True,
        # Mostly the fast way to trace: that equal sizes may be different symbols is not what this is about.
        tied=seed % 8 != 0,
    )


def shrink(graph: Graph, seed: int, verdict: check.Verdict, decompositions: str = "") -> Graph:
    """The smallest graph found that fails in the same way."""

    def fails(candidate: Graph) -> bool:
        try:
            return prove(candidate, seed, decompositions).status == verdict.status
        except Exception:
            return False

    def smaller(one: Graph) -> list[Graph]:
        found = []
        if len(one.outputs) > 1:
            found += [Graph(one.steps, [output]).needed() for output in one.outputs]
        count = len(KINDS)
        ends = [count + index for index in range(len(one.steps))]
        found += [Graph(one.steps, [end]).needed() for end in ends if [end] != one.outputs]
        shapes = _shapes(one, seed)
        for number in reversed(ends):
            # Another value of the same sizes in its place.
            for other in range(number):
                if shapes[other] == shapes[number]:
                    steps = [
                        Step(step.op, [other if place == number else place for place in step.operands], step.parameters)
                        for step in one.steps
                    ]
                    outputs = [other if place == number else place for place in one.outputs]
                    found.append(Graph(steps, outputs).needed())
                    break
        return [candidate for candidate in found if candidate.steps]

    progress = True
    while progress:
        progress = False
        for candidate in sorted(smaller(graph), key=lambda one: len(one.steps)):
            if (len(candidate.steps), len(candidate.outputs)) < (len(graph.steps), len(graph.outputs)) and fails(
                candidate
            ):
                graph, progress = candidate, True
                break
    return graph


def _shapes(graph: Graph, seed: int) -> list[Any]:
    rows = []
    for b, s in SIZES[:2]:
        values = [one.detach() for one in inputs(b, s, seed)]
        for step in graph.steps:
            values.append(OPS[step.op].function(step.parameters, *(values[one] for one in step.operands)))
        rows.append([(tuple(value.shape), value.dtype) for value in values])
    return list(zip(*rows, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--keep", action="store_true", help="store what fails among the counterexamples")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        graph = build(seed)
        verdict = prove(graph, seed)
        counts[verdict.status] += 1
        if verdict.status in ("refused", "skipped"):
            reasons[f"{verdict.status}: {verdict.reason[:140]}"] += 1
        if verdict.status in ("wrong", "error"):
            small = shrink(graph, seed, verdict)
            told = prove(small, seed)
            print(f"seed {seed}: {told.status} {told.reason}\n  {small.text()}", flush=True)
            if options.keep:
                KEPT.mkdir(exist_ok=True)
                document = {
                    "seed": seed,
                    "decompositions": ("core", "inductor")[seed % 2],
                    "graph": json.loads(small.text()),
                }
                (KEPT / f"seed_{seed}.json").write_text(json.dumps(document, indent=1) + "\n")
        if (seed - options.seed + 1) % 100 == 0:
            print(f"{seed - options.seed + 1} graphs, {time.monotonic() - start:.0f} s: {dict(counts)}", flush=True)
    for reason, count in reasons.most_common(40):
        print(f"{count:5} {reason}")
    print(dict(counts))
    raise SystemExit(1 if counts["wrong"] or counts["error"] else 0)


if __name__ == "__main__":
    main()
