"""No float arithmetic of generated HLSL may be simplified: every operation of its SPIR-V carries
NoContraction, and none of its DXIL is fast. What gives another number for NaN is not used."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator

import pytest

from dmlc import ir
from dmlc.codegen.hlsl import HLSL_6_2
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.runtime import dxc
from dmlc.scalars import OPERATIONS, DataType
from dmlc.scalars.operation import Unsupported
from dmlc.source import UnsupportedError
from tests.codegen.test_golden import CASES, read_case
from tests.functions import TRANSCENDENTAL
from tests.runtime import dxil

F32, F64 = DataType.FLOAT32, DataType.FLOAT64

_EXTENDED, _DECORATE, _NO_CONTRACTION = 12, 71, 42
_ARITHMETIC = {
    127: "OpFNegate", 129: "OpFAdd", 131: "OpFSub", 133: "OpFMul", 136: "OpFDiv", 140: "OpFRem",
    141: "OpFMod", 142: "OpVectorTimesScalar", 148: "OpDot",
}  # fmt: skip
_EXACT = {
    2: "RoundEven", 3: "Trunc", 4: "FAbs", 5: "SAbs", 8: "Floor", 9: "Ceil", 31: "Sqrt",
    38: "UMin", 39: "SMin", 41: "UMax", 42: "SMax", 73: "FindILsb", 74: "FindSMsb", 75: "FindUMsb",
}  # fmt: skip
"""Extended instructions that IEEE 754 defines to the last bit, or that are of integers."""

_FMA = 50
"""One operation where it has the decoration, and else two that may be simplified."""

_FAST = re.compile(r"\b(?:fast|reassoc|nnan|ninf|nsz|arcp|contract|afn)\b")


def list_instructions(code: bytes) -> Iterator[tuple[int, ...]]:
    """Each instruction's opcode and operand words."""
    words = struct.unpack(f"={len(code) // 4}I", code)
    at = 5
    while at < len(words):
        yield words[at] & 0xFFFF, *words[at + 1 : at + (words[at] >> 16)]
        at += words[at] >> 16


def find_loose(program: Program) -> list[str]:
    """What drivers may simplify in the kernels of a program."""
    found: list[str] = []
    for kernel in program.kernels:
        model = kernel.shader_model
        code = dxc.compile_spirv(kernel.source, kernel.entry_point, shader_model=model).code
        strict = {
            words[1]
            for words in list_instructions(code)
            if words[0] == _DECORATE and words[2] == _NO_CONTRACTION
        }
        for opcode, *words in list_instructions(code):
            if opcode in _ARITHMETIC and words[1] not in strict:
                found.append(_ARITHMETIC[opcode])
            is_exact = words[3:4] == [_FMA] and words[1] in strict
            if opcode == _EXTENDED and words[3] not in _EXACT and not is_exact:
                found.append(f"extended instruction {words[3]}")
        code = dxc.compile_dxil(kernel.source, kernel.entry_point, shader_model=model).code
        lines = dxil.disassemble(code).splitlines()
        found += [line.strip() for line in lines if " = " in line and _FAST.search(line)]
    return found


@pytest.mark.parametrize("case", CASES)
def test_golden_kernels(case: str) -> None:
    for model in ("6.2", "6.0"):
        try:
            program = compile(read_case(case), "hlsl", shader_model=model)
        except UnsupportedError:
            continue
        assert find_loose(program) == []


def is_spelled(name: str, dtype: DataType) -> bool:
    return not isinstance(HLSL_6_2.operations.get((name, dtype), Unsupported("")), Unsupported)


