"""Recognizes softmax-weighted sums whose scores need no memory: attention, however it is written.

The maximum `m` of a row of scores, and sums of `exp(score - m) * w` along the row, can be computed
in blocks of the row: when the maximum grows from `m` to `m'`, the partial sums are scaled by
`exp(m - m')`. This is online softmax. Each score is computed once, where it is used, and none is
stored. Rounding errors differ from those of the stages as written.

The pattern is recognized by its index notation alone: three or more reductions along one axis,
whose scores are reductions themselves. Schedules choose the kernel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Extent,
    Function,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    operands,
    with_operands,
)
from dmlc.ir.index import find_affine, find_dependencies, reach_back
from dmlc.scalars import DataType
from dmlc.transform.cost import Budget
from dmlc.transform.passes import Axes, Member, Pass, map_load
from dmlc.transform.traffic import count_bytes

KEYS = 8
"""Keys of a block: their scores are computed side by side, in registers, before any is weighted."""
_LEAST_SIZE = 32
"""Smallest number of elements of a query and a value: shorter ones take no longer than the
weights."""
MOST_SIZE = 128
"""Largest number of elements of a query and a value, as work items hold sums of whole values in
registers."""
_LEAST_KEYS = 16
"""Smallest number of scores of a row, which must fill blocks."""
_LEAST_CACHES = 64
"""Smallest size of the scores, in caches, if weights are known: fewer scores are still cached when
read again."""
_HELD = (DataType.FLOAT32, DataType.INT32, DataType.UINT32)
"""Compute types of the tensors that tiles hold."""
_MOST_SUMS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Online:
    """Reductions that one kernel computes online. Dimensions are numbered: those of the rows, the
    scores of a row, the axis that each score reduces, and the further axes of sums."""

    sizes: tuple[int, ...]
    """Sizes of all dimensions."""
    rows: int
    """Number of dimensions of the rows."""
    along: int
    """Row dimension of neighbouring work items, which read the same keys."""
    scores: tuple[Member, ...]
    """Score reductions per point; the maximum is that of the first."""
    largest: Member | None
    """The maximum; None if the weights of the sums are known (see `recompute`)."""
    sums: tuple[Member, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """All reductions, in order of computation."""
        return (*self.scores, *self.totals)

    @property
    def totals(self) -> tuple[Member, ...]:
        """Reductions along rows of scores."""
        return self.sums if self.largest is None else (self.largest, *self.sums)


class OnlineGroup:
    """A group of online sums under construction, which element-wise stages of its results may
    join."""

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
        """All of its stages, as one pass."""
        found = self.online
        return (Pass((*found.members, *self.derived), found.sizes[found.rows :], reduces=True),)

    def join(self, stage: Stage) -> bool:
        """Adds an element-wise stage that reads its sums or maximum at its own index."""
        if stage.name in self._overwriting or stage.dtype in self._budget.paired_types:
            return False
        member = place_derived(self._function, stage, self.online, self.stages)
        if member is None:
            return False
        self.stages[stage.name] = stage
        self.derived.append(member)
        return True


def place_derived(
    function: Function, stage: Stage, found: Online, stages: Container[str]
) -> Member | None:
    """Dimension of each axis of an element-wise stage that reads a pattern's sums or maximum at its
    own index, and none else of some `stages`; None for others."""
    if stage.reduction is not None or 0 in stage.extents:
        return None
    places = {m.stage: dict(m.axes) for m in found.totals}
    axes: Axes = {}
    for load in stage.body.loads():
        if load.tensor not in stages:
            continue
        if load.tensor not in places:
            return None
        own = map_load(stage.body, load, places[load.tensor])
        if own is None or any(axes.get(i, d) != d for i, d in own.items()):
            return None
        axes |= own
    long = [index for index in stage.indices if stage.extent(index) != 1]
    if set(long) != set(axes) or len(set(axes.values())) < len(axes):
        return None
    if any(stage.extent(index) != found.sizes[d] for index, d in axes.items()):
        return None
    whole = set(range(found.rows)) <= set(axes.values())
    even = whole and _reads_evenly(function, stage, axes, found.along)
    return Member(stage.name, tuple(axes.items())) if even else None


def free_weights(found: Sequence[Online], function: Function) -> set[str]:
    """Element-wise stages between the patterns' scores and sums. They are as large as the scores,
    and are recomputed where they are read."""
    free: set[str] = set()
    for each in found:
        own = {m.stage for m in each.members if m not in each.sums}
        ends = {m.stage for m in each.members}
        for stage in function.stages:
            if stage.name in ends or not own.intersection(n.tensor for n in stage.body.loads()):
                continue
            if stage.reduction is None:
                own.add(stage.name)
                free.add(stage.name)
    return free


def may_be_online(function: Function) -> bool:
    """Quick test of whether a function has the reductions that a pattern needs."""
    combiners = {s.reduction.combiner for s in function.stages if s.reduction is not None}
    return combiners.issuperset(("max", "sum"))


def find_online(function: Function, budget: Budget) -> tuple[Online, ...]:
    """Patterns among stages after inlining, with no stage in two."""
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


def _find(function: Function, stage: Stage, budget: Budget) -> Online | None:
    """Pattern of a stage that is large enough for a kernel of its own."""
    made = _list_patterns(function, stage)
    return next((each for each in made if _suits(function, each, budget)), None)


def match_online(function: Function, stages: Collection[str]) -> Online | None:
    """Pattern whose reductions are these stages; None if there is none."""
    for stage in list_stages(function, function.sort_tensors(stages)):
        for found in _list_patterns(function, stage):
            if {m.stage for m in found.members} == set(stages):
                return found
    return None


def _list_patterns(function: Function, stage: Stage) -> Iterator[Online]:
    """Patterns of a maximum of scores, or of a sum with known weights."""
    readers = function.readers()
    for weighing in list_weighing(function, stage):
        found = list_stages(function, readers[weighing.scores.name])
        sums = [(s, axes) for s in found if (axes := weighing.weigh(s))]
        largest = stage, weighing.numbers
        made = _make_online(function, weighing.own, weighing.scores, sums, largest)
        if made is not None:
            yield made
    for product, own in list_summed(function, stage):
        sums: list[tuple[Stage, Axes]] = []
        for reader in list_stages(function, readers[product.name]):
            read, key = _read_scores(reader, product), find_axis(reader, "sum")
            axes = {index: own[axis] for axis, index in read.items()}
            if key is not None and axes.get(key) == len(own) - 1 and reader.body.guard is None:
                sums.append((reader, axes))
        made = _make_online(function, own, product, sums)
        if made is not None:
            yield made


def list_stages(function: Function, names: Iterable[str]) -> list[Stage]:
    """Stages among some tensors."""
    return [stage for stage in map(function.stage, names) if stage is not None]


def list_summed(function: Function, stage: Stage) -> list[tuple[Stage, Axes]]:
    """Score reductions that a stage sums along one of their axes, in order, with the dimension of
    each of their axes: the last one is that of the sum."""
    made: list[tuple[Stage, Axes]] = []
    key, names = find_axis(stage, "sum"), {load.tensor for load in stage.body.loads()}
    kept = sum(stage.extent(i) != 1 for i in stage.indices if not i.reduced)
    found = (_find_sum(function, name) for name in function.sort_tensors(names))
    for product in found if key is not None else ():
        if product is None:
            continue
        read = _read_scores(stage, product)
        rows = [axis for axis, index in read.items() if index != key]
        if key in read.values() and len(rows) + 1 >= kept:
            order = [*rows, *(read.keys() - rows)]
            made.append((product, {axis: n for n, axis in enumerate(order)}))
    return made


def find_axis(stage: Stage, combiner: str) -> Index | None:
    """The only axis that a stage reduces, if it has known sizes and FLOAT32 elements."""
    reduction = stage.reduction
    if reduction is None or reduction.combiner != combiner or len(reduction.axes) != 1:
        return None
    ((label, extent),) = reduction.axes
    known = all(isinstance(e, int) and e for e in (*stage.extents, extent))
    is_float = stage.dtype is stage.body.dtype is DataType.FLOAT32
    return Index(label, reduced=True) if known and is_float else None


class Weighing:
    """A maximum of scores, and the recognizer of sums weighted by the exponential of the difference
    from it."""

    def __init__(self, largest: Stage, key: Index, scores: Stage) -> None:
        rows = [i for i in largest.indices if not i.reduced and largest.extent(i) != 1]
        self.numbers = {index: place for place, index in enumerate((*rows, key))}
        self.scores, self._largest = scores, largest
        self.own = place_scores(largest, scores, self.numbers) or {}
        self._table: dict[Instruction | Index | int, int] = {}
        self._score = _number(largest, self.numbers, self._table)[largest.body.result]

    def weigh(self, stage: Stage) -> Axes:
        """Dimension of each axis of a weighted sum, except its further axes; empty for other
        stages."""
        axes = _map_sum(stage, self._largest, self.scores, self.numbers, self.own)
        weighted = axes and _is_weighted(stage, self._largest, axes, self._table, self._score)
        return axes or {} if weighted else {}


def list_weighing(function: Function, largest: Stage) -> list[Weighing]:
    """Scores of which a stage is the maximum."""
    key = find_axis(largest, "max")
    if key is None or largest.body.guard is not None:
        return []
    names = dict.fromkeys(load.tensor for load in largest.body.loads())
    found = (_find_sum(function, name) for name in names)
    made = [Weighing(largest, key, scores) for scores in found if scores is not None]
    return [each for each in made if each.own]


def _make_online(
    function: Function,
    own: Axes,
    scores: Stage,
    sums: Sequence[tuple[Stage, Axes]],
    largest: tuple[Stage, Axes] | None = None,
) -> Online | None:
    """Pattern of these stages, given their axes' dimensions (`own` for the scores). Scores that the
    sums read must have no other readers."""
    rows = max(own.values())
    totals = [*([largest] if largest else []), *sums]
    products = {scores.name: (scores, own)}
    for stage, axes in totals:
        for load in stage.body.loads():
            found = _find_sum(function, load.tensor)
            if found is not None and rows in axes.values() and load.tensor not in products:
                made = place_scores(stage, found, axes)
                if made is not None:
                    products[load.tensor] = found, made
    names = {s.name for s, _ in totals}
    readers = {n for name in products for n in function.readers().get(name, ())}
    own_sums = {s.name for s, _ in sums}
    waits = any(load.tensor in own_sums for s, _ in sums for load in s.body.loads())
    if names != readers or waits or not 1 <= len(sums) <= _MOST_SUMS:
        return None
    for stage, axes in totals:
        for name in products.keys() & {load.tensor for load in stage.body.loads()}:
            if place_scores(stage, products[name][0], axes) != products[name][1]:
                return None
    sizes: dict[int, Extent | None] = {d: scores.extents[i.axis] for i, d in own.items()}
    members: list[Member] = []
    for product, axes in products.values():
        (inner,) = [index for index in product.indices if index.reduced]
        members.append(Member(product.name, (*axes.items(), (inner, len(sizes)))))
        sizes[len(sizes)] = product.extent(inner)
    for stage, axes in totals:
        axes = dict(axes)
        extra = [i for i in stage.indices if stage.extent(i) != 1 and i not in axes]
        if len(extra) > 1:
            return None
        for index in extra:
            axes[index] = len(sizes)
            sizes[len(sizes)] = stage.extent(index)
        members.append(Member(stage.name, tuple(axes.items())))
    known = tuple(size for _, size in sorted(sizes.items()) if isinstance(size, int))
    order = [s.name for s in function.stages]
    last = max(order.index(m.stage) for m in members)
    whole = {m.stage for m in members}
    early = {n for m in members for n in function.readers().get(m.stage, ())} - whole
    along = _find_along(function, members, rows, len(products))
    if along is None or len(known) < len(sizes) or any(order.index(n) < last for n in early):
        return None
    top = len(products)
    return Online(
        known, rows, along, tuple(members[:top]), members[top] if largest else None,
        tuple(members[top + bool(largest) :]),
    )  # fmt: skip


def _find_sum(function: Function, name: str) -> Stage | None:
    """Sum along one axis with this name, if it is no result; else None."""
    stage = function.stage(name)
    if stage is None or function.result(name) is not None or stage.body.guard is not None:
        return None
    return stage if find_axis(stage, "sum") is not None else None


def _read_scores(stage: Stage, scores: Stage) -> dict[Index, Index]:
    """Index by which a stage reads each axis of the scores longer than 1; empty if it does not read
    each score once, at one index."""
    found: dict[Index, Index] | None = None
    for load in stage.body.loads():
        if load.tensor != scores.name:
            continue
        own: dict[Index, Index] = {}
        for axis, number in enumerate(load.indices):
            index = stage.body.instructions[number]
            if scores.extents[axis] == 1:
                continue
            if not isinstance(index, Index) or stage.extent(index) != scores.extents[axis]:
                return {}
            own[Index(axis)] = index
        if (found is not None and own != found) or len(set(own.values())) < len(own):
            return {}
        found = own
    return found or {}


def place_scores(stage: Stage, scores: Stage, numbers: Mapping[Index, int]) -> Axes | None:
    """Dimension of each axis of the scores, read by a stage whose indices are the dimensions; None
    if it does not read each score once, at one index."""
    read = _read_scores(stage, scores)
    if not read or set(read.values()) != set(numbers):
        return None
    return {axis: numbers[index] for axis, index in read.items()}


def _map_sum(
    stage: Stage, largest: Stage, scores: Stage, numbers: Mapping[Index, int], own: Axes
) -> Axes | None:
    """Dimension of each axis of a weighted sum, except its further axes."""
    key = find_axis(stage, "sum")
    if key is None or stage.body.guard is not None:
        return None
    places = {index: numbers[index] for index in numbers if not index.reduced}
    found: Axes = {key: len(places)}
    for load in stage.body.loads():
        if load.tensor == largest.name:
            made = map_load(stage.body, load, places)
            if made is None or any(found.setdefault(i, d) != d for i, d in made.items()):
                return None
    if sorted(found.values()) != list(range(len(places) + 1)):
        return None
    if place_scores(stage, scores, found) != own:
        return None
    sizes = [None] * len(found)
    wanted = {d: largest.extent(i) for i, d in numbers.items()}
    if any(stage.extent(i) != wanted[d] for i, d in found.items()) or len(sizes) != len(wanted):
        return None
    return found


def _number(
    stage: Stage, axes: Mapping[Index, int], table: dict[Instruction | Index | int, int]
) -> tuple[int, ...]:
    """Value numbering of a stage's body over dimensions: equal numbers mean equal values."""

    def find(instruction: Instruction, given: list[int]) -> int:
        if isinstance(instruction, Index) and stage.extent(instruction) == 1:
            instruction = Constant(DataType.INDEX, 0)
        elif isinstance(instruction, Index):
            # Dimensions are reduced indices of negative labels.
            wanted = axes.get(instruction)
            instruction = Index(-1 if wanted is None else wanted, reduced=True)
        return table.setdefault(with_operands(instruction, tuple(given)), len(table))

    return stage.body.interpret(find)


