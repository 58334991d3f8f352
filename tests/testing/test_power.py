"""What a case would let pass: zeros, copies of inputs, formulas with one operation exchanged."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest

import dmlc
from dmlc import DataType, Operator, TensorDesc
from dmlc.oracle import find_expected
from dmlc.scalars import Array
from dmlc.testing.case import Call, Case
from dmlc.testing.exchange import list_exchanges, lower_exchanged
from dmlc.testing.loose import find_looseness
from dmlc.testing.power import Fate, Power, find_weakness, list_accepted

GATE = """
operator GATE {
    tensors {
        | Tensor | Kind   | Types    |
        | x      | Input  | f32, s32 |
        | dy     | Input  | f32, s32 |
        | dx     | Output | f32, s32 |
    }
    constraints { x, dy, and dx must have the same DataType and Sizes. }
    compute { dx = x > 0 ? dy : 0 }
}
"""

ROWS = """
operator ROWS {
    attributes {
        | Attribute | Type | Default |
        | Mean      | BOOL | false   |
    }
    tensors {
        | Tensor | Kind   | Ranks | Types |
        | x      | Input  | 2     | f32   |
        | y      | Output | 1     | f32   |
    }
    constraints { require y.Sizes == [x.Sizes[0]], "a value for each row" }
    compute {
        y[n] = Mean ? sum[k : x.Sizes[1]](x[n, k]) / x.Sizes[1] : max[k : x.Sizes[1]](x[n, k])
    }
}
"""


def operator(text: str) -> Operator:
    (found,) = dmlc.parse(text).operators.values()
    return found


def make_case(op: Operator, title: str = "a case", **given: object) -> Case:
    """A case of these inputs, with whatever outputs follow; other names are attributes."""
    inputs: dict[str, Array] = {}
    attributes: dict[str, object] = {}
    for name, value in given.items():
        if isinstance(value, bool):
            attributes[name] = value
        else:
            inputs[name] = np.array(value, np.float32)
    tensors = {n: TensorDesc(a.dtype, a.shape) for n, a in inputs.items()}
    outputs = op.resolve(tensors, attributes).tensors
    described = {n: TensorDesc(t.dtype or DataType.FLOAT32, t.sizes) for n, t in outputs.items()}
    return Case(Call(op, described, attributes), inputs, title)


def fates(power: Power) -> dict[str, Fate]:
    return {f"{s.exchange.what} in {s.exchange.place.text}": s.fate for s in power.standings}


# Zeros and copies ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ([-1, -2, -3], "all 3 elements of 'dx' would also pass as zeros"),
        ([1, 2, 3], "all 3 elements of 'dx' would also pass as a copy of 'dy'"),
        ([1, 2, -3], None),
    ],
)
def test_a_case_that_zeros_or_an_input_would_pass_is_weak(x: list[float], said: str | None) -> None:
    found = find_weakness(make_case(operator(GATE), x=x, dy=[5, 6, 7]))
    assert (None if found is None else str(found)) == said


def test_what_only_a_part_of_the_elements_would_pass_as_is_none() -> None:
    case = make_case(operator(GATE), x=[1, -2, -3], dy=[5, 6, -3])
    assert list(list_accepted(case)) == []
    case = make_case(operator(GATE), x=[-1, -2, -3], dy=[0, 0, 0])
    assert list(list_accepted(case)) == [("dx", "zeros"), ("dx", "a copy of 'dy'")]


def test_a_wide_bound_of_an_example_makes_it_weak() -> None:
    case = make_case(operator(GATE), x=[1, -1], dy=[5, 6])
    assert find_weakness(case) is None
    expected = {"dx": np.array([5.0, 0.0])}
    assert find_weakness(dataclasses.replace(case, expected=expected)) is None
    found = find_weakness(dataclasses.replace(case, expected=expected, within={"dx": 9.0}))
    assert found is not None
    assert "would also pass as zeros" in str(found)


@pytest.mark.parametrize(
    ("expected", "allowed", "loose", "inexact"),
    [
        ([1, 2], [0, 0], 0, 0),
        ([1, 2], [0.5, 2.5], 1, 2),
        # Beside large results those near 0 are small, and a bound that is a part of the large ones.
        ([0, 1e-6, 100], [0.05, 0.05, 0.05], 0, 3),
        ([0, 1e-6, 100], [0.5, 0.5, 0.5], 2, 3),
        # Of 0 alone, and of what may be flushed to it.
        ([0, 0], [1e-6, 1e-4], 1, 2),
        ([1e-39, 1e-3], [1e-38, 1e-4], 0, 2),
        # Of NaN and infinities it is their place that counts.
        ([math.nan, math.inf, 1], [0.1, math.inf, math.inf], 1, 1),
    ],
)
def test_bounds_that_are_larger_than_results_are_loose(
    expected: list[float], allowed: list[float], loose: int, inexact: int
) -> None:
    found = find_looseness(np.array(expected, np.float32), np.array(allowed))
    assert (found.loose, found.inexact) == (loose, inexact)
    assert found.is_weak == (found.share > 0.25)


def test_a_case_is_weak_where_bounds_are_larger_than_results() -> None:
    text = GATE.replace("x > 0 ? dy : 0", "(dy + x) * (dy + x) - dy * dy - 2 * x * dy")
    near = make_case(operator(text), x=[1, 2, 3], dy=[1, 2, 3])
    assert find_weakness(near) is None
    found = find_weakness(make_case(operator(text), x=[1, 2, 3], dy=[1e5, 1e5, 1]))
    assert found is not None
    assert found.loose == pytest.approx(2 / 3)
    (reason,) = found.reasons
    assert reason.startswith("the bound is larger than the result at 2 of 3 inexact elements of")
    assert re.search(r"'dx': at \[1\] it is \S+, and may be off by \S+$", reason)


def test_results_of_nothing_but_nan_are_weak() -> None:
    found = find_weakness(make_case(operator(GATE), x=[1, 1], dy=[np.nan, np.nan]))
    assert found is not None
    assert found.reasons[0] == "all 2 elements of 'dx' would also pass as NaN"


def test_what_the_formula_gives_whatever_it_reads_is_not_weak() -> None:
    zero = operator(GATE.replace("x > 0 ? dy : 0", "x != x && x > 0 ? dy : 0"))
    assert find_weakness(make_case(zero, x=[1, -1], dy=[5, 6])) is None
    # The largest of one element is that element.
    one = "operator ONE { tensors { | Tensor | Kind | Types |\n| x | Input | f32 |\n"
    one += "| y | Output | f32 | }\ncompute { y = max(x, axes: [1]) } }"
    assert find_weakness(make_case(operator(one), x=[[3], [4]])) is None
    assert find_weakness(make_case(operator(one), x=[[3, 3], [4, 4]])) is None  # No copy fits.


def test_an_empty_tensor_is_not_weak_and_tells_nothing_apart() -> None:
    op = operator(GATE)
    case = make_case(op, x=np.zeros((2, 0)), dy=np.zeros((2, 0)))
    power = Power(op)
    power.add(case)
    assert find_weakness(case, power) is None
    assert power.count()[Fate.SURVIVED] == 0


# Exchanges -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "what"),
    [
        ("x + dy", ["'-' for '+'"]),
        ("x * dy - 2", ["'+' for '-'", "'/' for '*'", "3 for 2"]),
        ("x >= dy ? x : dy", ["the arms of '?:' swapped", "'>' for '>='"]),
        ("x == dy ? x : dy", ["the arms of '?:' swapped"]),
        ("!(x < 0 && dy < 1) ? -x : dy",
         ["the arms of '?:' swapped", "no '!'", "'||' for '&&'", "'<=' for '<'", "1 for 0",
          "'<=' for '<'", "2 for 1", "no '-'"]),
        ("min(x, dy)", ["'max' for 'min'"]),
        ("clamp(x, -1, dy)", ["no upper bound", "no lower bound", "no '-'", "2 for 1"]),
        ("floor(exp(x) % dy)", ["'ceil' for 'floor'", "no '%'", "no 'exp'"]),
        ("sum(x, axes: [0])", ["'max' for 'sum'", "1 for 0"]),
    ],
)  # fmt: skip
def test_what_is_exchanged(formula: str, what: list[str]) -> None:
    op = operator(GATE.replace("x > 0 ? dy : 0", formula))
    assert [e.what for e in list_exchanges(op.definition)] == what


def test_reads_and_reductions_are_exchanged() -> None:
    formula = "sum[k : x.Sizes[1] where k > 0](x[n, k]) + (x[n + 1, 0] else 0)"
    op = operator(ROWS.partition("    compute")[0] + f"compute {{ y[n] = {formula} }}\n}}")
    assert [e.what for e in list_exchanges(op.definition)] == [
        "'-' for '+'",
        "'max' for 'sum'",
        "no 'where'",
        "the last point of 'k' left out",
        "one place on along '1'",
        "2 for 1",
        "'>=' for '>'",
        "1 for 0",
        "one place on along 'n'",
        "one place on along 'k'",
        "one place on along 'n + 1'",
        "one place on along '0'",
        "'-' for '+'",
        "2 for 1",
        "1 for 0",
        "1 for 0",
    ]
    case = make_case(op, x=[[1, 2, 4], [8, 16, 32]])
    power = Power(op)
    power.add(case)
    found = fates(power)
    assert found["one place on along 'k' in x[n, k]"] is Fate.KILLED
    assert found["no 'where' in sum[k : x.Sizes[1] where k > 0](x[n, k])"] is Fate.KILLED
    # `k >= 0` leaves nothing out.
    assert found["'>=' for '>' in k > 0"] is Fate.KILLED
    assert found["one place on along '1' in x.Sizes[1]"] is Fate.REFUSED


def test_a_read_one_place_on_stays_inside() -> None:
    op = operator(ROWS)
    case = make_case(op, x=[[1, 2], [3, 5]], Mean=True)
    (moved, *_) = (e for e in list_exchanges(op.definition) if e.what.endswith("'n'"))
    found = find_expected(lower_exchanged(case.call.binding, moved), case.inputs)
    assert found["y"].tolist() == [4, 4]


def test_ties_tell_what_random_values_do_not() -> None:
    op = operator(GATE)
    power = Power(op)
    power.add(make_case(op, x=[1, -2, 3], dy=[5, 6, 7]))
    (left,) = (s for s in power.standings if s.fate is Fate.SURVIVED)
    assert left.exchange.what == "'>=' for '>'"
    assert "GATE" not in str(left.exchange)
    power.add(make_case(op, "at a tie", x=[0, -2, 3], dy=[5, 6, 7]))
    assert power.count()[Fate.SURVIVED] == 0
    assert (left.fate, left.tries) == (Fate.KILLED, 2)


def test_branches_that_no_case_comes_to_are_not_reached() -> None:
    op = operator(ROWS)
    power = Power(op)
    power.add(make_case(op, x=[[1, 2], [4, 3]]))
    found = fates(power)
    assert found["'max' for 'sum' in sum[k : x.Sizes[1]](x[n, k])"] is Fate.UNREACHED
    assert found["'min' for 'max' in max[k : x.Sizes[1]](x[n, k])"] is Fate.KILLED
    power.add(make_case(op, x=[[1, 2], [4, 3]], Mean=True))
    assert fates(power)["'max' for 'sum' in sum[k : x.Sizes[1]](x[n, k])"] is Fate.KILLED


def test_what_computes_the_same_is_no_survivor() -> None:
    op = operator(ROWS)
    power = Power(op)
    power.add(make_case(op, x=[[1], [4]], Mean=True))
    quotient = "'*' for '/' in sum[k : x.Sizes[1]](x[n, k]) / x.Sizes[1]"
    assert fates(power)[quotient] is Fate.EQUIVALENT
    power.add(make_case(op, x=[[1, 2], [4, 5]], Mean=True))
    assert fates(power)[quotient] is Fate.KILLED


def test_a_case_that_tells_nothing_apart_that_others_do_is_weak() -> None:
    formula = "y[n] = sum[k : x.Sizes[1]](x[n, k] * 2) * 3 - 1"
    op = operator(ROWS.partition("    compute")[0] + f"compute {{ {formula} }}\n}}")
    power = Power(op)
    inf = np.inf
    weak = make_case(op, x=[[inf, inf], [inf, inf]])
    assert find_weakness(weak, power) is None  # Nothing is known yet.
    for number in range(3):
        power.add(make_case(op, x=[[1, 2 + number], [3, 5]]))
    found = find_weakness(make_case(op, x=[[inf, inf], [inf, inf]]), power)
    assert found is not None
    assert str(found).startswith("it would let pass all ")
    assert find_weakness(make_case(op, x=[[1, 2], [3, 4]]), power) is None


def test_few_exchanges_are_tried_at_a_time_and_all_in_turn() -> None:
    op = operator(GATE.replace("x > 0 ? dy : 0", " + ".join(f"x * {k}" for k in range(12))))
    power = Power(op, most=5)
    count = len(list_exchanges(op.definition))
    tried: list[int] = []
    for number in range(count):
        power.add(make_case(op, x=[1, 2 + number, 3], dy=[4, 5, 6]))
        tried.append(sum(s.tries for s in power.standings))
    assert tried[0] == 5
    assert all(b - a <= 5 for a, b in itertools.pairwise(tried))
    assert power.count()[Fate.UNTRIED] == 0


def test_a_derived_gradient_is_that_of_an_exchanged_formula() -> None:
    text = """
        operator SQUARE {
            tensors { | Tensor | Kind | Types |
                      | x | Input | f32 |
                      | y | Output | f32 | }
            compute { y = x * x + 1 }
        }
        operator SQUARE_GRAD {
            tensors { | Tensor | Kind | Types |
                      | x | Input | f32 |
                      | dy | Input | f32 |
                      | dx | Output | f32 | }
            gradient of SQUARE { dx = gradient of x  dy = gradient of y }
        }
    """
    op = dmlc.parse(text).operators["SQUARE_GRAD"]
    power = Power(op)
    power.add(make_case(op, x=[1, 2], dy=[3, 5]))
    found = fates(power)
    assert found["'/' for '*' in x * x"] is Fate.KILLED
    # What is added has no part in the derivative.
    assert found["2 for 1 in 1"] is Fate.EQUIVALENT
