"""Dialect of WGSL, WebGPU's language: storage buffers, one uniform buffer, 32-bit numbers.

Buffers of integers of 8 and 16 bits, of booleans and of BFLOAT16 hold several elements per word. A
64-bit integer is two words, the lower one first.

WGSL lets compilers treat floats as real numbers: reorder sums, and assume that there are neither
NaN nor infinities. So a named value, and a sum inside a sum, goes through `pin`, which no compiler
sees through; NaN is tested by its bits; and values that compilers could deduce to be zero or
infinite are computed with a run-time zero. Transcendental functions are the routines of their
records.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from dmlc.codegen.dialect import (
    FOUR,
    INFIX,
    Atomics,
    Dialect,
    Syntax,
    make_conversions,
    make_table,
    spell_float,
)
from dmlc.codegen.functions import read_helpers
from dmlc.codegen.packed_words import BYTES, PackedWords, find_carrier, make_loads, make_packs
from dmlc.codegen.wgsl_host import WGSL_LANGUAGE, list_details
from dmlc.codegen.wgsl_names import WORDS
from dmlc.kernel.target import Limits
from dmlc.scalars import OPERATIONS, TENSOR_TYPES, DataType, Kind
from dmlc.scalars.operation import Entry, Spelling, Unsupported

T = DataType

_HELD = (*BYTES, T.INT16, T.UINT16, T.BFLOAT16)
_WIDE = {T.INT64: "i64", T.UINT64: "u64"}
"""Types of two words, with the suffixes of their helpers."""

TYPES = MappingProxyType({
    T.FLOAT32: "f32", T.INT32: "i32", T.UINT32: "u32", T.BOOL: "bool",
    T.INT8: "i32", T.INT16: "i32", T.UINT8: "u32", T.UINT16: "u32",
    T.INT64: "vec2<u32>", T.UINT64: "vec2<u32>",
})  # fmt: skip

_LACKING = {T.FLOAT64: "64-bit floats"}

_PACKED = PackedWords(
    extend="({x} << {n}u) >> {n}u",
    mask="u",
    bits={
        Kind.BOOL: "select(0u, 1u, {a})",
        Kind.UNSIGNED: "{0}",
        Kind.SIGNED: "(u32({a}) & {mask}u)",
        Kind.FLOAT: "{H}({a})",
    },
    store="atomicAnd(&{e}, ~({mask}u << {h}));\natomicOr(&{e}, {bits} << {h});",
    convert="f32_to_{R}",
)


def _refuse(dtype: DataType) -> Unsupported:
    return Unsupported(f"WGSL has no {_LACKING[dtype]}")


STORAGE: MappingProxyType[DataType, str | Unsupported] = MappingProxyType(
    {
        **{t: TYPES.get(t) or _refuse(t) for t in TENSOR_TYPES if not t.is_storage_only},
        T.FLOAT16: "f16",
        **dict.fromkeys(_HELD, "u32"),
    }
)

_SUMS, _PRODUCTS = ("add", "sub"), ("mul", "div")
_UNPINNED = MappingProxyType(
    {
        **dict.fromkeys((*_SUMS, "neg"), (*_PRODUCTS, "sqrt")),
        **dict.fromkeys(_PRODUCTS, (*_SUMS, "sqrt")),
    }
)
"""Operations with pinned results, and those that take them unpinned. Sums of sums could be
reordered, and products of products; a product in a sum may be rounded with it, once, which only
makes it more accurate."""


def _call(text: str) -> Spelling:
    """Call of a helper by its name."""
    name, _, arguments = text.partition("(")
    return Spelling(f"{{H}}({arguments}", helper=name)


def _spell(name: str, dtype: DataType) -> Entry:
    if dtype in _LACKING:
        return _refuse(dtype)
    if dtype.is_float:
        return spell_float(OPERATIONS[name], OPERATIONS[name].wgsl, dtype)
    if dtype in _HELD and dtype.is_integer:
        return _PACKED.spell(name, dtype, _spell_integer)
    if dtype in _WIDE:
        return _spell_wide(name, dtype)
    if dtype.is_integer:
        return _spell_integer(name, dtype)
    if dtype.kind is Kind.INDEX and name in ("min", "max"):
        return Spelling(f"{name}({{a}}, {{b}})")
    if name in INFIX:
        return Spelling(INFIX[name], compound=True)
    return Unsupported(f"positions have no '{name}'")


def _spell_integer(name: str, dtype: DataType, bits: int = 32) -> Entry:
    """Operation of an integer type, or of one with fewer `bits` whose results are still to be
    wrapped."""
    signed = dtype.kind is Kind.SIGNED
    match name:
        case "min" | "max":
            return Spelling(f"{name}({{a}}, {{b}})")
        case "div" | "mod":
            return _call(f"{name}_{TYPES[dtype]}({{a}}, {{b}})")
        case "abs" | "sign" if signed:
            return Spelling(f"{name}({{a}})")
        case "abs":
            return Spelling("{0}", compound=True)
        case "sign":
            return Spelling("min({a}, 1u)")
        case "neg" if not signed:
            return Spelling("0u - {0}", compound=True)
        case "shift_left" | "shift_right":
            operator = "<<" if name == "shift_left" else ">>"
            distance = "u32({b})" if signed else "{1}"
            return Spelling(
                f"{{0}} {operator} ({distance} & {bits - 1}u)",
                compound=True,
                within=f"{{0}} {operator} {{1}}",
            )
        case _ if name in INFIX:
            return Spelling(INFIX[name], compound=True)
        case _:
            return Unsupported(f"integers have no '{name}'")


_ALIKE = ("add", "sub", "mul", "shift_left")
"""Operations that give the same bits on signed and on unsigned integers."""


def _spell_wide(name: str, dtype: DataType) -> Entry:
    """Operation of integers of two words."""
    kind = _WIDE[dtype]
    match name:
        case "eq" | "ne":
            return Spelling("all({0} == {1})" if name == "eq" else "any({0} != {1})")
        case "lt" | "gt":
            return _call(
                f"less_{kind}({{a}}, {{b}})" if name == "lt" else f"less_{kind}({{b}}, {{a}})"
            )
        case "le" | "ge":
            swapped = "{b}, {a}" if name == "le" else "{a}, {b}"
            return Spelling(f"!{{H}}({swapped})", compound=True, helper=f"less_{kind}")
        case "neg":
            return Spelling("{H}(vec2<u32>(0u), {a})", helper="sub_u64")
        case "abs" if dtype is T.UINT64:
            return Spelling("{0}", compound=True)
        case "shift_right" | "min" | "max" | "div" | "mod" | "abs" | "sign" | "add" | "sub" | "mul":
            operands = "{a}" if OPERATIONS[name].arity == 1 else "{a}, {b}"
            return _call(f"{name}_{'u64' if name in _ALIKE else kind}({operands})")
        case "shift_left":
            return _call("shift_left_u64({a}, {b})")
        case _ if name in INFIX:
            return Spelling(INFIX[name], compound=True)
        case _:
            return Unsupported(f"integers have no '{name}'")


def _convert_wide(source: DataType, target: DataType) -> Entry:
    """Conversion from or to an integer of two words."""
    if source in _WIDE:
        if target is T.BOOL:
            return Spelling("any({0} != vec2<u32>(0u))")
        if target.is_float:
            return _call(f"{_WIDE[source]}_to_f32({{a}})")
        return Spelling({T.INT32: "i32({0}.x)", T.UINT32: "{0}.x"}.get(target, "{0}"))
    if source.is_float:
        return _call(f"f32_to_{_WIDE[target]}({{a}})")
    if source is T.INT32:
        return _call("i32_to_i64({a})")
    return Spelling("vec2<u32>(u32({a}), 0u)" if source is T.BOOL else "vec2<u32>({a}, 0u)")


def _convert(source: DataType, target: DataType) -> Entry:
    for dtype in (source, target):
        if dtype in _LACKING:
            return _refuse(dtype)
    return _PACKED.convert_held(source, target, _HELD, _convert_words)


def _convert_words(source: DataType, target: DataType) -> Entry:
    """Conversion between compute types."""
    if source in _WIDE or target in _WIDE:
        return _convert_wide(source, target)
    if target is T.BOOL:
        if source.is_float:
            return Spelling("!({0} == 0.0f)", compound=True)
        return Spelling("{0} != 0", compound=True)
    if source.is_float:
        return _call(f"f32_to_{TYPES[target]}({{a}})")
    return Spelling("{R}({a})")


def _literal(dtype: DataType, value: bool | int | float) -> str:
    dtype = find_carrier(dtype, _HELD)
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(float(value))
    number = int(value)
    if dtype is T.INDEX:
        return str(number)
    if dtype in _WIDE:
        bits = number % (1 << 64)
        return f"vec2<u32>(0x{bits & 0xFFFFFFFF:x}u, 0x{bits >> 32:x}u)"
    if number < 0:
        # Without its type, no conversion to an unsigned one may have it.
        return f"({number}i)" if number > np.iinfo(np.int32).min else f"({number + 1}i - 1i)"
    return f"{number}u" if dtype is T.UINT32 else str(number)


def _float_literal(value: float) -> str:
    if not math.isfinite(value):
        bits = 0x7FC00000 if math.isnan(value) else 0xFF800000 if value < 0 else 0x7F800000
        return f"bitcast<f32>(0x{bits:08x}u | zero_bits)"
    digits = str(np.float32(value))
    text = digits + ("" if "." in digits or "e" in digits else ".0") + "f"
    return f"({text})" if text.startswith("-") else text


_DIRECT = tuple(t for t, s in STORAGE.items() if isinstance(s, str) and not t.is_storage_only)


def _reserved(name: str) -> bool:
    return name in WORDS or name.startswith("__")


WGSL = Dialect(
    language=WGSL_LANGUAGE,
    template="wgsl.wgsl.j2",
    details=list_details,
    profiles=("gpu",),
    limits=Limits(
        target="wgsl",
        buffers=8,
        buffers_reason="WebGPU promises 8 storage buffers to a stage, and no more",
        elements=2**32 - 2**26,
        elements_reason="WGSL indexes arrays by 32 bits",
        index_bits=32,
        row=65535,
        has_wide_positions=False,
        # A store to one component may store the whole vector anew, so that work items that store
        # neighbours would race: only buffers that are stored in whole vectors have them.
        vector_lanes=1,
        buffer_lanes=FOUR,
        pair_types=(T.BFLOAT16,),
        packed_types=_HELD,
    ),
    types=TYPES,
    index_types=MappingProxyType({(32, False): "u32", (32, True): "i32"}),
    index_suffixes=MappingProxyType({(32, False): "u", (32, True): "i"}),
    wide_index="{j}",
    storage=STORAGE,
    literal=_literal,
    operations=make_table(_spell),
    masks=False,
    maps_lanes=True,
    promoted=frozenset(),
    conversions=make_conversions(_convert),
    loads=MappingProxyType(
        {t: Spelling("{e}") for t in _DIRECT}
        | {T.FLOAT16: Spelling("{T}({e})")}
        | make_loads(_HELD)
    ),
    stores=MappingProxyType(
        {t: Spelling("{e} = {a};") for t in _DIRECT}
        # Rounded before: WGSL lets a conversion go either way.
        | {
            T.FLOAT16: Spelling(
                "{e} = f16({H}({a}));", helper="round_f16", vector="{e} = vec{n}<f16>({H}({a}));"
            )
        }
        | _PACKED.make_stores(_HELD)
    ),
    packs=MappingProxyType(make_packs(_HELD)),
    streaming=MappingProxyType({}),
    prefetches=MappingProxyType({}),
    helpers=read_helpers("wgsl.functions.wgsl"),
    halves=MappingProxyType(
        {T.BFLOAT16: Spelling("{w} |= {H}({a}) << (16u * u32({h}));", helper="bfloat16_bits")}
    ),
    zeros=MappingProxyType({T.FLOAT32: "bitcast<f32>(zero_bits)"}),
    pin=Spelling("{H}({a})", helper="pin"),
    unpinned=_UNPINNED,
    syntax=Syntax(
        local="let {x}: {T}",
        variable="var {x}: {T}",
        parameter="{x}: {T}",
        function="fn {x}({given}) -> {T} {{",
        counter="var {i}: {T} = {start}",
        increment="{i}++",
        countdown="{i} > {start};",
        countdown_body="{i}--;",
        array="var {x}: array<{T}, {n}>;",
        shared_array="var<workgroup> {x}: array<{T}, {n}>;",
        choice=("select({b},", "{a},", "{c})"),
        is_infix=False,
        vector="vec{n}<{T}>",
        lanes="{T}({a})",
        repeated="{T}({a})",
        widens=False,
    ),
    reinterpret="bitcast<{R}>({a})",
    elements=Spelling("{p}[{i}]"),
    puts=Spelling("{p}[{i}] = {a};"),
    shuffles=Unsupported("WGSL has no vectors of eight"),
    shift_type="u32",
    atomics=Atomics("atomic<{T}>", "atomicLoad(&{e})", "atomicStore(&{e}, {a});"),
    barrier="workgroupBarrier();",
    memory_barriers=("workgroupBarrier();", "storageBarrier();"),
    unroll="",
    unroll_registers="",
    until="<",
    rolled="",
    lead="",
    # Groups are dispatched in (x, y, 1).
    positions=MappingProxyType(
        {
            "single": "group_id.x",
            "group": "group_id.x",
            "rows": "group_id.y * {row} + group_id.x",
            "lane": "lane_id",
            "signed single": "i32(group_id.x)",
            "signed group": "i32(group_id.x)",
            "signed rows": "i32(group_id.y * {row} + group_id.x)",
            "signed lane": "i32(lane_id)",
        }
    ),
    scalar="arguments.{x}",
    reserved=_reserved,
    registers=False,
    in_place=False,
    entry_point="main",
    shader_model="",
    item="invocation",
    own_names=("group_id", "lane_id", "arguments", "Arguments", "zero_bits"),
)
