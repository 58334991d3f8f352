"""The cost model that decides whether an element-wise stage is computed again wherever it is read,
or stored once.

Both cost bytes: those that are moved, and for arithmetic as many as could be moved in its time. A
stage is weighed where paths part, since a stage that another alone reads is best stored as that
one, or where it is read by more points than it has. Which stages share a kernel is not decided
yet: readers are taken to share one where they run over the same points, after as many reductions.

What memory and arithmetic cost, and how large a kernel may get, are plain numbers: a caller takes
them from a device profile and an output language.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Function,
    Index,
    Load,
    Select,
    Stage,
    reads_own_place,
    value_type,
)
from dmlc.ir.index import find_dependencies, find_index_only
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.scalars import DataType
from dmlc.sizes import estimate
from dmlc.transform.simplify import is_inlinable
from dmlc.transform.traffic import count_bytes

_UNKNOWN = 1 << 20
"""Elements of an axis that is sized at run time, for weighing."""

_MOST_PASSES = 8
_MOST_NAMES = 64
"""What is counted of the passes that want a stage, and of the stages that it is computed from."""

_TILE = 64
"""Outputs along a row, or a column, of a product's tile, which reads what they share once."""

_MANY = 16
"""Rows and columns of a product that is worth tiles, at least."""

_SHARED_SIZE = 12
"""Instructions from which on a stage that several of one kernel want is told apart from them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """What fusion may spend. Costs are in bytes: of so much traffic as takes the same time."""

    bytes_per_operation: float = 0.25
    """One addition."""
    launch_bytes: int = 1 << 18
    """One more kernel."""
    cached_bytes: int = 1 << 18
    """What is read again is still cached where no more than this was read in between."""
    most_buffers: int = 120
    """Tensors that one kernel reads and writes, at most."""
    most_repeated: int = 64
    """Instructions of a stage that are written out again for further places, at most."""
    most_instructions: int = 2048
    """Instructions of the stages of one kernel, at most; a single stage may have more."""
    lanes: int = 1
    """Neighbouring elements that are computed at once."""
    has_positions: bool = False
    """Whether a reduction's loops may compute positions: vectors along rows of any length do not
    come by them."""
    held: int = 0
    """Elements that a work group holds in registers, at most, from one pass over a row to the
    next, and from row to row; 0 where none are held."""
    paired_types: tuple[DataType, ...] = ()
    """Types that are stored two elements at a time."""
    walks: bool = False
    """Whether work items go through whole rows, and may put these in order."""
    least_rows: int = 0
    """Rows of scores, at least, that a kernel reduces online: see `online`; 0 where none does."""
    least_run: int = 1
    """And as many of them, at least, that read the same keys."""
    most_again: int = 128
    """Elements of a query, or of a value, at most, where several kernels compute scores again."""


_LOOKED_UP = 4
"""The time of a read whose place is read itself, in additions: it waits for that."""


def count_operations(body: Body) -> int:
    """The time that a body's arithmetic takes, in additions; that of positions is free, but for
    those that are read themselves."""
    known = find_index_only(body)
    waiting = [load for load in body.loads() if not all(known[i] for i in load.indices)]
    count = _LOOKED_UP * len(waiting)
    for instruction in body.instructions:
        if isinstance(instruction, Apply) and instruction.dtype is not DataType.INDEX:
            count += IR_OPERATIONS[instruction.operation.name].cost
        elif isinstance(instruction, Select) and instruction.dtype is not DataType.INDEX:
            count += 1
        elif isinstance(instruction, Cast):
            # A position as a whole number of another type is the same number.
            source = value_type(body.instructions[instruction.operand])
            count += DataType.INDEX not in (source, instruction.dtype)
    return count


def is_product(stage: Stage) -> bool:
    """Whether a stage sums products of two factors, for many rows that differ in the one factor
    alone, and many columns that differ in the other."""
    value = stage.body.instructions[stage.body.result]
    if isinstance(value, Cast):
        value = stage.body.instructions[value.operand]
    if stage.combiner != "sum" or not isinstance(value, Apply) or value.operation.name != "mul":
        return False
    needs = find_dependencies(stage.body)
    rows, columns = ({i for i in needs[n] if not i.reduced} for n in value.operands)
    return all(
        math.prod(estimate(stage.extent(index) or 1) for index in own) >= _MANY
        for own in (rows - columns, columns - rows)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What was found."""

    stored: Mapping[str, str]
    """Stages to store, each with the reason."""
    shared: Mapping[str, bool]
    """Stages that several others want at their own places: no memory is needed, should these be
    in one kernel. Each with whether that depends on nothing but how large kernels may get."""


