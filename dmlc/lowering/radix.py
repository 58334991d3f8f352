"""The kernels that put rows in order: a radix sort, digit by digit, the last one first.

Work items of CPUs, and work groups of GPUs, have a stretch of a row each, and go through it in
its order. The first kernel makes keys
of the numbers. For each digit, one counts how often each of its values is there in
each stretch; the next begins with where in the row the first of each is to stand, after all that
have less and after those of the stretches before, and puts each key there, and counts on. Where a
row is one stretch, all that is one kernel. What has the same digit stays as it stands, so that rows
are in order after the first digit.

A group puts each tile of its stretch in the order of the digit before it counts, in shared memory,
so that what has one digit is then written side by side. A row of one tile is put in order there,
digit by digit, and goes through memory once.

No two keys are put to one place, whatever they are: places are counted. Nothing is atomic, and the
result is the same however rows are cut into stretches. A stretch waits for no other one of its
kernel: to look back at those before it, while they count, would take a launch less for each digit,
but neither Vulkan nor D3D12 says that they ever come to an end while another group waits.
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
from dmlc.transform.ranked import Rows
from dmlc.transform.sort import NUMBER

_TEMPLATES = {False: "radix.kernel.j2", True: "radix.group.j2"}
"""By whether work groups have the stretches."""
_DIGIT_BITS = 8
"""A digit of a key. Counts of all its values stay in the nearest cache, and as many places as it
has values are written to side by side."""
_DIGITS = 1 << _DIGIT_BITS
_SAME = {DataType.FLOAT16: 1, DataType.BFLOAT16: 2}
"""The lowest digits of a key that are settled by the others, where numbers are widened."""
_LEAST_STRETCH = 16 * _DIGITS
"""The numbers of a stretch, at least, where a row has several: counts are to be few beside them."""
_PER_ITEM = 8
"""The numbers of a tile that a work item of a group holds: counts of four bits of these are to be
few beside them, and they are in shared memory instead of the counts afterwards."""
_APART = "all digits of one kind are put in order before the next"


@dataclasses.dataclass(frozen=True, slots=True)
class Stretches:
    """How rows are shared out: a work item for each stretch of a row."""

    rows: int
    length: int
    """The numbers of a row."""
    size: int
    """Those of a stretch; the last one of a row may have fewer. Of groups, whole tiles."""

    @classmethod
    def choose(cls, rows: int, length: int, profile: Profile) -> Stretches:
        """As many as keep a device busy, of some length."""
        if not profile.grouped:
            wanted = min(-(-profile.groups // rows), length // _LEAST_STRETCH)
            return cls(rows, length, -(-length // max(1, wanted)))
        tile = profile.group_size * _PER_ITEM
        tiles = -(-length // tile)
        wanted = max(1, min(2 * profile.groups // rows, tiles))
        return cls(rows, length, -(-tiles // wanted) * tile)

    @property
    def per_row(self) -> int:
        """The stretches of a row."""
        return -(-self.length // self.size)

    @property
    def numbers(self) -> int:
        """Those of all rows."""
        return self.rows * self.length

    @property
    def count(self) -> int:
        """All stretches."""
        return self.rows * self.per_row


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Rows between two digits: their keys, and where each number was, as far as it is wanted. At
    first each number is where it was."""

    keys: k.Buffer | None = None
    places: k.Buffer | None = None

    @property
    def buffers(self) -> tuple[k.Buffer, ...]:
        return tuple(b for b in (self.keys, self.places) if b is not None)

    @property
    def names(self) -> Mapping[str, str]:
        """What they are called in a kernel's text."""
        named = {"key": self.keys, "place": self.places}
        return {what: "" if buffer is None else buffer.name for what, buffer in named.items()}


_Step: TypeAlias = Mapping[str, object]
"""What a kernel does for the numbers of a stretch: a macro of the template, and what it takes."""


class Sorter(Texts):
    """Writes the kernels that put the rows of one tensor in order."""

    template = ""
    """That of the statements, where it is none of a radix sort's."""

    def __init__(self, function: ir.Function, rows: Rows, profile: Profile, limits: Limits) -> None:
        super().__init__(function, rows.ranking.stage.name, limits)
        self._rows, self._lanes = rows, profile.group_size
        stage, ranking = rows.ranking.stage, rows.ranking
        self.dtype = ir.value_type(stage.body.instructions[ranking.number])
        """That of the numbers."""
        self._descends = ranking.order.descends
        self._digits = range(self.dtype.bytes * 8 // _DIGIT_BITS)
        """Those of a key that rows are put in order by."""
        *outer, length = (extent for extent in stage.extents if isinstance(extent, int))
        self._stretches = Stretches.choose(math.prod(outer), length, profile)
        self.template = self.template or _TEMPLATES[self._lanes > 1]

    @property
    def _key(self) -> DataType:
        """The type of the keys."""
        return DataType.UINT64 if self.dtype.bytes == 8 else DataType.UINT32

    @property
    def _held(self) -> int:
        """The numbers that a work item of a group holds in registers."""
        return _PER_ITEM

    def write(self, source: k.Buffer) -> tuple[k.Kernel, ...]:
        """All kernels, in the order they run; the rows of `source` lie one after the other."""
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
        """One kernel, in which a work item takes all digits of its rows: from one of two buffers to
        the other."""
        several = len(self._digits) > 1
        rows = [Row(self._make_keys()) for _ in range(1 + several)]
        if several and self._rows.places is not None:
            rows = [Row(row.keys, self.make_rows("order", NUMBER)) for row in rows]
        before, steps = Row(rows[0].keys), list[_Step]()
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
        """A kernel or two for each digit: a row has several work items."""
        before = Row(self._make_keys())
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
        """Two kernels for each digit: a row has several tiles."""
        before = Row()
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

    def _make_row(self) -> Row:
        """Memory between two digits."""
        places = None if self._rows.places is None else self.make_rows("order", NUMBER)
        return Row(self._make_keys(), places)

    def _store_counts(self, keys: Row, digit: int, source: k.Buffer | None) -> k.Buffer:
        """The counts of a digit in each stretch; with the `source` of the keys, these as well."""
        counts = self.make_buffer("counts", NUMBER, self._stretches.count * _DIGITS)
        steps = [_count(keys, digit, source), {"do": "store", "counts": counts.name}]
        each = f"count digit {digit}"
        if source is None:
            self._finish(steps, keys.buffers[:1], (counts,), each)
        else:
            each = f"store its key, and {each}"
            self._finish(steps, (source,), (*keys.buffers, counts), each)
        return counts

    def _put(self, before: Row, after: Row, digit: int) -> _Step:
        is_last = digit == self._digits[-1]
        made = {"do": "put", "digit": digit, "is_last": is_last}
        return {**made, "before": before.names, "after": after.names}

    # Buffers ---------------------------------------------------------------------------------

    def make_rows(self, what: str, dtype: DataType) -> k.Buffer:
        """Memory between two kernels that has an element for each number."""
        return self.make_buffer(what, dtype, self._stretches.numbers)

    def _make_keys(self) -> k.Buffer:
        return self.make_rows("keys", self._key)

    def _find_results(self) -> Row:
        """What is wanted of the rows."""
        named = (self._rows.numbers, self._rows.places)
        return Row(*(None if name is None else self.find_buffer(name) for name in named))

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
        """The memory of a work item, or of a group and its items, by what it is for."""
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
        """What the template is told of the numbers, and of some steps; work groups have one."""
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


def _count(keys: Row, digit: int, source: k.Buffer | None) -> _Step:
    made = "" if source is None else source.name
    return {"do": "count", "digit": digit, "source": made, "row": keys.names}
