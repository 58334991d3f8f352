"""The reductions and softmaxes of the library, against plain NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import dmlc
from tests.cover import cover
from tests.library.run import DEVICES, Array, check, normal, run, wide

FLOATS = [np.float32, np.float16]
ONEDNN = [np.float32, np.float16, ml_dtypes.bfloat16]
Place: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""A shape and axes of it."""

SHAPES: list[Place] = [
    ((5,), (0,)),
    ((3, 4), (1,)),
    ((2, 3, 4), (0, 2)),
    ((2, 3, 4, 5), (0, 1, 2, 3)),
    ((2, 1, 3, 1, 2, 1, 2, 2), (0, 4, 7)),
    ((3, 4), ()),
]


def log_sum_exp(x: Array, axes: tuple[int, ...]) -> Array:
    top = x.max(axis=axes, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=axes, keepdims=True)) + top


FUNCTIONS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "AVERAGE": lambda x, a: x.mean(axis=a, keepdims=True),
    "L1": lambda x, a: np.abs(x).sum(axis=a, keepdims=True),
    "L2": lambda x, a: np.sqrt((x * x).sum(axis=a, keepdims=True)),
    "LOG_SUM": lambda x, a: np.log(x.sum(axis=a, keepdims=True)),
    "LOG_SUM_EXP": log_sum_exp,
    "MAX": lambda x, a: x.max(axis=a, keepdims=True),
    "MIN": lambda x, a: x.min(axis=a, keepdims=True),
    "MULTIPLY": lambda x, a: x.prod(axis=a, keepdims=True),
    "SUM": lambda x, a: x.sum(axis=a, keepdims=True),
    "SUM_SQUARE": lambda x, a: (x * x).sum(axis=a, keepdims=True),
}


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("function", "place", "dtype", "device"),
    cover(3, tuple(FUNCTIONS), SHAPES, FLOATS, DEVICES),
    ids=str,
)
def test_reduce(function: str, place: Place, dtype: npt.DTypeLike, device: str) -> None:
    shape, axes = place
    x = normal(*shape, dtype=dtype)
    if function == "LOG_SUM":
        x = np.abs(x)
    found = run("directml.REDUCE", {"InputTensor": x}, {"Function": function, "Axes": axes},
                device=device)["OutputTensor"]  # fmt: skip
    assert found.dtype == dtype
    check(found, FUNCTIONS[function](wide(x), axes))


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("function", "into", "dtype", "device"),
    cover(
        3,
        ["ARGMAX", "ARGMIN"],
        ["uint32", "int32", "int64", "uint64"],
        ["float32", "float16", "int8", "uint16", "int32"],
        DEVICES,
    ),
)
def test_positions(function: str, into: str, dtype: str, device: str) -> None:
    x = np.random.default_rng(0).integers(0, 9, (3, 4, 5)).astype(dtype)
    numpy = np.argmax if function == "ARGMAX" else np.argmin
    out = np.empty((3, 1, 5), into)
    attributes = {"Function": function, "Axes": [1]}
    run("directml.REDUCE", {"InputTensor": x}, attributes, {"OutputTensor": out}, device)
    np.testing.assert_array_equal(out, numpy(x, axis=1, keepdims=True))
    whole = run("directml.REDUCE", {"InputTensor": x},
                {"Function": function, "Axes": [0, 1, 2]}, device=device)  # fmt: skip
    assert whole["OutputTensor"].dtype in ("uint32", "int32")
    assert whole["OutputTensor"].tolist() == [[[numpy(x)]]]


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_whole_numbers_wrap(dtype: str) -> None:
    x = np.full((4, 2), np.iinfo(dtype).max // 2 + 3, dtype)
    terms = {"SUM": x, "MULTIPLY": x, "SUM_SQUARE": x * x, "L1": np.abs(x)}
    for function, each in terms.items():
        found = run("directml.REDUCE", {"InputTensor": x}, {"Function": function, "Axes": [0]})
        numpy = np.prod if function == "MULTIPLY" else np.sum
        expected = numpy(each, axis=0, keepdims=True, dtype=dtype)
        np.testing.assert_array_equal(found["OutputTensor"], expected)


def test_which_types_a_function_takes() -> None:
    x = np.zeros((2, 2), np.int8)
    with pytest.raises(dmlc.DmlcError, match="SUM, SUM_SQUARE, L1 and MULTIPLY take FLOAT32"):
        run("directml.REDUCE", {"InputTensor": x}, {"Function": "SUM", "Axes": [0]})
    out = np.empty((1, 2), np.int8)
    with pytest.raises(dmlc.DmlcError, match="ARGMAX and ARGMIN give INT64"):
        run("directml.REDUCE", {"InputTensor": x}, {"Function": "ARGMAX", "Axes": [0]},
            {"OutputTensor": out})  # fmt: skip
    with pytest.raises(dmlc.DmlcError, match="Axes must name dimensions of InputTensor"):
        run("directml.REDUCE", {"InputTensor": x}, {"Function": "MAX", "Axes": [2]})
    with pytest.raises(dmlc.DmlcError, match="'Axes' needs 2 values, but has 1"):
        run("directml.REDUCE", {"InputTensor": x},
            {"Function": "MAX", "AxisCount": 2, "Axes": [0]})  # fmt: skip


def test_log_sum_exp_of_infinite_and_of_large_values() -> None:
    x = np.array([[np.inf, 1], [-np.inf, -np.inf], [1000, 1000], [np.nan, 0]], np.float32)
    found = run("directml.REDUCE", {"InputTensor": x}, {"Function": "LOG_SUM_EXP", "Axes": [1]})
    expected = np.array([[np.inf], [-np.inf], [1000 + np.log(2)], [np.nan]], np.float32)
    np.testing.assert_allclose(found["OutputTensor"], expected)


def test_reductions_of_nothing() -> None:
    x = np.zeros((0, 2), np.float32)
    expected = {"SUM": 0, "MULTIPLY": 1, "MAX": -np.inf, "MIN": np.inf, "AVERAGE": np.nan}
    for function, identity in expected.items():
        found = run("directml.REDUCE", {"InputTensor": x}, {"Function": function, "Axes": [0]})
        np.testing.assert_array_equal(found["OutputTensor"], np.full((1, 2), identity))


# oneDNN ----------------------------------------------------------------------------------------

REDUCTIONS: dict[str, str] = {
    "ReduceSum": "SUM", "ReduceMean": "AVERAGE", "ReduceMax": "MAX", "ReduceMin": "MIN",
    "ReduceProd": "MULTIPLY", "ReduceL1": "L1", "ReduceL2": "L2",
}  # fmt: skip


@pytest.mark.grid(3)
@pytest.mark.parametrize(
    ("name", "place", "keep", "dtype", "device"),
    cover(3, tuple(REDUCTIONS), SHAPES, (False, True), ONEDNN, DEVICES),
    ids=str,
)
def test_onednn_reductions(name: str, place: Place, keep: bool, dtype: Any, device: str) -> None:
    shape, axes = place
    x = normal(*shape, dtype=dtype)
    negative = [a - len(shape) for a in axes]
    found = run(f"onednn.{name}", {"src": x}, {"axes": negative, "keep_dims": keep},
                device=device)["dst"]  # fmt: skip
    expected = FUNCTIONS[REDUCTIONS[name]](wide(x), axes)
    if not keep:
        expected = np.squeeze(expected, axis=axes)
    check(found, expected if expected.shape else expected.reshape(1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4), (2, 3, 4, 5)])
