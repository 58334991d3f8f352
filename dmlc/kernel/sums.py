"""Positions as sums: multiples of what is not known at compile time, and a number."""

from __future__ import annotations

import dataclasses
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


def count_turns(statement: k.Statement, known: Mapping[str, Sum]) -> Mapping[str, Sum]:
    """What is known within a statement. A loop's variable is where it starts and a step for each
    turn, for which the variable stands in sums: these serve to compare places."""
    if not isinstance(statement, k.For):
        return known
    turns = Sum({statement.variable: statement.step}, 0)
    return {**known, statement.variable.name: join(add_up(statement.start, known), turns, 1)}


def join(first: Sum, second: Sum, factor: int) -> Sum:
    """A sum, and so many times another."""
    terms = dict(first.terms)
    for term, step in second.terms.items():
        terms[term] = terms.get(term, 0) + factor * step
    known = {term: step for term, step in terms.items() if step}
    return Sum(known, first.number + factor * second.number)
