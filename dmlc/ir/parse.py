"""Reads the text form of the tensor IR. Mistakes are `DmlcError`s with their place.

It checks what it must to build the nodes: names that are defined, operations that exist and
their arity. Whether the function is well formed is the verifier's question, put at the end.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import NoReturn

import numpy as np

from dmlc.ir.function import Function
from dmlc.ir.nodes import (
    POSITIONAL_COMBINERS,
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Index,
    Instruction,
    Load,
    Parameter,
    Reduction,
    Result,
    Select,
    Stage,
    Table,
    value_type,
)
from dmlc.ir.verify import find_fault
from dmlc.parameters import expect_text
from dmlc.scalars import COMBINERS, OPERATIONS, DataType, data_type_names, find_data_type
from dmlc.source import DmlcError, Source, Span, unknown_name

_TOKEN = re.compile(
    r"""\s+ | //[^\n]*
    | (?P<number>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)|-inf\b)
    | (?P<name>[A-Za-z_][A-Za-z0-9_.]*)
    | (?P<mark>->|[%@(){}\[\]:,=<])""",
    re.VERBOSE | re.ASCII,
)
_LITERALS = ("true", "false", "inf", "nan")
_AXIS = re.compile(r"([ir])(\d{1,4})")


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Open:
    """A call or a load whose operands are being read; `token` is its operation or tensor."""

    token: _Token
    closing: str
    given: list[int]

    @property
    def is_cast(self) -> bool:
        """A cast is followed by a type, which its closing reads."""
        return self.closing == ")" and self.token.text == "cast"


def parse(text: str, filename: str = "<ir>") -> Function:
    """The well-formed function that a text form spells. Raises `DmlcError`."""
    source = Source(expect_text("filename", filename), expect_text("text", text))
    function = _Parser(source).function()
    fault = find_fault(function)
    if fault is not None:
        raise DmlcError(f"this breaks a rule of the IR at {fault.node}: {fault.why}", fault.span)
    return function


class _Parser:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = self._split()
        self.at = 0
        self.tensors: dict[str, DataType] = {}
        self.values: list[Instruction] = []
        self.named: dict[str, int] = {}

    # Tokens -------------------------------------------------------------------------------

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        text, position = self.source.text, 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                span = Span(self.source, position, position + 1)
                raise DmlcError(f"unexpected character {text[position]!r}", span)
            if match.lastgroup is not None:
                tokens.append(_Token(match.lastgroup, match.group(), position))
            position = match.end()
        tokens.append(_Token("end", "the end of the text", len(text)))
        return tokens

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def _span(self, token: _Token) -> Span:
        length = 0 if token.kind == "end" else len(token.text)
        return Span(self.source, token.start, token.start + length)

    def _fail(self, expected: str, token: _Token | None = None) -> NoReturn:
        found = token or self.token
        shown = found.text if found.kind == "end" else f"'{found.text[:40]}'"
        raise DmlcError(f"expected {expected}, found {shown}", self._span(found))

    def _next(self) -> _Token:
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self.token.kind != "end" and self.token.text == text:
            self.at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail(f"'{text}'")

    def _name(self, what: str) -> str:
        if self.token.kind != "name":
            self._fail(what)
        return self._next().text

    def _integer(self, what: str) -> int:
        if self.token.kind != "number" or not re.fullmatch(r"-?\d{1,19}", self.token.text):
            self._fail(what)
        return int(self._next().text)

    # Functions ----------------------------------------------------------------------------

    def function(self) -> Function:
        start = self.token
        if not self._accept("func"):
            self._fail("'func'")
        self._expect("@")
        name = self._name("the function's name")
        self._expect("(")
        parameters: list[Parameter] = []
        while not self._accept(")"):
            if parameters:
                self._expect(",")
            parameters.append(self._parameter())
        self._expect("->")
        self._expect("(")
        results: list[Result] = []
        while not self._accept(")"):
            if results:
                self._expect(",")
            self._expect("%")
            results.append(Result(self._name("a result's name"), self._strides()))
        in_place: list[tuple[str, str]] = []
        if self._accept("in"):
            self._expect("place")
            self._expect("(")
            while not self._accept(")"):
                if in_place:
                    self._expect(",")
                self._expect("%")
                result = self._name("a result's name")
                self._expect("over")
                self._expect("%")
                in_place.append((result, self._name("a parameter's name")))
        self._expect("{")
        tables: list[Table] = []
        while self._accept("table"):
            tables.append(self._table())
        stages: list[Stage] = []
        while not self._accept("}"):
            stages.append(self._stage())
        if self.token.kind != "end":
            self._fail("the end of the text")
        span = self._span(start).to(self._span(self.tokens[self.at - 1]))
        return Function(
            name,
            tuple(parameters),
            tuple(stages),
            tuple(results),
            tuple(in_place),
            span,
            tuple(tables),
        )

    def _table(self) -> Table:
        start = self.token
        self._expect("%")
        name = self._tensor_name()
        self._expect(":")
        dtype = self._dtype()
        self._expect("[")
        extents: list[int] = []
        while not self._accept("]"):
            if extents:
                self._expect(",")
            extents.append(self._integer("a size"))
        self._expect("=")
        self._expect("{")
        values: list[bool | int | float] = []
        while not self._accept("}"):
            if values:
                self._expect(",")
            values.append(self._table_value(dtype))
        self.tensors[name] = dtype
        span = self._span(start).to(self._span(self.tokens[self.at - 1]))
        return Table(name, dtype, tuple(extents), tuple(values), span=span)

    def _table_value(self, dtype: DataType) -> bool | int | float:
        token = self._next()
        known = token.kind == "number" or token.text in _LITERALS
        if dtype is DataType.BOOL and token.text in ("true", "false"):
            return token.text == "true"
        if dtype.is_float and known and token.text not in ("true", "false"):
            number = float(token.text)
            return float(np.float32(number)) if dtype is DataType.FLOAT32 else number
        if not dtype.is_integer or not re.fullmatch(r"-?\d{1,20}", token.text):
            self._fail(f"a value of type {dtype.name}", token)
        return int(token.text)

    def _parameter(self) -> Parameter:
        start = self.token
        self._expect("%")
        name = self._tensor_name()
        self._expect(":")
        dtype = self._dtype()
        self._expect("[")
        extents: list[Extent] = []
        while not self._accept("]"):
            if extents:
                self._expect(",")
            extents.append(self._extent())
        strides = self._strides()
        self.tensors[name] = dtype
        span = self._span(start).to(self._span(self.tokens[self.at - 1]))
        return Parameter(name, dtype, tuple(extents), strides, span)

    def _tensor_name(self) -> str:
        token = self.token
        name = self._name("a tensor's name")
        if name in self.tensors:
            raise DmlcError(f"tensor '%{name}' is defined twice", self._span(token))
        return name

    def _dtype(self) -> DataType:
        token = self.token
        name = self._name("a data type")
        if name == DataType.INDEX.short:
            return DataType.INDEX
        dtype = find_data_type(name)
        if dtype is None:
            raise DmlcError(unknown_name("data type", name, data_type_names(), self._span(token)))
        return dtype

    def _extent(self) -> Extent:
        what = "a size or a symbol"
        return self._name(what) if self.token.kind == "name" else self._integer(what)

    def _strides(self) -> tuple[int, ...] | None:
        if not self._accept("{"):
            return None
        strides: list[int] = []
        while not self._accept("}"):
            if strides:
                self._expect(",")
            strides.append(self._integer("a stride"))
        return tuple(strides)

    # Stages -------------------------------------------------------------------------------

    def _stage(self) -> Stage:
        start = self.token
        self._expect("%")
        name = self._tensor_name()
        self._expect(":")
        dtype = self._dtype()
        self._expect("[")
        domain: list[Extent] = []
        while not self._accept("]"):
            if domain:
                self._expect(",")
            token = self.token
            axis = f"'i{len(domain)}', the next axis"
            if self._name(axis) != f"i{len(domain)}":
                self._fail(axis, token)
            self._expect("<")
            domain.append(self._extent())
        self._expect("=")
        self.values, self.named = [], {}
        guard: int | None = None
        reduction: Reduction | None = None
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if self.token.kind == "name" and following.text == "[":
            reduction, guard = self._reduction()
        if self._accept("{"):
            guard, result = self._block(guard)
            self._expect("}")
        else:
            result = self._expression()
        self.tensors[name] = dtype
        body = Body.make(self.values, result, guard)
        span = self._span(start).to(self._span(self.tokens[self.at - 1]))
        return Stage(name, dtype, tuple(domain), body, reduction, span)

    def _reduction(self) -> tuple[Reduction, int | None]:
        token = self._next()
        if token.text not in COMBINERS and token.text not in POSITIONAL_COMBINERS:
            known = [*COMBINERS, *POSITIONAL_COMBINERS]
            raise DmlcError(unknown_name("reduction", token.text, known, self._span(token)))
        self._expect("[")
        axes: list[tuple[int, Extent]] = []
        guard: int | None = None
        while not self._accept("]"):
            if self._accept("where"):
                guard = self._expression()
                self._expect("]")
                break
            if axes:
                self._expect(",")
            label = _AXIS.fullmatch(self.token.text)
            if label is None or label.group(1) != "r":
                self._fail("a reduction axis, such as 'r0'")
            self._next()
            self._expect("<")
            axes.append((int(label.group(2)), self._extent()))
        return Reduction(token.text, tuple(axes)), guard

    def _block(self, guard: int | None) -> tuple[int | None, int]:
        """The named values of a stage, then its guard, then its result."""
        while self.tokens[min(self.at + 1, len(self.tokens) - 1)].text == "=":
            token = self.token
            name = self._name("a value's name")
            if name in self.named or name in _LITERALS or _AXIS.fullmatch(name):
                raise DmlcError(f"the name '{name}' is taken", self._span(token))
            self._expect("=")
            self.named[name] = self._expression()
        if self._accept("where"):
            guard = self._expression()
        return guard, self._expression()

    # Values -------------------------------------------------------------------------------

    def _add(self, instruction: Instruction) -> int:
        self.values.append(instruction)
        return len(self.values) - 1

    def _expression(self) -> int:
        """A value. Calls and loads that are still open stand on a list, so that depth is free."""
        opened: list[_Open] = []
        while True:
            if opened and not opened[-1].given and self._accept(opened[-1].closing):
                value = self._close(opened.pop())
            else:
                begun = self._begin()
                if isinstance(begun, _Open):
                    opened.append(begun)
                    continue
                value = begun
            while opened:
                opened[-1].given.append(value)
                if not opened[-1].is_cast and not self._accept(opened[-1].closing):
                    self._expect(",")
                    break
                value = self._close(opened.pop())
            else:
                return value

    def _begin(self) -> _Open | int:
        """A call or a load that opens here, or a value that is complete."""
        token = self.token
        if token.kind == "number":
            return self._constant(self._next())
        if self._accept("%"):
            return self._open_load()
        if token.kind != "name":
            self._fail("a value")
        self._next()
        if self._accept("("):
            return _Open(token, ")", [])
        if token.text in ("true", "false"):
            return self._add(Constant(DataType.BOOL, token.text == "true"))
        if token.text in _LITERALS:
            return self._constant(token)
        if token.text in self.named:
            return self.named[token.text]
        axis = _AXIS.fullmatch(token.text)
        if axis is None:
            raise DmlcError(unknown_name("value", token.text, self.named, self._span(token)))
        return self._add(Index(int(axis.group(2)), axis.group(1) == "r"))

    def _open_load(self) -> _Open:
        token = self.token
        name = self._name("a tensor's name")
        if name not in self.tensors:
            raise DmlcError(unknown_name("tensor", name, self.tensors, self._span(token)))
        self._expect("[")
        return _Open(token, "]", [])

    def _close(self, opened: _Open) -> int:
        """The value of a call or a load whose operands have been read."""
        token, given = opened.token, opened.given
        if opened.closing == "]":
            return self._add(Load(token.text, tuple(given), self.tensors[token.text].compute))
        if opened.is_cast:
            self._check_arity(token, 1, given)
            self._expect(",")
            dtype = self._dtype()
            self._expect(")")
            return self._add(Cast(given[0], dtype))
        if token.text == "select":
            self._check_arity(token, 3, given)
            then = value_type(self.values[given[1]])
            return self._add(Select(given[0], given[1], given[2], then))
        operation = OPERATIONS.get(token.text)
        if operation is None:
            known = [*OPERATIONS, "select", "cast"]
            raise DmlcError(unknown_name("operation", token.text, known, self._span(token)))
        self._check_arity(token, operation.arity, given)
        dtype = operation.result_type(value_type(self.values[given[0]]))
        return self._add(Apply(operation, tuple(given), dtype))

    def _check_arity(self, token: _Token, arity: int, given: list[int]) -> None:
        if len(given) != arity:
            raise DmlcError(
                f"'{token.text}' takes {arity} operand{'s' * (arity > 1)}, found {len(given)}",
                self._span(token),
            )

    def _constant(self, token: _Token) -> int:
        whole = re.fullmatch(r"-?\d+", token.text) is not None
        dtype = DataType.INDEX if whole else DataType.FLOAT32
        if self._accept(":"):
            dtype = self._dtype()
        if dtype.is_float:
            number = float(token.text)
            if dtype is DataType.FLOAT32:
                with np.errstate(over="ignore"):
                    number = float(np.float32(number))
            if math.isinf(number) and not token.text.endswith("inf"):
                self._refuse_literal(token, dtype)
            return self._add(Constant(dtype, number))
        if not whole or dtype is DataType.BOOL or len(token.text) > 21:
            self._refuse_literal(token, dtype)
        return self._add(Constant(dtype, int(token.text)))

    def _refuse_literal(self, token: _Token, dtype: DataType) -> NoReturn:
        shown = token.text if len(token.text) <= 24 else token.text[:24] + "..."
        raise DmlcError(f"'{shown}' is no {dtype.name}", self._span(token))
