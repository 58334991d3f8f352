"""Schedules of products with few rows or few columns on GPUs, which are bound by memory: a work
group reads a tile of the large factor once, in accesses of 16 bytes with several in flight, and
combines it with all of its few rows or columns. If rows and columns are few, or computed from
windows, as for a gradient of a convolution's weights in groups, tiles are as small.

Points are cut into chunks until enough loads are in flight on a large device; sizes alone decide.
Chunks are added in order.
"""

from __future__ import annotations

from dmlc.kernel.target import Limits, Profile
from dmlc.loops.contraction import Contraction, find_contraction, part_axes
from dmlc.loops.nodes import Nest
from dmlc.schedules import matrices
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
_NARROW_DEPTH = 64
"""The same for few outputs, whose results are few, too."""
LEAST_PIECES = 3
"""Smallest number of a contraction's chunks: small tiles serve as well as two chunks, and save a
launch."""
_NARROW = (
    Shape(32, 32, 4),
    Shape(16, 64, 4),
    Shape(64, 16, 4),
    Shape(8, 128, 4),
    Shape(128, 8, 4),
    *(Shape(r, c, 2, depth=32) for r, c in ((16, 16), (8, 32), (32, 8), (4, 64), (64, 4))),
)
"""Tiles of products with few outputs, or computed from windows: 64 work items each. The small ones
are deep, so that as much is loaded before it is used."""
_READS = 1.5
"""Time of an output of work items that have 2 by 2, relative to 4 by 4: each element of shared
memory serves half as many."""
_FILLS = {False: 4, True: 16}
"""Time to fill an element of a tile, relative to an output, by whether it is of a window: its
offset takes quotients and comparisons."""
LEAST_OUTPUTS, _LEAST_ROWS = 64, 3
"""Smallest number of outputs of a batch, and of rows and columns: with fewer, loading an element
once for each output takes no longer than memory does."""
_MOST_OUTPUTS = 32
"""Largest number of rows and columns of a product that is one tile."""
_LEAST_PRODUCTS = 1 << 19
"""Smallest number of products: fewer are too few chunks to fill a device."""


def find_shape(found: Contraction, limits: Limits | None = None) -> Shape | None:
    """Tiles of a skinny product; None if it is none, or small, or matrix instructions of the target
    suit it better."""
    least, most = sorted((found.rows, found.columns))
    if least < 2 or (least > MOST and most > _MOST_OUTPUTS):
        return None
    if _is_wide(found):
        short = MOST if 2 * least > MOST else MOST // 2
        return Shape(*((short, _SIDE) if found.rows == least else (_SIDE, short)), _EACH)
    outputs, points = found.rows * found.columns, found.batches * found.depth
    suits = least >= _LEAST_ROWS and outputs >= LEAST_OUTPUTS
    suits &= not (found.was_open and found.phase.has_positions)
    # A piece may be half as long as is asked for.
    suits &= 2 * found.depth >= _NARROW_DEPTH and outputs * points >= _LEAST_PRODUCTS
    # Of short sums over windows, neighbours read much in common. Pieces of a long one are a batch.
    suits &= not found.phase.has_positions or points >= most
    if limits is not None and least >= MOST and matrices.suits(found, limits):
        return None
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
    """Number of chunks that the points are cut into."""
    wanted = -(-p.groups * p.group_size // shape.count_items(found))
    if _is_wide(found):
        return max(1, min(wanted, found.depth // _DEPTH))
    pieces = min(wanted, found.depth // _NARROW_DEPTH)
    return pieces if pieces >= LEAST_PIECES else 1


def choose_skinny(work: Work) -> Nest | None:
    """Nest of a skinny product and its derived phases; None if it is none."""
    found = find_contraction(part_axes(work.phases)) if work.is_gpu else None
    shape = find_shape(found.settle(work.profile.taken), work.limits) if found else None
    return choose_tiles(work, found, shape) if found and shape else None
