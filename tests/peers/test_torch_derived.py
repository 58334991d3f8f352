"""Gradients that are derived from the library's operators, beside PyTorch's autograd in float64.

Those of gradient operators are second derivatives: PyTorch's of its own first ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch.nn import functional

import dmlc
from dmlc.summaries import read_index
from tests.library.run import DEVICES, Array, check, normal
from tests.peers import torch_element_wise
from tests.peers.test_torch_reductions import FUNCTIONS, ONEDNN_NAMES, reduce_with_torch

Tensors: TypeAlias = "dict[str, torch.Tensor]"
Given: TypeAlias = "dict[str, Array | list[Array]]"


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator, what it is given, and PyTorch's way to its outputs. It is differentiated by
    every input of floats."""

    operator: str
    inputs: Given
    forward: Callable[[Any], Mapping[str, Any]]
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict[str, object])


def one(name: str, array: Array, output: str, function: Callable[[torch.Tensor], Any]) -> Any:
    """The inputs and the way of an operator of one input and one output."""
    return {name: array}, lambda t: {output: function(t[name])}


def directml(
    name: str, array: Array, function: Callable[[torch.Tensor], Any], **attributes: object
) -> Case:
    inputs, forward = one("InputTensor", array, "OutputTensor", function)
    return Case(f"directml.{name}", inputs, forward, attributes)


def onednn(
    name: str, array: Array, function: Callable[[torch.Tensor], Any], **attributes: object
) -> Case:
    inputs, forward = one("src", array, "dst", function)
    return Case(f"onednn.{name}", inputs, forward, attributes)


def backward(function: Callable[..., torch.Tensor], *by: torch.Tensor, given: Any) -> Any:
    """PyTorch's gradient of a function, to be differentiated again."""
    return torch.autograd.grad(function(*by), by, given, create_graph=True)


ATEN = torch.ops.aten
IMAGE = normal(2, 4, 6, 5)
PLANE = normal(5, 7, seed=1)
EPSILON = float(np.float32(1e-3))


def positive(*sizes: int, seed: int) -> Array:
    return np.abs(normal(*sizes, seed=seed)) + np.float32(0.5)


# Element by element, along axes --------------------------------------------------------------


def list_activations() -> list[Case]:
    return [
        directml("ACTIVATION_RELU", IMAGE, torch.relu),
        directml("ACTIVATION_SOFTMAX1", PLANE, lambda x: x.softmax(0), Axes=[0]),
        directml("ACTIVATION_LOG_SOFTMAX1", PLANE, lambda x: x.log_softmax(1), Axes=[1]),
        onednn("ReLU", IMAGE, torch.relu),
        onednn("SoftMax", IMAGE, lambda x: x.softmax(1)),
        onednn("LogSoftmax", IMAGE, lambda x: x.log_softmax(-1)),
        directml(
            "VALUE_SCALE_2D",
            normal(2, 3, 6, 5),
            lambda x: x * 1.5 + torch.arange(3.0).reshape(1, 3, 1, 1),
            Scale=1.5,
            Bias=[0, 1, 2],
        ),
        Case(
            "onednn.SoftMaxBackward",
            {"dst": PLANE, "diff_dst": normal(5, 7, seed=2)},
            lambda t: {
                "diff_src": ATEN._softmax_backward_data(t["diff_dst"], t["dst"], 1, torch.float64)
            },
        ),
        Case(
            "onednn.LogSoftmaxBackward",
            {"dst": PLANE, "diff_dst": normal(5, 7, seed=2)},
            lambda t: {
                "diff_src": ATEN._log_softmax_backward_data(
                    t["diff_dst"], t["dst"], 1, torch.float64
                )
            },
        ),
    ]


