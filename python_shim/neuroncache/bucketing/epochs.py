"""A plan of buckets and the pure map from sizes to buckets, the same on every rank and in C++ (bucketing/planner/epochs.hpp)."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_SIZE = 2**31 - 1


@dataclass(frozen=True)
class FamilyPlan:
    """The buckets of one family. `maximum` 0: none. `ratio`: how the ladder above the last bucket grows."""

    tile: int = 1
    floor: int = 1
    maximum: int = 0
    buckets: tuple[int, ...] = ()
    ratio: tuple[int, int] = (3, 2)
    varies: bool = False
    _ladder: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def bucket(self, n: int) -> int | None:
        """The first bucket >= n, above the last one a point of the ladder; None: n is over the maximum."""
        at = bisect_left(self.buckets, n)
        if at < len(self.buckets):
            return self.buckets[at]
        if n > (self.maximum or MAX_SIZE):
            return None
        points = self._ladder  # grows as it is needed; threads can at worst do the same work twice
        while not points or points[-1] < n:
            points = points + [self._after(points[-1]) if points else self._base()]
            object.__setattr__(self, "_ladder", points)
        return points[bisect_left(points, n)]

    def _base(self) -> int:
        return self.buckets[-1] if self.buckets else self._round_up(max(self.floor, 1))

    def _after(self, point: int) -> int:
        num, den = self.ratio
        return max(self._round_up(max(-(-point * num // den), point + 1)), point)

    def _round_up(self, n: int) -> int:
        return min(-(-n // self.tile) * self.tile, self.maximum or MAX_SIZE)


@dataclass(frozen=True)
class BucketPlan:
    """All families of a program in one epoch; rectangles of a joint are in the order of choice."""

    program: str
    epoch: int
    families: Mapping[str, FamilyPlan]
    joints: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @classmethod
    def from_answer(cls, program: str, answer: Mapping[str, Any]) -> BucketPlan:
        """The plan in the daemon's answer to /v1/buckets/plan. ValueError: it is not what its digest says."""
        try:
            families = {str(name): _family(value) for name, value in answer["families"].items()}
            joints = {
                (str(joint["families"][0]), str(joint["families"][1])): tuple(
                    (int(a), int(b)) for a, b in joint["buckets"]
                )
                for joint in answer.get("joint", ())
            }
            plan = cls(program, int(answer["epoch"]), families, joints)
            digest = str(answer["digest"])
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"the plan of buckets of {program[:16]} is incomplete: {error!r}") from error
        if plan.digest != digest:
            raise ValueError(f"the plan of buckets of {program[:16]} is not the one with digest {digest[:16]}")
        return plan

    def bucket(self, family: str, n: int) -> int | None:
        """The bucket of one size by itself; see buckets() for families that are planned together."""
        return self.families[family].bucket(n)

    def buckets(self, sizes: Mapping[str, int]) -> dict[str, int | None]:
        """One bucket for each size, joints first; None where the exact size has to run."""
        out = {family: self.families[family].bucket(n) for family, n in sizes.items()}
        for (first, second), rectangles in self.joints.items():
            if first not in sizes or second not in sizes:
                continue
            for pair in rectangles:
                if sizes[first] <= pair[0] and sizes[second] <= pair[1]:
                    out[first], out[second] = pair
                    break
        return out

    def text(self) -> str:
        """The canonical text; its grammar is in bucketing/planner/epochs.hpp."""
        names = sorted(self.families, key=str.encode)
        lines = ["neuroncache-plan 1", f"program {self.program}", f"epoch {self.epoch}"]
        for name in names:
            one = self.families[name]
            lines.append(
                f"family tile {one.tile} floor {one.floor} max {one.maximum or '-'} ratio {one.ratio[0]}/{one.ratio[1]}"
                f" varies {int(one.varies)} buckets {','.join(map(str, one.buckets)) or '-'} name {name}"
            )
        places = {name: place for place, name in enumerate(names)}
        for (first, second), pairs in sorted(self.joints.items(), key=lambda joint: places[joint[0][0]]):
            rectangles = ",".join(f"{a}x{b}" for a, b in pairs)
            lines.append(f"joint {places[first]} {places[second]} buckets {rectangles}")
        return "\n".join(lines) + "\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()


def _family(value: Mapping[str, Any]) -> FamilyPlan:
    beyond = value["beyond"]
    num, den = (int(part) for part in beyond["ratio"])
    buckets: Sequence[Any] = value["buckets"]
    plan = FamilyPlan(
        tile=int(beyond["tile"]),
        floor=int(value["floor"]),
        maximum=int(beyond["max"] or 0),
        buckets=tuple(int(bucket) for bucket in buckets),
        ratio=(num, den),
        varies=bool(value["varies"]),
    )
    if plan.tile < 1 or not num > den > 0 or list(plan.buckets) != sorted(set(plan.buckets)):
        raise TypeError(f"wrong family {value}")
    return plan
