"""Scanner shared by the parsers of all text forms: tokens, lists, types, literals, nested values.

The parser of one IR is a `Scanner` with that IR's grammar. Errors are `DmlcError`s with their
location. Nested calls are on an explicit stack, so that their depth is not limited.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import re
from collections.abc import Callable
from typing import ClassVar, Generic, NoReturn, TypeVar

import numpy as np

from dmlc.scalars import DataType, data_type_names, find_data_type
from dmlc.sizes import Measure, as_extent, parse_size
from dmlc.source import DmlcError, Source, Span, unknown_name

_JOINTS = ("+", "-", "*", "/")
"""Operators of a size expression."""
LITERALS = ("true", "false", "inf", "nan")
"""Words that are literals."""


def token_pattern(name: str = r"[A-Za-z_][A-Za-z0-9_.]*") -> re.Pattern[str]:
    """Pattern of a text form's tokens; `name` is the pattern of its names."""
    return re.compile(
        rf"""\s+ | //[^\n]*
        | (?P<number>-?(?:\d+\.(?!\.)\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)|-inf\b)
        | (?P<name>{name})
        | (?P<text>"(?:[^"\\\n]|\\.)*")
        | (?P<mark>->|\.\.|[-%@(){{}}\[\]:,=</+*])""",
        re.VERBOSE | re.ASCII,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int


Value = TypeVar("Value")
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True, slots=True)
class Open(Generic[Value]):
    """Call or load whose operands are being parsed; `token` names what is called or loaded."""

    token: Token
    closing: str
    given: list[Value]
    most: int | None = None
    """Number of operands after which `close` parses the rest, including the closing mark."""


