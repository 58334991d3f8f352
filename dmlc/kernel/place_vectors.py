"""Vector indices as a shared base plus a constant.

Written out independently, the index of each vector is a different sum. As a base known to be a
multiple of the vector length plus a constant, its alignment is evident to readers and compilers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.index.affine import Affine
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add
from dmlc.kernel.arithmetic import index as literal
from dmlc.kernel.rewrite import drop_unused, map_body, map_expressions, map_operands
from dmlc.kernel.sums import Sum, add_up, note


def place_vectors(kernel: k.Kernel, lanes: int) -> k.Kernel:
    """Kernel whose vector accesses that differ by constants share a base. Unchanged if vectors have
    no fixed length."""
    if lanes < 2:
        return kernel

    def write(statements: Sequence[k.Statement], places: _IndexLocals) -> list[k.Statement]:
        def change(expression: k.Expression) -> k.Expression:
            made = map_operands(expression, change)
            if isinstance(made, k.Load) and made.type.lanes > 1:
                return k.Load(made.buffer, places.find(made.index), made.type)
            return made

        made: list[k.Statement] = []
        for each in statements:
            statement = map_expressions(each, change)
            if isinstance(statement, k.Let) and statement.local.type == k.INDEX:
                places.values[statement.local.name] = statement.value
                note(statement, places.sums)
            if isinstance(statement, k.Store) and statement.value.type.lanes > 1:
                place = places.find(statement.index)
                statement = dataclasses.replace(statement, index=place)
            made.append(map_body(statement, lambda body: write(body, places.copy())))
        return made

    made = write(kernel.body, _IndexLocals({}, {}, {}))
    return dataclasses.replace(kernel, body=tuple(drop_unused(made)))


@dataclasses.dataclass(frozen=True, slots=True)
class _IndexLocals:
    """Visible index locals."""

    values: dict[str, k.Expression]
    """Definitions, by name."""
    sums: dict[str, Sum]
    firsts: dict[Sum, tuple[k.Expression, int]]
    """First vector index of those that differ by a constant, with its constant."""

    def copy(self) -> _IndexLocals:
        return _IndexLocals(dict(self.values), dict(self.sums), dict(self.firsts))

    def find(self, index: k.Expression) -> k.Expression:
        """Index as a local plus a constant, from its definition or from a preceding vector's
        index."""
        match self.values.get(index.name) if isinstance(index, k.Local) else None:
            case k.Operate(operands=(k.Local(), k.Literal())) as value if (
                value.operation.name == "add"
            ):
                return value
            case _:
                place = add_up(index, self.sums)
        own = place.constant
        first, number = self.firsts.setdefault(Affine(0, place.factors), (index, own))
        return index if own <= number else add(first, literal(own - number))