def list_reductions() -> list[Case]:
    made: list[Case] = []
    for function in FUNCTIONS:
        x = positive(3, 4, 5, seed=3) if function.startswith("LOG") else normal(3, 4, 5, seed=3)
        for axes in ([1], [0, 2]):

            def reduce(t: torch.Tensor, function: str = function, axes: Any = axes) -> torch.Tensor:
                return reduce_with_torch(function, t, axes)

            made.append(directml("REDUCE", x, reduce, Function=function, Axes=axes))
            if function in ONEDNN_NAMES:
                name = f"Reduce{ONEDNN_NAMES[function]}"
                made.append(onednn(name, x, reduce, axes=axes, keep_dims=True))
    bias = Case(
        "onednn.BiasAddBackward",
        {"diff_dst": IMAGE},
        lambda t: {"diff_bias": t["diff_dst"].sum((0, 1, 2))},
    )
    return [*made, bias]


# Normalization -------------------------------------------------------------------------------


def list_normalizations() -> list[Case]:
    like = (1, 4, 1, 1)
    scale, bias, mean = (normal(*like, seed=k) for k in (4, 5, 6))
    variance = positive(*like, seed=7)
    flat: Given = {"gamma": scale.ravel(), "beta": bias.ravel()}
    statistics: Given = {"mean": mean.ravel(), "variance": variance.ravel()}
    row: Given = {"src": IMAGE, "gamma": normal(5, seed=8), "beta": normal(5, seed=9)}

    def normalize(t: Tensors) -> torch.Tensor:
        mean, variance, scale, bias = (
            t[f"{n}Tensor"].flatten() for n in ("Mean", "Variance", "Scale", "Bias")
        )
        shape = (1, 4, 1, 1)
        ratio = scale / (variance + EPSILON).sqrt()
        x = t["InputTensor"] - mean.reshape(shape)
        return x * ratio.reshape(shape) + bias.reshape(shape)

    def train(t: Tensors) -> Tensors:
        x = t["InputTensor"]
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
        y = functional.batch_norm(
            x, None, None, t["ScaleTensor"].flatten(), t["BiasTensor"].flatten(), True, 0, EPSILON
        )
        return {"OutputTensor": y, "OutputMeanTensor": mean, "OutputVarianceTensor": variance}

    def infer(t: Tensors) -> Tensors:
        ratio = t["gamma"] / (t["variance"] + EPSILON).sqrt()
        moved = t["src"] - t["mean"].reshape(like)
        return {"dst": moved * ratio.reshape(like) + t["beta"].reshape(like)}

    def forward_training(t: Tensors) -> Tensors:
        variance, mean = torch.var_mean(t["src"], (0, 2, 3), correction=0)
        y = functional.batch_norm(t["src"], None, None, t["gamma"], t["beta"], True, 0.0, EPSILON)
        return {
            "dst": y,
            "batch_mean": mean,
            "batch_variance": variance,
            "running_mean": 0.25 * t["mean"] + 0.75 * mean,
            "running_variance": 0.25 * t["variance"] + 0.75 * variance,
        }

    laid = {"data_format": "NCX", "epsilon": EPSILON}
    return [
        Case(
            "directml.BATCH_NORMALIZATION",
            {"InputTensor": IMAGE, "MeanTensor": mean, "VarianceTensor": variance,
             "ScaleTensor": scale, "BiasTensor": bias},
            lambda t: {"OutputTensor": normalize(t)},
            {"Epsilon": EPSILON},
        ),
        Case(
            "directml.BATCH_NORMALIZATION_TRAINING",
            {"InputTensor": IMAGE, "ScaleTensor": scale, "BiasTensor": bias},
            train,
            {"Epsilon": EPSILON},
        ),
        Case("onednn.BatchNormInference", {"src": IMAGE, **flat, **statistics}, infer, laid),
        Case(
            "onednn.BatchNormForwardTraining",
            {"src": IMAGE, **statistics, **flat},
            forward_training,
            {**laid, "momentum": 0.25},
        ),
        Case(
            "onednn.LayerNorm",
            row,
            lambda t: {
                "dst": functional.layer_norm(t["src"], [5], t["gamma"], t["beta"], EPSILON)
            },
            {"epsilon": EPSILON},
        ),
        directml(
            "MEAN_VARIANCE_NORMALIZATION1",
            IMAGE,
            lambda x: functional.instance_norm(x, eps=EPSILON),
            Axes=[2, 3],
            NormalizeVariance=True,
            Epsilon=EPSILON,
        ),
        directml(
            "LOCAL_RESPONSE_NORMALIZATION",
            IMAGE,
            lambda x: functional.local_response_norm(x, 3, 0.5, 0.75, 1.5),
            CrossChannel=True, LocalSize=3, Alpha=0.5, Beta=0.75, Bias=1.5,
        ),
        *(
            directml(
                "LP_NORMALIZATION",
                IMAGE,
                # DirectML adds Epsilon to the square; PyTorch's own is a least norm.
                lambda x, p=p: (
                    x / (torch.linalg.vector_norm(x, p, 1, keepdim=True) ** 2 + EPSILON).sqrt()
                ),
                Axis=1, P=p, Epsilon=EPSILON,
            )
            for p in (1, 2)
        ),
    ]  # fmt: skip


