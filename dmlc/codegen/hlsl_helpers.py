"""The helper functions of the HLSL dialect: what HLSL lacks, or has with other results.

`$H` is the function's own name, `$T` the type it works on.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dmlc.codegen.dialect import Entry, Helper, Spelling
from dmlc.scalars import DataType

_FLOATS = {
    "isnan": """\
// By its bits, so that no assumption about NaN can fold it away.
bool $H(const float x)
{
    return (asuint(x) & 0x7fffffff) > 0x7f800000;
}""",
    "min": """\
// The smaller one; NaN where either is NaN, and the first of two equal ones.
float $H(const float a, const float b)
{
    const bool is_nan = (asuint(b) & 0x7fffffff) > 0x7f800000;
    return (b < a || is_nan) ? b : a;
}""",
    "max": """\
// The larger one; NaN where either is NaN, and the first of two equal ones.
float $H(const float a, const float b)
{
    const bool is_nan = (asuint(b) & 0x7fffffff) > 0x7f800000;
    return (b > a || is_nan) ? b : a;
}""",
    "mod": """\
// The remainder of a / b with the sign of a, exactly; NaN where b is 0 or a is infinite.
float $H(const float a, const float b)
{
    const uint x = asuint(a) & 0x7fffffff;
    const uint y = asuint(b) & 0x7fffffff;
    const bool is_nan = x >= 0x7f800000 || y > 0x7f800000 || y == 0;
    // Whole numbers of 24 bits, times 2^(e - 150); the divisor's leading bit is made bit 23.
    const int zeros = (y < 0x00800000) ? 23 - (int)firstbithigh(y | 1) : 0;
    const uint divisor = (y < 0x00800000) ? y << zeros : (y & 0x007fffff) | 0x00800000;
    const int y_exponent = max((int)(y >> 23), 1) - zeros;
    uint rest = (x < 0x00800000) ? x : (x & 0x007fffff) | 0x00800000;
    int steps = max((int)(x >> 23), 1) - y_exponent;
    // Below, |a| < |b| leaves a as it is; otherwise long division, eight bits at a time.
    if (!is_nan && x >= y) {
        while (steps > 0) {
            const int shift = min(steps, 8);
            rest = (rest % divisor) << shift;
            steps -= shift;
        }
        rest = rest % divisor;
    }
    // rest * 2^(y_exponent - 150), put together from its bits: no rounding, no arithmetic.
    const int leading = (int)firstbithigh(rest | 1);
    const int exponent = y_exponent + leading - 23;
    const uint normal = ((rest << (23 - leading)) & 0x007fffff) | ((uint)exponent << 23);
    const uint denormal = (y_exponent >= 1) ? rest << (y_exponent - 1) : rest >> (1 - y_exponent);
    const uint size = (rest == 0) ? 0 : ((exponent >= 1) ? normal : denormal);
    const uint bits = (x < y) ? x : size;
    return asfloat(is_nan ? 0x7fc00000 : (bits | (asuint(a) & 0x80000000)));
}""",
    "sign": """\
// -1, 1, or x itself where it is a zero or NaN.
float $H(const float x)
{
    return (x > 0.0f) ? 1.0f : ((x < 0.0f) ? -1.0f : x);
}""",
}

_DOUBLES = {
    "isnan_double": """\
bool $H(const double x)
{
    return !(x == x);
}""",
    "min_double": """\
// The smaller one; NaN where either is NaN, and the first of two equal ones.
double $H(const double a, const double b)
{
    return (b < a || !(b == b)) ? b : a;
}""",
    "max_double": """\
// The larger one; NaN where either is NaN, and the first of two equal ones.
double $H(const double a, const double b)
{
    return (b > a || !(b == b)) ? b : a;
}""",
    "sign_double": """\
// -1, 1, or x itself where it is a zero or NaN.
double $H(const double x)
{
    return (x > 0.0L) ? 1.0L : ((x < 0.0L) ? -1.0L : x);
}""",
}

_INTEGERS = {
    "div_signed": """\
// Rounds towards zero; 0 where b is 0, and wraps where the quotient has no $T.
$T $H(const $T a, const $T b)
{
    const $T divisor = (b == ($T)0 || b == ($T)-1) ? ($T)1 : b;
    return (b == ($T)0) ? ($T)0 : ((b == ($T)-1) ? (($T)0 - a) : (a / divisor));
}""",
    "div_unsigned": """\
// Rounds down; 0 where b is 0.
$T $H(const $T a, const $T b)
{
    const $T quotient = a / ((b == ($T)0) ? ($T)1 : b);
    return (b == ($T)0) ? ($T)0 : quotient;
}""",
    "mod_signed": """\
