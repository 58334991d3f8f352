"""Resolution of the word at an offset: a symbol of the file, of an import, of the library, or of
the language itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from dmlc.editor.documents import Document
from dmlc.editor.lexical import Context, Token, TokenKind, find_context, find_word
from dmlc.editor.scopes import (
    FoundOperator,
    Member,
    Scope,
    Symbol,
    What,
    find_operator,
    make_scope,
)
from dmlc.language import syntax
from dmlc.language.builtins import ARRAY_FACTS, FACTS, GRAPH_FUNCTIONS, REDUCTIONS, SENTENCE_FACTS
from dmlc.language.check_graph import called_name
from dmlc.language.definitions import AttributeDefinition, EnumDefinition
from dmlc.language.tables import plain
from dmlc.scalars import find_data_type
from dmlc.source import Source, Span


@dataclasses.dataclass(frozen=True, slots=True)
class Resolved:
    """Word with its span and its symbol."""

    symbol: Symbol
    start: int
    end: int
    scope: Scope


def resolve_word(document: Document, offset: int) -> Resolved | None:
    """Symbol of the word at an offset; None if there is no word, or an unknown one."""
    imported = _find_import(document, offset)
    if imported is not None:
        return imported
    word = find_word(document.tokens, offset)
    if word is None:
        return None
    found = Occurrence.at(document, word)
    symbol = found.resolve()
    return None if symbol is None else Resolved(symbol, word.start, word.end, found.scope)


def _find_import(document: Document, offset: int) -> Resolved | None:
    """File named by the import at an offset."""
    file = document.analysis.file
    for node in () if file is None else file.declarations:
        if isinstance(node, syntax.Import) and node.span.start <= offset <= node.span.end:
            target = Path(os.path.realpath(Path(document.name).parent / node.path))
            symbol = Symbol(What.FILE, node.path, Span(Source(str(target), ""), 0, 0))
            context = find_context(document.text, document.tokens, offset)
            return Resolved(symbol, node.span.start, node.span.end, make_scope(document, context))
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Occurrence:
    """Occurrence of a word in its context."""

    document: Document
    word: Token
    context: Context
    scope: Scope

    @staticmethod
    def at(document: Document, word: Token) -> Occurrence:
        return Occurrence.of(
            document, word, find_context(document.text, document.tokens, word.end, word)
        )

    @staticmethod
    def of(document: Document, word: Token, context: Context) -> Occurrence:
        """Occurrence of a word with a known context."""
        return Occurrence(document, word, context, make_scope(document, context))

    def resolve(self) -> Symbol | None:
        """Symbol of the word, or None."""
        if self.context.inside is not None:
            return self.of_row(self.context.inside)
        parts, index = self.parts()
        if len(parts) > 1:
            found = self.find_operator(".".join(parts)) or self.member(parts, index)
            if found is not None or index > 0:
                return found
        return (
            self.label()
            or self.expected_member()
            or self.compared_fact()
            or self.of_forward()
            or self.function()
            or self.scope.find(self.word.text)
            or self.find_operator(self.word.text)
            or find_built_in(self.word.text)
        )

    # Dotted names -------------------------------------------------------------------------

    def parts(self) -> tuple[list[str], int]:
        """Parts of the dotted name around the word, and the word's index among them."""
        left = dotted_parts(self.context.before)
        text, place = self.document.text, self.word.end
        right: list[str] = []
        while text[place : place + 1] == ".":
            following = find_word(self.document.tokens, place + 1)
            if following is None or following.start != place + 1:
                break
            right.append(following.text)
            place = following.end
        return [*left, self.word.text, *right], len(left)

    def find_operator(self, name: str) -> Symbol | None:
        found = self.scope.file.get(name)
        if found is not None and found.what in (What.OPERATOR, What.GRAPH):
            return found
        operator = find_operator(self.document, name)
        if operator is None:
            return None
        span = operator.node.name.span
        return Symbol(What.OPERATOR, operator.name, span, operator.node, operator.name)

    def member(self, parts: Sequence[str], index: int) -> Symbol | None:
        """Fact about a tensor, or output of a call."""
        name = parts[index]
        if index != 1:
            return None
        called = find_called(self.document, self.scope, parts[0])
        if called is not None:
            return called.symbols.get(name)
        if name in FACTS or name in ARRAY_FACTS:
            return Symbol(What.FACT, name, None, owner=parts[0])
        return None

    # Words in rows of tables ---------------------------------------------------------------

    def of_row(self, row: Token) -> Symbol | None:
        """Symbol of a word in a cell, which depends on the column, since a tensor may be called
        `Input`."""
        name, own = self.word.text, self.scope.own
        title = find_column(self.context.before, row, self.word.start)
        if self.context.section == "types":
            return own.get(name) if title is None else find_built_in(name)
        if title in ("tensor", "attribute", "dimensions"):
            kinds = {"tensor": What.TENSOR, "attribute": What.ATTRIBUTE, "dimensions": What.SIZE}
            found = own.get(name)
            return found if found is not None and found.what is kinds[title] else None
        if title in ("supported data types", "types"):
            return find_built_in(name)
        if title not in ("type", "default"):
            return None
        if row.text[: self.word.start - row.start].endswith("."):
            return Symbol(What.FACT, name, None) if name in FACTS or name in ARRAY_FACTS else None
        return self.member_of_row(row) or self.scope.find(name) or find_built_in(name)

    def member_of_row(self, row: Token) -> Symbol | None:
        """Member of the enum that the row of an attribute names."""
        about = getattr(self.scope.own.get(plain(row.text.split("|")[1])), "about", None)
        return self.member_of(about.enum if isinstance(about, AttributeDefinition) else None)

    # Words in their places ----------------------------------------------------------------

    def label(self) -> Symbol | None:
        """Row of a call's labelled argument: `InputTensor:`."""
        called, before = find_call(self.document, self.context), self.context.before
        after = self.document.text[self.word.end :].lstrip(" \t")[:1]
        starts = bool(before) and before[-1].text in ("(", ",")
        if called is None or after != ":" or not starts:
            return None
        return called.symbols.get(self.word.text)

    def expected_member(self) -> Symbol | None:
        """Member of an enum, where one is expected."""
        row = find_compared(self.document, self.context, self.scope)
        return self.member_of(None if row is None else row.enum)

    def member_of(self, enum: EnumDefinition | None) -> Symbol | None:
        """Member of an enum that the word names."""
        short = None if enum is None else enum.find(self.word.text)
        if enum is None or short is None:
            return None
        own = self.scope.file.get(short)
        span = enum.span
        if own is not None and isinstance(own.about, Member) and own.about.enum == enum.name:
            span = own.span or span
        about = Member(enum.name, short, enum.members[short])
        return Symbol(What.MEMBER, short, span, about)

    def compared_fact(self) -> Symbol | None:
        """Fact that a sentence equates."""
        sentence = self.context.section == "constraints" and self.word.text in SENTENCE_FACTS
        same = any(token.text == "same" for token in self.context.before)
        return Symbol(What.FACT, self.word.text, None) if sentence and same else None

    def of_forward(self) -> Symbol | None:
        """Symbol of a name in the forward operator of a gradient."""
        forward = find_forward(self.document, self.context)
        return None if forward is None else forward.symbols.get(self.word.text)

    def function(self) -> Symbol | None:
        """Callee of a call: a tensor may be called `mean` too."""
        if self.document.text[self.word.end : self.word.end + 1] != "(":
            return None
        found = self.scope.find(self.word.text)
        if found is not None and found.what is What.FUNCTION:
            return found
        return find_built_in(self.word.text)


