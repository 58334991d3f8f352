from __future__ import annotations

import numpy as np

import dmlc
from dmlc.binding import TensorDesc
from dmlc.language.check import check_text
from tests.binding.declare import X, Y, Z, declare, f32, refusal, refusals, says

SAME = "X, Z and Y must have the same DataType, DimensionCount, and Sizes."


def test_a_broken_sentence_is_quoted_with_place_and_values() -> None:
    op = declare("Y = X + Z", X, Z, Y, constraints=SAME)
    found = refusal(op, {"X": f32(2, 3), "Z": TensorDesc("FLOAT16", (2, 4))})
    assert says(found) == (
        f'broken constraint: "{SAME}"',
        "X has DataType FLOAT32; Z has DataType FLOAT16",
        "X has Sizes [2, 3]; Z has Sizes [2, 4]",
    )
    assert found.span is not None
    assert found.span.text == SAME
    assert (found.span.line, found.span.column) == (12, 19)
    ranks = refusal(op, {"X": f32(2), "Z": f32(2, 1)})
    assert says(ranks)[1:] == (
        "X has DimensionCount 1; Z has DimensionCount 2",
        "X has Sizes [2]; Z has Sizes [2, 1]",
    )


def test_emphasis_marks_in_a_sentence_are_kept_in_the_quotation() -> None:
    op = declare("Y = X + Z", X, Z, Y, constraints="*X* and **Z** must have the same *Sizes*.")
    found = refusal(op, {"X": f32(2), "Z": f32(3)})
    assert found.message == 'broken constraint: "*X* and **Z** must have the same *Sizes*."'


def test_broadcastable_and_scalar() -> None:
    op = declare("Y = X + Z", X, Z, Y, constraints="Z must be broadcastable to X.")
    assert op.bind({"X": f32(2, 3), "Z": f32(1, 3)})
    assert says(refusal(op, {"X": f32(1, 3), "Z": f32(2, 3)})) == (
        'broken constraint: "Z must be broadcastable to X."',
        "Z has sizes [2, 3] and X has [1, 3]",
    )
    one = declare("Y = X + Z", X, Z, Y, constraints="Z must be a scalar.")
    assert one.bind({"X": f32(2, 3), "Z": f32(1, 1)})
    assert says(refusal(one, {"X": f32(2, 3), "Z": f32(1, 3)})) == (
        'broken constraint: "Z must be a scalar."',
        "Z has sizes [1, 3]",
    )


def test_requirements() -> None:
    rows = "| Epsilon | FLOAT | 1 | |\n| Factors | UINT[] | [2, 2] | |\n"
    op = declare(
        "Y = X * Epsilon",
        X,
        Y,
        attributes=rows,
        constraints="""
        require Epsilon >= 0, "Epsilon must not be negative"
        require X.DimensionCount == 2 && all(Factors > 0)
        require X.Sizes == Factors""",
    )
    assert op.bind({"X": f32(2, 2)})
    assert says(refusal(op, {"X": f32(2, 2)}, {"Epsilon": -1})) == (
        "broken constraint: Epsilon must not be negative",
        'it reads: "require Epsilon >= 0, "Epsilon must not be negative""',
        "Epsilon is -1.0",
    )
    assert says(refusal(op, {"X": f32(2, 3)})) == (
        'broken constraint: "require X.Sizes == Factors"',
        "X.Sizes is [2, 3]",
        "Factors is [2, 2]",
    )
    found = refusals(lambda: op.bind({"X": f32(2, 2)}, {"Factors": [2, 2, 2], "Epsilon": -1}))
    assert [d.message for d in found] == [
        "broken constraint: Epsilon must not be negative",
        "arrays of 2 and 3 values cannot be combined element by element",
    ]


def test_descriptions_against_their_rows() -> None:
    op = declare("Y = X", "X | Input | 2 to 4 | FLOAT32, FLOAT16", "Y | Output | 2, 4 | FLOAT32")
    found = refusals(
        lambda: op.bind({"X": TensorDesc("INT32", (1,)), "Y": f32(1, 1, 1), "W": f32(1)})
    )
    assert [says(d) for d in found] == [
        ("unknown tensor 'W'", "known here: X, Y"),
        ("'X' cannot be INT32: it is FLOAT32 or FLOAT16", "declared here"),
        ("'X' takes 2 to 4 dimensions, and is given 1: [1]", "declared here"),
        ("'Y' takes 2 or 4 dimensions, and is given 3: [1, 1, 1]", "declared here"),
    ]


def test_missing_tensors() -> None:
    op = declare("Y = X + Z", X, Z, Y)
    assert says(refusal(op, {"X": f32(2)})) == (
        "required tensor 'Z' is not given",
        "declared here",
    )
    assert says(refusal(op, {"X": f32(2), "Z": TensorDesc("FLOAT32")})) == (
        "input 'Z' has no sizes, but other tensors have",
        "declared here",
    )


def test_types_tables() -> None:
    op = declare("Y = X * Z", X, Z, Y, types="| X, Y | Z |\n| f32, f16 | f32 |\n| bf16 | bf16 |\n")
    assert op.bind({"X": TensorDesc("f16", (2,)), "Z": f32(2)}).stages[0].dtype.short == "f16"
    found = refusal(op, {"X": TensorDesc("bf16", (2,)), "Z": f32(2), "Y": f32(2)})
    assert found.message == (
        "this combination of data types is not permitted: X BFLOAT16, Z FLOAT32, Y FLOAT32"
    )
    assert found.span is not None
    assert found.span.line == 13


