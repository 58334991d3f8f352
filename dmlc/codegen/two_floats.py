"""Arithmetic on pairs of float32: `h, lo` is h + lo, with lo below half a unit in the last place of
h.

Dekker's products and Knuth's sums give the second float of a pair; `float32` says what the rest of
its functions, and these, are for.
"""

from __future__ import annotations

from dmlc.codegen.trace import (
    Value,
    absolute,
    bits,
    define,
    from_bits,
    let,
    select,
    signed_bits,
    smaller,
)


def leading_half(x: Value) -> Value:
    """The upper 12 bits of the significand: products of two such are exact."""
    return from_bits(bits(x) & 0xFFFFF000)


@define
def product_tail(a: Value, b: Value, p: Value) -> Value:
    """a * b - p exactly, where p is a * b rounded."""
    ah = let(ah=leading_half(a))
    bh = let(bh=leading_half(b))
    al = let(al=a - ah)
    bl = let(bl=b - bh)
    return (((ah * bh - p) + ah * bl) + al * bh) + al * bl


@define
def sum_tail(a: Value, b: Value, s: Value) -> Value:
    """a + b - s exactly, where s is a + b rounded."""
    t = let(t=s - a)
    return (a - (s - t)) + (b - t)


# Floats of one sign are in the order of their bits, which a GPU compares and selects in one
# instruction. Where x is NaN, it stays or becomes the limit: callers ask for NaN themselves.


@define
def at_most(x: Value, high: Value) -> Value:
    """The smaller of x and `high`, which is positive."""
    return from_bits(smaller(signed_bits(x), signed_bits(high)))


@define
def at_least(x: Value, low: Value) -> Value:
    """The larger of x and `low`, which is negative."""
    return from_bits(smaller(bits(x), bits(low)))


def clamp(x: Value, low: float, high: float) -> Value:
    """x within [low, high], for a negative and a positive limit."""
    return at_least(at_most(x, high), low)


@define
def with_sign_of(y: Value, x: Value) -> Value:
    """|y| with the sign of x, -0 and NaN included."""
    # Not by `bits(y) | (bits(x) & sign)`: where a function returns x itself for NaN, LLVM makes
    # one instruction of AVX-512 of both, and up to version 22 a wrong one.
    return select(signed_bits(x) < 0, -absolute(y), absolute(y))