def decide_stored(function: Function, budget: Budget) -> Decision:
    """Which of the inlinable stages had better be stored, and which are shared. Linear in the
    size of the function."""
    results = {r.name for r in function.results}
    inlinable = {s.name: s for s in function.stages if is_inlinable(s)}
    passes = _find_passes(function)
    costs = _Costs(function, budget)

    def weigh(stage: Stage, want: _Want) -> str | None:
        return costs.weigh(stage, want, passes[stage.name] if stage.name in results else None)

    # First every stage is weighed as though no reader were stored, and then, from the results
    # backwards, those found too dear once more, for the readers that there are in the end.
    wants = _find_wants(function, passes, lambda stage, want: False)
    ends = _find_ends(function)
    dear: set[str] = set()
    for stage in inlinable.values():
        costs.add(stage)
        want = wants.get(stage.name)
        if stage.name not in ends and want is not None and weigh(stage, want) is not None:
            dear.add(stage.name)
        if stage.name in ends or stage.name in dear:
            costs.stored.add(stage.name)
    stored: dict[str, str] = {}

    def decide(stage: Stage, want: _Want) -> bool:
        reason = weigh(stage, want) if stage.name in dear else ends.get(stage.name)
        if reason is not None:
            stored[stage.name] = reason
        return reason is not None

    wants = _find_wants(function, passes, decide)
    shared: dict[str, bool] = {}
    for name, want in wants.items():
        large = costs[name].size >= _SHARED_SIZE
        if name not in stored and large and len(want.owners) + (name in results) > 1:
            own = {passes[name]} if name in results else set[_Pass]()
            shared[name] = len(own.union(want.passes)) == 1
    return Decision(stored, shared)


# Who wants a stage -------------------------------------------------------------------------


class _Pass(NamedTuple):
    """Stages that probably run over their points together."""

    points: tuple[Extent, ...]
    level: int
    """The reductions on the longest way to them."""
    kept: int
    """The points that are left of a reduction, where they reduce; else 0."""
    elsewhere: str = ""
    """The stage that looks where elements say, if one does: what it finds there is computed for it
    alone."""


def _find_passes(function: Function) -> dict[str, _Pass]:
    found: dict[str, _Pass] = {}
    for stage in function.stages:
        read = (load.tensor for load in stage.body.loads())
        level = max((found[name].level for name in read if name in found), default=0)
        points, kept = stage.extents, 0
        if stage.reduction is not None:
            points = (*(e for e in stage.extents if e != 1), *(e for _, e in stage.axes))
            level, kept = level + 1, max(1, _count_points(*stage.extents))
        found[stage.name] = _Pass(points, level, kept)
    return found


def _count_points(*extents: Extent) -> int:
    return math.prod([e if isinstance(e, int) else _UNKNOWN for e in extents])


@dataclasses.dataclass(slots=True)
class _Want:
    """The passes that compute a stage, and how often each does."""

    passes: dict[_Pass, float] = dataclasses.field(default_factory=dict[_Pass, float])
    fewest: int = _MOST_PASSES
    """Of those that one reader alone stands for."""
    grows: bool = False
    """Whether a reader has more points, or reads at several places."""
    places: int = 1
    """Of one stage that is kept, at which it is computed."""
    owners: dict[str, None] = dataclasses.field(default_factory=dict[str, None])
    """Some of the stages over the same points that want it at their own places."""


