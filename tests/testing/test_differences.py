"""Sections `differs`: what others give, and the elements and calls that their conditions name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc.binding import Operator, TensorDesc
from dmlc.scalars import DataType
from dmlc.testing.case import Call
from dmlc.testing.differences import find_all_concerned
from dmlc.testing.examples import read_cases
from dmlc.testing.harness import OperatorTest, Settings
from dmlc.testing.outcome import Cause, Outcome, Status
from dmlc.testing.replay import read_failure

TEXT = """operator QUOTIENT {{
    attributes {{
        | Attribute | Type | Default |
        | Strict    | BOOL | false   |
    }}
    tensors {{
        | Tensor | Kind            | Ranks | Types         |
        | a      | Input           | 2     | f32, u8, s32  |
        | b      | Input           | 2     | f32, u8, s32  |
        | y      | Output          | 2     | f32, u8, s32  |
        | total  | Output          | 2     | f32, u8, s32  |
        | unused | Optional output | 2     | f32, u8, s32  |
    }}
    constraints {{ a, b, y, total and unused must have the same DataType. }}
    compute {{
        quotient = a / b
        y        = quotient
        total    = sum(quotient, axes: [1])
        unused   = quotient
    }}
    differs "a divisor of 0" {header} {{
        {items}
    }}
}}
"""
GIVEN = "a: u8 = [[7, 6], [8, 3]] b = [[0, 2], [4, 1]] expect total = [[3], [5]] "
WHOLE = f"{GIVEN} expect y = [[0, 3], [2, 3]] instead of [[255, 3], [2, 3]]"


def read(header: str = "", items: str = WHOLE) -> Operator:
    (operator,) = dmlc.parse(TEXT.format(header=header, items=items), "q.dml").operators.values()
    return operator


def run(header: str, items: str = WHOLE) -> list[Outcome]:
    operator = read(header, items)
    test = OperatorTest(operator, Settings(("reference",)))
    examples = (*operator.definition.examples, *operator.definition.differences)
    return [outcome for example in examples for outcome in test.run_example(example)]


def concern(header: str, strict: bool = False) -> dict[str, list[list[bool]]]:
    """What the section concerns of a call of INT32 whose first divisor is 0."""
    desc = TensorDesc(DataType.INT32, (2, 2))
    tensors = {"a": desc, "b": desc, "y": desc, "total": TensorDesc(DataType.INT32, (2, 1))}
    call = Call(read(header), tensors, {"Strict": strict})
    inputs = {"a": np.ones((2, 2), np.int32), "b": np.array([[0, 1], [2, 3]], np.int32)}
    found = find_all_concerned(call, inputs)
    assert found.keys() <= {"a divisor of 0"}
    return {n: a.tolist() for title in found.values() for n, a in title.items()}


YES = [[True, True], [True, True]]
FIRST = [[True, False], [False, False]]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", {"y": YES, "total": [[True], [True]]}),
        ("where b == 0", {"y": FIRST, "total": [[True], [True]]}),
        ("where any(b == 0, axes: [1])", {"y": [YES[0], FIRST[1]], "total": [[True], [False]]}),
        ("in y where b == 0", {"y": FIRST}),
        ("in total where b == 0", {"total": [[True], [True]]}),
        ("in unused where b == 0", {}),
        ("in y[i, j] where i == j && b[i, 0] == 0", {"y": FIRST}),
        ("in y[i...] where i[0] == 1", {"y": [[False, False], [True, True]]}),
        ("in y where quotient == 0 && a > 0", {"y": [[True, False], [True, True]]}),
        ("in y where y == 1", {"y": [[False, True], [False, False]]}),
        ("where Strict", {}),
        ("where b.DataType == UINT8", {}),
        ("where b == 5", {}),
    ],
)
def test_a_condition_names_elements_or_calls(
    header: str, expected: dict[str, list[list[bool]]]
) -> None:
    assert concern(header) == expected


def test_an_attribute_decides_of_a_call() -> None:
    assert concern("where Strict", strict=True).keys() == {"y", "total"}


def test_a_case_that_differs_where_the_condition_holds() -> None:
    for header in ("where b == 0", "", "in y where b == 0", "in y[i, j] where b[i, j] == 0"):
        (outcome,) = run(header)
        assert (outcome.status, outcome.message) == (Status.PASSED, "")
    (case,) = read_cases(read(), read().definition.differences[0])
    assert case.call.tensors["a"].data_type is DataType.UINT8
    assert case.instead["y"].tolist() == [[255, 3], [2, 3]]


@pytest.mark.parametrize(
    ("header", "items", "cause", "message"),
    [
        ("", WHOLE.replace("[[0, 3]", "[[1, 3]"), Cause.EXPECTED, "y: 1 of 4 elements differ"),
        ("", WHOLE.replace("255", "0"), Cause.ALIKE,
         "y: what others give does not differ beyond the bounds"),
        ("where b == 1", WHOLE, Cause.ALIKE, "y: the condition does not hold where it differs"),
        ("in total where b == 0", WHOLE, Cause.ALIKE,
         "y: the condition does not hold where it differs"),
        ("where a[7, 0] == 0", WHOLE, Cause.ALIKE, "q.dml:21:38: error: "),
        ("", WHOLE.replace("255", "256"), Cause.NO_CASE,
         "'y' is UINT8, which does not hold these numbers"),
    ],
)  # fmt: skip
def test_a_case_that_is_wrong(header: str, items: str, cause: Cause, message: str) -> None:
    (outcome,) = run(header, items)
    assert (outcome.status, outcome.cause) == (Status.FAILED, cause)
    assert message in outcome.message
    assert outcome.span is not None


def test_bounds_are_kept_of_what_others_give() -> None:
    """Half the bound of a floating result is no difference."""
    items = (
        "a: f32 = [[1, 1]] b = [[3, 3]] expect total = [[0.6667]] within 1e-3 "
        "expect y = [[0.3333, 0.3333]] instead of [[0.3333, %s]] within 1e-3"
    )
    (near,), (far,) = run("", items % "0.334"), run("", items % "0.34")
    assert (near.cause, far.status) == (Cause.ALIKE, Status.PASSED)


def test_a_data_type_that_is_said_is_the_only_one() -> None:
    typed = (
        "a: %s = [[4, 4]] b = [[2, 1]] expect total = [[6]] expect y = [[2, 4]] instead of [[3, 4]]"
    )
    for name, dtype in (("u8", DataType.UINT8), ("FLOAT32", DataType.FLOAT32)):
        operator = read("", typed % name)
        cases = list(read_cases(operator, operator.definition.differences[0]))
        assert [c.call.tensors["b"].data_type for c in cases] == [dtype]
    operator = read("", typed.replace(": %s", "").replace("expect y", "expect y: s32"))
    (case,) = read_cases(operator, operator.definition.differences[0])
    assert {desc.data_type for desc in case.call.tensors.values()} == {DataType.INT32}


def test_no_others_are_asked_of_an_operator_without_such_sections() -> None:
    operator = dmlc.operator("directml.ACTIVATION_IDENTITY")
    desc = TensorDesc(DataType.FLOAT32, (2,))
    call = Call(operator, {"InputTensor": desc, "OutputTensor": desc}, {})
    assert find_all_concerned(call, {"InputTensor": np.zeros(2, np.float32)}) == {}


def test_a_failure_that_is_kept_says_what_others_give(tmp_path: Path) -> None:
    for header, items in (("where b == 1", WHOLE), ("", WHOLE.replace("255", "0"))):
        operator = read(header, items)
        settings = Settings(("reference",), failures=tmp_path)
        (outcome,) = OperatorTest(operator, settings).run_example(
            operator.definition.differences[0]
        )
        assert outcome.folder is not None
        replay = read_failure(outcome.folder, [operator])
        assert replay.case.difference == operator.definition.differences[0]
        found = replay.run()
        assert (found.cause, found.message) == (outcome.cause, outcome.message)
        assert found.cause is Cause.ALIKE
