Functions that WGSL lacks, or leaves to implementations. Each stands under its name, and is written
into the files that use it; `dmlc/codegen/functions.py` says what $H and the like stand for.

//// pin
// The same number, which no compiler sees through: neither what gave it nor what takes it is
// computed otherwise than written.
fn $H(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) + zero_bits);
}

//// divide
// a / b within 2.5 units in the last place: WGSL grants that for divisors up to 2^126.
fn $H(a: f32, b: f32) -> f32 {
    let scale = select(1.0f, 0.25f, abs(b) > 8.507059e37f);
    return $pin(a * scale) / $pin(b * scale);
}

//// is_nan
// By its bits: compilers may take no number for NaN.
fn $H(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

//// is_infinite
// By its bits: compilers may take no number for infinite.
fn $H(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

//// lesser
// The smaller one; NaN where either is NaN, and the first of two equal ones.
fn $H(a: f32, b: f32) -> f32 {
    return select(a, b, b < a || $is_nan(b));
}

//// greater
// The larger one; NaN where either is NaN, and the first of two equal ones.
fn $H(a: f32, b: f32) -> f32 {
    return select(a, b, b > a || $is_nan(b));
}

//// sign_of
// -1, 1, or x itself where it is a zero or NaN.
fn $H(x: f32) -> f32 {
    return select(select(x, -1.0f, x < 0.0f), 1.0f, x > 0.0f);
}

//// remainder
// The remainder of a / b with the sign of a, exactly; NaN where b is 0 or a is infinite.
fn $H(a: f32, b: f32) -> f32 {
    let x = bitcast<u32>(a) & 0x7fffffffu;
    let y = bitcast<u32>(b) & 0x7fffffffu;
    let undefined = x >= 0x7f800000u || y > 0x7f800000u || y == 0u;
    // Whole numbers of 24 bits, times 2^(e - 150); the divisor's leading bit is made bit 23.
    let is_denormal = y < 0x00800000u;
    let zeros = select(0u, 23u - firstLeadingBit(y | 1u), is_denormal);
    let divisor = select((y & 0x007fffffu) | 0x00800000u, y << zeros, is_denormal);
    let y_exponent = max(i32(y >> 23u), 1) - i32(zeros);
    var rest = select((x & 0x007fffffu) | 0x00800000u, x, x < 0x00800000u);
    var steps = max(i32(x >> 23u), 1) - y_exponent;
    // Below, |a| < |b| leaves a as it is; otherwise long division, eight bits at a time.
    if (!undefined && x >= y) {
        while (steps > 0) {
            let shift = min(steps, 8);
            rest = (rest % divisor) << u32(shift);
            steps -= shift;
        }
        rest = rest % divisor;
    }
    // rest * 2^(y_exponent - 150), put together from its bits: no rounding, no arithmetic.
    let leading = firstLeadingBit(rest | 1u);
    let exponent = y_exponent + i32(leading) - 23;
    let normal = ((rest << ((23u - leading) & 31u)) & 0x007fffffu) | (u32(exponent) << 23u);
    let up = rest << (u32(y_exponent - 1) & 31u);
    let down = rest >> (u32(1 - y_exponent) & 31u);
    let denormal = select(down, up, y_exponent >= 1);
    let size = select(select(denormal, normal, exponent >= 1), 0u, rest == 0u);
    let bits = select(size, x, x < y) | (bitcast<u32>(a) & 0x80000000u);
    return bitcast<f32>(select(bits, 0x7fc00000u | zero_bits, undefined));
}

//// round_f16
// Rounds to the nearest f16, ties to even, as storing it would; NaN stays NaN.
fn $H(value: f32) -> f32 {
    let sign = bitcast<u32>(value) & 0x80000000u;
    let size = bitcast<u32>(value) & 0x7fffffffu;
    let rounded = (size + 0x0fffu + ((size >> 13u) & 1u)) & 0xffffe000u;
    let normal = select(rounded, 0x7f800000u, rounded >= 0x47800000u);
    // Below 2^-14 an f16 counts in units of 2^-24, as floats from 0.5 to 1 do.
    let denormal = $pin(bitcast<f32>(size) + 0.5f) - 0.5f;
    let bits = select(normal, bitcast<u32>(denormal), size < 0x38800000u);
    return bitcast<f32>(select(bits, size, size > 0x7f800000u) | sign);
}

//// div_i32
// Rounds towards zero; 0 where b is 0, and wraps where the quotient has no i32. By the sizes, as
// remainders.
fn $H(a: i32, b: i32) -> i32 {
    let size = u32(select(a, -a, a < 0));
    let quotient = i32(size / select(u32(select(b, -b, b < 0)), 1u, b == 0));
    return select(select(-quotient, quotient, (a < 0) == (b < 0)), 0, b == 0);
}

//// div_u32
// Rounds down; 0 where b is 0.
fn $H(a: u32, b: u32) -> u32 {
    return select(a / select(b, 1u, b == 0u), 0u, b == 0u);
}

//// mod_i32
// The remainder, with the sign of a; 0 where b is 0. By the sizes: Vulkan leaves the remainders of
// negative numbers undefined, and not all compilers see to it.
fn $H(a: i32, b: i32) -> i32 {
    let size = u32(select(a, -a, a < 0));
    let rest = i32(size % select(u32(select(b, -b, b < 0)), 1u, b == 0));
    return select(select(rest, -rest, a < 0), 0, b == 0);
}

//// mod_u32
// The remainder; 0 where b is 0.
fn $H(a: u32, b: u32) -> u32 {
    return a % select(b, 1u, b == 0u);
}

//// f32_to_i32
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0.
fn $H(x: f32) -> i32 {
    let fits = -2147483648.0f <= x && x < 2147483648.0f;
    let whole = i32(select(0.0f, x, fits));
    let bound = select(i32(-2147483648), 2147483647, x > 0.0f);
    return select(select(bound, 0, $is_nan(x)), whole, fits);
}

//// f32_to_u32
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0.
fn $H(x: f32) -> u32 {
    let fits = 0.0f <= x && x < 4294967296.0f;
    let whole = u32(select(0.0f, x, fits));
    return select(select(0u, 4294967295u, x > 0.0f), whole, fits);
}

//// f32_to_int8
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0.
fn $H(x: f32) -> i32 {
    return clamp($f32_to_i32(x), -128, 127);
}

//// f32_to_int16
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0.
fn $H(x: f32) -> i32 {
    return clamp($f32_to_i32(x), -32768, 32767);
}

//// f32_to_uint8
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0.
fn $H(x: f32) -> u32 {
    return min($f32_to_u32(x), 255u);
}

//// f32_to_uint16
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0.
fn $H(x: f32) -> u32 {
    return min($f32_to_u32(x), 65535u);
}

//// round_bf16
// Rounds to the nearest bfloat16, ties to even, as storing it would; NaN stays NaN.
fn $H(value: f32) -> f32 {
    let bits = bitcast<u32>(value);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
    return bitcast<f32>(select(rounded, bits, (bits & 0x7fffffffu) > 0x7f800000u));
}

//// bfloat16_bits
// The bits of the nearest bfloat16, ties to even; NaN stays NaN.
fn $H(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, 0x7fc0u, (bits & 0x7fffffffu) > 0x7f800000u);
}

//// bfloat16_at
// The bfloat16 that begins at a bit of a word: it is the upper half of a float.
fn $H(word: u32, bit: u32) -> f32 {
    return bitcast<f32>((word >> bit) << 16u);
}

//// int8_at
// The byte that begins at a bit of a word, from -128 to 127.
fn $H(word: u32, bit: u32) -> i32 {
    return extractBits(i32(word), bit, 8u);
}

//// uint8_at
// The byte that begins at a bit of a word.
fn $H(word: u32, bit: u32) -> u32 {
    return extractBits(word, bit, 8u);
}

//// bool_at
// Whether the byte that begins at a bit of a word is not 0.
fn $H(word: u32, bit: u32) -> bool {
    return extractBits(word, bit, 8u) != 0u;
}

//// int16_at
// The half of a word that begins at a bit, from -32768 to 32767.
fn $H(word: u32, bit: u32) -> i32 {
    return extractBits(i32(word), bit, 16u);
}

//// uint16_at
// The half of a word that begins at a bit.
fn $H(word: u32, bit: u32) -> u32 {
    return extractBits(word, bit, 16u);
}

//// unpack_int8_x4
// The bytes of a word, each from -128 to 127.
fn $H(word: u32) -> vec4<i32> {
    let bytes = vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u);
    return vec4<i32>(bytes) >> vec4<u32>(24u);
}

