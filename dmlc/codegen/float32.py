"""The transcendental functions in float32, written once: run by NumPy, translated to HLSL.

HLSL's own `exp`, `log`, `sin` ... differ from device to device by thousands of units in the last
place, and go wrong at special values. The functions here use only operations that IEEE 754 rounds
exactly (`+ - * /`, square root, rounding to an integer) and integer operations, so that every
device that keeps to the standard gives the same bits, and so does NumPy.

Each function is plain Python over float32 arrays: that is its definition, and tests sweep it
against float64 (all are within 2 units in the last place, `pow` within 4). `translate`
turns the same text into HLSL, line for line. So the language here is small: assignments,
arithmetic, calls of the primitives below and of one another, one return at the end. A pair
`h, lo` is a value in two floats, h + lo, with lo below half a unit in the last place of h.

The polynomials are least-maximum fits made for this file; the reductions are the classical ones
(Cody and Waite for exp; a fixed-point product with 2/pi after Payne and Hanek for the
trigonometric functions; Dekker's products and Knuth's sums for the second float of a pair).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

# Arrays of float32, int32, uint32 and bool. To a type checker they are Any: NumPy's own types say
# that float32 times a number is some floating type, where NumPy gives float32.
Float: TypeAlias = Any
Int: TypeAlias = Any
Uint: TypeAlias = Any
Bool: TypeAlias = Any

# Primitives: what NumPy does here, HLSL spells by an intrinsic of the same meaning. -----------


def bits(x: Float) -> Uint:
    return np.asarray(x, np.float32).view(np.uint32)


def from_bits(u: Uint) -> Float:
    return u.view(np.float32)


def signed(u: Uint) -> Int:
    return u.view(np.int32)


def unsigned(k: Int) -> Uint:
    return k.view(np.uint32)


def to_int(x: Float) -> Int:
    return x.astype(np.int32)


def to_uint(condition: Bool) -> Uint:
    return np.asarray(condition).astype(np.uint32)


def to_float(u: Any) -> Float:
    return u.astype(np.float32)


def round_even(x: Float) -> Float:
    return np.rint(x)


def sqrt(x: Float) -> Float:
    return np.sqrt(x)


def absolute(x: Float) -> Float:
    return np.abs(x)


def isnan(x: Float) -> Bool:
    return np.isnan(x)


def isinf(x: Float) -> Bool:
    return np.isinf(x)


def select(condition: Bool, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds. Python numbers take the other operand's type; where both
    are numbers, they are float32 or int32."""
    kind = np.result_type(then, otherwise)
    if kind == np.float64:
        kind = np.dtype(np.float32)
    elif kind == np.int64:
        kind = np.dtype(np.int32)
    return np.where(condition, np.asarray(then, kind), np.asarray(otherwise, kind))


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

TWO_OVER_PI = np.array(
    [0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB],
    np.uint32,
)
"""The first 224 binary places of 2/pi, after one word of zeros."""

# Arithmetic in two floats ---------------------------------------------------------------------


def leading_half(x: Float) -> Float:
    """The upper 12 bits of the significand: products of two such are exact."""
    return from_bits(bits(x) & 0xFFFFF000)


def product_tail(a: Float, b: Float, p: Float) -> Float:
    """a * b - p exactly, where p is a * b rounded."""
    ah = leading_half(a)
    bh = leading_half(b)
    al = a - ah
    bl = b - bh
    return (((ah * bh - p) + ah * bl) + al * bh) + al * bl


def sum_tail(a: Float, b: Float, s: Float) -> Float:
    """a + b - s exactly, where s is a + b rounded."""
    t = s - a
    return (a - (s - t)) + (b - t)


def clamp(x: Float, low: Float, high: Float) -> Float:
    """x within [low, high]; low where x is NaN."""
    y = select(x > low, x, low)
    return select(y < high, y, high)


def with_sign_of(y: Float, x: Float) -> Float:
    """|y| with the sign of x, -0 and NaN included."""
    # Not by `bits(y) | (bits(x) & sign)`: where a function returns x itself for NaN, LLVM makes
    # one instruction of AVX-512 of both, and up to version 22 a wrong one.
    return select(signed(bits(x)) < 0, -absolute(y), absolute(y))


