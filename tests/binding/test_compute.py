"""Formulas, bound and evaluated by the reference, against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dmlc import ir
from dmlc.binding import Operator, TensorDesc
from dmlc.reference import evaluate
from dmlc.scalars import DataType, data_type_of
from tests.binding.declare import X, Y, Z, declare, f32, refusal, refusals, says

Array = npt.NDArray[Any]
VALUES = np.array([-2.5, -1, -0.0, 0.0, 0.5, 1.5, 3, np.nan, np.inf, -np.inf], np.float32)


def describe(array: Array) -> TensorDesc:
    dtype = data_type_of(array.dtype)
    assert dtype is not None
    return TensorDesc(dtype, array.shape)


def compute(formula: str | Operator, y: str = "FLOAT32", **inputs: Array) -> Array:
    """Y of an operator over these inputs."""
    op = declare(formula, X, Z, Y) if isinstance(formula, str) else formula
    given = {"Z": inputs["X"]} | inputs
    sizes = np.broadcast_shapes(*(v.shape for v in given.values()))
    tensors = {name: describe(v) for name, v in given.items()}
    function = op.bind(tensors | {"Y": TensorDesc(y, sizes)})
    return evaluate(function, given)["Y"]


FORMULAS: list[tuple[str, Callable[[Array], Array]]] = [
    ("X + 1", lambda x: x + 1),
    ("1 - abs(X)", lambda x: 1 - np.abs(x)),
    ("-X * 2 / 4 - 1", lambda x: -x * 2 / 4 - 1),
    ("X * (1 / 2)", lambda x: x * 0.5),
    ("X % 2", lambda x: np.fmod(x, 2)),
    ("X != X ? 1 : 0", lambda x: np.isnan(x).astype(x.dtype)),
    ("X > 0 ? X : 0", lambda x: np.where(x > 0, x, 0)),
    ("(X > 0 ? 1 : 0) * 2 + X", lambda x: np.where(x > 0, 2, 0) + x),
    ("(X > 0 ? 1 : 2) / 4", lambda x: np.where(x > 0, 0.25, 0.5)),
    ("(X > 0 ? 1 : 0) == 1 ? 3 : 4", lambda x: np.where(x > 0, 3, 4)),
    ("exp(X > 0 ? 1 : 0)", lambda x: np.exp(np.where(x > 0, 1.0, 0.0))),
    ("floor(X > 0 ? 1 : 0)", lambda x: np.where(x > 0, 1, 0)),
    ("floor(X > 0 ? 1.5 : 0)", lambda x: np.where(x > 0, 1, 0)),
    ("isnan(X > 0 ? 1 : 0) ? 1 : 2", lambda x: np.full(x.shape, 2)),
    ("clamp(X, -1, 1)", lambda x: np.clip(x, -1, 1)),
    ("isnan(X) || isinf(X) ? 7 : X", lambda x: np.where(np.isfinite(x), x, 7)),
    ("!(X >= 0) && X <= 0 ? 1 : 0", lambda x: (x < 0).astype(x.dtype)),
    ("true && X > 0 ? 1 : 0", lambda x: (x > 0).astype(x.dtype)),
    ("X > 0 || false ? 1 : 0", lambda x: (x > 0).astype(x.dtype)),
    ("false && X > 0 ? 1 : 0", lambda x: np.zeros_like(x)),
    ("X > 0 || true ? 1 : 0", lambda x: np.ones_like(x)),
    ("cast(cast(X, INT32), FLOAT32)", lambda x: np.where(np.isfinite(x), np.trunc(x), np.where(
        np.isnan(x), 0, np.where(x > 0, 2147483648.0, -2147483648.0)))),
    ("cast(X, FLOAT16)", lambda x: x),
    ("cast(X > 0, FLOAT32)", lambda x: (x > 0).astype(x.dtype)),
    ("cast(X > 0 ? 1 : 2, UINT8) == 1 ? 1 : 0", lambda x: (x > 0).astype(x.dtype)),
    ("cast(X, BOOL) ? 1 : 0", lambda x: (x != 0).astype(x.dtype)),
    ("X * X.DimensionCount + X.Sizes[0] - X.ElementCount + X.Strides[0]", lambda x: x + 1),
    ("X + sum(X.Sizes) + product(X.Sizes * 2) + mean(X.Sizes) + max([1, 9, 2])",
     lambda x: x + 10 + 20 + 10 + 9),
    ("X + [1, 2, 3][2]", lambda x: x + 3),
    ("0.25", lambda x: np.full(x.shape, 0.25)),
    ("X + (7 % 4) - (-7 % 4) + abs(-2) + sign(-3) + min(1, 2) + bit_and(6, 3) + bit_or(4, 1)",
     lambda x: x + 3 + 3 + 2 - 1 + 1 + 2 + 5),
    ("X + bit_xor(5, 1) + bit_not(-1) + shift_left(1, 3) + shift_right(8, 2) + floor(3)",
     lambda x: x + 4 + 0 + 8 + 2 + 3),
    ("X + sqrt(16) + floor(2.5) + (1 <= 2 && 3 >= 2 && 1 < 2 && 2 > 1 ? 1 : 0)",
     lambda x: x + 4 + 2 + 1),
]  # fmt: skip


@pytest.mark.parametrize("case", FORMULAS, ids=lambda case: str(case[0]))
def test_formulas(case: tuple[str, Callable[[Array], Array]]) -> None:
    formula, expected = case
    with np.errstate(all="ignore"):
        wanted = expected(VALUES.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(compute(f"Y = {formula}", X=VALUES), wanted)


def test_statements_and_functions_share_what_they_compute() -> None:
    op = declare(
        "f(x) = g(x) * g(x)\nA = f(X)\nB = f(X) + A\nY = B",
        X, Y, before="function g(x) = exp(x) + exp(x)",
    )  # fmt: skip
    function = op.bind({"X": f32(3)})
    assert [s.name for s in function.stages] == ["A", "B", "Y"]
    first = function.stages[0].body
    applied = [i.operation.name for i in first.instructions if isinstance(i, ir.Apply)]
    assert applied == ["exp", "add", "mul"]
    x = np.array([0.5, 1, 2], np.float32)
    expected = 2 * (2 * np.exp(x.astype(np.float64))) ** 2
    np.testing.assert_allclose(evaluate(function, {"X": x})["Y"], expected, rtol=1e-6)


@pytest.mark.parametrize("rank", range(1, 9))
def test_every_rank_broadcasts(rank: int) -> None:
    sizes = (2, 3, 1, 2, 3, 1, 2, 2)[:rank]
    other = tuple(1 if k % 2 else n for k, n in enumerate(sizes))
    x = np.arange(math.prod(sizes), dtype=np.float32).reshape(sizes)
    z = np.arange(math.prod(other), dtype=np.float32).reshape(other)
    np.testing.assert_array_equal(compute("Y = X - 2 * Z", X=x, Z=z), x - 2 * z)
    np.testing.assert_array_equal(compute("Y = Z", X=x, Z=z), np.broadcast_to(z, sizes))


def test_broadcasts_load_at_index_zero() -> None:
    function = declare("Y = X + Z", X, Z, Y).bind({"X": f32(2, 3), "Z": f32(2, 1)})
    assert str(function).splitlines()[1].strip() == (
        "%Y: f32[i0 < 2, i1 < 3] = add(%X[i0, i1], %Z[i0, 0])"
    )


def test_sizes_that_do_not_broadcast() -> None:
    op = declare("A = X * 2\nY = A + Z", X, Z, Y)
    found = refusal(op, {"X": f32(2, 3), "Z": f32(2, 4), "Y": f32(2, 4)})
    assert found.message == (
        "'A' has sizes [2, 3] and 'Z' has sizes [2, 4]: tensors combine element by element if "
        "they have the same rank, and each size is the same or 1"
    )
    assert found.span is not None
    assert (found.span.text, found.span.line) == ("A + Z", 15)
    found = refusal(op, {"X": f32(2, 3), "Z": f32(1, 1), "Y": f32(2, 4)})
    assert found.message == (
        "'Y' has sizes [2, 4], but the value assigned to it has sizes [2, 3]: they must be the "
        "same, or 1 in the value"
    )


# Types -----------------------------------------------------------------------------------------


def bound(formula: str, x: str, z: str = "FLOAT32", y: str = "FLOAT32") -> ir.Function:
    op = declare(formula, X, Z, Y)
    return op.bind({n: TensorDesc(t, (2,)) for n, t in (("X", x), ("Z", z), ("Y", y))})


@pytest.mark.parametrize("x", ["FLOAT16", "BFLOAT16", "FLOAT32"])
def test_types_computed_in_float32_mix(x: str) -> None:
    function = bound("Y = X + Z + 0.1", x, "FLOAT16", "BFLOAT16")
    (stage,) = function.stages
    assert (stage.dtype, stage.body.dtype) == (DataType.BFLOAT16, DataType.FLOAT32)
    constants = [i.value for i in stage.body.instructions if isinstance(i, ir.Constant)]
    assert constants == [float(np.float32(0.1))]


def test_float64_keeps_its_constants() -> None:
    (stage,) = bound("Y = X + 0.1", "FLOAT64", y="FLOAT64").stages
    assert [i.value for i in stage.body.instructions if isinstance(i, ir.Constant)] == [0.1]


MIXED = [
    ("X + Z", "FLOAT64", "FLOAT32", "FLOAT64 and FLOAT32 values do not mix: convert one, as in "
     "cast(x, FLOAT64)"),
    ("X + Z", "INT32", "FLOAT32", "INT32 and FLOAT32 values do not mix: convert one, as in "
     "cast(x, FLOAT32)"),
    ("X + Z", "UINT8", "INT32", "UINT8 and INT32 values do not mix: convert one, as in "
     "cast(x, INT32)"),
    ("X == Z ? 1 : 0", "BOOL", "FLOAT32", "BOOL and FLOAT32 values do not mix: compare the FLOAT32 "
     "value with a number, or write cast(x, FLOAT32)"),
    ("X + X", "BOOL", "FLOAT32", "'+' takes numbers, but 'X' is BOOL: write cast(X, FLOAT32)"),
    ("exp(X)", "INT32", "FLOAT32", "'exp' takes floating-point numbers, but 'X' is INT32: write "
     "cast(X, FLOAT32)"),
    ("bit_not(X)", "FLOAT32", "FLOAT32", "'bit_not' takes integers, but 'X' is FLOAT32: write "
     "cast(..., INT32)"),
    ("X && X ? 1 : 0", "INT32", "FLOAT32", "'&&' takes booleans, but 'X' is INT32: compare with a "
     "number first, as in 'x != 0'"),
    ("X ? 1 : 0", "INT32", "FLOAT32",
     "the condition of '?:' must be a boolean, but 'X' is INT32"),
    ("X + 0.5", "INT32", "FLOAT32", "0.5 meets INT32 values: write cast(..., FLOAT32) around the "
     "integers, or cast the number"),
    ("X + 300", "UINT8", "FLOAT32", "300 does not fit UINT8"),
    ("X + (Z > 0 ? 1 : 0.5)", "INT32", "FLOAT32", "a fraction meets INT32 values: write "
     "cast(..., FLOAT32) around the integers"),
    ("X == 1 ? 1 : 0", "BOOL", "FLOAT32", "1 is a number, where a BOOL is expected"),
    ("X", "INT32", "FLOAT32", "'Y' is FLOAT32, but the value assigned to it is INT32: write "
     "cast(..., FLOAT32)"),
    ("bit_and(Z > 0 ? 1 : 0.5, 1)", "FLOAT32", "FLOAT32",
     "'bit_and' takes integers, but this is a fraction"),
    ("f(X)", "FLOAT32", "FLOAT32", "'&&' takes booleans, but this is a number"),
    ("X + cast(2.5, INT32)", "FLOAT32", "FLOAT32",
     "FLOAT32 and INT32 values do not mix: convert one, as in cast(x, FLOAT32)"),
    ("h(Z)", "FLOAT32", "FLOAT32", "'&&' takes booleans, but one side is a number"),
]  # fmt: skip


@pytest.mark.parametrize("case", MIXED, ids=lambda case: f"{case[0]} {case[1]} {case[2]}")
def test_types_that_do_not_mix(case: tuple[str, str, str, str]) -> None:
    formula, x, z, message = case
    functions = "g(a) = a && a ? 1 : 2\nf(a) = g(a > 0 ? 1 : 0)\nh(a) = true && a ? 1 : 2"
    diagnostics = refusals(lambda: bound(f"{functions}\nY = {formula}", x, z))
    assert diagnostics[0].message == message


def test_integers_compute_in_their_own_type() -> None:
    x = np.array([7, -7, 0, 127], np.int8)
    op = declare("Y = floor(round(X)) / 2 + (isnan(X) ? 1 : 0) + bit_and(X, 1)", X, Z, Y)
    np.testing.assert_array_equal(
        compute(op, "INT8", X=x), (np.trunc(x / 2) + (x & 1)).astype(np.int8)
    )
    assert compute("Y = X + 100", "INT8", X=x)[3] == -29


def test_booleans() -> None:
    x = np.array([True, False, True])
    z = np.array([True, True, False])
    np.testing.assert_array_equal(compute("Y = X && !Z || X == Z", "BOOL", X=x, Z=z), x | ~z)
    np.testing.assert_array_equal(compute("Y = X ? 2 : 3", "INT32", X=x), [2, 3, 2])
    np.testing.assert_array_equal(compute("Y = true", "BOOL", X=x), [True] * 3)
    np.testing.assert_array_equal(compute("Y = X == Z ? true : X", "BOOL", X=x, Z=z), [1, 0, 1])


def test_a_later_statement_reads_an_output_before_it_is_rounded() -> None:
    op = declare(
        "Y = X * 3\nW = Y + Z", X, Z, Y, "W | Output | 1 to 8 | FLOAT32"
    )  # fmt: skip
    x = np.array([1 + 2**-10], np.float16)
    z = np.array([0], np.float32)
    tensors = {"X": describe(x), "Z": describe(z), "Y": TensorDesc("FLOAT16", (1,))}
    function = op.bind(tensors)
    assert [s.name for s in function.stages] == ["Y_value", "Y", "W"]
    found = evaluate(function, {"X": x, "Z": z})
    assert found["W"][0] == np.float32(x[0]) * 3
    assert found["Y"][0] == np.float16(np.float32(x[0]) * 3) != found["W"][0]
    plain = op.bind(tensors | {"Y": f32(1)})
    assert [s.name for s in plain.stages] == ["Y", "W"]


def test_locals_never_take_the_name_of_another_stage() -> None:
    op = declare(
        "Y_value = X * 2\nY = Y_value * 3\nW = Y + 1", X, Y, "W | Output | 1 to 8 | FLOAT32"
    )  # fmt: skip
    function = op.bind({"X": f32(1), "Y": TensorDesc("f16", (1,))})
    assert [s.name for s in function.stages] == ["Y_value", "Y_value_2", "Y", "W"]


# Compile-time choices --------------------------------------------------------------------------


def test_the_branch_not_taken_is_not_checked() -> None:
    optional = "Z | Optional input | 1 to 8 | FLOAT32"
    op = declare(
        "Y = present(Z) ? X * Z : X.DimensionCount == 2 ? X * X.Sizes[1] : X", X, optional, Y
    )
    x = np.array([[1, 2, 3]], np.float32)
    np.testing.assert_array_equal(evaluate(op.bind({"X": f32(1, 3)}), {"X": x})["Y"], x * 3)
    np.testing.assert_array_equal(evaluate(op.bind({"X": f32(3)}), {"X": x[0]})["Y"], x[0])
    both = op.bind({"X": f32(1, 3), "Z": f32(1, 3)})
    np.testing.assert_array_equal(evaluate(both, {"X": x, "Z": x})["Y"], x * x)
    blunt = declare("Y = X * Z", X, optional, Y)
    assert says(refusal(blunt, {"X": f32(3)})) == (
        "tensor 'Z' is not given, and this needs it",
        "give a description of 'Z'",
    )


def test_types_decide_at_compile_time() -> None:
    op = declare("Y = X.DataType == FLOAT16 ? X + 1 : cast(X, FLOAT32) + 2", X, Y)
    half = op.bind({"X": TensorDesc("f16", (1,)), "Y": TensorDesc("f16", (1,))})
    assert evaluate(half, {"X": np.zeros(1, np.float16)})["Y"][0] == 1
    integer = op.bind({"X": TensorDesc("INT32", (1,)), "Y": f32(1)})
    assert evaluate(integer, {"X": np.zeros(1, np.int32)})["Y"][0] == 2


def test_an_optional_output_is_computed_where_it_is_described() -> None:
    optional = "W | Optional output | 1 to 8 | FLOAT32"
    op = declare("W = X * 2\nV = Z + 1\nY = W + 1", X, "Z | Optional input | | FLOAT32", Y,
                 optional, "V | Optional output | | FLOAT32")  # fmt: skip
    function = op.bind({"X": f32(2)})
    assert [r.name for r in function.results] == ["Y"]
    described = op.bind({"X": f32(2), "W": TensorDesc("FLOAT32")})
    assert [r.name for r in described.results] == ["Y", "W"]
    assert refusal(op, {"X": f32(2), "V": f32(2)}).message.startswith("tensor 'Z' is not given")


COMPILE_TIME = [
    ("Y = X + X.Sizes[3]", "index 3 is out of bounds: 'X.Sizes' has 1 value"),
    ("Y = X + X.Sizes[0.5]", "an array's index must be a compile-time integer"),
    ("Y = X + 1 / 0", "division by zero in a compile-time expression"),
    ("Y = X + 999999999999999999 * 999",
     "a compile-time integer grows beyond 64 bits"),
    ("f(a) = a ? 1 : 2\nY = X + f(1)",
     "the condition of '?:' must be a boolean, but 'a' is a number"),
    ("f(a) = a[0]\nY = X + f(1)", "'a' is a number and cannot be indexed"),
    ("f(a) = a && a ? 1 : 0\nY = X + f(1)", "'&&' takes booleans, but 1 is a number"),
    ("f(a) = -a\nY = X + f(true)", "'-' takes numbers, but true is a boolean"),
    ("f(a) = a == 1 ? 1 : 2\nY = X + f(true)",
     "a boolean cannot be compared with a number: true and 1"),
    ("f(a) = a + X\nY = f(X.Sizes)", "'a' is an array of 1 values and cannot meet a tensor element "
     "by element: index it, as in 'Sizes[0]'"),
    ("f(a) = a + X\nY = f(X.DataType)", "'a' is a data type, where a number is expected"),
    ("f(a) = cast(a, FLOAT32)\nY = X + f(X.Sizes)",
     "'f(X.Sizes)' is an array of 1 values and cannot meet a tensor element by element: index "
     "it, as in 'Sizes[0]'"),
    ("f(a) = cast(a, FLOAT32)\nY = X + f(X.DataType)",
     "cast takes a number, but FLOAT32 is a data type"),
    ("f(a) = cast(X, a)\nY = f(1)", "cast takes a data type, such as FLOAT32, second"),
    ("f(a) = sum(a)\nY = X + f(1)", "'sum' folds an array, but 1 is a number"),
    ("f(a) = sum(a)\nY = f(X)", "'sum' needs to know what to reduce over: write "
     "sum(x, like: T) or sum(x, axes: [...])"),
    ("f(a) = max(a)\nY = X + f([])", "'max' of an array without values"),
    ("Y = X + argmax([1, 2])", "'argmax' does not fold an array"),
    ("f(a) = bit_and(a, 1)\nY = X + f(0.5)",
     "'bit_and' takes integers, but one operand is a fraction"),
    ("f(a) = [a][0]\nY = f(X)", "an array holds single values, and this is a tensor"),
]  # fmt: skip


@pytest.mark.parametrize("case", COMPILE_TIME, ids=lambda case: case[0])
def test_mistakes_found_at_bind(case: tuple[str, str]) -> None:
    compute_text, message = case
    diagnostics = refusals(lambda: declare(compute_text, X, Y).bind({"X": f32(2), "Y": f32(2)}))
    assert diagnostics[0].message == message


def test_mistakes_in_a_function_say_where_it_is_called() -> None:
    found = refusal(declare("f(a) = a / 0\ng(a) = f(a) + 1\nY = X + g(1)", X, Y), {"X": f32(2)})
    assert [(n.message, n.span.text) for n in found.notes if n.span is not None] == [
        ("called from here", "f(a)"),
        ("called from here", "g(1)"),
    ]


def test_all_mistakes_of_compute_are_reported_once() -> None:
    op = declare("A = X + Z\nB = A + 1\nC = bit_not(X)\nY = B + C", X, Z, Y)
    found = refusals(lambda: op.bind({"X": f32(2), "Z": f32(3), "Y": f32(2)}))
    assert [d.span.text for d in found if d.span is not None] == ["X + Z", "bit_not(X)"]


# Layouts ---------------------------------------------------------------------------------------


def test_strides_and_results_in_place() -> None:
    op = declare("Y = X + Z", X, Z, Y)
    column = f32(2, 3, strides=(1, 2))
    function = op.bind({"X": column, "Z": f32(2, 3, strides=(3, 1)), "Y": column})
    assert [p.strides for p in function.parameters] == [(1, 2), None]
    assert function.results[0].strides == (1, 2)
    assert function.in_place == (("Y", "X"),)
    assert op.bind({"X": f32(2, 3), "Z": f32(2, 3)}).in_place == (("Y", "X"), ("Y", "Z"))
    assert op.bind({"X": f32(2, 3), "Z": f32(1, 3)}).in_place == (("Y", "X"),)
    half = TensorDesc("f16", (2, 3))
    assert op.bind({"X": f32(2, 3), "Z": half, "Y": half}).in_place == (("Y", "Z"),)


def test_a_result_is_not_stored_over_what_another_result_reads() -> None:
    both = declare("Y = X + 1\nW = X + Z", X, Z, Y, "W | Output | 1 to 8 | FLOAT32")
    assert both.bind({"X": f32(2), "Z": f32(2)}).in_place == (("W", "Z"),)
    wide = declare("A = X + Z\nY = X", X, Z, Y)
    assert wide.bind({"X": f32(2, 1), "Z": f32(2, 3)}).in_place == ()


def test_names_and_spans_come_from_the_text() -> None:
    function = declare("A = X + 1\nY = A", X, Y).bind({"X": f32(2)})
    assert function.name == "OP"
    assert function.span is not None
    assert function.span.text == "OP"
    spans = [s.span.text for s in function.stages if s.span is not None]
    assert spans == ["A = X + 1", "Y = A"]
    assert ir.parse(str(function)) == function


# Without sizes ---------------------------------------------------------------------------------


def test_without_sizes_tensors_are_runs_of_n() -> None:
    op = declare("Y = X * Z + 1", X, Z, Y, constraints="X and Y must have the same DataType.")
    function = op.bind({"X": TensorDesc("FLOAT16")})
    assert [(p.dtype.short, p.extents) for p in function.parameters] == [
        ("f16", ("n",)),
        ("f32", ("n",)),
    ]
    assert (function.stages[0].dtype.short, function.stages[0].extents) == ("f16", ("n",))
    x = np.ones((2, 3), np.float16)
    found = evaluate(function, {"X": x, "Z": x.astype(np.float32)})["Y"]
    np.testing.assert_array_equal(found, x * 2)


SIZED = [
    (("Y = X + X.Sizes[0]", X, Y), "", "the sizes of 'X' are needed here, and are not given"),
    (("Y = X + Z", X, Z, Y), "Z must be a scalar.",
     "'OP' needs the sizes of its tensors: they are not all the same"),
    (("Y = X", "X | Input | 4 | FLOAT32 | { 1, C, 1, 1 }", "Y | Output | 4 | FLOAT32"), "",
     "'OP' needs the sizes of its tensors: they are not all the same"),
    (("Y = X", X, "Z | Input | 4 | FLOAT32", "Y | Output | 1 | FLOAT32"), "",
     "'OP' needs the sizes of its tensors: they are not all the same"),
    (("Y = 1", Y), "", "'OP' needs the sizes of its tensors: they are not all the same"),
]  # fmt: skip


@pytest.mark.parametrize("case", SIZED, ids=lambda case: str(case[0][0]))
def test_operators_that_need_sizes(case: tuple[tuple[str, ...], str, str]) -> None:
    (formula, *rows), constraint, message = case
    assert refusal(declare(formula, *rows, constraints=constraint)).message == message


# What is left open -----------------------------------------------------------------------------


def test_sizes_of_outputs_are_inferred() -> None:
    op = declare("A = X + Z\nY = A * 2\nW = Y > 0", X, Z, Y, "W | Output | 1 to 8 | BOOL")
    function = op.bind({"X": f32(2, 1), "Z": f32(1, 3)})
    assert {s.name: s.extents for s in function.stages} == dict.fromkeys("AYW", (2, 3))
    filled = declare("Y = 1", X, Y)
    assert says(refusal(filled, {"X": f32(2)})) == (
        "the sizes of output 'Y' cannot be inferred: give its description",
        "declared here",
    )
    narrow = declare("Y = X", X, "Y | Output | 4 | FLOAT32")
    assert refusal(narrow, {"X": f32(2)}).message.startswith("'Y' takes 4 dimensions")


def test_sizes_come_from_sentences_and_dimensions() -> None:
    rows = (
        "X | Input | 2 | FLOAT32 | { N, C }",
        "Y | Output | 2 | FLOAT32 | { C, N }",
        "Z | Output | 2 | FLOAT32 | { 1, C }",
        "W | Output | 2 | FLOAT32",
        "V | Output | 3 | FLOAT32",
    )
    op = declare(
        "Y = 1\nZ = 2\nW = 3\nV = 4",
        *rows,
        constraints="W and X must have the same Sizes. V must be a scalar.",
    )
    function = op.bind({"X": f32(2, 3)})
    assert [s.extents for s in function.stages] == [(3, 2), (1, 3), (2, 3), (1, 1, 1)]


def test_types_are_inferred_from_the_types_table_and_the_sentences() -> None:
    op = declare("Y = X * Z", X, Z, Y, types="| X | Z, Y |\n| f32 | f32 |\n| f16 | f16, bf16 |\n")
    function = op.bind({"X": TensorDesc("f16", (1,)), "Z": TensorDesc("bf16", (1,))})
    assert function.stages[0].dtype is DataType.FLOAT16
    same = declare("Y = X", X, "Y | Output | | FLOAT16, FLOAT32",
                   constraints="X and Y must have the same DataType.")  # fmt: skip
    assert same.bind().parameters[0].dtype is DataType.FLOAT32


# Size ------------------------------------------------------------------------------------------


def test_thousands_of_statements() -> None:
    lines = ["A0 = X + 1", *(f"A{k} = A{k - 1} * A{k - 1}" for k in range(1, 3000)), "Y = A2999"]
    function = declare("\n".join(lines), X, Y).bind({"X": f32(2)})
    assert len(function.stages) == 3001


def test_a_formula_that_explodes_is_refused() -> None:
    lines = ["f0(x) = x + 1"]
    lines += [f"f{k}(x) = f{k - 1}(x) * f{k - 1}(x + 1)" for k in range(1, 40)]
    op = declare("\n".join([*lines, "Y = f39(X)"]), X, Y)
    found = refusal(op, {"X": f32(2), "Y": f32(2)})
    assert found.message == (
        "the operator makes more than 20000 calls once its functions are inlined: split it"
    )
