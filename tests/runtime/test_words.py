"""Types of which HLSL buffers hold several elements to a word: what threads do with neighbours in
one word, in either shader model."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime import vulkan
from dmlc.runtime.fences import check_stores
from dmlc.runtime.hlsl import compile_kernel
from dmlc.scalars import Array, DataType

BYTES = [DataType.INT8, DataType.UINT8, DataType.BOOL]
NARROW = [*BYTES, DataType.INT16, DataType.UINT16]
MODELS = ["6.2", "6.0"]


def make(function: ir.Function, model: str) -> Program:
    program = compile(function, "hlsl", shader_model=model)
    for kernel in program.kernels:
        assert compile_kernel(kernel).warnings == ()
    return program


def draw(dtype: DataType, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Values of the whole range; all bytes but 0 and 1 are no BOOL."""
    rng = np.random.default_rng(seed)
    if dtype is DataType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    limits = np.iinfo(dtype.dtype)
    return rng.integers(limits.min, int(limits.max) + 1, shape).astype(dtype.dtype)


def check(function: ir.Function, inputs: dict[str, Array], model: str) -> None:
    """The results are right, and no bytes outside the tensors are touched."""
    program = make(function, model)
    wanted = evaluate(function, inputs)
    got = vulkan.load(program)(inputs)
    for name, values in wanted.items():
        assert np.array_equal(got[name], values), name
    assert check_stores(program, vulkan.load, inputs, {}) == []


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 1023, 8193])
def test_any_number_of_elements(count: int, model: str) -> None:
    """Beside elements that have a word to themselves."""
    function = ir.parse(
        "func @f(%X: s8[n], %Y: u8[n], %B: boolean[n], %W: s16[n]) -> (%P, %Q, %R, %S, %T) {\n"
        "  %P: s8[i0 < n] = select(%B[i0], add(%X[i0], 1:s8), sub(0:s8, %X[i0]))\n"
        "  %Q: u8[i0 < n] = sub(%Y[i0], 1:u8)\n"
        "  %R: boolean[i0 < n] = eq(%B[i0], gt(%X[i0], 0:s8))\n"
        "  %S: s16[i0 < n] = mul(%W[i0], cast(%X[i0], s16))\n"
        "  %T: s32[i0 < n] = add(cast(%X[i0], s32), cast(%Y[i0], s32))\n}"
    )
    types = {"X": DataType.INT8, "Y": DataType.UINT8, "B": DataType.BOOL, "W": DataType.INT16}
    check(function, {name: draw(dtype, (count,)) for name, dtype in types.items()}, model)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("columns", "bytes_"), [(64, 16), (20, 16), (18, 4)])
def test_words_that_are_moved_at_once(columns: int, bytes_: int, model: str) -> None:
    """Four, where rows are whole numbers of them: then threads store whole words."""
    function = ir.parse(
        f"func @f(%X: s8[1024, {columns}], %B: s8[1, {columns}]) -> (%Z) {{\n"
        f"  %Z: s8[i0 < 1024, i1 < {columns}] = add(%X[i0, i1], %B[0, i1])\n}}"
    )
    (kernel,) = make(function, model).kernels
    assert kernel.buffers[-1].structure_bytes == bytes_
    assert ("Interlocked" in kernel.source) == (columns == 18)
    given = {"X": draw(DataType.INT8, (1024, columns)), "B": draw(DataType.INT8, (1, columns), 1)}
    check(function, given, model)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_gaps_and_odd_places(dtype: DataType, model: str) -> None:
    """Neighbours in a word are stored by several threads, and what lies between them is kept."""
    short = dtype.short
    function = ir.parse(
        f"func @f(%X: {short}[5, 7, 3]{{1, 5, 35}}, %S: {short}[5, 7, 3]{{45, 6, 2}}) -> "
        f"(%Z{{64, 9, 3}}, %T) {{\n"
        f"  %Z: {short}[i0 < 5, i1 < 7, i2 < 3] = "
        "select(eq(%X[i0, i1, i2], %S[i0, i1, i2]), %X[i0, i1, i2], %S[i0, i1, i2])\n"
        f"  %T: {short}[i0 < 3, i1 < 7] = %X[0, i1, i0]\n}}"
    )
    x = draw(dtype, (3, 7, 5)).transpose(2, 1, 0)
    s = draw(dtype, (5, 45), 1)[:, :42].reshape(5, 7, 6)[:, :, ::2]
    check(function, {"X": x, "S": s}, model)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [(3, 5), (64, 64), (2, 5000), (5000, 6)], ids=str)
def test_reductions(shape: tuple[int, int], model: str) -> None:
    rows, columns = shape
    function = ir.parse(
        f"func @f(%X: s8[{rows}, {columns}], %Y: u8[{rows}, {columns}]) -> (%P, %Q, %R, %S) {{\n"
        f"  %P: s8[i0 < {rows}] = max[r1 < {columns}] %X[i0, r1]\n"
        f"  %Q: u8[i0 < {columns}] = sum[r1 < {rows}] %Y[r1, i0]\n"
        f"  %R: boolean[i0 < {rows}] = all[r1 < {columns}] lt(%X[i0, r1], 127:s8)\n"
        f"  %S: s32[i0 < {rows}] = sum[r1 < {columns}] mul(cast(%X[i0, r1], s32), "
        "cast(%Y[i0, r1], s32))\n}"
    )
    given = {"X": draw(DataType.INT8, shape), "Y": draw(DataType.UINT8, shape)}
    check(function, given, model)


@pytest.mark.parametrize("model", MODELS)
def test_a_large_transposition(model: str) -> None:
    function = ir.parse(
        "func @f(%X: u8[96, 80]) -> (%Z) {\n  %Z: u8[i0 < 80, i1 < 96] = %X[i1, i0]\n}"
    )
    check(function, {"X": draw(DataType.UINT8, (96, 80))}, model)


def test_a_store_that_clears_its_neighbours_is_found() -> None:
    function = ir.parse("func @f(%X: s8[5]) -> (%Z{3}) {\n  %Z: s8[i0 < 5] = %X[i0]\n}")
    program = make(function, "6.2")
    (kernel,) = program.kernels
    assert kernel.source.count("~(0xffu <<") == 1
    source = kernel.source.replace("~(0xffu <<", "~(0xffffu <<")
    broken = dataclasses.replace(program, kernels=(dataclasses.replace(kernel, source=source),))
    given = {"X": draw(DataType.INT8, (5,))}
    assert check_stores(program, vulkan.load, given, {}) == []
    assert any("in a gap between its elements" in s for s in
               check_stores(broken, vulkan.load, given, {}))  # fmt: skip
