"""Diagnostics of syntax errors, and recovery.

The statement, section or declaration with the error is blanked, so that the rest can be parsed
again and one run reports every independent error.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import re
from collections.abc import Iterator

from dmlc.language.foreign_syntax import find_foreign
from dmlc.language.grammar import UnexpectedText, spellings
from dmlc.source import (
    Diagnostic,
    Edit,
    Fix,
    Note,
    Source,
    Span,
    join_words,
    nearest,
    replace_word,
)

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
    "WITHIN": "'within'",
    "GRADIENT_OF": "'gradient of'",
    "INSTEAD_OF": "'instead of'",
    "WITH_RESPECT_TO": "'with respect to'",
    "FROM": "'from'",
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
    "GRADIENT_OF",
}
_BEHIND = re.compile(r"\s*(\w+|\S|$)")
_WORD = re.compile(r"\w[\w.]*")
_MOST_WORDS = 12
_SHOWN = 40
_UNDERLINED = 80
_LOOKED_AT = 2000
"""Number of characters searched backwards for an open parenthesis."""


def describe(refused: UnexpectedText, source: Source, offset: int = 0) -> Diagnostic:
    """Diagnostic of a refusal; `offset` is that of the refused text in the source."""
    start, found = offset + refused.start, refused.found
    rest = source.text[start : start + 2] if found else ""
    if rest == "/*":
        span = Span(source, start, start + 2)
        return Diagnostic("this comment is not closed: expected '*/'", span, code="E0102")
    if rest[:1] == '"' and len(found) == 1:
        span = Span(source, start, start + 1)
        return Diagnostic("this text is not closed: expected '\"'", span, code="E0102")
    if found:
        # The whole word: the grammar may have stopped within one.
        word = _WORD.match(source.text, start)
        found = word.group() if word is not None and len(word.group()) > len(found) else found
    if found in _keywords(refused.expected):
        # Such a word is a keyword only before a name, and no name follows it.
        behind = _BEHIND.match(source.text, start + len(found))
        place, text = (start, "") if behind is None else (behind.start(1), behind.group(1))
        return describe(UnexpectedText(place - offset, text, frozenset({"NAME"})), source, offset)
    foreign = find_foreign(source.text, start, refused.expected)
    if foreign is not None:
        span = Span(source, foreign.start, foreign.end)
        message = f"{foreign.message}: {foreign.cure}"
        fixes: tuple[Fix, ...] = ()
        if foreign.edit is not None:
            first, last, text = foreign.edit
            fixes = ((Edit(Span(source, first, last), text),),)
        return Diagnostic(message, span, code="E0108", fixes=fixes)
    words = _expected_words(refused.expected)
    shown = f"'{_short(found)}'" if found else "the end of the file"
    message = f"expected {words}, found {shown}" if words else f"unexpected {shown}"
    span = Span(source, start, start + min(len(found), _UNDERLINED))
    sentence, forms = _list_sentences(source, start)
    if forms:
        first, *others = forms
        others_said = join_words([f"'{form}'" for form in others])
        notes = [Note(f"write '{first}'"), Note(f"or {others_said}")]
        fixes = tuple((Edit(sentence, form),) for form in forms)
    else:
        near = _find_keyword(found, refused.expected)
        notes = [Note(cure) for cure in _cures(found, rest, near, refused.expected)]
        fixes = replace_word(span, found, near)
    if "PLUS" in refused.expected:
        notes += _find_missing(source, start, found)
    return Diagnostic(message, span, tuple(notes), code="E0101", fixes=fixes)


def _find_keyword(found: str, expected: frozenset[str]) -> str | None:
    """Expected keyword that is close to a word."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", found):
        return None
    return nearest(found, sorted(_keywords(expected)))


def _cures(found: str, rest: str, near: str | None, expected: frozenset[str]) -> Iterator[str]:
    """Suggestions; `rest` is the text at the refusal, at least its first two characters, and `near`
    the keyword probably meant."""
    if near is not None:
        yield f"did you mean '{near}'?"
    elif re.match(r"\.?[0-9]", rest) and "INTEGER" in expected:
        yield "numbers are written as 1, 1.5 or 1e-5"
    elif re.search(r"[^\W0-9]", found) and not found.isascii():
        yield "names are made of the letters A to Z, a to z, digits and '_'"
    if "TABLE_ROW" in expected:
        yield "a table row runs from a '|' to the last '|' of the same line"


