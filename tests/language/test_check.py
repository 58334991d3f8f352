"""Every kind of mistake the checker knows: place and words, exactly.

In the texts `@` stands where a diagnostic must point; it is taken out before the text is checked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlc.language.check import check_file, check_text
from dmlc.language.definitions import OperatorDefinition
from dmlc.source import Diagnostic, DmlcError

ENUM = "enum MODE { LOW = 0, HIGH = 1 }\n"


def operator(
    compute: str = "Y = X",
    *,
    before: str = "",
    attributes: str = "",
    tensors: str = "",
    constraints: str = "",
    after: str = "",
) -> str:
    """A file with an operator of input X and output Y, and what a case adds to it."""
    table = f"attributes {{\n| Attribute | Type | Default | Values |\n{attributes}\n}}\n"
    return f"""{before}
operator OP {{
    {table if attributes else ""}
    tensors {{
        | Tensor | Kind | Dimensions | Ranks | Types |
        | X | Input | | 1 to 8 | FLOAT32, FLOAT16 |
        | Y | Output | | 1 to 8 | FLOAT32, FLOAT16 |
        {tensors}
    }}
    constraints {{ {constraints} }}
    compute {{
        {compute}
    }}
    {after}
}}
"""


def mistakes(text: str) -> list[Diagnostic]:
    try:
        check_text(text, "inline.dml")
    except DmlcError as error:
        return list(error.diagnostics)
    return []


def expect(marked: str, message: str, *notes: str) -> None:
    """The text has one mistake, at its `@`, with this message and these notes."""
    assert marked.count("@") == 1
    before = marked[: marked.index("@")]
    found = mistakes(marked.replace("@", ""))
    shown = "\n".join(d.render() for d in found)
    assert len(found) == 1, shown
    (diagnostic,) = found
    assert diagnostic.span is not None
    assert diagnostic.message == message, shown
    place = (diagnostic.span.line, diagnostic.span.column)
    assert place == (before.count("\n") + 1, len(before) - before.rfind("\n")), shown
    assert tuple(n.message for n in diagnostic.notes) == notes, shown


ATTRIBUTES = """| Epsilon | FLOAT | 1e-5 | |
| Mode | MODE | LOW | |
| Scales | FLOAT[2] | [1, 2] | |
| Layout | string | NCX | `NCX`, `NXC` |
| Flag | BOOL | true | |"""
SECOND = "| Z | Input | | 2 | FLOAT32 |\n| M | Input | | 1 to 8 | BOOL |"


def rich(compute: str, **more: str) -> str:
    more = {"attributes": ATTRIBUTES, "tensors": SECOND, "before": ENUM} | more
    return operator(compute, **more)


def test_what_is_right_is_accepted() -> None:
    text = rich(
        """
        f(x, y) = x * y + Epsilon
        A = Mode == HIGH ? X : -X
        B = Layout == "NXC" && Flag ? A + 1 : A
        C = M && !isnan(B) || Scales[1] > 1 ? f(B, Z) : 0
        D = X.DataType == FLOAT16 ? C : cast(C, FLOAT32)
        Y = present(Z) ? D + X.Sizes[0] + X.ElementCount : clamp(D, 0, 1)
        """,
        constraints='require all(Scales > 0) require Epsilon >= 0, "no" X must be a scalar.',
    )
    assert mistakes(text) == []


COMPUTE = [
    ("Y = @XX", "unknown name 'XX'", "did you mean 'X'?"),
    ("Y = @tensor", "unknown name 'tensor'",
     "known here: X, Y, Z, M, Epsilon, Mode, Scales, Layout, Flag"),
    ("Y = @exx(X)", "unknown function 'exx'", "did you mean 'exp'?"),
    ("Y = @exp(X, X)", "'exp' takes 1 argument, but is given 2"),
    ("Y = @max(X, X, X)", "'max' takes 2 arguments, but is given 3"),
    ("Y = @clamp(X, 1)", "'clamp' takes 3 arguments, but is given 2"),
    ("Y = @exp", "'exp' is a function: call it, as in exp(...)"),
    ("Y = @Z(X)", "'Z' is no function: an element is read as Z[X]"),
    ("f(x) = x\nY = @f(X, X)", "'f' takes 1 argument, but is given 2"),
    ("f(x, @x) = x\nY = f(X, X)", "parameter 'x' of 'f' stands twice", "the first is here"),
    ("f(x) = x\n@f(x) = x + 1\nY = f(X)", "function 'f' is declared twice", "the first is here"),
    ("@exp(x) = x\nY = exp(X)", "'exp' is a function of the language"),
    ("@f(x) = f(x)\nY = f(X)", "functions are inlined and must not recurse: 'f' calls 'f'"),
    ("@f(x) = g(x)\ng(x) = f(x)\nY = f(X)",
     "functions are inlined and must not recurse: 'f' calls 'g' calls 'f'", "declared here"),
    ("Y = @f(X)\nf(x) = x", "function 'f' is called before it is declared", "it is declared here"),
    ("A = X\n@A = X\nY = A", "'A' is assigned twice", "it is assigned here first"),
    ("Y = X\n@Y = X", "'Y' is assigned twice", "it is assigned here first"),
    ("@X = 1\nY = X", "'X' is an input and cannot be assigned", "declared here"),
    ("@Epsilon = 1\nY = X", "'Epsilon' is an attribute and cannot be assigned"),
    ("Y = @A\nA = X", "'A' is used before it is defined", "it is defined here"),
    ("Y = @Y + X", "'Y' is used before it is defined", "it is defined here"),
    ("Y = X + @true", "an operand of '+' must be a number, but this is a boolean",
     "a boolean becomes a number by 'c ? 1 : 0'"),
    ("Y = X + @M", "an operand of '+' must be a number, but this is a boolean",
     "a boolean becomes a number by 'c ? 1 : 0'"),
    ("Y = !@X ? 1 : 0", "the operand of '!' must be a boolean, but this is a number",
     "compare it, as in 'x != 0'"),
    ("Y = @X ? 1 : 0", "the condition of '?:' must be a boolean, but this is a number",
     "compare it, as in 'x != 0'"),
    ("Y = @X > 0 ? 1 : true",
     "the branches of '?:' must be of one kind, but one is a number and one is a boolean"),
    ("Y = M && @X ? 1 : 0", "an operand of '&&' must be a boolean, but this is a number",
     "compare it, as in 'x != 0'"),
    ("Y = @X == M ? 1 : 0",
     "the sides of '==' must be of one kind, but one is a number and one is a boolean"),
    ("Y = exp(@M)", "an argument of 'exp' must be a number, but this is a boolean"),
    ("Y = X + @Mode", "an operand of '+' must be a number, but this is a MODE"),
    ("Y = Mode == @HIHG ? X : 0", "unknown member of MODE 'HIHG'", "did you mean 'HIGH'?"),
    ("Y = X + @HIGH", "'HIGH' is a member of MODE, and no MODE is expected here",
     "compare it with an attribute of that type"),
    ('Y = Layout == @"NCZ" ? X : 0', "unknown value 'NCZ'", "did you mean 'NXC'?"),
    ("Y = X.DataType == @FLOAT33 ? X : 0", "unknown data type 'FLOAT33'",
     "did you mean 'FLOAT32'?"),
    ("Y = X + X.@Size[0]", "unknown fact 'Size'", "did you mean 'Sizes'?"),
    ("Y = X + @Epsilon.Sizes[0]",
     "only tensors have facts such as '.Sizes', and 'Epsilon' is none"),
    ("Y = X + @W.DimensionCount", "unknown tensor 'W'",
     "known here: X, Y, Z, M"),
    ("Y = @X + Scales", "a tensor and an array cannot be combined element by element",
     "index the array, as in 'Sizes[0]'"),
    ("Y = @Scales", "'Y' is a tensor, but this is an array"),
    ("Y = @Layout", "'Y' holds numbers, but this is a string"),
    ("Y = X + @Scales[0, 1]", "an array takes one index"),
    ("Y = X + @Epsilon[0]", "'Epsilon' is one value and has no index"),
    ("Y = cast(X, @3)", "the second argument of 'cast' is a data type, such as FLOAT32"),
    ("Y = cast(X, @FLOAT33)", "unknown data type 'FLOAT33'", "did you mean 'FLOAT32'?"),
    ("Y = present(@W) ? X : 0", "unknown tensor 'W'", "known here: X, Y, Z, M"),
    ("Y = present(@1) ? X : 0", "'present' takes the name of a tensor"),
    ("Y = since(@1) ? X : 0", "'since' takes a feature level, such as DML_FEATURE_LEVEL_6_2"),
    ("Y = since(@NEWEST) ? X : 0", "'since' takes a feature level, such as DML_FEATURE_LEVEL_6_2"),
    ("Y = [1, @X][0]", "an array holds single values, and this is a whole tensor"),
    ("Y = X + @[1, true][0]", "the values of an array must be of one kind"),
    ("Y = @X[0](X)", "expected the name of a function before '('"),
    # Reductions.
    ("Y = @sum(X)", "'sum' needs to know what to reduce over",
     "write sum(x, like: T), sum(x, axes: [...]) or sum[k : n](...)"),
    ("Y = sum(X, like: @W)", "unknown tensor 'W'", "known here: X, Y, Z, M"),
    ("Y = sum(X, @lik: Z)", "unknown argument of 'sum' 'lik'", "did you mean 'like'?"),
    ("Y = @sum(X, like: Z, axes: [0])", "'sum' takes either 'like:' or 'axes:'"),
    ("Y = @squeeze(X)", "'squeeze' takes a tensor and axes: squeeze(x, axes: [...])"),
    ("Y = unsqueeze(@1, axes: [0])", "'unsqueeze' takes a tensor"),
    ("Y = squeeze(X, axes: @0)", "'axes:' takes a compile-time array, such as [0, 2]"),
    ("Y = sum(X, axes: other_axes(@1, 2))",
     "'other_axes' takes a compile-time array, such as [0, 2]"),
    ("Y = sum(X, axes: @other_axes([1]))", "'other_axes' takes 2 arguments, but is given 1"),
    ("Y = sum(X, axes: @range(1))", "'range' takes 2 arguments, but is given 1"),
    ("Y = sum(X, axes: range(@[1], 2))", "'range' takes two whole numbers"),
    ("f(t, m) = sum(t, like: @k)\nY = f(X, X)", "unknown tensor 'k'",
     "known here: X, Y, Z, M, t, m"),
    ("Y = sum(X, axes: @X)", "'axes:' takes a compile-time array, such as [0, 2]"),
    ("Y = sum(@M, like: Z)", "what 'sum' folds must be a number, but this is a boolean"),
    ("Y = all(@X, like: Z) ? X : 0", "what 'all' folds must be a boolean, but this is a number",
     "compare it, as in 'x != 0'"),
    ("Y = exp(X, @like: Z)", "'exp' takes no argument called 'like'"),
    ("Y = @summ[k : 3](k)", "unknown reduction 'summ'", "did you mean 'sum'?"),
    ("Y = sum[k : 3, @k : 4](k)", "index variable 'k' is bound twice",
     "it is bound here first"),
    ("Y = sum[k : 3 where @k](k)",
     "the condition after 'where' must be a boolean, but this is a number",
     "compare it, as in 'x != 0'"),
    ("Y = sum[@k : X.Sizes](k)",
     "'k' runs over an array of sizes: write 'k... : X.Sizes'"),
    ("Y = sum[k... : @3](X[k...])",
     "'k...' needs one extent per axis, and this is one value"),
    ("Y = sum[k : @true](k)", "the extent of 'k' must be a number, but this is a boolean"),
    # Index notation and packs.
    ("Y[i...] = X[@i]", "'i' is an array, one value per axis, and is used without '...'",
     "write 'i...' to give an index for each"),
    ("Y[i...] = exp(@i...)", "'...' stands in an index, an array or a fold, and this is neither",
     "what folds a pack: sum, product, min, max, any, all, mean"),
    ("Y[i...] = product(@3...)", "'...' expands a pack, and there is none in this expression"),
    ("Y[i...] = @argmax(i...)", "'argmax' folds no pack",
     "what does: sum, product, min, max, any, all, mean"),
    ("Y[i, @i] = X[i, i]", "index variable 'i' is bound twice", "it is bound here first"),
    ("Y[i..., @j...] = X[i..., j...]", "a tensor is indexed with one pack at most"),
    ("@Y[a, b, c, d, e, f, g, h, i] = 1",
     "'Y' has 1 to 8 dimensions, but is defined with 9 indices"),
    ("Y[i, j] = @Z[i]", "'Z' has 2 dimensions, but is read with 1 index",
     "an index for each dimension, as in Z[i, j]"),
    ("Y[i] = @X", "a whole tensor stands where one element is defined: index it", "as in X[i]"),
    ("Y[i] = X[@true]", "an index must be a number, but this is a boolean"),
    ("Y[i] = X[@X]", "an index is one whole number, and this is a whole tensor"),
    ("Y[i] = @X[i - 1] else false",
     "a read and the value after 'else' must be of one kind, but one is a number and one is a "
     "boolean"),
    ("@A[i] = X[i]\nY = A", "'A' is no output, so it has no sizes to index over",
     "say what each index runs over: A[i : n] = ..."),
    ("A[@i : X.Sizes] = 1\nY = A", "'i' runs over an array of sizes: write 'i... : X.Sizes'"),
    ("A[i... : @2] = 1\nY = A", "'i...' needs one extent per axis, and this is one value"),
    ("A[i : @true] = 1\nY = A", "the extent of 'i' must be a number, but this is a boolean"),
    ("A[i : @X] = 1\nY = A", "the extent of 'i' is a whole number, and this is a tensor"),
    ("@A[i : 3, j] = 1\nY = A", "either every index says what it runs over, or none does"),
    ("@Y[i : 3, j] = 1", "either every index says what it runs over, or none does"),
    ("@A[i..., j : 3] = 1\nY = A", "either every index says what it runs over, or none does"),
    ("Y[i... : X.Sizes, @j...] = 1", "a tensor is indexed with one pack at most"),
    ("Y[i...] = @i", "one element of 'Y' is defined here, and this is an array"),
    ("Y[i] = sum[k : 3](@X)", "'sum[...]' reduces one element at a time, and this is a whole "
     "tensor", "index it, as in X[k]"),
    ("Y[i...] = X[(@i + 1)]", "'i + 1' is an array, one value per axis, and is used without "
     "'...'", "write '(i + 1)...' to give an index for each"),
    ("Y[i] = @[1, 2][0] else 3", "'else' belongs to a read of a tensor, not of an array"),
    ("Y[i...] = X[unflatten(@i, X.Sizes)...]", "'unflatten' takes a whole number, first"),
    ("Y[i...] = flatten(i, @3)", "'flatten' takes an array of sizes, second"),
    ("Y[i] = length(@3)", "'length' takes an array"),
    ("Y[i...] = X[i[inverse(@1)]...]",
     "'inverse' takes a permutation, an array such as [1, 0]"),
]  # fmt: skip


@pytest.mark.parametrize("case", COMPUTE, ids=lambda case: case[0].replace("\n", "; "))
def test_mistakes_in_compute(case: tuple[str, ...]) -> None:
    compute, message, *notes = case
    expect(rich(compute), message, *notes)


CONSTRAINTS = [
    ("X and @W must have the same Sizes.", "unknown tensor 'W'", "known here: X, Y, Z, M"),
    ("X and Y must have the same @Size.", "unknown fact 'Size'", "did you mean 'Sizes'?"),
    ("X, Y and @X must have the same Sizes.", "'X' is named twice in this sentence",
     "it is named here first"),
    ("@X must have the same Sizes.", "this sentence names one tensor only"),
    ("X must be broadcastable to @W.", "unknown tensor 'W'", "known here: X, Y, Z, M"),
    ("@W must be a scalar.", "unknown tensor 'W'", "known here: X, Y, Z, M"),
    ("require @Epsilon", "what is required must be a boolean, but this is a number"),
    ("require @X > 0", "the elements of tensor 'X' are not known here",
     "use a fact about it, such as X.Sizes"),
    ("require @Epsilon2 > 0", "unknown name 'Epsilon2'",
     "did you mean 'Epsilon'?"),
]  # fmt: skip


@pytest.mark.parametrize("case", CONSTRAINTS, ids=lambda case: case[0])
def test_mistakes_in_constraints(case: tuple[str, ...]) -> None:
    constraint, message, *notes = case
    expect(rich("Y = X", constraints=constraint), message, *notes)


def test_ranks_that_cannot_agree() -> None:
    tensors = "| A | Input | | 2 | FLOAT32 |\n| B | Input | | 4 to 5 | FLOAT32 |"
    expect(
        operator(tensors=tensors, constraints="@A and B must have the same DimensionCount."),
        "'A' has 2 dimensions and 'B' 4 or 5: they cannot have the same",
    )
    expect(
        operator("Y = @A + B", tensors=tensors),
        "tensors of 2 and of 4 or 5 dimensions cannot be combined element by element",
        "unsqueeze(x, axes: [0]) adds a dimension of size 1 in front",
    )
    narrow = operator("Y = @A", tensors=tensors).replace(
        "| Y | Output | | 1 to 8 |", "| Y | Output | | 3 |"
    )
    expect(narrow, "'Y' has 3 dimensions, but this has 2")


ATTRIBUTE_ROWS = [
    ("| A | FLOAT | @true | |", "the default of 'A' must be a number, but this is a boolean"),
    ("| A | MODE | @MIDDLE | |", "unknown member of MODE 'MIDDLE'", "known here: LOW, HIGH"),
    ("| A | FLOAT[2] | @1 | |", "the default of 'A' must be an array"),
    ("| A | FLOAT | @[1] | |", "the default of 'A' must be one value"),
    ("| A | FLOAT | @B | |\n| B | FLOAT | 1 | |", "unknown name 'B'", "known here: X, Y"),
    ("| A | FLOAT[@true] | | |", "the length of an array must be a number, but this is a boolean"),
    ("| @X | FLOAT | | |", "'X' is both a tensor and an attribute",
     "the tensor is declared here"),
    ("| A | @MOODE | | |", "unknown attribute type 'MOODE'", "did you mean 'MODE'?"),
    ("| A | FLOAT | @X | |", "the elements of tensor 'X' are not known here",
     "use a fact about it, such as X.Sizes"),
]  # fmt: skip


@pytest.mark.parametrize("case", ATTRIBUTE_ROWS, ids=lambda case: case[0])
def test_mistakes_in_attributes(case: tuple[str, ...]) -> None:
    rows, message, *notes = case
    expect(operator(before=ENUM, attributes=rows), message, *notes)


EXAMPLES = [
    ("X = [1] expect Y = [1] @V = [1]", "unknown tensor or attribute 'V'",),
    ("X = [1] expect Y = [1] @X = [2]", "'X' is given twice in this example",
     "it is given here first"),
    ("X = [1] @Y = [1] expect Z = [1]", "'Y' is an output: write 'expect' before it"),
    ("expect @X = [1] expect Y = [1] Z = [[1]]", "'X' is an input: leave out 'expect'"),
    ("X = [[1, 2], @[3]] expect Y = [1]", "this row has 1 values where the first has 2"),
    ("X = [@[1, 2], 3] expect Y = [1]",
     "expected a number, or rows that are all equally deep"),
    ("X = @1 expect Y = [1]", "'X' is a tensor: write an array, such as [1, 2]"),
    ("X = [@Epsilon] expect Y = [1]", "expected a number, or rows that are all equally deep"),
    ("X = [1] Mode = @MIDDLE expect Y = [1]", "unknown member of MODE 'MIDDLE'",
     "known here: LOW, HIGH"),
    ("X = [1] Epsilon = @true expect Y = [1]",
     "the value of 'Epsilon' must be a number, but this is a boolean"),
    ("X = [1] Scales = @3 expect Y = [1]", "the value of 'Scales' must be an array"),
    ("X = [1] expect @Epsilon = 2 expect Y = [1]", "'Epsilon' is an attribute, not an output"),
    ("X = [1] within @1e-5 expect Y = [1]", "'within' belongs to what is expected"),
    ("X = [1] Epsilon = 1 within @0.5 expect Y = [1]", "'within' belongs to what is expected"),
    ("X = [1] expect Y = [1] within 1 expect W = [1] within @2",
     "'W' holds whole numbers, which are exact: leave out 'within'"),
]  # fmt: skip


@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case[0])
def test_mistakes_in_examples(case: tuple[str, ...]) -> None:
    items, message, *notes = case
    text = operator(
        before=ENUM,
        attributes=ATTRIBUTES,
        tensors="| Z | Optional output | | 1 to 8 | FLOAT32 |\n"
        "| W | Optional output | | 1 to 8 | INT32 |",
        compute="Y = X\nZ = X\nW = cast(X, INT32)",
        after=f'example "case" {{ {items} }}',
    )
    if case[0].startswith("X = [1] expect Y = [1] @V"):
        notes = ["known here: X, Y, Z, W, Epsilon, Mode, Scales, Layout, Flag"]
    if "Z = [" in items:
        shown = [d.message for d in mistakes(text.replace("@", ""))]
        assert message in shown
        return
    expect(text, message, *notes)


def test_examples_give_what_is_required_and_expect_something() -> None:
    rows = "| A | FLOAT | | |"
    expect(
        operator(attributes=rows, after='@example "e" { expect Y = [1] }'),
        'example "e" does not give X, A',
    )
    expect(operator(after='@example "e" { X = [1] }'), 'example "e" expects nothing')
    text = operator(after='example "e" { X = @[[[1]]] expect Y = [1] }')
    expect(
        text.replace("| X | Input | | 1 to 8 |", "| X | Input | | 2 |"),
        "'X' has 2 dimensions, but this has 3",
    )


DIFFERENCES = [
    ("", "X = [1] expect Y = [1]", "does not say what others give",
     "say it behind what is expected: expect Y = [0] instead of [1]"),
    ("", "expect Y = [1] instead of [2]", 'differs "case" does not give X'),
    ("", "X = [1] instead of @[2] expect Y = [1] instead of [2]",
     "'instead of' belongs to what is expected"),
    ("", "X = [1] Epsilon = 1 instead of @2 expect Y = [1] instead of [2]",
     "'instead of' belongs to what is expected"),
    ("", "X = [1] expect Y = [1] instead of @[2, 3]",
     "'Y' has sizes [1], and what others give has [2]: write as many numbers"),
    ("", "X = [1] expect Y = [1] instead of @2", "'Y' is a tensor: write an array, such as [1, 2]"),
    ("", "X: @UINT3 = [1] expect Y = [1] instead of [2]", "unknown data type 'UINT3'"),
    ("", "X: @INT64 = [1] expect Y = [1] instead of [2]", "'X' is none of INT64"),
    ("", "X = [1] Epsilon: @FLOAT32 = 2 expect Y = [1] instead of [2]",
     "'Epsilon' is an attribute, whose type its table says"),
    ("where @Z == 0", "X = [1] expect Y = [1] instead of [2]", "unknown name 'Z'"),
    ("where @X", "X = [1] expect Y = [1] instead of [2]",
     "the condition must be a boolean, but this is a number"),
    ("where @(X.Sizes == X.Sizes)", "X = [1] expect Y = [1] instead of [2]", None),
    ("in @Z", "X = [1] expect Y = [1] instead of [2]", "unknown output 'Z'"),
    ("in @X", "X = [1] expect Y = [1] instead of [2]",
     "'X' is no single output: an output differs"),
    ("in Y[i] where @j == 0", "X = [1] expect Y = [1] instead of [2]", "unknown name 'j'"),
    ("in Y[i] where i == 0 && half[i] > 0", "X = [1] expect Y = [1] instead of [2]", None),
]  # fmt: skip


@pytest.mark.parametrize("case", DIFFERENCES, ids=lambda case: f"{case[0]} {case[1]}")
def test_mistakes_in_differences(case: tuple[str, str, str | None]) -> None:
    """A condition may name what `compute` defines."""
    header, items, message, *_ = case
    text = operator(
        before=ENUM,
        attributes=ATTRIBUTES,
        compute="half = X / 2\nY = X",
        after=f'differs "case" {header} {{ {items} }}',
    )
    found = mistakes(text.replace("@", ""))
    if message is None:
        assert found == []
        return
    (mistake,) = found
    assert message in mistake.message
    if "@" in text:
        assert mistake.span is not None
        assert mistake.span.start == text.index("@")


def test_an_example_says_nothing_of_others() -> None:
    expect(
        operator(after='example "e" { X = [1] expect Y = [1] instead of @[2] }'),
        "an example says what is given, and not what others give: write 'differs'",
    )


def test_outputs_must_be_there_and_defined() -> None:
    expect(
        operator("Y = X", tensors="| @Z | Output | | 1 | FLOAT32 |"),
        "output 'Z' is never defined",
        "'compute' defines each: Z = ...",
    )
    assert mistakes(operator("Y = X", tensors="| Z | Optional output | | 1 | FLOAT32 |")) == []
    expect(
        "operator @OP {\ntensors {\n| Tensor | Kind |\n| X | Input |\n}\ncompute { }\n}",
        "operator 'OP' has no output",
    )


def test_every_feature_level_has_an_output() -> None:
    row = "| Tensor | Kind |\n| X | Input |\n"
    text = (
        f"operator OP {{\ntensors L_1_0 {{\n{row}| Y | Output |\n}}\n"
        f"tensors @L_2_0 {{\n{row}}}\ncompute {{ Y = X }}\n}}"
    )
    expect(text, "operator 'OP' has no output at L_2_0")
    expect(
        "operator @OP {\ntensors {\n| Tensor | Kind |\n}\ncompute { }\n}",
        "operator 'OP' has no output",
    )


@pytest.mark.parametrize(
    "body",
    [
        "a = NONE(X: x)\noutput y = a + 1",
        "output y = NONE(X: x)",
        "output y = abs(NONE(X: x)) + 1",
        "a = NONE(X: x)\noutput y = a.Y",
    ],
)
def test_a_graph_that_calls_an_operator_without_outputs(body: str) -> None:
    # The operator is refused, and that once.
    text = "operator @NONE {\ntensors {\n| Tensor | Kind |\n| X | Input |\n}\ncompute { }\n}\n"
    expect(f"{text}graph g[N](x: FLOAT32[N]) {{\n{body}\n}}", "operator 'NONE' has no output")


def test_a_boolean_local_is_read_by_index() -> None:
    assert mistakes(operator("v = X > 0\nY[i...] = v[i...] ? X[i...] : 0")) == []
    assert mistakes(operator("v = X > 0\nY[i...] = (v[i...] else true) ? X[i...] : 0")) == []
    expect(
        operator("v = X > 0\nY[i...] = (@v[i...] else 1) ? X[i...] : 0"),
        "a read and the value after 'else' must be of one kind, but one is a boolean and one is a "
        "number",
    )


def test_feature_levels() -> None:
    table = "tensors{} {{ | Tensor | Kind | Ranks |\n| X | Input | 4 |\n| Y | {} | {} | }}\n"
    twice = table.format(" L_1_0", "Output", 4) + table.format(" @L_1_0", "Output", 4)
    body = "compute { Y = X } }"
    expect(
        "operator OP {" + twice + body,
        "there are two tables of tensors for L_1_0",
        "the first is here",
    )
    nameless = table.format("", "Output", 4) + "@" + table.format("", "Output", 4)
    expect(
        "operator OP {" + nameless + body,
        "there are two tables of tensors without a level",
        "the first is here",
    )
    newest_first = table.format(" L_2_0", "Output", 5) + table.format(" L_1_0", "Output", 4)
    module = check_text("operator OP {" + newest_first + body, "x.dml")
    levels = module.operators["OP"].levels
    assert [level.level for level in levels] == ["L_1_0", "L_2_0"]
    other = table.format(" L_1_0", "Output", 4) + table.format(" L_2_0", "Input", 4).replace(
        "| Y", "| @Y"
    )
    found = mistakes(("operator OP {" + other + body).replace("@", ""))
    assert found[0].message == "tensor 'Y' is of another kind at another feature level"


DECLARATIONS = [
    ("enum A { X = 0 }\nenum @A { X = 0 }", "enum 'A' is declared twice", "the first is here"),
    ("enum @A { }", "enum 'A' has no members"),
    ("enum A { X = 0, @X = 1 }", "'X' stands twice in enum 'A'"),
    ("enum A { X = 0, @Y = 0 }", "'Y' has the same value as 'X' in enum 'A'"),
    ("function f(x) = x\nfunction @f(x) = x", "function 'f' is declared twice",
     "the first is here"),
    ("function @max(x) = x", "'max' is a function of the language"),
    ("function f(x, @x) = x", "parameter 'x' of 'f' stands twice", "the first is here"),
    ("function @f(x) = g(x)\nfunction g(x) = h(x)\nfunction h(x) = f(x)",
     "functions are inlined and must not recurse: 'f' calls 'g' calls 'h' calls 'f'",
     "declared here", "declared here"),
    ("function f(x) = @y", "unknown name 'y'", "known here: x"),
    ("function f(x) = x > 0\nfunction g(x) = @f(x) + 1",
     "an operand of '+' must be a number, but this is a boolean",
     "a boolean becomes a number by 'c ? 1 : 0'"),
    (operator() + "\n" + operator().replace("OP", "@OP"),
     "operator or graph 'OP' is declared twice", "the first is here"),
    ("module m\n" + operator().replace("tensors", "forward @OP\ntensors", 1),
     "operator 'm.OP' is its own forward"),
    (operator().replace("compute {\n        Y = X\n    }",
                        "gradient of @FORWARD with respect to X"),
     "unknown operator 'FORWARD'", "known here: OP"),
    (operator() + operator().replace("OP", "GRAD").replace(
        "compute {\n        Y = X\n    }", "gradient of OP with respect to X, @Y"),
     "unknown input of OP 'Y'", "known here: X"),
    (operator() + operator().replace("OP", "GRAD").replace(
        "compute {\n        Y = X\n    }", "gradient of OP with respect to X, @X"),
     "'X' is named twice", "it is named here first"),
]  # fmt: skip


@pytest.mark.parametrize("case", DECLARATIONS, ids=lambda case: case[0][:50])
def test_mistakes_in_declarations(case: tuple[str, ...]) -> None:
    text, message, *notes = case
    expect(text, message, *notes)


def test_functions_may_be_declared_in_any_order() -> None:
    text = "function f(x) = g(x) + 1\nfunction g(x) = x * x\n" + operator("Y = f(X)")
    assert mistakes(text) == []


def test_a_function_takes_a_tensor_and_the_axes_to_reduce() -> None:
    spread = "function spread(x, at) = max(x, axes: at) - min(x, axes: at)"
    text = operator("Y = X / spread(X, Axes)", before=spread, attributes="| Axes | UINT[2] | | |")
    assert mistakes(text) == []


def test_names_are_qualified_with_the_module() -> None:
    text = "module m\n" + operator().replace("tensors", "forward RELU\ntensors", 1)
    found = check_text(text, "x.dml").operators["m.OP"]
    assert (found.name, found.short_name, found.forward) == ("m.OP", "OP", "m.RELU")


def test_a_local_that_nothing_reads_is_a_warning() -> None:
    module = check_text(operator("A = X\nY = X"), "x.dml")
    (warning,) = module.diagnostics
    assert warning.message == "'A' is never read"


def test_a_description_without_a_formula_is_a_warning() -> None:
    table = "tensors {{\n| Tensor | Kind |\n| {} | Input |\n| {} | Output |\n}}\n"
    text = f"module m\noperator OP {{ {table.format('X', 'Y')} }}\n"
    text += f"operator G {{ {table.format('dY', 'dX')} gradient of OP with respect to X }}\n"
    module = check_text(text, "x.dml")
    assert [d.render().splitlines()[0] for d in module.diagnostics] == [
        "x.dml:2:10: warning: operator 'm.OP' has no formula: it cannot be compiled [W0002]"
    ]
    bare, derived = module.operators["m.OP"], module.operators["m.G"]
    assert (bare.has_formula, derived.has_formula) == (False, True)
    for each in (bare, derived):
        with pytest.raises(DmlcError, match=r"operator 'm\.OP' has no formula"):
            each.expect_formula()


def test_mistakes_are_reported_together_up_to_twenty() -> None:
    text = rich("A = XX\nB = true + 1\nY = A + B", constraints="X and W must have the same Sizes.")
    assert [d.message for d in mistakes(text)] == [
        "unknown tensor 'W'",
        "unknown name 'XX'",
        "an operand of '+' must be a number, but this is a boolean",
    ]
    many = operator("\n".join(f"A{k} = U{k}" for k in range(100)) + "\nY = X")
    assert len(mistakes(many)) == 20


# Graphs ----------------------------------------------------------------------------------------

PARTS = (
    operator().replace("OP", "RELU")
    + operator(
        "Y = X\nZ = X",
        before=ENUM,
        attributes="| Mode | MODE | | |\n| Alpha | FLOAT | 1 | |",
        tensors="| Z | Output | | 1 to 8 | FLOAT32 |",
    ).replace("OP", "TWO")
    + """
