"""Rows sorted by ranks, which have kernels of their own.

Ranks and their readers express sorted rows:

    rank[i]    = sum[k : n where x[k] < x[i] || x[k] == x[i] && k < i](1)
    order[p]   = sum[k : n where rank[k] == p](k)
    numbers[p] = max[k : n where rank[k] == p](x[k])

`find_sorted` recognizes them if nothing else reads the ranks; `lowering.ranked` has the kernels.
Kernels for whole rows are radix sorts. Kernels for the first few elements of each row, which GPUs
have, keep these sorted. As ranks are a permutation, no two elements have the same position.
"""

from __future__ import annotations

import dataclasses

from dmlc.ir import Cast, Function, Index, Stage
from dmlc.transform.cost import Budget
from dmlc.transform.ranks import Ranking, find_ranking, find_reader, find_values
from dmlc.transform.sort import LEAST_ROW, NUMBER

MOST_KEPT = 64
"""Largest number of a row's first elements that are kept, if not all are wanted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sorted:
    """Order of ranks: stages of sorted rows, along the last axis."""

    ranking: Ranking
    places: str | None
    """Stage of each element's original index in its row; None if nothing reads it."""
    numbers: str | None
    count: int
    """Number of first elements of each row."""

    @property
    def is_whole(self) -> bool:
        return self.count == self.ranking.count

    @property
    def readers(self) -> tuple[str, ...]:
        """The stages other than the ranks."""
        return tuple(name for name in (self.places, self.numbers) if name is not None)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.ranking.stage.name, *self.readers)

    def __str__(self) -> str:
        way = "descending" if self.ranking.descends else "ascending"
        return f"%{self.names[0]} puts the first {self.count:,} elements of rows in {way} order"


def find_sorted(function: Function, stage: Stage, budget: Budget) -> Sorted | None:
    """Rows sorted by a stage of ranks; None if it is none of long rows, or has other readers. Where
    work items walk whole rows, all elements must be wanted; otherwise it may be the first few."""
    if stage.reduction is None or function.result(stage.name) is not None:
        return None
    ranking = find_ranking(stage)
    is_last = ranking is not None and ranking.own == Index(len(stage.extents) - 1)
    if ranking is None or not is_last or ranking.count <= LEAST_ROW:
        return None
    names: dict[str, str] = {}
    counts: set[int] = set()
    for name in function.readers().get(stage.name, ()):
        reader, result = function.stage(name), function.result(name)
        kind = None if reader is None else _find_kind(reader, ranking)
        is_packed = result is None or result.strides is None
        if reader is None or kind is None or kind in names or not is_packed:
            return None
        names[kind] = name
        counts.update(extent for extent in reader.extents[-1:] if isinstance(extent, int))
    count = max(counts, default=0)
    if len(counts) != 1 or (count < ranking.count and (budget.walks or count > MOST_KEPT)):
        return None
    return Sorted(ranking, names.get("places"), names.get("numbers"), count)


def _find_kind(stage: Stage, ranking: Ranking) -> str | None:
    """Whether a stage has the `places` or the `numbers` of sorted rows; None if neither, or not of
    all rows."""
    reader = find_reader(stage, {ranking.stage.name: ranking})
    body = stage.body
    if reader is None or reader.key.first or body.guard != reader.key.condition:
        return None
    *outer, _ = (body.instructions[number] for number in reader.load.indices)
    same = stage.extents[:-1] == ranking.stage.extents[:-1] and reader.key.index == ranking.own
    if not same or outer != [Index(axis) for axis in range(len(outer))]:
        return None
    point = Index(stage.axes[0][0], reduced=True)
    match body.instructions[body.result]:
        case Cast(operand=operand, dtype=dtype) if body.instructions[operand] == point:
            is_wide = dtype.is_integer and dtype.bytes >= NUMBER.bytes
            return "places" if dtype is stage.dtype and is_wide else None
        case _ if stage.combiner == "max":
            return "numbers" if body.result in find_values(reader) else None
        case _:
            return None
