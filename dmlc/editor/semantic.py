"""Semantic tokens, for distinctions that a TextMate grammar cannot make: whether `x` is a tensor,
an attribute, an index or a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dmlc.editor.documents import Document
from dmlc.editor.lexical import list_words
from dmlc.editor.references import is_of_library
from dmlc.editor.resolve import Occurrence
from dmlc.editor.scopes import What

TYPES = {
    What.OPERATOR: "class",
    What.GRAPH: "class",
    What.ENUM: "enum",
    What.MEMBER: "enumMember",
    What.FUNCTION: "function",
    What.BUILT_IN: "function",
    What.PARAMETER: "parameter",
    What.TENSOR: "variable",
    What.INPUT: "variable",
    What.LOCAL: "variable",
    What.INDEX: "parameter",
    What.ATTRIBUTE: "property",
    What.FACT: "property",
    What.SIZE: "typeParameter",
    What.SYMBOL: "typeParameter",
    What.TYPE: "type",
}
"""Token types of the protocol by kind of symbol."""
DECLARATION, LIBRARY, READ_ONLY = "declaration", "defaultLibrary", "readonly"
MODIFIERS = (DECLARATION, LIBRARY, READ_ONLY)
_GIVEN = (What.ATTRIBUTE, What.INPUT, What.SIZE, What.SYMBOL, What.INDEX, What.PARAMETER)


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """Word from `start` to `end`, and its kind."""

    start: int
    end: int
    type: str
    modifiers: tuple[str, ...]


def list_meanings(document: Document) -> Iterator[Meaning]:
    """Known words of a document, in source order."""
    source = document.name
    for word, context in list_words(document.text, document.tokens):
        symbol = Occurrence.of(document, word, context).resolve()
        kind = None if symbol is None else TYPES.get(symbol.what)
        if symbol is None or kind is None:
            continue
        span = symbol.span
        declared = span is not None and (span.source.name, span.start) == (source, word.start)
        own = symbol.what in (What.BUILT_IN, What.FACT, What.TYPE) or is_of_library(symbol)
        found = (declared, own, symbol.what in _GIVEN)
        modifiers = tuple(m for m, has in zip(MODIFIERS, found, strict=True) if has)
        yield Meaning(word.start, word.end, kind, modifiers)
