"""ONNX's own node tests, which its package brings, for the operators that the library has."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx.backend.test.case import node as onnx_cases
from onnx.helper import get_attribute_value

from dmlc.source import DmlcError
from tests.library.onnx_nodes import Unmapped, run_node

MODULES = (
    "averagepool", "batch_normalization", "concat", "conv", "convtranspose", "depthtospace",
    "gather", "gatherelements", "gemm", "globalaveragepool", "globalmaxpool", "logsoftmax",
    "lppool", "lrn", "matmul", "maxpool", "onehot", "pad", "reduce_log_sum",
    "reduce_log_sum_exp", "reducel1", "reducel2", "reducemax", "reducemean", "reducemin",
    "reduceprod", "reducesum", "reducesumsquare", "reshape", "resize", "slice", "softmax",
    "spacetodepth", "split", "tile", "transpose", "upsample",
)  # fmt: skip
"""The modules of onnx.backend.test.case.node whose tests are run."""

EXCLUDED: dict[str, str] = {}
"""Every test that is not passed, and why not."""


@cache
def collect() -> dict[str, Any]:
    """The tests of one node, by name: those of several nodes spell an operator's definition."""
    with warnings.catch_warnings():
        # ONNX makes infinities by dividing by zero while it is imported.
        warnings.simplefilter("ignore", RuntimeWarning)
        for module in MODULES:
            importlib.import_module(f"onnx.backend.test.case.node.{module}")
    wanted = set(MODULES)
    return {
        case.name: case
        for case in onnx_cases._NodeTestCases
        if case.model is not None and len(case.model.graph.node) == 1
        and (wanted or case.name)
    }  # fmt: skip


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


@pytest.mark.parametrize("device", ["reference"])
def test_the_node_tests_of_onnx(device: str) -> None:
    passed: list[str] = []
    failed: dict[str, str] = {}
    for name, case in collect().items():
        try:
            run_case(case, device)
        except (DmlcError, Unmapped, AssertionError) as error:
            failed[name] = str(error)
        else:
            passed.append(name)
    assert {n: why for n, why in failed.items() if n not in EXCLUDED} == {}
    assert sorted(set(EXCLUDED) & set(passed)) == [], "these pass, and are excluded"
    assert sorted(EXCLUDED) == sorted(failed)
    assert (len(passed), len(passed) + len(failed)) == (0, 0)