# Places --------------------------------------------------------------------------------------


def list_moves() -> list[Case]:
    indices = np.array([[3, 1, 1, 0, 3, 3]], np.int32)
    elements = np.array([[1, 4, 0, 0, 2, 1, 3], [0, 0, 2, 2, 4, 1, 1]], np.int64)
    parts: Given = {"InputTensors": [IMAGE, normal(2, 3, 6, 5, seed=3)]}
    return [
        Case("directml.JOIN", parts, lambda t: {"OutputTensor": torch.cat(t["InputTensors"], 1)},
             {"Axis": 1}),
        Case("onednn.Concat", {"src": parts["InputTensors"]},
             lambda t: {"dst": torch.cat(t["src"], 1)}, {"axis": 1}),
        Case("directml.SPLIT", {"InputTensor": IMAGE},
             lambda t: {"OutputTensors": t["InputTensor"].split([1, 3], 1)}, {"Axis": 1}),
        directml("SLICE", IMAGE, lambda x: x[:, 1:3, :, 2:], Offsets=[0, 1, 0, 2],
                 Sizes=[2, 2, 6, 3], Strides=[1, 1, 1, 1]),
        directml("SLICE1", IMAGE, lambda x: x[:, 1:3, ::2, 1:5:3], InputWindowOffsets=[0, 1, 0, 1],
                 InputWindowSizes=[2, 2, 6, 4], InputWindowStrides=[1, 1, 2, 3]),
        *(
            directml("PADDING", IMAGE, lambda x, mode=mode: functional.pad(x, (0, 3, 2, 1), mode),
                     PaddingMode=name, StartPadding=[0, 0, 2, 0], EndPadding=[0, 0, 1, 3])
            for mode, name in (("constant", "CONSTANT"), ("replicate", "EDGE"),
                               ("reflect", "REFLECTION"))
        ),
        directml("TILE", IMAGE, lambda x: x.repeat(1, 2, 1, 3), Repeats=[1, 2, 1, 3]),
        directml("SPACE_TO_DEPTH1", normal(2, 3, 6, 4),
                 lambda x: functional.pixel_unshuffle(x, 2), BlockSize=2,
                 Order="COLUMN_ROW_DEPTH"),
        directml("DEPTH_TO_SPACE1", normal(2, 8, 3, 4), lambda x: functional.pixel_shuffle(x, 2),
                 BlockSize=2, Order="COLUMN_ROW_DEPTH"),
        onednn("StaticTranspose", IMAGE, lambda x: x.permute(2, 0, 3, 1), order=[2, 0, 3, 1]),
        onednn("StaticReshape", IMAGE, lambda x: x.reshape(8, 30), shape=[8, -1],
               special_zero=False),
        Case("directml.GATHER", {"InputTensor": PLANE, "IndicesTensor": indices},
             lambda t: {"OutputTensor": t["InputTensor"][t["IndicesTensor"][0].long()]},
             {"Axis": 0, "IndexDimensions": 1}),
        Case("directml.ONE_HOT", {"IndicesTensor": indices.T, "ValuesTensor": normal(1, 2)},
             lambda t: {"OutputTensor": t["ValuesTensor"][0, functional.one_hot(
                 t["IndicesTensor"].flatten().long(), 4)]}, {"Axis": 1}),
        Case("directml.GATHER_ELEMENTS", {"InputTensor": PLANE, "IndicesTensor": elements},
             lambda t: {"OutputTensor": t["InputTensor"].gather(0, t["IndicesTensor"])},
             {"Axis": 0}),
        *list_scatters(),
    ]  # fmt: skip


