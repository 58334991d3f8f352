Functions that OpenCL C lacks, or has with other results or slowly. Each stands under its name, and is
written into the files that use it; `dmlc/codegen/functions.py` says what $T and the like stand for.

//// sin_$T cos_$T tan_$T
// Large angles one by one: PoCL reduces all lanes alike where one is large, and spoils the others.
static $T $H(const $T x)
{
    const $I large = fabs(x) > 1e5f;
    $T result = $K(large ? ($T)(0) : x);
    if (any(large)) {
        float angles[$L], results[$L];
        vstore$L(x, 0, angles);
        vstore$L(result, 0, results);
        for (int lane = 0; lane < $L; ++lane) {
            if (fabs(angles[lane]) > 1e5f) {
                results[lane] = $K(angles[lane]);
            }
        }
        result = vload$L(0, results);
    }
    return result;
}

//// fma_$T
// x * y + z. It is rounded once where the device has an instruction for it, and else twice.
static $T $H(const $T x, const $T y, const $T z)
{
#if defined(FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return fma(x, y, z);
#else
    return x * y + z;
#endif
}

//// min_$T
// The smaller one; NaN where either is NaN, and the first of two equal ones.
static $T $H(const $T a, const $T b)
{
    return ((a <= b) | isnan(a)) ? a : b;
}

//// max_$T
// The larger one; NaN where either is NaN, and the first of two equal ones.
static $T $H(const $T a, const $T b)
{
    return ((a >= b) | isnan(a)) ? a : b;
}

//// sign_$T
// -1, 1, or x itself where it is a zero or NaN.
static $T $H(const $T x)
{
    return (x > 0) ? ($T)(1) : ((x < 0) ? ($T)(-1) : x);
}

//// abs_$T
// The lowest $T stays as it is: compilers take abs() of it for positive.
static $T $H(const $T x)
{
    const $T negated = as_$T(($U)(-as_$U(x)));
    return (x < ($T)(0)) ? negated : x;
}

//// sign_signed_$T
// -1, 0 or 1.
static $T $H(const $T x)
{
    return max(min(x, ($T)(1)), ($T)(-1));
}

//// sigmoid_$T
// 1 / (1 + exp(-x)), from the exponential that cannot overflow.
static $T $H(const $T x)
{
    const $T e = exp(-fabs(x));
    return ((x < 0) ? e : ($T)(1)) / (1 + e);
}

//// tanh_$T
// Near 0 a polynomial, and else 1 - 2 / (1 + exp(2 |x|)), which is 1 at last: PoCL's own never is.
static $T $H(const $T x)
{
    const $T a = fabs(x), z = a * a, e = exp(-2 * ((a > 10) ? ($T)(10) : a));
    const $T c = -0.0538461022f + z * (0.0210437179f + z * -0.00623163534f);
    const $T near = a + a * z * (-0.333333164f + z * (0.133325338f + z * c));
    const $T y = (a < 0.55f) ? near : 1 - 2 * e / (1 + e);
    return as_$T(as_$U(y) | (as_$U(x) & 0x80000000u));
}

//// log1p_$T
// Of small numbers they themselves: PoCL's own of the smallest are zeros.
static $T $H(const $T x)
{
    return (fabs(x) < ($T)(1e-20f)) ? x : log1p(x);
}

//// erf_$T
// Near 0 a polynomial, and else 1 - exp(log(erfc(|x|))): PoCL's own takes lane by lane.
static $T $H(const $T x)
{
    const $T a = fabs(x), z = a * a, b = (a > 4) ? ($T)(4) : a;
    $T c = 0.000114438793f + z * -1.02535632e-05f;
    c = 0.00522226933f + z * (-0.00085052033f + z * c);
    c = -0.376126379f + z * (0.112837881f + z * (-0.0268658008f + z * c));
    $T e = 0.000427350809f + b * -2.0477346e-05f;
    e = -0.108142324f + b * (0.0250297021f + b * (-0.00413678074f + b * e));
    e = 0.00016215448f + b * (-1.12945402f + b * (-0.633471072f + b * e));
    const $T y = (a < 0.9f) ? a + a * (0.128379166f + z * c) : 1 - exp(e);
    return as_$T(as_$U(y) | (as_$U(x) & 0x80000000u));
}