def test_dimension_patterns() -> None:
    op = declare(
        "Y = X * Z",
        "X | Input | 4 | FLOAT32 | { N, C, H, W }",
        "Z | Input | 4 | FLOAT32 | { 1, C, 1, 1 }",
        "Y | Output | 4 | FLOAT32 | { N, C, H, W }",
    )
    function = op.bind({"X": f32(2, 3, 4, 5), "Z": f32(1, 3, 1, 1)})
    assert function.stages[0].extents == (2, 3, 4, 5)
    assert says(refusal(op, {"X": f32(2, 3, 4, 5), "Z": f32(1, 4, 1, 1)})) == (
        "dimension 'C' is 3 in 'X' but 4 in 'Z'",
        "declared here",
    )
    assert says(refusal(op, {"X": f32(2, 3, 4, 5), "Z": f32(2, 3, 1, 1)})) == (
        "'Z' has dimensions { 1, C, 1, 1 }, so a size must be 1, but its sizes are [2, 3, 1, 1]",
        "declared here",
    )
    whole = declare(
        "Y = X",
        "X | Input | 1 to 8 | FLOAT32 | { D[] }",
        "Y | Output | 1 to 8 | FLOAT32 | { D[] }",
    )
    assert whole.bind({"X": f32(2, 3)}).stages[0].extents == (2, 3)
    assert says(refusal(whole, {"X": f32(2, 3), "Y": f32(2, 4)})) == (
        "'X' and 'Y' share the dimensions 'D', but their sizes are [2, 3] and [2, 4]",
        "declared here",
    )
    front = declare(
        "Y = X", "X | Input | | FLOAT32 | { [N], [C], W }", "Y | Output | 1 to 8 | FLOAT32"
    )
    assert front.bind({"X": f32(2)})
    assert refusal(front, {"X": f32(1, 2, 3, 4)}).message.startswith("'X' takes 1 to 3 dimensions")


def test_which_optional_dimensions_are_left_out() -> None:
    """The first ones, wherever they are."""
    op = declare(
        "Y = X + B",
        "X | Input | 3 to 5 | FLOAT32 | { N, C, [D], [H], W }",
        "B | Input | 3 to 5 | FLOAT32 | { 1, C, [1], [1], 1 }",
        "Y | Output | 3 to 5 | FLOAT32 | { N, C, [D], [H], W }",
    )
    for space in ((7,), (6, 7), (5, 6, 7)):
        ones = (1,) * len(space)
        given = {"X": f32(2, 3, *space), "B": f32(1, 3, *ones)}
        assert op.bind(given).stages[0].extents == (2, 3, *space)
        found = refusal(op, {**given, "B": f32(1, 4, *ones)})
        assert found.message == "dimension 'C' is 3 in 'X' but 4 in 'B'"


def test_outputs_may_not_overlap() -> None:
    op = declare("Y = X", X, Y)
    assert op.bind({"X": f32(2, 3, strides=(0, 0)), "Y": f32(2, 3, strides=(1, 2))})
    found = refusal(op, {"X": f32(2, 3), "Y": f32(2, 3, strides=(0, 1))})
    assert says(found) == (
        "elements of output 'Y' overlap: sizes [2, 3] with strides [0, 1]",
        "each stride must pass over all that smaller strides reach",
        "declared here",
    )


def test_constraints_and_formulas_may_depend_on_the_level() -> None:
    constraints = 'require X.Sizes[0] > 1 || since(L_2_1), "one element came with L_2_1"'
    op = declare("Y = since(L_3_0) ? X : 2 * X", X, Y, constraints=constraints)
    x = np.ones(1, np.float32)
    for level, expected in ((None, 1), ("L_2_1", 2), ("L_2_9", 2), ("L_3_0", 1), ("L_4_0", 1)):
        function = op.bind({"X": f32(1)}, level=level)
        assert dmlc.run(function, {"X": x}, device="reference")["Y"] == expected
    found = refusal(op, {"X": f32(1)}, level="L_2_0")
    assert found.message == "broken constraint: one element came with L_2_1"
    assert op.bind({"X": f32(2)}, level="L_2_0")


def test_feature_levels() -> None:
    op = declare("Y = X", X, Y)
    tables = """
    introduced L_1_0
    tensors L_1_0 { | Tensor | Kind | Ranks |\n| X | Input | 4 |\n| Y | Output | 4 | }
    tensors L_3_0 { | Tensor | Kind | Ranks |\n| X | Input | 1 to 8 |\n| Y | Output | 1 to 8 | }
    """
    text = op.definition.syntax.span.source.text
    start, end = text.index("tensors"), text.index("constraints")
    from_text = check_text(text[:start] + tables + text[end:], "op.dml")
    leveled = type(op)(from_text.operators["OP"])
    assert leveled.bind({"X": f32(2)})
    assert leveled.bind({"X": f32(1, 1, 1, 2)}, level="L_2_1")
    assert refusal(leveled, {"X": f32(2)}, level="L_2_1").message.startswith("'X' takes 4 dim")
    assert refusal(leveled, {"X": f32(2)}, level="L_0_9").message == (
        "'OP' is not in L_0_9: it was introduced in L_1_0"
    )
    assert refusal(leveled, {"X": f32(2)}, level="newest").message == (
        "unknown feature level 'newest'"
    )