def list_values(dtype: DataType, x: str, y: str) -> list[str]:
    """A float of each kind of operation: every one there is but the transcendental functions, which
    are calls alike, and so stand by two of theirs."""
    names = [
        o
        for o in OPERATIONS.values()
        if o.operands.accept(dtype) and is_spelled(o.name, dtype) and not o.gives_bool
        if not o.transcendental or o.name in ("exp", "pow")
    ]
    made = [f"{o.name}({', '.join([x, y, x][: o.arity])})" for o in names]
    made.append(f"select(gt(sub({x}, {y}), {y}), neg({x}), mul({x}, {y}))")
    other = F64 if dtype is F32 else F32
    made.append(f"cast(mul(cast({x}, {other.short}), 3.5:{other.short}), {dtype.short})")
    made.append(f"cast(cast(add({x}, {y}), s32), {dtype.short})")
    return made


@functools.cache
def compile_stages(dtype: DataType, formulas: tuple[str, ...], model: str) -> Program:
    """A function of one stage to a formula."""
    short = dtype.short
    stages = "".join(f"  %z{n}: {short}[i0 < n] = {text}\n" for n, text in enumerate(formulas))
    names = ", ".join(f"%z{n}" for n in range(len(formulas)))
    parameters = f"%x: {short}[n], %y: {short}[n], %k: s32[n]"
    function = ir.parse(f"func @f({parameters}) -> ({names}) {{\n{stages}}}")
    return compile(function, "hlsl", shader_model=model)


OUTER = [
    (name, dtype)
    for dtype in (F32, F64)
    for name in (*OPERATIONS, "cast", "select", "store")
    if name in ("cast", "select", "store") or is_spelled(name, dtype)
    if name not in OPERATIONS or OPERATIONS[name].operands.accept(dtype)
]


@pytest.mark.grid(3)
@pytest.mark.parametrize(("name", "dtype"), OUTER)
def test_every_operation_in_every_other(name: str, dtype: DataType) -> None:
    short = dtype.short
    formulas: list[str] = []
    for value in list_values(dtype, "%x[i0]", "%y[i0]"):
        match name:
            case "cast":
                formulas.append(f"cast(cast({value}, u32), {short})")
            case "select":
                formulas.append(f"select(gt(%k[i0], 3:s32), %x[i0], {value})")
            case "store":
                formulas.append(value)
            case _:
                operands = [value, "%y[i0]", "%x[i0]"][: OPERATIONS[name].arity]
                text = f"{name}({', '.join(operands)})"
                if OPERATIONS[name].gives_bool:
                    text = f"select({text}, %x[i0], %y[i0])"
                formulas.append(text)
    assert find_loose(compile_stages(dtype, tuple(formulas), "6.2")) == []


@pytest.mark.parametrize("model", ["6.2", "6.0"])
@pytest.mark.parametrize("stored", ["f16", "bf16"])
def test_arithmetic_that_is_rounded_to_16_bits(stored: str, model: str) -> None:
    function = ir.parse(
        f"func @f(%x: {stored}[n], %y: {stored}[n]) -> (%z, %w) {{\n"
        f"  %z: {stored}[i0 < n] = max(mul(%x[i0], %y[i0]), %y[i0])\n"
        f"  %w: {stored}[i0 < n] = sub(%z[i0], %x[i0])\n}}"
    )
    assert find_loose(compile(function, "hlsl", shader_model=model)) == []


def test_a_fold_of_products_and_a_read_at_a_computed_place() -> None:
    function = ir.parse("""
        func @f(%x: f32[40, 60], %y: f32[60]) -> (%most, %z) {
          %most: f32[i0 < 40, i1 < 1] = max[r1 < 60] mul(%x[i0, r1], %y[r1])
          %z: f32[i0 < 40] = %y[min(max(cast(mul(%x[i0, 3], %y[i0]), index), 0), 59)]
        }""")
    assert find_loose(compile(function, "hlsl")) == []


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_portable_functions_leave_no_arithmetic_to_their_callers(name: str) -> None:
    operands = ", ".join(["%x[i0]", "%y[i0]"][: OPERATIONS[name].arity])
    formula = f"cast(cast({name}({operands}), s32), f32)"
    assert find_loose(compile_stages(F32, (formula,), "6.0")) == []
