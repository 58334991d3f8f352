"""Integers of 64 bits, which WGSL has not: every operation and conversion of two words, at edges
and at random."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dmlc
from dmlc import ir
from dmlc.codegen.wgsl import WGSL
from dmlc.reference import evaluate
from dmlc.runtime import wgpu
from dmlc.scalars import OPERATIONS, Array, DataType
from dmlc.scalars.operation import Spelling

T = DataType
WIDE = (T.INT64, T.UINT64)
OTHERS = (T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.BOOL, T.FLOAT32, *WIDE)


def list_numbers(dtype: DataType) -> Array:
    """Edges of a type and of its words, and random numbers of all sizes."""
    random = np.random.default_rng(5)
    if dtype is T.BOOL:
        return np.array([False, True] * 8)
    if dtype.is_float:
        powers = np.ldexp(1.0, np.arange(-3, 70)).astype(np.float32)
        near = [powers, np.nextafter(powers, np.float32(0)), powers * np.float32(1.5)]
        special = np.array([0, np.nan, np.inf, 1e-45, 3.4e38], np.float32)
        numbers = np.concatenate([*near, special])
        return np.concatenate([numbers, -numbers])
    bits = 8 * dtype.bytes
    edges = [0, 1, 2, 3, 5, 24, 31, 32, 33, 63, 64, (1 << 24) + 1, (1 << 25) + 2, (1 << 25) + 6]
    edges += [
        (1 << k) + d for k in (15, 16, 31, 32, 33, 47, 48, 53, 62, 63, 64) for d in (-1, 0, 1)
    ]
    edges += [int(n) >> int(s) for n, s in zip(
        random.integers(0, 1 << 63, 24), random.integers(0, 62, 24), strict=True
    )]  # fmt: skip
    wrapped = [sign * e % (1 << bits) for e in edges for sign in (1, -1)]
    unsigned = np.array(sorted(set(wrapped)), np.uint64).astype(f"u{dtype.bytes}")
    return unsigned.view(dtype.dtype)


def run(text: str, inputs: dict[str, Array]) -> None:
    function = ir.parse(text)
    found = wgpu.load(dmlc.compile(function, "wgsl"))(inputs)
    for name, expected in evaluate(function, inputs).items():
        np.testing.assert_array_equal(found[name], expected, text)


OPERATORS = [
    (n, t) for (n, t), e in WGSL.operations.items() if t in WIDE and isinstance(e, Spelling)
]


@pytest.mark.parametrize(("name", "dtype"), OPERATORS, ids=str)
def test_operations(name: str, dtype: DataType) -> None:
    operation, numbers = OPERATIONS[name], list_numbers(dtype)
    pairs = np.array(list(itertools.product(numbers, repeat=operation.arity)), dtype.dtype)
    inputs = {f"x{k}": np.ascontiguousarray(column) for k, column in enumerate(pairs.T)}
    short = dtype.short
    given = ", ".join(f"%{n}: {short}[n]" for n in inputs)
    taken = ", ".join(f"%{n}[i0]" for n in inputs)
    result = operation.result_type(dtype).short
    run(f"func @f({given}) -> (%y) {{ %y: {result}[i0 < n] = {name}({taken}) }}", inputs)


@pytest.mark.parametrize(("source", "target"), [
    (a, b) for a in OTHERS for b in OTHERS if a is not b and (a in WIDE or b in WIDE)
], ids=str)  # fmt: skip
def test_conversions(source: DataType, target: DataType) -> None:
    numbers = list_numbers(source)
    run(
        f"func @f(%x: {source.short}[n]) -> (%y) "
        f"{{ %y: {target.short}[i0 < n] = cast(%x[i0], {target.short}) }}",
        {"x": numbers},
    )


def test_positions_and_places() -> None:
    """Indices of 64 bits are read, and places of extremes are stored, as ONNX has both."""
    x = np.cos(np.arange(35, dtype=np.float32)).reshape(5, 7)
    places = np.array([4, 0, -1, 2, 99, -(1 << 40)], np.int64)
    run("""func @f(%x: f32[5, 7], %p: s64[6]) -> (%y, %z) {
        %y: f32[i0 < 6, i1 < 7] = %x[min(max(cast(%p[i0], index), 0), 4), i1]
        %z: s64[i0 < 5] = argmax[r0 < 7] %x[i0, r0]
    }""", {"x": x, "p": places})  # fmt: skip


def test_literals_and_sums() -> None:
    x = np.array([[1 << 40, -(1 << 41), 7], [-1, (1 << 62), 1 << 62]], np.int64)
    run("""func @f(%x: s64[2, 3]) -> (%y, %z) {
        %y: s64[i0 < 2] = sum[r0 < 3] add(%x[i0, r0], -4294967297:s64)
        %z: s64[i0 < 2] = max[r0 < 3] %x[i0, r0]
    }""", {"x": x})  # fmt: skip
