Functions that HLSL lacks, or has with other results. Each stands under its name, and is written
into the files that use it; `dmlc/codegen/functions.py` says what $T and the like stand for.

//// isnan_float
// By its bits, so that no assumption about NaN can fold it away.
bool $H(const float x)
{
    return (asuint(x) & 0x7fffffff) > 0x7f800000;
}

//// isnan_float2
// By its bits, so that no assumption about NaN can fold it away.
bool2 $H(const float2 x)
{
    return (asuint(x) & 0x7fffffff) > 0x7f800000;
}

//// isnan_float4
// By its bits, so that no assumption about NaN can fold it away.
bool4 $H(const float4 x)
{
    return (asuint(x) & 0x7fffffff) > 0x7f800000;
}

//// isnan_double
bool $H(const double x)
{
    return !(x == x);
}

//// min_$T
// The smaller one; NaN where either is NaN, and the first of two equal ones.
$T $H(const $T a, const $T b)
{
    return (b < a || $isnan(b)) ? b : a;
}

//// max_$T
// The larger one; NaN where either is NaN, and the first of two equal ones.
$T $H(const $T a, const $T b)
{
    return (b > a || $isnan(b)) ? b : a;
}

//// mod_float
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
}

//// sign_$T
// -1, 1, or x itself where it is a zero or NaN.
$T $H(const $T x)
{
    return (x > 0) ? 1 : ((x < 0) ? -1 : x);
}

//// div_signed_$T
// Rounds towards zero; 0 where b is 0, and wraps where the quotient has no $T. By the sizes: DXC
// makes signed remainders of signed quotients, and devices differ in those of negative numbers.
$T $H(const $T a, const $T b)
{
    const $V size = (a < ($T)0) ? ($V)0 - ($V)a : ($V)a;
    const $V divisor = (b < ($T)0) ? ($V)0 - ($V)b : ($V)b;
    const $V quotient = size / ((b == ($T)0) ? ($V)1 : divisor);
    const bool is_negative = (a < ($T)0) != (b < ($T)0);
    return (b == ($T)0) ? ($T)0 : ($T)(is_negative ? ($V)0 - quotient : quotient);
}

//// div_unsigned_$T
// Rounds down; 0 where b is 0.
$T $H(const $T a, const $T b)
{
    const $T quotient = a / ((b == ($T)0) ? ($T)1 : b);
    return (b == ($T)0) ? ($T)0 : quotient;
}

//// mod_signed_$T
// The remainder, with the sign of a; 0 where b is 0. By the sizes, as quotients.
$T $H(const $T a, const $T b)
{
    const $V size = (a < ($T)0) ? ($V)0 - ($V)a : ($V)a;
    const $V divisor = (b < ($T)0) ? ($V)0 - ($V)b : ($V)b;
    const $V rest = size % ((b == ($T)0) ? ($V)1 : divisor);
    return (b == ($T)0) ? ($T)0 : ($T)((a < ($T)0) ? ($V)0 - rest : rest);
}

//// mod_unsigned_$T
// The remainder; 0 where b is 0.
$T $H(const $T a, const $T b)
{
    const $T remainder = a % ((b == ($T)0) ? ($T)1 : b);
    return (b == ($T)0) ? ($T)0 : remainder;
}

//// lesser_$T
$T $H(const $T a, const $T b)
{
    return (b < a) ? b : a;
}

//// greater_$T
$T $H(const $T a, const $T b)
{
    return (a < b) ? b : a;
}

//// sign_signed_$T
$T $H(const $T x)
{
    return (x < ($T)0) ? ($T)-1 : ((x == ($T)0) ? ($T)0 : ($T)1);
}

//// widen_bfloat16
// A bfloat16 is the upper half of a float.
float $H(const uint16_t bits)
{
    return asfloat((uint)bits << 16);
}

//// narrow_bfloat16
// Rounds to the nearest bfloat16, ties to even; NaN stays NaN.
uint $H(const float value)
{
    const uint bits = asuint(value);
    const uint rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return ((bits & 0x7fffffff) > 0x7f800000) ? 0x7fc0 : rounded;
}

//// round_float16
// Rounds to the nearest float16, ties to even, as storing it does; NaN stays NaN.
float $H(const float value)
{
    return (float)(float16_t)value;
}

