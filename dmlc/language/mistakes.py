"""What the grammar refused, in the user's words, and how to read on behind it.

The statement, section or declaration at fault is left out, so that the rest can be read again and
one run reports every mistake that does not follow from another.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator

from dmlc.language.grammar import UnexpectedText, spellings
from dmlc.source import Diagnostic, Note, Source, Span, nearest

# Words -----------------------------------------------------------------------------------------

_WORDS = {
    "NAME": "a name",
    "EMPHASISED": "a name",
    "STRING": "a text in double quotes",
    "TABLE_ROW": "a table row '| ... |'",
    "INTEGER": "a whole number",
    "FLOAT": "a number",
    "CONSTANT": "a constant",
    "FUNCTION": "'function'",
    "REQUIRE": "'require'",
    "EXPECT": "'expect'",
    "OUTPUT": "'output'",
    "EQUALITY": "'=='",
    "COMPARISON": "'<'",
    "$END": "the end of the file",
}
_OPERATORS = {
    *("OR", "AND", "EQUALITY", "COMPARISON", "PLUS", "MINUS", "STAR", "SLASH", "PERCENT"),
    *("QMARK", "DOT", "LPAR", "LSQB", "PACK", "ELSE"),
}
_EXPRESSION = {
    *("INTEGER", "FLOAT", "CONSTANT", "STRING", "NAME", "LPAR", "LSQB", "MINUS", "NOT"),
}
_MOST_WORDS = 12
_SHOWN = 40
_UNDERLINED = 80


def describe(refused: UnexpectedText, source: Source, offset: int = 0) -> Diagnostic:
    """The diagnostic of a refusal; `offset` is where in the source the text refused stands."""
    start, found = offset + refused.start, refused.found
    rest = source.text[start : start + 2] if found else ""
    if rest == "/*":
        span = Span(source, start, start + 2)
        return Diagnostic("this comment is not closed: expected '*/'", span)
    if rest[:1] == '"' and len(found) == 1:
        span = Span(source, start, start + 1)
        return Diagnostic("this text is not closed: expected '\"'", span)
    words = _expected_words(refused.expected)
    shown = f"'{_short(found)}'" if found else "the end of the file"
    message = f"expected {words}, found {shown}" if words else f"unexpected {shown}"
    notes: tuple[Note, ...] = ()
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", found):
        suggestion = nearest(found, sorted(_keywords(refused.expected)))
        if suggestion is not None:
            notes = (Note(f"did you mean '{suggestion}'?"),)
    elif rest[:1] == "|":
        notes = (Note("a table row runs from a '|' to the last '|' of the same line"),)
    return Diagnostic(message, Span(source, start, start + min(len(found), _UNDERLINED)), notes)


def can_go_on(diagnostic: Diagnostic) -> bool:
    """Whether what follows a mistake can be told apart from it: not behind an open quote."""
    return "is not closed" not in diagnostic.message


def _short(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= _SHOWN and line == text else line[: _SHOWN - 3] + "..."


def _keywords(expected: frozenset[str]) -> Iterator[str]:
    for name in expected:
        spelled = _WORDS[name].strip("'") if name in _WORDS else spellings().get(name, "")
        if spelled.isalpha():
            yield spelled


def _expected_words(expected: frozenset[str]) -> str:
    """What a person would say is expected, most telling first."""
    left = expected - {"COMMENT", "SPACE"}
    words: list[str] = []
    if {"INTEGER", "LPAR"} <= left:
        words.append("an expression")
        left -= _EXPRESSION
    if {"PLUS", "STAR"} <= left:
        words.append("an operator")
        left -= _OPERATORS
    spelled = {_WORDS.get(name) or f"'{spellings().get(name, name.lower())}'" for name in left}
    words += sorted(spelled, key=lambda w: (w.startswith("'"), w))
    if len(words) > _MOST_WORDS:
        return ""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


# Parts -----------------------------------------------------------------------------------------


class Size(enum.IntEnum):
    """How much around a mistake to leave out."""

    STATEMENT = 0
    SECTION = 1
    DECLARATION = 2


@dataclasses.dataclass(frozen=True)
class _Part:
    """Where a statement, section or declaration starts, and how its first words run."""

    start: int
    head_end: int
    depth: int
    """How many braces are open around it."""
    statement: bool
    known: bool
    """Whether its first words are right, so that a mistake there is of the part before."""


_PIECE = re.compile(
    r"""
      (?P<skip> "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|$) | //[^\n]* | /\*(?:.*?\*/|.*) | ^[ \t]*\|[^\n]*\|)
    | (?P<open> \{ )
    | (?P<close> \} )
    | (?P<section> ^[ \t]*+(?:operator|graph|enum|function|import|module|attributes|tensors|types
        |constraints|compute|gradient|example|introduced|forward)\b(?![ \t]*=) )
    | (?P<statement> ^[ \t]*+(?:
        (?:(?:output|expect)[ \t]+)?[A-Za-z_]\w*(?:[ \t]*(?:\[[^\]\n]*\]|\([^()\n]*\)))?[ \t]*=(?!=)
        | require\b | [^\n"{}=|/]*\bmust\b) )
    | (?P<unknown> ^[ \t]*+[A-Za-z]\w*+(?:[ \t]+\w+)?[ \t]*(?=\{) )
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE | re.ASCII,
)


def leave_out(text: str, place: int, size: Size) -> tuple[str, int] | None:
    """The text with the part around or before a mistake blanked, and where that part started.

    None where there is no such part, or where its braces do not match.
    """
    around: list[_Part] = []
    before: list[_Part] = []
    fault: _Part | None = None
    depth = 0
    for match in _PIECE.finditer(text):
        kind = match.lastgroup
        reached = match.start() >= place
        if reached and fault is None:
            fault = _at_fault(around, size)
            if fault is None:
                return None
        if kind in ("section", "statement", "unknown"):
            if fault is not None and match.start() > place and depth <= fault.depth:
                return _blank(text, fault.start, match.start()), fault.start
            part = _Part(match.start(), match.end(), depth, kind == "statement", kind != "unknown")
            around = [p for p in around if p.depth < depth]
            if fault is None and part.known and match.start() <= place < match.end():
                fault = _before(part, before, size)
                if fault is not None:
                    return _blank(text, fault.start, match.start()), fault.start
            around.append(part)
            before.append(part)
        elif kind == "open":
            depth += 1
        elif kind == "close":
            if fault is not None and depth <= fault.depth:
                return _blank(text, fault.start, match.start()), fault.start
            depth -= 1
            if fault is not None and depth == fault.depth and not fault.statement:
                return _blank(text, fault.start, match.end()), fault.start
            around = [p for p in around if p.depth <= depth]
    fault = fault or _at_fault(around, size)
    if fault is None or fault.depth > 0:
        return None
    return _blank(text, fault.start, len(text)), fault.start


def _at_fault(parts: list[_Part], size: Size) -> _Part | None:
    """The last part of at least a size."""
    for part in reversed(parts):
        if size is Size.DECLARATION and part.depth > 0:
            continue
        if size is Size.SECTION and part.statement:
            continue
        return part
    return None


def _before(part: _Part, parts: list[_Part], size: Size) -> _Part | None:
    """What is at fault where a part cannot start: of statements the one before, in the same
    braces."""
    if not part.statement:
        return _at_fault(parts, max(size, Size.SECTION))
    last = parts[-1] if parts else part
    beside = last.statement and last.depth == part.depth and size is Size.STATEMENT
    return last if beside and last is not part else None


def _blank(text: str, start: int, end: int) -> str:
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
