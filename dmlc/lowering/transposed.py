"""Transposes of squares of elements in registers, for arrays accessed across: each vector's lanes
are apart in memory, while equal lanes of consecutive vectors are contiguous. The transposed vectors
are stored whole, instead of lane by lane."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.expand import copy_statements, list_steps
from dmlc.kernel.frame import Frame
from dmlc.kernel.rewrite import drop_unused
from dmlc.kernel.sums import Sum, add_up, note


def transpose_square(frame: Frame, loop: k.For) -> list[k.Statement]:
    """Statements for a loop that stores a vector lane by lane in each of as many steps as it has
    lanes; other loops unchanged."""
    steps, count = list_steps(loop), _count_lanes(loop)
    if count == 0 or len(steps) != count:
        return [loop]
    made, rows, places = list[k.Statement](), list[k.Expression](), list[k.StoreLocal]()
    for step in steps:
        copied = copy_statements(loop.body, {loop.variable.name: step}, frame.rename)
        stores = [s for s in copied if isinstance(s, k.StoreLocal)]
        places = places or stores
        rows += [s.value.operand for s in stores[:1] if isinstance(s.value, k.Extract)]
        made += copied[:-count]
    columns = _transpose(frame, rows, made)
    stored = zip(places, columns, strict=True)
    made += (k.StoreLocal(s.array, s.index, column) for s, column in stored)
    return drop_unused(made)


def _count_lanes(loop: k.For) -> int:
    """Lanes of the vector that a loop stores lane by lane at a constant stride, with consecutive
    steps contiguous; 0 for other loops."""
    known, places, vectors = dict[str, Sum](), list[Sum](), list[k.Expression]()
    for statement in loop.body:
        match statement:
            case k.Let() if not places:
                note(statement, known)
            case k.StoreLocal(index=place, value=k.Extract(operand=vector, lanes=(lane,))) if (
                lane == len(places)
            ):
                places.append(add_up(place, known))
                vectors.append(vector)
            case _:
                return 0
    arrays = {s.array for s in loop.body if isinstance(s, k.StoreLocal)}
    if len(arrays) != 1 or len(set(vectors)) != 1 or vectors[0].type.lanes != len(places):
        return 0
    first, second, *_ = places
    apart = second.plus(first, -1)
    even = all(place == first.plus(apart, lane) for lane, place in enumerate(places))
    even = even and not apart.factors
    return len(places) if even and first.factor(loop.variable) == 1 else 0


def _transpose(
    frame: Frame, rows: Sequence[k.Expression], made: list[k.Statement]
) -> list[k.Expression]:
    """Columns of a square of vectors, whose number is a power of two, by exchanges of blocks of 1,
    2, 4 and so on."""
    square, count, side = list(rows), len(rows), 1
    while side < count:
        for one in (n for n in range(count) if not n & side):
            pair = square[one], square[one + side]
            low = tuple(n if not n & side else count + n - side for n in range(count))
            high = tuple(n + side if not n & side else count + n for n in range(count))
            square[one], square[one + side] = (
                frame.name(made, "across", k.Shuffle(*pair, lanes, pair[0].type))
                for lanes in (low, high)
            )
        side *= 2
    return square
