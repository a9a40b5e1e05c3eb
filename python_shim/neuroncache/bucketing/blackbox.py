"""Backends that differentiate a graph themselves: the forward graph is padded before they see it.

Such a backend takes a graph and returns a function that autograd can go through. It gets the padded forward graph, with the
padding before it and the cuts behind it as differentiable operations. The true part of the results is the same function of the
inputs, whatever they are, so its gradients are the same as well, with two provisos that `trouble` decides before and
`difference` sees on the user's data: that padding is finite all the way (zero times infinity is no zero), and that derivatives
are finite where padding is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from neuroncache import compat, config, counters, log
from neuroncache.bucketing import check
from neuroncache.bucketing.inner import Function
from neuroncache.bucketing.plan import Node, SubPlan, values_in
from neuroncache.errors import Unsupported

if TYPE_CHECKING:
    from neuroncache.bucketing.dispatch import Dispatcher
    from neuroncache.bucketing.exact import ExactShapes
    from neuroncache.bucketing.records import Record

# Derivatives that are finite wherever the arguments and the result are.
_SMOOTH = frozenset(
    """
    _log_softmax _softmax _to_copy _unsafe_view abs add addcdiv addcmul addmm alias amax amin arange as_strided_copy avg_pool1d
    avg_pool2d baddbmm bmm cat celu clamp clamp_max clamp_min clone constant_pad_nd convolution copy cos cosh cumsum diagonal div
    dot elu embedding erf exp exp2 expand expm1 flip full full_like gather gelu glu hardsigmoid hardswish hardtanh index
    index_add index_select leaky_relu lift_fresh_copy log log10 log1p log2 logsumexp masked_fill max maximum mean min minimum mish mm
    mul mv native_group_norm native_layer_norm neg nll_loss_forward ones ones_like permute pow reciprocal reflection_pad1d relu
    repeat reshape roll round rsqrt rsub scalar_tensor scatter scatter_add select sigmoid sign silu sin sinh slice slice_scatter
    softplus sort split split_with_sizes squeeze stack sub sum t tan tanh topk transpose tril triu unbind unfold unsqueeze upsample_nearest1d
    upsample_nearest2d var var_mean view view_copy where zeros zeros_like
    _scaled_dot_product_flash_attention_for_cpu scaled_dot_product_attention
    """.split()
)
# Those that take minus infinity for "not this one", and give it no gradient; and those that only move elements.
_TAKE_INFINITY = frozenset(
    "_softmax _log_softmax where amax amin maximum minimum reshape permute expand unsqueeze squeeze slice clone _to_copy".split()
)
# Those that are not finite for all finite arguments; and those that only move elements.
_PARTIAL = frozenset("div log log2 log10 log1p pow rsqrt reciprocal var var_mean tan".split())
_MOVE = frozenset("reshape permute expand unsqueeze squeeze slice clone _to_copy view transpose".split())
_CUT_OFF = frozenset(["detach", "detach_", "requires_grad_", "data", "register_hook"])
_FLOATS = frozenset(["float64", "float32", "float16", "bfloat16"])


class BlackBox:
    """A backend that gets forward graphs of fixed sizes, and differentiates what it made of them."""

    static_only = True
    differentiates = True
    background = "never"

    def __init__(self, name: str, compiler: Callable[[Any, Any], Any]) -> None:
        self.name = name
        self.compiler = compiler

    def decompositions(self) -> dict[Any, Any]:
        return compat.core_decompositions()

    def improve(self, gm: fx.GraphModule) -> fx.GraphModule:
        return gm

    def compile(self, gm: fx.GraphModule, inputs: Sequence[torch.Tensor], role: str) -> Function:
        grad = torch.is_grad_enabled()
        examples = [value.detach().requires_grad_(grad and value.requires_grad) for value in inputs]
        compat.propagate_fakes(gm, examples, keep_grad=True)
        function = self.compiler(gm, examples)
        if not callable(function):
            raise TypeError(f"the backend {self.name} returned a {type(function).__name__}, which cannot be called")
        return lambda values: function(*values)


def is_black_box(name: str) -> bool:
    """Whether a backend differentiates graphs itself."""
    return name in config.get("autograd_backends")


# -- before anything runs ---------------------------------------------------------------------------------------------


def check_graph(gm: fx.GraphModule) -> None:
    """Raises `Unsupported` for a graph of Dynamo that cuts gradients off: the functional graph does not say where."""
    for module in gm.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
            cut = node.op in ("call_method", "call_function") and (
                name in _CUT_OFF or "grad_enabled" in str(name) or "autograd_function" in str(name)
            )
            if cut or (name == "getattr" and node.args[1:2] == ("data",)):
                raise Unsupported(
                    "gradients are cut off or made by hand in it, for a backend that differentiates itself",
                    op=str(name),
                )


def check_capture(answer: Mapping[str, Any], plan: SubPlan, differentiable: Sequence[bool]) -> None:
    """Raises `Unsupported` where padding the forward graph could change gradients. `differentiable`: the inputs that
    gradients are wanted for."""
    if compat.mutated_inputs():
        raise Unsupported("an input is changed in place, for a backend that differentiates itself")
    if compat.alias_outputs():
        raise Unsupported("a result is a view of an input, for a backend that differentiates itself")
    if not check.applies(plan):
        raise Unsupported("random numbers are drawn, for a backend that differentiates itself")
    found = trouble(plan, answer["forward"].get("claims") or [], differentiable)
    if found is not None:
        node, reason = found
        raise Unsupported(f"{reason}, for a backend that differentiates itself", op=str(node.target))


def trouble(
    plan: SubPlan, claims: Sequence[Mapping[str, Any]], differentiable: Sequence[bool]
) -> tuple[Node, str] | None:
    """The first operation by whose derivative padding could reach the gradients, and why; None: there is none."""
    known = {claim["v"]: claim for claim in claims}
    on_way = {number for number, flag in enumerate(differentiable) if flag}
    padding = _Padding(known)
    infinite: set[int] = set()
    for node in plan.nodes:
        given = values_in(node)
        name = _name(node)
        padding.follow(node, given)
        if not on_way.intersection(given):
            continue
        on_way.update(node.results)
        results = [known[number] for number in node.results if number in known]
        results = [claim for claim in results if claim["t"] in _FLOATS]
        if infinite.intersection(given) and name not in _TAKE_INFINITY:
            return node, "padding that is infinite goes into it"
        padded = any(_states(claim) for claim in results) or any(
            _states(known[number]) for number in given if number in known
        )
        if not results or not padded:
            continue
        if name not in _SMOOTH and not (name == "sqrt" and padding.positive(given[0])):
            return node, "its derivative may be infinite in padding"
        if name == "pow" and not _smooth_power(node) and not padding.positive(given[0]):
            return node, "its derivative may be infinite in padding"
        for claim in results:
            if any(math.isinf(_constant(state) or 0.0) for state in _states(claim)):
                infinite.add(claim["v"])
            elif not padding.finite(claim["v"]):
                return node, "padding need not be finite behind it"
    return None


class _Padding:
    """What the padding of values holds: what the plan claims, and what follows from it. The engine claims what it needs; here a
    value has to be finite all the way, whether anything reads it or not."""

    def __init__(self, known: Mapping[int, Mapping[str, Any]]) -> None:
        self.known = known
        self._finite: set[int] = set()
        self._positive: set[int] = set()

    def finite(self, number: int) -> bool:
        claim = self.known.get(number)
        if claim is None or number in self._finite:
            return True
        states = _states(claim)
        return not any(state == "any" or not math.isfinite(_constant(state) or 0.0) for state in states)

    def positive(self, number: int) -> bool:
        claim = self.known.get(number)
        if number in self._positive:
            return True
        states = [] if claim is None else _states(claim)
        return bool(states) and all(state == "positive" or (_constant(state) or 0.0) > 0 for state in states)

    def follow(self, node: Node, given: Sequence[int]) -> None:
        name = _name(node)
        if name in ("clamp", "clamp_min") and all(map(self.finite, given)):
            least = node.args[1] if len(node.args) > 1 else None
            most = node.args[2] if len(node.args) > 2 else None
            if _number(least) > 0 and (most is None or _number(most) > 0):
                self._positive.update(node.results)
        if name in _MOVE and given and self.positive(given[0]):
            self._positive.update(node.results)
        below = (
            values_in(Node(node.target, node.args[1:2], {}, node.results, node.several, None)) if name == "div" else []
        )
        total = name in _SMOOTH - _PARTIAL or (
            name == "div" and all(map(self.positive, below)) and (bool(below) or _number(node.args[1]) != 0)
        )
        if name in ("native_layer_norm", "native_group_norm"):
            total = _number(node.args[-1]) > 0  # its epsilon
        if total and all(map(self.finite, given)):
            self._finite.update(node.results)


def _name(node: Node) -> str:
    return str(node.target).split(".")[1]


def _number(argument: Any) -> float:
    """A number among the arguments of a node, 0 for anything else."""
    if isinstance(argument, dict) and "f" in argument:
        return float.fromhex(argument["f"])
    return float(argument) if isinstance(argument, (int, float)) else 0.0


def _states(claim: Mapping[str, Any]) -> list[Any]:
    return [factor["s"] for dim in claim["d"] for factor in dim if "s" in factor]


def _constant(state: Any) -> float | None:
    if not isinstance(state, dict):
        return None
    value = state.get("c")
    if isinstance(value, dict):
        value = float.fromhex(value["f"]) if "f" in value else None
    if not isinstance(value, (int, float)):
        return None
    return math.nan if math.isnan(value) else float(value)


def _smooth_power(node: Node) -> bool:
    exponent = node.args[1] if len(node.args) > 1 else None
    if isinstance(exponent, dict) and "f" in exponent:
        exponent = float.fromhex(exponent["f"])
    return isinstance(exponent, (int, float)) and (exponent >= 1 or float(exponent).is_integer())


# -- calls ------------------------------------------------------------------------------------------------------------


class Calls:
    """What Dynamo calls. The first call of each bucket vector is made three times: padded and as the user wrote it, outputs and
    gradients compared; and then for good."""

    def __init__(self, dispatcher: Dispatcher, gm: fx.GraphModule, exact: ExactShapes) -> None:
        self.dispatcher = dispatcher
        self.gm = gm
        self.exact = exact
        self.function = torch._dynamo.disable(self._run, reason="the backend differentiates itself")

    def _run(self, *args: Any) -> Any:
        dispatcher = self.dispatcher
        if dispatcher.quarantined:
            return self.exact.function(*args)
        given = list(args)
        record = dispatcher.record_for(given)
        first = record.forward.calls == 0
        try:
            if not record.unit.checked and self._differs(record, args):
                return self.exact.function(*args)
            return tuple(_padded(record, given))
        except Exception as error:
            if not first or config.get("strict"):
                raise
            counters.count("errors")
            log.warn(
                f"rescue-{dispatcher.label}",
                f"{dispatcher.label}: a padded graph does not run: {type(error).__name__}: {error}",
            )
            dispatcher.quarantined = f"it does not run: {type(error).__name__}"
            return self.exact.function(*args)

    def _differs(self, record: Record, args: Sequence[Any]) -> bool:
        record.unit.checked = True
        problem = difference(lambda values: _padded(record, list(values)), lambda values: self.gm(*values), args)
        counters.count("verified")
        if problem:
            counters.count("mismatches")
            self.dispatcher.quarantine(problem)
            log.warn(
                f"mismatch-{self.dispatcher.label}",
                f"{self.dispatcher.label}: padded to {record.unit.buckets} the sizes {record.sizes} gave another result "
                f"({problem}); this graph is not padded any more. Please report this",
            )
        return bool(problem)


def _padded(record: Record, args: list[Any]) -> list[Any]:
    with compat.no_autocast():
        return record.forward.run(args)


def difference(
    padded: Callable[[Sequence[Any]], Any], plain: Callable[[Sequence[Any]], Any], args: Sequence[Any]
) -> str:
    """What differs between two functions of the same arguments, in outputs or in gradients; '' when nothing does."""
    outputs, gradients = [], []
    for function in (padded, plain):
        values = [
            value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
            for value in args
        ]
        results = list(function(values))
        outputs.append([one.detach() if isinstance(one, torch.Tensor) else one for one in results])
        gradients.append(_gradients(results, values))
    if problem := check._difference(outputs[0], outputs[1]):
        return f"output {problem}"
    problem = check._difference(gradients[0], gradients[1])
    return f"gradient {problem}" if problem else ""


def _gradients(results: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    leaves = [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]
    open_ = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
    if not leaves or not open_:
        return []
    numbers = torch.Generator().manual_seed(0)
    tangents = [torch.randn(one.shape, generator=numbers, dtype=torch.float64).to(one) for one in open_]
    found = torch.autograd.grad(open_, leaves, tangents, allow_unused=True)
    return [torch.zeros_like(leaf) if one is None else one for one, leaf in zip(found, leaves, strict=True)]
