"""Weighs computing an element-wise stage wherever it is read against storing it once.

Both cost bytes: those that are moved, and for arithmetic as many as could be moved in its time. A
stage is weighed where paths part, since a stage that another alone reads is best stored as that
one, or where it is read by more points than it has. Which stages share a kernel is not decided
yet: readers are taken to share one where they run over the same points, after as many reductions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dmlc.ir import Constant, Extent, Function, Index, Load, Stage, reads_own_place
from dmlc.transform.budget import Budget, count_operations
from dmlc.transform.traffic import count_bytes

_UNKNOWN = 1 << 20
"""Elements of an axis that is sized at run time, for weighing."""

_MOST_PASSES = 8
_MOST_NAMES = 64
"""What is counted of the passes that want a stage, and of the stages that it is computed from."""

_SHARED_SIZE = 12
"""Instructions from which on a stage that several of one kernel want is told apart from them."""


class _Pass(NamedTuple):
    """Stages that probably run over their points together."""

    points: tuple[Extent, ...]
    level: int
    """The reductions on the longest way to them."""
    kept: int
    """The points of what is folded to, where they fold; else 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class Weighed:
    """What was found."""

    stored: Mapping[str, str]
    """Stages to store, each with the reason."""
    shared: Mapping[str, bool]
    """Stages that several others want at their own places: no memory is needed, should these be
    in one kernel. Each with whether that depends on nothing but how large kernels may get."""


def weigh(function: Function, inlinable: Mapping[str, Stage], budget: Budget) -> Weighed:
    """Which of the inlinable stages had better be stored, and which are shared. Linear in the
    size of the function."""
    results = {r.name for r in function.results}
    levels = _find_levels(function)

    def find_pass(stage: Stage) -> _Pass | None:
        return _find_pass(stage, levels[stage.name]) if stage.name in results else None

    # First every stage is weighed as though no reader were stored, and then, from the results
    # backwards, those found too dear once more, for the readers that there are in the end.
    wants = _find_wants(function, inlinable, results, levels, lambda stage, want: False)
    costs = _Costs(function, inlinable)
    dear: set[str] = set()
    ends = _find_ends(function, inlinable, results)
    for stage in function.stages:
        if stage.name in inlinable:
            costs.add(stage)
            want = wants.get(stage.name)
            if stage.name in ends:
                costs.store(stage)
            elif want and _weigh(stage, want, costs, budget, find_pass(stage)) is not None:
                dear.add(stage.name)
                costs.store(stage)
    stored: dict[str, str] = {}

    def decide(stage: Stage, want: _Want) -> bool:
        reason = ends.get(stage.name)
        if stage.name in dear:
            reason = _weigh(stage, want, costs, budget, find_pass(stage))
        if reason is not None:
            stored[stage.name] = reason
        return reason is not None

    wants = _find_wants(function, inlinable, results, levels, decide)
    shared: dict[str, bool] = {}
    for name, want in wants.items():
        is_result = name in results
        large = costs.sizes[name] >= _SHARED_SIZE
        if name not in stored and large and len(want.owners) + is_result > 1:
            whole = {*want.passes, find_pass(inlinable[name])} - {None}
            shared[name] = len(whole) == 1
    return Weighed(stored, shared)


# Who wants a stage -------------------------------------------------------------------------


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

    def add(self, wanted: _Pass, count: float) -> None:
        if wanted in self.passes or len(self.passes) < _MOST_PASSES:
            self.passes[wanted] = max(count, self.passes.get(wanted, 0))

    @property
    def parts(self) -> bool:
        """Whether the stage is one to weigh: no single reader could be stored in its place."""
        return self.grows or self.fewest < len(self.passes)