# Exponentials ---------------------------------------------------------------------------------


def scale(y: Float, k: Int) -> Float:
    """y * 2^k, for k in [-252, 254], rounded once even where it is denormal."""
    half = k >> 1
    rest = k - half
    return y * from_bits(unsigned((half + 127) << 23)) * from_bits(unsigned((rest + 127) << 23))


def exp_parts(x: Float) -> tuple[Float, Float, Float]:
    """exp(x) = 2^k (1 + r + p), for x in [-104, 90]."""
    k = round_even(x * LOG2_E)
    s = x - k * LN_2_SHORT
    t = k * LN_2_REST
    r = s - t
    tail = (s - r) - t
    c = 0.00833326299 + r * (0.00139472249 + r * 0.000199193775)
    p = tail + r * r * (0.5 + r * (0.166666672 + r * (0.0416662544 + r * c)))
    return k, r, p


def exp(x: Float) -> Float:
    k, r, p = exp_parts(clamp(x, -104.0, 89.0))
    y = scale(1.0 + (r + p), to_int(k))
    return select(isnan(x), x, y)


def exp2_tail(r: Float) -> Float:
    """2^r - 1, for r in [-0.5, 0.5]."""
    c = 0.00961803365 + r * (0.00133334449 + r * (0.00015468229 + r * 1.53127785e-05))
    return r * LN_2 + (r * LN_2_TAIL + r * r * (0.240226507 + r * (0.0555041097 + r * c)))


def exp2(x: Float) -> Float:
    t = clamp(x, -151.0, 129.0)
    k = round_even(t)
    y = scale(1.0 + exp2_tail(t - k), to_int(k))
    return select(isnan(x), x, y)


def expm1(x: Float) -> Float:
    k, r, p = exp_parts(clamp(x, -20.0, 89.0))
    h = r + p
    lo = (r - h) + p
    # 2^(k-1) (1 + h + lo) - 1/2, doubled: 2^k itself overflows first.
    c = from_bits(unsigned((to_int(k) + 126) << 23))
    a = c * h
    b = c - 0.5
    s = a + b
    y = 2.0 * (s + (sum_tail(a, b, s) + c * lo))
    y = select(k == 0.0, h, y)
    return select(isnan(x) | (x == 0.0), x, y)


# Logarithms -----------------------------------------------------------------------------------


def log_parts(x: Float) -> tuple[Int, Float]:
    """x = 2^k m with m in [sqrt(1/2), sqrt(2)), for x positive and finite."""
    tiny = x < SMALLEST_NORMAL
    u = bits(select(tiny, x * 33554432.0, x)) + 0x004AFB0D
    k = signed(u >> 23) - select(tiny, 152, 127)
    m = from_bits((u & 0x007FFFFF) + 0x3F3504F3)
    return k, m


def log_series(s: Float) -> Float:
    """log((1 + s) / (1 - s)) / s - 2, for |s| up to 0.172."""
    z = s * s
    return z * (0.666666627 + z * (0.400003552 + z * (0.285358816 + z * 0.236106679)))


def log_sum(k: Float, f: Float, tail: Float) -> Float:
    """log(2^k (1 + f)) + tail."""
    s = f / (2.0 + f)
    h = 0.5 * f * f
    return k * LN_2_SHORT - ((h - (s * (h + log_series(s)) + (k * LN_2_REST + tail))) - f)


def log_special(x: Float, y: Float) -> Float:
    """y, but what a logarithm is at 0, below 0, at infinity and NaN."""
    v = select(x == 0.0, -INF, y)
    v = select(x < 0.0, NAN, v)
    return select(isnan(x) | (x == INF), x, v)


def log(x: Float) -> Float:
    k, m = log_parts(x)
    return log_special(x, log_sum(to_float(k), m - 1.0, 0.0))


def log2(x: Float) -> Float:
    k, m = log_parts(x)
    f = m - 1.0
    s = f / (2.0 + f)
    h = 0.5 * f * f
    d = leading_half(f - h)
    e = (f - d) - h + s * (h + log_series(s))
    # log2(e) in two pieces, the first of 12 bits: d times it is exact.
    a = d * 1.44287109
    b = (e + d) * -0.000176052854 + e * 1.44287109
    kf = to_float(k)
    y = kf + a
    return log_special(x, y + (sum_tail(kf, a, y) + b))


