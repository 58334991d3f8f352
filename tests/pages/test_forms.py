"""The forms of pages, one by one: words, sentences, structures, code, formulas, columns."""

from __future__ import annotations

import pytest

from dmlc import pages
from dmlc.language.format import format_expression
from dmlc.pages.blocks import Code, PageRow, PageTable, Paragraph, words
from dmlc.pages.columns import find_columns, read_tensor
from dmlc.pages.draft import Attribute, Draft, Level, Tensor
from dmlc.pages.formulas import NameMap, make_function, parse_code, split_statements, translate
from dmlc.pages.markdown import read_markdown
from dmlc.pages.mathematics import read_latex
from dmlc.pages.sentences import split
from dmlc.pages.structs import Field, read_struct, read_type
from tests.pages.corpus import read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*InputTensor* and **B** must", "InputTensor and B must"),
        ("[**UINT**](/windows/types)", "UINT"),
        (r"\_Maybenull\_ **const [T](/t)\***", "_Maybenull_ const T*"),
        ('<b><a href="/windows">BOOL</a></b>', "BOOL"),
        ("`a * b` &gt; 0&nbsp;!", "a * b > 0 !"),
        ("[a](@ref b::c) is ``x``", "a is x"),
        (
            "[a] (@ref b::c) is **AD**aptive and _must_ be `x[d](i)`",
            "a is ADaptive and must be x[d](i)",
        ),
        ("![how it goes](images/way.png)", "image images/way.png (how it goes)"),
    ],
)
def test_words(text: str, expected: str) -> None:
    assert words(text) == expected


def test_sentences_know_their_lines() -> None:
    lines = (
        (7, "@note Either `a` or `b` should be provided. If"),
        (8, "both are, `a` precedes, see [v. 2](x.md). Else"),
        (9, "it is `b`, e.g. C."),
    )
    found = list(split(Paragraph(lines)))
    assert [(s.text, s.lines) for s in found] == [
        ("Either a or b should be provided", (7,)),
        ("If both are, a precedes, see v. 2", (8,)),
        ("Else it is b, e.g. C", (9,)),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Type: **const [DML_TENSOR_DESC](/x)\\***", Field("X", "DML_TENSOR_DESC", True)),
        ("Type: \\_Field_size\\_(N) **const [UINT](/x)\\***", Field("X", "UINT", True, size="N")),
        ("Type: \\_Field\\_size\\_\\(N\\) <b>const [UINT](/x)*</b>",
         Field("X", "UINT", True, size="N")),
        ("Type: _Maybenull\\_ **const [DML_SCALE_BIAS](/x)\\***",
         Field("X", "DML_SCALE_BIAS", True, True)),
        ("Type\u00a0: <b><a href='/x'>FLOAT</a></b>", Field("X", "FLOAT")),
        ("Note: the sizes differ", None),
    ],
)  # fmt: skip
def test_types_of_fields(text: str, expected: Field | None) -> None:
    found = read_type("X", text, 3)
    if expected is not None:
        expected.lines = (3,)
    assert found == expected


def test_a_structure() -> None:
    lines = [
        "struct DML_X_OPERATOR_DESC", "{",
        "    _Maybenull_ const DML_TENSOR_DESC* A; // may be left out",
        "    _Field_size_opt_(Count) const FLOAT* B;", "    UINT C[4];", "    what is this?", "};",
    ]  # fmt: skip
    found = list(read_struct(Code(tuple(enumerate(lines, 1)), "cpp")))
    assert [line for line, field in found if field is None] == [1, 2, 7]
    assert [field for _, field in found if field is not None] == [
        Field("A", "DML_TENSOR_DESC", True, True, None, (3,)),
        Field("B", "FLOAT", True, True, "Count", (4,)),
        Field("C", "UINT", False, False, "4", (5,)),
    ]


