"""What moves data by position, against NumPy: exactly, in every type the page names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dmlc
from tests.library.run import DEVICES, Array, check, normal, run, wide

TYPES = [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8,
         np.uint64, np.uint32, np.uint16, np.uint8]  # fmt: skip
TYPES_OF = {"reference": TYPES, "opencl": [np.float32, np.int16, np.uint8, np.float64],
            "vulkan": [np.float32, np.float16, np.int64, np.int8]}  # fmt: skip
"""Which types each device is tried with: kernels move bits of 64 to 8."""


def count(*sizes: int, dtype: Any = np.float32, first: int = 1) -> Array:
    return np.arange(first, first + int(np.prod(sizes))).reshape(sizes).astype(dtype)


def devices_for(dtype: Any) -> list[str]:
    return [d for d, types in TYPES_OF.items() if np.dtype(dtype) in types]


def run_everywhere(
    name: str,
    inputs: dict[str, Array],
    attributes: dict[str, object],
    expected: Array,
    output: str = "OutputTensor",
    given: bool = False,
) -> None:
    """Runs an operator where its types can be held, and compares exactly."""
    outputs = {output: expected.shape} if given else None
    for device in devices_for(expected.dtype):
        found = run(f"directml.{name}", inputs, attributes, outputs, device)[output]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_slices(dtype: Any) -> None:
    x = count(5, 6, 4, dtype=dtype)
    settings: dict[str, object] = {
        "InputWindowOffsets": [1, 0, 1], "InputWindowSizes": [4, 6, 3],
        "InputWindowStrides": [2, -3, -1],
    }  # fmt: skip
    run_everywhere("SLICE1", {"InputTensor": x}, settings, x[1:5:2, 5::-3, 3:0:-1])
    back = np.zeros_like(x)
    back[1:5:2, 5::-3, 3:0:-1] = count(2, 2, 3, dtype=dtype)
    run_everywhere("SLICE_GRAD", {"InputGradientTensor": count(2, 2, 3, dtype=dtype)}, settings,
                   back, "OutputGradientTensor", given=True)  # fmt: skip
    older: dict[str, object] = {"Offsets": [1, 0, 2], "Sizes": [2, 3, 1], "Strides": [3, 2, 1]}
    run_everywhere("SLICE", {"InputTensor": x}, older, x[1:5:3, 0:6:2, 2:3])


def test_a_slice_may_be_shorter_than_its_window() -> None:
    x = count(9)
    settings: dict[str, object] = {
        "InputWindowOffsets": [2], "InputWindowSizes": [7], "InputWindowStrides": [2]
    }  # fmt: skip
    run_everywhere("SLICE1", {"InputTensor": x}, settings, x[2:6:2], given=True)


@pytest.mark.grid(3)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("mode", "theirs"),
    [("CONSTANT", "constant"), ("EDGE", "edge"), ("REFLECTION", "reflect"),
     ("SYMMETRIC", "symmetric"), ("WRAP", "wrap")],
)  # fmt: skip
def test_padding(mode: str, theirs: Any, dtype: Any) -> None:
    x = count(3, 1, 4, dtype=dtype)
    start, end = [2, 0, 9], [4, 3, 1]
    settings: dict[str, object] = {
        "PaddingMode": mode, "PaddingValue": 7, "StartPadding": start, "EndPadding": end
    }  # fmt: skip
    more = {"constant_values": 7} if theirs == "constant" else {}
    expected = np.pad(x, list(zip(start, end, strict=True)), theirs, **more)
    run_everywhere("PADDING", {"InputTensor": x}, settings, expected)


def test_a_padding_value_is_truncated_for_integers() -> None:
    settings: dict[str, object] = {
        "PaddingMode": "CONSTANT", "PaddingValue": -10.6, "StartPadding": [1], "EndPadding": [0]
    }  # fmt: skip
    x = np.array([3], np.int32)
    run_everywhere("PADDING", {"InputTensor": x}, settings, np.array([-10, 3], np.int32))


@pytest.mark.parametrize("dtype", TYPES[1:], ids=str)
def test_tiles(dtype: Any) -> None:
    x = count(2, 1, 3, dtype=dtype)
    run_everywhere("TILE", {"InputTensor": x}, {"Repeats": [2, 3, 2]}, np.tile(x, (2, 3, 2)))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joining_and_splitting(axis: int, dtype: Any) -> None:
    x = count(4, 6, 5, dtype=dtype)
    parts = np.split(x, [1, 3], axis)
    given = {f"InputTensors[{k}]": np.ascontiguousarray(p) for k, p in enumerate(parts)}
    run_everywhere("JOIN", given, {"Axis": axis}, x)
    outputs = {f"OutputTensors[{k}]": p.shape for k, p in enumerate(parts)}
    for device in devices_for(dtype):
        found = run("directml.SPLIT", {"InputTensor": x}, {"Axis": axis}, outputs, device)
        for name, part in zip(outputs, parts, strict=True):
            np.testing.assert_array_equal(found[name], part)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("order", ["DEPTH_COLUMN_ROW", "COLUMN_ROW_DEPTH"])
def test_depth_and_space(order: str, dtype: Any) -> None:
    block, x = 3, count(2, 18, 2, 3, dtype=dtype, first=0)
    n, c, h, w = x.shape
    depth = c // block**2
    if order == "DEPTH_COLUMN_ROW":
        lifted = x.reshape(n, block, block, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        lifted = x.reshape(n, depth, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    image = np.ascontiguousarray(lifted.reshape(n, depth, h * block, w * block))
    settings: dict[str, object] = {"BlockSize": block, "Order": order}
    run_everywhere("DEPTH_TO_SPACE1", {"InputTensor": x}, settings, image)
    run_everywhere("SPACE_TO_DEPTH1", {"InputTensor": image}, settings, x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("offset", [-5, -1, 0, 2])
def test_diagonal_matrices(offset: int, device: str) -> None:
    for dtype in (np.float32, np.int32, np.float16):
        given = {"OutputTensor": np.empty((2, 3, 4), dtype)}
        found = run("directml.DIAGONAL_MATRIX", {}, {"Offset": offset, "Value": 2.0}, given,
                    device)["OutputTensor"]  # fmt: skip
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.stack([2 * np.eye(3, 4, offset)] * 2))


INDICES = [np.int64, np.int32, np.uint64, np.uint32]


@pytest.mark.parametrize("indices", INDICES, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_gathering(indices: Any, device: str) -> None:
    signed = np.dtype(indices).kind == "i"
    x = normal(4, 5, 3)
    for axis in range(3):
        chosen = np.random.default_rng(axis).integers(0, x.shape[axis], x.shape)
        signs = np.where(chosen % 2 == 0, x.shape[axis], 0) if signed else 0
        given = {"InputTensor": x, "IndicesTensor": (chosen - signs).astype(indices)}
        found = run("directml.GATHER_ELEMENTS", given, {"Axis": axis}, device=device)
        np.testing.assert_array_equal(found["OutputTensor"], np.take_along_axis(x, chosen, axis))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gathering_slices(axis: int, dimensions: int, device: str) -> None:
    x = normal(4, 5, 3)
    rank = 3 + dimensions - 1
    chosen = np.random.default_rng(0).integers(-x.shape[axis], x.shape[axis], (2, 3, 2))
    chosen = chosen[(0,) * (3 - dimensions)].astype(np.int32)
    given = {
        "InputTensor": x.reshape([1] * (rank - 3) + list(x.shape)),
        "IndicesTensor": chosen.reshape([1] * (rank - dimensions) + list(chosen.shape)),
    }
    settings = {"Axis": axis + rank - 3, "IndexDimensions": dimensions}
    found = run("directml.GATHER", given, settings, device=device)["OutputTensor"]
    np.testing.assert_array_equal(found, np.take(x, chosen, axis))


@pytest.mark.parametrize("device", DEVICES)
def test_what_an_index_outside_picks(device: str) -> None:
    given = {"InputTensor": count(3), "IndicesTensor": np.array([0, 3, -4, 2**31 - 1], np.int32)}
    for name, settings in (
        ("GATHER", {"Axis": 0, "IndexDimensions": 1}),
        ("GATHER_ELEMENTS", {"Axis": 0}),
    ):
        found = run(f"directml.{name}", given, settings, device=device)["OutputTensor"]
        np.testing.assert_array_equal(found, [1, 3, 3, 3])


PACKED, TURNED, SPREAD = (8, 2, 1), (1, 3, 12), (20, 5, 2)
ONE, PAIR = {"Axis": 1}, {"InputDimensionCount": 3, "IndicesDimensionCount": 2}
READS: dict[str, tuple[dict[str, int], tuple[int, ...], Any]] = {
    "GATHER": ({**ONE, "IndexDimensions": 1}, (1, 1, 6), lambda o, i: (o[0], i[0, 0, o[1]], o[2])),
    "GATHER_ELEMENTS": (ONE, (3, 6, 2), lambda o, i: (o[0], i[o], o[2])),
    "GATHER_ND": (PAIR, (1, 6, 2), lambda o, i: (*i[0, o[1]], o[2])),
    "GATHER_ND1": ({**PAIR, "IndicesDimensionCount": 3, "BatchDimensionCount": 1}, (3, 6, 1),
                   lambda o, i: (o[0], i[o[0], o[1], 0], o[2])),
}  # fmt: skip
"""Settings, sizes of the indices, and where an element of the output is read."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strides", [PACKED, TURNED, SPREAD], ids=str)
@pytest.mark.parametrize("name", READS)
def test_indices_are_offsets_in_memory(name: str, strides: tuple[int, ...], device: str) -> None:
    """Those beyond an axis too, as far as there is memory; 0 is what lies between elements."""
    settings, counts, place = READS[name]
    sizes, rows = np.array([3, 4, 2]), (3, 4) if name == "GATHER_ND" else (4,)
    memory = np.zeros(1 + int(((sizes - 1) * strides).sum()), np.int32)
    x = np.lib.stride_tricks.as_strided(memory, sizes, [4 * s for s in strides])
    x[...] = np.arange(1, 25).reshape(sizes)
    indices = np.random.default_rng(4).integers(-9, 9, counts).astype(np.int32)
    wrapped = np.where(indices < 0, indices + rows[-1], indices)
    if name == "GATHER_ND":
        wrapped[..., 0] = np.where(indices[..., 0] < 0, indices[..., 0] + 3, indices[..., 0])
    given = {"InputTensor": x, "IndicesTensor": indices}
    found = run(f"directml.{name}", given, settings, device=device)["OutputTensor"]
    for o in np.ndindex(found.shape):
        offset = int(np.dot(place(o, wrapped), strides))
        inside = 0 <= offset < memory.size
        assert found[o] == memory[offset if inside else -1], (o, offset)


