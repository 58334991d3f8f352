"""The operations of the language on what may be: floats are `floats`' to compute, and whole
numbers and booleans are computed here, in Python's own numbers where NumPy's have other rules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dmlc.scalars import DataType as T
from tests.fuzz.floats import COMPARISONS, apply_floats
from tests.fuzz.possible import Array, Floats, Rules, Values, Wholes, limits, reload, store


def apply(rules: Rules, name: str, *given: Values) -> Values:
    """An operation of the language on operands of one type."""
    if name == "clamp":
        x, low, high = given
        return apply(rules, "min", apply(rules, "max", x, low), high)
    whole = [v for v in given if isinstance(v, Wholes)]
    if len(whole) == len(given):
        return _compare(name, *whole) if name in COMPARISONS else _apply_wholes(name, whole)
    floats = [v for v in given if isinstance(v, Floats)]
    if name in ("round_float16", "round_bfloat16"):
        half = T.FLOAT16 if name == "round_float16" else T.BFLOAT16
        return reload(store(rules, floats[0], half), half)
    return apply_floats(rules, name, *floats)


def _compare(name: str, a: Wholes, b: Wholes) -> Wholes:
    made = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
        "gt": np.greater, "ge": np.greater_equal,
    }[name](a.value, b.value)  # fmt: skip
    return Wholes(T.BOOL, np.asarray(made), a.known & b.known)


def _by_number(function: Callable[[int, int], int], a: Array, b: Array, dtype: T) -> Array:
    """A function of Python's whole numbers; what it gives wraps."""
    bits = 8 * dtype.bytes
    signed = limits(dtype)[0] < 0

    def wrapped(x: int, y: int) -> int:
        rest = function(int(x), int(y)) & ((1 << bits) - 1)
        return rest - (1 << bits) if signed and rest >> (bits - 1) else rest

    return np.asarray(np.frompyfunc(wrapped, 2, 1)(a, b)).astype(dtype.dtype)


def _quotient(x: int, y: int) -> int:
    if y == 0:
        return 0
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _rest(x: int, y: int) -> int:
    return 0 if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)


def _apply_wholes(name: str, given: list[Wholes]) -> Wholes:
    dtype = given[0].dtype
    known = given[0].known
    for other in given[1:]:
        known = known & other.known
    x, y = given[0].value, given[-1].value
    with np.errstate(all="ignore"):
        match name:
            case "add" | "sub" | "mul":
                made = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name](x, y)
            case "div":
                made = _by_number(_quotient, x, y, dtype)
            case "mod":
                made = _by_number(_rest, x, y, dtype)
            case "neg":
                made = _by_number(lambda p, _: -p, x, x, dtype)
            case "abs":
                made = _by_number(lambda p, _: abs(p), x, x, dtype)
            case "sign":
                made = _by_number(lambda p, _: (p > 0) - (p < 0), x, x, dtype)
            case "min" | "max":
                made = np.minimum(x, y) if name == "min" else np.maximum(x, y)
            case "and" | "bit_and":
                made = x & y
            case "or" | "bit_or":
                made = x | y
            case "bit_xor":
                made = x ^ y
            case "not":
                made = ~x
            case "bit_not":
                made = ~x
            case "shift_left" | "shift_right":
                bits = 8 * dtype.bytes
                made = _by_number(
                    (lambda p, q: p << (q % bits)) if name == "shift_left"
                    else (lambda p, q: p >> (q % bits)), x, y, dtype
                )  # fmt: skip
            case "floor" | "ceil" | "round" | "trunc":
                made = x
            case "isnan" | "isinf":
                return Wholes(T.BOOL, np.zeros(x.shape, np.bool_), np.ones(x.shape, np.bool_))
            case _:
                raise ValueError(name)
    if name in ("and", "or"):
        # What one side decides does not need the other.
        decided = name == "or"
        a, b = given
        known = known | (a.known & (a.value == decided)) | (b.known & (b.value == decided))
        sure_a, sure_b = a.known & (a.value == decided), b.known & (b.value == decided)
        made = np.where(sure_a | sure_b, decided, made)
    return Wholes(dtype, np.asarray(made, dtype.dtype), known)
