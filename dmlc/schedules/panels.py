"""Schedules of contractions for CPUs: how large the tiles are whose panels `panel` packs."""

from __future__ import annotations

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction
from dmlc.loops.nodes import Nest
from dmlc.loops.panels import BLOCK, Panels
from dmlc.schedules.rule import Work

_LEAST_ROWS = 4 * BLOCK
"""Rows of a tile, at least, where tiles are made smaller for more work items."""


def count_panels(found: Contraction, p: Profile) -> int:
    """The work items that have tiles."""
    return _choose(found, p)[1].count


def choose_panels(work: Work, found: Contraction) -> Nest:
    """The nest of a contraction, and of what derives from it."""
    rule, p = work.begin(), work.profile
    numbers, panels = _choose(found, p)
    rule.do("panel", *numbers, p.lanes)
    return rule.finish(panels.words)


def _choose(found: Contraction, p: Profile) -> tuple[tuple[int, int, int], Panels]:
    """The rows, columns and points of a tile, at most, and what is packed of it."""
    most, columns, depth = p.panel
    made = Panels(found, most, columns, depth, p.lanes)
    while made.count < p.groups and most > _LEAST_ROWS:
        most //= 2
        made = Panels(found, most, columns, depth, p.lanes)
    return (most, columns, depth), made
