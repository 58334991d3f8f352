"""Band of a guard: for each index `i` along one axis, the interval of another axis where it may
hold.

A window covers a small part of a long axis, which shifts with `i`. There are too many pairs to
evaluate all of them. Interval arithmetic bounds the band over blocks of `i` instead, and blocks are
halved until the band is small enough to be evaluated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dmlc.index.intervals import Interval
from dmlc.ir import Constant, Index, Instruction, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import MOST_POINTS
from dmlc.ir.ranges import Ranges
from dmlc.scalars import Array, DataType

_CUTS = 4
"""Bisections of a block's interval per end, so that the end is exact to 1 / 2**_CUTS of it."""

_MOST_BLOCKS = 1 << 12
"""Largest number of blocks: each takes a tenth of a millisecond."""

_TRIED = 16
"""Number of blocks at which the widest alone is halved to the end: if it stays too wide, there is
no band, and the others need not be halved."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
    """Rows from `first` to below `last`, with the interval from `low` to below `high` in which
    conditions may hold there."""

    first: int
    last: int
    low: int
    high: int

    def count_places(self) -> int:
        return self.high - self.low

    def halve(self) -> list[_Block]:
        middle = (self.first + self.last) // 2
        parts = (self.first, middle), (middle, self.last)
        return [dataclasses.replace(self, first=a, last=b) for a, b in parts if a < b]


def find_band(
    stage: Stage,
    conditions: Sequence[int],
    index: Index | None,
    own: Index,
    size: int,
    most: int = MOST_POINTS,
) -> Array | None:
    """Indices along axis `own`, of size `size`, at which index-only conditions may all hold: one
    row of ascending indices for each index along `index`. If all pairs are at most `most`, it is
    one row with the whole axis. None if the band has more than `most` entries."""
    rows = 1 if index is None else stage.extent(index)
    if not isinstance(rows, int):
        return None
    if rows * size <= most:
        return np.arange(size, dtype=np.int64)[None, :]
    blocks, width = [_Block(0, rows, 0, size)], size
    # A stage whose value is the conjunction of the conditions.
    builder = BodyBuilder()
    numbers = builder.copy(stage.body)
    holds = builder.join(numbers[c] for c in conditions)
    result = builder.add(Constant(DataType.BOOL, True)) if holds is None else holds
    looked_at = dataclasses.replace(stage, body=builder.make(result))
    most_blocks = min(_MOST_BLOCKS, rows)
    while rows * width > most:
        if 2 * len(blocks) > most_blocks:
            return None
        if len(blocks) == _TRIED:
            widest = max(blocks, key=_Block.count_places)
            halvings = (most_blocks // len(blocks)).bit_length() - 1
            if rows * _find_least_width(looked_at, widest, halvings, index, own) > most:
                return None
        halves = (half for block in blocks for half in block.halve())
        blocks = [_trim(looked_at, half, index, own) for half in halves]
        width = max(1, *map(_Block.count_places, blocks))
    starts = [min(block.low, size - width) for block in blocks]
    counts = [block.last - block.first for block in blocks]
    return np.repeat(np.array(starts, np.int64), counts)[:, None] + np.arange(width)


def _find_least_width(
    stage: Stage, block: _Block, halvings: int, index: Index | None, own: Index
) -> int:
    """Lower bound of the band's width: that of a block after halving it and its widest half
    repeatedly."""
    for _ in range(halvings):
        halves = (_trim(stage, half, index, own) for half in block.halve())
        block = max(halves, key=_Block.count_places)
    return block.count_places()


def _trim(stage: Stage, block: _Block, index: Index | None, own: Index) -> _Block:
    """Block with its interval narrowed at the ends where the conditions are false."""
    low, high = block.low, block.high

    def may_hold(first: int, last: int) -> bool:
        ends: dict[Instruction, Interval] = {own: (first, last - 1)}
        if index is not None:
            ends[index] = block.first, block.last - 1
        body = stage.body
        said = {n: ends[each] for n, each in enumerate(body.instructions)
                if isinstance(each, Index) and each in ends}  # fmt: skip
        return Ranges.of(stage, said=said).truth(body.result)[1] == 1

    step = high - low
    for _ in range(_CUTS):
        step = -(-step // 2)
        if low + step <= high and not may_hold(low, low + step):
            low += step
        if high - step >= low and not may_hold(high - step, high):
            high -= step
    return dataclasses.replace(block, low=low, high=high)
