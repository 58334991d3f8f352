"""Memory of an interpreted kernel's buffers and arrays, with the last users of every element.

`Cells` accesses elements for many work items at once. It faults accesses out of bounds, reads of
undefined elements, and races.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from dmlc import ir
from dmlc.scalars import Array, DataType, convert

_NOBODY, _SEVERAL = -1, -2
"""Special numbers of the work item that wrote or read an element."""

Items: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Who: TypeAlias = "Mask | None"
"""Mask of a launch's work items; None for all."""
Fail: TypeAlias = "Callable[[str, Array | None, Who], NoReturn]"
"""Raises a fault: its description, the faulty ones of some items (or of their lanes), and the mask
of these items."""


class Memory:
    """Elements of a buffer, and which work item wrote and read each since the launch began.

    Two buffers of a kernel share one `Memory` if a result is stored over an operand.
    """

    def __init__(self, values: Array, *, filled: bool, misaligned: int = 0) -> None:
        """`values` is flat, in the stored type; `filled` says whether it is defined from the start.
        Its first element is `misaligned` elements after an aligned address."""
        self.values = values
        self.filled: Mask = np.full(values.shape, filled)
        self.misaligned = misaligned
        self.users = Users(values.size)


class Users:
    """Writer and reader of each element since the last barrier."""

    def __init__(self, size: int) -> None:
        self.writer: Items = np.full(size, _NOBODY)
        self.reader: Items = np.full(size, _NOBODY)

    def forget(self, rows: Mask | None = None) -> None:
        """Synchronizes all items, or those of some `rows` of elements."""
        for noted in (self.writer, self.reader):
            noted.reshape(1 if rows is None else rows.size, -1)[rows] = _NOBODY

    def read(self, places: Items, items: Items) -> Mask:
        """Records reads by `items`; true where another item wrote the element."""
        writer = self.writer[places]
        before = self.reader[places]
        mine = (before == _NOBODY) | (before == items)
        self.reader[places] = np.where(mine, items, _SEVERAL)
        # Of several readers of an element in one statement, the last is recorded.
        shared = self.reader[places] != items
        self.reader[places[shared]] = _SEVERAL
        return (writer != _NOBODY) & (writer != items)

    def write(self, places: Items, items: Items) -> Mask:
        """Records writes by `items`; true where another item wrote or read the element."""
        writer, reader = self.writer[places], self.reader[places]
        self.writer[places] = items
        beside = self.writer[places] != items
        others = (writer != _NOBODY) & (writer != items)
        return others | ((reader != _NOBODY) & (reader != items)) | beside