# Formulas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        (r"dst = \begin{cases} \alpha(e^{src} - 1) & \text{if}\ src < 0 \\ src & \text{if}\ src "
         r"\ge 0 \end{cases}", "dst", "src < 0 ? alpha * (exp(src) - 1) : src"),
        (r"dst = src * \frac{\min(\max(src + 3, 0), 6)}{6}", "dst",
         "src * (min(max(src + 3, 0), 6) / 6)"),
        (r"\dst_{i} = round(\src_{i} / scale + zp)", "dst", "round(src / scale + zp)"),
        (r"dst = \frac{1}{1+e^{-src}}.", "dst", "1 / (1 + exp(-src))"),
        (r"dst = src \times \tanh(\ln(1+e^{src}))", "dst", "src * tanh(log(1 + exp(src)))"),
        (r"dst = 0.5 src (1.0 + erf(src) / \sqrt2)", "dst",
         "0.5 * src * (1.0 + erf(src) / sqrt(2))"),
        (r"\dst(\overline{x}) = \src_0(\overline{x}) \mathbin{+} \src_1(\overline{x}),", "dst",
         "src_0 + src_1"),
        (r"clamp(src_i) = min(max(src_i, min\_value), max\_value)", "clamp",
         "min(max(src, min_value), max_value)"),
        (r"dst_i = \frac{exp(src_i)}{\sum_{j=1}^{C} exp(src_j)}", "dst",
         "exp(src) / sum(exp(src))"),
        (r"dst = |src|^2", "dst", "pow(abs(src), 2)"),
        (r"dst_{i} = {src_{i} ^ \beta}", "dst", "pow(src, beta)"),
        (r"dst = \text{max}(0, \text{min}(1, src))", "dst", "max(0, min(1, src))"),
        (r"f(x) = \left\lfloor x \right\rfloor", "f", "floor(x)"),
        (r"dst = \begin{cases} 1 & \text{if } x > 0 \\ 0 & \text{otherwise} \end{cases}", "dst",
         "x > 0 ? 1 : 0"),
        (r"dst = \begin{cases} x & if\ {x} > \frac12 \\ |x| & otherwise \end{cases}", "dst",
         "x > 1 / 2 ? x : abs(x)"),
        (r"dst = -2 x^12 + \exp {x} / 3y", "dst", "-2 * pow(x, 1) * 2 + exp(x) / 3 * y"),
    ],
)  # fmt: skip
def test_latex(text: str, target: str, value: str) -> None:
    found = read_latex(text)
    assert found is not None
    node = parse_code(found[2])
    assert node is not None
    assert (found[0], format_expression(node)) == (target, value)


@pytest.mark.parametrize(
    "text",
    [
        r"\dst(m, n) = \sum_{k=0}^{K - 1} \src(m, k)", r"x", r"x = ", r"= 1", r"x = \frac{1}",
        r"x = (1", r"x = \begin{matrix} 1 & 2 \end{matrix}", "x = " + "(" * 200, r"x = |1",
        r"x = \begin{cases} 1 & \text{otherwise} \end{cases}", "x = 1 1 ) 2", "\\", "x = \\",
    ],
)  # fmt: skip
def test_latex_of_other_forms_is_left(text: str) -> None:
    assert read_latex(text) is None


def draft() -> Draft:
    tensors = [Tensor("InputTensor", "Input"), Tensor("OutputTensor", "Output")]
    attributes = [Attribute("Alpha", "FLOAT"), Attribute("Axes", "UINT[AxisCount]")]
    return Draft("X", "directml", levels=[Level(None, tensors)], attributes=attributes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Alpha * (Input - 1.0f)", "Alpha * (InputTensor - 1.0)"),
        ("x &gt;= 0 ? x : alpha", "InputTensor >= 0 ? InputTensor : Alpha"),
        ("if x > 0 then x else (exp(x) - 1) * alpha",
         "InputTensor > 0 ? InputTensor : (exp(InputTensor) - 1) * Alpha"),
        ("exp(x[i]) / sum(exp(x[0]), ..., exp(x[j-1]))",
         "exp(InputTensor) / sum(exp(InputTensor), axes: Axes)"),
        ("Ln(x)^2", None),
        ("x^2 + .5", "pow(InputTensor, 2) + 0.5"),
        ("InputTensor.DimensionCount - 1", "InputTensor.DimensionCount - 1"),
        ("Alpha.DimensionCount", None),
        ("HardSigmoid(x)", None),
        ("unknown + x", None),
        ("x +", None),
    ],
)  # fmt: skip
def test_code(text: str, expected: str | None) -> None:
    assert translate(text, NameMap(draft(), {"x": "InputTensor"})) == expected


