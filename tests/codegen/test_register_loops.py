"""Loops over arrays of registers in HLSL: short to read, written out by the compilers of drivers,
and rounded as they are written."""

from __future__ import annotations

import pytest

import dmlc
from dmlc import ir
from dmlc.pipeline import compile
from dmlc.program import Program
from dmlc.runtime import dxc
from tests.codegen.test_precise import find_loose, list_instructions
from tests.products import Product, Windows
from tests.runtime import dxil

_LOOP_MERGE, _UNROLL = 246, 1


def multiply(size: int, **attributes: object) -> ir.Function:
    """A product, with a third matrix where it is scaled."""
    names = ("ATensor", "BTensor", "CTensor") if attributes else ("ATensor", "BTensor")
    tensor = dmlc.TensorDesc("FLOAT32", (1, 1, size, size))
    return dmlc.operator("directml.GEMM").bind(dict.fromkeys(names, tensor), attributes=attributes)


def check_written_out(program: Program) -> None:
    """Drivers are asked to write out each loop over registers, whose arithmetic is as it was, and
    DXC leaves no array in DXIL."""
    (kernel,) = program.kernels
    asked = kernel.source.count("[unroll] for")
    assert asked > 5
    assert find_loose(program) == []
    code = dxc.compile_spirv(kernel.source, kernel.entry_point, shader_model="6.2").code
    merges = [words for words in list_instructions(code) if words[0] == _LOOP_MERGE]
    assert sum(words[3] == _UNROLL for words in merges) == asked
    code = dxc.compile_dxil(kernel.source, kernel.entry_point, shader_model="6.2").code
    assert "alloca" not in dxil.disassemble(code)


def test_a_product_is_kept_as_it_is_written() -> None:
    check_written_out(compile(multiply(256), "hlsl", "gpu"))


def test_what_derives_from_a_product_is_kept_too() -> None:
    scaled = multiply(256, Alpha=1.5, Beta=0.25)
    check_written_out(compile(scaled, "hlsl", "gpu"))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(Windows(2, 32, 14, 14, 32, 3, 1, 1).make("forward"), id="windows"),
        pytest.param(Product(130, 131, 70, before=True).make(), id="computed"),
    ],
)
def test_what_is_put_into_tiles_is_kept_too(function: ir.Function) -> None:
    check_written_out(compile(function, "hlsl", "gpu"))


@pytest.mark.parametrize(("rows", "columns"), [("r0, i0", "i1, r0"), ("i0, r0", "r0, i1")])
@pytest.mark.parametrize(("size", "most"), [(1000, 126), (1024, 120), (1025, 120)])
def test_a_person_reads_a_product(size: int, most: int, rows: str, columns: str) -> None:
    """Its residual and ReLU included, and the script in its comment. Edges take a few lines."""
    matrix = f"f32[{size}, {size}]"
    function = ir.parse(f"""func @f(%A: {matrix}, %B: {matrix}, %C: {matrix}) -> (%y) {{
        %s: f32[i0 < {size}, i1 < {size}] = sum[r0 < {size}] mul(%A[{rows}], %B[{columns}])
        %y: f32[i0 < {size}, i1 < {size}] = max(add(%s[i0, i1], %C[i0, i1]), 0.0)
    }}""")
    (kernel,) = compile(function, "hlsl", "gpu").kernels
    lines = kernel.source.splitlines()
    assert len(lines) <= most
    assert max(map(len, lines)) <= 100
    # Four outputs are one vector.
    assert "precise float4 s_part[16]" in kernel.source
    assert kernel.source.count("mad(") == 1


def test_wgsl_has_its_loops_written_out() -> None:
    """It has no word that asks a compiler for it."""
    (kernel,) = compile(multiply(256), "wgsl", "gpu").kernels
    assert "matrix_part_15" in kernel.source
