"""Dialect of OpenCL C 1.2, without extensions except `cl_khr_fp64` where doubles are used.

Arithmetic on signed integers goes through unsigned ones, since overflow of the former is undefined
in C; values that C promotes to `int` are cast back. Vectors of booleans are masks: signed integers
as wide as the compared values, 0 or -1. Transcendental functions are the driver's if those are
right at their limits.
"""

from __future__ import annotations

import dataclasses
import math
import re
from types import MappingProxyType

import numpy as np

from dmlc.codegen.dialect import (
    FOUR,
    INFIX,
    INTEGERS,
    Dialect,
    make_c_syntax,
    make_conversions,
    make_table,
    spell_float,
)
from dmlc.codegen.functions import read_helpers
from dmlc.codegen.opencl_host import OPENCL_C, list_details
from dmlc.codegen.opencl_names import BUILTINS, PREFIXES
from dmlc.kernel.target import Limits
from dmlc.scalars import OPERATIONS, DataType, Kind
from dmlc.scalars.operation import Entry, Spelling, Unsupported

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


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _spell(name: str, dtype: DataType) -> Entry:
    if dtype.kind is Kind.BOOL:
        return _spell_bool(name)
    if dtype.kind is Kind.INDEX:
        if name in ("min", "max"):
            return Spelling(f"{name}({{a}}, {{b}})")
        if name in ("div", "mod"):
            # NVIDIA's compiler breaks on a vector beside a number.
            vector = INFIX[name].replace("{0}", "({a})").replace("{1}", "({b})")
            return Spelling(INFIX[name], compound=True, vector=vector)
        return _spell_plain(name)
    if dtype.is_float:
        return spell_float(OPERATIONS[name], OPERATIONS[name].opencl, dtype)
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
    if name in INFIX:
        return Spelling(INFIX[name], compound=True)
    return Unsupported(f"positions have no '{name}'")


def _spell_integer(name: str, dtype: DataType) -> Entry:
    signed, narrow = dtype.kind is Kind.SIGNED, dtype.bytes < 4
    if name in _COMPARISONS:
        return Spelling(INFIX[name], compound=True)
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
                return Spelling(INFIX[name], compound=True)
            return Spelling(f"({{T}})({INFIX[name]})", vector=f"({INFIX[name]})")
        case "add" | "sub" | "mul" | "neg":
            if not signed and not narrow:
                return Spelling(INFIX[name], compound=True)
            # A ushort times a ushort is an int in C, and may overflow it.
            text = INFIX[name].replace("{0}", "(uint){0}" if narrow else "({U}){0}")
            text = text.replace("{1}", "(uint){1}" if narrow else "({U}){1}")
            vector = INFIX[name].replace("{0}", "as_{U}({a})").replace("{1}", "as_{U}({b})")
            return Spelling(f"({{T}})({text})", vector=f"as_{{T}}({vector})")
        case _:
            return Unsupported(f"integers have no '{name}'")


def _convert(source: DataType, target: DataType) -> Entry:
    if target is T.BOOL:
        return Spelling("{0} != 0", compound=True, vector="{0} != ({T})(0)")
    if source is T.BOOL:
        return Spelling("({R}){0}", vector="({0} ? ({R})(1) : ({R})(0))")
    if source.is_float and target.is_integer:
        return Spelling("{H}({a})", helper="to")
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
    {t: Spelling("{p}[{j}]", vector="vload{n}(0, {at})") for t in _DIRECT}
    | {
        T.FLOAT16: Spelling(
            "vload_half({j}, {p})",
            helper="load_half",
            vector="{H}({at})",
            four="vload_half4(0, {at})",
        ),
        T.BFLOAT16: Spelling(
            "{H}({p}[{j}])", helper="widen_bfloat16", vector="{H}(vload{n}(0, {at}))"
        ),
        T.BOOL: Spelling(
            "{p}[{j}] != 0", compound=True, vector="vload{n}(0, {at}) != (uchar{n})(0)"
        ),
    }
)

_SMALL = tuple(t for t in _DIRECT if t.bytes < 4)
"""Types whose vectors are stored by a helper."""

STORES = MappingProxyType(
    {t: Spelling("{p}[{j}] = {a};", vector="vstore{n}({a}, 0, {at});") for t in _DIRECT}
    | {t: Spelling("{p}[{j}] = {a};", helper="store", vector="{H}({a}, {at});") for t in _SMALL}
    | {
        T.FLOAT16: Spelling(
            "vstore_half_rte({a}, {j}, {p});",
            helper="store_half",
            vector="{H}({a}, {at});",
            four="vstore_half4_rte({a}, 0, {at});",
        ),
        T.BFLOAT16: Spelling(
            "{p}[{j}] = {H}({a});",
            helper="narrow_bfloat16",
            vector="{H}({a}, {at});",
            vector_helper="store_bfloat16",
        ),
        T.BOOL: Spelling(
            "{p}[{j}] = {a};",
            vector="{H}({a}, {at});",
            vector_helper="store_mask",
        ),
    }
)

