"""Grouping of the stages that remain after inlining: stages of one group share a kernel.

Element-wise stages over one domain, none of which needs another's memory, are one group. So are
reductions with the reductions they depend on, with element-wise stages that use or feed them, and
with further reductions of the same tensors over the same axes (see `passes`). `fuse` decides what
is inlined before.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from dmlc.ir import Function, Index, Stage, reads_own_place
from dmlc.ir.index import find_dependencies
from dmlc.scalars import DataType
from dmlc.transform.cost import Budget, is_product
from dmlc.transform.crossing import cross
from dmlc.transform.online import Online, OnlineGroup, find_online
from dmlc.transform.orders import find_orders
from dmlc.transform.passes import Draft, Streams
from dmlc.transform.scatter import Keyed

_MOST_TRIED = 16
"""Largest number of candidate groups tried for one stage."""
_MOST_BETWEEN = 32
"""Largest number of groups between two that are merged."""


class Plain:
    """A group of element-wise stages over one domain, under construction."""

    def __init__(self, first: Stage) -> None:
        self.stages = {first.name: first}

    def join(self, stage: Stage) -> bool:
        """Adds a stage over the same domain, if it reads the group's stages at its own index only,
        so that they are local values of the kernel."""
        for load in stage.body.loads():
            source = self.stages.get(load.tensor)
            if source is None:
                continue
            if source.dtype.is_storage_only or not reads_own_place(stage, load):
                return False
        self.stages[stage.name] = stage
        return True


class Ordered(Draft):
    """A group of a scan, or of ranks and the stages that sort by them."""

    def __init__(self, ranks: Stage, readers: Sequence[Stage]) -> None:
        super().__init__(ranks)
        for stage in readers:
            if stage.reduction is None:
                super().join(stage)
            else:
                self.take(stage, 1)

    def join(self, stage: Stage) -> bool:
        """Whether the stage is part of the group already; no other can join."""
        return stage.name in self.stages


Members: TypeAlias = Plain | Draft | OnlineGroup


class _Room:
    """Resources of a kernel that a group uses."""

    def __init__(
        self, function: Function, reads: Mapping[str, Sequence[str]], budget: Budget
    ) -> None:
        self._budget = budget
        self._function = function
        self._reads = reads
        self._instructions = 0
        self._stages: dict[str, None] = {}
        self._tensors: dict[str, None] = {}

    def has(self, stage: Stage) -> bool:
        """Whether a stage fits."""
        other = _Room(self._function, self._reads, self._budget)
        other.take(stage)
        return self.has_all(other)

    def has_all(self, other: _Room, parts: int = 0) -> bool:
        """Whether another group fits, with `parts` further tensors between the two."""
        if self._instructions + other._instructions > self._budget.most_instructions:
            return False
        whole = len(self._tensors | other._tensors) + parts
        if whole <= self._budget.most_buffers:
            return True
        # Stages that only the group reads are not stored.
        stages, readers = self._stages | other._stages, self._function.readers()
        near = [
            name
            for name in stages
            if self._function.result(name) is None
            and all(reader in stages for reader in readers.get(name, ()))
        ]
        return whole - len(near) <= self._budget.most_buffers

    def take(self, stage: Stage) -> None:
        self._instructions += len(stage.body.instructions)
        self._stages[stage.name] = None
        self._tensors |= dict.fromkeys((stage.name, *self._reads[stage.name]))


def group_stages(function: Function, longest_row: int, budget: Budget) -> Grouping:
    """Grouping of a function's remaining stages. A stage joins the first group that accepts it and
    runs no earlier than all its operands. A reduction that is needed one row at a time joins its
    reader, whose kernel has no other reduction."""
    orders = find_orders(function, budget)
    ordered = {o.names[0]: o.names for o in orders if not isinstance(o, Keyed)}
    found = _find_rows(function, longest_row, budget)
    online = find_online(function, budget)
    taken = {name for stages in ordered.values() for name in stages}
    taken |= {member.stage for each in online for member in each.members}
    kept = {row: reader for row, reader in found.items() if row not in taken}
    grouping = Grouping(function, kept, budget, ordered, online)
    for stage in _order(function, grouping.rows):
        grouping.place(stage)
    if budget.held:
        grouping.cross()
    return grouping


def group_apart(function: Function, budget: Budget) -> Grouping:
    """Each stage of a function in a group of its own."""
    grouping = Grouping(function, {}, budget)
    for stage in function.stages:
        grouping.start(stage)
    return grouping


def _find_rows(function: Function, longest_row: int, budget: Budget) -> dict[str, str]:
    """Reductions that are needed one row at a time, of at most `longest_row` elements, each with
    its only reader."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for stage in function.stages:
        names = function.readers().get(stage.name, ())
        alone = len(names) == 1 and function.result(stage.name) is None
        reader = function.stage(names[0]) if alone else None
        if reader is None or not taken.isdisjoint((stage.name, *names)):
            continue
        length = stage.extents[-1] if stage.extents else None
        short = isinstance(length, int) and length <= longest_row
        is_open = any(isinstance(extent, str) for extent in stage.sizes)
        # The merged stage reads as many tensors: without the row, but with the result.
        read = {load.tensor for s in (stage, reader) for load in s.body.loads()}
        fits = len(read) <= budget.most_buffers
        if short and not is_open and fits and _reduces_along(stage, reader):
            found[stage.name] = reader.name
            taken.add(reader.name)
    return found


