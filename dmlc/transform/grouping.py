"""Groups the stages that are left after inlining: those of one group share a kernel.

Element-wise stages over one domain, none of which needs another's memory, are one group; so are
reductions with what they read from one another, with the element-wise stages that apply them, and
with further reductions of the same tensors over the same axes (see `passes`). What is inlined
before is `fuse`'s to decide.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dmlc.ir import Index, Stage
from dmlc.ir.positions import find_dependencies
from dmlc.scalars import COMBINERS, DataType
from dmlc.transform.passes import Draft

Members: TypeAlias = "list[Stage] | Draft"


def find_rows(stages: Sequence[Stage], results: set[str], longest_row: int) -> dict[str, str]:
    """The reductions of which only a row at a time is needed, each with its one reader."""
    readers: dict[str, list[Stage]] = {}
    for stage in stages:
        for name in dict.fromkeys(load.tensor for load in stage.body.loads()):
            readers.setdefault(name, []).append(stage)
    found: dict[str, str] = {}
    for stage in stages:
        reader, *others = readers.get(stage.name, [stage])
        length = stage.domain[-1] if stage.domain else None
        short = isinstance(length, int) and length <= longest_row
        alone = not others and stage.name not in results and stage.name not in found.values()
        if short and alone and reader.name not in found.values() and _folds_along(stage, reader):
            found[stage.name] = reader.name
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
    stages: Sequence[Stage], results: set[str], rows: Mapping[str, str]
) -> tuple[list[Members], dict[str, tuple[int, int]]]:
    """The stages of each group, and each stage's group and pass.

    A stage goes to the first group that takes it and runs after, or with, all that it reads. The
    reductions in `rows` go with their readers, which share a kernel with no other reduction.
    """
    reads = {s.name: [load.tensor for load in s.body.loads()] for s in stages}
    for row, reader in rows.items():
        reads[reader] = [n for n in (*reads[row], *reads[reader]) if n != row]
    members: list[Members] = []
    open_groups: dict[object, list[int]] = {}
    homes: dict[str, int] = {}
    for stage in _order([s for s in stages if s.name not in rows], results):
        latest = max((homes.get(name, -1) for name in reads[stage.name]), default=-1)
        place = _find_draft(stage, members, latest, rows)
        if place is None:
            candidates = open_groups.setdefault(stage.domain, [])
            at = bisect.bisect_right(candidates, latest)
            if stage.reduction is None and at < len(candidates):
                place = candidates[at]
            else:
                place = len(members)
                members.append([])
                if stage.reduction is None:
                    candidates.append(place)
            found = members[place]
            if isinstance(found, list):
                found.append(stage)
                if is_foldable(stage):
                    members[place] = Draft(stage)
        homes[stage.name] = place
    placed = {name: (place, 0) for name, place in homes.items()}
    for place, found in enumerate(members):
        if isinstance(found, Draft):
            for number, made in enumerate(found.passes()):
                placed.update({m.stage: (place, number) for m in made.members})
    placed.update({row: placed[reader] for row, reader in rows.items()})
    return members, placed


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


def _find_draft(
    stage: Stage, members: Sequence[Members], latest: int, rows: Mapping[str, str]
) -> int | None:
    """The group with reductions that takes a stage; what it reads is in groups up to `latest`."""
    if stage.name in rows.values():
        return None
    for place in range(max(latest, 0), len(members)):
        found = members[place]
        if not isinstance(found, Draft):
            continue
        first = found.stages[0]
        if first.name in rows.values() and not _derives(stage, first):
            continue
        if found.join(stage):
            return place
    return None


def _derives(stage: Stage, total: Stage) -> bool:
    """Whether a stage is computed point by point from a reduction over the same domain."""
    return stage.reduction is None and stage.domain == total.domain
