"""Cases for tests with many parameters: not all combinations, but every pair or triple of values.

A kernel is compiled for every case on a device, which takes most of the time of such a test. What
goes wrong goes wrong for one value, or where two or three of them meet.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def cover(strength: int, *axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one value of each axis in which any `strength` values of as many axes meet
    somewhere. The same ones each time, in the order of the product of all."""
    groups = list(itertools.combinations(range(len(axes)), strength))
    missing = {
        (group, places)
        for group in groups
        for places in itertools.product(*(range(len(axes[a])) for a in group))
    }
    rows = list(itertools.product(*(range(len(axis)) for axis in axes)))
    chosen: set[tuple[int, ...]] = set()
    # First the rows in which all that meets is new, then those in which nearly all is, and so on.
    for wanted in range(len(groups), 0, -1):
        for row in rows:
            met = [(group, tuple(row[a] for a in group)) for group in groups]
            if sum(pair in missing for pair in met) >= wanted:
                missing.difference_update(met)
                chosen.add(row)
    return [
        tuple(axis[place] for axis, place in zip(axes, row, strict=True))
        for row in rows
        if row in chosen
    ]
