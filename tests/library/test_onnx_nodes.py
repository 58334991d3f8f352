"""ONNX's own node tests, which its package brings, for the operators that the library has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.helper import get_attribute_value

from dmlc.source import DmlcError
from tests.library.onnx_nodes import Unmapped, run_node
from tests.onnx.node_cases import collect as collect_cases

MODULES = (
    "averagepool", "batch_normalization", "concat", "conv", "convtranspose", "depthtospace",
    "gather", "gatherelements", "gemm", "globalaveragepool", "globalmaxpool", "logsoftmax",
    "lppool", "lrn", "matmul", "maxpool", "onehot", "pad", "reduce_log_sum",
    "reduce_log_sum_exp", "reducel1", "reducel2", "reducemax", "reducemean", "reducemin",
    "reduceprod", "reducesum", "reducesumsquare", "reshape", "resize", "slice", "softmax",
    "spacetodepth", "split", "tile", "transpose", "upsample",
)  # fmt: skip
"""The modules of onnx.backend.test.case.node whose tests are run."""

_CUBIC = "the library's resampling has no cubic interpolation"
_SMOOTHED = "the library's resampling has no filter against aliasing"
_DOUBLE = "DirectML's REDUCE has no FLOAT64"
_BOOLEAN = "DirectML's REDUCE has no BOOL"

EXCLUDED: dict[str, str] = {
    "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True":
        "ONNX counts padding, but not what a window rounded up has beyond it",
    "test_lppool_2d_dilations": "DirectML's LP_POOLING has no dilations",
    "test_maxpool_with_argmax_2d_precomputed_strides":
        "DirectML's indices count rows first, as storage_order 0 does",
    "test_onehot_with_bfloat16_values": "DirectML's ONE_HOT has no BFLOAT16",
    "test_slice_start_out_of_bounds": "DirectML's slices are not empty",
    "test_resize_tf_crop_and_resize_extrapolation_value":
        "places outside of the input read its edge, and no other value",
    **dict.fromkeys([
        f"test_resize_{name}" for name in (
            "upsample_scales_cubic", "upsample_scales_cubic_align_corners",
            "downsample_scales_cubic", "downsample_scales_cubic_align_corners",
            "upsample_sizes_cubic", "downsample_sizes_cubic",
            "upsample_scales_cubic_A_n0p5_exclude_outside",
            "downsample_scales_cubic_A_n0p5_exclude_outside", "upsample_scales_cubic_asymmetric",
            "downsample_scales_cubic_antialias", "downsample_sizes_cubic_antialias",
        )
    ], _CUBIC),
    "test_resize_downsample_scales_linear_antialias": _SMOOTHED,
    "test_resize_downsample_sizes_linear_antialias": _SMOOTHED,
    **dict.fromkeys([
        f"test_reduce_log_sum_exp_{name}_{kind}"
        for name in ("do_not_keepdims", "keepdims", "default_axes_keepdims",
                     "negative_axes_keepdims")
        for kind in ("example", "random")
    ], _DOUBLE),
    "test_reduce_max_bool_inputs": _BOOLEAN,
    "test_reduce_max_empty_set_bool": _BOOLEAN,
    "test_reduce_min_bool_inputs": _BOOLEAN,
}  # fmt: skip
"""Every test that is not passed, and why not."""

COUNT, PASSED, OPERATORS = 317, 287, 37
"""How many tests there are, how many pass, and of how many operators they are."""


def collect() -> dict[str, Any]:
    """The tests of one node, by name: those of several nodes spell an operator's definition."""
    cases = collect_cases(MODULES)
    return {name: case for name, case in cases.items() if len(case.model.graph.node) == 1}


def run_case(case: Any, device: str) -> None:
    """Raises where a result is not the expected one, or cannot be computed."""
    (node,) = case.model.graph.node
    described = {a.name: get_attribute_value(a) for a in node.attribute}
    settings = {n: v.decode() if isinstance(v, bytes) else v for n, v in described.items()}
    settings |= {"op_type": node.op_type, "outputs": list(node.output)}
    for inputs, expected in case.data_sets:
        given = iter(inputs)
        arrays = [next(given) if name else None for name in node.input]
        found = run_node(settings, arrays, device)
        for result, wanted in zip(found, expected, strict=True):
            assert result.shape == np.shape(wanted), (result.shape, np.shape(wanted))
            assert result.dtype.kind == wanted.dtype.kind or result.dtype.kind in "iu"
            np.testing.assert_allclose(
                result.astype(np.float64), wanted.astype(np.float64), case.rtol, case.atol
            )


WITHOUT_BYTES = {"test_maxpool_2d_uint8": "HLSL buffers have no elements of 8 bits"}
"""What Vulkan excludes beyond these."""


def try_cases(cases: dict[str, Any], device: str) -> tuple[list[str], dict[str, str]]:
    """The tests that pass, and why the others do not."""
    passed: list[str] = []
    failed: dict[str, str] = {}
    for name, case in cases.items():
        try:
            run_case(case, device)
        except (DmlcError, Unmapped, AssertionError) as error:
            failed[name] = str(error)
        else:
            passed.append(name)
    return passed, failed


@pytest.mark.parametrize("device", ["reference", "vulkan"])
def test_the_node_tests_of_onnx(device: str) -> None:
    excluded = {**EXCLUDED, **(WITHOUT_BYTES if device == "vulkan" else {})}
    passed, failed = try_cases(collect(), device)
    assert {n: why for n, why in failed.items() if n not in excluded} == {}
    assert sorted(set(excluded) & set(passed)) == [], "these pass, and are excluded"
    assert sorted(excluded) == sorted(failed)
    count = len(passed) + len(failed)
    assert (count, len(passed)) == (COUNT, COUNT - len(excluded))
    assert device != "reference" or len(passed) == PASSED


def test_a_node_test_of_each_operator_on_opencl() -> None:
    """PoCL takes a third of a second to build a kernel: one test for each operator."""
    chosen: dict[str, Any] = {}
    for name, case in collect().items():
        if name not in EXCLUDED:
            chosen.setdefault(case.model.graph.node[0].op_type, (name, case))
    passed, failed = try_cases(dict(chosen.values()), "opencl")
    assert failed == {}
    assert len(passed) == OPERATORS