@pytest.mark.parametrize("size", [3, 4])
def test_padding_at_the_end_of_the_memory_is_0(size: int) -> None:
    """Three bytes take four of memory, whose last is what an index outside reads."""
    given = {"InputTensor": np.arange(1, size + 1, dtype=np.uint8),
             "IndicesTensor": np.array([-1, size, 100, -100], np.int32)}  # fmt: skip
    outside = size if size == 4 else 0
    for name, settings in (
        ("GATHER", {"Axis": 0, "IndexDimensions": 1}),
        ("GATHER_ELEMENTS", {"Axis": 0}),
    ):
        found = run(f"directml.{name}", given, settings)["OutputTensor"]
        assert found.tolist() == [size, outside, outside, outside]


def test_of_an_empty_tensor_indices_read_0() -> None:
    given = {
        "InputTensor": np.zeros((0, 2), np.float32),
        "IndicesTensor": np.zeros((1, 3), np.int32),
    }
    found = run("directml.GATHER", given, {"Axis": 0, "IndexDimensions": 1})["OutputTensor"]
    np.testing.assert_array_equal(found, np.zeros((3, 2)))


@pytest.mark.parametrize("device", DEVICES)
def test_lengths_beyond_the_end(device: str) -> None:
    x = np.arange(12, dtype=np.int64).reshape(3, 4)
    lengths = np.array([[5], [2**32 + 2], [2**32 - 1]], np.uint64)
    given = {"InputTensor": x, "SequenceLengthsTensor": lengths}
    found = run("directml.REVERSE_SUBSEQUENCES", given, {"Axis": 1}, device=device)
    expected = [[3, 3, 2, 1], [5, 4, 6, 7], [11, 11, 11, 11]]
    assert found["OutputTensor"].tolist() == expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("indices", INDICES, ids=str)