def test_cases_become_a_choice() -> None:
    lines = [
        (4, "// Let x be an element:"),
        (5, "f(x) = x,        if x >= 0"),
        (6, "  -x, otherwise"),
    ]
    found = split_statements(lines)
    assert found is not None
    (statement,), others = found
    assert (statement.parameters, statement.lines, others) == (("x",), (5, 6), [4])
    assert translate(statement.value, NameMap(draft(), {"x": "InputTensor"})) == (
        "InputTensor >= 0 ? InputTensor : -InputTensor"
    )


def test_names_that_are_assigned_again_are_taken_apart() -> None:
    lines = ["M = First", "// A step.", "M = M * 2", "X = Input", "X -= M + 1", "Output = X"]
    found = split_statements(tuple(enumerate(lines, 1)))
    assert found is not None
    assert [(s.target, s.value) for s in found[0]] == [
        ("M_1", "First"), ("M", "M_1 * 2"), ("X_1", "Input"), ("X", "X_1 - (M + 1)"),
        ("Output", "X"),
    ]  # fmt: skip
    # The first value is never read: these are alternatives.
    alternatives = split_statements(((1, "Output = A"), (2, "Output = B")))
    assert alternatives is not None
    assert [s.target for s in alternatives[0]] == ["Output", "Output"]


@pytest.mark.parametrize(
    "line", ["for i in [0, N - 1]:", "    if Strides[i] < 0:", "y = 2 // if axis == 0", "endfor"]
)
def test_code_that_branches_is_no_list_of_statements(line: str) -> None:
    assert split_statements(((1, "x = 1"), (2, line), (3, "y = x"))) is None


def test_headings_and_examples_beside_statements() -> None:
    lines = ["For 1-D tensors:", "f(x) = x", "Example:", "[[1, 2]]", "[[1, 4]]"]
    found = split_statements(tuple(enumerate(lines, 1)))
    assert found is not None
    assert ([s.value for s in found[0]], found[1]) == (["x"], [1, 3, 4, 5])


ELU = """f(x) = x,                    if x >= 0
       Alpha * (exp(x) - 1), otherwise"""


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("M = Input\nM = M * Alpha\nOutput = M", "M   = M_1 * Alpha"),
        # Of a part of the operator, and of one case.
        ("f(y, Alpha, z) = Alpha * z", None),
        ("Output = Input\nfor i in Input:\nOutput = Output * 2", None),
        (
            "f(x) = x > 1 && x < 2",
            "cast(InputTensor > 1 && InputTensor < 2, OutputTensor.DataType)",
        ),
    ],
)
def test_formulas_as_code(formula: str, expected: str | None) -> None:
    text = read("activation_elu.md")
    made = pages.import_text(text.replace(ELU, formula), "elu.md").text
    assert ("\n    compute {" in made) == (expected is not None)
    assert expected is None or expected in made


def test_a_formula_of_one_case_is_left() -> None:
    text = read("activation_elu.md").replace(f"```\n{ELU}\n```", "If it is so, `Output = Input`.")
    made = pages.import_text(text, "elu.md").text
    assert "\n    compute {" not in made
    assert "If it is so, Output = Input." in made
    bare = text.replace("If it is so, `Output = Input`.", "For each element, f(x) = x &gt; 1.")
    assert "InputTensor > 1" in pages.import_text(bare, "elu.md").text


def test_a_formula_of_floats_refuses_integers() -> None:
    text = read("activation_elu.md").replace("| 1 to 8 | FLOAT32, ", "| 1 to 8 | INT8, ")
    made = pages.import_text(text, "elu.md").text
    said = '"the formula here is of floating-point numbers"'
    for name in ("InputTensor", "OutputTensor"):
        assert f"require {name}.DataType == FLOAT32 || {name}.DataType == FLOAT16, {said}" in made