//// unpack_uint8_x4
// The bytes of a word.
fn $H(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu);
}

//// unpack_bool_x4
// Which bytes of a word are not 0.
fn $H(word: u32) -> vec4<bool> {
    let bytes = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu);
    return bytes != vec4<u32>(0u);
}

//// unpack_int16_x4
// The halves of two words, each from -32768 to 32767.
fn $H(words: vec2<u32>) -> vec4<i32> {
    return vec4<i32>(words.xxyy << vec4<u32>(16u, 0u, 16u, 0u)) >> vec4<u32>(16u);
}

//// unpack_uint16_x4
// The halves of two words.
fn $H(words: vec2<u32>) -> vec4<u32> {
    return (words.xxyy >> vec4<u32>(0u, 16u, 0u, 16u)) & vec4<u32>(0xffffu);
}

//// unpack_bfloat16_x4
// The numbers of two words of two bfloat16 each.
fn $H(words: vec2<u32>) -> vec4<f32> {
    return bitcast<vec4<f32>>((words.xxyy >> vec4<u32>(0u, 16u, 0u, 16u)) << vec4<u32>(16u));
}

//// pack_int8_x4
// A word of four bytes, each given as a number from -128 to 127.
fn $H(values: vec4<i32>) -> u32 {
    let bytes = (vec4<u32>(values) & vec4<u32>(0xffu)) << vec4<u32>(0u, 8u, 16u, 24u);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

//// pack_uint8_x4
// A word of four bytes, each given as a number from 0 to 255.
fn $H(values: vec4<u32>) -> u32 {
    let bytes = values << vec4<u32>(0u, 8u, 16u, 24u);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

//// pack_bool_x4
// A word of four bytes that are 0 or 1.
fn $H(values: vec4<bool>) -> u32 {
    let bytes = vec4<u32>(values) << vec4<u32>(0u, 8u, 16u, 24u);
    return bytes.x | bytes.y | bytes.z | bytes.w;
}

//// pack_int16_x4
// Two words of two halves each, given as numbers from -32768 to 32767.
fn $H(values: vec4<i32>) -> vec2<u32> {
    let halves = (vec4<u32>(values) & vec4<u32>(0xffffu)) << vec4<u32>(0u, 16u, 0u, 16u);
    return halves.xz | halves.yw;
}

//// pack_uint16_x4
// Two words of two halves each, given as numbers from 0 to 65535.
fn $H(values: vec4<u32>) -> vec2<u32> {
    let halves = values << vec4<u32>(0u, 16u, 0u, 16u);
    return halves.xz | halves.yw;
}

//// pack_bfloat16_x4
// Two words of two bfloat16 each: the nearest ones, ties to even; NaN stays NaN.
fn $H(values: vec4<f32>) -> vec2<u32> {
    let bits = bitcast<vec4<u32>>(values);
    let rounded = (bits + vec4<u32>(0x7fffu) + ((bits >> vec4<u32>(16u)) & vec4<u32>(1u)))
        >> vec4<u32>(16u);
    let is_nan = (bits & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    let halves = select(rounded, vec4<u32>(0x7fc0u), is_nan) << vec4<u32>(0u, 16u, 0u, 16u);
    return halves.xz | halves.yw;
}

//// add_u64
// The sum of two integers of two words, which wraps.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

//// sub_u64
// The difference of two integers of two words, which wraps.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

//// mul_u64
// The product of two integers of two words, which wraps. By halves of the lower words.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = (a.x & 0xffffu) * (b.x & 0xffffu);
    let left = (a.x >> 16u) * (b.x & 0xffffu);
    let right = (a.x & 0xffffu) * (b.x >> 16u);
    let middle = (low >> 16u) + (left & 0xffffu) + (right & 0xffffu);
    let high = (a.x >> 16u) * (b.x >> 16u) + (left >> 16u) + (right >> 16u) + (middle >> 16u);
    return vec2<u32>((middle << 16u) | (low & 0xffffu), high + a.x * b.y + a.y * b.x);
}

//// shift_left_u64
// Moves bits up, by the distance modulo 64.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let distance = b.x & 31u;
    let carried = (a.x >> 1u) >> (31u - distance);
    let near = vec2<u32>(a.x << distance, (a.y << distance) | carried);
    return select(near, vec2<u32>(0u, a.x << distance), (b.x & 32u) != 0u);
}

//// shift_right_u64
// Moves bits down, by the distance modulo 64.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let distance = b.x & 31u;
    let carried = (a.y << 1u) << (31u - distance);
    let near = vec2<u32>((a.x >> distance) | carried, a.y >> distance);
    return select(near, vec2<u32>(a.y >> distance, 0u), (b.x & 32u) != 0u);
}

