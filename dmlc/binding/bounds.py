"""Bounds check of a stage's indexed reads.

An index that depends on index variables alone is enumerated over their extents if interval
arithmetic does not prove it, under the stage's guard. `guards` has already clamped the reads that
only other conditions keep in bounds. An unproved read is an error that names the read, the axis,
its size and the range of the index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dmlc import ir
from dmlc.binding.builder import NodeBuilder
from dmlc.binding.emission import Emission
from dmlc.binding.reads import ReadSite
from dmlc.binding.values import span_text
from dmlc.index.intervals import Interval
from dmlc.ir.inside import find_outside
from dmlc.ir.ranges import Ranges, stage_range
from dmlc.source import Diagnostic, DmlcError


def check_reads(
    builder: NodeBuilder,
    stage: ir.Stage,
    emission: Emission,
    extents: Mapping[str, tuple[ir.Extent, ...]],
) -> None:
    """Raises `DmlcError` for every read of a stage that may be out of bounds, and records the range
    of the whole numbers that the stage holds. `extents` maps tensors to their extents; a tensor
    that is missing has unknown extents and is not checked."""
    # In the order of the emission, where each read has a known site.
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
        sizes, site = extents[load.tensor], builder.reads.sites[node]
        outside = find_outside(probe, load, ranges, sizes)
        found += (_leaves(site, axis, sizes[axis], reach) for axis, reach in outside)
    if found:
        raise DmlcError(found)


def _leaves(site: ReadSite, axis: int, size: ir.Extent, reach: Interval) -> Diagnostic:
    if isinstance(size, str):
        return Diagnostic(
            f"{span_text(site.span)} may leave its tensor: the size '{size}' of axis {axis} is "
            "left open, and the position is not known to lie below it: clamp the position, give a "
            "value for what lies outside with 'else', or give the size a number",
            site.positions[axis],
            site.notes,
            code="E0403",
        )
    if site.reach:
        # Equal reads may have several sites, some of which are in bounds.
        low, high = (max(reach[0], site.reach[axis][0]), min(reach[1], site.reach[axis][1]))
        reach = (low, high) if low < 0 or high >= size else reach
    if math.isinf(reach[0]) and math.isinf(reach[1]):
        where = "at positions that are not known at compile time"
        cure = "clamp the position, or give a value for what lies outside with 'else'"
    else:
        low = "" if math.isinf(reach[0]) else str(reach[0])
        high = "" if math.isinf(reach[1]) else str(reach[1])
        where = f"at {low} to {high}" if low != high else f"at {low}"
        cure = "leave points out with 'where', or give a value for them with 'else'"
    text = span_text(site.span)
    return Diagnostic(
        f"{text} may leave its tensor: axis {axis} has size {size}, and is read {where}: {cure}",
        site.positions[axis],
        site.notes,
        code="E0403",
    )