def test_a_formula_that_mixes_floats_and_integers_is_left() -> None:
    text = read("Quantize.md").replace(" / scale + zp", "")
    assert "\n    compute {" not in pages.import_text(text, "Quantize.md").text
    same = text.replace("| f32 | s8, u8", "| f32 | f32")
    assert "dst = round(src)" in pages.import_text(same, "Quantize.md").text


def test_the_oldest_pages_say_of_arrays_what_counts_them() -> None:
    text = read("activation_elu.md").replace(
        "### -field Alpha",
        "### -field Count\n\nType: **UINT**\n\nThis field determines the size of the *Parts* and "
        "*Bias* arrays.\n\n### -field Parts\n\nType: **const DML_TENSOR_DESC\\***\n\n"
        "### -field Bias\n\nType: **const FLOAT\\***\n\n### -field Alpha",
    )
    made = pages.import_text(text[: text.index("## Tensor support")], "elu.md").text
    assert "| Bias      | FLOAT[Count] |" in made
    assert "| Parts        | Array of inputs |" in made
    assert "require Count == Parts.Count" in made


def test_a_formula_fuses_no_activation() -> None:
    text = read("element_wise_clip1.md")
    text = text.replace("f(x) = min(Max, max(Min, x))", "f(x) = FusedActivation(min(Max, x))")
    text = text.replace(
        "    DML_SCALAR_UNION Max;",
        "    DML_SCALAR_UNION Max;\n    _Maybenull_ const DML_OPERATOR_DESC* FusedActivation;",
    )
    made = pages.import_text(text, "clip.md").text
    assert 'require FusedActivation == "NONE", "the formula here fuses no activation"' in made
    assert "OutputTensor = min(Max, scaled)" in made


def test_a_newer_version_does_not_introduce_the_operator() -> None:
    newer = "A newer version of this operator, [X](/x), was introduced in `DML_FEATURE_LEVEL_5_0`."
    text = read("activation_elu.md").replace("Where exp(x)", f"{newer}\n\nWhere exp(x)")
    made = pages.import_text(text, "elu.md")
    assert "introduced DML_FEATURE_LEVEL_1_0\n" in made.text
    assert "A newer version" not in made.text


def test_an_equation_becomes_a_function() -> None:
    made = make_function("place", "(pixel + offset) * max(Scale, 1)")
    assert made == "function place(pixel, offset, Scale) = (pixel + offset) * max(Scale, 1)"
    assert make_function("place", "resize(x)") is None
    assert make_function("max", "x + 1") is None


# Tables ----------------------------------------------------------------------------------------


def table(*rows: str) -> PageTable:
    made = [
        PageRow(tuple(c.strip() for c in row.split("|")), (n,)) for n, row in enumerate(rows, 1)
    ]
    return PageTable(made[0], tuple(made[1:]))


@pytest.mark.parametrize(
    "header",
    ["Tensor | Kind | Dimensions | Supported dimension counts | Supported data types",
     "Tenseur | Genre | Dimensions | Nombre de dimensions | Types"],
)  # fmt: skip
def test_columns_are_found_by_their_cells(header: str) -> None:
    found = table(header, "XTensor | Entrée | { N, [C], W } | 2 à 3 | FLOAT32, BOGUS",
                  "OutputTensor | Sortie | { W[] } | 1 to 8 | INT8")  # fmt: skip
    places = find_columns(found)
    assert places == {"name": 0, "kind": 1, "dimensions": 2, "ranks": 3, "types": 4}
    assert places is not None
    made = [read_tensor(row, places, None) for row in found.rows]
    assert [m[0] for m in made if m is not None] == [
        Tensor("XTensor", "Input", "{ N, [C], W }", "2 to 3", "FLOAT32", (2,)),
        Tensor("OutputTensor", "Output", "{ W[] }", "1 to 8", "INT8", (3,)),
    ]
    assert made[0] is not None
    assert made[0][1] == "the data types BOGUS of XTensor"


def test_a_table_of_something_else_is_none() -> None:
    assert find_columns(table("Name | Value", "a | 1", "b | c")) is None


