"""What is read of a SPIR-V module."""

from __future__ import annotations

import pytest

from dmlc.runtime.dxc import compile_spirv
from dmlc.runtime.spirv import ModuleFacts, read_module
from dmlc.source import InternalError
from tests.runtime.handmade_hlsl import BF16, F16, relu_grad, square_then_double


def test_a_plain_kernel() -> None:
    facts = read_module(compile_spirv(relu_grad().kernels[0].source).code)
    assert facts == ModuleFacts(("Shader",), (64, 1, 1), 0, (0, 1, 16, 32))


def test_capabilities() -> None:
    def needs(source: str) -> set[str]:
        return set(read_module(compile_spirv(source).code).capabilities) - {"Shader"}

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
