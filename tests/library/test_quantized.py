"""Products and windows of quantized numbers, against ONNX's own node tests and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc import TensorDesc
from dmlc.pipeline import make_kernels
from dmlc.scalars import Array
from tests.library.run import DEVICES, check, run, wide


def window(attributes: dict[str, Any], space: int) -> dict[str, object]:
    pads = list(attributes.get("pads", [0] * (2 * space)))
    return {
        "Strides": list(attributes.get("strides", [1] * space)),
        "Dilations": list(attributes.get("dilations", [1] * space)),
        "StartPadding": pads[:space],
        "EndPadding": pads[space:],
        "GroupCount": attributes.get("group", 1),
    }


def draw(dtype: str, *sizes: int) -> Array:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(sum(sizes))
    return rng.integers(limits.min, int(limits.max) + 1, sizes).astype(dtype)


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
def test_products_of_many_tiles(device: str) -> None:
    """Of sizes that are no whole number of them."""
    a, b = draw("uint8", 2, 70, 65), draw("int8", 2, 65, 97)
    a_zero, b_zero = draw("uint8", 1, 70, 1), draw("int8", 1, 1, 97)
    inputs = {"ATensor": a, "BTensor": b, "AZeroPointTensor": a_zero, "BZeroPointTensor": b_zero}
    found = run("directml.MATRIX_MULTIPLY_INTEGER", inputs, device=device)["OutputTensor"]
    left, right = (x.astype(np.int32) - z for x, z in ((a, a_zero), (b, b_zero)))
    np.testing.assert_array_equal(found, left @ right)


def test_results_are_limited_to_their_type() -> None:
    one = np.ones((1, 1), np.float32)
    a, b = np.array([[127], [-127], [10]], np.int8), np.array([[2]], np.int8)
    inputs = {"ATensor": a, "BTensor": b, "AScaleTensor": one, "BScaleTensor": one,
              "OutputScaleTensor": np.full((1, 1), 8, np.float32)}  # fmt: skip
    name = "directml.QUANTIZED_LINEAR_MATRIX_MULTIPLY"
    # 31.75, -31.75 and 2.5.
    assert run(name, inputs)["OutputTensor"].tolist() == [[32], [-32], [2]]
    inputs["OutputZeroPointTensor"] = np.array([[120]], np.int8)
    assert run(name, inputs)["OutputTensor"].tolist() == [[127], [88], [122]]


@pytest.mark.parametrize(
    ("target", "profile"), [("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu")]
)
@pytest.mark.parametrize("name", ["MATRIX_MULTIPLY_INTEGER", "CONVOLUTION_INTEGER"])
def test_sums_of_integers_are_tiled(name: str, target: str, profile: str) -> None:
    """As those of floats are; with padding, which no integer is infinite beside."""
    operator = dmlc.operator(f"directml.{name}")
    if name == "CONVOLUTION_INTEGER":
        tensors = {"InputTensor": TensorDesc("UINT8", (1, 32, 16, 16)),
                   "FilterTensor": TensorDesc("INT8", (64, 32, 3, 3))}  # fmt: skip
        settings: dict[str, object] = window({"pads": [1, 1, 1, 1]}, 2)
    else:
        tensors = {
            "ATensor": TensorDesc("UINT8", (64, 64)),
            "BTensor": TensorDesc("INT8", (64, 64)),
        }
        settings = {}
    _, kernels = make_kernels(operator.bind(tensors, settings), target, profile)
    lines = [line for kernel in kernels for line in kernel.schedule]
    assert any("put into" in line for line in lines)
    assert not any("again" in line or "serial" in line for line in lines)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("left", "right"), [("int8", "uint8"), ("uint8", "int16"), ("uint32", "int8")]
)
def test_factors_of_different_integers(left: str, right: str, device: str) -> None:
    """With scales of a type of their own each."""
    a, b = draw(left, 3, 5) // 4, draw(right, 5, 4) // 4
    a_scale = np.array([[0.5], [0.25], [1]], np.float16)
    b_scale = np.array([[0.001, 0.5, 1, 2]], np.float32)
    inputs = {"ATensor": a, "BTensor": b, "AScaleTensor": a_scale, "BScaleTensor": b_scale}
    name = "directml.MATRIX_MULTIPLY_INTEGER_TO_FLOAT"
    shape = {"OutputTensor": dmlc.TensorDesc("FLOAT32", (3, 4))}
    tensors = {n: TensorDesc(x.dtype.name.upper(), x.shape) for n, x in inputs.items()}
    function = dmlc.operator(name).bind({**tensors, **shape})
    found = dmlc.run(function, inputs, device=device)["OutputTensor"]
    assert found.dtype == np.float32
    check(found, (wide(a) @ wide(b)) * wide(a_scale) * wide(b_scale))


@pytest.mark.parametrize("name", ["MATRIX_MULTIPLY_INTEGER", "QUANTIZED_LINEAR_MATRIX_MULTIPLY"])
def test_leading_sizes_of_1_may_be_missing(name: str) -> None:
    """The result has the dimensions that any factor has; what one lacks is 1."""
    a, b = draw("uint8", 3, 5), draw("int8", 5, 4)
    scales: dict[str, Array] = {}
    if name.startswith("QUANTIZED"):
        every = ("AScaleTensor", "BScaleTensor", "OutputScaleTensor")
        scales = dict(zip(every, np.array([[0.5], [2], [512]], np.float32), strict=True))
    plain = run(f"directml.{name}", {"ATensor": a, "BTensor": b, **scales})["OutputTensor"]
    for left, right in (((1, 3, 5), (5, 4)), ((3, 5), (1, 1, 5, 4)), ((1, 1, 3, 5), (1, 5, 4))):
        inputs = {"ATensor": a.reshape(left), "BTensor": b.reshape(right), **scales}
        found = run(f"directml.{name}", inputs)["OutputTensor"]
        np.testing.assert_array_equal(found, plain.reshape(*max(left, right, key=len)[:-2], 3, 4))
    with pytest.raises(dmlc.DmlcError, match="only 1 may be left out"):
        run(f"directml.{name}", {"ATensor": a, "BTensor": np.stack([b, b]), **scales})
