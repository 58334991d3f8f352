"""Quotients and remainders of what may be negative: HLSL and Vulkan leave the latter undefined, and
NVIDIA takes the numbers for unsigned. So none is in the code: it divides what has no sign."""

from __future__ import annotations

import re

import pytest

from dmlc import ir, library
from dmlc.binding import Operator, TensorDesc
from dmlc.codegen.names import Mangler
from dmlc.codegen.opencl import OPENCL
from dmlc.codegen.spell import Speller
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import index, multiply, operate, widen
from dmlc.pipeline import Steps, compile, compile_by
from dmlc.program import Program
from dmlc.runtime.hlsl import CompiledKernel, compile_kernel
from dmlc.scalars import DataType
from dmlc.transform.fuse import keep_apart
from tests.library_programs import list_signed


def compile_shaders(program: Program) -> list[CompiledKernel]:
    return [compile_kernel(kernel) for kernel in program.kernels]


WRAPPED = """func @f(%x: f32[6]) -> (%y) {
  %y: f32[i0 < 20] = %x[mod(add(mod(sub(i0, 4), 6), 6), 6)]
}"""


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("hlsl", "(int)((uint)(mod_signed_int(i - 4, 6) + 6) % 6u)"),
        ("wgsl", "i32(u32(mod_i32(i - 4, 6i) + 6) % 6u)"),
    ],
)
def test_a_position_that_is_not_negative_is_taken_for_unsigned(target: str, expected: str) -> None:
    assert expected in compile(ir.parse(WRAPPED), target).kernels[0].source


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("name", ["div", "mod"])
def test_vectors_of_positions_are_divided_by_vectors(name: str, signed: bool) -> None:
    """NVIDIA's OpenCL compiler breaks on a vector beside a number."""
    kernel = k.Kernel("f", (), (), k.Launch(1, 1, 1), (), 32, index_signed=signed)
    speller = Speller(OPENCL, kernel, Mangler(OPENCL.reserved))
    lanes = k.Numbers((0, 1, 2, 3), k.Type(DataType.INDEX, 4))
    places = operate("add", widen(k.Position(k.Geometry.LANE), 4), lanes)
    made = speller.spell(operate(name, places, widen(index(4), 4))).text
    assert re.search(r"[/%] \(?\(uint4\)\(4u?\)", made)


LANE, GROUP = (k.Position(of) for of in (k.Geometry.LANE, k.Geometry.GROUP))


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (LANE, "a[group * 2][lane]"),
        (operate("add", LANE, index(1)), "a[group * 2 + (int)((uint)(lane + 1) / 4u)]"
         "[(int)((uint)(lane + 1) % 4u)]"),
        # Where the first lane is, -1 / 4 is 0, which a multiple must not be added to.
        (operate("sub", LANE, index(1)), "a[div_signed_int(group * 8 + (lane - 1), 4)]"
         "[mod_signed_int(group * 8 + (lane - 1), 4)]"),
    ],
)  # fmt: skip
def test_multiples_are_divided_separately_beside_what_is_not_negative(
    beside: k.Expression, expected: str
) -> None:
    array = k.Array("a", DataType.FLOAT32, 64, False, lanes=4)
    kernel = k.Kernel("f", (), (), k.Launch(64, 4, 4), (), 32, arrays=(array,), index_signed=True)
    place = operate("add", multiply(GROUP, 8), beside)
    loaded = k.LoadLocal("a", place, k.Type(DataType.FLOAT32))
    text = Speller(OPENCL, kernel, Mangler(OPENCL.reserved)).spell(loaded).text
    short = text.replace("(int)get_group_id(0)", "group").replace("(int)get_local_id(0)", "lane")
    assert short == expected


def test_a_product_of_any_sizes_is_not_negative() -> None:
    sizes = [k.Scalar(name) for name in "NCH"]
    scalars = tuple((size, size.name) for size in sizes)
    kernel = k.Kernel("f", (), scalars, k.Launch(64, 4, 4), (), 32, index_signed=True)
    product = operate("mul", operate("mul", sizes[0], sizes[1]), sizes[2])
    speller = Speller(OPENCL, kernel, Mangler(OPENCL.reserved))
    made = [speller.spell(operate("div", each, index(4))).text
            for each in (product, operate("sub", product, index(1)))]  # fmt: skip
    assert made == ["(int)((uint)(N * C * H) / 4u)", "div_signed_int(N * C * H - 1, 4)"]


@pytest.mark.parametrize("dtype", [t for t in DataType if t.is_integer], ids=str)
def test_shaders_divide_signed_data_by_its_sizes(dtype: DataType) -> None:
    """By data, and by numbers, which DXC computes with; a remainder, and a quotient times its
    divisor again, of which DXC makes one."""
    short = dtype.short
    text = f"""func @f(%a: {short}[n], %b: {short}[n]) -> (%c, %d, %e) {{
      %c: {short}[i0 < n] = mod(%a[i0], %b[i0])
      %d: {short}[i0 < n] = add(mod(%a[i0], 6:{short}), mod(7:{short}, %b[i0]))
      %e: {short}[i0 < n] = sub(%a[i0], mul(div(%a[i0], 6:{short}), 6:{short}))
    }}"""
    for shader in compile_shaders(compile(ir.parse(text), "hlsl")):
        assert list_signed(shader) == set()


def test_max_pooling_in_a_kernel_for_every_stage() -> None:
    """Positions of 64 bits, for the indices come from data of 32. An NVIDIA device left most of the
    indices unwritten, and signed quotients of 64 bits were all that the code had of what devices
    take in different ways. Each is divided in 32 bits, which hold it."""
    operator = Operator(library.find("directml.MAX_POOLING2").operators["directml.MAX_POOLING2"])
    tensors = {
        "InputTensor": TensorDesc("INT64", (4, 6, 4, 3, 7), (126, 21, 504, 7, 1)),
        "OutputTensor": TensorDesc("INT64", (4, 6, 3, 3, 2), (138, 7, 45, 552, 2)),
        "OutputIndicesTensor": TensorDesc("UINT64", (4, 6, 3, 3, 2), (54, 1, 6, 18, 216)),
    }
    attributes = {
        "Strides": [2, 2, 7],
        "WindowSize": [1, 1, 1],
        "StartPadding": [1, 1, 1],
        "EndPadding": [1, 1, 1],
        "Dilations": [1, 1, 1],
    }
    program = compile_by(Steps(fuse=keep_apart), operator.bind(tensors, attributes), "hlsl")
    assert len(program.kernels) > 2
    for shader in compile_shaders(program):
        assert list_signed(shader) == set()
    last = program.kernels[-1].source
    assert "const int64_t i0 = (int64_t)(((uint)i / 54u) % 4u);" in last
    assert not re.search(r"(?<!\(uint\))i / \d", last.partition("main(")[2])
