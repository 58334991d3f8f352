"""A program's kernels held against what the compiler sees in them."""

from __future__ import annotations

import dataclasses

import pytest

from dmlc.program import BufferBinding, KernelSource, ScalarBinding
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.hlsl import compile_kernel
from dmlc.shader_model import RegisterShifts
from dmlc.source import InternalError
from tests.runtime.handmade_hlsl import F32, relu_grad, square_then_double, sum_of

RELU = relu_grad().kernels[0]
FINISH = square_then_double().kernels[1]


def test_a_kernel_is_compiled_once() -> None:
    made = compile_kernel(RELU)
    assert made is compile_kernel(RELU)
    assert made.dxil[:4] == b"DXBC"
    assert made.facts.group_size == (64, 1, 1)
    assert RELU.shifts == RegisterShifts(0, 16, 32)
    assert made.warnings == ()


def test_spirv_asks_of_a_device_what_it_promises_and_the_kernel_says() -> None:
    special, denormals = ("SignedZeroInfNanPreserve", 32), ("DenormPreserve", 32)
    none = dataclasses.replace(RELU, float_controls=())
    cases = (
        (RELU, FloatPromises(), ()),
        (RELU, FloatPromises((16, 64), (16,)), ()),
        (RELU, FloatPromises((32,)), (special,)),
        (RELU, FloatPromises((16, 32), (32,)), (denormals, special)),
        (none, FloatPromises((32,), (32,)), (denormals,)),
    )
    for kernel, floats, modes in cases:
        assert compile_kernel(kernel, floats=floats).facts.float_modes == modes
    assert compile_kernel(RELU).facts.float_modes == (special,)
    assert compile_kernel(none).facts.float_modes == ()


def test_a_kernel_of_many_buffers_has_bindings_of_its_own() -> None:
    kernel = sum_of(20).kernels[0]
    made = compile_kernel(kernel)
    assert kernel.shifts == RegisterShifts(0, 20, 36)
    assert made.facts.bindings == (*range(21), 36)


def with_buffer(kernel: KernelSource, number: int, **changes: object) -> KernelSource:
    buffers = list(kernel.buffers)
    buffers[number] = dataclasses.replace(buffers[number], **changes)  # pyright: ignore
    return dataclasses.replace(kernel, buffers=tuple(buffers))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            dataclasses.replace(RELU, dispatch=dataclasses.replace(RELU.dispatch, group_size=32)),
            r"its groups are \(64, 1, 1\), not \(32, 1, 1\)",
        ),
        (with_buffer(RELU, 0, name="Z"), "t0 is X, not Z"),
        (with_buffer(RELU, 0, slot=5), "it has X at t0, where nothing is bound"),
        (with_buffer(RELU, 2, written=False, slot=7), "it has dX at u0, where nothing is bound"),
        (
            with_buffer(FINISH, 0, structure_bytes=8),
            "S has elements of 4 bytes, not 8",
        ),
        (
            dataclasses.replace(RELU, scalars=()),
            "it has a constant buffer Arguments at b0",
        ),
        (
            dataclasses.replace(RELU, scalars=(ScalarBinding("m", "n", 32, 3, 0),)),
            "it reads the constant n, which nothing sets",
        ),
        (
            dataclasses.replace(
                FINISH, scalars=(FINISH.scalars[0], ScalarBinding("n", "n", 64, 5, 16))
            ),
            "the constant n has 4 bytes at offset 8, not 8 at 16",
        ),
        (
            dataclasses.replace(
                RELU, source=RELU.source.replace("register(t1)", "register(t1, space2)")
            ),
            "dY is in register space 2",
        ),
    ],
)  # fmt: skip
def test_a_disagreement_is_an_internal_error(kernel: KernelSource, message: str) -> None:
    with pytest.raises(InternalError, match=f"(?s)otherwise than its program:.*{message}"):
        compile_kernel(kernel)


def test_what_a_kernel_binds_and_never_uses_is_no_disagreement() -> None:
    unused = BufferBinding("Spare", "X", F32, False, True, 2)
    source = f"StructuredBuffer<float> Spare : register(t2);\n{RELU.source}"
    kernel = dataclasses.replace(RELU, source=source, buffers=(*RELU.buffers, unused))
    assert compile_kernel(kernel).facts.bindings == (0, 1, 16, 32)
