"""Schedules of contractions for CPUs: tile sizes for the primitive `panel`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dmlc.kernel.target import Profile
from dmlc.loops.contraction import Contraction, part_axes
from dmlc.loops.nodes import Nest
from dmlc.loops.panels import BLOCK, Panels, find_dots, orient
from dmlc.loops.phases import Phase
from dmlc.schedules.rule import Work

_LEAST, _MOST, _MOST_PACKED = 16, 16, 1 << 17
"""Smallest number of columns and of points of dot products, and largest number of rows and of their
elements: these stay in the L2 cache."""
_PRODUCTS, _COLUMNS, _LANES = 1 << 15, 64, 8
"""Products and columns of a work item, at least, for which it packs the rows once; and the lanes of
a register."""
LEAST_DEPTH = 256
"""Smallest number of points of a contraction's chunk."""
_PACKED = {False: 6, True: 24}
"""Time to pack an element, relative to a product, by whether it is of a window, and tested."""
_BEGIN, _PART = 192, 32
"""Times to begin the loop over a panel's row, and to store and load a partial sum, relative to a
product."""
_TAIL = 0.07
"""Part of a tile's time that is lost at the end for each work item that would pay."""
_PAYS = 1 << 18
"""Products for which one more work item pays."""


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
    is_open = any(phase.is_open for phase in phases)
    found = None if is_open else find_dots(part_axes(phases))
    if found is None or found.columns < _LEAST or found.rows > _MOST:
        return None
    # Lanes take as long to add up as panels to pack, where more rows have few points.
    least = _LEAST * found.rows // 2 if found.rows >= BLOCK else _LEAST
    return found if least <= found.depth <= _MOST_PACKED // found.rows else None


def choose_dots(work: Work) -> Nest | None:
    """Nest of a product of a few rows; None for others."""
    found = None if work.is_gpu else suits_dots(work.phases)
    if found is None:
        return None
    rule, size = work.begin(), found.rows * found.depth
    # The points of windows are packed one by one, and others in vectors.
    share = found.columns if len(found.inner) > 1 else -(-found.columns // work.profile.groups)
    columns = max(_LEAST, _PRODUCTS // size, min(_COLUMNS, share))
    rule.do("dot", columns, _LANES)
    return rule.finish(f"each computes {found.rows} by at most {columns} outputs")


def _choose(found: Contraction, p: Profile) -> tuple[tuple[int, int, int], int, str]:
    """Largest rows, columns and points of a tile, chunks of points, and words for readers: what
    takes the least time, among what keeps a device busy."""
    (most, wide, depth), found = p.panel, orient(found)
    most_pieces, is_window = max(1, found.depth // LEAST_DEPTH), len(found.inner) > 1
    products = found.batches * found.rows * found.columns * found.depth
    enough = max(1, min(p.groups // 2, products // _PAYS))
    part = _PART * found.rows * found.columns / found.depth
    best: list[tuple[bool, float, tuple[int, int, int], int, str]] = []
    for down, across in itertools.product(range(4), range(4)):
        numbers = most >> down, wide >> across, depth
        panels = Panels(found, *numbers, p.lanes)
        (rows, columns), count = panels.shape, panels.count
        pieces = 1 if count >= enough else min(most_pieces, -(-p.groups // count))
        packed = _PACKED[is_window] * (rows + columns)
        begin = _BEGIN * (1 + rows / min(depth, found.depth))
        time = count * (rows * columns + packed + begin) + part * (pieces - 1)
        is_idle, busy = count * pieces < enough, 1 + _TAIL * (enough - 1) / (count * pieces)
        best.append((is_idle, time * busy, numbers, pieces, panels.words))
    return min(best)[2:]
