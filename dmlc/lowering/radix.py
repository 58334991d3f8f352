"""Kernels that sort rows: a radix sort, from the least significant digit to the most significant.

Each work item of a CPU, or work group of a GPU, owns a chunk of a row, and processes it in order.
The first kernel makes keys of the numbers. For each digit, one kernel counts the occurrences of
each value in each chunk; the next computes the first position of each value, after all smaller
values and those of preceding chunks, and moves each key to the next position of its value. If a row
is one chunk, all this is one kernel. Every digit's pass is stable.

A group sorts each tile of its chunk by the digit in shared memory first, so that keys with equal
digits are stored contiguously. A row of one tile is sorted there by all digits, and goes through
memory once.

No two keys have the same position, whatever they are, as positions are counted. Nothing is atomic,
and the result does not depend on the chunks. A chunk waits for no other one of its kernel: a
decoupled look-back would save a launch per digit, but neither Vulkan nor D3D12 guarantees forward
progress of the groups that it waits for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.lowering.texts import Texts
from dmlc.scalars import DataType, Kind
from dmlc.transform.ranked import Sorted
from dmlc.transform.sort import NUMBER

_TEMPLATES = {False: "radix.kernel.j2", True: "radix.group.j2"}
"""Template, by whether work groups own the chunks."""
_DIGIT_BITS = 8
"""Bits of a digit. The counts of all its values fit in the L1 cache, and as many positions are
written to in parallel."""
_DIGITS = 1 << _DIGIT_BITS
_SAME = {DataType.FLOAT16: 1, DataType.BFLOAT16: 2}
"""Number of low digits of a widened number's key that the others determine."""
_LEAST_STRETCH = 16 * _DIGITS
"""Smallest number of elements of a chunk, if a row has several, so that counts are few in
comparison."""
_PER_ITEM = 8
"""Elements of a tile per work item: their 4-bit counts must be few in comparison, and take their
place in shared memory."""
_APART = "all digits of one kind are put in order before the next"


