"""Operators of ONNX at the corners of what they take: NaN, borders, integers, negative pads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import dmlc
from dmlc.source import DmlcError, UnsupportedError

NAN, INF = float("nan"), float("inf")
DEVICES = ("reference", "opencl")


def make(
    kind: str, inputs: Mapping[str, Any], outputs: int, constants: Sequence[str],
    version: int = 21, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one node, of a version of ONNX's operators."""
    names = [f"o{k}" for k in range(outputs)]
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in inputs.items()
        if n not in constants
    ]
    held = [numpy_helper.from_array(inputs[name], name) for name in constants]
    graph = helper.make_graph(
        [helper.make_node(kind, list(inputs), names, **attributes)], "g", given,
        [onnx.ValueInfoProto(name=name) for name in names], held,
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10
    )
    return onnx.shape_inference.infer_shapes(model)


def run(
    kind: str, inputs: Mapping[str, Any], outputs: int = 1, constants: Sequence[str] = (),
    device: str = "reference", **attributes: Any,
) -> list[Any]:  # fmt: skip
    model = dmlc.onnx.load(make(kind, inputs, outputs, constants, **attributes))
    given = {name: value for name, value in inputs.items() if name not in constants}
    found = model.run(given, device=device)
    return [np.array(found[f"o{k}"]) for k in range(outputs)]


# Defaults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 6])
@pytest.mark.parametrize(("kind", "axis"), [("Add", 0), ("Mul", 1), ("Pow", -2), ("Less", 0)])
def test_old_operands_lie_along_an_axis(kind: str, axis: int, version: int) -> None:
    """All sizes are equal, so that no other axis is refused."""
    x = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    y = np.array([0, 1, 3], np.float32)
    (found,) = run(kind, {"x": x, "y": y}, version=version, broadcast=1, axis=axis)
    along = y.reshape(-1, *[1] * (2 - axis % 3))
    expected = {"Add": x + along, "Mul": x * along, "Pow": x**along, "Less": x < along}[kind]
    np.testing.assert_array_equal(found, expected)


def test_an_old_slope_is_of_channels() -> None:
    x = -np.ones((2, 3, 3), np.float32)
    slope = np.array([1, 2, 3], np.float32)
    (found,) = run("PRelu", {"x": x, "slope": slope}, version=6)
    np.testing.assert_array_equal(found, x * slope[:, None])


@pytest.mark.parametrize("training", [0, 1])
def test_a_batch_of_one_axis_has_one_channel(training: int) -> None:
    x = np.array([1, 2, 6], np.float32)
    given = {n: np.array([v], np.float32) for n, v in zip("sbmv", (2, 1, 3, 4), strict=True)}
    found = run("BatchNormalization", {"x": x, **given}, 1 + 2 * training, epsilon=0.0,
                version=15, training_mode=training)  # fmt: skip
    mean, variance = (x.mean(), x.var()) if training else (3, 4)
    np.testing.assert_allclose(found[0], 2 * (x - mean) / np.sqrt(variance) + 1, rtol=1e-6)
    assert [each.shape for each in found[1:]] == [(1,)] * (2 * training)


@pytest.mark.parametrize(
    ("kind", "version", "attributes", "expected"),
    [
        ("Selu", 1, {}, [-1.0507 * 1.6732, 1.0507, INF]),
        ("Selu", 6, {}, [-1.0507010 * 1.6732632, 1.0507010, INF]),
        ("Clip", 6, {"min": 0.5}, [0.5, 1, np.finfo(np.float32).max]),
        ("Clip", 1, {"min": 0.5}, [0.5, 1, INF]),
        ("Pad", 1, {"paddings": [0, 0, 1, 0]}, [-INF, 1, INF, 0]),
        ("LeakyRelu", 16, {}, [-INF, 1, INF]),
    ],
)
def test_attributes_have_the_defaults_of_their_version(
    kind: str, version: int, attributes: dict[str, Any], expected: list[float]
) -> None:
    x = np.array([[-INF], [1], [INF]], np.float32)
    (found,) = run(kind, {"x": x}, version=version, **attributes)
    np.testing.assert_allclose(found.ravel(), np.array(expected, np.float32), rtol=1e-6)


def test_the_first_versions_of_operators() -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 2, 2, 2)
    (found,) = run("Concat", {"x": x, "y": x + 8}, version=1)
    np.testing.assert_array_equal(found, np.concatenate([x, x + 8], 1))
    (found,) = run("Upsample", {"x": x}, version=1, height_scale=2.0, width_scale=3.0)
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(3, 3))