class WorkItems:
    """Work items of a launch. Values have one entry per item, or one for all."""

    def __init__(self, groups: int, group_size: int) -> None:
        self.groups, self.group_size = groups, group_size
        self.all: Items = np.arange(groups * group_size, dtype=np.int64)
        self.nobody: Mask = np.zeros(self.all.size, np.bool_)

    def narrow(self, who: Who, condition: Array) -> Who:
        """Items of `who` for which a condition is true; `nobody` itself if there is none."""
        if condition.shape[0] == 1:
            return who if condition[0] else self.nobody
        if who is not None:
            condition = condition & who
        elif condition.all():
            return None
        return condition if condition.any() else self.nobody

    def find(self, who: Who) -> Items:
        """Numbers of the items in `who`."""
        return self.all if who is None else self.all[who]

    def locate(self, size: int | None) -> Items:
        """Number of each item's group, or of its part of `size` items in that; one if all are 0."""
        group, item = np.divmod(self.all, self.group_size)
        varies = self.groups if size is None else self.group_size
        return (group if size is None else item // size)[: None if varies > 1 else 1]

    def among(self, values: Array, who: Who) -> Array:
        """Values of the items in `who`; unchanged if there is one value for all."""
        return values if who is None or values.shape[0] == 1 else values[who]

    def spread(self, values: Array, who: Who) -> Array:
        """Values of the items in `who`, with zeros for the others."""
        if who is None or values.shape[0] == 1:
            return values
        whole = np.zeros((self.all.size, *values.shape[1:]), values.dtype)
        whole[who] = values
        return whole


def beside(first: Array, second: Array) -> Array:
    """Concatenation of two vectors' lanes."""
    rows = max(first.shape[0], second.shape[0])
    pair = [v if v.shape[0] == rows else v.repeat(rows, axis=0) for v in (first, second)]
    return np.concatenate(pair, axis=1)


class Cells:
    """Elements of a buffer, or of the rows of an array: one row for each work item or group."""

    def __init__(self, name: str, memory: Memory, items: WorkItems, fail: Fail) -> None:
        self._name = name
        self._memory = memory
        self._items = items
        self._fail = fail
        self.size = memory.values.size
        """Number of elements in one row."""
        self.rows: Items | None = None
        """Offset of each item's row; None if all share one."""
        self.compute: DataType | None = None
        """Compute type of the elements, if it is not the stored type."""
        self.stored: DataType | None = None
        self.is_shared = items.all.size > 1
        """Whether several items may access one element."""
        self.vector = 1
        """Alignment of vectors, in elements."""
        self.is_still = False
        """Whether it is read-only, with all elements defined."""

    def _locate(self, index: Array, lanes: int, who: Who) -> Items:
        """Offsets of the elements `index .. index + lanes` of some items, with an axis of lanes if
        there are several."""
        first = self._items.among(index, who).astype(np.int64)
        places = first if lanes == 1 else first[:, None] + np.arange(lanes)
        low, high = first[0], first[0]
        if first.shape[0] > 1:
            low, high = first.min(), first.max()
        if low < 0 or high > self.size - lanes:
            outside = (places < 0) | (places >= self.size)
            what = f"element {places[outside][0]} of '{self._name}', which has {self.size}"
            self._fail(what, outside, who)
        if lanes > 1 and self.vector > 1 and (first % self.vector).any():
            wrong = first % self.vector != 0
            what = f"a vector of '{self._name}' begins at element {first[wrong][0]}"
            self._fail(what, np.broadcast_to(wrong[:, None], places.shape), who)
        if self.rows is None:
            return places
        begin = self._items.among(self.rows, who)
        return places + (begin if lanes == 1 else begin[:, None])

    def _each(self, places: Items, who: Who) -> tuple[Items, Items]:
        """Flat offsets of each element, and the numbers of the items that access them."""
        items = self._items.find(who)
        if places.shape[0] != items.size:
            places = np.broadcast_to(places, (items.size, *places.shape[1:]))
        lanes = places.size // items.size
        return places.ravel(), items if lanes == 1 else items.repeat(lanes)

    def read(self, index: Array, lanes: int, who: Who) -> Array:
        """Elements `index .. index + lanes` of some items."""
        places = self._locate(index, lanes, who)
        if not self.is_still:
            filled = self._memory.filled[places]
            if not filled.all():
                self._fail(f"'{self._name}' is read before it is written", ~filled, who)
            if self.is_shared:
                each, items = self._each(places, who)
                raced = self._memory.users.read(each, items)
                if raced.any():
                    what = f"'{self._name}' is read where another item writes it"
                    self._fail(what, raced.reshape(-1, lanes), who)
        got = self._memory.values[places]
        return self._items.spread(got if self.compute is None else convert(got, self.compute), who)

    def write(self, index: Array, values: Array, lanes: int, who: Who) -> None:
        """Stores values to elements `index .. index + lanes` of some items."""
        places, made = self._locate(index, lanes, who), self._items.among(values, who)
        if self.is_shared:
            each, items = self._each(places, who)
            raced = self._memory.users.write(each, items)
            if raced.any():
                what = f"'{self._name}' is written where another item reads or writes it"
                self._fail(what, raced.reshape(-1, lanes), who)
        self._memory.values[places] = made if self.stored is None else convert(made, self.stored)
        self._memory.filled[places] = True

    def fill(self, make: Callable[[int, np.dtype[Any]], Array]) -> None:
        """Defines all elements, as made for their number and type."""
        memory = self._memory
        memory.values[...] = make(memory.values.size, memory.values.dtype)
        memory.filled[...] = True

    def forget(self, groups: Mask | None = None) -> None:
        """Synchronizes the items of some groups; of all, if None."""
        self._memory.users.forget(groups)


def lay_out(
    extents: Sequence[int], strides: Sequence[int] | None, dtype: DataType, *, filled: bool
) -> Memory:
    """Memory of a tensor, from its first to its last element."""
    if math.prod(extents) == 0:
        return Memory(np.zeros(0, dtype.dtype), filled=filled)
    steps = ir.packed_strides(tuple(extents)) if strides is None else strides
    last = sum((e - 1) * s for e, s in zip(extents, steps, strict=True))
    return Memory(np.zeros(last + 1, dtype.dtype), filled=filled)


def view_of(flat: Array, extents: Sequence[int], strides: Sequence[int] | None) -> Array:
    """View of a tensor's elements in flat memory."""
    if strides is None:
        return flat.reshape(tuple(extents))
    steps = [s * flat.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(flat, tuple(extents), steps)
