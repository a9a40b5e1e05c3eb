"""Size expressions: from sympy to the nested lists of docs/ir.md, with symbols numbered by the graph, not by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy
import torch

from neuroncache.errors import Unsupported

Expr: TypeAlias = "int | str | list[Any]"

# Names of the operators; every other class of sympy or torch keeps its own name, which is as stable as the torch build.
_OPERATORS = {"Add": "+", "Mul": "*", "Pow": "**", "FloorDiv": "//", "Mod": "%", "PythonMod": "%"}
_COMMUTATIVE = frozenset(["+", "*", "Max", "Min", "And", "Or", "Equality", "Unequality"])


class Symbols:
    """Numbers the symbols of one graph in order of first use, and turns expressions into lists."""

    def __init__(self) -> None:
        self.ids: dict[sympy.Symbol, str] = {}
        self._shape_env: Any = None
        self._resolved: dict[str, str] = {}  # symbols that turned out to be something else, by name
        self._memo: dict[Any, Expr] = {}

    def declare(self, value: Any) -> None:
        """Numbers the symbol of a value that is a single symbol; anything else is left for later."""
        expression = self._expression(value)
        if isinstance(expression, sympy.Symbol):
            self._id(expression)

    def export(self, value: int | torch.SymInt | torch.SymFloat | torch.SymBool | sympy.Basic) -> Expr:
        """The expression of an int, a symbolic number or a sympy expression."""
        if type(value) is int:
            return value
        return self._export(self._expression(value))

    def by_name(self) -> dict[str, str]:
        """Ids by the names that symbols have in this process, those included that torch has replaced by constants."""
        return {symbol.name: identity for symbol, identity in self.ids.items()} | self._resolved

    def ranges(self) -> list[dict[str, Any]]:
        """The table of symbols: id and value range, in order of their numbers."""
        bounds = getattr(self._shape_env, "var_to_range", {})
        table: list[dict[str, Any]] = []
        for symbol, name in self.ids.items():
            entry: dict[str, Any] = {"id": name}
            if (known := bounds.get(symbol)) is not None:
                entry["range"] = [_bound(known.lower), _bound(known.upper)]
            table.append(entry)
        return table

    def known(self, fixed: Sequence[tuple[sympy.Basic, int]]) -> list[list[Any]]:
        """Those of the expressions that hold these symbols alone, each with the number that it is."""
        return [
            [self.export(expression), number]
            for expression, number in fixed
            if all(symbol in self.ids for symbol in expression.free_symbols)
        ]

    def hints(self) -> dict[str, int | float]:
        """The sizes that the graph was traced with, by symbol id. No part of the graph's identity."""
        values = getattr(self._shape_env, "backed_var_to_val", {})
        result: dict[str, int | float] = {}
        for symbol, name in self.ids.items():
            value = values.get(symbol)
            if value is not None:
                result[name] = int(value) if value.is_integer else float(value)
        return result

    def _expression(self, value: Any) -> sympy.Basic:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            node = value.node
            if self._shape_env is None:
                self._shape_env = getattr(node, "shape_env", None)
            # Nodes traced early still name symbols that were found to be equal to others, or constant, later.
            original, expression = getattr(node, "_expr", None), node.expr
            if isinstance(original, sympy.Symbol) and expression != original:
                self._resolved.setdefault(original.name, f"r{len(self._resolved)}")
            return expression
        return sympy.sympify(value)

    def _id(self, symbol: sympy.Symbol) -> str:
        if symbol not in self.ids:
            # Backed sizes, unbacked sizes and floats are told apart: s, u, f. Torch's own names start with
            # s / u / zf / zuf, followed by a hash or a counter that must leave no trace.
            text = symbol.name
            kind = "f" if text.startswith("z") else "u" if text.startswith("u") else "s"
            self.ids[symbol] = f"{kind}{len(self.ids)}"
        return self.ids[symbol]

    def _export(self, expression: Any) -> Expr:
        if isinstance(expression, sympy.Symbol):
            return self._id(expression)
        known = self._memo.get(expression)
        if known is not None:
            return known
        result = self._compound(expression)
        self._memo[expression] = result
        return result

    def _compound(self, expression: Any) -> Expr:
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if isinstance(expression, sympy.Rational):
            return ["rational", int(expression.p), int(expression.q)]
        if isinstance(expression, sympy.Float):
            return ["float", float(expression).hex()]
        if expression in (sympy.true, sympy.false):
            return ["bool", int(bool(expression))]
        name = type(expression).__name__
        if not expression.args:
            return [name]  # infinities
        if isinstance(expression, (sympy.Mul, sympy.Pow)):
            expanded = sympy.expand(expression)
            if expanded != expression:
                return self._export(expanded)
        operator = _OPERATORS.get(name, name)
        arguments = [self._export(argument) for argument in expression.args]
        if operator in _COMMUTATIVE:
            # sympy sorts by symbol name; here the order must follow from the numbers alone.
            arguments.sort(key=json.dumps)
        return [operator, *arguments]


