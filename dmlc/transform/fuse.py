"""Decides which stages share a kernel, and which need no memory of their own.

Element-wise work that other stages read is computed where it is read, be it a result too. What
stays is grouped: element-wise stages over one domain, none of which needs another's memory, are
one kernel. FLOAT16 and BFLOAT16 stages are read as stored, rounding and all, and so in a later
kernel; a reduction has a kernel of its own.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dmlc.ir import Function, Parameter, Stage
from dmlc.transform.inline import MOST_PLACES, TooManyPlacesError, inline_stages
from dmlc.transform.simplify import drop_unsound_pairs, list_live

_SHOWN = 4
"""Tensors named in a reason, at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """The stages of one kernel, and a sentence that says why they are one."""

    stages: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Fusion:
    """A function without the stages that were inlined, and its kernels in execution order."""

    function: Function
    groups: tuple[Group, ...]

    def traffic(self, group: Group) -> tuple[int, int] | None:
        """The bytes a kernel reads and writes, as `count_traffic` counts them."""
        return count_traffic(self.function, group.stages)


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
    members, homes = _group(kept)
    groups = tuple(
        Group(
            tuple(s.name for s in stages),
            _explain(stages, homes, reads, crowded, results),
        )
        for stages in members
    )
    fused = drop_unsound_pairs(dataclasses.replace(function, stages=kept))
    pairs = tuple(p for p in fused.in_place if not _is_read_later(p, kept, homes))
    return Fusion(dataclasses.replace(fused, in_place=pairs), groups)


def is_inlinable(stage: Stage) -> bool:
    """Whether a stage's value can be had without its memory: nothing is folded, and storing it
    rounds nothing."""
    return stage.reduction is None and not stage.dtype.is_storage_only


def _is_read_later(
    pair: tuple[str, str], stages: Sequence[Stage], homes: Mapping[str, int]
) -> bool:
    """Whether a kernel after the result's reads the parameter it would overwrite."""
    result, parameter = pair
    return any(
        load.tensor == parameter and homes[stage.name] > homes[result]
        for stage in stages
        for load in stage.body.loads()
    )


def _group(stages: Sequence[Stage]) -> tuple[list[list[Stage]], dict[str, int]]:
    """The stages of each kernel, and each stage's kernel. A stage goes to the first kernel over
    its domain that runs after all that it reads."""
    members: list[list[Stage]] = []
    open_groups: dict[object, list[int]] = {}
    homes: dict[str, int] = {}
    for stage in stages:
        earliest = 1 + max((homes.get(load.tensor, -1) for load in stage.body.loads()), default=-1)
        candidates = open_groups.setdefault(stage.domain, [])
        at = bisect.bisect_left(candidates, earliest)
        if stage.reduction is None and at < len(candidates):
            place = candidates[at]
        else:
            place = len(members)
            members.append([])
            if stage.reduction is None:
                candidates.append(place)
        members[place].append(stage)
        homes[stage.name] = place
    return members, homes


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
    homes: Mapping[str, int],
    reads: Mapping[str, list[str]],
    crowded: Sequence[str],
    results: set[str],
) -> str:
    first, *others = stages
    clauses: list[str] = []
    if first.reduction is not None:
        clauses.append(f"%{first.name} is a reduction ({first.reduction.combiner})")
    elif first.name in results:
        clauses.append(f"%{first.name} leaves the function")
    elif first.name in crowded:
        clauses.append(f"%{first.name} is read at more than {MOST_PLACES} places of one stage")
    else:
        clauses.append(f"%{first.name} is read as {first.dtype.name}, rounded")
    if others:
        clauses.append(f"{_list(s.name for s in others)} {_is(others)} computed beside it")
    waits = dict.fromkeys(
        load.tensor for s in stages for load in s.body.loads() if load.tensor in homes
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


def count_traffic(function: Function, stages: Sequence[str]) -> tuple[int, int] | None:
    """The bytes that one kernel of these stages reads and writes where it moves every tensor once;
    None where a size is known at run time only.

    An element that a stride of 0 repeats is counted once, and a tensor as a whole even where a
    part is read.
    """
    tensors = function.tensors()
    read: dict[str, None] = {}
    for stage in function.stages:
        if stage.name in stages:
            read.update({load.tensor: None for load in stage.body.loads()})
    incoming = [_count_bytes(tensors[name]) for name in read if name not in stages]
    outgoing = [_count_bytes(tensors[name]) for name in stages]
    known_in = [size for size in incoming if size is not None]
    known_out = [size for size in outgoing if size is not None]
    if len(known_in) != len(incoming) or len(known_out) != len(outgoing):
        return None
    return sum(known_in), sum(known_out)


def _count_bytes(tensor: Parameter | Stage) -> int | None:
    extents = tensor.extents if isinstance(tensor, Parameter) else tensor.domain
    sizes = [e for e in extents if isinstance(e, int)]
    if len(sizes) != len(extents):
        return None
    if isinstance(tensor, Parameter) and tensor.strides is not None and 0 not in sizes:
        sizes = [n for n, stride in zip(sizes, tensor.strides, strict=True) if stride]
    return math.prod(sizes) * tensor.dtype.bytes
