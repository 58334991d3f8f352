"""Common subexpressions of buffer and register indices, as named offsets.

Index expressions are written out at every access. One that several accesses share, wholly or in
part, gets a name in the outermost scope where all its operands are visible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import (
    NUMBER,
    find_body,
    list_operands,
    map_all,
    map_body,
    map_operands,
    walk,
    walk_parts,
)
from dmlc.scalars import DataType

_WORTH = 2
"""Operations from which on a position is worth a name of its own."""


def name_offsets(kernel: k.Kernel) -> k.Kernel:
    """Kernel with names for shared index expressions."""
    arrays = {a.name for a in kernel.arrays if a.registers and a.lanes == 1}
    return dataclasses.replace(kernel, body=_Offsets(arrays).write(kernel.body, set()))


@dataclasses.dataclass(slots=True)
class _Uses:
    """Occurrences of an index subexpression."""

    first: int
    """Number of the first statement that needs it."""
    count: int = 0
    around: dict[k.Expression, None] = dataclasses.field(default_factory=dict[k.Expression, None])
    """Larger subexpressions that contain it."""


class _Offsets:
    def __init__(self, arrays: Collection[str]) -> None:
        self._arrays = arrays
        self._count = 0
        self._variables: set[str] = set()
        self._places: dict[int, tuple[k.Statement, tuple[k.Expression, ...]]] = {}

    def write(
        self, statements: Sequence[k.Statement], visible: set[str]
    ) -> tuple[k.Statement, ...]:
        """Statements with named offsets; `visible` are the locals defined outside."""
        here = set(visible)
        for statement in statements:
            if isinstance(statement, k.Variable):
                self._variables.add(statement.local.name)
            elif isinstance(statement, k.Let):
                here.add(statement.local.name)
        uses = self._count_uses(statements, here)
        chosen: dict[int, list[k.Expression]] = {}
        for expression in _choose(uses):
            chosen.setdefault(uses[expression].first, []).append(expression)
        named: dict[k.Expression, k.Expression] = {}

        def change(expression: k.Expression) -> k.Expression:
            if expression.type.dtype is DataType.INDEX and isinstance(expression, k.Operate):
                return named.get(expression) or map_operands(expression, change)
            return map_operands(expression, change)

        made: list[k.Statement] = []
        for number, statement in enumerate(statements):
            for expression in chosen.get(number, ()):
                if expression not in named:
                    local = k.Local(f"offset{NUMBER}{self._count}", expression.type)
                    self._count += 1
                    here.add(local.name)
                    made.append(k.Let(local, map_operands(expression, change)))
                    named[expression] = local
            changed = map_all((statement,), change)[0] if named else statement
            match statement:
                case k.Let(local=local, value=value) if value.type == k.INDEX and value in uses:
                    # From here on its own local names it.
                    named.setdefault(value, local)
                case _:
                    pass
            inside = here | {changed.variable.name} if isinstance(changed, k.For) else here
            made.append(map_body(changed, self.write, inside))
        return tuple(made)

    def _count_uses(
        self, statements: Sequence[k.Statement], visible: set[str]
    ) -> dict[k.Expression, _Uses]:
        """Index subexpressions that could be named among these statements."""
        uses: dict[k.Expression, _Uses] = {}
        for number, statement in enumerate(statements):
            pending: list[tuple[k.Expression, k.Expression | None]]
            pending = [(place, None) for place in reversed(self._list_indices(statement))]
            while pending:
                part, outer = pending.pop()
                if not isinstance(part, k.Operate):
                    continue
                # Operands of a fitting expression fit too.
                fits = outer is not None or self._fits(part, visible)
                if fits:
                    used = uses.get(part)
                    if used is None:
                        used = uses[part] = _Uses(number)
                    used.count += 1
                    if outer is not None:
                        used.around[outer] = None
                pending += [(o, part if fits else None) for o in part.operands]
        return uses

    def _list_indices(self, statement: k.Statement) -> tuple[k.Expression, ...]:
        """Indices of a statement's accesses, one for each lane of a register access, its body
        included."""
        known = self._places.get(id(statement))
        if known is not None:
            return known[1]
        found: list[k.Expression] = []
        if isinstance(statement, k.Store | k.Prefetch | k.StoreWord):
            found.append(statement.index)
        if isinstance(statement, k.StoreLocal) and statement.array in self._arrays:
            found += [statement.index] * statement.value.type.lanes
        for part in walk_parts(statement):
            if isinstance(part, k.Load):
                found.append(part.index)
            if isinstance(part, k.LoadLocal) and part.array in self._arrays:
                found += [part.index] * part.type.lanes
        for inner in find_body(statement):
            found += self._list_indices(inner)
        # The statement is kept, so that its id is not reused.
        self._places[id(statement)] = statement, tuple(found)
        return tuple(found)

    def _fits(self, part: k.Expression, visible: set[str]) -> bool:
        """Whether an index is pure arithmetic on visible, immutable locals."""
        for each in walk(part):
            is_read = isinstance(each, k.Load | k.LoadLocal | k.Select | k.Convert)
            if is_read or each.type.dtype is not DataType.INDEX:
                return False
            name = each.name if isinstance(each, k.Local) else None
            if name is not None and (name not in visible or name in self._variables):
                return False
        return True


def _choose(uses: Mapping[k.Expression, _Uses]) -> list[k.Expression]:
    """Subexpressions worth a name, smaller ones first."""
    found = [
        part
        for part, used in uses.items()
        if used.count > 1
        and _measure(part) >= _WORTH
        and not any(uses[outer].count == used.count for outer in used.around)
    ]
    return sorted(found, key=_measure)


def _measure(expression: k.Expression) -> int:
    """Number of operations in an expression."""
    return isinstance(expression, k.Operate) + sum(
        _measure(operand) for operand in list_operands(expression)
    )
