"""The operators as their reference pages have them: which types and ranks each feature
level takes, and what no other test holds to the pages' constraints and formulas."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import dmlc
from tests.library.run import DEVICES, check, normal, run, wide

FLOATS = ("FLOAT32", "FLOAT16")
SHORT = (*FLOATS, "INT32", "INT16", "UINT32", "UINT16")
"""What the oldest operators that move data take; bytes came later."""
SUMS = (*FLOATS, "INT32", "UINT32")
SIGNED = ("INT32", "INT16", "INT8")
BYTES = (*SHORT, "INT8", "UINT8")
WHOLE = (*BYTES, "INT64", "UINT64")
EVERY = (*WHOLE, "FLOAT64")

FOUR, IMAGES, FEW, ANY = (4, 4), (4, 5), (2, 4), (1, 8)

LEVELS: dict[str, dict[str, tuple[tuple[int, int], tuple[str, ...]]]] = {
    "SLICE": {"1_0": (IMAGES, SHORT), "2_1": (IMAGES, BYTES), "3_0": (ANY, BYTES),
              "4_1": (ANY, EVERY)},
    "SLICE1": {"2_1": (IMAGES, BYTES), "3_0": (ANY, BYTES), "4_1": (ANY, EVERY)},
    "SLICE_GRAD": {"3_0": (IMAGES, BYTES), "3_1": (ANY, BYTES), "4_1": (ANY, EVERY)},
    "SPLIT": {"1_0": (FOUR, SHORT), "2_1": (FOUR, BYTES), "3_0": (ANY, BYTES),
              "4_1": (ANY, EVERY)},
    "JOIN": {"1_0": (FOUR, SHORT), "2_1": (FOUR, BYTES), "3_0": (IMAGES, BYTES),
             "3_1": (ANY, BYTES), "4_1": (ANY, EVERY)},
    "TILE": {"1_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "3_1": (ANY, BYTES),
             "4_1": (ANY, WHOLE)},
    "PADDING": {"1_0": (IMAGES, FLOATS), "2_1": (IMAGES, BYTES), "3_1": (ANY, BYTES),
                "5_0": (ANY, EVERY)},
    "GATHER": {"1_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "3_0": (ANY, BYTES),
               "4_1": (ANY, EVERY)},
    "GATHER_ELEMENTS": {"2_1": (FOUR, BYTES), "3_0": (ANY, BYTES), "4_1": (ANY, EVERY)},
    "GATHER_ND": {"2_1": (FOUR, BYTES), "3_0": (ANY, BYTES), "4_1": (ANY, EVERY)},
    "GATHER_ND1": {"3_0": (ANY, BYTES), "4_1": (ANY, EVERY)},
    "SCATTER": {"1_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "3_0": (ANY, BYTES),
                "4_1": (ANY, EVERY)},
    "SCATTER_ND": {"2_1": (FOUR, BYTES), "3_0": (ANY, BYTES), "4_1": (ANY, EVERY)},
    "MAX_UNPOOLING": {"3_0": (FOUR, FLOATS), "5_0": (FOUR, WHOLE)},
    "ONE_HOT": {"2_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "3_0": (ANY, BYTES),
                "4_1": (ANY, EVERY)},
    "DIAGONAL_MATRIX": {"2_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "4_0": (FEW, BYTES),
                        "5_1": (FEW, EVERY)},
    "SPACE_TO_DEPTH1": {"2_1": (FOUR, BYTES), "5_0": (FOUR, EVERY)},
    "DEPTH_TO_SPACE1": {"2_1": (FOUR, BYTES), "5_0": (FOUR, EVERY)},
    "MAX_POOLING": {"1_0": (IMAGES, FLOATS), "3_0": (IMAGES, (*FLOATS, "INT8", "UINT8")),
                    "5_0": (IMAGES, WHOLE)},
    "MAX_POOLING2": {"2_1": (IMAGES, FLOATS), "3_0": (IMAGES, (*FLOATS, "INT8", "UINT8")),
                     "5_0": (IMAGES, WHOLE)},
    "MAX_POOLING_GRAD": {"3_0": (FOUR, FLOATS), "4_0": (IMAGES, FLOATS)},
    "SPACE_TO_DEPTH": {"1_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "5_0": (FOUR, EVERY)},
    "DEPTH_TO_SPACE": {"1_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "5_0": (FOUR, EVERY)},
    "PADDING1": {"5_0": (ANY, EVERY)},
    "DIAGONAL_MATRIX1": {"5_1": (FEW, EVERY)},
    "MAX_POOLING1": {"2_0": (IMAGES, FLOATS), "3_0": (IMAGES, (*FLOATS, "INT8", "UINT8")),
                     "5_0": (IMAGES, WHOLE)},
    "ACTIVATION_PARAMETERIZED_RELU": {"1_0": (FOUR, FLOATS), "2_0": (IMAGES, FLOATS),
                                      "3_0": (ANY, FLOATS), "5_1": (ANY, (*FLOATS, *SIGNED))},
    "ACTIVATION_SHRINK": {"2_0": (IMAGES, FLOATS), "3_0": (ANY, FLOATS), "5_1": (ANY, BYTES)},
    **{
        f"ACTIVATION_{name}": {"1_0": (FOUR, FLOATS), "2_0": (IMAGES, FLOATS),
                               "3_0": (ANY, FLOATS)}
        for name in (
            "ELU", "HARDMAX", "HARD_SIGMOID", "IDENTITY", "LEAKY_RELU", "LINEAR", "LOG_SOFTMAX",
            "PARAMETRIC_SOFTPLUS", "SCALED_ELU", "SCALED_TANH", "SIGMOID", "SOFTMAX", "SOFTPLUS",
            "SOFTSIGN", "TANH", "THRESHOLDED_RELU",
        )
    },
    "ACTIVATION_CELU": {"3_0": (ANY, FLOATS)},
    "ACTIVATION_GELU": {"5_1": (ANY, FLOATS)},
    "ACTIVATION_HARDMAX1": {"5_1": (ANY, FLOATS)},
    "ACTIVATION_SWISH": {"6_2": (ANY, FLOATS)},
    "ACTIVATION_HARD_SWISH": {"6_2": (ANY, FLOATS)},
    "CAST": {"1_0": (FOUR, (*FLOATS, "INT16", "INT8", "UINT16", "UINT8")), "3_0": (FOUR, WHOLE),
             "3_1": (ANY, WHOLE), "4_1": (ANY, EVERY)},
    "ELEMENT_WISE_ADD1": {"2_0": (IMAGES, FLOATS), "3_0": (ANY, FLOATS)},
    "ELEMENT_WISE_MEAN": {"1_0": (FOUR, FLOATS), "2_1": (FOUR, SUMS), "3_0": (ANY, SUMS)},
    "ELEMENT_WISE_SIGN": {"2_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "3_0": (ANY, BYTES),
                          "4_1": (ANY, WHOLE)},
    "ELEMENT_WISE_THRESHOLD": {"1_0": (FOUR, FLOATS), "2_1": (FOUR, BYTES), "3_0": (ANY, BYTES)},
    "ELEMENT_WISE_CLIP_GRAD": {"3_1": (ANY, BYTES), "5_0": (ANY, WHOLE)},
    "LP_NORMALIZATION": {"1_0": (FOUR, FLOATS), "3_1": (ANY, FLOATS)},
    "RESAMPLE": {"2_0": (FOUR, FLOATS), "5_1": ((1, 4), FLOATS),
                 "6_2": ((1, 4), (*FLOATS, "INT8", "UINT8"))},
    "RESAMPLE1": {"2_1": (FOUR, FLOATS), "5_1": ((1, 4), FLOATS),
                  "6_2": ((1, 4), (*FLOATS, "INT8", "UINT8"))},
    "RESAMPLE2": {"5_1": ((1, 4), FLOATS), "6_2": ((1, 4), (*FLOATS, "INT8", "UINT8"))},
    "RESAMPLE_GRAD": {"3_0": (FOUR, FLOATS), "5_1": ((1, 4), FLOATS)},
    "RANDOM_GENERATOR": {"3_0": (FOUR, ("UINT32",)), "4_0": (ANY, ("UINT32",))},
    "GEMM": {"1_0": (FOUR, FLOATS), "4_0": (FEW, FLOATS)},
    "CONVOLUTION": {"1_0": (IMAGES, FLOATS), "4_0": ((3, 5), FLOATS)},
}  # fmt: skip
"""The ranks and types of an operator's results at each feature level, in the pages' order."""

INDICES = {
    "GATHER": {"1_0": 1, "2_1": 1, "3_0": 4, "4_1": 4},
    "GATHER_ELEMENTS": {"2_1": 1, "3_0": 4, "4_1": 4},
    "GATHER_ND": {"2_1": 1, "3_0": 4, "4_1": 4},
    "GATHER_ND1": {"3_0": 4, "4_1": 4},
    "SCATTER": {"1_0": 1, "2_1": 1, "3_0": 4, "4_1": 4},
    "SCATTER_ND": {"2_1": 1, "3_0": 4, "4_1": 4},
    "MAX_UNPOOLING": {"3_0": 1, "5_0": 2},
    "ONE_HOT": {"2_0": 1, "2_1": 1, "3_0": 4, "4_1": 4},
    "MAX_POOLING1": {"2_0": 1, "3_0": 1, "5_0": 2},
    "MAX_POOLING2": {"2_1": 1, "3_0": 1, "5_0": 2},
}
"""How many types indices may have: UINT32, since then UINT64 and, of those given, signed ones."""


@pytest.mark.parametrize("name", LEVELS)
def test_types_and_ranks(name: str) -> None:
    levels = dmlc.operator(f"directml.{name}").definition.levels
    found_names = [str(level.level).removeprefix("DML_FEATURE_LEVEL_") for level in levels]
    assert found_names == list(LEVELS[name])
    for level, (written, ((low, high), dtypes)) in zip(levels, LEVELS[name].items(), strict=True):
        for tensor in level.tensors:
            assert tensor.ranks == tuple(range(low, high + 1)), (written, tensor.name)
            found = {t.name for t in tensor.dtypes}
            if "Indices" not in tensor.name:
                assert found == set(dtypes), (written, tensor.name)
                continue
            wanted = ("UINT32", "UINT64", "INT32", "INT64")[: INDICES[name][written]]
            assert found == set(wanted), (written, tensor.name)


def test_a_level_takes_what_its_table_has() -> None:
    tile = dmlc.operator("directml.TILE")
    given = {"InputTensor": dmlc.TensorDesc("INT32", (1, 1, 2, 2))}
    repeats = {"Repeats": [1, 1, 2, 1]}
    assert tile.bind(given, repeats, level="DML_FEATURE_LEVEL_2_1").stages
    with pytest.raises(dmlc.DmlcError, match="'InputTensor' cannot be INT32"):
        tile.bind(given, repeats, level="DML_FEATURE_LEVEL_1_0")


POOLED = [np.int64, np.int32, np.int16, np.uint64, np.uint32, np.uint16]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", POOLED, ids=str)
def test_max_pooling_of_whole_numbers(dtype: Any, device: str) -> None:
    """Each type from end to end; the index of the largest in 64 bits."""
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (2, 2, 5, 6), dtype, True)
    settings: dict[str, object] = {
        "Strides": [2, 2], "WindowSize": [2, 3], "StartPadding": [0, 1], "EndPadding": [0, 0],
    }  # fmt: skip
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 0)), constant_values=limits.min)
    expected = sliding_window_view(padded, (2, 3), (2, 3))[:, :, ::2, ::2].max((4, 5))
    given = {"InputTensor": x}
    found = run("directml.MAX_POOLING", given, settings, device=device)["OutputTensor"]
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, expected)
    outputs = {"OutputTensor": np.empty(expected.shape, dtype),
               "OutputIndicesTensor": np.empty(expected.shape, np.uint64)}  # fmt: skip
    both = run("directml.MAX_POOLING2", given, {**settings, "Dilations": [1, 1]}, outputs, device)
    np.testing.assert_array_equal(both["OutputTensor"], expected)
    assert both["OutputIndicesTensor"].dtype == np.uint64
    np.testing.assert_array_equal(x.reshape(-1)[both["OutputIndicesTensor"]], expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["NEAREST_NEIGHBOR", "LINEAR"])
def test_a_volume_is_upsampled_image_by_image(mode: str, device: str) -> None:
    x = normal(2, 3, 2, 3, 4)
    settings: dict[str, object] = {"ScaleSize": [3, 2], "InterpolationMode": mode}
    found = run("directml.UPSAMPLE_2D", {"InputTensor": x}, settings, device=device)
    images = run("directml.UPSAMPLE_2D", {"InputTensor": x.reshape(2, 6, 3, 4)}, settings)
    expected = images["OutputTensor"].reshape(2, 3, 2, 6, 12)
    np.testing.assert_allclose(found["OutputTensor"], expected, rtol=1e-6, atol=1e-6)


def test_one_matrix_is_added_to_all_by_strides_of_0() -> None:
    a, b, c = normal(3, 2, 4), normal(3, 4, 5), normal(5, seed=1)
    given = {"ATensor": a, "BTensor": b, "CTensor": np.broadcast_to(c, (3, 2, 5))}
    for device in DEVICES:
        found = run("directml.GEMM", given, {}, device=device)["OutputTensor"]
        np.testing.assert_allclose(found, a @ b + c, rtol=1e-5, atol=1e-5)


MIXED = [("f32", "f32", "f32", "f32"), ("bf16", "bf16", "bf16", "f32"),
         ("bf16", "f32", "bf16", "bf16"), ("f32", "bf16", "bf16", "bf16"),
         ("f16", "f16", "f16", "f32"), ("f16", "f32", "f16", "f16"),
         ("f32", "f16", "f16", "f16")]  # fmt: skip
"""The types of oneDNN's MatMul: src, weights, bias and dst."""