//// div_nearest_$T
// The number nearest to a / b, where devices may be off by a few units in the last place. What a
// quotient leaves over is exact. Very large and very small numbers are divided as they are, and so
// are all where the program is built with -D DIVIDES_CORRECTLY -cl-fp32-correctly-rounded-divide-sqrt.
static $T $H(const $T a, const $T b)
{
#ifdef DIVIDES_CORRECTLY
    return a / b;
#else
    const $T q = a / b;
    const $T near = q + fma(-q, b, a) / b;
    const $T rest = fma(-near, b, a);
    // In a close call, the number beside it on the side of a / b is nearer.
    const $I step = ((as_$I(rest) ^ as_$I(a)) < 0) ? ($I)(-1) : ($I)(1);
    const $T beside = as_$T(as_$I(near) + step);
    const $T nearest = (fabs(fma(-beside, b, a)) < fabs(rest)) ? beside : near;
    const $T least = fmin(fabs(a), fabs(b)), most = fmax(fabs(a), fabs(b));
    return ((least >= 0x1p-50f) & (most <= 0x1p50f)) ? nearest : q;
#endif
}

//// div_signed_$T
// Rounds towards zero; 0 where b is 0, and wraps where the quotient has no $T.
static $T $H(const $T a, const $T b)
{
    const $T divisor = ((b == ($T)(0)) | (b == ($T)(-1))) ? ($T)(1) : b;
    const $T quotient = a / divisor;
    const $T negated = as_$T(($U)(-as_$U(a)));
    return (b == ($T)(0)) ? ($T)(0) : ((b == ($T)(-1)) ? negated : quotient);
}

//// div_unsigned_$T
// Rounds down; 0 where b is 0.
static $T $H(const $T a, const $T b)
{
    const $T quotient = a / ((b == ($T)(0)) ? ($T)(1) : b);
    return (b == ($T)(0)) ? ($T)(0) : quotient;
}

//// mod_signed_$T
// The remainder, with the sign of a; 0 where b is 0. By the quotient: not all compilers give the
// remainder of a negative number.
static $T $H(const $T a, const $T b)
{
    const $T divisor = ((b == ($T)(0)) | (b == ($T)(-1))) ? ($T)(1) : b;
    return a - (a / divisor) * divisor;
}

//// mod_unsigned_$T
// The remainder; 0 where b is 0.
static $T $H(const $T a, const $T b)
{
    const $T remainder = a % ((b == ($T)(0)) ? ($T)(1) : b);
    return (b == ($T)(0)) ? ($T)(0) : remainder;
}

//// ${T}_to_$R
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0, which not all devices do.
static $R $H(const $T x)
{
    return convert_${R}_sat((x == x) ? x : ($T)(0));
}

//// load_half_x16
// Widened from a copy: PoCL takes the address of any vector of halves for an aligned one.
static float16 $H(__global const half *from)
{
    const ushort8 low = vload8(0, (__global const ushort *)from);
    const ushort8 high = vload8(1, (__global const ushort *)from);
    return (float16)(vload_half8(0, (const half *)&low), vload_half8(0, (const half *)&high));
}

//// store_half_x16
// Rounds to nearest even, and stores a copy, as halves are loaded.
static void $H(const float16 value, __global half *to)
{
    typedef ushort8 anywhere __attribute__((aligned(2)));
    ushort8 low, high;
    vstore_half8_rte(value.lo, 0, (half *)&low);
    vstore_half8_rte(value.hi, 0, (half *)&high);
    ((__global anywhere *)to)[0] = low;
    ((__global anywhere *)to)[1] = high;
}

//// load_half_x8
// Widened from a copy: PoCL takes the address of any vector of halves for an aligned one.
static float8 $H(__global const half *from)
{
    const ushort8 bits = vload8(0, (__global const ushort *)from);
    return vload_half8(0, (const half *)&bits);
}

//// store_half_x8
// Rounds to nearest even, and stores a copy, as halves are loaded.
static void $H(const float8 value, __global half *to)
{
    typedef ushort8 anywhere __attribute__((aligned(2)));
    ushort8 bits;
    vstore_half8_rte(value, 0, (half *)&bits);
    *(__global anywhere *)to = bits;
}

//// widen_half$X
static $T $H(const $B bits)
{
    return vload_half$L(0, (const half *)&bits);
}

//// narrow_half$X
// Rounds to the nearest float16, ties to even.
static $B $H(const $T value)
{
    $B bits;
    vstore_half${L}_rte(value, 0, (half *)&bits);
    return bits;
}

