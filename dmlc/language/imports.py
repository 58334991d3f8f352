"""Reads `.dml` files and what they import, each file once.

An import is relative to the file that has it. A cycle is an error that shows the chain.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from dmlc.language import syntax
from dmlc.language.parse import MAX_BYTES, parse
from dmlc.source import Diagnostic, DmlcError, Note, Source, Span

_DEEPEST = 64
"""The longest chain of imports."""


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """A parsed file and the files it imports, directly or not, each once and before its users."""

    file: syntax.File
    imports: tuple[syntax.File, ...]


def load_file(path: Path) -> Loaded:
    """Reads and parses a file and its imports. Raises `DmlcError` with every mistake."""
    return load_text(read_text(path, None), str(path))


def load_text(text: str, filename: str) -> Loaded:
    """Parses a text as if it stood in that file, and reads its imports."""
    file = parse(Source(filename, text))
    loader = _Loader()
    here = Path(filename)
    loader.load_imports(file, here, [(os.path.realpath(here), None)])
    if loader.diagnostics:
        raise DmlcError(loader.diagnostics[:20])
    return Loaded(file, tuple(loader.files.values()))


def read_text(path: Path, span: Span | None) -> str:
    """The text of a file. Raises `DmlcError`, at the import that asks for it if there is one."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DmlcError(f"'{path}' is larger than {MAX_BYTES >> 20} MiB", span)
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DmlcError(f"'{path}' is not UTF-8 text: byte {error.start} is wrong", span) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DmlcError(f"cannot read '{path}': {reason}", span) from None
    except ValueError:
        raise DmlcError("this is no file name", span) from None


class _Loader:
    def __init__(self) -> None:
        self.files: dict[str, syntax.File] = {}
        self.diagnostics: list[Diagnostic] = []

    def load_imports(
        self, file: syntax.File, path: Path, chain: Sequence[tuple[str, Span | None]]
    ) -> None:
        """Loads what a file imports; `chain` is how it was reached, itself last."""
        for declaration in file.declarations:
            if not isinstance(declaration, syntax.Import):
                continue
            try:
                self.load(declaration, path.parent / declaration.path, chain)
            except DmlcError as error:
                self.diagnostics += error.diagnostics

    def load(
        self, declaration: syntax.Import, path: Path, chain: Sequence[tuple[str, Span | None]]
    ) -> None:
        span = declaration.span
        if not declaration.path:
            raise DmlcError("expected the name of a file to import", span)
        try:
            key = os.path.realpath(path)
        except ValueError:
            raise DmlcError("this is no file name", span) from None
        reached = [k for k, _ in chain]
        if key in reached:
            cycle = [*reached[reached.index(key) :], key]
            shown = " imports ".join(f"'{os.path.basename(k)}'" for k in cycle)
            raise DmlcError(
                Diagnostic(f"this import closes a cycle: {shown}", span, _import_notes(chain))
            )
        if key in self.files:
            return
        if len(chain) > _DEEPEST:
            raise DmlcError(f"imports are nested deeper than {_DEEPEST} files", span)
        file = parse(Source(str(path), read_text(path, span)))
        self.load_imports(file, path, [*chain, (key, span)])
        self.files[key] = file


def _import_notes(chain: Sequence[tuple[str, Span | None]]) -> tuple[Note, ...]:
    return tuple(Note("imported here", span) for _, span in chain[-4:] if span is not None)
