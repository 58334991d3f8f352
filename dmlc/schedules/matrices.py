"""Schedules of FLOAT16 products by matrix instructions: tiles of both factors in shared memory,
unconverted, and a tile's accumulators in the subgroups' matrices.

The parameters are for each instruction of `matrices.INSTRUCTIONS`, and depend on sizes alone.
"""

from __future__ import annotations

from dmlc.kernel.target import Limits, Profile
from dmlc.loops.contraction import Contraction, Factor
from dmlc.loops.element import Gather, Read
from dmlc.loops.nodes import Nest
from dmlc.loops.phases import VECTOR
from dmlc.loops.tensorize import PAD
from dmlc.loops.tiling import takes_vectors
from dmlc.matrices import Instruction
from dmlc.schedules.rule import Rule, Work
from dmlc.schedules.tiles import begin_tiles, look_at_factor, name_factor

_SIDES = 128, 64, 32
"""Rows and columns of a tile: the first of which there are enough to keep a GPU busy. The largest
is pipelined."""
_SPARE = 1.25
"""Largest ratio of the outputs that the largest tiles compute to those needed."""
_STRIPS = {128: (32, 64), 64: (32, 32), 32: (32, 16)}
"""Smallest numbers of rows and columns of the strips in which a tile's accumulators are stored.
Each subgroup has a matrix in one, so that this determines the number of subgroups, too."""
_DEPTHS = {128: 16, 64: 32, 32: 32}
"""Points of a tile by its rows; pipelined tiles have two copies."""
_PAD = 8
"""Padding of a tile's rows in elements, as instructions require alignment to 16 bytes."""


def suits(found: Contraction, limits: Limits) -> bool:
    """Whether the target's instruction computes a product: of FLOAT16 factors as loaded."""
    row = limits.instruction
    if row is None or found.dtype is not row.shape.sum.compute:
        return False
    values = found.phase.elements.values
    factors = (values[factor.value] for factor in (found.left, found.right))
    return all(isinstance(v, Read | Gather) and v.view.dtype is row.shape.factors for v in factors)


def choose_matrices(work: Work, found: Contraction) -> Nest | None:
    """Nest of a FLOAT16 product and its derived phases; None if the instruction does not suit."""
    row, limits = work.limits.instruction, work.limits
    if row is None or not suits(found, limits):
        return None
    rule, side = work.begin(), choose_side(found, work.profile)
    k, axis = begin_tiles(rule, found, side, side, _DEPTHS[side])
    down, across = _share_out(row, side)
    strip = down * row.shape.m, across * row.shape.n
    each = side // strip[0], side // strip[1]
    rule.do("tensorize", "row", row.name, *each, *_pad_sums(found, side, strip, limits))
    items = down * across * row.subgroup
    for factor, name, own in ((found.left, "left", "row"), (found.right, "right", "column")):
        _fill(rule, found, factor, (k, name, own), (side, items))
    if side == _SIDES[0]:
        rule.do("pipeline", k)
    # Checked sums are tested one by one, and the code that recomputes them is emitted once.
    wide = not found.has_holes and takes_vectors(rule.nest.phases[1], axis, limits)
    loops, axes = ("strip_row", "strip_column"), ("rows", "columns")
    width = VECTOR if wide else 1
    rule.spread(loops, axes, strip, items, width, "own", rolled=found.has_holes)
    return rule.finish(f"a group computes a tile of {side} by {side} outputs in matrices")


def choose_side(found: Contraction, p: Profile) -> int:
    """Rows, and columns, of a tile."""
    if found.phase.is_open:
        return _SIDES[1]

    def count(side: int) -> int:
        return found.batches * -(-found.rows // side) * -(-found.columns // side)

    spare = _SPARE * found.batches * found.rows * found.columns
    return next(
        side for side in _SIDES
        if side == _SIDES[-1] or (count(side) >= p.groups
                                  and (side != _SIDES[0] or count(side) * side**2 <= spare))
    )  # fmt: skip


def _share_out(row: Instruction, side: int) -> tuple[int, int]:
    """Number of subgroups along the rows and the columns of a tile: each has one matrix in a
    strip."""
    rows, columns = _STRIPS[side]
    return max(1, rows // row.shape.m), max(1, columns // row.shape.n)


def _pad_sums(
    found: Contraction, side: int, strip: tuple[int, int], limits: Limits
) -> tuple[int, ...]:
    """`(0,)`, for unpadded rows of a strip of accumulators, if shared memory is short; else
    empty."""
    depth, taken = _DEPTHS[side], 0
    for factor in (found.left, found.right):
        _, _, is_along = look_at_factor(found, factor, limits)
        beside, other = (depth, side) if is_along else (side, depth)
        taken += (beside + _PAD) * other * 2
    taken = taken * (2 if side == _SIDES[0] else 1) + strip[0] * (strip[1] + PAD) * 4
    return () if taken <= limits.shared_bytes else (0,)


def _fill(
    rule: Rule, found: Contraction, factor: Factor, names: tuple[str, str, str],
    sizes: tuple[int, int],
) -> None:  # fmt: skip
    """Filling of a factor's tile by the work items: adjacent items load adjacent elements, four
    each if possible, which are contiguous in the tile too."""
    (k, name, own), (side, items) = names, sizes
    _, wide, is_along = look_at_factor(found, factor, rule.limits)
    beside = "point" if is_along else own
    rule.do("stage", k, name_factor(found, factor), "shared", beside, _PAD, name=name)
    rows, points = (f"{name}_{own}", side), (f"{name}_point", _DEPTHS[side])
    (along, many), (other, count) = (points, rows) if is_along else (rows, points)
    if not is_along:
        rule.do("reorder", along)
    axes = f"{name}_rows", f"{name}_columns"
    rule.spread((other, along), axes, (count, many), items, VECTOR if wide else 1)
