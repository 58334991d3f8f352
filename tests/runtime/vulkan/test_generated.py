"""Programs that the compiler makes, on a Vulkan device: every operation that rounds exactly,
on every type. The transcendental functions have sweeps of their own."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Sequence

import numpy as np
import pytest

from dmlc import ir
from dmlc.codegen.hlsl import HLSL_6_2 as HLSL
from dmlc.pipeline import compile
from dmlc.reference import evaluate
from dmlc.runtime import vulkan
from dmlc.runtime.hlsl import compile_kernel
from dmlc.scalars import OPERATIONS, TENSOR_TYPES, Array, DataType, Operation
from dmlc.scalars.operation import Unsupported
from dmlc.testing.bounds import bound_errors
from dmlc.testing.compare import Verdict
from tests.runtime import dxil

SPECIAL = [
    0, -0.0, 1, -1, 0.5, 2, np.inf, -np.inf, np.nan, 1e-45, 1e-40, 1.17549435e-38, 3e38, -3e38,
]  # fmt: skip


def make_values(dtype: DataType, seed: int, count: int = 5000) -> Array:
    """Values of all magnitudes, with the special ones against one another."""
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        special = np.tile(SPECIAL, len(SPECIAL)) if seed else np.repeat(SPECIAL, len(SPECIAL))
        wide = rng.standard_normal(count) * 10.0 ** rng.uniform(-30, 30, count)
        values = np.concatenate([special, rng.uniform(-100, 100, count), wide])
        with np.errstate(over="ignore"):
            return values.astype(dtype.dtype)
    if dtype is DataType.BOOL:
        return rng.integers(0, 2, count).astype(np.bool_)
    limits = np.iinfo(dtype.dtype)
    ends = np.array([limits.min, limits.max, 0], dtype.dtype)
    small = rng.integers(max(limits.min, -10), 10, count).astype(dtype.dtype)
    any_size = rng.integers(limits.min, limits.max, count, dtype.dtype.type, endpoint=True)
    return rng.permutation(np.concatenate([ends, small, any_size]))


STAGES = 16
"""Of one function: a kernel has 31 buffers."""


def make_function(operations: Sequence[Operation], dtype: DataType) -> ir.Function:
    """One result per operation, of its name."""
    stages = ""
    for operation in operations:
        value = f"{operation.name}({', '.join(['%A[i0]', '%B[i0]', '%A[i0]'][: operation.arity])})"
        result = dtype.short
        if operation.gives_bool:
            result, value = "s32", f"select({value}, 1:s32, 0:s32)"
        stages += f"  %{operation.name}: {result}[i0 < n] = {value}\n"
    results = ", ".join(f"%{operation.name}" for operation in operations)
    return ir.parse(
        f"func @f(%A: {dtype.short}[n], %B: {dtype.short}[n]) -> ({results}) {{\n{stages}}}"
    )


def list_operations(dtype: DataType) -> list[Operation]:
    return [
        operation
        for operation in OPERATIONS.values()
        if not operation.transcendental
        and operation.operands.accept(dtype.compute)
        and not isinstance(HLSL.operations[operation.name, dtype.compute], Unsupported)
    ]


CASES = [
    (dtype, start)
    for dtype in TENSOR_TYPES
    if not isinstance(HLSL.storage[dtype], Unsupported)
    for start in range(0, len(list_operations(dtype)), STAGES)
]


@pytest.mark.parametrize(("dtype", "start"), CASES, ids=str)
def test_operations(dtype: DataType, start: int, tmp_path: pathlib.Path) -> None:
    function = make_function(list_operations(dtype)[start : start + STAGES], dtype)
    program = compile(function, "hlsl")
    inputs = {p.name: make_values(dtype, k) for k, p in enumerate(function.parameters)}
    actual, bounds = vulkan.load(program)(inputs), bound_errors(function, inputs)
    for name, expected in evaluate(function, inputs).items():
        nearness = Verdict.of(actual[name], expected, bounds[name])
        assert nearness.holds, f"{name}: {nearness}"
    for kernel in program.kernels:
        made = compile_kernel(kernel)
        assert made.warnings == ()
        assert " fast " not in dxil.disassemble(made.dxil)
        path = tmp_path / f"{kernel.name}.spv"
        path.write_bytes(made.spirv)
        subprocess.run(["spirv-val", "--target-env", "vulkan1.1", path], check=True)


RELU_GRAD = """func @relu_grad(%X: {0}[n], %dY: {0}[n]) -> (%dX) {{
  %dX: {0}[i0 < n] = select(gt(%X[i0], 0.0), %dY[i0], 0.0)
}}"""


def test_more_elements_than_one_binding_reaches() -> None:
    count = (1 << 25) + 3
    program = compile(ir.parse(RELU_GRAD.format("f32")), "hlsl")
    assert program.elementwise
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal(count, dtype=np.float32) for _ in range(2))
    out = vulkan.load(program)({"X": x, "dY": dy})["dX"]
    assert np.array_equal(out, np.where(x > 0, dy, np.float32(0)))


@pytest.mark.parametrize("outer", ["max({}, {})", "select(gt({}, {}), 1.0, 2.0)", "mod({}, {})"])
@pytest.mark.parametrize(
    "inner",
    [
        "sub(%A[i0], %A[i0])",
        "sub(add(%A[i0], %B[i0]), %A[i0])",
        "mul(sqrt(%A[i0]), sqrt(%A[i0]))",
        "div(mul(%A[i0], 3.0), 3.0)",
        "mul(div(%A[i0], %B[i0]), %B[i0])",
    ],
)
def test_arithmetic_in_an_operand_is_done_as_written(inner: str, outer: str) -> None:
    """The same as with the operand stored and read again by another kernel."""
    first, second = make_values(DataType.FLOAT32, 0), make_values(DataType.FLOAT32, 1)
    given = {"A": np.concatenate([first, [1e8, -1e8]]), "B": np.concatenate([second, [1, 1]])}
    given = {name: values.astype(np.float32) for name, values in given.items()}

    def run(text: str, arrays: dict[str, Array]) -> Array:
        parameters = ", ".join(f"%{name}: f32[n]" for name in arrays)
        function = ir.parse(f"func @f({parameters}) -> (%Y) {{ %Y: f32[i0 < n] = {text} }}")
        return vulkan.load(compile(function, "hlsl"))(arrays)["Y"]

    whole = run(outer.format(inner, "%B[i0]"), given)
    steps = run(outer.format("%C[i0]", "%B[i0]"), {"C": run(inner, given), "B": given["B"]})
    assert np.array_equal(whole, steps, equal_nan=True)
