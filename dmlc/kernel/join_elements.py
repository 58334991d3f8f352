"""Moves four neighbours at once where a work item reads or stores all of them one by one.

What windows write out is computed output by output. Drivers join neighbouring loads and stores
only where they see that four begin where a vector of memory does; else a wave asks for the same
lines again for each of the four. Reads go where the first of them stands, and stores where the last
does: what lies between computes, and no more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.join_words import join_vectors
from dmlc.kernel.rewrite import NUMBER, find_body, list_expressions, replace_body, walk
from dmlc.kernel.sums import Sum, add_up, find_rest, note
from dmlc.kernel.target import Limits
from dmlc.scalars import DataType

_LANES = 4


def join_elements(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """The same kernel for a GPU, with vectors of four in the buffers of which it reads or stores
    four neighbours that begin where a vector does, and nothing else."""
    if limits.whole_lanes == 1 or kernel.launch.group_size == 1:
        return kernel
    moved = {
        buffer.name: buffer.access is k.Access.WRITE
        for buffer in kernel.buffers
        if buffer.access is not k.Access.READ_WRITE
        and buffer.dtype.bytes <= _LANES
        and buffer.dtype not in (*limits.packed_types, DataType.BOOL)
    }
    while moved:
        joiner = _Joiner(moved)
        body = joiner.write(kernel.body, {})
        if not joiner.apart:
            return dataclasses.replace(kernel, body=tuple(body))
        moved = {name: stored for name, stored in moved.items() if name not in joiner.apart}
    return kernel


class _Joiner:
    def __init__(self, moved: Mapping[str, bool]) -> None:
        self._moved = moved
        """The buffers of which vectors are moved, and whether they are stored."""
        self._count = 0
        self.apart: set[str] = set()
        """The buffers that have single elements elsewhere: in vectors, each would take a lane."""

    def write(
        self, statements: Sequence[k.Statement], around: Mapping[str, Sum]
    ) -> list[k.Statement]:
        """The statements; `around` has the positions that are in sight."""
        sums = dict(around)
        runs = self._find_runs(statements, sums)
        vectors: dict[tuple[int, ...], k.Local] = {}
        made: list[k.Statement] = []
        for number, statement in enumerate(statements):
            run = runs.get(number, ())
            match statement:
                case k.Let(local=local, value=k.Load() as load) if run:
                    if number == run[0]:
                        kind = k.Type(load.type.dtype, _LANES)
                        name = f"{load.buffer}_vector{NUMBER}v{self._count}"
                        self._count += 1
                        vectors[run] = k.Local(name, kind)
                        made.append(k.Let(vectors[run], dataclasses.replace(load, type=kind)))
                    lanes = (run.index(number),)
                    made.append(k.Let(local, k.Extract(vectors[run], lanes, local.type)))
                case k.Store(buffer=buffer) if run:
                    if number == max(run):
                        stores = [s for n in run if isinstance(s := statements[n], k.Store)]
                        value = join_vectors([each.value for each in stores])
                        made.append(k.Store(buffer, stores[0].index, value))
                case _:
                    self._note_single(statement)
                    note(statement, sums)
                    body = self.write(find_body(statement), sums)
                    made.append(replace_body(statement, body) if body else statement)
        return made

    def _note_single(self, statement: k.Statement) -> None:
        """Sets apart the buffers of elements that are moved one by one."""
        if isinstance(statement, k.Store) and statement.value.type.lanes == 1:
            self.apart.update({statement.buffer} & self._moved.keys())
        for expression in list_expressions(statement):
            for part in walk(expression):
                if isinstance(part, k.Load) and part.type.lanes == 1:
                    self.apart.update({part.buffer} & self._moved.keys())

    def _find_runs(
        self, statements: Sequence[k.Statement], sums: dict[str, Sum]
    ) -> dict[int, tuple[int, ...]]:
        """The numbers of four statements that move neighbours, by each of these."""
        runs: dict[int, tuple[int, ...]] = {}
        parts: dict[tuple[str, object, int], list[int]] = {}
        for number, statement in enumerate(statements):
            match statement:
                case k.Let(value=k.Load(buffer=buffer, index=index, type=kind)):
                    is_stored = False
                case k.Store(buffer=buffer, index=index, streaming=None):
                    is_stored, kind = True, statement.value.type
                case k.Let():
                    note(statement, sums)
                    continue
                case k.StoreLocal():
                    # What is read stays the same; what is stored may be of an array's elements.
                    parts = {key: run for key, run in parts.items() if not self._moved[key[0]]}
                    continue
                case _:
                    parts.clear()
                    continue
            if kind.lanes > 1 or self._moved.get(buffer) is not is_stored:
                continue
            place = add_up(index, sums)
            lane = find_rest(place, _LANES, sums)
            if lane is None:
                continue
            chunk = place.number - lane
            found = parts.setdefault((buffer, frozenset(place.terms.items()), chunk), [])
            if lane != len(found):
                continue
            found.append(number)
            if len(found) == _LANES:
                runs.update(dict.fromkeys(found, tuple(found)))
        return runs
