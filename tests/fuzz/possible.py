"""What each element of a computation may be on a device that keeps the language's rules.

A float is an interval, with NaN or without: where the arithmetic is exact it holds one number, and
everything else is as wide as the rules allow, no wider. Whole numbers and booleans are known or
not. So a result is judged without an idea of how it was computed, and what overflows, cancels or
is a close call is judged rightly.

All of this is written from the rules in the documentation, in NumPy, and takes none of the
compiler's arithmetic; of the compiler it knows the names of data types alone. Here is what values
are, and what is converted, chosen and stored; `operations` computes with them, and `folds` reduces.
"""

from __future__ import annotations

import dataclasses
import math

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
    """Units in the last place that quotients of FLOAT32 may be off by."""
    double: float = 0.0
    """The same of FLOAT64."""
    root: float = 3.0
    """The same of square roots of FLOAT32."""
    function: float = 16.0
    """The same of transcendental functions."""


REFERENCE = Rules(rounds=False, quotient=0.0, root=0.0, function=16.0)
DEVICE = Rules(rounds=True)
FLUSHING = Rules(rounds=True, flushes=True)
STRICT = Rules(rounds=True, flushes=True, double=3.0, root=5.0)
PLACES = Rules(rounds=True, quotient=0.0, root=0.0, function=0.0)
"""What depends on positions alone: FLOAT32, operation by operation, on every device alike."""


def place_rules(rules: Rules) -> Rules:
    """How what depends on positions alone is computed. A device that computes it itself, and does
    not find it in a table, has its own functions and square roots."""
    if rules is REFERENCE:
        return PLACES
    return dataclasses.replace(PLACES, function=rules.function, root=rules.root)


def fold_rules(rules: Rules, placed: bool) -> Rules:
    """How a reduction is computed, and what is made of one, of positions alone or of elements: the
    former is known when a function is compiled, and so are its operations in FLOAT32."""
    return DEVICE if placed and rules is REFERENCE else rules


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


def limits(dtype: T) -> tuple[int, int]:
    info = np.iinfo(dtype.dtype)
    return int(info.min), int(info.max)


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


def without(v_low: Array, v_high: Array, some: Array) -> tuple[Array, Array]:
    """The ends of intervals, those empty that are to hold no number."""
    return np.where(some, v_low, math.inf), np.where(some, v_high, -math.inf)


def has_zero(v: Floats) -> Array:
    return (v.low <= 0) & (v.high >= 0)


def has_infinity(v: Floats) -> Array:
    return v.some & (np.isinf(v.low) | np.isinf(v.high))


def everything(dtype: T, shape: tuple[int, ...]) -> Floats:
    return Floats(
        dtype, np.full(shape, -math.inf), np.full(shape, math.inf), np.ones(shape, np.bool_)
    )


# Conversions and choices -------------------------------------------------------------------


def truth(can: Array, cannot: Array) -> Wholes:
    """A boolean that can be true, or false, or both."""
    return Wholes(T.BOOL, np.asarray(can), np.asarray(can ^ cannot))


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
            return truth(
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
        low, high = without(low, high, some)
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
