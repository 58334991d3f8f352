"""The transcendental functions in float32, for languages whose own cannot be relied on.

HLSL's own `exp`, `log`, `sin` ... differ from device to device by thousands of units in the last
place, and go wrong at special values. The functions here use only operations that IEEE 754 rounds
exactly (`+ - * /`, square root, rounding to an integer) and integer operations, so that every
device that keeps to the standard gives the same bits, and so does NumPy. OpenCL C has functions of
its own.

`codegen.trace` makes kernel IR of them: NumPy evaluates it, and tests sweep it against float64 (all
are within 2 units in the last place, `pow` within 4); dialects print it like any kernel.

The polynomials are least-maximum fits made for these functions; arguments are reduced after Cody
and Waite. `angles` has the trigonometric functions, `two_floats` what all share.
"""

from __future__ import annotations

import math

from dmlc.scalars.expression import (
    F32,
    Value,
    bits,
    define,
    from_bits,
    isinf,
    isnan,
    let,
    round_even,
    select,
    sqrt,
)
from dmlc.scalars.two_floats import (
    at_least,
    at_most,
    clamp,
    leading_half,
    product_tail,
    sum_tail,
    with_sign_of,
)

LOG2_E = 1.44269502
LOG2_E_TAIL = 1.92596303e-08
LN_2 = 0.693147182
LN_2_TAIL = -1.90465421e-09
LN_2_SHORT = 0.693359375  # nine bits, so that its product with an exponent is exact
LN_2_REST = -2.12194440e-4
SMALLEST_NORMAL = 1.17549435e-38

# Exponentials ---------------------------------------------------------------------------------


def power_of_two(k: Value) -> Value:
    """2^k, for whole k in [-126, 127]."""
    # The sum is 1.5 * 2^23 + k + 127: its last bits are the exponent that is wanted.
    return from_bits(bits(k + 12583039.0) << 23)


@define
def scale(y: Value, k: Value) -> Value:
    """y * 2^k, for whole k in [-252, 254], rounded once even where it is denormal."""
    # Two powers, by halves of k: the last bits of the sum are k + 2 * 127.
    both = let(both=bits(k + 12583166.0))
    half = let(half=both >> 1)
    return y * from_bits(half << 23) * from_bits((both - half) << 23)


def exp_parts(x: Value) -> tuple[Value, Value, Value]:
    """exp(x) = 2^k (1 + r + p), for x in [-104, 90]."""
    k = let(k=round_even(x * LOG2_E))
    r = let(r=(x - k * LN_2_SHORT) - k * LN_2_REST)
    c = let(c=0.0416672416 + r * (0.00836764276 + r * 0.00138635794))
    p = let(p=r * r * (0.5 + r * (0.166665331 + r * c)))
    return k, r, p


@define
def exp(x: Value) -> Value:
    b = let(b=clamp(x, -104.0, 89.0))
    k, r, p = exp_parts(b)
    y = let(y=scale(1.0 + (r + p), k))
    return select(isnan(x), x, y)


@define
def exp2_tail(r: Value) -> Value:
    """2^r - 1, for r in [-0.5, 0.5]."""
    c = let(c=0.00961803365 + r * (0.00133334449 + r * (0.00015468229 + r * 1.53127785e-05)))
    return r * LN_2 + (r * LN_2_TAIL + r * r * (0.240226507 + r * (0.0555041097 + r * c)))


@define
def exp2(x: Value) -> Value:
    t = let(t=clamp(x, -151.0, 129.0))
    k = let(k=round_even(t))
    y = let(y=scale(1.0 + exp2_tail(t - k), k))
    return select(isnan(x), x, y)


@define
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
    y = let(y=select(k.equals(0.0), h, y))
    return select(isnan(x) | x.equals(0.0), x, y)


# Logarithms -----------------------------------------------------------------------------------


def log_parts(x: Value) -> tuple[Value, Value]:
    """k and m, where x = 2^k m with m in [sqrt(1/2), sqrt(2)), for x positive and finite."""
    tiny = let(tiny=x < SMALLEST_NORMAL)
    u = let(u=bits(select(tiny, x * 33554432.0, x)) + 0x004AFB0D)
    k = let(k=(u >> 23).cast(F32) - select(tiny, 152.0, 127.0))
    m = let(m=from_bits((u & 0x007FFFFF) + 0x3F3504F3))
    return k, m


@define
def log_series(s: Value) -> Value:
    """log((1 + s) / (1 - s)) / s - 2, for |s| up to 0.172."""
    z = let(z=s * s)
    return z * (0.666666627 + z * (0.400003552 + z * (0.285358816 + z * 0.236106679)))


@define
def log_sum(k: Value, f: Value, tail: Value) -> Value:
    """log(2^k (1 + f)) + tail."""
    s = let(s=f / (2.0 + f))
    h = let(h=0.5 * f * f)
    return k * LN_2_SHORT - ((h - (s * (h + log_series(s)) + (k * LN_2_REST + tail))) - f)


@define
def log_special(x: Value, y: Value) -> Value:
    """Logarithm y of x, with its results for 0, negative numbers, infinity and NaN."""
    v = let(v=select(x.equals(0.0), -math.inf, y))
    v = let(v=select(x < 0.0, math.nan, v))
    return select(isnan(x) | x.equals(math.inf), x, v)