# Sentences of fields ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "Values must be in the range `[0, InputTensor.DimensionCount - 1]`.",
            "require Alpha >= 0 && Alpha <= InputTensor.DimensionCount - 1",
        ),
        ("This value must be greater than 0.", "require Alpha > 0"),
        ("The value must be positive.", "require Alpha > 0"),
        ("A typical default for this value is 0.5.", "| Alpha     | FLOAT | 0.5     |"),
        ("A value of 0.25 (1/4) is recommended as default.", "| Alpha     | FLOAT | 0.25    |"),
        ("This value must be prime.", "// line 37: This value must be prime."),
        ("A value of 0.9f is typical.", "| Alpha     | FLOAT | 0.9     |"),
        ("This value cannot be less than 1.", "require Alpha >= 1"),
        ("This value should be between 0.0 and 1.0.", "require Alpha >= 0.0 && Alpha <= 1.0"),
        ("This value must be less than the DimensionCount of the *InputTensor*.",
         "require Alpha < InputTensor.DimensionCount"),
        ("The axis to take, ranging `[0, InputTensor.DimensionCount)`.",
         "require Alpha >= 0 && Alpha < InputTensor.DimensionCount"),
        ("It bends the curve.", "// Prose of the page:"),
        ("It bends the curve.", "// line 37: It bends the curve."),
    ],
)  # fmt: skip
def test_sentences_of_an_attribute(sentence: str, expected: str) -> None:
    text = read("activation_elu.md").replace("A typical default for this value is 1.0.", sentence)
    made = pages.import_text(text, "elu.md").text
    assert expected in made


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "If **DML_FEATURE_LEVEL** is less than **DML_FEATURE_LEVEL_1_0**, then this tensor "
            "must be small.",
            None,
        ),
        (
            "If **DML_FEATURE_LEVEL** is greater than or equal to **DML_FEATURE_LEVEL_1_0**, then "
            "any dimension can be set to 1, and be automatically broadcast to match "
            "*OutputTensor*.",
            "InputTensor must be broadcastable to OutputTensor.",
        ),
        (
            "If **DML_FEATURE_LEVEL** is less than **DML_FEATURE_LEVEL_4_0**, then it must be so.",
            "// line 25: If DML_FEATURE_LEVEL is less than DML_FEATURE_LEVEL_4_0, then it must be",
        ),
    ],
)
def test_sentences_of_feature_levels(sentence: str, expected: str | None) -> None:
    text = read("activation_elu.md").replace("The tensor to read.", sentence)
    made = pages.import_text(text, "elu.md").text
    assert "must be small" not in made or expected is not None
    assert expected is None or expected in made


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("For each dimension *i*, `OutputTensor.Sizes[i] = InputTensor.Sizes[i]`.",
         "require all(OutputTensor.Sizes == InputTensor.Sizes)"),
        ("For each dimension *i*, `OutputTensor.Sizes[i] = Other.Sizes[i]`.",
         "// line 31: For each"),
        ("The *Sizes* of this tensor must match *InputTensor.Sizes*.",
         "InputTensor and OutputTensor must have the same Sizes."),
        ("This tensor's *Sizes* should match *InputTensor*.",
         "InputTensor and OutputTensor must have the same Sizes."),
        ("The data type and size of the input and output tensors must be the same.",
         "InputTensor and OutputTensor must have the same DataType and Sizes."),
        ("This tensor must be a scalar (that is, all *Sizes* equal to 1).",
         "OutputTensor must be a scalar."),
        ("A tensor of *Sizes* `{ 1, 1, 1, BatchSize }`.", "{ 1, 1, 1, BatchSize }"),
    ],
)  # fmt: skip
def test_sentences_of_a_tensor(sentence: str, expected: str) -> None:
    text = read("activation_elu.md").replace("The tensor to write.", sentence)
    text = text.replace("*InputTensor* and *OutputTensor* must have the same", "They have the same")
    made = pages.import_text(text.replace("1 to 8", "4").replace("4 to 5", "4"), "elu.md").text
    assert expected in made


