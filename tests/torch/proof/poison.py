"""Runs a plan at a bucket vector while everything in the padding is as bad as the plan's claims allow.

After each node that has a claim: the claim is checked on the actual value, then the padding is overwritten with the worst that
the claim still admits. So a result that comes out right does not depend on anything that the plan does not claim.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from neuroncache import expr
from neuroncache.bucketing.plan import Node, SubPlan

Sizes = Mapping[str, int]

DTYPES: dict[str, torch.dtype] = {
    str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)
}
# Strongest last: where several factors are in padding, every claim holds at once.
_ORDER = {"any": 0, "finite": 1, "nonnegative": 2, "positive": 3}


class PoisonError(AssertionError):
    """A claim of the plan does not hold."""


class PlanError(AssertionError):
    """The plan cannot be run."""


@dataclass(frozen=True)
class Factor:
    """`size` at the buckets, of which the first `true` are real. `state`: what the rest holds, if anything is said."""

    size: int
    true: int
    state: Any = None


def evaluate(expression: Any, sizes: Sizes) -> int:
    return int(expr.evaluate(expression, dict(sizes)))


def factors(dims: Sequence[Sequence[dict[str, Any]]], true: Sizes, buckets: Sizes) -> list[list[Factor]]:
    """The factors of each dimension, in numbers."""
    result = []
    for dim in dims:
        row = []
        for factor in dim:
            size = evaluate(factor["e"], buckets)
            padded = factor.get("p") or "s" in factor
            row.append(Factor(size, evaluate(factor["e"], true) if padded else size, factor.get("s")))
        result.append(row)
    return result


def _sizes(layout: list[list[Factor]]) -> list[int]:
    return [math.prod(factor.size for factor in dim) for dim in layout]


def pad(value: torch.Tensor, layout: list[list[Factor]], fill: Any) -> torch.Tensor:
    """`value` in the true part, `fill(shape, dtype)` elsewhere."""
    flat = [factor for dim in layout for factor in dim]
    if all(factor.size == factor.true for factor in flat):
        return value
    result: torch.Tensor = fill([factor.size for factor in flat], value.dtype)
    where = tuple(slice(0, factor.true) for factor in flat)
    result[where] = value.reshape([factor.true for factor in flat])
    return result.reshape(_sizes(layout))


class Poison:
    """Values for padding. Deterministic by its seed."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def of(self, state: Any, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the worst that `state` allows."""
        shape = list(shape)
        if isinstance(state, dict):
            return torch.full(shape, scalar(state["c"]), dtype=dtype)
        if dtype == torch.bool:
            return self._integers(0, 2, shape).to(dtype)
        if dtype.is_complex:
            part = torch.float64 if dtype == torch.complex128 else torch.float32
            return torch.complex(self.of(state, shape, part), self.of(state, shape, part)).to(dtype)
        if not dtype.is_floating_point:
            return self._ints(state, shape, dtype)
        return self._floats(state, shape, dtype)

    def anything(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self.of("any", shape, dtype)

    def _integers(self, low: int, high: int, shape: list[int]) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.generator)

    def _ints(self, state: Any, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        info = torch.iinfo(dtype)
        low = {"positive": 1, "nonnegative": 0}.get(state, -1_000_000)
        low, high = max(low, info.min), min(1_000_000, info.max)
        wide = self._integers(low, high, shape)
        small = self._integers(max(low, -9), 10, shape)
        return torch.where(self._integers(0, 2, shape) == 0, wide, small).to(dtype)

    def _floats(self, state: Any, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        half = torch.finfo(dtype).max < 1e6
        large = 30.0 if half else 100.0  # its exponential is infinite, a product of sixteen is not
        normal = torch.randn(shape, generator=self.generator, dtype=torch.float64) * 4
        pick = self._integers(0, 8, shape)
        if state == "any":
            huge = torch.finfo(dtype).max / 4
            table = [math.nan, math.nan, math.nan, math.inf, -math.inf, huge, -huge, 0.0]
            return torch.tensor(table, dtype=torch.float64)[pick].to(dtype)
        if state == "finite":
            special = torch.tensor([large, -large, 0.0], dtype=torch.float64)
        else:
            normal = normal.abs() + 0.01
            tiny = 1e-2 if half else 1e-4
            special = torch.tensor([large, tiny, 0.0 if state == "nonnegative" else tiny], dtype=torch.float64)
        return torch.where(pick < 3, special[pick.clamp(max=2)], normal).to(dtype)


def scalar(value: Any) -> Any:
    """A scalar of the plan: int, bool, or a float in hexadecimal."""
    if isinstance(value, dict):
        if "f" in value:
            return float.fromhex(value["f"])
        if "c" in value:
            real, imaginary = value["c"]
            return complex(float.fromhex(real), float.fromhex(imaginary))
    return value


def _mask(layout: list[list[Factor]], at: tuple[int, int]) -> torch.Tensor:
    """Where the factor is in padding, in the shape of the value, broadcastable."""
    dim, position = at
    row = layout[dim]
    line = torch.arange(row[position].size) >= row[position].true
    line = line.view([factor.size if index == position else 1 for index, factor in enumerate(row)])
    line = line.expand([factor.size for factor in row]).reshape(-1)
    return line.view([-1 if index == dim else 1 for index in range(len(layout))])


def _satisfies(values: torch.Tensor, state: Any) -> torch.Tensor:
    if isinstance(state, dict):
        constant = torch.tensor(scalar(state["c"]), dtype=values.dtype)
        if constant.dtype.is_floating_point and bool(constant.isnan()):
            return values.isnan()
        return values == constant
    if state == "any":
        return torch.ones_like(values, dtype=torch.bool)
    finite = torch.isfinite(values)
    if state == "finite":
        return finite
    return finite & (values > 0 if state == "positive" else values >= 0)


def _check(value: torch.Tensor, mask: torch.Tensor, state: Any, where: str) -> None:
    good = _satisfies(value, state) | ~mask
    if not bool(good.all()):
        bad = value[~good].flatten()[:4].tolist()
        raise PoisonError(f"{where}: claimed {state}, but found {bad}")


class Claim:
    """What the plan says about one value, at given sizes."""

    def __init__(self, claim: dict[str, Any], true: Sizes, buckets: Sizes) -> None:
        self.layout = factors(claim["d"], true, buckets)
        self.dtype = DTYPES[claim["t"]]
        self.data = claim["data"]
        self.uniform = {"c": claim["uniform"]} if "uniform" in claim else None
        # Those that are masked last hold in all of their padding, the others outside of it only.
        over = {(dim, position) for dim, position in claim.get("over") or ()}
        first, rest = [], []
        for dim, row in enumerate(self.layout):
            for position, factor in enumerate(row):
                if factor.size != factor.true:
                    entry = (factor.state, _mask(self.layout, (dim, position)))
                    (first if (dim, position) in over else rest).append(entry)
        self.padded = [mask for _, mask in first + rest]
        outside = torch.zeros((), dtype=torch.bool)
        for _, mask in first:
            outside = outside | mask
        rest = [(state, mask & ~outside) for state, mask in rest]
        self.masks = sorted(rest, key=_strength) + sorted(first, key=_strength)

    def check(self, value: torch.Tensor, where: str, data: bool) -> None:
        if list(value.shape) != _sizes(self.layout):
            raise PoisonError(f"{where}: sizes {list(value.shape)}, but the claim says {_sizes(self.layout)}")
        if value.dtype != self.dtype:
            raise PoisonError(f"{where}: dtype {value.dtype}, but the claim says {self.dtype}")
        for state, mask in self.masks:
            _check(value, mask, state, f"{where}: padding")
        everywhere = torch.ones((), dtype=torch.bool)
        if self.uniform is not None:
            _check(value, everywhere, self.uniform, f"{where}: uniform")
        if data and self.data != "any":
            for mask in self.padded:
                everywhere = everywhere & ~mask
            _check(value, everywhere, self.data, f"{where}: true part")

    def poison(self, value: torch.Tensor, poison: Poison) -> torch.Tensor:
        if self.uniform is not None:
            return value
        bad = value
        for state, mask in self.masks:
            bad = torch.where(mask, poison.of(state, value.shape, value.dtype), bad)
        # With the strides of the value: some operators are particular about them.
        return bad if bad is value else value.clone().copy_(bad)


def _strength(entry: tuple[Any, torch.Tensor]) -> int:
    return 4 if isinstance(entry[0], dict) else _ORDER[entry[0]]


@dataclass
class Options:
    """How a plan is run. `poison`: check and overwrite; `masks`: False drops the plan's masks, as a negative control;
    `data`: check what is claimed about true parts as well (wrong where true inputs are not finite)."""

    poison: bool = True
    masks: bool = True
    data: bool = True
    seed: int = 0


class Interpreter:
    """One half of a plan (forward or backward) at one bucket vector."""

    def __init__(self, sub: SubPlan, true: Sizes, buckets: Sizes, options: Options) -> None:
        self.sub = sub
        self.true = true
        self.buckets = buckets
        self.options = options
        self.claims = {claim["v"]: Claim(claim, true, buckets) for claim in sub.claims or ()}
        self._sources = {number: node for node in sub.nodes for number in node.results}
        self._poison = Poison(options.seed)
        self._last = 0

    def run(self, inputs: Sequence[Any], mode: str) -> list[Any]:
        """`inputs` are the graph's, unpadded but for those kept. Returns the graph's outputs, cut but for those kept."""
        kinds = [entry["kind"] for entry in self.sub.graph["inputs"]]
        padded = self.sub.pad_inputs(inputs, self.buckets, self.true)
        for index, slot in enumerate(self.sub.inputs):
            if slot is not None and not slot.kept and mode == "any" and kinds[index] != "tangent":
                layout = [[self._factor(factor) for factor in dim] for dim in slot.layout]
                padded[index] = pad(inputs[index], layout, self._poison.anything)
        values = [self._judge(index, value) for index, value in enumerate(padded)]
        truths = self.sub.truth_tensors(self.true)
        try:
            raw = self._masked().run(self.buckets, values, truths, self._judge)
        except PoisonError:
            raise
        except Exception as error:
            raise PlanError(f"after {self._where(self._last)}: {type(error).__name__}: {error}") from error
        for result, value in zip(self.sub.outputs, raw, strict=True):
            if result.layout is not None and isinstance(value, torch.Tensor):
                wanted = [math.prod(self._factor(factor).size for factor in dim) for dim in result.layout]
                if list(value.shape) != wanted:
                    raise PlanError(f"a result has sizes {list(value.shape)}, its layout says {wanted}")
        return self.sub.cut_outputs(raw, self.buckets, self.true)

    def _factor(self, factor: Any) -> Factor:
        size = evaluate(factor.size, self.buckets)
        return Factor(size, evaluate(factor.size, self.true) if factor.padded else size)

    def _masked(self) -> SubPlan:
        """The plan, or as a negative control the plan without its masks."""
        if self.options.masks:
            return self.sub
        result = copy.copy(self.sub)
        result.nodes = [
            dataclasses.replace(node, target=_no_mask) if self._is_mask(node) else node for node in self.sub.nodes
        ]
        return result

    def _is_mask(self, node: Node) -> bool:
        if node.target is not torch.ops.aten.where.self:
            return False
        return node.source is None or not self.sub.graph["nodes"][node.source]["op"].startswith("aten.where")

    def _where(self, number: int) -> str:
        node = self._sources.get(number)
        if node is None:
            return f"input {number}"
        origin = "" if node.source is None else f" for node {node.source} {self.sub.graph['nodes'][node.source]['op']}"
        return f"value {number} {node.target}{origin}"

    def _judge(self, number: int, value: Any) -> Any:
        self._last = number
        claim = self.claims.get(number)
        if claim is None or not self.options.poison or not isinstance(value, torch.Tensor):
            return value
        claim.check(value, self._where(number), self.options.data)
        return claim.poison(value, self._poison)


def _no_mask(mask: torch.Tensor, value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    shape = torch.broadcast_shapes(mask.shape, value.shape, other.shape)
    return value.expand(shape).to(torch.promote_types(value.dtype, other.dtype))