def log1p_sum(x: Float, tail: Float) -> Float:
    """log(1 + x + tail), for x above -1 and finite."""
    u = 1.0 + x
    k, m = log_parts(u)
    near = k == 0
    rest = select(near, tail, (select(x > 1.0, 1.0 - (u - x), x - (u - 1.0))) + tail)
    return log_sum(to_float(k), select(near, x, m - 1.0), rest / u)


def log1p(x: Float) -> Float:
    y = log_special(1.0 + x, log1p_sum(x, 0.0))
    return select(isnan(x) | (x == 0.0), x, y)


def pow(x: Float, y: Float) -> Float:
    a = absolute(x)
    k, m = log_parts(a)
    # log(m) = 2 s + ..., with s = (m - 1) / (m + 1) in two floats
    f = m - 1.0
    u = m + 1.0
    s = f / u
    su = s * u
    st = ((f - su) - product_tail(s, u, su) - s * (m - (u - 1.0))) / u
    rest = 2.0 * st + s * log_series(s)
    n = 2.0 * s + rest
    nt = (2.0 * s - n) + rest
    # log2(a) = h + lo
    p = n * LOG2_E
    pt = product_tail(n, LOG2_E, p) + (nt * LOG2_E + n * LOG2_E_TAIL)
    kf = to_float(k)
    b = kf + p
    bt = sum_tail(kf, p, b) + pt
    h = b + bt
    lo = (b - h) + bt
    # 2^(y (h + lo))
    yc = clamp(y, -1e18, 1e18)
    q = yc * h
    qc = clamp(q, -200.0, 200.0)
    qt = select(qc == q, product_tail(yc, h, q) + yc * lo, 0.0)
    j = round_even(qc)
    v = scale(1.0 + exp2_tail((qc - j) + qt), to_int(j))
    grows = (a > 1.0) == (y > 0.0)
    v = select(isinf(y) | isinf(a) | (a == 0.0), select(grows, INF, 0.0), v)
    whole = round_even(y) == y
    odd = whole & ~(round_even(0.5 * y) == 0.5 * y)
    v = select(odd, with_sign_of(v, x), v)
    v = select((x < 0.0) & ~whole & ~isinf(x), NAN, v)
    v = select(isnan(x) | isnan(y), NAN, v)
    v = select((a == 1.0) & isinf(y), 1.0, v)
    return select((x == 1.0) | (y == 0.0), 1.0, v)


# Trigonometric functions ----------------------------------------------------------------------


def product_high(a: Uint, b: Uint) -> Uint:
    """The upper 32 bits of the 64-bit product."""
    al = a & 0xFFFF
    ah = a >> 16
    bl = b & 0xFFFF
    bh = b >> 16
    middle = ah * bl + ((al * bl) >> 16)
    carry = al * bh + (middle & 0xFFFF)
    return ah * bh + (middle >> 16) + (carry >> 16)


def quarter_turns(x: Float) -> tuple[Uint, Float, Float]:
    """x = q quarter turns + r + lo, with |r| up to pi/4; q counts modulo 4. x is finite."""
    a = absolute(x)
    small = a <= QUARTER_PI
    # The 96 bits of 2/pi that matter here: those before them make whole turns.
    start = (bits(select(small, 1.0, a)) >> 23) - 120
    i = start >> 5
    up = start & 31
    down = 31 - up
    w2 = (TWO_OVER_PI[i] << up) | ((TWO_OVER_PI[i + 1] >> 1) >> down)
    w1 = (TWO_OVER_PI[i + 1] << up) | ((TWO_OVER_PI[i + 2] >> 1) >> down)
    w0 = (TWO_OVER_PI[i + 2] << up) | ((TWO_OVER_PI[i + 3] >> 1) >> down)
    # Their product with the significand, as a fraction of 62 bits below two of the quarter.
    m = (bits(a) & 0x007FFFFF) | 0x00800000
    below = m * w1
    low = below + product_high(m, w0)
    high = m * w2 + product_high(m, w1) + to_uint(low < below)
    q = (high + 0x20000000) >> 30
    high = high - (q << 30)
    negative = high >= 0x80000000
    fraction_low = select(negative, ~low + 1, low)
    fraction_high = select(negative, ~high + to_uint(low == 0), high)
    # In floats of 24 bits each, which hold their piece exactly.
    f2 = to_float(fraction_high >> 7) * 1.1920928955078125e-07
    f1 = to_float(((fraction_high & 127) << 17) | (fraction_low >> 15)) * 7.105427357601002e-15
    f0 = to_float(fraction_low & 0x7FFF) * 2.168404344971009e-19
    g = f2 + f1
    t = ((f2 - g) + f1) + f0
    f = g + t
    t = (g - f) + t
    p = f * HALF_PI
    tail = product_tail(f, HALF_PI, p) + (f * HALF_PI_TAIL + t * HALF_PI)
    r = p + tail
    lo = (p - r) + tail
    below_zero = x < 0.0
    flip = ~(negative == below_zero)
    q = select(small, 0, select(below_zero, 0 - q, q) & 3)
    r = select(small, x, select(flip, -r, r))
    lo = select(small, 0.0, select(flip, -lo, lo))
    return q, r, lo


