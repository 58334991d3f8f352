"""The sections `differs` of the library: they can be evaluated for every call, and hide nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

import dmlc
from dmlc.binding import Operator
from dmlc.scalars import DataType
from dmlc.testing.case import Call, Case
from dmlc.testing.differences import find_all_concerned
from dmlc.testing.examples import read_cases
from dmlc.testing.outcome import CheckKind, Status, check_example, is_bindable

NAMES = [name for name, operator in dmlc.operators().items() if operator.definition.differences]


def read_examples(operator: Operator) -> list[Case]:
    """Its examples, with every choice of data types."""
    shown = (*operator.definition.examples, *operator.definition.differences)
    return [case for example in shown for case in read_cases(operator, example)]


def retype(case: Case, dtypes: tuple[DataType, ...]) -> Iterator[Case]:
    """A case with other data types in place of that of its first tensor, where the operator takes
    them."""
    first = next(iter(case.call.tensors.values())).data_type
    for dtype in dtypes:
        tensors = {
            n: dataclasses.replace(d, data_type=dtype) if d.data_type is first else d
            for n, d in case.call.tensors.items()
        }
        with np.errstate(all="ignore"):
            inputs = {n: a.astype(tensors[n].data_type.dtype) for n, a in case.inputs.items()}
        call = Call(case.call.operator, tensors, case.call.attributes)
        if is_bindable(call):
            yield Case(call, inputs, dtype.name)


def test_operators_have_them() -> None:
    assert len(NAMES) >= 35
    assert all(name.startswith("directml.") for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_condition_can_be_evaluated_and_leaves_calls_alone(name: str) -> None:
    """With every data type that the operator takes; one that always holds would hide all errors."""
    operator = dmlc.operator(name)
    differences = operator.definition.differences
    assert all(difference.condition is not None for difference in differences)
    cases = read_examples(operator)
    cases += list(retype(cases[-1], operator.definition.newest.tensors[0].dtypes))
    concerned = [find_all_concerned(case.call, case.inputs) for case in cases]
    for difference in differences:
        found = [named[difference.title] for named in concerned if difference.title in named]
        assert found
        assert len(found) < len(cases) or not all(a.all() for f in found for a in f.values())


@pytest.mark.parametrize("name", NAMES)
def test_what_it_says_holds_on_the_reference(name: str) -> None:
    operator = dmlc.operator(name)
    for difference in operator.definition.differences:
        for case in read_cases(operator, difference):
            outcome = check_example(case, "reference")
            assert (outcome.kind, outcome.status, outcome.message) == (
                CheckKind.EXAMPLE, Status.PASSED, "",
            )  # fmt: skip


def test_a_condition_names_the_elements_that_differ_and_no_others() -> None:
    """Element by element, where it has the sizes of the output."""
    operator = dmlc.operator("directml.ELEMENT_WISE_DIVIDE")
    (case, *_) = read_cases(operator, operator.definition.differences[0])
    inputs = {**case.inputs, "BTensor": np.array([0, 5], np.uint8)}
    (found,) = find_all_concerned(case.call, inputs).values()
    assert found["OutputTensor"].tolist() == [True, False]
