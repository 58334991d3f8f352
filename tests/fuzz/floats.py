"""The operations of the language on floats: what comes of intervals.

Most functions rise or fall, so that the ends of an interval give the ends of the result, and an
operation of two operands has its extremes at corners. The others say where they do not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from dmlc.scalars import DataType as T
from tests.fuzz.possible import (
    Array,
    Floats,
    Rules,
    Wholes,
    finish,
    flush,
    has_infinity,
    has_zero,
    higher,
    lower,
    truth,
    without,
)

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _pairs(a: Floats, b: Floats) -> list[tuple[Array, Array]]:
    lefts = [a.low] if a.exact else [a.low, a.high]
    rights = [b.low] if b.exact else [b.low, b.high]
    return [(x, y) for x in lefts for y in rights]


def _corners(function: Callable[..., Array], a: Floats, b: Floats) -> tuple[Array, Array, Array]:
    """The hull of what a function gives at the corners, and where one of them is NaN."""
    low: Array | None = None
    high: Array | None = None
    nan: Array | None = None
    with np.errstate(all="ignore"):
        for x, y in _pairs(a, b):
            value = np.asarray(function(x, y))
            bad = np.isnan(value)
            if nan is None:
                nan = bad
                low, high = value, value
                if bad.any():
                    low, high = np.where(bad, math.inf, value), np.where(bad, -math.inf, value)
                continue
            nan = nan | bad
            low = lower(low, np.where(bad, math.inf, value))
            high = higher(high, np.where(bad, -math.inf, value))
    assert low is not None
    assert high is not None
    assert nan is not None
    if not (a.exact and b.exact) or nan.any():
        some = a.some & b.some
        low, high = without(low, high, some)
        nan = nan & some
    elif not (a.nan.any() or b.nan.any()):
        high = low
    return low, high, nan


def _has_finite(v: Floats) -> Array:
    return v.some & ~(np.isinf(v.low) & (v.low == v.high))


def _is_single(a: Floats, b: Floats) -> Array:
    return (a.low == a.high) & (b.low == b.high)


def _with_zeros(low: Array, high: Array, where: Array) -> tuple[Array, Array]:
    """Intervals that reach to both zeros."""
    least, most = lower(low, np.full((), -0.0)), higher(high, np.zeros(()))
    return np.where(where, least, low), np.where(where, most, high)


def _add(rules: Rules, a: Floats, b: Floats) -> Floats:
    low, high, nan = _corners(np.add, a, b)
    return finish(rules, a.dtype, low, high, nan | a.nan | b.nan)


def _subtract(rules: Rules, a: Floats, b: Floats) -> Floats:
    low, high, nan = _corners(np.subtract, a, b)
    return finish(rules, a.dtype, low, high, nan | a.nan | b.nan)


def multiply(rules: Rules, a: Floats, b: Floats) -> Floats:
    low, high, nan = _corners(np.multiply, a, b)
    if not (a.exact and b.exact):
        nan = nan | (has_zero(a) & has_infinity(b)) | (has_zero(b) & has_infinity(a))
        # Corners of zero and infinity hide the zeros between.
        hidden = (has_zero(a) & _has_finite(b)) | (has_zero(b) & _has_finite(a))
        low, high = _with_zeros(low, high, hidden & ~_is_single(a, b))
    made = finish(rules, a.dtype, low, high, nan | a.nan | b.nan)
    top = np.maximum(np.maximum(a.top, b.top), made.top)
    least = np.minimum(np.minimum(a.least, b.least), made.least)
    return dataclasses.replace(made, top=top, least=least)


def divide(rules: Rules, a: Floats, b: Floats) -> Floats:
    low, high, nan = _corners(np.divide, a, b)
    if not (a.exact and b.exact):
        wide = has_zero(b) & ~((b.low == b.high) & (np.signbit(b.low) == np.signbit(b.high)))
        wide = wide & a.some & b.some
        low, high = np.where(wide, -math.inf, low), np.where(wide, math.inf, high)
        nan = nan | (has_zero(a) & has_zero(b)) | (has_infinity(a) & has_infinity(b))
        hidden = _has_finite(a) & has_infinity(b)
        low, high = _with_zeros(low, high, hidden & ~_is_single(a, b))
    off = rules.quotient if a.dtype is T.FLOAT32 else rules.double
    made = finish(rules, a.dtype, low, high, nan | a.nan | b.nan, off)
    top = np.maximum(np.maximum(a.top, b.top), made.top)
    least = np.minimum(np.minimum(a.least, b.least), made.least)
    return dataclasses.replace(made, top=top, least=least)


def _remainder(rules: Rules, a: Floats, b: Floats) -> Floats:
    low, high, nan = _corners(np.fmod, a, b)
    if not (a.exact and b.exact):
        single = (a.low == a.high) & (b.low == b.high)
        single &= np.signbit(a.low) == np.signbit(a.high)
        size_a = np.maximum(np.abs(a.low), np.abs(a.high))
        size_b = np.maximum(np.abs(b.low), np.abs(b.high))
        most = np.minimum(size_a, size_b)
        some = a.some & b.some
        wide_low = np.where(np.signbit(a.low), -most, 0.0)
        wide_high = np.where(np.signbit(a.high), -0.0, most)
        low = np.where(single, low, wide_low)
        high = np.where(single, high, wide_high)
        low, high = without(low, high, some)
        nan = np.where(single, nan, has_zero(b) | has_infinity(a)) & some
    return finish(rules, a.dtype, low, high, nan | a.nan | b.nan)


def _minimum(rules: Rules, a: Floats, b: Floats) -> Floats:
    return _extreme(rules, a, b, lambda x, y: np.where(y < x, y, x))


def _maximum(rules: Rules, a: Floats, b: Floats) -> Floats:
    return _extreme(rules, a, b, lambda x, y: np.where(y > x, y, x))


def _extreme(rules: Rules, a: Floats, b: Floats, pick: Callable[..., Array]) -> Floats:
    """The first operand on a tie; NaN where one is."""
    some = a.some & b.some
    low, high = without(pick(a.low, b.low), pick(a.high, b.high), some)
    if not (a.exact and b.exact):
        # Where the operands overlap at zero, either may be the first.
        low = np.where((low == 0) & some & (has_zero(a) | has_zero(b)), -0.0, low)
        high = np.where((high == 0) & some & (has_zero(a) | has_zero(b)), 0.0, high)
    elif some.all():
        high = low
    return finish(rules, a.dtype, low, high, a.nan | b.nan)


def _negate(rules: Rules, a: Floats) -> Floats:
    if a.exact:
        low = -a.low
        return dataclasses.replace(a, low=low, high=low)
    low, high = without(-a.high, -a.low, a.some)
    return dataclasses.replace(a, low=low, high=high)


def _absolute(rules: Rules, a: Floats) -> Floats:
    if a.exact:
        low = np.abs(a.low)
        return finish(rules, a.dtype, low, low, a.nan)
    ends = np.abs(a.low), np.abs(a.high)
    crosses = np.signbit(a.low) & ~np.signbit(a.high)
    low = np.where(crosses, 0.0, np.minimum(*ends))
    low, high = without(low, np.maximum(*ends), a.some)
    return finish(rules, a.dtype, low, high, a.nan)


def _sign(rules: Rules, a: Floats) -> Floats:
    def sign(x: Array) -> Array:
        return np.where(x == 0, x, np.where(x > 0, 1.0, -1.0))

    low, high = without(sign(a.low), sign(a.high), a.some)
    return finish(rules, a.dtype, low, high, a.nan)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64)


_ALL = (-math.inf, math.inf)
_MONOTONE: dict[str, tuple[Callable[..., Array], tuple[float, float], bool]] = {
    "floor": (np.floor, _ALL, True), "ceil": (np.ceil, _ALL, True), "round": (np.rint, _ALL, True),
    "trunc": (np.trunc, _ALL, True), "sqrt": (np.sqrt, (0, math.inf), True),
    "exp": (np.exp, _ALL, True), "exp2": (np.exp2, _ALL, True), "expm1": (np.expm1, _ALL, True),
    "log": (np.log, (0, math.inf), True), "log2": (np.log2, (0, math.inf), True),
    "log1p": (np.log1p, (-1, math.inf), True), "asin": (np.arcsin, (-1, 1), True),
    "acos": (np.arccos, (-1, 1), False), "atan": (np.arctan, _ALL, True),
    "sinh": (np.sinh, _ALL, True), "tanh": (np.tanh, _ALL, True), "asinh": (np.arcsinh, _ALL, True),
    "acosh": (np.arccosh, (1, math.inf), True), "atanh": (np.arctanh, (-1, 1), True),
    "erf": (_erf, _ALL, True), "sigmoid": (_sigmoid, _ALL, True),
}  # fmt: skip
"""What it gives, where it is defined, and whether it rises."""
_ROUNDING = ("floor", "ceil", "round", "trunc")


def _monotone(rules: Rules, name: str, a: Floats) -> Floats:
    function, (least, most), rises = _MONOTONE[name]
    off = 0.0 if name in _ROUNDING else rules.function
    if name == "sqrt":
        off = rules.root if a.dtype is T.FLOAT32 else 0.0
    outside = a.some & ((a.low < least) | (a.high > most))
    some = a.some & (a.high >= least) & (a.low <= most)
    low, high = a.low, a.high
    if outside.any():
        low, high = np.where(low < least, least, low), np.where(high > most, most, high)
        if least == 0:
            low = np.where((a.low < 0) & (a.high >= 0), -0.0, low)
    with np.errstate(all="ignore"):
        if a.exact and some.all() and not outside.any():
            value = np.asarray(function(low))
            return finish(rules, a.dtype, value, value, a.nan, off)
        low, high = function(np.where(some, low, 0.5)), function(np.where(some, high, 0.5))
    low, high = without(low if rises else high, high if rises else low, some)
    return finish(rules, a.dtype, low, high, a.nan | outside, off)


def _rsqrt(rules: Rules, a: Floats) -> Floats:
    outside = a.some & (a.low < 0)
    some = a.some & (a.high >= 0)
    with np.errstate(all="ignore"):
        bottom = np.where(outside, 0.0, a.low)
        high, low = (
            1 / np.sqrt(np.where(some, bottom, 1.0)),
            1 / np.sqrt(np.where(some, a.high, 1.0)),
        )
    wide = some & has_zero(a) & ((a.low != a.high) | (np.signbit(a.low) != np.signbit(a.high)))
    low, high = np.where(wide, -math.inf, low), np.where(wide, math.inf, high)
    low, high = without(low, high, some)
    return finish(rules, a.dtype, low, high, a.nan | outside, rules.function)


def _cosh(rules: Rules, a: Floats) -> Floats:
    size = _absolute(rules, a)
    with np.errstate(all="ignore"):
        low, high = without(np.cosh(size.low), np.cosh(size.high), a.some)
    return finish(rules, a.dtype, low, high, a.nan, rules.function)


def _periodic(rules: Rules, name: str, a: Floats) -> Floats:
    function = {"sin": np.sin, "cos": np.cos, "tan": np.tan}[name]
    infinite = has_infinity(a)
    finite = a.some & ~infinite
    some = a.some & ~((a.low == a.high) & infinite)
    with np.errstate(all="ignore"):
        low, high = np.where(finite, a.low, 0.0), np.where(finite, a.high, 0.0)
        width = high - low
        middle = function(low)
        slope = width if name != "tan" else 4 * width * (1 + middle * middle)
        least, most = middle - slope, middle + slope
        if name != "tan":
            least, most = np.maximum(least, -1.0), np.minimum(most, 1.0)
            wide = infinite | (width > 1)
            least, most = np.where(wide, -1.0, least), np.where(wide, 1.0, most)
        else:
            wide = infinite | (width * (1 + np.abs(middle)) > 1e-2)
            least, most = np.where(wide, -math.inf, least), np.where(wide, math.inf, most)
        crossing = (width > 0) | (low == 0) & (np.signbit(a.low) != np.signbit(a.high))
        least = np.where((least == 0) & crossing, -0.0, least)
        most = np.where((most == 0) & crossing, 0.0, most)
    least, most = without(least, most, some)
    return finish(rules, a.dtype, least, most, a.nan | infinite, rules.function)


def _power(rules: Rules, a: Floats, b: Floats) -> Floats:
    low, high, nan = _corners(np.power, a, b)
    single = (a.low == a.high) & (b.low == b.high)
    single &= (np.signbit(a.low) == np.signbit(a.high)) & (np.signbit(b.low) == np.signbit(b.high))
    some = a.some & b.some
    wide = some & ~single & ((a.low <= 0) | has_zero(b) & has_infinity(a))
    low, high = np.where(wide, -math.inf, low), np.where(wide, math.inf, high)
    nan = nan | wide
    # Whether pow(NaN, 0) and pow(1, NaN) are 1 is left open.
    one = (a.nan & has_zero(b)) | (b.nan & (a.low <= 1) & (a.high >= 1))
    one |= (a.nan | b.nan) & some
    low, high = (
        np.where(one, lower(low, np.ones(())), low),
        np.where(one, higher(high, np.ones(())), high),
    )
    return finish(rules, a.dtype, low, high, nan | a.nan | b.nan, rules.function)


def _angle(rules: Rules, a: Floats, b: Floats) -> Floats:
    low, high, nan = _corners(np.arctan2, a, b)
    single = (a.low == a.high) & (np.signbit(a.low) == np.signbit(a.high))
    single = single & (b.low == b.high) & (np.signbit(b.low) == np.signbit(b.high))
    wide = a.some & b.some & ~single & has_zero(a)
    low, high = np.where(wide, -math.pi, low), np.where(wide, math.pi, high)
    return finish(rules, a.dtype, low, high, nan | a.nan | b.nan, rules.function)


def compare_floats(name: str, a: Floats, b: Floats) -> Wholes:
    some, nan = a.some & b.some, a.nan | b.nan
    if name in ("gt", "ge"):
        return compare_floats({"gt": "lt", "ge": "le"}[name], b, a)
    if name == "lt":
        return truth(some & (a.low < b.high), nan | (some & (a.high >= b.low)))
    if name == "le":
        return truth(some & (a.low <= b.high), nan | (some & (a.high > b.low)))
    can = some & (a.low <= b.high) & (b.low <= a.high)
    alike = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    cannot = nan | (some & ~alike)
    return truth(can, cannot) if name == "eq" else truth(cannot, can)


_BINARY = {
    "add": _add, "sub": _subtract, "mul": multiply, "div": divide,
    "div_nearest": divide, "mod": _remainder,
    "min": _minimum, "max": _maximum, "pow": _power, "atan2": _angle,
}  # fmt: skip
_UNARY = {
    "neg": _negate, "abs": _absolute, "sign": _sign, "rsqrt": _rsqrt, "cosh": _cosh,
}  # fmt: skip


def apply_floats(rules: Rules, name: str, *given: Floats) -> Floats | Wholes:
    """An operation on floats of one type."""
    operands = [flush(rules, v) for v in given]
    a = operands[0]
    if name in COMPARISONS:
        return compare_floats(name, a, operands[1])
    if name in _BINARY:
        return _BINARY[name](rules, a, operands[1])
    if name in _MONOTONE:
        return _monotone(rules, name, a)
    if name in _UNARY:
        return _UNARY[name](rules, a)
    match name:
        case "sin" | "cos" | "tan":
            return _periodic(rules, name, a)
        case "isnan":
            return truth(a.nan, a.some)
        case "isinf":
            single = np.isinf(a.low) & (a.low == a.high)
            return truth(has_infinity(a), a.nan | (a.some & ~single))
        case _:
            raise ValueError(name)