def find_column(before: Sequence[Token], row: Token, offset: int) -> str | None:
    """Title of the column that contains an offset in a row, in lower case; None in the header row.
    `before` has the tokens of the table before the row."""
    rows = [token for token in before if token.kind is TokenKind.ROW]
    if not rows:
        return None
    column = row.text[: offset - row.start].count("|") - 1
    cells = rows[0].text.split("|")[1:]
    return plain(cells[column]).lower() if 0 <= column < len(cells) else ""


def dotted_parts(before: Sequence[Token]) -> list[str]:
    """Parts of a dotted name before its last one."""
    found: list[str] = []
    tokens = list(before)
    while len(tokens) >= 2 and tokens[-1].text == "." and tokens[-2].kind is TokenKind.WORD:
        found.insert(0, tokens[-2].text)
        del tokens[-2:]
    return found


def find_called(document: Document, scope: Scope, name: str) -> FoundOperator | None:
    """Operator of the call that a name of a graph holds."""
    statement = scope.statements.get(name)
    value = statement.value if isinstance(statement, syntax.GraphStatement) else None
    called = called_name(value) if isinstance(value, syntax.Call) else None
    return None if called is None else find_operator(document, called)


def find_call(document: Document, context: Context) -> FoundOperator | None:
    """Operator among whose arguments an offset of a graph is."""
    brackets = context.brackets
    if context.keyword != "graph" or not brackets or brackets[-1].mark != "(":
        return None
    return find_operator(document, brackets[-1].name) if brackets[-1].name else None