operator CUT {
    tensors { | Tensor | Kind             |
              | X      | Input            |
              | P      | Array of outputs | }
    compute { P = split(X, axis: 0) }
}"""
)

GRAPHS = [
    ("x: FLOAT32[N]", "output y = @z", "unknown name 'z'", "known here: N, x"),
    ("x: FLOAT32[@M]", "output y = x", "unknown size 'M'",
     "a symbol is declared behind the graph's name: [M]"),
    ("x: @FLOAT33[N]", "output y = x", "unknown data type 'FLOAT33'", "did you mean 'FLOAT32'?"),
    ("x: FLOAT32[N], @x: FLOAT32[N]", "output y = x", "input 'x' is declared twice in this graph",
     "the first is here"),
    ("x: FLOAT32[N]", "@x = x\noutput y = x", "name 'x' is declared twice in this graph",
     "the first is here"),
    ("x: FLOAT32[N]", "output y = @z\noutput z = x", "'z' is used before it is defined",
     "it is defined here"),
    ("x: FLOAT32[N]", "output y = @RELUU(X: x)", "unknown operator 'RELUU'",
     "did you mean 'RELU'?"),
    ("x: FLOAT32[N]", "output y = RELU(@XX: x, X: x)", "unknown argument of RELU 'XX'",
     "did you mean 'X'?"),
    ("x: FLOAT32[N]", "output y = @RELU()", "this call of RELU does not give X",
     "'X' is declared here"),
    ("x: FLOAT32[N]", "output y = RELU(X: x, @x)",
     "the arguments of operator 'RELU' are given by name", "as in X: x"),
    ("x: FLOAT32[N]", "output y = RELU(X: x, @X: x)", "'X' is given twice in this call",
     "it is given here first"),
    ("x: FLOAT32[N]", "t = TWO(X: x, Mode: HIGH)\noutput y = @t", "'t' has 2 outputs: name one",
     "as in t.Y"),
    ("x: FLOAT32[N]", "t = TWO(X: x, Mode: HIGH)\noutput y = t.@W", "unknown output of TWO 'W'",
     "known here: Y, Z"),
    ("x: FLOAT32[N]", "t = TWO(X: x, Mode: @HIHG)\noutput y = t.Y", "unknown member of MODE 'HIHG'",
     "did you mean 'HIGH'?"),
    ("x: FLOAT32[N]", "t = TWO(X: x, Mode: LOW, Alpha: @x)\noutput y = t.Y",
     "'Alpha' is an attribute and takes no tensor"),
    ("x: FLOAT32[N]", "t = TWO(X: x, Mode: LOW, Alpha: @true)\noutput y = t.Y",
     "'Alpha' must be a number, but this is a boolean"),
    ("x: FLOAT32[N]", "output y = RELU(X: x, Y: @x)",
     "'Y' takes a type and sizes, such as FLOAT32[N, C]"),
    ("x: FLOAT32[N]", "output y = RELU(X: @FLOAT32[N])", "'X' takes a value"),
    ("x: FLOAT32[N]", "output y = @x.Y", "'x' is no call, so it has no outputs"),
    ("x: FLOAT32[N]", "output y = @gradient(x)",
     "'gradient' takes a value and what to differentiate by", "as in gradient(loss, wrt: x)"),
    ("x: FLOAT32[N], z: FLOAT32[N, N]", "output y = @x + z",
     "tensors of 1 and of 2 dimensions cannot be combined element by element",
     "unsqueeze(x, axes: [0]) adds a dimension of size 1 in front"),
    ("x: FLOAT32[N]", "a = @b + x\nb = c * 2\nc = a\noutput y = c",
     "this closes a cycle: 'a' reads 'b', which reads 'c', which reads 'a'", "it is defined here",
     "a graph has no cycles: each value is computed from inputs and values above it"),
    ("x: FLOAT32[N]", "a = @a + x\noutput y = a", "'a' is read by its own definition"),
    ("x: FLOAT32[N]", "output y = @t.Y\nt = TWO(X: x, Mode: LOW)",
     "'t' is used before it is defined", "it is defined here"),
    ("x: FLOAT32[N]", "output y = @q.Y", "unknown name 'q'", "known here: N, x"),
    ("x: FLOAT32[N]", "output y = @RELU(X: x).Y",
     "only the name of a call has outputs: name the call first"),
    ("x: FLOAT32[N]", "output y = @TWO(X: x, Mode: LOW)",
     "TWO has 2 outputs, and one tensor is expected here",
     "name the call, as in 'parts = TWO(...)', and read one output of it: parts.Y"),
    ("x: FLOAT32[N]", "output y = RELU(X: @TWO(X: x, Mode: LOW))",
     "TWO has 2 outputs, and one tensor is expected here",
     "name the call, as in 'parts = TWO(...)', and read one output of it: parts.Y"),
    ("x: FLOAT32[N]", "t = @TWO(X: x)\noutput y = t.Y",
     "this call of TWO does not give Mode", "'Mode' is declared here"),
    ("x: FLOAT32[N]", "@x = RELU(X: x)\noutput y = x", "name 'x' is declared twice in this graph",
     "the first is here"),
    ("x: FLOAT32[N]", "@N = x\noutput y = x", "name 'N' is declared twice in this graph",
     "the first is here"),
    ("x: FLOAT32[N]", "output y = RELU(X: @2)",
     "'X' takes a tensor, but this is one value"),
    ("x: FLOAT32[N]", "output y = RELU(X: @[x])", "'X' takes one tensor"),
    ("x: FLOAT32[N]", "s = CUT(X: x, P: @FLOAT32[N])\noutput y = s.P[0]",
     "'P' takes a list of tensors, as in [a, b]"),
    ("x: FLOAT32[N]", "s = CUT(X: x, P: [FLOAT32[N], @x])\noutput y = s.P[0]",
     "'P' takes a type and sizes, such as FLOAT32[N, C]"),
    ("x: FLOAT32[N]", "s = CUT(X: x, P: [FLOAT32[N]])\noutput y = @s",
     "'s' has an array of outputs: name one", "as in s.P[0]"),
    ("x: FLOAT32[N]", "s = CUT(X: x, P: [FLOAT32[N]])\noutput y = @s.P",
     "'s.P' is an array of tensors: pick one", "as in s.P[0]"),
    ("x: FLOAT32[N]", "s = CUT(X: x, P: [FLOAT32[N]])\noutput y = @s.P[0, 1]",
     "an array of tensors takes one number"),
    ("x: FLOAT32[N]", "t = TWO(X: x, Mode: LOW)\noutput y = @t.Y[0]",
     "'t.Y' is one tensor, and has no entries"),
    ("x: FLOAT32[N]", "output y = @2 * N", "output 'y' is one value, and must be a tensor"),
    ("x: FLOAT32[N]", "output y = RELU(X: x + @true)",
     "an operand of '+' must be a number, but this is a boolean",
     "a boolean becomes a number by 'c ? 1 : 0'"),
]  # fmt: skip


@pytest.mark.parametrize("case", GRAPHS, ids=lambda case: case[0] + " " + case[1])
def test_mistakes_in_graphs(case: tuple[str, ...]) -> None:
    inputs, body, message, *notes = case
    expect(f"{PARTS}\ngraph g[N]({inputs}) {{\n{body}\n}}", message, *notes)


def test_graphs_that_are_right() -> None:
    text = f"""{PARTS}
    graph g[N](x: FLOAT32[N, 2 * N]) {{
        r = RELU(X: x + 1, Y: FLOAT32[N, 2 * N])
        t = TWO(X: r, Mode: HIGH, Alpha: 0.5)
        u = directml.SOMETHING(InputTensor: t.Z, Mode: ANY)
        output y = u.OutputTensor + r
        output d = gradient(r, wrt: x)
    }}"""
    assert mistakes(text) == []
    assert list(check_text("module m\n" + text, "x.dml").graphs) == ["m.g"]


def test_what_a_graph_does_not_use_is_warned_of() -> None:
    text = (
        "graph g[N, M](x: FLOAT32[N], z: FLOAT32[N]) {\n"
        "    a = x * 2\n    b = x + 1\n    c = b\n    output y = b\n}"
    )
    assert [d.render().split("\n")[0] for d in check_text(text, "g.dml").diagnostics] == [
        "g.dml:1:12: warning: symbol 'M' is never read [W0001]",
        "g.dml:1:30: warning: input 'z' is never read [W0001]",
        "g.dml:2:5: warning: the value 'a' is never read [W0001]",
        "g.dml:4:5: warning: the value 'c' is never read [W0001]",
    ]


class Library:
    """One operator, as a built-in library brings it."""

    def __init__(self) -> None:
        self.operator = check_text(operator().replace("OP", "RELU"), "relu.dml").operators["RELU"]

    def names(self) -> list[str]:
        return ["lib.RELU"]

    def find(self, name: str) -> OperatorDefinition | None:
        return self.operator if name == "lib.RELU" else None


def test_graphs_call_the_library() -> None:
    text = "graph g[N](x: FLOAT32[N]) {{ output y = {}(X: x) }}"
    module = check_text(text.format("lib.RELU"), "g.dml", Library())
    assert list(module.graphs["g"].operators) == ["lib.RELU"]
    with pytest.raises(DmlcError, match=r"unknown operator 'lib.RELUU'"):
        check_text(text.format("lib.RELUU"), "g.dml", Library())
    with pytest.raises(DmlcError, match=r"did you mean 'lib.RELU'"):
        check_text(text.format("lbi.RELU"), "g.dml", Library())
    assert check_text(text.format("lib.RELUU"), "g.dml").graphs["g"].operators == {}


def test_a_graph_needs_an_output_and_different_symbols() -> None:
    expect(
        "graph @g[N](x: FLOAT32[N]) { y = x }",
        "graph 'g' has no output",
        "write 'output name = ...' for each result",
    )
    expect(
        "graph g[N, @N](x: FLOAT32[N]) { output y = x }",
        "symbol 'N' is declared twice in this graph",
        "the first is here",
    )


# Imports ---------------------------------------------------------------------------------------


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.dml").write_text(text, encoding="utf-8")


def failure(path: Path) -> Diagnostic:
    with pytest.raises(DmlcError) as caught:
        check_file(path)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def test_imports_bring_enums_functions_and_operators(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts", shared=ENUM + "function twice(x) = 2 * x")
    write(tmp_path / "parts", middle='import "shared.dml"\n' + operator().replace("OP", "BASE"))
    main = 'import "parts/middle.dml"\nimport "parts/shared.dml"\n' + operator(
        "Y = Mode == HIGH ? twice(X) : X", attributes="| Mode | MODE | | |"
    )
    write(tmp_path, main=main)
    module = check_file(tmp_path / "main.dml")
    assert sorted(module.operators) == ["BASE", "OP"]


def test_import_cycles_show_their_chain(tmp_path: Path) -> None:
    write(tmp_path, a='import "b.dml"', b='import "c.dml"', c='\nimport "a.dml"')
    diagnostic = failure(tmp_path / "a.dml")
    assert diagnostic.message == (
        "this import closes a cycle: 'a.dml' imports 'b.dml' imports 'c.dml' imports 'a.dml'"
    )
    assert diagnostic.span is not None
    assert Path(diagnostic.span.source.name).name == "c.dml"
    assert (diagnostic.span.line, diagnostic.span.column) == (2, 1)
    write(tmp_path, d='import "d.dml"')
    assert failure(tmp_path / "d.dml").message == (
        "this import closes a cycle: 'd.dml' imports 'd.dml'"
    )


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, a='import "none.dml"', b='import ""', c='import "a\\0.dml"')
    missing = failure(tmp_path / "a.dml")
    assert missing.message.endswith("none.dml': no such file or directory")
    assert missing.span is not None
    assert missing.span.column == 1
    assert failure(tmp_path / "b.dml").message == "expected the name of a file to import"
    assert failure(tmp_path / "no.dml").message.startswith("cannot read '")
    assert failure(tmp_path).message.endswith("is a directory")
    (tmp_path / "latin.dml").write_bytes(b"// \xff")
    assert failure(tmp_path / "latin.dml").message.endswith("is not UTF-8 text: byte 3 is wrong")
    with (tmp_path / "large.dml").open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert failure(tmp_path / "large.dml").message.endswith("is larger than 16 MiB")


def test_a_name_declared_here_and_in_an_import(tmp_path: Path) -> None:
    write(tmp_path, a="function f(x) = x", b='import "a.dml"\nfunction f(x) = x')
    diagnostic = failure(tmp_path / "b.dml")
    assert diagnostic.message == "function 'f' is declared twice"
    (note,) = diagnostic.notes
    assert note.span is not None
    assert Path(note.span.source.name).name == "a.dml"


def test_imports_are_not_nested_without_end(tmp_path: Path) -> None:
    for k in range(70):
        write(tmp_path, **{f"f{k}": f'import "f{k + 1}.dml"'})
    write(tmp_path, f70="")
    assert failure(tmp_path / "f0.dml").message == "imports are nested deeper than 64 files"


def test_mistakes_of_an_import_are_reported(tmp_path: Path) -> None:
    write(tmp_path, a="operator {", b='import "a.dml"')
    diagnostic = failure(tmp_path / "b.dml")
    assert diagnostic.span is not None
    assert Path(diagnostic.span.source.name).name == "a.dml"


def test_thousands_of_functions_are_ordered_quickly() -> None:
    chain = [f"function f{k}(x) = f{k + 1}(x)" for k in range(3000)]
    assert mistakes("\n".join([*chain, "function f3000(x) = x"])) == []
    found = mistakes("\n".join([*chain, "function f3000(x) = f0(x)"]))
    assert found[0].message.startswith("functions are inlined and must not recurse: 'f0' calls")
