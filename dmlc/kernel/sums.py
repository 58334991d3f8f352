"""Indices as linear combinations of expressions, plus a constant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from dmlc.index.affine import Affine, combine, single
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import index, operate

Sum: TypeAlias = Affine[k.Expression]


def express(place: Sum) -> k.Expression:
    """Expression of a sum."""
    return place.write(lambda term: term, index, operate)


def add_up(position: k.Expression, known: Mapping[str, Sum]) -> Sum:
    """Index as a sum, with locals expanded if `known`."""
    match position:
        case k.Literal(value=value):
            return Affine(int(value))
        case k.Local(name=name) if name in known:
            return known[name]
        case k.Operate(operation=operation, operands=operands, type=k.INDEX):
            made = combine(operation.name, [add_up(operand, known) for operand in operands])
            return single(position) if made is None else made
        case _:
            return single(position)


def note(statement: k.Statement, known: dict[str, Sum]) -> None:
    """Records an index local's definition in `known`; statements must be noted in order. A loop's
    variable is its start plus the step times an iteration count, for which the variable itself
    stands; such sums serve to compare indices."""
    match statement:
        case k.Let(local=k.Local(name=name, type=k.INDEX), value=value):
            known[name] = add_up(value, known)
        case k.Let(local=local) | k.Variable(local=local):
            known.pop(local.name, None)
        case k.For(variable=variable, start=start, step=step):
            turns: Sum = single(variable, step)
            known[variable.name] = add_up(start, known).plus(turns)
        case _:
            pass


def find_remainder(place: Sum, multiple: int, known: Mapping[str, Sum]) -> int | None:
    """Remainder of an index modulo `multiple` if it is the same for all its values; else None."""
    return _Remainders(known).find_sum(place, multiple)


class _Remainders:
    """Remainders of terms, cached: shared terms would otherwise be visited exponentially often."""

    def __init__(self, known: Mapping[str, Sum]) -> None:
        self._known = known
        self._found: dict[tuple[k.Expression, int], int | None] = {}

    def find_sum(self, place: Sum, multiple: int) -> int | None:
        rest = place.constant
        for term, step in place.factors:
            # Of a term with a factor, the remainder by less matters.
            left = self._find_term(term, multiple // math.gcd(step, multiple))
            if left is None:
                return None
            rest += step * left
        return rest % multiple

    def _find_term(self, term: k.Expression, multiple: int) -> int | None:
        """Remainder of a term that is no sum."""
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
            number = 0 if divisor.factors else divisor.constant
            if name == "mod":
                return None if number == 0 or number % multiple else self._find(left, multiple)
            if number < 1:
                return None
            rest = self._find(left, multiple * number)
            return None if rest is None or rest % number else rest // number
        first, second = self._find(left, multiple), self._find(right, multiple)
        if name == "mul":
            is_known = first == 0 or second == 0 or None not in (first, second)
            return (first or 0) * (second or 0) % multiple if is_known else None
        return first if first == second and name in ("min", "max", "select") else None
