"""Every operator that names its forward operator, against differences of that operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc.binding import TensorDesc
from dmlc.ir import Function
from dmlc.reference import evaluate
from dmlc.testing.bounds import bound_errors
from dmlc.testing.gradients import difference_gradient, widen_floats
from dmlc.transform.differentiate import differentiate
from tests.library.run import Array, normal


@dataclasses.dataclass(frozen=True)
class Pair:
    """A gradient operator and how its tensors relate to its forward operator's.

    `given` makes the inputs of the gradient from the forward's inputs, its results, and the
    gradient that arrives at `result`; `found` says which output is with respect to which input.
    """

    gradient: str
    inputs: dict[str, Array]
    result: str
    given: Callable[[dict[str, Array], dict[str, Array], Array], dict[str, Array]]
    found: dict[str, str]
    forward_attributes: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    extra_results: dict[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict[str, tuple[int, ...]]
    )

    @property
    def id(self) -> str:
        shapes = ", ".join(str(a.shape) for a in self.inputs.values())
        return f"{self.gradient} {shapes} {self.attributes}"


def away_from_zero(*sizes: int) -> Array:
    """Values at which a rectifier has a slope."""
    values = normal(*sizes, dtype=np.float64)
    return np.sign(values) * (np.abs(values) + 0.1)


def relu_pairs() -> list[Pair]:
    x = away_from_zero(3, 4)
    return [
        Pair("directml.ACTIVATION_RELU_GRAD", {"InputTensor": x}, "OutputTensor",
             lambda i, r, dy: {**i, "InputGradientTensor": dy},
             {"OutputGradientTensor": "InputTensor"}),
        Pair("onednn.ReLUBackward", {"src": x}, "dst",
             lambda i, r, dy: {"src": r["dst"], "diff_dst": dy}, {"diff_src": "src"}),
        Pair("onednn.ReLUBackward", {"src": x}, "dst",
             lambda i, r, dy: {**i, "diff_dst": dy}, {"diff_src": "src"},
             attributes={"use_dst": False}),
    ]  # fmt: skip


def batch_norm_pairs() -> list[Pair]:
    made: list[Pair] = []
    epsilon = {"Epsilon": 0.01}
    shape = (3, 2, 4)
    for like in ((1, 1, 1), (3, 1, 1), (1, 2, 1), (3, 2, 1), (1, 2, 4)):
        x, scale, bias, mu = (normal(*s, seed=k, dtype=np.float64)
                              for k, s in enumerate((shape, like, like, like)))  # fmt: skip
        var = np.abs(normal(*like, seed=7, dtype=np.float64)) + 0.5
        inputs = {"InputTensor": x, "ScaleTensor": scale, "BiasTensor": bias}
        found = {"OutputGradientTensor": "InputTensor", "OutputScaleGradientTensor": "ScaleTensor",
                 "OutputBiasGradientTensor": "BiasTensor"}  # fmt: skip
        made.append(
            Pair("directml.BATCH_NORMALIZATION_TRAINING_GRAD", inputs, "OutputTensor",
                 lambda i, r, dy: {
                     "InputTensor": i["InputTensor"], "InputGradientTensor": dy,
                     "MeanTensor": r["OutputMeanTensor"],
                     "VarianceTensor": r["OutputVarianceTensor"], "ScaleTensor": i["ScaleTensor"],
                 }, found, epsilon, epsilon))  # fmt: skip
        made.append(
            Pair("directml.BATCH_NORMALIZATION_GRAD",
                 {**inputs, "MeanTensor": mu, "VarianceTensor": var}, "OutputTensor",
                 lambda i, r, dy: {"InputGradientTensor": dy,
                                   **{n: a for n, a in i.items() if n != "BiasTensor"}},
                 found, epsilon, epsilon))  # fmt: skip
    return made


def onednn_norm_pairs() -> list[Pair]:
    made: list[Pair] = []
    gamma, beta, zeros = normal(3, seed=1), normal(3, seed=2), np.zeros(3)
    found = {"diff_src": "src", "diff_gamma": "gamma", "diff_beta": "beta"}
    for layout, shape in (("NCX", (2, 3, 4)), ("NXC", (2, 4, 3)), ("NXC", (5, 3))):
        x = normal(*shape, dtype=np.float64)
        attributes = {"epsilon": 0.01, "data_format": layout}
        inputs = {"src": x, "mean": zeros, "variance": zeros, "gamma": gamma, "beta": beta}
        made.append(
            Pair("onednn.BatchNormTrainingBackward", inputs, "dst",
                 lambda i, r, dy: {"src": i["src"], "diff_dst": dy, "mean": r["batch_mean"],
                                   "variance": r["batch_variance"], "gamma": i["gamma"]},
                 found, attributes, attributes))  # fmt: skip
    for begin, shape in ((-1, (4, 3)), (-1, (2, 2, 3)), (1, (3, 2, 3))):
        x = normal(*shape, dtype=np.float64)
        attributes = {"epsilon": 0.01, "begin_norm_axis": begin}
        kept = shape[: begin % len(shape)]
        made.append(
            Pair("onednn.LayerNormBackward", {"src": x, "gamma": gamma, "beta": beta}, "dst",
                 lambda i, r, dy: {"src": i["src"], "diff_dst": dy, "mean": r["mean"],
                                   "variance": r["variance"], "gamma": i["gamma"]},
                 found, attributes, attributes, {"mean": kept, "variance": kept}))  # fmt: skip
    return made


def softmax_pairs() -> list[Pair]:
    x = normal(3, 4, 2, dtype=np.float64)
    return [
        Pair(f"onednn.{name}Backward", {"src": x}, "dst",
             lambda i, r, dy: {"diff_dst": dy, "dst": r["dst"]}, {"diff_src": "src"},
             {"axis": axis}, {"axis": axis})
        for name in ("SoftMax", "LogSoftmax")
        for axis in (0, 1, -1)
    ]  # fmt: skip


def distinct(*sizes: int) -> Array:
    """Values of which no two are near: a small change leaves the largest where it is."""
    count = int(np.prod(sizes))
    return (np.random.default_rng(5).permutation(count) / 4.0).reshape(sizes)


def resample_pairs() -> list[Pair]:
    made: list[Pair] = []
    found = {"OutputGradientTensor": "InputTensor"}
    for mode, direction in (("LINEAR", "DECREASING"), ("NEAREST_NEIGHBOR", "INCREASING")):
        attributes = {"InterpolationMode": mode, "Scales": [1.0, 1.0, 0.7, 1.5],
                      "InputPixelOffsets": [0.5] * 4, "OutputPixelOffsets": [-0.5] * 4}  # fmt: skip
        for name, more in (("GRAD1", {"RoundingDirection": direction}), ("GRAD", {})):
            made.append(
                Pair(f"directml.RESAMPLE_{name}",
                     {"InputTensor": normal(1, 2, 4, 3, dtype=np.float64)}, "OutputTensor",
                     lambda i, r, dy: {"InputGradientTensor": dy}, found,
                     {**attributes, **more}, {**attributes, **more},
                     {"OutputTensor": (1, 2, 3, 5)}))  # fmt: skip
    for mode, corners in (("bilinear", "half_pixel"), ("bilinear", "align_corners"),
                          ("nearest", "half_pixel")):  # fmt: skip
        attributes = {"mode": mode, "coordinate_transformation_mode": corners}
        made.append(
            Pair("onednn.InterpolateBackward", {"src": normal(1, 3, 4, 2, dtype=np.float64)},
                 "dst", lambda i, r, dy: {"src": i["src"], "diff_dst": dy}, {"diff_src": "src"},
                 attributes, attributes, {"dst": (1, 5, 3, 2)}))  # fmt: skip
    return made


def window_pairs() -> list[Pair]:
    made: list[Pair] = []
    space = {"Strides": [2, 1], "WindowSize": [2, 3], "StartPadding": [1, 0], "EndPadding": [0, 1]}
    x = distinct(1, 2, 5, 4)
    for included in (True, False):
        attributes = {**space, "IncludePadding": included}
        made.append(
            Pair("directml.AVERAGE_POOLING_GRAD", {"InputTensor": x}, "OutputTensor",
                 lambda i, r, dy: {"InputGradientTensor": dy},
                 {"OutputGradientTensor": "InputTensor"}, attributes, attributes))  # fmt: skip
    dilated = {**space, "Dilations": [2, 1]}
    made.append(
        Pair("directml.MAX_POOLING_GRAD", {"InputTensor": x}, "OutputTensor",
             lambda i, r, dy: {**i, "InputGradientTensor": dy},
             {"OutputGradientTensor": "InputTensor"}, dilated, dilated))  # fmt: skip
    for layout in ("NCX", "NXC"):
        common = {"strides": [2, 1], "kernel": [2, 3], "pads_begin": [1, 0], "pads_end": [0, 1],
                  "data_format": layout}  # fmt: skip
        for auto in ("none", "same_upper", "same_lower", "valid"):
            settings = {**common, "auto_pad": auto, "exclude_pad": True}
            made.append(
                Pair("onednn.AvgPoolBackward", {"src": x}, "dst",
                     lambda i, r, dy: {"diff_dst": dy}, {"diff_src": "src"},
                     settings, settings))  # fmt: skip
        settings = {**common, "dilations": [1, 2]}
        made.append(
            Pair("onednn.MaxPoolBackward", {"src": distinct(1, 4, 5, 4)}, "dst",
                 lambda i, r, dy: {**i, "diff_dst": dy}, {"diff_src": "src"},
                 settings, settings))  # fmt: skip
    for across in (True, False):
        settings = {"CrossChannel": across, "LocalSize": 2, "Alpha": 0.5, "Beta": 0.75,
                    "Bias": 1.5}  # fmt: skip
        made.append(
            Pair("directml.LOCAL_RESPONSE_NORMALIZATION_GRAD", {"InputTensor": x}, "OutputTensor",
                 lambda i, r, dy: {**i, "InputGradientTensor": dy},
                 {"OutputGradientTensor": "InputTensor"}, settings, settings))  # fmt: skip
    return made


def slice_pairs() -> list[Pair]:
    settings = {"InputWindowOffsets": [1, 0], "InputWindowSizes": [4, 5],
                "InputWindowStrides": [2, -3]}  # fmt: skip
    return [
        Pair("directml.SLICE_GRAD", {"InputTensor": normal(5, 6, dtype=np.float64)},
             "OutputTensor", lambda i, r, dy: {"InputGradientTensor": dy},
             {"OutputGradientTensor": "InputTensor"}, settings, settings)
    ]  # fmt: skip


def convolution_pairs() -> list[Pair]:
    made: list[Pair] = []
    for layout, kernel in (("NCX", "OIX"), ("NXC", "XIO")):
        x, w = ((1, 4, 5, 4), (6, 2, 2, 3)) if layout == "NCX" else ((1, 5, 4, 4), (2, 3, 2, 6))
        inputs = {"src": normal(*x, dtype=np.float64),
                  "weights": normal(*w, seed=1, dtype=np.float64)}  # fmt: skip
        for auto in ("none", "same_lower"):
            settings = {"strides": [2, 1], "dilations": [1, 1], "pads_begin": [1, 0],
                        "pads_end": [0, 1], "groups": 2, "data_format": layout,
                        "weights_format": kernel, "auto_pad": auto}  # fmt: skip
            made.append(
                Pair("onednn.ConvolutionBackwardData", inputs, "dst",
                     lambda i, r, dy: {"diff_dst": dy, "weights": i["weights"]},
                     {"diff_src": "src"}, settings, settings))  # fmt: skip
            made.append(
                Pair("onednn.ConvolutionBackwardWeights", inputs, "dst",
                     lambda i, r, dy: {"src": i["src"], "diff_dst": dy},
                     {"diff_weights": "weights"}, settings, settings))  # fmt: skip
    return made


PAIRS = [
    *relu_pairs(), *batch_norm_pairs(), *onednn_norm_pairs(), *softmax_pairs(), *resample_pairs(),
    *window_pairs(), *slice_pairs(), *convolution_pairs(),
]  # fmt: skip


def test_every_gradient_of_the_library_is_checked() -> None:
    gradients = {n for n, o in dmlc.operators().items() if o.definition.forward is not None}
    assert gradients == {pair.gradient for pair in PAIRS}


def bind(
    name: str,
    inputs: dict[str, Array],
    attributes: dict[str, Any],
    outputs: dict[str, tuple[int, ...]],
) -> Function:
    described = {n: TensorDesc("FLOAT32", a.shape) for n, a in inputs.items()}
    return dmlc.operator(name).bind({**described, **outputs}, attributes)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_gradients_are_those_of_the_forward_operator(pair: Pair) -> None:
    forward_name = dmlc.operator(pair.gradient).definition.forward
    assert forward_name is not None
    forward = bind(forward_name, pair.inputs, pair.forward_attributes, pair.extra_results)
    inputs = {n: a.astype(np.float64) for n, a in pair.inputs.items()}
    results = evaluate(widen_floats(forward), inputs)
    arriving = normal(*results[pair.result].shape, seed=99, dtype=np.float64)
    given = pair.given(inputs, results, arriving)
    optional = {n: inputs[i].shape for n, i in pair.found.items()}
    gradient = widen_floats(bind(pair.gradient, given, pair.attributes, optional))
    found = evaluate(gradient, given)
    for output, name in pair.found.items():
        expected = difference_gradient(forward, inputs, {pair.result: arriving}, name)
        np.testing.assert_allclose(found[output], expected, rtol=1e-6, atol=1e-8)


# Derived --------------------------------------------------------------------------------------


def derive(pair: Pair) -> Function:
    """The gradient of a pair, derived from its forward operator."""
    forward_name = dmlc.operator(pair.gradient).definition.forward
    assert forward_name is not None
    forward = bind(forward_name, pair.inputs, pair.forward_attributes, pair.extra_results)
    names = {name: output for output, name in pair.found.items()}
    return differentiate(forward, list(names), {pair.result: "arriving"}, names).function


def take_inputs(function: Function, known: dict[str, Array], dtype: type) -> dict[str, Array]:
    return {p.name: np.asarray(known[p.name], dtype) for p in function.parameters}


SPECIAL = {
    "ties": [0.0, 0.0, 1.0, 1.0, -1.0],
    "zeros of both signs": [0.0, -0.0],
    "NaN": [1.0, 2.0, np.nan, 0.5, -1.0],
    "infinity": [1.0, np.inf, -1.0, 2.0, 0.5],
    "minus infinity": [1.0, -np.inf, 2.0, 0.5, 0.25],
}
"""What the data are made of where a gradient is a choice, or a special value."""


def list_cases(pair: Pair) -> dict[str, dict[str, Array]]:
    """The inputs of the forward operator: as they are, and with special data."""
    data = next(iter(pair.inputs))
    source = np.random.default_rng(3)
    return {
        "smooth": pair.inputs,
        **{
            label: {**pair.inputs, data: source.choice(values, pair.inputs[data].shape)}
            for label, values in SPECIAL.items()
        },
    }


def list_distinct(pairs: list[Pair]) -> list[Pair]:
    """At most three pairs of each operator."""
    counts: dict[str, int] = {}
    found: list[Pair] = []
    for pair in pairs:
        counts[pair.gradient] = counts.get(pair.gradient, 0) + 1
        if counts[pair.gradient] <= 3:
            found.append(pair)
    return found


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_derived_gradients_are_those_of_the_library(pair: Pair) -> None:
    check_derived(pair, "reference")


@pytest.mark.parametrize("device", ["opencl", "vulkan"])
@pytest.mark.parametrize("pair", list_distinct(PAIRS), ids=lambda pair: pair.id)
def test_derived_gradients_on_devices(pair: Pair, device: str) -> None:
    check_derived(pair, device)


def check_derived(pair: Pair, device: str) -> None:
    """Holds a derived gradient to the one that the library has: within what both may be off by,
    and exactly in where it is 0, infinite or NaN."""
    forward_name = dmlc.operator(pair.gradient).definition.forward
    assert forward_name is not None
    forward = bind(forward_name, pair.inputs, pair.forward_attributes, pair.extra_results)
    derived, gradient = derive(pair), None
    for label, inputs in list_cases(pair).items():
        results = evaluate(forward, take_inputs(forward, inputs, np.float32))
        arriving = normal(*results[pair.result].shape, seed=99)
        given = pair.given({n: np.asarray(a, np.float32) for n, a in inputs.items()},
                           results, arriving)  # fmt: skip
        if gradient is None:
            optional = {n: inputs[i].shape for n, i in pair.found.items()}
            gradient = bind(pair.gradient, given, pair.attributes, optional)
        found: list[dict[str, Array]] = []
        allowed: list[dict[str, Array]] = []
        for function, known in ((gradient, given), (derived, {**inputs, "arriving": arriving})):
            own = take_inputs(function, known, np.float32)
            found.append(dmlc.run(function, own, device=device))
            with np.errstate(all="ignore"):
                allowed.append(bound_errors(function, own))
        for output in pair.found:
            expected, actual = found[0][output], found[1][output]
            for ask in (np.isnan, np.isposinf, np.isneginf):
                np.testing.assert_array_equal(ask(actual), ask(expected), err_msg=label)
            finite = np.isfinite(expected)
            most = (allowed[0][output] + allowed[1][output])[finite]
            assert (np.abs(expected[finite] - actual[finite]) <= most).all(), label
            chosen = (expected == 0) | (actual == 0)
            if pair.gradient in CHOOSING:
                np.testing.assert_array_equal(expected[chosen], actual[chosen], err_msg=label)


CHOOSING = (
    "directml.ACTIVATION_RELU_GRAD",
    "directml.MAX_POOLING_GRAD",
    "onednn.MaxPoolBackward",
    "onednn.ReLUBackward",
)
"""The operators that choose where a gradient goes: it is 0 elsewhere, exactly."""
