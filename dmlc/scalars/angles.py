"""The trigonometric functions of `float32`, and their inverses.

Arguments are reduced by a fixed-point product with 2/pi, after Payne and Hanek.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlc.scalars.expression import (
    F32,
    U32,
    Number,
    Value,
    bits,
    define,
    isinf,
    isnan,
    let,
    select,
    sqrt,
)
from dmlc.scalars.two_floats import at_most, product_tail, sum_tail, with_sign_of

PI = 3.14159274
PI_TAIL = -8.74227766e-08
HALF_PI = 1.57079637
HALF_PI_TAIL = -4.37113883e-08
QUARTER_PI = 0.785398185
QUARTER_PI_TAIL = -2.18556941e-08

TWO_OVER_PI = (
    0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
)  # fmt: skip
"""The first 224 binary places of 2/pi, after one word of zeros."""


def pick(number: Value, words: Sequence[int]) -> Value:
    """The word of that number."""
    value = select(number.equals(len(words) - 2), *words[-2:])
    for place in range(len(words) - 3, -1, -1):
        value = select(number.equals(place), words[place], value)
    return value


def product_high(a: Value, b: Value) -> Value:
    """The upper 32 bits of the 64-bit product."""
    al = let(al=a & 0xFFFF)
    ah = let(ah=a >> 16)
    bl = let(bl=b & 0xFFFF)
    bh = let(bh=b >> 16)
    middle = let(middle=ah * bl + ((al * bl) >> 16))
    carry = let(carry=al * bh + (middle & 0xFFFF))
    return ah * bh + (middle >> 16) + (carry >> 16)


def quarter_turns(x: Value) -> tuple[Value, Value, Value]:
    """x = q quarter turns + r + lo, with |r| up to pi/4; q counts modulo 4. x is finite."""
    a = let(a=abs(x))
    small = let(small=a <= QUARTER_PI)
    # The 96 bits of 2/pi that matter here: those before them make whole turns.
    start = let(start=(bits(select(small, 1.0, a)) >> 23) - 120)
    i = let(i=start >> 5)
    up = let(up=start & 31)
    down = let(down=31 - up)
    # The words from the i-th on, which is one of the first five.
    v3, v2, v1, v0 = (let(word=pick(i, TWO_OVER_PI[n : n + 5])) for n in range(4))
    w2 = let(w2=(v3 << up) | ((v2 >> 1) >> down))
    w1 = let(w1=(v2 << up) | ((v1 >> 1) >> down))
    w0 = let(w0=(v1 << up) | ((v0 >> 1) >> down))
    # Their product with the significand, as a fraction of 62 bits below two of the quarter.
    m = let(m=(bits(a) & 0x007FFFFF) | 0x00800000)
    below = let(below=m * w1)
    low = let(low=below + product_high(m, w0))
    high = let(high=m * w2 + product_high(m, w1) + (low < below).cast(U32))
    q = let(q=(high + 0x20000000) >> 30)
    high = let(high=high - (q << 30))
    negative = let(negative=high >= 0x80000000)
    fraction_low = let(fraction_low=select(negative, ~low + 1, low))
    fraction_high = let(fraction_high=select(negative, ~high + low.equals(0).cast(U32), high))
    # In floats of 24 bits each, which hold their piece exactly.
    f2 = let(f2=(fraction_high >> 7).cast(F32) * 1.1920928955078125e-07)
    f1 = let(
        f1=(((fraction_high & 127) << 17) | (fraction_low >> 15)).cast(F32) * 7.105427357601002e-15
    )
    f0 = let(f0=(fraction_low & 0x7FFF).cast(F32) * 2.168404344971009e-19)
    g = let(g=f2 + f1)
    t = let(t=((f2 - g) + f1) + f0)
    f = let(f=g + t)
    t = let(t=(g - f) + t)
    p = let(p=f * HALF_PI)
    tail = let(tail=product_tail(f, HALF_PI, p) + (f * HALF_PI_TAIL + t * HALF_PI))
    r = let(r=p + tail)
    lo = let(lo=(p - r) + tail)
    below_zero = let(below_zero=x < 0.0)
    flip = let(flip=~negative.equals(below_zero))
    q = let(q=select(small, 0, select(below_zero, 0 - q, q) & 3))
    r = let(r=select(small, x, select(flip, -r, r)))
    lo = let(lo=select(small, 0.0, select(flip, -lo, lo)))
    return q, r, lo


@define
def sin_tail(r: Value, lo: Value) -> Value:
    """sin(r + lo) - r, for |r| up to pi/4."""
    z = let(z=r * r)
    c = let(c=0.00833332911 + z * (-0.000198392561 + z * 2.71756448e-06))
    return lo + r * z * (-0.166666672 + z * c)


def cos_parts(r: Value, lo: Value) -> tuple[Value, Value]:
    """cos(r + lo) in two floats, for |r| up to pi/4."""
    z = let(z=r * r)
    h = let(h=0.5 * z)
    w = let(w=1.0 - h)
    c = let(c=-0.00138888834 + z * (2.47994358e-05 + z * -2.7203302e-07))
    t = let(t=((1.0 - w) - h) + (z * z * (0.0416666679 + z * c) - r * lo))
    return w, t


@define
def sin(x: Value) -> Value:
    finite = let(finite=~(isnan(x) | isinf(x)))
    angle = let(angle=select(finite, x, 0.0))
    q, r, lo = quarter_turns(angle)
    w, t = cos_parts(r, lo)
    y = let(y=select((q & 1).equals(1), w + t, r + sin_tail(r, lo)))
    y = let(y=select(q >= 2, -y, y))
    y = let(y=select(x.equals(0.0), x, y))
    return select(finite, y, math.nan)


@define
def cos(x: Value) -> Value:
    finite = let(finite=~(isnan(x) | isinf(x)))
    angle = let(angle=select(finite, x, 0.0))
    q, r, lo = quarter_turns(angle)
    w, t = cos_parts(r, lo)
    y = let(y=select((q & 1).equals(1), r + sin_tail(r, lo), w + t))
    y = let(y=select(((q + 1) & 2).equals(2), -y, y))
    return select(finite, y, math.nan)


@define
def tan(x: Value) -> Value:
    finite = let(finite=~(isnan(x) | isinf(x)))
    angle = let(angle=select(finite, x, 0.0))
    q, r, lo = quarter_turns(angle)
    st = let(st=sin_tail(r, lo))
    s = let(s=r + st)
    st = let(st=(r - s) + st)
    w, ct = cos_parts(r, lo)
    c = let(c=w + ct)
    ct = let(ct=(w - c) + ct)
    odd = let(odd=(q & 1).equals(1))
    n = let(n=select(odd, -c, s))
    nt = let(nt=select(odd, -ct, st))
    d = let(d=select(odd, s, c))
    dt = let(dt=select(odd, st, ct))
    y = let(y=n / d)
    p = let(p=y * d)
    rest = let(rest=(((n - p) - product_tail(y, d, p)) + (nt - y * dt)) / d)
    y = let(y=select(abs(r) < 1e-15, y, y + rest))
    y = let(y=select(x.equals(0.0), x, y))
    return select(finite, y, math.nan)


@define
def asin_series(z: Value) -> Value:
    """asin(s) / s - 1 with z = s * s, for z up to 0.25."""
    c = let(c=0.0318286866 + z * (0.0143584935 + z * 0.0376300886))
    return z * (0.166666597 + z * (0.0750051737 + z * (0.0445144698 + z * c)))


def asin_half(a: Value) -> tuple[Value, Value]:
    """acos(a) / 2 in two floats, for a in [0.5, 1]."""
    z = let(z=0.5 * (1.0 - a))
    s = let(s=sqrt(z))
    p = let(p=s * s)
    t = let(t=select(z > 0.0, ((z - p) - product_tail(s, s, p)) / (s + s), 0.0))
    t = let(t=t + s * asin_series(z))
    return s, t


@define
def asin(x: Value) -> Value:
    a = let(a=abs(x))
    s, t = asin_half(a)
    far = let(far=HALF_PI - (2.0 * s - (HALF_PI_TAIL - 2.0 * t)))
    y = let(y=select(a <= 0.5, a + a * asin_series(a * a), far))
    return select(a <= 1.0, with_sign_of(y, x), math.nan)


@define
def acos(x: Value) -> Value:
    a = let(a=abs(x))
    s, t = asin_half(a)
    far = let(far=select(x < 0.0, PI - (2.0 * s - (PI_TAIL - 2.0 * t)), 2.0 * (s + t)))
    y = let(y=select(a <= 0.5, HALF_PI - (x - (HALF_PI_TAIL - x * asin_series(x * x))), far))
    return select(a <= 1.0, y, math.nan)


def angle(n: Value, d: Number) -> tuple[Value, Value]:
    """atan(n / d) in two floats, for n and d from 0 up, of like magnitude or n / d small."""
    steep = let(steep=n > d * 2.41421366)
    middle = let(middle=(n > d * 0.414213568) & ~steep)
    u = let(u=select(steep, -d, select(middle, n - d, n)))
    v = let(v=select(steep, n, select(middle, n + d, d)))
    ut = let(ut=select(middle, sum_tail(n, -d, u), 0.0))
    vt = let(vt=select(middle, sum_tail(n, d, v), 0.0))
    t = let(t=u / v)
    p = let(p=t * v)
    tt = let(tt=(((u - p) - product_tail(t, v, p)) + (ut - t * vt)) / v)
    tt = let(tt=select(abs(t) > 0.0009765625, tt, 0.0))
    z = let(z=t * t)
    c = let(c=-0.142819107 + z * (0.110433795 + z * (-0.0846839845 + z * 0.0472672991)))
    series = let(series=t * z * (-0.333333313 + z * (0.199999005 + z * c)))
    base = let(base=select(steep, HALF_PI, select(middle, QUARTER_PI, 0.0)))
    tail = let(tail=select(steep, HALF_PI_TAIL, select(middle, QUARTER_PI_TAIL, 0.0)))
    h = let(h=base + t)
    lo = let(lo=((base - h) + t) + (tt + series + tail))
    return h, lo


@define
def atan(x: Value) -> Value:
    n = let(n=at_most(abs(x), 1e18))
    h, lo = angle(n, 1.0)
    return select(isnan(x), x, with_sign_of(h + lo, x))


@define
def atan2(y: Value, x: Value) -> Value:
    both = let(both=isinf(x) & isinf(y))
    n = let(n=select(both, 1.0, abs(y)))
    d = let(d=select(both, 1.0, abs(x)))
    flat = let(flat=isinf(d) | n.equals(0.0))
    upright = let(upright=(isinf(n) | (n > d * 1e18)) & ~flat)
    # Away from the ends of float32's range, where a division's remainder would be lost.
    largest = let(largest=select(n > d, n, d))
    s = let(
        s=select(largest < 9.094947e-13, 1.2089258e24, select(largest > 1e30, 9.094947e-13, 1.0))
    )
    n = let(n=select(flat | upright, 1.0, n * s))
    d = let(d=select(flat | upright, 1.0, d * s))
    h, lo = angle(n, d)
    h = let(h=select(flat, 0.0, select(upright, HALF_PI, h)))
    lo = let(lo=select(flat, 0.0, select(upright, HALF_PI_TAIL, lo)))
    p = let(p=PI - h)
    behind = let(behind=bits(x) >= 0x80000000)
    v = let(v=select(behind, p + (((PI - p) - h) + (PI_TAIL - lo)), h + lo))
    return select(isnan(x) | isnan(y), math.nan, with_sign_of(v, y))
