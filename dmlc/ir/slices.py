"""Reductions over slices of their points, whose ends are elements of a tensor: the slice of an
element `e` is `start[e] <= k < start[e + 1]`. No point is in the slices of two elements.

Elements decide how long each slice is. How many points all of them have is known: no more than
there are. `assume_even` gives the elements that a model of times takes for those of such tensors.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from dmlc.index.affine import Affine
from dmlc.ir.function import Function
from dmlc.ir.index import IndexFacts, read_comparison
from dmlc.ir.nodes import Cast, Index, Load, Stage
from dmlc.scalars import Array, DataType

_GOLDEN = (math.sqrt(5) - 1) / 2
"""Distance of the places of neighbours, as a part of all places, where points lie anywhere."""
_NUMBERS = (DataType.INT32, DataType.UINT32, DataType.INT64)


@dataclasses.dataclass(frozen=True, slots=True)
class Slices:
    """Slices that a reduction goes through."""

    starts: str
    """Tensor of their ends: along its last axis, one more than there are slices."""
    count: int
    """Number of slices that share the points."""
    point: Index
    """Index of the reduction that goes through a slice."""
    points: int
    """Number of points of all slices, at most."""


def find_slices(function: Function, stage: Stage) -> Slices | None:
    """Slices over which a reduction iterates; None if it iterates over anything else."""
    facts, body = IndexFacts(stage), stage.body
    firsts: dict[tuple[Index, str, tuple[int, ...]], int] = {}
    lasts: dict[tuple[Index, str, tuple[int, ...]], int] = {}
    ends = {"ge": firsts, "lt": lasts}
    compared = (each for c in facts.conditions for each in read_comparison(body.instructions, c))
    for name, number, bound in (each for each in compared if each[0] in ends):
        point, end = body.instructions[number], body.instructions[bound]
        load = body.instructions[end.operand] if isinstance(end, Cast) else end
        if isinstance(point, Index) and point.reduced and isinstance(load, Load) and load.indices:
            *outer, place = load.indices
            ends[name][point, load.tensor, tuple(outer)] = place
    for (point, starts, outer), last in lasts.items():
        first = facts.forms[firsts.get((point, starts, outer), last)]
        end, points = facts.forms[last], stage.extent(point)
        ends = function.tensors()[starts].extents[-1]
        if first is None or end is None or end.plus(first, -1) != Affine(1):
            continue
        if isinstance(points, int) and isinstance(ends, int):
            return Slices(starts, max(1, ends - 1), point, points)
    return None


def assume_even(function: Function, stages: Iterable[str]) -> dict[str, Array]:
    """Elements of tensors that some stages read, if all slices were equally long, and the points
    of one anywhere: those of the ends, and of whole numbers that are read for each point."""
    found: dict[str, Array] = {}
    tensors = function.tensors()
    for stage in filter(None, map(function.stage, stages)):
        slices = find_slices(function, stage) if stage.reduction is not None else None
        if slices is None:
            continue
        ends = np.arange(slices.count + 1, dtype=np.int64) * slices.points // slices.count
        made = {slices.starts: ends}
        for load in stage.body.loads():
            places = [stage.body.instructions[index] for index in load.indices]
            if load.dtype in _NUMBERS and places and places[-1] == slices.point:
                made[load.tensor] = _scatter(slices.points)
        for name, elements in made.items():
            sizes = [extent for extent in tensors[name].extents if isinstance(extent, int)]
            if sizes[-1] == len(elements):
                found[name] = np.broadcast_to(elements, sizes)
    return found


def _scatter(count: int) -> Array:
    """Numbers below `count`, each once, neighbours far apart."""
    step = max(1, round(_GOLDEN * count))
    while math.gcd(step, count) > 1:
        step += 1
    return np.arange(count, dtype=np.int64) * step % max(1, count)
