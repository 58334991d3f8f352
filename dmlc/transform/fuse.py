"""Decides which stages need no memory of their own, and puts the rest into kernels.

Element-wise work that other stages read is computed where it is read, be it a result too. What
stays is `grouping`'s; `reasons` says why, and `traffic` what it moves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.ir import Function, Stage
from dmlc.transform.grouping import find_rows, group_stages
from dmlc.transform.inline import TooManyPlacesError, inline_stages
from dmlc.transform.passes import Draft, Pass
from dmlc.transform.reasons import explain
from dmlc.transform.simplify import drop_unsound_pairs, list_live
from dmlc.transform.traffic import Move, add_moves, list_moves, total


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """The stages of one kernel, and a sentence that says why they are one.

    Where some of them are reductions, `passes` says in which order they run over the `kept`
    points; the kernels may still be several, where there are too few points to share out.
    """

    stages: tuple[str, ...]
    reason: str
    kept: tuple[int, ...] = ()
    passes: tuple[Pass, ...] = ()
    inlined: tuple[str, ...] = ()
    """The stages that are computed where these read them, and have no memory."""
    near: tuple[str, ...] = ()
    """The stages that take no memory, since nobody else reads them."""
    row: str | None = None
    """The first stage, where it is a reduction that the second alone reads, along its last axis
    only: then a kernel keeps no more than one row of it at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fusion:
    """A function without the stages that were inlined, and its kernels in execution order."""

    function: Function
    groups: tuple[Group, ...]
    unfused: Function
    """The function with all its stages: what it was made of."""

    def traffic(self, group: Group) -> tuple[int, int] | None:
        """The bytes a group reads and writes; None where a size is known at run time only."""
        return total(self.list_moves(group))

    def list_moves(self, group: Group) -> tuple[Move, ...]:
        """The bytes a group reads and writes, by tensor. What several of its passes read counts
        for each; a reduction that only the group itself reads takes no memory."""
        passes = [[m.stage for m in p.members] for p in group.passes] or [list(group.stages)]
        moves: list[Move] = []
        for members in passes:
            others = [n for n in group.stages if n not in members]
            moves += list_moves(self.function, members, {*group.near, *others})
        return add_moves(moves)


def fuse(function: Function, longest_row: int = 0) -> Fusion:
    """Inlines what needs no memory of its own and groups the rest into kernels.

    A reduction whose only reader folds it along its last axis, of at most `longest_row` elements,
    is computed row by row in the reader's kernel.

    Pairs of `in_place` that no longer hold, because a later kernel reads the parameter, are
    dropped.
    """
    results = {r.name for r in function.results}
    inlined = {s.name: s for s in function.stages if is_inlinable(s)}
    crowded: list[str] = []
    made: list[Stage] | None = None
    while made is None:
        try:
            made = [
                dataclasses.replace(stage, body=inline_stages(stage, inlined))
                for stage in function.stages
                if stage.name in results or stage.name not in inlined
            ]
        except TooManyPlacesError as found:
            del inlined[found.stage]
            crowded.append(found.stage)
    kept = list_live(made, results)
    reads = _list_inlined(function, inlined)
    rows = find_rows(kept, results, longest_row)
    members, homes = group_stages(kept, results, rows)
    read_in = _find_readers(kept, homes)
    groups: list[Group] = []
    for place, made_of in enumerate(members):
        draft = made_of if isinstance(made_of, Draft) else None
        stages = made_of.stages if isinstance(made_of, Draft) else made_of
        names = tuple(s.name for s in stages)
        row = next((name for name, reader in rows.items() if reader == names[0]), None)
        whole = names if row is None else (row, *names)
        computed = _list_computed(whole, reads)
        reason = explain(stages, homes, computed, crowded, results)
        if draft is None:
            groups.append(Group(names, reason, inlined=computed))
            continue
        passes = draft.passes()
        if row is not None:
            passes = (*Draft(_named(kept, row)).passes(), *passes)
            reason += f"; a row of %{row} at a time is kept at hand for it"
        near = tuple(n for n in whole if n not in results and read_in.get(n) == {place})
        groups.append(Group(whole, reason, draft.kept, passes, computed, near, row))
    fused = drop_unsound_pairs(dataclasses.replace(function, stages=kept))
    pairs = tuple(p for p in fused.in_place if not _is_read_later(p, kept, homes))
    return Fusion(dataclasses.replace(fused, in_place=pairs), tuple(groups), function)


def is_inlinable(stage: Stage) -> bool:
    """Whether a stage's value can be had without its memory: nothing is folded, and storing it
    rounds nothing."""
    return stage.reduction is None and not stage.dtype.is_storage_only


def _is_read_later(
    pair: tuple[str, str], stages: Sequence[Stage], homes: Mapping[str, tuple[int, int]]
) -> bool:
    """Whether what runs after the result's kernel, or pass of it, reads the parameter it would
    overwrite."""
    result, parameter = pair
    return any(
        load.tensor == parameter and homes[stage.name] > homes[result]
        for stage in stages
        for load in stage.body.loads()
    )


def _find_readers(
    stages: Sequence[Stage], homes: Mapping[str, tuple[int, int]]
) -> dict[str, set[int]]:
    """The groups that read each tensor."""
    found: dict[str, set[int]] = {}
    for stage in stages:
        for load in stage.body.loads():
            found.setdefault(load.tensor, set()).add(homes[stage.name][0])
    return found


def _list_inlined(function: Function, inlined: Mapping[str, Stage]) -> dict[str, list[str]]:
    """Per stage, the inlined stages that it reads directly, in order."""
    return {
        stage.name: list(
            dict.fromkeys(load.tensor for load in stage.body.loads() if load.tensor in inlined)
        )
        for stage in function.stages
    }


def _list_computed(stages: Sequence[str], reads: Mapping[str, list[str]]) -> tuple[str, ...]:
    """What some stages compute where they read it, the last first."""
    found: dict[str, None] = {}
    pending = list(stages)
    while pending:
        for name in reads[pending.pop()]:
            if name not in found:
                found[name] = None
                pending.append(name)
    return tuple(name for name in found if name not in stages)


def _named(stages: Sequence[Stage], name: str) -> Stage:
    return next(s for s in stages if s.name == name)
