"""A symbolic graph of Dynamo to its dispatcher; the first thing here that `neuroncache.backend` calls."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from neuroncache import canonical, compat, config, counters, log
from neuroncache.bucketing import blackbox, engine, policy, report, wording
from neuroncache.bucketing.buckets import Chooser, families_of
from neuroncache.bucketing.capture import Captured, Side, capture
from neuroncache.bucketing.dispatch import Dispatcher
from neuroncache.bucketing.exact import ExactShapes
from neuroncache.bucketing.inner import Inductor, Inner, StaticBackend
from neuroncache.bucketing.plan import Plan, Refusal, SubPlan
from neuroncache.bucketing.quarantine import Quarantine
from neuroncache.bucketing.units import Pair
from neuroncache.cache import Cache
from neuroncache.errors import Unsupported, passes_through
from neuroncache.expr import Expr


def wanted(name: str) -> bool:
    """Whether symbolic graphs for this backend get buckets."""
    mode = config.get("bucketing")
    return mode != "off" and (mode == "on" or is_static(name)) and (name == "inductor" or is_static(name))


def is_static(name: str) -> bool:
    """Whether a backend is one that compiles fixed sizes only."""
    return name in config.get("static_backends")


def has_symbols(gm: fx.GraphModule) -> bool:
    """Whether a graph of Dynamo has sizes that are open."""
    for node in gm.graph.nodes:
        if node.op != "placeholder":
            continue
        value = node.meta.get("example_value")
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return True
        if isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape):
            return True
    return False


def with_buckets(
    name: str,
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: dict[str, Any],
    stock: Callable[[Any, Any], Any],
    cache: Cache,
) -> tuple[Callable[..., Any] | None, str]:
    """The callable for Dynamo, and why it has no buckets ('': it has). None: compile the graph as it is, symbols and all; for a static-only backend it is compiled once per
    shape instead. Signals to Dynamo pass through, and so does everything when ``strict`` is on and it is no refusal."""
    static = is_static(name)
    inner: Inner
    if static and blackbox.is_black_box(name):
        inner = blackbox.BlackBox(name, stock)
    else:
        inner = StaticBackend(name, stock) if static else Inductor(options, cache)
    try:
        return compile_symbolic(gm, example_inputs, inner, cache, stock), ""
    except Unsupported as error:
        reason = f"{error.op}: {error.reason}" if error.op else error.reason
        counters.refusal(error.op, error.reason, error.source)
        frame = policy.current()
        log.info(
            "%s, for %s: not padded, %s: %s%s",
            frame.label if frame is not None else "a graph",
            name,
            "compiled once per shape" if static else "compiled as a symbolic graph",
            reason,
            f" ({error.source})" if error.source else "",
        )
    except Exception as error:
        if passes_through(error) or config.get("strict"):
            raise
        reason = f"{type(error).__name__}: {error}"
        counters.count("errors")
        log.warn("buckets", f"a graph has no buckets after {type(error).__name__}: {error}")
        log.logger.debug("neuroncache: cause of the above", exc_info=True)
    return ExactShapes(gm, name, stock).function if static else None, reason


def compile_symbolic(
    gm: fx.GraphModule, example_inputs: Sequence[Any], inner: Inner, cache: Cache, stock: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    """The callable for Dynamo. Raises `Unsupported` (a `Refusal` of the engine among them) for a graph that stays symbolic."""
    if reason := compat.transforms_active():
        raise Unsupported(reason)
    if compat.fakified_first_call():
        raise Unsupported("the first call is made with fake tensors")
    if compat.compiled_autograd_active():
        raise Unsupported("compiled autograd is on")
    dispatcher = Dispatcher()
    try:
        planned = _planned(gm, example_inputs, inner, dispatcher, inner.improve)
    except Exception as error:
        if inner.static_only or passes_through(error) or getattr(error, "passing", False):
            raise
        # What inductor made of the graph may be what has no rule.
        dispatcher = Dispatcher()
        planned = _planned(gm, example_inputs, inner, dispatcher, lambda graph: graph)
    function, captured, plan, request = planned
    assert captured.forward is not None
    traced = time.monotonic()
    quarantine = Quarantine(cache, engine.digest(request), plan.engine)
    if reason := quarantine.reason():
        raise Unsupported(f"padding it gave a wrong result before: {reason}")
    pair = Pair(captured, plan.forward, plan.backward, _exact(captured))
    symbols = captured.forward.graph.symbols
    frame = policy.current()
    nodes = len(captured.forward.graph.document["nodes"])
    label = f"{frame.label if frame is not None else 'graph'}, {nodes} nodes"
    program = report.program_key(frame.program if frame is not None else "", captured.forward.graph.digest)
    chooser = Chooser(
        list(symbols.ids.values()),
        plan.symbols,
        plan.unify,
        families_of(gm, symbols, compat.shape_env_of(example_inputs)),
    )
    dispatcher.prepare(pair, plan, inner, chooser, _guards(captured, plan, example_inputs), label, program, quarantine)
    report.first_plan(dispatcher, frame.known if frame is not None else frozenset())
    report.start()
    if inner.differentiates:
        function = blackbox.Calls(dispatcher, gm, ExactShapes(gm, inner.name, stock)).function

    counters.seconds("prepare", time.monotonic() - traced)
    places = {name: chooser.families[name] for name in plan.symbols}
    counters.note(
        function=label,
        symbols=places,
        masks=plan.masks,
        unify=[list(pair) for pair in plan.unify],
        details=weakref.WeakMethod(dispatcher.details),
    )
    log.info(
        "%s, for %s: runs padded; sizes that vary: %s; %d masks%s",
        label,
        inner.name,
        chooser.describe(),
        plan.masks,
        f"; first calls are compared with exact ones, for {', '.join(plan.unproven)}" if plan.unproven else "",
    )
    return function


def _planned(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    inner: Inner,
    dispatcher: Dispatcher,
    improve: Callable[[fx.GraphModule], fx.GraphModule],
) -> tuple[Callable[..., Any], Captured, Plan, dict[str, Any]]:
    """The graph as AOTAutograd has it, and the plan for it with its request. Raises `Unsupported`, a `Refusal` with the
    user's line."""
    started = time.monotonic()
    if inner.differentiates:
        blackbox.check_graph(gm)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not inner.differentiates):
        function, captured = capture(
            gm,
            example_inputs,
            decompositions=inner.decompositions(),
            forward=dispatcher.forward,
            backward=dispatcher.backward,
            improve=improve,
        )
    assert captured.forward is not None
    counters.seconds("trace", time.monotonic() - started)
    started = time.monotonic()
    fixed = compat.known_sizes(compat.shape_env_of(example_inputs))
    request = captured.request(random=config.get("padded_random"), fixed=fixed)
    if inner.differentiates:
        request["claims"] = True
    answer = engine.plan_for(request)
    constants = [side.graph.constants for side in captured.sides()]
    try:
        plan = Plan.parse(answer, request, *constants)
    except Refusal as error:
        error.source = _source(captured, error)
        error.reason = wording.legend(error.reason, _places(gm, captured, error, example_inputs))
        raise
    if inner.differentiates:
        wanted_for = [isinstance(value, torch.Tensor) and value.requires_grad for value in example_inputs]
        blackbox.check_capture(answer, plan.forward, wanted_for)
    counters.seconds("plan", time.monotonic() - started)
    return function, captured, plan, request


