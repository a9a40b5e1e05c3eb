"""The dispatcher of one captured pair of graphs: sizes of a call to the record that runs it."""

from __future__ import annotations

import itertools
import operator
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from neuroncache import config, counters, log
from neuroncache.bucketing import background, check
from neuroncache.bucketing.buckets import Chooser
from neuroncache.bucketing.capture import ticket_position
from neuroncache.bucketing.epochs import BucketPlan
from neuroncache.bucketing.inner import Inner
from neuroncache.bucketing.plan import Plan
from neuroncache.bucketing.quarantine import Quarantine
from neuroncache.bucketing.records import Record
from neuroncache.bucketing.units import Pair, Unit
from neuroncache.errors import Unsupported
from neuroncache.expr import Expr, evaluate

MAX_RECORDS = 1 << 15
MAX_EXACT = 8  # exact shapes of a planned graph that are compiled; the rest runs operator by operator
FIRST_REPLAN = (
    32  # calls of a graph until its buckets are planned from what this process saw; then twice as many, and so on
)
MAX_STEPS = 16  # bucket vectors that are tried where guards forbid the first

everyone: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


class Dispatcher:
    """Runs the calls of one graph. `forward` and `backward` are what AOTAutograd takes for the compiled graphs."""

    def __init__(self) -> None:
        self.ready = False
        self._memo: dict[Any, Record] = {}
        self._records: dict[int, Any] = {}  # by ticket: records, and stand-ins for them
        self._units: dict[tuple[bool, tuple[int, ...]], Unit] = {}
        self._tickets = itertools.count(1)
        self._lock = threading.RLock()
        self.quarantined = ""

        def forward(args: list[Any]) -> list[Any]:
            record = self._memo.get(self._key(args))
            if record is None:
                record = self._miss(args)
            try:
                return record.forward.run(args)
            except Exception as error:
                # A first call keeps its arguments until it has succeeded.
                if not args or record.unit.exact or config.get("strict"):
                    raise
                return self._rescue(args, error)

        def backward(args: list[Any]) -> list[Any]:
            record = self._records[args.pop(self._ticket_position)]
            return record.backward.run(args)

        # As AOTAutograd asks of functions that empty the list of their arguments.
        forward._boxed_call = True  # type: ignore[attr-defined]
        backward._boxed_call = True  # type: ignore[attr-defined]
        self.forward = forward
        self.backward = backward

    def prepare(
        self,
        pair: Pair,
        plan: Plan,
        inner: Inner,
        chooser: Chooser,
        guards: Sequence[Expr],
        label: str,
        program: str,
        mark: Quarantine,
    ) -> None:
        """Everything that is known only once the graphs are."""
        captured = pair.captured
        assert captured.forward is not None
        self.pair = pair
        self.plan = plan
        self.inner = inner
        self.chooser = chooser
        self.guards = list(guards)
        self.label = label
        self.program = program
        self.mark = mark
        self.next_plan = FIRST_REPLAN
        # A black box has its own way to compare: `blackbox`.
        self.checkable = (
            not inner.differentiates
            and check.applies(pair.plan("forward", True))
            and (captured.inference or check.applies(pair.plan("backward", True)))
        )
        self.waiting_checks: list[Any] = []
        self.symbols = list(captured.forward.graph.symbols.ids.values())
        self.ranges = _ranges(captured.forward.graph.document)
        self._key = _binder(captured.forward.graph.document, self.symbols)
        self._ticket_position = 0 if captured.inference else ticket_position(captured)
        self.ready = True
        everyone.add(self)

    # -- a call with new sizes --------------------------------------------------------------------------------------

    def _sizes(self, key: Any) -> dict[str, int]:
        values = key if isinstance(key, tuple) else (key,)
        return dict(zip(self.symbols, (int(value) for value in values), strict=True))

    def _miss(self, args: list[Any]) -> Record:
        key = self._key(args)
        with self._lock:
            record = self._memo.get(key)
            if record is not None:
                return record
            sizes = self._sizes(key)
            buckets = self._choose(sizes)
            unit = self._unit(buckets, exact=False) if buckets is not None else self._unit(sizes, exact=True)
            record = self._record(unit, sizes)
            if not unit.exact and not unit.ready and not self.inner.differentiates:
                self._use_another_meanwhile(record, args)
            if check.due(self, record):
                check.arm(self, record)
            if len(self._memo) >= MAX_RECORDS:
                self._memo.clear()
            self._memo[key] = record
            return record

    def record_for(self, args: list[Any]) -> Record:
        """The record of a call, for who runs it himself."""
        record = self._memo.get(self._key(args))
        return self._miss(args) if record is None else record

    def _rescue(self, args: list[Any], error: Exception) -> list[Any]:
        """The exact shape, for a call whose padded graph does not run at all; so it is from then on."""
        counters.count("errors")
        log.warn(f"rescue-{self.label}", f"{self.label}: a padded graph does not run: {type(error).__name__}: {error}")
        with self._lock:
            self.quarantined = f"it does not run: {type(error).__name__}"
            self._memo = {}
        return self._miss(args).forward.run(args)

    def _record(self, unit: Unit, sizes: dict[str, int]) -> Record:
        record = Record(unit, sizes, next(self._tickets))
        self._keep(record.ticket, record)
        return record

    def _keep(self, ticket: int, record: Any) -> None:
        self._records[ticket] = record
        while len(self._records) > 2 * MAX_RECORDS:
            # The oldest; a backward call that is older than so many other sizes is not expected.
            del self._records[next(iter(self._records))]

    def add(self, stand_in: Any) -> int:
        """A ticket for something that has the backward of a record."""
        with self._lock:
            ticket = next(self._tickets)
            self._keep(ticket, stand_in)
        return ticket

    def exact_record(self, sizes: dict[str, int]) -> Record:
        """A record of the exact shape, for a call that was made that way."""
        with self._lock:
            return self._record(self._unit(sizes, exact=True), sizes)

    def _choose(self, sizes: dict[str, int]) -> dict[str, int] | None:
        """The bucket vector for these sizes; None: the exact shape."""
        if self.quarantined or any(sizes[first] != sizes[second] for first, second in self.plan.unify):
            return None
        for candidate in itertools.islice(self.chooser.candidates(sizes), MAX_STEPS):
            if self._holds(candidate, sizes):
                return candidate
        return None

    def _holds(self, buckets: dict[str, int], sizes: dict[str, int]) -> bool:
        try:
            return (
                all(
                    sizes[name] <= size and low <= size <= high
                    for name, size in buckets.items()
                    for low, high in [self.ranges[name]]
                )
                and all(evaluate(guard, buckets) for guard in self.guards)
                and self.plan.fits(buckets)
                and self.plan.has_room(buckets, sizes)
            )
        except Unsupported:
            return False

    def _unit(self, buckets: dict[str, int], exact: bool) -> Unit:
        identity = (exact, tuple(buckets.values()))
        unit = self._units.get(identity)
        if unit is None:
            unit = self._units[identity] = Unit(self.pair, self.inner, buckets, exact)
            if exact:
                counters.bypass("exact_shape")
                unit.interpreted = sum(other.exact for other in self._units.values()) > MAX_EXACT
                log.debug("%s: %s runs at its exact shape", self.label, buckets)
            else:
                counters.count("buckets")
                log.debug("%s: bucket %s", self.label, buckets)
        return unit

    # -- buckets that are built behind a call -----------------------------------------------------------------------

    def _use_another_meanwhile(self, record: Record, args: Sequence[Any]) -> None:
        """Has a larger bucket that is ready serve the call, and the wanted one built in the background."""
        wanted = record.unit
        cover = self._cover(record.sizes)
        if cover is None or not background.submit(self, wanted, record, args):
            return
        record.provisional = True
        self._rewrite(record, cover)

    def _rewrite(self, record: Record, unit: Unit) -> None:
        replacement = Record(unit, record.sizes, record.ticket)
        record.unit, record.forward, record._backward = replacement.unit, replacement.forward, None

    def _cover(self, sizes: dict[str, int]) -> Unit | None:
        padded = set(self.plan.symbols)
        best: tuple[int, Unit] | None = None
        for unit in self._units.values():
            if unit.exact or not unit.ready or unit.interpreted:
                continue
            if not all(
                size <= unit.buckets[name] if name in padded else size == unit.buckets[name]
                for name, size in sizes.items()
            ):
                continue
            if not self.plan.has_room(unit.buckets, sizes):
                continue
            cost = 1
            for size in unit.buckets.values():
                cost *= size
            if best is None or cost < best[0]:
                best = (cost, unit)
        return best[1] if best is not None else None

    def built(self, unit: Unit) -> None:
        """Calls that waited for this unit get it from now on."""
        with self._lock:
            for key, record in list(self._memo.items()):
                if record.provisional:
                    del self._memo[key]

    def forget_choices(self) -> None:
        """Sizes are mapped to buckets anew; calls whose backward is still to come keep theirs."""
        with self._lock:
            self._memo = {}

    def limits(self, family: str) -> dict[str, int]:
        """What the planner must know of a family: no size is larger than the trace allows."""
        highs = [
            self.ranges[name][1]
            for name in self.symbols
            if name in self.chooser.padded and self.chooser.family(name) == family
        ]
        high = min(highs, default=float("inf"))
        return {"max": int(high)} if high < 2**31 - 1 else {}

    def use(self, plan: BucketPlan) -> None:
        """Has the calls that follow take their buckets from a plan."""
        known = self.chooser.plan
        if known is not None and known.epoch == plan.epoch and known.digest == plan.digest:
            return
        self.chooser.plan = plan
        self.forget_choices()
        log.debug("%s: buckets of epoch %d are in use", self.label, plan.epoch)

    def quarantine(self, reason: str) -> None:
        """Never pads again, here and wherever the daemon is asked."""
        with self._lock:
            if self.quarantined:
                return
            self.quarantined = reason
            self._memo = {}
        self.mark.impose(reason)

    def units(self) -> list[Unit]:
        with self._lock:
            return list(self._units.values())

    def untold_builds(self) -> list[Unit]:
        """Padded graphs whose building time the daemon does not know."""
        return [
            unit for unit in self.units() if unit.built_ms > 0 and not unit.built_told and not unit.exact and unit.ready
        ]

    # -- figures ----------------------------------------------------------------------------------------------------

    def details(self) -> dict[str, Any]:
        """The bucket vectors in use, by the places of the sizes, for `neuroncache.explain_last`."""
        calls: dict[int, int] = {}
        for record in self.records():
            calls[id(record.unit)] = calls.get(id(record.unit), 0) + record.calls
        units = [
            {
                "sizes": {self.chooser.families[name][0]: size for name, size in unit.buckets.items()},
                "calls": calls.get(id(unit), 0),
                "padded": not unit.exact,
                "ready": unit.ready,
            }
            for unit in self.units()
        ]
        plan = self.chooser.plan
        return {"buckets": units, "epoch": 0 if plan is None else plan.epoch, "quarantined": self.quarantined}

    def records(self) -> list[Record]:
        with self._lock:
            return [record for record in self._records.values() if isinstance(record, Record)]


