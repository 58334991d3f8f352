"""Affine index expressions: sums of terms times constants, and a constant.

The caller chooses the terms: indices of a stage, digits of indices, or kernel expressions that are
not sums."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dmlc.index.intervals import MIRRORED

T = TypeVar("T")
V = TypeVar("V")
B = TypeVar("B", int, int | float)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Affine(Generic[T]):
    """Integer `constant + sum(term * factor)`. Sums of the same terms are equal, in any order."""

    constant: int = 0
    factors: tuple[tuple[T, int], ...] = ()
    """Each term once, and what it is multiplied by, which is not 0."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)) or self.constant != other.constant:
            return False
        same = self.factors == other.factors
        return same or frozenset(self.factors) == frozenset(other.factors)

    def __hash__(self) -> int:
        return hash((self.constant, frozenset(self.factors)))

    @property
    def terms(self) -> tuple[T, ...]:
        return tuple(term for term, _ in self.factors)

    def factor(self, term: T) -> int:
        """Factor of a term; 0 if the sum lacks it."""
        return next((factor for each, factor in self.factors if each == term), 0)

    def plus(self, other: Affine[T], times: int = 1) -> Affine[T]:
        """Sum of this and `times` another."""
        constant = self.constant + times * other.constant
        if not other.factors:
            return Affine(constant, self.factors)
        if not self.factors and times == 1:
            return Affine(constant, other.factors)
        factors = dict(self.factors)
        for term, factor in other.factors:
            factors[term] = factors.get(term, 0) + factor * times
        return Affine(constant, tuple((t, factor) for t, factor in factors.items() if factor))

    def times(self, factor: int) -> Affine[T]:
        """Product with a number."""
        made = ((term, factor * each) for term, each in self.factors if factor)
        return Affine(factor * self.constant, tuple(made))

    def part(self, wanted: Callable[[T], bool]) -> tuple[Affine[T], Affine[T]]:
        """Sum of the `wanted` terms, and sum of the others with the constant."""
        own = tuple(each for each in self.factors if wanted(each[0]))
        return Affine(0, own), Affine(
            self.constant, tuple(each for each in self.factors if each not in own)
        )

    def divide(self, divisor: int) -> tuple[Affine[T], Affine[T]]:
        """Two sums `q` and `r` with `q * divisor + r` equal to this one. `r` has the terms whose
        factors are no multiples of the divisor, and a constant from 0 to `divisor - 1`."""
        quotient, remainder = divmod(self.constant, divisor)
        whole = tuple((t, factor // divisor) for t, factor in self.factors if not factor % divisor)
        rest = tuple(each for each in self.factors if each[1] % divisor)
        return Affine(quotient, whole), Affine(remainder, rest)

    def interval(self, find: Callable[[T], tuple[B, B]]) -> tuple[B | int, B | int]:
        """Smallest and largest value, given those of each term by `find`. They are exact if the
        terms are independent."""
        low: B | int = self.constant
        high: B | int = self.constant
        for term, factor in self.factors:
            least, most = find(term)
            if factor < 0:
                least, most = most, least
            low, high = low + least * factor, high + most * factor
        return low, high

    def ordered(self) -> Affine[T]:
        """Same sum, terms with larger factors first."""
        return Affine(self.constant, tuple(sorted(self.factors, key=lambda item: -item[1])))

    def write(
        self, write: Callable[[T], V], number: Callable[[int], V], apply: Callable[..., V]
    ) -> V:
        """Expression of an IR for the sum. `write` makes an expression of a term, `number` of a
        constant, and `apply` of the name of an operation and its operands. Terms keep their order,
        except that those with negative factors come last."""
        constant, made = self.constant, list[V]()
        factors = sorted(self.factors, key=lambda item: item[1] < 0)
        if factors and factors[0][1] < 0 and constant > 0:
            made, constant = [number(constant)], 0
        for term, factor in factors:
            size, value = abs(factor), write(term)
            value = value if size == 1 else apply("mul", value, number(size))
            made = [apply("sub" if factor < 0 else "add", *made, value) if made else
                    apply("neg", value) if factor < 0 else value]  # fmt: skip
        if not made:
            return number(constant)
        name = "sub" if constant < 0 else "add"
        return apply(name, made[0], number(abs(constant))) if constant else made[0]


def single(term: T, factor: int = 1) -> Affine[T]:
    """Sum of one term."""
    return Affine(0, ((term, factor),))


def combine(name: str, given: Sequence[Affine[T]]) -> Affine[T] | None:
    """Result of an operation on sums; None if it is no sum."""
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


def solve(
    name: str, left: Affine[T], right: Affine[T], wanted: Callable[[T], bool]
) -> tuple[T, str, Affine[T]] | None:
    """Comparison of two sums, solved for its only `wanted` term: the term, the name of a
    comparison, and the sum that it is compared with. None if there are several such terms, or none,
    or the term's factor is not 1 or -1."""
    own, others = right.plus(left, -1).part(wanted)
    match own.factors:
        case ((term, 1),):
            return term, MIRRORED[name], others.times(-1)
        case ((term, -1),):
            return term, name, others
        case _:
            return None
