"""The names of a table's Dimensions in formulas: numbers and arrays, and what hides them."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc.binding import Operator
from dmlc.language.check import check_text
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.source import DmlcError
from tests.binding.declare import declare, f32, refusals, says

TWO = np.arange(6, dtype=np.float32).reshape(2, 3)
COLUMN = np.array([[0], [1]])


def rows(x: str, y: str, *more: str) -> list[str]:
    return [f"X | Input | | FLOAT32 | {x}", *more, f"Y | Output | | FLOAT32 | {y}"]


def compute(text: str, x: str, y: str, constraints: str = "", array: Array = TWO) -> Array:
    op = declare(text, *rows(x, y), constraints=constraints)
    return evaluate(op.bind({"X": f32(*array.shape)}), {"X": array})["Y"]


CORRECT: list[tuple[str, str, str, Array]] = [
    ("Y[c : C, n : N] = X[n, C - 1 - c]", "{ N, C }", "{ C, N }", TWO[:, ::-1].T),
    ("Y = X * C + N", "{ N, C }", "{ N, C }", TWO * 3 + 2),
    ("Y[n, c] = sum[k : C](X[n, k]) / C", "{ N, C }", "{ N, C }",
     np.repeat(TWO.mean(1, keepdims=True), 3, 1)),
    ("w(k) = k * C\nY[n, c] = w(n) + X[n, c]", "{ N, C }", "{ N, C }", TWO + COLUMN * 3),
    ("Y[i...] = X[(S - 1 - i)...] * S[-1]", "{ S[] }", "{ S[] }", TWO[::-1, ::-1] * 3),
    ("Y[i...] = X[i...] + product(S...) + length(S)", "{ S[] }", "{ S[] }", TWO + 8),
    ("Y[i...] = sum[k... : S](X[k...]) + 0 * i[0]", "{ S[] }", "{ S[] }", np.full((2, 3), 15)),
    # What has the same name comes first.
    ("C = 100\nY = X + C", "{ N, C }", "{ N, C }", TWO + 100),
    ("Y[N, C] = X[N, C] + N", "{ N, C }", "{ N, C }", TWO + COLUMN),
    ("f(C) = C * 2\nY[n, c] = f(X[n, c])", "{ N, C }", "{ N, C }", TWO * 2),
    ("Y = X + sum[C : 4](C)", "{ N, C }", "{ N, C }", TWO + 6),
    ("Y = X * (X.DimensionCount == 3 ? D : 7)", "{ N, [D], C }", "{ N, [D], C }", TWO * 7),
    ("Y = X * (present(B) ? K : 7)", "{ N, C }", "{ N, C }", TWO * 7),
]  # fmt: skip


@pytest.mark.parametrize("case", CORRECT, ids=lambda case: case[0].replace("\n", "; "))
def test_names_of_sizes_are_numbers(case: tuple[str, str, str, Array]) -> None:
    text, x, y, wanted = case
    more = ("B | Optional input | | FLOAT32 | { K }",) if "present" in text else ()
    op = declare(text, *rows(x, y, *more))
    found = evaluate(op.bind({"X": f32(2, 3)}), {"X": TWO})["Y"]
    np.testing.assert_array_equal(found, wanted)


def test_tensors_and_attributes_of_the_same_name_come_first() -> None:
    op = declare("Y = X + N", *rows("{ N, C }", "{ N, C }", "N | Input | | FLOAT32 | { N, C }"))
    found = evaluate(op.bind({"X": f32(2, 3), "N": f32(2, 3)}), {"X": TWO, "N": TWO})["Y"]
    np.testing.assert_array_equal(found, TWO * 2)
    op = declare("Y = X + C", *rows("{ N, C }", "{ N, C }"), attributes="| C | INT | 50 | |")
    np.testing.assert_array_equal(evaluate(op.bind({"X": f32(2, 3)}), {"X": TWO})["Y"], TWO + 50)


def test_a_member_of_an_enum_comes_first_where_one_is_expected() -> None:
    row = "| Mode | MODE | LOW | |"
    op = declare("Y = LOW == Mode ? X : X * 0", *rows("{ LOW, C }", "{ LOW, C }"), attributes=row)
    np.testing.assert_array_equal(evaluate(op.bind({"X": f32(2, 3)}), {"X": TWO})["Y"], TWO)


def test_constraints_and_defaults_use_names_of_sizes() -> None:
    row = "| A | UINT | C * 10 | |\n| B | UINT[N] | | |"
    op = declare(
        "Y = X + A + B[-1]", *rows("{ N, C }", "{ N, C }"), attributes=row,
        constraints="require C % 2 == 1",
    )  # fmt: skip
    found = evaluate(op.bind({"X": f32(2, 3)}, {"B": [1, 2]}), {"X": TWO})["Y"]
    np.testing.assert_array_equal(found, TWO + 32)
    (diagnostic,) = refusals(lambda: op.bind({"X": f32(2, 4)}, {"B": [1, 2]}))
    assert says(diagnostic) == ('broken constraint: "require C % 2 == 1"', "C is 4")


_ASK = "ask first whether there is one, as in 'X.DimensionCount == 5 ? D : 1'"
MISTAKES: list[tuple[str, str, str, str, tuple[str, ...]]] = [
    ("Y = X * D", "{ N, [D], C }", "{ N, [D], C }", "D",
     ("no tensor that is given has dimension 'D', and this needs it", _ASK)),
    ("Y[i : K] = X[0, 0]", "{ N, C }", "{ K }", "K",
     ("the sizes of 'Y' are needed here, and are not given", "give the sizes of 'Y' when binding")),
]  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[0])
def test_names_without_a_size(case: tuple[str, str, str, str, tuple[str, ...]]) -> None:
    text, x, y, place, said = case
    op = declare(text, *rows(x, y))
    (diagnostic,) = refusals(lambda: op.bind({"X": f32(2, 3)}))
    assert says(diagnostic) == said
    assert diagnostic.span is not None
    assert diagnostic.span.text == place


def test_without_sizes_there_is_none() -> None:
    op = declare("Y = X * N", *rows("{ N, C }", "{ N, C }"))
    (diagnostic,) = refusals(lambda: op.bind())
    assert diagnostic.message == "the sizes of 'X' are needed here, and are not given"


def test_one_name_is_one_size() -> None:
    op = declare("Y = X * N", *rows("{ N, C }", "{ N, C }", "Z | Input | | FLOAT32 | { N, N }"))
    (diagnostic,) = refusals(lambda: op.bind({"X": f32(2, 3), "Z": f32(4, 4)}))
    assert diagnostic.message == "dimension 'N' is 2 in 'X' but 4 in 'Z'"


@pytest.mark.parametrize(
    ("text", "x", "y", "message"),
    [
        ("Y = X * Nn", "{ N, C }", "{ N, C }", "unknown name 'Nn'"),
        ("Y = X * N[0]", "{ N, C }", "{ N, C }", "'N' is one value and has no index"),
        ("Y = X * N.Sizes", "{ N, C }", "{ N, C }",
         "only tensors have facts such as '.Sizes', and 'N' is none"),
        ("Y = X * S", "{ S[] }", "{ S[] }",
         "a tensor and an array cannot be combined element by element"),
        ("Y = X", "{ S[] }", "{ S, C }", "'S' names one size of one tensor and the shape of "
         "another"),
    ],
)  # fmt: skip
def test_mistakes_with_names(text: str, x: str, y: str, message: str) -> None:
    with pytest.raises(DmlcError) as caught:
        declare(text, *rows(x, y))
    assert [d.message for d in caught.value.diagnostics] == [message]


def test_functions_of_a_file_know_no_tables() -> None:
    text = (
        "function scaled(x) = x * C\noperator OP { tensors {\n"
        "| Tensor | Kind | Dimensions |\n| X | Input | { C } |\n| Y | Output | { C } |\n"
        "} compute { Y = scaled(X) } }"
    )
    with pytest.raises(DmlcError, match="1:26: error: unknown name 'C'"):
        Operator(check_text(text, "op.dml").operators["OP"])


def test_what_is_left_out_is_1() -> None:
    """Where another tensor has it; an output has what any of them has."""
    op = declare(
        "Y[i...] = A[C - 1] + B[0, 0]", "A | Input | 1 to 2 | FLOAT32 | { [N], C }",
        "B | Input | 1 to 2 | FLOAT32 | { [N], C }", "Y | Output | 1 to 2 | FLOAT32 | { [N], C }",
    )  # fmt: skip
    for n in (1, 2):
        given = {"A": f32(3), "B": f32(n, 3)}
        if n == 1:
            assert op.resolve(given).tensors["Y"].sizes == (1, 3)
            continue
        (diagnostic,) = refusals(lambda given=given: op.resolve({**given, "Y": f32(2, 3)}))
        assert says(diagnostic)[0] == (
            "dimension 'N' is 2 in 'B', and 'A' leaves it out: only 1 may be left out"
        )
    assert op.resolve({"A": f32(3), "B": f32(3)}).tensors["Y"].sizes == (3,)


def test_an_output_has_the_first_sizes_that_are_permitted_or_others_of_its_description() -> None:
    op = declare(
        "Y[i] = X[min(i, 2)]", "X | Input | 1 | FLOAT32", "Y | Output | 1 | FLOAT32",
        constraints="require all(Y.Sizes == X.Sizes - 1) || Y.Sizes[0] > 4",
    )  # fmt: skip
    assert op.resolve({"X": f32(3)}).tensors["Y"].sizes == (2,)
    assert op.resolve({"X": f32(3), "Y": f32(5)}).tensors["Y"].sizes == (5,)
    (diagnostic,) = refusals(lambda: op.resolve({"X": f32(3), "Y": f32(4)}))
    assert says(diagnostic)[1:] == ("Y.Sizes is [4]", "X.Sizes is [3]")


def test_strides_of_sizes_that_are_open() -> None:
    op = declare(
        "Y = X", "X | Input | | FLOAT32", "Y | Output | | FLOAT32",
        constraints="X and Y must have the same Sizes.\nrequire X.Strides == [C, 1]",
        attributes="| C | INT | 0 | |",
    )  # fmt: skip
    assert op.bind({"X": f32("N", 4)}, {"C": 4})
    for sizes, strides in ((("N", 4), "[4, 1]"), ((2, "M"), "[M, 1]")):
        (diagnostic,) = refusals(lambda sizes=sizes: op.bind({"X": f32(*sizes)}, {"C": 3}))
        assert f"X.Strides is {strides}" in says(diagnostic)
