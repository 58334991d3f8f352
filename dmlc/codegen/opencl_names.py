"""Reserved names of OpenCL C: keywords, types, macros and built-in functions."""

from __future__ import annotations

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void
volatile while asm typeof bool true false complex imaginary half quad kernel global local constant
private generic read_only write_only read_write uniform pipe uchar ushort uint ulong size_t
ptrdiff_t intptr_t uintptr_t event_t sampler_t queue_t ndrange_t clk_event_t reserve_id_t
cl_mem_fence_flags main offsetof alignas alignof class template namespace this operator new delete
"""

_MACROS = """
NULL NAN INFINITY MAXFLOAT HUGE_VAL HUGE_VALF CHAR_BIT CHAR_MAX CHAR_MIN SCHAR_MAX SCHAR_MIN
UCHAR_MAX SHRT_MAX SHRT_MIN USHRT_MAX INT_MAX INT_MIN UINT_MAX LONG_MAX LONG_MIN ULONG_MAX FP_NAN
FP_INFINITE FP_ZERO FP_SUBNORMAL FP_NORMAL FP_ILOGB0 FP_ILOGBNAN STREAMING_STORES linux unix i386
"""

_FUNCTIONS = """
abs abs_diff acos acosh acospi add_sat all any asin asinh asinpi atan atan2 atan2pi atanh atanpi
barrier bitselect cbrt ceil clamp clz copysign cos cosh cospi cross ctz degrees distance dot erf
erfc exp exp10 exp2 expm1 fabs fast_distance fast_length fast_normalize fdim floor fma fmax fmin
fmod fract frexp hadd hypot ilogb isequal isfinite isgreater isgreaterequal isinf isless
islessequal islessgreater isnan isnormal isnotequal isordered isunordered ldexp length lgamma
lgamma_r log log10 log1p log2 logb mad mad24 mad_hi mad_sat max maxmag mem_fence min minmag mix
modf mul24 mul_hi nan nextafter normalize popcount pow pown powr prefetch printf radians
read_mem_fence remainder remquo rhadd rint rootn rotate round rsqrt select shuffle shuffle2 sign
signbit sin sincos sinh sinpi smoothstep sqrt step sub_sat tan tanh tanpi tgamma trunc upsample
vec_step wait_group_events write_mem_fence work_group_barrier to_global to_local to_private
"""

BUILTINS: frozenset[str] = frozenset((_KEYWORDS + _MACROS + _FUNCTIONS).split())
"""Single names."""

PREFIXES = (
    r"(bool|u?char|u?short|u?int|u?long|half|float|double|quad)(2|3|4|8|16|\d+x\d+)$"
    r"|(vload|vstore|convert|as|atomic|atom|async|get|native|half|read|write|image|work_group"
    r"|sub_group|intel|cl|CL|CLK|M|FLT|DBL|HALF|OPENCL|POCL)_"
    r"|(vload|vstore)\d|image[123]d|memory_|ATOMIC_"
)
"""Common prefixes of built-in functions, types and macros."""
