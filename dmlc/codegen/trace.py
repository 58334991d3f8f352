"""Traces functions of scalars, written in Python, into functions of the kernel IR.

Such a function takes and gives `Value`s. Their operators, and the functions below, make kernel IR;
`let` names a step. What has no name is written where it stands. A `Definition` is a function of its
own in generated code, called by its name; any other function is written in place where it is
called, and may give several values.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence

import numpy as np

from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import evaluate_function
from dmlc.kernel.names import Names
from dmlc.scalars import OPERATIONS, Array, DataType, Operands, Operation
from dmlc.source import InternalError

F32, F64 = DataType.FLOAT32, DataType.FLOAT64
I32, U32 = DataType.INT32, DataType.UINT32

_BITWISE = {"and": "bit_and", "or": "bit_or", "not": "bit_not"}
"""What the logical operators are of integers."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Scope:
    """A function in the making."""

    names: Names
    steps: list[k.Let]


def _infix(name: str) -> Callable[[Value, Operand], Value]:
    def operate(left: Value, right: Operand) -> Value:
        return _operate(name, left, right)

    return operate


def _reflected(name: str) -> Callable[[Value, Operand], Value]:
    def operate(right: Value, left: Operand) -> Value:
        return _operate(name, left, right)

    return operate


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of a traced function. Numbers beside it take its type.

    Comparisons for equality are `equal`: Python's own says whether two objects are one.
    """

    expression: k.Expression
    scope: _Scope

    @property
    def dtype(self) -> DataType:
        return self.expression.type.dtype

    __add__, __radd__ = _infix("add"), _reflected("add")
    __sub__, __rsub__ = _infix("sub"), _reflected("sub")
    __mul__, __rmul__ = _infix("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _infix("div"), _reflected("div")
    __lshift__, __rshift__ = _infix("shift_left"), _infix("shift_right")
    __and__, __or__ = _infix("and"), _infix("or")
    __lt__, __le__ = _infix("lt"), _infix("le")
    __gt__, __ge__ = _infix("gt"), _infix("ge")

    def __neg__(self) -> Value:
        return _operate("neg", self)

    def __invert__(self) -> Value:
        return _operate("not", self)


Operand = Value | int | float


def let(**named: Value) -> Value:
    """`k = let(k=x + 1.0)` has a step of the function name a value."""
    ((name, value),) = named.items()
    local = k.Local(value.scope.names.take(name), value.expression.type)
    value.scope.steps.append(k.Let(local, value.expression))
    return Value(local, value.scope)


def equal(a: Value, b: Operand) -> Value:
    return _operate("eq", a, b)


def select(condition: Value, then: Operand, otherwise: Operand) -> Value:
    """`then` where the condition holds. Two numbers are FLOAT32, or UINT32 where both are whole."""
    known = next((v.dtype for v in (then, otherwise) if isinstance(v, Value)), None)
    if known is None:
        known = F32 if float in (type(then), type(otherwise)) else U32
    sides = (_express(then, known), _express(otherwise, known))
    return Value(k.Select(condition.expression, *sides, k.Type(known)), condition.scope)


def bits(x: Value) -> Value:
    """A float as the integer of its bits."""
    return Value(k.Reinterpret(x.expression, k.Type(U32)), x.scope)


def signed_bits(x: Value) -> Value:
    """The same as a signed integer."""
    return Value(k.Reinterpret(x.expression, k.Type(I32)), x.scope)


def from_bits(u: Value) -> Value:
    return Value(k.Reinterpret(u.expression, k.Type(F32)), u.scope)


def convert(x: Value, dtype: DataType) -> Value:
    return Value(k.Convert(x.expression, k.Type(dtype)), x.scope)


def _express(value: Operand, dtype: DataType) -> k.Expression:
    """A value, or a number as a literal of that type."""
    if not isinstance(value, Value):
        rounded = np.float32(value) if dtype is F32 else value
        number = float(rounded) if dtype.is_float else int(value)
        return k.Literal(k.Type(dtype), number)
    if value.dtype is not dtype:
        raise InternalError(f"{value.dtype.short} stands where {dtype.short} must")
    return value.expression


def _operate(name: str, *given: Operand) -> Value:
    first = next(v for v in given if isinstance(v, Value))
    if first.dtype is not DataType.BOOL:
        name = _BITWISE.get(name, name)
    return _call(OPERATIONS[name], given)


def _call(operation: Operation, given: Sequence[Operand]) -> Value:
    first = next(v for v in given if isinstance(v, Value))
    operands = tuple(_express(v, first.dtype) for v in given)
    if len(operands) != operation.arity or not operation.operands.accept(first.dtype):
        raise InternalError(f"{operation.name} takes no {len(operands)} {first.dtype.short}")
    result = k.Type(operation.result_type(first.dtype))
    return Value(k.Operate(operation, operands, result), first.scope)


absolute = functools.partial(_operate, "abs")
isinf = functools.partial(_operate, "isinf")
isnan = functools.partial(_operate, "isnan")
round_even = functools.partial(_operate, "round")
smaller = functools.partial(_operate, "min")
sqrt = functools.partial(_operate, "sqrt")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Definition(Operation):
    """An operation that is written out: what it computes is what tracing it gives."""

    function: Callable[[], k.Function]

    def __call__(self, *given: Operand) -> Value:
        """Called in a function that is being traced."""
        return _call(self, given)


def define(function: Callable[..., Value], dtype: DataType = F32) -> Definition:
    """A Python function of `Value`s of one type, of which it gives one. It is traced when it is
    first needed, and may be called by its name in generated code."""
    parameters = tuple(inspect.signature(function).parameters)

    @functools.cache
    def trace() -> k.Function:
        return _trace(function, parameters, dtype)

    def evaluate(*given: Array) -> Array:
        return evaluate_function(trace(), given)

    kinds = {F32: Operands.FLOAT32, F64: Operands.FLOAT}
    accepted = kinds.get(dtype, Operands.INTEGER)
    return Definition(function.__name__, len(parameters), accepted, evaluate, function=trace)


def _trace(
    function: Callable[..., Value], parameters: tuple[str, ...], dtype: DataType
) -> k.Function:
    scope = _Scope(Names(parameters), [])
    given = tuple(k.Scalar(name, k.Type(dtype)) for name in parameters)
    result = function(*(Value(p, scope) for p in given))
    note = tuple(inspect.cleandoc(function.__doc__ or "").splitlines())
    return k.Function(function.__name__, given, tuple(scope.steps), _express(result, dtype), note)