@define
def log(x: Value) -> Value:
    k, m = log_parts(x)
    return log_special(x, log_sum(k, m - 1.0, 0.0))


@define
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


@define
def log1p_sum(x: Value, tail: Value) -> Value:
    """log(1 + x + tail), for x above -1 and finite."""
    u = let(u=1.0 + x)
    k, m = log_parts(u)
    near = let(near=k.equals(0.0))
    rest = let(rest=select(near, tail, (select(x > 1.0, 1.0 - (u - x), x - (u - 1.0))) + tail))
    return log_sum(k, select(near, x, m - 1.0), rest / u)


@define
def log1p(x: Value) -> Value:
    y = let(y=log_special(1.0 + x, log1p_sum(x, 0.0)))
    return select(isnan(x) | x.equals(0.0), x, y)


@define
def pow(x: Value, y: Value) -> Value:
    a = let(a=abs(x))
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
    qt = let(qt=select(qc.equals(q), product_tail(yc, h, q) + yc * lo, 0.0))
    j = let(j=round_even(qc))
    v = let(v=scale(1.0 + exp2_tail((qc - j) + qt), j))
    grows = let(grows=(a > 1.0).equals(y > 0.0))
    v = let(v=select(isinf(y) | isinf(a) | a.equals(0.0), select(grows, math.inf, 0.0), v))
    whole = let(whole=round_even(y).equals(y))
    odd = let(odd=whole & ~round_even(0.5 * y).equals(0.5 * y))
    v = let(v=select(odd, with_sign_of(v, x), v))
    v = let(v=select((x < 0.0) & ~whole & ~isinf(x), math.nan, v))
    v = let(v=select(isnan(x) | isnan(y), math.nan, v))
    v = let(v=select(a.equals(1.0) & isinf(y), 1.0, v))
    return select(x.equals(1.0) | y.equals(0.0), 1.0, v)


# Hyperbolic functions and the rest ------------------------------------------------------------


@define
def half_exp(x: Value) -> Value:
    """exp(x) / 2, which does not overflow before x = 89.4; x in [-104, 90]."""
    k, r, p = exp_parts(x)
    return scale(1.0 + (r + p), k - 1.0)


@define
def sinh(x: Value) -> Value:
    a = let(a=abs(x))
    h = let(h=half_exp(at_most(a, 90.0)))
    z = let(z=a * a)
    c = let(c=0.00833335146 + z * (0.000198359616 + z * 2.81806342e-06))
    y = let(y=select(a < 1.0, a + a * z * (0.166666672 + z * c), h - 0.25 / h))
    return select(isnan(x), x, with_sign_of(y, x))


@define
def cosh(x: Value) -> Value:
    h = let(h=half_exp(at_most(abs(x), 90.0)))
    return select(isnan(x), x, h + 0.25 / h)


@define
def tanh(x: Value) -> Value:
    a = let(a=abs(x))
    h = let(h=half_exp(at_most(2.0 * a, 40.0)))
    z = let(z=a * a)
    c = let(c=-0.0538461022 + z * (0.0210437179 + z * -0.00623163534))
    near = let(near=a + a * z * (-0.333333164 + z * (0.133325338 + z * c)))
    y = let(y=select(a < 0.55, near, 1.0 - 1.0 / (h + 0.5)))
    return select(isnan(x), x, with_sign_of(y, x))


@define
def asinh(x: Value) -> Value:
    a = let(a=abs(x))
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


@define
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
    y = let(y=select(x > 1.0, y, select(x.equals(1.0), 0.0, math.nan)))
    return select(isnan(x) | x.equals(math.inf), x, y)


@define
def atanh(x: Value) -> Value:
    a = let(a=abs(x))
    b = let(b=select(a < 1.0, a, 0.5))
    # 2 b / (1 - b) in two floats
    d = let(d=1.0 - b)
    n = let(n=2.0 * b)
    t = let(t=n / d)
    p = let(p=t * d)
    tt = let(tt=(((n - p) - product_tail(t, d, p)) - t * ((1.0 - d) - b)) / d)
    y = let(y=0.5 * log1p_sum(t, tt))
    y = let(y=select(a < 0.0001, a + a * a * a * 0.333333343, y))
    y = let(y=select(a < 1.0, y, select(a.equals(1.0), math.inf, math.nan)))
    return select(isnan(x), x, with_sign_of(y, x))


@define
def erf(x: Value) -> Value:
    z = let(z=x * x)
    c = let(c=0.00518716266 + z * (-0.000799786474 + z * 7.80697446e-05))
    c = let(c=0.112835787 + z * (-0.0268533472 + z * c))
    near = let(near=x + x * (0.128379166 + z * (-0.37612626 + z * c)))
    # 1 - exp(-x^2) q, of which formulas with erf often have the exponential, too.
    a = let(a=abs(x))
    b = let(b=at_most(a, 4.0))
    c = let(c=0.1641372 + b * (-0.0409994051 + b * (0.00600536168 + b * -0.000388903019)))
    q = let(q=0.986128032 + b * (-1.04821396 + b * (0.79260087 + b * (-0.431685656 + b * c))))
    far = let(far=1.0 - exp(-z) * q)
    return select(a < 1.0, near, with_sign_of(far, x))


@define
def sigmoid(x: Value) -> Value:
    b = let(b=at_least(-abs(x), -104.0))
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


@define
def rsqrt(x: Value) -> Value:
    return 1.0 / sqrt(x)