//// shift_right_i64
// Moves bits down, by the distance modulo 64; negative numbers stay negative.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let distance = b.x & 31u;
    let carried = (a.y << 1u) << (31u - distance);
    let high = u32(i32(a.y) >> distance);
    let near = vec2<u32>((a.x >> distance) | carried, high);
    return select(near, vec2<u32>(high, u32(i32(a.y) >> 31u)), (b.x & 32u) != 0u);
}

//// less_u64
// Whether a < b.
fn $H(a: vec2<u32>, b: vec2<u32>) -> bool {
    return select(a.y < b.y, a.x < b.x, a.y == b.y);
}

//// less_i64
// Whether a < b.
fn $H(a: vec2<u32>, b: vec2<u32>) -> bool {
    return select(i32(a.y) < i32(b.y), a.x < b.x, a.y == b.y);
}

//// min_u64
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, $less_u64(b, a));
}

//// min_i64
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, $less_i64(b, a));
}

//// max_u64
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, $less_u64(a, b));
}

//// max_i64
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, $less_i64(a, b));
}

//// abs_i64
// The size of a number; the least one is its own.
fn $H(a: vec2<u32>) -> vec2<u32> {
    return select(a, $sub_u64(vec2<u32>(0u), a), i32(a.y) < 0);
}

