"""What each scalar operation means, in words and in edge cases: the page of the IR shows them.

How many operands an operation takes, and of which types, `scalars` says, and the NumPy function
there is its definition. An edge case here is a fact about that function, `min(1, nan) = nan`, in
every type of a kind; tests hold each to it. `MIN`, `MAX` and `WIDTH` are those of the type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType


@dataclasses.dataclass(frozen=True, slots=True)
class Semantics:
    """The meaning of an operation, as a phrase; and its edge cases, by the kind of type that they
    are of: `float`, `integer` (INDEX too), `signed`, `unsigned`, `boolean`."""

    meaning: str
    edges: tuple[tuple[str, str], ...] = ()


def _read(text: str) -> dict[str, Semantics]:
    """Blocks of `name: meaning`, each with lines `kind: fact; fact` below it."""
    found: dict[str, Semantics] = {}
    for block in text.strip().split("\n\n"):
        first, *rest = block.splitlines()
        name, _, meaning = first.partition(": ")
        edges = (
            (kind.strip(), facts) for kind, _, facts in (line.partition(": ") for line in rest)
        )
        found[name] = Semantics(
            meaning, tuple((kind, fact) for kind, facts in edges for fact in facts.split("; "))
        )
    return found


_WORDS = """
add: the sum
  float: add(inf, -inf) = nan; add(0, -0) = 0; add(-0, -0) = -0
  integer: add(MAX, 1) = MIN

sub: the difference
  float: sub(inf, inf) = nan; sub(0, 0) = 0; sub(-0, 0) = -0
  integer: sub(MIN, 1) = MAX

mul: the product
  float: mul(0, inf) = nan; mul(-1, 0) = -0
  signed: mul(MIN, -1) = MIN

fma: the product of two operands and the third, rounded once where the device can
  float: fma(2, 3, 1) = 7; fma(inf, 1, -inf) = nan; fma(0, inf, 1) = nan; fma(-1, 0, -0) = -0

div: the quotient; of integers the part before the point, and 0 where the divisor is 0
  float: div(1, 0) = inf; div(1, -0) = -inf; div(0, 0) = nan; div(inf, inf) = nan
  integer: div(7, 2) = 3; div(7, 0) = 0
  signed: div(-7, 2) = -3; div(7, -2) = -3; div(MIN, -1) = MIN

div_nearest: the same quotient, correctly rounded on every device for operands from 2^-50 to 2^50
  float: div_nearest(7, 2) = 3.5; div_nearest(1, 0) = inf; div_nearest(0, 0) = nan

mod: what that quotient leaves, with the sign of the first operand
  float: mod(-7, 2) = -1; mod(-4, 2) = -0; mod(7, inf) = 7; mod(inf, 2) = nan; mod(7, 0) = nan
  integer: mod(7, 2) = 1; mod(7, 0) = 0
  signed: mod(-7, 2) = -1; mod(7, -2) = 1; mod(MIN, -1) = 0

neg: the negative
  float: neg(0) = -0; neg(-inf) = inf
  signed: neg(MIN) = MIN
  unsigned: neg(1) = MAX

abs: without the sign
  float: abs(-0) = 0; abs(-inf) = inf; abs(nan) = nan
  signed: abs(MIN) = MIN

sign: 1, -1, or the zero itself
  float: sign(-0) = -0; sign(-inf) = -1; sign(nan) = nan
  integer: sign(0) = 0; sign(MAX) = 1
  signed: sign(MIN) = -1

min: the smaller; the first of two that are equal
  float: min(nan, 1) = nan; min(1, nan) = nan; min(0, -0) = 0; min(-0, 0) = -0

max: the larger; the first of two that are equal
  float: max(nan, 1) = nan; max(1, nan) = nan; max(0, -0) = 0; max(-0, 0) = -0

eq: whether they are equal
  float: eq(nan, nan) = false; eq(0, -0) = true; eq(inf, inf) = true

ne: whether they are not
  float: ne(nan, nan) = true; ne(0, -0) = false

lt: whether the first is less
  float: lt(-0, 0) = false; lt(nan, 1) = false; lt(1, nan) = false

le: whether it is less, or equal
  float: le(-0, 0) = true; le(nan, nan) = false

gt: whether the first is greater
  float: gt(0, -0) = false; gt(nan, 1) = false; gt(1, nan) = false

ge: whether it is greater, or equal
  float: ge(-0, 0) = true; ge(nan, nan) = false

and: whether both hold; both are computed
  boolean: and(true, false) = false; and(true, true) = true

or: whether one holds; both are computed
  boolean: or(true, false) = true; or(false, false) = false

not: whether it does not hold
  boolean: not(false) = true

floor: the next whole number below
  float: floor(-0.5) = -1; floor(-0) = -0; floor(-inf) = -inf; floor(nan) = nan

ceil: the next whole number above
  float: ceil(0.5) = 1; ceil(-0.5) = -0; ceil(inf) = inf; ceil(nan) = nan

round: the nearest whole number, of two the even one
  float: round(0.5) = 0; round(1.5) = 2; round(2.5) = 2; round(-0.5) = -0; round(nan) = nan

trunc: the whole number before the point
  float: trunc(1.5) = 1; trunc(-1.5) = -1; trunc(-0.5) = -0; trunc(inf) = inf; trunc(nan) = nan

sqrt: the square root, rounded once
  float: sqrt(-0) = -0; sqrt(-1) = nan; sqrt(inf) = inf

rsqrt: one over the square root
  float: rsqrt(0) = inf; rsqrt(-0) = -inf; rsqrt(inf) = 0; rsqrt(-1) = nan

