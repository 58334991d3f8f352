"""Schedules of contractions for CPUs: tile sizes for the primitive `panel`."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction, part_axes
from dmlc.loops.nodes import Nest
from dmlc.loops.panels import BLOCK, Panels, find_dots, orient
from dmlc.loops.phases import Phase
from dmlc.schedules.rule import Work

_LEAST, _MOST, _PACKED = 16, 16, 1 << 17
"""Smallest number of columns and of points of dot products, and largest number of rows and of their
elements: these stay in the L2 cache."""
_PRODUCTS, _COLUMNS, _LANES = 1 << 15, 64, 8
"""Products and columns of a work item, at least, for which it packs the rows once; and the lanes of
a register."""
_LEAST_ROWS = 4 * BLOCK
"""Smallest number of rows of a tile that is made smaller for more work items."""


def count_panels(found: Contraction, p: Profile) -> int:
    """Number of work items that have tiles."""
    return _choose(found, p)[1].count


def choose_panels(work: Work, found: Contraction) -> Nest:
    """Nest of a contraction and its derived phases."""
    rule, p = work.begin(), work.profile
    numbers, panels = _choose(found, p)
    rule.do("panel", *numbers, p.lanes)
    return rule.finish(panels.words)


def suits_dots(phases: Sequence[Phase]) -> Contraction | None:
    """Contraction of a few rows whose sums are worth vectors along the points."""
    is_open = any(phase.space.is_open for phase in phases)
    found = None if is_open else find_dots(part_axes(phases))
    if found is None or found.columns < _LEAST or found.rows > _MOST:
        return None
    # Lanes take as long to add up as panels to pack, where more rows have few points.
    least = _LEAST * found.rows // 2 if found.rows >= BLOCK else _LEAST
    return found if least <= found.depth <= _PACKED // found.rows else None


def choose_dots(work: Work) -> Nest | None:
    """Nest of a product of a few rows; None for others."""
    found = None if work.is_gpu else suits_dots(work.phases)
    if found is None:
        return None
    rule, columns = work.begin(), max(_COLUMNS, _PRODUCTS // (found.rows * found.depth))
    rule.do("dot", columns, _LANES)
    return rule.finish(f"each computes {found.rows} by at most {columns} outputs")


def _choose(found: Contraction, p: Profile) -> tuple[tuple[int, int, int], Panels]:
    """Largest rows, columns and points of a tile, and its packing."""
    (most, columns, depth), found = p.panel, orient(found)
    made = Panels(found, most, columns, depth, p.lanes)
    while made.count < p.groups and most > _LEAST_ROWS:
        most //= 2
        made = Panels(found, most, columns, depth, p.lanes)
    return (most, columns, depth), made
