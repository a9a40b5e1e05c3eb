"""The test of a declared padding rule: the operator on samples, and on the same with padding as bad as the rule allows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch

from neuroncache.bucketing import check
from neuroncache.errors import PaddingRuleError

_FILLS: dict[str, tuple[str, ...]] = {
    "any": ("nan", "inf", "huge", "ordinary", "0"),
    "finite": ("ordinary", "0"),
    "zero": ("0",),
}
_EXTRA = (1, 3)  # positions of padding that are added
_MOST_FILLS = 125


def test(op: torch._ops.OpOverload, rule: Mapping[str, Any], samples: Iterable[Any]) -> None:
    """Runs the operator on each sample, and on the sample with padding as bad as the rule allows. Raises
    `PaddingRuleError` where that shows the rule to be wrong."""
    tested = 0
    for number, sample in enumerate(samples):
        args, kwargs = _arguments(sample)
        _Sample(op, rule, args, kwargs, f"sample {number}").run()
        tested += 1
    if not tested:
        raise PaddingRuleError(f"a rule for {op} is to be tested on no samples")


def _arguments(sample: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(sample, torch.Tensor):
        return [sample], {}
    if len(sample) == 2 and isinstance(sample[0], (tuple, list)) and isinstance(sample[1], dict):
        return list(sample[0]), dict(sample[1])
    return list(sample), {}


class _Sample:
    """One set of arguments. `dims`: for each result, what its dimensions follow, as (argument, dimension) pairs."""

    def __init__(
        self, op: torch._ops.OpOverload, rule: Mapping[str, Any], args: list[Any], kwargs: dict[str, Any], name: str
    ) -> None:
        self.op = op
        self.name = name
        self.kwargs = kwargs
        self.args = [one.detach() if isinstance(one, torch.Tensor) else one for one in args]
        self.tensors = {number: one for number, one in enumerate(self.args) if isinstance(one, torch.Tensor)}
        self.needs = {number: rule.get("needs", {}).get(str(number), "finite") for number in self.tensors}
        self.exact = self._call(self.args)
        self.sums: list[tuple[int, int]] = []
        self.gives: list[str] = []
        self.dims: list[list[list[tuple[int, int]]]] = []
        if rule["kind"] == "pointwise":
            self._pointwise(rule)
        else:
            self._along(rule)

    def _pointwise(self, rule: Mapping[str, Any]) -> None:
        self.needs = dict.fromkeys(self.tensors, "any")
        for result in self.exact:
            self.gives.append(rule["gives"])
            dims: list[list[tuple[int, int]]] = []
            for dim in range(result.dim()):
                places = [
                    (number, value.dim() - result.dim() + dim)
                    for number, value in self.tensors.items()
                    if value.dim() - result.dim() + dim >= 0
                ]
                dims.append([(number, at) for number, at in places if self.tensors[number].size(at) > 1])
            self.dims.append(dims)

    def _along(self, rule: Mapping[str, Any]) -> None:
        self.sums = [self._place(place) for place in rule.get("sums", ())]
        if len(self.exact) != len(rule["outputs"]):
            self._wrong(f"it has {len(self.exact)} results, and the rule is for {len(rule['outputs'])}")
        for number, (output, result) in enumerate(zip(rule["outputs"], self.exact, strict=True)):
            if (output is None) != (not isinstance(result, torch.Tensor)):
                self._wrong(f"result {number} is {'a tensor' if output is None else 'no tensor'}")
            if output is None:
                self.gives.append("any")
                self.dims.append([])
                continue
            if len(output["follows"]) != result.dim():
                self._wrong(f"result {number} has {result.dim()} dimensions, and 'follows' {len(output['follows'])}")
            self.gives.append(output["gives"])
            self.dims.append([[self._place(place) for place in follows or ()] for follows in output["follows"]])
            for dim, places in enumerate(self.dims[-1]):
                for place in places:
                    if self._size(place) != result.size(dim):
                        self._wrong(
                            f"dimension {dim} of result {number} has size {result.size(dim)}, and dimension {place[1]} "
                            f"of argument {place[0]}, which it follows, {self._size(place)}"
                        )

    def _place(self, place: Sequence[int]) -> tuple[int, int]:
        number, dim = place
        value = self.tensors.get(number)
        if value is None:
            self._wrong(f"argument {number} is no tensor")
        rank = self.tensors[number].dim()
        if not -rank <= dim < rank:
            self._wrong(f"argument {number} has no dimension {dim}")
        return number, dim % rank

    def _size(self, place: tuple[int, int]) -> int:
        return self.tensors[place[0]].size(place[1])

    def _wrong(self, what: str) -> NoReturn:
        raise PaddingRuleError(f"the padding rule of {self.op} is wrong, by {self.name}: {what}")

    # -- the runs -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        groups = self._groups()
        if not groups:
            self._wrong("it lets nothing be padded")
        self._zeros()
        chosen = [[group] for group in groups] + ([groups] if len(groups) > 1 else [])
        for parts, extra in itertools.product(chosen, _EXTRA):
            grown = {place: extra for group in parts for place in group}
            self._run_grown(grown)
            self._gradients(grown)

    def _groups(self) -> list[set[tuple[int, int]]]:
        """Dimensions that have one size in every call: padded together."""
        groups: list[set[tuple[int, int]]] = []
        for places in (*(set(places) for dims in self.dims for places in dims), *self._sum_groups()):
            touching = [group for group in groups if group & places]
            groups = [group for group in groups if not group & places]
            if merged := places.union(*touching):
                groups.append(merged)
        return groups

    def _sum_groups(self) -> list[set[tuple[int, int]]]:
        sizes: dict[int, set[tuple[int, int]]] = {}
        for place in self.sums:
            sizes.setdefault(self._size(place), set()).add(place)
        return list(sizes.values())

    def _run_grown(self, grown: Mapping[tuple[int, int], int]) -> None:
        padded = sorted({number for number, _ in grown})
        choices = [_FILLS[self.needs[number]] for number in padded]
        # All combinations, or, where these are many, the same in all arguments as far as they allow it.
        alike = [tuple(fill if fill in one else one[-1] for one in choices) for fill in _FILLS["any"]]
        many = math.prod(map(len, choices)) > _MOST_FILLS
        for fills in dict.fromkeys(alike) if many else itertools.product(*choices):
            by_input = dict(zip(padded, fills, strict=True))
            how = self._describe(grown, by_input)
            args = [self._grow(number, grown, by_input.get(number, "0")) for number in range(len(self.args))]
            try:
                results = self._call(args)
            except Exception as error:
                self._wrong(f"it fails ({type(error).__name__}: {error}) when {how}")
            calm = all(fill in ("0", "ordinary") for fill in fills)
            for number, (result, exact) in enumerate(zip(results, self.exact, strict=True)):
                if not isinstance(exact, torch.Tensor):
                    if result != exact:
                        self._wrong(f"result {number} is {result} in place of {exact} when {how}")
                    continue
                true = self._true_part(number, result, exact, grown, how)
                if problem := check._difference([true], [exact]):
                    self._wrong(f"result {number} changes where it is true (value {problem[2:]}) when {how}")
                if calm:
                    self._claims(number, result, how)
                if self.gives[number] == "zero" and set(fills) == {"0"}:
                    self._zero_padding(number, result, exact, grown, how)

    def _true_part(self, number: int, result: Any, exact: Any, grown: Mapping[tuple[int, int], int], how: str) -> Any:
        expected = [
            size + max((grown.get(place, 0) for place in places), default=0)
            for size, places in zip(exact.shape, self.dims[number], strict=True)
        ]
        if list(result.shape) != expected:
            self._wrong(f"result {number} has sizes {tuple(result.shape)} in place of {tuple(expected)} when {how}")
        return result[tuple(slice(0, size) for size in exact.shape)]

    def _claims(self, number: int, result: torch.Tensor, how: str) -> None:
        gives = self.gives[number]
        if gives == "any":
            return
        if not bool(torch.isfinite(result).all()):
            self._wrong(f"result {number} is not {gives} everywhere when {how}")
        if gives in ("nonnegative", "positive") and bool((result < 0 if gives == "nonnegative" else result <= 0).any()):
            self._wrong(f"result {number} is not {gives} everywhere when {how}")

    def _zero_padding(
        self, number: int, result: torch.Tensor, exact: torch.Tensor, grown: Mapping[tuple[int, int], int], how: str
    ) -> None:
        """Where all arguments have the padding, and it is zero, all that it depends on is zero."""
        for dim, places in enumerate(self.dims[number]):
            here = {place[0] for place in places if place in grown}
            if here == set(self.tensors) and bool(
                (result.narrow(dim, exact.size(dim), result.size(dim) - exact.size(dim)) != 0).any()
            ):
                self._wrong(f"the padding of result {number} is not zero when {how}")

    def _zeros(self) -> None:
        """A result that is said to be zero where all it depends on is."""
        results = self._call([torch.zeros_like(one) if isinstance(one, torch.Tensor) else one for one in self.args])
        for number, result in enumerate(results):
            if self.gives[number] == "zero" and isinstance(result, torch.Tensor) and bool((result != 0).any()):
                self._wrong(f"result {number} is not zero when all arguments are")

    def _gradients(self, grown: Mapping[tuple[int, int], int]) -> None:
        """Gradients of the true part, with tangents that are zero in the padding, as they are in a padded graph."""
        if not _differentiable(self.op):
            return
        fill = {number: "0" for number, _ in grown}
        exact = self._gradients_of(self.args, [tuple(one.shape) for one in self.exact if isinstance(one, torch.Tensor)])
        if exact is None:
            return
        shapes = [tuple(one.shape) for one in self.exact if isinstance(one, torch.Tensor)]
        args = [self._grow(number, grown, fill.get(number, "0")) for number in range(len(self.args))]
        got = self._gradients_of(args, shapes)
        assert got is not None
        how = self._describe(grown, fill)
        for number, right in exact.items():
            true = got[number][tuple(slice(0, size) for size in right.shape)]
            if problem := check._difference([true], [right]):
                self._wrong(f"the gradient of argument {number} changes (value {problem[2:]}) when {how}")

    def _gradients_of(self, args: list[Any], shapes: list[tuple[int, ...]]) -> dict[int, torch.Tensor] | None:
        leaves = {
            number: one.detach().requires_grad_()
            for number, one in enumerate(args)
            if isinstance(one, torch.Tensor) and (one.is_floating_point() or one.is_complex())
        }
        with torch.enable_grad():
            results = self._call([leaves.get(number, one) for number, one in enumerate(args)])
        results = [one for one in results if isinstance(one, torch.Tensor)]
        open_ = [(one, shape) for one, shape in zip(results, shapes, strict=True) if one.requires_grad]
        if not open_ or not leaves:
            return None
        numbers = torch.Generator().manual_seed(0)
        tangents = []
        for result, shape in open_:
            tangent = torch.zeros_like(result)
            tangent[tuple(slice(0, size) for size in shape)] = torch.randn(
                shape, generator=numbers, dtype=torch.float64
            ).to(result)
            tangents.append(tangent)
        try:
            found = torch.autograd.grad([one for one, _ in open_], list(leaves.values()), tangents, allow_unused=True)
        except RuntimeError as error:
            if "autograd" in str(error) or "derivative" in str(error):
                return None  # it has no backward
            raise
        return {number: one for number, one in zip(leaves, found, strict=True) if one is not None}

    def _grow(self, number: int, grown: Mapping[tuple[int, int], int], fill: str) -> Any:
        value = self.args[number]
        amounts = {dim: extra for (input_, dim), extra in grown.items() if input_ == number}
        if not isinstance(value, torch.Tensor) or not amounts:
            return value
        shape = [size + amounts.get(dim, 0) for dim, size in enumerate(value.shape)]
        result = _filled(shape, value, fill)
        result[tuple(slice(0, size) for size in value.shape)] = value
        return result

    def _describe(self, grown: Mapping[tuple[int, int], int], fills: Mapping[int, str]) -> str:
        where = ", ".join(
            f"dimension {dim} of argument {number} by {extra}" for (number, dim), extra in sorted(grown.items())
        )
        what = ", ".join(f"{fill} in argument {number}" for number, fill in sorted(fills.items()))
        return f"{where} is padded with {what}" if where.count("dimension") == 1 else f"padding {where} with {what}"

    def _call(self, args: list[Any]) -> list[Any]:
        results = self.op(*args, **self.kwargs)
        return list(results) if isinstance(results, (tuple, list)) else [results]


def _differentiable(op: torch._ops.OpOverload) -> bool:
    """Whether it has a backward, or is made of what has one; torch calls a missing one zero."""
    keys = ("Autograd", "AutogradCPU", "AutogradPrivateUse1", "CompositeImplicitAutograd")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in keys)


def _filled(shape: Sequence[int], like: torch.Tensor, fill: str) -> torch.Tensor:
    result = torch.zeros(shape, dtype=like.dtype, device=like.device)
    if fill == "0":
        return result
    numbers = torch.Generator().manual_seed(1)
    if like.is_floating_point() or like.is_complex():
        if fill == "ordinary":
            return (100 * torch.randn(shape, generator=numbers, dtype=torch.float64)).to(result)
        bad = torch.finfo(like.dtype).max if fill == "huge" else float(fill)
        result.fill_(bad)
        return result
    if like.dtype == torch.bool:
        return result.fill_(True)
    if fill != "ordinary":
        return result.fill_(torch.iinfo(like.dtype).max)
    return torch.randint(0, 100, shape, generator=numbers).to(result)
