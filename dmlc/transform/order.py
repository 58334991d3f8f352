"""Sorts rows where each element of a result counts what comes before it.

The order of a row is written by ranks: as many stand before a number as are less, or equal and
before it in the row. The number at a place is then the one of that rank:

    rank[i]  = sum[k : n where x[k] < x[i] || x[k] == x[i] && k < i](1)
    order[p] = sum[k : n where rank[k] == p](k)

Both go through the whole row for each element. What compares two numbers of a row by their order
and their places alone does so by what it says of a few numbers, one of them NaN: it is tried with
these. If it is ascending or descending order, with equal numbers as they stand and NaN last, ranks
are each place's own, and what reduces the one point of a rank reads it. The rows are then sorted
(`sort`), as far as they are read.

A rank that is read otherwise stays what it is.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

import numpy as np

from dmlc.ir import (
    POSITIONAL_COMBINERS,
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Load,
    Stage,
    operands,
    value_type,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts, evaluate_instruction
from dmlc.ir.naming import take_name
from dmlc.ir.verify import find_stage_fault
from dmlc.scalars import Array, DataType, combiner_identity
from dmlc.transform.keys import Key, find_point_keys
from dmlc.transform.sort import BLOCK, Order, Sorted, count_padded, find_last, sort_rows

_LEAST_ROW = BLOCK
"""The numbers of a row that is sorted, however few rows there are."""
_SHORT_ROW = 64
"""Those of one that is not, however many."""
_LEAST_STEPS = 1 << 25
"""Steps of all ranks that are worth sorting shorter rows."""
_FEW = 32
_SMALL_BLOCK = 128
"""Of a row of which so few are wanted blocks are small: most of it is gone after they are sorted,
and merging the rest takes little."""
_LEAST_BLOCK = 32
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_JOINTS = ("and", "or", "not")
_MOST_ROW = 1 << 30
"""The numbers of a row, at most: positions a little beyond the last have 32 bits."""


def sort_by_ranks(function: Function, *, always: bool = False) -> Function:
    """The function with long rows sorted where their ranks say what is read, or `always`, however
    short they are; the function itself where there are none."""
    names = dict.fromkeys(function.tensors())
    rankings: dict[str, Ranking] = {}
    readers: dict[str, list[Reader]] = {}
    for stage in function.stages:
        ranking = find_ranking(stage)
        if ranking is not None and (always or ranking.is_worth_it):
            rankings[stage.name] = ranking
        reader = _find_reader(stage, rankings)
        if reader is not None:
            readers.setdefault(reader.ranking.stage.name, []).append(reader)
    made: dict[str, list[Stage]] = {}
    for name, found in readers.items():
        most = max(reader.first + reader.extent for reader in found)
        ranking = rankings[name]
        block = _find_block(ranking.count, most)
        keys = _write_keys(ranking, block, take_name(f"{name}_keys", names))
        rows = sort_rows(keys, name, names, ranking.order, most, block)
        first, *others = found
        made[first.stage.name] = [keys, *rows.stages, _read(first, rows)]
        made |= {reader.stage.name: [_read(reader, rows)] for reader in others}
    stages: list[Stage] = []
    for stage in function.stages:
        stages += made.get(stage.name, [stage])
    if not made:
        return function
    changed = function.with_stages(stages)
    # What a condition may protect is read at every point.
    sound = all(find_stage_fault(changed, each) is None for each in itertools.chain(*made.values()))
    return changed if sound else function


# Ranks --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Ranking:
    """A stage that gives the rank of each number of a row."""

    stage: Stage
    point: Index
    own: Index
    """The axis of the row."""
    number: int
    """What is compared, at the point."""
    count: int
    order: Order

    @property
    def is_worth_it(self) -> bool:
        """Whether rows are long, or there are many."""
        elements = math.prod(e for e in self.stage.extents if isinstance(e, int))
        many = self.count > _SHORT_ROW and elements * self.count >= _LEAST_STEPS
        return many or self.count > _LEAST_ROW


def find_ranking(stage: Stage) -> Ranking | None:
    """How a stage ranks the numbers of rows; None where it does not, or by another order."""
    reduction, body = stage.reduction, stage.body
    if reduction is None or reduction.combiner != "sum" or len(reduction.axes) != 1:
        return None
    ((label, count),) = reduction.axes
    one = body.instructions[body.result]
    counts = isinstance(one, Constant) and one.dtype.is_integer and one.value == 1
    if body.guard is None or not counts or not all(isinstance(e, int) for e in stage.extents):
        return None
    point = Index(label, reduced=True)
    compared = _find_compared(body, body.guard)
    if compared is None or not isinstance(count, int) or not 0 < count < _MOST_ROW:
        return None
    facts = IndexFacts(stage)
    for there, here in (compared, compared[::-1]):
        own = [i for i in facts.dependencies[here] if i not in facts.dependencies[there]]
        if len(own) != 1 or own[0].reduced or stage.extent(own[0]) != count:
            continue
        if point in facts.dependencies[here] or point not in facts.dependencies[there]:
            continue
        order = _find_order(body, point, own[0], there, here)
        if order is not None and _are_one(body, point, own[0], there, here):
            return Ranking(stage, point, own[0], there, count, order)
    return None


def _find_compared(body: Body, guard: int) -> tuple[int, int] | None:
    """The two numbers that a condition is about, of which it asks how they compare, and how places
    do; None where it asks more."""
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
    match tuple(found):
        case (one, two):
            return one, two
        case _:
            return None


def _are_one(body: Body, point: Index, own: Index, there: int, here: int) -> bool:
    """Whether what is compared at the point is what it is at the element's place, elsewhere."""
    builder = BodyBuilder()
    place = builder.add(own)
    moved = {n: place for n, i in enumerate(body.instructions) if i == point}
    numbers = builder.copy(body, moved)
    return numbers[there] == numbers[here]


