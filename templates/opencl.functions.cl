Functions that OpenCL C lacks, or has with other results or slowly. Each stands under its name, and is
written into the files that use it; `dmlc/codegen/functions.py` says what $T and the like stand for.

//// wave_$T
// sin(x + turns pi / 2), of angles up to 30000, written out as exp is.
static $T $H(const $T x, const $U turns)
{
    // x = k pi / 2 + r. The last bits of n are k.
    const $T n = fma(x, ($T)(0.636619747f), ($T)(12582912)), k = n - 12582912;
    $T r = fma(k, ($T)(-7.549789415861596e-08f), fma(k, ($T)(-1.570796251296997f), x));
    r = fma(k, ($T)(-5.390302529957765e-15f), r);
    const $T z = r * r;
    const $T s = fma(z, fma(z, ($T)(2.71756448e-06f), ($T)(-0.000198392561f)), ($T)(0.00833332911f));
    $T c = fma(z, fma(z, ($T)(-2.7203302e-07f), ($T)(2.47994358e-05f)), ($T)(-0.00138888834f));
    c = fma(z, fma(z, c, ($T)(0.0416666679f)), ($T)(-0.5f));
    const $U quarter = as_$U(n) + turns;
    const $T sine = fma(r * z, fma(z, s, ($T)(-0.166666672f)), r), cosine = fma(z, c, ($T)(1));
    const $T y = ((quarter & 1) != 0) ? cosine : sine;
    return as_$T(as_$U(y) ^ ((quarter & 2) << 30));
}

//// sin_$T
// Large angles one by one: PoCL reduces all lanes alike where one is large, and spoils the others.
static $T $H(const $T x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    const $I large = fabs(x) > 3e4f;
    $T result = ${wave}(large ? ($T)(0) : x, ($U)(0));
    result = (fabs(x) < 1e-4f) ? x : result;
#else
    const $I large = fabs(x) > 3e4f;
    $T result = sin(large ? ($T)(0) : x);
#endif
    if (any(large)) {
        float angles[$L], results[$L];
        vstore$L(x, 0, angles);
        vstore$L(result, 0, results);
        for (int lane = 0; lane < $L; ++lane) {
            if (fabs(angles[lane]) > 3e4f) {
                results[lane] = sin(angles[lane]);
            }
        }
        result = vload$L(0, results);
    }
    return result;
}

//// sin_float
// Written out as exp is, but for large angles.
static float $H(const float x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    if (fabs(x) <= 3e4f) {
        return (fabs(x) < 1e-4f) ? x : ${wave}(x, 0);
    }
#endif
    return sin(x);
}

//// cos_$T
// Large angles one by one, as of sin.
static $T $H(const $T x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    const $I large = fabs(x) > 3e4f;
    $T result = ${wave}(large ? ($T)(0) : x, ($U)(1));
#else
    const $I large = fabs(x) > 3e4f;
    $T result = cos(large ? ($T)(0) : x);
#endif
    if (any(large)) {
        float angles[$L], results[$L];
        vstore$L(x, 0, angles);
        vstore$L(result, 0, results);
        for (int lane = 0; lane < $L; ++lane) {
            if (fabs(angles[lane]) > 3e4f) {
                results[lane] = cos(angles[lane]);
            }
        }
        result = vload$L(0, results);
    }
    return result;
}

//// cos_float
// Written out as exp is, but for large angles.
static float $H(const float x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    if (fabs(x) <= 3e4f) {
        return ${wave}(x, 1);
    }
#endif
    return cos(x);
}

