"""Fourier transforms of ONNX beside those of NumPy in double precision: every way in which a
transform is computed, and what it costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlc
from dmlc.onnx import ImportedModel

LENGTHS = {
    "one product": (1, 2, 7, 12, 31),
    "two products": (60, 128, 400),
    "three products": (1000,),
    "a convolution": (2063,),
}
"""Lengths by what complex points of theirs are transformed by."""
LIMIT = {np.float16: 2e-3, np.float32: 2e-6, np.float64: 1e-14}
"""Largest error beside the largest value."""


def load(
    x: Any, axis: int = 1, length: int | None = None, open_batch: bool = False, **attributes: Any
) -> ImportedModel:
    """A model of a DFT along an axis."""
    held = {"axis": axis} if length is None else {"axis": axis, "length": length}
    node = helper.make_node(
        "DFT", ["x", "" if length is None else "length", "axis"], ["y"], **attributes
    )
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    sizes = ["N", *x.shape[1:]] if open_batch else x.shape
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, sizes)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in held.items()],
    )  # fmt: skip
    return dmlc.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))


def check(found: Any, wanted: Any, dtype: type[np.floating[Any]]) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= LIMIT[dtype] * np.abs(wanted).max()


def part(values: Any) -> Any:
    return np.stack([values.real, values.imag], -1)


def draw(*sizes: int, dtype: type[np.floating[Any]] = np.float32) -> Any:
    return np.random.default_rng(1).standard_normal(sizes).astype(dtype)


@pytest.mark.parametrize("length", [n for lengths in LENGTHS.values() for n in lengths])
def test_all_lengths(length: int) -> None:
    """Forward and inverse transforms of complex points, and of real ones, whole and one-sided."""
    x, real = draw(2, length, 2), draw(2, length, 1)
    numbers = x.astype(np.float64)[..., 0] + 1j * x.astype(np.float64)[..., 1]
    check(load(x).run({"x": x})["y"], part(np.fft.fft(numbers)), np.float32)
    check(load(x, inverse=1).run({"x": x})["y"], part(np.fft.ifft(numbers)), np.float32)
    wanted = part(np.fft.fft(real.astype(np.float64)[..., 0]))
    check(load(real).run({"x": real})["y"], wanted, np.float32)
    half = load(real, onesided=1).run({"x": real})["y"]
    check(half, wanted[:, : length // 2 + 1], np.float32)
    spectrum = x[:, : length // 2 + 1]
    signal = np.fft.irfft(numbers[:, : length // 2 + 1], length)
    back = load(spectrum, length=length, inverse=1, onesided=1).run({"x": spectrum})["y"]
    check(back[..., 0], signal, np.float32)


@pytest.mark.parametrize("dtype", LIMIT)
def test_types(dtype: type[np.floating[Any]]) -> None:
    x = draw(3, 300, 1, dtype=dtype)
    wanted = part(np.fft.rfft(x.astype(np.float64)[..., 0]))
    check(load(x, onesided=1).run({"x": x})["y"], wanted, dtype)


@pytest.mark.parametrize(("size", "length"), [(400, 512), (390, 512), (600, 512), (9, 12), (5, 3)])
def test_points_that_are_missing_are_0(size: int, length: int) -> None:
    """And those beyond the length are left out."""
    x = draw(2, size, 1)
    wanted = part(np.fft.rfft(x.astype(np.float64)[..., 0], length))
    check(load(x, length=length, onesided=1).run({"x": x})["y"], wanted, np.float32)


@pytest.mark.parametrize("size", [20, 257, 300])
def test_frequencies_that_are_missing_are_0(size: int) -> None:
    x = draw(2, size, 2)
    numbers = x.astype(np.float64)[..., 0] + 1j * x.astype(np.float64)[..., 1]
    found = load(x, length=512, inverse=1, onesided=1).run({"x": x})["y"]
    check(found[..., 0], np.fft.irfft(numbers, 512), np.float32)


@pytest.mark.parametrize("length", [12, 240])
def test_an_axis_before_others_and_an_open_batch(length: int) -> None:
    x = draw(3, length, 4, 1)
    wanted = part(np.fft.rfft(x.astype(np.float64)[..., 0], axis=1))
    model = load(x, onesided=1, open_batch=True)
    assert model.function.symbols
    check(model.run({"x": x})["y"], wanted, np.float32)


@pytest.mark.parametrize("length", [16, 256])
@pytest.mark.parametrize("one_sided", [0, 1])
@pytest.mark.parametrize("parts", [0, 1, 2])
def test_frames_of_a_signal(length: int, one_sided: int, parts: int) -> None:
    """STFT of real signals of two and three axes, and of complex ones, with a window."""
    if parts == 2 and one_sided:
        one_sided = 0
    x = draw(2, 1000, parts) if parts else draw(2, 1000)
    window = np.hanning(length).astype(np.float32)
    held = {"step": np.array(100, np.int64), "length": np.array(length, np.int64)}
    node = helper.make_node("STFT", ["x", "step", "window", "length"], ["y"], onesided=one_sided)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
         helper.make_tensor_value_info("window", TensorProto.FLOAT, [length])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )  # fmt: skip
    model = dmlc.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    wide = x.astype(np.float64).reshape(2, 1000, -1)
    numbers = wide[..., 0] + (1j * wide[..., 1] if parts == 2 else 0)
    starts = range(0, 1000 - length + 1, 100)
    frames = np.stack([numbers[:, start : start + length] for start in starts], 1)
    wanted = part(np.fft.fft(frames * window.astype(np.float64)))
    wanted = wanted[:, :, : length // 2 + 1] if one_sided else wanted
    check(model.run({"x": x, "window": window})["y"], wanted, np.float32)


def count_products(model: ImportedModel) -> int:
    """Multiplications of all sums."""
    return sum(
        math.prod(int(extent) for extent in stage.extents)
        * math.prod(int(extent) for _, extent in stage.axes)
        for stage in model.function.stages
    )


def test_costs_of_long_transforms() -> None:
    """A transform of n points takes at most 40 * n * log2 n multiplications and constants of 8 * n
    numbers, where one product of matrices takes n * n of each, or 4 times that. A prime length
    takes transforms of a power of 2, of 2 to 4 times its points."""
    for length in (256, 400, 512, 1024, 4000, 4096, 16384):
        for parts in (1, 2):
            model = load(np.empty((1, length, parts), np.float32))
            assert count_products(model) <= 40 * length * math.log2(length)
            assert sum(array.size for array in model.weights.values()) <= 8 * length
    prime = load(np.empty((1, 10007, 2), np.float32))
    assert count_products(prime) <= 2 * 40 * 32768 * 15


def test_a_weight_is_called_otherwise_than_a_table() -> None:
    """The two matrices of a transform: the first is a table, and the second a parameter."""
    model = load(np.empty((1, 201, 2), np.float32), length=400, inverse=1, onesided=1)
    tables = [table.name for table in model.function.tables]
    assert [name.startswith("y_matrix") for name in (tables[0], *model.weights)] == [True, True]
    assert tables[0] not in model.weights


def test_a_length_without_end_is_refused_at_once() -> None:
    with pytest.raises(dmlc.DmlcError, match=r"the node y \(DFT\) takes"):
        load(np.empty((1, 8, 2), np.float32), length=(1 << 61) - 1)
