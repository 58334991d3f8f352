"""oneDNN's operations and their gradients against PyTorch's, in float32."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.library.run import Array, check, normal, run

Torch = torch.Tensor


def tensor(array: Array) -> Torch:
    return torch.from_numpy(array.astype(np.float64))


# Element by element ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A function, PyTorch's of the same, and where it is smooth and has a gradient here."""

    name: str
    function: Callable[[Torch], Torch]
    attributes: dict[str, object] = dataclasses.field(default_factory=dict[str, object])
    positive: bool = False
    backward: bool = False
    use_dst: bool = False
    """Whether the gradient may be given the result."""


PAIRS = [
    Pair("Abs", torch.abs, backward=True),
    Pair(
        "Clamp",
        lambda x: x.clamp(-0.5, 1.0),
        {"min": -0.5, "max": 1.0},
        backward=True,
        use_dst=True,
    ),
    Pair("Elu", lambda x: functional.elu(x, 0.75), {"alpha": 0.75}, backward=True, use_dst=True),
    Pair("Exp", torch.exp),
    Pair("GELU", functional.gelu, backward=True),
    Pair(
        "GELU",
        lambda x: functional.gelu(x, approximate="tanh"),
        {"mode": "gelu_tanh"},
        backward=True,
    ),
    Pair("HardSigmoid", functional.hardsigmoid, {"alpha": 1 / 6, "beta": 0.5}, backward=True),
    Pair("HardSwish", functional.hardswish, backward=True),
    Pair("LeakyReLU", lambda x: functional.leaky_relu(x, 0.1), {"alpha": 0.1}),
    Pair("Log", torch.log, positive=True),
    Pair("Mish", functional.mish, backward=True),
    Pair("Pow", lambda x: x.pow(3), {"beta": 3}),
    Pair("Reciprocal", torch.reciprocal, positive=True),
    Pair("Round", torch.round),
    Pair("Sigmoid", torch.sigmoid, backward=True, use_dst=True),
    Pair("SoftPlus", lambda x: functional.softplus(x, 2, 1e9), {"beta": 2}, backward=True),
    Pair("Sqrt", torch.sqrt, positive=True, backward=True, use_dst=True),
    Pair("Square", torch.square),
    Pair("Tanh", torch.tanh, backward=True, use_dst=True),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_elementwise_operations_and_gradients(pair: Pair) -> None:
    src, dy = normal(5, 7) * 3, normal(5, 7, seed=1)
    src = np.abs(src) + 0.1 if pair.positive else src
    x = tensor(src).requires_grad_()
    y = pair.function(x)
    found = run(f"onednn.{pair.name}", {"src": src}, pair.attributes, device="opencl")["dst"]
    check(found, y.detach().numpy())
    if not pair.backward:
        return
    y.backward(tensor(dy))
    assert x.grad is not None
    given = [(src, {"use_dst": False}), (found, {"use_dst": True})] if pair.use_dst else [(src, {})]
    for first, use in given:
        inputs = {"src": first, "diff_dst": dy}
        attributes = {**pair.attributes, **use}
        backward = run(f"onednn.{pair.name}Backward", inputs, attributes, device="opencl")
        check(backward["diff_src"], x.grad.numpy())


BINARY: list[tuple[str, Callable[[Torch, Torch], Torch]]] = [
    ("Add", torch.add), ("Divide", torch.div), ("GreaterEqual", torch.ge),
    ("Maximum", torch.maximum), ("Minimum", torch.minimum), ("Multiply", torch.mul),
    ("SquaredDifference", lambda a, b: (a - b) ** 2), ("Subtract", torch.sub),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), BINARY)
def test_two_tensors(name: str, function: Callable[[Torch, Torch], Torch]) -> None:
    a, b = normal(4, 1, 5), normal(3, 1, seed=1)
    found = run(f"onednn.{name}", {"src_0": a, "src_1": b}, device="opencl")["dst"]
    check(found, function(tensor(a), tensor(b)).numpy())


@pytest.mark.parametrize(("sizes", "layout"), [((3,), "NCX"), ((1,), "NCX"), ((3, 1), "NCX")])
def test_parametric_relu(sizes: tuple[int, ...], layout: str) -> None:
    src, slope, dy = normal(2, 3, 4), normal(*sizes, seed=1), normal(2, 3, 4, seed=2)
    x, w = tensor(src).requires_grad_(), tensor(slope).requires_grad_()
    y = functional.prelu(x, w) if len(sizes) == 1 else torch.where(x >= 0, x, w * x)
    y.backward(tensor(dy))
    given = {"src": src, "slope": slope}
    attributes: dict[str, object] = {"data_format": layout}
    check(run("onednn.PReLU", given, attributes)["dst"], y.detach().numpy())
    found = run("onednn.PReLUBackward", {**given, "diff_dst": dy}, attributes, device="opencl")
    assert x.grad is not None
    assert w.grad is not None
    check(found["diff_src"], x.grad.numpy())
    check(found["diff_slope"], w.grad.numpy())


