"""The dialect of OpenCL C 1.2, without extensions but `cl_khr_fp64` where doubles are used.

Arithmetic on signed integers goes through unsigned ones, since overflow of the former is
undefined in C; what C promotes to `int` is cast back. Vectors of booleans are masks: signed
integers as wide as what was compared, 0 or -1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from dmlc.codegen.dialect import (
    INTEGERS,
    Dialect,
    Entry,
    Helper,
    Spelling,
    Unsupported,
    make_c_syntax,
    make_conversions,
    make_table,
)
from dmlc.codegen.opencl_host import OPENCL_C, list_details
from dmlc.codegen.opencl_names import BUILTINS, PREFIXES
from dmlc.kernel.schedule import Limits
from dmlc.scalars import DataType, Kind

T = DataType

TYPES = MappingProxyType(
    {
        T.FLOAT64: "double",
        T.FLOAT32: "float",
        T.INT8: "char",
        T.INT16: "short",
        T.INT32: "int",
        T.INT64: "long",
        T.UINT8: "uchar",
        T.UINT16: "ushort",
        T.UINT32: "uint",
        T.UINT64: "ulong",
        T.BOOL: "bool",
    }
)

STORAGE: MappingProxyType[DataType, str | Unsupported] = MappingProxyType(
    {**TYPES, T.FLOAT16: "half", T.BFLOAT16: "ushort", T.BOOL: "uchar"}
)


_INFIX = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
    "mod": "{0} % {1}", "neg": "-{0}", "eq": "{0} == {1}", "ne": "{0} != {1}",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "bit_and": "{0} & {1}", "bit_or": "{0} | {1}", "bit_xor": "{0} ^ {1}", "bit_not": "~{0}",
}  # fmt: skip

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

_FLOAT_CALLS = {"mod": "fmod", "abs": "fabs", "round": "rint"}

_ROUNDINGS = {"round_float16": "round_half", "round_bfloat16": "round_bfloat16"}
_FLOAT_HELPERS = ("min", "max", "sign", "sigmoid")


def _spell(name: str, dtype: DataType) -> Entry:
    if dtype.kind is Kind.BOOL:
        return _spell_bool(name)
    if dtype.kind is Kind.INDEX:
        if name in ("min", "max"):
            return Spelling(f"{name}({{a}}, {{b}})")
        return _spell_plain(name)
    if dtype.is_float:
        return _spell_float(name, dtype)
    return _spell_integer(name, dtype)


def _spell_bool(name: str) -> Entry:
    match name:
        case "and":
            return Spelling("{0} && {1}", compound=True, vector="{0} & {1}")
        case "or":
            return Spelling("{0} || {1}", compound=True, vector="{0} | {1}")
        case "not":
            return Spelling("!{0}", compound=True, vector="~{0}")
        case _:
            return _spell_plain(name)


def _spell_plain(name: str) -> Entry:
    if name in _INFIX:
        return Spelling(_INFIX[name], compound=True)
    return Unsupported(f"positions have no '{name}'")


def _spell_float(name: str, dtype: DataType) -> Entry:
    if name in _FLOAT_HELPERS:
        arguments = "{a}, {b}" if name in ("min", "max") else "{a}"
        return Spelling(f"{{H}}({arguments})", helper=name)
    if name in _ROUNDINGS:
        return Spelling("{H}({a})", helper=_ROUNDINGS[name])
    if name == "rsqrt":
        # rsqrt() may be off by several units in the last place.
        return Spelling("1 / sqrt({a})", compound=True)
    if name in ("sin", "cos", "tan") and dtype is T.FLOAT32:
        return Spelling(f"{name}({{a}})", vector="{H}({a})", helper=name)
    if name in _INFIX and name != "mod":
        return Spelling(_INFIX[name], compound=True)
    binary = name in ("mod", "pow", "atan2")
    return Spelling(f"{_FLOAT_CALLS.get(name, name)}({'{a}, {b}' if binary else '{a}'})")


def _spell_integer(name: str, dtype: DataType) -> Entry:
    signed, narrow = dtype.kind is Kind.SIGNED, dtype.bytes < 4
    if name in _COMPARISONS:
        return Spelling(_INFIX[name], compound=True)
    match name:
        case "min" | "max":
            return Spelling(f"{name}({{a}}, {{b}})")
        case "abs":
            return Spelling("{H}({a})", helper="abs") if signed else Spelling("{0}", compound=True)
        case "div" | "mod":
            return Spelling("{H}({a}, {b})", helper=f"{name}_{'signed' if signed else 'unsigned'}")
        case "sign":
            if signed:
                return Spelling("{H}({a})", helper="sign_signed")
            return Spelling("min({a}, ({T})(1))")
        case "shift_left":
            count = f"({{1}} & {8 * dtype.bytes - 1})"
            mask = f"({{b}}) & ({{T}})({8 * dtype.bytes - 1})"
            if not signed and not narrow:
                vector, within = f"({{a}}) << ({mask})", "{0} << {1}"
                return Spelling(f"{{0}} << {count}", compound=True, vector=vector, within=within)
            vector = f"as_{{T}}(as_{{U}}({{a}}) << as_{{U}}({mask}))"
            within = "({T})(({U}){0} << {1})"
            return Spelling(f"({{T}})(({{U}}){{0}} << {count})", vector=vector, within=within)
        case "shift_right":
            count = f"({{1}} & {8 * dtype.bytes - 1})"
            mask = f"(({{b}}) & ({{T}})({8 * dtype.bytes - 1}))"
            vector, within = f"(({{a}}) >> {mask})", "({T})({0} >> {1})"
            return Spelling(f"({{T}})({{0}} >> {count})", vector=vector, within=within)
        case "bit_and" | "bit_or" | "bit_xor" | "bit_not":
            if not narrow:
                return Spelling(_INFIX[name], compound=True)
            return Spelling(f"({{T}})({_INFIX[name]})", vector=f"({_INFIX[name]})")
        case "add" | "sub" | "mul" | "neg":
            if not signed and not narrow:
                return Spelling(_INFIX[name], compound=True)
            # A ushort times a ushort is an int in C, and may overflow it.
            text = _INFIX[name].replace("{0}", "(uint){0}" if narrow else "({U}){0}")
            text = text.replace("{1}", "(uint){1}" if narrow else "({U}){1}")
            vector = _INFIX[name].replace("{0}", "as_{U}({a})").replace("{1}", "as_{U}({b})")
            return Spelling(f"({{T}})({text})", vector=f"as_{{T}}({vector})")
        case _:
            return Unsupported(f"integers have no '{name}'")


def _convert(source: DataType, target: DataType) -> Entry:
    if target is T.BOOL:
        return Spelling("{0} != 0", compound=True, vector="{0} != ({T})(0)")
    if source is T.BOOL:
        return Spelling("({R}){0}", vector="({0} ? ({R})(1) : ({R})(0))")
    if source.is_float and target.is_integer:
        return Spelling("convert_{R}_sat({a})")
    return Spelling("({R}){0}", vector="convert_{R}({a})")


def _literal(dtype: DataType, value: bool | int | float) -> str:
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(dtype, float(value))
    number = int(value)
    suffix = {T.UINT32: "u", T.INT64: "L", T.UINT64: "UL"}.get(dtype, "")
    if dtype is T.INDEX:
        return str(number)
    if dtype.kind is Kind.SIGNED and number == np.iinfo(dtype.dtype).min and dtype.bytes >= 4:
        return "INT_MIN" if dtype is T.INT32 else "LONG_MIN"
    text = f"{number}{suffix}"
    if dtype.bytes < 4:
        return f"({TYPES[dtype]}){text}"
    return f"({text})" if number < 0 else text


def _float_literal(dtype: DataType, value: float) -> str:
    name, suffix = ("float", "f") if dtype is T.FLOAT32 else ("double", "")
    if math.isnan(value):
        return "NAN" if dtype is T.FLOAT32 else f"({name})NAN"
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        text = f"{sign}INFINITY" if dtype is T.FLOAT32 else f"{sign}({name})INFINITY"
    else:
        digits = str(np.float32(value)) if dtype is T.FLOAT32 else repr(value)
        text = digits + ("" if "." in digits or "e" in digits else ".0") + suffix
    return f"({text})" if text.startswith("-") else text


_DIRECT = tuple(t for t in TYPES if t is not T.BOOL)

LOADS = MappingProxyType(
    {t: Spelling("{p}[{j}]", vector="vload{n}(0, {p} + {j})") for t in _DIRECT}
    | {
        T.FLOAT16: Spelling(
            "vload_half({j}, {p})",
            helper="load_half",
            vector="{H}({p} + {j})",
            four="vload_half4(0, {p} + {j})",
        ),
        T.BFLOAT16: Spelling(
            "{H}({p}[{j}])", helper="widen_bfloat16", vector="{H}(vload{n}(0, {p} + {j}))"
        ),
        T.BOOL: Spelling(
            "{p}[{j}] != 0", compound=True, vector="vload{n}(0, {p} + {j}) != (uchar{n})(0)"
        ),
    }
)

_SMALL = tuple(t for t in _DIRECT if t.bytes < 4)
"""The types whose vectors are stored by a helper."""

STORES = MappingProxyType(
    {t: Spelling("{p}[{j}] = {a};", vector="vstore{n}({a}, 0, {p} + {j});") for t in _DIRECT}
    | {
        t: Spelling("{p}[{j}] = {a};", helper="store", vector="{H}({a}, {p} + {j});")
        for t in _SMALL
    }
    | {
        T.FLOAT16: Spelling(
            "vstore_half_rte({a}, {j}, {p});",
            helper="store_half",
            vector="{H}({a}, {p} + {j});",
            four="vstore_half4_rte({a}, 0, {p} + {j});",
        ),
        T.BFLOAT16: Spelling(
            "{p}[{j}] = {H}({a});",
            helper="narrow_bfloat16",
            vector="{H}({a}, {p} + {j});",
            vector_helper="store_bfloat16",
        ),
        T.BOOL: Spelling(
            "{p}[{j}] = {a};",
            vector="{H}({a}, {p} + {j});",
            vector_helper="store_mask",
        ),
    }
)

STREAMING = MappingProxyType(
    {t: Spelling("{H}({a}, {p} + {j}, {f});", helper="stream") for t in _DIRECT}
    | {t: Spelling("{H}({a}, {p} + {j}, {f});", helper="stream_small") for t in _SMALL}
    | {
        T.FLOAT16: Spelling("{H}({a}, {p} + {j}, {f});", helper="stream_half"),
        T.BFLOAT16: Spelling("{H}({a}, {p} + {j}, {f});", helper="stream_bfloat16"),
    }
)

_STREAMING_STORE = """\
// Past the caches where `streaming` says so: they cannot keep a result this large.
static void $H(const $T value, __global $S *to, const bool streaming)
{
#ifdef STREAMING_STORES
    if (streaming) {
        %s
        return;
    }
#endif
    %s
}"""

_SMALL_STORE = """\
// Stored at once: PoCL stores vectors of small elements one by one, unless they are aligned so.
static void $H(const $T value, __global $S *to)
{
    typedef %s anywhere __attribute__((aligned(sizeof($S))));
    *(__global anywhere *)to = %s;
}"""

_PERIODIC = """\
// Large angles one by one: PoCL reduces all lanes alike where one is large, and spoils the others.
static $T $H(const $T x)
{
    const $I large = fabs(x) > 1e5f;
    $T result = %s(large ? ($T)(0) : x);
    if (any(large)) {
        float angles[$L], results[$L];
        vstore$L(x, 0, angles);
        vstore$L(result, 0, results);
        for (int lane = 0; lane < $L; ++lane) {
            if (fabs(angles[lane]) > 1e5f) {
                results[lane] = %s(angles[lane]);
            }
        }
        result = vload$L(0, results);
    }
    return result;
}"""

HELPERS = MappingProxyType(
    {
        "sin": Helper(_PERIODIC % ("sin", "sin")),
        "cos": Helper(_PERIODIC % ("cos", "cos")),
        "tan": Helper(_PERIODIC % ("tan", "tan")),
        "min": Helper(
            """\