// The remainder, with the sign of a; 0 where b is 0.
$T $H(const $T a, const $T b)
{
    const $T divisor = (b == ($T)0 || b == ($T)-1) ? ($T)1 : b;
    return a - (a / divisor) * divisor;
}""",
    "mod_unsigned": """\
// The remainder; 0 where b is 0.
$T $H(const $T a, const $T b)
{
    const $T remainder = a % ((b == ($T)0) ? ($T)1 : b);
    return (b == ($T)0) ? ($T)0 : remainder;
}""",
    # Of 16-bit literals DXC's SPIR-V has the first for `min` and `max`, whatever the second.
    "lesser": """\
$T $H(const $T a, const $T b)
{
    return (b < a) ? b : a;
}""",
    "greater": """\
$T $H(const $T a, const $T b)
{
    return (a < b) ? b : a;
}""",
    "sign_signed": """\
$T $H(const $T x)
{
    return (x < ($T)0) ? ($T)-1 : ((x == ($T)0) ? ($T)0 : ($T)1);
}""",
}

_STORAGE = {
    "widen_bfloat16": """\
// A bfloat16 is the upper half of a float.
float $H(const uint16_t bits)
{
    return asfloat((uint)bits << 16);
}""",
    "narrow_bfloat16": """\
// Rounds to the nearest bfloat16, ties to even; NaN stays NaN.
uint $H(const float value)
{
    const uint bits = asuint(value);
    const uint rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return ((bits & 0x7fffffff) > 0x7f800000) ? 0x7fc0 : rounded;
}""",
    "round_float16": """\
// Rounds to the nearest float16, ties to even, as storing it would; NaN stays NaN.
float $H(const float value)
{
    const uint sign = asuint(value) & 0x80000000;
    const uint size = asuint(value) & 0x7fffffff;
    const uint rounded = (size + 0x0fff + ((size >> 13) & 1)) & 0xffffe000;
    const uint normal = (rounded >= 0x47800000) ? 0x7f800000 : rounded;
    // Below 2^-14 a float16 counts in units of 2^-24, as floats from 0.5 to 1 do.
    precise const float shifted = asfloat(size) + 0.5f;
    precise const float denormal = shifted - 0.5f;
    const uint bits = (size < 0x38800000) ? asuint(denormal) : normal;
    return asfloat(((size > 0x7f800000) ? size : bits) | sign);
}""",
    "round_bfloat16": """\
// Rounds to the nearest bfloat16, ties to even, as storing it would; NaN stays NaN.
float $H(const float value)
{
    const uint bits = asuint(value);
    const uint rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
    return asfloat(((bits & 0x7fffffff) > 0x7f800000) ? bits : rounded);
}""",
    "half_float16": """\
// Element i of two float16 to a word, exactly.
float $H(const uint word, const uint i)
{
    const uint bits = word >> (16 * (i % 2));
    const uint exponent = bits & 0x7c00;
    precise const float denormal = (float)(bits & 0x03ff) * 5.9604645e-08f;
    const uint normal = ((bits & 0x7fff) << 13) + (exponent == 0x7c00 ? 0x70000000 : 0x38000000);
    return asfloat((exponent == 0 ? asuint(denormal) : normal) | ((bits & 0x8000) << 16));
}""",
    "half_bfloat16": """\
// Element i of two bfloat16 to a word: a bfloat16 is the upper half of a float.
float $H(const uint word, const uint i)
{
    return asfloat((i % 2 == 0) ? word << 16 : word & 0xffff0000);
}""",
    "narrow_float16": """\
// Rounds to the nearest float16, ties to even; NaN stays NaN.
uint $H(const float value)
{
    const uint size = asuint(value) & 0x7fffffff;
    // Below 2^-14 a float16 counts in units of 2^-24.
    const uint digits = (size & 0x007fffff) | 0x00800000;
    const uint shift = min(126 - (size >> 23), 31);
    const uint denormal = (digits + (1u << (shift - 1)) - 1 + ((digits >> shift) & 1)) >> shift;
    const uint rebiased = size - 0x38000000;
    const uint normal = min((rebiased + 0x0fff + ((rebiased >> 13) & 1)) >> 13, 0x7c00);
    const uint rounded = (size < 0x38800000) ? denormal : normal;
    const uint bits = (size > 0x7f800000) ? 0x7e00 : rounded;
    return bits | ((asuint(value) >> 16) & 0x8000);
}""",
}

_WIDE = {
    "int32_to_int64": Helper(
        """\
// The high word by itself: Mesa 22 compares what it widened with literals wrongly.
int64_t $H(const int x)
{
    return (int64_t)(((uint64_t)(uint)(x >> 31) << 32) | (uint64_t)(uint)x);
}""",
        typed=False,
    ),
    "int32_to_double": Helper(
        """\
