"""Positions as sums: terms times constants, and a constant. What terms are, who has them says."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

from dmlc.ir.builder import BodyBuilder

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Linear(Generic[T]):
    """`constant + sum(term * factor)`."""

    constant: int = 0
    factors: tuple[tuple[T, int], ...] = ()

    def plus(self, other: Self, times: int = 1) -> Self:
        """The sum of this and some times another."""
        factors = dict(self.factors)
        for term, factor in other.factors:
            factors[term] = factors.get(term, 0) + factor * times
        kept = tuple((term, factor) for term, factor in factors.items() if factor)
        return type(self)(self.constant + times * other.constant, kept)

    def times(self, factor: int) -> Self:
        """So many times the sum."""
        return type(self)().plus(self, factor)

    def write(self, builder: BodyBuilder, write_term: Callable[[T], int]) -> int:
        """The sum as an INDEX value of a body, whose terms `write_term` writes."""
        factors, constant = sorted(self.factors, key=lambda item: -item[1]), self.constant
        made: int | None = None
        if factors and factors[0][1] < 0 and constant > 0:
            made, constant = builder.constant(constant), 0
        for term, factor in factors:
            value = write_term(term)
            if abs(factor) != 1:
                value = builder.apply("mul", value, builder.constant(abs(factor)))
            if made is None:
                made = builder.apply("neg", value) if factor < 0 else value
            else:
                made = builder.apply("sub" if factor < 0 else "add", made, value)
        if made is None:
            return builder.constant(constant)
        if constant:
            name = "sub" if constant < 0 else "add"
            made = builder.apply(name, made, builder.constant(abs(constant)))
        return made


L = TypeVar("L", bound=Linear[Any])


def combine_linear(name: str, given: Sequence[L]) -> L | None:
    """What an operation makes of sums; None where that is no sum."""
    match name:
        case "add":
            return given[0].plus(given[1])
        case "sub":
            return given[0].plus(given[1], -1)
        case "neg":
            return given[0].times(-1)
        case "mul" if not given[0].factors:
            return given[1].times(given[0].constant)
        case "mul" if not given[1].factors:
            return given[0].times(given[1].constant)
        case _:
            return None