def _reduces_along(row: Stage, reader: Stage) -> bool:
    """Whether a stage reduces another reduction along its last axis, at its own index otherwise."""
    plain = row is not reader and is_fixed_reduction(row) and is_fixed_reduction(reader)
    if not plain or row.dtype.is_storage_only or is_product(row) or is_product(reader):
        return False
    if len(row.extents) != len(reader.extents) or row.extents[:-1] != reader.extents[:-1]:
        return False
    if any(s.is_positional for s in (row, reader)):
        return False
    last = Index(len(reader.extents) - 1)
    dependencies = find_dependencies(reader.body)
    for load in reader.body.loads():
        if load.tensor != row.name:
            continue
        *outer, along = load.indices
        for axis, position in enumerate(outer):
            only = reader.extents[axis] == 1 and not dependencies[position]
            if reader.body.instructions[position] != Index(axis) and not only:
                return False
        if any(i != last and not i.reduced for i in dependencies[along]):
            return False
    return DataType.BOOL not in (row.dtype, reader.dtype)


class Grouping:
    """Groups under construction."""

    def __init__(
        self,
        function: Function,
        rows: Mapping[str, str],
        budget: Budget,
        ordered: Mapping[str, Sequence[str]] = MappingProxyType({}),
        online: Sequence[Online] = (),
    ) -> None:
        self._ordered = ordered
        """Stages of kernels made from text: those of ranks or of a scan, by its first."""
        self._online = {member.stage: each for each in online for member in each.members}
        """Patterns that kernels compute online, by each of their stages."""
        self._seen: set[str] = set()
        """Stages of these patterns placed so far."""
        self.members: list[Members] = []
        """The groups."""
        self.rows = rows
        """Reductions of which their reader keeps one row, by name, with that reader."""
        self.reasons: dict[str, str] = {}
        """Reasons why some stages are not in the expected group."""
        self._streams = Streams(function, budget)
        self._function, self._budget = function, budget
        self._reads = {s.name: [load.tensor for load in s.body.loads()] for s in function.stages}
        for row, reader in rows.items():
            self._reads[reader] = [n for n in (*self._reads[row], *self._reads[reader]) if n != row]
        self._with_rows = set(rows.values())
        self._homes: dict[str, int] = {}
        self._rooms: list[_Room] = []
        self._noted: dict[tuple[type[Members], object], list[int]] = {}
        """Numbers of groups that later stages may join, ascending, by group class and key."""

    def place(self, stage: Stage) -> None:
        """Adds a stage to a group, or to a new one."""
        if stage.name in self._ordered:
            # A group of ranks and their readers, which read the same tensors as the ranks.
            readers = map(self._function.stage, self._ordered[stage.name][1:])
            group = Ordered(stage, [reader for reader in readers if reader is not None])
            place = self.start(stage)
            self.members[place] = group
            self._homes |= dict.fromkeys(group.stages, place)
        if stage.name in self._online:
            self._start_online(stage, self._online[stage.name])
            return
        if stage.name in self._homes:
            return
        latest = max((self._homes.get(name, -1) for name in self._reads[stage.name]), default=-1)
        place = self._reduce_on_way(stage, latest)
        if place is None:
            candidates = self._list_candidates(stage, latest)
            place = next((p for p in candidates if self._join(p, stage)), None)
        if place is None:
            place = self.start(stage)
        self._rooms[place].take(stage)
        self._homes[stage.name] = place
        self._note(place, stage)

    def start(self, stage: Stage) -> int:
        """Starts a group with a stage; returns its number."""
        place = self._homes[stage.name] = len(self.members)
        reduces = is_fixed_reduction(stage)
        self.members.append(Draft(stage, self._streams) if reduces else Plain(stage))
        self._rooms.append(_Room(self._function, self._reads, self._budget))
        return place

    def _start_online(self, stage: Stage, found: Online) -> None:
        """Starts a group of an online pattern, once all its stages have been placed."""
        self._seen.add(stage.name)
        if not self._seen.issuperset(m.stage for m in found.members):
            return
        place = self.start(stage)
        self.members[place] = row = OnlineGroup(self._function, found, self._budget)
        for each in row.stages.values():
            self._rooms[place].take(each)
            self._homes[each.name] = place
            self._note(place, each)

    def cross(self) -> None:
        """Merges groups that reduce the outer axes of tensors into groups that reduce the inner
        axes."""
        left: list[Members | None] = list(self.members)
        noted: dict[str, list[int]] = {}
        """Groups with reductions, by the tensors they read at each of their points."""
        for place, found in enumerate(self.members):
            if not isinstance(found, Draft) or not self._with_rows.isdisjoint(found.stages):
                continue
            names = sorted(found.list_whole())
            others = dict.fromkeys(p for name in names for p in noted.get(name, [])[-_MOST_TRIED:])
            for other in others:
                if self._cross_pair(place, other, left) or self._cross_pair(other, place, left):
                    break
            for name in names:
                noted.setdefault(name, []).append(place)
        there = [place for place, found in enumerate(left) if found is not None]
        numbers = {place: number for number, place in enumerate(there)}
        self.members = [found for found in left if found is not None]
        self._homes = {name: numbers[place] for name, place in self._homes.items()}

    def _cross_pair(self, rows: int, columns: int, left: list[Members | None]) -> bool:
        """Merges one group into another. The result takes the later group's place, unless a group
        between reads results of the earlier one; then the earlier place, if the later one reads
        nothing of those between."""
        first, last = sorted((rows, columns))
        early, late, taking, taken = (left[place] for place in (first, last, rows, columns))
        between = [left[place] for place in range(first + 1, min(last, first + 1 + _MOST_BETWEEN))]
        if not isinstance(taking, Draft) or not isinstance(taken, Draft):
            return False
        if last - first > _MOST_BETWEEN or early is None or late is None:
            return False
        others = [group for group in between if group is not None]
        if not any(self._reads_of(group, early) for group in others):
            place = last
        elif not any(self._reads_of(late, group) for group in others):
            place = first
        else:
            return False
        parts = sum(stage.reduction is not None for stage in taken.stages.values())
        room = self._rooms[rows].has_all(self._rooms[columns], parts)
        if not room or not cross(taking, taken, self._budget):
            return False
        left[first] = left[last] = None
        left[place] = taking
        self._homes |= dict.fromkeys(taking.stages, place)
        return True

    def _reads_of(self, reader: Members, group: Members) -> bool:
        """Whether a group reads stages of another."""
        return any(name in group.stages for each in reader.stages for name in self._reads[each])

    def find_homes(self) -> dict[str, tuple[int, int]]:
        """Group and pass of each stage."""
        placed = {name: (place, 0) for name, place in self._homes.items()}
        for place, found in enumerate(self.members):
            if isinstance(found, Draft):
                placed |= {name: (place, number) for name, number in found.homes.items()}
        return placed | {row: placed[reader] for row, reader in self.rows.items()}

    def _reduce_on_way(self, stage: Stage, latest: int) -> int | None:
        """Group of element-wise stages that a reduction reads, which becomes a group that reduces
        them as it stores them; None if there is none."""
        if latest < 0 or not is_fixed_reduction(stage) or stage.name in self._with_rows:
            return None
        found = self.members[latest]
        if not isinstance(found, Plain) or not self._rooms[latest].has(stage):
            return None
        started = Draft.start_on_way(stage, tuple(found.stages.values()), self._streams)
        if started is None:
            return None
        draft, refusal = started
        if refusal is not None:
            self.reasons[stage.name] = refusal
            return None
        self.members[latest] = draft
        for each in found.stages.values():
            self._note(latest, each)
        return latest

    def _note(self, place: int, stage: Stage) -> None:
        """Registers a group for later stages that may join it."""
        kind = type(self.members[place])
        keys: list[object] = [] if kind is Plain else [*self._reads[stage.name], stage.name]
        keys.append((stage.extents, stage.sizes))
        for key in dict.fromkeys(keys):
            noted = self._noted.setdefault((kind, key), [])
            at = bisect.bisect_left(noted, place)
            if at == len(noted) or noted[at] != place:
                noted.insert(at, place)

    def _list_candidates(self, stage: Stage, latest: int) -> Iterator[int]:
        """Groups that a stage may join, those with reductions first; its operands are in groups up
        to `latest`."""
        if stage.name not in self._with_rows:
            keys = dict.fromkeys((*self._reads[stage.name], (stage.extents, stage.sizes)))
            kinds: tuple[type[Members], ...] = (Draft, OnlineGroup)
            noted = (self._list_noted(kind, key, latest) for kind in kinds for key in keys)
            found = {place for places in noted for place in places}
            yield from sorted(found)[:_MOST_TRIED]
        if stage.reduction is None:
            places = self._list_noted(Plain, (stage.extents, stage.sizes), latest)
            yield from (place for place in places if isinstance(self.members[place], Plain))

    def _list_noted(self, kind: type[Members], key: object, latest: int) -> list[int]:
        noted = self._noted.get((kind, key), [])
        first = bisect.bisect_left(noted, latest)
        return noted[first : first + _MOST_TRIED]

    def _join(self, place: int, stage: Stage) -> bool:
        """Adds a stage to a group, if that accepts it. A group with a line buffer accepts only
        element-wise stages over the result's domain."""
        first = next(iter(self.members[place].stages.values()))
        derives = stage.reduction is None and stage.extents == first.extents
        if first.name in self._with_rows and not derives:
            return False
        return self._rooms[place].has(stage) and self.members[place].join(stage)


def _order(function: Function, rows: Mapping[str, str]) -> list[Stage]:
    """Stages in the order of placement, without `rows`. If there are reductions, element-wise
    results that no stage reads come last, so that those over one domain share a pass; among these,
    those that read no reduction come last."""
    totals = {s.name for s in function.stages if s.reduction is not None and s.name not in rows}

    def rank(stage: Stage) -> int:
        ends = stage.name not in function.readers() and function.result(stage.name) is not None
        if not totals or stage.name in totals or not ends:
            return 0
        return 1 if any(load.tensor in totals for load in stage.body.loads()) else 2

    return sorted((s for s in function.stages if s.name not in rows), key=rank)


def is_fixed_reduction(stage: Stage) -> bool:
    """Whether a stage is a reduction with no extent 0."""
    return stage.reduction is not None and 0 not in stage.sizes
