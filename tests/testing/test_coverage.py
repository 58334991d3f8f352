"""Which rows of an operator's tables, constraints and formula its cases come by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import dmlc
from dmlc import DataType, Operator, TensorDesc
from dmlc.scalars import Array
from dmlc.testing.case import Call, Case, lay_out
from dmlc.testing.coverage import KINDS, Coverage, CoverageItem, show_table
from dmlc.testing.examples import read_cases
from dmlc.testing.trace import trace_formula

SCALED = """
enum MODE { PLAIN = 0, NEGATED = 1 }
operator SCALED {
    attributes {
        | Attribute | Type   | Default | Values   |
        | Mode      | MODE   | PLAIN   |          |
        | Flag      | BOOL   |         |          |
        | Word      | STRING | "a"     | `a`, `b` |
        | Least     | INT    | 1       |          |
        | Factor    | FLOAT  | 1       |          |
    }
    tensors {
        | Tensor | Kind           | Ranks  | Types    |
        | x      | Input          | 1 to 2 | f32, f16 |
        | scale  | Optional input | 1 to 2 | f32, f16 |
        | y      | Output         | 1 to 2 | f32      |
    }
    types {
        | x   | scale | y   |
        | f32 | f32   | f32 |
        | f16 | f32   | f32 |
    }
    constraints {
        x and y must have the same Sizes.
        scale must be broadcastable to x.
        require Least >= 1
        require Factor > 0, "no"
        require !(Least > 3) && all(x.Sizes != 7)
    }
    compute {
        y = (present(scale) ? scale : 1) * cast(x, FLOAT32)
    }
}
"""


def operator(text: str) -> Operator:
    return list(dmlc.parse(text).operators.values())[-1]


def make_call(op: Operator, tensors: Mapping[str, TensorDesc], **attributes: object) -> Call:
    return Call(op, tensors, attributes)


def make_case(
    op: Operator,
    inputs: Mapping[str, Array],
    attributes: Mapping[str, object] | None = None,
    strides: Mapping[str, tuple[int, ...]] | None = None,
) -> Case:
    """A case of these inputs; whatever outputs follow have FLOAT32 where nothing says more."""
    attributes, strides = attributes or {}, strides or {}
    given = {n: TensorDesc(a.dtype, a.shape, strides.get(n)) for n, a in inputs.items()}
    bound = op.resolve(given, attributes).tensors
    outputs = {
        n: TensorDesc(t.dtype or DataType.FLOAT32, t.sizes, strides.get(n))
        for n, t in bound.items()
        if n not in given
    }
    laid = {n: lay_out(a, given[n]) for n, a in inputs.items()}
    return Case(Call(op, {**given, **outputs}, attributes), laid, "a case")


def f32(*values: object) -> Array:
    return np.array(values, np.float32)


def hits(coverage: Coverage, kind: str) -> dict[str, int]:
    return {row.what: row.hits for row in coverage.rows() if row.kind == kind}


def found(coverage: Coverage, kind: str) -> list[str]:
    return [what for what, count in hits(coverage, kind).items() if count]


# Tables ----------------------------------------------------------------------------------------


def test_nothing_is_hit_without_a_case() -> None:
    coverage = Coverage(operator(SCALED))
    assert list_missing(coverage) == list(coverage.rows())
    assert {row.kind for row in coverage.rows()} == set(KINDS)
    assert [row.kind for row in coverage.rows()] == sorted(
        (row.kind for row in coverage.rows()), key=KINDS.index
    )


def test_types_dimensions_and_optional_tensors() -> None:
    op = operator(SCALED)
    coverage = Coverage(op)
    coverage.add(make_case(op, {"x": f32(1, 2)}, {"Flag": True}))
    assert hits(coverage, "types row") == {
        "x FLOAT32, scale FLOAT32, y FLOAT32": 1,
        "x FLOAT16, scale FLOAT32, y FLOAT32": 0,
        "data types that no row has are refused": 0,
    }
    assert found(coverage, "data type") == ["'x' is FLOAT32", "'y' is FLOAT32"]
    assert found(coverage, "dimension count") == ["'x' has 1 dimension", "'y' has 1 dimension"]
    assert found(coverage, "optional tensor") == ["'scale' is left out"]
    half = np.ones((2, 2), np.float16)
    coverage.add(make_case(op, {"x": half, "scale": np.ones((1, 2), np.float32)}, {"Flag": True}))
    assert len(found(coverage, "types row")) == 2
    assert found(coverage, "optional tensor") == ["'scale' is given", "'scale' is left out"]
    assert found(coverage, "broadcasting") == ["'scale' has size 1 where another tensor is larger"]
    (left,) = (row for row in list_missing(coverage) if row.kind == "data type")
    assert left.what == "'scale' is FLOAT16"
    assert left.reason == "no row of 'types' permits it"
    tensors = {"x": TensorDesc("f16", (2,)), "scale": TensorDesc("f16", (2,)),
               "y": TensorDesc("f32", (2,))}  # fmt: skip
    coverage.add_refused(make_call(op, tensors, Flag=True))
    assert "data types that no row has are refused" in found(coverage, "types row")


def test_what_other_rows_rule_out_is_said() -> None:
    text = """
        operator SAME {
            tensors { | Tensor | Kind | Ranks | Types |
                      | x | Input | 1 to 3 | f32, f16 |
                      | y | Output | 2 | f32 | }
            constraints { x and y must have the same DataType and DimensionCount. }
            compute { y = x }
        }
    """
    reasons = {row.what: row.reason for row in Coverage(operator(text)).rows()}
    assert reasons["'x' is FLOAT16"] == "'y' has the same DataType, and its row does not list that"
    assert reasons["'x' has 3 dimensions"] == (
        "'y' has as many dimensions, and its row does not list that"
    )
    assert reasons["'x' has 2 dimensions"] == "no case had it"


def test_only_what_may_be_smaller_is_to_be_broadcast() -> None:
    text = """
        operator FIT {
            tensors { | Tensor | Kind | Types |
                      | x | Input | f32 |
                      | mean | Input | f32 |
                      | step | Input | f32 |
                      | other | Input | f32 |
                      | y | Output | f32 | }
            constraints {
                x and y must have the same Sizes.
                mean must be broadcastable to y.
                step must be a scalar.
                %s
            }
            compute { y = x - mean }
        }
    """
    tied = Coverage(operator(text % "other and x must have the same Sizes."))
    larger = "has size 1 where another tensor is larger"
    assert list(hits(tied, "broadcasting")) == [f"'mean' {larger}", f"'step' {larger}"]
    free = Coverage(operator(text % ""))
    assert list(hits(free, "broadcasting")) == [
        f"'{name}' {larger}" for name in ("x", "mean", "step", "other")
    ]


def test_values_of_attributes_and_defaults() -> None:
    op = operator(SCALED)
    coverage = Coverage(op)
    given: dict[str, object] = {"Flag": False, "Mode": "NEGATED", "Word": "b", "Factor": 2}
    coverage.add(make_case(op, {"x": f32(1)}, given))
    assert found(coverage, "attribute") == [
        "'Mode' is NEGATED",
        "'Flag' is false",
        "'Word' is b",
        "'Least' is left to its default",
    ]
    coverage.add(make_case(op, {"x": f32(1)}, {"Flag": True}))
    assert all(hits(coverage, "attribute").values())


def test_strides_and_empty_tensors() -> None:
    op = operator(SCALED)
    coverage = Coverage(op)
    x = np.ones((2, 3), np.float32)
    flag = {"Flag": True}
    coverage.add(make_case(op, {"x": x}, flag, {"x": (3, 1)}))
    assert found(coverage, "strides") == []
    coverage.add(make_case(op, {"x": x}, flag, {"x": (0, 1), "y": (1, 2)}))
    assert found(coverage, "strides") == [
        "'x' is not packed",
        "'x' repeats elements, by a stride of 0",
        "'y' is not packed",
    ]
    coverage.add(make_case(op, {"x": np.ones((2, 0), np.float32)}, flag))
    assert found(coverage, "empty tensor") == ["'x' has a size of 0", "'y' has a size of 0"]


# Constraints -----------------------------------------------------------------------------------


def permit(least: int = 1, factor: float = 1.0, size: int = 2) -> list[str]:
    op = operator(SCALED)
    coverage = Coverage(op)
    given = {"Flag": True, "Least": least, "Factor": factor}
    coverage.add(make_case(op, {"x": np.ones(size, np.float32)}, given))
    return [w.removesuffix(": at its edge") for w in found(coverage, "constraint") if "edge" in w]


def refuse(least: int = 1, factor: float = 1.0, size: int = 2) -> list[str]:
    op = operator(SCALED)
    coverage = Coverage(op)
    tensors = {n: TensorDesc("f32", (size,)) for n in ("x", "y")}
    coverage.add_refused(make_call(op, tensors, Flag=True, Least=least, Factor=factor))
    beyond = ": just beyond its edge, and refused"
    return [w.removesuffix(beyond) for w in found(coverage, "constraint") if "edge" in w]


@pytest.mark.parametrize(
    ("least", "factor", "size", "edges"),
    [
        (1, 1.0, 2, ["Least >= 1"]),
        (2, 1.0, 2, []),
        (3, 1.0, 2, ["Least > 3"]),
        (2, 1e-4, 2, ["Factor > 0"]),
        (2, 1.0, 8, ["x.Sizes != 7"]),
    ],
)
def test_the_edge_of_a_constraint_that_holds(
    least: int, factor: float, size: int, edges: list[str]
) -> None:
    assert permit(least, factor, size) == edges


@pytest.mark.parametrize(
    ("least", "factor", "size", "edges"),
    [
        (0, 1.0, 2, ["Least >= 1"]),
        (-1, 1.0, 2, []),
        (4, 1.0, 2, ["Least > 3"]),
        (5, 1.0, 2, []),
        (1, 0.0, 2, ["Factor > 0"]),
        (1, -1.0, 2, []),
        (2, 1.0, 7, ["x.Sizes != 7"]),
    ],
)
def test_the_edge_of_a_constraint_that_is_broken(
    least: int, factor: float, size: int, edges: list[str]
) -> None:
    assert refuse(least, factor, size) == edges


def test_sentences_hold_and_are_broken() -> None:
    op = operator(SCALED)
    coverage = Coverage(op)
    same, fits = "x and y must have the same Sizes.", "scale must be broadcastable to x."
    coverage.add(make_case(op, {"x": f32(1, 2)}, {"Flag": True, "Least": 2}))
    assert found(coverage, "constraint") == [f"{same}: holds of tensors given"]
    coverage.add(make_case(op, {"x": f32(1, 2), "scale": f32(3)}, {"Flag": True, "Least": 2}))
    assert f"{fits}: with a size of 1 that is repeated" in found(coverage, "constraint")
    tensors = {"x": TensorDesc("f32", (2,)), "scale": TensorDesc("f32", (3,)),
               "y": TensorDesc("f32", (2,))}  # fmt: skip
    coverage.add_refused(make_call(op, tensors, Flag=True))
    assert f"{fits}: broken, and refused" in found(coverage, "constraint")
    assert f"{same}: broken, and refused" not in found(coverage, "constraint")


# Decisions -------------------------------------------------------------------------------------

HEAD = """
operator CHOOSE {
    tensors { | Tensor | Kind | Types |
              | x | Input | f32 |
              | y | Output | f32 | }
    constraints { x and y must have the same Sizes. }
    compute { %s }
}
"""


def decide(formula: str, *values: Array) -> dict[str, str]:
    """The decisions that cases of these inputs leave open, with the reasons."""
    op = operator(HEAD % formula)
    coverage = Coverage(op)
    for value in values:
        coverage.add(make_case(op, {"x": value}))
    return {row.what: row.reason for row in list_missing(coverage) if row.kind == "decision"}


def test_elements_decide_which_arms_are_taken() -> None:
    formula = "y = x > 0 ? x : -1"
    never = "it never held in the 1 call that came to it"
    assert decide(formula, f32(-1, -2)) == {"'x' of 'x > 0 ?'": never}
    never = "it never failed in the 2 calls that came to it"
    assert decide(formula, f32(1), f32(2)) == {"'-1' of 'x > 0 ?'": never}
    assert decide(formula, f32(1), f32(-2)) == {}


def test_an_arm_counts_where_the_arm_around_it_is_taken() -> None:
    formula = "y = x > 0 ? (x < -5 ? 1 : 2) : 3"
    assert list(decide(formula, f32(-9, 1))) == ["'1' of 'x < -5 ?'"]
    by_index = "y[i] = x[i] > 0 ? (x[i] < -5 ? 1 : 2) : 3"
    assert list(decide(by_index, f32(-9, 1))) == ["'1' of 'x[i] < -5 ?'"]
    formula = "y = x > 0 ? (x.DimensionCount == 1 ? 1 : 2) : 3"
    assert "'1' of 'x.DimensionCount == 1 ?'" in decide(formula, f32(-9))
    assert list(decide(formula, f32(-9, 9))) == ["'2' of 'x.DimensionCount == 1 ?'"]


def test_what_no_case_comes_to() -> None:
    formula = "y = x.DimensionCount == 1 ? x : (x > 0 ? 1 : 2)"
    reasons = decide(formula, f32(1))
    assert reasons["'1' of 'x > 0 ?'"] == "no case came to it"


def test_sides_of_and_and_or() -> None:
    formula = "y = x > 0 && x < 5 || x == -1 ? 1 : 2"
    left = "'x > 0' fails"
    assert decide(formula, f32(1)).keys() >= {left, "'x < 5' fails", "'x == -1' holds"}
    assert "'x < 5' fails" in decide(formula, f32(-1, -2))
    assert decide(formula, f32(1, 7, -1, -2)) == {}


def test_functions_take_every_call_together() -> None:
    formula = "part(v) = v > 0 ? v : 0\n y = part(x) + part(-x)"
    assert decide(formula, f32(2)) == {}
    assert list(decide(formula, f32(0))) == ["'v' of 'v > 0 ?'"]


WORD = """attributes {
        | Attribute | Type   | Default | Values   |
        | Word      | STRING | "a"     | `a`, `b` |
    }
    tensors"""


@pytest.mark.parametrize(
    ("value", "missing", "reason"),
    [
        ('part(x, "a") + part(-x, "a")', "0", "no call of 'part' in this operator comes to it"),
        ('part(x, "b")', "v", "no call of 'part' in this operator comes to it"),
        ("part(x, Word)", "0", "it never failed in the 1 call that came to it"),
        ('part(x, "a") + part(x, "b")', None, None),
    ],
)
def test_what_the_calls_of_a_function_rule_out_is_said(
    value: str, missing: str | None, reason: str | None
) -> None:
    function = 'function part(v, word) = word == "a" ? v : 0\n'
    coverage = Coverage(operator(function + HEAD.replace("tensors", WORD, 1) % f"y = {value}"))
    coverage.add(make_case(coverage.operator, {"x": f32(1)}))
    left = {r.what[1]: r.reason for r in list_missing(coverage) if r.kind == "decision"}
    assert left == ({} if missing is None else {missing: reason})


def test_points_of_reductions_and_reads_beyond_the_ends() -> None:
    formula = "y[i] = sum[k : 3 where k < x.Sizes[0]](x[k]) + (x[i + 1] else 0)"
    reads = "'x[i + 1] else 0' reads"
    assert decide(formula, f32(1, 2, 3)).keys() == {"a point is left out, where 'k < x.Sizes[0]'"}
    assert decide(formula, f32(1)).keys() == {f"{reads} inside"}
    assert decide(formula, f32(1, 2)) == {}


def test_conditions_on_reductions() -> None:
    formula = "total = sum(x, axes: [0])\n y = total > 10 ? x / total : x"
    assert list(decide(formula, f32(1, 2))) == ["'x / total' of 'total > 10 ?'"]
    assert decide(formula, f32(1, 2), f32(6, 7)) == {}
    inner = "y[i] = max[k : x.Sizes[0]](x[k] > x[i] ? 1 : 0)"
    assert list(decide(inner, f32(3, 3))) == ["'1' of 'x[k] > x[i] ?'"]
    assert decide(inner, f32(3, 4)) == {}


def test_whole_tensors_around_single_elements() -> None:
    formula = "y = x > 0 ? max[k : x.Sizes[0]](x[k] > 1 ? 1 : 0) : 0"
    assert list(decide(formula, f32(-1, 1))) == ["'1' of 'x[k] > 1 ?'"]
    assert decide(formula, f32(-1, 2)) == {}


def test_what_would_take_too_long_is_left_open() -> None:
    long = "max[k : 2000000000 where k + x[0] > 3](k)"
    formula = f"y[i] = (x[i] > 0 ? 1 : 2) + cast({long}, FLOAT32)"
    op = operator(HEAD % formula)
    x = f32(1, -1)
    call = Call(op, {n: TensorDesc("f32", (2,)) for n in ("x", "y")}, {})
    outcomes = trace_formula(call).find_outcomes({"x": x}, ())
    assert [(o.place.text, o.holds) for o in outcomes] == [("x[i] > 0", True), ("x[i] > 0", False)]


def test_a_derived_gradient_takes_the_arms_of_its_forward_operator() -> None:
    text = (
        HEAD % "y = x > 0 ? x * x : 0"
        + """
        operator CHOOSE_GRAD {
            tensors { | Tensor | Kind | Types |
                      | v | Input | f32 |
                      | dy | Input | f32 |
                      | dx | Output | f32 | }
            gradient of CHOOSE { v = x  dx = gradient of x  dy = gradient of y }
        }
    """
    )
    op = operator(text)
    coverage = Coverage(op)
    coverage.add(make_case(op, {"v": f32(1, 2), "dy": f32(3, 4)}))
    assert hits(coverage, "decision") == {"'x * x' of 'x > 0 ?'": 1, "'0' of 'x > 0 ?'": 0}
    coverage.add(make_case(op, {"v": f32(1, -2), "dy": f32(3, 4)}))
    assert all(hits(coverage, "decision").values())


def test_constraints_and_defaults_decide_too() -> None:
    text = """
        operator PICK {
            attributes { | Attribute | Type | Default |
                         | Axis | INT | x.DimensionCount > 1 ? 1 : 0 | }
            tensors { | Tensor | Kind | Types |
                      | x | Input | f32 |
                      | y | Output | f32 | }
            constraints { x and y must have the same Sizes.
                          require Axis < 0 || Axis < x.DimensionCount }
            compute { y = x }
        }
    """
    op = operator(text)
    coverage = Coverage(op)
    coverage.add(make_case(op, {"x": f32(1)}))
    assert found(coverage, "decision") == [
        "'Axis < x.DimensionCount' holds",
        "'0' of 'x.DimensionCount > 1 ?'",
    ]
    coverage.add(make_case(op, {"x": np.ones((2, 2), np.float32)}))
    coverage.add(make_case(op, {"x": f32(1)}, {"Axis": -1}))
    assert all(hits(coverage, "decision").values())


# What is shown ---------------------------------------------------------------------------------


def list_missing(coverage: Coverage) -> list[CoverageItem]:
    return [row for row in coverage.rows() if not row.hits]


def test_the_table_as_text() -> None:
    op = operator(HEAD % "y = x > 0 ? x : 0")
    coverage = Coverage(op)
    coverage.add(make_case(op, {"x": f32(1, 2)}))
    missing = list_missing(coverage)
    assert (len(coverage.rows()), len(missing)) == (27, 21)
    said = "decision: '0' of 'x > 0 ?': not hit: it never failed in the 1 call that came to it"
    assert str(missing[-1]) == f"<text>:7:31: {said}"
    head, one, total = show_table({"CHOOSE": coverage.rows()}).splitlines()
    assert head.split()[0] == "types"
    assert one.split()[0] == "CHOOSE"
    assert one.split()[-4:] == ["1/2", "1/2", "22", "%"]
    assert total.split()[0] == "all"


@pytest.mark.parametrize("family", ["directml", "onednn", "training"])
def test_the_examples_of_the_library_come_by_much(family: str) -> None:
    coverages: list[Coverage] = []
    for name in dmlc.operators():
        if not name.startswith(family):
            continue
        op = dmlc.operator(name)
        coverages.append(Coverage(op))
        for example in op.definition.examples:
            coverages[-1].add(next(iter(read_cases(op, example))))
    rows = [row for c in coverages for row in c.rows() if row.kind == "decision"]
    assert sum(row.hits > 0 for row in rows) > 0.5 * len(rows)
    assert all(any(row.hits for row in c.rows()) for c in coverages)