STREAMING = MappingProxyType(
    {t: Spelling("{H}({a}, {at}, {f});", helper="stream") for t in _DIRECT}
    | {t: Spelling("{H}({a}, {at}, {f});", helper="stream_small") for t in _SMALL}
    | {
        T.FLOAT16: Spelling("{H}({a}, {at}, {f});", helper="stream_half"),
        T.BFLOAT16: Spelling("{H}({a}, {at}, {f});", helper="stream_bfloat16"),
    }
)


def _reserved(name: str) -> bool:
    return name in BUILTINS or name.startswith("_") or re.match(PREFIXES, name) is not None


_PLAIN = Dialect(
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
        unrolls=True,
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
    masks=True,
    maps_lanes=False,
    promoted=frozenset(t for t in INTEGERS if t.bytes < 4),
    conversions=make_conversions(_convert),
    loads=LOADS,
    stores=STORES,
    packs=MappingProxyType({}),
    streaming=STREAMING,
    prefetches=MappingProxyType(
        {t: Spelling("{H}(&{p}[{i}]);", helper="prefetch_line") for t in STORAGE}
    ),
    helpers=read_helpers("opencl.functions.cl"),
    halves=MappingProxyType({}),
    zeros=MappingProxyType({}),
    pin=None,
    unpinned=MappingProxyType({}),
    syntax=dataclasses.replace(
        make_c_syntax("__local"),
        function="static {T} {x}({given})\n{{",
        lane_letters="0123456789abcdef",
        lane_prefix="s",
        aligned=" __attribute__((aligned({b})))",
    ),
    reinterpret="as_{R}({a})",
    elements=Spelling("{p}[{i}]", vector="vload{n}(0, {at})"),
    puts=Spelling("{p}[{i}] = {a};", vector="vstore{n}({a}, 0, {at});"),
    shuffles=Spelling("{H}({a}, {b}, {lanes})", helper="shuffle"),
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    memory_barriers=("barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",),
    unroll="#pragma unroll",
    unroll_registers="#pragma unroll",
    until="<",
    rolled="",
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

_NARROW = (T.FLOAT16, T.BFLOAT16, T.INT8, T.UINT8, T.INT16, T.UINT16)
_NUMBERS = tuple(t for t in _NARROW if t.is_integer)

_VECTORS = dataclasses.replace(
    _PLAIN,
    # Compilers move vectors of words at once, and those of smaller elements in parts.
    limits=dataclasses.replace(_PLAIN.limits, packed_types=_NARROW),
    storage=MappingProxyType({**STORAGE, **dict.fromkeys(_NARROW, "uint")}),
    loads=MappingProxyType(
        {t: Spelling("((__global const {T} *){p})[{j}]", vector="{e}") for t in _DIRECT}
        | {t: Spelling("((__global const {T} *){p})[{j}]", vector="as_{T}({e})") for t in _NUMBERS}
        | {
            T.FLOAT16: Spelling(
                "vload_half({j}, (__global const half *){p})",
                helper="widen_half",
                vector="{H}(as_ushort4({e}))",
            ),
            T.BFLOAT16: Spelling(
                "{H}(((__global const ushort *){p})[{j}])",
                helper="widen_bfloat16",
                vector="{H}(as_ushort4({e}))",
            ),
            T.BOOL: Spelling(
                "((__global const uchar *){p})[{j}] != 0",
                compound=True,
                vector="{e} != (uchar4)(0)",
            ),
        }
    ),
    stores=MappingProxyType(
        {t: Spelling("((__global {T} *){p})[{j}] = {a};", vector="{e} = {a};") for t in _DIRECT}
        | {
            T.FLOAT16: Spelling(
                "vstore_half_rte({a}, {j}, (__global half *){p});", vector="{e} = {a};"
            ),
            T.BFLOAT16: Spelling(
                "((__global ushort *){p})[{j}] = {H}({a});",
                helper="narrow_bfloat16",
                vector="{e} = {a};",
            ),
            T.BOOL: Spelling(
                "((__global uchar *){p})[{j}] = {a};",
                vector="{e} = as_uchar4({a}) & (uchar4)(1);",
            ),
        }
    ),
    packs=MappingProxyType(
        {t: Spelling("as_uint({a})" if t.bytes == 1 else "as_uint2({a})") for t in _NUMBERS}
        | {
            T.FLOAT16: Spelling("as_uint2({H}({a}))", helper="narrow_half"),
            T.BFLOAT16: Spelling("as_uint2({H}({a}))", helper="narrow_bfloat16"),
        }
    ),
)

OPENCL = dataclasses.replace(
    _PLAIN,
    sharing=dataclasses.replace(
        _PLAIN,
        limits=dataclasses.replace(_PLAIN.limits, buffer_lanes=FOUR, joined_types=_NARROW),
        words=_VECTORS,
        plain=1,
    ),
)