def _is_weighted(
    stage: Stage,
    largest: Stage,
    axes: Mapping[Index, int],
    table: dict[Instruction | Index | int, int],
    score: int,
) -> bool:
    """Whether a stage sums `exp(score - largest)` times or divided by other factors, in which the
    maximum does not occur: scaling the exponential then scales the sum."""
    body, instructions = stage.body, stage.body.instructions
    numbers = _number(stage, axes, table)
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
    # Only one factor of the result may depend on the maximum.
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
    """Whether a value depends on one of `wanted`."""
    return not wanted.isdisjoint(reach_back(body.instructions, [root]))


def _find_along(
    function: Function, members: Sequence[Member], rows: int, scores: int
) -> int | None:
    """The last row dimension, if keys and values do not vary along it, and all indices are affine;
    else None."""
    tensors, last = function.tensors(), rows - 1
    names = {m.stage for m in members}
    for number, member in enumerate(members):
        stage, axes = tensors[member.stage], dict(member.axes)
        if not isinstance(stage, Stage) or not _reads_evenly(function, stage, axes, last):
            return None
        # The keys of a score, and the further axes of a sum.
        own = {rows} if number < scores else {d for d in axes.values() if d > rows}
        moved = find_dependencies(stage.body)
        for load in stage.body.loads():
            found = {axes.get(index) for at in load.indices for index in moved[at]}
            if load.tensor not in names and last in found and own & found:
                return None
    return last if last >= 0 else None