class Tokens:
    """Cursor over the tokens of a text."""

    PATTERN: ClassVar[re.Pattern[str]] = token_pattern()

    def __init__(self, source: Source) -> None:
        self.source = source
        self.at = 0
        self.tokens: list[Token] = []
        text, position = source.text, 0
        while position < len(text):
            match = self.PATTERN.match(text, position)
            if match is None:
                span = Span(source, position, position + 1)
                raise DmlcError(f"unexpected character {text[position]!r}", span)
            if match.lastgroup is not None:
                self.tokens.append(Token(match.lastgroup, match.group(), position))
            position = match.end()
        self.tokens.append(Token("end", "the end of the text", len(text)))

    # Tokens -------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    @property
    def following(self) -> Token:
        """The token after the next."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def span(self, token: Token) -> Span:
        length = 0 if token.kind == "end" else len(token.text)
        return Span(self.source, token.start, token.start + length)

    def span_from(self, start: Token) -> Span:
        """Span from a token to the last one taken."""
        return self.span(start).to(self.span(self.tokens[self.at - 1]))

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        found = token or self.token
        shown = found.text if found.kind == "end" else f"'{found.text[:40]}'"
        raise DmlcError(f"expected {expected}, found {shown}", self.span(found))

    def next(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.token.kind not in ("end", "text") and self.token.text == text:
            self.at += 1
            return True
        return False

    def expect(self, *texts: str) -> None:
        for text in texts:
            if not self.accept(text):
                self.fail(f"'{text}'")

    def name(self, what: str) -> str:
        if self.token.kind != "name":
            self.fail(what)
        return self.next().text

    def integer(self, what: str) -> int:
        if self.token.kind != "number" or not re.fullmatch(r"-?\d{1,19}", self.token.text):
            self.fail(what)
        return int(self.next().text)

    def list_until(self, closing: str, read: Callable[[], Item]) -> list[Item]:
        """Items separated by commas, up to and including the `closing` mark."""
        made: list[Item] = []
        while not self.accept(closing):
            if made:
                self.expect(",")
            made.append(read())
        return made

    def expect_end(self) -> None:
        if self.token.kind != "end":
            self.fail("the end of the text")


class Scanner(Tokens, abc.ABC, Generic[Value]):
    """Parser of a text form; `Value` is its representation of an expression."""

    def name_or_number(self, what: str) -> int | str:
        return self.name(what) if self.token.kind == "name" else self.integer(what)

    def extent(self, what: str = "a size or a symbol") -> int | str:
        """Size of an axis, or a stride."""
        start = self.token
        if start.kind == "number" and self.following.text not in _JOINTS:
            return self.integer(what)
        if start.kind not in ("name", "number") and start.text != "(":
            self.fail(what)
        return as_extent(self._size())

    def _size(self) -> Measure:
        """Size expression of symbols: the longest run of tokens that can be one."""
        start, depth, end = self.token, 0, self.token.start
        while self.token.kind in ("name", "number") or self.token.text in ("(", ")", *_JOINTS):
            depth += (self.token.text == "(") - (self.token.text == ")")
            # Two operands in a row are not one expression.
            before = self.tokens[self.at - 1].kind if self.token is not start else ""
            if depth < 0 or (before in ("name", "number") and self.token.kind == "name"):
                break
            token = self.next()
            end = token.start + len(token.text)
        try:
            return parse_size(self.source.text[start.start : end])
        except DmlcError as error:
            raise DmlcError(error.diagnostics[0].message, self.span_from(start)) from None

    # Types and literals -------------------------------------------------------------------

    def dtype(self) -> DataType:
        token = self.token
        return self.find_dtype(self.name("a data type"), token)

    def find_dtype(self, name: str, token: Token) -> DataType:
        if name == DataType.INDEX.short:
            return DataType.INDEX
        dtype = find_data_type(name)
        if dtype is None:
            raise DmlcError(
                unknown_name("data type", name, data_type_names(), self.span(token), "E0203")
            )
        return dtype

    def default_type(self, token: Token) -> DataType:
        """Type of a literal without an explicit one."""
        if token.text in ("true", "false"):
            return DataType.BOOL
        return DataType.INDEX if _is_whole(token) else DataType.FLOAT32

    def literal(self, token: Token, dtype: DataType) -> bool | int | float:
        """Value of a literal in a data type. Raises `DmlcError` if the type has no such value."""
        if token.text in ("true", "false"):
            if dtype is not DataType.BOOL:
                self._refuse_literal(token, dtype)
            return token.text == "true"
        if dtype.is_float:
            number = float(token.text)
            if dtype is DataType.FLOAT32:
                with np.errstate(over="ignore"):
                    number = float(np.float32(number))
            if math.isinf(number) and not token.text.endswith("inf"):
                self._refuse_literal(token, dtype)
            return number
        if not _is_whole(token) or dtype is DataType.BOOL or len(token.text) > 21:
            self._refuse_literal(token, dtype)
        return int(token.text)

    def _refuse_literal(self, token: Token, dtype: DataType) -> NoReturn:
        shown = token.text if len(token.text) <= 24 else token.text[:24] + "..."
        raise DmlcError(f"'{shown}' is no {dtype.name}", self.span(token))

    # Values -------------------------------------------------------------------------------

    @abc.abstractmethod
    def begin(self, opened: list[Open[Value]]) -> Value | None:
        """A value that is complete; None where a call or an index was added to `opened`."""

    @abc.abstractmethod
    def close(self, opened: Open[Value]) -> Value:
        """The value of a call or an index whose operands have been read."""

    def expression(self) -> Value:
        """A value, with all values nested in it."""
        opened: list[Open[Value]] = []
        while True:
            if opened and not opened[-1].given and self.accept(opened[-1].closing):
                value = self.close(opened.pop())
            else:
                begun = self.begin(opened)
                if begun is None:
                    continue
                value = begun
            while opened:
                last = opened[-1]
                last.given.append(value)
                if len(last.given) != last.most and not self.accept(last.closing):
                    self.expect(",")
                    break
                value = self.close(opened.pop())
            else:
                return value

    def check_arity(self, token: Token, arity: int, given: list[Value]) -> None:
        if len(given) != arity:
            raise DmlcError(
                f"'{token.text}' takes {arity} operand{'s' * (arity > 1)}, found {len(given)}",
                self.span(token),
            )


def _is_whole(token: Token) -> bool:
    return re.fullmatch(r"-?\d+", token.text) is not None
