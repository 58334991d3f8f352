"""What may be written at a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlc import library
from dmlc.editor.scopes import What
from dmlc.language.builtins import BUILT_IN, FUNCTIONS
from tests.editor.texts import OPERATOR, completions, labels, mark

DECLARATIONS = ["enum", "function", "graph", "import", "module", "operator"]
SECTIONS = [
    "attributes", "compute", "constraints", "differs", "example", "forward", "gradient of",
    "introduced", "tensors", "types",
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@", DECLARATIONS),
        ("op@", DECLARATIONS),
        (mark('    "Scales and adds."', "    @"), SECTIONS),
        (mark("A and B must", "A and B @"), ["and", "must"]),
        (mark("must have the same DataType.", "must @"), ["be", "have the same"]),
        (mark("same DataType", "same @"), ["DataType", "DimensionCount", "Sizes"]),
        (mark("A and B must have", "A and @"), ["A", "B", "Out"]),
        (mark("Mode == LINEAR", "Mode == @"), ["NEAREST", "LINEAR"]),
        (mark("Mode = LINEAR", "Mode = @"), ["NEAREST", "LINEAR"]),
        (mark("expect Out", "expect @"), ["Out"]),
        (mark("Mode: LINEAR", "Mode: @"), ["NEAREST", "LINEAR"]),
        (mark("t.Out", "t.@"), ["Out"]),
        (mark("scaled = A *", "scaled = A.@"),
         ["DataType", "DimensionCount", "Sizes", "ElementCount", "Strides"]),
        (mark("| A      | Input ", "| A      | @"),
         ["Input", "Output", "Optional input", "Optional output", "Array of inputs",
          "Array of outputs"]),
        (mark("| Mode      | MODE ", "| Mode      | @"),
         ["FLOAT", "INT", "UINT", "NUMBER", "BOOL", "TYPE", "STRING", "MODE"]),
        (mark("| Attribute |", "| @"), ["Attribute", "Type", "Default", "Values"]),
        (mark("    tensors {\n", "    tensors {\n  @\n    }\n    tensors L {\n"),
         ["| Tensor | Kind | Dimensions | Supported dimension counts | Supported data types |"]),
        (mark("expect Out = [[0]]", "expect Out = [[0]] @"),
         ["A", "B", "Out", "Mode", "Format", "Factor", "expect", "instead of", "within"]),
        (mark('    example "one" {', '    differs "one" @ {'), ["in", "where"]),
        (mark("expect Out = [[0]]", "expect Out = [[0]]\n    }\n    differs \"two\" {\n        @"),
         ["A", "B", "Out", "Mode", "Format", "Factor", "expect"]),
        ("// op@", []),
        ("/* op@ */", []),
    ],
)  # fmt: skip
def test_all_that_may_stand_there(text: str, expected: list[str]) -> None:
    assert labels(text) == expected


FUNCTION = "function f(v, w) = round(v)\n    "
OWN = mark("hat(i - k)\n", "hat(i - k)\n            gradient of weight with respect to k = 1\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FUNCTION + "@", [*DECLARATIONS[:2], "gradient of", *DECLARATIONS[2:4], "operator"]),
        (FUNCTION + "gradient of @", ["f"]),
        (FUNCTION + "gradient of f @", ["with respect to"]),
        (FUNCTION + "gradient of f with respect to @", ["v", "w"]),
        (mark("gradient of weight with respect to k = 1", "gradient of @", OWN), ["Out", "weight"]),
        (mark("respect to k = 1", "respect to @", OWN), ["Out", "i", "k"]),
    ],
)
def test_the_gradient_of_a_function(text: str, expected: list[str]) -> None:
    assert sorted(labels(text)) == sorted(expected)
    assert {"v", "w"} <= set(labels(FUNCTION + "gradient of f with respect to v = @"))
    assert {"i", "k"} <= set(labels(mark("respect to k = 1", "respect to k = @", OWN)))


def test_a_formula_names_what_its_place_can_see() -> None:
    found = labels(mark("(scaled[n, c] * weight", "(@ * weight"))
    assert found[:4] == ["n", "c", "k", "A"]
    assert {"Mode", "scaled", "weight", "hat", "NEAREST", "N", "true", "FLOAT32"} <= set(found)
    assert {*FUNCTIONS} <= set(found)
    assert not {"MODE", "SCALE", "g", "t", "gradient"} & set(found)


def test_a_local_is_seen_behind_its_definition() -> None:
    assert "scaled" not in labels(mark("scaled = A *", "scaled = @ *"))
    assert "scaled" in labels(mark("hat(i - k)", "hat(@)"))


def test_a_function_sees_its_parameters() -> None:
    assert labels(mark("abs(x))", "abs(@))"))[0] == "x"
    assert labels(mark("hat(i - k)", "hat(@)"))[:2] == ["i", "k"]


def test_a_statement_starts_with_an_output() -> None:
    assert labels(mark("        Out[n", "        @\n        Out[n"))[0] == "Out"
    assert "function" in labels(mark("        Out[n", "        @\n        Out[n"))


def test_a_call_takes_the_rows_that_are_not_given() -> None:
    found = completions(mark("Factor: 2, Mode", "@"))
    assert [(c.label, c.text) for c in found[:4]] == [
        ("B:", "B: "), ("Out:", "Out: "), ("Mode:", "Mode: "), ("Format:", "Format: "),
    ]  # fmt: skip
    assert found[2].detail == "attribute, MODE"
    assert found[0].detail == "optional input tensor, 1 or 2 dimensions, sizes { N, [C] }, FLOAT32"


def test_a_graph_calls_operators_and_functions() -> None:
    found = labels(mark("y = t.Out", "y = @"))
    assert {"SCALE", "m.SCALE", *library.names(), *BUILT_IN} <= set(found)
    assert found[:2] == ["N", "x"]
    assert "x" in labels(mark("t = SCALE", "t = gradient of @ SCALE"))
    assert "with respect to" in labels(
        mark("output y = t.Out", "dx = gradient of t.Out @\n    y =")
    )


def test_behind_the_name_of_a_module_stand_its_operators() -> None:
    found = completions(mark("directml.ACTIVATION_RELU(", "directml.ACT@("))
    assert "ACTIVATION_RELU" in [c.label for c in found]
    assert {c.what for c in found} == {What.OPERATOR}
    assert len(found) == sum(name.startswith("directml.") for name in library.names())


@pytest.mark.parametrize("section", ["gradient of", "forward"])
def test_operators_by_name(section: str) -> None:
    found = labels(mark('    "Scales and adds."', f"    {section} @"))
    assert found == ["SCALE", "m.SCALE", *library.names()]


def test_a_gradient_names_the_tensors_of_its_forward_operator() -> None:
    head = "operator X {\n    gradient of directml.ACTIVATION_RELU"
    assert labels(f"{head} with respect to @\n}}") == ["InputTensor", "OutputTensor"]
    found = labels(f"{head} {{\n        dX = gradient of @\n    }}\n}}")
    assert found[:2] == ["InputTensor", "OutputTensor"]
    found = labels(f"{head.replace('gradient of', 'forward')} {{\n        X = @\n    }}\n}}")
    assert found[:2] == ["InputTensor", "OutputTensor"]


def test_reductions_take_like_and_axes() -> None:
    assert labels(mark("scaled = A * Factor", "scaled = sum(A, @)"))[:2] == ["like:", "axes:"]


def test_cells_take_types_and_defaults() -> None:
    assert "FLOAT16" in labels(mark("FLOAT32, FLOAT16", "FLOAT32, FLO@"))
    found = labels(mark("| LINEAR  |", "| @  |"))
    assert found[:2] == ["NEAREST", "LINEAR"]
    assert "A" in found


def test_texts_take_files_and_values(tmp_path: Path) -> None:
    (tmp_path / "modes.dml").write_text("", "utf-8")
    (tmp_path / "text.dml").write_text("", "utf-8")
    (tmp_path / "notes.txt").write_text("", "utf-8")
    assert labels('import "@"', tmp_path) == ["modes.dml"]
    assert labels(mark("Mode == LINEAR", 'Format == "@"')) == ["NCX", "NXC"]
    assert labels(mark("Mode == LINEAR", "Format == @")) == ['"NCX"', '"NXC"']


# Texts with mistakes ---------------------------------------------------------------------------


def test_what_is_typed_first_is_completed() -> None:
    """Nothing is closed, and there is no earlier text."""
    head = OPERATOR[: OPERATOR.index("    constraints {")]
    found = labels(head + "    compute {\n        Out[i, j] = sum[k : 3](A[i, @")
    assert found[:4] == ["i", "j", "k", "A"]


@pytest.mark.parametrize("text", ["A + * @", "= @", "A B C @", "((@", "A[1, @"])
def test_a_statement_with_mistakes_takes_names(text: str) -> None:
    assert "A" in labels(mark("A * Factor", text))


def test_what_is_written_is_replaced() -> None:
    found = completions(mark("scaled = A * Factor", "scaled = A * Fac@"))
    factor = next(c for c in found if c.label == "Factor")
    document_text = mark("scaled = A * Factor", "scaled = A * Fac")
    assert document_text[factor.start :].startswith("Fac\n")


def test_a_condition_of_what_differs_names_indices_and_what_compute_defines() -> None:
    header = 'differs "one" in Out[row, column] where @ {'
    found = labels(mark('example "one" {', header))
    assert {"row", "column", "A", "Out", "scaled", "Factor", "isnan"} <= {*found}
    assert not {"row", "column"} & {*labels(mark("scaled = A", "scaled = @"))}
