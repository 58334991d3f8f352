"""The calls in which DirectML and dmlc of November 2026 differed: what became of each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc.binding import TensorDesc
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from dmlc.testing.case import Call, Case, lay_out, run_case
from dmlc.testing.examples import read_cases
from tests.directml.answers import FOLDER, is_near

CASES: Mapping[str, dict[str, Any]] = json.loads((FOLDER / "cases.json").read_text("utf-8"))
FOLLOWED, DIFFERING = (
    [name for name, case in CASES.items() if case["follow"] == word] for word in ("yes", "differs")
)
NOW_FOLLOWED = ("b64-max-pooling-empty-index",)
"""Kept as cases that differ, and followed since: it cost nothing."""


def make_case(found: dict[str, Any]) -> Case:
    tensors = {
        name: TensorDesc(tensor["type"], tuple(tensor["sizes"]))
        for name, tensor in found["tensors"].items()
    }
    call = Call(dmlc.operator(found["operator"]), tensors, found["attributes"])
    return Case(call, {n: read(v, tensors[n]) for n, v in found["inputs"].items()}, "a case")


def read(values: list[int | float | str], desc: TensorDesc) -> Array:
    """Numbers in logical order; `nan`, `inf` and `-inf` are texts."""
    numbers = [float(v) if isinstance(v, str) else v for v in values]
    return lay_out(np.array(numbers, desc.data_type.dtype), desc)


@pytest.mark.grid(3)
@pytest.mark.parametrize("device", ["reference", "opencl", "vulkan"])
@pytest.mark.parametrize("name", [*FOLLOWED, *NOW_FOLLOWED])
def test_what_is_followed_gives_what_directml_does(name: str, device: str) -> None:
    case = make_case(CASES[name])
    results, refused = {}, ""
    try:
        results = run_case(case, device)
    except dmlc.UnsupportedError as error:
        refused = str(error)
    if refused:
        # Not every driver of Vulkan has them.
        assert (device, "no elements of 8 bits" in refused) == ("vulkan", True)
        return
    bounds = bound_errors(case.call.function, case.inputs)
    for output, values in CASES[name]["directml"].items():
        given = read(values, case.call.tensors[output])
        within = np.where(np.isfinite(bounds[output]), bounds[output], 0.0).max(initial=0.0)
        assert is_near(results[output], given, float(within)).all(), (output, results[output])


def list_sections(operator: dmlc.Operator) -> Iterator[Case]:
    """The cases of an operator's sections `differs`, of every data type."""
    for difference in operator.definition.differences:
        yield from read_cases(operator, difference)


def is_same(section: Case, case: Case) -> bool:
    """Whether a section has the case's very call: types, sizes, attributes and inputs."""
    known = section.call.binding.attributes, case.call.binding.attributes
    return (
        section.call.tensors == case.call.tensors
        and known[0] == known[1]
        and all(
            np.array_equal(section.inputs[n], array, equal_nan=array.dtype.kind == "f")
            for n, array in case.inputs.items()
        )
    )


@pytest.mark.parametrize("name", [name for name in DIFFERING if name not in NOW_FOLLOWED])
def test_what_differs_stands_in_its_operator_in_numbers(name: str) -> None:
    """With what is given, what dmlc gives and what DirectML does; where several outputs differ,
    in one section or several."""
    found = CASES[name]
    case = make_case(found)
    sections = [s for s in list_sections(case.call.operator) if is_same(s, case)]
    assert sections
    instead = {output: array for s in sections for output, array in s.instead.items()}
    for output, values in found["directml"].items():
        own = [s.expected[output] for s in sections]
        differs = not alike(values, found["dmlc"][output])
        assert differs == (output in instead)
        for array in own:
            assert alike(found["dmlc"][output], array.ravel().tolist())
        if differs:
            assert alike(values, instead[output].ravel().tolist())


def alike(left: list[Any], right: list[Any]) -> bool:
    """Whether numbers are the same, to the digits of FLOAT32."""
    pairs = zip(map(float, left), map(float, right), strict=True)
    return all(a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-6)
               for a, b in pairs)  # fmt: skip


def test_every_case_is_of_a_kind_that_is_known() -> None:
    counts = {word: sum(case["follow"] == word for case in CASES.values())
              for word in ("yes", "differs", "stack")}  # fmt: skip
    assert counts == {"yes": 39, "differs": 33, "stack": 7}
    assert len(CASES) == 79