def list_scatters() -> list[Case]:
    columns = np.array([[1, 0, 2], [3, 2, 0]])
    rows, pairs = np.array([[2], [0]]), np.array([[3, 0], [1, 2], [3, 0], [0, 1], [2, 2]])
    own = np.array([[[3], [0], [3]], [[1], [2], [2]]])
    places = np.array([0, 5, 3, 12, 17, 31, 20, 22], np.uint32).reshape(1, 2, 2, 2)
    two = {"InputDimensionCount": 2, "IndicesDimensionCount": 2}
    three = {"InputDimensionCount": 3, "IndicesDimensionCount": 3, "BatchDimensionCount": 1}

    def unpool(t: Mapping[str, Any]) -> dict[str, Any]:
        flat, indices = t["InputTensor"].flatten(), t["IndicesTensor"].flatten().long()
        return {"OutputTensor": flat.new_zeros(32).scatter(0, indices, flat).reshape(1, 2, 4, 4)}

    return [
        Case("directml.SCATTER", {"InputTensor": normal(4, 3), "IndicesTensor": columns,
                                  "UpdatesTensor": normal(2, 3)},
             lambda t: {"OutputTensor": t["InputTensor"].scatter(
                 0, t["IndicesTensor"], t["UpdatesTensor"])}, {"Axis": 0}),
        Case("directml.SCATTER_ND", {"InputTensor": normal(4, 3), "IndicesTensor": rows,
                                     "UpdatesTensor": normal(2, 3)},
             lambda t: {"OutputTensor": t["InputTensor"].index_put(
                 (t["IndicesTensor"][:, 0],), t["UpdatesTensor"])}, two),
        Case("directml.GATHER_ND", {"InputTensor": normal(4, 3), "IndicesTensor": pairs},
             lambda t: {"OutputTensor": t["InputTensor"][tuple(t["IndicesTensor"].T)][None]}, two),
        Case("directml.GATHER_ND1", {"InputTensor": normal(2, 4, 3), "IndicesTensor": own},
             lambda t: {"OutputTensor": torch.stack([x[i[:, 0]] for x, i in zip(
                 t["InputTensor"], t["IndicesTensor"], strict=True)])}, three),
        Case("directml.MAX_UNPOOLING",
             {"InputTensor": normal(1, 2, 2, 2), "IndicesTensor": places}, unpool),
    ]  # fmt: skip


# Windows -------------------------------------------------------------------------------------

WINDOW = {"kernel": [3, 2], "strides": [2, 1], "pads_begin": [1, 1], "pads_end": [1, 1],
          "data_format": "NCX"}  # fmt: skip
TAPS = {"Strides": [2, 1], "WindowSize": [3, 2], "StartPadding": [1, 1], "EndPadding": [1, 1]}
STEPS = {"strides": [2, 1], "pads_begin": [1, 0], "pads_end": [1, 0], "dilations": [1, 2],
         "groups": 2, "data_format": "NCX", "weights_format": "OIX"}  # fmt: skip


def average(x: torch.Tensor, included: bool) -> torch.Tensor:
    return functional.avg_pool2d(x, (3, 2), (2, 1), (1, 1), count_include_pad=included)


