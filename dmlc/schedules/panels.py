"""Schedules of contractions for CPUs: tile sizes for the primitive `panel`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction, part_axes
from dmlc.loops.nodes import Nest
from dmlc.loops.panels import Panels, find_dots, orient
from dmlc.loops.phases import Phase
from dmlc.schedules.rule import Work

_LEAST, _MOST = 16, 16
"""Smallest number of columns and of points of a product by dot products, and largest number of its
rows."""
_PRODUCTS, _COLUMNS = 1 << 15, 64
"""Products of a work item, at least, and columns, for which it packs the rows once."""
_MOST_ROWS_PACKED = 1 << 17
"""Elements of all rows, at most: they stay in the L2 cache."""
_LANES = 8
"""Lanes of vectors along the points: a register's."""
LEAST_DEPTH = 256
"""Smallest number of points of a contraction's chunk."""
_PACKED = {False: 6, True: 24}
"""Time to pack an element, relative to a product, by whether points have several dimensions, as
those of windows: these are packed one by one, and tested."""
_BEGIN = 32
"""Elements of a panel that are packed in the time that its loops take to begin."""
_PART = 32
"""Time to store and load a partial sum, relative to a product."""
_TAIL = 1
"""Tiles' time in which some cores have none left."""


def count_pieces(found: Contraction, p: Profile) -> int:
    """Number of chunks that the points of a contraction with few tiles are cut into."""
    return _choose(found, p)[1]


def choose_panels(work: Work, found: Contraction) -> Nest:
    """Nest of a contraction and its derived phases."""
    rule, (numbers, _, words) = work.begin(), _choose(found, work.profile)
    rule.do("panel", *numbers, work.profile.lanes)
    return rule.finish(words)


def suits_dots(phases: Sequence[Phase]) -> Contraction | None:
    """Contraction of a few rows whose sums are worth vectors along the points."""
    is_open = any(phase.space.is_open for phase in phases)
    found = None if is_open else find_dots(part_axes(phases))
    if found is None or min(found.columns, found.depth) < _LEAST or found.rows > _MOST:
        return None
    return found if found.rows * found.depth <= _MOST_ROWS_PACKED else None


def choose_dots(work: Work) -> Nest | None:
    """Nest of a product of a few rows; None for others."""
    found = None if work.is_gpu else suits_dots(work.phases)
    if found is None:
        return None
    rule, columns = work.begin(), max(_COLUMNS, _PRODUCTS // (found.rows * found.depth))
    rule.do("dot", columns, _LANES)
    return rule.finish(f"each computes {found.rows} by at most {columns} outputs")


def _choose(found: Contraction, p: Profile) -> tuple[tuple[int, int, int], int, str]:
    """Largest rows, columns and points of a tile, chunks of points, and words for readers: what
    takes the least time, among what keeps a device busy."""
    (most, wide, depth), found = p.panel, orient(found)
    most_pieces, is_window = max(1, found.depth // LEAST_DEPTH), len(found.inner) > 1
    part = _PART * found.rows * found.columns / found.depth
    best: list[tuple[bool, float, tuple[int, int, int], int, str]] = []
    for down, across in itertools.product(range(4), range(4)):
        numbers = most >> down, wide >> across, depth
        panels = Panels(found, *numbers, p.lanes)
        (rows, columns), count = panels.shape, panels.count
        pieces = 1 if 2 * count >= p.groups else min(most_pieces, -(-p.groups // count))
        packed = _PACKED[is_window] * (rows + columns + _BEGIN)
        time = count * (rows * columns + packed) + part * (pieces - 1)
        is_idle, busy = 2 * count * pieces < p.groups, 1 + _TAIL / (count * pieces)
        best.append((is_idle, time * busy, numbers, pieces, panels.words))
    return min(best)[2:]