def _find_wants(
    function: Function,
    inlinable: Mapping[str, Stage],
    results: set[str],
    levels: Mapping[str, int],
    decide: Callable[[Stage, _Want], bool],
) -> dict[str, _Want]:
    """What wants each inlinable stage, found from the results backwards. `decide` says of a stage
    for which that is known whether it is stored."""
    wants: dict[str, _Want] = {}
    points = {stage.name: _count_points(stage) for stage in function.stages}
    for reader in reversed(function.stages):
        kept = reader.name in results or reader.name not in inlinable
        own = wants.get(reader.name)
        if own is None and not kept:
            continue
        if own is not None and decide(reader, own):
            own, kept = None, True
        passes = dict(own.passes) if own is not None else {}
        count = points[reader.name]
        if kept:
            passes[_find_pass(reader, levels[reader.name])] = count
        for name, loads in _list_reads(reader, inlinable).items():
            stage = inlinable[name]
            want = wants.setdefault(name, _Want())
            for wanted, times in passes.items():
                want.add(wanted, _count_wanted(reader, points[name], loads, wanted, times))
            want.places = max(want.places, len(loads) * (1 if own is None else own.places))
            want.fewest = min(want.fewest, len(passes))
            want.grows = want.grows or len(loads) > 1 or count > points[name]
            if stage.domain == reader.domain and all(reads_own_place(reader, i) for i in loads):
                owners = {reader.name: None} if kept else own.owners if own is not None else {}
                for owner in owners:
                    if len(want.owners) < _MOST_PASSES:
                        want.owners[owner] = None
    return wants


def _find_ends(
    function: Function, inlinable: Mapping[str, Stage], results: set[str]
) -> dict[str, str]:
    """The stages that end a fold, each with why it is stored: it is computed element by element
    from a reduction that nothing else reads, and read at other places. Stored in the reduction's
    place it takes no more memory, and is computed once."""
    readers: dict[str, set[str]] = {}
    moved: set[str] = set()
    for stage in function.stages:
        for load in stage.body.loads():
            readers.setdefault(load.tensor, set()).add(stage.name)
            if not _is_repeated(stage, load):
                moved.add(load.tensor)
    folds = {s.name: s for s in function.stages if s.reduction is not None}
    found: dict[str, str] = {}
    for name in function.sort_tensors(moved):
        stage = inlinable.get(name)
        loads = () if stage is None else stage.body.loads()
        if stage is None or name in results or len(loads) != 1:
            continue
        fold = folds.get(loads[0].tensor)
        if fold is None or fold.name in results or readers[fold.name] != {name}:
            continue
        smaller = stage.dtype.bytes <= fold.dtype.bytes
        if smaller and stage.domain == fold.domain and reads_own_place(stage, loads[0]):
            found[name] = f"%{name} is stored in place of %{fold.name}, which nothing else reads"
    return found


def _list_reads(reader: Stage, inlinable: Mapping[str, Stage]) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = {}
    for load in dict.fromkeys(reader.body.loads()):
        if load.tensor in inlinable:
            found.setdefault(load.tensor, []).append(load)
    return found


def _count_wanted(reader: Stage, own: int, loads: list[Load], wanted: _Pass, times: float) -> float:
    """How often a pass computes a stage of so many points of its `own` that a reader, which it
    computes so many times, reads."""
    count = times * len(loads)
    if len(loads) > 1 or count <= own or not _is_repeated(reader, loads[0]):
        return count
    # The same values for all the points of a row or a fold are computed once for it.
    if wanted.level or wanted.kept:
        return own
    last = len(reader.domain) - 1
    moving = any(reader.body.instructions[i] == Index(last) for i in loads[0].indices)
    return count if moving or last < 0 else max(own, count / _size(reader.domain[last]))


def _is_repeated(reader: Stage, load: Load) -> bool:
    """Whether a load repeats a tensor's elements along further axes, or reads one element."""
    places = [reader.body.instructions[i] for i in load.indices]
    return all(isinstance(p, Index | Constant) for p in places)


def _find_levels(function: Function) -> dict[str, int]:
    """How many reductions there are on the longest way to each stage."""
    levels: dict[str, int] = {}
    for stage in function.stages:
        before = max((levels.get(i.tensor, 0) for i in stage.body.loads()), default=0)
        levels[stage.name] = before + (stage.reduction is not None)
    return levels


def _find_pass(stage: Stage, level: int) -> _Pass:
    if stage.reduction is None:
        return _Pass(stage.domain, level, 0)
    folded = tuple(extent for _, extent in stage.reduction.axes)
    kept = math.prod(_size(e) for e in stage.domain)
    return _Pass((*(e for e in stage.domain if e != 1), *folded), level, max(1, kept))


