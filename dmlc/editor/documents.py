"""The texts that an editor has open, kept as they are edited, and analysed when that is asked for.

An open text counts before the file of its name, in imports too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmlc import library, summaries
from dmlc.editor.analysis import Analysis, analyze
from dmlc.editor.lexical import Token, list_tokens
from dmlc.editor.positions import Encoding, Lines, Position, Range
from dmlc.language.parse import read_source, resolve
from dmlc.source import DmlcError, Source, Span


class Document:
    """One open text. `name` is its file, or what the editor calls a text that has none."""

    def __init__(self, session: Session, name: str, lines: Lines) -> None:
        self.session = session
        self.name = name
        self.lines = lines
        self._analysis: Analysis | None = None
        self._tokens: tuple[Token, ...] | None = None
        self._whole: Analysis | None = None
        self.known: dict[object, Any] = {}
        """What was worked out of the analysis, until that is made anew."""
        self.path = find_path(name)
        """Where the file is, past symbolic links."""
        self.reads: frozenset[Path] = frozenset()
        """The files that the text imported when it was last analysed, and those imported there."""

    @property
    def text(self) -> str:
        return self.lines.text

    @property
    def analysis(self) -> Analysis:
        """What is known of the text as it is now."""
        if self._analysis is None:
            self._analysis, self.reads = self.session.analyze(Source(self.name, self.text))
            if self._analysis.findings is not None:
                self._whole = self._analysis
        return self._analysis

    @property
    def earlier(self) -> Analysis | None:
        """What was known when the text could last be read as a whole; None where it never could, or
        where that is now."""
        return None if self._whole is self.analysis else self._whole

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The words and marks of the text, whatever mistakes are in it."""
        if self._tokens is None:
            self._tokens = tuple(list_tokens(self.text))
        return self._tokens

    def replace(self, lines: Lines) -> None:
        """Gives the document another text."""
        self.lines = lines
        self._tokens = None
        self.forget()

    def forget(self) -> None:
        """Has the text be analysed anew."""
        self._analysis = None
        self.known.clear()

    def offset(self, position: Position) -> int:
        return self.lines.offset(position)

    def range(self, span: Span) -> Range:
        """The range of a span of this text."""
        return self.lines.range(span.start, span.end)


class Session:
    """The open documents of an editor by name, the folders that files may be imported from,
    besides their own, and the folders of the workspace, `roots`."""

    def __init__(
        self,
        folders: Sequence[Path] = (),
        encoding: Encoding = Encoding.UTF16,
        roots: Sequence[Path] = (),
    ) -> None:
        self.folders = tuple(folders)
        self.roots = tuple(roots)
        self.encoding = encoding
        self.documents: dict[str, Document] = {}

    def open(self, name: str, text: str) -> Document:
        """Opens a text, or one of that name anew."""
        made = Document(self, name, Lines(text, self.encoding))
        self.documents[name] = made
        self.forget_importers(made)
        return made

    def look(self, name: str) -> Document:
        """The text of a file as it is open, or as it is saved; a saved one is not open after."""
        path = find_path(name)
        for document in self.documents.values():
            if document.path == path or document.name == name:
                return document
        return Document(self, name, Lines(self.read(Path(name), None).text, self.encoding))

    def edit(self, name: str, range: Range | None, text: str) -> Document:
        """Replaces a part of an open text, or all of it."""
        document = self.documents[name]
        whole = Lines(text, self.encoding) if range is None else document.lines.replace(range, text)
        document.replace(whole)
        self.forget_importers(document)
        return document

    def close(self, name: str) -> None:
        """Closes a text: its file counts again."""
        closed = self.documents.pop(name)
        self.forget_importers(closed)

    def importers(self, changed: Document) -> list[Document]:
        """The open documents that import another, directly or not."""
        return [d for d in self.documents.values() if d is not changed and changed.path in d.reads]

    def forget_importers(self, changed: Document) -> None:
        """Has the documents that import another be analysed anew."""
        for document in self.importers(changed):
            document.forget()

    def analyze(self, source: Source) -> tuple[Analysis, frozenset[Path]]:
        """What is known of a text that stands where its name says, and the files it imports."""
        folders = list(self.folders)
        if Path(source.name).is_relative_to(summaries.FOLDER):
            folders.append(summaries.FOLDER)  # As the library itself is read.
        targets: set[Path] = set()

        def read(path: Path, span: Span | None) -> Source:
            targets.add(resolve(path, span))
            return self.read(path, span)

        return analyze(source, folders, read, library.BUILT_IN), frozenset(targets)

    def read(self, path: Path, span: Span | None) -> Source:
        """The text of a file to import: as it is open here, or as it is saved."""
        target = resolve(path, span)
        for document in self.documents.values():
            if document.path == target:
                return Source(str(path), document.text)
        return read_source(path, span)


def find_path(name: str) -> Path | None:
    """Where the file of a name is; None of what is no file's name."""
    try:
        return resolve(Path(name))
    except DmlcError:
        return None
