"""Running totals, the K largest or smallest, and the places of what is not zero, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlc
from tests.library.run import DEVICES, Array, run

DIRECTIONS = ("INCREASING", "DECREASING")
PROD_GRAD = """graph grad[N](x: FLOAT32[N, 3], dy: FLOAT32[N, 3]) {
    y = directml.CUMULATIVE_PRODUCT(
        InputTensor: x, Axis: 0, AxisDirection: INCREASING, HasExclusiveProduct: EXCLUSIVE)
    output dx = gradient of y with respect to x from dy
}"""


def accumulate(ufunc: np.ufunc, x: Array, axis: int, direction: str, exclusive: bool) -> Array:
    """A running total by NumPy, from either end."""
    ordered = np.moveaxis(x, axis, 0)
    ordered = ordered if direction == "INCREASING" else ordered[::-1]
    found = ufunc.accumulate(ordered, axis=0, dtype=x.dtype)
    if exclusive:
        first = np.full_like(found[:1], 0 if ufunc is np.add else 1)
        found = np.concatenate([first, found[:-1]])
    found = found if direction == "INCREASING" else found[::-1]
    return np.moveaxis(found, 0, axis)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["SUMMATION", "PRODUCT"])
def test_running_totals(name: str, direction: str, exclusive: bool) -> None:
    what = "Sum" if name == "SUMMATION" else "Product"
    ufunc = np.add if name == "SUMMATION" else np.multiply
    random = np.random.default_rng(0)
    for axis, shape in ((0, (700,)), (1, (2, 300, 3)), (2, (2, 3, 1)), (0, (1, 5))):
        x = random.integers(-3, 4, shape).astype(np.int32)
        expected = accumulate(ufunc, x, axis, direction, exclusive)
        for device in DEVICES if len(shape) == 1 and not exclusive else DEVICES[:1]:
            settings = {"Axis": axis, "AxisDirection": direction, f"HasExclusive{what}": exclusive}
            found = run(f"directml.CUMULATIVE_{name}", {"InputTensor": x}, settings, device=device)
            np.testing.assert_array_equal(found["OutputTensor"], expected)


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_gradient_of_running_products_is_exact_beside_zeros(exclusive: bool) -> None:
    random = np.random.default_rng(0)
    x = random.uniform(0.9, 1.1, (300, 3)).astype(np.float32)
    x[100, 0] = x[[7, 200], 1] = 0
    dy = random.standard_normal((300, 3)).astype(np.float32)
    graph = dmlc.parse(PROD_GRAD.replace("EXCLUSIVE", str(exclusive).lower())).graphs["grad"]
    found = dmlc.run(graph, {"x": x, "dy": dy}, device="opencl")["dx"]
    wide, expected = x.astype(np.float64), np.zeros((300, 3))
    for place in range(300):
        others = wide.copy()
        others[place] = 1
        moved = np.cumprod(others, axis=0)
        moved[:place] = 0
        if exclusive:
            moved = np.concatenate([np.zeros((1, 3)), moved[:-1]])
        expected[place] = (moved * dy).sum(axis=0)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def find_order(x: Array, axis: int, direction: str) -> Array:
    """Where elements stand in order, equal ones as they were, NaN last."""
    keys = x if direction == "INCREASING" else -x
    return np.argsort(keys, axis=axis, kind="stable")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8])
def test_the_first_in_order(direction: str, dtype: Any) -> None:
    random = np.random.default_rng(0)
    for axis, shape, count in ((0, (40,), 40), (1, (2, 30, 3), 7), (2, (2, 3, 1), 1)):
        x = random.integers(-9, 10, shape).astype(dtype)
        if x.dtype.kind == "f":
            x.flat[:: 5 if x.size > 9 else 20] = np.resize([np.nan, -0.0, np.inf, -np.inf], 1)
        order = np.take(find_order(x, axis, direction), np.arange(count), axis=axis)
        values = np.take_along_axis(x, order, axis=axis)
        settings = {"Axis": axis, "K": count, "AxisDirection": direction}
        for device in DEVICES if axis == 1 and dtype is np.float32 else DEVICES[:1]:
            found = run("directml.TOP_K1", {"InputTensor": x}, settings, device=device)
            np.testing.assert_array_equal(found["OutputIndexTensor"], order)
            np.testing.assert_array_equal(found["OutputValueTensor"], values)
            if direction == "DECREASING":
                del settings["AxisDirection"]
                again = run("directml.TOP_K", {"InputTensor": x}, settings, device=device)
                np.testing.assert_array_equal(again["OutputIndexTensor"], order)
                settings["AxisDirection"] = direction


@pytest.mark.parametrize(
    ("shape", "device"), [((1, 400), "opencl"), ((2, 1, 5), "reference"), ((1,), "vulkan")]
)
def test_places_of_what_is_not_zero(shape: tuple[int, ...], device: str) -> None:
    x = np.random.default_rng(0).integers(-1, 2, shape).astype(np.float32)
    x.flat[-1] = np.nan
    places = np.argwhere(x)
    columns = max(1, len(shape) - next((n for n, size in enumerate(shape) if size > 1), len(shape)))
    sizes = {"OutputCoordinatesTensor": (x.size, columns), "OutputCountTensor": (1,)}
    found = run("directml.NONZERO_COORDINATES", {"InputTensor": x}, None, sizes, device)
    assert found["OutputCountTensor"].item() == len(places)
    expected = np.zeros((x.size, columns), np.uint32)
    expected[: len(places)] = places[:, len(shape) - columns :]
    np.testing.assert_array_equal(found["OutputCoordinatesTensor"], expected)


def test_rows_of_places_leave_out_no_long_axis() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(dmlc.DmlcError, match="the dimensions that a row leaves out must be 1"):
        run("directml.NONZERO_COORDINATES", {"InputTensor": x}, None,
            {"OutputCoordinatesTensor": (6, 1), "OutputCountTensor": (1,)})  # fmt: skip