def test_bias_add_backward(shape: tuple[int, ...], dtype: npt.DTypeLike, device: str) -> None:
    dy = normal(*shape, dtype=dtype)
    for layout, axis in (("NCX", 1), ("NXC", len(shape) - 1)):
        found = run("onednn.BiasAddBackward", {"diff_dst": dy}, {"data_format": layout},
                    device=device)["diff_bias"]  # fmt: skip
        check(found, wide(dy).sum(axis=tuple(a for a in range(len(shape)) if a != axis)))


# Softmax ---------------------------------------------------------------------------------------


def softmax(x: Array, axes: tuple[int, ...]) -> Array:
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return powers / powers.sum(axis=axes, keepdims=True)


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "axes"), SHAPES[:5], ids=str)
def test_directml_softmaxes(
    shape: tuple[int, ...], axes: tuple[int, ...], dtype: npt.DTypeLike, device: str
) -> None:
    x = normal(*shape, dtype=dtype) * np.asarray(8, dtype)
    expected = softmax(wide(x), axes)
    for name, values in (("SOFTMAX", expected), ("LOG_SOFTMAX", np.log(expected))):
        found = run(f"directml.ACTIVATION_{name}1", {"InputTensor": x}, {"Axes": axes},
                    device=device)["OutputTensor"]  # fmt: skip
        check(found, values)


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_onednn_softmaxes(axis: int, dtype: npt.DTypeLike, device: str) -> None:
    x, dy = normal(3, 5, 4, dtype=dtype), normal(3, 5, 4, seed=1, dtype=dtype)
    attributes = {"axis": axis}
    y = softmax(wide(x), (axis,))
    check(run("onednn.SoftMax", {"src": x}, attributes, device=device)["dst"], y)
    check(run("onednn.LogSoftmax", {"src": x}, attributes, device=device)["dst"], np.log(y))
    stored = y.astype(dtype)
    inputs = {"diff_dst": dy, "dst": stored}
    found = run("onednn.SoftMaxBackward", inputs, attributes, device=device)["diff_src"]
    summed = (wide(dy) * wide(stored)).sum(axis, keepdims=True)
    check(found, wide(stored) * (wide(dy) - summed))
    logged = np.log(y).astype(dtype)
    inputs = {"diff_dst": dy, "dst": logged}
    found = run("onednn.LogSoftmaxBackward", inputs, attributes, device=device)["diff_src"]
    check(found, wide(dy) - np.exp(wide(logged)) * wide(dy).sum(axis, keepdims=True))