_CONSTRAINTS = re.compile(r"\bconstraints\s*\{[^{}]*$")
_TENSOR = re.compile(
    r"^[ \t]*\|\s*[*_`]*(\w+?)[*_`]*\s*\|\s*(?:optional\s+)?(?:in|out)put\b", re.I | re.M
)
_FACTS = ("DataType", "DimensionCount", "Sizes")


def _list_sentences(source: Source, start: int) -> tuple[Span, list[str]]:
    """Span of the sentence at an offset of `constraints`, and the forms it may have for the tensors
    that it names, nearest first; no forms if no sentence is refused."""
    text = source.text
    first = text.rfind("\n", 0, start) + 1
    before = text[max(0, start - _LOOKED_AT) : start]
    opened = _CONSTRAINTS.search(before)
    line = text[first:].partition("\n")[0].rpartition("{")[2].strip(" \t-*}")[:_LOOKED_AT]
    place = text.find(line, first)
    span = Span(source, place, place + len(line))
    if opened is None or line.startswith("require"):
        return span, []
    words = re.findall(r"\w+", line)
    rows = _TENSOR.findall(text[max(0, text.rfind("operator", 0, start)) : start])
    named = [word for word in dict.fromkeys(words) if word in rows]
    named += [row for row in dict.fromkeys(rows) if row not in named]
    if len(named) < 2:
        named = ["A", "B"]
    one, two = named[:2]
    facts = [fact for fact in _FACTS if fact.lower() in line.lower()] or ["Sizes"]
    same = f"{one} and {two} must have the same {join_words(facts, 'and')}."
    forms = [
        same,
        f"{one} must be broadcastable to {two}.",
        f"{one} must be a scalar.",
        f"require {one}.Sizes == {two}.Sizes",
    ]

    def likeness(form: str) -> float:
        return difflib.SequenceMatcher(None, line.lower(), form.lower()).ratio()

    return span, sorted(forms, key=likeness, reverse=True)


def _find_missing(source: Source, start: int, found: str) -> Iterator[Note]:
    """Notes about a token that may be missing, if an operator is accepted."""
    opened = _find_open(source.text, start)
    line = source.text[source.text.rfind("\n", 0, start) + 1 : start]
    if opened is not None and (not line.strip() or found in ("}", "{", "")):
        span = Span(source, opened, opened + 1)
        yield Note(f"this '{span.text}' is not closed", span)
    elif line.strip() and re.match(r'[\w"(]', found):
        yield Note(f"is an operator or a ',' missing before '{_short(found)}'?")


def _find_open(text: str, end: int) -> int | None:
    """Innermost open bracket or parenthesis at an offset, within the braces around it."""
    opened: list[int] = []
    start = max(text.rfind("{", 0, end) + 1, text.rfind("}", 0, end) + 1, end - _LOOKED_AT)
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|//[^\n]*|\|[^\n]*\||[()\[\]]', text[start:end]):
        if found[0] in "([":
            opened.append(start + found.start())
        elif found[0] in ")]" and opened:
            opened.pop()
    return opened[-1] if opened else None


def can_go_on(refused: UnexpectedText, text: str) -> bool:
    """Whether recovery is possible after a refusal: not after an open quote or comment."""
    return not (refused.found == '"' or text.startswith("/*", refused.start))


