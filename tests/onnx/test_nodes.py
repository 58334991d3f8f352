"""A sample of ONNX's own node tests: `make onnx` runs them all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.onnx.node_cases import (
    PASSED,
    TOTAL,
    collect,
    compare_with_list,
    read_excluded,
    try_cases,
)

MODULES = (
    "argmax", "averagepool", "bitcast", "bitshift", "conv", "cumsum", "dft",
    "dynamicquantizelinear", "einsum", "gridsample", "lstm", "nonzero", "pad", "reducemean",
    "reshape", "scatternd", "slice", "topk",
)  # fmt: skip
"""The modules of onnx.backend.test.case.node whose tests are in the sample."""


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    return collect(MODULES)


def test_the_sample_on_the_reference(cases: dict[str, Any]) -> None:
    passed, failed = try_cases(cases, "reference")
    assert compare_with_list(passed, failed, "reference") == []
    assert len(passed) > 100


def test_some_of_each_on_opencl(cases: dict[str, Any]) -> None:
    """PoCL takes a third of a second to build a kernel: the first test of each operator."""
    chosen: dict[str, tuple[str, Any]] = {}
    for name, case in cases.items():
        operator = case.model.graph.node[0].op_type
        if name not in read_excluded() and len(case.model.graph.node) == 1:
            chosen.setdefault(operator, (name, case))
    passed, failed = try_cases(dict(chosen.values()), "opencl")
    assert failed == {}
    assert len(passed) == 17


def test_the_list_of_excluded_tests() -> None:
    excluded = read_excluded()
    assert len(excluded) == TOTAL - PASSED
    assert all(reason.endswith(".") for reason in excluded.values())
    assert PASSED >= 1150
