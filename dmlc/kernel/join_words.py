"""Moves 16 bytes at once where several elements share a word.

Schedules give a work item vectors of four neighbours, side by side; of bytes each is one word. What
fills four words, and begins where four words do, is read as one vector, of which each part is
taken, and is stored as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import NUMBER, find_body, replace_body, walk_parts
from dmlc.kernel.sums import Sum, add_up, find_rest, note
from dmlc.kernel.target import Limits

_LANES = 4
"""Elements of a vector, as schedules make them."""
_BYTES = 16


def join_words(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """The same kernel with vectors of 16 bytes in the buffers of which it reads and stores nothing
    but such, and single elements."""
    widths = {
        b.name: _BYTES // b.dtype.bytes
        for b in kernel.buffers
        if b.dtype in (*limits.packed_types, *limits.joined_types)
        and b.access is not k.Access.READ_WRITE
    }
    while widths:
        joiner = _Joiner(widths)
        body = joiner.write(kernel.body, {})
        if not joiner.apart:
            return dataclasses.replace(kernel, body=tuple(body))
        widths = {name: width for name, width in widths.items() if name not in joiner.apart}
    return kernel


_Run: TypeAlias = tuple[int, ...]
"""Neighbouring vectors that are moved at once, by the numbers of their statements."""


class _Joiner:
    def __init__(self, widths: Mapping[str, int]) -> None:
        self._widths = widths
        self._count = 0
        self.apart: set[str] = set()
        """The buffers that have vectors elsewhere."""

    def write(
        self, statements: Sequence[k.Statement], around: Mapping[str, Sum]
    ) -> list[k.Statement]:
        """The statements; `around` has the positions that are in sight."""
        sums = dict(around)
        for statement in statements:
            if not isinstance(statement, k.For):
                note(statement, sums)
        runs = self._find_runs(statements, sums)
        vectors: dict[_Run, k.Local] = {}
        made: list[k.Statement] = []
        for number, statement in enumerate(statements):
            run = runs.get(number)
            match statement:
                case k.Let(local=local, value=k.Load() as load) if run is not None:
                    if number == run[0]:  # All of it is read where the first of them stands.
                        whole = k.Type(load.type.dtype, self._widths[load.buffer])
                        name = f"{load.buffer}_words{NUMBER}w{self._count}"
                        self._count += 1
                        vectors[run] = k.Local(name, whole)
                        made.append(k.Let(vectors[run], dataclasses.replace(load, type=whole)))
                    first = _LANES * run.index(number)
                    lanes = tuple(range(first, first + _LANES))
                    made.append(k.Let(local, k.Extract(vectors[run], lanes, local.type)))
                case k.Store() if run is not None:
                    if number == max(run):  # It is stored where the last does.
                        stores = [s for n in run if isinstance(s := statements[n], k.Store)]
                        value = join_vectors([each.value for each in stores])
                        made.append(k.Store(statement.buffer, stores[0].index, value))
                case _:
                    note(statement, sums)
                    body = self.write(find_body(statement), sums)
                    made.append(replace_body(statement, body) if body else statement)
        return made

    def _find_runs(
        self, statements: Sequence[k.Statement], sums: Mapping[str, Sum]
    ) -> dict[int, _Run]:
        """The vectors that are moved with others, by the numbers of their statements."""
        parts: dict[tuple[str, object, int], list[int]] = {}
        for number, statement in enumerate(statements):
            match statement:
                case k.Let(value=k.Load(buffer=buffer, index=index, type=type_)):
                    pass
                case k.Store(buffer=buffer, index=index, value=k.Local(type=type_)):
                    pass
                case _:
                    self._note_vectors(statement)
                    continue
            width = self._widths.get(buffer)
            if width is None or type_.lanes == 1:
                continue
            place = add_up(index, sums)
            first = find_rest(place, width, sums)
            if first is None:
                self.apart.add(buffer)
                continue
            key = (buffer, frozenset(place.terms.items()), place.number - first)
            numbers = parts.setdefault(key, [])
            if first != _LANES * len(numbers):
                self.apart.add(buffer)
                continue
            numbers.append(number)
        runs: dict[int, _Run] = {}
        for (buffer, _, _), numbers in parts.items():
            if _LANES * len(numbers) != self._widths[buffer]:
                self.apart.add(buffer)
            runs.update(dict.fromkeys(numbers, tuple(numbers)))
        return runs

    def _note_vectors(self, statement: k.Statement) -> None:
        """Sets apart the buffers of vectors that are no statement's own."""
        if isinstance(statement, k.Store) and statement.value.type.lanes > 1:
            self.apart.update({statement.buffer} & self._widths.keys())
        for part in walk_parts(statement):
            if isinstance(part, k.Load) and part.type.lanes > 1:
                self.apart.update({part.buffer} & self._widths.keys())


def join_vectors(parts: Sequence[k.Expression]) -> k.Expression:
    """One vector of several, as many as a power of two."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [
            k.Join(low, high, k.Type(low.type.dtype, 2 * low.type.lanes)) for low, high in pairs
        ]
    return parts[0]
