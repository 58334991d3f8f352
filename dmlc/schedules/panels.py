"""Schedules of contractions for CPUs: tile sizes for the primitive `panel`."""

from __future__ import annotations

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction
from dmlc.loops.nodes import Nest
from dmlc.loops.panels import Panels, orient
from dmlc.schedules.rule import Work

LEAST_DEPTH = 256
"""Smallest number of points of a contraction's chunk."""
_HALVED = 4, 3
"""How often the rows and the columns of the largest tile may be halved."""
_PACKED = {False: 6, True: 24}
"""Time to pack an element, relative to a product, by whether points have several dimensions, as
those of windows: these are packed one by one, and tested."""
_PART = 32
"""Time to store and load a partial sum, relative to a product."""
_TAIL = 2
"""Tiles' time in which some cores have none left."""


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
    """Largest rows, columns and points of a tile, and its packing: the tiles that take the least
    time, among those that keep a device busy, in chunks of points if these are needed."""
    (rows, columns, depth), found = p.panel, orient(found)
    sizes = [(rows >> r, columns >> c, depth) for r in range(_HALVED[0]) for c in range(_HALVED[1])]
    made = [(each, Panels(found, *each, p.lanes)) for each in sizes]
    pieces = max(1, found.depth // LEAST_DEPTH)
    least = min(p.groups // 2, pieces * max(panels.count for _, panels in made))
    packed, part = _PACKED[len(found.inner) > 1], _PART * found.rows * found.columns / found.depth

    def weigh(each: tuple[tuple[int, int, int], Panels]) -> float:
        panels = each[1]
        (high, wide), count = panels.shape, panels.count
        parts = 1 if count >= p.groups // 2 else min(pieces, -(-p.groups // count))
        time = count * (high * wide + packed * (high + wide)) + part * (parts - 1)
        return time * (1 + _TAIL / (count * parts))

    return min((each for each in made if pieces * each[1].count >= least), key=weigh)