@pytest.mark.parametrize("types", MIXED, ids="-".join)
def test_products_of_mixed_types(types: tuple[str, str, str, str]) -> None:
    named = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    src, weights, bias, dst = (np.dtype(named[t]) for t in types)
    a, b, c = normal(3, 6, dtype=src), normal(6, 4, seed=1, dtype=weights), normal(4, dtype=bias)
    outputs = {"dst": np.empty((3, 4), dst)}
    for device in DEVICES:
        given = {"src": a, "weights": b, "bias": c}
        found = run("onednn.MatMul", given, {}, outputs, device)["dst"]
        assert found.dtype == dst
        check(found, wide(a) @ wide(b) + wide(c))


def test_products_do_not_mix_as_they_like() -> None:
    tensors = {"src": dmlc.TensorDesc("f16", (3, 6)), "weights": dmlc.TensorDesc("bf16", (6, 4))}
    with pytest.raises(dmlc.DmlcError, match="combination of data types is not permitted"):
        dmlc.operator("onednn.MatMul").bind(tensors)


WINDOW = {"InputWindowOffsets": [0], "InputWindowSizes": [4], "InputWindowStrides": [2]}
PLAIN = {"Strides": [1], "Dilations": [1], "StartPadding": [0], "EndPadding": [0],
         "OutputPadding": [0]}  # fmt: skip