# Normalizations -------------------------------------------------------------------------------


def test_moments_of_training_are_updated_where_they_are_asked_for() -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    held = np.array([1, 2, 4], np.float32)
    inputs = {"x": x, "s": held, "b": held, "m": held, "v": held}
    y, mean, variance = run("BatchNormalization", inputs, 3, training_mode=1, momentum=0.75)
    own = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(mean, 0.75 * held + 0.25 * own[0], rtol=1e-6)
    model = make("BatchNormalization", inputs, 3, (), training_mode=1, momentum=0.75)
    model.graph.node[0].output[1] = ""
    del model.graph.output[1]
    found = dmlc.onnx.load(model).run(inputs, device="reference")
    for name, wanted in (("o0", y), ("o2", variance)):
        np.testing.assert_array_equal(found[name], wanted)
    np.testing.assert_allclose(variance, 0.75 * held + 0.25 * own[1], rtol=1e-6)
    whole = [each.reshape(3, 1) for each in (*own, held)]
    wanted = (x - whole[0]) / np.sqrt(whole[1] + 1e-5) * whole[2] + whole[2]
    np.testing.assert_allclose(y, wanted, rtol=1e-5)


def test_parameters_of_more_bits_than_their_tensor() -> None:
    """Each is computed with as it is: a scale of 1/2 + 1/4096 is no FLOAT16."""
    x = np.full((1, 1, 1), 1024, np.float16)
    inputs = {"x": x} | {
        name: np.array([number], np.float32)
        for name, number in (("scale", 0.5 + 2**-12), ("b", 0.25), ("m", 0), ("v", 1))
    }
    (found,) = run("BatchNormalization", inputs, epsilon=0.0)
    assert found.dtype == np.float16
    assert found.item() == 512.5


# NaN ------------------------------------------------------------------------------------------


def rows(dtype: type[np.generic]) -> np.ndarray[Any, Any]:
    """Ties, several NaN, nothing but NaN, both zeros and infinities."""
    made = np.array(
        [
            [3, NAN, 1, NAN, 5, 2, 5],
            [NAN] * 7,
            [-INF, NAN, INF, -INF, NAN, INF, 0],
            [0.0, -0.0, NAN, 0.0, -1, -1, NAN],
            [4, 4, 1, 1, 2, 2, 3],
        ]
    )
    return made.astype(dtype)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_nan_is_larger_than_every_number(dtype: type[np.generic], largest: int) -> None:
    x = rows(dtype)
    for count, device in ((3, "reference"), (7, "opencl")):
        inputs = {"x": x, "k": np.array([count], np.int64)}
        settings: dict[str, Any] = {"axis": 1, "largest": largest}
        wanted = ReferenceEvaluator(make("TopK", inputs, 2, ["k"], **settings)).run(None, {"x": x})
        found = run("TopK", inputs, 2, ["k"], device, **settings)
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])


# GridSample -----------------------------------------------------------------------------------

PLACES = (-0.5, -0.3, 0.0, 3.0, 3.2, -0.7, -2.6, 4.4, 9.0, INF, -INF, 3e38)
"""Along an axis of four elements."""


def sample(places: Sequence[float], x: Any, device: str, **settings: Any) -> list[float]:
    size = x.shape[-1]
    numbers = [(2 * place + 1) / size - 1 for place in places]
    grid = np.array([[[(number, 0) for number in numbers]]]).clip(-INF, INF).astype(np.float32)
    (found,) = run("GridSample", {"x": x, "grid": grid}, device=device, **settings)
    return found.ravel().tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("mode", "padding", "wanted"),
    [
        # As PyTorch has it, and its limits at infinity.
        ("cubic", "border",
         [0.71875, 0.66925, 1, 2, 1.328, 0.85825, 1, 2, 2, 2, 1, 2]),
        ("cubic", "zeros",
         [0.21875, 0.39025, 1, 2, 0.976, 0.13725, 0, -0.216, 0, 0, 0, 0]),
        ("linear", "border", [1, 1, 1, 2, 2, 1, 1, 2, 2, 2, 1, 2]),
        ("linear", "zeros", [0.5, 0.7, 1, 2, 1.6, 0.3, 0, 0, 0, 0, 0, 0]),
        ("nearest", "border", [1, 1, 1, 2, 2, 1, 1, 2, 2, 2, 1, 2]),
        ("nearest", "zeros", [1, 1, 1, 2, 2, 0, 0, 0, 0, 0, 0, 0]),
    ],
)  # fmt: skip
def test_places_at_borders_and_beyond(
    mode: str, padding: str, wanted: list[float], device: str
) -> None:
    x = np.array([[[[1, 4, 9, 2]]]], np.float32)
    found = sample(PLACES, x, device, mode=mode, padding_mode=padding)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_places_are_reflected_onto_the_one_element(mode: str, device: str) -> None:
    x = np.array([[[[5]]]], np.float32)
    for aligned in (0, 1):
        found = sample([0, 0.3, -0.4, 7.25, -3], x, device, mode=mode, align_corners=aligned,
                       padding_mode="reflection")  # fmt: skip
        np.testing.assert_allclose(found, 5, 1e-6)