def find_forward(document: Document, context: Context) -> FoundOperator | None:
    """Operator whose tensors may be named at this point: after `with respect to`, and on the right
    side of a line of `gradient of X { ... }` and of `forward X { ... }`."""
    words = [t.text for t in context.before]
    if context.section in ("gradient", "forward"):
        if "=" not in words:
            return None
        words = list(context.head)
    elif words[:2] != ["gradient", "of"] or "respect" not in words or context.depth != 1:
        return None
    name = words[1:] if context.section == "forward" else words[2:]
    end = next((n for n, w in enumerate(name) if w != "." and n % 2), len(name))
    return find_operator(document, "".join(name[:end]))


def find_compared(document: Document, context: Context, scope: Scope) -> AttributeDefinition | None:
    """Attribute that the value at this point is compared with, or given to: `Mode ==`, `Mode:`,
    `Mode =`."""
    before = context.before
    if len(before) < 2 or before[-1].text not in ("==", "!=", ":", "="):
        return None
    name = before[-2].text
    about: object = None
    if before[-1].text == ":":
        called = find_call(document, context)
        about = None if called is None else called.rows.get(name)
    elif (symbol := scope.own.get(name)) is not None:
        about = symbol.about
    return about if isinstance(about, AttributeDefinition) else None


def find_built_in(name: str) -> Symbol | None:
    """Builtin of this name, or None."""
    if name in REDUCTIONS or name in GRAPH_FUNCTIONS:
        return Symbol(What.BUILT_IN, name, None)
    dtype = find_data_type(name)
    return None if dtype is None else Symbol(What.TYPE, name, None, dtype)


def find_definition(document: Document, offset: int) -> Span | None:
    """Span of the declaration of the word at an offset; None if it has none."""
    found = resolve_word(document, offset)
    if found is None or found.symbol.span is None:
        return None
    return current_span(document, found.symbol)


def current_span(document: Document, symbol: Symbol) -> Span | None:
    """Current span of a symbol's declaration: an unparsable text has changed since its last
    analysis."""
    span = symbol.span
    if span is None or span.source.name != document.name or span.source.text == document.text:
        return span
    name = span.text or symbol.name
    places = [t for t in document.tokens if t.kind is TokenKind.WORD and t.text == name]
    nearest = min(places, key=lambda token: abs(token.start - span.start), default=None)
    if nearest is None:
        return None
    return Span(document.analysis.source, nearest.start, nearest.end)
