"""Arithmetic on pairs of float32: `h, lo` is h + lo, with lo below half a unit in the last place of
h.

Dekker's products and Knuth's sums give the second float of a pair; `float32` says what the rest of
its functions, and these, are for.
"""

from __future__ import annotations

from dmlc.codegen.trace import I32, Value, absolute, bits, convert, define, from_bits, let, select


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


@define
def clamp(x: Value, low: Value, high: Value) -> Value:
    """x within [low, high]; low where x is NaN."""
    y = let(y=select(x > low, x, low))
    return select(y < high, y, high)


@define
def with_sign_of(y: Value, x: Value) -> Value:
    """|y| with the sign of x, -0 and NaN included."""
    # Not by `bits(y) | (bits(x) & sign)`: where a function returns x itself for NaN, LLVM makes
    # one instruction of AVX-512 of both, and up to version 22 a wrong one.
    return select(convert(bits(x), I32) < 0, -absolute(y), absolute(y))
