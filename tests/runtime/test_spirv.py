"""What is read of a SPIR-V module."""

from __future__ import annotations

import pathlib

import pytest

from dmlc.runtime.dxc import compile_spirv
from dmlc.runtime.spirv import ModuleFacts, ask_of_floats, read_module
from dmlc.source import InternalError
from tests.runtime.handmade_hlsl import BF16, F16, relu_grad, square_then_double
from tests.runtime.test_dxc import spirv_tool

SPECIAL, DENORMALS = "SignedZeroInfNanPreserve", "DenormPreserve"


def test_a_plain_kernel() -> None:
    facts = read_module(compile_spirv(relu_grad().kernels[0].source, special=()).code)
    assert facts == ModuleFacts(("Shader",), (64, 1, 1), 0, (0, 1, 16, 32), (32,), ())


def test_capabilities() -> None:
    def needs(source: str) -> set[str]:
        code = compile_spirv(source, special=()).code
        return set(read_module(code).capabilities) - {"Shader"}

    assert needs(relu_grad(F16).kernels[0].source) == {"Float16", "StorageBuffer16BitAccess"}
    assert needs(relu_grad(BF16).kernels[0].source) == {"Int16", "StorageBuffer16BitAccess"}
    assert needs(square_then_double().kernels[1].source) == {"Int64"}
    source = relu_grad().kernels[0].source.replace("? dY[i]", "? (float)((double)dY[i] * X[i])")
    assert needs(source) == {"Float64"}
    source = relu_grad().kernels[0].source.replace("? dY[i]", "? WaveActiveSum(dY[i])")
    assert needs(source) == {"GroupNonUniformArithmetic"}


@pytest.mark.parametrize(
    ("declaration", "use", "size"),
    [
        ("groupshared float s[100];", "s[lane]", 400),
        ("groupshared uint a, b;", "(float)(a + b)", 8),
        ("groupshared float4 s[3][5];", "s[lane % 3][lane % 5].x", 240),
        ("struct P { float a; double b; }; groupshared P s[7];", "(float)(s[lane % 7].b)", 84),
        ("groupshared bool s[6];", "(s[lane % 6] ? 1.0f : 0.0f)", 24),
    ],
)
def test_group_shared_memory(declaration: str, use: str, size: int) -> None:
    source = relu_grad().kernels[0].source
    source = source.replace("[numthreads", f"{declaration}\n[numthreads")
    source = source.replace("? dY[i]", f"? {use}")
    assert read_module(compile_spirv(source).code).group_shared_bytes == size


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"", "0 bytes are no SPIR-V module"),
        (b"\0" * 21, "21 bytes are no SPIR-V module"),
        (b"\0" * 20, "begins with another word"),
        (bytes.fromhex("03022307") + b"\0" * 20, "at word 5 has no end"),
        (bytes.fromhex("03022307") + b"\0" * 16 + b"\x11\0\x03\0", "at word 5 has no end"),
    ],
)
def test_what_is_no_module(code: bytes, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        read_module(code)


def plain(source: str) -> bytes:
    """SPIR-V as DXC makes it."""
    return compile_spirv(source, special=()).code


DOUBLES = relu_grad(F16).kernels[0].source.replace("? dY[i]", "? (float16_t)((double)dY[i] * X[i])")


def test_a_module_asks_to_keep_nan_and_signed_zeros_of_each_of_its_floats() -> None:
    cases = (
        (relu_grad().kernels[0].source, (32,)),
        (relu_grad(F16).kernels[0].source, (16,)),
        (DOUBLES, (16, 64)),
    )
    for source, widths in cases:
        facts = read_module(compile_spirv(source).code)
        assert facts.float_widths == widths
        assert facts.float_modes == tuple((SPECIAL, width) for width in widths)
        assert SPECIAL in facts.capabilities


def test_what_is_asked_stands_in_its_sections(tmp_path: pathlib.Path) -> None:
    made = ask_of_floats(plain(DOUBLES), {SPECIAL: (16, 32, 64), DENORMALS: (16,)})
    spirv_tool("spirv-val", made, tmp_path, "--target-env", "vulkan1.1")
    lines = [line.strip() for line in spirv_tool("spirv-dis", made, tmp_path).splitlines()]
    at = [
        lines.index(line)
        for line in (
            f"OpCapability {SPECIAL}",
            f"OpCapability {DENORMALS}",
            'OpExtension "SPV_KHR_float_controls"',
            "OpMemoryModel Logical GLSL450",
            "OpExecutionMode %main LocalSize 64 1 1",
            f"OpExecutionMode %main {SPECIAL} 16",
            f"OpExecutionMode %main {SPECIAL} 64",
            f"OpExecutionMode %main {DENORMALS} 16",
        )
    ]
    assert at == sorted(at)
    # All else is as it was.
    before = spirv_tool("spirv-dis", plain(DOUBLES), tmp_path).splitlines()
    added = ("SignedZero", "Denorm", "float_controls")
    assert [n for n in lines if not any(a in n for a in added)] == [n.strip() for n in before]


def test_nothing_is_asked_twice_nor_of_floats_that_are_not_there() -> None:
    code = plain(relu_grad().kernels[0].source)
    assert ask_of_floats(code, {SPECIAL: (16, 64)}) == code
    once = ask_of_floats(code, {SPECIAL: (32,)})
    assert ask_of_floats(once, {SPECIAL: (16, 32, 64)}) == once
    both = ask_of_floats(once, {SPECIAL: (32,), DENORMALS: (32,)})
    assert read_module(both).float_modes == ((DENORMALS, 32), (SPECIAL, 32))
    assert both.count(b"SPV_KHR_float_controls") == 1
    whole = relu_grad().kernels[0].source.replace("float", "uint").replace("0.0f", "0")
    assert read_module(compile_spirv(whole).code).float_modes == ()