def sin_tail(r: Float, lo: Float) -> Float:
    """sin(r + lo) - r, for |r| up to pi/4."""
    z = r * r
    c = 0.00833332911 + z * (-0.000198392561 + z * 2.71756448e-06)
    return lo + r * z * (-0.166666672 + z * c)


def cos_parts(r: Float, lo: Float) -> tuple[Float, Float]:
    """cos(r + lo) in two floats, for |r| up to pi/4."""
    z = r * r
    h = 0.5 * z
    w = 1.0 - h
    c = -0.00138888834 + z * (2.47994358e-05 + z * -2.7203302e-07)
    return w, ((1.0 - w) - h) + (z * z * (0.0416666679 + z * c) - r * lo)


def sin(x: Float) -> Float:
    finite = ~(isnan(x) | isinf(x))
    q, r, lo = quarter_turns(select(finite, x, 0.0))
    w, t = cos_parts(r, lo)
    y = select((q & 1) == 1, w + t, r + sin_tail(r, lo))
    y = select(q >= 2, -y, y)
    y = select(x == 0.0, x, y)
    return select(finite, y, NAN)


def cos(x: Float) -> Float:
    finite = ~(isnan(x) | isinf(x))
    q, r, lo = quarter_turns(select(finite, x, 0.0))
    w, t = cos_parts(r, lo)
    y = select((q & 1) == 1, r + sin_tail(r, lo), w + t)
    y = select(((q + 1) & 2) == 2, -y, y)
    return select(finite, y, NAN)


def tan(x: Float) -> Float:
    finite = ~(isnan(x) | isinf(x))
    q, r, lo = quarter_turns(select(finite, x, 0.0))
    st = sin_tail(r, lo)
    s = r + st
    st = (r - s) + st
    w, ct = cos_parts(r, lo)
    c = w + ct
    ct = (w - c) + ct
    odd = (q & 1) == 1
    n = select(odd, -c, s)
    nt = select(odd, -ct, st)
    d = select(odd, s, c)
    dt = select(odd, st, ct)
    y = n / d
    p = y * d
    rest = (((n - p) - product_tail(y, d, p)) + (nt - y * dt)) / d
    y = select(absolute(r) < 1e-15, y, y + rest)
    y = select(x == 0.0, x, y)
    return select(finite, y, NAN)


def asin_series(z: Float) -> Float:
    """asin(s) / s - 1 with z = s * s, for z up to 0.25."""
    c = 0.0318286866 + z * (0.0143584935 + z * 0.0376300886)
    return z * (0.166666597 + z * (0.0750051737 + z * (0.0445144698 + z * c)))


def asin_half(a: Float) -> tuple[Float, Float]:
    """acos(a) / 2 in two floats, for a in [0.5, 1]."""
    z = 0.5 * (1.0 - a)
    s = sqrt(z)
    p = s * s
    t = select(z > 0.0, ((z - p) - product_tail(s, s, p)) / (s + s), 0.0)
    return s, t + s * asin_series(z)


def asin(x: Float) -> Float:
    a = absolute(x)
    s, t = asin_half(a)
    far = HALF_PI - (2.0 * s - (HALF_PI_TAIL - 2.0 * t))
    y = select(a <= 0.5, a + a * asin_series(a * a), far)
    return select(a <= 1.0, with_sign_of(y, x), NAN)


