"""Cases for tests with many parameters: not all combinations, but every pair or triple of values.

A kernel is compiled for every case on a device, which takes most of the time of such a test. What
goes wrong goes wrong for one value, or where two or three of them meet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def cover(strength: int, *axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one value of each axis in which any `strength` values of as many axes meet
    somewhere. The same ones each time, in the order of the product of all."""
    groups = list(itertools.combinations(range(len(axes)), strength))
    rows = np.array(list(itertools.product(*(range(len(axis)) for axis in axes))))
    met, count = np.empty((len(rows), len(groups)), np.intp), 0
    for number, group in enumerate(groups):
        sizes = [len(axes[a]) for a in group]
        met[:, number] = count + np.ravel_multi_index(rows[:, group].T, sizes)
        count += math.prod(sizes)
    missing = np.ones(count, bool)
    chosen = np.zeros(len(rows), bool)
    # First the rows in which all that meets is new, then those in which nearly all is, and so on.
    for wanted in range(len(groups), 0, -1):
        for row in np.flatnonzero(missing[met].sum(1) >= wanted):
            if missing[met[row]].sum() >= wanted:
                missing[met[row]] = False
                chosen[row] = True
    return [
        tuple(axis[place] for axis, place in zip(axes, row, strict=True)) for row in rows[chosen]
    ]