def _find_wants(
    function: Function, passes: Mapping[str, _Pass], decide: Callable[[Stage, _Want], bool]
) -> dict[str, _Want]:
    """What wants each inlinable stage, found from the results backwards. `decide` says of a stage
    for which that is known whether it is stored."""
    wants: dict[str, _Want] = {}
    points = {name: _count_points(*found.points) for name, found in passes.items()}
    for reader in reversed(function.stages):
        kept = function.result(reader.name) is not None or not is_inlinable(reader)
        own = wants.get(reader.name)
        if own is None and not kept:
            continue
        if own is not None and decide(reader, own):
            own, kept = None, True
        own = _Want() if own is None else own
        counts = dict(own.passes)
        count = points[reader.name]
        if kept:
            counts[passes[reader.name]] = count
        owners = {reader.name: None} if kept else own.owners
        known = find_index_only(reader.body)
        for name, loads in _group_loads(reader).items():
            stage = function.stage(name)
            if stage is None or not is_inlinable(stage):
                continue
            want = wants.setdefault(name, _Want())
            alone = not all(known[index] for load in loads for index in load.indices)
            for wanted, times in counts.items():
                again = _count_wanted(reader, points[name], loads, wanted, times)
                wanted = wanted._replace(elsewhere=reader.name) if alone else wanted
                if wanted in want.passes or len(want.passes) < _MOST_PASSES:
                    want.passes[wanted] = max(again, want.passes.get(wanted, 0))
            want.places = max(want.places, len(loads) * own.places)
            want.fewest = min(want.fewest, len(counts))
            want.grows = want.grows or len(loads) > 1 or count > points[name]
            same = stage.extents == reader.extents
            if same and all(reads_own_place(reader, load) for load in loads):
                want.owners = dict.fromkeys([*want.owners, *owners][:_MOST_PASSES])
    return wants


def _group_loads(stage: Stage) -> dict[str, list[Load]]:
    """A stage's loads at different places, by tensor."""
    found: dict[str, list[Load]] = {}
    for load in dict.fromkeys(stage.body.loads()):
        found.setdefault(load.tensor, []).append(load)
    return found


def _find_ends(function: Function) -> dict[str, str]:
    """The stages that end a reduction, each with why it is stored: it is computed element by
    element from one that nothing else reads, and read at other places. Stored in the reduction's
    place it takes no more memory, and is computed once."""
    moved = {
        load.tensor
        for stage in function.stages
        for load in stage.body.loads()
        if not _is_repeated(stage, load)
    }
    found: dict[str, str] = {}
    for name in function.sort_tensors(moved):
        stage = function.stage(name)
        if stage is None or not is_inlinable(stage) or len(stage.body.loads()) != 1:
            continue
        (load,) = stage.body.loads()
        total = function.stage(load.tensor)
        if total is None or total.reduction is None or function.readers()[total.name] != (name,):
            continue
        leaves = any(function.result(each) is not None for each in (name, total.name))
        smaller = stage.dtype.bytes <= total.dtype.bytes and stage.extents == total.extents
        if smaller and not leaves and reads_own_place(stage, load):
            found[name] = f"%{name} is stored in place of %{total.name}, which nothing else reads"
    return found


def _count_wanted(reader: Stage, own: int, loads: list[Load], wanted: _Pass, times: float) -> float:
    """How often a pass computes a stage of so many points of its `own` that a reader, which it
    computes so many times, reads."""
    count = times * len(loads)
    if len(loads) > 1 or count <= own or not _is_repeated(reader, loads[0]):
        return count
    indices = [reader.body.instructions[i] for i in loads[0].indices]
    # The same values for all the points of a row or a reduction are computed once for it.
    if wanted.level or wanted.kept:
        again = times / max(1, _count_points(*reader.sizes))
        if any(isinstance(index, Index) and index.reduced for index in indices):
            # Each output reads it, or each tile of them.
            others = (e for n, e in enumerate(reader.extents) if Index(n) not in indices)
            again *= max(1, _count_points(*others) / (_TILE if is_product(reader) else 1))
        return own * max(1, again)
    last = len(reader.extents) - 1
    moving = Index(last) in indices
    return count if moving or last < 0 else max(own, count / _count_points(reader.extents[last]))


