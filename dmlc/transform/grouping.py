"""Groups the stages that are left after inlining: those of one group share a kernel.

Element-wise stages over one domain, none of which needs another's memory, are one group; so are
reductions with what they read from one another, with the element-wise stages that apply them or
that they fold, and with further reductions of the same tensors over the same axes (see `passes`).
What is inlined before is `fuse`'s to decide.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc.ir import Index, Load, Stage, reads_own_place
from dmlc.ir.index import find_dependencies
from dmlc.scalars import COMBINERS, DataType
from dmlc.transform.budget import Budget
from dmlc.transform.passes import Draft
from dmlc.transform.store_on_way import Streams

_MOST_TRIED = 16
"""Groups that a stage is offered to: those after the first which might take it."""


class Plain:
    """A group of element-wise stages over one domain, in the making."""

    def __init__(self, first: Stage) -> None:
        self.domain = first.domain
        self.stages = [first]

    def holds(self, stage: Stage, load: Load) -> bool:
        """Whether a stage of this group is read where and as the reader computes it: then it is
        at hand in the same kernel."""
        source = next(s for s in self.stages if s.name == load.tensor)
        return not source.dtype.is_storage_only and reads_own_place(stage, load)


Members: TypeAlias = Plain | Draft


class _Room:
    """How much of a kernel's room each group takes."""

    def __init__(
        self, budget: Budget, reads: Mapping[str, Sequence[str]], results: set[str]
    ) -> None:
        self._budget = budget
        self._reads = reads
        self._results = results
        self._readers: dict[str, set[str]] = {}
        for stage, names in reads.items():
            for name in names:
                self._readers.setdefault(name, set()).add(stage)
        self._instructions: list[int] = []
        self._stages: list[set[str]] = []
        self._tensors: list[dict[str, None]] = []

    def has(self, place: int, stage: Stage) -> bool:
        """Whether the group of that number has room for a stage."""
        whole = self._instructions[place] + len(stage.body.instructions)
        if whole > self._budget.most_instructions:
            return False
        most, tensors = self._budget.most_buffers, self._tensors[place]
        more = [name for name in self._list_tensors(stage) if name not in tensors]
        if len(tensors) + len(more) <= most:
            return True
        # What the group alone reads takes no memory.
        stages = self._stages[place] | {stage.name}
        near = {n for n in stages - self._results if self._readers.get(n, stages) <= stages}
        return sum(name not in near for name in (*tensors, *more)) <= most

    def take(self, place: int, stage: Stage) -> None:
        """The stage goes to that group, which may be a new one."""
        if place == len(self._tensors):
            self._instructions.append(0)
            self._stages.append(set())
            self._tensors.append({})
        self._instructions[place] += len(stage.body.instructions)
        self._stages[place].add(stage.name)
        self._tensors[place] |= self._list_tensors(stage)

    def _list_tensors(self, stage: Stage) -> dict[str, None]:
        """What a stage reads and writes."""
        return {stage.name: None} | dict.fromkeys(self._reads[stage.name])


def find_rows(
    stages: Sequence[Stage], results: set[str], longest_row: int, budget: Budget
) -> dict[str, str]:
    """The reductions of which only a row at a time is needed, each with its one reader."""
    readers: dict[str, list[Stage]] = {}
    for stage in stages:
        for name in dict.fromkeys(load.tensor for load in stage.body.loads()):
            readers.setdefault(name, []).append(stage)
    found: dict[str, str] = {}
    taken: set[str] = set()
    for stage in stages:
        reader, *others = readers.get(stage.name, [stage])
        length = stage.domain[-1] if stage.domain else None
        short = isinstance(length, int) and length <= longest_row
        alone = not others and stage.name not in results and stage.name not in taken
        read = {load.tensor for each in (stage, reader) for load in each.body.loads()}
        # What they read without the row, and the result: as many as they read with it.
        fits = len(read) <= budget.most_buffers
        if short and alone and fits and reader.name not in taken and _folds_along(stage, reader):
            found[stage.name] = reader.name
            taken.add(reader.name)
    return found


