"""RESAMPLE2 and RESAMPLE_GRAD1 against ONNX's reference evaluator of Resize, and its transpose.

The reference is what is held to it here; `test_resampling` holds the devices to the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.library.onnx_nodes import describe_resize
from tests.library.run import Array, normal, run

TRANSFORMATIONS = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric",
                   "align_corners")  # fmt: skip
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
MODES = [("linear", "floor"), *(("nearest", rounding) for rounding in ROUNDINGS)]
SCALES = [(2.0, 1.6), (0.5, 0.7), (1.25, 0.4)]
SIZES = (4, 5)


def evaluate(x: Array, scales: tuple[float, float], settings: dict[str, Any]) -> Array:
    """The two last axes resized by ONNX's evaluator."""
    make = onnx.helper
    node = make.make_node("Resize", ["x", "", "scales"], ["y"], axes=[2, 3], **settings)
    floats = onnx.TensorProto.FLOAT
    graph = make.make_graph(
        [node],
        "resize",
        [
            make.make_tensor_value_info("x", floats, x.shape),
            make.make_tensor_value_info("scales", floats, [2]),
        ],
        [make.make_tensor_value_info("y", floats, [None] * 4)],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 19)])
    found = ReferenceEvaluator(model).run(None, {"x": x, "scales": np.float32(scales)})
    return np.asarray(found[0])


def is_clear(attributes: dict[str, Any], axis: int, size: int) -> Array:
    """Whether each place along an axis rounds alike in float32 and in float64."""
    names = ("Scales", "InputPixelOffsets", "OutputPixelOffsets")
    found: list[Array] = []
    for dtype in (np.float32, np.float64):
        scale, offset, moved = (np.asarray(attributes[name][axis], dtype) for name in names)
        places = (np.arange(size).astype(dtype) - moved) / scale - offset
        found.append(np.stack([np.floor(places), np.ceil(places)]))
    return np.asarray((found[0] == found[1]).all(0))


@pytest.mark.grid(3)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("scales", SCALES, ids=str)
def test_resampling_and_its_gradient(
    scales: tuple[float, float], mode: tuple[str, str], transformation: str
) -> None:
    settings: dict[str, Any] = {
        "mode": mode[0],
        "nearest_mode": mode[1],
        "coordinate_transformation_mode": transformation,
    }
    count = int(np.prod(SIZES))
    units = np.eye(count, dtype=np.float32).reshape(count, 1, *SIZES)
    columns = evaluate(units, scales, settings)
    sizes = columns.shape[2:]
    matrix = columns.reshape(count, -1).astype(np.float64)
    one = np.zeros((1, 1, *SIZES), np.float32)
    attributes, shape = describe_resize(
        {**settings, "axes": [2, 3]}, [one, None, np.float32(scales), None]
    )
    assert shape == (1, 1, *sizes)
    # Right between two elements the last bit decides: ONNX computes in float64.
    clear = np.logical_and.outer(*(is_clear(attributes, a, shape[a]) for a in (2, 3)))
    if mode[0] == "linear":
        clear = np.ones(sizes, np.bool_)
    assert clear.sum() >= 4
    clear = clear.reshape(-1)
    for dtype in (np.float32, np.float16):
        near = 1e-5 if dtype is np.float32 else 4e-3
        x, dy = normal(1, 1, *SIZES, dtype=dtype), normal(*shape, dtype=dtype)
        resampled = run("directml.RESAMPLE2", {"InputTensor": x}, attributes,
                        {"OutputTensor": shape}, "reference")  # fmt: skip
        expected = x.astype(np.float64).reshape(-1) @ matrix
        found = resampled["OutputTensor"].reshape(-1)
        np.testing.assert_allclose(found[clear], expected[clear], near, near)
        dy.reshape(-1)[~clear] = 0
        exchanged = {**attributes, "InputPixelOffsets": attributes["OutputPixelOffsets"],
                     "OutputPixelOffsets": attributes["InputPixelOffsets"]}  # fmt: skip
        gradient = run("directml.RESAMPLE_GRAD1", {"InputGradientTensor": dy}, exchanged,
                       {"OutputGradientTensor": x.shape}, "reference")  # fmt: skip
        expected = matrix @ dy.astype(np.float64).reshape(-1)
        found = gradient["OutputGradientTensor"].reshape(-1)
        np.testing.assert_allclose(found, expected, near, near)