def test_infinity_is_outside_of_the_image_of_an_example() -> None:
    module = dmlc.load(Path(__file__).parent.parent.parent / "examples/grid_sample.dml")
    x = np.array([[[[1, 4, 9, 2]]]], np.float32)
    grid = np.array([[[[INF, 0], [0.25, -INF], [0.25, 0]]]], np.float32)
    found = dmlc.run(module.operators["sampling.GRID_SAMPLE"], {"src": x, "grid": grid})
    assert np.array(found["dst"]).ravel().tolist() == [0, 0, 9]


# Integers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_powers_of_integers_are_cut_off(dtype: type[np.generic], device: str) -> None:
    x = np.array([3, 8, 5, 7, -8, 4, 2], dtype)
    y = np.array([0.5, 0.5, 3, 1.5, 3, 0.5, -1], np.float32)
    (found,) = run("Pow", {"x": x, "y": y}, device=device)
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), [1, 2, 125, 18, -512, 2, 0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("constants", [(), ("y",)], ids=["given", "known"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_to_integers_are_exact(
    dtype: type[np.generic], constants: Sequence[str], device: str
) -> None:
    x = np.array([3, -3, 2, 7, -1, 5, 0, 2, 1, -1, 3], dtype)
    y = np.array([39, 13, 30, 0, 101, 11, 0, -1, -5, -3, 70], np.int64)
    (found,) = run("Pow", {"x": x, "y": y}, 1, constants, device)
    bits = 8 * x.itemsize
    wanted = [int(b) ** int(e) if e >= 0 else int(b) if abs(b) == 1 else 0
              for b, e in zip(x, y, strict=True)]  # fmt: skip
    assert found.tolist() == [(v + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for v in wanted]


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_integers_are_resized_with_one_rounding(dtype: type[np.generic], mode: str) -> None:
    x = np.array([[[[3, 7, 3, 3], [3, 3, 90, 3]]]], dtype)
    for scales in ([1, 1, 1.5, 1.75], [1, 1, 3, 3], [1, 1, 0.5, 0.75]):
        inputs = {"x": x, "roi": np.zeros(0, np.float32), "scales": np.array(scales, np.float32)}
        model = make("Resize", inputs, 1, ["roi", "scales"], mode=mode)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        (found,) = run("Resize", inputs, 1, ["roi", "scales"], mode=mode)
        np.testing.assert_array_equal(found, wanted)


def test_integers_are_shrunk_by_fractions() -> None:
    x = np.arange(-4, 5, dtype=np.int32)
    for settings in ({}, {"lambd": 1.5, "bias": 1.5}, {"lambd": 2.5, "bias": -0.75}):
        (wanted,) = ReferenceEvaluator(make("Shrink", {"x": x}, 1, (), **settings)).run(
            None, {"x": x}
        )
        np.testing.assert_array_equal(run("Shrink", {"x": x}, **settings)[0], wanted)


def test_the_logarithm_of_a_sum_of_integers_is_cut_off() -> None:
    inputs = {"x": np.array([[3, 4, 1], [5, 12, 2]], np.int64), "axes": np.array([1], np.int64)}
    assert run("ReduceLogSumExp", inputs, 1, ["axes"])[0].tolist() == [[4], [12]]


# Pads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_what_is_left_after_cutting_is_continued(mode: str) -> None:
    x = np.array([[10, 20, 30, 40, 50]], np.float32)
    for before, after in itertools.product((-3, -1, 0, 2, 7), (-1, 0, 3, 8)):
        inputs = {"x": x, "pads": np.array([0, before, 0, after], np.int64)}
        kept = x[:, max(-before, 0) : 5 - max(-after, 0)]
        more = ((0, 0), (max(before, 0), max(after, 0)))
        found = run("Pad", inputs, 1, ["pads"], mode=mode)[0]
        np.testing.assert_array_equal(found, np.pad(kept, more, mode=mode), f"{before}, {after}")


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_nothing_cannot_be_continued(mode: str) -> None:
    inputs = {"x": np.zeros(3, np.float32), "pads": np.array([2, -3], np.int64)}
    with pytest.raises(UnsupportedError, match="nothing is left of axis 0 that could be continued"):
        run("Pad", inputs, 1, ["pads"], mode=mode)
    model = make("Pad", inputs, 1, ["pads"], mode=mode)
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    imported = dmlc.onnx.load(model)
    with pytest.raises(DmlcError, match="N >= 4"):
        imported.run({"x": np.zeros(3, np.float32)}, device="reference")
    assert imported.run({"x": np.ones(5, np.float32)}, device="reference")["o0"].shape == (4,)


def make_open_pooling(kernel: int, stride: int, after: int) -> onnx.ModelProto:
    """The largest of windows that are counted up, over rows whose length is left open."""
    model = make("MaxPool", {"x": np.zeros((1, 1, 4), np.float32)}, 1, (), kernel_shape=[kernel],
                 strides=[stride], pads=[0, after], ceil_mode=1)  # fmt: skip
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "N"
    return model


def test_windows_that_are_counted_up_over_open_sizes() -> None:
    """Where the last of them may begin behind the end, they are not known, and are refused."""
    model = dmlc.onnx.load(make_open_pooling(3, 2, 1))
    for size in (4, 5, 6):
        x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
        (wanted,) = run("MaxPool", {"x": x}, kernel_shape=[3], strides=[2], pads=[0, 1],
                        ceil_mode=1)  # fmt: skip
        np.testing.assert_array_equal(model.run({"x": x})["o0"], wanted)
    for kernel, stride, after in ((1, 2, 0), (2, 1, 2)):
        with pytest.raises(UnsupportedError, match="begin behind its end"):
            dmlc.onnx.load(make_open_pooling(kernel, stride, after))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_activations_take_the_parameters_that_they_have(dtype: type[np.generic]) -> None:
    """In order: those of both directions are in one list. Batches may come first."""
    x = np.array([[[1], [-3]], [[2], [5]]], dtype)
    weights = np.ones((2, 1, 1), dtype)
    settings = {
        "hidden_size": 1, "direction": "bidirectional", "activations": ["Affine", "LeakyRelu"],
        "activation_alpha": [2.0, 0.5], "activation_beta": [1.0], "layout": 1,
    }  # fmt: skip
    inputs = {"x": x, "w": weights, "r": weights * 0}
    steps, last = run("RNN", inputs, 2, **settings)
    first = 2 * x + 1
    second = np.where(x < 0, x / 2, x)
    np.testing.assert_array_equal(steps, np.stack([first, second], 2))
    np.testing.assert_array_equal(last, np.stack([first[:, 1], second[:, 0]], 1))


def test_gates_of_an_lstm_are_clipped() -> None:
    x = np.array([[[100]], [[-100]]], np.float32)
    weights = np.array([0, 0, 0, 1], np.float32).reshape(1, 4, 1)
    settings = {"hidden_size": 1, "clip": 0.5, "activations": ["HardSigmoid", "Affine", "Affine"]}
    inputs = {"x": x, "w": weights, "r": weights * 0}
    (steps,) = run("LSTM", inputs, 1, **settings)
    # Each gate is half open: cells are 0.25, and half of that less 0.25.
    np.testing.assert_allclose(steps.ravel(), [0.125, -0.0625], rtol=1e-6)
    with pytest.raises(UnsupportedError, match="it clips"):
        run("RNN", {"x": x, "w": weights[:, 3:], "r": weights[:, :1]}, 1, hidden_size=1, clip=1.0)


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.float64])
def test_tables_of_the_library_are_not_limits_of_formulas(dtype: type[np.generic]) -> None:
    """DirectML moves no booleans, and has no softmax of FLOAT64."""
    x = np.arange(16).reshape(1, 8, 1, 2).astype(dtype)
    (found,) = run("DepthToSpace", {"x": x}, blocksize=2, mode="CRD")
    expected = x.reshape(1, 2, 2, 2, 1, 2).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 2, 4)
    np.testing.assert_array_equal(found, expected)
    if dtype is np.float64:
        (found,) = run("Softmax", {"x": x}, axis=1)
        powers = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), 1e-14)
    with pytest.raises(DmlcError, match="the channels must fill the squares"):
        run("DepthToSpace", {"x": x}, blocksize=3)