isnan: whether it is NaN
  float: isnan(nan) = true; isnan(inf) = false

isinf: whether it is infinite
  float: isinf(-inf) = true; isinf(nan) = false

bit_and: the bits that both have
  integer: bit_and(6, 3) = 2
  signed: bit_and(-1, 5) = 5

bit_or: the bits that one has
  integer: bit_or(6, 3) = 7

bit_xor: the bits that one alone has
  integer: bit_xor(6, 3) = 5; bit_xor(MAX, MAX) = 0

bit_not: the bits that it lacks
  signed: bit_not(0) = -1
  unsigned: bit_not(0) = MAX

shift_left: its bits moved up, by the distance modulo the width
  integer: shift_left(3, 2) = 12; shift_left(3, WIDTH) = 3
  signed: shift_left(MAX, 1) = -2; shift_left(1, -1) = MIN

shift_right: its bits moved down, likewise; negative numbers stay negative
  integer: shift_right(12, 2) = 3; shift_right(3, WIDTH) = 3
  signed: shift_right(-7, 1) = -4; shift_right(MIN, -1) = -1
  unsigned: shift_right(MAX, MAX) = 1

exp: e to that power
  float: exp(0) = 1; exp(-inf) = 0; exp(inf) = inf; exp(nan) = nan

exp2: 2 to that power
  float: exp2(-1) = 0.5; exp2(-inf) = 0; exp2(inf) = inf

expm1: e to that power, less 1
  float: expm1(-0) = -0; expm1(-inf) = -1; expm1(inf) = inf

log: the natural logarithm
  float: log(1) = 0; log(0) = -inf; log(-0) = -inf; log(-1) = nan; log(inf) = inf

log2: the logarithm to base 2
  float: log2(8) = 3; log2(0) = -inf; log2(-1) = nan

log1p: the natural logarithm of 1 more
  float: log1p(-0) = -0; log1p(-1) = -inf; log1p(-2) = nan

pow: the first to the power of the second
  float: pow(nan, 0) = 1; pow(1, nan) = 1; pow(0, -1) = inf; pow(-0, -1) = -inf
  float: pow(-8, 0.5) = nan; pow(-1, inf) = 1; pow(-2, 3) = -8

sin: of an angle in radians
  float: sin(-0) = -0; sin(inf) = nan

cos: of an angle in radians
  float: cos(0) = 1; cos(inf) = nan

tan: of an angle in radians
  float: tan(-0) = -0; tan(inf) = nan

asin: the angle with that sine
  float: asin(-0) = -0; asin(2) = nan

acos: the angle with that cosine
  float: acos(1) = 0; acos(2) = nan

atan: the angle with that tangent, between -pi/2 and pi/2
  float: atan(-0) = -0; atan(nan) = nan

atan2: the angle of a point, its height first, between -pi and pi
  float: atan2(0, 0) = 0; atan2(-0, 0) = -0; atan2(1, inf) = 0; atan2(nan, 1) = nan

sinh: the hyperbolic sine
  float: sinh(-0) = -0; sinh(-inf) = -inf

cosh: the hyperbolic cosine
  float: cosh(0) = 1; cosh(-inf) = inf

tanh: the hyperbolic tangent
  float: tanh(-0) = -0; tanh(inf) = 1; tanh(-inf) = -1

asinh: the inverse of sinh
  float: asinh(-0) = -0; asinh(-inf) = -inf

acosh: the inverse of cosh, 0 or more
  float: acosh(1) = 0; acosh(0.5) = nan; acosh(inf) = inf

atanh: the inverse of tanh
  float: atanh(-0) = -0; atanh(1) = inf; atanh(-1) = -inf; atanh(2) = nan

erf: the error function
  float: erf(-0) = -0; erf(inf) = 1; erf(-inf) = -1

sigmoid: 1 / (1 + exp(-x))
  float: sigmoid(0) = 0.5; sigmoid(-inf) = 0; sigmoid(inf) = 1

round_float16: the nearest value of FLOAT16, as storing and loading gives it
  float: round_float16(65519) = 65504; round_float16(65520) = inf; round_float16(-1e-8) = -0

round_bfloat16: the nearest value of BFLOAT16, likewise
  float: round_bfloat16(1.00390625) = 1; round_bfloat16(1.01171875) = 1.015625
  float: round_bfloat16(nan) = nan
"""

SEMANTICS: Mapping[str, Semantics] = MappingProxyType(_read(_WORDS))
"""What each operation of `OPERATIONS` means."""

CONVERSIONS: tuple[tuple[str, float | bool, str, float | bool], ...] = (
    ("FLOAT32", 2.9, "INT32", 2),
    ("FLOAT32", -2.9, "INT32", -2),
    ("FLOAT32", float("nan"), "INT32", 0),
    ("FLOAT32", float("inf"), "INT8", 127),
    ("FLOAT32", -1.0, "UINT8", 0),
    ("FLOAT64", 1e300, "UINT64", 18446744073709551615),
    ("INT32", 300, "UINT8", 44),
    ("INT8", -1, "UINT16", 65535),
    ("UINT64", 18446744073709551615, "INDEX", 9223372036854775807),
    ("INT32", 16777217, "FLOAT32", 16777216.0),
    ("FLOAT64", 1e39, "FLOAT32", float("inf")),
    ("FLOAT32", -0.0, "BOOL", False),
    ("FLOAT32", float("nan"), "BOOL", True),
    ("BOOL", True, "FLOAT32", 1.0),
)
"""Edge cases of `cast`: a value of a type, and what it is in another."""
