"""Recognizes ranks of elements in rows, and the stages that read them.

A comparison of two elements by value and index is recognized by its outcome for a few sample
values, NaN among them. If it is ascending or descending order, with ties by index and NaN last, the
ranks are a permutation, and a reduction over the one point of a rank is a load.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from dmlc.ir import Apply, Body, Index, Load, Stage, operands, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, evaluate_instruction, reach_back
from dmlc.scalars import Array, DataType
from dmlc.transform.keys import Key, find_counted, find_point_keys
from dmlc.transform.sort import MOST_POINTS

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_JOINTS = ("and", "or", "not")


@dataclasses.dataclass(frozen=True, slots=True)
class Ranking:
    """A stage that gives the rank of each element of a row."""

    stage: Stage
    point: Index
    own: Index
    """Index along the row."""
    number: int
    """The compared value, at the point."""
    count: int
    descends: bool


def find_ranking(stage: Stage) -> Ranking | None:
    """Ranking of a stage; None if it is none, or has another order."""
    body, counted = stage.body, find_counted(stage)
    if counted is None or body.guard is None:
        return None
    compared, (point, count) = _find_compared(body, body.guard), counted
    if compared is None or not 0 < count < MOST_POINTS:
        return None
    facts = IndexFacts(stage)
    for there, here in (compared, compared[::-1]):
        own = [i for i in facts.dependencies[here] if i not in facts.dependencies[there]]
        if len(own) != 1 or own[0].reduced or stage.extent(own[0]) != count:
            continue
        if point in facts.dependencies[here] or point not in facts.dependencies[there]:
            continue
        descends = _descends(body, point, own[0], there, here)
        if descends is not None and _are_one(body, point, own[0], there, here):
            return Ranking(stage, point, own[0], there, count, descends)
    return None


def _find_compared(body: Body, guard: int) -> tuple[int, int] | None:
    """The two elements that a condition compares, by value and index alone; None for other
    conditions."""
    found: dict[int, None] = {}
    pending = [guard]
    while pending:
        match body.instructions[pending.pop()]:
            case Apply(operation=operation, operands=given) if operation.name in _JOINTS:
                pending += given
            case Apply(operation=operation, operands=given) if operation.name in _COMPARISONS:
                values = [body.instructions[each] for each in given]
                if value_type(values[0]) is not DataType.INDEX:
                    found |= dict.fromkeys(given)
                elif not all(isinstance(value, Index) for value in values):
                    return None
            case _:
                return None
    pair = tuple(found)
    return (pair[0], pair[1]) if len(pair) == 2 else None


def _are_one(body: Body, point: Index, own: Index, there: int, here: int) -> bool:
    """Whether the compared expression at the point is the one at the element's own index."""
    builder = BodyBuilder()
    numbers = builder.copy(body, places={point: builder.add(own)})
    return numbers[there] == numbers[here]


def _descends(body: Body, point: Index, own: Index, there: int, here: int) -> bool | None:
    """Whether the order that a condition expresses descends, by its outcome for sample pairs of
    values and indices; None if rows are not sorted by it."""
    dtype = value_type(body.instructions[there])
    if body.guard is None or dtype is DataType.BOOL:
        return None
    numbers = np.array([1, 2, math.nan] if dtype.is_float else [1, 2], dtype.dtype)
    places = np.arange(2, dtype=np.int64)
    k, a, i, b = np.ix_(places, numbers, places, numbers)
    indices: Mapping[Index, Array] = {point: k, own: i}
    known: dict[int, Array] = {there: a, here: b}
    for value in reach_back(body.instructions, [body.guard], known):
        instruction = body.instructions[value]
        if isinstance(instruction, Index) and instruction not in indices:
            return None
        given = [known[o] for o in operands(instruction)]
        known[value] = evaluate_instruction(instruction, given, indices, body)
    said = np.broadcast_to(known[body.guard], (2, numbers.size, 2, numbers.size))
    same = (a == b) | ((a != a) & (b != b))
    possible = (k != i) | same
    for descends in (False, True):
        less = ((a > b) if descends else (a < b)) | ((a == a) & (b != b))
        if bool((said == (less | (same & (k < i))))[np.broadcast_to(possible, said.shape)].all()):
            return descends
    return None


# Readers ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Reader:
    """A stage that reduces the one point of a rank, which a key gives."""

    stage: Stage
    ranking: Ranking
    key: Key
    load: Load


def find_reader(stage: Stage, rankings: Mapping[str, Ranking]) -> Reader | None:
    """Reader of a rank's point; None for other stages."""
    if stage.is_positional or len(stage.axes) != 1:
        return None
    if not any(load.tensor in rankings for load in stage.body.loads()):
        return None
    point, facts = Index(stage.axes[0][0], reduced=True), IndexFacts(stage)
    for condition in facts.conditions:
        for key in find_point_keys(facts, condition):
            load = stage.body.instructions[key.value]
            if not isinstance(load, Load) or load.tensor not in rankings:
                continue
            ranking, axis = rankings[load.tensor], rankings[load.tensor].own.axis
            places = [n for n in load.indices if stage.body.instructions[n] == point]
            moved = [n for n in load.indices if point in facts.dependencies[n]]
            whole = stage.extent(point) == ranking.count
            inside = 0 <= key.first <= ranking.count - stage.size(key.index)
            if places == moved == [load.indices[axis]] and whole and inside:
                return Reader(stage, ranking, key, load)
    return None


def find_values(reader: Reader) -> list[int]:
    """Values of a reader's body that equal the compared value at its point."""
    builder = BodyBuilder()
    numbers = builder.copy(reader.stage.body)
    places = [numbers[number] for number in reader.load.indices]
    compared = copy_number(builder, reader.ranking, places)
    return [number for number, made in enumerate(numbers) if made == compared]


def copy_number(builder: BodyBuilder, ranking: Ranking, places: Sequence[int]) -> int:
    """Compared value at indices along the axes of the ranks."""
    moved = {Index(axis): place for axis, place in enumerate(places)}
    moved[ranking.point] = places[ranking.own.axis]
    return builder.copy(ranking.stage.body, places=moved)[ranking.number]
