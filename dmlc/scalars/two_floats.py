"""Arithmetic on pairs of float32: `h, lo` is h + lo, with lo below half a unit in the last place of
h.

Dekker's products and Knuth's sums give the second float of a pair; `float32` says what the rest of
its functions, and these, are for. With the second float of a product, a quotient is correctly
rounded where devices are off in quotients; `transform.quotients` says which quotients need that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from dmlc.scalars.expression import (
    F64,
    Routine,
    Value,
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


def tail_of_halves(a: Value, b: Value, p: Value, leading: Callable[[Value], Value]) -> Value:
    """a * b - p exactly, where p is a * b rounded; `leading` gives the upper half of the digits."""
    ah = let(ah=leading(a))
    bh = let(bh=leading(b))
    al = let(al=a - ah)
    bl = let(bl=b - bh)
    return (((ah * bh - p) + ah * bl) + al * bh) + al * bl


@define
def product_tail(a: Value, b: Value, p: Value) -> Value:
    """a * b - p exactly, where p is a * b rounded."""
    return tail_of_halves(a, b, p, leading_half)


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
    return select(signed_bits(x) < 0, -abs(y), abs(y))


# Quotients ------------------------------------------------------------------------------------

LEAST, MOST = 2.0**-50, 2.0**50
"""Of numbers between these, no part of a product is too small or too large for a float."""


def double_half(x: Value) -> Value:
    """The upper 26 bits of the significand of a FLOAT64, after Veltkamp."""
    c = let(c=x * 134217729.0)
    return c - (c - x)


@functools.partial(define, dtype=F64)
def product_tail_double(a: Value, b: Value, p: Value) -> Value:
    """a * b - p exactly, where p is a * b rounded."""
    return tail_of_halves(a, b, p, double_half)


def nearest_quotient(a: Value, b: Value, tail: Routine, digits: int) -> Value:
    """The number nearest to a / b of a type of so many binary digits, by the type's own function of
    the tail of a product."""

    def left_over(q: Value) -> Value:
        """a - q * b, exactly where q is one of the two numbers around a / b."""
        p = let(product=q * b)
        return (a - p) - tail(q, b, p)

    q = let(q=a / b)
    near = let(near=q + left_over(q) / b)
    rest = let(rest=left_over(near))
    # In a close call, the number beside it on the side of a / b is nearer. This is how far that is,
    # and a little more: after Rump, Zimmermann, Boldo and Melquiond.
    step = let(step=near * (2.0**-digits + 2.0 ** (1 - 2 * digits)))
    beside = let(beside=select((rest < 0.0).equals(a < 0.0), near + step, near - step))
    gap = let(gap=beside - near)
    nearest = let(nearest=select(abs(rest - gap * b) < abs(rest), beside, near))
    size, other = let(size=abs(a)), let(other=abs(b))
    fits = let(fits=(size >= LEAST) & (size <= MOST) & (other >= LEAST) & (other <= MOST))
    return select(fits, nearest, q)


@define
def div_nearest(a: Value, b: Value) -> Value:
    """The number nearest to a / b, where devices may be off by a few units in the last place.
    Very large and very small numbers are divided as they are."""
    return nearest_quotient(a, b, product_tail, 24)


@functools.partial(define, dtype=F64)
def div_nearest_double(a: Value, b: Value) -> Value:
    """The number nearest to a / b, where devices may be off by a few units in the last place.
    Very large and very small numbers are divided as they are."""
    return nearest_quotient(a, b, product_tail_double, 53)
