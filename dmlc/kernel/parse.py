"""Parser of the kernel IR's text form. Errors are `DmlcError`s with their location.

It checks only what it needs to build nodes: that names are visible, that operations exist, and
their arity. The verifier checks that the kernel is well formed.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from dmlc.ir.scan import LITERALS, Open, Scanner, Token, token_pattern
from dmlc.kernel import nodes as k
from dmlc.kernel.print import CONVERSIONS, FORMS, RESERVED
from dmlc.parameters import expect_text
from dmlc.scalars import OPERATIONS, DataType
from dmlc.sizes import check_count
from dmlc.source import DmlcError, Source, check_known, find_named

_VECTOR = re.compile(r"(\w+)x(\d{1,4})")
_INDEX_TYPE = re.compile(r"([su])(32|64)")
_TYPED = {**dict.fromkeys(CONVERSIONS, 1), "extract": 1, "shuffle": 2}
"""Calls whose last argument is a type, with the number of preceding operands."""
_CALLS = {"select": 3, "join": 2, **_TYPED}
_STATEMENTS = {word: kind for kind, (word, _) in FORMS.items()}
_MARK = re.compile(r"\w+|\.\.|\S")
"""A token among the fields of a statement."""


def parse_kernel(text: str, filename: str = "<kernel>") -> k.Kernel:
    """Kernel from its text form. Raises `DmlcError`."""
    return _Parser(Source(expect_text("filename", filename), expect_text("text", text))).kernel()


def parse_body(
    kernel: k.Kernel, text: str, filename: str, sizes: Mapping[str, k.Expression]
) -> tuple[k.Statement, ...]:
    """Statements from text in braces, which may name a kernel's buffers and arrays, and `sizes`.
    Raises `DmlcError`."""
    parser = _Parser(Source(filename, text))
    parser.buffers = {b.name: b for b in kernel.buffers}
    parser.arrays = {a.name: a for a in kernel.arrays}
    parser.scalars = {s.name: (s, value) for s, value in kernel.scalars}
    parser.sizes = sizes
    return parser.body()


def parse_type(name: str) -> k.Type | None:
    """Type from its name, such as `f32` or `f32x16`; None if unknown."""
    vector = _VECTOR.fullmatch(name)
    short, lanes = (name, 1) if vector is None else (vector[1], int(vector[2]))
    dtype = next((t for t in DataType if t.short == short), None)
    return None if dtype is None else k.Type(dtype, lanes)


class _Parser(Scanner[k.Expression]):
    # Names may end in `#` and a number until `cleanup` runs.
    PATTERN = token_pattern(r"[A-Za-z_][A-Za-z0-9_.#]*")

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.buffers: dict[str, k.Buffer] = {}
        self.arrays: dict[str, k.Array] = {}
        self.scalars: dict[str, tuple[k.Scalar, int | str]] = {}
        self.matrices: dict[str, k.Matrix] = {}
        self.sizes: Mapping[str, k.Expression] = {}
        self.known: dict[str, k.Local] = {}
        """The locals in sight."""

    # Kernels ------------------------------------------------------------------------------

    def kernel(self) -> k.Kernel:
        self.expect("kernel")
        name = self.name("the kernel's name")
        self.expect("{")
        about = self._about()
        while self.token.text in ("buffer", "scalar", "array", "shared", "registers", "matrix"):
            self._declare(self.next().text)
        made = k.Kernel(
            name,
            tuple(self.buffers.values()),
            tuple(self.scalars.values()),
            body=self._block(),
            arrays=tuple(self.arrays.values()),
            matrices=tuple(self.matrices.values()),
            **about,
        )
        self.expect_end()
        return made

    def body(self) -> tuple[k.Statement, ...]:
        made = self._body()
        self.expect_end()
        return made

    def _about(self) -> dict[str, Any]:
        """Fields of a kernel before its buffers, except the launch."""
        lines = ("summary", "schedule", "script", "cut")
        said: dict[str, Any] = {"passes": (), **dict.fromkeys(lines, ())}
        while not self.accept("launch"):
            token = self.token
            match self.name("'launch'"):
                case key if key in lines:
                    said[key] += (self._text(),)
                case "pass":
                    said["passes"] += (self._names(),)
                case "stages":
                    said["stages"] = self._names()
                case "walk" | "apart" | "title" | "row" as key:
                    said[key] = self._text()
                case "effort":
                    number = self.next()
                    said["effort"] = float(self.literal(number, DataType.FLOAT64))
                case "steps":
                    said["steps"] = self._count()
                case _:
                    self.fail("'launch'", token)
        return {**said, **self._launch()}

    def _launch(self) -> dict[str, Any]:
        self.expect("ceil", "(")
        count = self._count()
        self.expect("/")
        per_group = self.integer("how many a group takes")
        self.expect(")", "groups", "of")
        size = self.integer("the size of a group")
        row, subgroup = None, 0
        while self.accept("in"):
            if self.accept("subgroups"):
                self.expect("of")
                subgroup = self.integer("the size of a subgroup")
                continue
            self.expect("rows", "of")
            row = self.integer("the groups of a row")
        self.expect(",", "index")
        token = self.token
        found = _INDEX_TYPE.fullmatch(self.name("'u32', 's32', 'u64' or 's64'"))
        if found is None:
            self.fail("'u32', 's32', 'u64' or 's64'", token)
        return {
            "launch": k.Launch(count, per_group, size, row, subgroup),
            "index_bits": int(found[2]),
            "index_signed": found[1] == "s",
        }

    def _declare(self, kind: str) -> None:
        if kind in ("shared", "registers"):
            self.expect("array")
        token = self._sigil()
        name = self.name("a name")
        known = (self.buffers, self.scalars, self.arrays, self.matrices)
        if any(name in names for names in known):
            raise DmlcError(f"the name '{name}' is taken", self.span(token))
        self.expect(":")
        if kind == "scalar":
            type = self._type()
            self.expect("=")
            self.scalars[name] = k.Scalar(name, type), self.name_or_number("a size or a symbol")
            return
        type, count = self._type(), None
        if kind == "matrix":
            self.matrices[name] = self._matrix(name, type)
            return
        if self.accept("["):
            count = self._count() if kind == "buffer" else self.integer("a size")
            self.expect("]")
        if kind == "buffer":
            self.buffers[name] = self._buffer(
                k.Buffer(name, type.dtype, k.Access.READ, count, lanes=type.lanes)
            )
        elif not isinstance(count, int):
            self.fail("'['")
        else:
            is_shared, is_registers = kind == "shared", kind == "registers"
            made = k.Array(name, type.dtype, count, is_shared, type.lanes, is_registers)
            self.arrays[name] = made

    def _matrix(self, name: str, type: k.Type) -> k.Matrix:
        self.expect("[")
        rows = self.integer("its rows")
        self.expect(",")
        columns = self.integer("its columns")
        self.expect("]")
        token, known = self.token, {use.value: use for use in k.Use}
        use = known.get(self.name("what a matrix is for"))
        if use is None:
            self.fail("'left', 'right' or 'sum'", token)
        return k.Matrix(name, type.dtype, rows, columns, use)

    def _buffer(self, buffer: k.Buffer) -> k.Buffer:
        token, known = self.token, {a.value: a for a in k.Access}
        access = known.get(self.name("how a buffer is accessed"))
        if access is None:
            self.fail("'read', 'write' or 'read_write'", token)
        touched: int | None = None
        if self.accept(","):
            touched = self.integer("a number of bytes")
            self.expect("bytes")
        return dataclasses.replace(buffer, access=access, bytes=touched)

    def _text(self) -> str:
        token = self.token
        if token.kind != "text":
            self.fail("a quoted text")
        try:
            return json.loads(self.next().text)
        except ValueError as error:
            raise DmlcError(
                f"this is no text as JSON has them: {error}", self.span(token)
            ) from error

    def _count(self) -> int | str:
        """A number, a symbol, or a quoted size expression."""
        token = self.token
        if token.kind != "text":
            return self.name_or_number("a size or a symbol")
        try:
            return check_count(self._text())
        except DmlcError as error:
            raise DmlcError(error.diagnostics[0].message, self.span(token)) from None

    def _names(self) -> tuple[str, ...]:
        self.expect("(")
        return tuple(self.list_until(")", lambda: self.name("a stage's name")))

    def _type(self) -> k.Type:
        token = self.token
        name = self.name("a type")
        type = parse_type(name)
        return k.Type(self.find_dtype(name, token)) if type is None else type

    def _sigil(self) -> Token:
        """Skips an optional `%` before a name; returns the name's token."""
        self.accept("%")
        return self.token

    # Statements ---------------------------------------------------------------------------

    def _block(self) -> tuple[k.Statement, ...]:
        outside = dict(self.known)
        made: list[k.Statement] = []
        while not self.accept("}"):
            token = self.token
            made.append(self._statement(self.name("a statement"), token))
        self.known = outside
        return tuple(made)

    def _body(self, *variables: k.Local) -> tuple[k.Statement, ...]:
        """Statements in braces, where `variables` are visible as well."""
        self.expect("{")
        outside = dict(self.known)
        self.known |= {v.name: v for v in variables}
        made = self._block()
        self.known = outside
        return made

    def _statement(self, word: str, token: Token) -> k.Statement:
        kind = find_named("statement", word, _STATEMENTS, self.span(token))
        given = dict[str, Any]()
        for mark, name, what in FORMS[kind][1]:
            self.expect(*_MARK.findall(mark))
            given |= {name: self._field(name, what)} if name else {}
        if kind is k.For:
            given["body"] = self._body(given["variable"])
        elif kind is k.If:
            given["then"] = self._body()
        elif kind in (k.Let, k.Variable):
            self.known[given["local"].name] = given["local"]
        return kind(**given)

    def _field(self, name: str, what: str) -> Any:
        """Value of a statement's field."""
        match what:
            case "":
                return self.expression()
            case "defined":
                self._sigil()
                local = self.name("a local's name")
                self.expect(":")
                return k.Local(local, self._type())
            case "local":
                token = self._sigil()
                return self._find_local(self.name("a local's name"), token)
            case "variable":
                self._sigil()
                return k.Local(self.name("a loop's variable"), k.INDEX)
            case "flag":
                return self.accept(name)
            case "step":
                return self.integer("a step") if self.accept("step") else 1
            case "stride":
                return self.integer("how far rows are apart")
            case "streaming":
                if not self.accept("streaming"):
                    return None
                self.expect("where")
                return self.expression()
            case "buffer":
                return self._memory(self.buffers, what)
            case "matrix":
                return self._memory(self.matrices, what)
            case _:
                known = self.arrays if what == "array" else self.arrays | self.buffers
                return self._memory(known, "array")

    def _find_local(self, name: str, token: Token) -> k.Local:
        return find_named("local", name, self.known, self.span(token))

    def _memory(self, known: dict[str, Any], what: str) -> str:
        token = self._sigil()
        name = self.name(f"the name of a {what}")
        check_known(what, known, name, span=self.span(token))
        return name

    # Values -------------------------------------------------------------------------------

    def begin(self, opened: list[Open[k.Expression]]) -> k.Expression | None:
        if self.token.kind == "number":
            return self._literal(self.next())
        plain = not self.accept("%")
        token = self.token
        name = self.name("a value")
        if self.accept("["):
            known = (*self.buffers, *self.arrays)
            check_known("buffer or array", known, name, span=self.span(token))
            opened.append(Open(token, "]", []))
            return None
        if plain and self.accept("("):
            return self._begin_call(token, opened)
        if plain and name in LITERALS:
            return self._literal(token)
        if plain and name in RESERVED:
            return k.Position(k.Geometry(name))
        if name in self.sizes:
            return self.sizes[name]
        return self.scalars[name][0] if name in self.scalars else self._find_local(name, token)

    def _begin_call(self, token: Token, opened: list[Open[k.Expression]]) -> k.Expression | None:
        type = parse_type(token.text)
        if type is not None:
            values = self.list_until(")", lambda: self.integer("a whole number"))
            return k.Numbers(tuple(values), type)
        if token.text == "lead":
            buffer = self._memory(self.buffers, "buffer")
            self.expect(",")
            size = self.integer("a number of bytes")
            self.expect(")")
            return k.Lead(buffer, size)
        opened.append(Open(token, ")", [], _TYPED.get(token.text)))
        return None

    def close(self, opened: Open[k.Expression]) -> k.Expression:
        token, given = opened.token, opened.given
        if opened.closing == "]":
            if len(given) != 1:
                raise DmlcError(
                    f"'{token.text}' is read at one position, and {len(given)} are given",
                    self.span(token),
                )
            # A vector's type after it means several elements.
            is_buffer = token.text in self.buffers
            memory = (self.buffers if is_buffer else self.arrays)[token.text]
            dtype = memory.dtype.compute if is_buffer else memory.dtype
            type = self._type() if self.accept(":") else k.Type(dtype)
            return (k.Load if is_buffer else k.LoadLocal)(token.text, given[0], type)
        operation = OPERATIONS.get(token.text)
        if operation is None:
            check_known("operation", (*OPERATIONS, *_CALLS), token.text, span=self.span(token))
        arity = _CALLS[token.text] if operation is None else operation.arity
        self.check_arity(token, arity, given)
        first = given[0].type
        if operation is not None:
            result = k.Type(operation.result_type(first.dtype), first.lanes)
            return k.Operate(operation, tuple(given), result)
        if token.text == "select":
            return k.Select(given[0], given[1], given[2], given[1].type)
        if token.text == "join":
            return k.Join(given[0], given[1], k.Type(first.dtype, 2 * first.lanes))
        self.expect(",")
        if token.text in ("shuffle", "extract"):
            self.expect("[")
            lanes = tuple(self.list_until("]", lambda: self.integer("the number of a lane")))
            type = k.Type(first.dtype, len(lanes))
            if token.text == "extract":
                made = k.Extract(given[0], lanes, type)
            else:
                made = k.Shuffle(given[0], given[1], lanes, type)
        else:
            made = CONVERSIONS[token.text](given[0], self._type())
        self.expect(")")
        return made

    def _literal(self, token: Token) -> k.Literal:
        type = self._type() if self.accept(":") else k.Type(self.default_type(token))
        return k.Literal(type, self.literal(token, type.dtype))
