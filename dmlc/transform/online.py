"""Finds softmax-weighted sums of scores that need no memory: attention, however it is written.

A maximum `m` of a row of scores, and sums of `exp(score - m) * w` along the same row, go through
the row in blocks: where the maximum grows from `m` to `m'`, the sums so far are scaled by
`exp(m - m')`. That is called online softmax. So each score is computed once, where it is used, and
none is stored. The order of rounding is another than that of the stages as written.

A pattern is found by its index notation alone: three reductions or more along one axis, whose
scores are reductions themselves. Which kernel computes them is not decided here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    operands,
    with_operands,
)
from dmlc.ir.index import find_affine, find_dependencies
from dmlc.scalars import DataType
from dmlc.transform.cost import Budget
from dmlc.transform.passes import Axes, Member, Pass
from dmlc.transform.traffic import count_bytes

KEYS = 8
"""Keys of a block: their scores are computed side by side, in registers, before any is weighed."""
_LEAST_SIZE = 32
"""Elements of a query, and of a value, at least: fewer take no longer than their weights."""
MOST_SIZE = 128
"""And at most: work items have sums of whole values in registers."""
_LEAST_KEYS = 16
"""Scores of a row, at least: fewer are no blocks."""
_HELD = (DataType.FLOAT32, DataType.INT32, DataType.UINT32)
"""The types of what tiles hold."""
_MOST_SUMS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Online:
    """Reductions that one kernel computes online. Dimensions are numbered: first those of the rows,
    then the scores of a row, then what a score reduces, and then what sums keep besides rows."""

    sizes: tuple[int, ...]
    """Of all dimensions."""
    rows: int
    """How many of them are those of rows."""
    along: int
    """The dimension of rows that neighbouring work items take: they read the same keys."""
    scores: Member
    largest: Member
    sums: tuple[Member, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """What is reduced, each after what it reads."""
        return (self.scores, self.largest, *self.sums)


class Row:
    """A group that computes rows online, in the making; what derives from its sums point by point
    joins it."""

    def __init__(self, function: Function, found: Online, budget: Budget) -> None:
        tensors = function.tensors()
        self._function, self._budget = function, budget
        self.online = found
        self.stages = {
            m.stage: s for m in found.members if isinstance(s := tensors[m.stage], Stage)
        }
        self.derived: list[Member] = []
        read = {load.tensor for s in self.stages.values() for load in s.body.loads()}
        self._overwriting = {result for result, name in function.in_place if name in read}

    def passes(self) -> tuple[Pass, ...]:
        """All that it computes, as one pass."""
        found = self.online
        return (Pass((*found.members, *self.derived), found.sizes[found.rows :], reduces=True),)

    def join(self, stage: Stage) -> bool:
        """Takes an element-wise stage that reads its sums, or largest scores, at its own point."""
        if stage.reduction is not None or 0 in stage.extents or stage.name in self._overwriting:
            return False
        places = {m.stage: dict(m.axes) for m in (self.online.largest, *self.online.sums)}
        axes: Axes = {}
        for load in stage.body.loads():
            if load.tensor not in self.stages:
                continue
            if load.tensor not in places:
                return False
            own = _map_load(stage.body, load, places[load.tensor])
            if own is None or any(axes.get(i, d) != d for i, d in own.items()):
                return False
            axes |= own
        long = [index for index in stage.indices if stage.extent(index) != 1]
        if set(long) != set(axes) or len(set(axes.values())) < len(axes):
            return False
        if any(stage.extent(index) != self.online.sizes[d] for index, d in axes.items()):
            return False
        if not set(range(self.online.rows)) <= set(axes.values()):
            return False
        if stage.dtype in self._budget.paired_types:
            return False
        if not _reads_evenly(self._function, stage, axes, self.online.along):
            return False
        self.stages[stage.name] = stage
        self.derived.append(Member(stage.name, tuple(axes.items())))
        return True


def _map_load(body: Body, load: Load, places: Mapping[Index, int]) -> Axes | None:
    """The dimension that each index is by which a load reads a tensor with these axes; None where
    it reads at other points."""
    found: Axes = {}
    for axis, number in enumerate(load.indices):
        dimension = places.get(Index(axis))
        if dimension is None:
            continue  # An axis of size 1: there is one place to read.
        index = body.instructions[number]
        if not isinstance(index, Index) or index in found:
            return None
        found[index] = dimension
    return found


def free_weights(found: Sequence[Online], function: Function) -> set[str]:
    """The element-wise stages that lie between the scores of what is found and their sums: they are
    as many as the scores, and computed where they are read."""
    free: set[str] = set()
    for each in found:
        own = {each.scores.stage, each.largest.stage}
        ends = {m.stage for m in each.members}
        for stage in function.stages:
            if stage.name in ends or not own.intersection(n.tensor for n in stage.body.loads()):
                continue
            if stage.reduction is None:
                own.add(stage.name)
                free.add(stage.name)
    return free


def may_be_online(function: Function) -> bool:
    """Whether a function has what a pattern takes at least, which is soon said."""
    combiners = {s.reduction.combiner for s in function.stages if s.reduction is not None}
    return combiners.issuperset(("max", "sum"))


def find_online(function: Function, budget: Budget) -> tuple[Online, ...]:
    """The patterns among stages that are as large as they get by inlining, no stage in two."""
    if not budget.least_rows or function.one_step is not None:
        return ()
    found: list[Online] = []
    taken: set[str] = set()
    for stage in function.stages:
        made = _find(function, stage, budget)
        if made is not None and taken.isdisjoint(m.stage for m in made.members):
            found.append(made)
            taken.update(m.stage for m in made.members)
    return tuple(found)


def _find(function: Function, largest: Stage, budget: Budget) -> Online | None:
    """The pattern around a maximum of scores."""
    key = _find_axis(largest, "max")
    if key is None or largest.body.guard is not None:
        return None
    rows = [i for i in largest.indices if not i.reduced and largest.extent(i) != 1]
    names = dict.fromkeys(load.tensor for load in largest.body.loads())
    for name in names:
        scores = function.stage(name)
        if scores is None or function.result(name) is not None:
            continue
        if _find_axis(scores, "sum") is None or scores.body.guard is not None:
            continue
        made = _match(function, largest, rows, key, scores)
        if made is not None and _suits(function, made, budget):
            return made
    return None


def _find_axis(stage: Stage, combiner: str) -> Index | None:
    """The one axis that a stage reduces, where it has known sizes and FLOAT32 elements."""
    reduction = stage.reduction
    if reduction is None or reduction.combiner != combiner or len(reduction.axes) != 1:
        return None
    ((label, extent),) = reduction.axes
    known = all(isinstance(e, int) and e for e in (*stage.extents, extent))
    is_float = stage.dtype is stage.body.dtype is DataType.FLOAT32
    return Index(label, reduced=True) if known and is_float else None


def _match(
    function: Function, largest: Stage, rows: Sequence[Index], key: Index, scores: Stage
) -> Online | None:
    numbers = {index: place for place, index in enumerate((*rows, key))}
    own = _place_scores(largest, scores, numbers)
    readers = function.readers().get(scores.name, ())
    if own is None or largest.name not in readers or not 2 <= len(readers) <= 1 + _MOST_SUMS:
        return None
    table: dict[Instruction | Index | int, int] = {}
    score = _number(largest.body, numbers, table)[largest.body.result]
    sizes = [largest.extent(index) for index in (*rows, key)]
    (inner,) = [index for index in scores.indices if index.reduced]
    sizes.append(scores.extent(inner))
    members = [Member(scores.name, (*own.items(), (inner, len(rows) + 1)))]
    members.append(Member(largest.name, tuple(numbers.items())))
    wide = False
    for name in readers:
        stage = function.stage(name)
        if name == largest.name or stage is None:
            continue
        axes = _place_sum(stage, largest, scores, numbers, own)
        if axes is None or not _is_weighted(stage, largest, axes, table, score):
            return None
        extra = [index for index in axes if axes[index] > len(rows)]
        if len(extra) > 1:
            return None
        wide = wide or bool(extra)
        for index in extra:
            axes[index] = len(sizes)
            sizes.append(stage.extent(index))
        members.append(Member(name, tuple(axes.items())))
    known = tuple(size for size in sizes if isinstance(size, int))
    first, second, *sums = members
    order = [s.name for s in function.stages]
    last = max(order.index(m.stage) for m in members)
    early = {n for m in members for n in function.readers().get(m.stage, ())}
    names = {m.stage for m in members}
    if not wide or any(order.index(n) < last for n in early - names):
        return None
    along = _find_along(function, members, len(rows))
    if along is None:
        return None
    return Online(known, len(rows), along, first, second, tuple(sums))


def _place_scores(stage: Stage, scores: Stage, numbers: Mapping[Index, int]) -> Axes | None:
    """The dimension of each axis of the scores, as a stage reads them whose indices are the
    dimensions; None where it does not read each once, and at one place."""
    found: Axes | None = None
    for load in stage.body.loads():
        if load.tensor != scores.name:
            continue
        own: Axes = {}
        for axis, number in enumerate(load.indices):
            index = stage.body.instructions[number]
            if scores.extents[axis] == 1:
                continue
            if not isinstance(index, Index) or index not in numbers:
                return None
            if stage.extent(index) != scores.extents[axis]:
                return None
            own[Index(axis)] = numbers[index]
        if found is not None and own != found:
            return None
        found = own
    if found is None or sorted(found.values()) != sorted(numbers.values()):
        return None
    return found


def _place_sum(
    stage: Stage, largest: Stage, scores: Stage, numbers: Mapping[Index, int], own: Axes
) -> Axes | None:
    """The dimension of each axis of a sum of weighted scores; axes of its own have numbers beyond
    those."""
    key = _find_axis(stage, "sum")
    if key is None or stage.body.guard is not None:
        return None
    places = {index: numbers[index] for index in numbers if not index.reduced}
    found: Axes = {key: len(places)}
    for load in stage.body.loads():
        if load.tensor == largest.name:
            made = _map_load(stage.body, load, places)
            if made is None or any(found.setdefault(i, d) != d for i, d in made.items()):
                return None
    if sorted(found.values()) != list(range(len(places) + 1)):
        return None
    if _place_scores(stage, scores, found) != own:
        return None
    sizes = [None] * len(found)
    wanted = {d: largest.extent(i) for i, d in numbers.items()}
    if any(stage.extent(i) != wanted[d] for i, d in found.items()) or len(sizes) != len(wanted):
        return None
    for index in stage.indices:
        if stage.extent(index) != 1 and index not in found:
            found[index] = len(found)
    return found


def _number(
    body: Body, axes: Mapping[Index, int], table: dict[Instruction | Index | int, int]
) -> list[int]:
    """A number for each value of a body, the same for what is computed alike of the same
    dimensions."""
    numbers: list[int] = []
    for instruction in body.instructions:
        if isinstance(instruction, Index):
            # Dimensions have the numbers below 0.
            wanted = axes.get(instruction)
            instruction = Index(-1 if wanted is None else wanted, reduced=True)
        key = with_operands(instruction, tuple(numbers[o] for o in operands(instruction)))
        numbers.append(table.setdefault(key, len(table)))
    return numbers


def _is_weighted(
    stage: Stage,
    largest: Stage,
    axes: Mapping[Index, int],
    table: dict[Instruction | Index | int, int],
    score: int,
) -> bool:
    """Whether what a stage sums is `exp(score - largest)`, times or by what is no score: then a
    factor of all of these is one of the sum."""
    body, instructions = stage.body, stage.body.instructions
    numbers = _number(body, axes, table)
    weights: set[int] = set()
    for number, instruction in enumerate(instructions):
        match instruction:
            case Apply(operation=operation, operands=(operand,)) if operation.name == "exp":
                match instructions[operand]:
                    case Apply(operation=taken, operands=(left, right)) if taken.name == "sub":
                        read = instructions[right]
                        is_own = isinstance(read, Load) and read.tensor == largest.name
                        if numbers[left] == score and is_own:
                            weights.add(number)
                    case _:
                        continue
            case _:
                continue
    # Every way from what depends on the largest score to the result is along one factor.
    at, ways = body.result, 0
    linear: list[int] = []
    while at not in weights:
        match instructions[at]:
            case Apply(operation=operation, operands=(left, right)) if operation.name == "mul":
                sides = [side for side in (left, right) if _reaches(body, side, weights)]
                if len(sides) != 1:
                    return False
                linear.append(left + right - sides[0])
                at = sides[0]
            case Apply(operation=operation, operands=(left, right)) if operation.name == "div":
                linear.append(right)
                at = left
            case Apply(operation=operation, operands=(operand,)) if operation.name == "neg":
                at = operand
            case _:
                return False
        ways += 1
    reads = {
        n for n, i in enumerate(instructions) if isinstance(i, Load) and i.tensor == largest.name
    }
    return not any(_reaches(body, other, reads) for other in linear)


def _reaches(body: Body, root: int, wanted: set[int]) -> bool:
    """Whether a value is computed from one of some others."""
    pending, seen = [root], {root}
    while pending:
        number = pending.pop()
        if number in wanted:
            return True
        fresh = [o for o in operands(body.instructions[number]) if o not in seen]
        seen.update(fresh)
        pending += fresh
    return False


def _find_along(function: Function, members: Sequence[Member], rows: int) -> int | None:
    """The last dimension of rows, where what scores and sums read of keys and values stands still
    along it, and all that is read moves evenly."""
    tensors, last = function.tensors(), rows - 1
    names = {m.stage for m in members}
    for number, member in enumerate(members):
        stage, axes = tensors[member.stage], dict(member.axes)
        if not isinstance(stage, Stage) or not _reads_evenly(function, stage, axes, last):
            return None
        # Of the scores these are the keys, and of a sum what it keeps besides rows.
        own = {rows} if not number else {d for d in axes.values() if d > rows}
        moved = find_dependencies(stage.body)
        for load in stage.body.loads():
            found = {axes.get(index) for at in load.indices for index in moved[at]}
            if load.tensor not in names and last in found and own & found:
                return None
    return last if last >= 0 else None


def _reads_evenly(function: Function, stage: Stage, axes: Mapping[Index, int], along: int) -> bool:
    """Whether all that a stage reads moves evenly, and what differs from row to row is of a type
    that tiles hold."""
    forms, tensors = find_affine(stage.body), function.tensors()
    for own, load in enumerate(stage.body.instructions):
        if not isinstance(load, Load):
            continue
        for number in load.indices:
            form = forms[number]
            if form is None or any(factor < 0 for _, factor in form.factors):
                return False
            moves = any(axes.get(index) == along for index, _ in form.factors)
            is_held = tensors[load.tensor].dtype.compute in _HELD
            if moves and not is_held and not _chooses(stage.body, own):
                return False
    return True


def _chooses(body: Body, value: int) -> bool:
    """Whether all that a value does is to choose one of two constants, which tiles hold."""
    readers = [i for i in body.instructions if value in operands(i)]
    return all(
        isinstance(each, Select)
        and each.dtype in _HELD
        and all(isinstance(body.instructions[n], Constant) for n in operands(each)[1:])
        for each in readers
    )


def _suits(function: Function, found: Online, budget: Budget) -> bool:
    """Whether what is found is large enough for one kernel, and its vectors small enough."""
    sizes, rows = found.sizes, found.rows
    vectors = sizes[rows + 1 :]
    if any(not _LEAST_SIZE <= size <= MOST_SIZE for size in vectors):
        return False
    if sizes[rows] < _LEAST_KEYS or sizes[found.along] < budget.least_run:
        return False
    stages = (function.stage(member.stage) for member in found.members)
    read = {load.tensor for s in stages if s is not None for load in s.body.loads()}
    if len(read) + 1 > budget.most_buffers:
        return False
    return math.prod(sizes[:rows]) >= budget.least_rows


def describe(function: Function, found: Online) -> str:
    """Why its stages are one kernel."""
    tensors = function.tensors()
    size = count_bytes(tensors[found.scores.stage]) or 0
    reads, sums = len(found.sums) + 1, " and ".join(f"%{m.stage}" for m in found.sums)
    return (
        f"%{found.scores.stage} is never stored, which saves {size * (reads + 1):,} bytes of "
        f"memory traffic: %{found.largest.stage} and {sums} "
        "are computed online, block by block of each row"
    )
