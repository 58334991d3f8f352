"""Analysis of one text: syntax tree, imports, results of the checker, diagnostics."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from dmlc.language import syntax
from dmlc.language.check import Findings, examine
from dmlc.language.definitions import Library
from dmlc.language.imports import Reader, load_imports
from dmlc.language.parse import read_text
from dmlc.source import Diagnostic, Source


@dataclasses.dataclass(frozen=True, slots=True)
class Analysis:
    """Result of analysing a text."""

    source: Source
    file: syntax.File | None
    """Syntax tree without the erroneous parts; None if nothing can be parsed."""
    imports: tuple[syntax.File, ...]
    findings: Findings | None
    """Results of the checker; None if the text or an import cannot be parsed."""
    diagnostics: tuple[Diagnostic, ...]
    """Errors, then warnings."""
    whole: bool = True
    """Whether all of the text can be parsed."""

    @property
    def files(self) -> tuple[syntax.File, ...]:
        """Syntax trees of the text and its imports."""
        return (*(() if self.file is None else (self.file,)), *self.imports)


def analyze(source: Source, folders: Sequence[Path], read: Reader, library: Library) -> Analysis:
    """Parses and checks a text. Imports may lie below `folders` too, and `read` gives their texts;
    graphs call operators of `library`."""
    reading = read_text(source)
    if reading.file is None:
        return Analysis(source, None, (), None, reading.diagnostics, False)
    loaded, mistakes = load_imports(reading.file, folders, read)
    if reading.diagnostics or mistakes:
        found = (*reading.diagnostics, *mistakes)
        whole = not reading.diagnostics
        return Analysis(source, reading.file, loaded.imports, None, found, whole)
    findings = examine(loaded, library)
    found = (*findings.errors, *findings.warnings)
    return Analysis(source, reading.file, loaded.imports, findings, found)
