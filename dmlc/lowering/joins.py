"""Reductions across the work items of a group, in shared memory.

The items along an axis, and the order of combination, depend on their number alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, multiply, operate
from dmlc.kernel.frame import Frame
from dmlc.loops.accumulate import merge
from dmlc.lowering.accumulators import Accumulators, Arrays, combine_arrays, find_tile, name_arrays
from dmlc.scalars import DataType
from dmlc.source import InternalError

_JOINED = 16
"""Largest number of items whose accumulators one item combines, in groups of the usual size."""
_LARGE = 512
"""Number of items from which that number doubles."""
_TILES_BYTES = 1 << 13
"""Shared memory for vectors of tiles, unless a single vector per item takes more."""


def join_items(
    frame: Frame,
    state: Accumulators,
    lanes: Sequence[tuple[str, int]],
    numbers: Mapping[str, k.Expression],
    axis: str,
) -> list[k.Statement]:
    """Reduces the accumulators of the work items along an axis in shared memory; every item gets
    the result. If there are many items, some combine equal shares of the others first, which takes
    a second barrier. `lanes` are all axes with their extents, and `numbers` the coordinates of this
    work item."""
    if not state.accumulators:
        return []
    steps = _find_steps(lanes)
    step, extent = steps[axis], dict(lanes)[axis]
    ((width, states),) = state.registers.items()
    lane = multiply(k.Position(k.Geometry.LANE), width)
    size = math.prod(side for _, side in lanes) * width
    steps = {name: step * width for name, step in steps.items()}
    step *= width
    taken = name_arrays(frame, state.accumulators, "_lanes", size, shared=True)
    shared = list(zip(state.accumulators, states, taken, strict=True))
    write = [put for _, own, to in shared for put in to.write(lane, own)]

    def combine(first: k.Expression, step: int, count: int) -> k.For:
        number = frame.variable("part")
        body: list[k.Statement] = []
        for each, own, arrays in shared:
            other = arrays.read(add(first, multiply(number, step)), width)
            before, merged = merge(each, own, other, frame.names.take)
            body += [*before, *map(k.Assign, own, merged)]
        return k.For(number, index(1), index(count), 1, tuple(body))

    body = [*write, k.Barrier()]
    left = min(extent, _JOINED if extent < _LARGE else 2 * _JOINED)
    if left < extent:
        some = (combine(lane, left * step, extent // left), *write)
        body += [k.If(operate("lt", numbers[axis], index(left)), some), k.Barrier()]
    first = add(*[multiply(numbers[name], step) for name, step in steps.items() if name != axis])
    for _, own, arrays in shared:
        body += map(k.Assign, own, arrays.read(first, width))
    return [*body, combine(first, step, left)]


def join_tiles(
    frame: Frame,
    state: Accumulators,
    lanes: Sequence[tuple[str, int]],
    numbers: Mapping[str, k.Expression],
    axis: str,
) -> list[k.Statement]:
    """Reduces the tiles of the work items along an axis in shared memory, a few vectors at a time
    to save memory; every item gets the result."""
    tile, steps = find_tile(state), _find_steps(lanes)
    side, width = dict(lanes)[axis], tile.lanes
    lane = multiply(k.Position(k.Geometry.LANE), width)
    first = add(*[multiply(numbers[n], step * width) for n, step in steps.items() if n != axis])
    size = math.prod(extent for _, extent in lanes) * width
    widest = max(slot.dtype.bytes for each in state.accumulators for slot in each.slots)
    places = range(0, tile.rows * tile.pitch, width)
    many = min(len(places), max(1, _TILES_BYTES // (size * widest)))
    taken: dict[DataType, str] = {}
    for each in state.accumulators:
        for slot in each.slots:
            if slot.dtype not in taken:
                taken[slot.dtype] = frame.array("tiles", slot.dtype, many * size, shared=True)
    made: list[k.Statement] = []
    for each, own in state.pair():
        shared = Arrays(each.slots, tuple(taken[slot.dtype] for slot in each.slots))
        if len(set(shared.names)) < len(shared.names):
            raise InternalError(f"the parts of {each.name} share an array")
        for start in range(0, len(places), many):
            some = [(n * size, index(p)) for n, p in enumerate(places[start : start + many])]
            made.append(k.Barrier())
            for offset, place in some:
                made += shared.write(add(lane, index(offset)), own.read(place, width))
            made.append(k.Barrier())
            for offset, place in some:
                begin = add(first, index(offset))
                made += own.write(place, shared.read(begin, width))
                for part in range(1, side):
                    other = shared.read(add(begin, index(part * steps[axis] * width)), width)
                    made += combine_arrays(frame, each, own, place, other)
    return made


def _find_steps(lanes: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Distance between adjacent work items along each axis, in lane numbers."""
    return {
        name: math.prod(side for _, side in lanes[number + 1 :])
        for number, (name, _) in enumerate(lanes)
    }
