"""Diagnostics of a document, with the ranges that an editor underlines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from dmlc.binding import Operator
from dmlc.editor.documents import Document
from dmlc.editor.positions import Lines, Range
from dmlc.language import syntax
from dmlc.source import Diagnostic, Fix, Note, Source, Span, counted
from dmlc.testing.findings import find_mistakes

_SHOWN = 50


@dataclasses.dataclass(frozen=True, slots=True)
class Remark:
    """Note of a problem, located in this file or another."""

    name: str
    """File name."""
    range: Range
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Diagnostic for an editor."""

    range: Range
    message: str
    """Message with the notes without a location, one per line."""
    warning: bool
    code: str | None
    remarks: tuple[Remark, ...]
    fixes: tuple[Fix, ...] = ()
    """Fixes within this text."""


def list_problems(document: Document, bind: bool = False, calls: int = 0) -> list[Problem]:
    """Errors and warnings of a document. With `bind`, also those that `dmlc check` finds by binding
    its operators, which is too slow between two keystrokes; `calls` random calls are tried, as by
    `dmlc check --thorough`."""
    found = [*document.analysis.diagnostics]
    if bind and all(d.warning for d in found) and document.analysis.findings is not None:
        for definition in document.analysis.findings.operators.values():
            if definition.syntax.span.source is document.analysis.source:
                found += find_mistakes(Operator(definition), calls)
    return [_problem(document, each) for each in found]


def _problem(document: Document, found: Diagnostic) -> Problem:
    message = "\n".join([found.message, *(n.message for n in found.notes if n.span is None)])
    notes = [*found.notes]
    span = found.span
    if span is None:
        span = Span(document.analysis.source, 0, 0)
    elif span.source is not document.analysis.source:
        # Of an imported file: shown where that is imported, with the place itself as a remark.
        notes.insert(0, Note(found.message, span))
        message = f"'{Path(span.source.name).name}': {message}"
        span = _import_of(document, span.source)
    remarks = tuple(_remarks(document, notes))
    fixes = tuple(f for f in found.fixes if all(e.span.source.name == document.name for e in f))
    range = _visible(document.lines, span)
    return Problem(range, message, found.warning, found.code, remarks, fixes)


def describe_fix(fix: Fix) -> str:
    """Title of a fix in an editor: the effect of its first edit with a text."""
    edit = next((e for e in fix if e.text.strip()), fix[0])
    old, new = (_short(text) for text in (edit.span.text, edit.text))
    if not new:
        said = f"Remove '{old}'"
    else:
        said = f"Replace '{old}' by '{new}'" if old else f"Insert '{new}'"
    return said if len(fix) == 1 else f"{said} and {counted(len(fix) - 1, 'more edit')}"


def _short(text: str) -> str:
    """Text on one line, shortened to the length of a title."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def _remarks(document: Document, notes: list[Note]) -> Iterator[Remark]:
    for note in notes:
        if note.span is not None:
            lines = Lines(note.span.source.text, document.lines.encoding)
            yield Remark(note.span.source.name, _visible(lines, note.span), note.message)


def _import_of(document: Document, source: Source) -> Span:
    """Import that brings a file; the first of several."""
    file = document.analysis.file
    imports = [d for d in (() if file is None else file.declarations)
               if isinstance(d, syntax.Import)]  # fmt: skip
    folder = Path(document.name).parent
    direct = (d.span for d in imports if str(folder / d.path) == source.name)
    nowhere = Span(document.analysis.source, 0, 0)
    return next(direct, imports[0].span if imports else nowhere)


def _visible(lines: Lines, span: Span) -> Range:
    """Range of a span; for an empty one, the character there, or the one before the end."""
    start, end = span.start, span.end
    if start == end:
        at_end = lines.text[start : start + 1] in ("", "\n", "\r")
        start, end = (max(start - 1, 0), start) if at_end else (start, start + 1)
    return lines.range(start, end)
