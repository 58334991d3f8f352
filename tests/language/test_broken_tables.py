"""What a table could not read is reported once: what names it later does not add to that."""

from __future__ import annotations

import pytest

from dmlc.language.check import examine
from dmlc.language.imports import load_text

TEXT = """enum MODE { LOW = 0, HIGH = 1 }
operator OP {
    attributes {
        | Attribute | Type        | Default |
        | Mode      | MODE        | HIGH    |
        | Factor    | FLOAT       | 1       |
        | Count     | UINT        |         |
        | Pads      | UINT[Count] |         |
    }
    tensors {
        | Tensor | Kind   | Dimensions | Types |
        | x      | Input  | { N, C }   | f32   |
        | w      | Input  | { C }      | f32   |
        | y      | Output | { N, C }   | f32   |
    }
    types {
        | x, w, y |
        | f32     |
    }
    constraints {
        x and y must have the same Sizes.
        require Factor > 0 && Pads[0] < N
        require w.Sizes == [C]
    }
    compute {
        t = Mode == LOW ? x * Factor : x + Pads[0]
        y[n, c] = t[n, c] * w[c] + N
    }
    example "one" {
        Mode = LOW
        Factor = 2
        Count = 1
        Pads = [1]
        x = [[1]]
        w = [1]
        expect y = [[4]]
    }
}
operator OP_GRAD {
    attributes {
        | Attribute | Type        | Default |
        | Mode      | MODE        | HIGH    |
        | Factor    | FLOAT       | 1       |
        | Count     | UINT        |         |
        | Pads      | UINT[Count] |         |
    }
    tensors {
        | Tensor | Kind   | Dimensions | Types |
        | x      | Input  | { N, C }   | f32   |
        | w      | Input  | { C }      | f32   |
        | g      | Input  | { N, C }   | f32   |
        | dx     | Output | { N, C }   | f32   |
    }
    gradient of OP {
        g = gradient of y
        dx = gradient of x
        Factor = Factor
    }
}
graph G[N](a: FLOAT32[N, 2], b: FLOAT32[2]) {
    c = OP(x: a, w: b, Mode: LOW, Factor: 2, Count: 1, Pads: [1])
    output d = OP_GRAD(x: c, w: b, g: a, Mode: LOW, Factor: 2, Count: 1, Pads: [1])
}
"""


def list_messages(text: str) -> list[str]:
    found = examine(load_text(text, "op.dml"), None)
    return [d.message for d in (*found.errors, *found.warnings)]


def test_the_text_itself_is_right() -> None:
    assert list_messages(TEXT) == []


@pytest.mark.parametrize(
    ("right", "wrong", "messages"),
    [
        ("Mode      | MODE ", "Mode      | MOD  ", ["unknown attribute type 'MOD'"]),
        ("FLOAT       |", "FLOATY      |", ["unknown attribute type 'FLOATY'"]),
        ("UINT[Count] |", "UINT[Count[ |", ["'UINT[Count[' is no attribute type"]),
        ("| Factor ", "| Fac-tor", ["'Fac-tor' is no name of an attribute"]),
        ("| UINT        |         |", "| UINT |",
         ["this row has 2 cells where the header has 3"]),
        ("| Type        |", "| Typ         |",
         ["unknown column 'Typ' in a table of attributes", "this table has no column 'Type'"]),
        ("| Attribute |", "| Name      |",
         ["unknown column 'Name' in a table of attributes",
          "this table has no column 'Attribute'"]),
        ("| { C }      |", "| [ C ]      |",
         ["expected dimensions in braces, such as { N, C, H, W }"]),
        ("| { N, C }   |", "| { N, C+1 } |",
         ["'C+1' is no dimension: expected a name, a number, or [name]"]),
        ("| Dimensions |", "| Dims       |", ["unknown column 'Dims' in a table of tensors"]),
        ("| Dimensions |", "| Kind       |", ["column 'Kind' stands twice"]),
        ("| Kind   |", "| Sort   |",
         ["unknown column 'Sort' in a table of tensors", "this table has no column 'Kind'"]),
        ("| Tensor |", "| Name   |",
         ["unknown column 'Name' in a table of tensors", "this table has no column 'Tensor'"]),
        ("| Input  | { C }      | f32   |", "| Input  | { C } |",
         ["this row has 3 cells where the header has 4"]),
        ("| Output | { N, C }   | f32   |", "| Output | { N, C }   | f32   | |",
         ["this row has 5 cells where the header has 4"]),
    ],
)  # fmt: skip
def test_one_mistake_in_a_table_is_one_message(right: str, wrong: str, messages: list[str]) -> None:
    assert right in TEXT
    assert list_messages(TEXT.replace(right, wrong, 1)) == messages


def test_an_enum_that_is_missing_is_reported_where_it_is_named() -> None:
    text = TEXT.partition("\n")[2]
    assert list_messages(text) == ["unknown attribute type 'MODE'"] * 2


def test_other_mistakes_are_reported_still() -> None:
    text = TEXT.replace("FLOAT       |", "FLOATY      |", 1)
    text = text.replace("* w[c] + N", "* v[c] + N").replace("c = OP(x: a,", "c = OP(z: a,")
    text = text.replace("require Factor > 0", "require Facto > 0")
    assert list_messages(text) == [
        "unknown attribute type 'FLOATY'",
        "unknown name 'Facto'",
        "unknown name 'v'",
        "unknown argument of OP 'z'",
        "this call of OP does not give x",
    ]
