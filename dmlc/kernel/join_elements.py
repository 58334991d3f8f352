"""Merging of adjacent loads, or stores, of a work item into aligned vectors.

Window kernels are computed output by output. Drivers merge neighbouring accesses only if they see
that four make an aligned vector; otherwise a wave requests the same cache lines for each of the
four. Vectors of four bytes are one word, and four words make 16 bytes. A merged load replaces the
first of its parts, a merged store the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.index.affine import Affine
from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import NUMBER, map_body, walk_parts
from dmlc.kernel.sums import Sum, add_up, find_remainder, note
from dmlc.kernel.target import Limits
from dmlc.scalars import DataType

_LANES = 4
"""Lanes of the vectors that schedules make."""
_BYTES = 16


def join_words(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """Kernel with vectors of 16 bytes in buffers whose accesses are all single elements or parts of
    such vectors."""
    types = (*limits.packed_types, *limits.joined_types)
    widths = {b.name: _BYTES // b.dtype.bytes for b in kernel.buffers if b.dtype in types}
    return _join(kernel, widths, _LANES, "words")


def join_elements(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """GPU kernel with vectors of four in buffers whose accesses are all elements of aligned groups
    of four."""
    if limits.whole_lanes == 1 or kernel.launch.group_size == 1:
        return kernel
    others = (*limits.packed_types, DataType.BOOL)
    small = [b for b in kernel.buffers if b.dtype.bytes <= _LANES and b.dtype not in others]
    return _join(kernel, {buffer.name: _LANES for buffer in small}, 1, "vector")


def _join(kernel: k.Kernel, widths: Mapping[str, int], unit: int, word: str) -> k.Kernel:
    """Kernel with vectors of `widths` in buffers whose accesses of `unit` elements all merge into
    such."""
    both = {b.name for b in kernel.buffers if b.access is k.Access.READ_WRITE}
    widths = {name: width for name, width in widths.items() if name not in both}
    while widths:
        joiner = _Joiner(widths, unit, word)
        body = joiner.write(kernel.body, {})
        if not joiner.apart:
            return dataclasses.replace(kernel, body=tuple(body))
        widths = {name: width for name, width in widths.items() if name not in joiner.apart}
    return kernel


class _Joiner:
    def __init__(self, widths: Mapping[str, int], unit: int, word: str) -> None:
        self._widths, self._unit, self._word = widths, unit, word
        self._count = 0
        self.apart: set[str] = set()
        """Buffers with an access that does not merge."""

    def write(
        self, statements: Sequence[k.Statement], around: Mapping[str, Sum]
    ) -> list[k.Statement]:
        """Statements with merged accesses; `around` are the visible index locals as sums."""
        sums = dict(around)
        for statement in statements:
            if not isinstance(statement, k.For):
                note(statement, sums)
        runs = self._find_runs(statements, sums)
        vectors: dict[tuple[int, ...], k.Local] = {}
        made: list[k.Statement] = []
        for number, statement in enumerate(statements):
            run = runs.get(number, ())
            match statement:
                case k.Let(local=local, value=k.Load() as load) if run:
                    if number == run[0]:
                        kind = k.Type(load.type.dtype, self._widths[load.buffer])
                        name = f"{load.buffer}_{self._word}{NUMBER}{self._word[0]}{self._count}"
                        self._count += 1
                        vectors[run] = k.Local(name, kind)
                        made.append(k.Let(vectors[run], dataclasses.replace(load, type=kind)))
                    first = self._unit * run.index(number)
                    lanes = tuple(range(first, first + self._unit))
                    made.append(k.Let(local, k.Extract(vectors[run], lanes, local.type)))
                case k.Store(buffer=buffer) if run:
                    if number == max(run):
                        stores = [s for n in run if isinstance(s := statements[n], k.Store)]
                        value = _join_vectors([each.value for each in stores])
                        made.append(k.Store(buffer, stores[0].index, value))
                case _:
                    self._note_parts(statement)
                    note(statement, sums)
                    made.append(map_body(statement, self.write, sums))
        return made

    def _note_parts(self, statement: k.Statement) -> None:
        """Excludes buffers with an access that does not merge."""
        moved = [(p.buffer, p.type) for p in walk_parts(statement) if isinstance(p, k.Load)]
        if isinstance(statement, k.Store):
            moved.append((statement.buffer, statement.value.type))
        parts = {buffer for buffer, kind in moved if (kind.lanes > 1) is (self._unit > 1)}
        self.apart |= parts & self._widths.keys()

    def _find_runs(
        self, statements: Sequence[k.Statement], sums: Mapping[str, Sum]
    ) -> dict[int, tuple[int, ...]]:
        """Statements that merge, by number: the numbers of all that make up the vector, in lane
        order."""
        runs: dict[int, tuple[int, ...]] = {}
        parts: dict[tuple[str, bool, Sum], list[int]] = {}
        for number, statement in enumerate(statements):
            match statement:
                case k.Let(value=k.Load(buffer=buffer, index=index, type=kind)):
                    is_stored = False
                case k.Store(buffer=buffer, index=index, value=value, streaming=None) if (
                    self._unit == 1 or isinstance(value, k.Local)
                ):
                    is_stored, kind = True, value.type
                case k.StoreLocal() if self._unit == 1:
                    # Loads are unaffected; a buffer store after it may depend on the array.
                    parts = {key: run for key, run in parts.items() if not key[1]}
                    continue
                case _:
                    if self._unit == 1 and not isinstance(statement, k.Let):
                        parts.clear()
                    continue
            if kind.lanes != self._unit or buffer not in self._widths:
                continue
            place, width = add_up(index, sums), self._widths[buffer]
            lane = find_remainder(place, width, sums)
            if lane is None:
                continue
            key = (buffer, is_stored, place.plus(Affine(lane), -1))
            found = parts.setdefault(key, [])
            if lane == 0 and self._unit * len(found) == width:
                # The next phase over the same points loads the vector again.
                found = parts[key] = []
            if lane != self._unit * len(found):
                continue
            found.append(number)
            if self._unit * len(found) == width:
                runs.update(dict.fromkeys(found, tuple(found)))
        return runs


def _join_vectors(parts: Sequence[k.Expression]) -> k.Expression:
    """Concatenation of vectors, whose number is a power of two."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [
            k.Join(low, high, k.Type(low.type.dtype, 2 * low.type.lanes)) for low, high in pairs
        ]
    return parts[0]
