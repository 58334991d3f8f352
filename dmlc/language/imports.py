"""Loader of `.dml` files and their imports, each file once.

An import is relative to its file. It may name files below the folder of the first file, and below
folders that the caller allows, after symbolic links and '..' are resolved. A cycle is an error that
shows the chain.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from dmlc.language import syntax
from dmlc.language.parse import parse, read_source, resolve
from dmlc.source import Diagnostic, DmlcError, Note, Source, Span

Reader: TypeAlias = Callable[[Path, Span | None], Source]
"""Reader of an imported file's text, given the span of the import; raises `DmlcError`."""

_DEEPEST = 64
"""Longest chain of imports."""


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """Parsed file and the files it imports, directly or not, each once and before its users."""

    file: syntax.File
    imports: tuple[syntax.File, ...]


def load_file(path: Path, folders: Sequence[Path] = ()) -> Loaded:
    """Reads and parses a file and its imports, which may also lie below `folders`. Raises
    `DmlcError` with every error."""
    return _load(read_source(path), folders)


def load_text(text: str, filename: str, folders: Sequence[Path] = ()) -> Loaded:
    """Parses a text as the content of `filename`, and reads its imports."""
    return _load(Source(filename, text), folders)


def load_imports(
    file: syntax.File, folders: Sequence[Path] = (), read: Reader = read_source
) -> tuple[Loaded, tuple[Diagnostic, ...]]:
    """Reads the imports of a parsed file as far as possible, and returns every error. `read` gives
    the texts: an editor has some that are not saved."""
    here = Path(file.source.name)
    loader = _Loader([here.parent, *folders], read)
    loader.load_imports(file, here, [(resolve(here), None)])
    return Loaded(file, tuple(loader.files.values())), tuple(loader.diagnostics[:20])


def _load(source: Source, folders: Sequence[Path]) -> Loaded:
    loaded, diagnostics = load_imports(parse(source), folders)
    if diagnostics:
        raise DmlcError(diagnostics)
    return loaded


@functools.lru_cache(256)
def _parse(source: Source) -> syntax.File:
    """Syntax tree of an imported file. It is cached, since an editor analyses every open file that
    imports it."""
    return parse(source)


class _Loader:
    def __init__(self, folders: Sequence[Path], read: Reader) -> None:
        self.folders = [resolve(folder) for folder in folders]
        self.read = read
        self.files: dict[Path, syntax.File] = {}
        self.targets: dict[Path, Path] = {}
        """Resolved paths."""
        self.diagnostics: list[Diagnostic] = []

    def load_imports(
        self, file: syntax.File, path: Path, chain: Sequence[tuple[Path, Span | None]]
    ) -> None:
        """Loads the imports of a file; `chain` is the chain of imports up to this file."""
        for declaration in file.declarations:
            if not isinstance(declaration, syntax.Import):
                continue
            try:
                self.load(declaration, path.parent / declaration.path, chain)
            except DmlcError as error:
                self.diagnostics += error.diagnostics

    def load(
        self, declaration: syntax.Import, path: Path, chain: Sequence[tuple[Path, Span | None]]
    ) -> None:
        span = declaration.span
        if not declaration.path:
            raise DmlcError("expected the name of a file to import", span, code="E0004")
        target = self.targets.get(path)
        if target is None:
            target = self.targets[path] = resolve(path, span)
        if target in self.files:
            return
        self.check_allowed(declaration, path, target)
        reached = [k for k, _ in chain]
        if target in reached:
            cycle = [*reached[reached.index(target) :], target]
            shown = " imports ".join(f"'{k.name}'" for k in cycle)
            raise DmlcError(
                Diagnostic(
                    f"this import closes a cycle: {shown}", span, _import_notes(chain), code="E0004"
                )
            )
        if len(chain) > _DEEPEST:
            raise DmlcError(f"imports are nested deeper than {_DEEPEST} files", span, code="E0004")
        file = _parse(self.read(path, span))
        self.load_imports(file, path, [*chain, (target, span)])
        self.files[target] = file

    def check_allowed(self, declaration: syntax.Import, path: Path, target: Path) -> None:
        """Raises `DmlcError` for a path outside the allowed folders, before it is opened."""
        if any(target.is_relative_to(folder) for folder in self.folders):
            return
        leads = "" if target == Path(os.path.abspath(path)) else f" leads to '{target}', which"
        raise DmlcError(
            f"'{declaration.path}'{leads} is not below '{self.folders[0]}', nor below a folder "
            "that may be imported from",
            declaration.span,
            [
                "allow its folder: dmlc.load(file, import_folders=[...]), or --import-folder on "
                "the command line"
            ],
            code="E0004",
        )


def _import_notes(chain: Sequence[tuple[Path, Span | None]]) -> tuple[Note, ...]:
    return tuple(Note("imported here", span) for _, span in chain[-4:] if span is not None)