REFUSED: list[tuple[str, dict[str, tuple[int, ...]], dict[str, object], str]] = [
    ("SLICE1", {"InputTensor": (4,), "OutputTensor": (0,)}, {**WINDOW},
     "the output must hold an element"),
    ("SLICE_GRAD", {"InputGradientTensor": (1,), "OutputGradientTensor": (4,)},
     {**WINDOW, "InputWindowSizes": [0]}, "the window must not be empty"),
    ("TILE", {"InputTensor": (4,)}, {"Repeats": [0]}, "Repeats must be positive"),
    ("GATHER", {"InputTensor": (3, 2), "IndicesTensor": (1, 2)},
     {"Axis": 1, "IndexDimensions": 2}, "the axes of the input that the indices displace"),
    ("GATHER", {"InputTensor": (3, 2), "IndicesTensor": (2, 2)},
     {"Axis": 1, "IndexDimensions": 1}, "only the last IndexDimensions axes of the indices"),
    ("GEMM", {"ATensor": (2, 3), "BTensor": (3, 4), "CTensor": (1, 4)}, {},
     "CTensor must have the sizes of OutputTensor"),
    ("CONVOLUTION", {"InputTensor": (1, 2, 5), "FilterTensor": (4, 2, 3),
                     "BiasTensor": (1, 1, 1)}, {**PLAIN}, "dimension 'OutputChannelCount' is"),
    ("CONVOLUTION", {"InputTensor": (1, 2, 5), "FilterTensor": (4, 2, 3),
                     "BiasTensor": (1, 4, 3)}, {**PLAIN}, "so a size must be 1"),
    ("DIAGONAL_MATRIX", {"OutputTensor": (2, 2, 2, 3, 3)}, {}, "takes 2 to 4 dimensions"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: f"{c[0]} {c[3]}")
def test_what_the_pages_rule_out(
    case: tuple[str, dict[str, tuple[int, ...]], dict[str, object], str],
) -> None:
    name, shapes, attributes, message = case
    tensors = {
        n: dmlc.TensorDesc("UINT32" if n == "IndicesTensor" else "FLOAT32", s)
        for n, s in shapes.items()
    }
    with pytest.raises(dmlc.DmlcError, match=message):
        dmlc.operator(f"directml.{name}").bind(tensors, attributes)
