"""Comparison rules of the offload-test-suite for results with a tolerance per element.

A rule has one tolerance for a whole buffer, while each result has its own. So two rules check a
buffer, against shifted expected values: if the rule's tolerance is T and an element's is b, one has
the expected value plus (T - b), the other minus it. A result within T of both is within b of the
expected value. Shifted values are rounded so that right results pass; results wrong by one or two
units in the last place may pass as well.

`BufferFloatEpsilon` compares FLOAT32 and FLOAT64 by their difference. 16-bit types have too few
values for that: `BufferFloatULP` counts the representable values between two. It does so for words
of bfloat16 too, for which the suite has no type: only words that would be a NaN of its own type,
values of at least 2**121, are not distinguished."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dmlc.scalars import Array, DataType
from dmlc.source import UnsupportedError

_SIGN, _WORD = 0x8000, 0xFFFF
_LARGEST = 0x7BFF
"""The word of the largest FLOAT16."""
_EXACT = ("ULPT", "0")
_KEEP = ("DenormMode", "Preserve")
"""Otherwise a zero stands for a denormal, whatever the tolerance."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Comparison of a buffer that a kernel wrote."""

    title: str
    name: str
    settings: tuple[tuple[str, str], ...]
    actual: str
    buffer: str
    """The buffer of expected values."""
    expected: Array
    """Its elements, of the type of those that they are compared with."""


def make_rules(name: str, expected: Array, allowed: Array, dtype: DataType) -> list[Rule]:
    """Rules for an array. Raises `UnsupportedError` if some element has an infinite tolerance, as
    no rule skips an element."""
    held = np.isfinite(expected.astype(np.float64))
    most_off = allowed[held].max(initial=0.0)
    if most_off == 0:
        if not dtype.is_float:
            return [Rule(name, "BufferExact", (), name, f"{name}.expected", expected)]
        settings = (_EXACT,) if dtype.bytes == 2 else (_EXACT, _KEEP)
        return [Rule(name, "BufferFloatULP", settings, name, f"{name}.expected", expected)]
    if not dtype.is_float or not most_off < math.inf:
        raise refuse_results(name)
    allowed = np.where(held, allowed, 0.0)
    if dtype.bytes != 2:
        return _compare_values(name, expected, allowed, held, dtype)
    words, clipped = _compare_words(name, expected, allowed, held, dtype)
    if clipped and dtype is DataType.FLOAT16:
        return words + _compare_values(name, expected, allowed, held, dtype)
    return words


def refuse_results(name: str) -> UnsupportedError:
    """Error for results with an infinite tolerance."""
    return UnsupportedError(
        f"elements of '{name}' may be off by any amount with these inputs, and a rule of the "
        "offload-test-suite leaves no element out",
        notes=["give inputs that are no close calls, and nowhere near the largest numbers"],
    )


def _make_pair(
    name: str,
    least: Array,
    most: Array,
    rule: str,
    tolerance: tuple[tuple[str, str], ...],
    unit: str,
) -> list[Rule]:
    """The two rules of a tolerance."""
    return [
        Rule(f"{name} is large enough{unit}", rule, tolerance, name, f"{name}.above{unit}", most),
        Rule(f"{name} is small enough{unit}", rule, tolerance, name, f"{name}.below{unit}", least),
    ]


def _compare_values(
    name: str, expected: Array, allowed: Array, held: Array, dtype: DataType
) -> list[Rule]:
    """Rules that compare by differences."""
    kind = dtype.dtype.type
    exact = np.where(held, expected, 0.0).astype(np.float64)
    reach = float(_up(np.asarray(allowed.max()), dtype))
    with np.errstate(all="ignore"):
        # Moved values are rounded by up to a step here and there: the tolerance has room for these.
        limit = np.finfo(kind).max
        size = np.minimum((np.abs(exact).max() + 4.0 * reach).astype(kind), limit / 2)
        tolerance = float(_up(np.asarray(reach + 8.0 * float(np.spacing(size))), dtype))
        if not tolerance < limit / 2:
            raise refuse_results(name)
        most = _down(exact + (tolerance - allowed), dtype)
        least = -_down(-exact + (tolerance - allowed), dtype)
    # The suite wants differences below it, not up to it.
    epsilon = tolerance + 4.0 * float(np.spacing(kind(tolerance)))
    low, high = (np.where(held, values, expected) for values in (least, most))
    settings = (("Epsilon", repr(epsilon)), *((_KEEP,) if dtype.bytes > 2 else ()))
    unit = ".difference" if dtype.bytes == 2 else ""
    return _make_pair(name, low, high, "BufferFloatEpsilon", settings, unit)


def _up(values: Array, dtype: DataType) -> Array:
    """Values rounded up to a type."""
    return -_down(-values, dtype)


def _down(values: Array, dtype: DataType) -> Array:
    """Values rounded down to a type, clamped to its finite range. The given float64 may be rounded
    themselves."""
    kind = dtype.dtype.type
    lower = np.nextafter(values, -math.inf)
    stored = lower.astype(kind)
    below = np.where(stored > lower, np.nextafter(stored, kind(-math.inf)), stored)
    limit = np.finfo(kind).max
    return np.clip(below, -limit, limit).astype(kind)


# Steps between words ---------------------------------------------------------------------------


def _compare_words(
    name: str, expected: Array, allowed: Array, held: Array, dtype: DataType
) -> tuple[list[Rule], bool]:
    """Rules that count representable values between words, and whether some words could not be
    shifted far enough, so that the rules are too lenient for them."""
    words = expected.view(np.uint16)
    # What the suite takes for NaN is not moved.
    held = held & ((words & ~np.uint16(_SIGN)) <= _LARGEST)
    exact = np.where(held, expected.astype(np.float64), 0.0)
    first = _rank_within(exact - allowed, dtype, 1)
    last = _rank_within(exact + allowed, dtype, -1)
    steps = int(np.where(held, last - first + 1, 0).max()) // 2
    limits = [_rank(np.uint16(_LARGEST | sign)) for sign in (_SIGN, 0)]
    targets = last - steps, first + steps
    clipped = any(bool(np.any(held & (t != np.clip(t, *limits)))) for t in targets)
    moved = [np.where(held, _unrank(np.clip(t, *limits)), words) for t in targets]
    least, most = (found.astype(np.uint16).view(expected.dtype) for found in moved)
    return _make_pair(name, least, most, "BufferFloatULP", (("ULPT", str(steps)),), ""), clipped


def _rank_within(values: Array, dtype: DataType, inward: int) -> Array:
    """Rank of the nearest value of a type at a value or inward of it; of the two zeros, the outer
    one."""
    with np.errstate(all="ignore"):
        stored = values.astype(dtype.dtype)
    rank = _rank(stored.view(np.uint16))
    found = stored.astype(np.float64)
    outside = found < values if inward > 0 else found > values
    zero = found == 0
    rank = np.where(zero & ~outside, _rank(np.uint16(_SIGN if inward > 0 else 0)), rank)
    return rank + np.where(outside, inward, 0)


def _rank(words: Array | np.uint16) -> Array:
    """Rank of each word of a float in the order of values; the two zeros have different ranks."""
    wide = np.asarray(words).astype(np.int64)
    return np.where(wide & _SIGN, ~wide & _WORD, wide | _SIGN)


def _unrank(ranks: Array) -> Array:
    return np.where(ranks & _SIGN, ranks & ~_SIGN, ~ranks & _WORD)
