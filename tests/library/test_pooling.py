"""Pooling with places, and its gradient: the windows alone are walked, and ties go to the first."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

import dmlc
from dmlc import DataType, TensorDesc, ir
from dmlc.pipeline import compile, describe_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from tests.library.run import DEVICES, check, normal, wide
from tests.opencl_launch import run_program


def count_windows(size: int, window: int, stride: int, pad: int, dilation: int) -> int:
    return (size + 2 * pad - (window - 1) * dilation - 1) // stride + 1


def bind(
    name: str,
    space: Sequence[int],
    windows: Sequence[Sequence[int]],
    dtype: DataType = DataType.FLOAT32,
) -> ir.Function:
    """An operator over images of one channel; `windows` are window, stride, padding and dilation
    along each axis."""
    columns = [list(column) for column in zip(*windows, strict=True)]
    window, stride, pad, dilation = columns
    attributes: dict[str, object] = {
        "WindowSize": window,
        "Strides": stride,
        "StartPadding": pad,
        "EndPadding": pad,
        "Dilations": dilation,
    }
    outer = (2, 1)
    image = TensorDesc(dtype, (*outer, *space))
    sizes = (count_windows(n, *each) for n, each in zip(space, windows, strict=True))
    pooled = (*outer, *sizes)
    tensors = {"InputTensor": image}
    if name == "MAX_POOLING_GRAD":
        tensors |= {
            "InputGradientTensor": TensorDesc(dtype, pooled),
            "OutputGradientTensor": image,
        }
    else:
        tensors |= {
            "OutputTensor": TensorDesc(dtype, pooled),
            "OutputIndicesTensor": TensorDesc(DataType.UINT32, pooled),
        }
    return dmlc.operator(f"directml.{name}").bind(tensors, attributes)


def make_inputs(function: ir.Function, seed: int, special: float | None) -> dict[str, Array]:
    """Few different whole numbers, so that most windows have ties."""
    random = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for parameter in function.parameters:
        shape = tuple(e for e in parameter.extents if isinstance(e, int))
        values: Array = random.integers(0, 4, shape).astype(parameter.dtype.dtype)
        if special is not None and parameter.name == "InputTensor":
            values[random.random(shape) < 0.3] = special
        made[parameter.name] = values
    return made


CASES: list[tuple[tuple[int, ...], list[tuple[int, int, int, int]]]] = [
    ((20, 40), [(2, 2, 0, 1), (2, 2, 0, 1)]),
    ((21, 37), [(3, 2, 1, 1), (3, 2, 1, 1)]),
    ((12, 33), [(2, 1, 1, 3), (3, 1, 2, 2)]),
    ((9, 50), [(3, 3, 0, 1), (4, 3, 1, 1)]),
    ((4, 9, 20), [(2, 2, 1, 1), (3, 2, 0, 1), (3, 1, 1, 1)]),
]


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("name", ["MAX_POOLING2", "MAX_POOLING_GRAD"])
@pytest.mark.parametrize(("space", "windows"), CASES)
def test_windows(
    space: tuple[int, ...], windows: list[tuple[int, int, int, int]], name: str, profile: str
) -> None:
    function = bind(name, space, windows)
    program = compile(function, "opencl", profile)
    for seed, special in enumerate((None, np.nan, -np.inf)):
        inputs = make_inputs(function, seed, special)
        wanted = evaluate(function, inputs)
        for result, values in run_program(program, inputs).items():
            np.testing.assert_array_equal(values, wanted[result])


@pytest.mark.parametrize("dtype", [DataType.FLOAT16, DataType.INT8, DataType.INT64])
def test_other_types(dtype: DataType) -> None:
    function = bind("MAX_POOLING2", (20, 40), [(3, 2, 1, 1), (3, 2, 1, 1)], dtype)
    inputs = make_inputs(function, 0, None)
    wanted = evaluate(function, inputs)
    for result, values in run_program(compile(function, "opencl", "cpu"), inputs).items():
        np.testing.assert_array_equal(values, wanted[result])


TARGETS = [("opencl", "cpu"), ("opencl", "gpu"), ("hlsl", "gpu")]


@pytest.mark.parametrize(("target", "profile"), TARGETS)
@pytest.mark.parametrize("space", [(112, 112), (16, 4000)])
@pytest.mark.parametrize("window", [(2, 2, 0, 1), (3, 2, 1, 1)])
def test_no_kernel_walks_the_image(
    window: tuple[int, int, int, int], space: tuple[int, int], target: str, profile: str
) -> None:
    function = bind("MAX_POOLING_GRAD", space, [window, window])
    text = describe_kernels(function, target, profile)
    folds = re.findall(r"for k\d* in 0 \.\. (\d+)", text)
    # A GPU's windows may be written out whole.
    assert folds or profile == "gpu"
    # What computes several elements has a loop of four.
    assert {int(stop) for stop in folds} <= {2, 3, 4}


WINDOWED: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, object]]] = {
    "AVERAGE_POOLING1": ({}, {"IncludePadding": True}),
    "LP_POOLING1": ({}, {"P": 2}),
    "MAX_POOLING2": ({}, {}),
    "CONVOLUTION": ({"FilterTensor": (2, 3, 3, 2)}, {"OutputPadding": [0, 0]}),
}
"""Inputs and attributes beside those that windows have."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", WINDOWED)
def test_windows_beyond_the_end_are_of_padding(name: str, device: str) -> None:
    """More windows than fit, and fewer, are those that as much more padding has."""
    more, attributes = WINDOWED[name]
    operator = dmlc.operator(f"directml.{name}")
    shapes = {"InputTensor": (2, 3, 9, 20), **more}
    inputs = {n: normal(*sizes, seed=len(n)) for n, sizes in shapes.items()}
    common: dict[str, object] = {"Strides": [2, 3], "StartPadding": [1, 0], "Dilations": [1, 2]}
    if "FilterTensor" not in shapes:
        common["WindowSize"] = [3, 2]
    outer = (2, 2 if "FilterTensor" in shapes else 3)
    for rows, columns in ((7, 9), (2, 3), (4, 7)):
        # Windows of 3 by 3, dilated, every 2 and 3 elements.
        end = [max(0, (rows - 1) * 2 + 3 - 1 - 9), max(0, (columns - 1) * 3 + 3 - 20)]
        sizes = (*outer, rows, columns)
        given = {**common, **attributes, "EndPadding": [0, 0]}
        found = dmlc.run(operator, inputs, given, {"OutputTensor": sizes}, device)["OutputTensor"]
        padded = dmlc.run(operator, inputs, {**given, "EndPadding": end})["OutputTensor"]
        check(found, wide(padded[:, :, :rows, :columns]))


def test_output_sizes_that_are_not_given_are_of_the_windows_that_fit() -> None:
    operator = dmlc.operator("directml.AVERAGE_POOLING")
    attributes = {"Strides": [1, 2], "WindowSize": [1, 2], "StartPadding": [0, 0],
                  "EndPadding": [0, 0], "IncludePadding": False}  # fmt: skip
    images = {"InputTensor": (1, 2, 3, "W")}
    left_open = operator.bind(images, attributes)
    assert left_open.stages[-1].extents == (1, 2, 3, "(W / 2)")
    wider = operator.bind({**images, "OutputTensor": (1, 2, 3, "((W + 1) / 2)")}, attributes)
    assert wider.stages[-1].extents == (1, 2, 3, "((W + 1) / 2)")
    assert not wider.checks
    with pytest.raises(dmlc.DmlcError, match="with any number of windows"):
        operator.bind({"InputTensor": (1, 2, 3, 4), "OutputTensor": (1, 3, 3, 2)}, attributes)