def test_one_hot(indices: Any, device: str) -> None:
    chosen = np.array([[0, 4, 2], [1, 9, 3]])
    values = np.array([[[-1.5, 2.5]]], np.float16)
    for axis in range(3):
        given = {"IndicesTensor": np.expand_dims(chosen, axis).astype(indices),
                 "ValuesTensor": values}  # fmt: skip
        shape = (*chosen.shape[:axis], 5, *chosen.shape[axis:])
        found = run("directml.ONE_HOT", given, {"Axis": axis}, {"OutputTensor": shape}, device)
        places = np.arange(5).reshape([5 if a == axis else 1 for a in range(3)])
        expected = np.where(np.expand_dims(chosen, axis) == places, 2.5, -1.5)
        np.testing.assert_array_equal(found["OutputTensor"], expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
@pytest.mark.parametrize("bias", [[0.5], [0.5, -1.25, 3.0]], ids=len)
def test_value_scale(bias: Sequence[float], dtype: Any, device: str) -> None:
    x = normal(2, len(bias), 3, 4, dtype=dtype)
    found = run("directml.VALUE_SCALE_2D", {"InputTensor": x}, {"Scale": 1.5, "Bias": list(bias)},
                device=device)  # fmt: skip
    check(found["OutputTensor"], wide(x) * 1.5 + np.reshape(bias, (1, -1, 1, 1)))


ORDERS = [(0,), (1, 0), (2, 0, 1), (-1, -3, 1), (3, 1, 0, 2), (2, 4, 0, 3, 1)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_transposing(order: tuple[int, ...], device: str) -> None:
    x = normal(*(2, 3, 4, 5, 2)[: len(order)], dtype=np.float16)
    found = run("onednn.StaticTranspose", {"src": x}, {"order": list(order)}, device=device)
    np.testing.assert_array_equal(found["dst"], x.transpose(order))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("shape", "special_zero", "expected"),
    [([24], False, (24,)), ([6, -1], False, (6, 4)), ([0, 0, -1], True, (2, 3, 4)),
     ([0, -1, 2, 1], True, (2, 6, 2, 1)), ([4, 1, 6], True, (4, 1, 6))],
)  # fmt: skip
def test_reshaping(
    shape: list[int], special_zero: bool, expected: tuple[int, ...], device: str
) -> None:
    x = normal(2, 3, 4)
    settings = {"shape": shape, "special_zero": special_zero}
    found = run("onednn.StaticReshape", {"src": x}, settings, device=device)["dst"]
    np.testing.assert_array_equal(found, x.reshape(expected))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [0, 2, -1, -2])
