"""Sorts rows whose order is expressed by ranks.

The rank of an element is the number of elements that come before it, and the order of a row is the
inverse of its ranks. Both visit the whole row for each element. Where `ranks` recognizes such an
order of long rows, they are brought into the form that kernels recognize (`ranked`): ranks of
contiguous rows that only the sorted values and their indices read. Loads of the row at the indices
in the order become loads of the sorted values, so that the order itself may become unused.

Ranks that are read in any other way are unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Load,
    Stage,
    reads_own_place,
    value_type,
)
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.index import IndexFacts
from dmlc.ir.naming import take_name
from dmlc.ir.verify import find_stage_fault
from dmlc.scalars import DataType, integer_limits
from dmlc.source import InternalError
from dmlc.transform.inline import inline_stages
from dmlc.transform.ranked import MOST_KEPT
from dmlc.transform.ranks import (
    Ranking,
    Reader,
    copy_number,
    find_ranking,
    find_reader,
    find_values,
)
from dmlc.transform.simplify import is_inlinable, simplify_stage
from dmlc.transform.sort import LEAST_ROW, NUMBER, Sorted, rank_rows


def sort_by_ranks(function: Function, *, walks: bool = False) -> Function:
    """Function with long rows sorted where ranks express their order; the same object if there are
    none. With `walks`, a work item processes whole rows, and sorts all of their elements."""
    names = dict.fromkeys(function.tensors())
    rankings: dict[str, Ranking] = {}
    readers: dict[str, list[Reader]] = {}
    for stage in function.stages:
        ranking = find_ranking(stage)
        if ranking is not None and ranking.count > LEAST_ROW:
            rankings[stage.name] = ranking
        reader = find_reader(stage, rankings)
        if reader is not None:
            readers.setdefault(reader.ranking.stage.name, []).append(reader)
    made: dict[str, list[Stage]] = {}
    placed: dict[str, _Placed] = {}
    sorted_rows: list[Sorted] = []
    for name, found in readers.items():
        most = max(int(reader.key.first) + reader.stage.size(reader.key.index) for reader in found)
        ranking = rankings[name]
        keys = _write_keys(function, ranking, take_name(f"{name}_keys", names), walks=walks)
        first = None if walks or most > MOST_KEPT else most
        rows = rank_rows(keys, name, names, descends=ranking.descends, most=first)
        sorted_rows.append(rows)
        for reader in found:
            read = _read(reader, rows)
            made[reader.stage.name] = [read]
            placed[read.name] = _Placed(read, ranking, rows)
        stages = [keys, rows.ranks, rows.places, rows.numbers]
        made[found[0].stage.name] = [*stages, *made[found[0].stage.name]]
    if not made:
        return function
    stages = list[Stage]()
    for stage in function.stages:
        stages += made.get(stage.name) or [_read_numbers(stage, placed)]
    changed = _name_rows(function.with_stages(stages), sorted_rows, placed)
    # Loads that a condition may keep in bounds would be executed at every point.
    before = set(function.stages)
    faults = (find_stage_fault(changed, each) for each in changed.stages if each not in before)
    return changed if all(fault is None for fault in faults) else function


# Stages -------------------------------------------------------------------------------------


def _write_keys(function: Function, ranking: Ranking, name: str, *, walks: bool) -> Stage:
    """Stage of the compared values, with rows along the last axis. 16-bit elements are stored in
    pairs, which a scattered store cannot do: they are widened, unless a work item `walks` whole
    rows."""
    stage, body, builder = ranking.stage, ranking.stage.body, BodyBuilder()
    axes = [axis for axis in range(len(stage.extents)) if axis != ranking.own.axis]
    own = builder.add(Index(len(axes)))
    places = {Index(axis): builder.add(Index(n)) for n, axis in enumerate(axes)}
    places |= {ranking.point: own, ranking.own: own}
    value = builder.copy(body, places=places)[ranking.number]
    compared, dtype = body.instructions[ranking.number], builder.type_of(value)
    if isinstance(compared, Load) and walks:
        dtype = function.tensors()[compared.tensor].dtype
    extents = (*(stage.extents[axis] for axis in axes), ranking.count)
    return Stage(name, dtype, extents, builder.make(value))


def _read(reader: Reader, rows: Sorted) -> Stage:
    """Stage that loads the point of a given rank instead of reducing it."""
    stage, body, builder = reader.stage, reader.stage.body, BodyBuilder()
    combiner = stage.combiner or "sum"
    # The row does not depend on the point.
    row: list[int] = []
    for axis, number in enumerate(reader.load.indices):
        if axis != reader.ranking.own.axis:
            part = Body.make(body.instructions, number)
            row.append(builder.copy(part)[part.result])
    rank = builder.apply(
        "add", builder.add(reader.key.index), builder.constant(int(reader.key.first))
    )
    found = builder.load(rows.places, *row, rank)
    place = builder.add(Cast(found, DataType.INDEX))
    place = builder.apply("min", place, builder.constant(reader.ranking.count - 1))
    place = builder.apply("max", place, builder.constant(0))
    points = {n: place for n, i in enumerate(body.instructions)
              if isinstance(i, Index) and i.reduced}  # fmt: skip
    number = builder.load(rows.numbers, *row, rank)
    points |= dict.fromkeys(find_values(reader), number)
    points |= {n: found for n, i in enumerate(body.instructions)
               if isinstance(i, Cast) and i.operand in points and i.dtype is NUMBER}  # fmt: skip
    numbers = builder.copy(body, points)
    value = numbers[body.result]
    nothing = builder.nothing(combiner, body.dtype)
    for condition in IndexFacts(stage).conditions:
        if condition != reader.key.condition:
            value = builder.select(numbers[condition], value, nothing)
    body = builder.make(builder.total(combiner, value))
    return dataclasses.replace(stage, body=body, reduction=None)


def _name_rows(
    function: Function, sorted_rows: Sequence[Sorted], placed: Mapping[str, _Placed]
) -> Function:
    """Function in which sorted rows get the names of results that are equal to them, and original
    indices the type of a result that alone reads them."""
    rows = {stage.name: stage for each in sorted_rows for stage in (each.places, each.numbers)}
    readers, names, gone = function.readers(), dict[str, str](), set[str]()
    for stage in function.stages:
        result = function.result(stage.name)
        if result is None or result.strides is not None:
            continue
        source = placed.get(stage.name)
        whole, place = stage, None
        if source is not None:
            place = _find_index(source.stage.body, source.stage.body.result, source)
            whole = stage if place is None else source.stage
        load = whole.body.instructions[stage.body.result if place is None else place]
        found = rows.get(load.tensor) if isinstance(load, Load) else None
        if not isinstance(load, Load) or found is None or load.tensor in names:
            continue
        if stage.extents != found.extents or not reads_own_place(whole, load):
            continue
        if stage.dtype is not found.dtype:
            if place is None or stage.dtype.bytes < found.dtype.bytes:
                continue
            between, (last, *others) = list[str](), readers[found.name]
            while last != stage.name and not others and function.result(last) is None:
                between.append(last)
                last, *others = readers.get(last, ("",))
            if last != stage.name or others or not stage.dtype.is_integer:
                continue
            rows[found.name] = _convert_indices(found, stage.dtype)
            gone.update(between)
        names[load.tensor] = stage.name
    gone.update(names.values())
    kept = (rows.get(stage.name, stage) for stage in function.stages if stage.name not in gone)
    return function.with_stages(simplify_stage(stage, names) for stage in kept)


def _convert_indices(places: Stage, dtype: DataType) -> Stage:
    """Stage of original indices of another type."""
    builder, body = BodyBuilder(), places.body
    numbers, point = builder.copy(body), body.instructions[body.result]
    if not isinstance(point, Cast) or body.guard is None:
        raise InternalError(f"%{places.name} has no original indices")
    value = builder.add(Cast(numbers[point.operand], dtype))
    return dataclasses.replace(places, dtype=dtype, body=builder.make(value, numbers[body.guard]))


# What stands at a place that has been found ---------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Placed:
    """A stage that loads the original indices of sorted elements."""

    stage: Stage
    ranking: Ranking
    rows: Sorted


def _read_numbers(stage: Stage, placed: dict[str, _Placed]) -> Stage:
    """Stage with loads of the compared tensor at sorted indices replaced by loads of sorted values;
    the same object if it has none. A stage that gives such indices is added to `placed`."""
    for name in dict.fromkeys(load.tensor for load in stage.body.loads()):
        found = placed.get(name)
        if found is None or not is_inlinable(found.stage):
            continue
        whole = inline_stages(stage, {name: found.stage})
        if _find_index(whole.body, whole.body.result, found) is not None:
            placed[stage.name] = dataclasses.replace(found, stage=whole)
        stage = _read_at_indices(whole, found) or stage
    return stage


def _read_at_indices(stage: Stage, placed: _Placed) -> Stage | None:
    """The same for a stage that loads the indices itself; None if nothing changes."""
    ranking, builder = placed.ranking, BodyBuilder()
    numbers = builder.copy(stage.body)
    made: dict[int, int] = {}
    for number, instruction in enumerate(stage.body.instructions):
        read = _find_index(stage.body, number, placed)
        load = None if read is None else stage.body.instructions[read]
        if read is None or read == number or not isinstance(load, Load):
            continue
        if value_type(instruction) is NUMBER:
            made[number] = numbers[read]
            continue
        *row, rank = (numbers[n] for n in load.indices)
        axis = ranking.own.axis
        compared = copy_number(builder, ranking, [*row[:axis], numbers[number], *row[axis:]])
        value = builder.load(placed.rows.numbers, *row, rank)
        made |= {n: value for n, each in enumerate(numbers) if each == compared}
    return builder.remake(stage, replaced=made) if made else None


def _find_index(body: Body, number: int, placed: _Placed) -> int | None:
    """Load of a sorted element's original index that a value is, through conversions that preserve
    it and clamps to the row; None for other values."""
    last = placed.ranking.count - 1
    while True:
        match body.instructions[number]:
            case Load(tensor=tensor):
                return number if tensor == placed.rows.places.name else None
            case Cast(operand=operand, dtype=dtype) if dtype is DataType.INDEX or (
                dtype.is_integer and last <= integer_limits(dtype)[1]
            ):
                number = operand
            case Apply(operation=operation, operands=(left, right)):
                limit = body.instructions[right]
                if not isinstance(limit, Constant):
                    left, limit = right, body.instructions[left]
                if not isinstance(limit, Constant):
                    return None
                name, value = operation.name, limit.value
                if not (name == "min" and value >= last) and not (name == "max" and value <= 0):
                    return None
                number = left
            case _:
                return None
