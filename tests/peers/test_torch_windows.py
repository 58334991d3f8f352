"""Resampling, pooling, normalization by neighbours, and products against PyTorch in float64.

PyTorch is given the inputs as they are stored, widened; what it gives is compared within the
roundings of our result's type.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.library.run import DEVICES, Array, check, normal, run

FLOATS = [np.float32, np.float16]
ONEDNN = [np.float32, np.float16, ml_dtypes.bfloat16]
ATEN = torch.ops.aten


def tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float64))


def channels_last(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


# Resampling ---------------------------------------------------------------------------------

PLANES = [((2, 3, 5), (8,)), ((2, 2, 6, 5), (3, 9)), ((1, 2, 4, 4), (8, 8)),
          ((1, 2, 3, 4, 2), (5, 3, 4))]  # fmt: skip


def torch_backward(kind: str, dy: Array, sizes: tuple[int, ...], scales: Any = None) -> Array:
    """PyTorch's own gradient; `scales` where they are not the ratio of the sizes."""
    count = len(sizes) - 2
    given = [None] * count if scales is None else list(scales)
    linear = ("linear1d", "bilinear2d", "trilinear3d")[count - 1]
    name = {"linear": linear, "nearest": f"nearest{count}d",
            "nearest-exact": f"_nearest_exact{count}d"}[kind]  # fmt: skip
    exact = name.startswith("_")
    function = getattr(ATEN, f"{'_' * exact}upsample_{name.lstrip('_')}_backward")
    corners = [False] if kind == "linear" else []
    return function(tensor(dy), list(dy.shape[2:]), list(sizes), *corners, *given).numpy()


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", ["linear", "nearest", "nearest-exact"])
@pytest.mark.parametrize(("sizes", "space"), PLANES[:3], ids=str)
@pytest.mark.parametrize("ratio", [True, False])
def test_resample_gradients(
    sizes: tuple[int, ...], space: tuple[int, ...], kind: str, ratio: bool, dtype: Any, device: str
) -> None:
    """Ranks 3 and 4; scales are the ratio of the sizes, or a tenth less."""
    dy = normal(*sizes[:2], *space, dtype=dtype)
    scales = [r / n for r, n in zip(space, sizes[2:], strict=True)]
    if not ratio:
        # Numbers that single precision holds, so that both sides round the same way.
        scales = [float(np.float32(round(s * 0.9 * 8) / 8)) for s in scales]
    inputs, outputs = {"linear": (-0.5, 0.5), "nearest": (0.0, 0.0),
                       "nearest-exact": (-0.5, 0.0)}[kind]  # fmt: skip
    attributes = {
        "InterpolationMode": "LINEAR" if kind == "linear" else "NEAREST_NEIGHBOR",
        "RoundingDirection": "DECREASING", "Scales": [1.0, 1.0, *scales],
        "InputPixelOffsets": [0.0, 0.0] + [inputs] * len(space),
        "OutputPixelOffsets": [0.0, 0.0] + [outputs] * len(space),
    }  # fmt: skip
    found = run("directml.RESAMPLE_GRAD1", {"InputGradientTensor": dy}, attributes,
                {"OutputGradientTensor": sizes}, device)  # fmt: skip
    expected = torch_backward(kind, dy, sizes, None if ratio else scales)
    check(found["OutputGradientTensor"], expected)


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize("layout", ["NCX", "NXC"])
@pytest.mark.parametrize(("sizes", "space"), PLANES, ids=str)
def test_interpolation(
    sizes: tuple[int, ...], space: tuple[int, ...], layout: str, corners: bool, dtype: Any,
    device: str,
) -> None:  # fmt: skip
    mode = ("linear", "bilinear", "trilinear")[len(space) - 1]
    x, dy = normal(*sizes, dtype=dtype), normal(*sizes[:2], *space, seed=1, dtype=dtype)
    leaf = tensor(x).requires_grad_()
    theirs = functional.interpolate(leaf, space, mode=mode, align_corners=corners)
    theirs.backward(tensor(dy))
    lay = channels_last if layout == "NXC" else np.ascontiguousarray
    attributes = {
        "mode": mode, "data_format": layout,
        "coordinate_transformation_mode": "align_corners" if corners else "half_pixel",
    }  # fmt: skip
    expected = lay(theirs.detach().numpy())
    found = run("onednn.Interpolate", {"src": lay(x)}, attributes, {"dst": expected.shape}, device)
    check(found["dst"], expected)
    given = {"src": lay(x), "diff_dst": lay(dy)}
    found = run("onednn.InterpolateBackward", given, attributes, device=device)
    assert leaf.grad is not None
    check(found["diff_src"], lay(leaf.grad.numpy()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("sizes", "space"), PLANES, ids=str)
def test_nearest_interpolation(sizes: tuple[int, ...], space: tuple[int, ...], device: str) -> None:
    x, dy = normal(*sizes), normal(*sizes[:2], *space, seed=1)
    attributes = {"mode": "nearest", "data_format": "NCX"}
    found = run("onednn.Interpolate", {"src": x}, attributes, {"dst": dy.shape}, device)
    expected = functional.interpolate(tensor(x), space, mode="nearest-exact")
    check(found["dst"], expected.numpy())
    given = {"src": x, "diff_dst": dy}
    found = run("onednn.InterpolateBackward", given, attributes, device=device)
    check(found["diff_src"], torch_backward("nearest-exact", dy, sizes))


# Pooling ------------------------------------------------------------------------------------

POOLS = [
    ((2, 3, 7, 6), (3, 2), (2, 1), (1, 1), (1, 1)),
    ((1, 2, 8, 8), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((1, 2, 9, 7), (2, 3), (1, 2), (1, 0), (2, 3)),
    ((1, 2, 5, 4, 6), (2, 3, 2), (1, 1, 2), (1, 0, 1), (1, 1, 1)),
]
"""Sizes, window, strides, padding at both ends, dilations."""


def pool_attributes(case: Any, dilated: bool = True) -> dict[str, Any]:
    _, window, strides, padding, dilations = case
    found = {"WindowSize": window, "Strides": strides, "StartPadding": padding,
             "EndPadding": padding, "Dilations": dilations}  # fmt: skip
    return {n: list(v) for n, v in found.items() if dilated or n != "Dilations"}


def onednn_attributes(case: Any, dilated: bool) -> dict[str, Any]:
    _, window, strides, padding, dilations = case
    found = {"kernel": window, "strides": strides, "pads_begin": padding, "pads_end": padding,
             "dilations": dilations}  # fmt: skip
    return {n: list(v) for n, v in found.items() if dilated or n != "dilations"}


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("included", [True, False])
@pytest.mark.parametrize("case", [c for c in POOLS if set(c[4]) == {1}], ids=str)
def test_average_pooling(case: Any, included: bool, dtype: Any, device: str) -> None:
    sizes, window, strides, padding, _ = case
    x = normal(*sizes, dtype=dtype)
    pool = functional.avg_pool2d if len(sizes) == 4 else functional.avg_pool3d
    leaf = tensor(x).requires_grad_()
    theirs = pool(leaf, window, strides, padding, count_include_pad=included)
    attributes = {**pool_attributes(case, False), "IncludePadding": included}
    for name, more in (("AVERAGE_POOLING", {}), ("AVERAGE_POOLING1", {"Dilations": case[4]})):
        settings = {**attributes, **{n: list(v) for n, v in more.items()}}
        found = run(f"directml.{name}", {"InputTensor": x}, settings, device=device)
        check(found["OutputTensor"], theirs.detach().numpy())
    dy = normal(*theirs.shape, seed=1, dtype=dtype)
    theirs.backward(tensor(dy))
    assert leaf.grad is not None
    found = run("directml.AVERAGE_POOLING_GRAD", {"InputGradientTensor": dy}, attributes,
                {"OutputGradientTensor": sizes}, device)  # fmt: skip
    check(found["OutputGradientTensor"], leaf.grad.numpy())
    settings = {**onednn_attributes(case, False), "exclude_pad": not included}
    for layout, lay in (("NCX", np.ascontiguousarray), ("NXC", channels_last)):
        laid = {**settings, "data_format": layout}
        found = run("onednn.AvgPool", {"src": lay(x)}, laid, device=device)
        check(found["dst"], lay(theirs.detach().numpy()))
        back = lay(leaf.grad.numpy())
        found = run("onednn.AvgPoolBackward", {"diff_dst": lay(dy)}, laid,
                    {"diff_src": back.shape}, device)  # fmt: skip
        check(found["diff_src"], back)


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_max_pooling(case: Any, dtype: Any, device: str) -> None:
    sizes, window, strides, padding, dilations = case
    x = np.round(normal(*sizes) * 4).astype(dtype)
    pool = functional.max_pool2d if len(sizes) == 4 else functional.max_pool3d
    leaf = tensor(x).requires_grad_()
    theirs, places = pool(leaf, window, strides, padding, dilations, return_indices=True)
    expected, plane = theirs.detach().numpy(), int(np.prod(sizes[2:]))
    numbers = np.arange(int(np.prod(sizes[:2]))).reshape(*sizes[:2], *[1] * len(window)) * plane
    attributes = pool_attributes(case)
    outputs = {"OutputIndicesTensor": expected.shape}
    found = run("directml.MAX_POOLING2", {"InputTensor": x}, attributes, outputs, device)
    check(found["OutputTensor"], expected)
    np.testing.assert_array_equal(found["OutputIndicesTensor"], places.numpy() + numbers)
    if set(dilations) == {1}:
        older = pool_attributes(case, False)
        found = run("directml.MAX_POOLING", {"InputTensor": x}, older, device=device)
        check(found["OutputTensor"], expected)
    dy = normal(*expected.shape, seed=1, dtype=dtype)
    theirs.backward(tensor(dy))
    assert leaf.grad is not None
    given = {"InputTensor": x, "InputGradientTensor": dy}
    found = run("directml.MAX_POOLING_GRAD", given, attributes, device=device)
    check(found["OutputGradientTensor"], leaf.grad.numpy())
    for layout, lay in (("NCX", np.ascontiguousarray), ("NXC", channels_last)):
        settings = {**onednn_attributes(case, True), "data_format": layout}
        found = run("onednn.MaxPool", {"src": lay(x)}, settings, device=device)
        check(found["dst"], lay(expected))
        if layout == "NCX":
            given = {"src": x, "diff_dst": dy}
            found = run("onednn.MaxPoolBackward", given, settings, device=device)
            check(found["diff_src"], leaf.grad.numpy())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize("name", ["AvgPool", "MaxPool"])
def test_pooling_rounded_up(name: str, dtype: Any, device: str) -> None:
    x = normal(1, 2, 6, 7, dtype=dtype)
    settings: dict[str, Any] = {"kernel": [3, 2], "strides": [2, 2], "pads_begin": [0, 0],
                                "pads_end": [0, 0], "data_format": "NCX",
                                "rounding_type": "ceil"}  # fmt: skip
    if name == "AvgPool":
        settings["exclude_pad"] = True
        theirs = functional.avg_pool2d(tensor(x), (3, 2), (2, 2), ceil_mode=True)
    else:
        theirs = functional.max_pool2d(tensor(x), (3, 2), (2, 2), ceil_mode=True)
    found = run(f"onednn.{name}", {"src": x}, settings, device=device)
    check(found["dst"], theirs.numpy())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_norm_pooling(p: int, dtype: Any, device: str) -> None:
    x = normal(2, 3, 7, 6, dtype=dtype)
    power = tensor(x).abs() ** p
    theirs = (functional.avg_pool2d(power, (3, 2), (2, 1), (1, 1)) * 6) ** (1 / p)
    attributes = {**pool_attributes(POOLS[0], False), "P": p}
    found = run("directml.LP_POOLING", {"InputTensor": x}, attributes, device=device)
    check(found["OutputTensor"], theirs.numpy())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_normalization(size: int, dtype: Any, device: str) -> None:
    """PyTorch has the one across channels, centred where the size is odd."""
    x, dy = normal(2, 6, 3, 4, dtype=dtype), normal(2, 6, 3, 4, seed=1, dtype=dtype)
    leaf = tensor(x).requires_grad_()
    theirs = functional.local_response_norm(leaf, size, 0.5, 0.75, 1.5)
    theirs.backward(tensor(dy))
    settings = {"CrossChannel": True, "LocalSize": size, "Alpha": 0.5, "Beta": 0.75, "Bias": 1.5}
    found = run("directml.LOCAL_RESPONSE_NORMALIZATION", {"InputTensor": x}, settings,
                device=device)  # fmt: skip
    check(found["OutputTensor"], theirs.detach().numpy())
    given = {"InputTensor": x, "InputGradientTensor": dy}
    found = run("directml.LOCAL_RESPONSE_NORMALIZATION_GRAD", given, settings, device=device)
    assert leaf.grad is not None
    check(found["OutputGradientTensor"], leaf.grad.numpy())


# Products -----------------------------------------------------------------------------------

CONVOLUTIONS = [
    ((2, 4, 9), (6, 4, 3), (2,), (1,), (1,), 1),
    ((1, 4, 6, 5), (6, 2, 3, 2), (1, 2), (1, 0), (2, 1), 2),
    ((2, 3, 5, 5), (3, 1, 2, 2), (1, 1), (0, 1), (1, 1), 3),
    ((1, 2, 4, 5, 3), (2, 2, 2, 3, 2), (1, 2, 1), (0, 1, 1), (1, 1, 1), 1),
]
"""Sizes of input and filter, strides, padding, dilations, groups."""


def convolve(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, case: Any) -> Any:
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[x.ndim - 3]
    return function(x, w, bias, *case[2:])


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution(case: Any, dtype: Any, device: str) -> None:
    sizes, filters, strides, padding, dilations, groups = case
    x, w = normal(*sizes, dtype=dtype), normal(*filters, seed=1, dtype=dtype)
    bias = normal(filters[0], seed=2, dtype=dtype)
    leaf, weight = tensor(x).requires_grad_(), tensor(w).requires_grad_()
    theirs = convolve(leaf, weight, tensor(bias), case)
    dy = normal(*theirs.shape, seed=3, dtype=dtype)
    theirs.backward(tensor(dy))
    assert leaf.grad is not None
    assert weight.grad is not None
    expected = theirs.detach().numpy()
    settings = {"Mode": "CROSS_CORRELATION", "Direction": "FORWARD", "Strides": list(strides),
                "Dilations": list(dilations), "StartPadding": list(padding),
                "EndPadding": list(padding), "OutputPadding": [0] * len(strides),
                "GroupCount": groups}  # fmt: skip
    shape = [1, -1, *[1] * len(strides)]
    given = {"InputTensor": x, "FilterTensor": w, "BiasTensor": bias.reshape(shape)}
    found = run("directml.CONVOLUTION", given, settings, device=device)
    check(found["OutputTensor"], expected)
    flipped = {**given, "FilterTensor": np.ascontiguousarray(np.flip(w, range(2, w.ndim)))}
    found = run("directml.CONVOLUTION", flipped, {**settings, "Mode": "CONVOLUTION"},
                device=device)  # fmt: skip
    check(found["OutputTensor"], expected)
    spans = [(k - 1) * d + 1 for k, d in zip(filters[2:], dilations, strict=True)]
    missing = [n - ((r - 1) * s + span - 2 * p) for n, r, s, span, p in zip(
        sizes[2:], expected.shape[2:], strides, spans, padding, strict=True)]  # fmt: skip
    # OutputPadding is zeros: a further zero of the input makes room for what a stride left out.
    ends = [p + s - m for p, s, m in zip(padding, strides, missing, strict=True)]
    back = {**settings, "Direction": "BACKWARD", "EndPadding": ends}
    longer = np.pad(dy, [(0, 0), (0, 0), *[(0, 1)] * len(strides)])
    given = {"InputTensor": longer, "FilterTensor": w}
    found = run("directml.CONVOLUTION", given, back, device=device)
    check(found["OutputTensor"], leaf.grad.numpy())
    common = {"strides": list(strides), "pads_begin": list(padding), "pads_end": list(padding),
              "dilations": list(dilations), "groups": groups}  # fmt: skip
    taps = np.ascontiguousarray(w.transpose(*range(2, w.ndim), 1, 0))
    for layout, lay in (("NCX", np.ascontiguousarray), ("NXC", channels_last)):
        weights_format, weights = ("OIX", w) if layout == "NCX" else ("XIO", taps)
        laid = {**common, "data_format": layout, "weights_format": weights_format}
        given = {"src": lay(x), "weights": weights, "bias": bias}
        check(run("onednn.Convolution", given, laid, device=device)["dst"], lay(expected))
        given = {"diff_dst": lay(dy), "weights": weights}
        found = run("onednn.ConvolutionBackwardData", given, laid,
                    {"diff_src": lay(x).shape}, device)  # fmt: skip
        check(found["diff_src"], lay(leaf.grad.numpy()))
        given = {"src": lay(x), "diff_dst": lay(dy)}
        found = run("onednn.ConvolutionBackwardWeights", given, laid,
                    {"diff_weights": weights.shape}, device)  # fmt: skip
        gradient = weight.grad.numpy()
        if layout == "NXC":
            gradient = gradient.transpose(*range(2, w.ndim), 1, 0)
        check(found["diff_weights"], gradient)


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ONEDNN, ids=str)
@pytest.mark.parametrize(
    ("left", "right", "bias"),
    [((5, 7), (7, 4), (4,)), ((3, 5, 7), (7, 4), (5, 4)), ((2, 1, 5, 7), (3, 7, 4), None),
     ((5, 7), (2, 7, 4), (2, 1, 4))],
    ids=str,
)  # fmt: skip
def test_matmul(left: Any, right: Any, bias: Any, dtype: Any, device: str) -> None:
    a, b = normal(*left, dtype=dtype), normal(*right, seed=1, dtype=dtype)
    c = None if bias is None else normal(*bias, seed=2, dtype=dtype)
    expected = (tensor(a) @ tensor(b)).numpy()
    if c is not None:
        expected = expected + c.astype(np.float64)
    for first, second in ((False, False), (True, False), (False, True)):
        given = {
            "src": np.ascontiguousarray(a.swapaxes(-1, -2)) if first else a,
            "weights": np.ascontiguousarray(b.swapaxes(-1, -2)) if second else b, "bias": c,
        }  # fmt: skip
        settings = {"transpose_a": first, "transpose_b": second}
        check(run("onednn.MatMul", given, settings, device=device)["dst"], expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_gemm(rank: int, dtype: Any, device: str) -> None:
    lead = (2, 3)[: rank - 2]
    a, b = normal(*lead, 5, 7, dtype=dtype), normal(*lead, 7, 4, seed=1, dtype=dtype)
    c = normal(*lead, 5, 4, seed=2, dtype=dtype)
    expected = torch.sigmoid(0.5 * (tensor(a) @ tensor(b)) - 1.5 * tensor(c)).numpy()
    given = {"ATensor": np.ascontiguousarray(a.swapaxes(-1, -2)), "BTensor": b, "CTensor": c}
    settings = {"TransA": "TRANSPOSE", "TransB": "NONE", "Alpha": 0.5, "Beta": -1.5,
                "FusedActivation": "ACTIVATION_SIGMOID"}  # fmt: skip
    check(run("directml.GEMM", given, settings, device=device)["OutputTensor"], expected)
