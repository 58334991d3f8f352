"""Attention in one kernel on every device: as the reference has it, within the bounds of the order
in which it is computed."""

from __future__ import annotations

import pytest

from dmlc.pipeline import compile_by
from dmlc.runtime import opencl, vulkan, wgpu
from tests.attention import ONLINE, Attention
from tests.kernel.test_online import hold


def check(attention: Attention, target: str, profile: str) -> None:
    function, inputs = attention.make(), attention.fill()
    program = compile_by(ONLINE, function, target, profile)
    assert len(program.kernels) == 1
    load = {"hlsl": vulkan.load, "opencl": opencl.load, "wgsl": wgpu.load}[target]
    hold(function, inputs, load(program)(inputs))


@pytest.mark.parametrize(
    "attention",
    [
        Attention(17, 63, 32, 32),
        Attention(63, 17, 64, 32, batch=2, mask="lengths"),
        Attention(65, 65, 80, 64, mask="causal"),
        Attention(129, 129, 64, 80, heads=1, mask="bias"),
        Attention(64, 65, 32, 128, mask="flags", last=True),
        Attention(65, 129, 64, 64, heads=1, dtype="f16", mask="causal"),
        Attention(129, 65, 96, 96, heads=1, mask="causal"),
        Attention(33, 64, 32, 32, dtype="bf16", mask="rows", also="sum"),
    ],
    ids=str,
)
def test_on_a_cpu(attention: Attention) -> None:
    check(attention, "opencl", "cpu")


@pytest.mark.parametrize(
    "attention",
    [
        Attention(65, 33, 32, 32, heads=1, mask="causal"),
        Attention(17, 65, 32, 32, heads=1, batch=2, mask="lengths"),
        Attention(63, 129, 128, 96, heads=1, mask="bias", dtype="f16"),
    ],
    ids=str,
)
def test_on_a_gpu(attention: Attention) -> None:
    check(attention, "hlsl", "gpu")


@pytest.mark.parametrize(
    "attention",
    [
        Attention(17, 129, 32, 32, mask="causal"),
        Attention(129, 63, 64, 40, batch=2, mask="lengths", heads=1),
        Attention(65, 65, 80, 64, mask="causal", heads=1),
        Attention(63, 17, 32, 128, mask="bias", heads=1, last=True, dtype="f16"),
    ],
    ids=str,
)
def test_gradients_on_a_cpu(attention: Attention) -> None:
    function = attention.differentiate()
    program, inputs = compile_by(ONLINE, function, "opencl", "cpu"), attention.fill(function)
    assert len(program.kernels) == 3
    hold(function, inputs, opencl.load(program)(inputs))


def test_the_gradient_of_one_row() -> None:
    """It has no rows to share keys among, nor queries to go through."""
    function = Attention(1, 17, heads=1).differentiate()
    program, inputs = (
        compile_by(ONLINE, function, "opencl", "cpu"),
        Attention(1, 17, heads=1).fill(function),
    )
    hold(function, inputs, opencl.load(program)(inputs))


def test_in_wgsl() -> None:
    """Its vectors are of names, not of casts, and each lane is kept as it was rounded."""
    check(Attention(17, 33, 64, 32, heads=1, mask="causal"), "wgsl", "gpu")
