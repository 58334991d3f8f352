"""ONNX's own node tests, which its package brings, for the operators that the library has."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.helper import get_attribute_value

from dmlc.source import DmlcError
from tests.library.onnx_elements import Unmapped, read
from tests.library.onnx_nodes import HANDLERS, run_node
from tests.onnx.node_cases import collect as collect_cases
from tests.onnx.node_cases import list_modules, read_excluded

EXCLUDED = Path(__file__).with_name("onnx_excluded.txt")
"""The tests that are not passed, by reason."""
FOREIGN = ("no tensor has", "another type", "another operator")
"""How reasons begin where ONNX has a type or a form that the operator's page has not."""
COUNT, PASSED, OPERATORS = 1094, 798, 140
"""How many tests there are, how many pass, and of how many operators they are."""
PARTS = 4
"""The operators run on devices in so many parts: in a run each part does on one of them."""
SHARE = 0.95
"""Of the tests that the pages allow for, what must pass."""


@functools.cache
def collect() -> dict[str, Any]:
    """The tests of one node, by name: those of several nodes spell an operator's definition."""
    return {
        name: case
        for name, case in collect_cases(list_modules()).items()
        if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in HANDLERS
    }


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
        assert len(found) == len(expected), (len(found), len(expected))
        for result, wanted in zip(found, map(read, expected), strict=True):
            assert result.shape == np.shape(wanted), (result.shape, np.shape(wanted))
            assert result.dtype.kind == wanted.dtype.kind or result.dtype.kind in "iu"
            np.testing.assert_allclose(
                result.astype(np.float64), wanted.astype(np.float64), case.rtol, case.atol
            )


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


def test_the_node_tests_of_onnx() -> None:
    excluded = read_excluded(EXCLUDED)
    passed, failed = try_cases(collect(), "reference")
    assert {n: why for n, why in failed.items() if n not in excluded} == {}
    assert sorted(set(excluded) & set(passed)) == [], "these pass, and are excluded"
    assert sorted(excluded) == sorted(failed)
    assert (len(passed) + len(failed), len(passed)) == (COUNT, PASSED)
    foreign = sum(reason.startswith(FOREIGN) for reason in excluded.values())
    assert len(passed) >= SHARE * (COUNT - foreign)


@pytest.mark.grid(2)
@pytest.mark.parametrize("device", ["opencl", "vulkan"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_node_test_of_each_operator_on_a_device(part: int, device: str) -> None:
    excluded = read_excluded(EXCLUDED)
    chosen: dict[str, Any] = {}
    for name, case in collect().items():
        if name not in excluded:
            chosen.setdefault(case.model.graph.node[0].op_type, (name, case))
    assert len(chosen) == OPERATORS
    own = list(chosen.values())[part::PARTS]
    passed, failed = try_cases(dict(own), device)
    assert failed == {}
    assert len(passed) == len(own)
