"""Open texts of an editor, edited in place and analysed on request. An open text takes precedence
over the file of its name, in imports too."""

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
    """Open text. `name` is its file, or the editor's name for a text without one."""

    def __init__(self, session: Session, name: str, lines: Lines) -> None:
        self.session = session
        self.name = name
        self.lines = lines
        self._analysis: Analysis | None = None
        self._tokens: tuple[Token, ...] | None = None
        self._whole: Analysis | None = None
        self.known: dict[object, Any] = {}
        """Cache of results derived from the current analysis."""
        self.path = find_path(name)
        """Path of the file with symbolic links resolved."""
        self.reads: frozenset[Path] = frozenset()
        """Files that the text imported in its latest analysis, directly or not."""

    @property
    def text(self) -> str:
        return self.lines.text

    @property
    def analysis(self) -> Analysis:
        """Analysis of the current text."""
        if self._analysis is None:
            self._analysis, self.reads = self.session.analyze(Source(self.name, self.text))
            if self._analysis.findings is not None:
                self._whole = self._analysis
        return self._analysis

    @property
    def earlier(self) -> Analysis | None:
        """Analysis of the latest text that could be parsed as a whole; None if that is the current
        one, or if there was none."""
        return None if self._whole is self.analysis else self._whole

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Tokens of the text, whatever errors it has."""
        if self._tokens is None:
            self._tokens = tuple(list_tokens(self.text))
        return self._tokens

    def replace(self, lines: Lines) -> None:
        """Replaces the text."""
        self.lines = lines
        self._tokens = None
        self.forget()

    def forget(self) -> None:
        """Discards the analysis."""
        self._analysis = None
        self.known.clear()

    def offset(self, position: Position) -> int:
        return self.lines.offset(position)

    def range(self, span: Span) -> Range:
        """Range of a span of this text."""
        return self.lines.range(span.start, span.end)


class Session:
    """Open documents of an editor by name, with the folders that files may be imported from,
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
        """Opens a text, or replaces the open one of that name."""
        made = Document(self, name, Lines(text, self.encoding))
        self.documents[name] = made
        self.forget_importers(made)
        return made

    def look(self, name: str) -> Document:
        """Document of a file: the open one, or its saved text, which is not opened."""
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
        """Closes a text; its file takes effect again."""
        closed = self.documents.pop(name)
        self.forget_importers(closed)

    def importers(self, changed: Document) -> list[Document]:
        """Open documents that import another, directly or not."""
        return [d for d in self.documents.values() if d is not changed and changed.path in d.reads]

    def forget_importers(self, changed: Document) -> None:
        """Discards the analyses of the documents that import another."""
        for document in self.importers(changed):
            document.forget()

    def analyze(self, source: Source) -> tuple[Analysis, frozenset[Path]]:
        """Analysis of a text located at its name, and the files it imports."""
        folders = list(self.folders)
        if Path(source.name).is_relative_to(summaries.FOLDER):
            folders.append(summaries.FOLDER)  # As the library itself is read.
        targets: set[Path] = set()

        def read(path: Path, span: Span | None) -> Source:
            targets.add(resolve(path, span))
            return self.read(path, span)

        return analyze(source, folders, read, library.BUILT_IN), frozenset(targets)

    def read(self, path: Path, span: Span | None) -> Source:
        """Text of a file to import: the open one, or the saved one."""
        target = resolve(path, span)
        for document in self.documents.values():
            if document.path == target:
                return Source(str(path), document.text)
        return read_source(path, span)


def find_path(name: str) -> Path | None:
    """Path of a name's file; None if it is no file name."""
    try:
        return resolve(Path(name))
    except DmlcError:
        return None