//// tan_$T
// Large angles one by one, as of sin.
static $T $H(const $T x)
{
    const $I large = fabs(x) > 1e5f;
    $T result = tan(large ? ($T)(0) : x);
    if (any(large)) {
        float angles[$L], results[$L];
        vstore$L(x, 0, angles);
        vstore$L(result, 0, results);
        for (int lane = 0; lane < $L; ++lane) {
            if (fabs(angles[lane]) > 1e5f) {
                results[lane] = tan(angles[lane]);
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

//// exp_$T
// e to the power of x. Where vectors are those of a processor, it is written out: calls of a library
// would take lane by lane.
static $T $H(const $T x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    // x = k log(2) + r. The last bits of n are k + 254.
    const $T b = (x > 89) ? ($T)(89) : ((x < -104) ? ($T)(-104) : x);
    const $T n = fma(b, ($T)(1.44269502f), ($T)(12583166)), k = n - 12583166;
    const $T r = fma(k, ($T)(1.90465421e-09f), fma(k, ($T)(-0.693147182f), b));
    $T c = fma(r, ($T)(0.00139507256f), ($T)(0.00836902484f));
    c = fma(r, fma(r, c, ($T)(0.0416662022f)), ($T)(0.166665182f));
    const $T y = 1 + fma(r * r, fma(r, c, ($T)(0.5f)), r);
    // 2^k as two factors, so that a denormal result is rounded once.
    const $U both = as_$U(n), lower = both >> 1;
    return y * as_$T(lower << 23) * as_$T((both - lower) << 23);
#else
    return exp(x);
#endif
}

//// expm1_$T
// exp(x) - 1, without the digits that would cancel.
static $T $H(const $T x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    // As exp, with 2^(k - 1), since 2^k overflows first: the last bits of n are k + 126.
    const $T b = (x > 89) ? ($T)(89) : ((x < -20) ? ($T)(-20) : x);
    const $T n = fma(b, ($T)(1.44269502f), ($T)(12583038)), k = n - 12583038;
    const $T r = fma(k, ($T)(1.90465421e-09f), fma(k, ($T)(-0.693147182f), b));
    $T c = fma(r, ($T)(0.00139507256f), ($T)(0.00836902484f));
    c = fma(r, fma(r, c, ($T)(0.0416662022f)), ($T)(0.166665182f));
    const $T p = fma(r * r, fma(r, c, ($T)(0.5f)), r), s = as_$T(as_$U(n) << 23);
    const $T y = 2 * fma(s, p, s - 0.5f);
    return (fabs(x) < 1e-10f) ? x : y;
#else
    return expm1(x);
#endif
}

//// expm1_normal_$T
// exp(x) - 1, of numbers from -87 to 87 on processors, as expm1 is. The last bits of n are k + 127.
static $T $H(const $T x)
{
    const $T n = fma(x, ($T)(1.44269502f), ($T)(12583039)), k = n - 12583039;
    const $T r = fma(k, ($T)(1.90465421e-09f), fma(k, ($T)(-0.693147182f), x));
    $T c = fma(r, ($T)(0.00139507256f), ($T)(0.00836902484f));
    c = fma(r, fma(r, c, ($T)(0.0416662022f)), ($T)(0.166665182f));
    const $T p = fma(r * r, fma(r, c, ($T)(0.5f)), r), s = as_$T(as_$U(n) << 23);
    return fma(s, p, s - 1);
}

//// log_$T
// The natural logarithm, written out as exp is.
static $T $H(const $T x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    // x = 2^k (1 + f), with 1 + f between sqrt(1/2) and sqrt(2)
    const $I tiny = x < 1.17549435e-38f;
    const $U u = as_$U(tiny ? x * 33554432 : x) + 0x004afb0d;
    const $T k = convert_$T(as_$I(u >> 23)) - (tiny ? ($T)(152) : ($T)(127));
    const $T f = as_$T((u & 0x007fffff) + 0x3f3504f3) - 1;
    const $T s = f / (2 + f), z = s * s, h = 0.5f * f * f;
    $T c = fma(z, ($T)(0.236106679f), ($T)(0.285358816f));
    c = z * fma(z, fma(z, c, ($T)(0.400003552f)), ($T)(0.666666627f));
    const $T rest = fma(s, h + c, k * -2.12194440e-4f);
    const $T y = fma(k, ($T)(0.693359375f), f - (h - rest));
    const $T v = (x > 0) ? y : ((x == 0) ? ($T)(-INFINITY) : ($T)(NAN));
    return (x < INFINITY) ? v : x;
#else
    return log(x);
#endif
}

//// sigmoid_$T
// 1 / (1 + exp(-x)), from the exponential that cannot overflow.
static $T $H(const $T x)
{
    const $T e = ${exp}(-fabs(x));
    return ((x < 0) ? e : ($T)(1)) / (1 + e);
}

//// sigmoid_wide_$T
// 1 / (1 + exp(-x)) likewise, of FLOAT64.
static $T $H(const $T x)
{
    const $T e = exp(-fabs(x));
    return ((x < 0) ? e : ($T)(1)) / (1 + e);
}

//// tanh_$T
// e / (e + 2), with e = exp(2 |x|) - 1, and from 1 on 1 - 2 / (e + 2), which never falls. Elsewhere a
// polynomial near 0, and else 1 - 2 / (1 + exp(2 |x|)). Both are 1 at last: PoCL's own never is.
static $T $H(const $T x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    const $T a = fabs(x), e = ${expm1_normal}(2 * ((a > 10) ? ($T)(10) : a));
    const $T q = ((a < 1) ? e : ($T)(2)) / (e + 2), y = (a < 1) ? q : 1 - q;
#else
    const $T a = fabs(x), z = a * a, e = exp(-2 * ((a > 10) ? ($T)(10) : a));
    const $T c = -0.0538461022f + z * (0.0210437179f + z * -0.00623163534f);
    const $T near = a + a * z * (-0.333333164f + z * (0.133325338f + z * c));
    const $T y = (a < 0.55f) ? near : 1 - 2 * e / (1 + e);
#endif
    return as_$T(as_$U(y) | (as_$U(x) & 0x80000000u));
}

//// log1p_$T
// log(1 + x). Of small numbers they themselves: PoCL's own of the smallest are zeros.
static $T $H(const $T x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    // As log, of u = 1 + x with what its rounding took, and of x itself where u is near 1.
    const $T u = 1 + x;
    const $U bits = as_$U(u) + 0x004afb0d;
    const $T k = convert_$T(as_$I(bits >> 23)) - 127;
    const $T lost = (k == 0) ? ($T)(0) : ((x > 1) ? 1 - (u - x) : x - (u - 1)) / u;
    const $T f = (k == 0) ? x : as_$T((bits & 0x007fffff) + 0x3f3504f3) - 1;
    const $T s = f / (2 + f), z = s * s, h = 0.5f * f * f;
    $T c = fma(z, ($T)(0.236106679f), ($T)(0.285358816f));
    c = z * fma(z, fma(z, c, ($T)(0.400003552f)), ($T)(0.666666627f));
    const $T rest = fma(s, h + c, fma(k, ($T)(-2.12194440e-4f), lost));
    const $T y = fma(k, ($T)(0.693359375f), f - (h - rest));
    const $T v = (x > -1) ? y : ((x == -1) ? ($T)(-INFINITY) : ($T)(NAN));
    return ((fabs(x) < 1e-20f) | (x == INFINITY)) ? x : v;
#else
    return (fabs(x) < ($T)(1e-20f)) ? x : log1p(x);
#endif
}

//// log1p_wide_$T
// log(1 + x) likewise, of FLOAT64.
static $T $H(const $T x)
{
    return (fabs(x) < ($T)(1e-20f)) ? x : log1p(x);
}

//// erf_$T
// 1 - exp(log(erfc(|x|))), by a polynomial for the logarithm, and elsewhere of another near 0: PoCL's
// own takes lane by lane.
static $T $H(const $T x)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    const $T a = fabs(x), b = (a > 4) ? ($T)(4) : a;
    $T c = fma(b, ($T)(7.79476522e-07f), ($T)(-1.57637387e-05f));
    c = fma(b, fma(b, c, ($T)(0.0001370971f)), ($T)(-0.000654901552f));
    c = fma(b, fma(b, c, ($T)(0.00166380871f)), ($T)(-0.00013264174f));
    c = fma(b, fma(b, c, ($T)(-0.0191750787f)), ($T)(0.102784336f));
    c = fma(b, fma(b, c, ($T)(0.636618733f)), ($T)(0.128379181f));
    const $T y = fabs(${expm1_normal}(fma(-b, c, -b)));
#else
    const $T a = fabs(x), z = a * a, b = (a > 4) ? ($T)(4) : a;
    $T c = 0.000114438793f + z * -1.02535632e-05f;
    c = 0.00522226933f + z * (-0.00085052033f + z * c);
    c = -0.376126379f + z * (0.112837881f + z * (-0.0268658008f + z * c));
    $T e = 0.000427350809f + b * -2.0477346e-05f;
    e = -0.108142324f + b * (0.0250297021f + b * (-0.00413678074f + b * e));
    e = 0.00016215448f + b * (-1.12945402f + b * (-0.633471072f + b * e));
    const $T y = (a < 0.9f) ? a + a * (0.128379166f + z * c) : 1 - exp(e);
#endif
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
