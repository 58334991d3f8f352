"""Every gradient of the library that is written by hand, held to its forward operator: to what is
derived from it, in the reference and on devices, and to differences of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import pytest

import dmlc
from dmlc.testing.case import Call, Case
from dmlc.testing.pairs import (
    PairVerdict,
    check_differences,
    check_pair,
    find_forward,
    is_pair,
    make_pair,
)
from tests.library.run import Array, normal

Sizes = tuple[int, ...]


def make_case(
    name: str,
    inputs: dict[str, Array | Sizes],
    attributes: dict[str, object] | None = None,
    **outputs: Sizes,
) -> Case:
    """A case of a gradient. What stands as sizes is drawn; what the forward operator gives is
    computed anew, and any numbers will do for it."""
    operator = dmlc.operator(name)
    arrays = {
        n: normal(*a, seed=seed) if isinstance(a, tuple) else a.astype(np.float32)
        for seed, (n, a) in enumerate(inputs.items())
    }
    given = {n: dmlc.TensorDesc("FLOAT32", a.shape) for n, a in arrays.items()}
    given |= {n: dmlc.TensorDesc("FLOAT32", sizes) for n, sizes in outputs.items()}
    bound = operator.resolve(given, attributes)
    tensors = {t.name: dmlc.TensorDesc("FLOAT32", t.sizes) for t in bound.tensors.values()}
    sizes = ", ".join(str(a.shape) for a in arrays.values())
    return Case(Call(operator, tensors, attributes or {}), arrays, f"{name} {sizes} {attributes}")


def away_from_zero(*sizes: int) -> Array:
    """Values at which a rectifier has a slope."""
    values = normal(*sizes, dtype=np.float64)
    return np.sign(values) * (np.abs(values) + 0.1)


def distinct(*sizes: int) -> Array:
    """Values of which no two are near: a small change leaves the largest where it is."""
    count = math.prod(sizes)
    return (np.random.default_rng(5).permutation(count) / 4.0).reshape(sizes)


def relu_cases() -> list[Case]:
    x, dy = away_from_zero(3, 4), (3, 4)
    relu = "directml.ACTIVATION_RELU_GRAD"
    return [
        make_case(relu, {"InputTensor": x, "InputGradientTensor": dy}),
        make_case("onednn.ReLUBackward", {"src": x, "diff_dst": dy}),
        make_case("onednn.ReLUBackward", {"src": x, "diff_dst": dy}, {"use_dst": False}),
    ]


def onednn_elementwise_cases() -> list[Case]:
    """From arguments, and from results where the operator takes these."""
    lines: dict[str, object] = {"alpha": 0.3, "beta": 0.4}
    by_src: dict[str, tuple[Array, dict[str, object]]] = {
        "Abs": (away_from_zero(3, 4), {}),
        "HardSigmoid": (away_from_zero(3, 4), lines),
        "SoftPlus": (away_from_zero(3, 4), {"beta": 0.7}),
        "Sqrt": (np.abs(away_from_zero(3, 4)), {"use_dst": False}),
    }
    by_both: dict[str, tuple[Array, dict[str, object]]] = {
        "Clamp": (away_from_zero(3, 4), {"min": -0.75, "max": 1.0}),
        "Elu": (away_from_zero(3, 4), {"alpha": 0.6}),
        "Sigmoid": (away_from_zero(3, 4), {}),
        "Tanh": (away_from_zero(3, 4), {}),
    }
    settings = [(name, x, given) for name, (x, given) in by_src.items()]
    settings += [
        (name, x, {**given, "use_dst": use_dst})
        for name, (x, given) in by_both.items()
        for use_dst in (True, False)
    ]
    return [
        make_case(f"onednn.{name}Backward", {"src": x, "diff_dst": (3, 4)}, given)
        for name, x, given in settings
    ]


def clip_cases() -> list[Case]:
    """Bounds at which no value is."""
    given: dict[str, Array | Sizes] = {
        "InputTensor": distinct(3, 4),
        "InputGradientTensor": (3, 4),
    }
    bounds: dict[str, object] = {"Min": 0.375, "Max": 2.125}
    return [
        make_case(f"directml.ELEMENT_WISE_{name}", given, bounds)
        for name in ("CLIP_GRAD", "CLIP_GRAD1")
    ]


def batch_norm_cases() -> list[Case]:
    made: list[Case] = []
    shape = (3, 2, 4)
    for like in ((1, 1, 1), (3, 1, 1), (1, 2, 1), (3, 2, 1), (1, 2, 4)):
        variance = np.abs(normal(*like, seed=7)) + 0.5
        inputs = {"InputTensor": shape, "InputGradientTensor": shape, "MeanTensor": like,
                  "VarianceTensor": variance, "ScaleTensor": like}  # fmt: skip
        made += [
            make_case(f"directml.BATCH_NORMALIZATION_{name}", inputs, {"Epsilon": 0.01})
            for name in ("TRAINING_GRAD", "GRAD")
        ]
    return made


def onednn_norm_cases() -> list[Case]:
    made: list[Case] = []
    for layout, shape in (("NCX", (2, 3, 4)), ("NXC", (2, 4, 3)), ("NXC", (5, 3))):
        made.append(make_case(
            "onednn.BatchNormTrainingBackward",
            {"src": shape, "diff_dst": shape, "mean": (3,), "variance": (3,), "gamma": (3,)},
            {"epsilon": 0.01, "data_format": layout}, diff_gamma=(3,), diff_beta=(3,),
        ))  # fmt: skip
    for begin, shape in ((-1, (4, 3)), (-1, (2, 2, 3)), (1, (3, 2, 3))):
        kept = shape[: begin % len(shape)]
        made.append(make_case(
            "onednn.LayerNormBackward",
            {"src": shape, "diff_dst": shape, "mean": kept, "variance": kept, "gamma": (3,)},
            {"epsilon": 0.01, "begin_norm_axis": begin}, diff_gamma=(3,), diff_beta=(3,),
        ))  # fmt: skip
    return made


def softmax_cases() -> list[Case]:
    shape = (3, 4, 2)
    return [
        make_case(f"onednn.{name}Backward", {"diff_dst": shape, "dst": shape}, {"axis": axis})
        for name in ("SoftMax", "LogSoftmax")
        for axis in (0, 1, -1)
    ]


def resample_cases() -> list[Case]:
    made: list[Case] = []
    for mode, direction in (("LINEAR", "DECREASING"), ("NEAREST_NEIGHBOR", "INCREASING")):
        attributes = {"InterpolationMode": mode, "Scales": [1.0, 1.0, 0.7, 1.5],
                      "InputPixelOffsets": [-0.5] * 4, "OutputPixelOffsets": [0.5] * 4}  # fmt: skip
        for name, more in (("GRAD1", {"RoundingDirection": direction}), ("GRAD", {})):
            made.append(make_case(
                f"directml.RESAMPLE_{name}", {"InputGradientTensor": (1, 2, 3, 5)},
                {**attributes, **more}, OutputGradientTensor=(1, 2, 4, 3),
            ))  # fmt: skip
    for mode, corners in (("bilinear", "half_pixel"), ("bilinear", "align_corners"),
                          ("nearest", "half_pixel")):  # fmt: skip
        made.append(make_case(
            "onednn.InterpolateBackward", {"src": (1, 3, 4, 2), "diff_dst": (1, 5, 3, 2)},
            {"mode": mode, "coordinate_transformation_mode": corners},
        ))  # fmt: skip
    return made


def pooled(size: int, window: int, stride: int, padding: int) -> int:
    return (size + padding - window) // stride + 1


def window_cases() -> list[Case]:
    made: list[Case] = []
    space = {"Strides": [2, 1], "WindowSize": [2, 3], "StartPadding": [1, 0], "EndPadding": [0, 1]}
    shape, x = (1, 2, 5, 4), distinct(1, 2, 5, 4)
    small = (1, 2, pooled(5, 2, 2, 1), pooled(4, 3, 1, 1))
    made += [
        make_case("directml.AVERAGE_POOLING_GRAD", {"InputGradientTensor": small},
                  {**space, "IncludePadding": included}, OutputGradientTensor=shape)
        for included in (True, False)
    ]  # fmt: skip
    made += [
        make_case(
            "directml.MAX_POOLING_GRAD",
            {"InputTensor": x, "InputGradientTensor": (1, 2, pooled(5, 3, 2, 1) + more, small[3])},
            {**space, "Dilations": [2, 1]},
        )
        for more in (0, 1)
    ]
    # Fewer windows than fit, and more.
    made += [
        make_case("directml.AVERAGE_POOLING_GRAD",
                  {"InputGradientTensor": (1, 2, small[2] - 1, small[3] + 1)},
                  {**space, "IncludePadding": included}, OutputGradientTensor=shape)
        for included in (True, False)
    ]  # fmt: skip
    for layout in ("NCX", "NXC"):
        common = {"strides": [2, 1], "kernel": [2, 3], "pads_begin": [1, 0], "pads_end": [0, 1],
                  "data_format": layout}  # fmt: skip
        high, wide, channels = (5, 4, 2) if layout == "NCX" else (2, 5, 4)
        for auto in ("none", "same_upper", "same_lower", "valid"):
            padding = 1 if auto == "none" else 0
            spread = [pooled(high, 2, 2, padding), pooled(wide, 3, 1, padding)]
            if auto.startswith("same"):
                spread = [math.ceil(high / 2), wide]
            given = (1, channels, *spread) if layout == "NCX" else (1, *spread, channels)
            made.append(make_case(
                "onednn.AvgPoolBackward", {"diff_dst": given},
                {**common, "auto_pad": auto, "exclude_pad": True}, diff_src=shape,
            ))  # fmt: skip
        high, wide, channels = (5, 4, 4) if layout == "NCX" else (4, 5, 4)
        spread = [pooled(high, 2, 2, 1), pooled(wide, 5, 1, 1)]
        given = (1, channels, *spread) if layout == "NCX" else (1, *spread, channels)
        made.append(make_case(
            "onednn.MaxPoolBackward", {"src": distinct(1, 4, 5, 4), "diff_dst": given},
            {**common, "dilations": [1, 2]},
        ))  # fmt: skip
    response = {"LocalSize": 2, "Alpha": 0.5, "Beta": 0.75, "Bias": 1.5}
    made += [
        make_case("directml.LOCAL_RESPONSE_NORMALIZATION_GRAD",
                  {"InputTensor": x, "InputGradientTensor": shape},
                  {"CrossChannel": across, **response})
        for across in (True, False)
    ]  # fmt: skip
    return made


def slice_cases() -> list[Case]:
    settings = {"InputWindowOffsets": [1, 0], "InputWindowSizes": [4, 5],
                "InputWindowStrides": [2, -3]}  # fmt: skip
    return [make_case("directml.SLICE_GRAD", {"InputGradientTensor": (2, 2)}, settings,
                      OutputGradientTensor=(5, 6))]  # fmt: skip


def convolution_cases() -> list[Case]:
    made: list[Case] = []
    for layout, kernel in (("NCX", "OIX"), ("NXC", "XIO")):
        x, w = ((1, 4, 5, 4), (6, 2, 2, 3)) if layout == "NCX" else ((1, 5, 4, 4), (2, 3, 2, 6))
        for auto, spread in (("none", (3, 3)), ("same_lower", (3, 4))):
            y = (1, 6, *spread) if layout == "NCX" else (1, *spread, 6)
            settings = {"strides": [2, 1], "dilations": [1, 1], "pads_begin": [1, 0],
                        "pads_end": [0, 1], "groups": 2, "data_format": layout,
                        "weights_format": kernel, "auto_pad": auto}  # fmt: skip
            made.append(make_case("onednn.ConvolutionBackwardData",
                                  {"diff_dst": y, "weights": w}, settings, diff_src=x))  # fmt: skip
            made.append(make_case("onednn.ConvolutionBackwardWeights",
                                  {"src": x, "diff_dst": y}, settings, diff_weights=w))  # fmt: skip
    return made


def transposed_convolution_cases() -> list[Case]:
    made: list[Case] = []
    for layout, kernel in (("NCX", "IOX"), ("NXC", "XOI")):
        x, w = ((1, 6, 3, 2), (3, 4, 2, 3)) if layout == "NCX" else ((1, 3, 2, 6), (2, 3, 4, 3))
        for auto, spread in (("none", (6, 3)), ("same_lower", (7, 2)), ("valid", (7, 4))):
            y = (1, 4, *spread) if layout == "NCX" else (1, *spread, 4)
            settings = {"strides": [2, 1], "dilations": [1, 1], "pads_begin": [1, 0],
                        "pads_end": [0, 1], "output_padding": [1, 0], "groups": 2,
                        "data_format": layout, "weights_format": kernel,
                        "auto_pad": auto}  # fmt: skip
            made.append(make_case("onednn.ConvTransposeBackwardData",
                                  {"diff_dst": y, "weights": w}, settings))  # fmt: skip
            made.append(make_case("onednn.ConvTransposeBackwardWeights",
                                  {"src": x, "diff_dst": y}, settings, diff_weights=w))  # fmt: skip
    return made


CASES = [
    *clip_cases(), *relu_cases(), *onednn_elementwise_cases(), *batch_norm_cases(),
    *onednn_norm_cases(), *softmax_cases(), *resample_cases(), *window_cases(), *slice_cases(),
    *convolution_cases(), *transposed_convolution_cases(),
]  # fmt: skip
NAMED = [pytest.param(case.call.operator.name, case, id=case.title) for case in CASES]
"""The cases with their operators: a run takes some of each operator."""


def test_every_gradient_of_the_library_is_checked() -> None:
    gradients = {n for n, o in dmlc.operators().items() if is_pair(o)}
    assert gradients == {case.call.operator.name for case in CASES}


def hold(found: dict[str, PairVerdict], case: Case) -> None:
    """Every output agrees, at every element: the data are away from kinks."""
    assert list(found) == list(case.call.outputs)
    for name, verdict in found.items():
        assert verdict.holds, str(verdict)
        assert verdict.judged == math.prod(case.call.tensors[name].sizes or ())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_gradients_are_those_of_the_forward_operator(case: Case) -> None:
    hold(check_pair(case), case)


@pytest.mark.grid(2, every="name")
@pytest.mark.parametrize(("name", "case"), NAMED)
def test_gradients_are_differences_of_the_forward_operator(name: str, case: Case) -> None:
    assert name == case.call.operator.name
    hold(check_differences(case), case)


# Derived --------------------------------------------------------------------------------------


SPECIAL = {
    "smooth": [],
    "ties": [0.0, 0.0, 1.0, 1.0, -1.0],
    "zeros of both signs": [0.0, -0.0],
    "NaN": [1.0, 2.0, np.nan, 0.5, -1.0],
    "infinity": [1.0, np.inf, -1.0, 2.0, 0.5],
    "minus infinity": [1.0, -np.inf, 2.0, 0.5, 0.25],
}
"""What the data are made of where a gradient is a choice, or a special value."""

CHOOSING = (
    "directml.ACTIVATION_RELU_GRAD",
    "directml.ELEMENT_WISE_CLIP_GRAD",
    "directml.ELEMENT_WISE_CLIP_GRAD1",
    "directml.MAX_POOLING_GRAD",
    "onednn.AbsBackward",
    "onednn.ClampBackward",
    "onednn.HardSigmoidBackward",
    "onednn.MaxPoolBackward",
    "onednn.ReLUBackward",
)
"""The operators that choose where a gradient goes: it is 0 elsewhere, exactly."""


def list_distinct(cases: Sequence[Case]) -> list[Case]:
    """At most three cases of each operator."""
    counts: dict[str, int] = {}
    found: list[Case] = []
    for case in cases:
        name = case.call.operator.name
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= 3:
            found.append(case)
    return found


@functools.cache
def data_of(name: str) -> str:
    """The first input of a gradient's forward operator."""
    return find_forward(dmlc.operator(name)).newest.inputs[0].name


