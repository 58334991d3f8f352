"""What is shown of a word, and where it is declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlc import cli
from dmlc.editor.documents import Session
from dmlc.editor.hover import Hover, hover
from dmlc.editor.resolve import find_definition
from tests.editor.texts import OPERATOR, at, mark

RELU = "directml.ACTIVATION_RELU"


def shown(text: str, folder: Path | None = None) -> Hover:
    found = hover(*at(text, folder))
    assert found is not None
    return found


def test_a_tensor_shows_its_row_its_constraints_and_its_formula() -> None:
    found = shown(mark("= A * Factor", "= @A * Factor"))
    assert found.title == "A"
    assert found.facts == ("input tensor, 2 dimensions", "sizes { N, C }", "FLOAT32 or FLOAT16")
    assert found.code == ("A and B must have the same DataType.",)
    output = shown(mark("        Out[n", "        @Out[n"))
    assert output.facts[0] == "output tensor, 2 dimensions"
    assert output.code[0].startswith("Out[n, c] = sum[k : N where")
    optional = shown(mark("A and B must", "A and @B must"))
    assert optional.facts == (
        "optional input tensor, 1 or 2 dimensions", "sizes { N, [C] }", "FLOAT32",
        "may be left out",
    )  # fmt: skip


def test_an_attribute_shows_its_type_and_what_it_may_be() -> None:
    assert shown(mark("Mode == LINEAR", "@Mode == LINEAR")).facts == (
        "attribute, MODE", "default LINEAR", "NEAREST = 0, LINEAR = 1",
    )  # fmt: skip
    assert shown(mark("| Format ", "| @Format ")).facts == (
        "attribute, STRING", 'default "NCX"', "values NCX, NXC",
    )  # fmt: skip
    assert shown(mark("A * Factor", "A * Factor@")).code == (
        'require Factor > 0, "a positive factor"',
    )


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        (
            "(scaled[n,",
            "(@scaled[n,",
            ("local: a tensor of 2 dimensions", "What is scaled, in each Format."),
        ),
        ("hat(i - k)", "hat(@i - k)", ("parameter",)),
        ("where k !=", "where @k !=", ("index variable over 0 up to N",)),
        ("sum[k :", "sum[@k :", ("index variable over 0 up to N",)),
        ("scaled[n, c] *", "scaled[n, @c] *", ("index variable over an axis of Out",)),
        ("= hat(i", "= @hat(i", ("function", "A tent over the origin.")),
        ("? 1 : 0", "? 1 : @N", ("size named in the dimensions of A",)),
        ("== LINEAR", "== @LINEAR", ("member of MODE",)),
        ("sum[k", "@sum[k", ("reduction",)),
        ("{ N, [C] }   | FLOAT32 ", "{ N, [C] }   | @FLOAT32 ",
         ("data type FLOAT32 (f32): float, 32 bits in memory",)),
        ("same DataType", "same @DataType", ("the data type",)),
        ("g[N](x:", "g[N](@x:", ("input of graph m.g",)),
        ("y = t.Out", "y = @t.Out", ("local: a tensor of 2 dimensions",)),
        ("Factor: 2", "@Factor: 2", ("attribute, FLOAT",)),
        ("Mode: LINEAR", "Mode: @LINEAR", ("member of MODE",)),
    ],
)  # fmt: skip
def test_words(old: str, new: str, facts: tuple[str, ...]) -> None:
    assert shown(mark(old, new)).facts == facts


def test_an_output_of_a_call_shows_the_row_of_the_operator() -> None:
    found = shown(mark("y = t.Out", "y = t.@Out"))
    assert found.facts[0] == "output tensor, 2 dimensions"


@pytest.mark.parametrize("name", [RELU, "onednn.ReLUBackward", "directml.ACTIVATION_RELU_GRAD"])
def test_an_operator_shows_what_dmlc_show_prints(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["show", name]) == 0
    printed = capsys.readouterr().out
    found = shown(mark(RELU, name.replace(".", ".@")))
    assert found.title == name
    assert found.code == (printed.rstrip(),)


def test_an_operator_of_the_file_shows_its_listing() -> None:
    found = shown(mark("t = SCALE", "t = @SCALE"))
    assert found.title == "m.SCALE"
    assert found.code[0].startswith('// m.SCALE\noperator SCALE {\n    "Scales and adds."')
    assert "// What is scaled, in each Format." in found.code[0]


def test_functions_of_the_language_show_their_forms() -> None:
    assert shown("function f(x) = @max(x, 0)").code == (
        "max(x, y)\nmax(x, like: T)\nmax(x, axes: [0, 2])\nmax[k : n](e)\nmax(e...)",
    )
    assert shown("function f(x) = @exp(x)").facts == (
        "scalar function, element by element: gives a number, exact to a few units in the last "
        "place",
    )
    assert shown("function f(x) = length@(x)").facts == (
        "function of arrays: the number of entries",
    )


@pytest.mark.parametrize(
    "text",
    [
        "// @comment",
        "enum @",
        'function f(x) = "t@ext"',
        "@operator X {",
        "function f(x) = @y",
        "@",
    ],
)
def test_nothing_is_shown_of_what_means_nothing(text: str) -> None:
    assert hover(*at(text)) is None


def test_the_two_forms_of_a_hover() -> None:
    found = shown(mark("= A * Factor", "= @A * Factor"))
    assert found.markdown().startswith("```dml\nA\n```\n\ninput tensor, 2 dimensions  \nsizes")
    assert found.plain().startswith("A\n\ninput tensor, 2 dimensions\nsizes")
    assert "```" not in found.plain()


# Texts with mistakes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        mark("t = SCALE(", "t = SCALE(((", mark("= A * Factor", "= @A * Factor")),
        mark("scaled = A * Factor", "scaled = = @A * Factor"),
        OPERATOR[: OPERATOR.index("* Factor")].replace("= A ", "= @A "),
    ],
    ids=["elsewhere", "here", "unclosed"],
)
def test_a_text_with_mistakes_shows_its_tensors(text: str) -> None:
    assert shown(text).facts[0] == "input tensor, 2 dimensions"


def test_what_was_known_of_a_text_is_shown_while_it_cannot_be_read() -> None:
    session = Session()
    document = session.open("/nowhere/text.dml", OPERATOR)
    assert document.analysis.whole
    broken = mark("    tensors {\n", "    tensors \n")
    document = session.edit(document.name, None, broken)
    assert not document.analysis.whole
    found = hover(document, broken.index("A * Factor"))
    assert found is not None
    assert found.facts[0] == "input tensor, 2 dimensions"
    place = find_definition(document, broken.index("A * Factor"))
    assert place is not None
    assert place.source is document.analysis.source
    assert place.text == "A"


# Definitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("= A * Factor", "= @A * Factor", 18, "A"),
        ("A * Factor", "A * @Factor", 14, "Factor"),
        ("(scaled[n,", "(@scaled[n,", 28, "scaled"),
        ("where k !=", "where @k !=", 30, "k"),
        ("* weight(n", "* @weight(n", 29, "weight"),
        ("= hat(i", "= @hat(i", 6, "hat"),
        ("Mode == LINEAR", "Mode == @LINEAR", 3, "LINEAR"),
        ("t = SCALE", "t = @SCALE", 8, "SCALE"),
        ("SCALE(A: x", "SCALE(@A: x", 18, "A"),
        ("y = t.Out", "y = t.@Out", 20, "Out"),
        ("y = t.Out", "y = @t.Out", 41, "t"),
        ("Format    | string", "Format@    | string", 13, "Format"),
    ],
)
def test_definitions_in_the_file(old: str, new: str, line: int, text: str) -> None:
    found = find_definition(*at(mark(old, new)))
    assert found is not None
    assert (found.line, found.text) == (line, text)


def test_definitions_in_the_library() -> None:
    found = find_definition(*at(mark(RELU, "directml.@ACTIVATION_RELU")))
    assert found is not None
    assert Path(found.source.name).name == "ACTIVATION_RELU.dml"
    assert found.text == "ACTIVATION_RELU"
    row = find_definition(*at(mark("InputTensor: x", "@InputTensor: x")))
    assert row is not None
    assert (Path(row.source.name).name, row.text) == ("ACTIVATION_RELU.dml", "InputTensor")


def test_definitions_in_an_import(tmp_path: Path) -> None:
    (tmp_path / "modes.dml").write_text("\nenum MODE { A = 0 }\nfunction f(x) = x", "utf-8")
    text = 'import "modes.dml"\nfunction g(x) = @f(x)'
    found = find_definition(*at(text, tmp_path))
    assert found is not None
    assert (found.source.name, found.line) == (str(tmp_path / "modes.dml"), 3)
    file = find_definition(*at('import "mo@des.dml"', tmp_path))
    assert file is not None
    assert (file.source.name, file.start) == (str(tmp_path / "modes.dml"), 0)


def test_a_gradient_names_tensors_of_its_forward_operator() -> None:
    text = f"operator X {{\n    gradient of {RELU} with respect to @InputTensor\n}}"
    found = find_definition(*at(text))
    assert found is not None
    assert Path(found.source.name).name == "ACTIVATION_RELU.dml"
    lines = f"operator X {{\n gradient of {RELU} {{\n dY = gradient of @OutputTensor\n }}\n}}"
    assert find_definition(*at(lines)) is not None


def test_functions_of_the_language_have_no_definition() -> None:
    assert find_definition(*at("function f(x) = @abs(x)")) is None


def test_functions_with_gradients_of_their_own() -> None:
    text = "function f(v) = round(v)\n    gradient of f with respect to v = cos(v)"
    for place in ("of @f", "to @v = "):
        assert find_definition(*at(text.replace(place.replace("@", ""), place))) is not None
    found = hover(*at(text.replace("of f", "of @f")))
    assert found is not None
    assert found.code == (text,)
    local = mark(
        "hat(i - k)\n", "hat(i - k)\n            gradient of weight with respect to k = @k\n"
    )
    found = hover(*at(local))
    assert found is not None
    assert found.facts == ("parameter",)
    found = hover(*at("function f(x) = @stop_gradient(x)"))
    assert found is not None
    assert found.facts == ("scalar function: gives its operand, with the derivative 0",)