// The smaller one; NaN where either is NaN, and the first of two equal ones.
static $T $H(const $T a, const $T b)
{
    return ((a <= b) | isnan(a)) ? a : b;
}"""
        ),
        "max": Helper(
            """\
// The larger one; NaN where either is NaN, and the first of two equal ones.
static $T $H(const $T a, const $T b)
{
    return ((a >= b) | isnan(a)) ? a : b;
}"""
        ),
        "sign": Helper(
            """\
// -1, 1, or x itself where it is a zero or NaN.
static $T $H(const $T x)
{
    return (x > 0) ? ($T)(1) : ((x < 0) ? ($T)(-1) : x);
}"""
        ),
        "abs": Helper(
            """\
// The lowest $T stays as it is: compilers take abs() of it for positive.
static $T $H(const $T x)
{
    const $T negated = as_$T(($U)(-as_$U(x)));
    return (x < ($T)(0)) ? negated : x;
}"""
        ),
        "sign_signed": Helper(
            """\
// -1, 0 or 1.
static $T $H(const $T x)
{
    return max(min(x, ($T)(1)), ($T)(-1));
}"""
        ),
        "sigmoid": Helper(
            """\
// 1 / (1 + exp(-x)), from the exponential that cannot overflow.
static $T $H(const $T x)
{
    const $T e = exp(-fabs(x));
    return ((x < 0) ? e : ($T)(1)) / (1 + e);
}"""
        ),
        "div_signed": Helper(
            """\