//// sign_u64
// 0 or 1.
fn $H(a: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(select(0u, 1u, any(a != vec2<u32>(0u))), 0u);
}

//// sign_i64
// -1, 0 or 1.
fn $H(a: vec2<u32>) -> vec2<u32> {
    let size = vec2<u32>(select(0u, 1u, any(a != vec2<u32>(0u))), 0u);
    return select(size, vec2<u32>(0xffffffffu), i32(a.y) < 0);
}

//// divide_u64
// The quotient, rounded down, and the remainder; both 0 where b is 0. By long division, bit by bit.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    var quotient = a;
    var rest = vec2<u32>(0u);
    for (var k = 0; k < 64; k++) {
        let carried = rest.y >> 31u;
        rest = vec2<u32>((rest.x << 1u) | (quotient.y >> 31u), (rest.y << 1u) | (rest.x >> 31u));
        quotient = vec2<u32>(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
        if (carried != 0u || !$less_u64(rest, b)) {
            rest = $sub_u64(rest, b);
            quotient.x |= 1u;
        }
    }
    return select(vec4<u32>(quotient, rest), vec4<u32>(0u), all(b == vec2<u32>(0u)));
}

//// div_u64
// Rounds down; 0 where b is 0.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return $divide_u64(a, b).xy;
}

//// mod_u64
// The remainder; 0 where b is 0.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return $divide_u64(a, b).zw;
}

//// div_i64
// Rounds towards zero; 0 where b is 0, and wraps where the quotient is out of range.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let size = $divide_u64($abs_i64(a), $abs_i64(b)).xy;
    return select(size, $sub_u64(vec2<u32>(0u), size), i32(a.y ^ b.y) < 0);
}

//// mod_i64
// The remainder, with the sign of a; 0 where b is 0.
fn $H(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let size = $divide_u64($abs_i64(a), $abs_i64(b)).zw;
    return select(size, $sub_u64(vec2<u32>(0u), size), i32(a.y) < 0);
}

//// i32_to_i64
fn $H(x: i32) -> vec2<u32> {
    return vec2<u32>(u32(x), u32(x >> 31u));
}

//// u64_to_f32
// The nearest f32, ties to even, put together from its bits.
fn $H(a: vec2<u32>) -> f32 {
    let zeros = select(63u - firstLeadingBit(a.x | 1u), 31u - firstLeadingBit(a.y | 1u), a.y != 0u);
    let leading = $shift_left_u64(a, vec2<u32>(zeros, 0u));
    let mantissa = leading.y >> 8u;
    let is_over = (leading.y & 0x80u) != 0u;
    let is_tie = (leading.y & 0x7fu) == 0u && leading.x == 0u;
    let up = select(0u, 1u, is_over && (!is_tie || (mantissa & 1u) != 0u));
    let bits = ((189u - zeros) << 23u) + mantissa + up;
    return bitcast<f32>(select(bits, 0u, all(a == vec2<u32>(0u))));
}

//// i64_to_f32
// The nearest f32, ties to even.
fn $H(a: vec2<u32>) -> f32 {
    let size = $u64_to_f32($abs_i64(a));
    return select(size, -size, i32(a.y) < 0);
}

//// f32_to_u64
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0.
fn $H(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let exponent = bits >> 23u;
    let mantissa = vec2<u32>((bits & 0x007fffffu) | 0x00800000u, 0u);
    let up = $shift_left_u64(mantissa, vec2<u32>(exponent - 150u, 0u));
    let down = $shift_right_u64(mantissa, vec2<u32>(150u - exponent, 0u));
    let whole = select(down, up, exponent >= 150u);
    let is_none = exponent < 127u || (bits & 0x80000000u) != 0u || $is_nan(x);
    let found = select(whole, vec2<u32>(0xffffffffu), exponent >= 191u);
    return select(found, vec2<u32>(0u), is_none);
}

//// f32_to_i64
// Rounds towards zero; out of range gives the nearest bound, NaN gives 0.
fn $H(x: f32) -> vec2<u32> {
    let is_negative = (bitcast<u32>(x) & 0x80000000u) != 0u;
    let size = $f32_to_u64(bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu));
    let negated = $sub_u64(vec2<u32>(0u), size);
    let is_over = size.y >= 0x80000000u;
    let most = select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), is_negative);
    return select(select(size, negated, is_negative), most, is_over);
}