def _folds_along(row: Stage, reader: Stage) -> bool:
    """Whether a stage folds a reduction that is at its own position but along the last axis."""
    plain = row is not reader and is_foldable(row) and is_foldable(reader)
    if not plain or row.dtype.is_storage_only or row.domain[:-1] != reader.domain[:-1]:
        return False
    if any(s.reduction is None or s.reduction.combiner not in COMBINERS for s in (row, reader)):
        return False
    last = Index(len(reader.domain) - 1)
    dependencies = find_dependencies(reader.body)
    for load in reader.body.loads():
        if load.tensor != row.name:
            continue
        *outer, along = load.indices
        for axis, position in enumerate(outer):
            only = reader.domain[axis] == 1 and not dependencies[position]
            if reader.body.instructions[position] != Index(axis) and not only:
                return False
        if any(i != last and not i.reduced for i in dependencies[along]):
            return False
    return DataType.BOOL not in (row.dtype, reader.dtype)


def group_stages(
    stages: Sequence[Stage],
    results: set[str],
    rows: Mapping[str, str],
    budget: Budget,
    streams: Streams,
) -> tuple[list[Members], dict[str, tuple[int, int]], dict[str, str]]:
    """The stages of each group, each stage's group and pass, and why some stages are not where
    one might look for them.

    A stage goes to the first group that takes it and runs after, or with, all that it reads. The
    reductions in `rows` go with their readers, which share a kernel with no other reduction.
    """
    grouping = _Grouping(stages, results, rows, budget, streams)
    for stage in _order([s for s in stages if s.name not in rows], results):
        grouping.place(stage)
    return grouping.members, grouping.find_homes(), grouping.reasons


