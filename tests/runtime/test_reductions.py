"""Programs with reductions on every device: every combiner, type and class of shape, the same bits
whatever runs in parallel, and the precision of long sums."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.codegen.hlsl import HLSL_6_2
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.runtime.hlsl import compile_kernel
from dmlc.scalars import TENSOR_TYPES, Array, DataType
from dmlc.scalars.operation import Unsupported
from tests import reductions
from tests.reductions import SHAPES, find_disagreements, make_inputs
from tests.runtime import dxil

Run: TypeAlias = Callable[[ir.Function, dict[str, Array]], dict[str, Array]]


def run_opencl(function: ir.Function, inputs: dict[str, Array]) -> dict[str, Array]:
    return opencl.load(compile(function, "opencl"))(inputs)


def run_vulkan(function: ir.Function, inputs: dict[str, Array]) -> dict[str, Array]:
    return vulkan.load(compile(function, "hlsl"))(inputs)


DEVICES = {"opencl": run_opencl, "vulkan": run_vulkan}

HLSL_TYPES = [t for t in TENSOR_TYPES if not isinstance(HLSL_6_2.storage[t], Unsupported)]


@pytest.mark.grid(3)
@pytest.mark.parametrize("dtype", HLSL_TYPES, ids=lambda t: t.short)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_combiner_on_vulkan(shape: str, dtype: DataType) -> None:
    combiners = reductions.BOOLEAN_COMBINERS if dtype is DataType.BOOL else reductions.COMBINERS
    function = reductions.every_combiner(dtype, SHAPES[shape], combiners)
    inputs = make_inputs(function)
    size = 9.0 if dtype.is_integer else 1.0
    got, wanted = run_vulkan(function, inputs), evaluate(function, inputs)
    exact = ("max", "min", "argmin", "argmax")
    assert find_disagreements(got, wanted, SHAPES[shape].points, size, exact) == []


@pytest.mark.grid(3)
@pytest.mark.parametrize("dtype", [DataType.FLOAT32, DataType.FLOAT16, DataType.UINT8])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_combiner_on_opencl(shape: str, dtype: DataType) -> None:
    function = reductions.every_combiner(dtype, SHAPES[shape], reductions.COMBINERS)
    inputs = make_inputs(function)
    got, wanted = run_opencl(function, inputs), evaluate(function, inputs)
    exact = ("max", "min", "argmin", "argmax")
    size = 9.0 if dtype.is_integer else 1.0
    assert find_disagreements(got, wanted, SHAPES[shape].points, size, exact) == []


BETWEEN = """func @f(%X: f32[{n}, {m}]) -> (%Y) {{
  %some: boolean[i0 < {n}] = any[r1 < {m}] gt(%X[i0, r1], 2.0)
  %every: boolean[i0 < {n}] = all[r1 < {m} where gt(%X[i0, r1], 0.0)] lt(%X[i0, r1], 2.5)
  %Y: f32[i0 < {n}, i1 < {m}] = select(and(%some[i0], %every[i0]), %X[i0, i1], 0.0)
}}"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n", "m"), [(40, 30), (1, 60_000), (70, 3)])
def test_booleans_between_stages(device: str, n: int, m: int) -> None:
    function = ir.parse(BETWEEN.format(n=n, m=m))
    inputs = make_inputs(function)
    assert (
        DEVICES[device](function, inputs)["Y"].tolist() == evaluate(function, inputs)["Y"].tolist()
    )


