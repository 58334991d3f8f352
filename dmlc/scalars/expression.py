"""Expressions over operands: Python functions of `Value`s, for whoever evaluates them.

A `Domain` says what values are, the numbers of a body or the nodes of a model for instance, and
computes with them; `Domain.compute` has an expression's value there.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from dmlc.source import InternalError

Held = TypeVar("Held")

Number: TypeAlias = "Value | int | float"


class Domain(abc.ABC, Generic[Held]):
    """What the values of an expression are, and how they are computed."""

    @abc.abstractmethod
    def apply(self, name: str, given: Sequence[Held]) -> Held:
        """A scalar operation, by its name."""

    @abc.abstractmethod
    def select(self, condition: Held, then: Held, otherwise: Held) -> Held:
        """`then` where a condition holds."""

    @abc.abstractmethod
    def number(self, value: int | float, like: Held) -> Held:
        """A number of the type of another value."""

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
    """What the domain has for it."""

    def apply(self, name: str, *others: Number) -> Value:
        """An operation, by its name, on this value and others."""
        return self.operate(name, self, *others)

    def operate(self, name: str, *given: Number) -> Value:
        """An operation on values of this one's type, all of which are given."""
        return Value(self.domain, self.domain.apply(name, [self._hold(g) for g in given]))

    def select(self, then: Number, otherwise: Number) -> Value:
        """`then` where this one, a condition, holds. One of them is a `Value`."""
        typed = then if isinstance(then, Value) else otherwise
        if not isinstance(typed, Value):
            raise InternalError("one of the values chosen from must say its type")
        held = self.domain.unwrap(self), typed._hold(then), typed._hold(otherwise)
        return Value(self.domain, self.domain.select(*held))

    def like(self, number: int | float) -> Value:
        """A number of this one's type."""
        return Value(self.domain, self.domain.number(number, self.held))

    def _hold(self, given: Number) -> Any:
        if isinstance(given, Value):
            return self.domain.unwrap(given)
        return self.domain.number(given, self.held)

    __add__, __radd__ = _infix("add"), _reflected("add")
    __sub__, __rsub__ = _infix("sub"), _reflected("sub")
    __mul__, __rmul__ = _infix("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _infix("div"), _reflected("div")
    __lt__, __le__ = _infix("lt"), _infix("le")
    __gt__, __ge__ = _infix("gt"), _infix("ge")

    def __neg__(self) -> Value:
        return self.apply("neg")
