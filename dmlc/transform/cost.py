"""Cost model of fusion: whether an element-wise stage is recomputed where it is read, or stored
once.

Costs are in bytes: bytes moved, and for arithmetic the bytes that could be moved in its time. A
stage is weighed if several stages read it, or one with more points; a stage with a single reader is
best stored as that reader. Grouping is not known yet: readers are assumed to share a kernel if they
have the same points and the same number of reductions before them.

Machine parameters and kernel limits are plain numbers, which callers take from a device profile and
an output language.
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
"""Assumed number of elements of an axis of run-time size."""

_MOST_PASSES = 8
_MOST_NAMES = 64
"""Largest number of recorded passes that read a stage, and of stages that it is computed from."""

_TILE = 64
"""Outputs along a row or column of a product's tile, which share one read of an operand."""

_MANY = 16
"""Smallest number of rows and columns of a product that is worth tiles."""

_SHARED_SIZE = 12
"""Smallest number of instructions of a stage that is tracked as shared by stages of one kernel."""


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """Parameters of fusion. Costs are in bytes of equivalent memory traffic."""

    bytes_per_operation: float = 0.25
    """Cost of one addition."""
    launch_bytes: int = 1 << 18
    """Cost of one more kernel."""
    cached_bytes: int = 1 << 18
    """Data is still cached if no more bytes than this were read since."""
    most_buffers: int = 120
    """Largest number of tensors that one kernel reads and writes."""
    most_repeated: int = 64
    """Largest number of a stage's instructions that are duplicated for further readers."""
    most_instructions: int = 2048
    """Largest number of instructions of the stages of one kernel; a single stage may have more."""
    lanes: int = 1
    """Vector lanes."""
    has_positions: bool = False
    """Whether a reduction's loops may compute with indices, which vectors along rows of any length
    do not provide."""
    held: int = 0
    """Largest number of elements that a work group keeps in registers between passes over a row,
    and between rows; 0 if none."""
    paired_types: tuple[DataType, ...] = ()
    """Types that are stored two elements at a time."""
    walks: bool = False
    """Whether a work item may process whole rows, and sort them."""
    least_rows: int = 0
    """Smallest number of rows of scores that a kernel reduces online (see `online`); 0 if none
    does."""
    least_run: int = 1
    """Smallest number of these rows that read the same keys."""
    most_again: int = 128
    """Largest number of elements of a query or value for which several kernels recompute scores."""
    groups: int = 0
    """Work groups that keep the device busy; 0 if rows are never reduced in pieces (see
    `recentre`)."""
    piece: int = 0
    """Smallest number of points of such a piece, for all of its outputs."""


_LOOKED_UP = 4
"""Cost in additions of a load whose index is loaded, as it waits for that."""


def count_operations(body: Body) -> int:
    """Time of a body's arithmetic, in additions. Index arithmetic is free, but loads at loaded
    indices are not."""
    known = find_index_only(body)
    waiting = [load for load in body.loads() if not all(known[i] for i in load.indices)]
    count = _LOOKED_UP * len(waiting)
    for instruction in body.instructions:
        if isinstance(instruction, Apply) and instruction.dtype is not DataType.INDEX:
            count += IR_OPERATIONS[instruction.operation.name].cost
        elif isinstance(instruction, Select) and instruction.dtype is not DataType.INDEX:
            count += 1
        elif isinstance(instruction, Cast):
            # Conversions between INDEX and other integers cost nothing.
            source = value_type(body.instructions[instruction.operand])
            count += DataType.INDEX not in (source, instruction.dtype)
    return count


