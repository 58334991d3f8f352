"""Running the examples that stand in operators, and holding results to the reference."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import dmlc
from dmlc import DataType
from dmlc.testing.case import Call, Case, judge
from dmlc.testing.examples import read_cases
from dmlc.testing.outcome import Cause, Outcome, Status, check_example
from dmlc.testing.verify import verify
from tests.example_runs import run_examples
from tests.library.run import list_unlike

SCALE = """
enum MODE { PLAIN = 0, NEGATED = 1 }
operator SCALE {
    attributes {
        | Attribute | Type  | Default |
        | Mode      | MODE  | PLAIN   |
        | Factor    | FLOAT | 1 / 2   |
    }
    tensors {
        | Tensor | Kind   | Types          |
        | x      | Input  | f32, f16, s32, u8  |
        | y      | Output | f32, f16, s32, u8  |
    }
    constraints { x and y must have the same DataType and Sizes. }
    compute { y = Mode == NEGATED ? -x : cast(x, FLOAT32) > 0 ? x : 0 }
    example "whole" {
        x = [1, -2]
        expect y = [1, %s]
    }
    example "negated" {
        Mode = NEGATED
        Factor = 1 / 4
        x = [[1.5], [nan]]
        expect y = [[-1.5], [nan]]
    }
}
"""


def first_type(call: Call) -> DataType:
    """The data type of the first input, or of the first output where there is none."""
    return next(iter((call.inputs or call.outputs).values())).data_type


def type_of(outcome: Outcome) -> DataType:
    assert outcome.case is not None
    return first_type(outcome.case.call)


USUAL = (DataType.FLOAT32, DataType.FLOAT16)


def choose_some(cases: Sequence[Case], turn: int) -> list[Case]:
    """Those of the usual data types, and every second of the others."""
    usual = [case for case in cases if first_type(case.call) in USUAL]
    return usual + [case for case in cases if case not in usual][turn::2]


def run_some(operator: dmlc.Operator, device: str) -> Iterator[Outcome]:
    """Every example of an operator. Of the choices of data types that its examples have, each of
    the usual ones runs once, and half of the others: another half for another operator, and for
    Vulkan the half that OpenCL leaves out."""
    definition, seen = operator.definition, set[tuple[DataType, ...]]()
    turn = (zlib.crc32(operator.name.encode()) + (device == "vulkan")) % 2
    for number, example in enumerate((*definition.examples, *definition.differences)):
        cases = {tuple(t.data_type for t in case.call.tensors.values()): case
                 for case in read_cases(operator, example)}  # fmt: skip
        unseen = [case for types, case in cases.items() if types not in seen]
        spare = list(cases.values())[number % len(cases)]
        for case in choose_some(unseen, turn) or [spare]:
            with warnings.catch_warnings():
                # Of what kernels do slowly: no mistakes.
                warnings.simplefilter("ignore", UserWarning)
                yield check_example(case, device)
        seen.update(cases)


def test_some_cases_are_of_every_example_and_of_half_the_types() -> None:
    """The other half on the other device."""
    text = (SCALE % "0").replace("f16, s32, u8 ", "f16, s32, s16")
    operator = dmlc.parse(text).operators["SCALE"]
    others: set[str] = set()
    for device in ("opencl", "vulkan"):
        done = [(r.title, type_of(r).short) for r in run_some(operator, device)]
        assert done[:2] == [("whole", "f32"), ("whole", "f16")]
        assert done[3:] == [("negated", "f16")]
        others.add(done[2][1])
    assert others == {"s32", "s16"}


@pytest.mark.grid(2)
@pytest.mark.parametrize(
    ("name", "device"),
    [*((n, "opencl") for n in dmlc.operators()), *((n, "vulkan") for n in list_unlike())],
)
def test_the_examples_of_the_library(
    name: str, device: str, request: pytest.FixtureRequest
) -> None:
    """What a device gives is held to the example, and to the reference."""
    operator = dmlc.operator(name)
    every = request.config.getoption("--all")
    done = list(run_examples(operator, device) if every else run_some(operator, device))
    ran = [outcome for outcome in done if outcome.status is not Status.UNSUPPORTED]
    if device == "vulkan" and not ran:
        assert all("no elements of 8 bits" in outcome.message for outcome in done)
        return
    definition = operator.definition
    shown = (*definition.examples, *definition.differences)
    assert {r.title for r in ran} == {e.title for e in shown}
    inputs = [t for t in operator.definition.levels[-1].tensors if not t.output]
    if inputs and DataType.FLOAT16 in inputs[0].dtypes:
        assert DataType.FLOAT16 in {type_of(r) for r in ran}
    for outcome in ran:
        assert outcome.status is Status.PASSED, outcome.message
    if device != "vulkan":
        assert ran == done  # Shaders have few operations of FLOAT64.


def test_an_example_runs_with_the_types_that_hold_its_numbers() -> None:
    operator = dmlc.parse(SCALE % "0").operators["SCALE"]
    done = [(r.title, type_of(r).short, r.status.value) for r in run_examples(operator)]
    assert done == [
        ("whole", "f32", "passed"),
        ("whole", "f16", "passed"),
        ("whole", "s32", "passed"),
        ("negated", "f32", "passed"),
        ("negated", "f16", "passed"),
    ]


def test_an_example_that_is_wrong() -> None:
    operator = dmlc.parse(SCALE % "1", "scale.dml").operators["SCALE"]
    first = next(run_examples(operator))
    assert (first.status, first.cause) == (Status.FAILED, Cause.EXPECTED)
    assert first.verdicts["y"].different == 1
    assert first.place == "scale.dml:18"
    assert "at [1] it is 0 where 1 is expected: it must be exact" in first.message


def read_mistake(items: str) -> str:
    """What is said of an example of an operator that copies `x` to `y`."""
    text = f"""operator COPY {{
    tensors {{
        | Tensor | Kind   | Ranks | Types    |
        | x      | Input  | 1, 2  | s32, f16 |
        | y      | Output | 1, 2  | s32, f16 |
        | z      | Output | 1, 2  | f32 |
    }}
    constraints {{
        x and y must have the same DataType and Sizes.
        require x.Sizes[0] < 4, "x is short"
    }}
    compute {{
        y = x
        z = cast(x, FLOAT32)
    }}
    example "one" {{ {items} }}
}}
"""
    operator = dmlc.parse(text, "copy.dml").operators["COPY"]
    with pytest.raises(dmlc.DmlcError) as caught:
        list(read_cases(operator, operator.definition.examples[0]))
    return str(caught.value)


def test_what_is_expected_in_other_sizes_is_reported_there() -> None:
    assert read_mistake("x = [1, 2] expect y = [1, 2, 3]").splitlines()[:3] == [
        "copy.dml:16:43: error: 'y' is [2] here, and [3] expected",
        '   16 |     example "one" { x = [1, 2] expect y = [1, 2, 3] }',
        "      |                                           ^^^^^^^^^",
    ]
    said = read_mistake("x = [1, 2] expect y = [1, 2] expect z = [[1, 2]]")
    assert said.startswith("copy.dml:16:61: error: 'z' is [2] here, and [1, 2] expected")


def test_numbers_that_no_type_holds_are_reported_there() -> None:
    said = read_mistake("x = [1] expect y = [1] expect z = [1e39]")
    assert said.startswith(
        "copy.dml:16:55: error: 'z' is FLOAT32, which does not hold these numbers"
    )


LIMITS = """operator LIMITS {
    tensors {
        | Tensor | Kind   | Types    |
        | x      | Input  | u64, s64 |
        | y      | Output | u64, s64 |
    }
    constraints { x and y must have the same DataType and Sizes. }
    compute { y = x }
    example "limits" { x = [%s] expect y = [%s] }
}
"""


@pytest.mark.parametrize(
    ("dtype", "numbers", "others"),
    [
        (DataType.UINT64, [2**64 - 1, 2**64 - 2, 3], [2**64 - 2, 2**64 - 2, 3]),
        (DataType.INT64, [2**63 - 1, -(2**63), 2**53 + 1], [2**63 - 1, -(2**63), 2**53]),
    ],
)
def test_the_limits_of_the_largest_types_are_exact(
    dtype: DataType, numbers: list[int], others: list[int]
) -> None:
    """Also those that are no number of float64."""
    given, wrong = (", ".join(map(str, listed)) for listed in (numbers, others))
    (operator,) = dmlc.parse(LIMITS % (given, given)).operators.values()
    (case,) = read_cases(operator, operator.definition.examples[0])
    for array in (case.inputs["x"], case.expected["y"]):
        assert (array.dtype, array.tolist()) == (dtype.dtype, numbers)
    (operator,) = dmlc.parse(LIMITS % (given, wrong)).operators.values()
    (case,) = read_cases(operator, operator.definition.examples[0])
    assert not judge(case, {"y": case.inputs["x"]})["y"].holds


@pytest.mark.parametrize("number", ["-1", "1.5", "nan", "inf", "18446744073709551616.0"])
def test_what_is_no_whole_number_of_the_type_is_refused(number: str) -> None:
    text = LIMITS.replace("u64, s64", "u64     ") % ("1", number)
    (operator,) = dmlc.parse(text).operators.values()
    with pytest.raises(dmlc.DmlcError, match="'y' is UINT64, which does not hold these numbers"):
        list(read_cases(operator, operator.definition.examples[0]))


def test_an_example_that_cannot_be_bound_is_reported_there() -> None:
    said = read_mistake("x = [1, 2, 3, 4] expect y = [1, 2, 3, 4]")
    assert said.startswith("copy.dml:16:5: error: COPY: broken constraint: x is short")
    assert "copy.dml:10:9: note: in COPY" in said


def test_what_may_differ_is_said_within() -> None:
    text = """operator THIRD {
    tensors {
        | Tensor | Kind   | Types |
        | x      | Input  | f32   |
        | y      | Output | f32   |
    }
    compute { y = x / 3 }
    example "wide" { x = [1, 2, nan] expect y = [0.33, 0.67, nan] within 0.005 }
    example "narrow" { x = [1, 2, nan] expect y = [0.33, 0.67, nan] within 1e-3 }
    example "exact" { x = [3] expect y = [1] within 0 }
}
"""
    operator = dmlc.parse(text).operators["THIRD"]
    wide, narrow, exact = run_examples(operator)
    assert (wide.status, exact.status) == (Status.PASSED, Status.PASSED)
    assert wide.share == pytest.approx(2 / 3, 1e-3)
    assert narrow.status is Status.FAILED
    assert "it is 0.333333343 where 0.330000013 is expected: it may be off by 0.001" in (
        narrow.message
    )


def test_results_are_held_to_the_reference() -> None:
    operator = dmlc.operator("onednn.ReLUBackward")
    x = np.array([[-1, 2], [3, np.nan]], np.float16)
    arrays = {"src": x, "diff_dst": np.asfortranarray(x)}
    results = dmlc.run(operator, arrays)
    assert verify(operator, arrays, {}, results)["diff_src"].holds
    results["diff_src"][1, 0] = 7
    verdict = verify(operator, arrays, {}, results)["diff_src"]
    assert not verdict.holds
    assert verdict.worst == (1, 0)
    assert str(verdict) == (
        "1 of 4 elements differ, by 4 at most (1.33 relative, 1280 ulp); at [1, 0] it is 7 where 3 "
        "is expected: it must be exact"
    )
