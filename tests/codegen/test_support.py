"""What a target cannot express is refused by name, with its place, before anything is lowered."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.lowering.assemble import check_limits
from dmlc.pipeline import compile
from dmlc.source import UnknownNameError, UnsupportedError


def refuse(text: str, target: str = "hlsl", profile: str | None = None) -> UnsupportedError:
    with pytest.raises(UnsupportedError) as caught:
        compile(ir.parse(text, "f.ir"), target, profile)
    return caught.value


def test_storage_type() -> None:
    error = refuse("func @f(%x: f64[n]) -> (%y) { %y: f32[i0 < n] = cast(%x[i0], f32) }", "wgsl")
    assert [d.message for d in error.diagnostics] == [
        "target 'wgsl' cannot hold tensor 'x' of type FLOAT64: WGSL has no 64-bit floats",
        "target 'wgsl' cannot convert FLOAT64 to FLOAT32: WGSL has no 64-bit floats",
    ]
    assert error.diagnostics[0].span is not None
    assert error.diagnostics[0].span.column == 9


def test_operation_on_a_type() -> None:
    error = refuse("func @f(%x: f64[n]) -> (%y) { %y: f64[i0 < n] = exp(%x[i0]) }")
    assert [d.message for d in error.diagnostics] == [
        "target 'hlsl' cannot compute 'exp' of FLOAT64: HLSL only has + - * / and comparisons of "
        "double precision"
    ]


def test_a_wide_number_in_the_middle_of_a_formula() -> None:
    text = "func @f(%x: f32[n]) -> (%y) { %y: s32[i0 < n] = cast(cast(%x[i0], f64), s32) }"
    error = refuse(text, "wgsl")
    assert "cannot convert FLOAT32 to FLOAT64" in str(error)


def test_a_stage_that_is_not_stored_needs_no_storage() -> None:
    function = ir.parse(
        """func @f(%x: f32[n]) -> (%y) {
          %positive: boolean[i0 < n] = gt(%x[i0], 0.0)
          %y: f32[i0 < n] = select(%positive[i0], %x[i0], 0.0)
        }"""
    )
    assert "x_value > 0.0f" in compile(function, "hlsl").kernels[0].source


def test_profile() -> None:
    text = "func @f(%x: f32[n]) -> (%y) { %y: f32[i0 < n] = %x[i0] }"
    assert "target 'hlsl' has no 'cpu' profile; it has 'gpu'" in str(refuse(text, "hlsl", "cpu"))
    with pytest.raises(UnknownNameError, match="unknown device profile 'gpus'"):
        compile(ir.parse(text), "hlsl", "gpus")


def test_tables_along_run_time_sizes() -> None:
    """Before anything is lowered: no other reduction of run-time size is refused."""
    text = "func @f(%x: f32[n]) -> (%y) {{ %y: f32[i0 < 1] = sum[r0 < n{0}] %x[r0] }}"
    assert compile(ir.parse(text.format("")), "opencl").kernels
    assert "'y' reduces over an axis of size 'n' (r0), and positions along it alone say" in str(
        refuse(text.format(" where eq(mod(r0, 3), 0)"), "opencl")
    )


def sum_of(count: int) -> str:
    parameters = ", ".join(f"%x{k}: f32[n]" for k in range(count))
    lines = ["v0 = %x0[i0]", *(f"v{k} = add(v{k - 1}, %x{k}[i0])" for k in range(1, count))]
    body = "\n".join([*lines, f"v{count - 1}"])
    return f"func @f({parameters}) -> (%y) {{ %y: f32[i0 < n] = {{\n{body}\n}} }}"


def test_number_of_buffers() -> None:
    assert len(compile(ir.parse(sum_of(30)), "hlsl").kernels[0].buffers) == 31
    assert len(compile(ir.parse(sum_of(100)), "opencl").kernels[0].buffers) == 101
    for target, count, most in (("hlsl", 31, 31), ("opencl", 120, 120)):
        kernels = compile(ir.parse(sum_of(count)), target).kernels
        assert len(kernels) == 2
        assert max(len(kernel.buffers) for kernel in kernels) <= most
    with pytest.raises(UnsupportedError, match="needs 32 buffers in one kernel, and target 'hlsl'"):
        check_limits(ir.parse(sum_of(31)), 1, 32, find_dialect("hlsl").limits)


def test_number_of_elements() -> None:
    text = "func @f(%x: f32[{0}]) -> (%y) {{ %y: f32[i0 < {0}] = %x[i0] }}"
    largest = 2**32 - 2**26
    assert compile(ir.parse(text.format(largest)), "hlsl").kernels[0].scalars[0].bits == 32
    error = refuse(text.format(largest + 1))
    assert f"'f' reaches element {largest + 1:,} of a tensor" in str(error)
    assert f"allows {largest:,} (structured buffers are indexed by 32 bits)" in str(error)
    strided = "func @f(%x: f32[2]{5000000000}) -> (%y) { %y: f32[i0 < 2] = %x[i0] }"
    assert "reaches element 5,000,000,001" in str(refuse(strided))


@pytest.mark.parametrize("target", ["hlsl", "wgsl"])
def test_positions_that_are_found_are_of_any_type(target: str) -> None:
    """ONNX's Hardmax: of what its reduction finds, only positions come."""
    function = ir.parse(
        "func @f(%x: f32[3, 7]) -> (%y) {\n"
        "  %first: s64[i0 < 3] = argmax[r0 < 7] %x[i0, r0]\n"
        "  %y: f32[i0 < 3, i1 < 7] = cast(eq(cast(%first[i0], index), i1), f32)\n}"
    )
    assert compile(function, target).kernels


