"""Report on the fusion of a function, as plain data: each stage as a kernel of its own, and then
the actual kernels, the bytes each moves, and the reasons for it.

Pictures and texts are made from the report, and the manifest from the same counts. Bytes are those
of tensors as a whole, in every pass over them; savings by caches are not counted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from dmlc.ir import Apply, Extent, Function, Instruction, Stage, value_type
from dmlc.ir.index import IndexFacts
from dmlc.ir.nodes import list_folded
from dmlc.ir.slices import find_slices
from dmlc.kernel.counts import Steps
from dmlc.kernel.nodes import Access, Buffer, Kernel
from dmlc.kernel.slow import count_points, find_density
from dmlc.kernel.steps import count_steps
from dmlc.program import Figures, Origin, Program, Unfused
from dmlc.scalars import DataType
from dmlc.source import Diagnostic
from dmlc.transform.fuse import Fusion, Group
from dmlc.transform.keys import guard_choices
from dmlc.transform.scans import find_last, find_scan
from dmlc.transform.traffic import Move, add_moves, count_bytes, list_moves, total


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """Kernel of a group's stages: its work, and its work items."""

    name: str
    """Name of the program's kernel."""
    stages: tuple[str, ...]
    """Names of the stages it computes, or reduces a part of."""
    fresh: tuple[str, ...]
    """Those of `stages` that it computes from their operands. The others are combined from partial
    results that an earlier kernel has stored."""
    moves: tuple[Move, ...]
    """Bytes read and written, by tensor."""
    parts: tuple[tuple[str, DataType, int | str], ...]
    """Memory between the kernels of its group: name, data type and number of elements."""
    groups: int | None
    """Number of groups; None if a size is known only at run time, as for all counts here."""
    group_size: int
    steps: float | None
    """Loads, and iterations of loops without any, of the busiest work item; None also if they
    depend on tensors' elements."""
    operations: float | None
    """Operations on floats, at the points that are not guarded out."""
    count: int | str = 0
    """Number of items of work, or a formula of sizes known at run time: each group has `per_group`
    of them."""
    per_group: int = 1
    walk: str = ""
    """Distribution of the elements over work items, in words."""
    apart: str = ""
    """Reason that its group has several kernels, in words."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Stages computed together: before fusion one stage, after it those of one group."""

    stages: tuple[str, ...]
    """Names of the stages it stores or reduces."""
    inlined: tuple[str, ...]
    """Names of the inlined stages, which take no memory."""
    near: tuple[str, ...]
    """Those of `stages` that take no memory either, since nothing else reads them."""
    kernels: tuple[str, ...]
    """Program's kernels that compute it, in order: mostly one. None before fusion."""
    reason: str
    moves: tuple[Move, ...]
    """Bytes read and written, by tensor."""
    figures: tuple[Figures, ...] = ()
    """Figures of each of `kernels`, if they are for a GPU and sizes are known."""
    launches: tuple[Launch, ...] = ()
    """Launch of each of `kernels`."""

    def traffic(self) -> tuple[int, int] | None:
        """Bytes read and written in all; None if a size is known only at run time."""
        return total(self.moves)


