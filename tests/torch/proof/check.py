"""One function at several sizes: traced once, planned, run with bad padding, compared with the unpadded eager run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import poison, tool
from .trace import Dynamic, Policy, Traced, default_choice

Choice = Callable[[dict[str, int], Callable[[dict[str, int]], bool]], "dict[str, int] | None"]

# Relative to the largest element of the compared tensor, and absolute below 1.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.bfloat16: 4e-2,
    torch.float16: 1e-2,
    torch.complex128: 1e-9,
    torch.complex64: 1e-4,
}


class Mismatch(AssertionError):
    """A padded run gave something else than the unpadded one."""


@dataclass
class Outcome:
    """What one run of a function gave: outputs, the arguments afterwards (for those changed in place), gradients."""

    outputs: list[Any]
    arguments: list[Any]
    gradients: list[Any]


@dataclass
class Verdict:
    """`status`: "bucketed", "refused" (by the engine), "skipped" (nothing to pad, or not traceable), "wrong" (results or a
    claim differ), "error" (the engine or a plan broke)."""

    status: str
    reason: str = ""
    masks: int = 0
    padded: int = 0
    notes: list[str] = field(default_factory=list)


def doubled(true: dict[str, int], allowed: Callable[[dict[str, int]], bool]) -> dict[str, int] | None:
    """Each symbol to the next power of two above twice its size, else anything."""
    buckets = {symbol: 1 << (2 * n).bit_length() for symbol, n in true.items()}
    return buckets if allowed(buckets) else default_choice(true, allowed)


def one_of(position: int) -> Choice:
    """Pads only the symbol at `position` (counted around), so that the others have no padding at all."""

    def choose(true: dict[str, int], allowed: Callable[[dict[str, int]], bool]) -> dict[str, int] | None:
        padded = position % len(true)
        for step in (3, 4, 2, 1, 8):
            buckets = {symbol: n + (step if index == padded else 0) for index, (symbol, n) in enumerate(true.items())}
            if allowed(buckets):
                return buckets
        return default_choice(true, allowed)

    return choose


# What to run at each set of arguments: the padding of inputs, and how buckets are chosen.
RUNS: list[tuple[str, Choice]] = [("any", default_choice), ("zero", doubled), ("any", one_of(0)), ("any", one_of(1))]
QUICK_RUNS = RUNS[:2]


def leaves(arguments: Sequence[Any], gradients: bool) -> list[Any]:
    """Fresh copies of the arguments, so that each run starts from the same."""
    result = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            wanted = argument.requires_grad and gradients
            argument = argument.detach().clone().requires_grad_(wanted)
        result.append(argument)
    return result


def run(function: Callable[..., Any], arguments: Sequence[Any], gradients: bool = True, seed: int = 1) -> Outcome:
    """Calls the function and differentiates a weighted sum of all its outputs."""
    ours = leaves(arguments, gradients)
    # Leaves cannot be changed in place.
    given = [
        one.view_as(one) if isinstance(one, torch.Tensor) and one.requires_grad and _changes(function) else one
        for one in ours
    ]
    result = function(*given)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    generator = torch.Generator().manual_seed(seed)
    total: Any = None
    for output in outputs:
        if isinstance(output, torch.Tensor) and output.requires_grad and output.numel():
            weight = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
            part = (output * weight).sum()
            part = part.real if part.is_complex() else part
            total = part if total is None else total + part.to(total.dtype)
    if total is not None:
        total.backward()
    return Outcome(
        [one.detach() if isinstance(one, torch.Tensor) else one for one in outputs],
        [one.detach() if isinstance(one, torch.Tensor) else one for one in given],
        [one.grad if isinstance(one, torch.Tensor) else None for one in ours],
    )


def _changes(function: Callable[..., Any]) -> bool:
    return getattr(function, "changes_arguments", False)


def difference(left: Any, right: Any, tolerance: float | None = None) -> str:
    """Empty when both are equal within the tolerance of the dtype, else what differs."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return "" if left == right or (left is None and right is None) else f"{left} against {right}"
    if left.shape != right.shape or left.dtype != right.dtype:
        return f"{left.dtype} {list(left.shape)} against {right.dtype} {list(right.shape)}"
    if left.numel() == 0:
        return ""
    if not (left.dtype.is_floating_point or left.dtype.is_complex):
        wrong = left != right
        return f"{int(wrong.sum())} of {left.numel()} elements differ" if bool(wrong.any()) else ""
    bound = TOLERANCE[left.dtype] if tolerance is None else tolerance
    wide = torch.complex128 if left.dtype.is_complex else torch.float64
    a, b = left.to(wide), right.to(wide)
    finite = b[torch.isfinite(b)]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    close = torch.isclose(a, b, rtol=0, atol=bound * scale, equal_nan=True)
    if bool(close.all()):
        return ""
    index = tuple(int(one) for one in (~close).nonzero()[0])
    return f"{int((~close).sum())} of {left.numel()} elements differ, at {index}: {a[index]} against {b[index]}"


def compare(padded: Outcome, plain: Outcome, tolerance: float | None = None) -> str:
    for name in ("outputs", "arguments", "gradients"):
        for index, (left, right) in enumerate(zip(getattr(padded, name), getattr(plain, name), strict=True)):
            if told := difference(left, right, tolerance):
                return f"{name[:-1]} {index}: {told}"
    return ""