// Rounds towards zero; 0 where b is 0, and wraps where the quotient has no $T.
static $T $H(const $T a, const $T b)
{
    const $T divisor = ((b == ($T)(0)) | (b == ($T)(-1))) ? ($T)(1) : b;
    const $T quotient = a / divisor;
    const $T negated = as_$T(($U)(-as_$U(a)));
    return (b == ($T)(0)) ? ($T)(0) : ((b == ($T)(-1)) ? negated : quotient);
}"""
        ),
        "div_unsigned": Helper(
            """\
// Rounds down; 0 where b is 0.
static $T $H(const $T a, const $T b)
{
    const $T quotient = a / ((b == ($T)(0)) ? ($T)(1) : b);
    return (b == ($T)(0)) ? ($T)(0) : quotient;
}"""
        ),
        "mod_signed": Helper(
            """\
// The remainder, with the sign of a; 0 where b is 0.
static $T $H(const $T a, const $T b)
{
    return a % (((b == ($T)(0)) | (b == ($T)(-1))) ? ($T)(1) : b);
}"""
        ),
        "mod_unsigned": Helper(
            """\
// The remainder; 0 where b is 0.
static $T $H(const $T a, const $T b)
{
    const $T remainder = a % ((b == ($T)(0)) ? ($T)(1) : b);
    return (b == ($T)(0)) ? ($T)(0) : remainder;
}"""
        ),
        "load_half": Helper(
            """\
