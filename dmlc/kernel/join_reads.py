"""Reads neighbours in shared arrays as one vector.

Loops that were written out read the elements of a tile one by one. Four that lie side by side, and
begin where a vector does, are read at once; the lanes of the vector stand for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import NUMBER, find_body, map_expressions, map_operands, replace_body
from dmlc.kernel.sums import Sum, add_up

_LANES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class _Lane:
    """A read that becomes a lane of a vector."""

    first: int
    """The number of the statement that reads the first one."""
    lane: int


def join_reads(kernel: k.Kernel, lanes: int) -> k.Kernel:
    """The same kernel with vectors read from shared arrays; as it is, for a language that buffers
    have no vectors in: of one of the `lanes`."""
    shared = {a.name for a in kernel.arrays if a.shared}
    if lanes == 1 or not shared:
        return kernel
    return dataclasses.replace(kernel, body=tuple(_Joiner(shared).write(kernel.body, {})))


class _Joiner:
    def __init__(self, shared: set[str]) -> None:
        self._shared = shared
        self._count = 0

    def write(
        self, statements: Sequence[k.Statement], around: Mapping[str, Sum]
    ) -> list[k.Statement]:
        """The statements; `around` has the positions that are in sight."""
        sums = dict(around)
        for statement in statements:
            if isinstance(statement, k.Let) and statement.local.type == k.INDEX:
                sums[statement.local.name] = add_up(statement.value, sums)
        joined = self._find_joined(statements, sums)
        vectors: dict[int, k.Local] = {}
        known: dict[str, k.Expression] = {}

        def change(expression: k.Expression) -> k.Expression:
            if isinstance(expression, k.Local):
                return known.get(expression.name, expression)
            return map_operands(expression, change)

        made: list[k.Statement] = []
        for number, statement in enumerate(statements):
            changed, lane = map_expressions(statement, change), joined.get(number)
            if lane is None or not isinstance(changed, k.Let):
                body = find_body(changed)
                made.append(replace_body(changed, self.write(body, sums)) if body else changed)
                continue
            local = changed.local
            if lane.first == number and isinstance(changed.value, k.LoadLocal):
                name = f"{local.name.partition(NUMBER)[0]}{NUMBER}v{self._count}"
                self._count += 1
                vectors[number] = k.Local(name, k.Type(local.type.dtype, _LANES))
                load = dataclasses.replace(changed.value, type=vectors[number].type)
                made.append(k.Let(vectors[number], load))
            known[local.name] = k.Extract(vectors[lane.first], (lane.lane,), local.type)
        return made

    def _find_joined(
        self, statements: Sequence[k.Statement], sums: Mapping[str, Sum]
    ) -> dict[int, _Lane]:
        """The reads that become lanes, by the numbers of their statements."""
        joined: dict[int, _Lane] = {}
        pending: dict[tuple[object, ...], list[tuple[int, int]]] = {}
        done: dict[tuple[object, ...], int] = {}
        for number, statement in enumerate(statements):
            if not isinstance(statement, k.Let):
                written = isinstance(statement, k.StoreLocal) and statement.array in self._shared
                written |= isinstance(statement, k.StoreMatrix)
                if written or isinstance(statement, k.Barrier) or find_body(statement):
                    pending.clear()
                    done.clear()
                continue
            value = statement.value
            if not isinstance(value, k.LoadLocal) or value.array not in self._shared:
                continue
            place = add_up(value.index, sums)
            if value.type.lanes > 1 or any(step % _LANES for step in place.terms.values()):
                continue
            chunk, lane = divmod(place.number, _LANES)
            key = (value.array, frozenset(place.terms.items()), chunk)
            if key in done:
                joined[number] = _Lane(done[key], lane)
                continue
            lanes = pending.setdefault(key, [])
            found = {one for _, one in lanes}
            # The vector is read where the first of its elements was.
            if lane in found or lane == len(found):
                lanes.append((number, lane))
            if len(found | {lane}) == _LANES:
                joined.update({n: _Lane(lanes[0][0], one) for n, one in lanes})
                del pending[key]
                done[key] = lanes[0][0]
        return joined
