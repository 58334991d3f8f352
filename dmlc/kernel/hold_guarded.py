"""Reuse of loads under a condition by later statements under the same condition.

Rows of an open but bounded length may end before the last work items of a group, so that every
phase over a row guards its loads. A variable defined outside the guards keeps what the first of
them loads, and later ones do not load it again.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import widen, zero_of
from dmlc.kernel.rewrite import (
    drop_unused,
    find_defined,
    map_all,
    map_operands,
    name_values,
    walk,
    walk_statements,
)


def hold_guarded(kernel: k.Kernel) -> k.Kernel:
    """Kernel whose outermost guarded statements do not reload an element that was loaded under an
    equal condition. Loads of buffers that the kernel stores to are unchanged."""
    every = list(walk_statements(kernel.body))
    changing = {s.local.name for s in every if isinstance(s, k.Assign)}
    named = Counter(local.name for s in every if (local := find_defined(s)) is not None)
    kept = {b.name for b in kernel.buffers if b.access is k.Access.READ}
    lets = {s.local.name: s.value for s in kernel.body if isinstance(s, k.Let)}
    around = lets.keys() - changing
    places = {name: lets[name] for name in around if lets[name].type == k.INDEX}

    def find_key(guard: k.If, let: k.Let) -> _Key:
        """Condition and loaded value, with index locals expanded."""
        return _spell(guard.condition, places), _spell(let.value, places)

    def list_held(guard: k.If) -> list[k.Let]:
        """Loads under a guard whose index is visible outside it."""
        lets = [s for s in guard.then if isinstance(s, k.Let) and isinstance(s.value, k.Load)]
        return [let for let in lets if _find_buffers(let) <= kept and _is_known(let.value, around)]

    guards = [s for s in kernel.body if isinstance(s, k.If) and _is_known(s.condition, around)]
    uses = Counter(find_key(g, let) for g in guards for let in list_held(g))
    names = Counter((let.local.name, find_key(g, let)) for g in guards for let in list_held(g))
    held: dict[_Key, k.Local] = {}
    body: list[k.Statement] = []
    for statement in kernel.body:
        if not (isinstance(statement, k.If) and statement in guards):
            body.append(statement)
            continue
        taken: dict[str, k.Expression] = {}
        then: dict[int, k.Statement | None] = {}
        for let in list_held(statement):
            key, place = find_key(statement, let), statement.then.index(let)
            # No other scope may define another value of that name.
            alone = names[let.local.name, key] == named[let.local.name]
            if key in held:
                taken[let.local.name], then[place] = held[key], None
            elif uses[key] > 1 and alone:
                held[key] = let.local
                body.append(
                    k.Variable(
                        let.local, widen(zero_of(let.local.type.dtype), let.local.type.lanes)
                    )
                )
                then[place] = k.Assign(let.local, let.value)
        kept_statements = (then.get(n, s) for n, s in enumerate(statement.then))
        inside = tuple(s for s in kept_statements if s is not None)
        inside = map_all(inside, name_values(taken)) if taken else inside
        body.append(dataclasses.replace(statement, then=inside))
    return dataclasses.replace(kernel, body=tuple(drop_unused(body))) if held else kernel


_Key: TypeAlias = tuple[k.Expression, k.Expression]


def _spell(expression: k.Expression, places: Mapping[str, k.Expression]) -> k.Expression:
    """Expression with index locals replaced by their definitions."""
    if isinstance(expression, k.Local) and expression.name in places:
        return _spell(places[expression.name], places)
    return map_operands(expression, lambda e: _spell(e, places))


def _find_buffers(let: k.Let) -> set[str]:
    return {part.buffer for part in walk(let.value) if isinstance(part, k.Load)}


def _is_known(expression: k.Expression, names: set[str]) -> bool:
    """Whether an expression depends on locals in `names` alone, and on no array element."""
    parts = list(walk(expression))
    locals_ = {part.name for part in parts if isinstance(part, k.Local)}
    return locals_ <= names and not any(isinstance(part, k.LoadLocal) for part in parts)
