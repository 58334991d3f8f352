"""Running the examples that stand in operators, and holding results to the reference."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import dmlc
from dmlc import DataType
from dmlc.testing.examples import ExampleRun, read_cases, run_examples
from dmlc.testing.verify import verify
from tests.library.run import devices_of

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


def run_on_device(operator: dmlc.Operator, device: str) -> Iterator[ExampleRun]:
    """Every example with one choice of data types, and with all of them where one has not run."""
    ran: set[DataType] = set()
    for example in operator.definition.examples:
        alone = dataclasses.replace(operator.definition, examples=(example,))
        types = {case.data_type for case in read_cases(alone, example)}
        if device == "vulkan":
            # Shaders have no 8 bits.
            types = {t for t in types if t.bytes > 1}
        runs = run_examples(dmlc.Operator(alone), device)
        for done in itertools.islice(runs, 1 if types <= ran else None):
            ran.add(done.data_type)
            yield done


@pytest.mark.parametrize(
    ("name", "device"), [(n, d) for n in dmlc.operators() for d in devices_of(n)]
)
def test_the_examples_of_the_library(name: str, device: str) -> None:
    operator = dmlc.operator(name)
    runs = run_examples if device == "reference" else run_on_device
    done = list(runs(operator, device))
    assert {r.title for r in done} == {e.title for e in operator.definition.examples}
    inputs = [t for t in operator.definition.levels[-1].tensors if not t.output]
    if inputs and DataType.FLOAT16 in inputs[0].dtypes:
        assert DataType.FLOAT16 in {r.data_type for r in done}
    for result in done:
        assert result.holds, (result.title, result.data_type, result.verdicts)


def test_an_example_runs_with_the_types_that_hold_its_numbers() -> None:
    operator = dmlc.parse(SCALE % "0").operators["SCALE"]
    done = [(r.title, r.data_type.short, r.holds) for r in run_examples(operator)]
    assert done == [
        ("whole", "f32", True),
        ("whole", "f16", True),
        ("whole", "s32", True),
        ("negated", "f32", True),
        ("negated", "f16", True),
    ]


def test_an_example_that_is_wrong() -> None:
    operator = dmlc.parse(SCALE % "1").operators["SCALE"]
    first = next(run_examples(operator))
    assert not first.holds
    assert first.verdicts["y"].comparison.different == 1


def test_results_are_held_to_the_reference() -> None:
    operator = dmlc.operator("onednn.ReLUBackward")
    x = np.array([[-1, 2], [3, np.nan]], np.float16)
    arrays = {"src": x, "diff_dst": np.asfortranarray(x)}
    results = dmlc.run(operator, arrays)
    assert verify(operator, arrays, {}, results)["diff_src"].holds
    results["diff_src"][1, 0] = 7
    verdict = verify(operator, arrays, {}, results)["diff_src"]
    assert not verdict.holds
    assert verdict.comparison.worst == (1, 0)
    assert str(verdict) == (
        "1 of 4 elements differ, by 4 at most (1.33 relative, 1280 ulp); at [1, 0] it is 7 where 3 "
        "is expected: it must be exact"
    )