def _places(
    gm: fx.GraphModule, captured: Captured, refusal: Refusal, example_inputs: Sequence[Any]
) -> dict[str, list[str]]:
    """What the symbols in a refusal stand for."""
    assert captured.forward is not None
    families = families_of(gm, captured.forward.graph.symbols, compat.shape_env_of(example_inputs))
    if refusal.graph != "backward" or captured.backward is None:
        return families
    return {name: families[forward] for name, forward in captured.backward_names().items()}


def _exact(captured: Captured) -> tuple[SubPlan, SubPlan | None]:
    forward, backward = captured.forward, captured.backward
    assert forward is not None
    exact = SubPlan.exact(forward.graph.document, forward.graph.constants)
    if backward is None:
        return exact, None
    return exact, SubPlan.exact(backward.graph.document, backward.graph.constants, captured.backward_names())


def _source(captured: Captured, refusal: Refusal) -> str:
    """The user's line at fault."""
    side: Side | None = captured.backward if refusal.graph == "backward" else captured.forward
    if side is None or refusal.node is None or not 0 <= refusal.node < len(side.graph.origins):
        return ""
    return canonical.source_line(side.graph.origins[refusal.node])


def _guards(captured: Captured, plan: Plan, inputs: Sequence[Any]) -> list[Expr]:
    """Conditions of the trace on padded sizes, to be taken at the buckets. Raises `Unsupported` for one that cannot be."""
    assert captured.forward is not None
    symbols = captured.forward.graph.symbols
    padded = set(plan.symbols)
    result: list[Expr] = []
    for guard in compat.guards_of(compat.shape_env_of(inputs)):
        names = {symbols.ids.get(symbol) for symbol in guard.free_symbols}
        if not names & padded:
            continue
        if None in names:
            raise Unsupported(f"a size is bound to one that the graph does not have: {guard}")
        result.append(symbols.export(guard))
    return result