@st.composite
def norms(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Sizes of rank 1 to 8, any subset of the axes, and a type."""
    rank = draw(st.integers(1, 8))
    sizes = tuple(draw(st.sampled_from((1, 2, 3, 5, 6))) for _ in range(rank))
    kept = tuple(axis for axis in range(rank) if draw(st.booleans()))
    return sizes, kept, draw(st.sampled_from(("f32", "f16", "bf16")))


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=15, deadline=None)
@given(case=norms())
def test_batch_norm_training_grad_over_any_axes(
    device: str, case: tuple[tuple[int, ...], tuple[int, ...], str]
) -> None:
    sizes, kept, dtype = case
    function = reductions.batch_norm_training_grad(sizes, kept, dtype)
    inputs = make_inputs(function)
    got, wanted = DEVICES[device](function, inputs), evaluate(function, inputs)
    points = math.prod(n for a, n in enumerate(sizes) if a not in kept)
    assert find_disagreements(got, wanted, points, 8.0) == []


@pytest.mark.parametrize("device", DEVICES)
def test_a_sum_of_16_million_values(device: str) -> None:
    count = 1 << 24
    function = ir.parse(
        f"func @f(%X: f32[{count}]) -> (%S) {{\n  %S: f32[] = sum[r0 < {count}] %X[r0]\n}}"
    )
    x = np.random.default_rng(5).random(count, np.float32)
    exact = float(np.sum(x, dtype=np.float64))
    got = float(DEVICES[device](function, {"X": x})["S"])
    assert abs(got - exact) <= 5e-7 * exact


@pytest.mark.parametrize(
    ("sizes", "axis"),
    [
        ((1 << 24, 1), 0),
        ((1 << 18, 64), 0),
        ((64, 1 << 18), 1),
        ((3, 1 << 22), 1),
        ((1 << 22, 3), 0),
    ],
)
def test_long_sums_along_either_axis(sizes: tuple[int, int], axis: int) -> None:
    n, m = sizes
    reduced = f"%S: f32[i0 < {m}] = sum[r0 < {n}] %X[r0, i0]"
    if axis == 1:
        reduced = f"%S: f32[i0 < {n}] = sum[r0 < {m}] %X[i0, r0]"
    function = ir.parse(f"func @f(%X: f32[{n}, {m}]) -> (%S) {{\n  {reduced}\n}}")
    x = np.random.default_rng(6).random(sizes, np.float32)
    exact = np.sum(x, axis=axis, dtype=np.float64)
    got = run_opencl(function, {"X": x})["S"]
    assert np.max(np.abs(got - exact) / exact) <= 5e-7


PROGRAM = """
import hashlib, sys
import numpy as np
from dmlc.pipeline import compile
from dmlc.runtime import opencl
from tests import reductions
from tests.quick_builds import building_quickly
from tests.reductions import Shape

made = hashlib.sha256()
functions = [
    reductions.batch_norm_training_grad((8, 24, 30, 31), (1,)),
    reductions.batch_norm_training_grad((300, 700), (1,)),
    reductions.batch_norm_training_grad((40, 50, 60), ()),
    reductions.batch_norm_training_grad((4, 56, 56, 40), (3,), "f16"),
    reductions.folded_result(Shape((301, 1027), (1,))),
    reductions.folded_result(Shape((70_001,), ()), "f16"),
]
with building_quickly():
    for profile in ("cpu", "gpu"):
        for function in functions:
            executable = opencl.load(compile(function, "opencl", profile))
            inputs = reductions.make_inputs(function)
            first, second = (executable(inputs) for _ in range(2))
            for name, values in sorted(first.items()):
                assert values.tobytes() == second[name].tobytes()
                made.update(values.tobytes())
print(made.hexdigest())
"""


def test_the_same_bits_on_one_thread_and_on_two() -> None:
    found: set[str] = set()
    for threads in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "POCL_MAX_PTHREAD_COUNT": threads, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_bits_twice(device: str) -> None:
    function = reductions.batch_norm_training_grad((6, 20, 33, 35), (1,))
    inputs = make_inputs(function)
    first, second = (DEVICES[device](function, inputs) for _ in range(2))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@pytest.mark.parametrize("case", ["long channels", "columns", "everything, in pieces"])
def test_shaders_are_strict(case: str) -> None:
    function = reductions.every_combiner(DataType.FLOAT32, SHAPES[case], reductions.COMBINERS)
    for kernel in compile(function, "hlsl").kernels:
        made = compile_kernel(kernel)
        assert made.warnings == ()
        assert " fast " not in dxil.disassemble(made.dxil)


def test_more_groups_than_a_row_of_them() -> None:
    rows, columns = 70_001, 601
    function = ir.parse(
        f"func @f(%X: u16[{rows}, {columns}]) -> (%S) {{\n"
        f"  %S: u16[i0 < {rows}] = sum[r1 < {columns}] %X[i0, r1]\n}}"
    )
    program = compile(function, "hlsl")
    assert program.kernels[0].dispatch.groups({}) == (35001, 2, 1)
    x = np.random.default_rng(1).integers(0, 999, (rows, columns), np.uint16)
    got = vulkan.load(program)({"X": x})["S"]
    assert np.array_equal(got, x.sum(axis=1, dtype=np.uint16))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("channels", [33, 50, 64])
def test_channels_folded_while_others_are_applied(channels: int, dtype: str) -> None:
    # Shares of two, three and four channels, the last one smaller than the others or not.
    images = 8 if dtype == "f32" else 16
    function = reductions.batch_norm_training_grad((images, channels, 56, 60), (1,), dtype)
    program = compile(function, "opencl")
    (kernel,) = program.kernels
    assert "block < end" in kernel.source
    inputs = make_inputs(function)
    found, expected = opencl.load(program)(inputs), evaluate(function, inputs)
    for name, values in expected.items():
        near = (1e-4 if dtype == "f32" else 4e-3) * np.abs(values.astype(np.float64)).max()
        np.testing.assert_allclose(found[name].astype(np.float64), values, 0, near)