@pytest.mark.parametrize("target", ["hlsl", "wgsl"])
def test_positions_that_leave_have_a_type(target: str) -> None:
    """No instruction makes a position INT64, which a reduction finds."""
    function = ir.parse(
        "func @f(%x: f32[3, 7]) -> (%y) {\n"
        "  %first: s64[i0 < 3] = argmax[r0 < 7] %x[i0, r0]\n"
        "  %y: f32[i0 < 3] = cast(%first[i0], f32)\n}"
    )
    assert compile(function, target).kernels


@pytest.mark.parametrize("target", ["hlsl", "wgsl"])
def test_constants_that_are_positions_are_of_any_type(target: str) -> None:
    """ONNX's ScatterND with indices in the model."""
    function = ir.parse(
        "func @f(%x: f32[4, 3]) -> (%y) {\n"
        "  table %t: s64[4] = {3, 0, 0, 1}\n"
        "  %y: f32[i0 < 4, i1 < 3] = %x[cast(%t[i0], index), i1]\n}"
    )
    assert compile(function, target).kernels


@pytest.mark.parametrize(
    ("result", "stage", "is_atomic"),
    [
        ("%y", "%y: bf16[i0 < 3] = sum[r0 < 7] %x[i0, r0]", True),
        ("%y{8, 1}", "%y: bf16[i0 < 3, i1 < 7] = %x[i0, i1]", True),
        ("%y", "%y: bf16[i0 < 3, i1 < 7] = %x[i0, i1]", False),
    ],
)
def test_single_bfloat16_are_stored_atomically(result: str, stage: str, is_atomic: bool) -> None:
    """WGSL has two of them to a word. Both are stored at once where all lie together."""
    function = ir.parse(f"func @f(%x: bf16[3, 7]) -> ({result}) {{ {stage} }}")
    (kernel,) = compile(function, "wgsl").kernels
    assert ("atomicOr(&y[" in kernel.source) == is_atomic


def test_constants_have_a_type() -> None:
    function = ir.parse(
        "func @f(%x: f32[4]) -> (%y) {\n"
        "  table %t: f64[4] = {3, 0, 0, 1}\n"
        "  %y: f32[i0 < 4] = mul(%x[i0], cast(%t[i0], f32))\n}"
    )
    compile(function, "hlsl")
    with pytest.raises(UnsupportedError, match="cannot hold the constant 't' of type FLOAT64"):
        compile(function, "wgsl")