// From an unsigned integer: Mesa 22 compares what it made of a signed one with 0 wrongly.
double $H(const int x)
{
    precise const double result = (double)((uint)x ^ 0x80000000) - 2147483648.0L;
    return result;
}""",
        typed=False,
    ),
    "int64_to_double": Helper(
        """\
// Rounded once, in the sum: drivers take an integer that was made a double and comes back for the
// same integer.
double $H(const int64_t x)
{
    precise const double high = (double)(int)(x >> 32) * 4294967296.0L;
    precise const double result = high + (double)(uint)x;
    return result;
}""",
        typed=False,
    ),
    "uint64_to_double": Helper(
        """\
// Rounded once, in the sum: drivers take an integer that was made a double and comes back for the
// same integer.
double $H(const uint64_t x)
{
    precise const double high = (double)(uint)(x >> 32) * 4294967296.0L;
    precise const double result = high + (double)(uint)x;
    return result;
}""",
        typed=False,
    ),
    "uint64_to_float": Helper(
        """\
// Rounded once, from the leading 32 bits: in SPIR-V, DXC converts the low word alone.
float $H(const uint64_t x)
{
    const uint high = (uint)(x >> 32);
    const uint shift = (high == 0) ? 0 : firstbithigh(high) + 1;
    const uint lost = ((x >> shift) << shift == x) ? 0 : 1;
    precise const float leading = (float)((uint)(x >> shift) | lost);
    precise const float result = leading * asfloat((127 + shift) << 23);
    return result;
}""",
        typed=False,
    ),
    "int64_to_float": Helper(
        """\
float $H(const int64_t x)
{
    precise const float size = $N((uint64_t)(x < 0ll ? 0ll - x : x));
    precise const float result = (x < 0ll) ? -size : size;
    return result;
}""",
        needs=("uint64_to_float",),
        typed=False,
    ),
}

_CONVERSION = """\
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0. Only what fits is
// converted, in two steps: drivers take an integer that was made a float and comes back for the
// same integer.
{result} $H(const {source} x)
{{
    const bool fits = {low} < x && x < {high};
    const {result} whole = ({result})(fits ? x : {zero});
    return fits ? whole : ((x <= {low}) ? {least} : ((x >= {high}) ? {most} : 0));
}}"""


def _conversions() -> dict[str, Helper]:
    names = {
        DataType.INT16: "int16_t", DataType.INT32: "int", DataType.INT64: "int64_t",
        DataType.UINT16: "uint16_t", DataType.UINT32: "uint", DataType.UINT64: "uint64_t",
    }  # fmt: skip
    made: dict[str, Helper] = {}
    for target, name in names.items():
        limits = np.iinfo(target.dtype)
        for source, suffix in (("float", "f"), ("double", "L")):
            suffix_int = "ull" if limits.min == 0 else "ll"
            least = f"-{limits.max}ll - 1ll" if limits.min else "0"
            made[f"{source}_to_{target.name.lower()}"] = Helper(
                _CONVERSION.format(
                    result=name,
                    source=source,
                    zero=f"0.0{suffix}",
                    low=f"{float(limits.min)!r}{suffix}",
                    high=f"{float(int(limits.max) + 1)!r}{suffix}",
                    least=f"({name})({least})",
                    most=f"({name}){limits.max}{suffix_int}",
                ),
                typed=False,
            )
    return made


PLAIN: Mapping[str, Helper] = MappingProxyType(
    {key: Helper(text) for key, text in _FLOATS.items()}
    | {key: Helper(text, typed=False) for key, text in _DOUBLES.items()}
    | {key: Helper(text) for key, text in _INTEGERS.items()}
    | {key: Helper(text, typed=False) for key, text in _STORAGE.items()}
    | _WIDE
    | _conversions()
)
"""The helpers written here; the transcendental functions are translated when one is asked for."""


class Helpers(Mapping[str, Helper]):
    """The helpers that spellings call, and those that these need."""

    def __init__(self, *tables: Mapping[Any, Entry]) -> None:
        entries = [e for table in tables for e in table.values()]
        self._called = {
            e.helper for e in entries if isinstance(e, Spelling) and isinstance(e.helper, str)
        }

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        names: set[str] = set()
        open_ = list(self._called)
        while open_:
            name = open_.pop()
            if name not in names:
                names.add(name)
                open_ += self[name].needs
        return tuple(sorted(names))

    def __getitem__(self, key: str) -> Helper:
        return PLAIN[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


HELPER_NAMES = rf"{'|'.join(PLAIN)}|portable_\w+"
"""A pattern of every helper's name."""