// Widened from a copy: PoCL takes the address of any vector of halves for an aligned one.
static float16 $H(__global const half *from)
{
    const ushort8 low = vload8(0, (__global const ushort *)from);
    const ushort8 high = vload8(1, (__global const ushort *)from);
    return (float16)(vload_half8(0, (const half *)&low), vload_half8(0, (const half *)&high));
}""",
            typed=False,
        ),
        "store_half": Helper(
            """\
// Rounds to nearest even, and stores a copy, as halves are loaded.
static void $H(const float16 value, __global half *to)
{
    typedef ushort8 anywhere __attribute__((aligned(2)));
    ushort8 low, high;
    vstore_half8_rte(value.lo, 0, (half *)&low);
    vstore_half8_rte(value.hi, 0, (half *)&high);
    ((__global anywhere *)to)[0] = low;
    ((__global anywhere *)to)[1] = high;
}""",
            typed=False,
        ),
        "load_half_x8": Helper(
            """\
// Widened from a copy: PoCL takes the address of any vector of halves for an aligned one.
static float8 $H(__global const half *from)
{
    const ushort8 bits = vload8(0, (__global const ushort *)from);
    return vload_half8(0, (const half *)&bits);
}""",
            typed=False,
        ),
        "store_half_x8": Helper(
            """\
