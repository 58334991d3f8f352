"""Sentences of constraints that are none: the legal forms, nearest first, for its tensors."""

from __future__ import annotations

import pytest

import dmlc
from dmlc.source import DmlcError

FILE = """operator COPY {
    tensors {
        | Tensor | Kind            | Types |
        | src    | Input           | f32   |
        | scale  | Optional input  | f32   |
        | dst    | Output          | f32   |
    }
    constraints {
        %s
    }
    compute { dst = src }
}
"""


@pytest.mark.parametrize(
    ("sentence", "nearest"),
    [
        ("src and dst should have the same Sizes.", "src and dst must have the same Sizes."),
        ("dst must be broadcast to src.", "dst must be broadcastable to src."),
        ("scale must be scalar", "scale must be a scalar."),
        ("dst.Sizes == src.Sizes", "require dst.Sizes == src.Sizes"),
        (
            "scale and src must be equal in Sizes and DataType.",
            "scale and src must have the same DataType and Sizes.",
        ),
    ],
)
def test_a_bad_sentence_lists_the_forms(sentence: str, nearest: str) -> None:
    with pytest.raises(DmlcError) as raised:
        dmlc.parse(FILE % sentence)
    (diagnostic,) = raised.value.diagnostics
    first, others = (note.message for note in diagnostic.notes)
    assert first == f"write '{nearest}'"
    assert others.startswith("or ")
    assert others.count("'") == 6
    dmlc.parse(FILE % nearest)


def test_a_bad_condition_is_told_as_an_expression() -> None:
    with pytest.raises(DmlcError) as raised:
        dmlc.parse(FILE % "require src.Sizes == == dst.Sizes")
    assert not any("must" in note.message for d in raised.value.diagnostics for note in d.notes)
