"""Schedules of products with few rows or few columns on GPUs, which are bound by memory: a work
group reads a tile of the large factor once, in accesses of 16 bytes with several in flight, and
combines it with all of its few rows or columns.

Points are cut into chunks until enough loads are in flight on a large device; sizes alone decide.
Chunks are added in order.
"""

from __future__ import annotations

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction, find_contraction, part_axes
from dmlc.loops.nodes import Nest
from dmlc.schedules.rule import Work
from dmlc.schedules.tiles import Shape, choose_tiles

MOST = 16
"""Largest number of rows, or columns, of a skinny product."""
_LEAST = 64
"""Smallest number of columns, or rows, on the other side, and of points."""
_SIDE = 128
"""Rows, or columns, of a tile on the long side: with 8 on the short side, each of 64 work items
loads eight vectors of the large factor before it uses the first."""
_EACH = 4
"""Rows and columns of outputs per work item."""
_DEPTH = 128
"""Smallest number of points of a chunk: storing and loading its results takes an eighth of the
time."""


def find_shape(found: Contraction) -> Shape | None:
    """Tiles of a skinny product; None if it is none, or small. Windows are excluded, as neighbours
    share loads."""
    least, most = sorted((found.rows, found.columns))
    suits = 1 < least <= MOST and min(most, found.depth) >= _LEAST
    if found.phase.has_positions or not suits:
        return None
    short = MOST if 2 * least > MOST else MOST // 2
    return Shape(*((short, _SIDE) if found.rows == least else (_SIDE, short)), _EACH)


def count_pieces(found: Contraction, shape: Shape, p: Profile) -> int:
    """Number of chunks that the points are cut into."""
    wanted = -(-p.groups * p.group_size // shape.count_items(found))
    return max(1, min(wanted, found.depth // _DEPTH))


def choose_skinny(work: Work) -> Nest | None:
    """Nest of a skinny product and its derived phases; None if it is none."""
    found = find_contraction(part_axes(work.phases)) if work.is_gpu else None
    shape = find_shape(found.settle(work.profile.taken)) if found else None
    if found is None or shape is None:
        return None
    return choose_tiles(work.function, work.phases, found, shape, work.limits)