def _bound(value: Any) -> int | str:
    if isinstance(value, (int, sympy.Integer)):
        return int(value)
    text = str(value)
    if text in ("oo", "int_oo", "-oo", "-int_oo"):
        return "-inf" if text.startswith("-") else "inf"
    if isinstance(value, sympy.Float):
        return float(value).hex()
    raise Unsupported(f"a symbol's range ends at {text}")


def rename(expression: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with other ids for its symbols. Raises `Unsupported` for a symbol that has no other id."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        if expression not in names:
            raise Unsupported(f"the symbol {expression} is not known")
        return names[expression]
    operator, *arguments = expression
    if operator == "float":
        return expression
    return [operator, *(rename(argument, names) for argument in arguments)]


def evaluate(expression: Expr, values: Mapping[str, int | float]) -> int | float:
    """The number that an exported expression stands for. Raises `Unsupported` for an operator or symbol it does not know."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        if expression not in values:
            raise Unsupported(f"the symbol {expression} has no value")
        return values[expression]
    operator, *arguments = expression
    if operator == "float":
        return float.fromhex(arguments[0])
    numbers = [evaluate(argument, values) for argument in arguments]
    if operator == "+":
        return sum(numbers)
    if operator == "*":
        product: int | float = 1
        for number in numbers:
            product *= number
        return product
    function = _FUNCTIONS.get(operator)
    if function is None:
        raise Unsupported(f"sizes with {operator} cannot be evaluated")
    try:
        return function(*numbers)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise Unsupported(f"a size cannot be evaluated: {operator} of {numbers}: {error}") from None


def _clean_div(number: Any, divisor: Any) -> Any:
    if number % divisor:
        raise ValueError("the division leaves a remainder")
    return number // divisor


# What the operators mean, by the names of the grammar and of torch's own classes (torch.utils._sympy.functions).
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "//": lambda number, divisor: number // divisor,
    "%": lambda number, divisor: number % divisor,
    "**": lambda base, exponent: base**exponent,
    "Max": lambda *numbers: max(numbers),
    "Min": lambda *numbers: min(numbers),
    "rational": lambda numerator, denominator: numerator / denominator,
    "bool": bool,
    "Abs": abs,
    "CeilDiv": lambda number, divisor: -(-number // divisor),
    "CleanDiv": _clean_div,
    "ModularIndexing": lambda base, divisor, modulus: (base // divisor) % modulus,
    "PowByNatural": lambda base, exponent: base**exponent,
    "FloatPow": lambda base, exponent: float(base) ** exponent,
    "FloatTrueDiv": lambda number, divisor: number / divisor,
    "IntTrueDiv": lambda number, divisor: number / divisor,
    "ToFloat": float,
    "TruncToInt": math.trunc,
    "TruncToFloat": lambda number: float(math.trunc(number)),
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "floor": math.floor,
    "ceiling": math.ceil,
    "RoundToInt": round,
    "Identity": lambda number: number,
    "Where": lambda condition, positive, negative: positive if condition else negative,
    "OpaqueUnaryFn_sqrt": math.sqrt,
    "OpaqueUnaryFn_log2": math.log2,
    "OpaqueUnaryFn_exp": math.exp,
    "Equality": lambda left, right: left == right,
    "Unequality": lambda left, right: left != right,
    "StrictLessThan": lambda left, right: left < right,
    "LessThan": lambda left, right: left <= right,
    "StrictGreaterThan": lambda left, right: left > right,
    "GreaterThan": lambda left, right: left >= right,
    "And": lambda *conditions: all(conditions),
    "Or": lambda *conditions: any(conditions),
    "Not": lambda condition: not condition,
}
