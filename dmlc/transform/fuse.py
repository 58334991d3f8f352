"""Decides which stages share a kernel, and which need no memory of their own.

Element-wise work that other stages read is computed where it is read, be it a result too. What
stays is grouped: element-wise stages over one domain, none of which needs another's memory, are
one group; so are reductions with what they read from one another, with the element-wise stages
that apply them, and with further reductions of the same tensors over the same axes (see
`passes`). FLOAT16 and BFLOAT16 stages are read as stored, rounding and all, and so by a later
group.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from dmlc.ir import Function, Parameter, Stage, Table
from dmlc.transform.inline import MOST_PLACES, TooManyPlacesError, inline_stages
from dmlc.transform.passes import Draft, Pass
from dmlc.transform.simplify import drop_unsound_pairs, list_live

_SHOWN = 4
"""Tensors named in a reason, at most."""


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


@dataclasses.dataclass(frozen=True, slots=True)
class Fusion:
    """A function without the stages that were inlined, and its kernels in execution order."""

    function: Function
    groups: tuple[Group, ...]

    def traffic(self, group: Group) -> tuple[int, int] | None:
        """The bytes a group reads and writes, as `count_traffic` counts them. What several of
        its passes read counts for each; a reduction that only the group itself reads takes no
        memory."""
        if not group.passes:
            return count_traffic(self.function, group.stages)
        results = {r.name for r in self.function.results}
        elsewhere = {
            load.tensor
            for stage in self.function.stages
            if stage.name not in group.stages
            for load in stage.body.loads()
        }
        near = [n for n in group.stages if n not in results and n not in elsewhere]
        moved: list[tuple[int, int]] = []
        for members in ([m.stage for m in p.members] for p in group.passes):
            others = [n for n in group.stages if n not in members]
            read = count_traffic(self.function, members, others)
            written = count_traffic(self.function, [n for n in members if n not in near])
            if read is None or written is None:
                return None
            moved.append((read[0], written[1]))
        return sum(r for r, _ in moved), sum(w for _, w in moved)


def fuse(function: Function) -> Fusion:
    """Inlines what needs no memory of its own and groups the rest into kernels.

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
    members, homes = _group(kept, results)
    groups: list[Group] = []
    for made_of in members:
        draft = made_of if isinstance(made_of, Draft) else None
        stages = made_of.stages if isinstance(made_of, Draft) else made_of
        names = tuple(s.name for s in stages)
        reason = _explain(stages, homes, reads, crowded, results)
        if draft is None:
            groups.append(Group(names, reason))
        else:
            groups.append(Group(names, reason, draft.kept, draft.passes()))
    fused = drop_unsound_pairs(dataclasses.replace(function, stages=kept))
    pairs = tuple(p for p in fused.in_place if not _is_read_later(p, kept, homes))
    return Fusion(dataclasses.replace(fused, in_place=pairs), tuple(groups))


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


_Members: TypeAlias = "list[Stage] | Draft"


def _group(
    stages: Sequence[Stage], results: set[str]
) -> tuple[list[_Members], dict[str, tuple[int, int]]]:
    """The stages of each group, and each stage's group and pass.

    A stage goes to the first group that takes it and runs after, or with, all that it reads.
    """
    members: list[_Members] = []
    open_groups: dict[object, list[int]] = {}
    homes: dict[str, int] = {}
    for stage in _order(stages, results):
        latest = max((homes.get(load.tensor, -1) for load in stage.body.loads()), default=-1)
        place = _find_draft(stage, members, latest)
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


def _find_draft(stage: Stage, members: Sequence[_Members], latest: int) -> int | None:
    """The group with reductions that takes a stage; what it reads is in groups up to `latest`."""
    for place in range(max(latest, 0), len(members)):
        found = members[place]
        if isinstance(found, Draft) and found.join(stage):
            return place
    return None


# Reasons -----------------------------------------------------------------------------------


