"""Expressions over operands: Python functions of `Value`s, independent of the representation.

A `Domain` represents values, as instructions of a body or nodes of a model for instance, and
computes with them; `Domain.compute` evaluates an expression in it. A `Routine` is an expression
that becomes a function of its own in a language without the operation. Its steps have names, by
`let`, and it may access the bits of floats: a domain that generates it is a `Writer`.
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
    """Representation of values in which expressions are computed."""

    @abc.abstractmethod
    def type_of(self, value: Held) -> DataType:
        """Data type of a value."""

    @abc.abstractmethod
    def apply(self, name: str, *given: Held) -> Held:
        """Scalar operation, by its name, on values of one type."""

    @abc.abstractmethod
    def select(self, condition: Held, then: Held, otherwise: Held) -> Held:
        """Choice: `then` where a condition holds, and `otherwise` elsewhere."""

    @abc.abstractmethod
    def cast(self, value: Held, dtype: DataType) -> Held:
        """Value converted to another type."""

    @abc.abstractmethod
    def literal(self, value: int | float, dtype: DataType) -> Held:
        """Number of a type."""

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
        """Value of an expression on some operands."""
        return self.unwrap(expression(*map(self.wrap, given)))


class Writer(Domain[Held]):
    """Domain that generates code of routines."""

    @property
    def writer(self) -> Writer[Held]:
        return self

    @abc.abstractmethod
    def name(self, wanted: str, held: Held) -> Held:
        """Named step of the routine."""

    @abc.abstractmethod
    def reinterpret(self, held: Held, dtype: DataType) -> Held:
        """Same bits as a value of another type."""

    @abc.abstractmethod
    def call(self, routine: Routine, given: Sequence[Held]) -> Held: ...


# Operators ------------------------------------------------------------------------------------

Own = TypeVar("Own", bound="OperatorMethods")


def _infix(name: str) -> Callable[[Own, Any], Own]:
    return lambda left, right: left.combine(name, left, right)


def _reflected(name: str) -> Callable[[Own, Any], Own]:
    return lambda right, left: right.combine(name, left, right)


def _prefix(name: str) -> Callable[[Own], Own]:
    return lambda value: value.combine(name, value)


class OperatorMethods(abc.ABC):
    """Values with Python's operators: each is a scalar operation, by its name."""

    __slots__ = ()

    @abc.abstractmethod
    def combine(self: Own, name: str, *given: Any) -> Own:
        """Operation on values of this one's kind and numbers, without this one. `and`, `or` and
        `not` may be those of bits."""

    __array_ufunc__ = None  # NumPy's scalars leave their arithmetic with values to these.

    __add__, __radd__ = _infix("add"), _reflected("add")
    __sub__, __rsub__ = _infix("sub"), _reflected("sub")
    __mul__, __rmul__ = _infix("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _infix("div"), _reflected("div")
    __mod__, __rmod__ = _infix("mod"), _reflected("mod")
    __and__, __rand__ = _infix("and"), _reflected("and")
    __or__, __ror__ = _infix("or"), _reflected("or")
    __lt__, __le__ = _infix("lt"), _infix("le")
    __gt__, __ge__ = _infix("gt"), _infix("ge")
    __pow__, __rpow__ = _infix("pow"), _reflected("pow")
    __neg__, __invert__, __abs__ = _prefix("neg"), _prefix("not"), _prefix("abs")


_BITWISE = {"and": "bit_and", "or": "bit_or", "not": "bit_not"}
"""Integer counterparts of the logical operators."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Value(OperatorMethods):
    """Value of an expression, in a domain. All operands of an operation have one type, and a number
    takes that of the others. `/` of integers truncates, and by 0 gives 0. `&`, `|`, `^` and `~` are
    bitwise on integers, and `and`, `or`, `ne` and `not` on booleans. `equals` and `differs` compare
    values: Python's `==` compares objects."""

    domain: Domain[Any]
    held: Any
    """Representation in the domain."""

    @property
    def dtype(self) -> DataType:
        return self.domain.type_of(self.held)

    def apply(self, name: str, *others: Number) -> Value:
        """Operation, by its name, on this value and others."""
        return self.operate(name, self, *others)

    def operate(self, name: str, *given: Number) -> Value:
        """Operation on values of this one's type, without this one."""
        return Value(self.domain, self.domain.apply(name, *[self.hold(g) for g in given]))

    def combine(self, name: str, *given: Number) -> Value:
        on_booleans = self.dtype is DataType.BOOL
        return self.operate(name if on_booleans else _BITWISE.get(name, name), *given)

    def select(self, then: Number, otherwise: Number) -> Value:
        """Choice: `then` where this condition holds, and `otherwise` elsewhere. One of them is a
        `Value`."""
        typed = then if isinstance(then, Value) else otherwise
        if not isinstance(typed, Value):
            raise InternalError("one of the values chosen from must say its type")
        held = self.domain.unwrap(self), typed.hold(then), typed.hold(otherwise)
        return Value(self.domain, self.domain.select(*held))

    def cast(self, dtype: DataType) -> Value:
        """Value converted to another type, with the rules of the language's `cast`."""
        return (
            self if dtype is self.dtype else Value(self.domain, self.domain.cast(self.held, dtype))
        )

    def like(self, number: int | float) -> Value:
        """Number of this one's type."""
        return Value(self.domain, self.hold(number))

    def hold(self, given: Number) -> Any:
        """Representation of a value, or of a number of this one's type."""
        if isinstance(given, Value):
            return self.domain.unwrap(given)
        return self.domain.literal(given, self.dtype)

    def equals(self, other: Number) -> Value:
        return self.apply("eq", other)

    def differs(self, other: Number) -> Value:
        return self.apply("ne", other)

    def __lshift__(self, other: Number) -> Value:
        return self.apply("shift_left", other)

    def __rshift__(self, other: Number) -> Value:
        return self.apply("shift_right", other)

    def __xor__(self, other: Number) -> Value:
        return self.apply("ne" if self.dtype is DataType.BOOL else "bit_xor", other)


# Routines -------------------------------------------------------------------------------------

F32, F64 = DataType.FLOAT32, DataType.FLOAT64
I32, U32 = DataType.INT32, DataType.UINT32


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """Function from `Value`s of one type to one value, generated as a function of its own, called
    by its name. Any other Python function is inlined where it is called, and may return several
    values."""

    function: Callable[..., Value]
    dtype: DataType

    @property
    def name(self) -> str:
        return self.function.__name__

    def __call__(self, *given: Number) -> Value:
        """Call in a routine that is being generated."""
        first = next(v for v in given if isinstance(v, Value))
        return Value(first.domain, first.domain.writer.call(self, [first.hold(g) for g in given]))


def define(function: Callable[..., Value], dtype: DataType = F32) -> Routine:
    return Routine(function, dtype)


def let(**named: Value) -> Value:
    """Names a step of the routine: `k = let(k=x + 1.0)`."""
    ((name, value),) = named.items()
    return Value(value.domain, value.domain.writer.name(name, value.held))


def select(condition: Value, then: Number, otherwise: Number) -> Value:
    """Choice: `then` where the condition holds, and `otherwise` elsewhere. Two numbers are FLOAT32,
    or UINT32 if both are whole."""
    if not isinstance(then, Value) and not isinstance(otherwise, Value):
        dtype = F32 if float in (type(then), type(otherwise)) else U32
        then = Value(condition.domain, condition.domain.literal(then, dtype))
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
