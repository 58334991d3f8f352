"""Decides which stages need no memory of their own, and puts the rest into kernels.

Element-wise work that other stages read is computed where it is read, be it a result too, unless
that costs more than storing it (`weigh`) or makes a kernel too large (`draw_in`). What stays is
`grouping`'s; `reasons` says why, and `traffic` what it moves. Where a 16-bit stage is not stored,
its rounding stays (`rounding`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.ir import Function, Stage
from dmlc.transform.budget import Budget
from dmlc.transform.draw_in import Drawn, draw_in
from dmlc.transform.grouping import Plain, find_rows, group_stages
from dmlc.transform.passes import Draft, Pass
from dmlc.transform.reasons import explain
from dmlc.transform.rounding import carry_rounding, read_results, store_rounded
from dmlc.transform.simplify import drop_unsound_pairs, simplify_bodies
from dmlc.transform.store_on_way import Streams
from dmlc.transform.traffic import Move, add_moves, list_moves, total
from dmlc.transform.weigh import weigh

_USUAL = Budget()


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """The stages of one kernel, and the clauses of a sentence that says why they are one.

    Where some of them are reductions, `passes` says in which order they run over the `kept`
    points; the kernels may still be several, where there are too few points to share out.
    """

    stages: tuple[str, ...]
    reasons: tuple[str, ...]
    kept: tuple[int, ...] = ()
    passes: tuple[Pass, ...] = ()
    inlined: tuple[str, ...] = ()
    """The stages that are computed where these read them, and have no memory."""
    near: tuple[str, ...] = ()
    """The stages that take no memory, since nobody else reads them."""
    row: str | None = None
    """The first stage, where it is a reduction that the second alone reads, along its last axis
    only: then a kernel keeps no more than one row of it at a time."""

    @property
    def reason(self) -> str:
        return "; ".join(self.reasons)


@dataclasses.dataclass(frozen=True, slots=True)
class Fusion:
    """A function without the stages that were inlined, and its kernels in execution order."""

    function: Function
    groups: tuple[Group, ...]
    unfused: Function
    """The function with all its stages, and 16-bit roundings written out: what it was made of."""

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


def fuse(function: Function, longest_row: int = 0, budget: Budget = _USUAL) -> Fusion:
    """Inlines what needs no memory of its own and groups the rest into kernels.

    A reduction whose only reader folds it along its last axis, of at most `longest_row` elements,
    is computed row by row in the reader's kernel. What is stored rather than computed again, and
    how large kernels get, `budget` decides.

    Pairs of `in_place` that no longer hold, because a later kernel reads the parameter, are
    dropped. Takes time in proportion to the function's size.
    """
    function = carry_rounding(function)
    parted = _part(function, longest_row, budget)
    left = dataclasses.replace(function, stages=simplify_bodies(parted.drawn.stages))
    fused = read_results(left, parted.homes)
    groups = _describe_groups(fused, parted)
    return Fusion(_store(fused, parted, groups, budget), groups, function)


@dataclasses.dataclass(frozen=True, slots=True)
class _Parted:
    """The stages that are left, and the kernels they are in."""

    drawn: Drawn
    members: Sequence[Plain | Draft]
    """What each kernel has of them."""
    homes: Mapping[str, tuple[int, int]]
    """The kernel of each, and the pass of it."""
    rows: Mapping[str, str]
    """Reductions of which their reader keeps a row, with that reader."""
    read_in: Mapping[str, set[int]]
    """The kernels that read each tensor."""
    reasons: Mapping[str, str]
    """Why some stages are stored, or in kernels of their own."""


def _part(function: Function, longest_row: int, budget: Budget) -> _Parted:
    """Draws in what needs no memory of its own, and groups the rest.

    What several stages share needs none as long as these are in one kernel, which shows when they
    have been grouped. Where some of it is wanted elsewhere, that is shared no longer, and all is
    grouped once more.
    """
    results = {r.name for r in function.results}
    inlinable = {s.name: s for s in function.stages if is_inlinable(s)}
    weighed = weigh(function, inlinable, budget)
    shared = dict(weighed.shared)
    while True:
        drawn = draw_in(function, inlinable, weighed.stored, shared, budget)
        rows = find_rows(drawn.stages, results, longest_row, budget)
        streams = Streams(function, drawn.stages, budget)
        members, homes, apart_for = group_stages(drawn.stages, results, rows, budget, streams)
        read_in = _find_readers(drawn.stages, homes)
        parted = _Parted(drawn, members, homes, rows, read_in, {**drawn.reasons, **apart_for})
        apart = [name for name, is_one in shared.items() if _is_apart(name, is_one, parted)]
        if not apart:
            return parted
        for name in apart:
            del shared[name]


def _is_apart(name: str, is_one: bool, parted: _Parted) -> bool:
    """Whether a shared stage is wanted outside its kernel; `is_one` says that it would not be, but
    for how large kernels get."""
    if name not in parted.homes:
        return False
    home = parted.homes[name][0]
    if is_one and isinstance(parted.members[home], Plain):
        return False
    return bool(parted.read_in.get(name, set()) - {home})


def _describe_groups(fused: Function, parted: _Parted) -> tuple[Group, ...]:
    """The kernels of the stages that are left, with what each computes, keeps at hand and goes
    through, and why."""
    results = {r.name for r in fused.results}
    read_in = _find_readers(fused.stages, parted.homes)
    readers = {reader: row for row, reader in parted.rows.items()}
    stages = {s.name: s for s in fused.stages}
    groups: list[Group] = []
    for place, made_of in enumerate(parted.members):
        found = [stages[s.name] for s in made_of.stages]
        names = tuple(s.name for s in found)
        row = readers.get(names[0])
        whole = names if row is None else (row, *names)
        inlined = tuple(
            dict.fromkeys(n for name in whole for n in parted.drawn.computed[name][::-1])
        )
        inlined = tuple(n for n in inlined if n not in whole)
        near = tuple(n for n in whole if n not in results and read_in.get(n) == {place})
        passes: tuple[Pass, ...] = ()
        kept: tuple[int, ...] = ()
        on_way: list[str] = []
        if isinstance(made_of, Draft):
            passes, kept, on_way = made_of.passes(), made_of.kept, made_of.list_on_way()
        reasons = explain(found, parted.homes, inlined, near, parted.reasons, results, on_way)
        if row is not None:
            passes = (*Draft(stages[row]).passes(), *passes)
            reasons = (*reasons, f"a row of %{row} at a time is kept at hand for it")
        groups.append(Group(whole, reasons, kept, passes, inlined, near, row))
    return tuple(groups)


def _store(fused: Function, parted: _Parted, groups: Sequence[Group], budget: Budget) -> Function:
    """The function of the stages that are left, as they are stored: without pairs of `in_place`
    that no longer hold, and rounded to what memory holds."""
    fused = drop_unsound_pairs(fused)
    pairs = tuple(p for p in fused.in_place if not _is_read_later(p, fused.stages, parted.homes))
    as_they_are = {name for group in groups for name in group.near}
    if budget.paired_types:
        # Kernels with reductions store single elements.
        as_they_are.update(name for group in groups if group.passes for name in group.stages)
    return store_rounded(dataclasses.replace(fused, in_place=pairs), as_they_are)


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