//// round_float16_bits
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
}

//// round_bfloat16
// Rounds to the nearest bfloat16, ties to even, as storing it would; NaN stays NaN.
float $H(const float value)
{
    const uint bits = asuint(value);
    const uint rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
    return asfloat(((bits & 0x7fffffff) > 0x7f800000) ? bits : rounded);
}

//// half_float16
// Element i of two float16 to a word, exactly.
float $H(const uint word, const uint i)
{
    const uint bits = word >> (16 * (i % 2));
    const uint exponent = bits & 0x7c00;
    precise const float denormal = (float)(bits & 0x03ff) * 5.9604645e-08f;
    const uint normal = ((bits & 0x7fff) << 13) + (exponent == 0x7c00 ? 0x70000000 : 0x38000000);
    return asfloat((exponent == 0 ? asuint(denormal) : normal) | ((bits & 0x8000) << 16));
}

//// half_bfloat16
// Element i of two bfloat16 to a word: a bfloat16 is the upper half of a float.
float $H(const uint word, const uint i)
{
    return asfloat((i % 2 == 0) ? word << 16 : word & 0xffff0000);
}

//// narrow_float16
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
}

//// int_to_int64_t
// The high word by itself: Mesa 22 compares what it widened with literals wrongly.
int64_t $H(const int x)
{
    return (int64_t)(((uint64_t)(uint)(x >> 31) << 32) | (uint64_t)(uint)x);
}

//// int_to_double
// From an unsigned integer: Mesa 22 compares what it made of a signed one with 0 wrongly.
double $H(const int x)
{
    precise const double result = (double)((uint)x ^ 0x80000000) - 2147483648.0L;
    return result;
}

//// float_to_double
// From its bits: Mesa 25 takes what was rounded to a float for the number that it was before.
double $H(const float x)
{
    const uint size = asuint(x) & 0x7fffffff;
    const uint sign = asuint(x) ^ size;
    const uint high = (size >> 3) + ((size < 0x7f800000) ? 0x38000000 : 0x70000000);
    precise const double tiny = (double)size * 1.401298464324817e-45L;
    precise const double found = (size < 0x00800000) ? tiny : asdouble(size << 29, high);
    precise const double negated = -found;
    return (sign == 0) ? found : negated;
}

//// wide_to_double_$T
// Rounded once, in the sum: drivers take an integer that was made a double and comes back for the
// same integer.
double $H(const $T x)
{
    precise const double high = (double)($W)(x >> 32) * 4294967296.0L;
    precise const double result = high + (double)(uint)x;
    return result;
}

//// uint64_t_to_float
// Rounded once, from the leading 32 bits: in SPIR-V, DXC converts the low word alone.
float $H(const uint64_t x)
{
    const uint high = (uint)(x >> 32);
    const uint shift = (high == 0) ? 0 : firstbithigh(high) + 1;
    const uint lost = ((x >> shift) << shift == x) ? 0 : 1;
    precise const float leading = (float)((uint)(x >> shift) | lost);
    precise const float result = leading * asfloat((127 + shift) << 23);
    return result;
}

//// int64_t_to_float
float $H(const int64_t x)
{
    precise const float size = $uint64_t_to_float((uint64_t)(x < 0ll ? 0ll - x : x));
    precise const float result = (x < 0ll) ? -size : size;
    return result;
}

//// ${T}_to_$R ${T}_to_int8 ${T}_to_uint8 ${T}_to_int16 ${T}_to_uint16
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0. Only what fits is
// converted, in two steps: drivers take an integer that was made a float and comes back for the
// same integer.
$R $H(const $T x)
{
    const bool fits = $LOW < x && x < $HIGH;
    const $R whole = ($R)(fits ? x : ($T)0);
    return fits ? whole : ((x <= $LOW) ? $LEAST : ((x >= $HIGH) ? $MOST : ($R)0));
}

//// int8_at
// The byte that begins at a bit of a word, from -128 to 127.
int $H(const uint word, const uint bit)
{
    return (int)((word >> bit) << 24) >> 24;
}

//// uint8_at
// The byte that begins at a bit of a word.
uint $H(const uint word, const uint bit)
{
    return (word >> bit) & 0xff;
}