def test_concatenating(axis: int, device: str) -> None:
    x = normal(4, 6, 5, dtype=np.float16)
    parts = np.split(x, [1, 3], axis)
    given = {f"src[{k}]": np.ascontiguousarray(p) for k, p in enumerate(parts)}
    found = run("onednn.Concat", given, {"axis": axis}, device=device)["dst"]
    np.testing.assert_array_equal(found, x)


REFUSED: list[tuple[str, dict[str, tuple[int, ...]], dict[str, object], str]] = [
    ("directml.SLICE", {"InputTensor": (4,)}, {"Offsets": [2], "Sizes": [3], "Strides": [1]},
     "must not leave the input"),
    ("directml.SLICE1", {"InputTensor": (4,)},
     {"InputWindowOffsets": [2], "InputWindowSizes": [3], "InputWindowStrides": [1]},
     "must not leave the input"),
    ("directml.SLICE1", {"InputTensor": (4,)},
     {"InputWindowOffsets": [2], "InputWindowSizes": [2], "InputWindowStrides": [0]},
     "must not be 0"),
    ("directml.DEPTH_TO_SPACE1", {"InputTensor": (1, 6, 2, 2)},
     {"BlockSize": 2, "Order": "DEPTH_COLUMN_ROW"}, "the channels must fill the squares"),
    ("directml.VALUE_SCALE_2D", {"InputTensor": (1, 2, 2, 2)}, {"Bias": [1.0, 2.0]},
     "one or three channels"),
    ("directml.RESAMPLE2", {"InputTensor": (4,), "OutputTensor": (8,)},
     {"InterpolationMode": "LINEAR", "RoundingDirection": "DECREASING", "Scales": [0.0],
      "InputPixelOffsets": [0.0], "OutputPixelOffsets": [0.0]}, "Scales must be positive"),
    ("onednn.StaticTranspose", {"src": (4, 3)}, {"order": [2, 0]}, "must list the axes of src"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: f"{c[0]} {c[3]}")
def test_what_is_refused(
    case: tuple[str, dict[str, tuple[int, ...]], dict[str, object], str],
) -> None:
    name, shapes, attributes, message = case
    tensors = {n: dmlc.TensorDesc("FLOAT32", s) for n, s in shapes.items()}
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.operator(name).bind(tensors, attributes)
