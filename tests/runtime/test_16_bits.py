"""The 16-bit floats on every device: each bit pattern through what rounds exactly, and the two
ways in which HLSL stores them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.runtime.hlsl import compile_kernel
from dmlc.scalars import Array, DataType
from dmlc.source import UnsupportedError
from tests.agreement import disagreements

STORED = [DataType.FLOAT16, DataType.BFLOAT16]

Run = Callable[[ir.Function, dict[str, Array]], dict[str, Array]]


def on_opencl(profile: str) -> Run:
    return lambda function, inputs: opencl.load(compile(function, "opencl", profile))(inputs)


def compile_model(function: ir.Function, shader_model: str) -> Program:
    program = compile(function, "hlsl", shader_model=shader_model)
    for kernel in program.kernels:
        assert compile_kernel(kernel).warnings == ()
        # Words of BFLOAT16 are floats, once they are shifted.
        only_words = "StructuredBuffer<uint4>" in kernel.source and "float16_t" not in kernel.source
        needs_types = shader_model == "6.2" and not only_words
        assert ("-enable-16bit-types" in kernel.source) == needs_types
    return program


def on_vulkan(shader_model: str) -> Run:
    return lambda function, inputs: vulkan.load(compile_model(function, shader_model))(inputs)


DEVICES = {
    "opencl-cpu": on_opencl("cpu"),
    "opencl-gpu": on_opencl("gpu"),
    "vulkan-6.2": on_vulkan("6.2"),
    "vulkan-6.0": on_vulkan("6.0"),
}

FORMULAS = {
    "copy": "%X[i0]",
    "add": "add(%X[i0], %Y[i0])",
    "multiply": "mul(%X[i0], %Y[i0])",
    "relu_grad": "select(gt(%X[i0], 0.0), %Y[i0], 0.0)",
}


def check(run: Run, function: ir.Function, inputs: dict[str, Array]) -> None:
    got, wanted = run(function, inputs), evaluate(function, inputs)
    for name, values in wanted.items():
        wrong = disagreements(got[name], values, 0.0)
        shown = [(a.ravel()[k], values.ravel()[k]) for k in wrong[:5] for a in (got[name],)]
        assert wrong.size == 0, (name, wrong[:5], shown)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("formula", FORMULAS)
def test_every_pattern(formula: str, dtype: DataType, device: str) -> None:
    function = ir.parse(
        f"func @f(%X: {dtype.short}[n], %Y: {dtype.short}[n]) -> (%Z) {{\n"
        f"  %Z: {dtype.short}[i0 < n] = {FORMULAS[formula]}\n}}"
    )
    patterns = np.arange(1 << 16, dtype=np.uint16)
    for shift in (1, 4321, 40000):
        inputs = {"X": patterns.view(dtype.dtype), "Y": np.roll(patterns, shift).view(dtype.dtype)}
        check(DEVICES[device], function, inputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", STORED)
def test_narrowing_rounds_to_nearest_even(dtype: DataType, device: str) -> None:
    exact = np.arange(1 << 16, dtype=np.uint16).view(dtype.dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        ties = ((exact[:-1].astype(np.float64) + exact[1:]) / 2).astype(np.float32)
        around = [np.nextafter(ties, np.float32(to)) for to in (-np.inf, np.inf)]
    bits = np.random.default_rng(7).integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    function = ir.parse(f"func @f(%X: f32[n]) -> (%Z) {{\n  %Z: {dtype.short}[i0 < n] = %X[i0]\n}}")
    check(DEVICES[device], function, {"X": np.concatenate([exact, ties, *around, bits])})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 2, 3, 511, 513, 1023, 1025, 3071])
def test_any_number_of_elements_and_results_of_both_widths(count: int, device: str) -> None:
    function = ir.parse(
        "func @f(%X: f16[n], %Y: f32[n], %B: bf16[n]) -> (%P, %Q, %R) {\n"
        "  %P: f16[i0 < n] = mul(%X[i0], %Y[i0])\n"
        "  %Q: f32[i0 < n] = add(%X[i0], %B[i0])\n"
        "  %R: bf16[i0 < n] = sub(%Y[i0], %B[i0])\n}"
    )
    rng = np.random.default_rng(count)
    # Of few digits, so that nothing is rounded on the way: a formula may round as it goes.
    x, y, b = rng.integers(-99, 99, (3, count)).astype(np.float32) / 8
    inputs = {"X": x.astype(np.float16), "Y": y, "B": b.astype(DataType.BFLOAT16.dtype)}
    check(DEVICES[device], function, inputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", STORED)
def test_transposed_sliced_and_broadcast_inputs(dtype: DataType, device: str) -> None:
    short = dtype.short
    function = ir.parse(
        f"func @f(%X: {short}[5, 7, 3]{{1, 5, 35}}, %S: {short}[5, 7, 3]{{45, 6, 2}}, "
        f"%B: {short}[1, 7, 1]) -> (%Z) {{\n"
        f"  %Z: {short}[i0 < 5, i1 < 7, i2 < 3] = "
        "add(mul(%X[i0, i1, i2], %B[0, i1, 0]), %S[i0, i1, i2])\n}"
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 7, 5)).astype(dtype.dtype).transpose(2, 1, 0)
    s = rng.standard_normal((5, 45)).astype(dtype.dtype)[:, :42].reshape(5, 7, 6)[:, :, ::2]
    inputs = {"X": x, "S": s, "B": rng.standard_normal((1, 7, 1)).astype(dtype.dtype)}
    check(DEVICES[device], function, inputs)


def test_results_with_gaps_are_refused_where_two_share_a_word() -> None:
    function = ir.parse(
        "func @f(%X: f16[3, 4]) -> (%Z{8, 2}) {\n  %Z: f16[i0 < 3, i1 < 4] = %X[i0, i1]\n}"
    )
    assert compile(function, "hlsl").kernels[0].buffers[1].structure_bytes == 2
    with pytest.raises(UnsupportedError) as caught:
        compile(function, "hlsl", shader_model="6.0")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == (
        "'Z' is FLOAT16 with strides, and without 16-bit types kernels store two elements at a time"
    )
    (note,) = diagnostic.notes
    assert note.message == "store it packed, or compile for shader model 6.2"


def test_reductions_are_stored_whole_where_two_share_a_word() -> None:
    text = "func @f(%X: f16[3, 4]) -> (%Z) {{\n  %Z: {}[i0 < 3] = sum[r1 < 4] %X[i0, r1]\n}}"
    function = ir.parse(text.format("f32"))
    x = np.arange(12, dtype=np.float16).reshape(3, 4)
    check(on_vulkan("6.0"), function, {"X": x})
    with pytest.raises(UnsupportedError, match="'Z' is FLOAT16 and computed from a reduction"):
        compile(ir.parse(text.format("f16")), "hlsl", shader_model="6.0")
