"""Parser of files, which reports every independent syntax error.

The grammar is `grammar/dml.lark`. Nothing is resolved here; `check` does that.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import cast

from dmlc.files import read_bounded
from dmlc.language import syntax
from dmlc.language.build import Builder
from dmlc.language.grammar import UnexpectedText, read
from dmlc.language.limits import MAX_TOKENS, TOO_LONG, TOO_LONG_CURE, Excess, Limits, is_too_long
from dmlc.language.mistakes import BlankSize, Rest, can_go_on, describe, leave_out
from dmlc.source import Diagnostic, DmlcError, Note, Source, Span

SUFFIX = ".dml"
"""Suffix of the language's files."""
MAX_BYTES = 16 << 20
"""Largest file in bytes."""
MAX_ERRORS = 20
"""Largest number of errors that one run reports."""


def read_source(path: Path, span: Span | None = None) -> Source:
    """Text of a `.dml` file. Raises `DmlcError`, at the import if there is one, for a path that is
    no regular file with that suffix, is too large, or is not UTF-8. The target of a symbolic link
    must be such a file too: messages quote the text, so that no other file may be read."""
    target = resolve(path, span)
    if not os.path.isdir(target):
        if path.suffix != SUFFIX:
            raise DmlcError(f"'{path}' is no {SUFFIX} file", span, code="E0001")
        if target.suffix != SUFFIX:
            raise DmlcError(
                f"'{path}' leads to '{target}', which is no {SUFFIX} file", span, code="E0001"
            )
    content = read_bounded(path, MAX_BYTES, span)
    try:
        return Source(str(path), content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DmlcError(
            f"'{path}' is not UTF-8 text: byte {error.start} is wrong", span, code="E0001"
        ) from None


def resolve(path: Path, span: Span | None = None) -> Path:
    """Path with symbolic links and '..' resolved. Raises `DmlcError`."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        raise DmlcError("this is no file name", span, code="E0001") from None
    except FileNotFoundError:
        # The working directory was removed: nothing can be read by a path that begins in it.
        return Path(os.path.normpath(path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DmlcError(f"cannot read '{path}': {reason}", span, code="E0001") from None


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Result of a parse: tree and diagnostics."""

    file: syntax.File | None
    """Syntax tree; after an error, that of the text without the erroneous parts, or None if the
    rest cannot be parsed either."""
    diagnostics: tuple[Diagnostic, ...]
    """Up to 20 errors, in the order of the text."""


def parse(source: Source) -> syntax.File:
    """Syntax tree of a `.dml` text. Raises `DmlcError` with up to 20 errors."""
    reading = read_text(source)
    if reading.file is None or reading.diagnostics:
        raise DmlcError(reading.diagnostics)
    return reading.file


def read_text(source: Source) -> Reading:
    """Parses a `.dml` text, with or without errors."""
    try:
        _refuse_unreadable(source)
    except DmlcError as error:
        return Reading(None, error.diagnostics)
    diagnostics: list[Diagnostic] = []
    made: syntax.File | None = None
    rest: Rest | None = Rest(source.text, 0, 0)
    size, tokens = BlankSize.STATEMENT, 0
    while rest is not None and len(diagnostics) < MAX_ERRORS and tokens < MAX_TOKENS:
        text, limits = rest.text, Limits()
        try:
            tree = read(text, "start", limits.see)
        except Excess as excess:
            diagnostics.append(_too_much(excess, source))
            break
        except UnexpectedText as refused:
            tokens += limits.tokens
            # Nothing was read between the part left out and this: it follows from that part.
            follows = bool(diagnostics) and not text[rest.start : refused.start].strip()
            if follows and size is BlankSize.DECLARATION:
                break
            size = BlankSize(size + 1) if follows else BlankSize.STATEMENT
            rest = leave_out(text, refused.start, size) if can_go_on(refused, text) else None
            if not follows:
                diagnostics.append(_describe(refused, rest, source))
        else:
            builder = Builder(source, partial=bool(diagnostics))
            made = cast(syntax.File, builder.build(tree))
            diagnostics += builder.diagnostics
            break
    diagnostics.sort(key=_locate)
    return Reading(made, tuple(diagnostics[:MAX_ERRORS]))


def _describe(refused: UnexpectedText, rest: Rest | None, source: Source) -> Diagnostic:
    """Diagnostic of a refusal, with the preceding part if that is what was blanked."""
    found = describe(refused, source)
    if rest is None or rest.end > refused.start or found.notes:
        return found
    line = source.text[rest.start : rest.end].strip().split("\n", 1)[0].rstrip()
    start = source.text.index(line, rest.start)
    note = Note("is this complete?", Span(source, start, start + len(line)))
    return dataclasses.replace(found, notes=(note,))


def parse_expression(source: Source, start: int, end: int) -> syntax.Expression:
    """An expression inside a larger text (a table's cell). Raises `DmlcError`."""
    try:
        tree = read(source.text[start:end], "expression", Limits().see)
    except Excess as excess:
        raise DmlcError(_too_much(excess, source, start)) from None
    except UnexpectedText as refused:
        raise DmlcError(describe(refused, source, start)) from None
    builder = Builder(source, start)
    made = cast(syntax.Expression, builder.build(tree))
    if builder.diagnostics:
        raise DmlcError(sorted(builder.diagnostics, key=_locate))
    return made


def _locate(diagnostic: Diagnostic) -> int:
    return 0 if diagnostic.span is None else diagnostic.span.start


def _too_much(excess: Excess, source: Source, offset: int = 0) -> Diagnostic:
    start = offset + (excess.token.start_pos or 0)
    return Diagnostic(
        excess.message, Span(source, start, start + len(excess.token)), excess.notes, code="E0003"
    )


def _refuse_unreadable(source: Source) -> None:
    """Raises `DmlcError` for characters that the lexer must not see."""
    if len(source.text) > MAX_BYTES or len(source.text.encode("utf-8", "replace")) > MAX_BYTES:
        raise DmlcError(
            f"{source.name}: the file is larger than {MAX_BYTES >> 20} MiB", code="E0003"
        )
    found = re.search("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]", source.text)
    if found is not None:
        code = ord(found.group())
        span = Span(source, found.start(), found.end())
        raise DmlcError(
            f"the character U+{code:04X} cannot stand in a .dml file", span, code="E0002"
        )
    if is_too_long(source.text):
        raise DmlcError(f"{source.name}: {TOO_LONG}", notes=[TOO_LONG_CURE], code="E0003")
