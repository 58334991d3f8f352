"""Schedules of products with few rows or few columns on GPUs, which are bound by memory: a work
group reads a tile of the other factor once, 16 bytes an access, several of them under way, and
holds all of its few rows or columns against it.

Points are cut into pieces until enough is under way on a large device; sizes alone decide. Pieces
are added in their order.
"""

from __future__ import annotations

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction, find_contraction, part_axes
from dmlc.loops.nodes import Nest
from dmlc.schedules.rule import Work
from dmlc.schedules.tiles import Shape, choose_tiles

MOST = 16
"""Rows, or columns, of a skinny product, at most."""
_LEAST = 64
"""Those of the other side, at least, and points."""
_SIDE = 128
"""Rows, or columns, of a tile on the long side: with 8 on the short one, each of 64 work items
loads eight vectors of the long factor before it uses the first."""
_EACH = 4
"""Rows, and columns, of outputs that one work item has."""
_DEPTH = 128
"""Points of a piece, at least: writing and reading its results takes an eighth of the time."""


def find_shape(found: Contraction) -> Shape | None:
    """The tiles of a skinny product; None where it is none, or small. Windows are none, for their
    neighbours read much in common."""
    least, most = sorted((found.rows, found.columns))
    suits = 1 < least <= MOST and min(most, found.depth) >= _LEAST
    if found.phase.has_positions or not suits:
        return None
    short = MOST if 2 * least > MOST else MOST // 2
    return Shape(*((short, _SIDE) if found.rows == least else (_SIDE, short)), _EACH)


def count_pieces(found: Contraction, shape: Shape, p: Profile) -> int:
    """The pieces that points are cut into."""
    wanted = -(-p.groups * p.group_size // shape.count_items(found))
    return max(1, min(wanted, found.depth // _DEPTH))


def choose_skinny(work: Work) -> Nest | None:
    """The nest of a skinny product, and of what derives from it; None where it is none."""
    found = find_contraction(part_axes(work.phases)) if work.is_gpu else None
    shape = find_shape(found.settle(work.profile.taken)) if found else None
    if found is None or shape is None:
        return None
    return choose_tiles(work.function, work.phases, found, shape, work.limits)
