"""Positions as sums: multiples of what is not known at compile time, and a number."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply, operate


@dataclasses.dataclass(frozen=True, slots=True)
class Sum:
    """A position: multiples of what is not known, and a number."""

    terms: Mapping[k.Expression, int]
    number: int

    def without(self, term: k.Expression) -> Sum:
        """The sum of all else."""
        return Sum({t: step for t, step in self.terms.items() if t != term}, self.number)

    def express(self) -> k.Expression:
        """The position as an expression."""
        made: k.Expression = index(0)
        for term, step in sorted(self.terms.items(), key=lambda item: item[1] < 0):
            if step > 0 or made == index(0):
                made = add(made, multiply(term, step))
            else:
                made = operate("sub", made, multiply(term, -step))
        return add(made, index(self.number))


def add_up(position: k.Expression, known: Mapping[str, Sum]) -> Sum:
    """A position as a sum, as far as that is `known`, by the names of locals."""
    match position:
        case k.Literal(value=value):
            return Sum({}, int(value))
        case k.Local(name=name) if name in known:
            return known[name]
        case k.Operate(operation=operation, operands=(left, right), type=k.INDEX):
            first, second = add_up(left, known), add_up(right, known)
            match operation.name:
                case "add":
                    return join(first, second, 1)
                case "sub":
                    return join(first, second, -1)
                case "mul" if not second.terms:
                    return join(Sum({}, 0), first, second.number)
                case _:
                    pass
        case _:
            pass
    return Sum({position: 1}, 0)


def note(statement: k.Statement, known: dict[str, Sum]) -> None:
    """Notes what a statement says of positions, which is all that is `known` where statements are
    noted in the order in which they stand. A loop's variable is where it starts and a step for each
    turn, for which the variable stands in sums: these serve to compare places."""
    match statement:
        case k.Let(local=k.Local(name=name, type=k.INDEX), value=value):
            known[name] = add_up(value, known)
        case k.Let(local=local) | k.Variable(local=local):
            known.pop(local.name, None)
        case k.For(variable=variable, start=start, step=step):
            known[variable.name] = join(add_up(start, known), Sum({variable: step}, 0), 1)
        case _:
            pass


def find_rest(place: Sum, multiple: int, known: Mapping[str, Sum]) -> int | None:
    """What a position leaves over of a `multiple`, a power of two: 0 to `multiple` - 1, where that
    is the same whatever the position is; None where it may not be."""
    return _Rests(known).find_sum(place, multiple)


class _Rests:
    """The remainders of terms, each found once: terms share parts, whose number doubles with each
    choice between two sums of the same local."""

    def __init__(self, known: Mapping[str, Sum]) -> None:
        self._known = known
        self._found: dict[tuple[k.Expression, int], int | None] = {}

    def find_sum(self, place: Sum, multiple: int) -> int | None:
        rest = place.number
        for term, step in place.terms.items():
            # Of a term that is multiplied, less needs to be known.
            left = self._find_term(term, multiple // math.gcd(step, multiple))
            if left is None:
                return None
            rest += step * left
        return rest % multiple

    def _find_term(self, term: k.Expression, multiple: int) -> int | None:
        """The remainder of a term that is no sum."""
        if multiple == 1:
            return 0
        if (term, multiple) not in self._found:
            self._found[term, multiple] = self._compute(term, multiple)
        return self._found[term, multiple]

    def _find(self, part: k.Expression, multiple: int) -> int | None:
        return self.find_sum(add_up(part, self._known), multiple)

    def _compute(self, term: k.Expression, multiple: int) -> int | None:
        match term:
            case k.Operate(operation=operation, operands=(left, right), type=k.INDEX):
                name = operation.name
            case k.Select(then=left, otherwise=right, type=k.INDEX):
                name = "select"
            case _:
                return None
        if name in ("mod", "div"):
            divisor = add_up(right, self._known)
            number = 0 if divisor.terms else divisor.number
            if name == "mod":
                return None if number == 0 or number % multiple else self._find(left, multiple)
            if number < 1 or number & (number - 1):
                return None
            rest = self._find(left, multiple * number)
            return None if rest is None or rest % number else rest // number
        first, second = self._find(left, multiple), self._find(right, multiple)
        if name == "mul":
            is_known = first == 0 or second == 0 or None not in (first, second)
            return (first or 0) * (second or 0) % multiple if is_known else None
        return first if first == second and name in ("min", "max", "select") else None


def join(first: Sum, second: Sum, factor: int) -> Sum:
    """A sum, and so many times another."""
    terms = dict(first.terms)
    for term, step in second.terms.items():
        terms[term] = terms.get(term, 0) + factor * step
    known = {term: step for term, step in terms.items() if step}
    return Sum(known, first.number + factor * second.number)
