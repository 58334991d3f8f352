"""Cells of tables: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmlc.language import syntax
from dmlc.language.attribute_types import ATTRIBUTE_TYPES
from dmlc.language.definitions import EnumDefinition
from dmlc.language.parse import parse
from dmlc.language.tables import plain, read_attributes, read_tensors, read_types
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, Source, Span

F32, F16, S8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT8


def table(*lines: str) -> syntax.Table:
    text = "operator X { tensors {\n" + "\n".join(lines) + "\n} compute { } }"
    found = parse(Source("t.dml", text)).declarations[0]
    assert isinstance(found, syntax.Operator)
    return found.tensors[0].table


def messages(diagnostics: list[Diagnostic]) -> list[tuple[str, str]]:
    return [(d.message, d.span.text if d.span else "") for d in diagnostics]


HEADER = "| Tensor | Kind | Dimensions | Supported dimension counts | Supported data types |"


def test_tensors_as_the_pages_have_them() -> None:
    diagnostics: list[Diagnostic] = []
    found = read_tensors(
        table(
            HEADER,
            "| --- | :--- | ---: | --- | --- |",
            "| **InputTensor** | Input | { InputDimensions[] } | 1 to 8 | FLOAT32, FLOAT16 |",
            "| `Scale` | Optional input | { 1, C, [H], 1 } | 3 to 4 | f32 |",
            "| Out | Array of outputs | | 2, 4 to 5 | s8 and f16 |",
            "| Plain | Output | { [N], C } | | |",
        ),
        diagnostics,
    )
    assert messages(diagnostics) == []
    first, scale, out, last = found
    assert (first.name, first.output, first.optional, first.array) == (
        "InputTensor", False, False, False,
    )  # fmt: skip
    assert first.shape_name == "InputDimensions"
    assert first.ranks == tuple(range(1, 9))
    assert first.dtypes == (F32, F16)
    assert scale.optional
    assert not scale.output
    assert scale.ranks == (3, 4)
    assert scale.dimensions is not None
    assert [d.name or d.size for d in scale.dimensions] == [1, "C", "H", 1]
    assert [d.optional for d in scale.dimensions] == [False, False, True, False]
    assert out.array
    assert out.output
    assert out.ranks == (2, 4, 5)
    assert out.dtypes == (S8, F16)
    assert last.ranks == (1, 2)
    assert len(last.dtypes) == len(DataType) - 1


def test_columns_in_any_order_and_case() -> None:
    diagnostics: list[Diagnostic] = []
    (found,) = read_tensors(table("| types | KIND | tensor |", "| f16 | output | Y |"), diagnostics)
    assert diagnostics == []
    assert (found.name, found.output, found.dtypes) == ("Y", True, (F16,))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["| Tensor | Kind | Size |"], ("unknown column 'Size' in a table of tensors", "Size")),
        (["| Tensor | Kind | kind |"], ("column 'Kind' stands twice", "kind")),
        (["| Tensor |", "| A |"], ("this table has no column 'Kind'", "| Tensor |")),
        (["| Tensor | Kind |", "| A |"],
         ("this row has 1 cells where the header has 2", "| A |")),
        (["| Tensor | Kind |", "| A | Inptu |"], ("unknown kind 'Inptu'", "Inptu")),
        (["| Tensor | Kind |", "| A | |"], ("this row names no kind", "| A | |")),
        (["| Tensor | Kind |", "| | Input |"], ("this row names no tensor", "| | Input |")),
        (["| Tensor | Kind |", "| a-b | Input |"], ("'a-b' is no name of a tensor", "a-b")),
        (["| Tensor | Kind |", "| A | Input |", "| A | Input |"],
         ("tensor 'A' stands twice in this table", "A")),
        (["| Tensor | Kind | Ranks |", "| A | Input | 0 to 9 |"],
         ("expected dimension counts from 1 to 8, such as '4' or '1 to 8'", "0 to 9")),
        (["| Tensor | Kind | Ranks |", "| A | Input | \u0663 |"],
         ("expected dimension counts from 1 to 8, such as '4' or '1 to 8'", "\u0663")),
        (["| Tensor | Kind | Dimensions |", "| A | Input | { N\u00e9 } |"],
         ("'N\u00e9' is no dimension: expected a name, a number, or [name]", "{ N\u00e9 }")),
        (["| Tensor | Kind | Types |", "| A | Input | FLOAT33 |"],
         ("unknown data type 'FLOAT33'", "FLOAT33")),
        (["| Tensor | Kind | Dimensions |", "| A | Input | N, C |"],
         ("expected dimensions in braces, such as { N, C, H, W }", "N, C")),
        (["| Tensor | Kind | Dimensions |", "| A | Input | { N, C+1 } |"],
         ("'C+1' is no dimension: expected a name, a number, or [name]", "{ N, C+1 }")),
    ],
)  # fmt: skip
def test_mistakes_in_tensors(lines: list[str], expected: tuple[str, str]) -> None:
    diagnostics: list[Diagnostic] = []
    read_tensors(table(*lines), diagnostics)
    assert messages(diagnostics) == [expected]


MODE = EnumDefinition("MODE", {"A": 0, "B": 1}, Span(Source("e", ""), 0, 0))


def test_the_documentation_lists_the_types_of_attributes() -> None:
    page = Path(__file__).parents[2] / "docs/reference/language.md"
    _, _, behind = page.read_text(encoding="utf-8").partition("### Attributes\n")
    rows = [line.split("|")[1] for line in behind.splitlines() if line.startswith("| `")]
    listed = re.findall(r"`([A-Z]+)`", " ".join(rows[: rows.index(" `TYPE` ") + 1]))
    assert sorted(listed) == sorted(ATTRIBUTE_TYPES)


def test_attributes_of_every_kind() -> None:
    diagnostics: list[Diagnostic] = []
    found = read_attributes(
        table(
            "| Attribute | Type | Default | Values |",
            "| Epsilon | FLOAT | 1e-5 | |",
            "| axis | s64 | `-1` | |",
            "| use_dst | bool | **true** | |",
            "| Mode | MODE | | |",
            "| Scales | FLOAT[DimensionCount] | | |",
            "| Pair | UINT[2] | [1, 2] | |",
            "| Any | INT[] | | |",
            "| Kind | DML_TENSOR_DATA_TYPE | X.DataType | |",
            "| Value | NUMBER | | |",
            "| data_format | string | `NXC` | `NCX`, `NXC` (default) |",
        ),
        {"MODE": MODE},
        diagnostics,
    )
    assert diagnostics == []
    by_name = {a.name: a for a in found}
    assert by_name["Epsilon"].default == syntax.Literal("1e-5", 1e-5, span=found[0].span)
    axis = by_name["axis"].default
    assert isinstance(axis, syntax.Unary)
    assert axis.span.text == "-1"
    assert [(a.name, a.base, a.is_array) for a in found] == [
        ("Epsilon", "FLOAT", False),
        ("axis", "INT", False),
        ("use_dst", "BOOL", False),
        ("Mode", "ENUM", False),
        ("Scales", "FLOAT", True),
        ("Pair", "UINT", True),
        ("Any", "INT", True),
        ("Kind", "TYPE", False),
        ("Value", "NUMBER", False),
        ("data_format", "STRING", False),
    ]
    assert by_name["Mode"].enum is MODE
    length = by_name["Scales"].length
    assert isinstance(length, syntax.Reference)
    assert (length.name, length.span.text) == ("DimensionCount", "DimensionCount")
    assert by_name["Any"].length is None
    assert by_name["data_format"].values == ("NCX", "NXC")
    assert by_name["data_format"].default == syntax.String("NXC", span=found[0].span)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("| a | flaot | | |", ("unknown attribute type 'flaot'", "flaot")),
        ("| a | FLOAT[2 | | |", ("'FLOAT[2' is no attribute type", "FLOAT[2")),
        ("| a | | | |", ("attribute 'a' has no type", "| a | | | |")),
        ("| a | string | | |",
         ("attribute 'a' is a string: its 'Values' cell must list what it may be", "string")),
        ("| a | INT | 1 + | |", ("expected an expression, found the end of the file", "")),
        ("| | INT | | |", ("this row names no attribute", "| | INT | | |")),
    ],
)  # fmt: skip
def test_mistakes_in_attributes(row: str, expected: tuple[str, str]) -> None:
    diagnostics: list[Diagnostic] = []
    read_attributes(table("| Attribute | Type | Default | Values |", row), {}, diagnostics)
    assert messages(diagnostics) == [expected]


def test_an_attribute_stands_once() -> None:
    diagnostics: list[Diagnostic] = []
    rows = table("| Attribute | Type |", "| a | INT |", "| a | INT |")
    assert len(read_attributes(rows, {}, diagnostics)) == 1
    assert messages(diagnostics) == [("attribute 'a' stands twice in this table", "a")]


def test_type_combinations() -> None:
    diagnostics: list[Diagnostic] = []
    rows = table(
        "| Src / Diff_dst | Mean, variance |", "|:--|:--|", "| f32 | f32 |", "| bf16 | f32, bf16 |"
    )
    found = read_types(rows, ["src", "diff_dst", "mean", "variance"], diagnostics)
    assert diagnostics == []
    assert found[1].types == {
        "src": (DataType.BFLOAT16,),
        "diff_dst": (DataType.BFLOAT16,),
        "mean": (F32, DataType.BFLOAT16),
        "variance": (F32, DataType.BFLOAT16),
    }


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["| srk |", "| f32 |"], ("unknown tensor 'srk'", "srk")),
        (["| src | src |", "| f32 | f32 |"], ("tensor 'src' stands in two columns", "src")),
        (["| src |", "| f32 | f32 |"],
         ("this row has 2 cells where the header has 1", "| f32 | f32 |")),
        (["| src | dst |", "| f32 | |"], ("expected data types in this cell", "")),
    ],
)  # fmt: skip
def test_mistakes_in_type_combinations(lines: list[str], expected: tuple[str, str]) -> None:
    diagnostics: list[Diagnostic] = []
    read_types(table(*lines), ["src", "dst"], diagnostics)
    assert [(m, s.strip()) for m, s in messages(diagnostics)] == [expected]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("*X*", "X"),
        ("**X** and `Y`", "X and Y"),
        ("_X_ and __Y_z__", "X and Y_z"),
        ("_x, y_ and __", "_x, y_ and __"),
        ("diff_dst", "diff_dst"),
        ("[epsilon](@ref dnnl::epsilon)", "epsilon"),
        ("a\u00a0b&nbsp;c", "a b c"),
        ("FLOAT\\[2\\]", "FLOAT[2]"),
    ],
)
def test_marks_around_words_are_ignored(cell: str, expected: str) -> None:
    assert plain(cell) == expected
