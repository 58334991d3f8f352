"""Integers on devices: conversions at the edges of every type and what is made of them, negation
of what constants divide, and choices inside other operations. Compilers and drivers have had each
of these wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen.dialect import COMPUTE_TYPES, INTEGERS
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.scalars import OPERATIONS, Array, DataType, Kind
from tests.agreement import disagreements

LOADERS = {"opencl": opencl.load, "hlsl": vulkan.load}
_STAGES = 28
"""Of one function: a kernel of HLSL has 31 buffers."""

_POWERS = (7, 8, 11, 15, 16, 23, 24, 25, 31, 32, 33, 40, 52, 53, 54, 62, 63, 64)


def list_types(target: str, types: Sequence[DataType]) -> list[DataType]:
    narrow = (DataType.INT8, DataType.UINT8)
    return [t for t in types if target == "opencl" or t not in narrow]


CASES = [(target, t) for target in LOADERS for t in list_types(target, INTEGERS)]
FLOATS = (DataType.FLOAT32, DataType.FLOAT64)
SOURCES = [(target, t) for target in LOADERS for t in list_types(target, (*INTEGERS, *FLOATS))]


def make_edges(dtype: DataType) -> Array:
    """Powers of two and their neighbours, what lies halfway between two floats and beside that,
    and numbers of every length; of floats fractions and the special values too."""
    random = np.random.default_rng(1)
    whole = [2**p + e for p in _POWERS for e in (-2, -1, 0, 1, 2, 3, 5)]
    whole += [2**p + 2**q + e for p in (40, 62, 63) for q in (15, 16, 38, 39) for e in (-1, 0, 1)]
    whole += [int(random.integers(2**62)) >> int(random.integers(62)) for _ in range(200)]
    whole = sorted({sign * number for number in (*whole, 0, 1, 2, 3, 7) for sign in (1, -1)})
    if dtype.is_float:
        others = [0.5, -0.5, 1.5, 2.5, -0.0, 1e-40, 3e38, -3e38, np.nan, np.inf, -np.inf]
        return np.array([*map(float, whole), *others], dtype.dtype)
    limits = np.iinfo(dtype.dtype)
    return np.array([n for n in whole if limits.min <= n <= limits.max], dtype.dtype)


def find_wrong(
    target: str, dtype: DataType, values: Array, formulas: Sequence[tuple[DataType, str]]
) -> list[str]:
    """What a device computes otherwise than the reference, of formulas with their types."""
    found: list[str] = []
    for start in range(0, len(formulas), _STAGES):
        part = formulas[start : start + _STAGES]
        stages = "".join(
            f"  %z{n}: {made.short}[i0 < n] = {text}\n" for n, (made, text) in enumerate(part)
        )
        names = ", ".join(f"%z{n}" for n in range(len(part)))
        function = ir.parse(f"func @f(%x: {dtype.short}[n]) -> ({names}) {{\n{stages}}}")
        got = LOADERS[target](compile(function, target))({"x": values})
        wanted = evaluate(function, {"x": values})
        for n, (_, text) in enumerate(part):
            wrong = disagreements(got[f"z{n}"], wanted[f"z{n}"], 0.0)
            if wrong.size:
                shown = [(values[k], got[f"z{n}"][k], wanted[f"z{n}"][k]) for k in wrong[:3]]
                found.append(f"{text}: {shown}")
    return found


def pack(conditions: Sequence[str]) -> str:
    """Conditions as the bits of one integer."""
    text = "0:s32"
    for number, condition in enumerate(conditions):
        text = f"bit_or({text}, select({condition}, {1 << number}:s32, 0:s32))"
    return text


def compare(value: str, dtype: DataType) -> list[str]:
    bounds = (0, 3) if dtype.kind is Kind.UNSIGNED else (0, 3, -2)
    literals = [f"{float(b) if dtype.is_float else b}:{dtype.short}" for b in bounds]
    return [f"{name}({value}, {b})" for b in literals for name in ("lt", "le", "ge", "eq")]


@pytest.mark.grid(2)
@pytest.mark.parametrize(("target", "source"), SOURCES)
def test_conversions_at_the_edges(target: str, source: DataType) -> None:
    """From each type to each, and on from there to a third of all, another third each time, so that
    every two of the three types meet; each compared with small numbers."""
    types = list_types(target, [t for t in COMPUTE_TYPES if t is not DataType.BOOL])
    formulas: list[tuple[DataType, str]] = []
    for number, middle in enumerate(types, SOURCES.index((target, source))):
        first = "%x[i0]" if middle is source else f"cast(%x[i0], {middle.short})"
        conditions = compare(first, middle)
        formulas.append((middle, f"abs({first})"))
        for last in types[number % 3 :: 3]:
            if last is not middle:
                second = f"cast({first}, {last.short})"
                formulas.append((last, second))
                conditions.append(f"lt({second}, {'3.0' if last.is_float else 3}:{last.short})")
        formulas.append((DataType.INT32, pack(conditions)))
    assert find_wrong(target, source, make_edges(source), formulas) == []


@pytest.mark.grid(2)
@pytest.mark.parametrize(("target", "dtype"), CASES)
def test_negation_of_what_constants_divide(target: str, dtype: DataType) -> None:
    limits = np.iinfo(dtype.dtype)
    most, least = int(limits.max), int(limits.min)
    formulas: list[tuple[DataType, str]] = []
    for number in (1, 2, 5, 100, most, least or most // 2 + 1, *((-1, -5) if least else ())):
        constant = f"{number}:{dtype.short}"
        for name in ("div", "mod", "mul"):
            formulas += [
                (dtype, f"neg({name}(%x[i0], {constant}))"),
                (dtype, f"{name}(neg(%x[i0]), {constant})"),
                (dtype, f"{name}({constant}, neg(%x[i0]))"),
            ]
    assert find_wrong(target, dtype, make_edges(dtype), formulas) == []


@pytest.mark.grid(2)
@pytest.mark.parametrize(("target", "dtype"), CASES)
def test_the_absolute_value_of_the_lowest_integer(target: str, dtype: DataType) -> None:
    least = f"{np.iinfo(dtype.dtype).min}:{dtype.short}"
    values = ["%x[i0]", f"min(%x[i0], {least})", "neg(%x[i0])"]
    formulas = [(dtype, f"abs({value})") for value in values]
    formulas += [(DataType.INT32, pack(compare(f"abs({v})", dtype))) for v in values]
    assert find_wrong(target, dtype, make_edges(dtype), formulas) == []


@pytest.mark.grid(2)
@pytest.mark.parametrize(("target", "dtype"), CASES)
def test_a_choice_inside_every_operation(target: str, dtype: DataType) -> None:
    short = dtype.short
    choice = f"select(gt(%x[i0], 3:{short}), %x[i0], 5:{short})"
    other = f"select(lt(%x[i0], 9:{short}), add(%x[i0], 1:{short}), abs({choice}))"
    formulas: list[tuple[DataType, str]] = []
    for operation in OPERATIONS.values():
        if not operation.operands.accept(dtype):
            continue
        sides = (choice, other, choice)[: operation.arity]
        for operands in (sides, sides[::-1], ("%x[i0]", choice, other)[: operation.arity]):
            text = f"{operation.name}({', '.join(operands)})"
            if operation.gives_bool:
                text = f"select({text}, {choice}, 2:{short})"
            formulas.append((dtype, text))
    clamped = f"min(max({other}, 2:{short}), select(gt({choice}, 4:{short}), 7:{short}, %x[i0]))"
    formulas += [(dtype, clamped), (dtype, f"sign(abs({clamped}))")]
    assert find_wrong(target, dtype, make_edges(dtype), list(dict.fromkeys(formulas))) == []


def test_floats_are_widened_by_their_bits() -> None:
    """All kinds of them, in HLSL: a driver may take what was rounded to a float for the wider
    number that it was before, as Mesa 25 does."""
    bits = np.random.default_rng(3).integers(0, 1 << 32, 5000, np.uint32)
    edges = [0, 1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000]
    values = np.array([*bits, *edges, *(e | 1 << 31 for e in edges)], np.uint32).view(np.float32)
    assert (
        find_wrong("hlsl", DataType.FLOAT32, values, [(DataType.FLOAT64, "cast(%x[i0], f64)")])
        == []
    )
    text = "func @f(%x: u32[n]) -> (%z) {\n  %z: f64[i0 < n] = cast(cast(%x[i0], f32), f64)\n}"
    function = ir.parse(text)
    assert "float_to_double((float)x_value)" in compile(function, "hlsl").kernels[0].source