def finite(arguments: Iterable[Any]) -> bool:
    return all(
        bool(torch.isfinite(one).all())
        for one in arguments
        if isinstance(one, torch.Tensor) and (one.dtype.is_floating_point or one.dtype.is_complex)
    )


def prove(
    function: Callable[..., Any],
    samples: Sequence[Sequence[Any]],
    dynamic: Sequence[Dynamic],
    *,
    decompositions: str = "core",
    gradients: bool = True,
    runs: Sequence[tuple[str, Choice]] = RUNS,
    masks: bool = True,
    poisoned: bool = True,
    tolerance: float | None = None,
    engine: tool.Tool | None = None,
    alternate: bool = False,
    tied: bool = False,
) -> Verdict:
    """Traces `function` with the first sample and proves the plan with all of them, each with every run of `runs`; with
    `alternate` each with one of them in turn."""
    policy = Policy()
    policy.options.masks = masks
    policy.options.poison = poisoned
    try:
        traced = Traced(
            function,
            leaves(samples[0], gradients),
            dynamic,
            policy=policy,
            decompositions=decompositions,
            engine=engine,
            tied=tied,
        )
    except tool.ToolError:
        raise
    except Exception as error:
        return Verdict("skipped", f"cannot be traced: {type(error).__name__}: {_first_line(error)}")
    if not traced.symbolic:
        return Verdict("skipped", "tracing made the sizes constant")
    traced.changes_arguments = _changes(function)  # type: ignore[attr-defined]
    verdict = Verdict("bucketed")
    for number, sample in enumerate(samples):
        if not traced.allows(*sample):
            verdict.notes.append(f"sizes {number}: the guards of the trace do not hold")
            continue
        try:
            plain = run(function, sample, gradients)
        except Exception as error:
            return Verdict("skipped", f"fails in eager mode: {type(error).__name__}: {_first_line(error)}")
        for mode, choose in [runs[number % len(runs)]] if alternate else runs:
            policy.inputs, policy.choose = mode, choose
            policy.options.seed += 1
            del traced.pair.log[:]
            told = _one(traced, sample, plain, gradients, tolerance)
            log = traced.pair.log[0] if traced.pair.log else "exact: not called"
            if log.startswith("refused: "):
                return Verdict("refused", log.removeprefix("refused: "))
            if told:
                at = traced.pair.calls_text()
                if exact := _exact_differs(traced, policy, sample, plain, gradients, tolerance):
                    return Verdict("skipped", f"the traced graph itself differs from eager: {exact}")
                if told[0] == "wrong" and told[2] and (unlike := _unlike_itself(function, sample, plain, gradients)):
                    return Verdict("skipped", f"torch itself gives something else under a dispatch mode: {unlike}")
                if told[0] == "wrong" and told[2] and (rounded := _ill_conditioned(function, sample, plain, gradients)):
                    return Verdict("skipped", f"rounding the inputs changes the results as much: {rounded}")
                return Verdict(told[0], f"{told[1]} [{mode} padding, sizes {number}, {at}]")
            if log == "padded":
                verdict.padded += 1
            else:
                verdict.notes.append(f"sizes {number}: {log}")
    answer = next(iter(traced.pair.answers.values()), {})
    verdict.masks = answer.get("masks", 0)
    if not verdict.padded:
        reason = verdict.notes[0].split(": ", 1)[1] if verdict.notes else "no call"
        return Verdict("skipped" if "guards" in reason else "refused", reason)
    return verdict


def _one(
    traced: Traced, sample: Sequence[Any], plain: Outcome, gradients: bool, tolerance: float | None
) -> tuple[str, str, bool] | None:
    """What went wrong, if anything, and whether it is a difference of numbers."""
    try:
        told = compare(run(traced, sample, gradients), plain, tolerance)
    except poison.PoisonError as error:
        return "wrong", _first_line(error), False
    except (poison.PlanError, tool.ToolError) as error:
        return "error", _first_line(error), False
    except Exception as error:
        return "error", f"{type(error).__name__}: {_first_line(error)}", False
    return ("wrong", told, True) if told else None


def _ill_conditioned(function: Callable[..., Any], sample: Sequence[Any], plain: Outcome, gradients: bool) -> str:
    """What changes when each float of the inputs moves by its rounding, far beyond the tolerance: the root of a difference that
    is zero but for rounding, say. Then no two ways to compute the function agree."""
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        moved = []
        for value in sample:
            if isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex):
                sign = torch.randint(-1, 2, value.shape, generator=generator).to(value.dtype)
                more = value.detach() * (1 + sign * torch.finfo(value.dtype).eps)
                value = more.requires_grad_(value.requires_grad)
            moved.append(value)
        try:
            if told := compare(run(function, moved, gradients), plain):
                return told
        except Exception:
            return ""
    return ""


class _Idle(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def _unlike_itself(function: Callable[..., Any], sample: Sequence[Any], plain: Outcome, gradients: bool) -> str:
    """What differs in eager torch when it runs as plans run here; linalg.pinv of complex numbers does."""
    with _Idle():
        return compare(run(function, sample, gradients), plain)


def _exact_differs(
    traced: Traced, policy: Policy, sample: Sequence[Any], plain: Outcome, gradients: bool, tolerance: float | None
) -> str:
    policy.exact = True
    try:
        return compare(run(traced, sample, gradients), plain, tolerance)
    except Exception as error:
        return f"{type(error).__name__}: {_first_line(error)}"
    finally:
        policy.exact = False


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:400]