@pytest.mark.parametrize("device", DEVICES)
def test_onednn_softmaxes_give_other_types(device: str) -> None:
    """Narrow elements are worked on in FLOAT32, so a wide result has that precision."""
    bf16 = np.dtype(ml_dtypes.bfloat16)
    for given, wanted in ((bf16, np.float32), (np.float16, np.float32), (np.float32, bf16),
                          (np.float32, np.float16)):  # fmt: skip
        x = normal(3, 7, dtype=given)
        y = softmax(wide(x), (1,))
        found = run("onednn.SoftMax", {"src": x}, {}, {"dst": np.empty((3, 7), wanted)}, device)
        assert found["dst"].dtype == wanted
        check(found["dst"], y)
    y = y.astype(bf16)
    outputs = {"diff_src": np.empty((3, 7), np.float32)}
    found = run("onednn.SoftMaxBackward", {"diff_dst": y, "dst": y}, {}, outputs, device)
    summed = (wide(y) * wide(y)).sum(1, keepdims=True)
    check(found["diff_src"], wide(y) * (wide(y) - summed))


@pytest.mark.parametrize("device", DEVICES)
def test_softmax_of_what_is_masked(device: str) -> None:
    x = np.array([[0, -np.inf, 1], [-np.inf] * 3], np.float32)
    with np.errstate(invalid="ignore"):
        plain = softmax(x, (1,))
    for mode, expected in (("none", plain), ("inf_as_zero", np.nan_to_num(plain))):
        found = run("onednn.SoftMax", {"src": x}, {"mode": mode}, device=device)["dst"]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_softmax_neither_overflows_nor_vanishes() -> None:
    x = np.array([[60000, 0, -60000], [-60000, -60000, -60000]], np.float16)
    found = run("directml.ACTIVATION_SOFTMAX1", {"InputTensor": x}, {"Axes": [1]})["OutputTensor"]
    np.testing.assert_array_equal(found[0], np.array([1, 0, 0], np.float16))
    np.testing.assert_allclose(found[1], [1 / 3] * 3, rtol=1e-3)
    logged = run("onednn.LogSoftmax", {"src": np.array([[500, 0, -500]], np.float32)})["dst"]
    np.testing.assert_array_equal(logged, [[0, -500, -1000]])


# Norms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "axis", "dtype", "device"), cover(3, (1, 2), range(4), FLOATS, DEVICES), ids=str
)
def test_lp_normalization(order: int, axis: int, dtype: npt.DTypeLike, device: str) -> None:
    x = normal(2, 3, 4, 5, dtype=dtype)
    x[0] = 0
    found = run("directml.LP_NORMALIZATION", {"InputTensor": x},
                {"Axis": axis, "Epsilon": 1e-5, "P": order}, device=device)  # fmt: skip
    norm = np.linalg.norm(wide(x), order, axis, keepdims=True) if order == 2 else (
        np.abs(wide(x)).sum(axis, keepdims=True)
    )  # fmt: skip
    check(found["OutputTensor"], wide(x) / np.sqrt(norm * norm + np.float32(1e-5)))


def test_the_order_of_a_norm_is_1_or_2() -> None:
    with pytest.raises(dmlc.DmlcError, match="'P' must be one of 1, 2"):
        run("directml.LP_NORMALIZATION", {"InputTensor": normal(1, 1, 1, 2)},
            {"Axis": 3, "Epsilon": 0, "P": 3})  # fmt: skip