//// bool_at
// Whether the byte that begins at a bit of a word is not 0.
bool $H(const uint word, const uint bit)
{
    return ((word >> bit) & 0xff) != 0;
}

//// int16_at
// The half of a word that begins at a bit, from -32768 to 32767.
int $H(const uint word, const uint bit)
{
    return (int)((word >> bit) << 16) >> 16;
}

//// uint16_at
// The half of a word that begins at a bit.
uint $H(const uint word, const uint bit)
{
    return (word >> bit) & 0xffff;
}

//// unpack_int8_x4
// The bytes of a word, each from -128 to 127.
int4 $H(const uint word)
{
    return (int4)(word << uint4(24, 16, 8, 0)) >> 24;
}

//// unpack_uint8_x4
// The bytes of a word.
uint4 $H(const uint word)
{
    return (word >> uint4(0, 8, 16, 24)) & 0xff;
}

//// unpack_bool_x4
// Which bytes of a word are not 0.
bool4 $H(const uint word)
{
    return ((word >> uint4(0, 8, 16, 24)) & 0xff) != 0;
}

//// unpack_int16_x4
// The halves of two words, each from -32768 to 32767.
int4 $H(const uint2 words)
{
    return (int4)(words.xxyy << uint4(16, 0, 16, 0)) >> 16;
}

//// unpack_uint16_x4
// The halves of two words.
uint4 $H(const uint2 words)
{
    return (words.xxyy >> uint4(0, 16, 0, 16)) & 0xffff;
}

//// float16_at
// The float16 that begins at a bit of a word.
float $H(const uint word, const uint bit)
{
    return (float)asfloat16((uint16_t)(word >> bit));
}

//// bfloat16_at
// The bfloat16 that begins at a bit of a word: it is the upper half of a float.
float $H(const uint word, const uint bit)
{
    return asfloat(word >> bit << 16);
}

//// unpack_float16_x4
// Two float16 of each of two words.
float4 $H(const uint2 words)
{
    return (float4)asfloat16((uint16_t4)(words.xxyy >> uint4(0, 16, 0, 16)));
}

//// unpack_bfloat16_x4
// Two bfloat16 of each of two words, which are upper halves of floats.
float4 $H(const uint2 words)
{
    return asfloat(words.xxyy << uint4(16, 0, 16, 0) & 0xffff0000);
}

//// float16_bits
// The bits of the nearest float16.
uint $H(const float value)
{
    return (uint)asuint16((float16_t)value);
}

//// bfloat16_bits
// The bits of the nearest bfloat16.
uint $H(const float value)
{
    return $narrow_bfloat16(value);
}

//// pack_float16_x4
// Two words of two float16 each, the nearest ones.
uint2 $H(const float4 values)
{
    const uint4 bits = (uint4)asuint16((float16_t4)values);
    return bits.xz | bits.yw << 16;
}

//// pack_bfloat16_x4
// Two words of two bfloat16 each, the nearest ones.
uint2 $H(const float4 values)
{
    const uint4 bits = $narrow_bfloat16(values);
    return bits.xz | bits.yw << 16;
}

//// pack_int8_x4
// A word of four bytes, each given as a number from -128 to 127.
uint $H(const int4 values)
{
    const uint4 bytes = ((uint4)values & 0xff) << uint4(0, 8, 16, 24);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

//// pack_uint8_x4
// A word of four bytes, each given as a number from 0 to 255.
uint $H(const uint4 values)
{
    const uint4 bytes = values << uint4(0, 8, 16, 24);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

//// pack_bool_x4
// A word of four bytes that are 0 or 1.
uint $H(const bool4 values)
{
    const uint4 bytes = (uint4)values << uint4(0, 8, 16, 24);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

//// pack_int16_x4
// Two words of two halves each, given as numbers from -32768 to 32767.
uint2 $H(const int4 values)
{
    const uint4 halves = ((uint4)values & 0xffff) << uint4(0, 16, 0, 16);
    return halves.xz | halves.yw;
}

//// pack_uint16_x4
// Two words of two halves each, given as numbers from 0 to 65535.
uint2 $H(const uint4 values)
{
    const uint4 halves = values << uint4(0, 16, 0, 16);
    return halves.xz | halves.yw;
}
