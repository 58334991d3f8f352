"""The band of a guard: the places of an axis at which it may hold, position by position.

A window covers few of the places of a long axis, other ones at each position. There are too many
positions and places to look at every pair of them. So blocks are looked at, with interval
arithmetic: from where to where conditions may hold in one. Blocks are halved until all that is left
is little enough to be evaluated.
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
"""An end of a block is known to a part of its places: to one in two to the power of this."""

_MOST_BLOCKS = 1 << 12
"""Blocks that positions are cut into, at most: each takes a tenth of a millisecond."""

_TRIED = 16
"""Of so many blocks the widest is halved by itself first, down to the last: where it stays too
wide, there is no band, and the others need not be looked at."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
    """Positions from `first` to below `last`, and the places from `low` to below `high` at which
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
    """The places at which index-only conditions may all hold, of the `size` along an axis `own`: a
    row for each position along `index`, in which they stand one by one. None where they are too
    many: `most` for all positions together. Where all places of the axis are not, they are given,
    in one row for all."""
    rows = 1 if index is None else stage.extent(index)
    if not isinstance(rows, int):
        return None
    if rows * size <= most:
        return np.arange(size, dtype=np.int64)[None, :]
    blocks, width = [_Block(0, rows, 0, size)], size
    # A stage that computes whether conditions hold, and nothing else.
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
    """The places of the widest half of a block, of the widest half of that one, and so on: the
    band has as many at least, however far blocks are halved."""
    for _ in range(halvings):
        halves = (_trim(stage, half, index, own) for half in block.halve())
        block = max(halves, key=_Block.count_places)
    return block.count_places()


def _trim(stage: Stage, block: _Block, index: Index | None, own: Index) -> _Block:
    """A block without places at its ends at which a condition cannot hold."""
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
