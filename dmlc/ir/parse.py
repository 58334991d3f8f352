"""Parser of the tensor IR's text form. Errors are `DmlcError`s with their location.

It checks only what it needs to build nodes: that names are defined, that operations exist, and
their arity. The verifier then checks that the function is well formed.
"""

from __future__ import annotations

import re

from dmlc.ir.function import Function
from dmlc.ir.nodes import (
    IR_OPERATIONS,
    Apply,
    Body,
    Cast,
    Constant,
    Delay,
    Extent,
    Index,
    Instruction,
    Load,
    Loop,
    Parameter,
    Reduction,
    Result,
    Select,
    Stage,
    Step,
    Symbol,
    Table,
    value_type,
)
from dmlc.ir.scan import LITERALS, Open, Scanner, Token
from dmlc.ir.verify import accept
from dmlc.parameters import expect_text
from dmlc.scalars import COMBINERS, DataType
from dmlc.source import DmlcError, Source, check_known, find_named, unknown_name

_AXIS = re.compile(r"([ir])(\d{1,4})")


def parse(text: str, filename: str = "<ir>") -> Function:
    """Well-formed function from its text form. Raises `DmlcError`."""
    source = Source(expect_text("filename", filename), expect_text("text", text))
    return accept(_Parser(source).function())


