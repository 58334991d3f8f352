"""Reads of tensors of open size, which are held in bounds where that is not proved."""

from __future__ import annotations

import dataclasses

from dmlc.ir import Function, Instruction, Load, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.inside import find_open_reads
from dmlc.ir.ranges import number_ranges, table_ranges
from dmlc.sizes import as_extent, measure


def hold_reads(function: Function) -> Function:
    """Function with every index into axes of open size clamped unless it is proved in bounds by the
    checks or by the verifier's arithmetic."""
    if not function.symbols():
        return function
    reach = table_ranges(function.tables) | number_ranges(function.stages)
    known = function.tensors()

    def hold(stage: Stage) -> Stage:
        found, _ = find_open_reads(stage, known, reach)
        builder = BodyBuilder()

        def change(number: int, moved: Instruction) -> int | None:
            if number not in found or not isinstance(moved, Load):
                return None
            places = list(moved.indices)
            for axis in found[number]:
                size = measure(known[moved.tensor].extents[axis])
                end = builder.size(as_extent(size))
                last = builder.apply("sub", end, builder.constant(1))
                place = builder.apply("max", places[axis], builder.constant(0))
                places[axis] = builder.apply("min", place, last)
            return builder.add(dataclasses.replace(moved, indices=tuple(places)))

        return builder.remake(stage, change) if found else stage

    return function.with_stages(map(hold, function.stages))
