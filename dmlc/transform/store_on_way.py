"""What a pass that folds can store on its way: element-wise stages over the very points it folds.

A bias gradient folds a tensor that is a result as well; a norm may be wanted beside the gradient
it is of. One pass over memory then does both. It must go through the points in one order that
suits every tensor, for vectors and whole cache lines, and meet each of them once: so whatever it
reads lies in memory in that order, at the points themselves or repeated. Which stages and passes
to try is `passes`' business.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Constant,
    Function,
    Index,
    Load,
    Stage,
    operands,
)
from dmlc.scalars import ROUNDINGS, DataType
from dmlc.transform.budget import Budget, count_operations
from dmlc.transform.traffic import count_bytes

_SHORT_VECTOR = 4
"""The lanes of the vectors that take what long ones leave over."""

Axes = Mapping[Index, int]
"""The dimension of a pass that each axis of a stage is."""


class Streams:
    """Knows how a function's tensors lie in memory, and what storing on the way costs."""

    def __init__(self, function: Function, budget: Budget) -> None:
        self._tensors = function.tensors()
        self._budget = budget
        strides = {p.name: p.strides for p in function.parameters}
        strides |= {r.name: r.strides for r in function.results}
        self._uneven = {n for n, own in strides.items() if own and not self._is_even(n, own)}

    def _is_even(self, name: str, strides: tuple[int, ...]) -> bool:
        """Whether a tensor's axes lie in memory in their order, the last without gaps."""
        sizes = zip(self._extents(name), strides, strict=True)
        long = [stride for extent, stride in sizes if extent != 1 and stride]
        return long[-1:] in ([], [1]) and all(a > b for a, b in itertools.pairwise(long))

    def _extents(self, name: str) -> tuple[int | str, ...]:
        tensor = self._tensors[name]
        return tensor.domain if isinstance(tensor, Stage) else tensor.extents

    def find_order(self, fold: Stage, axes: Axes) -> tuple[int, ...] | None:
        """The dimensions of a pass in the order that a reduction goes through them, outermost
        first: that of a tensor it reads at every point. None where there is no such tensor."""
        for load in fold.body.loads():
            order = self.locate(fold, load, axes)
            if order is not None and sorted(order) == sorted(axes.values()):
                return order
        return None

    def locate(self, stage: Stage, load: Load, axes: Axes) -> tuple[int, ...] | None:
        """The dimensions of the axes longer than 1 that a load reads along, where it reads one
        element for each place along these."""
        if load.tensor in self._uneven:
            return None
        order: list[int] = []
        for extent, number in zip(self._extents(load.tensor), load.indices, strict=True):
            index = stage.body.instructions[number]
            if extent == 1 and isinstance(index, Constant | Index):
                continue  # There is one place to read.
            if not isinstance(index, Index) or index not in axes or extent != stage.extent(index):
                return None
            order.append(axes[index])
        return tuple(order)

    def follows(self, stage: Stage, axes: Axes, order: Sequence[int]) -> bool:
        """Whether a pass that goes through its dimensions in this order reads evenly whatever a
        stage of it reads, and needs no positions."""
        reduction = stage.reduction
        if reduction is not None and reduction.combiner in POSITIONAL_COMBINERS:
            return False
        uneven = reduction is None and stage.name in self._uneven
        if stage.body.guard is not None or uneven or _has_positions(stage):
            return False
        rank = {dimension: place for place, dimension in enumerate(order)}
        for load in stage.body.loads():
            found = self.locate(stage, load, axes)
            if found is None:
                return False
            ranks = [rank[dimension] for dimension in found]
            if any(a >= b for a, b in itertools.pairwise(ranks)):
                return False
        return True

    def share_reads(
        self, stage: Stage, axes: Axes, other: Stage, other_axes: Axes, rank: int
    ) -> bool:
        """Whether two stages of a pass over so many dimensions read one and the same element at
        every point, or the first reads the second."""
        theirs = {(i.tensor, self.locate(other, i, other_axes)) for i in other.body.loads()}
        for load in stage.body.loads():
            place = self.locate(stage, load, axes)
            if load.tensor == other.name:
                return True
            if place is not None and len(place) == rank and (load.tensor, place) in theirs:
                return True
        return False

    def refuse(self, stage: Stage, order: Sequence[int], kept: int) -> str | None:
        """Why a stage over a pass's dimensions had better be stored by a kernel of its own; None
        where storing it on the way takes no longer, as the tensor goes through memory once less.

        The first `kept` dimensions are those that are kept. Vectors run along the innermost ones
        as far as these are all kept or all folded; short runs leave them half empty.
        """
        for dtype in self._budget.paired_types:
            if stage.dtype is dtype or _is_rounded(stage, dtype):
                return (
                    f"another kernel stores %{stage.name}, for {dtype.name} is stored two elements "
                    "at a time"
                )
        *_, last = order
        sizes = [e for e in stage.domain if isinstance(e, int) and e != 1]
        run = 1
        for size, dimension in zip(reversed(sizes), reversed(order), strict=True):
            if (dimension < kept) != (last < kept):
                break
            run *= size
        points = math.prod(sizes)
        work = points * count_operations(stage.body) * self._budget.bytes_per_operation
        steps = _count_steps(run, self._budget.lanes) / (run / self._budget.lanes)
        names = dict.fromkeys(load.tensor for load in stage.body.loads())
        read = sum(count_bytes(self._tensors[name]) or 0 for name in names)
        own = points * stage.dtype.bytes
        apart = max(read, work) + min(read, own) + self._budget.launch_bytes
        if max(read, work * steps) <= apart:
            return None
        return (
            f"another kernel computes %{stage.name}, as a fold would compute it in runs of {run:,} "
            f"element{'s' if run > 1 else ''} only"
        )


def _has_positions(stage: Stage) -> bool:
    """Whether a value other than a load is made of a position."""
    instructions = stage.body.instructions
    made_of = [i for v in instructions if not isinstance(v, Load) for i in operands(v)]
    return any(isinstance(instructions[i], Index) for i in (*made_of, stage.body.result))


def _is_rounded(stage: Stage, dtype: DataType) -> bool:
    """Whether a stage's values have just been rounded to a 16-bit type, which may store them."""
    root = stage.body.instructions[stage.body.result]
    return isinstance(root, Apply) and root.operation is ROUNDINGS.get(dtype)


def _count_steps(run: int, lanes: int) -> int:
    """The vectors, long and short, and single elements that a run of points takes."""
    steps, rest = divmod(run, lanes)
    if lanes > _SHORT_VECTOR:
        short, rest = divmod(rest, _SHORT_VECTOR)
        steps += short
    return steps + rest