class _Parser(Scanner[int]):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.tensors: dict[str, DataType] = {}
        self.values: list[Instruction] = []
        self.named: dict[str, int] = {}

    # Functions ----------------------------------------------------------------------------

    def function(self) -> Function:
        start = self.token
        self.expect("func", "@")
        name = self.name("the function's name")
        self.expect("(")
        parameters = self.list_until(")", self._parameter)
        self.expect("->", "(")
        results = self.list_until(")", self._result)
        in_place: list[tuple[str, str]] = []
        if self.accept("in"):
            self.expect("place", "(")
            in_place = self.list_until(")", self._in_place)
        checks: list[str] = []
        if self.accept("where"):
            self.expect("(")
            checks = self.list_until(")", self._check)
        self.expect("{")
        tables: list[Table] = []
        while self.accept("table"):
            tables.append(self._table())
        stages: list[Stage] = []
        loops: list[Loop] = []
        while not self.accept("}"):
            if self.accept("loop"):
                loops.append(self._loop(stages))
            else:
                stages.append(self._stage_of(self.token, *self._tensor()))
        self.expect_end()
        return Function(
            name,
            tuple(parameters),
            tuple(stages),
            tuple(results),
            tuple(in_place),
            self.span_from(start),
            tuple(tables),
            tuple(checks),
            loops=tuple(loops),
        )

    def _loop(self, stages: list[Stage]) -> Loop:
        """Parses a loop, and appends its stages to `stages`."""
        backwards = self.accept("backwards")
        self.expect("{")
        delays: list[Delay] = []
        first = len(stages)
        while not self.accept("}"):
            start = self.token
            name, dtype = self._tensor()
            if self.following.text == "<":
                stages.append(self._stage_of(start, name, dtype))
                continue
            # A delay's sizes have no index names.
            sizes = self.list_until("]", self.extent)
            self.expect("=", "before", "%")
            of = self.name("a stage's name")
            self.tensors[name] = dtype
            delays.append(Delay(name, dtype, tuple(sizes), of, self.span_from(start)))
        if len(stages) == first:
            self.fail("a stage of the loop", self.tokens[self.at - 1])
        return Loop(tuple(stage.name for stage in stages[first:]), tuple(delays), backwards)

    def _result(self) -> Result:
        self.expect("%")
        return Result(self.name("a result's name"), self._strides())

    def _in_place(self) -> tuple[str, str]:
        self.expect("%")
        result = self.name("a result's name")
        self.expect("over", "%")
        return result, self.name("a parameter's name")

    def _check(self) -> str:
        token = self.next()
        if token.kind != "text":
            self.fail('a condition in quotes, such as "N != 1"', token)
        return token.text[1:-1]

    def _table(self) -> Table:
        start = self.token
        name, dtype = self._tensor()
        extents = self.list_until("]", lambda: self.integer("a size"))
        self.expect("=", "{")
        values = self.list_until("}", lambda: self._table_value(dtype))
        self.tensors[name] = dtype
        return Table(name, dtype, tuple(extents), tuple(values), self.span_from(start))

    def _table_value(self, dtype: DataType) -> bool | int | float:
        token = self.next()
        fits = token.kind == "number" or token.text in LITERALS
        if not fits or (token.text in ("true", "false")) is not (dtype is DataType.BOOL):
            self.fail(f"a value of type {dtype.name}", token)
        return self.literal(token, dtype)

    def _parameter(self) -> Parameter:
        start = self.token
        name, dtype = self._tensor()
        extents = self.list_until("]", self.extent)
        strides = self._strides()
        self.tensors[name] = dtype
        return Parameter(name, dtype, tuple(extents), strides, self.span_from(start))

    def _tensor(self) -> tuple[str, DataType]:
        """Name and type of a tensor's definition, up to the opening bracket of its sizes."""
        self.expect("%")
        token = self.token
        name = self.name("a tensor's name")
        if name in self.tensors:
            raise DmlcError(f"tensor '%{name}' is defined twice", self.span(token))
        self.expect(":")
        dtype = self.dtype()
        self.expect("[")
        return name, dtype

    def _strides(self) -> tuple[Extent, ...] | None:
        if not self.accept("{"):
            return None
        return tuple(self.list_until("}", lambda: self.extent("a stride")))

    # Stages -------------------------------------------------------------------------------

    def _stage_of(self, start: Token, name: str, dtype: DataType) -> Stage:
        """Stage whose name and type have been parsed."""
        domain: list[Extent] = []
        self.list_until("]", lambda: domain.append(self._axis(len(domain))))
        self.expect("=")
        self.values, self.named = [], {}
        guard: int | None = None
        reduction: Reduction | None = None
        if self.token.kind == "name" and self.following.text == "[":
            reduction, guard = self._reduction()
        if self.accept("{"):
            guard, result = self._block(guard)
            self.expect("}")
        else:
            result = self.expression()
        self.tensors[name] = dtype
        body = Body.make(self.values, result, guard)
        return Stage(name, dtype, tuple(domain), body, reduction, self.span_from(start))

    def _axis(self, number: int) -> Extent:
        token, axis = self.token, f"'i{number}', the next axis"
        if self.name(axis) != f"i{number}":
            self.fail(axis, token)
        self.expect("<")
        return self.extent()

    def _reduction(self) -> tuple[Reduction, int | None]:
        token = self.next()
        check_known("reduction", COMBINERS, token.text, span=self.span(token))
        self.expect("[")
        axes: list[tuple[int, Extent]] = []
        guard: int | None = None
        while not self.accept("]"):
            if self.accept("where"):
                guard = self.expression()
                self.expect("]")
                break
            if axes:
                self.expect(",")
            label = _AXIS.fullmatch(self.token.text)
            if label is None or label.group(1) != "r":
                self.fail("a reduction axis, such as 'r0'")
            self.next()
            self.expect("<")
            axes.append((int(label.group(2)), self.extent()))
        return Reduction(token.text, tuple(axes)), guard

    def _block(self, guard: int | None) -> tuple[int | None, int]:
        """Named values of a stage, then its guard, then its result."""
        while self.following.text == "=":
            token = self.token
            name = self.name("a value's name")
            if name in self.named or name in LITERALS or _AXIS.fullmatch(name):
                raise DmlcError(f"the name '{name}' is taken", self.span(token))
            self.expect("=")
            self.named[name] = self.expression()
        if self.accept("where"):
            guard = self.expression()
        return guard, self.expression()

    # Values -------------------------------------------------------------------------------

    def _add(self, instruction: Instruction) -> int:
        self.values.append(instruction)
        return len(self.values) - 1

    def begin(self, opened: list[Open[int]]) -> int | None:
        token = self.token
        if token.kind == "number":
            return self._constant(self.next())
        if self.accept("%"):
            opened.append(self._open_load())
            return None
        if token.kind != "name":
            self.fail("a value")
        self.next()
        if token.text == "size" and self.accept("("):
            size = self.extent()
            self.expect(")")
            whole = isinstance(size, int)
            return self._add(Constant(DataType.INDEX, size) if whole else Symbol(size))
        if token.text == "step" and self.accept("("):
            steps = self.extent()
            self.expect(")")
            return self._add(Step(steps))
        if self.accept("("):
            opened.append(Open(token, ")", [], 1 if token.text == "cast" else None))
            return None
        if token.text in LITERALS:
            return self._constant(token)
        axis = _AXIS.fullmatch(token.text)
        if axis is None or token.text in self.named:
            return find_named("value", token.text, self.named, self.span(token))
        return self._add(Index(int(axis.group(2)), axis.group(1) == "r"))

    def _open_load(self) -> Open[int]:
        token = self.token
        name = self.name("a tensor's name")
        check_known("tensor", self.tensors, name, span=self.span(token))
        self.expect("[")
        return Open(token, "]", [])

    def close(self, opened: Open[int]) -> int:
        token, given = opened.token, opened.given
        if opened.closing == "]":
            return self._add(Load(token.text, tuple(given), self.tensors[token.text].compute))
        if token.text == "cast":
            self.check_arity(token, 1, given)
            self.expect(",")
            dtype = self.dtype()
            self.expect(")")
            return self._add(Cast(given[0], dtype))
        if token.text == "select":
            self.check_arity(token, 3, given)
            then = value_type(self.values[given[1]])
            return self._add(Select(given[0], given[1], given[2], then))
        operation = IR_OPERATIONS.get(token.text)
        if operation is None:
            known = [*IR_OPERATIONS, "select", "cast", "size"]
            raise DmlcError(unknown_name("operation", token.text, known, self.span(token)))
        self.check_arity(token, operation.arity, given)
        dtype = operation.result_type(value_type(self.values[given[0]]))
        return self._add(Apply(operation, tuple(given), dtype))

    def _constant(self, token: Token) -> int:
        dtype = self.default_type(token)
        if dtype is not DataType.BOOL and self.accept(":"):
            dtype = self.dtype()
        return self._add(Constant(dtype, self.literal(token, dtype)))
