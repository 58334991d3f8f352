"""Schedules of contractions: tiles of both factors are put into memory that a group shares, where
each element serves all outputs of a row or a column.

Each work item has four rows by four columns of outputs in registers, or eight by eight. Sizes alone
decide how large tiles are. Every output is one sum, whose points are added in their order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.contraction import Contraction, Factor, find_divided
from dmlc.loops.element import Gather, operands
from dmlc.loops.nodes import Loop, Nest, walk
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.staging import FACTORS, stage_value
from dmlc.loops.tiling import takes_vectors
from dmlc.schedules.rule import Rule


@dataclasses.dataclass(frozen=True, slots=True)
class _Tiling:
    """How outputs are shared out. A group has `side` rows and columns of them, and a work item
    `each` of both: fewer reads of shared memory for each product, and more registers."""

    side: int
    depth: int
    """Points of a tile."""
    each: int
    tiles: float = 0
    """Tiles of these that there are at least, for each group that keeps a GPU busy: with fewer,
    most of it is idle."""
    spare: float = math.inf
    """The points that they have for each output, at most: those beyond the end are computed for
    nothing."""
    ahead: bool = False
    """Whether the next tiles are read before the present ones are used. It takes registers, and the
    last step reads its tiles twice."""


_TILINGS = (
    # At a depth of 16 the tiles are 18 KB, and 16 KB is all that Vulkan and WGSL promise a group; a
    # work item would have 8 registers more, and an H100 half as many beside each other.
    _Tiling(128, 8, 8, tiles=2, spare=1.25, ahead=True),
    # 32 elements ahead were too many: RADV spilled some in convolutions.
    _Tiling(64, 16, 8, tiles=2),
    _Tiling(64, 16, 4, tiles=1, ahead=True),
    _Tiling(32, 16, 4),
)
_OPEN = _Tiling(64, 16, 4)
"""That of sizes which are known at run time only: a work item with many outputs would leave small
ones few groups."""
_AT_ONCE = 4
"""Points whose factors are read before any of them is added. More take registers, and no fewer
instructions."""
_WRITTEN = 256
"""Products of a work item that are written out, at most."""
_PAD = 4
"""Elements between the rows of a tile in shared memory, so that those of a column lie in several
banks, and vectors still begin where vectors do."""


def count_tiles(found: Contraction, p: Profile) -> int:
    """The groups that tiles take."""
    return _count(found, _choose_tiling(found, p))


def _count(found: Contraction, tiling: _Tiling) -> int:
    rows, columns = (-(-size // tiling.side) for size in (found.rows, found.columns))
    return found.batches * rows * columns


def _choose_tiling(found: Contraction, p: Profile) -> _Tiling:
    """The largest tiles of which there are enough, and that outputs fill."""
    if found.is_open:
        return _OPEN
    outputs = found.batches * found.rows * found.columns
    return next(
        t
        for t in _TILINGS
        if (count := _count(found, t)) >= t.tiles * p.groups
        and count * t.side**2 <= t.spare * outputs
    )


def choose_tiles(
    function: ir.Function, phases: Sequence[Phase], found: Contraction, p: Profile, limits: Limits
) -> Nest:
    """The nest of a contraction, and of what derives from it. What is `found` has the groups of a
    convolution, and the like, as axes of their own."""
    rule, tiling = Rule(function, limits, phases), _choose_tiling(found, p)
    side, depth, each = tiling.side, tiling.depth, tiling.each
    while (divided := find_divided(rule.nest.phases[0])) is not None:
        axis, length = divided
        rule.do("part", rule.nest.dims[0][axis].name, length)
    dims, pieces = rule.nest.dims[0], found.phase.space.pieces
    inner = sorted(found.inner, key=lambda axis: axis not in pieces)
    batch, rows, columns, points = (
        [dims[axis].name for axis in axes]
        for axes in (found.batch, found.left.axes, found.right.axes, inner)
    )
    rule.put_in_order([*batch, *rows, *columns])
    if found.has_holes:
        rule.do("recheck", columns[-1])
    rule.put_in_order(points)
    m, n, k = rule.merge(rows, "m"), rule.merge(columns, "n"), rule.merge(points, "k")
    rule.do("tile", m, side, name="row")
    rule.do("tile", n, side, name="column")
    rule.do("tile", k, depth, name="point")
    rule.do("reorder", "row")
    rule.do("bind", rule.fuse([*batch, m, n], "tile"), "group")
    _share_out(rule, side // each * VECTOR, each > VECTOR)
    rule.do("split", "point", _AT_ONCE, name="points")
    rule.do("unroll" if each**2 * depth <= _WRITTEN else "roll", "points")
    rule.do("unroll", "point")
    if each > VECTOR and _lies(found, found.right, limits) == (True, True):
        # Columns whose points lie side by side are read one part after the other: registers.
        rule.do("reorder", "point")
    for factor, name, own in ((found.left, "left", "row"), (found.right, "right", "column")):
        _fill(rule, found, factor, (k, name, own), tiling)
    if tiling.ahead:
        rule.do("pipeline", k)
    last = rule.nest.dims[1].index(dims[found.right.axes[-1]])
    if takes_vectors(rule.nest.phases[1], last, limits):
        loops = [n for n in walk(rule.nest.body) if isinstance(n, Loop) and n.dim.name == "column"]
        _, stored, *_ = (loop.name for loop in loops if loop.step == 1)
        rule.do("vectorize", stored, VECTOR, "whole")
    each_has = f"{each} by {each}"
    return rule.finish(f"a group computes a tile of {side} by {side} outputs, and each {each_has}")


def _share_out(rule: Rule, apart: int, has_parts: bool) -> None:
    """Some rows and columns of a tile for each work item, a few neighbours at a time, and so far
    apart that work items side by side read side by side."""
    for name, items in (("column", "columns"), ("row", "rows")):
        if has_parts:
            rule.do("split", name, apart, name=f"{name}_part")
        rule.do("split", name, VECTOR, name=items)
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
    rule: Rule, found: Contraction, factor: Factor, names: tuple[str, str, str], tiling: _Tiling
) -> None:
    """How the work items fill the tile of a factor: neighbours read side by side, four elements
    each where that can be, and these lie side by side in the tile too."""
    (k, name, own), items = names, (tiling.side // tiling.each) ** 2
    wide, is_along = _lies(found, factor, rule.limits)
    beside = "point" if wide and is_along else own
    rule.do("stage", k, _name_factor(found, factor), "shared", beside, _PAD, name=name)
    rows, points = (f"{name}_{own}", tiling.side), (f"{name}_point", tiling.depth)
    (along, many), (other, count) = (points, rows) if is_along else (rows, points)
    if not is_along:
        rule.do("reorder", along)
    width = VECTOR if wide else 1
    across = min(many // width, items)
    rule.take(other, f"{name}_rows", count, items // across)
    neighbours = rule.do("split", along, width, name=f"{name}_part") if wide else along
    rule.do("bind", neighbours, f"{name}_columns")
    if wide:
        rule.do("vectorize", along, VECTOR, "whole")


def _lies(found: Contraction, factor: Factor, limits: Limits) -> tuple[bool, bool]:
    """Whether four neighbours of a factor are read at once, and whether they are points."""
    phase = stage_value(found.phase, factor.value, factor.conditions, "factor")
    pieces = found.phase.space.pieces
    last = max(found.inner, key=lambda axis: (axis not in pieces, axis))
    is_along = lies_along(phase, last, factor.axes[-1])
    return takes_vectors(phase, last if is_along else factor.axes[-1], limits), is_along


def _name_factor(found: Contraction, factor: Factor) -> str:
    """What the primitive that stages a factor calls it."""
    (reduction,) = found.phase.elements.reductions
    product = found.phase.elements.values[reduction.value]
    return FACTORS[operands(product).index(factor.value)]


def lies_along(phase: Phase, first: int, second: int) -> bool:
    """Whether what a phase reads lies side by side along the first of two axes, sooner than along
    the second."""
    values = phase.elements.values
    reads = [v for v in phase.elements.buffers() if not v.local]

    def count(axis: int) -> int:
        moving = phase.find_moving(axis)
        beside = [v for v in reads if phase.space.strides[v][axis] == 1]
        gathers = [v for n, v in enumerate(values) if isinstance(v, Gather) and moving[n]]
        beside += [v.view for v in gathers if any(s == 1 and moving[n] for n, s in v.terms)]
        return max((phase.space.count_steps(view) or 0 for view in beside), default=-1)

    return count(first) > count(second)