def _reads_evenly(function: Function, stage: Stage, axes: Mapping[Index, int], along: int) -> bool:
    """Whether all load indices of a stage are affine, and tensors that vary along the row dimension
    have a type that tiles hold."""
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
    """Whether a value only selects between two constants of types that tiles hold."""
    readers = [i for i in body.instructions if value in operands(i)]
    return all(
        isinstance(each, Select)
        and each.dtype in _HELD
        and all(isinstance(body.instructions[n], Constant) for n in operands(each)[1:])
        for each in readers
    )


def _suits(function: Function, found: Online, budget: Budget) -> bool:
    """Whether a pattern is large enough for a kernel of its own, with vectors small enough."""
    sizes, rows = found.sizes, found.rows
    vectors = sizes[rows + 1 :]
    if any(not _LEAST_SIZE <= size <= MOST_SIZE for size in vectors):
        return False
    if sizes[rows] < _LEAST_KEYS or sizes[found.along] < budget.least_run:
        return False
    if found.largest is None:
        scores = list_stages(function, (member.stage for member in found.scores))
        if sum(count_bytes(s) or 0 for s in scores) < _LEAST_CACHES * budget.cached_bytes:
            return False
        if max(vectors) > budget.most_again:
            return False
    stages = (function.stage(member.stage) for member in found.members)
    read = {load.tensor for s in stages if s is not None for load in s.body.loads()}
    if len(read) + 1 > budget.most_buffers:
        return False
    return math.prod(sizes[:rows]) >= budget.least_rows


def describe(function: Function, found: Online) -> str:
    """Reason why its stages are one kernel."""
    tensors = function.tensors()
    saved = 0
    for member in found.scores:
        readers = function.readers().get(member.stage, ())
        saved += (count_bytes(tensors[member.stage]) or 0) * (len(readers) + 1)
    scores, totals = (
        " and ".join(f"%{m.stage}" for m in members) + (" are" if len(members) > 1 else " is")
        for members in (found.scores, found.totals)
    )
    way = "online, block by block of each row"
    if found.largest is None:
        way = "from blocks of them, which each kernel computes again"
    return (
        f"{scores} never stored, which saves {saved:,} bytes of memory traffic: "
        f"{totals} computed {way}"
    )