def acos(x: Float) -> Float:
    a = absolute(x)
    s, t = asin_half(a)
    far = select(x < 0.0, PI - (2.0 * s - (PI_TAIL - 2.0 * t)), 2.0 * (s + t))
    y = select(a <= 0.5, HALF_PI - (x - (HALF_PI_TAIL - x * asin_series(x * x))), far)
    return select(a <= 1.0, y, NAN)


def angle(n: Float, d: Float) -> tuple[Float, Float]:
    """atan(n / d) in two floats, for n and d from 0 up, of like magnitude or n / d small."""
    steep = n > d * 2.41421366
    middle = (n > d * 0.414213568) & ~steep
    u = select(steep, -d, select(middle, n - d, n))
    v = select(steep, n, select(middle, n + d, d))
    ut = select(middle, sum_tail(n, -d, u), 0.0)
    vt = select(middle, sum_tail(n, d, v), 0.0)
    t = u / v
    p = t * v
    tt = (((u - p) - product_tail(t, v, p)) + (ut - t * vt)) / v
    tt = select(absolute(t) > 0.0009765625, tt, 0.0)
    z = t * t
    c = -0.142819107 + z * (0.110433795 + z * (-0.0846839845 + z * 0.0472672991))
    series = t * z * (-0.333333313 + z * (0.199999005 + z * c))
    base = select(steep, HALF_PI, select(middle, QUARTER_PI, 0.0))
    tail = select(steep, HALF_PI_TAIL, select(middle, QUARTER_PI_TAIL, 0.0))
    h = base + t
    return h, ((base - h) + t) + (tt + series + tail)


def atan(x: Float) -> Float:
    h, lo = angle(clamp(absolute(x), 0.0, 1e18), 1.0)
    return select(isnan(x), x, with_sign_of(h + lo, x))


def atan2(y: Float, x: Float) -> Float:
    equal = isinf(x) & isinf(y)
    n = select(equal, 1.0, absolute(y))
    d = select(equal, 1.0, absolute(x))
    flat = isinf(d) | (n == 0.0)
    upright = (isinf(n) | (n > d * 1e18)) & ~flat
    # Away from the ends of float32's range, where a division's remainder would be lost.
    largest = select(n > d, n, d)
    s = select(largest < 9.094947e-13, 1.2089258e24, select(largest > 1e30, 9.094947e-13, 1.0))
    h, lo = angle(select(flat | upright, 1.0, n * s), select(flat | upright, 1.0, d * s))
    h = select(flat, 0.0, select(upright, HALF_PI, h))
    lo = select(flat, 0.0, select(upright, HALF_PI_TAIL, lo))
    p = PI - h
    behind = bits(x) >= 0x80000000
    v = select(behind, p + (((PI - p) - h) + (PI_TAIL - lo)), h + lo)
    return select(isnan(x) | isnan(y), NAN, with_sign_of(v, y))


# Hyperbolic functions and the rest ------------------------------------------------------------


def half_exp(x: Float) -> Float:
    """exp(x) / 2, which does not overflow before x = 89.4; x in [-104, 90]."""
    k, r, p = exp_parts(x)
    return scale(1.0 + (r + p), to_int(k) - 1)


def sinh(x: Float) -> Float:
    a = absolute(x)
    h = half_exp(clamp(a, 0.0, 90.0))
    z = a * a
    c = 0.00833335146 + z * (0.000198359616 + z * 2.81806342e-06)
    y = select(a < 1.0, a + a * z * (0.166666672 + z * c), h - 0.25 / h)
    return select(isnan(x), x, with_sign_of(y, x))


def cosh(x: Float) -> Float:
    h = half_exp(clamp(absolute(x), 0.0, 90.0))
    return select(isnan(x), x, h + 0.25 / h)


def tanh(x: Float) -> Float:
    a = absolute(x)
    h = half_exp(clamp(2.0 * a, 0.0, 40.0))
    z = a * a
    c = -0.0538461022 + z * (0.0210437179 + z * -0.00623163534)
    near = a + a * z * (-0.333333164 + z * (0.133325338 + z * c))
    y = select(a < 0.55, near, 1.0 - 1.0 / (h + 0.5))
    return select(isnan(x), x, with_sign_of(y, x))


