"""Parser of the grammar `grammar/dml.lark`. It returns lark's tree; `build` makes syntax nodes of
it, and `mistakes` makes messages of refusals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard, cast

import lark
from lark.parsers.lalr_interactive_parser import InteractiveParser

from dmlc.language.grammar_tables import load_parser
from dmlc.resources import read_resource

Token: TypeAlias = lark.Token
Tree: TypeAlias = "lark.Tree[lark.Token]"


class UnexpectedText(Exception):
    """Raised for text that the grammar refuses. `found` is that text, empty at the end; `expected`
    has the terminals accepted there."""

    def __init__(self, start: int, found: str, expected: frozenset[str]) -> None:
        super().__init__(start, found, expected)
        self.start = start
        self.found = found
        self.expected = expected


@functools.cache
def _grammar() -> lark.Lark:
    return load_parser(read_resource("grammar/dml.lark"), read_resource("grammar/tables.json"))


def read(text: str, rule: str, watch: Callable[[Token], None]) -> Tree:
    """Tree of a text for a start rule, `start` or `expression`. Raises `UnexpectedText`. `watch`
    sees every token before the parser does, and may raise to end the parse."""
    parser = _parser(text, rule)
    seen = 0
    last: Token | None = None
    try:
        for last in parser.iter_parse():
            watch(last)
            seen += 1
        return cast(Tree, cast(Any, parser).feed_eof())
    except lark.UnexpectedCharacters as error:
        start = cast("int | None", error.pos_in_stream) or 0
        raise UnexpectedText(start, text[start], _accepted(parser)) from None
    except lark.UnexpectedToken as error:
        token = cast(Token, error.token)
    if token.type == "$END" or token.start_pos is None:
        raise UnexpectedText(len(text.rstrip()), "", _accepted_after(text, rule, seen))
    if token is last:
        seen -= 1
    raise UnexpectedText(token.start_pos, str(token), _accepted_after(text, rule, seen))


def _parser(text: str, rule: str) -> InteractiveParser:
    grammar: Any = _grammar()
    return grammar.parse_interactive(text, rule)


def _accepted(parser: InteractiveParser) -> frozenset[str]:
    return frozenset(cast("set[str]", parser.accepts()))


def _accepted_after(text: str, rule: str, count: int) -> frozenset[str]:
    """Terminals accepted after the first `count` tokens of a text. A parser that refused a token
    has made reductions for it, which hide other accepted terminals; so a fresh parser is run."""
    parser = _parser(text, rule)
    tokens = parser.iter_parse()
    try:
        # A token is taken when the one behind it is asked for.
        for _ in range(count + 1):
            next(tokens, None)
    except lark.UnexpectedInput:
        return _accepted(parser)
    return _accepted(parser)


class Continuation:
    """State of the parser after a text."""

    def __init__(self, parser: InteractiveParser) -> None:
        self._parser = parser
        self.expected = _accepted(parser)
        """Terminals accepted next."""

    def after(self, terminal: str) -> Continuation:
        """State after one of the accepted terminals."""
        further = self._parser.copy()
        further.feed_token(lark.Token(terminal, ""))
        return Continuation(further)


def continue_text(text: str, rule: str) -> Continuation:
    """State of the parser after a text that ends between two tokens. Raises `UnexpectedText` if a
    part of it is refused."""
    # Some words are keywords only before a name.
    parser = _parser(f"{text}x", rule)
    try:
        for token in parser.iter_parse():
            if (token.start_pos or 0) >= len(text):
                break
    except lark.UnexpectedCharacters as error:
        start = cast("int | None", error.pos_in_stream) or 0
        if start < len(text):
            raise UnexpectedText(start, text[start], frozenset()) from None
    except lark.UnexpectedToken as error:
        token = cast(Token, error.token)
        start = len(text) if token.start_pos is None else token.start_pos
        if start < len(text):
            raise UnexpectedText(start, str(token), frozenset()) from None
    return Continuation(parser)


@functools.cache
def terminals() -> tuple[str, ...]:
    """The names of all terminals."""
    return tuple(sorted(terminal.name for terminal in _grammar().terminals))


def is_tree(node: object) -> TypeGuard[Tree]:
    """Whether a node is a subtree, neither a token nor omitted."""
    return isinstance(node, lark.Tree)


@functools.cache
def spellings() -> dict[str, str]:
    """Spelling of every terminal that has only one, by name."""
    return {t.name: t.pattern.value for t in _grammar().terminals if t.pattern.type == "str"}
