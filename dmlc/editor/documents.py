"""The texts that an editor has open, kept as they are edited, and analysed when that is asked for.

An open text counts before the file of its name, in imports too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dmlc import library, summaries
from dmlc.editor.analysis import Analysis, analyze
from dmlc.editor.lexical import Token, list_tokens
from dmlc.editor.positions import Encoding, Lines, Position, Range
from dmlc.language import syntax
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

    @property
    def text(self) -> str:
        return self.lines.text

    @property
    def analysis(self) -> Analysis:
        """What is known of the text as it is now."""
        if self._analysis is None:
            source = Source(self.name, self.text)
            self._analysis = self.session.analyze(source)
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

    @property
    def imports_files(self) -> bool:
        """Whether what is known of it depends on other files."""
        file = self.analysis.file
        declared = () if file is None else file.declarations
        return any(isinstance(d, syntax.Import) for d in declared)

    def replace(self, lines: Lines) -> None:
        """Gives the document another text."""
        self.lines = lines
        self._tokens = None
        self.forget()

    def forget(self) -> None:
        """Has the text be analysed anew."""
        self._analysis = None

    def offset(self, position: Position) -> int:
        return self.lines.offset(position)

    def range(self, span: Span) -> Range:
        """The range of a span of this text."""
        return self.lines.range(span.start, span.end)


class Session:
    """The open documents of an editor by name, and the folders that files may be imported from,
    besides their own."""

    def __init__(self, folders: Sequence[Path] = (), encoding: Encoding = Encoding.UTF16) -> None:
        self.folders = tuple(folders)
        self.encoding = encoding
        self.documents: dict[str, Document] = {}

    def open(self, name: str, text: str) -> Document:
        """Opens a text, or one of that name anew."""
        made = Document(self, name, Lines(text, self.encoding))
        self.documents[name] = made
        self.forget_importers(made)
        return made

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

    def forget_importers(self, changed: Document) -> list[Document]:
        """Has the other documents be analysed anew that import files; gives them."""
        found = [d for d in self.documents.values() if d is not changed and d.imports_files]
        for document in found:
            document.forget()
        return found

    def analyze(self, source: Source) -> Analysis:
        """What is known of a text that stands where its name says."""
        folders = list(self.folders)
        if Path(source.name).is_absolute() and Path(source.name).is_relative_to(summaries.FOLDER):
            folders.append(summaries.FOLDER)  # As the library itself is read.
        return analyze(source, folders, self.read, library.BUILT_IN)

    def read(self, path: Path, span: Span | None) -> Source:
        """The text of a file to import: as it is open here, or as it is saved."""
        target = resolve(path, span)
        for name, document in self.documents.items():
            if _leads_to(name, target):
                return Source(str(path), document.text)
        return read_source(path, span)


def _leads_to(name: str, target: Path) -> bool:
    """Whether an open text is that of a file."""
    try:
        return resolve(Path(name)) == target
    except DmlcError:
        return False