def _is_repeated(reader: Stage, load: Load) -> bool:
    """Whether a load repeats a tensor's elements along further axes, or reads one element."""
    places = [reader.body.instructions[i] for i in load.indices]
    return all(isinstance(p, Index | Constant) for p in places)


# What a stage costs ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Cost:
    """What computing a stage takes from what is stored, as far as it is counted."""

    sources: tuple[str, ...]
    """The stages that are computed for it, and itself."""
    leaves: tuple[str, ...]
    """The tensors that are read."""
    operations: int
    """The time of its arithmetic, in additions."""
    size: int
    """Instructions."""


class _Costs:
    """Knows what stages cost, each after what it reads."""

    def __init__(self, function: Function, budget: Budget) -> None:
        self._tensors = function.tensors()
        self._budget = budget
        self._found: dict[str, _Cost] = {}
        self._own: dict[str, int] = {}
        self.stored: set[str] = set()
        """What is read from memory from here on."""

    def __getitem__(self, name: str) -> _Cost:
        return self._found[name]

    def add(self, stage: Stage) -> None:
        """A stage that is computed where it is read."""
        name = stage.name
        sources, leaves = {name: None}, dict[str, None]()
        own = self._own[name] = count_operations(stage.body)
        size, operations = len(stage.body.instructions), own
        for tensor, loads in _group_loads(stage).items():
            if tensor not in self._found or tensor in self.stored:
                leaves[tensor] = None
                continue
            read = self._found[tensor]
            sources |= dict.fromkeys(read.sources)
            leaves |= dict.fromkeys(read.leaves)
            size = max(size, len(loads) * read.size + 1)
            operations = max(operations, read.operations + own)
        if len(sources) <= _MOST_NAMES:
            operations = sum(self._own[n] for n in sources)
        first, second = (tuple(names)[:_MOST_NAMES] for names in (sources, leaves))
        self._found[name] = _Cost(first, second, operations, max(size, len(sources)))

    def weigh(self, stage: Stage, want: _Want, own_pass: _Pass | None) -> str | None:
        """Why to store a stage; None where computing it again is cheaper. Memory and arithmetic go
        on at once, so that of a pass the larger of the two counts."""
        if own_pass is None and not want.grows and want.fewest >= len(want.passes):
            return None  # A single reader could be stored in its place.
        cost, budget = self._found[stage.name], self._budget
        copies = len(want.passes) * want.places
        if (copies - 1) * cost.size > budget.most_repeated:
            return (
                f"%{stage.name} is stored, since it is read at {copies} places, and computing it "
                f"takes {cost.size:,} instructions"
            )
        points = _count_points(*stage.extents)
        leaves = (count_bytes(self._tensors[name]) for name in cost.leaves)
        read = sum(_UNKNOWN * 4 if size is None else size for size in leaves)
        own, work = points * stage.dtype.bytes, cost.operations * budget.bytes_per_operation
        counts = {p: count for p, count in want.passes.items() if p != own_pass}
        left = [p.kept for p in counts if p.kept]
        is_near = bool(left) and all(read <= budget.cached_bytes * kept for kept in left)
        computing, storing = 0.0, float(budget.launch_bytes)
        for number, count in enumerate(counts.values()):
            # What a reduction reads may still be cached for those that come after it.
            moves = not is_near or number == 0
            computing += max(read if moves else 0, count * work)
            storing += own if moves else 0
        if own_pass is None:
            storing += max(read, points * work) + own
        if computing <= storing:
            return None
        return (
            f"%{stage.name} is stored, which takes as long as moving {_show(storing)}: to compute "
            f"it wherever it is read takes as long as {_show(computing)}"
        )


def _show(size: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:.0f} B"
