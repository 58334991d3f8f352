"""The kernel IR's text, frozen for a packed, a nested, a tiled and a flat kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dmlc import ir
from dmlc.pipeline import describe_kernels

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize(
    ("case", "profile"),
    [
        ("relu_grad_f32", "cpu"),
        ("relu_grad_f32", "gpu"),
        ("batch_norm_apply", "cpu"),
        ("add_transposed", "cpu"),
        ("bytes", "cpu"),
        ("doubles", "gpu"),
    ],
)
def test_kernel_text(case: str, profile: str, check_golden: Callable[[Path, str], None]) -> None:
    function = ir.parse((GOLDEN / f"{case}.ir").read_text(encoding="utf-8"), f"{case}.ir")
    text = describe_kernels(function, "opencl", profile)
    check_golden(GOLDEN / f"{case}.{profile}.kernel", f"{text}\n")


def test_conversions_and_fixed_conditions_print() -> None:
    text = """func @f(%x: s32[8], %s: f32[1]) -> (%y) {
      %y: f32[i0 < 8] = add(cast(%x[i0], f32), %s[0])
    }"""
    printed = describe_kernels(ir.parse(text), "opencl", "cpu")
    assert "cast(x_value, f32x16)" in printed
    assert "broadcast(s_value, f32x16)" in printed
