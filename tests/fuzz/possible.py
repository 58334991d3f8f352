"""What each element of a computation may be on a device that keeps the language's rules.

A float is an interval, with NaN or without: where the arithmetic is exact it holds one number, and
everything else is as wide as the rules allow, no wider. Whole numbers and booleans are known or
not. So a result is judged without an idea of how it was computed, and what overflows, cancels or
is a close call is judged rightly.

This is written from the rules in the documentation, in NumPy, and takes none of the compiler's
arithmetic; of the compiler it knows the names of data types alone. `folds` has the reductions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from dmlc.scalars import DataType as T

Array = npt.NDArray


@dataclasses.dataclass(frozen=True)
class Rules:
    """How floats are computed somewhere."""

    rounds: bool
    """Whether FLOAT32 is rounded after every operation; else it is computed in float64."""
    flushes: bool = False
    """Whether FLOAT32 denormals may count as zero."""
    quotient: float = 3.0
    """Units in the last place that division and roots may be off by."""
    function: float = 16.0
    """The same of transcendental functions."""


REFERENCE = Rules(rounds=False, quotient=0.0, function=16.0)
DEVICE = Rules(rounds=True)
FLUSHING = Rules(rounds=True, flushes=True)
PLACES = Rules(rounds=True, quotient=0.0, function=0.0)
"""What depends on positions alone: FLOAT32, operation by operation, on every device alike."""


def place_rules(rules: Rules) -> Rules:
    """How what depends on positions alone is computed. A device that computes it itself, and does
    not find it in a table, has its own functions."""
    return PLACES if rules is REFERENCE else dataclasses.replace(PLACES, function=rules.function)

_TINY = 2.0**-126


@dataclasses.dataclass(frozen=True)
class Floats:
    """Intervals. An empty one, `low` being infinite and `high` minus infinite, is NaN for sure. A
    zero that may have either sign runs from -0 to 0."""

    dtype: T
    low: Array
    high: Array
    nan: Array
    """Where it may be NaN."""
    top: Array | float = 0.0
    """The largest factor of a product, for sums that factors may be taken out of."""
    least: Array | float = math.inf
    """The smallest."""

    @property
    def exact(self) -> bool:
        return self.low is self.high

    @property
    def some(self) -> Array:
        """Where it may be a number."""
        return self.low <= self.high


@dataclasses.dataclass(frozen=True)
class Wholes:
    """Whole numbers, booleans among them, where they are `known`."""

    dtype: T
    value: Array
    known: Array


Values = Floats | Wholes


def is_float(dtype: T) -> bool:
    return dtype in (T.FLOAT64, T.FLOAT32, T.FLOAT16, T.BFLOAT16)


def known_floats(dtype: T, values: Array) -> Floats:
    """Numbers that are what they are."""
    wide = np.asarray(values, np.float64)
    nan = np.isnan(wide)
    size = np.where(nan, 0.0, np.abs(wide))
    least = np.where(size == 0, math.inf, size)
    if not nan.any():
        return Floats(dtype, wide, wide, nan, size, least)
    return Floats(
        dtype, np.where(nan, math.inf, wide), np.where(nan, -math.inf, wide), nan, size, least
    )


def known_wholes(dtype: T, values: Array | int | bool) -> Wholes:
    made = np.asarray(values, dtype.dtype)
    return Wholes(dtype, made, np.ones(made.shape, np.bool_))


def load(dtype: T, values: Array) -> Values:
    """Elements of a tensor, in the type they are computed in."""
    if is_float(dtype):
        return known_floats(dtype.compute, values.astype(np.float64))
    return known_wholes(dtype, values)


def constant(dtype: T, value: float | int | bool) -> Values:
    """A literal in a compute type."""
    if dtype is T.FLOAT32:
        return known_floats(dtype, np.asarray(_to_float32(np.float64(value))))
    if dtype is T.FLOAT64:
        return known_floats(dtype, np.asarray(value, np.float64))
    return known_wholes(dtype, value)


def spread(v: Values, shape: tuple[int, ...]) -> Values:
    """The values of every element of a shape."""
    def wide(a: Array) -> Array:
        return np.broadcast_to(a, shape)

    if isinstance(v, Wholes):
        return Wholes(v.dtype, wide(v.value), wide(v.known))
    low = wide(v.low)
    top, least = wide(np.asarray(v.top)), wide(np.asarray(v.least))
    return Floats(v.dtype, low, low if v.exact else wide(v.high), wide(v.nan), top, least)


# Intervals ---------------------------------------------------------------------------------


def lower(a: Array, b: Array) -> Array:
    """The smaller; -0 is below 0."""
    return np.where((a < b) | ((a == b) & np.signbit(a)), a, b)


def higher(a: Array, b: Array) -> Array:
    return np.where((a > b) | ((a == b) & ~np.signbit(a)), a, b)


def _to_float32(values: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.float32).astype(np.float64)


def flush(rules: Rules, v: Floats) -> Floats:
    """An operand as an operation may see it."""
    if not rules.flushes or v.dtype is not T.FLOAT32:
        return v
    small = ((np.abs(v.low) < _TINY) & (v.low != 0)) | ((np.abs(v.high) < _TINY) & (v.high != 0))
    if not (small & v.some).any():
        return v
    low = np.where((v.low > 0) & (v.low < _TINY), 0.0, v.low)
    high = np.where((v.high < 0) & (v.high > -_TINY), -0.0, v.high)
    return dataclasses.replace(v, low=low, high=high)


def finish(
    rules: Rules, dtype: T, low: Array, high: Array, nan: Array, ulps: float = 0.0
) -> Floats:
    """A result that may be off by some units, rounded."""
    exact = low is high and not ulps
    with np.errstate(all="ignore"):
        if ulps:
            single = dtype is T.FLOAT32 and rules.rounds
            unit = ulps * (2.0**-23 if single else 2.0**-52)
            step = ulps * (2.0**-149 if single else 5e-324)
            still = (low == high) & ((low == 0) | np.isinf(low))
            low, high = (
                np.where(still | np.isinf(low), low, low - (np.abs(low) * unit + step)),
                np.where(still | np.isinf(high), high, high + (np.abs(high) * unit + step)),
            )
        if dtype is T.FLOAT32 and rules.rounds:
            low = _to_float32(low)
            high = low if exact else _to_float32(high)
    size = np.maximum(np.abs(low), np.abs(high))
    size = np.where(np.isfinite(size), size, 0.0)
    made = Floats(dtype, low, high, nan, size, np.where(size == 0, math.inf, size))
    return flush(rules, made)


def _empty(v_low: Array, v_high: Array, some: Array) -> tuple[Array, Array]:
    return np.where(some, v_low, math.inf), np.where(some, v_high, -math.inf)


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
    assert low is not None and high is not None and nan is not None
    if not (a.exact and b.exact) or nan.any():
        some = a.some & b.some
        low, high = _empty(low, high, some)
        nan = nan & some
    elif not (a.nan.any() or b.nan.any()):
        high = low
    return low, high, nan


def has_zero(v: Floats) -> Array:
    return (v.low <= 0) & (v.high >= 0)


def has_infinity(v: Floats) -> Array:
    return v.some & (np.isinf(v.low) | np.isinf(v.high))


def everything(dtype: T, shape: tuple[int, ...]) -> Floats:
    return Floats(
        dtype, np.full(shape, -math.inf), np.full(shape, math.inf), np.ones(shape, np.bool_)
    )


# Arithmetic on floats ----------------------------------------------------------------------


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
    off = rules.quotient if a.dtype is T.FLOAT32 else 0.0
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
        low, high = _empty(low, high, some)
        nan = np.where(single, nan, has_zero(b) | has_infinity(a)) & some
    return finish(rules, a.dtype, low, high, nan | a.nan | b.nan)


def _minimum(rules: Rules, a: Floats, b: Floats) -> Floats:
    return _extreme(rules, a, b, lambda x, y: np.where(y < x, y, x))


def _maximum(rules: Rules, a: Floats, b: Floats) -> Floats:
    return _extreme(rules, a, b, lambda x, y: np.where(y > x, y, x))


def _extreme(rules: Rules, a: Floats, b: Floats, pick: Callable[..., Array]) -> Floats:
    """The first operand on a tie; NaN where one is."""
    some = a.some & b.some
    low, high = _empty(pick(a.low, b.low), pick(a.high, b.high), some)
    if not (a.exact and b.exact):
        # Where the operands overlap at zero, either may be the first.
        low = np.where((low == 0) & some & (has_zero(a) | has_zero(b)), -0.0, low)
        high = np.where((high == 0) & some & (has_zero(a) | has_zero(b)), 0.0, high)
    elif some.all():
        high = low
    return finish(rules, a.dtype, low, high, a.nan | b.nan)


def _clamp(rules: Rules, x: Values, low: Values, high: Values) -> Values:
    return apply(rules, "min", apply(rules, "max", x, low), high)


def _negate(rules: Rules, a: Floats) -> Floats:
    if a.exact:
        low = -a.low
        return dataclasses.replace(a, low=low, high=low)
    low, high = _empty(-a.high, -a.low, a.some)
    return dataclasses.replace(a, low=low, high=high)


def _absolute(rules: Rules, a: Floats) -> Floats:
    if a.exact:
        low = np.abs(a.low)
        return finish(rules, a.dtype, low, low, a.nan)
    ends = np.abs(a.low), np.abs(a.high)
    crosses = np.signbit(a.low) & ~np.signbit(a.high)
    low = np.where(crosses, 0.0, np.minimum(*ends))
    low, high = _empty(low, np.maximum(*ends), a.some)
    return finish(rules, a.dtype, low, high, a.nan)


def _sign(rules: Rules, a: Floats) -> Floats:
    def sign(x: Array) -> Array:
        return np.where(x == 0, x, np.where(x > 0, 1.0, -1.0))

    low, high = _empty(sign(a.low), sign(a.high), a.some)
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
        off = rules.quotient if a.dtype is T.FLOAT32 else 0.0
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
    low, high = _empty(low if rises else high, high if rises else low, some)
    return finish(rules, a.dtype, low, high, a.nan | outside, off)


def _rsqrt(rules: Rules, a: Floats) -> Floats:
    outside = a.some & (a.low < 0)
    some = a.some & (a.high >= 0)
    with np.errstate(all="ignore"):
        bottom = np.where(outside, 0.0, a.low)
        high, low = 1 / np.sqrt(np.where(some, bottom, 1.0)), 1 / np.sqrt(np.where(some, a.high, 1.0))
    wide = some & has_zero(a) & ((a.low != a.high) | (np.signbit(a.low) != np.signbit(a.high)))
    low, high = np.where(wide, -math.inf, low), np.where(wide, math.inf, high)
    low, high = _empty(low, high, some)
    return finish(rules, a.dtype, low, high, a.nan | outside, rules.function)


def _cosh(rules: Rules, a: Floats) -> Floats:
    size = _absolute(rules, a)
    with np.errstate(all="ignore"):
        low, high = _empty(np.cosh(size.low), np.cosh(size.high), a.some)
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
    least, most = _empty(least, most, some)
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
    low, high = np.where(one, lower(low, np.ones(())), low), np.where(one, higher(high, np.ones(())), high)
    return finish(rules, a.dtype, low, high, nan | a.nan | b.nan, rules.function)


def _angle(rules: Rules, a: Floats, b: Floats) -> Floats:
    low, high, nan = _corners(np.arctan2, a, b)
    single = (a.low == a.high) & (np.signbit(a.low) == np.signbit(a.high))
    single &= (b.low == b.high) & (np.signbit(b.low) == np.signbit(b.high))
    wide = a.some & b.some & ~single & has_zero(a)
    low, high = np.where(wide, -math.pi, low), np.where(wide, math.pi, high)
    return finish(rules, a.dtype, low, high, nan | a.nan | b.nan, rules.function)


# Comparisons and conversions ---------------------------------------------------------------


def _truth(can: Array, cannot: Array) -> Wholes:
    """A boolean that can be true, or false, or both."""
    return Wholes(T.BOOL, np.asarray(can), np.asarray(can ^ cannot))


def _compare(name: str, a: Floats, b: Floats) -> Wholes:
    some, nan = a.some & b.some, a.nan | b.nan
    if name in ("gt", "ge"):
        return _compare({"gt": "lt", "ge": "le"}[name], b, a)
    if name == "lt":
        return _truth(some & (a.low < b.high), nan | (some & (a.high >= b.low)))
    if name == "le":
        return _truth(some & (a.low <= b.high), nan | (some & (a.high > b.low)))
    can = some & (a.low <= b.high) & (b.low <= a.high)
    alike = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    cannot = nan | (some & ~alike)
    return _truth(can, cannot) if name == "eq" else _truth(cannot, can)


def _compare_wholes(name: str, a: Wholes, b: Wholes) -> Wholes:
    made = {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
        "gt": np.greater, "ge": np.greater_equal,
    }[name](a.value, b.value)  # fmt: skip
    return Wholes(T.BOOL, np.asarray(made), a.known & b.known)


def limits(dtype: T) -> tuple[int, int]:
    info = np.iinfo(dtype.dtype)
    return int(info.min), int(info.max)


def _to_whole(values: Array, to: T) -> Array:
    """Truncated and saturated."""
    least, most = limits(to)
    with np.errstate(all="ignore"):
        whole = np.trunc(np.where(np.isnan(values), 0.0, values))
        low, high = whole <= float(least), whole >= float(most)
        made = np.where(low | high, 0.0, whole).astype(to.dtype)
    made = np.where(low, to.dtype.type(least), made)
    return np.where(high, to.dtype.type(most), made).astype(to.dtype)


def cast(rules: Rules, v: Values, to: T) -> Values:
    """A conversion between compute types."""
    if isinstance(v, Floats):
        if v.dtype is to:
            return v
        if is_float(to):
            kind = dataclasses.replace(rules, rounds=True)  # A conversion rounds everywhere.
            seen = flush(kind, v)
            return finish(kind, to, seen.low, seen.low if seen.exact else seen.high, seen.nan)
        seen = flush(rules, v)
        if to is T.BOOL:
            return _truth(
                seen.nan | (seen.some & ~((seen.low == 0) & (seen.high == 0))),
                seen.some & has_zero(seen),
            )
        low, high = _to_whole(seen.low, to), _to_whole(seen.high, to)
        low, high = np.where(seen.some, low, 0), np.where(seen.some, high, 0)
        known = (low == high) & (~seen.nan | (low == 0))
        return Wholes(to, low.astype(to.dtype), known)
    if to is T.BOOL:
        return Wholes(to, v.value != 0, v.known)
    if not is_float(to):
        with np.errstate(all="ignore"):
            return Wholes(to, v.value.astype(to.dtype), v.known)
    least, most = (0, 1) if v.dtype is T.BOOL else limits(v.dtype)
    values = v.value.astype(np.float32 if to is T.FLOAT32 else np.float64).astype(np.float64)
    made = known_floats(to, values)
    if v.known.all():
        return made
    low = np.where(v.known, made.low, float(least))
    high = np.where(v.known, made.high, float(most))
    return dataclasses.replace(made, low=low, high=high)


def select(condition: Wholes, then: Values, otherwise: Values) -> Values:
    """What is not chosen does not show."""
    chosen, sure = condition.value, condition.known
    if isinstance(then, Floats):
        assert isinstance(otherwise, Floats)
        if then.exact and otherwise.exact and sure.all():
            low = np.where(chosen, then.low, otherwise.low)
            high = low if not (then.nan.any() or otherwise.nan.any()) else np.where(
                chosen, then.high, otherwise.high)  # fmt: skip
            return Floats(
                then.dtype, low, high, np.where(chosen, then.nan, otherwise.nan),
                np.maximum(then.top, otherwise.top), np.minimum(then.least, otherwise.least),
            )  # fmt: skip
        either = (lower(then.low, otherwise.low), higher(then.high, otherwise.high))
        low = np.where(sure, np.where(chosen, then.low, otherwise.low), either[0])
        high = np.where(sure, np.where(chosen, then.high, otherwise.high), either[1])
        nan = np.where(sure, np.where(chosen, then.nan, otherwise.nan), then.nan | otherwise.nan)
        return Floats(
            then.dtype, low, high, nan,
            np.maximum(then.top, otherwise.top), np.minimum(then.least, otherwise.least),
        )  # fmt: skip
    assert isinstance(otherwise, Wholes)
    value = np.where(chosen, then.value, otherwise.value)
    alike = then.known & otherwise.known & (then.value == otherwise.value)
    known = np.where(sure, np.where(chosen, then.known, otherwise.known), alike)
    return Wholes(then.dtype, value, known)


# Whole numbers -----------------------------------------------------------------------------


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


_BINARY = {
    "add": _add, "sub": _subtract, "mul": multiply, "div": divide, "mod": _remainder,
    "min": _minimum, "max": _maximum, "pow": _power, "atan2": _angle,
}  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def apply(rules: Rules, name: str, *given: Values) -> Values:
    """An operation of the language on operands of one type."""
    if name == "clamp":
        return _clamp(rules, *given)
    whole = [v for v in given if isinstance(v, Wholes)]
    if len(whole) == len(given):
        if name in COMPARISONS:
            return _compare_wholes(name, whole[0], whole[1])
        return _apply_wholes(name, whole)
    floats = [flush(rules, v) for v in given if isinstance(v, Floats)]
    a = floats[0]
    if name in COMPARISONS:
        return _compare(name, a, floats[1])
    if name in _BINARY:
        return _BINARY[name](rules, a, floats[1])
    if name in _MONOTONE:
        return _monotone(rules, name, a)
    match name:
        case "round_float16" | "round_bfloat16":
            half = T.FLOAT16 if name == "round_float16" else T.BFLOAT16
            return reload(store(rules, a, half), half)
        case "neg":
            return _negate(rules, a)
        case "abs":
            return _absolute(rules, a)
        case "sign":
            return _sign(rules, a)
        case "rsqrt":
            return _rsqrt(rules, a)
        case "cosh":
            return _cosh(rules, a)
        case "sin" | "cos" | "tan":
            return _periodic(rules, name, a)
        case "isnan":
            return _truth(a.nan, a.some)
        case "isinf":
            return _truth(has_infinity(a), a.nan | (a.some & ~(np.isinf(a.low) & (a.low == a.high))))
        case _:
            raise ValueError(name)


# Storage -----------------------------------------------------------------------------------


def round_to(values: Array, dtype: T) -> Array:
    """Numbers as a tensor of a type holds them: rounded once, to nearest even."""
    with np.errstate(all="ignore"):
        if dtype is T.FLOAT16:
            return values.astype(np.float16).astype(np.float64)
        if dtype is T.FLOAT32:
            return _to_float32(values)
        if dtype is not T.BFLOAT16:
            return values
        finite = np.isfinite(values)
        safe = np.where(finite, values, 0.0)
        _, exponent = np.frexp(safe)
        step = np.ldexp(1.0, np.maximum(exponent - 8, -133))
        made = np.rint(safe / step) * step
        made = np.where(np.abs(made) >= 2.0**128, np.copysign(math.inf, safe), made)
        return np.where(finite, np.copysign(made, safe), values)


def store(rules: Rules, v: Values, dtype: T) -> Values:
    """What a tensor holds of a value."""
    if not isinstance(v, Floats) or dtype is T.FLOAT64:
        return v
    if dtype is T.BFLOAT16:
        v = flush(rules, v)
    some = v.some
    low = round_to(np.where(some, v.low, 0.0), dtype)
    high = low if v.exact else round_to(np.where(some, v.high, 0.0), dtype)
    if not some.all():
        low, high = _empty(low, high, some)
    return dataclasses.replace(v, low=low, high=high)


def reload(v: Values, dtype: T) -> Values:
    """What was stored, as an operand."""
    if isinstance(v, Floats):
        size = np.maximum(np.abs(v.low), np.abs(v.high))
        size = np.where(np.isfinite(size), size, 0.0)
        return dataclasses.replace(v, dtype=dtype.compute, top=size,
                                   least=np.where(size == 0, math.inf, size))  # fmt: skip
    return v


def find_wrong(v: Values, got: Array) -> Array:
    """Where a result is none of what it may be."""
    if isinstance(v, Wholes):
        value, known = np.broadcast_arrays(v.value, v.known)
        return np.broadcast_to(known & (value != got), got.shape)
    number = np.asarray(got).astype(np.float64)
    nan = np.isnan(number)
    with np.errstate(all="ignore"):
        inside = (number >= v.low) & (number <= v.high)
        # The sign of a zero, where only one can be.
        zero = (number == 0) & (v.low == 0) & np.signbit(number) & ~np.signbit(v.low)
        zero |= (number == 0) & (v.high == 0) & ~np.signbit(number) & np.signbit(v.high)
    right = np.where(nan, v.nan, inside & ~zero)
    return np.broadcast_to(~right, got.shape)


assert ml_dtypes.bfloat16 is T.BFLOAT16.dtype.type