@pytest.mark.grid(2, every="name")
@pytest.mark.parametrize(("name", "case"), NAMED)
def test_derived_gradients_are_those_of_the_library(name: str, case: Case) -> None:
    assert name == case.call.operator.name
    check_derived(case, "reference")


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", ["opencl", "vulkan"])
@pytest.mark.parametrize("case", list_distinct(CASES), ids=lambda case: case.title)
def test_derived_gradients_on_devices(case: Case, device: str) -> None:
    check_derived(case, device)


def check_derived(case: Case, device: str) -> None:
    """Holds a derived gradient to the one that the library has: within what both may be off by,
    and exactly in where it is 0, infinite or NaN."""
    pair, name = make_pair(case), case.call.operator.name
    shown = {shown: own for own, shown in pair.shown.items()}
    data = shown[data_of(name)]
    source = np.random.default_rng(3)
    for label, values in SPECIAL.items():
        drawn = source.choice(values, pair.inputs[data].shape) if values else pair.inputs[data]
        inputs = {**pair.inputs, data: drawn.astype(np.float32)}
        moved = pair.with_inputs(inputs)
        found = [dmlc.run(f, moved.take(f), device=device) for f in (pair.written, pair.derived)]
        allowed = [moved.bound(f) for f in (pair.written, pair.derived)]
        for output in pair.outputs:
            expected, actual = found[0][output], found[1][output]
            bounds = [bound[output] for bound in allowed]
            for ask in (np.isnan, np.isposinf, np.isneginf):
                np.testing.assert_array_equal(ask(actual), ask(expected), err_msg=label)
            finite = np.isfinite(expected)
            most = (bounds[0] + bounds[1])[finite]
            assert (np.abs(expected[finite] - actual[finite]) <= most).all(), label
            chosen = (expected == 0) | (actual == 0)
            if name in CHOOSING:
                np.testing.assert_array_equal(expected[chosen], actual[chosen], err_msg=label)