//// widen_bfloat16$X
// A bfloat16 is the upper half of a float.
static $T $H(const $B bits)
{
    return as_$T(convert_$U(bits) << 16);
}

//// narrow_bfloat16$X
// Rounds to the nearest bfloat16, ties to even; NaN stays NaN.
static $B $H(const $T value)
{
    const $U bits = as_$U(value);
    const $U rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return convert_$B(isnan(value) ? ($U)(0x7fc0) : rounded);
}

//// round_half$X
// Rounds to the nearest float16, ties to even: to what storing it would leave.
static $T $H(const $T value)
{
    ushort$L bits;
    vstore_half${L}_rte(value, 0, (half *)&bits);
    return vload_half$L(0, (const half *)&bits);
}

//// round_bfloat16$X
// Rounds to the nearest bfloat16, ties to even, as storing it would; NaN stays NaN.
static $T $H(const $T value)
{
    const $U bits = as_$U(value);
    const $U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    return as_$T((bits & 0x7fffffffu) > 0x7f800000u ? bits : rounded);
}

//// shuffle_$T
// Lanes of two vectors, those of b numbered on. PoCL's shuffle2 goes lane by lane.
#ifdef __clang__
#define $H(a, b, i0, i1, i2, i3, i4, i5, i6, i7) \
    __builtin_shufflevector(a, b, i0, i1, i2, i3, i4, i5, i6, i7)
#else
#define $H(a, b, i0, i1, i2, i3, i4, i5, i6, i7) \
    shuffle2(a, b, ($U)(i0, i1, i2, i3, i4, i5, i6, i7))
#endif

//// store_$T
// Stored at once: PoCL stores vectors of small elements one by one, unless they are aligned so.
static void $H(const $T value, __global $S *to)
{
    typedef $T anywhere __attribute__((aligned(sizeof($S))));
    *(__global anywhere *)to = value;
}

//// store_bfloat16$X
// Stored at once: PoCL stores vectors of small elements one by one, unless they are aligned so.
static void $H(const $T value, __global $S *to)
{
    typedef $B anywhere __attribute__((aligned(sizeof($S))));
    *(__global anywhere *)to = $narrow_bfloat16(value);
}

//// prefetch_line
// A hint: the cache line of an element that is read soon.
static void $H(__global const void *element)
{
#ifdef __has_builtin
#if __has_builtin(__builtin_prefetch)
    __builtin_prefetch(element);
#endif
#endif
}

//// store_mask$X
// Stored as 0 and 1, and at once: PoCL stores vectors of bytes one by one.
static void $H(const char$L value, __global uchar *to)
{
    typedef uchar$L anywhere __attribute__((aligned(1)));
    *(__global anywhere *)to = as_uchar$L(value) & (uchar$L)(1);
}

//// stream_small_$T
// Past the caches where `streaming` says so: they cannot keep a result this large.
static void $H(const $T value, __global $S *to, const bool streaming)
{
#ifdef STREAMING_STORES
    if (streaming) {
        __builtin_nontemporal_store(value, (__global $T *)to);
        return;
    }
#endif
    $store(value, to);
}

//// stream_$T
// Past the caches where `streaming` says so: they cannot keep a result this large.
static void $H(const $T value, __global $S *to, const bool streaming)
{
#ifdef STREAMING_STORES
    if (streaming) {
        __builtin_nontemporal_store(value, (__global $T *)to);
        return;
    }
#endif
    vstore$L(value, 0, to);
}

//// stream_half$X
// Past the caches where `streaming` says so: they cannot keep a result this large.
static void $H(const $T value, __global $S *to, const bool streaming)
{
#ifdef STREAMING_STORES
    if (streaming) {
        $B bits;
        vstore_half${L}_rte(value, 0, (half *)&bits);
        __builtin_nontemporal_store(bits, (__global $B *)to);
        return;
    }
#endif
    $store_half(value, to);
}

//// stream_bfloat16$X
// Past the caches where `streaming` says so: they cannot keep a result this large.
static void $H(const $T value, __global $S *to, const bool streaming)
{
#ifdef STREAMING_STORES
    if (streaming) {
        __builtin_nontemporal_store($narrow_bfloat16(value), (__global $B *)to);
        return;
    }
#endif
    $store_bfloat16(value, to);
}
