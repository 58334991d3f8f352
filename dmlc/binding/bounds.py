"""Proves that what a stage reads by index lies inside its tensors.

Positions that depend on index variables alone are evaluated over their extents where intervals do
not tell, with the stage's guard known to hold. What other conditions keep inside, `guards` has held
inside by now. What is not proved is the author's mistake, and names the read, the axis, its size
and how far the position reaches where its conditions hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dmlc import ir
from dmlc.binding.builder import Builder
from dmlc.binding.emission import Emission
from dmlc.binding.reads import Place
from dmlc.binding.values import span_text
from dmlc.index.intervals import Interval
from dmlc.ir.inside import find_outside
from dmlc.ir.ranges import Ranges, stage_range
from dmlc.source import Diagnostic, DmlcError


def check_reads(
    builder: Builder,
    stage: ir.Stage,
    emission: Emission,
    extents: Mapping[str, tuple[ir.Extent, ...]],
) -> None:
    """Raises `DmlcError` with every read of a stage that may leave its tensor, and notes what is
    known of the whole numbers it holds. `extents` are the tensors'; the sizes of a tensor that is
    not among them are not known yet."""
    # In the order of the emission, where each read has a known place.
    body = ir.Body(emission.instructions, emission.result, emission.guard)
    probe = ir.Stage(stage.name, stage.dtype, stage.extents, body, stage.reduction)
    ranges = Ranges.of(probe, builder.positions.ranges)
    whole = stage_range(probe, ranges)
    if whole is not None:
        builder.positions.ranges[stage.name] = whole
    found: list[Diagnostic] = []
    for number, node in emission.reads:
        load = body.instructions[number]
        if not isinstance(load, ir.Load) or load.tensor not in extents:
            continue
        sizes, place = extents[load.tensor], builder.reads.places[node]
        outside = find_outside(probe, load, ranges, sizes)
        found += (_leaves(place, axis, sizes[axis], reach) for axis, reach in outside)
    if found:
        raise DmlcError(found)


def _leaves(place: Place, axis: int, size: ir.Extent, reach: Interval) -> Diagnostic:
    if isinstance(size, str):
        return Diagnostic(
            f"{span_text(place.span)} may leave its tensor: the size '{size}' of axis {axis} is "
            "left open, and the position is not known to lie below it: clamp the position, give a "
            "value for what lies outside with 'else', or give the size a number",
            place.positions[axis],
            place.notes,
            code="E0403",
        )
    if place.reach:
        # The same read may stand in several places, some of which are right.
        low, high = (max(reach[0], place.reach[axis][0]), min(reach[1], place.reach[axis][1]))
        reach = (low, high) if low < 0 or high >= size else reach
    if math.isinf(reach[0]) and math.isinf(reach[1]):
        where = "at positions that are not known at compile time"
        cure = "clamp the position, or give a value for what lies outside with 'else'"
    else:
        low = "" if math.isinf(reach[0]) else str(reach[0])
        high = "" if math.isinf(reach[1]) else str(reach[1])
        where = f"at {low} to {high}" if low != high else f"at {low}"
        cure = "leave points out with 'where', or give a value for them with 'else'"
    text = span_text(place.span)
    return Diagnostic(
        f"{text} may leave its tensor: axis {axis} has size {size}, and is read {where}: {cure}",
        place.positions[axis],
        place.notes,
        code="E0403",
    )
