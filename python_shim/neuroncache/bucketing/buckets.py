"""Which bucket vector a call gets. The map is a pure function of the sizes and of the plan in force, the same on every rank."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from neuroncache import compat
from neuroncache.bucketing import wording
from neuroncache.bucketing.epochs import BucketPlan


def ladder(size: int) -> int:
    """The bucket of a size where nothing is known of the program: powers of two, and from 16 on their 1.5-fold as well."""
    power = 1 << max(size - 1, 0).bit_length()
    return power * 3 // 4 if power >= 32 and size <= power * 3 // 4 else power


def distributed() -> bool:
    """Whether other ranks run the same graphs, so that this process must not choose by what it alone has seen."""
    return int(os.environ.get("WORLD_SIZE") or 1) > 1


def families_of(gm: torch.fx.GraphModule, symbols: Any, shape_env: Any) -> dict[str, list[str]]:
    """For each symbol of a forward graph the names of the places it stands for: ``L['x']:1``, dimension 1 of the argument x."""
    result: dict[str, list[str]] = {name: [] for name in symbols.ids.values()}
    for node in gm.graph.nodes:
        value = node.meta.get("example_value") if node.op == "placeholder" else None
        source = compat.source_name(node)
        if source is None or not isinstance(value, torch.Tensor):
            continue
        for dim, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt):
                name = symbols.ids.get(shape_env.replace(size.node.expr))
                if name is not None:
                    result[name].append(wording.family(source, dim))
    for symbol, name in symbols.ids.items():
        if not result[name]:
            result[name] = [wording.bounded(source) for source in compat.symbol_sources(shape_env, symbol)[:1]] or [
                name
            ]
    return result


class Chooser:
    """Buckets for the symbols of one graph. Symbols that a plan treats as one have one bucket; others have their own."""

    def __init__(
        self,
        symbols: Sequence[str],
        padded: Sequence[str],
        unify: Sequence[tuple[str, str]],
        families: Mapping[str, list[str]],
    ) -> None:
        self.symbols = list(symbols)
        self.padded = set(padded)
        self.leaders = _leaders(symbols, unify)
        self.families = dict(families)
        self.plan: BucketPlan | None = None
        self._alone = not distributed()
        self._seen: dict[str, set[int]] = {name: set() for name in symbols}

    def family(self, name: str) -> str:
        """The family that a symbol is planned in."""
        return self.families[self.leaders[name]][0]

    def describe(self) -> str:
        """The sizes that are padded, for people."""
        names = [name for name in self.symbols if self.leaders[name] == name and name in self.padded]
        return wording.places(self.family(name) for name in names)

    def candidates(self, sizes: dict[str, int]) -> Iterator[dict[str, int]]:
        """Bucket vectors for these sizes, the best first: all of them cover; the caller checks what else must hold."""
        for name, size in sizes.items():
            if len(self._seen[name]) < 2:
                self._seen[name].add(size)
        planned = self._planned(sizes)
        choices: dict[str, list[int]] = {}
        for name, leader in self.leaders.items():
            if name == leader:
                choices[name] = self._buckets(name, sizes[name], planned)
        leaders = list(choices)
        for vector in sorted(itertools.product(*(range(len(choices[name])) for name in leaders)), key=sum):
            chosen = {name: choices[name][step] for name, step in zip(leaders, vector, strict=True)}
            yield {name: chosen[self.leaders[name]] for name in self.symbols}

    def _planned(self, sizes: dict[str, int]) -> Mapping[str, int | None]:
        if self.plan is None:
            return {}
        known = self.plan.families
        leaders = {self.family(name): sizes[name] for name in self.symbols if self.leaders[name] == name}
        return self.plan.buckets({family: size for family, size in leaders.items() if family in known})

    def _buckets(self, name: str, size: int, planned: Mapping[str, int | None]) -> list[int]:
        if name not in self.padded or size < 2:
            return [size]
        family = self.family(name)
        if family in planned:
            first = planned[family]
            if first is None:
                return [size]
            assert self.plan is not None
            second = self.plan.bucket(family, first + 1)
        else:
            # A size that never varied needs no padding.
            if self._alone and len(self._seen[name]) < 2:
                return [size]
            first = ladder(size)
            second = ladder(first + 1)
        # One less: a graph that was traced at a size that its chunks do not divide may ask for such a bucket.
        return list(dict.fromkeys([first, max(first - 1, size), second or size, size]))


def _leaders(symbols: Sequence[str], unify: Sequence[tuple[str, str]]) -> dict[str, str]:
    leaders = {name: name for name in symbols}
    for first, second in unify:
        one, other = leaders[first], leaders[second]
        keep, drop = (one, other) if symbols.index(one) <= symbols.index(other) else (other, one)
        for name, leader in leaders.items():
            if leader == drop:
                leaders[name] = keep
    return leaders
