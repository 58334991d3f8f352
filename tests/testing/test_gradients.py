"""Differences of a function's results, against derivatives known in closed form."""

from __future__ import annotations

import numpy as np

from dmlc import ir
from dmlc.scalars import DataType
from dmlc.testing.gradients import measure_gradient, widen_floats

CUBE = ir.parse(
    "func @f(%x: f16[2, 3], %k: s32[1, 3]) -> (%Y, %Z) {\n"
    "%t: f16[i0 < 2, i1 < 3] = mul(%x[i0, i1], %x[i0, i1])\n"
    "%Y: f16[i0 < 2, i1 < 3] = mul(select(gt(%k[0, i1], 0:s32), %t[i0, i1], 0.5), %x[i0, i1])\n"
    "%Z: f32[i0 < 1, i1 < 3] = sum[r0 < 2] %x[r0, i1]\n}"
)


def test_every_float_is_widened_and_nothing_else() -> None:
    widened = widen_floats(CUBE)
    assert [p.dtype for p in widened.parameters] == [DataType.FLOAT64, DataType.INT32]
    assert {s.dtype for s in widened.stages} == {DataType.FLOAT64}
    assert str(widened).count("f16") == str(widened).count("f32") == 0


def test_the_derivative_of_a_cube() -> None:
    x = np.array([[0.5, -1.25, 2.0], [3.0, 0.0, -2.0]])
    k = np.array([[1, 1, 0]], np.int32)
    weights = {"Y": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), "Z": np.array([[10, 20, 30]])}
    found = measure_gradient(CUBE, {"x": x, "k": k}, weights, "x").gradient
    slope = np.where(k > 0, 3 * x * x, 0.5)
    np.testing.assert_allclose(found, weights["Y"] * slope + weights["Z"], rtol=1e-8, atol=1e-8)