def is_product(stage: Stage, least: int = _MANY) -> bool:
    """Whether a stage is a matrix product: a sum of products of two factors, of which each depends
    on outputs that the other does not, one on at least `least` and the other on `_MANY`."""
    value = stage.body.instructions[stage.body.result]
    if isinstance(value, Cast):
        value = stage.body.instructions[value.operand]
    if stage.combiner != "sum" or not isinstance(value, Apply) or value.operation.name != "mul":
        return False
    needs = find_dependencies(stage.body)
    rows, columns = ({i for i in needs[n] if not i.reduced} for n in value.operands)
    fewer, more = sorted(
        math.prod(estimate(stage.extent(index) or 1) for index in own)
        for own in (rows - columns, columns - rows)
    )
    return fewer >= least and more >= _MANY


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Outcome of the cost model."""

    stored: Mapping[str, str]
    """Stages to store, each with the reason."""
    shared: Mapping[str, bool]
    """Stages that several others read at their own index: they need no memory if all of these are
    in one kernel. The value is whether only limits on kernel size may prevent that."""


def decide_stored(function: Function, budget: Budget) -> Decision:
    """Inlinable stages to store, and those that are shared. Linear in the size of the function."""
    results = {r.name for r in function.results}
    inlinable = {s.name: s for s in function.stages if is_inlinable(s)}
    passes = _find_passes(function)
    costs = _Costs(function, budget)

    def weigh(stage: Stage, want: _Want) -> str | None:
        own = passes[stage.name]
        is_row = budget.walks and all(found.points == own.points for found in want.passes)
        return costs.weigh(stage, want, own if stage.name in results else None, is_row)

    # First every stage is weighed as if no reader were stored; then, from the results backwards,
    # those found too expensive are weighed again with their actual readers.
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
    """Stages that are assumed to share a pass over their points."""

    points: tuple[Extent, ...]
    level: int
    """Number of reductions on the longest path to them."""
    kept: int
    """Number of outputs if they are reductions; else 0."""
    elsewhere: str = ""
    """The stage that reads at data-dependent indices, if one does: values read there are not
    shared."""


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
    """Passes that compute a stage, and how many times each computes it."""

    passes: dict[_Pass, float] = dataclasses.field(default_factory=dict[_Pass, float])
    fewest: int = _MOST_PASSES
    """Smallest number of them that one reader accounts for."""
    grows: bool = False
    """Whether a reader has more points, or several loads of it."""
    places: int = 1
    """Largest number of indices at which one stored stage computes it."""
    owners: dict[str, None] = dataclasses.field(default_factory=dict[str, None])
    """Some of the stages over the same points that read it at their own index."""


def _find_wants(
    function: Function, passes: Mapping[str, _Pass], decide: Callable[[Stage, _Want], bool]
) -> dict[str, _Want]:
    """Passes that compute each inlinable stage, found from the results backwards. `decide` returns
    whether a stage with these passes is stored."""
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
    """Distinct loads of a stage, by tensor."""
    found: dict[str, list[Load]] = {}
    for load in dict.fromkeys(stage.body.loads()):
        found.setdefault(load.tensor, []).append(load)
    return found


def _find_ends(function: Function) -> dict[str, str]:
    """Stages to store in place of a reduction, each with the reason: element-wise stages that are
    the reduction's only reader, and are read at other indices. That takes no more memory than
    storing the reduction, and computes them once. Integers may be indices, which take quotients."""
    moved = {
        load.tensor
        for stage in function.stages
        for load in stage.body.loads()
        if not _is_repeated(stage, load, blocks=load.dtype.is_float)
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
    """Number of times that a pass computes a stage of `own` points, if the pass computes its
    `reader` `times` times."""
    count = times * len(loads)
    if len(loads) > 1 or count <= own or not _is_repeated(reader, loads[0]):
        return count
    indices = [reader.body.instructions[i] for i in loads[0].indices]
    # Values that do not vary along a row or a reduction are computed once for it.
    if wanted.level or wanted.kept:
        again = times / max(1, _count_points(*reader.sizes))
        if any(isinstance(index, Index) and index.reduced for index in indices):
            # Each output reads it, or each tile of outputs.
            others = (e for n, e in enumerate(reader.extents) if Index(n) not in indices)
            again *= max(1, _count_points(*others) / (_TILE if is_product(reader) else 1))
        return own * max(1, again)
    last = len(reader.extents) - 1
    moving = Index(last) in indices
    return count if moving or last < 0 else max(own, count / _count_points(reader.extents[last]))


def _is_repeated(reader: Stage, load: Load, *, blocks: bool = False) -> bool:
    """Whether a load broadcasts a tensor along further axes, or reads one element; with `blocks`,
    also whether it broadcasts each element to a block of an axis, as `%mean[div(i1, 4)]`."""
    values = reader.body.instructions
    places = [values[i] for i in load.indices]
    if blocks:
        places = [
            values[p.operands[0]] if isinstance(p, Apply) and p.operation.name == "div" else p
            for p in places
        ]
    return all(isinstance(p, Index | Constant) for p in places)


# What a stage costs ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Cost:
    """Estimated cost of computing a stage from stored tensors."""

    sources: tuple[str, ...]
    """Stages that are computed for it, itself included."""
    leaves: tuple[str, ...]
    """Tensors that are read."""
    operations: int
    """Time of its arithmetic, in additions."""
    size: int
    """Number of instructions."""


class _Costs:
    """Costs of stages, added in order."""

    def __init__(self, function: Function, budget: Budget) -> None:
        self._tensors = function.tensors()
        self._budget = budget
        self._found: dict[str, _Cost] = {}
        self._own: dict[str, int] = {}
        self.stored: set[str] = set()
        """Stages that later ones read from memory."""

    def __getitem__(self, name: str) -> _Cost:
        return self._found[name]

    def add(self, stage: Stage) -> None:
        """Adds a stage that is computed where it is read."""
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

    def weigh(self, stage: Stage, want: _Want, own_pass: _Pass | None, is_row: bool) -> str | None:
        """Reason to store a stage; None if recomputing it is cheaper. Memory and arithmetic
        overlap: the time of a pass is the larger of the two. If it `is_row`, a work item that
        reduces a row can read back what it stored, from its cache and without another kernel."""
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
        is_back = is_row and is_near
        computing, storing = 0.0, 0.0 if is_back else float(budget.launch_bytes)
        for number, count in enumerate(counts.values()):
            # Operands of one reduction may still be cached for the next.
            moves = not is_near or number == 0
            computing += max(read if moves else 0, count * work)
            storing += own if moves and not is_back else 0
        if own_pass is None:
            storing += max(read, points * work) + own
        if computing <= storing:
            return None
        return (
            f"%{stage.name} is stored, which takes as long as moving {_show(storing)}: to compute "
            f"it wherever it is read takes as long as {_show(computing)}"
        )


def _show(size: float) -> str:
    """Bytes in readable units."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:.0f} B"
