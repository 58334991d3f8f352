"""References to a symbol throughout the workspace."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator
from pathlib import Path

from dmlc import summaries
from dmlc.editor.documents import Document, find_path
from dmlc.editor.lexical import list_words
from dmlc.editor.resolve import Occurrence, resolve_word
from dmlc.editor.scopes import Symbol, What
from dmlc.language.parse import SUFFIX
from dmlc.source import DmlcError, Span

MOST_FILES = 2000
"""Largest number of files of a workspace that are read."""
_PRIVATE = (What.LOCAL, What.INDEX, What.PARAMETER, What.INPUT, What.SYMBOL, What.SIZE)
"""Kinds of symbols that no other file can name."""


def find_references(document: Document, offset: int) -> list[Span]:
    """References in the workspace to the symbol at an offset, with its declaration, file by file.
    Empty if there is no symbol. Raises `DmlcError` for a workspace of too many files."""
    found = resolve_word(document, offset)
    if found is None or found.symbol.what is What.FILE:
        return []
    documents = list_documents(document, found.symbol)
    return [span for each in documents for span in find_uses(each, found.symbol)]


def find_highlights(document: Document, offset: int) -> list[Span]:
    """References in a document to the symbol at an offset."""
    found = resolve_word(document, offset)
    if found is None:
        return []
    if found.symbol.what is What.FILE:
        return [Span(document.analysis.source, found.start, found.end)]
    return list(find_uses(document, found.symbol))


def find_uses(document: Document, symbol: Symbol) -> Iterator[Span]:
    """References in one document to a symbol, in source order."""
    wanted, name = identify(symbol), declared_name(symbol)
    for word, context in list_words(document.text, document.tokens, name):
        meant = Occurrence.of(document, word, context).resolve()
        if meant is not None and identify(meant) == wanted:
            yield Span(document.analysis.source, word.start, word.end)


def identify(symbol: Symbol) -> Hashable:
    """Key that is equal for references to one symbol: the span of the declaration, or the operator
    or graph that owns it. A tensor may have a row for each feature level."""
    name, span = declared_name(symbol), symbol.span
    what = What.OPERATOR if symbol.what is What.GRAPH else symbol.what
    if span is None:
        return what, name, symbol.owner
    return what, name, find_path(span.source.name), symbol.owner or span.start


def declared_name(symbol: Symbol) -> str:
    """Name in its declaration, without a module."""
    return symbol.name.rpartition(".")[2]


def is_of_library(symbol: Symbol) -> bool:
    """Whether a symbol is declared in dmlc's own library."""
    return symbol.span is not None and _is_of_library(Path(symbol.span.source.name))


def _is_of_library(path: Path) -> bool:
    return path.is_relative_to(summaries.FOLDER)


# Files -----------------------------------------------------------------------------------------


def list_documents(document: Document, symbol: Symbol, *names: str) -> Iterator[Document]:
    """Documents of the workspace that may name a symbol: the one with its declaration, then those
    that import that one. `names` are further names to search for."""
    span = symbol.span
    if span is None:
        yield document
        return
    target = find_path(span.source.name)
    declaring = document if document.path == target else document.session.look(span.source.name)
    yield declaring
    if symbol.what in _PRIVATE:
        return
    words = "|".join(map(re.escape, (declared_name(symbol), *names)))
    pattern = re.compile(rf"\b(?:{words})\b")
    for name in _list_files(document):
        if find_path(name) == target:
            continue
        other = document.session.look(name)
        if not pattern.search(other.text):
            continue
        _ = other.analysis
        if target in other.reads or is_of_library(symbol):
            yield other


def _list_files(document: Document) -> Iterator[str]:
    """Names of the open texts, of the files below the folders of the workspace, and of those in the
    document's folder if it is in none of these."""
    session = document.session
    yield from session.documents
    seen = {d.path for d in session.documents.values()}
    roots = [root for root in map(find_path, map(str, session.roots)) if root is not None]
    beside = None if document.path is None else document.path.parent
    alone = beside is not None and not any(map(beside.is_relative_to, roots))
    count = 0
    for folder in (*roots, *((beside,) if beside is not None and alone else ())):
        for parent, below, files in os.walk(folder):
            # Such a folder may be a home, with all that is in there.
            deep = folder in roots
            below[:] = sorted(n for n in below if deep and n[0] != "." and n != "node_modules")
            for file in sorted(files):
                path = Path(parent, file)
                if path.suffix != SUFFIX or path in seen:
                    continue
                seen.add(path)
                count += 1
                if count > MOST_FILES:
                    message = f"more than {MOST_FILES} {SUFFIX} files are below '{folder}'"
                    raise DmlcError(message, notes=["open a smaller folder in the editor"])
                yield str(path)
