"""How true sizes lie in padded ones: dimensions as factors, and the two moves between them (docs/padding.md, Layouts)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from neuroncache.expr import Expr, evaluate

Sizes: TypeAlias = Mapping[str, "int | float"]


@dataclass(frozen=True)
class Factor:
    """A part of a dimension. `padded`: its size depends on the bucket."""

    size: Expr
    padded: bool


Dim: TypeAlias = tuple[Factor, ...]
Layout: TypeAlias = tuple[Dim, ...]  # one entry per dimension, factors outermost first


def parse_layout(dims: Sequence[Sequence[Mapping[str, Any]]]) -> Layout:
    return tuple(tuple(Factor(factor["e"], bool(factor.get("p"))) for factor in dim) for dim in dims)


def factor_sizes(layout: Layout, sizes: Sizes) -> list[list[int]]:
    return [[int(evaluate(factor.size, sizes)) for factor in dim] for dim in layout]


def shape(layout: Layout, sizes: Sizes) -> tuple[int, ...]:
    """The sizes of a value with this layout."""
    return tuple(math.prod(factors) for factors in factor_sizes(layout, sizes))


class Fit:
    """One layout at one bucket vector and one vector of true sizes: `pad` and `cut` go between the two.

    Factors are merged as far as the true part of the merged one is still a prefix, so that most values are never viewed as
    factors at all.
    """

    def __init__(self, layout: Layout, buckets: Sizes, sizes: Sizes) -> None:
        at_buckets = factor_sizes(layout, buckets)
        at_sizes = factor_sizes(layout, sizes)
        self.padded_shape = tuple(math.prod(factors) for factors in at_buckets)
        self.true_shape = tuple(math.prod(factors) for factors in at_sizes)
        self._padded_factors: list[int] = []
        self._true_factors: list[int] = []
        for padded, true in zip(at_buckets, at_sizes, strict=True):
            self._add(padded, true)
        self.same = self._padded_factors == self._true_factors
        self._factored = len(self._true_factors) != len(layout)
        self._cuts = [
            (index, true)
            for index, (padded, true) in enumerate(zip(self._padded_factors, self._true_factors, strict=True))
            if padded != true
        ]
        self._amounts: list[int] = []
        for padded_size, true_size in zip(reversed(self._padded_factors), reversed(self._true_factors), strict=True):
            self._amounts += [0, padded_size - true_size]

    def _add(self, padded: list[int], true: list[int]) -> None:
        groups: list[tuple[int, int]] = []
        for padded_size, true_size in reversed(list(zip(padded, true, strict=True))):
            if groups and groups[-1][0] == groups[-1][1]:
                inner = groups.pop()[0]
                groups.append((padded_size * inner, true_size * inner))
            else:
                groups.append((padded_size, true_size))
        for padded_size, true_size in reversed(groups or [(1, 1)]):
            self._padded_factors.append(padded_size)
            self._true_factors.append(true_size)

    @property
    def waste(self) -> int:
        """Elements of padding."""
        return math.prod(self.padded_shape) - math.prod(self.true_shape)

    def pad(self, value: torch.Tensor, fill: float = 0) -> torch.Tensor:
        """A dense tensor of padded sizes with `value` in its true part, and `fill` around it."""
        if self.same:
            return value.contiguous()
        if self._factored:
            value = value.reshape(self._true_factors)
        result = torch.constant_pad_nd(value.contiguous(), self._amounts, fill)
        return result.reshape(self.padded_shape) if self._factored else result

    def cut_copy(self, value: torch.Tensor) -> torch.Tensor:
        """The true part, dense and in memory of its own. Only where something is to be cut."""
        if self._factored:
            value = value.reshape(self._padded_factors)
        *others, (last, size) = self._cuts
        for index, other in others:
            value = value.narrow(index, 0, other)
        value = torch.narrow_copy(value, last, 0, size)
        # Not a view for autograd: a user may write to it.
        return value.reshape(self.true_shape).data if self._factored else value

    def cut(self, value: torch.Tensor, strides: tuple[int, ...] | None = None) -> torch.Tensor:
        """The true part; a view where it can be one, a copy where the strides that are asked for need it."""
        if not self.same:
            if self._factored:
                value = value.reshape(self._padded_factors)
            for index, size in self._cuts:
                value = value.narrow(index, 0, size)
            if self._factored:
                value = value.reshape(self.true_shape)
        return value if strides is None or value.stride() == strides else restride(value, strides)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor in row-major order, as torch has them."""
    strides = [1] * len(shape)
    for index in range(len(shape) - 2, -1, -1):
        strides[index] = strides[index + 1] * max(shape[index + 1], 1)
    return tuple(strides)


def restride(value: torch.Tensor, strides: tuple[int, ...], offset: int = 0) -> torch.Tensor:
    """A copy of `value` that lies in memory by these strides and this storage offset."""
    sizes = tuple(value.shape)
    # Elements that share their place are written once.
    own = tuple(1 if stride == 0 and size else size for size, stride in zip(sizes, strides, strict=True))
    extent = offset + (
        1 + sum((size - 1) * stride for size, stride in zip(own, strides, strict=True)) if value.numel() else 0
    )
    base = torch.empty(extent, dtype=value.dtype, device=value.device)
    for dim, size in enumerate(own):
        if size != sizes[dim]:
            value = value.narrow(dim, 0, size)
    base.as_strided(own, strides, offset).copy_(value)
    return base.as_strided(sizes, strides, offset)
