"""The kernels that put rows in order: a radix sort, digit by digit, the last one first.

Work items have a stretch of a row each, and go through it in its order. The first kernel makes keys
of the numbers (`order_keys`). For each digit, one counts how often each of its values is there in
each stretch; the next begins with where in the row the first of each is to stand, after all that
have less and after those of the stretches before, and puts each key there, and counts on. Where a
row is one stretch, all that is one kernel. What has the same digit stays as it stands, so that rows
are in order after the first digit.

No two keys are put to one place, whatever they are: places are counted. Nothing is shared and
nothing atomic, and the result is the same however rows are cut into stretches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.naming import take_name
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply, operate, zero_of
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.names import Names
from dmlc.kernel.passes import run_passes
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.element import collect_elements
from dmlc.loops.phases import Phase
from dmlc.loops.space import collapse
from dmlc.lowering.assemble import ACCESS, check_limits, find_index, make_kernel
from dmlc.lowering.order_keys import DIGITS, Keys
from dmlc.scalars import DataType
from dmlc.source import InternalError
from dmlc.transform.ranked import Rows, find_rows
from dmlc.transform.ranks import Ranking, copy_number
from dmlc.transform.sort import NUMBER

_LEAST_STRETCH = 16 * DIGITS
"""The numbers of a stretch, at least, where a row has several: counts are to be few beside them."""
_COUNT = k.Type(NUMBER)
_COUNTS = k.Array("counts", NUMBER, DIGITS)
"""How many there are of each value of a digit, and later where the next one belongs."""
_APART = "all digits of one kind are put in order before the next"


@dataclasses.dataclass(frozen=True, slots=True)
class Stretches:
    """How rows are shared out: a work item for each stretch of a row."""

    rows: int
    length: int
    """The numbers of a row."""
    size: int
    """Those of a stretch; the last one of a row may have fewer."""

    @classmethod
    def choose(cls, rows: int, length: int, profile: Profile) -> Stretches:
        """As many as keep a device busy, of some length."""
        wanted = min(-(-profile.groups // rows), length // _LEAST_STRETCH)
        return cls(rows, length, -(-length // max(1, wanted)))

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
class _Row:
    """Rows between two digits: their keys, and where each number was, as far as it is wanted. At
    first each number is where it was."""

    keys: k.Buffer | None = None
    places: k.Buffer | None = None

    @property
    def buffers(self) -> tuple[k.Buffer, ...]:
        return tuple(b for b in (self.keys, self.places) if b is not None)


class Sorter:
    """Writes the kernels that put the rows of one tensor in order."""

    def __init__(self, function: ir.Function, rows: Rows, profile: Profile, limits: Limits) -> None:
        self._function, self._rows, self._limits = function, rows, limits
        stage, ranking = rows.ranking.stage, rows.ranking
        self.dtype = ir.value_type(stage.body.instructions[ranking.number])
        """That of the numbers."""
        self._ranks = stage.name
        self._keys = Keys(self.dtype, ranking.order.descends)
        *outer, length = (extent for extent in stage.extents if isinstance(extent, int))
        self._walk = _Walk(Stretches.choose(math.prod(outer), length, profile))
        self._names = dict.fromkeys(function.tensors())
        self._kernels: list[k.Kernel] = []
        self._locals = Names()
        """Those of the kernel that is written."""

    def write(self, source: k.Buffer) -> tuple[k.Kernel, ...]:
        """All kernels, in the order they run; the rows of `source` lie one after the other."""
        if self._walk.stretches.per_row == 1:
            self._sort_alone(source)
        else:
            self._sort_together(source)
        if len(self._kernels) == 1:
            return tuple(self._kernels)
        return tuple(dataclasses.replace(kernel, apart=_APART) for kernel in self._kernels)

    def _sort_alone(self, source: k.Buffer) -> None:
        """One kernel, in which a work item takes all digits of its rows: from one of two buffers to
        the other."""
        several = self._keys.count > 1
        rows = [_Row(self.make_buffer("keys", self._keys.type.dtype)) for _ in range(1 + several)]
        if several and self._rows.places is not None:
            rows = [_Row(row.keys, self.make_buffer("order", NUMBER)) for row in rows]
        before = _Row(rows[0].keys)
        made = [*self._walk.begin(), *self._count(*self._make_keys(source, before), 0)]
        for digit in range(self._keys.count):
            if digit:
                made += self._count(*self._read_key(before), digit)
            is_last = digit == self._keys.count - 1
            after = self._find_results() if is_last else rows[(digit + 1) % 2]
            made += [*self._add_up(()), self._walk.loop(self._put(before, after, digit))]
            before = after
        between = [buffer for row in rows for buffer in row.buffers]
        read, written = (source, *between), (*between, *before.buffers)
        self._finish(made, read, written, "put it where each digit belongs", _COUNTS)

    def _sort_together(self, source: k.Buffer) -> None:
        """A kernel or two for each digit: a row has several work items."""
        before = _Row(self.make_buffer("keys", self._keys.type.dtype))
        for digit in range(self._keys.count):
            counts = self._store_counts(before, digit, None if digit else source)
            after = self._find_results()
            if digit < self._keys.count - 1:
                after = _Row(self.make_buffer("keys", self._keys.type.dtype))
                if self._rows.places is not None:
                    after = _Row(after.keys, self.make_buffer("order", NUMBER))
            self._move(before, after, digit, counts)
            before = after

    # Buffers ---------------------------------------------------------------------------------

    def make_buffer(self, what: str, dtype: DataType, count: int | None = None) -> k.Buffer:
        """Memory between two kernels: so many elements, or one for each number."""
        count = self._walk.stretches.numbers if count is None else count
        name = take_name(f"{self._ranks}_{what}", self._names)
        return k.Buffer(name, dtype, k.Access.READ, count, count * dtype.bytes)

    def find_tensor(self, name: str) -> k.Buffer:
        """A tensor that has an element for each number."""
        tensor = self._function.tensors()[name]
        size = self._walk.stretches.numbers * tensor.dtype.bytes
        return k.Buffer(name, tensor.dtype, k.Access.READ, None, size)

    def _find_results(self) -> _Row:
        """What is wanted of the rows."""
        named = (self._rows.numbers, self._rows.places)
        return _Row(*(None if name is None else self.find_tensor(name) for name in named))

    # Kernels ---------------------------------------------------------------------------------

    def _store_counts(self, keys: _Row, digit: int, source: k.Buffer | None) -> k.Buffer:
        """The counts of a digit in each stretch; with the `source` of the keys, these as well."""
        counts = self.make_buffer("counts", NUMBER, self._walk.stretches.count * DIGITS)
        read, written = keys.buffers[:1], (counts,)
        value, each = self._read_key(keys), f"count digit {digit}"
        if source is not None:
            value, each = self._make_keys(source, keys), f"store its key, and {each}"
            read, written = (source,), (*keys.buffers, counts)
        made = [*self._walk.begin(), *self._count(*value, digit), _store_each(counts)]
        self._finish(made, read, written, each, _COUNTS)
        return counts

    def _move(self, before: _Row, after: _Row, digit: int, counts: k.Buffer) -> None:
        """Puts each key where a digit of it belongs."""
        body = self._walk.loop(self._put(before, after, digit))
        made = [*self._walk.begin(), *self._add_up((counts,)), body]
        read = (*before.buffers, counts)
        self._finish(made, read, after.buffers, f"put it where digit {digit} belongs", _COUNTS)

    def _finish(
        self,
        body: Sequence[k.Statement],
        read: Sequence[k.Buffer],
        written: Sequence[k.Buffer],
        each: str,
        *arrays: k.Array,
    ) -> None:
        """Adds a kernel of some statements."""
        stretches, rows, limits = self._walk.stretches, self._rows, self._limits
        buffers = tuple(
            dataclasses.replace(b, access=ACCESS[b in read, b in written])
            for b in dict.fromkeys((*read, *written))
        )
        largest = max(stretches.numbers, stretches.count * DIGITS)
        check_limits(self._function, largest, len(buffers), limits)
        place = find_index(largest, (0, 0), limits)
        results = {buffer.name for buffer in written}.intersection(rows.readers)
        stages = (self._ranks, *(name for name in rows.readers if name in results))
        whole = stretches.per_row == 1
        made = k.Kernel(
            self._function.name,
            buffers,
            (),
            k.Launch(stretches.count, 1, 1),
            tuple(body),
            place.bits,
            tuple(describe_stage(self._function, name) for name in stages),
            f"each has {'a row' if whole else f'{stretches.size:,} numbers of a row'}, in order",
            arrays,
            1.0,
            place.signed,
            stages,
            (stages,),
            schedule=(f"i: 0..{stretches.count:,}", f"  k: 0..{stretches.size:,}", f"    {each}"),
            title=written[-1].name,
        )
        self._kernels.append(run_passes(made, self._function, limits))
        self._locals = Names()

    # Digits ----------------------------------------------------------------------------------

    def _make_keys(self, source: k.Buffer, after: _Row) -> tuple[list[k.Statement], k.Local]:
        """Makes and stores the key of a number."""
        number, key = k.Local("number", k.Type(self._keys.dtype)), k.Local("key", self._keys.type)
        element = self._walk.element
        made: list[k.Statement] = [
            k.Let(number, k.Load(source.name, element, number.type)),
            k.Let(key, self._keys.make(number)),
            *(k.Store(buffer.name, element, key) for buffer in after.buffers),
        ]
        return made, key

    def _read_key(self, before: _Row) -> tuple[list[k.Statement], k.Local]:
        if before.keys is None:
            raise InternalError("digits are taken of rows that have no keys")
        key = k.Local("key", self._keys.type)
        return [k.Let(key, k.Load(before.keys.name, self._walk.element, key.type))], key

    def _take_digit(self, key: k.Local, digit: int) -> tuple[k.Statement, k.Local]:
        found = k.Local("digit", k.INDEX)
        return k.Let(found, self._keys.take_digit(key, digit)), found

    def _count(self, read: Sequence[k.Statement], key: k.Local, digit: int) -> list[k.Statement]:
        """Goes through a stretch, and counts the values of a digit of its keys."""
        taken, value = self._take_digit(key, digit)
        more = operate("add", _read_count(value), k.Literal(_COUNT, 1))
        return [
            _for_each_digit(lambda value: [_set_count(value, zero_of(NUMBER))]),
            self._walk.loop([*read, taken, _set_count(value, more)]),
        ]

    def _add_up(self, counts: Sequence[k.Buffer]) -> list[k.Statement]:
        """Where the first number of a stretch belongs that has each value of a digit: after those
        of the row that have less, and those with the same in the stretches before."""
        before = k.Local(self._locals.take("before"), _COUNT)
        count = k.Local("count", _COUNT)
        after = k.Assign(before, operate("add", before, count))

        def pass_by(value: k.Local) -> list[k.Statement]:
            if not counts:
                return [k.Let(count, _read_count(value)), _set_count(value, before), after]
            other = k.Local("other", k.INDEX)
            first = multiply(self._walk.number, self._walk.stretches.per_row)
            place = add(multiply(add(first, other), DIGITS), value)
            is_own = operate("eq", other, self._walk.stretch)
            body = (
                k.If(is_own, (_set_count(value, before),)),
                k.Let(count, k.Load(counts[0].name, place, _COUNT)),
                after,
            )
            return [k.For(other, index(0), index(self._walk.stretches.per_row), 1, body)]

        return [k.Variable(before, zero_of(NUMBER)), _for_each_digit(pass_by)]

    def _put(self, before: _Row, after: _Row, digit: int) -> list[k.Statement]:
        """Puts a key, and where its number was, where it belongs, and the next one behind it."""
        (read, key), found = self._read_key(before), k.Local("place", _COUNT)
        taken, value = self._take_digit(key, digit)
        more = operate("add", found, k.Literal(_COUNT, 1))
        target = k.Local("target", k.INDEX)
        made = [*read, taken, k.Let(found, _read_count(value)), _set_count(value, more)]
        made.append(k.Let(target, add(self._walk.row, k.Convert(found, k.INDEX))))
        if after.keys is not None:
            is_last = after.keys.count is None
            made.append(
                k.Store(after.keys.name, target, self._keys.restore(key) if is_last else key)
            )
        if after.places is not None:
            was: k.Expression = k.Convert(self._walk.place, _COUNT)
            if before.places is not None:
                was = k.Load(before.places.name, self._walk.element, _COUNT)
            made.append(k.Store(after.places.name, target, was))
        return made


@dataclasses.dataclass(frozen=True, slots=True)
class _Walk:
    """The way of a work item through its stretch."""

    stretches: Stretches
    row = k.Local("row", k.INDEX)
    """Where its row begins."""
    stretch = k.Local("stretch", k.INDEX)
    """The number of its stretch in the row."""
    place = k.Local("k", k.INDEX)
    """Where in its row it is."""

    @property
    def number(self) -> k.Expression:
        """That of its row."""
        item, each = k.Position(k.Geometry.GROUP), self.stretches.per_row
        return item if each == 1 else operate("div", item, index(each))

    @property
    def element(self) -> k.Expression:
        """Where it is."""
        return add(self.row, self.place)

    def begin(self) -> list[k.Statement]:
        """What it has to know."""
        made: list[k.Statement] = [k.Let(self.row, multiply(self.number, self.stretches.length))]
        if self.stretches.per_row > 1:
            item, each = k.Position(k.Geometry.GROUP), self.stretches.per_row
            made.append(k.Let(self.stretch, operate("mod", item, index(each))))
        return made

    def loop(self, body: Sequence[k.Statement]) -> k.Statement:
        """What is done for each number, one after the other."""
        length, size = self.stretches.length, self.stretches.size
        if self.stretches.per_row == 1:
            return k.For(self.place, index(0), index(length), 1, tuple(body))
        first = multiply(self.stretch, size)
        stop: k.Expression = add(first, index(size))
        if length % size:
            stop = operate("min", stop, index(length))
        return k.For(self.place, first, stop, 1, tuple(body))


def _for_each_digit(make: Callable[[k.Local], Sequence[k.Statement]]) -> k.For:
    """What is done for each value that a digit may have."""
    value = k.Local("value", k.INDEX)
    return k.For(value, index(0), index(DIGITS), 1, tuple(make(value)))


def _store_each(counts: k.Buffer) -> k.Statement:
    """Stores the counts of a stretch."""
    first = multiply(k.Position(k.Geometry.GROUP), DIGITS)
    return _for_each_digit(
        lambda value: [k.Store(counts.name, add(first, value), _read_count(value))]
    )


def _read_count(value: k.Expression) -> k.LoadLocal:
    return k.LoadLocal(_COUNTS.name, value, _COUNT)


def _set_count(value: k.Expression, count: k.Expression) -> k.StoreLocal:
    return k.StoreLocal(_COUNTS.name, value, count)


def lower_rows(
    function: ir.Function, ranks: str, profile: Profile, limits: Limits
) -> tuple[k.Kernel, ...]:
    """The kernels of what ranks put in order. Raises `UnsupportedError` where a limit of the target
    is passed."""
    stage = function.stage(ranks)
    rows = None if stage is None else find_rows(function, stage)
    if rows is None:
        raise InternalError(f"%{ranks} are no ranks that put rows in order")
    sorter, source = Sorter(function, rows, profile, limits), _find_source(function, rows.ranking)
    if source is not None:
        return sorter.write(sorter.find_tensor(source))
    numbers = sorter.make_buffer("numbers", sorter.dtype)
    first = _store_numbers(function, rows.ranking, numbers, profile, limits)
    return (first, *sorter.write(numbers))


def _find_source(function: ir.Function, ranking: Ranking) -> str | None:
    """The tensor that the numbers are, where its rows lie one after the other."""
    stage = ranking.stage
    load = stage.body.instructions[ranking.number]
    if not isinstance(load, ir.Load):
        return None
    places = [stage.body.instructions[number] for number in load.indices]
    *outer, _ = (ir.Index(axis) for axis in range(len(stage.extents)))
    sizes = tuple(extent for extent in stage.extents if isinstance(extent, int))
    is_packed = function.strides(load.tensor) == ir.packed_strides(sizes)
    same = function.tensors()[load.tensor].extents == stage.extents
    return load.tensor if same and is_packed and places == [*outer, ranking.point] else None


def _store_numbers(
    function: ir.Function, ranking: Ranking, numbers: k.Buffer, profile: Profile, limits: Limits
) -> k.Kernel:
    """The kernel of numbers that are computed."""
    builder = BodyBuilder()
    places = [builder.index(axis) for axis in range(len(ranking.stage.extents))]
    made = builder.make(copy_number(builder, ranking, places))
    stage = ir.Stage(numbers.name, made.dtype, ranking.stage.extents, made)
    known = dataclasses.replace(function, stages=(*function.stages, stage))
    elements = collect_elements(known, (stage.name,))
    phases = (Phase(elements, collapse(elements)),)
    read = (ranking.stage.name,)
    kernel = make_kernel(known, phases, (stage.name,), (read,), profile, limits)
    between = {numbers.name: numbers.count}
    buffers = tuple(
        dataclasses.replace(b, count=between.get(b.name, b.count)) for b in kernel.buffers
    )
    return dataclasses.replace(kernel, buffers=buffers, stages=read)
