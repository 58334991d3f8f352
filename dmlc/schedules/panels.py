"""Schedules of contractions for CPUs: tile sizes for the primitive `panel`."""

from __future__ import annotations

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction
from dmlc.loops.nodes import Nest
from dmlc.loops.panels import BLOCK, Panels, orient
from dmlc.schedules.rule import Work

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


def _choose(found: Contraction, p: Profile) -> tuple[tuple[int, int, int], Panels]:
    """Largest rows, columns and points of a tile, and its packing."""
    (most, columns, depth), found = p.panel, orient(found)
    made = Panels(found, most, columns, depth, p.lanes)
    while made.count < p.groups and most > _LEAST_ROWS:
        most //= 2
        made = Panels(found, most, columns, depth, p.lanes)
    return (most, columns, depth), made