// Rounds to nearest even, and stores a copy, as halves are loaded.
static void $H(const float8 value, __global half *to)
{
    typedef ushort8 anywhere __attribute__((aligned(2)));
    ushort8 bits;
    vstore_half8_rte(value, 0, (half *)&bits);
    *(__global anywhere *)to = bits;
}""",
            typed=False,
        ),
        "widen_bfloat16": Helper(
            """\
// A bfloat16 is the upper half of a float.
static $T $H(const $B bits)
{
    return as_$T(convert_$U(bits) << 16);
}""",
            typed=False,
        ),
        "narrow_bfloat16": Helper(
            """\
// Rounds to the nearest bfloat16, ties to even; NaN stays NaN.
static $B $H(const $T value)
{
    const $U bits = as_$U(value);
    const $U rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return convert_$B(isnan(value) ? ($U)(0x7fc0) : rounded);
}""",
            typed=False,
        ),
        "round_half": Helper(
            """\
// Rounds to the nearest float16, ties to even: to what storing it would leave.
static $T $H(const $T value)
{
    ushort$L bits;
    vstore_half${L}_rte(value, 0, (half *)&bits);
    return vload_half$L(0, (const half *)&bits);
}""",
            typed=False,
        ),
        "round_bfloat16": Helper(
            """\
// Rounds to the nearest bfloat16, ties to even, as storing it would; NaN stays NaN.
static $T $H(const $T value)
{
    const $U bits = as_$U(value);
    const $U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    return as_$T((bits & 0x7fffffffu) > 0x7f800000u ? bits : rounded);
}""",
            typed=False,
        ),
        "shuffle": Helper(
            """\
// Lanes of two vectors, those of b numbered on. PoCL's shuffle2 goes lane by lane.
#ifdef __clang__
#define $H(a, b, i0, i1, i2, i3, i4, i5, i6, i7) \\
    __builtin_shufflevector(a, b, i0, i1, i2, i3, i4, i5, i6, i7)
#else
#define $H(a, b, i0, i1, i2, i3, i4, i5, i6, i7) \\
    shuffle2(a, b, ($U)(i0, i1, i2, i3, i4, i5, i6, i7))