def convolve(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return functional.conv2d(x, w, bias, (2, 1), (1, 0), (1, 2), 2)


def list_windows() -> list[Case]:
    weights, bias = normal(6, 2, 3, 2, seed=4), normal(6, seed=5)
    arriving = normal(2, 6, 3, 3, seed=6)
    places = (2, 4, 6, 5)

    def maximum(x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(x, (3, 2), (2, 1), (1, 1))

    def norm(x: torch.Tensor) -> torch.Tensor:
        return (functional.avg_pool2d(x.abs() ** 3, (3, 2), (2, 1), (1, 1)) * 6) ** (1 / 3)

    return [
        directml("MAX_POOLING", IMAGE, maximum, **TAPS),
        directml("MAX_POOLING2", IMAGE, maximum, **TAPS, Dilations=[1, 1]),
        onednn("MaxPool", IMAGE, maximum, **WINDOW),
        directml("LP_POOLING", IMAGE, norm, **TAPS, P=3),
        directml("AVERAGE_POOLING1", IMAGE, lambda x: average(x, False), **TAPS,
                 Dilations=[1, 1], IncludePadding=False),
        *(
            made
            for kept in (True, False)
            for made in (
                directml("AVERAGE_POOLING", IMAGE, lambda x, kept=kept: average(x, kept), **TAPS,
                         IncludePadding=kept),
                onednn("AvgPool", IMAGE, lambda x, kept=kept: average(x, kept), **WINDOW,
                       exclude_pad=not kept),
            )
        ),
        Case(
            "directml.CONVOLUTION",
            {"InputTensor": IMAGE, "FilterTensor": weights, "BiasTensor": bias.reshape(1, 6, 1, 1)},
            lambda t: {"OutputTensor": convolve(
                t["InputTensor"], t["FilterTensor"], t["BiasTensor"].flatten())},
            {"Strides": [2, 1], "Dilations": [1, 2], "StartPadding": [1, 0], "EndPadding": [1, 0],
             "OutputPadding": [0, 0], "GroupCount": 2},
        ),
        Case(
            "onednn.Convolution",
            {"src": IMAGE, "weights": weights, "bias": bias},
            lambda t: {"dst": convolve(t["src"], t["weights"], t["bias"])},
            STEPS,
        ),
        Case(
            "onednn.ConvolutionBackwardData",
            {"diff_dst": arriving, "weights": weights},
            lambda t: {"diff_src": torch.nn.grad.conv2d_input(
                places, t["weights"], t["diff_dst"], (2, 1), (1, 0), (1, 2), 2)},
            STEPS,
        ),
        Case(
            "onednn.ConvolutionBackwardWeights",
            {"src": IMAGE, "diff_dst": arriving},
            lambda t: {"diff_weights": torch.nn.grad.conv2d_weight(
                t["src"], weights.shape, t["diff_dst"], (2, 1), (1, 0), (1, 2), 2)},
            STEPS,
        ),
    ]  # fmt: skip


def list_resampling() -> list[Case]:
    def interpolate(x: torch.Tensor, **how: Any) -> torch.Tensor:
        return functional.interpolate(x, (9, 12), mode="bilinear", **how)

    def double(x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x, scale_factor=2, mode="bilinear")

    centres = {"InputPixelOffsets": [0.5] * 4, "OutputPixelOffsets": [-0.5] * 4}
    twice = {"InterpolationMode": "LINEAR", "Scales": [1, 1, 2, 2]}
    return [
        directml("RESAMPLE", IMAGE, double, **twice),
        directml("RESAMPLE1", IMAGE, double, **twice, **centres),
        directml("RESAMPLE2", IMAGE, double, **twice, **centres, RoundingDirection="DECREASING"),
        directml("UPSAMPLE_2D", IMAGE, lambda x: functional.interpolate(x, scale_factor=(2, 3)),
                 ScaleSize=[3, 2]),
        *(
            onednn("Interpolate", IMAGE, lambda x, corners=corners: interpolate(
                x, align_corners=corners), mode="bilinear", data_format="NCX",
                coordinate_transformation_mode="align_corners" if corners else "half_pixel")
            for corners in (True, False)
        ),
    ]  # fmt: skip


def list_products() -> list[Case]:
    left, right, bias = normal(2, 5, 7, seed=2), normal(7, 4, seed=3), normal(5, 4, seed=4)
    a, b = normal(2, 7, 5, seed=2), normal(2, 7, 4, seed=3)
    return [
        Case(
            "onednn.MatMul",
            {"src": left, "weights": right, "bias": bias},
            lambda t: {"dst": t["src"] @ t["weights"] + t["bias"]},
        ),
        Case(
            "directml.GEMM",
            {"ATensor": a, "BTensor": b, "CTensor": normal(2, 5, 4, seed=5)},
            lambda t: {"OutputTensor": torch.sigmoid(
                0.5 * (t["ATensor"].mT @ t["BTensor"]) - 1.5 * t["CTensor"])},
            {"TransA": "TRANSPOSE", "Alpha": 0.5, "Beta": -1.5,
             "FusedActivation": "ACTIVATION_SIGMOID"},
        ),
    ]  # fmt: skip


# Gradients -----------------------------------------------------------------------------------


def linear(
    name: str, given: str, output: str, function: Any, arriving: Array, **attributes: object
) -> Case:
    """The gradient of a linear operator on images, which the images themselves do not matter to."""

    def forward(t: Tensors) -> Tensors:
        (found,) = backward(function, torch.zeros(2, 4, 6, 5).double().requires_grad_(),
                            given=t[given])  # fmt: skip
        return {output: found}

    return Case(name, {given: arriving}, forward, attributes)


def list_gradients() -> list[Case]:
    def maximum(x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(x, (3, 2), (2, 1), (1, 1))

    def respond(x: torch.Tensor) -> torch.Tensor:
        return functional.local_response_norm(x, 3, 0.5, 0.75, 1.5)

    def normalize(t: Tensors) -> Tensors:
        mean, variance, scale = (t[f"{n}Tensor"] for n in ("Mean", "Variance", "Scale"))
        inputs = (t["InputTensor"], scale, torch.zeros_like(scale).requires_grad_())
        found = backward(
            lambda x, s, b: (x - mean) / (variance + EPSILON).sqrt() * s + b, *inputs,
            given=t["InputGradientTensor"],
        )  # fmt: skip
        names = ("OutputGradientTensor", "OutputScaleGradientTensor", "OutputBiasGradientTensor")
        return dict(zip(names, found, strict=True))

    like = (1, 4, 1, 1)
    pooled, whole = normal(2, 4, 3, 6, seed=2), normal(*IMAGE.shape, seed=3)
    own: Given = {"InputTensor": IMAGE, "InputGradientTensor": pooled}
    twice = normal(2, 4, 12, 10, seed=4)
    resampled = {"InterpolationMode": "LINEAR", "Scales": [1, 1, 2, 2],
                 "InputPixelOffsets": [-0.5] * 4, "OutputPixelOffsets": [0.5] * 4}  # fmt: skip

    def double(x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x, (12, 10), mode="bilinear")

    def window(x: torch.Tensor) -> torch.Tensor:
        return x[:, 1:3, ::2, 1:5:3]

    both = ("InputGradientTensor", "OutputGradientTensor")
    return [
        linear("directml.AVERAGE_POOLING_GRAD", *both, lambda x: average(x, True), pooled, **TAPS,
               IncludePadding=True),
        linear("onednn.AvgPoolBackward", "diff_dst", "diff_src", lambda x: average(x, False),
               pooled, **WINDOW, exclude_pad=True),
        linear("directml.RESAMPLE_GRAD", *both, double, twice, **resampled),
        linear("directml.RESAMPLE_GRAD1", *both, double, twice, **resampled,
               RoundingDirection="DECREASING"),
        linear("directml.SLICE_GRAD", *both, window, normal(2, 2, 3, 2, seed=5),
               InputWindowOffsets=[0, 1, 0, 1], InputWindowSizes=[2, 2, 6, 4],
               InputWindowStrides=[1, 1, 2, 3]),
        Case(
            "onednn.InterpolateBackward",
            {"src": IMAGE, "diff_dst": twice},
            lambda t: {"diff_src": backward(double, t["src"], given=t["diff_dst"])[0]},
            {"mode": "bilinear", "data_format": "NCX"},
        ),
        Case(
            "onednn.ReLUBackward",
            {"src": IMAGE, "diff_dst": whole},
            lambda t: {"diff_src": backward(torch.relu, t["src"], given=t["diff_dst"])[0]},
            {"use_dst": False},
        ),
        Case(
            "onednn.MaxPoolBackward",
            {"src": IMAGE, "diff_dst": pooled},
            lambda t: {"diff_src": backward(maximum, t["src"], given=t["diff_dst"])[0]},
            WINDOW,
        ),
        *(
            Case(
                f"directml.{name}",
                {**own, "InputGradientTensor": arriving},
                lambda t, of=of: {"OutputGradientTensor": backward(
                    of, t["InputTensor"], given=t["InputGradientTensor"])[0]},
                attributes,
            )
            for name, of, arriving, attributes in (
                ("ACTIVATION_RELU_GRAD", torch.relu, whole, {}),
                ("MAX_POOLING_GRAD", maximum, pooled, {**TAPS, "Dilations": [1, 1]}),
                ("LOCAL_RESPONSE_NORMALIZATION_GRAD", respond, whole,
                 {"CrossChannel": True, "LocalSize": 3, "Alpha": 0.5, "Beta": 0.75, "Bias": 1.5}),
            )
        ),
        Case(
            "directml.BATCH_NORMALIZATION_GRAD",
            {"InputTensor": IMAGE, "InputGradientTensor": whole,
             "MeanTensor": normal(*like, seed=6), "VarianceTensor": positive(*like, seed=7),
             "ScaleTensor": normal(*like, seed=8)},
            normalize,
            {"Epsilon": EPSILON},
        ),
    ]  # fmt: skip


def list_element_wise() -> list[Case]:
    return [
        Case(f"directml.{name}", given, lambda t, of=way: {"OutputTensor": of(t)}, attributes)
        for name, given, way, attributes in torch_element_wise.list_calls()
    ]


CASES = [
    *list_activations(),
    *list_reductions(),
    *list_normalizations(),
    *list_moves(),
    *list_windows(),
    *list_resampling(),
    *list_products(),
    *list_gradients(),
]

ELEMENT_WISE = list_element_wise()
"""Run on the reference alone: what one formula becomes on devices does not depend on which."""
RUNS = [(c, d) for c in CASES for d in DEVICES] + [(c, "reference") for c in ELEMENT_WISE]

NOT_IN_PYTORCH = {
    **{
        name: "gives or takes no floats"
        for name, summary in read_index().items()
        if not summary.differentiable
    },
    **{f"directml.{name}": why for name, why in torch_element_wise.WITHOUT.items()},
    "directml.ADAM_OPTIMIZER": "its optimizers have no gradient",
    "directml.BATCH_NORMALIZATION_TRAINING_GRAD": "the statistics are inputs",
    **dict.fromkeys(
        [
            f"directml.{name}"
            for name in ("ROI_ALIGN", "ROI_ALIGN1", "ROI_ALIGN_GRAD", "ROI_POOLING")
        ],
        "a package of its own has them",
    ),
    "onednn.BatchNormTrainingBackward": "the statistics are inputs",
    "onednn.LayerNormBackward": "the statistics are inputs",
}
"""Operators that it lacks, or that have no gradient there, and why."""


def to_leaf(array: Array) -> torch.Tensor:
    if array.dtype.kind != "f":
        return torch.from_numpy(array)
    return torch.from_numpy(array.astype(np.float64)).requires_grad_()


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Every tensor, those of arrays of tensors by number."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Sequence):
            found |= {f"{name}[{n}]": one for n, one in enumerate(value)}
        else:
            found[name] = value
    return found


FORMS = {
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), "the form with an order is compared"),
    **dict.fromkeys(("LP_POOLING1", "MAX_POOLING1", "PADDING1", "TOP_K"), "another is compared"),
    **dict.fromkeys(("MEAN_VARIANCE_NORMALIZATION", "MEAN_VARIANCE_NORMALIZATION2"),
                    "the one with axes is compared"),
    "MULTIHEAD_ATTENTION1": "the one without is compared",
    "ACTIVATION_SOFTMAX": "the one with axes is compared",
    "ACTIVATION_LOG_SOFTMAX": "the one with axes is compared",
    "ACTIVATION_HARDMAX": "its gradient is 0 everywhere",
    "ACTIVATION_HARDMAX1": "its gradient is 0 everywhere",
    "CUMULATIVE_SUMMATION": "torch.cumsum is beside it in test_torch_order",
    "DIAGONAL_MATRIX1": "it copies what is off a diagonal",
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": "PyTorch has no product of integers in floats",
    "REVERSE_SUBSEQUENCES": "it copies",
    "DynamicDequantize": "its scales come as a tensor",
    "Reorder": "it copies", "Select": "it copies", "TypeCast": "it copies",
    "BiasAdd": "the sum is compared, and BiasAddBackward",
    "LSTM_CELL": "LSTM is compared", "ACTIVATION_PARAMETERIZED_RELU": "onednn.PReLU is compared",
}  # fmt: skip
"""What no test compares with PyTorch, and why."""


def test_every_operator_is_compared() -> None:
    """Here, or under its name in another of these files: without what marks it as an activation or
    as the gradient of another."""
    compared = {case.operator for case, _ in RUNS}
    assert not compared & set(NOT_IN_PYTORCH)
    texts = " ".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("*.py"))
    words = set(re.findall(r"\w+", texts))
    missing: list[str] = []
    for name in set(dmlc.operators()) - compared - set(NOT_IN_PYTORCH):
        short = name.partition(".")[2]
        plain = re.sub("^ACTIVATION_|_GRAD$|Backward$", "", short)
        if short not in FORMS and not {short, plain} & words:
            missing.append(name)
    assert missing == []