def _count_points(stage: Stage) -> int:
    folded = () if stage.reduction is None else (extent for _, extent in stage.reduction.axes)
    return math.prod([_size(e) for e in (*stage.domain, *folded)])


def _size(extent: Extent) -> int:
    return extent if isinstance(extent, int) else _UNKNOWN


# What a stage costs ------------------------------------------------------------------------


class _Costs:
    """What computing a stage takes from what is stored, as far as it is counted."""

    def __init__(self, function: Function, inlinable: Mapping[str, Stage]) -> None:
        self._tensors = function.tensors()
        self._inlinable = inlinable
        self._sources: dict[str, dict[str, None]] = {}
        self._leaves: dict[str, dict[str, None]] = {}
        self._operations: dict[str, int] = {}
        self._own: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        """Instructions."""

    def add(self, stage: Stage) -> None:
        """A stage that is computed where it is read."""
        name = stage.name
        sources: dict[str, None] = {name: None}
        leaves: dict[str, None] = {}
        self._own[name] = count_operations(stage.body)
        size, operations = len(stage.body.instructions), self._own[name]
        for tensor, places in _count_places(stage).items():
            if tensor in self._sources:
                sources |= self._sources[tensor]
                leaves |= self._leaves[tensor]
                size = max(size, places * self.sizes[tensor] + 1)
                operations = max(operations, self._operations[tensor] + self._own[name])
            else:
                leaves[tensor] = None
        if len(sources) <= _MOST_NAMES:
            operations = sum(self._own[n] for n in sources)
        self._sources[name] = dict.fromkeys(list(sources)[:_MOST_NAMES])
        self._leaves[name] = dict.fromkeys(list(leaves)[:_MOST_NAMES])
        self._operations[name] = operations
        self.sizes[name] = max(size, len(sources))

    def store(self, stage: Stage) -> None:
        """From here on the stage is read from memory."""
        del self._sources[stage.name]

    def operations(self, stage: Stage) -> int:
        """The time of its arithmetic, in additions."""
        return self._operations[stage.name]

    def read(self, stage: Stage) -> int:
        """The bytes of what it is computed from."""
        found = (count_bytes(self._tensors[name]) for name in self._leaves[stage.name])
        return sum(_UNKNOWN * 4 if size is None else size for size in found)


def _count_places(stage: Stage) -> dict[str, int]:
    """At how many places a stage reads each tensor."""
    found: dict[str, int] = {}
    for load in dict.fromkeys(stage.body.loads()):
        found[load.tensor] = found.get(load.tensor, 0) + 1
    return found


def _weigh(
    stage: Stage, want: _Want, costs: _Costs, budget: Budget, own_pass: _Pass | None
) -> str | None:
    """Why to store a stage; None where computing it again is cheaper. Memory and arithmetic go on
    at once, so that of a pass the larger of the two counts."""
    if own_pass is None and not want.parts:
        return None
    size = costs.sizes[stage.name]
    copies = len(want.passes) * want.places
    if (copies - 1) * size > budget.most_repeated:
        return (
            f"%{stage.name} is stored, since it is read at {copies} places, and computing it takes "
            f"{size:,} instructions"
        )
    points = _count_points(stage)
    read, own = costs.read(stage), points * stage.dtype.bytes
    work = costs.operations(stage) * budget.bytes_per_operation
    counts = {p: count for p, count in want.passes.items() if p != own_pass}
    folds = [p.kept for p in counts if p.kept]
    is_near = bool(folds) and all(read <= budget.near_bytes * kept for kept in folds)
    computing, storing = 0.0, float(budget.launch_bytes)
    for number, count in enumerate(counts.values()):
        # What a fold reads may still be at hand for those that come after it.
        moves = not is_near or number == 0
        computing += max(read if moves else 0, count * work)
        storing += own if moves else 0
    if own_pass is None:
        storing += max(read, points * work) + own
    if computing <= storing:
        return None
    return (
        f"%{stage.name} is stored, which takes as long as moving {_show(storing)}: to compute it "
        f"wherever it is read takes as long as {_show(computing)}"
    )


def _show(size: float) -> str:
    """Bytes as a person reads them."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:.0f} B"