#endif"""
        ),
        "store": Helper(_SMALL_STORE % ("$T", "value")),
        "store_bfloat16": Helper(
            _SMALL_STORE % ("$B", "$N(value)"), needs=("narrow_bfloat16",), typed=False
        ),
        "prefetch_line": Helper(
            """\
// A hint: the cache line of an element that is read soon.
static void $H(__global const void *element)
{
#ifdef __has_builtin
#if __has_builtin(__builtin_prefetch)
    __builtin_prefetch(element);
#endif
#endif
}""",
            typed=False,
        ),
        "store_mask": Helper(
            "// Stored as 0 and 1, and at once: PoCL stores vectors of bytes one by one.\n"
            "static void $H(const char$L value, __global uchar *to)\n"
            "{\n"
            "    typedef uchar$L anywhere __attribute__((aligned(1)));\n"
            "    *(__global anywhere *)to = as_uchar$L(value) & (uchar$L)(1);\n"
            "}",
            typed=False,
        ),
        "stream_small": Helper(
            _STREAMING_STORE
            % ("__builtin_nontemporal_store(value, (__global $T *)to);", "$N(value, to);"),
            needs=("store",),
        ),
        "stream": Helper(
            _STREAMING_STORE
            % (
                "__builtin_nontemporal_store(value, (__global $T *)to);",
                "vstore$L(value, 0, to);",
            )
        ),
        "stream_half": Helper(
            _STREAMING_STORE
            % (
                "$B bits;\n"
                "        vstore_half${L}_rte(value, 0, (half *)&bits);\n"
                "        __builtin_nontemporal_store(bits, (__global $B *)to);",
                "$N(value, to);",
            ),
            needs=("store_half",),
            typed=False,
        ),
        "stream_bfloat16": Helper(
            _STREAMING_STORE
            % (
                "__builtin_nontemporal_store($N(value), (__global $B *)to);",
                "store_bfloat16_x$L(value, to);",
            ),
            needs=("narrow_bfloat16", "store_bfloat16"),
            typed=False,
        ),
    }
)


def _local(name: str, type_name: str, dtype: DataType) -> str:
    return f"const {type_name} {name}"


def _variable(name: str, type_name: str, dtype: DataType) -> str:
    return f"{type_name} {name}"


def _function(result: str, name: str, parameters: Sequence[tuple[str, str]]) -> str:
    given = ", ".join(f"const {type_name} {parameter}" for type_name, parameter in parameters)
    return f"static {result} {name}({given})\n{{"


def _reserved(name: str) -> bool:
    return name in BUILTINS or name.startswith("_") or re.match(PREFIXES, name) is not None


OPENCL = Dialect(
    language=OPENCL_C,
    template="opencl.cl.j2",
    details=list_details,
    profiles=("cpu", "gpu"),
    limits=Limits(
        target="opencl",
        buffers=120,
        buffers_reason="1,024 bytes of arguments is what every OpenCL device takes",
        elements=2**62,
        elements_reason="64-bit offsets",
        index_bits=64,
        row=None,
    ),
    types=TYPES,
    index_types=MappingProxyType(
        {(32, False): "uint", (64, False): "ulong", (32, True): "int", (64, True): "long"}
    ),
    index_suffixes=MappingProxyType(
        {(32, False): "u", (64, False): "UL", (32, True): "", (64, True): "L"}
    ),
    wide_index="{j}",
    storage=STORAGE,
    literal=_literal,
    operations=make_table(_spell),
    promoted=frozenset(t for t in INTEGERS if t.bytes < 4),
    conversions=make_conversions(_convert),
    loads=LOADS,
    stores=STORES,
    streaming=STREAMING,
    prefetches=MappingProxyType(
        {t: Spelling("{H}(&{p}[{i}]);", helper="prefetch_line") for t in STORAGE}
    ),
    helpers=HELPERS,
    helper_names="|".join(HELPERS),
    halves=MappingProxyType({}),
    zeros=MappingProxyType({}),
    pin=None,
    unpinned=MappingProxyType({}),
    syntax=make_c_syntax("__local"),
    local=_local,
    variable=_variable,
    function=_function,
    reinterpret="as_{R}({a})",
    elements=Spelling("{p}[{i}]", vector="vload{n}(0, {at})"),
    puts=Spelling("{p}[{i}] = {a};", vector="vstore{n}({a}, 0, {at});"),
    shuffles=Spelling("{H}({a}, {b}, {lanes})", helper="shuffle"),
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    unroll="#pragma unroll",
    lead="({I})(-(ulong){p} % {n} / {s})",
    positions=MappingProxyType(
        {
            "single": "({I})get_global_id(0)",
            "group": "({I})get_group_id(0)",
            "lane": "({I})get_local_id(0)",
        }
    ),
    scalar="{x}",
    reserved=_reserved,
    registers=False,
    in_place=True,
    entry_point=None,
    shader_model="",
    item="work item",
    own_names=(),
)