@pytest.mark.grid(3, every="case")
@pytest.mark.parametrize(
    ("case", "device"), RUNS, ids=[f"{n}-{c.operator}-{d}" for n, (c, d) in enumerate(RUNS)]
)
def test_derived_gradients(case: Case, device: str) -> None:
    leaves = {
        name: [to_leaf(a) for a in given] if isinstance(given, list) else to_leaf(given)
        for name, given in case.inputs.items()
    }
    values = flatten(case.forward(leaves))
    tensors = {name: leaf for name, leaf in flatten(leaves).items() if leaf.requires_grad}
    arriving = {n: normal(*v.shape, seed=20 + k) for k, (n, v) in enumerate(values.items())}
    back = [torch.from_numpy(a.astype(np.float64)) for a in arriving.values()]
    theirs = torch.autograd.grad(
        list(values.values()), list(tensors.values()), back, materialize_grads=True
    )
    wrt = dict.fromkeys(name.partition("[")[0] for name in tensors)
    gradient = dmlc.gradient(case.operator, wrt=list(wrt))
    given = {**case.inputs, **{f"d_{name}": array for name, array in arriving.items()}}
    sizes = {f"d_{name}": tuple(leaf.shape) for name, leaf in tensors.items()}
    vanishing = [n for n, g in zip(tensors, theirs, strict=True) if not g.count_nonzero()]
    expectation = contextlib.nullcontext()
    if vanishing:
        expectation = pytest.warns(UserWarning, match=f"'d_{vanishing[0]}' is 0 everywhere")
    with expectation:
        found = dmlc.run(gradient, given, case.attributes, sizes, device)
    for name, expected in zip(tensors, theirs, strict=True):
        check(found[f"d_{name}"], expected.numpy())
