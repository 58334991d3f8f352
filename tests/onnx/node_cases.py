"""ONNX's own node tests, which its package brings, on imported functions.

`excluded.txt` beside this file lists those that are not passed, by reason.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case import node as onnx_cases

import dmlc
from dmlc.source import DmlcError

TOTAL, PASSED = 1884, 1579
"""How many node tests there are, and how many pass on OpenCL."""

REFERENCE_ONLY: Mapping[str, str] = dict.fromkeys(
    ("test_dynamicquantizelinear", "test_dynamicquantizelinear_expanded"),
    "a quotient is halfway between two numbers in FLOAT32 alone",
)
"""What fails on the reference alone, which computes in FLOAT64 and rounds at the end."""


EXCLUDED = Path(__file__).with_name("excluded.txt")


@cache
def read_excluded(path: Path = EXCLUDED) -> Mapping[str, str]:
    """The reason for each test that is not passed."""
    found: dict[str, str] = {}
    reason = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            names = line.split()
            repeated = [name for name in names if name in found]
            assert not repeated, f"listed twice: {repeated}"
            found.update(dict.fromkeys(names, reason))
        else:
            reason = line
    return found


def list_modules() -> list[str]:
    """The modules of ONNX that make node tests."""
    prefix = f"{onnx_cases.__name__}."
    found = pkgutil.walk_packages(onnx_cases.__path__, prefix)
    return sorted(info.name.removeprefix(prefix) for info in found)


@cache
def make_cases(module: str) -> tuple[Any, ...]:
    """The tests that a module makes. ONNX lists those of all modules that a process has imported,
    so nothing else may import one."""
    before = len(onnx_cases._NodeTestCases)
    with warnings.catch_warnings():
        # ONNX makes infinities by dividing by zero while it is imported, and sets arrays' shapes,
        # of which NumPy warns from version 2.5 on.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module(f"{onnx_cases.__name__}.{module}")
    return tuple(onnx_cases._NodeTestCases[before:])


def collect(modules: Iterable[str]) -> dict[str, Any]:
    """The tests that some modules make, by name."""
    cases = (case for module in modules for case in make_cases(module))
    return {case.name: case for case in cases if case.model is not None}


def load_case(case: Any) -> tuple[dmlc.onnx.ImportedModel, dict[str, Any]]:
    """The function of a test, and what is left to be given when it runs. What shapes it, such as
    the sizes of a Reshape, is fixed at what the test gives for it, and nothing else is."""
    names = [i.name for i in case.model.graph.input]
    given = dict(zip(names, case.data_sets[0][0], strict=False))
    constants: dict[str, Any] = {}
    while True:
        try:
            found = dmlc.onnx.load(case.model, constants=constants)
        except dmlc.onnx.UnknownValueError as error:
            new = [name for name in error.names if name not in constants]
            if not new:
                raise
            constants.update({name: as_array(given[name]) for name in new})
        else:
            return found, {n: as_array(v) for n, v in given.items() if n in found.inputs}


def as_array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value)


def run_case(case: Any, device: str) -> None:
    """Raises where a result is not the expected one, or cannot be computed."""
    model, inputs = load_case(case)
    found = model.run(inputs, device=device)
    for output, expected in zip(case.model.graph.output, case.data_sets[0][1], strict=True):
        result, wanted = found[output.name], as_array(expected)
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype), output.name
        np.testing.assert_allclose(
            result.astype(np.float64), wanted.astype(np.float64), case.rtol, case.atol
        )


def try_cases(cases: Mapping[str, Any], device: str) -> tuple[list[str], dict[str, str]]:
    """The tests that pass, and why the others do not."""
    passed: list[str] = []
    failed: dict[str, str] = {}
    for name, case in cases.items():
        try:
            run_case(case, device)
        except (DmlcError, AssertionError) as error:
            failed[name] = str(error)
        else:
            passed.append(name)
    return passed, failed


def compare_with_list(passed: Iterable[str], failed: Mapping[str, str], device: str) -> list[str]:
    """What the list of excluded tests says and is not so, a line for each."""
    excluded = dict(read_excluded())
    if device == "reference":
        excluded |= REFERENCE_ONLY
    wrong = [f"{name} fails, and is not listed: {why}" for name, why in failed.items()
             if name not in excluded]  # fmt: skip
    return wrong + [f"{name} passes, and is listed" for name in passed if name in excluded]
