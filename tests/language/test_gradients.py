"""`gradient of`: what it says, how it is laid out, what is found by name, and what mistakes get."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlc import library
from dmlc.building.partner import match_partner
from dmlc.language import syntax
from dmlc.language.check import check_file, check_text
from dmlc.language.check_gradient import MOST_ORDERS
from dmlc.language.definitions import GradientDefinition
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.source import DmlcError, Source

FORWARD = """operator F {
    attributes {
        | Attribute | Type  |
        | K         | FLOAT |
    }
    tensors {
        | Tensor | Kind   | Ranks  | Types    |
        | src    | Input  | 1 to 4 | f32, f16 |
        | factor | Input  | 1 to 4 | f32, f16 |
        | places | Input  | 1 to 4 | s32      |
        | dst    | Output | 1 to 4 | f32, f16 |
    }
    compute { dst = exp(src * factor * K) }
}
"""
ROWS = ("src | Input", "factor | Input", "diff_dst | Input", "diff_src | Output")


def gradient(
    section: str, *rows: str, name: str = "G", attribute: str = "K | FLOAT", types: str = "f32"
) -> str:
    """An operator that is the gradient of another, in one line, so that columns are easy to see."""
    table = "".join(f"| {row} | {types} |\n" for row in rows or ROWS)
    return (
        f"operator {name} {{\nattributes {{ | Attribute | Type |\n| {attribute} |\n}}\n"
        f"tensors {{ | Tensor | Kind | Types |\n{table}}}\n{section} }}\n"
    )


def find(text: str, name: str = "G") -> GradientDefinition:
    found = check_text(text, "g.dml").operators[name].gradient
    assert found is not None
    return found


def read(section: str, *rows: str) -> GradientDefinition:
    return find(FORWARD + gradient(section, *rows))


# Names ----------------------------------------------------------------------------------------


def test_names_say_what_rows_are() -> None:
    found = read("gradient of F with respect to src")
    assert found.forward.name == "F"
    assert found.values == {"src": "src", "factor": "factor"}
    assert found.gradients == {"dst": "diff_dst", "src": "diff_src"}
    assert found.attributes == {"K": "K"}


@pytest.mark.parametrize("given", ["d_dst", "ddst", "diff_dst", "dstGradient", "whatever"])
@pytest.mark.parametrize("wanted", ["d_src", "dsrc", "diff_src", "srcGradient", "whatever_else"])
def test_gradients_are_called_as_people_call_them(given: str, wanted: str) -> None:
    found = read("gradient of F with respect to src", f"{given} | Input", f"{wanted} | Output")
    assert found.gradients == {"dst": given, "src": wanted}


def test_directml_calls_gradients_by_their_side() -> None:
    forward = FORWARD.replace("src", "InputTensor").replace("factor", "ScaleTensor")
    forward = forward.replace("dst", "OutputTensor")
    rows = ("InputGradientTensor | Input", "OutputScaleGradientTensor | Output",
            "OutputGradientTensor | Output")  # fmt: skip
    found = find(forward + gradient("gradient of F { }", *rows))
    assert found.gradients == {
        "OutputTensor": "InputGradientTensor",
        "InputTensor": "OutputGradientTensor",
        "ScaleTensor": "OutputScaleGradientTensor",
    }


def test_lines_rename_and_come_before_names() -> None:
    section = "gradient of F { src = factor x = src L = K dst = gradient of dst }"
    rows = ("x | Input", "src | Input", "dst | Input", "out | Output", "d_factor | Output")
    found = find(FORWARD + gradient(section, *rows, attribute="L | FLOAT"))
    assert found.values == {"factor": "src", "src": "x"}
    assert found.gradients == {"dst": "dst", "factor": "d_factor", "src": "out"}
    assert found.attributes == {"K": "L"}


def test_a_result_of_the_forward_operator_may_be_at_hand() -> None:
    found = read("gradient of F { }", "y | Input", *ROWS[1:], "dst | Input")
    assert found.values["dst"] == "dst"


def test_a_gradient_of_a_gradient_may_stand_anywhere() -> None:
    section = "gradient of G { dY = gradient of diff_src dG = gradient of diff_dst }"
    rows = (*ROWS[:3], "dY | Input", "d_src | Output", "d_factor | Output", "dG | Output")
    text = gradient(section, *rows, name="H") + gradient("gradient of F { }") + FORWARD
    found = find(text, "H")
    assert found.forward.gradient is not None
    assert found.gradients == {
        "diff_src": "dY", "src": "d_src", "factor": "d_factor", "diff_dst": "dG",
    }  # fmt: skip


# Mistakes -------------------------------------------------------------------------------------

SHORT = "gradient of F with respect to "
MISTAKES = [
    ("gradient of @FF@ with respect to src", "unknown operator 'FF'", "did you mean 'F'?"),
    (SHORT + "@scr@", "unknown input of F 'scr'", "did you mean 'src'?"),
    (SHORT + "@dst@", "unknown input of F 'dst'", "known here: src, factor, places"),
    (SHORT + "src, @src@", "'src' is named twice", "it is named here first"),
    (SHORT + "@places@", "'places' of F has no gradient: it holds no floating-point numbers",
     "declared here"),
    (SHORT + "src, @factor@", "no output is the gradient with respect to 'factor'",
     "call an output 'd_factor', or say which it is: "
     "'gradient of F { d_factor = gradient of factor }'"),
    ("gradient of F { @diff_dts@ = gradient of dst }", "unknown tensor 'diff_dts'",
     "did you mean 'diff_dst'?"),
    ("gradient of F { diff_dst = gradient of @dts@ }", "unknown output of F 'dts'",
     "did you mean 'dst'?"),
    ("gradient of F { diff_dst = gradient of @src@ }",
     "'diff_dst' is an input: it holds the gradient of an output of F, and 'src' is an input",
     "declared here"),
    ("gradient of F { diff_src = gradient of @dst@ }",
     "'diff_src' is an output: it is the gradient of an input of F, and 'dst' is an output",
     "declared here"),
    ("gradient of F { diff_src = gradient of @places@ }",
     "'places' of F has no gradient: it holds no floating-point numbers", "declared here"),
    ("gradient of F { @diff_src@ = src }",
     "'diff_src' is an output, and this gives the gradients of inputs of F",
     "say of which: 'diff_src = gradient of X'"),
    ("gradient of F { src = @scr@ }", "unknown tensor of F 'scr'", "did you mean 'src'?"),
    ("gradient of F { @scr@ = src }", "unknown tensor or attribute 'scr'", "did you mean 'src'?"),
    ("gradient of F { K = @L@ }", "unknown attribute of F 'L'", "known here: K"),
    ("gradient of F { K = K K = @K@ }", "'K' stands behind two '='"),
    ("gradient of F { src = factor @src@ = src }", "'src' stands before two '='"),
    ("gradient of F { src = factor factor = @factor@ }", "'src' stands for 'factor' already"),
    ("gradient of F { src = @places@ }",
     "'src' stands for 'places' of F, and one is FLOAT32 and the other INT32", "declared here"),
    ("gradient of @G@ with respect to src",
     "'G' is derived from itself: it is the gradient of 'G'"),
]  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[0])
def test_mistakes_in_the_section(case: tuple[str, ...]) -> None:
    marked, message, *notes = case
    first, word, rest = marked.split("@")
    before = FORWARD + gradient("@").split("@")[0] + first
    with pytest.raises(DmlcError) as raised:
        check_text(before + word + rest + " }", "g.dml")
    (found,) = raised.value.diagnostics
    assert found.message == message
    assert found.span is not None
    assert (found.span.start, found.span.text) == (len(before), word)
    assert [note.message for note in found.notes] == notes


TABLES = [
    (("src | Input", "factor | Input", "diff_src | Output"),
     "no input is the gradient of an output of F"),
    ((*ROWS, "one | Output", "two | Output"),
     "output 'one' is the gradient of no input of F",
     "output 'two' is the gradient of no input of F"),
    (("src | Array of inputs", *ROWS[1:]),
     "'src' stands for 'src' of F: either both are arrays of tensors, or none is"),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLES, ids=lambda case: case[1])
def test_mistakes_in_the_table(case: tuple[tuple[str, ...], str]) -> None:
    rows, *messages = case
    with pytest.raises(DmlcError) as raised:
        read("gradient of F { }", *rows)
    assert [d.message for d in raised.value.diagnostics] == messages


def test_mistakes_in_types_ranks_and_attributes() -> None:
    for text, message in (
        (gradient("gradient of F { }", types="f64"),
         "'src' stands for 'src' of F, and one is FLOAT64 and the other FLOAT32 or FLOAT16"),
        (gradient("gradient of F { }", attribute="K | UINT"),
         "attribute 'K' is UINT, but 'K' of F is FLOAT"),
        (gradient("gradient of F { }", attribute="J | FLOAT"),
         "there is no attribute 'K', which F needs"),
        (gradient("gradient of F { }").replace("| Types |", "| Ranks |").replace("f32", "5"),
         "'src' stands for 'src' of F, and they have no dimension count in common"),
        (gradient("gradient of F { }").replace("attributes", "forward H\nattributes"),
         "'forward' names 'H', but this is the gradient of 'F'"),
    ):  # fmt: skip
        with pytest.raises(DmlcError) as raised:
            find(FORWARD + text)
        assert raised.value.diagnostics[0].message == message


STATED = "forward F {\n    Slope = K\n    x     = src\n    df    = gradient of factor\n}"
EXCHANGED = "forward F { K = J J = K }\nattributes"
STATED_ROWS = ("x | Input", "factor | Input", "diff_dst | Input", "dx | Output", "df | Output")


def with_formula(section: str, *rows: str, attribute: str = "Slope | FLOAT") -> str:
    """A gradient with a formula of its own, which names its forward operator."""
    made = gradient("compute { dx = 0 * x df = 0 * x }", *rows or STATED_ROWS, attribute=attribute)
    return made.replace("attributes", f"{section}\nattributes")


def test_forward_says_what_names_do_not() -> None:
    found = check_text(FORWARD + with_formula(STATED), "g.dml").operators
    matched = match_partner(found["G"], found["F"], use_dst=False)
    assert matched.attributes == {"K": "Slope"}
    assert matched.values == {"src": "x", "factor": "factor"}
    assert matched.gradients == {"dst": "diff_dst", "src": "dx", "factor": "df"}


def test_names_may_be_exchanged() -> None:
    both = "| K         | FLOAT |\n        | J         | FLOAT |"
    forward = FORWARD.replace("| K         | FLOAT |", both)
    own = gradient("compute { diff_src = 0 * src }").replace("| K | FLOAT |", both)
    found = check_text(forward + own.replace("attributes", EXCHANGED), "g.dml").operators
    matched = match_partner(found["G"], found["F"], use_dst=False)
    assert matched.attributes == {"K": "J", "J": "K"}
    one = own.replace("attributes", EXCHANGED.replace("J = K", ""))
    found = check_text(forward + one, "g.dml").operators
    with pytest.raises(DmlcError, match="there is no attribute 'K', which F needs"):
        match_partner(found["G"], found["F"], use_dst=False)


def test_forward_may_say_what_habit_does() -> None:
    """What of a training pass is called after its output, as `mean` after `batch_mean`."""
    rows = ("src | Input", "factor | Input", "mean | Input", "diff_dst | Input", "dx | Output")
    forward = FORWARD.replace("| dst    |", "| batch_mean | Output | 1 to 4 | f32 |\n| dst    |")
    own = gradient("compute { dx = 0 * mean }", *rows)
    stated = own.replace(
        "attributes", "forward F { mean = batch_mean dx = gradient of src }\nattributes"
    )
    found = check_text(
        forward.replace("compute {", "compute { batch_mean = src") + stated, "g.dml"
    ).operators
    matched = match_partner(found["G"], found["F"], use_dst=False)
    assert matched.values == {"src": "src", "factor": "factor", "batch_mean": "mean"}


def test_forward_with_lines_may_stand_before_a_gradient_that_is_derived() -> None:
    text = gradient("gradient of F { }", attribute="Slope | FLOAT")
    text = text.replace("attributes", "forward F { Slope = K }\nattributes")
    assert find(FORWARD + text).attributes == {"K": "Slope"}


def test_lines_of_forward_are_laid_out() -> None:
    (made,) = parse(Source("g.dml", with_formula("forward F { Slope = K x = src }"))).declarations
    shown = format_file(syntax.File(None, (made,), (), Source("g.dml", "")))
    assert "    forward F {\n        Slope = K\n        x     = src\n    }\n" in shown


@pytest.mark.parametrize(("line", "message"), [
    ("Slope = Q", "unknown attribute of F 'Q'"),
    ("Slop = K", "unknown tensor or attribute 'Slop'"),
    ("x = source", "unknown tensor of F 'source'"),
    ("x = src x = factor", "'x' stands before two '='"),
    ("dx = gradient of dst", "'dx' is an output: it is the gradient of an input of F, and 'dst' is"
     " an output"),
])  # fmt: skip
def test_mistakes_in_lines_of_forward(line: str, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        check_text(FORWARD + with_formula(f"forward F {{ {line} }}"), "g.dml")
    (found,) = raised.value.diagnostics
    assert found.message.startswith(message)
    assert found.span is not None


def test_an_operator_without_floats_has_no_gradient() -> None:
    whole = FORWARD.replace("f32, f16", "s32")
    with pytest.raises(DmlcError, match="F has no floating-point output, and no gradient"):
        find(whole + gradient("gradient of F { }", "dst | Input", "o | Input", types="s32")
             .replace("o | Input", "o | Output"))  # fmt: skip


def test_a_cycle_is_shown_whole_and_once() -> None:
    text = gradient("gradient of B { }", name="A") + gradient("gradient of A { }", name="B")
    with pytest.raises(DmlcError) as raised:
        check_text(text, "g.dml")
    (found,) = raised.value.diagnostics
    assert found.message == (
        "'A' is derived from itself: it is the gradient of 'B', which is that of 'A'"
    )
    assert [note.message for note in found.notes] == ["declared here"]


def test_orders_are_bounded() -> None:
    text, last = FORWARD, "F"
    for order in range(1, MOST_ORDERS + 2):
        rows = ("src | Input", "factor | Input", "dx | Output")
        rows += tuple(f"g{n} | Input" for n in range(1, order + 1))
        of = "dst" if order == 1 else "dx"
        section = f"gradient of {last} {{ g{order} = gradient of {of} dx = gradient of src }}"
        last = f"G{order}"
        text += gradient(section, *rows, name=last)
    with pytest.raises(DmlcError) as raised:
        check_text(text, "g.dml")
    (found,) = raised.value.diagnostics
    assert found.message == f"gradients of gradients go {MOST_ORDERS} deep at most"


def test_an_input_that_is_nothing_of_the_forward_operator_is_a_warning() -> None:
    rows = (*ROWS, "scr | Input", "other | Input")
    module = check_text(FORWARD + gradient("gradient of F { }", *rows), "g.dml")
    first, second = (found for found in module.diagnostics if found.code == "W0701")
    assert first.warning
    assert first.message == "input 'scr' stands for nothing of F"
    assert [note.message for note in first.notes] == ["did you mean 'src'?"]
    assert second.message == "input 'other' stands for nothing of F"


def test_the_forward_operator_may_be_imported_or_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "forward.dml").write_text("module m\n" + FORWARD, "utf-8")
    own = tmp_path / "own.dml"
    rows = ("InputTensor | Input", "dY | Input", "dX | Output")
    relu = gradient("gradient of directml.ACTIVATION_RELU { }", *rows, name="H")
    imported = gradient("gradient of m.F { }")
    own.write_text(f'import "forward.dml"\n{imported}{relu}', "utf-8")
    found = check_file(own, library.BUILT_IN).operators
    forwards = {name: o.gradient.forward.name for name, o in found.items() if o.gradient}
    assert forwards == {"G": "m.F", "H": "directml.ACTIVATION_RELU"}
    assert found["H"].forward == "directml.ACTIVATION_RELU"


def test_without_a_library_its_operators_are_left_open() -> None:
    module = check_text(gradient("gradient of directml.F { }"), "g.dml")
    assert module.operators["G"].gradient is None


# Layout ---------------------------------------------------------------------------------------


def test_lines_are_aligned_and_comments_kept() -> None:
    text = """operator G {
    tensors {
        | Tensor | Kind |
    }
    gradient of m.F {
        x    = src // here
        // The result.
        diff = gradient of dst
        dx   = gradient of src
    }
}
"""
    untidy = text.replace("    = src", "=src").replace("diff =", "diff=")
    formatted = format_file(parse(Source("g.dml", untidy)))
    assert formatted == text.replace("x    = src // here", "x = src  // here")
    assert format_file(parse(Source("g.dml", formatted))) == formatted


def test_gradients_in_graphs_are_laid_out() -> None:
    text = """graph g(x: FLOAT32[2], w: FLOAT32[2]) {
    y = x * w
    output dx, dw = gradient of y, x * (y + 1) with respect to x, bn.Scale from w, bn.Other
    long_name_of_a_gradient_with_respect_to_x, long_name_of_another_gradient =
        gradient of sum(x * w, axes: [0]) with respect to x, w
}
"""
    (graph,) = parse(Source("g.dml", text)).declarations
    assert isinstance(graph, syntax.Graph)
    several = graph.statements[1]
    assert isinstance(several.value, syntax.Gradient)
    assert [name.text for name in several.names] == ["dx", "dw"]
    assert len(several.value.of) == len(several.value.wrt) == len(several.value.given) == 2
    formatted = format_file(parse(Source("g.dml", text)))
    assert parse(Source("g.dml", formatted)).declarations == (graph,)
    assert formatted.splitlines()[2] == text.splitlines()[2]
    assert max(map(len, formatted.splitlines())) <= 100


def test_the_words_of_gradients_are_names_elsewhere() -> None:
    text = (
        "graph g(gradient: FLOAT32[2], of: FLOAT32[2], from: FLOAT32[2]) {\n"
        "with = gradient\nof2 = of\nto = from * with\n"
        "output respect = gradient of to with respect to gradient from from\n"
        "output wrt, to2 = gradient /* ! */ of // !\n of with /* ! */ respect to of, of from with\n"
        "output end = of\n}"
    )
    module = check_text(text, "g.dml")
    statements = module.graphs["g"].syntax.statements
    assert [len(s.names) for s in statements] == [1, 1, 1, 1, 2, 1]


def test_several_names_are_for_gradients_alone() -> None:
    with pytest.raises(DmlcError) as raised:
        check_text("graph g(x: FLOAT32[2]) { output a, b = x }", "g.dml")
    assert raised.value.diagnostics[0].message == "'a' and 'b' are two names for one value"


GRAPHS = [
    ("output a, b = gradient of x with respect to x",
     "2 names for the gradients with respect to 1 tensor"),
    ("output a = gradient of x with respect to x from x, x",
     "this is the gradient of 1 tensor from 2"),
    ("output a = gradient of N with respect to x",
     "a gradient is of and with respect to tensors, and this is one value"),
    ("output a = gradient of x with respect to N",
     "a gradient is of and with respect to tensors, and this is one value"),
    ("output a = gradient of x > 0 with respect to x",
     "a gradient is of numbers, and these are booleans"),
    ("output a, b = gradient of x with respect to x, b", "'b' is read by its own definition"),
    ("output a = gradient of b with respect to x\nb = x", "'b' is used before it is defined"),
    ("output a, a = gradient of x with respect to x, x",
     "output 'a' is declared twice in this graph"),
    ("output a = gradient(x, wrt: 3)", "'gradient' takes a tensor"),
    ("output a = gradient of x with respect to z", "unknown name 'z'"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), GRAPHS)
def test_mistakes_in_graphs(body: str, message: str) -> None:
    with pytest.raises(DmlcError) as raised:
        check_text(f"graph g[N](x: FLOAT32[N]) {{ {body} }}", "g.dml")
    assert raised.value.diagnostics[0].message == message


def test_a_gradient_that_nothing_reads_is_a_warning() -> None:
    text = "graph g(x: FLOAT32[2]) { a, b = gradient of x with respect to x, x output c = a }"
    assert [d.message for d in check_text(text, "g.dml").diagnostics] == [
        "the value 'b' is never read"
    ]
