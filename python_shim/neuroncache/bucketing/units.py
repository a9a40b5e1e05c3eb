"""What is compiled of a pair of graphs: one unit per bucket vector, and per exact shape where padding is out of the question."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from neuroncache import compat, config, counters, log
from neuroncache.bucketing.capture import Captured
from neuroncache.bucketing.inner import Function, Inner
from neuroncache.bucketing.plan import SubPlan


class Pair:
    """A captured pair of graphs with its plans: padded, and as it is."""

    def __init__(
        self, captured: Captured, forward: SubPlan, backward: SubPlan | None, exact: tuple[SubPlan, SubPlan | None]
    ) -> None:
        assert captured.forward is not None
        self.captured = captured
        self.plans: dict[tuple[str, bool], SubPlan | None] = {
            ("forward", False): forward,
            ("backward", False): backward,
            ("forward", True): exact[0],
            ("backward", True): exact[1],
        }
        self.device = _device(captured.forward.graph.document)

    def plan(self, role: str, exact: bool) -> SubPlan:
        plan = self.plans[role, exact]
        assert plan is not None
        return plan


def _device(document: dict[str, Any]) -> torch.device:
    for entry in document["inputs"]:
        kind = entry["type"]
        if isinstance(kind, dict) and "dev" in kind:
            return torch.device(kind["dev"])
    return torch.device("cpu")


class Unit:
    """The two graphs of a bucket vector, compiled when they are first needed. Threads may share one."""

    built_ms = 0.0  # what compiling them took; 0: they were in the store
    built_told = False  # the daemon knows

    def __init__(self, pair: Pair, inner: Inner, buckets: Mapping[str, int], exact: bool) -> None:
        self.pair = pair
        self.inner = inner
        self.buckets = dict(buckets)
        self.exact = exact
        self.functions: dict[str, Function] = {}
        self.checked = False  # a call of it was compared to the exact graph, or is going to be
        self.queued = False  # is to be built in the background, or was
        self.given_up = False  # that did not work
        self.stored = False  # that worked: its artifacts are in the store
        self.interpreted = False  # runs operator by operator: the compiler failed, or the shape is not worth it
        self._lock = threading.Lock()
        self._took: dict[str, float] = {}  # microseconds by role

    @property
    def ready(self) -> bool:
        """Whether a call would not have to wait for the compiler."""
        roles = 1 if self.pair.captured.inference else 2
        return len(self.functions) == roles

    def function(self, role: str, inputs: Sequence[torch.Tensor]) -> Function:
        """The compiled graph; `inputs` are those of the call that needs it."""
        known = self.functions.get(role)
        if known is not None:
            return known
        # Dynamo's lock first: whoever compiles holds it already.
        with compat.compile_lock(), self._lock:
            known = self.functions.get(role)
            if known is None:
                known = self.functions[role] = self._make(role, inputs)
        return known

    def _make(self, role: str, inputs: Sequence[torch.Tensor]) -> Function:
        if self.interpreted:
            return self.interpreter(role)
        started = time.monotonic()
        builds = counters.value("builds")
        kind = "inference" if role == "forward" and self.pair.captured.inference else role
        try:
            with torch.set_grad_enabled(self.inner.differentiates and torch.is_grad_enabled()), compat.no_tracing():
                graph = self.pair.plan(role, self.exact).instantiate(self.buckets)
                function = self.inner.compile(graph, inputs, kind)
        except Exception as error:
            if config.get("strict"):
                raise
            counters.count("errors")
            log.warn(
                "bucket",
                f"{self.inner.name} cannot compile a padded graph, which runs operator by operator: "
                f"{type(error).__name__}: {error}",
            )
            log.logger.debug("neuroncache: cause of the above", exc_info=True)
            self.interpreted = True
            return self.interpreter(role)
        seconds = time.monotonic() - started
        counters.seconds("bucket", seconds)
        if self.inner.static_only or counters.value("builds") > builds:
            self.built_ms += 1000 * seconds
        return function

    def took(self, role: str, us: float) -> None:
        """Notes the time of a call; the shortest is the one that nothing else disturbed."""
        self._took[role] = min(us, self._took.get(role, us))

    @property
    def call_us(self) -> float:
        """What a call takes, forward and backward together; 0: not known."""
        roles = 1 if self.pair.captured.inference else 2
        return sum(self._took.values()) if len(self._took) == roles and not self.interpreted else 0.0

    def interpreter(self, role: str) -> Function:
        """The graph operator by operator."""
        plan = self.pair.plan(role, self.exact)
        tensors = len(plan.tensor_inputs)

        def run(values: list[Any]) -> list[Any]:
            inputs: list[Any] = [None] * len(plan.inputs)
            for index, value in zip(plan.tensor_inputs, values, strict=False):
                inputs[index] = value
            with torch.set_grad_enabled(self.inner.differentiates and torch.is_grad_enabled()):
                raw = plan.run(self.buckets, inputs, values[tensors:])
            return [value for value, result in zip(raw, plan.outputs, strict=True) if result.value is not None]

        return run

    def replace(self, role: str, failed: Function) -> Function:
        """Another function for one that failed at its first call."""
        with self._lock:
            if self.functions.get(role) is failed:
                self.functions[role] = self.interpreter(role)
            return self.functions[role]