class _Grouping:
    """Groups in the making."""

    def __init__(
        self,
        stages: Sequence[Stage],
        results: set[str],
        rows: Mapping[str, str],
        budget: Budget,
        streams: Streams,
    ) -> None:
        self.members: list[Members] = []
        self.reasons: dict[str, str] = {}
        self._streams = streams
        self._reads = {s.name: [load.tensor for load in s.body.loads()] for s in stages}
        for row, reader in rows.items():
            self._reads[reader] = [n for n in (*self._reads[row], *self._reads[reader]) if n != row]
        self._rows = rows
        self._with_rows = set(rows.values())
        self._homes: dict[str, int] = {}
        placed = {name: reads for name, reads in self._reads.items() if name not in rows}
        self._room = _Room(budget, placed, results)
        self._plain: dict[object, list[int]] = {}
        self._drafts: dict[object, list[int]] = {}

    def place(self, stage: Stage) -> None:
        """Finds a stage's group, or makes it one."""
        latest = max((self._homes.get(name, -1) for name in self._reads[stage.name]), default=-1)
        place = self._fold_on_way(stage, latest)
        if place is None:
            place = self._find_draft(stage, latest)
        if place is None:
            place = self._find_plain(stage, latest)
        if place is None:
            place = len(self.members)
            if is_foldable(stage):
                self.members.append(Draft(stage, self._streams))
            else:
                self.members.append(Plain(stage))
                if stage.reduction is None:
                    self._plain.setdefault(stage.domain, []).append(place)
        self._room.take(place, stage)
        self._homes[stage.name] = place
        if isinstance(self.members[place], Draft):
            self._note(place, stage)

    def find_homes(self) -> dict[str, tuple[int, int]]:
        """Each stage's group and pass."""
        placed = {name: (place, 0) for name, place in self._homes.items()}
        for place, found in enumerate(self.members):
            if isinstance(found, Draft):
                for number, made in enumerate(found.passes()):
                    placed.update({m.stage: (place, number) for m in made.members})
        placed.update({row: placed[reader] for row, reader in self._rows.items()})
        return placed

    def _fold_on_way(self, stage: Stage, latest: int) -> int | None:
        """The group of element-wise stages that a reduction folds while it stores them: from here
        on it is one with reductions."""
        if latest < 0 or not is_foldable(stage) or stage.name in self._with_rows:
            return None
        found = self.members[latest]
        if not isinstance(found, Plain) or not self._room.has(latest, stage):
            return None
        started = Draft.start_on_way(stage, found.stages, self._streams)
        if started is None:
            return None
        draft, refusal = started
        if refusal is not None:
            self.reasons[stage.name] = refusal
            return None
        self.members[latest] = draft
        for each in found.stages:
            self._note(latest, each)
        return latest

    def _find_plain(self, stage: Stage, latest: int) -> int | None:
        """The group of element-wise stages that takes a stage, and has it from here on; what it
        reads is in groups up to `latest`."""
        if stage.reduction is not None:
            return None
        candidates = self._plain.get(stage.domain, [])
        first = bisect.bisect_left(candidates, latest)
        for place in candidates[first : first + _MOST_TRIED]:
            found = self.members[place]
            near = [load for load in stage.body.loads() if self._homes.get(load.tensor) == place]
            fits = isinstance(found, Plain) and all(found.holds(stage, load) for load in near)
            if isinstance(found, Plain) and fits and self._room.has(place, stage):
                found.stages.append(stage)
                return place
        return None

    def _note(self, place: int, stage: Stage) -> None:
        """Where later stages that may join a group with reductions look for it."""
        keys: list[object] = [*self._reads[stage.name], stage.name]
        if stage.reduction is None:
            keys.append(stage.domain)
        for key in dict.fromkeys(keys):
            noted = self._drafts.setdefault(key, [])
            at = bisect.bisect_left(noted, place)
            if at == len(noted) or noted[at] != place:
                noted.insert(at, place)

    def _find_draft(self, stage: Stage, latest: int) -> int | None:
        """The group with reductions that takes a stage, and has it from here on; what it reads is
        in groups up to `latest`."""
        if stage.name in self._with_rows:
            return None
        places: dict[int, None] = {}
        for key in dict.fromkeys((*self._reads[stage.name], stage.domain)):
            noted = self._drafts.get(key, [])
            first = bisect.bisect_left(noted, latest)
            places |= dict.fromkeys(noted[first : first + _MOST_TRIED])
        for place in sorted(places)[:_MOST_TRIED]:
            found = self.members[place]
            if not isinstance(found, Draft) or not self._room.has(place, stage):
                continue
            first_stage = found.stages[0]
            if first_stage.name in self._with_rows and not _derives(stage, first_stage):
                continue
            if found.join(stage):
                return place
        return None


def _order(stages: Sequence[Stage], results: set[str]) -> list[Stage]:
    """The order to place stages in. Where there are reductions, element-wise results that nobody
    reads come last, so that those over one domain find one pass; and of these, the ones that read
    no reduction last of all."""
    folds = {stage.name for stage in stages if stage.reduction is not None}
    if not folds:
        return list(stages)
    reads = {stage.name: {load.tensor for load in stage.body.loads()} for stage in stages}
    read = {name for names in reads.values() for name in names}

    def rank(stage: Stage) -> int:
        if stage.name in folds or stage.name in read or stage.name not in results:
            return 0
        return 1 if reads[stage.name] & folds else 2

    return sorted(stages, key=rank)


def is_foldable(stage: Stage) -> bool:
    """Whether a stage is a reduction all of whose sizes are known, and none of them is 0."""
    if stage.reduction is None:
        return False
    extents = (*stage.domain, *(extent for _, extent in stage.reduction.axes))
    return all(isinstance(extent, int) and extent for extent in extents)


def _derives(stage: Stage, total: Stage) -> bool:
    """Whether a stage is computed point by point from a reduction over the same domain."""
    return stage.reduction is None and stage.domain == total.domain
