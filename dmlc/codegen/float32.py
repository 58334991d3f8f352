"""The transcendental functions in float32, for languages whose own cannot be relied on.

HLSL's own `exp`, `log`, `sin` ... differ from device to device by thousands of units in the last
place, and go wrong at special values. The functions here use only operations that IEEE 754 rounds
exactly (`+ - * /`, square root, rounding to an integer) and integer operations, so that every
device that keeps to the standard gives the same bits, and so does NumPy.

`trace` makes kernel IR of them: NumPy evaluates it, and tests sweep it against float64 (all are
within 2 units in the last place, `pow` within 4); dialects print it like any kernel. A pair `h, lo`
is a value in two floats, h + lo, with lo below half a unit in the last place of h.

The polynomials are least-maximum fits made for this file; the reductions are the classical ones
(Cody and Waite for exp; a fixed-point product with 2/pi after Payne and Hanek for the
trigonometric functions; Dekker's products and Knuth's sums for the second float of a pair).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dmlc.codegen.trace import (
    F32,
    I32,
    U32,
    Definition,
    Operand,
    Value,
    absolute,
    bits,
    convert,
    define,
    equal,
    from_bits,
    isinf,
    isnan,
    let,
    round_even,
    select,
    sqrt,
)

FUNCTIONS: dict[str, Definition] = {}
"""Every function that generated code calls, by its name: those of the table of scalar operations,
and those that these share."""


def portable(function: Callable[..., Value]) -> Definition:
    """A function of floats that generated code calls by its name."""
    return FUNCTIONS.setdefault(function.__name__, define(function))


INF = float("inf")
NAN = float("nan")
LOG2_E = 1.44269502
LOG2_E_TAIL = 1.92596303e-08
LN_2 = 0.693147182
LN_2_TAIL = -1.90465421e-09
LN_2_SHORT = 0.693359375  # nine bits, so that its product with an exponent is exact
LN_2_REST = -2.12194440e-4
PI = 3.14159274
PI_TAIL = -8.74227766e-08
HALF_PI = 1.57079637
HALF_PI_TAIL = -4.37113883e-08
QUARTER_PI = 0.785398185
QUARTER_PI_TAIL = -2.18556941e-08
SMALLEST_NORMAL = 1.17549435e-38

TWO_OVER_PI = (
    0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
)  # fmt: skip
"""The first 224 binary places of 2/pi, after one word of zeros."""

# Arithmetic in two floats ---------------------------------------------------------------------


def leading_half(x: Value) -> Value:
    """The upper 12 bits of the significand: products of two such are exact."""
    return from_bits(bits(x) & 0xFFFFF000)


@portable
def product_tail(a: Value, b: Value, p: Value) -> Value:
    """a * b - p exactly, where p is a * b rounded."""
    ah = let(ah=leading_half(a))
    bh = let(bh=leading_half(b))
    al = let(al=a - ah)
    bl = let(bl=b - bh)
    return (((ah * bh - p) + ah * bl) + al * bh) + al * bl


@portable
def sum_tail(a: Value, b: Value, s: Value) -> Value:
    """a + b - s exactly, where s is a + b rounded."""
    t = let(t=s - a)
    return (a - (s - t)) + (b - t)


@portable
def clamp(x: Value, low: Value, high: Value) -> Value:
    """x within [low, high]; low where x is NaN."""
    y = let(y=select(x > low, x, low))
    return select(y < high, y, high)


@portable
def with_sign_of(y: Value, x: Value) -> Value:
    """|y| with the sign of x, -0 and NaN included."""
    # Not by `bits(y) | (bits(x) & sign)`: where a function returns x itself for NaN, LLVM makes
    # one instruction of AVX-512 of both, and up to version 22 a wrong one.
    return select(convert(bits(x), I32) < 0, -absolute(y), absolute(y))


# Exponentials ---------------------------------------------------------------------------------


def power_of_two(k: Value) -> Value:
    """2^k, for whole k in [-126, 127]."""
    # The sum is 1.5 * 2^23 + k + 127: its last bits are the exponent that is wanted.
    return from_bits(bits(k + 12583039.0) << 23)


@portable
def scale(y: Value, k: Value) -> Value:
    """y * 2^k, for whole k in [-252, 254], rounded once even where it is denormal."""
    half = let(half=round_even(0.5 * k))
    return y * power_of_two(half) * power_of_two(k - half)


def exp_parts(x: Value) -> tuple[Value, Value, Value]:
    """exp(x) = 2^k (1 + r + p), for x in [-104, 90]."""
    k = let(k=round_even(x * LOG2_E))
    s = let(s=x - k * LN_2_SHORT)
    t = let(t=k * LN_2_REST)
    r = let(r=s - t)
    tail = let(tail=(s - r) - t)
    c = let(c=0.00833326299 + r * (0.00139472249 + r * 0.000199193775))
    p = let(p=tail + r * r * (0.5 + r * (0.166666672 + r * (0.0416662544 + r * c))))
    return k, r, p


@portable
def exp(x: Value) -> Value:
    b = let(b=clamp(x, -104.0, 89.0))
    k, r, p = exp_parts(b)
    y = let(y=scale(1.0 + (r + p), k))
    return select(isnan(x), x, y)


@portable
def exp2_tail(r: Value) -> Value:
    """2^r - 1, for r in [-0.5, 0.5]."""
    c = let(c=0.00961803365 + r * (0.00133334449 + r * (0.00015468229 + r * 1.53127785e-05)))
    return r * LN_2 + (r * LN_2_TAIL + r * r * (0.240226507 + r * (0.0555041097 + r * c)))


@portable
def exp2(x: Value) -> Value:
    t = let(t=clamp(x, -151.0, 129.0))
    k = let(k=round_even(t))
    y = let(y=scale(1.0 + exp2_tail(t - k), k))
    return select(isnan(x), x, y)


@portable
def expm1(x: Value) -> Value:
    b = let(b=clamp(x, -20.0, 89.0))
    k, r, p = exp_parts(b)
    h = let(h=r + p)
    lo = let(lo=(r - h) + p)
    # 2^(k-1) (1 + h + lo) - 1/2, doubled: 2^k itself overflows first.
    c = let(c=power_of_two(k - 1.0))
    a = let(a=c * h)
    b = let(b=c - 0.5)
    s = let(s=a + b)
    y = let(y=2.0 * (s + (sum_tail(a, b, s) + c * lo)))
    y = let(y=select(equal(k, 0.0), h, y))
    return select(isnan(x) | equal(x, 0.0), x, y)


# Logarithms -----------------------------------------------------------------------------------


def log_parts(x: Value) -> tuple[Value, Value]:
    """k and m, where x = 2^k m with m in [sqrt(1/2), sqrt(2)), for x positive and finite."""
    tiny = let(tiny=x < SMALLEST_NORMAL)
    u = let(u=bits(select(tiny, x * 33554432.0, x)) + 0x004AFB0D)
    k = let(k=convert(u >> 23, F32) - select(tiny, 152.0, 127.0))
    m = let(m=from_bits((u & 0x007FFFFF) + 0x3F3504F3))
    return k, m


@portable
def log_series(s: Value) -> Value:
    """log((1 + s) / (1 - s)) / s - 2, for |s| up to 0.172."""
    z = let(z=s * s)
    return z * (0.666666627 + z * (0.400003552 + z * (0.285358816 + z * 0.236106679)))


@portable
def log_sum(k: Value, f: Value, tail: Value) -> Value:
    """log(2^k (1 + f)) + tail."""
    s = let(s=f / (2.0 + f))
    h = let(h=0.5 * f * f)
    return k * LN_2_SHORT - ((h - (s * (h + log_series(s)) + (k * LN_2_REST + tail))) - f)


@portable
def log_special(x: Value, y: Value) -> Value:
    """y, but what a logarithm is at 0, below 0, at infinity and NaN."""
    v = let(v=select(equal(x, 0.0), -INF, y))
    v = let(v=select(x < 0.0, NAN, v))
    return select(isnan(x) | equal(x, INF), x, v)


@portable
def log(x: Value) -> Value:
    k, m = log_parts(x)
    return log_special(x, log_sum(k, m - 1.0, 0.0))


@portable
def log2(x: Value) -> Value:
    k, m = log_parts(x)
    f = let(f=m - 1.0)
    s = let(s=f / (2.0 + f))
    h = let(h=0.5 * f * f)
    d = let(d=leading_half(f - h))
    e = let(e=(f - d) - h + s * (h + log_series(s)))
    # log2(e) in two pieces, the first of 12 bits: d times it is exact.
    a = let(a=d * 1.44287109)
    b = let(b=(e + d) * -0.000176052854 + e * 1.44287109)
    y = let(y=k + a)
    return log_special(x, y + (sum_tail(k, a, y) + b))


@portable
def log1p_sum(x: Value, tail: Value) -> Value:
    """log(1 + x + tail), for x above -1 and finite."""
    u = let(u=1.0 + x)
    k, m = log_parts(u)
    near = let(near=equal(k, 0.0))
    rest = let(rest=select(near, tail, (select(x > 1.0, 1.0 - (u - x), x - (u - 1.0))) + tail))
    return log_sum(k, select(near, x, m - 1.0), rest / u)


@portable
def log1p(x: Value) -> Value:
    y = let(y=log_special(1.0 + x, log1p_sum(x, 0.0)))
    return select(isnan(x) | equal(x, 0.0), x, y)


@portable
def pow(x: Value, y: Value) -> Value:
    a = let(a=absolute(x))
    k, m = log_parts(a)
    # log(m) = 2 s + ..., with s = (m - 1) / (m + 1) in two floats
    f = let(f=m - 1.0)
    u = let(u=m + 1.0)
    s = let(s=f / u)
    su = let(su=s * u)
    st = let(st=((f - su) - product_tail(s, u, su) - s * (m - (u - 1.0))) / u)
    rest = let(rest=2.0 * st + s * log_series(s))
    n = let(n=2.0 * s + rest)
    nt = let(nt=(2.0 * s - n) + rest)
    # log2(a) = h + lo
    p = let(p=n * LOG2_E)
    pt = let(pt=product_tail(n, LOG2_E, p) + (nt * LOG2_E + n * LOG2_E_TAIL))
    b = let(b=k + p)
    bt = let(bt=sum_tail(k, p, b) + pt)
    h = let(h=b + bt)
    lo = let(lo=(b - h) + bt)
    # 2^(y (h + lo))
    yc = let(yc=clamp(y, -1e18, 1e18))
    q = let(q=yc * h)
    qc = let(qc=clamp(q, -200.0, 200.0))
    qt = let(qt=select(equal(qc, q), product_tail(yc, h, q) + yc * lo, 0.0))
    j = let(j=round_even(qc))
    v = let(v=scale(1.0 + exp2_tail((qc - j) + qt), j))
    grows = let(grows=equal(a > 1.0, y > 0.0))
    v = let(v=select(isinf(y) | isinf(a) | equal(a, 0.0), select(grows, INF, 0.0), v))
    whole = let(whole=equal(round_even(y), y))
    odd = let(odd=whole & ~equal(round_even(0.5 * y), 0.5 * y))
    v = let(v=select(odd, with_sign_of(v, x), v))
    v = let(v=select((x < 0.0) & ~whole & ~isinf(x), NAN, v))
    v = let(v=select(isnan(x) | isnan(y), NAN, v))
    v = let(v=select(equal(a, 1.0) & isinf(y), 1.0, v))
    return select(equal(x, 1.0) | equal(y, 0.0), 1.0, v)


# Trigonometric functions ----------------------------------------------------------------------


def pick(number: Value, words: Sequence[int]) -> Value:
    """The word of that number."""
    value = select(equal(number, len(words) - 2), *words[-2:])
    for place in range(len(words) - 3, -1, -1):
        value = select(equal(number, place), words[place], value)
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
    a = let(a=absolute(x))
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
    high = let(high=m * w2 + product_high(m, w1) + convert(low < below, U32))
    q = let(q=(high + 0x20000000) >> 30)
    high = let(high=high - (q << 30))
    negative = let(negative=high >= 0x80000000)
    fraction_low = let(fraction_low=select(negative, ~low + 1, low))
    fraction_high = let(fraction_high=select(negative, ~high + convert(equal(low, 0), U32), high))
    # In floats of 24 bits each, which hold their piece exactly.
    f2 = let(f2=convert(fraction_high >> 7, F32) * 1.1920928955078125e-07)
    f1 = let(
        f1=convert(((fraction_high & 127) << 17) | (fraction_low >> 15), F32)
        * 7.105427357601002e-15
    )
    f0 = let(f0=convert(fraction_low & 0x7FFF, F32) * 2.168404344971009e-19)
    g = let(g=f2 + f1)
    t = let(t=((f2 - g) + f1) + f0)
    f = let(f=g + t)
    t = let(t=(g - f) + t)
    p = let(p=f * HALF_PI)
    tail = let(tail=product_tail(f, HALF_PI, p) + (f * HALF_PI_TAIL + t * HALF_PI))
    r = let(r=p + tail)
    lo = let(lo=(p - r) + tail)
    below_zero = let(below_zero=x < 0.0)
    flip = let(flip=~equal(negative, below_zero))
    q = let(q=select(small, 0, select(below_zero, 0 - q, q) & 3))
    r = let(r=select(small, x, select(flip, -r, r)))
    lo = let(lo=select(small, 0.0, select(flip, -lo, lo)))
    return q, r, lo


@portable
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


@portable
def sin(x: Value) -> Value:
    finite = let(finite=~(isnan(x) | isinf(x)))
    angle = let(angle=select(finite, x, 0.0))
    q, r, lo = quarter_turns(angle)
    w, t = cos_parts(r, lo)
    y = let(y=select(equal(q & 1, 1), w + t, r + sin_tail(r, lo)))
    y = let(y=select(q >= 2, -y, y))
    y = let(y=select(equal(x, 0.0), x, y))
    return select(finite, y, NAN)


@portable
def cos(x: Value) -> Value:
    finite = let(finite=~(isnan(x) | isinf(x)))
    angle = let(angle=select(finite, x, 0.0))
    q, r, lo = quarter_turns(angle)
    w, t = cos_parts(r, lo)
    y = let(y=select(equal(q & 1, 1), r + sin_tail(r, lo), w + t))
    y = let(y=select(equal((q + 1) & 2, 2), -y, y))
    return select(finite, y, NAN)


@portable
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
    odd = let(odd=equal(q & 1, 1))
    n = let(n=select(odd, -c, s))
    nt = let(nt=select(odd, -ct, st))
    d = let(d=select(odd, s, c))
    dt = let(dt=select(odd, st, ct))
    y = let(y=n / d)
    p = let(p=y * d)
    rest = let(rest=(((n - p) - product_tail(y, d, p)) + (nt - y * dt)) / d)
    y = let(y=select(absolute(r) < 1e-15, y, y + rest))
    y = let(y=select(equal(x, 0.0), x, y))
    return select(finite, y, NAN)


@portable
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


@portable
def asin(x: Value) -> Value:
    a = let(a=absolute(x))
    s, t = asin_half(a)
    far = let(far=HALF_PI - (2.0 * s - (HALF_PI_TAIL - 2.0 * t)))
    y = let(y=select(a <= 0.5, a + a * asin_series(a * a), far))
    return select(a <= 1.0, with_sign_of(y, x), NAN)


@portable
def acos(x: Value) -> Value:
    a = let(a=absolute(x))
    s, t = asin_half(a)
    far = let(far=select(x < 0.0, PI - (2.0 * s - (PI_TAIL - 2.0 * t)), 2.0 * (s + t)))
    y = let(y=select(a <= 0.5, HALF_PI - (x - (HALF_PI_TAIL - x * asin_series(x * x))), far))
    return select(a <= 1.0, y, NAN)


def angle(n: Value, d: Operand) -> tuple[Value, Value]:
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
    tt = let(tt=select(absolute(t) > 0.0009765625, tt, 0.0))
    z = let(z=t * t)
    c = let(c=-0.142819107 + z * (0.110433795 + z * (-0.0846839845 + z * 0.0472672991)))
    series = let(series=t * z * (-0.333333313 + z * (0.199999005 + z * c)))
    base = let(base=select(steep, HALF_PI, select(middle, QUARTER_PI, 0.0)))
    tail = let(tail=select(steep, HALF_PI_TAIL, select(middle, QUARTER_PI_TAIL, 0.0)))
    h = let(h=base + t)
    lo = let(lo=((base - h) + t) + (tt + series + tail))
    return h, lo


@portable
def atan(x: Value) -> Value:
    n = let(n=clamp(absolute(x), 0.0, 1e18))
    h, lo = angle(n, 1.0)
    return select(isnan(x), x, with_sign_of(h + lo, x))


@portable
def atan2(y: Value, x: Value) -> Value:
    both = let(both=isinf(x) & isinf(y))
    n = let(n=select(both, 1.0, absolute(y)))
    d = let(d=select(both, 1.0, absolute(x)))
    flat = let(flat=isinf(d) | equal(n, 0.0))
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
    return select(isnan(x) | isnan(y), NAN, with_sign_of(v, y))


# Hyperbolic functions and the rest ------------------------------------------------------------


@portable
def half_exp(x: Value) -> Value:
    """exp(x) / 2, which does not overflow before x = 89.4; x in [-104, 90]."""
    k, r, p = exp_parts(x)
    return scale(1.0 + (r + p), k - 1.0)


@portable
def sinh(x: Value) -> Value:
    a = let(a=absolute(x))
    h = let(h=half_exp(clamp(a, 0.0, 90.0)))
    z = let(z=a * a)
    c = let(c=0.00833335146 + z * (0.000198359616 + z * 2.81806342e-06))
    y = let(y=select(a < 1.0, a + a * z * (0.166666672 + z * c), h - 0.25 / h))
    return select(isnan(x), x, with_sign_of(y, x))


@portable
def cosh(x: Value) -> Value:
    h = let(h=half_exp(clamp(absolute(x), 0.0, 90.0)))
    return select(isnan(x), x, h + 0.25 / h)


@portable
def tanh(x: Value) -> Value:
    a = let(a=absolute(x))
    h = let(h=half_exp(clamp(2.0 * a, 0.0, 40.0)))
    z = let(z=a * a)
    c = let(c=-0.0538461022 + z * (0.0210437179 + z * -0.00623163534))
    near = let(near=a + a * z * (-0.333333164 + z * (0.133325338 + z * c)))
    y = let(y=select(a < 0.55, near, 1.0 - 1.0 / (h + 0.5)))
    return select(isnan(x), x, with_sign_of(y, x))


@portable
def asinh(x: Value) -> Value:
    a = let(a=absolute(x))
    huge = let(huge=a >= 16384.0)
    # a + sqrt(a a + 1) in two floats
    b = let(b=select(huge, 1.0, a))
    p = let(p=b * b)
    s = let(s=1.0 + p)
    st = let(st=sum_tail(1.0, p, s) + product_tail(b, b, p))
    q = let(q=sqrt(s))
    qq = let(qq=q * q)
    qt = let(qt=(((s - qq) - product_tail(q, q, qq)) + st) / (q + q))
    u = let(u=b + q)
    ut = let(ut=sum_tail(b, q, u) + qt)
    w = let(w=select(huge, a, u))
    k, m = log_parts(w)
    k = let(k=select(huge, k + 1.0, k))
    far = let(far=log_sum(k, m - 1.0, select(huge, 0.0, ut / u)))
    z = let(z=a * a)
    c = let(c=-0.0443593077 + z * (0.0280352198 + z * -0.0129959155))
    y = let(y=select(a < 0.5, a + a * z * (-0.166666389 + z * (0.0749846846 + z * c)), far))
    return select(isnan(x) | isinf(x), x, with_sign_of(y, x))


@portable
def acosh(x: Value) -> Value:
    huge = let(huge=x >= 16384.0)
    # t + sqrt(t (t + 2)) in two floats, with t = x - 1
    t = let(t=select((x > 1.0) & ~huge, x - 1.0, 1.0))
    w = let(w=t + 2.0)
    p = let(p=t * w)
    pt = let(pt=product_tail(t, w, p) + t * sum_tail(2.0, t, w))
    q = let(q=sqrt(p))
    qq = let(qq=q * q)
    qt = let(qt=((p - qq) - product_tail(q, q, qq) + pt) / (q + q))
    u = let(u=t + q)
    near = let(near=log1p_sum(u, sum_tail(t, q, u) + qt))
    v = let(v=select(huge, x, 1.0))
    k, m = log_parts(v)
    y = let(y=select(huge, log_sum(k + 1.0, m - 1.0, 0.0), near))
    y = let(y=select(x > 1.0, y, select(equal(x, 1.0), 0.0, NAN)))
    return select(isnan(x) | equal(x, INF), x, y)


@portable
def atanh(x: Value) -> Value:
    a = let(a=absolute(x))
    b = let(b=select(a < 1.0, a, 0.5))
    # 2 b / (1 - b) in two floats
    d = let(d=1.0 - b)
    n = let(n=2.0 * b)
    t = let(t=n / d)
    p = let(p=t * d)
    tt = let(tt=(((n - p) - product_tail(t, d, p)) - t * ((1.0 - d) - b)) / d)
    y = let(y=0.5 * log1p_sum(t, tt))
    y = let(y=select(a < 0.0001, a + a * a * a * 0.333333343, y))
    y = let(y=select(a < 1.0, y, select(equal(a, 1.0), INF, NAN)))
    return select(isnan(x), x, with_sign_of(y, x))


@portable
def erf(x: Value) -> Value:
    a = let(a=absolute(x))
    z = let(z=a * a)
    c = let(c=0.00522226933 + z * (-0.00085052033 + z * (0.000114438793 + z * -1.02535632e-05)))
    c = let(c=-0.376126379 + z * (0.112837881 + z * (-0.0268658008 + z * c)))
    near = let(near=a + a * (0.128379166 + z * c))
    # 1 - exp(log(erfc(a)))
    b = let(b=clamp(a, 0.0, 4.0))
    e = let(e=0.0250297021 + b * (-0.00413678074 + b * (0.000427350809 + b * -2.0477346e-05)))
    e = let(e=-1.12945402 + b * (-0.633471072 + b * (-0.108142324 + b * e)))
    y = let(y=select(a < 0.9, near, 1.0 - 2.0 * half_exp(0.00016215448 + b * e)))
    return select(isnan(x), x, with_sign_of(y, x))


@portable
def sigmoid(x: Value) -> Value:
    b = let(b=clamp(-absolute(x), -104.0, 0.0))
    k, r, p = exp_parts(b)
    h = let(h=1.0 + r)
    ht = let(ht=(r - (h - 1.0)) + p)
    g = let(g=h + ht)
    gt = let(gt=(h - g) + ht)
    e = let(e=scale(g, k))
    et = let(et=scale(gt, k))
    d = let(d=1.0 + e)
    dt = let(dt=(e - (d - 1.0)) + et)
    n = let(n=select(x < 0.0, e, 1.0))
    nt = let(nt=select(x < 0.0, et, 0.0))
    q = let(q=n / d)
    t = let(t=q * d)
    rest = let(rest=(((n - t) - product_tail(q, d, t)) + (nt - q * dt)) / d)
    return select(isnan(x), x, select(e < 1e-30, n, q + rest))


@portable
def rsqrt(x: Value) -> Value:
    return 1.0 / sqrt(x)
