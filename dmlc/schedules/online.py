"""Schedules of online softmax-weighted sums: numbers for the primitive `online`."""

from __future__ import annotations

from dmlc.loops.nodes import Nest
from dmlc.loops.online import match
from dmlc.loops.online_phases import Shape, find_extra
from dmlc.loops.phases import VECTOR
from dmlc.loops.tiling import measure_shared
from dmlc.schedules.rule import Work
from dmlc.source import InternalError
from dmlc.transform.online import KEYS, Online

_SHAPES = (
    (64, Shape(4, 64, 32, 4, 8, 4)),
    (96, Shape(4, 64, 32, 4, 4, 4)),
    (96, Shape(4, 64, 64, 8, 8, 8)),
    (96, Shape(4, 64, 32, 8, 4, 4)),
    (96, Shape(4, 32, 64, 8, 4, 8)),
    (96, Shape(4, 32, 32, 16, 4, 4)),
    (256, Shape(4, 16, 16, 16, 4, 4)),
)
"""Shapes for GPUs: the first that fits in a group's memory, with no more scores and sums per work
item. RADV spills registers with many more of these, and with longer strips."""
_SHARED = 1 << 15
"""Largest shared memory of a group in bytes, which Direct3D guarantees."""


def choose_online(work: Work) -> Nest | None:
    """Nest of phases whose sums are computed online; None for others."""
    matched, p = match(work.function, work.phases), work.profile
    if matched is None:
        return None
    found = matched.online
    shapes = [Shape(p.lanes, p.lanes, KEYS)]
    if work.is_gpu:
        shapes = [shape for most, shape in _SHAPES if _count_sums(found, shape) <= most]
    # Maxima, and sums with only the rows as domain, are also combined in shared memory.
    plain = sum(find_extra(found, member) is None for member in found.totals)
    for shape in shapes:
        rule = work.begin()
        numbers = shape.lanes, shape.rows, shape.keys, shape.across, shape.depth, shape.turn
        rule.do("online", *numbers)
        joined = 4 * plain * shape.lanes * shape.items
        if measure_shared(rule.nest.buffers) + joined <= _SHARED or shape is shapes[-1]:
            each = f"{shape.lanes} a work item" if work.is_gpu else "a lane each"
            return rule.finish(f"a group goes through all keys for {shape.rows} rows, {each}")
    raise InternalError("no sizes of tiles")


def _count_sums(found: Online, shape: Shape) -> int:
    """Number of scores and sums per work item."""
    columns = found.sizes[found.rows + 1 + len(found.scores) :]
    parts = sum(-(-size // shape.part) * VECTOR for size in columns)
    return shape.lanes * (len(found.scores) * shape.keys // shape.across + parts)