def test_dimensions_of_one_case_are_left_out() -> None:
    text = read("activation_elu.md").replace("| Supported dim", "| Dimensions | Supported dim")
    text = text.replace("Input | 4 |", "Input | { A, B, M, K } | 4 |")
    text = text.replace("Output | 4 |", "Output | { A, B, M, [N], K } | 4 |").replace(
        "| ---- | ---", "| ---- | --- | ---"
    )
    text = (
        text[: text.index("### DML_FEATURE_LEVEL_3_0")]
        + text[text.index("### DML_FEATURE_LEVEL_1_0") :]
    )
    whole = pages.import_text(text, "elu.md").text
    assert "{ A, B, M, K }" in whole
    case = "Its *Sizes* are `{ A, B, M, K }` if Alpha is 1, or `{ A, B, K, M }` if Alpha is 2."
    made = pages.import_text(text.replace("The tensor to read.", case), "elu.md").text
    assert "| { A, B, M, K }" not in made
    assert "The table has dimensions of InputTensor that hold in one case only." in made
    listed = text.replace("The tensor to write.", "- `{ A, B, M, K }` for 4D,")
    assert "for 4D" not in pages.import_text(listed, "elu.md").text


def test_the_english_source_of_a_translation_is_read() -> None:
    text = (
        '# <a name="x"></a><span data-ttu-id="1">Titre</span><span class="sxs-lookup">'
        '<span data-stu-id="1">Title</span></span>\n\n'
        '<span data-ttu-id="2">Seul.</span> <span data-ttu-id="3">Deux.</span>'
        '<span class="sxs-lookup"><span data-stu-id="3">Two.</span></span>\n'
    )
    heading, paragraph = read_markdown("x.md", text).blocks
    assert heading == type(heading)("Title", "x", 1, 1)  # type: ignore[call-arg]
    # What has no source stays.
    assert isinstance(paragraph, Paragraph)
    assert paragraph.text == "Seul. Two."


# oneDNN ----------------------------------------------------------------------------------------


def test_headings_may_be_singular_and_links_spaced() -> None:
    text = (
        read("Quantize.md").replace("### Inputs", "### Input").replace("### Outputs", "### Output")
    )
    made = pages.import_text(text.replace("[axis](@ref", "[axis] (@ref"), "Quantize.md").text
    assert made == pages.import_text(read("Quantize.md"), "Quantize.md").text


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("A f32 list (only contain one element if qtype is `per_tensor`)",
         'require qtype != "per_tensor" || length(scales) == 1'),
        ("A f32 list (only contain one element if mode is `whole`)", "mode is whole"),
    ],
)  # fmt: skip
def test_cells_of_arrays(cell: str, expected: str) -> None:
    text = read("Quantize.md").replace(
        "A f32 list (only contain one element if qtype is `per_tensor`)", cell
    )
    assert expected in pages.import_text(text, "Quantize.md").text


@pytest.mark.parametrize(
    ("value", "row"),
    [
        ("Arbitrary f32 value (`1.f` by default)", "| FLOAT   | 1.0"),
        ("Arbitrary f32 value, `.5f` by default", "| FLOAT   |    "),
        ("A f32 list, all zeros by default", "| FLOAT[] | scales * 0"),
        ("A f32 list, a list of `1`s (default)", "| FLOAT[] | scales * 0 + 1"),
        ("A f32 list", "| FLOAT[] | []"),
    ],
)
def test_defaults_of_attributes(value: str, row: str) -> None:
    old = "A s64 list (only contain one element if qtype is `per_tensor`). If omitted"
    text = read("Quantize.md").replace(f"| s64 | {old}", f"| f32 | {value}. If omitted")
    made = pages.import_text(text, "Quantize.md").text
    (found,) = [line for line in made.split("\n") if line.lstrip().startswith("| zps ")]
    assert row in found
    assert ("[] stands for the page's default" in made) == (value == "A f32 list")


def test_notes_of_shapes_and_of_what_is_required() -> None:
    old = "It should be used\nwith [models](@ref dev_guide_models) of integers."
    notes = "It requires that \\src and \\dst have the same shape and layout."
    text = read("Quantize.md")
    assert old in text
    made = pages.import_text(text.replace(old, notes), "Quantize.md").text
    assert "src and dst must have the same DimensionCount and Sizes." in made