def asinh(x: Float) -> Float:
    a = absolute(x)
    huge = a >= 16384.0
    # a + sqrt(a a + 1) in two floats
    b = select(huge, 1.0, a)
    p = b * b
    s = 1.0 + p
    st = sum_tail(1.0, p, s) + product_tail(b, b, p)
    q = sqrt(s)
    qq = q * q
    qt = (((s - qq) - product_tail(q, q, qq)) + st) / (q + q)
    u = b + q
    ut = sum_tail(b, q, u) + qt
    k, m = log_parts(select(huge, a, u))
    k = select(huge, k + 1, k)
    far = log_sum(to_float(k), m - 1.0, select(huge, 0.0, ut / u))
    z = a * a
    c = -0.0443593077 + z * (0.0280352198 + z * -0.0129959155)
    y = select(a < 0.5, a + a * z * (-0.166666389 + z * (0.0749846846 + z * c)), far)
    return select(isnan(x) | isinf(x), x, with_sign_of(y, x))


def acosh(x: Float) -> Float:
    huge = x >= 16384.0
    # t + sqrt(t (t + 2)) in two floats, with t = x - 1
    t = select((x > 1.0) & ~huge, x - 1.0, 1.0)
    w = t + 2.0
    p = t * w
    pt = product_tail(t, w, p) + t * sum_tail(2.0, t, w)
    q = sqrt(p)
    qq = q * q
    qt = ((p - qq) - product_tail(q, q, qq) + pt) / (q + q)
    u = t + q
    near = log1p_sum(u, sum_tail(t, q, u) + qt)
    k, m = log_parts(select(huge, x, 1.0))
    y = select(huge, log_sum(to_float(k) + 1.0, m - 1.0, 0.0), near)
    y = select(x > 1.0, y, select(x == 1.0, 0.0, NAN))
    return select(isnan(x) | (x == INF), x, y)


def atanh(x: Float) -> Float:
    a = absolute(x)
    b = select(a < 1.0, a, 0.5)
    # 2 b / (1 - b) in two floats
    d = 1.0 - b
    n = 2.0 * b
    t = n / d
    p = t * d
    tt = (((n - p) - product_tail(t, d, p)) - t * ((1.0 - d) - b)) / d
    y = 0.5 * log1p_sum(t, tt)
    y = select(a < 0.0001, a + a * a * a * 0.333333343, y)
    y = select(a < 1.0, y, select(a == 1.0, INF, NAN))
    return select(isnan(x), x, with_sign_of(y, x))


def erf(x: Float) -> Float:
    a = absolute(x)
    z = a * a
    c = 0.00522226933 + z * (-0.00085052033 + z * (0.000114438793 + z * -1.02535632e-05))
    c = -0.376126379 + z * (0.112837881 + z * (-0.0268658008 + z * c))
    near = a + a * (0.128379166 + z * c)
    # 1 - exp(log(erfc(a)))
    b = clamp(a, 0.0, 4.0)
    e = 0.0250297021 + b * (-0.00413678074 + b * (0.000427350809 + b * -2.0477346e-05))
    e = -1.12945402 + b * (-0.633471072 + b * (-0.108142324 + b * e))
    y = select(a < 0.9, near, 1.0 - 2.0 * half_exp(0.00016215448 + b * e))
    return select(isnan(x), x, with_sign_of(y, x))


def sigmoid(x: Float) -> Float:
    k, r, p = exp_parts(clamp(-absolute(x), -104.0, 0.0))
    h = 1.0 + r
    ht = (r - (h - 1.0)) + p
    g = h + ht
    gt = (h - g) + ht
    e = scale(g, to_int(k))
    et = scale(gt, to_int(k))
    d = 1.0 + e
    dt = (e - (d - 1.0)) + et
    n = select(x < 0.0, e, 1.0)
    nt = select(x < 0.0, et, 0.0)
    q = n / d
    t = q * d
    rest = (((n - t) - product_tail(q, d, t)) + (nt - q * dt)) / d
    return select(isnan(x), x, select(e < 1e-30, n, q + rest))


def rsqrt(x: Float) -> Float:
    return 1.0 / sqrt(x)
