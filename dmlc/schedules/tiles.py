"""Schedules of contractions for GPUs: tiles of both factors in shared memory, where each element
serves all outputs of a row or a column.

Each work item has four rows by four columns of outputs in registers, or eight by eight. Sizes alone
determine the tiles. Every output is one sum, in order of the points.
"""

from __future__ import annotations

import dataclasses
import math

from dmlc.kernel.target import Limits, Profile
from dmlc.loops.contraction import Contraction, Factor, find_divided, lies_along
from dmlc.loops.nodes import Loop, Nest, walk
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.staging import FACTORS, stage_value
from dmlc.loops.thin import find_sparse
from dmlc.loops.tiling import takes_vectors
from dmlc.schedules.rule import Rule, Work

_AT_ONCE = 4
"""Points whose factors are loaded before any of them is added. More take registers, and do not save
instructions."""
_BYTES = 16
"""Largest number of bytes that a work item loads from memory at once."""
_WRITTEN = 1024
"""Largest number of a work item's products that a compiler unrolls, twice those unrolled in the
text. Measured in RADV's code for a product: a loop around fewer takes two hundredths of it."""
_PAD = 4
"""Padding of a tile's rows in shared memory in elements, so that a column is spread over several
banks, and vectors stay aligned."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Distribution of outputs. A group has some rows and columns of them, and a work item `each` of
    both: more of these take fewer loads from shared memory per product, and more registers."""

    rows: int
    columns: int
    each: int
    depth: int = 16
    """Points of a tile."""
    ahead: bool = False
    """Whether the loop is pipelined: it takes registers, and the last step loads its tiles
    twice."""

    @property
    def items(self) -> int:
        """Work items of a group."""
        return self.rows // self.each * (self.columns // self.each)

    def count_tiles(self, found: Contraction) -> int:
        """Number of groups."""
        return found.batches * -(-found.rows // self.rows) * -(-found.columns // self.columns)

    def count_items(self, found: Contraction) -> int:
        """Work items of all groups."""
        return self.count_tiles(found) * self.items


_LARGE, _SMALL = Shape(64, 64, 8), Shape(32, 32, 4)
_SHAPES = (
    # At a depth of 16 the tiles are 18 KB, and 16 KB is all that Vulkan and WGSL promise a group; a
    # work item would have 8 registers more, and an H100 half as many beside each other.
    (Shape(128, 128, 8, depth=8, ahead=True), 2, 1.25),
    # 32 elements ahead were too many: RADV spilled some in convolutions.
    (_LARGE, 2, math.inf),
    (Shape(64, 64, 4, ahead=True), 1, math.inf),
    (_SMALL, 0, math.inf),
)
"""Shapes in order of preference: the first with enough tiles to keep a GPU busy is chosen. The last
number is the largest ratio of computed to needed outputs."""


def limit_shape(found: Contraction) -> Shape:
    """Shape for the rows and columns, if there are enough of them."""
    return _SMALL if min(found.rows, found.columns) <= _SMALL.rows else _LARGE


def choose_shape(found: Contraction, p: Profile) -> Shape:
    """Shape for a product of many rows and columns: that of a row of the schedule table, or else
    the one that suits the sizes."""
    if p.tile:
        rows, columns, each, depth, ahead = p.tile
        return Shape(rows, columns, each, depth, bool(ahead))
    if limit_shape(found) is _SMALL:
        return _SMALL
    outputs = found.batches * found.rows * found.columns
    return next(
        shape
        for shape, tiles, spare in _SHAPES
        if (count := shape.count_tiles(found)) >= tiles * p.groups
        and count * shape.rows * shape.columns <= spare * outputs
    )


def choose_tiles(work: Work, found: Contraction, shape: Shape) -> Nest:
    """Nest of a contraction and its derived phases. In `found`, the groups of a convolution and the
    like are axes of their own."""
    rule, limits, each = work.begin(), work.limits, shape.each
    taps, depth = find_taps(found, found.points[-1], shape.depth)
    shape = dataclasses.replace(shape, depth=depth)
    k, last = begin_tiles(rule, found, shape.rows, shape.columns, shape.depth)
    _share_out(rule, shape)
    rule.do("split", "point", _AT_ONCE, name="points")
    written = _WRITTEN if limits.unrolls else _WRITTEN // 2
    rule.do("unroll" if each**2 * shape.depth <= written else "roll", "points")
    rule.do("unroll", "point")
    _, wide, is_along = look_at_factor(found, found.right, limits)
    if each > VECTOR and wide and is_along and not shape.ahead:
        # Columns with contiguous points are loaded part by part, to save registers.
        rule.do("reorder", "point")
    _fill(rule, found, found.left, (k, "left", "row"), shape.rows, shape, taps)
    _fill(rule, found, found.right, (k, "right", "column"), shape.columns, shape, taps)
    if shape.ahead:
        rule.do("pipeline", k)
    if each >= VECTOR and takes_vectors(rule.nest.phases[1], last, limits):
        loops = [n for n in walk(rule.nest.body) if isinstance(n, Loop) and n.dim.name == "column"]
        _, stored, *_ = (loop.name for loop in loops if loop.step == 1)
        rule.do("vectorize", stored, VECTOR, "whole")
    sides = f"{shape.rows} by {shape.columns}"
    return rule.finish(f"a group computes a tile of {sides} outputs, and each {each} by {each}")


def begin_tiles(
    rule: Rule, found: Contraction, row: int, column: int, point: int
) -> tuple[str, int]:
    """Tiles of a product, of so many rows, columns and points, one for each work group. Returns the
    loop over the tiles of points, and the axis of the derived phase along the columns."""
    take_apart(rule)
    dims = rule.nest.dims[0]
    batch, rows, columns, points = (
        [dims[axis].name for axis in axes]
        for axes in (found.batch, found.left.axes, found.right.axes, found.points)
    )
    rule.put_in_order([*batch, *rows, *columns])
    if found.has_holes:
        rule.do("recheck", columns[-1])
    rule.put_in_order(points)
    m, n, k = rule.merge(rows, "m"), rule.merge(columns, "n"), rule.merge(points, "k")
    for loop, size, name in ((m, row, "row"), (n, column, "column"), (k, point, "point")):
        rule.do("tile", loop, size, name=name)
    rule.do("reorder", "row")
    rule.do("bind", rule.fuse([*batch, m, n], "tile"), "group")
    return k, rule.nest.dims[1].index(dims[found.right.axes[-1]])


def find_taps(found: Contraction, last: int, depth: int) -> tuple[int, int]:
    """Window length along the innermost axis of the points (1 without windows); and the points of a
    tile, at most `depth`, in whole rows of windows, so that the elements each work item loads are
    known at compile time."""
    conditions = (*found.left.conditions, *found.right.conditions)
    space, moving = found.phase.space, found.phase.find_moving(last)
    size = space.extents[last]
    if last in space.pieces or not any(moving[condition] for condition in conditions):
        return 1, depth
    if not isinstance(size, int) or not 1 < size <= VECTOR or math.lcm(size, _AT_ONCE) > depth:
        return 1, depth
    even = math.lcm(size, _AT_ONCE)
    return size, depth // even * even


def take_apart(rule: Rule) -> None:
    """Gives a product its own axes: without the points that strides exclude, and with the groups of
    a convolution and the like separate."""
    while (sparse := find_sparse(rule.nest.phases[0])) is not None:
        rule.do("thin", rule.nest.dims[0][sparse.axis].name, sparse.number)
    while (divided := find_divided(rule.nest.phases[0])) is not None:
        axis, length = divided
        rule.do("part", rule.nest.dims[0][axis].name, length)


def _share_out(rule: Rule, shape: Shape) -> None:
    """Distributes the rows and columns of a tile over work items, a few adjacent ones at a time,
    with a stride such that adjacent items load adjacent elements."""
    has_parts = shape.each > VECTOR
    for name, items, side in (("column", "columns", shape.columns), ("row", "rows", shape.rows)):
        if has_parts:
            rule.do("split", name, side // shape.each * VECTOR, name=f"{name}_part")
        rule.do("split", name, min(shape.each, VECTOR), name=items)
        rule.do("unroll", name)
    column_part, row_part = (["column_part"], ["row_part"]) if has_parts else ([], [])
    for name in row_part:
        rule.do("unroll", name)
    rule.do("bind", "rows", "rows")
    rule.put_in_order(["rows", *column_part, "columns", *row_part, "row", "column"])
    for name in column_part:
        rule.do("unroll", name)
    rule.do("bind", "columns", "columns")
    rule.put_in_order(["columns", *column_part])
    for name in ("column", "row", *row_part, *column_part):
        rule.do("jam", name)


def _fill(
    rule: Rule, found: Contraction, factor: Factor, names: tuple[str, str, str], side: int,
    shape: Shape, taps: int,
) -> None:  # fmt: skip
    """Filling of a factor's tile by the work items: adjacent items load adjacent elements, four
    each if possible, which are contiguous in the tile too. One work item loads all `taps` of a
    window's row."""
    k, name, own = names
    phase, wide, is_along = look_at_factor(found, factor, rule.limits)
    # Eight rows or columns with contiguous points take more registers than two groups of 256 have.
    beside = "point" if wide and is_along and not (shape.ahead and shape.each > VECTOR) else own
    pad = 0 if shape.ahead else _PAD
    rule.do("stage", k, name_factor(found, factor), "shared", beside, pad, name=name)
    rows, points = (f"{name}_{own}", side), (f"{name}_point", shape.depth)
    if not is_along:
        rule.do("reorder", rows[0])
    parted = taps > 1 and not (wide and is_along)
    if parted:
        tap, points = points[0], (f"{name}_taps", shape.depth // taps)
        rule.do("split", tap, taps, name=points[0])
        rule.do("unroll", tap)
    (along, many), (other, count) = (points, rows) if is_along else (rows, points)
    width = _find_unit(phase, many) if wide else 1
    axes = f"{name}_rows", f"{name}_columns"
    parts = f"{name}_part", f"{name}_half"
    rule.spread((other, along), axes, (count, many), shape.items, width, parts=parts)


def look_at_factor(found: Contraction, factor: Factor, limits: Limits) -> tuple[Phase, bool, bool]:
    """Phase that computes a factor, whether four neighbours are loaded at once, and whether these
    are points."""
    phase = stage_value(found.phase.elements, factor.value, factor.conditions, "factor")
    last = found.points[-1]
    is_along = lies_along(phase, last, factor.axes[-1])
    return phase, takes_vectors(phase, last if is_along else factor.axes[-1], limits), is_along


def _find_unit(phase: Phase, many: int) -> int:
    """Adjacent elements that a work item loads at once: 16 bytes of the narrowest type, or a vector
    if there are no more."""
    sizes = [view.dtype.bytes for view in phase.elements.buffers() if not view.local]
    return max(VECTOR, min(_BYTES // min(sizes, default=_BYTES), many // 2))


def name_factor(found: Contraction, factor: Factor) -> str:
    """Name of a factor for the primitive `stage`."""
    (reduction,) = found.phase.elements.reductions
    return FACTORS[reduction.values.index(factor.value)]