def _list_inlined(function: Function, inlined: Mapping[str, Stage]) -> dict[str, list[str]]:
    """Per stage, the inlined stages that it reads directly, in order."""
    return {
        stage.name: list(
            dict.fromkeys(load.tensor for load in stage.body.loads() if load.tensor in inlined)
        )
        for stage in function.stages
    }


def _explain(
    stages: Sequence[Stage],
    homes: Mapping[str, object],
    reads: Mapping[str, list[str]],
    crowded: Sequence[str],
    results: set[str],
) -> str:
    folds = [s for s in stages if s.reduction is not None]
    first = folds[0] if folds else stages[0]
    clauses: list[str] = []
    if first.reduction is not None:
        clauses.append(f"%{first.name} is a reduction ({first.reduction.combiner})")
    elif first.name in results:
        clauses.append(f"%{first.name} leaves the function")
    elif first.name in crowded:
        clauses.append(f"%{first.name} is read at more than {MOST_PLACES} places of one stage")
    else:
        clauses.append(f"%{first.name} is read as {first.dtype.name}, rounded")
    own = {s.name for s in stages}
    after = [s for s in stages if any(load.tensor in own for load in s.body.loads())]
    others = [s for s in stages if s is not first and s not in after]
    if others:
        clauses.append(f"{_list(s.name for s in others)} {_is(others)} computed beside it")
    if after:
        clauses.append(f"{_list(s.name for s in after)} {_is(after)} computed from it at once")
    waits = dict.fromkeys(
        load.tensor
        for s in stages
        for load in s.body.loads()
        if load.tensor in homes and load.tensor not in own
    )
    if waits:
        clauses.append(f"the kernel runs after {_list(waits)} {_is(list(waits))} stored")
    inlined: dict[str, None] = {}
    pending = [s.name for s in stages]
    while pending:
        for name in reads[pending.pop()]:
            if name not in inlined:
                inlined[name] = None
                pending.append(name)
    for stage in stages:
        inlined.pop(stage.name, None)
    if inlined:
        clauses.append(f"{_list(inlined)} {_is(list(inlined))} computed where read")
    return "; ".join(clauses)


def _list(names: Iterable[str]) -> str:
    """Names as in a sentence: `%a, %b and 7 more`."""
    shown = [f"%{name}" for name in names]
    more = len(shown) - _SHOWN
    if more > 0:
        return f"{', '.join(shown[:_SHOWN])} and {more} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _is(names: Sequence[object]) -> str:
    return "is" if len(names) == 1 else "are"


# Traffic -----------------------------------------------------------------------------------


def count_traffic(
    function: Function, stages: Sequence[str], near: Sequence[str] = ()
) -> tuple[int, int] | None:
    """The bytes that one kernel of these stages reads and writes where it moves every tensor once,
    but for those `near`, which it has at hand; None where a size is known at run time only.

    An element that a stride of 0 repeats is counted once, and a tensor as a whole even where a
    part is read.
    """
    tensors = function.tensors()
    read: dict[str, None] = {}
    for stage in function.stages:
        if stage.name in stages:
            read.update({load.tensor: None for load in stage.body.loads()})
    incoming = [_count_bytes(tensors[name]) for name in read if name not in (*stages, *near)]
    outgoing = [_count_bytes(tensors[name]) for name in stages]
    known_in = [size for size in incoming if size is not None]
    known_out = [size for size in outgoing if size is not None]
    if len(known_in) != len(incoming) or len(known_out) != len(outgoing):
        return None
    return sum(known_in), sum(known_out)


def _count_bytes(tensor: Parameter | Table | Stage) -> int | None:
    extents = tensor.domain if isinstance(tensor, Stage) else tensor.extents
    sizes = [e for e in extents if isinstance(e, int)]
    if len(sizes) != len(extents):
        return None
    if isinstance(tensor, Parameter) and tensor.strides is not None and 0 not in sizes:
        sizes = [n for n, stride in zip(sizes, tensor.strides, strict=True) if stride]
    return math.prod(sizes) * tensor.dtype.bytes
