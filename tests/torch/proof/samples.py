"""From a call of an operator with some tensors to calls with other sizes: which dimensions can vary, and what with them.

A call is a function of flat tensors. For a dimension of the first tensor, `find_groups` looks for the dimensions (and the
integers) that have to follow when it grows: a group under which the call still makes sense.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .trace import Dynamic


@dataclass(frozen=True)
class Group:
    """Dimensions (tensor, dim) that have one size, and positions of integers among the leaves that are this size."""

    places: tuple[tuple[int, int], ...]
    integers: tuple[int, ...] = ()

    def dynamic(self) -> list[Dynamic]:
        return [Dynamic(tensor, dim) for tensor, dim in self.places]


class Call:
    """`function(*args, **kwargs)` as a function of the tensors among its arguments."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.target = function
        self.leaves, self.spec = pytree.tree_flatten((list(args), dict(kwargs)))
        self.positions = [index for index, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors: list[torch.Tensor] = [self.leaves[index] for index in self.positions]
        self.extra = 0
        if not self.tensors:
            # Sizes alone: they are taken from a tensor that is not used otherwise.
            self.extra = 1
            self.tensors = [torch.zeros(self._first_size())]

    def _first_size(self) -> int:
        return next((leaf for leaf in self.leaves if type(leaf) is int and leaf >= 2), 0)

    def function(self, groups: Sequence[Group]) -> Callable[..., tuple[Any, ...]]:
        """The call on other tensors; integers of the groups are their sizes."""

        def call(*tensors: torch.Tensor) -> tuple[Any, ...]:
            leaves = list(self.leaves)
            if not self.extra:
                for position, tensor in zip(self.positions, tensors, strict=True):
                    leaves[position] = tensor
            for group in groups:
                tensor, dim = group.places[0]
                for index in group.integers:
                    leaves[index] = tensors[tensor].shape[dim]
            args, kwargs = pytree.tree_unflatten(leaves, self.spec)
            result = self.target(*args, **kwargs)
            return tuple(leaf for leaf in pytree.tree_leaves(result) if leaf is not None)

        return call

    def grown(self, sizes: Sequence[tuple[Group, int]]) -> list[torch.Tensor]:
        """The tensors with each group at a size: elements are repeated, so that their values stay in their range. Floats
        shrink a little with each repetition, differently for each group: which of two equal ones is picked is nobody's to
        say."""
        tensors = list(self.tensors)
        for number, (group, size) in enumerate(sizes):
            for tensor, dim in group.places:
                old = tensors[tensor]
                if old.shape[dim] != size:
                    index = torch.arange(size)
                    new = old.detach().index_select(dim, index % old.shape[dim])
                    if new.dtype.is_floating_point:
                        times = (index // old.shape[dim]).to(new.dtype)
                        new = new * (1 - times / (64 - 5 * number)).view(
                            [-1 if one == dim else 1 for one in range(new.dim())]
                        )
                    tensors[tensor] = new.requires_grad_(old.requires_grad)
        return tensors

    def works(self, sizes: Sequence[tuple[Group, int]]) -> bool:
        groups = [group for group, _ in sizes]
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                result = self.function(groups)(*(one.detach().clone() for one in self.grown(sizes)))
        except Exception:
            return False
        return all(_usual(leaf) for leaf in result)


def _usual(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        return leaf.layout is torch.strided and not leaf.is_quantized
    return isinstance(leaf, (int, float, bool))


def base_size(size: int, taken: Sequence[int] = ()) -> int:
    """The size to trace with: not 1, which tracing makes constant, and no other group's."""
    size = max(size, 3 if size < 2 else size)
    while size in taken:
        size += 1
    return size


def find_groups(call: Call, limit: int = 3) -> list[Group]:
    """One group for each dimension of the first tensor that can vary."""
    found: list[Group] = []
    for dim, size in enumerate(call.tensors[0].shape):
        if len(found) == limit:
            break
        if size == 0 or any((0, dim) in group.places for group in found):
            continue
        wanted = base_size(size)
        for group in _candidates(call, dim):
            if all(call.works([(group, wanted + more)]) for more in (0, 1, 3)):
                found.append(group)
                break
    return found


def _candidates(call: Call, dim: int) -> Iterator[Group]:
    size = call.tensors[0].shape[dim]
    first = (0, dim)
    from_right = dim - call.tensors[0].dim()
    others = [
        (tensor, place)
        for tensor, value in enumerate(call.tensors)
        for place, other in enumerate(value.shape)
        if other == size and (tensor, place) != first
    ]
    elsewhere = [place for place in others if place[0] != 0]
    # What broadcasts or lines up with it most likely belongs to it.
    choices = [[p for p in elsewhere if p[1] - call.tensors[p[0]].dim() == from_right]]
    choices.append([p for p in elsewhere if p[1] == dim])
    choices.append([])
    choices.append(elsewhere)
    choices += [[place] for place in others[:6]]
    choices.append(others)
    integers = tuple(index for index, leaf in enumerate(call.leaves) if type(leaf) is int and leaf == size and size > 1)
    seen: set[Group] = set()
    for linked in ((), integers):
        if call.extra and not linked:
            continue
        for choice in choices:
            group = Group((first, *choice), linked)
            if group not in seen:
                seen.add(group)
                yield group


@dataclass(frozen=True)
class Sized:
    """A call with dynamic dimensions, and its arguments at several sizes; the first is for tracing."""

    function: Callable[..., Any]
    arguments: list[list[torch.Tensor]]
    dynamic: list[Dynamic]


def sized(call: Call, groups: Sequence[Group]) -> Sized | None:
    """The call with all of the groups dynamic, or None when they cannot vary together."""
    taken: list[int] = []
    for group in groups:
        tensor, dim = group.places[0]
        taken.append(base_size(call.tensors[tensor].shape[dim], taken))
    steps = [[0] * len(groups), [1 + 2 * index for index in range(len(groups))], [3] + [1] * (len(groups) - 1)]
    sizes = [[(group, base + more) for group, base, more in zip(groups, taken, step, strict=True)] for step in steps]
    if not all(call.works(one) for one in sizes):
        return None
    dynamic = [one for group in groups for one in group.dynamic()]
    return Sized(call.function(groups), [call.grown(one) for one in sizes], dynamic)


def pairs(groups: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    """Groups that share no dimension."""
    for index, one in enumerate(groups):
        for other in groups[index + 1 :]:
            if not set(one.places) & set(other.places) and not set(one.integers) & set(other.integers):
                yield one, other
