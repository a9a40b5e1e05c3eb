"""Padding rules that users declare for operators of their own (docs/padding.md, Declared rules).

A rule says what the engine needs to know of an operator: which dimension of a result lies along which dimensions of the
arguments, what the padding of an argument must hold, and what that of a result holds then. The engine takes it at its word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from neuroncache.errors import PaddingRuleError
from neuroncache.locks import module_lock

GIVES = ("any", "finite", "nonnegative", "positive", "zero")
NEEDS = ("any", "finite", "zero")
TORCH_NAMESPACES = frozenset(["aten", "prims", "prim", "inductor", "rngprims", "mkldnn", "mkl", "quantized"])


_rules: dict[str, dict[str, Any]] = {}
_lock = module_lock()


def register(
    op: Any, kind: str, *, gives: Any, outputs: Any, needs: Any, sums: Any, samples: Iterable[Any] | None
) -> None:
    """See `neuroncache.api.register_padding_rule`."""
    overload = overload_of(op)
    rule = rule_of(overload, kind, gives=gives, outputs=outputs, needs=needs, sums=sums)
    if samples is not None:
        _test(overload, rule, samples)
    with _lock:
        _rules[str(overload)] = rule


def check_rule(op: Any, samples: Iterable[Any]) -> None:
    """See `neuroncache.api.check_padding_rule`."""
    overload = overload_of(op)
    rule = _rules.get(str(overload))
    if rule is None:
        raise PaddingRuleError(f"{overload} has no padding rule; declare one with neuroncache.register_padding_rule")
    _test(overload, rule, samples)


def _test(op: torch._ops.OpOverload, rule: dict[str, Any], samples: Iterable[Any]) -> None:
    from neuroncache.bucketing import rule_check

    rule_check.test(op, rule, samples)


def table(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The rules for those of the operators that have one, for a request."""
    return {name: _rules[name] for name in sorted(set(names)) if name in _rules}


def forget() -> None:
    """Drops all rules."""
    with _lock:
        _rules.clear()


# -- what a rule may say ----------------------------------------------------------------------------------------------


def overload_of(op: Any) -> torch._ops.OpOverload:
    """The operator in whatever form a user has it. Raises `PaddingRuleError`."""
    given = op
    if isinstance(op, str):
        parts = op.replace("::", ".").split(".")
        try:
            for part in parts:
                op = getattr(torch.ops if op is given else op, part)
        except AttributeError:
            raise PaddingRuleError(f"there is no operator '{given}'; a name is like 'mylib::swish'") from None
    op = getattr(op, "_opoverload", op)  # what torch.library.custom_op returns
    if isinstance(op, torch._ops.OpOverloadPacket):
        names = op.overloads()
        if len(names) != 1:
            raise PaddingRuleError(f"{op} has the overloads {', '.join(names)}; name one, as in {op}.{names[0]}")
        op = getattr(op, names[0])
    if not isinstance(op, torch._ops.OpOverload):
        raise PaddingRuleError(
            f"{given!r} is no operator; one is made by torch.library.custom_op or torch.library.Library"
        )
    if op.namespace in TORCH_NAMESPACES:
        raise PaddingRuleError(f"{op} is an operator of torch: its rule is part of neuroncache")
    if op._schema.is_mutable:
        raise PaddingRuleError(f"{op} changes an argument: it cannot be padded")
    return op


def rule_of(op: torch._ops.OpOverload, kind: str, *, gives: Any, outputs: Any, needs: Any, sums: Any) -> dict[str, Any]:
    """The rule as the engine takes it. Raises `PaddingRuleError` for what cannot be meant."""
    if kind not in ("pointwise", "along"):
        raise PaddingRuleError(f"a rule for {op} is of kind {kind!r}; kinds are 'pointwise' and 'along'")
    if kind == "pointwise":
        if outputs is not None or needs is not None or sums is not None:
            raise PaddingRuleError(f"a pointwise rule for {op} has 'gives' and nothing else")
        return {"kind": "pointwise", "gives": _one_of(op, "gives", gives, GIVES)}
    results = op._schema.returns
    if outputs is None and len(results) == 1:
        raise PaddingRuleError(f"a rule for {op} has no outputs: say what each dimension of the result follows")
    outputs = [outputs] if isinstance(outputs, Mapping) else outputs
    if not isinstance(outputs, Sequence) or len(outputs) != len(results):
        raise PaddingRuleError(f"a rule for {op} needs one output for each of its {len(results)} results")
    rule: dict[str, Any] = {"kind": "along", "outputs": [_output(op, one, gives) for one in outputs]}
    if sums:
        rule["sums"] = [_place(op, one) for one in sums]
    checked = {str(_input(op, name)): _one_of(op, "needs", state, NEEDS) for name, state in dict(needs or {}).items()}
    for number, _ in rule.get("sums", ()):
        if checked.setdefault(str(number), "zero") != "zero":
            raise PaddingRuleError(f"argument {number} of {op} is summed up: its padding needs to be zero")
    if checked:
        rule["needs"] = checked
    return rule


def _output(op: Any, output: Any, gives: Any) -> dict[str, Any] | None:
    if output is None:
        return None
    if not isinstance(output, Mapping):
        output = {"follows": output}
    if unknown := set(output) - {"follows", "gives"}:
        raise PaddingRuleError(f"an output of a rule for {op} has '{min(unknown)}'; it has 'follows' and 'gives'")
    follows = output.get("follows")
    if not isinstance(follows, Sequence):
        raise PaddingRuleError(
            f"an output of a rule for {op} has no 'follows', a list with an entry for each dimension"
        )
    dims = [None if not one else [_place(op, place) for place in _places(one)] for one in follows]
    return {"follows": dims, "gives": _one_of(op, "gives", output.get("gives", gives), GIVES)}


def _places(entry: Any) -> list[Any]:
    """One place may be given for a list of one."""
    return [entry] if isinstance(entry, Sequence) and isinstance(entry[0], (int, str)) else list(entry)


def _place(op: Any, place: Any) -> list[int]:
    if not isinstance(place, Sequence) or isinstance(place, str) or len(place) != 2 or type(place[1]) is not int:
        raise PaddingRuleError(f"{place!r} in a rule for {op} is no pair of an argument and a dimension")
    return [_input(op, place[0]), place[1]]


def _input(op: Any, argument: Any) -> int:
    """The number of an argument, which may be given by its name."""
    arguments = op._schema.arguments
    names = [one.name for one in arguments]
    number = names.index(argument) if argument in names else argument
    if isinstance(number, str) and number.isdigit():
        number = int(number)
    if type(number) is not int or not 0 <= number < len(arguments):
        raise PaddingRuleError(f"{op} has no argument {argument!r}; it has {', '.join(names)}")
    if "Tensor" not in str(arguments[number].type):
        raise PaddingRuleError(f"argument {names[number]} of {op} is no tensor")
    return number


def _one_of(op: Any, what: str, value: Any, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise PaddingRuleError(f"'{what}' in a rule for {op} is {value!r}; allowed are {', '.join(allowed)}")
    return str(value)
