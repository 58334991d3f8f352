"""Arrays of tensors in the language: entries, facts, `join` and `split`, and their examples."""

from __future__ import annotations

import pytest

from dmlc.binding import Operator
from dmlc.language.check import check_text
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.source import DmlcError, Source
from dmlc.testing.examples import read_cases

TEXT = """operator CUT {
    attributes {
        | Attribute | Type |
        | Axis | UINT |
    }
    tensors {
        | Tensor | Kind | Ranks | Types |
        | Parts | Array of inputs | 1 to 4 | f32 |
        | One | Input | 1 to 4 | f32 |
        | Whole | Output | 1 to 4 | f32 |
        | Pieces | Array of outputs | 1 to 4 | f32 |
    }
    constraints { require @REQUIRE }
    compute {
        Whole = @WHOLE
        Pieces = @PIECES
    }
    example "two" {
        Axis = 0
        @PART = [1, 2]
        One = [3, 4]
        expect Pieces[0] = [1, 2]
    }
}
"""


def text(
    whole: str = "join(Parts, axis: Axis)",
    pieces: str = "split(One, axis: 0)",
    require: str = "Parts.Count > 0 && Parts[0].Sizes == One.Sizes",
    part: str = "Parts[0]",
) -> str:
    made = TEXT.replace("@WHOLE", whole).replace("@PIECES", pieces)
    return made.replace("@REQUIRE", require).replace("@PART", part)


def test_entries_of_examples_are_read_and_written() -> None:
    definition = check_text(text(), "cut.dml").operators["CUT"]
    case = next(read_cases(Operator(definition), definition.examples[0]))
    assert list(case.inputs) == ["Parts[0]", "One"]
    assert list(case.expected) == ["Pieces[0]"]
    assert [item.tensor for item in definition.examples[0].items][1] == "Parts[0]"
    assert "expect Pieces[0] = [1, 2]" in format_file(parse(Source("cut.dml", text())))


MISTAKES = [
    ({"whole": "join(One, axis: 0)"}, "One", "'join' takes an array of tensors"),
    ({"whole": "join(Parts)"}, "join(Parts)",
     "'join' takes an array of tensors and an axis: join(x, axis: A)"),
    ({"whole": "join(Parts, axis: [0])"}, "[0]", "an axis is one whole number"),
    ({"whole": "Parts[0, 1]"}, "Parts[0, 1]", "an array of tensors takes one number"),
    ({"whole": "Parts[true]"}, "true", "an index must be a number, but this is a boolean"),
    ({"whole": "Parts[0] else 1"}, "Parts[0] else 1", "'else' belongs to a read of one tensor"),
    ({"pieces": "split(3, axis: 0)"}, "3", "'split' takes a tensor"),
    ({"pieces": "split(One, axes: 0)"}, "split(One, axes: 0)",
     "'split' takes a tensor and an axis: split(x, axis: A)"),
    ({"require": "Parts.Sizes == One.Sizes"}, "Sizes", "unknown fact 'Sizes'"),
    ({"require": "One.Count > 0"}, "Count", "unknown fact 'Count'"),
    ({"part": "Parts"}, "Parts", "'Parts' cannot be given so: it is an array of tensors: write "
     "'Parts[0] = ...'"),
    ({"part": "Parts[0] = [1]\n        One[0]"}, "One", "'One' cannot be given so: it is one "
     "tensor: write 'One = ...'"),
    ({"part": "Parts[0] = [1]\n        Parts[0]"}, "Parts", "'Parts[0]' is given twice in this "
     "example"),
    ({"part": "Parts[0] = [1]\n        Axis[0]"}, "Axis", "'Axis' is an attribute: give all of "
     "its values"),
]  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: case[2])
def test_mistakes(case: tuple[dict[str, str], str, str]) -> None:
    changes, place, message = case
    with pytest.raises(DmlcError) as caught:
        check_text(text(**changes), "cut.dml")
    found = [(d.message, d.span.text) for d in caught.value.diagnostics if d.span is not None]
    assert (message, place) in found