@dataclasses.dataclass(frozen=True, slots=True)
class Stretches:
    """Distribution of rows over chunks."""

    rows: int
    length: int
    """Elements of a row."""
    size: int
    """Elements of a chunk; the last one of a row may have fewer. For groups, a multiple of a
    tile."""

    @classmethod
    def choose(cls, rows: int, length: int, profile: Profile) -> Stretches:
        """Distribution that keeps a device busy, with chunks of a minimal length."""
        if not profile.grouped:
            wanted = min(-(-profile.groups // rows), length // _LEAST_STRETCH)
            return cls(rows, length, -(-length // max(1, wanted)))
        tile = profile.group_size * _PER_ITEM
        tiles = -(-length // tile)
        wanted = max(1, min(2 * profile.groups // rows, tiles))
        return cls(rows, length, -(-tiles // wanted) * tile)

    @property
    def per_row(self) -> int:
        """Chunks of a row."""
        return -(-self.length // self.size)

    @property
    def numbers(self) -> int:
        """Elements of all rows."""
        return self.rows * self.length

    @property
    def count(self) -> int:
        """Chunks of all rows."""
        return self.rows * self.per_row


@dataclasses.dataclass(frozen=True, slots=True)
class SortedKeys:
    """Rows between two digits: their keys, and their original indices if wanted. Before the first
    digit, the original index is the current one."""

    keys: k.Buffer | None = None
    places: k.Buffer | None = None

    @property
    def buffers(self) -> tuple[k.Buffer, ...]:
        return tuple(b for b in (self.keys, self.places) if b is not None)

    @property
    def names(self) -> Mapping[str, str]:
        """Names in a kernel's text, and the type of results that original indices are converted
        to."""
        named = {"key": self.keys, "place": self.places}
        names = {what: "" if buffer is None else buffer.name for what, buffer in named.items()}
        dtype = NUMBER if self.places is None else self.places.dtype
        return names | {"type": "" if dtype is NUMBER else dtype.short}


_Step: TypeAlias = Mapping[str, object]
"""Call of a template's macro on the elements of a chunk, with its arguments."""


class Sorter(Texts):
    """Generator of the kernels that sort the rows of one tensor."""

    template = ""
    """Template of the statements, if it is not a radix sort's."""

    def __init__(
        self, function: ir.Function, rows: Sorted, profile: Profile, limits: Limits
    ) -> None:
        super().__init__(function, rows.ranking.stage.name, limits)
        self._rows, self._lanes = rows, profile.group_size
        stage, ranking = rows.ranking.stage, rows.ranking
        self.dtype = ir.value_type(stage.body.instructions[ranking.number])
        """Type of the numbers."""
        self._descends = ranking.descends
        self._digits = range(self.dtype.bytes * 8 // _DIGIT_BITS)
        """Digits of a key to sort by."""
        *outer, length = (extent for extent in stage.extents if isinstance(extent, int))
        self._stretches = Stretches.choose(math.prod(outer), length, profile)
        self.template = self.template or _TEMPLATES[self._lanes > 1]

    @property
    def _key(self) -> DataType:
        """Type of the keys."""
        return DataType.UINT64 if self.dtype.bytes == 8 else DataType.UINT32

    @property
    def _held(self) -> int:
        """Elements that a work item of a group holds in registers."""
        return _PER_ITEM

    def write(self, source: k.Buffer) -> tuple[k.Kernel, ...]:
        """All kernels, in execution order; the rows of `source` are contiguous."""
        stretches, tile = self._stretches, self._lanes * _PER_ITEM
        self._digits = self._digits[_SAME.get(source.dtype, 0) :]
        if self._lanes > 1 and stretches.length <= tile:
            after = self._find_results()
            whole = {"does": "whole", "source": source.name, "after": after.names}
            each = "put it where each digit belongs"
            self._finish([whole], (source,), after.buffers, each)
        elif self._lanes > 1:
            self._sort_in_groups(source)
        elif stretches.per_row == 1:
            self._sort_alone(source)
        else:
            self._sort_together(source)
        return self.finish(_APART)

    def _sort_alone(self, source: k.Buffer) -> None:
        """One kernel, in which a work item sorts its rows by all digits, between two buffers."""
        several = len(self._digits) > 1
        rows = [SortedKeys(self._make_keys()) for _ in range(1 + several)]
        if several and self._rows.places is not None:
            rows = [SortedKeys(row.keys, self.make_rows("order", NUMBER)) for row in rows]
        before, steps = SortedKeys(rows[0].keys), list[_Step]()
        for number, digit in enumerate(self._digits):
            is_last = digit == self._digits[-1]
            after = self._find_results() if is_last else rows[(number + 1) % 2]
            steps += [
                _count(before, digit, None if number else source),
                {"do": "add_up", "counts": "", "number": digit},
                self._put(before, after, digit),
            ]
            before = after
        between = [buffer for row in rows for buffer in row.buffers]
        read, written = (source, *between), (*between, *before.buffers)
        self._finish(steps, read, written, "put it where each digit belongs")

    def _sort_together(self, source: k.Buffer) -> None:
        """One or two kernels per digit, with several work items per row."""
        before = SortedKeys(self._make_keys())
        for digit in self._digits:
            counts = self._store_counts(before, digit, source if digit == self._digits[0] else None)
            after = self._find_results() if digit == self._digits[-1] else self._make_row()
            steps = [
                {"do": "add_up", "counts": counts.name, "number": 0},
                self._put(before, after, digit),
            ]
            read = (*before.buffers, counts)
            self._finish(steps, read, after.buffers, f"put it where digit {digit} belongs")
            before = after

    def _sort_in_groups(self, source: k.Buffer) -> None:
        """Two kernels per digit, with several tiles per row."""
        before = SortedKeys()
        for digit in self._digits:
            is_last = digit == self._digits[-1]
            parted = self._make_row()
            after = self._find_results() if is_last else self._make_row()
            totals = self.make_buffer("counts", NUMBER, self._stretches.count * _DIGITS)
            step = {"digit": digit, "totals": totals.name, "is_last": is_last}
            given = before.buffers or (source,)
            own = {"source": "" if before.buffers else source.name, "before": before.names}
            each = f"put its tiles in the order of digit {digit}, and count"
            part = {**step, **own, "after": parted.names, "does": "part"}
            self._finish([part], given, (*parted.buffers, totals), each)
            put = {**step, "before": parted.names, "after": after.names, "does": "put"}
            each = f"put it where digit {digit} belongs"
            self._finish([put], (*parted.buffers, totals), after.buffers, each)
            before = after

    def _make_row(self) -> SortedKeys:
        """Memory between two digits."""
        places = None if self._rows.places is None else self.make_rows("order", NUMBER)
        return SortedKeys(self._make_keys(), places)

    def _store_counts(self, keys: SortedKeys, digit: int, source: k.Buffer | None) -> k.Buffer:
        """Kernel that counts a digit's values in each chunk; with `source`, it also makes the
        keys."""
        counts = self.make_buffer("counts", NUMBER, self._stretches.count * _DIGITS)
        steps = [_count(keys, digit, source), {"do": "store", "counts": counts.name}]
        each = f"count digit {digit}"
        if source is None:
            self._finish(steps, keys.buffers[:1], (counts,), each)
        else:
            each = f"store its key, and {each}"
            self._finish(steps, (source,), (*keys.buffers, counts), each)
        return counts

    def _put(self, before: SortedKeys, after: SortedKeys, digit: int) -> _Step:
        is_last = digit == self._digits[-1]
        made = {"do": "put", "digit": digit, "is_last": is_last}
        return {**made, "before": before.names, "after": after.names}

    # Buffers ---------------------------------------------------------------------------------

    def make_rows(self, what: str, dtype: DataType) -> k.Buffer:
        """Buffer between two kernels, with an element for each sorted number."""
        return self.make_buffer(what, dtype, self._stretches.numbers)

    def _make_keys(self) -> k.Buffer:
        return self.make_rows("keys", self._key)

    def _find_results(self) -> SortedKeys:
        """Results wanted of the rows."""
        named = (self._rows.numbers, self._rows.places)
        return SortedKeys(*(None if name is None else self.find_buffer(name) for name in named))

    # Kernels ---------------------------------------------------------------------------------

    def _finish(
        self, steps: Sequence[_Step], read: Sequence[k.Buffer], written: Sequence[k.Buffer],
        each: str,
    ) -> None:  # fmt: skip
        """Adds a kernel of some steps."""
        stretches, rows = self._stretches, self._rows
        largest = max(stretches.numbers, stretches.count * _DIGITS)
        results = {buffer.name for buffer in written}.intersection(rows.readers)
        stages = (self._stage, *(name for name in rows.readers if name in results))
        whole = stretches.per_row == 1
        walk = f"each has {'a row' if whole else f'{stretches.size:,} numbers of a row'}, in order"
        words = (f"i: 0..{stretches.count:,}", f"k: 0..{stretches.size:,}", each, walk)
        self.add(
            self.template, self._describe(steps), self._make_arrays(), read, written, stages,
            stretches.count, self._lanes, largest, words,
        )  # fmt: skip

    def _make_arrays(self) -> Mapping[str, k.Array]:
        """Private and shared arrays, by purpose."""
        if self._lanes == 1:
            return {"counts": k.Array("", NUMBER, _DIGITS)}
        words, tile = DataType.UINT32, self._lanes * _PER_ITEM
        sizes = {"space": (words, tile), "sums": (words, self._lanes + self._lanes // 16)}
        if self._stretches.length > tile:
            sizes |= dict.fromkeys(("starts", "ends", "counts"), (NUMBER, _DIGITS))
        held = {"keys": self._key, "ranks": words}
        held |= {} if self._rows.places is None else {"places": NUMBER}
        held |= {"upper": words} if self._key.bytes == 8 else {}
        made = {what: k.Array("", t, n, shared=True) for what, (t, n) in sizes.items()}
        return made | {w: k.Array("", t, _PER_ITEM, registers=True) for w, t in held.items()}

    def _describe(self, steps: Sequence[_Step]) -> Mapping[str, object]:
        """Values for the template: parameters of the numbers, and the steps of a work group."""
        bits, stretches = 8 * self.dtype.bytes, self._stretches
        signed = DataType.INT64 if self.dtype.bytes == 8 else DataType.INT32
        named: Mapping[str, object] = {} if self._lanes == 1 else steps[0]
        made: dict[str, object] = {
            "dtype": self.dtype.short,
            "key": self._key.short,
            "signed": signed.short,
            "place": NUMBER.short,
            "width": bits,
            "mask": (1 << bits) - 1,
            "sign": 1 << (bits - 1),
            "is_float": self.dtype.is_float,
            "is_signed": self.dtype.kind is Kind.SIGNED,
            "descends": self._descends,
            "digit_bits": _DIGIT_BITS,
            "all_digits": self._digits,
            "digits": _DIGITS,
            "per_row": stretches.per_row,
            "length": stretches.length,
            "size": stretches.size,
            "steps": steps,
            "per": self._held,
            "before": {},
            "has_places": self._rows.places is not None,
        }
        return made | dict(named)


def _count(keys: SortedKeys, digit: int, source: k.Buffer | None) -> _Step:
    made = "" if source is None else source.name
    return {"do": "count", "digit": digit, "source": made, "row": keys.names}
