"""Renaming of a symbol, wherever it is named.

The resulting texts are analysed first: each reference must resolve to the same symbol as before,
and no text may have new errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dmlc.editor.documents import Document, Session
from dmlc.editor.references import (
    declared_name,
    find_uses,
    is_of_library,
    list_documents,
)
from dmlc.editor.resolve import Resolved, resolve_word
from dmlc.editor.scopes import Symbol, What
from dmlc.source import DmlcError, Edit, Span, apply_edits

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MOST_SHOWN = 40


def find_renamable(document: Document, offset: int) -> Resolved:
    """Symbol at an offset, and the span of its name there. Raises `DmlcError`, with the reason, if
    it cannot be renamed."""
    found = resolve_word(document, offset)
    if found is None:
        raise DmlcError("no name that dmlc knows stands here", code="E0201")
    symbol, name = found.symbol, document.text[found.start : found.end]
    if symbol.what is What.FILE:
        raise DmlcError("this names a file: rename the file itself", code="E0201")
    if symbol.span is None:
        kind = symbol.what.value
        raise DmlcError(f"'{name}' is a {kind} of the language, and keeps its name", code="E0201")
    if is_of_library(symbol):
        owner = symbol.owner or symbol.name
        message = f"'{name}' is declared in dmlc's own library, of '{owner}'"
        raise DmlcError(message, symbol.span, ["write an operator of your own"], "E0201")
    if name != declared_name(symbol):
        whose = "a module" if symbol.what in (What.OPERATOR, What.GRAPH) else "another name"
        said = f"'{name}' is {whose} here; the {symbol.what.value} is '{declared_name(symbol)}'"
        raise DmlcError(said, code="E0201")
    return found


def rename(document: Document, offset: int, name: str) -> list[Edit]:
    """Edits, in every text of the workspace, that rename the symbol at an offset. Raises
    `DmlcError` for an invalid name, for one that is taken, and if a text cannot be parsed."""
    found = find_renamable(document, offset)
    old = declared_name(found.symbol)
    if not _NAME.fullmatch(name):
        rule = "a name is a letter or '_', then letters, digits and '_', 128 at most"
        raise DmlcError(f"'{name[:_MOST_SHOWN]}' is no name", notes=[rule], code="E0107")
    if name == old:
        return []
    documents = list(list_documents(document, found.symbol, name))
    for each in documents:
        if not each.analysis.whole:
            (first, *_) = each.analysis.diagnostics
            message = f"'{Path(each.name).name}' cannot be read: {first.message}"
            raise DmlcError(message, first.span, ["mend it first"], first.code)
    uses = {each.name: list(find_uses(each, found.symbol)) for each in documents}
    edits = [Edit(span, name) for spans in uses.values() for span in spans]
    _check_taken(found, name)
    _check_result(document, documents, uses, name)
    return edits


def _check_taken(found: Resolved, name: str) -> None:
    """Raises `DmlcError` for a name with another meaning in the symbol's scope."""
    taken = found.scope.find(name)
    if taken is not None and found.scope.find(declared_name(found.symbol)) == found.symbol:
        raise _refuse(name, taken, None)


def _refuse(name: str, taken: Symbol, place: Span | None) -> DmlcError:
    whose = f" of {taken.owner}" if taken.owner and taken.owner != taken.name else ""
    where = "" if place is None else f" at line {place.line}"
    what = taken.what.value
    article = "an" if what[0] in "aeiou" else "a"
    message = f"the name '{name}' is taken{where}: it is {article} {what}{whose}"
    return DmlcError(message, taken.span, ["choose another name"], "E0205")


def _check_result(
    document: Document, documents: Sequence[Document], uses: dict[str, list[Span]], name: str
) -> None:
    """Raises `DmlcError` for edits that change the meaning of a reference, or cause errors, by
    analysing the edited texts in a session of their own."""
    old = document.session
    session = Session(old.folders, old.encoding, old.roots)
    for text in old.documents.values():
        session.open(text.name, text.text)
    for each in documents:
        session.open(each.name, apply_edits(each.text, [Edit(s, name) for s in uses[each.name]]))
    moved = {n: [_moved(s, spans, name) for s in spans] for n, spans in uses.items()}
    first = next(each.name for each in documents if uses[each.name])
    meant = resolve_word(session.documents[first], moved[first][0])
    for each in documents:
        made = session.documents[each.name]
        before, after = (_count_errors(d) for d in (each, made))
        for key, number in after.items():
            if number > before[key]:
                error = next(d for d in made.analysis.diagnostics if d.code == key)
                message = f"the name '{name}' would be wrong: {error.message}"
                raise DmlcError(message, error.span, ["choose another name"], error.code)
        found = [] if meant is None else [s.start for s in find_uses(made, meant.symbol)]
        for start in {*found} ^ {*moved[each.name]}:
            span = Span(made.analysis.source, start, start + len(name))
            taken = resolve_word(made, start)
            if taken is not None:
                raise _refuse(name, taken.symbol, span)
            raise DmlcError(f"the name '{name}' would mean nothing here", span, code="E0205")


def _moved(span: Span, spans: Sequence[Span], name: str) -> int:
    """Offset of a span after the spans before it are renamed."""
    before = sum(other.start < span.start for other in spans)
    return span.start + before * (len(name) - (span.end - span.start))


def _count_errors(document: Document) -> Counter[str | None]:
    return Counter(d.code for d in document.analysis.diagnostics if not d.warning)
