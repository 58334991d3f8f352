"""Dialects of HLSL: StructuredBuffers and one constant buffer. Shader model 6.2 has native 16-bit
types; 6.0 has none, and its buffers of such types hold two elements per word. Those of 8-bit types
hold four.

Every floating-point local is `precise`, so that DXC neither contracts nor re-associates, and all
floating-point arithmetic is assigned to one. NaN is tested by its bits, which no compiler option
can remove. Transcendental functions are the routines of their records, which give the same bits on
every device that rounds division and square roots correctly; HLSL's own differ between devices.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import struct
from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np

from dmlc.codegen.dialect import (
    INFIX,
    Dialect,
    make_c_syntax,
    make_conversions,
    make_table,
    spell_float,
)
from dmlc.codegen.functions import read_helpers
from dmlc.codegen.hlsl_host import HLSL, list_details
from dmlc.codegen.hlsl_names import INTRINSICS, PATTERN
from dmlc.codegen.packed_words import BYTES, PackedWords, find_carrier, make_loads, make_packs
from dmlc.kernel.target import Limits
from dmlc.scalars import OPERATIONS, DataType, Kind
from dmlc.scalars.operation import Entry, Spelling, Unsupported

T = DataType

TYPES = MappingProxyType(
    {
        T.FLOAT64: "double",
        T.FLOAT32: "float",
        T.INT8: "int",
        T.INT16: "int16_t",
        T.INT32: "int",
        T.INT64: "int64_t",
        T.UINT8: "uint",
        T.UINT16: "uint16_t",
        T.UINT32: "uint",
        T.UINT64: "uint64_t",
        T.BOOL: "bool",
    }
)

STORAGE: MappingProxyType[DataType, str | Unsupported] = MappingProxyType(
    {
        **TYPES,
        T.FLOAT16: "float16_t",
        T.BFLOAT16: "uint16_t",
        **dict.fromkeys(BYTES, "uint"),
    }
)

_PACKED = PackedWords(
    extend="{x} << {n} >> {n}",
    mask="",
    bits={
        Kind.BOOL: "({0} ? 1u : 0u)",
        Kind.UNSIGNED: "{0}",
        Kind.SIGNED: "((uint){0} & {mask})",
        Kind.FLOAT: "{H}({a})",
    },
    store="InterlockedAnd({e}, ~({mask}u << {h}));\nInterlockedOr({e}, {bits} << {h});",
    convert="to_{R}",
)


def _spell(name: str, dtype: DataType) -> Entry:
    if dtype.is_float:
        return spell_float(OPERATIONS[name], OPERATIONS[name].hlsl, dtype)
    if dtype.is_integer:
        return _spell_integer(name, dtype)
    if dtype.kind is Kind.INDEX and name in ("min", "max"):
        return Spelling(f"{name}({{a}}, {{b}})")
    if name in ("and", "or"):
        return Spelling(INFIX[name], compound=True, vector=f"{name}({{a}}, {{b}})")
    if name in INFIX:
        return Spelling(INFIX[name], compound=True)
    return Unsupported(f"positions have no '{name}'")


def _spell_integer(name: str, dtype: DataType, bits: int = 0) -> Entry:
    """Operation of an integer type, or of one with fewer `bits` whose results are still to be
    wrapped."""
    signed = dtype.kind is Kind.SIGNED
    match name:
        case "min" | "max" if dtype.bytes == 2:
            return Spelling("{H}({a}, {b})", helper="lesser" if name == "min" else "greater")
        case "min" | "max":
            return Spelling(f"{name}({{a}}, {{b}})")
        case "abs":
            return Spelling("abs({a})") if signed else Spelling("{0}", compound=True)
        case "sign" if signed:
            if dtype.bytes == 2:
                return Spelling("{H}({a})", helper="sign_signed")
            return Spelling("max(min({a}, ({T})1), ({T})-1)")
        case "sign":
            vector = "select({0} != 0, ({T})1, ({T})0)"
            return Spelling("({0} != 0) ? ({T})1 : ({T})0", compound=True, vector=vector)
        case "neg":
            # DXC makes x / -5 of -(x / 5), whatever the type, and the same of (-x) / 5.
            return Spelling(f"{_literal(dtype, 0)} - {{0}}", compound=True)
        case "div" | "mod":
            return Spelling("{H}({a}, {b})", helper=f"{name}_{'signed' if signed else 'unsigned'}")
        case "shift_left" | "shift_right":
            operator = "<<" if name == "shift_left" else ">>"
            mask = f"({{1}} & ({{T}}){(bits or 8 * dtype.bytes) - 1})"
            within = f"{{0}} {operator} {{1}}"
            return Spelling(f"{{0}} {operator} {mask}", compound=True, within=within)
        case _ if name in INFIX:
            return Spelling(INFIX[name], compound=True)
        case _:
            return Unsupported(f"integers have no '{name}'")


_SPLIT = (
    (T.INT64, T.FLOAT32), (T.UINT64, T.FLOAT32), (T.INT32, T.FLOAT64), (T.INT32, T.INT64),
    (T.FLOAT32, T.FLOAT64),
)  # fmt: skip
"""Conversions that DXC or drivers get wrong in one step."""


def _convert(source: DataType, target: DataType) -> Entry:
    if target is T.BOOL:
        if source.is_float:
            return Spelling("!({0} == 0)", compound=True)
        return Spelling("{0} != 0", compound=True)
    if source is T.BOOL:
        return Spelling("({R})({0} ? 1 : 0)", vector="select({a}, ({R})1, ({R})0)")
    if source.is_float and target.is_integer:
        return Spelling("{H}({a})", helper="to")
    if (source, target) == (T.INT32, T.UINT64):
        return Spelling("({R}){H}({a})", helper="int_to_int64_t")
    if target is T.FLOAT64 and source.bytes == 8:
        return Spelling("{H}({a})", helper="wide_to_double")
    if (source, target) in _SPLIT:
        return Spelling("{H}({a})", helper=f"{TYPES[source]}_to_{TYPES[target]}")
    if source is target:
        return Spelling("{0}")
    return Spelling("({R}){0}")


def _literal(dtype: DataType, value: bool | int | float) -> str:
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_literal(dtype, float(value))
    number = int(value)
    if dtype is T.INDEX:
        return str(number)
    if dtype in (T.INT16, T.UINT16):
        return f"({TYPES[dtype]}){number}"
    if dtype is T.INT32 and number == np.iinfo(np.int32).min:
        return "(-2147483647 - 1)"
    if dtype is T.INT64 and number == np.iinfo(np.int64).min:
        return "(-9223372036854775807ll - 1ll)"
    suffixes = {T.UINT8: "u", T.UINT32: "u", T.INT64: "ll", T.UINT64: "ull"}
    text = f"{number}{suffixes.get(dtype, '')}"
    return f"({text})" if number < 0 else text


def _float_literal(dtype: DataType, value: float) -> str:
    if dtype is T.FLOAT32 and not math.isfinite(value):
        bits = 0x7FC00000 if math.isnan(value) else 0xFF800000 if value < 0 else 0x7F800000
        return f"asfloat(0x{bits:08x})"
    if not math.isfinite(value):
        bits = struct.unpack("<Q", struct.pack("<d", math.nan if math.isnan(value) else value))[0]
        return f"asdouble(0x{bits & 0xFFFFFFFF:x}, 0x{bits >> 32:08x})"
    digits = str(np.float32(value)) if dtype is T.FLOAT32 else repr(value)
    digits += "" if "." in digits or "e" in digits else ".0"
    text = digits + ("f" if dtype is T.FLOAT32 else "L")
    return f"({text})" if text.startswith("-") else text


_DIRECT = tuple(t for t in STORAGE if not t.is_storage_only)

LOADS = MappingProxyType(
    {t: Spelling("{e}") for t in _DIRECT}
    | {
        T.FLOAT16: Spelling("({T}){e}"),
        T.BFLOAT16: Spelling("{H}({e})", helper="widen_bfloat16"),
    }
    | make_loads(BYTES)
)

STORES = MappingProxyType(
    {t: Spelling("{e} = {a};") for t in _DIRECT}
    | {
        T.FLOAT16: Spelling("{e} = ({S}){0};"),
        T.BFLOAT16: Spelling("{e} = ({S}){H}({a});", helper="narrow_bfloat16"),
    }
    | _PACKED.make_stores(BYTES)
)


def _reserved(name: str) -> bool:
    return name in INTRINSICS or re.match(PATTERN, name) is not None


def _make_operations(held: Collection[DataType]) -> Mapping[tuple[str, DataType], Entry]:
    def spell(name: str, dtype: DataType) -> Entry:
        if dtype in held and dtype.is_integer:
            return _PACKED.spell(name, dtype, _spell_integer)
        return _spell(name, dtype)

    return make_table(spell)


def _make_conversions(held: Collection[DataType]) -> Mapping[tuple[DataType, DataType], Entry]:
    return make_conversions(lambda a, b: _PACKED.convert_held(a, b, held, _convert))


_OPERATIONS = _make_operations(BYTES)

_PRECISE = frozenset(
    name
    for (name, dtype), entry in _OPERATIONS.items()
    if dtype is T.FLOAT32
    and isinstance(entry, Spelling)
    and entry.helper is None
    and name in OPERATIONS
    and not OPERATIONS[name].gives_bool
)
"""Operations on floats that HLSL computes natively: `precise` is not propagated into functions, nor
through comparisons."""

_WORDS = (T.FLOAT16, T.BFLOAT16)

_ELEMENTS = Dialect(
    language=HLSL,
    template="hlsl.hlsl.j2",
    details=functools.partial(list_details, shader_model="6.2"),
    profiles=("gpu",),
    limits=Limits(
        target="hlsl",
        buffers=31,
        buffers_reason="a root signature has 64 DWORDs, and each buffer takes two",
        elements=2**32 - 2**26,
        elements_reason="structured buffers are indexed by 32 bits",
        index_bits=32,
        row=65535,
        vector_lanes=4,
        group_size=1024,
        shared_bytes=1 << 15,
        unrolls=True,
        precise=_PRECISE,
        packed_types=BYTES,
    ),
    types=TYPES,
    index_types=MappingProxyType({(32, False): "uint", (32, True): "int", (64, True): "int64_t"}),
    index_suffixes=MappingProxyType({(32, False): "u", (32, True): "", (64, True): "ll"}),
    wide_index="(uint)({j})",
    storage=STORAGE,
    literal=_literal,
    operations=_OPERATIONS,
    masks=False,
    maps_lanes=True,
    promoted=frozenset(),
    conversions=_make_conversions(BYTES),
    loads=LOADS,
    stores=STORES,
    packs=MappingProxyType(make_packs(BYTES)),
    streaming=MappingProxyType({}),
    prefetches=MappingProxyType({}),
    helpers=read_helpers("hlsl.functions.hlsl"),
    halves=MappingProxyType({}),
    # Groups are dispatched in (x, y, 1).
    zeros=MappingProxyType(
        {T.FLOAT32: "asfloat(group_id.z)", T.FLOAT64: "asdouble(group_id.z, 0)"}
    ),
    pin=None,
    unpinned=MappingProxyType({}),
    syntax=dataclasses.replace(
        make_c_syntax("groupshared"),
        precise="precise ",
        lanes="{T}({a})",
        vector_choice=("select({c},", "{a},", "{b})"),
    ),
    reinterpret="as{E}({a})",
    elements=Spelling("{p}[{i}]"),
    puts=Spelling("{p}[{i}] = {a};"),
    shuffles=Unsupported("HLSL has no vectors of eight"),
    barrier="GroupMemoryBarrierWithGroupSync();",
    memory_barriers=("AllMemoryBarrierWithGroupSync();",),
    # With `<` DXC makes the copies for SPIR-V itself, and those lose `precise`; with `!=` it leaves
    # them to drivers, and says so.
    unroll="",
    unroll_registers="[unroll] ",
    until="!=",
    rolled="[loop] ",
    lead="",
    positions=MappingProxyType(
        {
            "single": "group_id.x",
            "group": "group_id.x",
            "rows": "group_id.y * {row} + group_id.x",
            "lane": "lane_id",
        }
    ),
    scalar="{x}",
    reserved=_reserved,
    registers=True,
    in_place=False,
    entry_point="main",
    shader_model="6.2",
    item="thread",
    own_names=("group_id", "lane_id", "Arguments"),
)


HLSL_6_2 = dataclasses.replace(
    _ELEMENTS,
    limits=dataclasses.replace(_ELEMENTS.limits, joined_types=_WORDS),
    words=dataclasses.replace(
        _ELEMENTS,
        limits=dataclasses.replace(_ELEMENTS.limits, packed_types=(*BYTES, *_WORDS)),
        storage=MappingProxyType({**STORAGE, **dict.fromkeys(_WORDS, "uint")}),
        loads=MappingProxyType({**LOADS, **make_loads(_WORDS)}),
        stores=MappingProxyType({**STORES, **_PACKED.make_stores(_WORDS)}),
        packs=MappingProxyType(make_packs((*BYTES, *_WORDS))),
    ),
)


HLSL_6_10 = dataclasses.replace(
    HLSL_6_2,
    details=functools.partial(list_details, shader_model="6.10"),
    shader_model="6.10",
)
"""Dialect for the matrices of `dx::linalg`: text only, since no DXC on PyPI compiles it."""


# Shader model 6.0 ----------------------------------------------------------------------------

_HELD_6_0 = (*BYTES, T.INT16, T.UINT16)

_LOADS_6_0 = MappingProxyType(
    {
        **LOADS,
        **make_loads(_HELD_6_0),
        T.FLOAT16: Spelling("{H}({p}[{i} / 2], {j})", helper="half_float16"),
        T.BFLOAT16: Spelling("{H}({p}[{i} / 2], {j})", helper="half_bfloat16"),
    }
)

_STORES_6_0 = MappingProxyType(
    {t: s for t, s in STORES.items() if t not in _WORDS} | _PACKED.make_stores(_HELD_6_0)
)

_HALVES_6_0 = MappingProxyType(
    {
        T.FLOAT16: Spelling("{w} |= {H}({a}) << (16 * {h});", helper="narrow_float16"),
        T.BFLOAT16: Spelling("{w} |= {H}({a}) << (16 * {h});", helper="narrow_bfloat16"),
    }
)


def _literal_6_0(dtype: DataType, value: bool | int | float) -> str:
    return _literal(find_carrier(dtype, _HELD_6_0), value)


HLSL_6_0 = dataclasses.replace(
    _ELEMENTS,
    limits=dataclasses.replace(
        _ELEMENTS.limits,
        word_types=_WORDS,
        packed_types=(*_HELD_6_0, *_WORDS),
    ),
    types=MappingProxyType({**TYPES, T.INT16: "int", T.UINT16: "uint"}),
    storage=MappingProxyType({**STORAGE, **dict.fromkeys((*_HELD_6_0, *_WORDS), "uint")}),
    literal=_literal_6_0,
    operations=MappingProxyType(
        {
            **_make_operations(_HELD_6_0),
            ("round_float16", T.FLOAT32): Spelling("{H}({a})", helper="round_float16_bits"),
        }
    ),
    conversions=_make_conversions(_HELD_6_0),
    loads=_LOADS_6_0,
    stores=_STORES_6_0,
    packs=MappingProxyType(make_packs(_HELD_6_0)),
    halves=_HALVES_6_0,
    details=functools.partial(list_details, shader_model="6.0"),
    shader_model="6.0",
)
