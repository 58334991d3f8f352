"""Unrolled loops over adjacent elements of register arrays, as operations on vectors.

A work item's outputs in a row are then one vector: a multiply-add of four takes one line. Elements
are computed as before, each on its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, widen
from dmlc.kernel.expand import list_steps, replace
from dmlc.kernel.rewrite import list_operands, map_body, map_expressions, walk, walk_statements
from dmlc.kernel.sums import Sum, add_up, find_remainder, note


def widen_registers(
    statements: Sequence[k.Statement], arrays: Collection[str], lanes: int
) -> list[k.Statement]:
    """Statements with aligned vectors of those register `arrays` to which nothing else is
    stored."""
    wide = set(arrays)
    while True:
        made = _Widener(arrays, wide, lanes).write(statements, {})
        stores = (s for s in walk_statements(made) if isinstance(s, k.StoreLocal))
        narrow = {s.array for s in stores if s.value.type.lanes != lanes} & wide
        if not narrow:
            return made
        wide -= narrow


@dataclasses.dataclass(frozen=True, slots=True)
class _Widener:
    arrays: Collection[str]
    """Register arrays."""
    wide: Collection[str]
    """Those to which vectors are stored."""
    lanes: int

    def write(
        self, statements: Sequence[k.Statement], around: Mapping[str, Sum]
    ) -> list[k.Statement]:
        """Statements with vectors; `around` are the visible index locals as sums."""
        sums, made = dict(around), list[k.Statement]()
        for statement in statements:
            body = _Loop(self, statement, sums).write() if isinstance(statement, k.For) else None
            if isinstance(statement, k.For) and body is not None:
                if len(list_steps(statement)) > self.lanes:
                    made.append(dataclasses.replace(statement, step=self.lanes, body=tuple(body)))
                    continue
                first = {statement.variable.name: statement.start}
                made += [map_expressions(s, lambda e, first=first: replace(e, first)) for s in body]
                continue
            note(statement, sums)
            made.append(map_body(statement, self.write, sums))
        return made


class _Loop:
    """A loop, and what varies with its steps."""

    def __init__(self, widener: _Widener, loop: k.For, sums: Mapping[str, Sum]) -> None:
        self._widener, self._loop, self._sums = widener, loop, dict(sums)
        self._sums.pop(loop.variable.name, None)
        self._moving = {loop.variable.name}
        self._places: dict[str, set[Sum]] = {}
        """Indices of the accesses of each array."""

    def write(self) -> list[k.Statement] | None:
        """Body for a vector of steps; None if the loop does anything else than compute adjacent
        elements, without those of other steps."""
        loop, lanes, made = self._loop, self._widener.lanes, list[k.Statement]()
        start = find_remainder(add_up(loop.start, self._sums), lanes, self._sums)
        if loop.step != 1 or start != 0 or not (steps := list_steps(loop)) or len(steps) % lanes:
            return None
        stored = set[str]()
        for statement in loop.body:
            match statement:
                case k.Let(local=local) if local.type == k.INDEX:
                    note(statement, self._sums)
                    if self._moves(statement.value):
                        self._moving.add(local.name)
                    made.append(statement)
                case k.StoreLocal(array=array, index=at, value=one) if array in self._widener.wide:
                    value = self._widen(one)
                    if value is None or not self._is_adjacent(array, at):
                        return None
                    for part in walk(one):
                        if isinstance(part, k.LoadLocal):
                            self._note(part.array, part.index)
                    stored.add(array)
                    made.append(k.StoreLocal(array, at, widen(value, lanes)))
                case _:
                    return None
        return made if all(len(self._places[array]) == 1 for array in stored) else None

    def _moves(self, value: k.Expression) -> bool:
        return any(isinstance(p, k.Local) and p.name in self._moving for p in walk(value))

    def _note(self, array: str, at: k.Expression) -> Sum:
        """Sum of the index of an access, which is recorded."""
        place = add_up(at, self._sums)
        self._places.setdefault(array, set()).add(place)
        return place

    def _is_adjacent(self, array: str, at: k.Expression) -> bool:
        """Whether an index is the loop's variable plus a multiple of the vector length."""
        place, variable = self._note(array, at), self._loop.variable
        _, others = place.part(lambda term: term == variable)
        if place.factor(variable) != 1 or any(map(self._moves, others.terms)):
            return False
        return find_remainder(others, self._widener.lanes, self._sums) == 0

    def _widen(self, value: k.Expression) -> k.Expression | None:
        """Vector of a value at adjacent steps, or the value itself if it is the same at each; None
        if it has no vector."""
        if not self._moves(value):
            return value
        kind = k.Type(value.type.dtype, self._widener.lanes)
        match value:
            case k.LoadLocal(array=array, index=at) if array in self._widener.arrays:
                if value.type.lanes > 1:
                    return None
                if self._is_adjacent(array, at):
                    return dataclasses.replace(value, type=kind)
                parts = {p.name for p in walk(at) if isinstance(p, k.Local)} & self._moving
                is_plain = parts == {self._loop.variable.name}
                return self._join(value, 0, kind) if is_plain else None
            case k.Operate(operation=operation) if all(
                operand.type == value.type for operand in list_operands(value)
            ):
                found = [self._widen(operand) for operand in value.operands]
                wide = tuple(widen(each, kind.lanes) for each in found if each is not None)
                return k.Operate(operation, wide, kind) if len(wide) == len(found) else None
            case _:
                return None

    def _join(self, value: k.LoadLocal, first: int, kind: k.Type) -> k.Expression:
        """Vector of elements that lie apart, from that of step `first`."""
        variable, half = self._loop.variable, kind.lanes // 2
        if not half:
            return replace(value, {variable.name: add(variable, index(first))})
        part = k.Type(kind.dtype, half)
        return k.Join(self._join(value, first, part), self._join(value, first + half, part), kind)