@dataclasses.dataclass(frozen=True, slots=True)
class Scratch:
    """Memory between kernels, with its offset in the shared allocation."""

    tensor: str
    bytes: int | None
    """Size in bytes; None if a size is known only at run time."""
    offset: int | None
    """Offset in bytes; None if a size is known only at run time: it then has memory of its own."""
    lifetime: tuple[int, int] | None
    """Numbers of the kernels that use it first and last."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Function before and after fusion."""

    name: str
    before: tuple[Work, ...]
    after: tuple[Work, ...]
    scratch: tuple[Scratch, ...]
    peak_scratch: int | None
    """Size in bytes of the allocation for all memory between kernels."""
    function: Function
    """Compiled function, with the stages of `before`."""
    fusion: Fusion
    """Fusion that `after` describes."""
    warnings: tuple[Diagnostic, ...] = ()
    """Warnings about slow code of kernels for a GPU."""

    def traffic(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Bytes read and written in all, before and after."""
        before, after = ([m for w in side for m in w.moves] for side in (self.before, self.after))
        return total(before), total(after)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "before": [_describe_work(w) for w in self.before],
            "after": [_describe_work(w) for w in self.after],
            "scratch": [dataclasses.asdict(s) for s in self.scratch],
            "peak_scratch": self.peak_scratch,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """Function on its way to a program: after each pass."""

    report: Report
    """Report of the fusion, and of its kernels."""
    passes: tuple[tuple[str, Function], ...]
    """Passes before fusion, in order, and the function after each."""
    program: Program


def make_report(
    function: Function, fusion: Fusion, kernels: Sequence[Sequence[Kernel]], program: Program
) -> Report:
    """Report of a function as it was bound; `kernels` are those of each group, group by group, and
    in this order those of the program."""
    before = tuple(
        Work((s.name,), (), (), (), "a kernel of its own", list_moves(function, (s.name,)))
        for s in function.stages
    )
    after: list[Work] = []
    sources = iter(program.kernels)
    for group, made in zip(fusion.groups, kernels, strict=True):
        stored = {b.name for kernel in made for b in kernel.buffers}
        near = tuple(n for n in group.local if n not in stored)
        moves = add_moves(m for kernel in made for m in list_kernel_moves(fusion.function, kernel))
        own = [next(sources) for _ in made]
        names = tuple(kernel.name for kernel in own)
        launches = tuple(
            _make_launch(fusion.function, kernel, name)
            for kernel, name in zip(made, names, strict=True)
        )
        figures = tuple(k.origin.figures for k in own if k.origin.figures is not None)
        reason = "; ".join(_list_reasons(group, made[0]))
        after.append(
            Work(group.stages, group.inlined, near, names, reason, moves, figures, launches)
        )
    scratch = tuple(Scratch(t.name, t.bytes, t.offset, t.lifetime) for t in program.scratch)
    peak = program.peak_scratch
    return Report(
        function.name, before, tuple(after), scratch, peak, function, fusion, program.warnings
    )


def _make_launch(function: Function, kernel: Kernel, name: str) -> Launch:
    """Launch of a kernel of a function, which has that name in its program."""
    counted = count_steps(kernel, function.tables, traffic=False)
    fresh = tuple(dict.fromkeys(n for members in kernel.passes for n in members))
    parts = [b for b in kernel.buffers if b.count is not None]
    operations = _count_all_operations(function, fresh)
    read = [b for b in parts if b.access is Access.READ and b.dtype.is_float]
    combined = sum(b.count for b in read if isinstance(b.count, int))
    return Launch(
        name,
        kernel.stages,
        fresh,
        list_kernel_moves(function, kernel),
        tuple((b.name, b.dtype, b.count) for b in parts if b.count is not None),
        None if counted is None else counted.working,
        kernel.launch.group_size,
        None if counted is None else counted.longest,
        None if operations is None else operations + combined,
        kernel.launch.count,
        kernel.launch.per_group,
        kernel.walk,
        kernel.apart,
    )


def _count_all_operations(function: Function, names: Sequence[str]) -> float | None:
    """Operations of some stages; None if a size is known only at run time."""
    stages = [stage for stage in map(function.stage, names) if stage is not None]
    for stage in stages:
        axes = () if stage.reduction is None else stage.reduction.axes
        if not all(isinstance(e, int) for e in (*stage.extents, *(e for _, e in axes))):
            return None
    return sum(count_operations(function, stage) for stage in stages)


def count_operations(function: Function, stage: Stage) -> float:
    """Operations on floats of a stage with known sizes, at the points that are not guarded out; of
    slices, at all points once. A product and its sum count as one in FLOAT32."""
    own = sum(
        isinstance(i, Apply) and _is_float(stage.body.instructions[i.operands[0]])
        for i in stage.body.instructions
    )
    if stage.reduction is not None and not stage.dtype.is_integer:
        own += not _sums_products(stage)
    slices = find_slices(function, stage) if stage.reduction is not None else None
    share = 1 if slices is None else slices.count
    return own * count_points(stage) * find_density(function, stage) / share


def explain_plain(stage: Stage) -> str:
    """Why a reduction whose guard ends its points at an index of the element is no scan; empty for
    others."""
    guarded = guard_choices(stage)
    facts = IndexFacts(guarded)
    lasts = (find_last(facts, condition) for condition in facts.conditions)
    last = next((last for last in lasts if last is not None), None)
    if stage.reduction is None or last is None:
        return ""
    (point, form, _), scan = last, find_scan(stage)
    what = f"%{stage.name} is no scan along {point.name}"
    if stage.is_positional:
        return f"{what}: '{stage.combiner}' gives a position"
    if scan is None:
        own = " and ".join(index.name for index in form.terms)
        return f"{what}: what it reduces depends on {own} in other ways, too"
    if not scan.is_worth_it:
        return f"{what}: an element has {scan.count:,} points or fewer, and that is short"
    return f"{what}: its elements are not the points of whole rows one by one"


def _sums_products(stage: Stage) -> bool:
    """Whether a stage is a sum of products of FLOAT32."""
    body, combiner = stage.body, "" if stage.reduction is None else stage.reduction.combiner
    folded = list_folded(body.instructions, body.result, combiner)
    return len(folded) == 2 and body.dtype is DataType.FLOAT32


def _is_float(instruction: Instruction) -> bool:
    dtype = value_type(instruction)
    return not dtype.is_integer and dtype not in (DataType.INDEX, DataType.BOOL)


def find_origins(
    fusion: Fusion,
    kernels: Sequence[Sequence[Kernel]],
    counted: Sequence[Steps | None] = (),
    times: Extent = 1,
) -> list[Origin]:
    """Origin of each kernel, group by group; `counted` are the steps of each for a GPU. The kernels
    run `times` times; their traffic is not known where that is known only at run time."""
    steps = iter(counted)
    return [
        Origin(
            kernel.stages,
            _list_reasons(group, kernel),
            _repeat(total(list_kernel_moves(fusion.function, kernel)), times),
            find_figures(fusion.function, kernel, next(steps, None)),
        )
        for group, made in zip(fusion.groups, kernels, strict=True)
        for kernel in made
    ]


def _repeat(traffic: tuple[int, int] | None, times: Extent) -> tuple[int, int] | None:
    """Bytes read and written in several runs."""
    if traffic is None or isinstance(times, str):
        return None
    return traffic[0] * times, traffic[1] * times


def find_figures(function: Function, kernel: Kernel, steps: Steps | None) -> Figures | None:
    """Figures of a kernel of a function, from the steps of its launch."""
    if steps is None:
        return None
    return Figures(
        steps.groups,
        steps.threads,
        steps.longest,
        steps.total,
        steps.loads / count_outputs(function, kernel),
    )


def count_outputs(function: Function, kernel: Kernel) -> int:
    """Elements of the largest tensor that a kernel of a function writes, at least 1."""
    tensors = function.tensors()
    sizes = [1]
    for buffer in kernel.buffers:
        if buffer.access is Access.READ:
            continue
        tensor = tensors.get(buffer.name)
        extents = () if tensor is None else tensor.extents
        known = math.prod(e for e in extents if isinstance(e, int))
        count = buffer.count if isinstance(buffer.count, int) else 0
        sizes.append(known if tensor is not None else count)
    return max(sizes)


def count_unfused(function: Function) -> Unfused:
    """Traffic of a function as it was bound, with each stage as a kernel of its own."""
    moves = [m for s in function.stages for m in list_moves(function, (s.name,))]
    return Unfused(len(function.stages), total(moves))


def list_kernel_moves(function: Function, kernel: Kernel) -> tuple[Move, ...]:
    """Bytes that a kernel of a function reads and writes, by tensor. Reads count in each of its
    passes; values in registers and inlined ones take no memory. A tensor read in no pass, as by
    foreign kernels, is read once."""
    tensors = function.tensors()
    read = {b.name for b in kernel.buffers if b.access is not Access.WRITE}
    moves = [
        move
        for members in kernel.passes
        for move in list_moves(function, members)
        if move.tensor in read and move.tensor not in members
    ]
    for buffer in kernel.buffers:
        if buffer.name in read and buffer.name in tensors and not kernel.passes:
            moves.append(Move(buffer.name, count_bytes(tensors[buffer.name])))
        if buffer.count is not None and buffer.name in read:
            moves.append(Move(buffer.name, _count_elements(buffer)))
        if buffer.access is not Access.READ:
            known = tensors.get(buffer.name)
            size = _count_elements(buffer) if known is None else count_bytes(known)
            moves.append(Move(buffer.name, written=size))
    return add_moves(moves)


def _count_elements(buffer: Buffer) -> int | None:
    """Bytes of memory between two kernels; None if known only at run time."""
    return buffer.count * buffer.dtype.bytes if isinstance(buffer.count, int) else None


def _list_reasons(group: Group, kernel: Kernel) -> tuple[str, ...]:
    return (*group.reasons, kernel.apart) if kernel.apart else group.reasons


def _describe_work(work: Work) -> dict[str, Any]:
    traffic = work.traffic()
    return {
        "stages": list(work.stages),
        "inlined": list(work.inlined),
        "near": list(work.near),
        "kernels": list(work.kernels),
        "reason": work.reason,
        "figures": [figures.to_json() for figures in work.figures],
        "moves": [dataclasses.asdict(m) for m in work.moves],
        "bytes_read": None if traffic is None else traffic[0],
        "bytes_written": None if traffic is None else traffic[1],
    }
