"""Reads at computed positions, windows and tables on every device: equal to the reference, bit for
bit, on whole numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dmlc import ir
from dmlc.pipeline import compile
from dmlc.program import Program, Role
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan
from dmlc.runtime.arrays import constant_array
from dmlc.scalars import TENSOR_TYPES, DataType
from tests import positions
from tests.positions import FUNCTIONS, find_differences, make_inputs

DTYPES = {t.short: t.dtype for t in TENSOR_TYPES}


@pytest.mark.grid(2)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_opencl(name: str, profile: str) -> None:
    function = positions.read(name)
    inputs = make_inputs(function)
    got = opencl.load(compile(function, "opencl", profile))(inputs)
    assert find_differences(got, evaluate(function, inputs)) == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_vulkan(name: str) -> None:
    function = positions.read(name)
    inputs = make_inputs(function)
    got = vulkan.load(compile(function, "hlsl"))(inputs)
    assert find_differences(got, evaluate(function, inputs)) == []


def read_as(name: str, dtype: DataType) -> ir.Function:
    """A function of the samples with its FLOAT32 tensors of another type."""
    text = re.sub(r"\bf32\[", f"{dtype.short}[", FUNCTIONS[name])
    if not dtype.is_storage_only:
        text = re.sub(r"(?<![\w.])-?\d+\.\d+", lambda found: f"{found[0]}:{dtype.short}", text)
    return ir.parse(text, name)


@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64])
@pytest.mark.parametrize("name", ["pad", "average_pool", "flip", "two_steps", "strided"])
def test_other_types(name: str, dtype: DataType) -> None:
    function = read_as(name, dtype)
    inputs = make_inputs(function)
    wanted = evaluate(function, inputs)
    assert find_differences(opencl.load(compile(function, "opencl"))(inputs), wanted) == []
    assert find_differences(vulkan.load(compile(function, "hlsl"))(inputs), wanted) == []


@pytest.mark.parametrize("name", ["pad", "flip", "gather"])
def test_two_halves_to_a_word(name: str) -> None:
    function = read_as(name, DataType.FLOAT16)
    inputs = make_inputs(function)
    program = compile(function, "hlsl", shader_model="6.0")
    got = vulkan.load(program)(inputs)
    assert find_differences(got, evaluate(function, inputs)) == []


def list_programs(name: str) -> list[Program]:
    function = positions.read(name)
    return [
        compile(function, target, profile)
        for target, profile in (("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu"))
    ]


def test_tables_are_constants_of_the_program() -> None:
    for program in list_programs("linear_grad"):
        (table,) = program.constants
        assert table.role is Role.CONSTANT
        assert table.values == (0.25, 0.75, 0.75, 0.25)
        assert constant_array(table).dtype == np.float32
        assert [t.name for t in program.inputs] == ["dY"]
        described = [t for t in program.manifest()["tensors"] if t["role"] == "constant"]
        assert [t["values"] for t in described] == [[0.25, 0.75, 0.75, 0.25]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_kernel_scatters(name: str) -> None:
    """Whatever a function reads where, each element of a result is stored by one work item, and
    none by an atomic operation that depends on an order: bytes that share a word with those of
    another work item are put in by setting bits, which no order changes."""
    for program in list_programs(name):
        for kernel in program.kernels:
            assert re.search(r"atomic|Interlocked(?!And|Or)", kernel.source) is None
            written = {b.name for b in kernel.buffers if b.written}
            read = {b.name for b in kernel.buffers if b.read}
            assert not written & read


@pytest.mark.parametrize("name", ["linear_grad", "irregular"])
def test_a_bound_call_reads_its_tables_again(name: str) -> None:
    function = positions.read(name)
    inputs = make_inputs(function)
    wanted = evaluate(function, inputs)
    call = opencl.load(compile(function, "opencl")).bind(inputs)
    assert find_differences(call(), wanted) == []
    assert find_differences(call(), wanted) == []


FAR = {
    "f32": [0.0, 9.5, -0.5, 2.0**30, 2.0**31 - 128, 2.0**31, -(2.0**31), -(2.0**31) - 256, 2.0**63,
            -(2.0**63), 1e30, -1e30, np.inf, -np.inf, np.nan, 10.0],
    "f64": [0.0, 9.999, 2.0**31 - 1, 2.0**31, -(2.0**31) - 1, 2.0**62, 1e300, -1e300, np.inf,
            -np.inf, np.nan, 4.0],
    "u32": [0, 9, 10, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 4],
    "s64": [0, 9, 10, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 + 3, -(2**32) + 3,
            2**63 - 2, -(2**63)],
    "s32": [0, 9, 10, -1, 2**31 - 1, -(2**31)],
}  # fmt: skip
"""Positions near a tensor of 10 elements, and far outside it."""
FAR_READS = {
    "clamped": "%X[min(max(p, 0), 9)]",
    "clamped from above first": "%X[max(min(p, 9), 0)]",
    "elsewhere": "select(and(ge(p, 0), lt(p, 10)), %X[min(max(p, 0), 9)], -1.0)",
    "compared": "select(eq(p, 4), 1.0, select(ne(p, 9), 2.0, 3.0))",
    "chosen": "%X[min(max(select(gt(i0, 3), p, 5), 0), 9)]",
    "compared far out": "add(%X[min(max(p, 0), 9)], select(lt(p, 4294967297), 1.0, 2.0))",
    "moved": "%X[min(max(add(p, 1), 0), 9)]",
    "wrapped": "%X[min(max(mod(p, 10), 0), 9)]",
    "clamped far out": "%X[div(min(max(p, 0), 2147483658), 238609296)]",
}


@pytest.mark.grid(3)
@pytest.mark.parametrize("dtype", FAR)
@pytest.mark.parametrize("read", FAR_READS)
def test_positions_far_outside(read: str, dtype: str) -> None:
    values = np.array(FAR[dtype], DTYPES[dtype])
    # HLSL does no more with FLOAT64 than arithmetic.
    given = "floor(%P[i0])" if dtype == "f32" else "%P[i0]"
    function = ir.parse(
        f"func @far(%X: f32[10], %P: {dtype}[{len(values)}]) -> (%Y) {{\n"
        f"  %Y: f32[i0 < {len(values)}] = {{\n"
        f"    p = cast({given}, index)\n    {FAR_READS[read]}\n  }}\n}}"
    )
    inputs = {"X": np.arange(10, dtype=np.float32), "P": values}
    expected = evaluate(function, inputs)
    for profile in ("cpu", "gpu"):
        program = compile(function, "opencl", profile)
        assert find_differences(opencl.load(program)(inputs), expected) == []
    program = compile(function, "hlsl")
    assert find_differences(vulkan.load(program)(inputs), expected) == []
    if read in ("clamped", "clamped from above first", "elsewhere", "compared", "chosen"):
        # What is read takes 64 bits, and no position does.
        assert "int64_t position" not in program.kernels[0].source
        assert ("int64" in program.kernels[0].source) is (dtype == "s64")