def _find_order(body: Body, point: Index, own: Index, there: int, here: int) -> Order | None:
    """The order by which a condition says of each two numbers and their places which comes first;
    None where it is none of those that rows are sorted by."""
    dtype = value_type(body.instructions[there])
    if body.guard is None or dtype is DataType.BOOL:
        return None
    numbers = np.array([1, 2, math.nan] if dtype.is_float else [1, 2], dtype.dtype)
    places = np.arange(2, dtype=np.int64)
    k, a, i, b = np.ix_(places, numbers, places, numbers)
    indices: Mapping[Index, Array] = {point: k, own: i}
    known: dict[int, Array] = {there: a, here: b}
    pending = [body.guard]
    asked: set[int] = set()
    while pending:
        value = pending.pop()
        if value not in known and value not in asked:
            asked.add(value)
            pending += operands(body.instructions[value])
    for value in sorted(asked):
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
            return Order(descends)
    return None


# Readers ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Reader:
    """A stage that reduces the one point of a rank, which is `first` at the first place along an
    axis, and goes up by one from place to place."""

    stage: Stage
    ranking: Ranking
    key: Key
    load: Load
    first: int
    extent: int


def _find_reader(stage: Stage, rankings: Mapping[str, Ranking]) -> Reader | None:
    """How a stage reads the point of a rank; None where it does not."""
    reduction = stage.reduction
    if reduction is None or reduction.combiner in POSITIONAL_COMBINERS or len(reduction.axes) != 1:
        return None
    if not any(load.tensor in rankings for load in stage.body.loads()):
        return None
    point, facts = Index(reduction.axes[0][0], reduced=True), IndexFacts(stage)
    for condition in facts.conditions:
        for key in find_point_keys(facts, condition):
            load = stage.body.instructions[key.value]
            if not isinstance(load, Load) or load.tensor not in rankings:
                continue
            ranking, first = rankings[load.tensor], int(key.first)
            axis = ranking.own.axis
            places = [n for n in load.indices if stage.body.instructions[n] == point]
            moved = [n for n in load.indices if point in facts.dependencies[n]]
            whole = stage.extent(point) == ranking.count
            inside = first >= 0 and first + key.extent <= ranking.count
            if places == moved == [load.indices[axis]] and whole and inside:
                return Reader(stage, ranking, key, load, first, key.extent)
    return None


# Stages -------------------------------------------------------------------------------------


def _find_block(count: int, most: int) -> int:
    """The numbers of a block, of a row of so many of which some are wanted. Whole blocks need not
    be filled up: what is no more than a read is then read in vectors."""
    largest = _SMALL_BLOCK if most <= _FEW else BLOCK
    if count <= largest:
        largest = max(_LEAST_BLOCK, count // 4)
    sizes = range(largest, largest // 4, -1)
    return next((size for size in sizes if not count % size), largest)


def _write_keys(ranking: Ranking, block: int, name: str) -> Stage:
    """What is compared, with rows along the last axis, filled up to whole blocks."""
    stage, body, builder = ranking.stage, ranking.stage.body, BodyBuilder()
    axes = [axis for axis in range(len(stage.extents)) if axis != ranking.own.axis]
    own, padded = builder.add(Index(len(axes))), count_padded(ranking.count, block)
    moved = {Index(axis): builder.add(Index(n)) for n, axis in enumerate(axes)}
    place = own
    if padded > ranking.count:
        place = builder.apply("min", own, builder.constant(ranking.count - 1))
    moved |= {ranking.point: place, ranking.own: place}
    places = {
        number: moved[instruction]
        for number, instruction in enumerate(body.instructions)
        if isinstance(instruction, Index)
    }
    value = builder.copy(body, places)[ranking.number]
    dtype = builder.type_of(value)
    if padded > ranking.count:
        last = builder.add(Constant(dtype, find_last(dtype, ranking.order)))
        inside = builder.apply("lt", own, builder.constant(ranking.count))
        value = builder.select(inside, value, last)
    extents = (*(stage.extents[axis] for axis in axes), padded)
    return Stage(name, dtype, extents, builder.make(value))


def _read(reader: Reader, rows: Sorted) -> Stage:
    """A stage that reads the point that stands at a place, in place of reducing it."""
    stage, body, builder = reader.stage, reader.stage.body, BodyBuilder()
    reduction = stage.reduction
    combiner = "sum" if reduction is None else reduction.combiner
    # Which row it is does not depend on the point.
    row = [n for a, n in enumerate(reader.load.indices) if a != reader.ranking.own.axis]
    made: dict[int, int] = {}
    for number in row:
        part = Body.make(body.instructions, number)
        made[number] = builder.copy(part)[part.result]
    rank = builder.apply("add", builder.add(reader.key.index), builder.constant(reader.first))
    found = builder.load(rows.places, *[made[n] for n in row], rank)
    place = builder.add(Cast(found, DataType.INDEX))
    place = builder.apply("min", place, builder.constant(reader.ranking.count - 1))
    place = builder.apply("max", place, builder.constant(0))
    points = {n: place for n, i in enumerate(body.instructions)
              if isinstance(i, Index) and i.reduced}  # fmt: skip
    numbers = builder.copy(body, points)
    value = numbers[body.result]
    nothing = builder.add(Constant(body.dtype, combiner_identity(combiner, body.dtype)))
    for condition in IndexFacts(stage).conditions:
        if condition != reader.key.condition:
            value = builder.select(numbers[condition], value, nothing)
    if combiner == "sum" and body.dtype.is_float:
        # A sum of one -0 is 0.
        value = builder.apply("add", value, nothing)
    return dataclasses.replace(stage, body=builder.make(value), reduction=None)
