"""Every scalar operation on every type, run on OpenCL against the reference."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen.dialect import COMPUTE_TYPES
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.reference import evaluate
from dmlc.runtime import opencl, vulkan, wgpu
from dmlc.scalars import OPERATIONS, TENSOR_TYPES, Array, DataType, Operation
from tests.agreement import disagreements
from tests.opencl_launch import run_program
from tests.samples import sample_pairs

COUNT = 1003


def make_body(operation: Operation, dtype: DataType) -> ir.Body:
    """The operation on the elements of A and B, or of A alone."""
    compute = dtype.compute
    loads = [ir.Load(name, (0,), compute) for name in ("A", "B")[: operation.arity]]
    numbers = (1, 2, 1)[: operation.arity]
    apply = ir.Apply(operation, numbers, operation.result_type(compute))
    return ir.Body.make((ir.Index(0), *loads, apply), len(loads) + 1)


@functools.cache
def make_function(dtype: DataType) -> ir.Function:
    """One result per operation that takes the type."""
    operations = [o for o in OPERATIONS.values() if o.operands.accept(dtype)]
    stages = tuple(
        ir.Stage(o.name, o.result_type(dtype), ("n",), make_body(o, dtype)) for o in operations
    )
    parameters = tuple(ir.Parameter(name, dtype, ("n",)) for name in ("A", "B"))
    results = tuple(ir.Result(stage.name) for stage in stages)
    function = ir.Function("every_operation", parameters, stages, results)
    ir.verify(function)
    return function


@functools.cache
def compute(dtype: DataType, profile: str) -> tuple[dict[str, Array], dict[str, Array]]:
    """What the device gives, and what the reference does."""
    left, right = sample_pairs(dtype, COUNT, dtype.name)
    inputs = {"A": left, "B": right}
    program: Program = compile(make_function(dtype), "opencl", profile)
    return run_program(program, inputs), evaluate(make_function(dtype), inputs)


CASES = [
    (operation.name, dtype)
    for dtype in TENSOR_TYPES
    for operation in OPERATIONS.values()
    if operation.operands.accept(dtype)
]


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_operation(name: str, dtype: DataType, profile: str) -> None:
    got, wanted = compute(dtype, profile)
    operation = OPERATIONS[name]
    # Quotients and roots round once more than the reference where a float32 goes into 16 bits.
    ulps = 4.0 if operation.transcendental else 1.0 if name in ("div", "sqrt") else 0.0
    if dtype.is_storage_only and ulps == 0 and name in ("add", "sub", "mul"):
        ulps = 1.0
    wrong = disagreements(got[name], wanted[name], ulps, operation.transcendental)
    left, right = sample_pairs(dtype, COUNT, dtype.name)
    shown = [(left[k], right[k], got[name][k], wanted[name][k]) for k in wrong[:5]]
    assert not shown, f"{wrong.size} differ: operands, result, reference: {shown}"


def make_casts(source: DataType) -> ir.Function:
    stages = tuple(
        ir.Stage(
            target.name.lower(),
            target,
            ("n",),
            ir.Body.make((ir.Index(0), ir.Load("A", (0,), source), ir.Cast(1, target)), 2),
        )
        for target in COMPUTE_TYPES
        if target is not source
    )
    results = tuple(ir.Result(stage.name) for stage in stages)
    return ir.Function("casts", (ir.Parameter("A", source, ("n",)),), stages, results)


@pytest.mark.grid(2)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("source", COMPUTE_TYPES)
def test_conversions(source: DataType, profile: str) -> None:
    function = make_casts(source)
    values, _ = sample_pairs(source, COUNT, source.name)
    if source.is_float:
        limits = [2.0**k * s for k in (7, 8, 15, 16, 31, 32, 63, 64, 70) for s in (-1, 1)]
        values[-len(limits) :] = np.array(limits, source.dtype)
    wanted = evaluate(function, {"A": values})
    got = run_program(compile(function, "opencl", profile), {"A": values})
    for name, result in wanted.items():
        wrong = disagreements(got[name], result, 0.0)
        assert wrong.size == 0, [(values[k], got[name][k], result[k]) for k in wrong[:5]]


@pytest.mark.grid(2)
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", TENSOR_TYPES)
def test_select_on_masks_of_another_width(dtype: DataType, profile: str) -> None:
    kind = dtype.short
    positive, small = "gt(%wide[i0], 0.5:f64)", "gt(%narrow[i0], 0:s8)"
    text = f"""
    func @pick(%wide: f64[n], %narrow: s8[n], %flag: boolean[n], %a: {kind}[n], %b: {kind}[n])
        -> (%y, %z, %w) {{
      %y: {kind}[i0 < n] = select({positive}, %a[i0], %b[i0])
      %z: {kind}[i0 < n] = select(and({small}, not(%flag[i0])), %a[i0], %b[i0])
      %w: boolean[i0 < n] = select(%flag[i0], {positive}, ne(%flag[i0], {small}))
    }}"""
    function = ir.parse(text)
    inputs: dict[str, Array] = {}
    for p in function.parameters:
        inputs[p.name], _ = sample_pairs(p.dtype, 100, p.name)
    got = run_program(compile(function, "opencl", profile), inputs)
    for name, wanted in evaluate(function, inputs).items():
        assert disagreements(got[name], wanted, 0.0).size == 0


@pytest.mark.parametrize("target", ["opencl", "hlsl", "wgsl"])
def test_a_minimum_with_a_number_is_a_choice(target: str) -> None:
    """NaN stays, and so does the first of two zeros, without a function that says so; but -0 has
    one, as compilers take it for 0."""
    results = {
        f"{name}_{place}_{index}": f"{name}({', '.join(['%A[i0]', number][:: 1 - 2 * place])})"
        for name in ("min", "max")
        for place in (0, 1)
        for index, number in enumerate(["0.0", "-0.0", "1.5", "-2.0"])
    }
    stages = "\n".join(f"%{name}: f32[i0 < 16] = {value}" for name, value in results.items())
    given = ", ".join(f"%{name}" for name in results)
    function = ir.parse(f"func @f(%A: f32[16]) -> ({given}) {{\n{stages}\n}}")
    program = compile(function, target)
    called = r"(?:min_float|max_float|lesser|greater)(?:\d*|_x4)\([a-z]\w*, (.*)\);"
    numbers = {n for kernel in program.kernels for n in re.findall(called, kernel.source)}
    assert all("-0.0" in number for number in numbers)
    values = [0, -0.0, 1.5, 1, 2, -3, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 7, 8, 9, 1e9, -1e9]
    inputs = {"A": np.array(values, np.float32)}
    run = {"opencl": opencl.load, "hlsl": vulkan.load, "wgsl": wgpu.load}[target](program)
    found, wanted = run(inputs), evaluate(function, inputs)
    for name, right in wanted.items():
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(right))
        finite = ~np.isnan(right)
        np.testing.assert_array_equal(found[name].view("u4")[finite], right.view("u4")[finite])