def _short(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= _SHOWN and line == text else line[: _SHOWN - 3] + "..."


def spell_keyword(terminal: str) -> str:
    """Keyword, or keywords, of a terminal: `gradient of`; empty for any other."""
    word = _WORDS.get(terminal)
    spelled = f"'{spellings().get(terminal, '')}'" if word is None else word
    quoted = re.fullmatch(r"'([a-z]+(?: [a-z]+)*)'", spelled)
    return "" if quoted is None else quoted.group(1)


def _keywords(expected: frozenset[str]) -> Iterator[str]:
    spelled = map(spell_keyword, expected)
    return (word for word in spelled if word.isalpha())


def _expected_words(expected: frozenset[str]) -> str:
    """Description of the expected terminals, most telling first."""
    left = expected - {"COMMENT", "SPACE", "_BULLET"}
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
    return join_words(words)


# Parts -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Rest:
    """Text with the part from `start` to `end` blanked."""

    text: str
    start: int
    end: int


class BlankSize(enum.IntEnum):
    """Size of the part to blank around an error."""

    STATEMENT = 0
    SECTION = 1
    DECLARATION = 2


@dataclasses.dataclass(frozen=True, slots=True)
class _TextPart:
    """Beginning of a statement, section or declaration, and its first words."""

    start: int
    depth: int
    """Number of open braces around it."""
    statement: bool
    known: bool
    """Whether its first words are valid, so that an error there belongs to the part before."""


_PIECE = re.compile(
    r"""
      (?P<skip> "[^"\\]*+(?:\\.[^"\\]*+)*(?:"|$) | //[^\n]* | /\*(?:.*?\*/|.*) | ^[ \t]*\|[^\n]*\|)
    | (?P<open> \{ )
    | (?P<close> \} )
    | (?P<section> ^[ \t]*+(?:operator|graph|enum|function|import|module|attributes|tensors|types
        |constraints|compute|gradient|example|differs|introduced|forward)\b(?![ \t]*=) )
    | (?P<statement> ^[ \t]*+(?:
        (?:(?:output|expect|function)[ \t]+)?
            [A-Za-z_]\w*(?:[ \t]*(?:\[[^\]\n]*\]|\([^()\n]*\)|(?:,[ \t]*[A-Za-z_]\w*)+))?
            (?:[ \t]*:[ \t]*[A-Za-z_]\w*)?[ \t]*=(?!=)
        | require\b | [^\n"{}=|/]*\bmust\b) )
    | (?P<strange> ^[ \t]*+[A-Za-z_]\w*[ \t]+[A-Za-z_]\w*[ \t]*=(?!=) )
    | (?P<unknown> ^[ \t]*+[A-Za-z]\w*+(?:[ \t]+\w+)?[ \t]*(?=\{) )
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE | re.ASCII,
)


def leave_out(text: str, place: int, size: BlankSize) -> Rest | None:
    """Text with the part around or before an error blanked; None if there is no such part, or its
    braces do not match."""
    around: list[_TextPart] = []
    before: list[_TextPart] = []
    fault: _TextPart | None = None
    depth = 0
    for match in _PIECE.finditer(text):
        kind = match.lastgroup
        if kind == "close" and depth == 0 and match.start() == place:
            return _blank(text, place, match.end())
        starts = kind in ("section", "statement", "strange", "unknown")
        if fault is None and match.start() >= place + starts:
            fault = _at_fault(around, size)
            if fault is None:
                return None
        if starts:
            if fault is not None and match.start() > place and depth <= fault.depth:
                return _blank(text, fault.start, match.start())
            known = kind in ("section", "statement")
            statement = kind in ("statement", "strange")
            part = _TextPart(match.start(), depth, statement, known)
            around = [p for p in around if p.depth < depth]
            if fault is None and part.known and match.start() <= place < match.end():
                fault = _before(part, before, size)
                if fault is not None:
                    return _blank(text, fault.start, match.start())
            around.append(part)
            before.append(part)
        elif kind == "open":
            depth += 1
        elif kind == "close":
            if fault is not None and depth <= fault.depth:
                return _blank(text, fault.start, match.start())
            depth -= 1
            if fault is not None and depth == fault.depth and not fault.statement:
                return _blank(text, fault.start, match.end())
            around = [p for p in around if p.depth <= depth]
    fault = fault or _at_fault(around, size)
    if fault is None or fault.depth > 0:
        return None
    return _blank(text, fault.start, len(text))


def _at_fault(parts: list[_TextPart], size: BlankSize) -> _TextPart | None:
    """Last part of at least a size."""
    for part in reversed(parts):
        if size is BlankSize.DECLARATION and part.depth > 0:
            continue
        if size is BlankSize.SECTION and part.statement:
            continue
        return part
    return None


def _before(part: _TextPart, parts: list[_TextPart], size: BlankSize) -> _TextPart | None:
    """Part with the error if a part cannot start here: the statement before, in the same braces."""
    if not part.statement:
        return _at_fault(parts, max(size, BlankSize.SECTION))
    last = parts[-1] if parts else part
    beside = last.statement and last.depth == part.depth and size is BlankSize.STATEMENT
    return last if beside and last is not part else None


def _blank(text: str, start: int, end: int) -> Rest:
    return Rest(text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:], start, end)
