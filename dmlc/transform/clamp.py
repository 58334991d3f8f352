"""Clamps the positions of reads that are inside for a reason nobody sees any more.

A read is proved inside over the points of its own stage. Once that stage is computed where another
reads it, at positions that depend on elements, intervals are all there is: of `i - i % 2`, which
no place takes below 0, they say that it may be -1. A clamp to the tensor's size changes nothing
there, since the position is one that the stage itself has been proved at, and proves it anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.ir import Function, Instruction, Load, Stage, with_operands
from dmlc.ir.inside import Tensor, find_open_reads
from dmlc.ir.ranges import Interval, table_ranges
from dmlc.transform.simplify import Builder


def clamp_reads(function: Function, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages that compute some others of a function themselves, each after what it reads, with
    the reads that this has left without proof clamped to their tensors."""
    known: dict[str, Tensor] = {t.name: t for t in (*function.parameters, *function.tables)}
    reach = table_ranges(function.tables)
    made: list[Stage] = []
    for stage in stages:
        clamped, held = clamp_stage(stage, known, reach)
        if held is not None:
            reach[stage.name] = held
        known[stage.name] = clamped
        made.append(clamped)
    return tuple(made)


def clamp_stage(
    stage: Stage, known: Mapping[str, Tensor], reach: Mapping[str, Interval]
) -> tuple[Stage, Interval | None]:
    """The same of one stage that reads tensors in `known`; the stage itself where all its reads are
    proved. And the interval of its elements. `reach` has that of other tensors, where known."""
    found, held = find_open_reads(stage, known, reach)
    if not found:
        return stage, held
    builder = Builder()

    def clamp(number: int, moved: Instruction) -> int | None:
        if not isinstance(moved, Load) or number not in found:
            return None
        given = list(moved.indices)
        for axis in found[number]:
            extent = known[moved.tensor].extents[axis]
            if isinstance(extent, int):
                low = builder.apply("max", given[axis], builder.constant(0))
                given[axis] = builder.apply("min", low, builder.constant(extent - 1))
        return builder.add(with_operands(moved, tuple(given)))

    return builder.remake(stage, clamp), held
