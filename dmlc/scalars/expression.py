"""Expressions over operands: Python functions of `Value`s, for whoever evaluates them.

A `Domain` represents values, by the numbers of a body or the nodes of a model for instance, and
computes with them; `Domain.compute` has an expression's value there.

A `Routine` is an expression that a language without the operation has as a function of its own. Its
steps have names, by `let`, and it may look at the bits of floats: a domain that writes it out is a
`Writer`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from dmlc.scalars.types import DataType
from dmlc.source import InternalError

Held = TypeVar("Held")

Number: TypeAlias = "Value | int | float"


class Domain(abc.ABC, Generic[Held]):
    """Representation of values that expressions are computed in."""

    @abc.abstractmethod
    def apply(self, name: str, given: Sequence[Held]) -> Held:
        """A scalar operation, by its name."""

    @abc.abstractmethod
    def select(self, condition: Held, then: Held, otherwise: Held) -> Held:
        """`then` where a condition holds."""

    @abc.abstractmethod
    def number(self, value: int | float, like: Held) -> Held:
        """A number of the type of another value."""

    @property
    def writer(self) -> Writer[Held]:
        raise InternalError("names and bits are those of routines that are written out")

    def wrap(self, held: Held) -> Value:
        return Value(self, held)

    def unwrap(self, value: Value) -> Held:
        """Raises `InternalError` for a value of another domain."""
        if value.domain is not self:
            raise InternalError("an expression mixes values of two domains")
        return value.held

    def compute(self, expression: Callable[..., Value], *given: Held) -> Held:
        """The value of an expression over some operands."""
        return self.unwrap(expression(*map(self.wrap, given)))


class Writer(Domain[Held]):
    """A domain that writes routines out."""

    @property
    def writer(self) -> Writer[Held]:
        return self

    @abc.abstractmethod
    def literal(self, value: int | float, dtype: DataType) -> Held: ...

    @abc.abstractmethod
    def name(self, wanted: str, held: Held) -> Held:
        """A step of the routine by its name."""

    @abc.abstractmethod
    def reinterpret(self, held: Held, dtype: DataType) -> Held:
        """The same bits as a value of another type."""

    @abc.abstractmethod
    def convert(self, held: Held, dtype: DataType) -> Held: ...

    @abc.abstractmethod
    def call(self, routine: Routine, given: Sequence[Held]) -> Held: ...


def _infix(name: str) -> Callable[[Value, Number], Value]:
    def apply(left: Value, right: Number) -> Value:
        return left.operate(name, left, right)

    return apply


def _reflected(name: str) -> Callable[[Value, Number], Value]:
    def apply(right: Value, left: Number) -> Value:
        return right.operate(name, left, right)

    return apply


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value of an expression, in a domain. A number beside one takes its type.

    Comparisons for equality are operations: Python's own says whether two objects are one.
    """

    domain: Domain[Any]
    held: Any
    """Its representation in the domain."""

    def apply(self, name: str, *others: Number) -> Value:
        """An operation, by its name, on this value and others."""
        return self.operate(name, self, *others)

    def operate(self, name: str, *given: Number) -> Value:
        """An operation on values of this one's type, all of which are given."""
        return Value(self.domain, self.domain.apply(name, [self.hold(g) for g in given]))

    def select(self, then: Number, otherwise: Number) -> Value:
        """`then` where this one, a condition, holds. One of them is a `Value`."""
        typed = then if isinstance(then, Value) else otherwise
        if not isinstance(typed, Value):
            raise InternalError("one of the values chosen from must say its type")
        held = self.domain.unwrap(self), typed.hold(then), typed.hold(otherwise)
        return Value(self.domain, self.domain.select(*held))

    def like(self, number: int | float) -> Value:
        """A number of this one's type."""
        return Value(self.domain, self.domain.number(number, self.held))

    def hold(self, given: Number) -> Any:
        """The representation of a value, or of a number of this one's type."""
        if isinstance(given, Value):
            return self.domain.unwrap(given)
        return self.domain.number(given, self.held)

    __add__, __radd__ = _infix("add"), _reflected("add")
    __sub__, __rsub__ = _infix("sub"), _reflected("sub")
    __mul__, __rmul__ = _infix("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _infix("div"), _reflected("div")
    __lshift__, __rshift__ = _infix("shift_left"), _infix("shift_right")
    __and__, __or__ = _infix("and"), _infix("or")
    __lt__, __le__ = _infix("lt"), _infix("le")
    __gt__, __ge__ = _infix("gt"), _infix("ge")

    def __neg__(self) -> Value:
        return self.apply("neg")

    def __invert__(self) -> Value:
        return self.apply("not")


# Routines -------------------------------------------------------------------------------------

F32, F64 = DataType.FLOAT32, DataType.FLOAT64
I32, U32 = DataType.INT32, DataType.UINT32


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """A function of `Value`s of one type, of which it gives one: one of its own in generated code,
    called by its name. Any other Python function is written in place where it is called, and may
    give several values."""

    function: Callable[..., Value]
    dtype: DataType

    @property
    def name(self) -> str:
        return self.function.__name__

    def __call__(self, *given: Number) -> Value:
        """Called in a routine that is being written out."""
        first = next(v for v in given if isinstance(v, Value))
        return Value(first.domain, first.domain.writer.call(self, [first.hold(g) for g in given]))


def define(function: Callable[..., Value], dtype: DataType = F32) -> Routine:
    return Routine(function, dtype)


def let(**named: Value) -> Value:
    """`k = let(k=x + 1.0)` has a step of the routine name a value."""
    ((name, value),) = named.items()
    return Value(value.domain, value.domain.writer.name(name, value.held))


def equal(a: Value, b: Number) -> Value:
    return a.apply("eq", b)


def select(condition: Value, then: Number, otherwise: Number) -> Value:
    """`then` where the condition holds. Two numbers are FLOAT32, or UINT32 where both are whole."""
    if not isinstance(then, Value) and not isinstance(otherwise, Value):
        dtype = F32 if float in (type(then), type(otherwise)) else U32
        then = Value(condition.domain, condition.domain.writer.literal(then, dtype))
    return condition.select(then, otherwise)


def _reinterpret(x: Value, dtype: DataType) -> Value:
    return Value(x.domain, x.domain.writer.reinterpret(x.held, dtype))


def bits(x: Value) -> Value:
    """A float as the integer of its bits."""
    return _reinterpret(x, U32)


def signed_bits(x: Value) -> Value:
    """The same as a signed integer."""
    return _reinterpret(x, I32)


def from_bits(u: Value) -> Value:
    return _reinterpret(u, F32)


def convert(x: Value, dtype: DataType) -> Value:
    return Value(x.domain, x.domain.writer.convert(x.held, dtype))


def absolute(x: Value) -> Value:
    return x.apply("abs")


def isinf(x: Value) -> Value:
    return x.apply("isinf")


def isnan(x: Value) -> Value:
    return x.apply("isnan")


def round_even(x: Value) -> Value:
    return x.apply("round")


def smaller(x: Value, y: Number) -> Value:
    return x.apply("min", y)


def sqrt(x: Value) -> Value:
    return x.apply("sqrt")
