"""The symbols of a document, and its canonical text."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmlc.editor.documents import Document, Session
from dmlc.editor.outline import Outline, format_document, outline
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.source import Source, apply_edits
from tests.editor.texts import OPERATOR, mark

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples").glob("*.dml"))


def opened(text: str) -> Document:
    return Session().open("text.dml", text)


def names(parts: list[Outline] | tuple[Outline, ...]) -> list[str]:
    return [part.name for part in parts]


def test_declarations_and_their_parts() -> None:
    found = outline(opened(OPERATOR))
    assert names(found) == ["MODE", "hat", "SCALE", "g"]
    assert names(found[0].parts) == ["NEAREST", "LINEAR"]
    assert names(found[2].parts) == ["Mode", "Format", "Factor", "A", "B", "Out", "weight"]
    assert names(found[3].parts) == ["x", "y"]


def test_names_are_within_their_declarations() -> None:
    pending = outline(opened(OPERATOR))
    for part in pending:
        assert part.whole.start <= part.named.start <= part.named.end <= part.whole.end
        pending += part.parts


def test_a_text_with_mistakes_has_the_symbols_that_are_left() -> None:
    broken = mark("scaled = A * Factor", "scaled = = A")
    assert names(outline(opened(broken))) == ["MODE", "hat", "SCALE", "g"]
    assert outline(opened("\x00")) == []


def formatted(document: Document) -> str:
    """The text with the edits made."""
    (edit,) = format_document(document)
    return apply_edits(document.text, [edit])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_formatting_is_that_of_dmlc_fmt(path: Path) -> None:
    text = path.read_text("utf-8")
    canonical = format_file(parse(Source("text.dml", text)))
    wide = text.replace(" = ", "   =  ").replace("}\n", "}\n\n")
    assert formatted(opened(wide)) == format_file(parse(Source("text.dml", wide)))
    assert format_document(opened(canonical)) == []


def test_an_edit_leaves_lines_alone_that_stay() -> None:
    canonical = format_file(parse(Source("text.dml", OPERATOR)))
    (edit,) = format_document(opened(canonical.replace("t = S", "t  =  S")))
    assert edit.span.line == edit.span.end_line - 1
    assert edit.text.strip().startswith("t = SCALE(")


def test_other_line_breaks_become_those_of_the_language() -> None:
    assert formatted(opened("enum E { A = 0 }\r\n")) == "enum E { A = 0 }\n"


@pytest.mark.parametrize("text", ["enum E {", "operator X { compute { y = = } }", "\x00"])
def test_a_text_with_mistakes_is_left_alone(text: str) -> None:
    assert format_document(opened(text)) == []
