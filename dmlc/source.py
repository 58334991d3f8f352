"""Sources, spans, and diagnostics.

Every later stage keeps the `Span` of its nodes, so that an error found while binding or lowering
still points at the user's line. Nothing here interprets the text.
"""

from __future__ import annotations

import bisect
import dataclasses
import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, TypeAlias, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Source:
    """A named text. `name` is its name in diagnostics: a file name, or `<text>`."""

    name: str
    text: str = dataclasses.field(repr=False)

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return starts

    def locate(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column (in characters) of an offset into the text."""
        line = bisect.bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        """Text of a 1-based line, without its line break."""
        start = self._line_starts[line - 1]
        end = self._line_starts[line] if line < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters `[start, end)` of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.locate(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.locate(self.start)[1]

    @property
    def end_line(self) -> int:
        return self.source.locate(self.end)[0]

    @property
    def end_column(self) -> int:
        """Column of the first character after the range, on `end_line`."""
        return self.source.locate(self.end)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """Span from the start of this one to the end of `other`."""
        return Span(self.source, self.start, max(self.end, other.end))

    def part(self, start: int, end: int) -> Span:
        """Span of some characters of this one, counted from its start."""
        return Span(self.source, self.start + start, self.start + end)


@dataclasses.dataclass(frozen=True, slots=True)
class Edit:
    """Replacement of a span of a source, empty for an insertion, by a text."""

    span: Span
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Text after edits that do not overlap."""
    for edit in sorted(edits, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


Fix: TypeAlias = tuple[Edit, ...]
"""Edits that together correct an error. They do not overlap."""


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Note of a diagnostic, with a span of its own if it has one."""

    message: str
    span: Span | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnostic:
    """Error or warning: message, span, and cure (`notes`). A warning is about a likely error that
    may be intended."""

    message: str
    span: Span | None = None
    notes: tuple[Note, ...] = ()
    warning: bool = False
    code: str | None = None
    """Code of the kind of diagnostic: `E0401`, or `W0001` for a warning, which stays the same while
    messages change. `dmlc explain E0401` describes it."""
    fixes: tuple[Fix, ...] = ()
    """Fixes, each of which carries out a cure, the most likely first; editors offer them."""

    def render(self) -> str:
        """Text for a person: location, message, code, source line with the span underlined."""
        kind = "warning" if self.warning else "error"
        said = f"{kind}: {self.message}" + (f" [{self.code}]" if self.code else "")
        if self.span is None:
            lines = [said]
        else:
            place = f"{self.span.source.name}:{self.span.line}:{self.span.column}"
            lines = [f"{place}: {said}", *_excerpt(self.span)]
        for note in self.notes:
            if note.span is None:
                lines.append(f"  note: {note.message}")
            else:
                place = f"{note.span.source.name}:{note.span.line}:{note.span.column}"
                lines += [f"  {place}: note: {note.message}", *_excerpt(note.span)]
        return "\n".join(lines)


_EXCERPT_WIDTH = 120


def _excerpt(span: Span) -> list[str]:
    """Source line of a span with a caret line below it, shortened to a readable width."""
    line, column = span.source.locate(span.start)
    text = span.source.line_text(line)
    first = max(0, column - 1 - _EXCERPT_WIDTH // 2) if len(text) > _EXCERPT_WIDTH else 0
    shown = text[first : first + _EXCERPT_WIDTH].expandtabs(1)
    shown = printable(shown)
    underline = max(1, min(span.end - span.start, len(shown) - (column - 1 - first)))
    gutter = f"{line:>5} | "
    caret = " " * (column - 1 - first) + "^" * underline
    return [f"{gutter}{shown}", f"{' ' * (len(gutter) - 2)}| {caret}"]


def printable(text: str) -> str:
    """Text without terminal control: of unprintable characters, such as escapes and marks of
    writing direction, only line breaks and tabs remain."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" or unicodedata.category(c) == "Zs" else "\ufffd"
        for c in text
    )


class DmlcError(Exception):
    """Error in the user's input: one or more diagnostics, most important first. `str(error)` is the
    text of the command line."""

    usual_code: ClassVar[str | None] = None
    """Code of its diagnostics that have none of their own."""

    def __init__(
        self,
        diagnostics: str | Diagnostic | Iterable[Diagnostic],
        span: Span | None = None,
        notes: Sequence[str | Note] = (),
        code: str | None = None,
    ) -> None:
        if isinstance(diagnostics, str):
            made = tuple(n if isinstance(n, Note) else Note(n) for n in notes)
            diagnostics = Diagnostic(diagnostics, span, made, code=code)
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        usual = self.usual_code
        self.diagnostics: tuple[Diagnostic, ...] = tuple(
            dataclasses.replace(d, code=usual) if usual and not d.code else d for d in diagnostics
        )
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return "\n".join(d.render() for d in self.diagnostics)


class ArgumentError(DmlcError, TypeError):
    """Value of a type that a parameter does not accept; the message names the parameter."""

    usual_code = "E0903"
    __str__ = DmlcError.__str__


class UnknownNameError(DmlcError, KeyError):
    """Unknown name; the notes have the nearest known ones."""

    __str__ = DmlcError.__str__


class UnsupportedError(DmlcError):
    """Well-formed input that this version, or the chosen target, cannot express."""

    usual_code = "E0901"


class UnavailableError(DmlcError):
    """Required device or external tool that is missing; the notes have the cure."""

    usual_code = "E0902"


class InternalError(Exception):
    """Violation of the compiler's own invariants: a bug in dmlc, never the user's error."""


def list_names(names: Sequence[str], most: int = 8) -> str:
    """Names on one line: `X, Y`; of many, the first ones."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def join_words(words: Iterable[str], joint: str = "or") -> str:
    """List in a sentence: `A`, `A or B`, `A, B or C`."""
    *rest, last = (*words,) or ("",)
    return f"{', '.join(rest)} {joint} {last}" if rest else last


def counted(count: int, one: str, many: str | None = None) -> str:
    """Number with its noun: `1 value`, `3 values`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Known name closest to a misspelt one, or None if none is close."""
    folded = {c.lower(): c for c in reversed(list(known))}
    if name.lower() in folded:
        return folded[name.lower()]
    begun = [c for c in folded if c.startswith(name.lower())]
    if len(name) > 1 and len(begun) == 1:
        return folded[begun[0]]
    worded = _nearest_by_words(name, folded.values()) or _unabbreviated(name, folded.values())
    if worded is not None:
        return worded
    head, dot, tail = name.lower().rpartition(".")
    if dot:
        # Names of one family have its name in common, which says nothing.
        family = {c.rpartition(".")[2]: c for c in folded if c.rpartition(".")[0] == head}
        found = difflib.get_close_matches(tail, list(family), n=1, cutoff=0.6)
        if family:
            return folded[family[found[0]]] if found else None
    found = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.6)
    return folded[found[0]] if found else None


_NAME_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _nearest_by_words(name: str, known: Iterable[str]) -> str | None:
    """Shortest known name that has all the words of a name and more, `ACTIVATION_RELU` for `RELU`;
    those of one family first. None for short names, and if there is none."""
    family, _, own = name.rpartition(".")
    words = {w.lower() for w in _NAME_WORD.findall(own)}
    if len(own) < 4 or not words:
        return None
    having = [k for k in known if words <= {w.lower() for w in _NAME_WORD.findall(k)}]
    return min(having, key=lambda k: (not k.startswith(f"{family}."), len(k), k), default=None)


def _unabbreviated(name: str, known: Iterable[str]) -> str | None:
    """Shortest known name that a name abbreviates: it consists of prefixes of all its words, each
    of at least two letters, `CUMULATIVE_SUMMATION` for `CUMSUM`; of its own family, if it has
    one."""
    family, _, own = name.rpartition(".")
    short = own.replace("_", "").lower()
    if len(short) < 4:
        return None
    having = [
        k for k in known
        if k.rpartition(".")[0] == family or not family
        if _is_short_for(short, [w.lower() for w in _NAME_WORD.findall(k.rpartition(".")[2])])
    ]  # fmt: skip
    return min(having, key=lambda k: (len(k), k), default=None)


def _is_short_for(short: str, words: Sequence[str]) -> bool:
    """Whether a text is a concatenation of prefixes of several words, in order."""
    ends = {0}
    for word in words:
        ends = {
            end + count for end in ends for count in range(min(2, len(word)), len(word) + 1)
            if short.startswith(word[:count], end)
        }  # fmt: skip
    return len(words) > 1 and len(short) in ends


UNKNOWN_NAME = "E0201"
"""Code of an unknown name without a more specific code."""


def unknown_name(
    what: str,
    name: str,
    known: Iterable[str],
    span: Span | None = None,
    code: str = UNKNOWN_NAME,
    cure: str | None = None,
    meant: str | None = None,
) -> Diagnostic:
    """Diagnostic of an unknown name. `what` is the kind of thing, as in `unknown tensor 'Imput'`;
    `cure` is the advice for this name, or `meant` its correction, if known."""
    candidates = list(known)
    suggestion = None if cure else meant or nearest(name, candidates[:5000])
    if cure is not None:
        notes = (Note(cure),)
    elif suggestion is not None:
        notes = (Note(f"did you mean '{suggestion}'?"),)
    elif candidates and len(candidates) <= 12:
        notes = (Note(f"known here: {', '.join(candidates)}"),)
    else:
        notes = ()
    shown = name if len(name) <= 80 else name[:77] + "..."
    fixes = replace_word(span, name, suggestion)
    return Diagnostic(f"unknown {what} '{shown}'", span, notes, code=code, fixes=fixes)


def check_known(
    what: str,
    known: Collection[str],
    *names: str,
    span: Span | None = None,
    code: str = UNKNOWN_NAME,
    error: type[DmlcError] = UnknownNameError,
) -> None:
    """Raises `error` with the diagnostic of the first of some names that is unknown."""
    for name in names:
        if name not in known:
            raise error(unknown_name(what, name, known, span, code))


def find_named(
    what: str,
    name: str,
    known: Mapping[str, T],
    span: Span | None = None,
    code: str = UNKNOWN_NAME,
    error: type[DmlcError] = UnknownNameError,
) -> T:
    """Value of a name. Raises `error` as `check_known` does."""
    check_known(what, known, name, span=span, code=code, error=error)
    return known[name]


def replace_word(span: Span | None, old: str, new: str | None) -> tuple[Fix, ...]:
    """Fix that replaces a word that occurs once in a span, as no part of another; empty if it does
    not, or without a replacement."""
    if span is None or new is None or not old:
        return ()
    found = [*re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)", span.text)]
    return ((Edit(span.part(*found[0].span()), new),),) if len(found) == 1 else ()
