"""Symbols of a document as a tree, code folding, and formatting."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from dmlc.editor.documents import Document
from dmlc.editor.lexical import Token, TokenKind
from dmlc.editor.scopes import What, list_enums
from dmlc.language import syntax
from dmlc.language.definitions import EnumDefinition
from dmlc.language.format import format_file
from dmlc.language.tables import read_attributes, read_tensors
from dmlc.source import Edit, Span


@dataclasses.dataclass(frozen=True, slots=True)
class Outline:
    """Symbol of a document, and those in it."""

    name: str
    what: What
    detail: str
    whole: Span
    """Span of the declaration."""
    named: Span
    """Span of its name, within the declaration."""
    parts: tuple[Outline, ...] = ()


def outline(document: Document) -> list[Outline]:
    """Declarations of a document, in source order."""
    file = document.analysis.file
    enums = list_enums(document.analysis.files)
    nodes = () if file is None else file.declarations
    return [made for node in nodes for made in _declared(node, enums)]


def _declared(node: syntax.Declaration, enums: Mapping[str, EnumDefinition]) -> Iterator[Outline]:
    match node:
        case syntax.Import():
            yield Outline(node.path, What.FILE, "import", node.span, node.span)
        case syntax.Enum():
            members = (_named(m.name, What.MEMBER, str(m.value), m.span) for m in node.members)
            yield _named(node.name, What.ENUM, "enum", node.span, *members)
        case syntax.ScalarFunction():
            yield _named(node.name, What.FUNCTION, "function", node.span)
        case syntax.Graph():
            inputs = (_named(i.name, What.INPUT, i.type.span.text, i.span) for i in node.inputs)
            outputs = (
                _named(name, What.LOCAL, "output", name.span)
                for s in node.statements
                if s.output
                for name in s.names
            )
            yield _named(node.name, What.GRAPH, "graph", node.span, *inputs, *outputs)
        case syntax.Operator():
            yield _named(node.name, What.OPERATOR, "operator", node.span, *_parts(node, enums))


def _parts(node: syntax.Operator, enums: Mapping[str, EnumDefinition]) -> Iterator[Outline]:
    """Attributes, tensors and functions of an operator, and its examples."""
    if node.attributes is not None:
        for row in read_attributes(node.attributes, enums, []):
            yield Outline(row.name, What.ATTRIBUTE, row.type.name, row.span, row.span)
    for section in node.tensors:
        level = "" if section.level is None else f" {section.level.text}"
        for tensor in read_tensors(section.table, []):
            kind = f"{'output' if tensor.output else 'input'}{level}"
            yield Outline(tensor.name, What.TENSOR, kind, tensor.span, tensor.span)
    for statement in node.compute or ():
        if isinstance(statement, syntax.ScalarFunction):
            yield _named(statement.name, What.FUNCTION, "function", statement.span)


def _named(name: syntax.Name, what: What, detail: str, whole: Span, *parts: Outline) -> Outline:
    return Outline(name.text, what, detail, whole, name.span, parts)


def format_document(document: Document) -> list[Edit]:
    """Edits that format the text as `dmlc fmt` does: one edit, of the lines that differ. None if it
    is formatted, or has errors, which are shown already."""
    analysis = document.analysis
    if analysis.file is None or not analysis.whole:
        return []
    old = document.text.splitlines(keepends=True)
    new = format_file(analysis.file).splitlines(keepends=True)
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    if first == len(old) == len(new):
        return []
    start = sum(map(len, old[:first]))
    end = len(document.text) - sum(map(len, old[len(old) - last :]))
    span = Span(analysis.source, start, end)
    return [Edit(span, "".join(new[first : len(new) - last]))]


def list_folds(document: Document) -> Iterator[tuple[Span, bool]]:
    """Ranges that an editor may fold: braces over several lines, and comments, which are marked
    True."""
    opened: list[Token] = []
    for token in document.tokens:
        span: Span | None = None
        if token.kind is TokenKind.COMMENT:
            span = Span(document.analysis.source, token.start, token.end)
        elif token.kind is TokenKind.MARK and token.text == "{":
            opened.append(token)
        elif token.kind is TokenKind.MARK and token.text == "}" and opened:
            span = Span(document.analysis.source, opened.pop().start, token.end)
        if span is not None and "\n" in span.text:
            yield span, token.kind is TokenKind.COMMENT
