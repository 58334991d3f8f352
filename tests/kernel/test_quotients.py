"""Quotients by powers of two are products, which every device rounds correctly; no others are, and
no result changes."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.print import print_kernel
from dmlc.pipeline import make_kernels
from dmlc.reference import evaluate

X = np.concatenate([
    np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e-45, -1e-40, 3.4e38, 1.5], np.float32),
    np.random.default_rng(1).standard_normal(23).astype(np.float32),
])  # fmt: skip


def write(divisor: str) -> ir.Function:
    return ir.parse(
        f"func @F(%x: f32[33]) -> (%y) {{\n  %y: f32[i0 < 33] = div(%x[i0], {divisor})\n}}"
    )


@pytest.mark.parametrize("divisor", ["2.0", "-0.25", "1024.0", "2e-38", "3.0", "0.1", "1e-40"])
@pytest.mark.parametrize(("target", "profile"), [("hlsl", "gpu"), ("opencl", "cpu")])
def test_quotients_by_powers_of_two(divisor: str, target: str, profile: str) -> None:
    function = write(divisor)
    fused, kernels = make_kernels(function, target, profile)
    text = "".join(map(print_kernel, kernels))
    is_power = divisor in ("2.0", "-0.25", "1024.0")
    assert (f", {divisor})" in text) != is_power
    got = run_kernels(fused, kernels, {"x": X})["y"]
    wanted = evaluate(function, {"x": X})["y"]
    assert np.array_equal(got, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(wanted))