def _ranges(document: dict[str, Any]) -> dict[str, tuple[float, float]]:
    result: dict[str, tuple[float, float]] = {}
    for entry in document["symbols"]:
        low, high = entry.get("range", ["-inf", "inf"])
        result[entry["id"]] = (float(low), float(high))
    return result


def _binder(document: dict[str, Any], symbols: Sequence[str]) -> Callable[[Sequence[Any]], Any]:
    """A function that takes the sizes from the arguments of the forward graph: a tuple, or the one size there is."""
    numbers: dict[str, int] = {}
    dims: dict[str, tuple[int, int]] = {}
    for index, entry in enumerate(document["inputs"]):
        kind = entry["type"]
        if entry["kind"] == "symbol" and isinstance(kind.get("int"), str):
            numbers.setdefault(kind["int"], index)
        elif isinstance(kind, dict):
            for dim, size in enumerate(kind.get("d", ())):
                if isinstance(size, str):
                    dims.setdefault(size, (index, dim))
    if all(name in numbers for name in symbols):
        key: Callable[[Sequence[Any]], Any] = operator.itemgetter(*(numbers[name] for name in symbols))
        return key
    if missing := [name for name in symbols if name not in numbers and name not in dims]:
        raise Unsupported(f"the size {missing[0]} is no input and no dimension of one")

    def bind(args: Sequence[Any]) -> tuple[int, ...]:
        return tuple(
            args[numbers[name]] if name in numbers else args[dims[name][0]].shape[dims[name][1]] for name in symbols
        )

    return bind
