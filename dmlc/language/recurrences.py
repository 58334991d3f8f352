"""Recurrences: indexed definitions that read each other, or themselves, at other steps.

`H[t : T, n, u] = f(H[t - 1, n, u])` defines H step by step. The names that statements read
determine a recurrence's statements; the steps that they read are found when an operator is bound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from dmlc.language import syntax
from dmlc.language.walk import subexpressions


@dataclasses.dataclass(frozen=True, slots=True)
class Recurrence:
    """Recurrence: indices of its statements, from the first to the last, and the names that it
    defines, in order."""

    first: int
    last: int
    names: tuple[str, ...]


def find_recurrences(
    statements: Sequence[syntax.Statement], tensors: Collection[str]
) -> tuple[Recurrence, ...]:
    """Recurrences among the statements of a `compute` section, in order, except those of an
    operator's tensors."""
    read = [_list_indexed(statement) for statement in statements]
    made = {s.name.text: number for number, s in enumerate(statements)}
    edges = [{made[name] for name in names if name in made} for names in read]
    reached = _reach_all(edges)
    found: list[Recurrence] = []
    for number in range(len(statements)):
        round_ = [other for other in reached[number] if number in reached[other]]
        if number in reached[number] and (not found or min(round_) > found[-1].last):
            first, last = min(round_), max(round_)
            names = tuple(
                s.name.text
                for s in statements[first : last + 1]
                if isinstance(s, syntax.Assignment)
                and s.indices is not None
                and s.name.text not in tensors
                and made[s.name.text] in round_
            )
            # Where others take part too, they are read before they are defined.
            whole = len(names) == sum(isinstance(statements[n], syntax.Assignment) for n in round_)
            if whole and names:
                found.append(Recurrence(first, last, names))
    return tuple(found)


def _list_indexed(statement: syntax.Statement) -> set[str]:
    """Names that a statement reads by index, and the functions that it calls."""
    found: set[str] = set()
    for expression in subexpressions(statement):
        match expression:
            case syntax.Index(base=syntax.Reference(name=name)):
                found.add(name)
            case syntax.Call(function=syntax.Reference(name=name)):
                found.add(name)
            case _:
                pass
    return found


def _reach_all(edges: Sequence[Collection[int]]) -> list[set[int]]:
    """Transitive closure: the nodes reachable from each by one edge or more."""
    found: list[set[int]] = []
    for number in range(len(edges)):
        seen: set[int] = set()
        pending = list(edges[number])
        while pending:
            other = pending.pop()
            if other not in seen:
                seen.add(other)
                pending += edges[other]
        found.append(seen)
    return found
