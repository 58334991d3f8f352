"""Schedules of products with few rows or few columns on GPUs, which are bound by memory: a work
group reads a tile of the other factor once, 16 bytes an access, several of them under way, and
holds all of its few rows or columns against it. Where there are few of both, or they are computed
from windows, as those of a gradient of a convolution's weights in groups, tiles are as small.

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
_NARROW_DEPTH = 64
"""Those of a piece of few outputs: its results are few, too."""
LEAST_PIECES = 3
"""Pieces of a contraction, at least, where small tiles serve as well as two pieces, and a launch
less."""
_NARROW = (
    Shape(32, 32, 4),
    Shape(16, 64, 4),
    Shape(64, 16, 4),
    Shape(8, 128, 4),
    Shape(128, 8, 4),
    *(Shape(r, c, 2, depth=32) for r, c in ((16, 16), (8, 32), (32, 8), (4, 64), (64, 4))),
)
"""Tiles of products whose outputs are few, or computed from windows: 64 work items each. The small
ones are deep, so that as much is read before it is used."""
_READS = 1.5
"""What an output takes where a work item has two by two of them, by what it takes where it has four
by four: each number of shared memory serves half as many."""
_FILLS = {False: 4, True: 16}
"""What an element of a tile takes to be put there, by what an output takes, and by whether it is of
a window: where that lies takes quotients and comparisons."""
_LEAST_OUTPUTS, _LEAST_ROWS = 64, 3
"""Outputs of a batch of these, at least, and rows, and columns: with fewer, reading a number once
for each output takes no longer than memory does."""
_MOST_OUTPUTS = 32
"""Rows and columns of a product that is one tile, at most."""
_LEAST_PRODUCTS = 1 << 19
"""Products of these, at least: fewer are too few pieces to fill a device."""


def find_shape(found: Contraction) -> Shape | None:
    """The tiles of a product of few rows or few columns; None where it is none, or small."""
    least, most = sorted((found.rows, found.columns))
    if least < 2 or (least > MOST and most > _MOST_OUTPUTS):
        return None
    if _is_wide(found):
        short = MOST if 2 * least > MOST else MOST // 2
        return Shape(*((short, _SIDE) if found.rows == least else (_SIDE, short)), _EACH)
    outputs, points = found.rows * found.columns, found.batches * found.depth
    suits = not found.was_open and least >= _LEAST_ROWS and outputs >= _LEAST_OUTPUTS
    # A piece may be half as long as is asked for.
    suits &= 2 * found.depth >= _NARROW_DEPTH and outputs * points >= _LEAST_PRODUCTS
    # Of short sums over windows, neighbours read much in common. Pieces of a long one are a batch.
    suits &= not found.phase.has_positions or points >= most
    return _find_narrow(found) if suits else None


def _is_wide(found: Contraction) -> bool:
    """Whether few rows, or columns, of a matrix product have many of the other side."""
    least, most = sorted((found.rows, found.columns))
    is_plain = not found.phase.has_positions
    return is_plain and 1 < least <= MOST and min(most, found.depth) >= _LEAST


def _find_narrow(found: Contraction) -> Shape:
    """The tiles that compute the fewest outputs for nothing, and put the fewest elements there."""
    fill = _FILLS[found.phase.has_positions]

    def weigh(shape: Shape) -> float:
        made = shape.rows * shape.columns * (1 if shape.each == _EACH else _READS)
        return shape.count_tiles(found) * (made + fill * (shape.rows + shape.columns))

    return min(_NARROW, key=weigh)


def count_pieces(found: Contraction, shape: Shape, p: Profile) -> int:
    """The pieces that points are cut into."""
    wanted = -(-p.groups * p.group_size // shape.count_items(found))
    if _is_wide(found):
        return max(1, min(wanted, found.depth // _DEPTH))
    pieces = min(wanted, found.depth // _NARROW_DEPTH)
    return pieces if pieces >= LEAST_PIECES else 1


def choose_skinny(work: Work) -> Nest | None:
    """The nest of a skinny product, and of what derives from it; None where it is none."""
    found = find_contraction(part_axes(work.phases)) if work.is_gpu else None
    shape = find_shape(found.settle(work.profile.taken)) if found else None
    if found is None or shape is None:
        return None
    return choose_tiles(work.function, work.phases, found, shape, work.limits)
