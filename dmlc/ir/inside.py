"""Which loads of a stage can be proved to be in bounds.

An index is in bounds if its interval is, or if evaluating it at every point that passes the guard
shows it. Callers decide the value of a load that cannot be proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dmlc.index.intervals import UNKNOWN, Interval, is_within, meet
from dmlc.ir.below import SizeBounds, is_inside_open
from dmlc.ir.index import find_reach
from dmlc.ir.nodes import Extent, Index, Load, Stage, Symbol, Tensor
from dmlc.ir.ranges import Ranges, stage_range


def is_empty(stage: Stage) -> bool:
    """Whether a stage has no points, and so reads nothing."""
    return 0 in stage.sizes


def find_outside(
    stage: Stage, load: Load, ranges: Ranges, extents: Sequence[Extent]
) -> Iterator[tuple[int, Interval]]:
    """Axes along which a load cannot be proved in bounds, each with the interval of its index.
    `ranges` are the intervals of the values before the load."""
    if is_empty(stage):
        return
    for axis, (number, extent) in enumerate(zip(load.indices, extents, strict=True)):
        reach = ranges[number]
        if isinstance(extent, str):
            if not is_inside_along(stage, number, extent, ranges):
                yield axis, reach
            continue
        for find in (find_reach, _find_reach_open):
            if is_within(reach, extent):
                break
            reach = meet(reach, find(stage, number, extent))
        if not is_within(reach, extent):
            yield axis, reach


def _find_reach_open(stage: Stage, position: int, _: int) -> Interval:
    """Interval of an index by bounds on the run-time sizes."""
    if not any(isinstance(i, Symbol) for i in stage.body.instructions):
        return UNKNOWN
    return SizeBounds(stage).interval(position)


def is_inside_along(stage: Stage, position: int, extent: str, ranges: Ranges) -> bool:
    """Whether an index is in bounds along an axis of run-time size."""
    index = stage.body.instructions[position]
    along = isinstance(index, Index) and stage.extent(index) == extent
    return along or is_inside_open(stage, position, extent, ranges)


def find_open_reads(
    stage: Stage, known: Mapping[str, Tensor], reach: Mapping[str, Interval]
) -> tuple[dict[int, tuple[int, ...]], Interval | None]:
    """Axes along which loads of a stage cannot be proved in bounds, by the number of the load's
    value; and the interval of the stage's elements, if known. `reach` has the intervals of elements
    of the tensors in `known`."""
    ranges = Ranges(stage, reach)
    found: dict[int, tuple[int, ...]] = {}
    for number, instruction in enumerate(stage.body.instructions):
        if isinstance(instruction, Load):
            extents = known[instruction.tensor].extents
            axes = tuple(axis for axis, _ in find_outside(stage, instruction, ranges, extents))
            if axes:
                found[number] = axes
        ranges.add(instruction)
    return found, stage_range(stage, ranges)