# Normalization and quantization -----------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCX", "NXC"])
def test_group_normalization(layout: str) -> None:
    src, gamma, beta = normal(2, 6, 3, 4), normal(6, seed=1), normal(6, seed=2)
    expected = functional.group_norm(tensor(src), 3, tensor(gamma), tensor(beta), 1e-3).numpy()
    moved = src if layout == "NCX" else np.ascontiguousarray(np.moveaxis(src, 1, -1))
    inputs = {"src": moved, "gamma": gamma, "beta": beta}
    settings: dict[str, object] = {"groups": 3, "epsilon": 1e-3, "data_format": layout}
    found = run("onednn.GroupNorm", inputs, settings, device="opencl")["dst"]
    check(found if layout == "NCX" else np.moveaxis(found, -1, 1), expected)


def test_root_mean_square_normalization() -> None:
    src, gamma = normal(3, 4, 5), normal(4, 5, seed=1)
    expected = functional.rms_norm(tensor(src), [4, 5], tensor(gamma), 1e-3).numpy()
    settings: dict[str, object] = {"epsilon": 1e-3, "begin_norm_axis": 1}
    found = run("onednn.RMSNorm", {"src": src, "gamma": gamma}, settings, device="opencl")["dst"]
    check(found, expected)


def test_quantization_per_channel() -> None:
    """PyTorch multiplies by the reciprocal of a scale: powers of two are the same by both."""
    src, scales, zps = normal(3, 4) * 40, [0.5, 1.0, 2.0, 0.25], [0, 3, -5, 7]
    expected = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(src),
        torch.tensor(scales),
        torch.tensor(zps, dtype=torch.int32),
        1,
        -128,
        127,
    )
    outputs: dict[str, Any] = {"dst": np.empty((3, 4), np.int8)}
    settings: dict[str, object] = {"qtype": "per_channel", "scales": scales, "zps": zps}
    found = run("onednn.Quantize", {"src": src}, settings, outputs, "opencl")["dst"]
    back = run("onednn.Dequantize", {"src": found}, settings, device="opencl")["dst"]
    np.testing.assert_array_equal(back, expected.numpy())
    dynamic = {"src": src, "scales": np.array(scales, np.float32), "zps": np.array(zps, np.int8)}
    by_axis: dict[str, object] = {"qtype": "per_channel"}
    again = run("onednn.DynamicQuantize", dynamic, by_axis, outputs, "opencl")["dst"]
    np.testing.assert_array_equal(again, found)


# Transposed convolution -------------------------------------------------------------------------

CONVOLVE = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d}


@pytest.mark.parametrize(("space", "window", "stride", "dilation", "padding", "extra", "groups"), [
    ((5,), (3,), (2,), (1,), (1,), (1,), 1),
    ((4, 3), (3, 2), (2, 1), (1, 2), (1, 0), (1, 0), 2),
])  # fmt: skip
@pytest.mark.parametrize("layout", ["NCX", "NXC"])
def test_transposed_convolution(
    space: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, ...],
    dilation: tuple[int, ...], padding: tuple[int, ...], extra: tuple[int, ...], groups: int,
    layout: str,
) -> None:  # fmt: skip
    src, weights, bias = normal(2, 4, *space), normal(4, 3, *window, seed=1), normal(3 * groups)
    x, w = tensor(src).requires_grad_(), tensor(weights).requires_grad_()
    given: list[Any] = [stride, padding, extra, groups, dilation]
    y: Torch = CONVOLVE[len(space)](x, w, tensor(bias), *given)
    dy = normal(*y.shape, seed=2)
    y.backward(tensor(dy))
    assert x.grad is not None
    assert w.grad is not None
    settings: dict[str, object] = {
        "strides": list(stride), "dilations": list(dilation), "pads_begin": list(padding),
        "pads_end": list(padding), "output_padding": list(extra), "groups": groups,
        "data_format": layout, "weights_format": "IOX" if layout == "NCX" else "XOI",
    }  # fmt: skip

    def shown(array: Array) -> Array:
        """Channels where the layout has them."""
        return array if layout == "NCX" else np.ascontiguousarray(np.moveaxis(array, 1, -1))

    def shown_weights(array: Array) -> Array:
        """PyTorch's weights have the channels of all groups first, and those of a group second."""
        depth, width = array.shape[0] // groups, array.shape[1]
        split = array.reshape(groups, depth, width, *window)
        joined = np.moveaxis(split, 0, 1).reshape(depth, groups * width, *window)
        return joined if layout == "NCX" else np.moveaxis(joined, (1, 0), (-2, -1)).copy()

    inputs = {"src": shown(src), "weights": shown_weights(weights), "bias": bias}
    found = run("onednn.ConvTranspose", inputs, settings, device="opencl")["dst"]
    check(found, shown(y.detach().numpy()))
    inputs = {"diff_dst": shown(dy), "weights": shown_weights(weights)}
    data = run("onednn.ConvTransposeBackwardData", inputs, settings, device="opencl")
    check(data["diff_src"], shown(x.grad.numpy()))
    expected = shown_weights(w.grad.numpy())
    inputs = {"src": shown(src), "diff_dst": shown(dy)}
    outputs = {"diff_weights": expected.shape}
    back = run("onednn.ConvTransposeBackwardWeights", inputs, settings, outputs, "opencl")
    check(back["diff_weights"], expected)
