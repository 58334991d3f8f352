"""What fusion did to a function, as plain data: each stage as a kernel of its own, and then the
kernels there are, the bytes each moves, and why it is one.

Pictures and texts are made from the report, and the manifest from the same counts. Bytes are those
of tensors as a whole, in every pass over them; what caches save is not known here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from dmlc.ir import Apply, Function, Instruction, Stage, value_type
from dmlc.ir.nodes import list_folded
from dmlc.kernel.counts import Steps
from dmlc.kernel.nodes import Access, Buffer, Kernel
from dmlc.kernel.slow import count_points, find_density
from dmlc.kernel.steps import count_steps
from dmlc.program import Figures, Origin, Program, Unfused
from dmlc.scalars import DataType
from dmlc.source import Diagnostic
from dmlc.transform.fuse import Fusion, Group
from dmlc.transform.traffic import Move, add_moves, count_bytes, list_moves, total


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """One of the kernels that compute the stages of a group: what it does, and in how many work
    items."""

    name: str
    """That of the program's kernel."""
    stages: tuple[str, ...]
    """What it computes, or reduces a part of, by name."""
    fresh: tuple[str, ...]
    """Those of `stages` that it computes from their operands. The others it combines from the
    parts that a kernel before it has left in memory."""
    moves: tuple[Move, ...]
    """The bytes read and written, by tensor."""
    parts: tuple[tuple[str, DataType, int | str], ...]
    """Memory between the kernels of its group: name, data type and number of elements."""
    groups: int | None
    """None where a size is known at run time only, as for all counts here."""
    group_size: int
    steps: float | None
    """Loads, and turns of loops without any, of the work item that has most; None also where
    elements of tensors decide."""
    operations: float | None
    """On floats, at the points that take part."""
    count: int | str = 0
    """What work items are for, by number or by sizes that are known at run time: of these, a group
    has `per_group`."""
    per_group: int = 1
    walk: str = ""
    """How work items share the elements out, in words."""
    apart: str = ""
    """Why its group has more kernels than this, in words."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What is computed together: before fusion one stage, after it the stages of one group."""

    stages: tuple[str, ...]
    """What it stores or reduces, by name."""
    inlined: tuple[str, ...]
    """What it computes where it reads it: no memory holds these."""
    near: tuple[str, ...]
    """Those of `stages` that take no memory either: nothing else reads them."""
    kernels: tuple[str, ...]
    """The program's kernels that do it, in order: mostly one. None before fusion."""
    reason: str
    moves: tuple[Move, ...]
    """The bytes read and written, by tensor."""
    figures: tuple[Figures, ...] = ()
    """Of each of `kernels`, where they are for a GPU and sizes are known."""
    launches: tuple[Launch, ...] = ()
    """One for each of `kernels`."""

    def traffic(self) -> tuple[int, int] | None:
        """The bytes read and written in all; None where a size is known at run time only."""
        return total(self.moves)


@dataclasses.dataclass(frozen=True, slots=True)
class Scratch:
    """Memory between kernels: where it lies in the one allocation all share."""

    tensor: str
    bytes: int | None
    """None where a size is known at run time only."""
    offset: int | None
    """In bytes; None where a size is known at run time only: then it has memory of its own."""
    lifetime: tuple[int, int] | None
    """The numbers of the kernels that use it first and last."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """A function before and after fusion."""

    name: str
    before: tuple[Work, ...]
    after: tuple[Work, ...]
    scratch: tuple[Scratch, ...]
    peak_scratch: int | None
    """The bytes of the one allocation that holds all memory between kernels."""
    function: Function
    """The function that was compiled, with the stages of `before`."""
    fusion: Fusion
    """What `after` was made of."""
    warnings: tuple[Diagnostic, ...] = ()
    """What kernels for a GPU do slowly."""

    def traffic(self) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """The bytes read and written in all, before and after."""
        before, after = ([m for w in side for m in w.moves] for side in (self.before, self.after))
        return total(before), total(after)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data for JSON."""
        return {
            "name": self.name,
            "before": [_describe_work(w) for w in self.before],
            "after": [_describe_work(w) for w in self.after],
            "scratch": [dataclasses.asdict(s) for s in self.scratch],
            "peak_scratch": self.peak_scratch,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """A function on its way to a program: as each pass left it."""

    report: Report
    """Of fusion, and of the kernels it led to."""
    passes: tuple[tuple[str, Function], ...]
    """The passes before fusion, in order, and the function after each."""
    program: Program


def make_report(
    function: Function, fusion: Fusion, kernels: Sequence[Sequence[Kernel]], program: Program
) -> Report:
    """The report of a function as it was bound; `kernels` are those that each group has become,
    group by group, and in this order those of the program."""
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
    """What a kernel of a function does, which has that name in its program."""
    counted = count_steps(kernel, function.tables)
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
    """The operations of some stages; None where a size is known at run time only."""
    stages = [stage for stage in map(function.stage, names) if stage is not None]
    for stage in stages:
        axes = () if stage.reduction is None else stage.reduction.axes
        if not all(isinstance(e, int) for e in (*stage.extents, *(e for _, e in axes))):
            return None
    return sum(count_operations(function, stage) for stage in stages)


def count_operations(function: Function, stage: Stage) -> float:
    """The operations on floats of a stage whose sizes are known, at the points that take part. A
    product and its sum are one in FLOAT32."""
    own = sum(
        isinstance(i, Apply) and _is_float(stage.body.instructions[i.operands[0]])
        for i in stage.body.instructions
    )
    if stage.reduction is not None and not stage.dtype.is_integer:
        own += not _sums_products(stage)
    return own * count_points(stage) * find_density(function, stage)


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
    times: int = 1,
) -> list[Origin]:
    """What each kernel was made of, group by group; `counted` are the steps of each for a GPU. The
    kernels run so many times."""
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


def _repeat(traffic: tuple[int, int] | None, times: int) -> tuple[int, int] | None:
    """The bytes that are read and written in so many runs."""
    return None if traffic is None else (traffic[0] * times, traffic[1] * times)


def find_figures(function: Function, kernel: Kernel, steps: Steps | None) -> Figures | None:
    """The figures of a kernel of a function, given what its launch does."""
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
    """The elements of the largest tensor that a kernel of a function writes, at least 1."""
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
    """What a function as it was bound moves with each stage as a kernel of its own."""
    moves = [m for s in function.stages for m in list_moves(function, (s.name,))]
    return Unfused(len(function.stages), total(moves))


def list_kernel_moves(function: Function, kernel: Kernel) -> tuple[Move, ...]:
    """The bytes that a kernel of a function reads and writes, by tensor. What several of its
    passes read counts for each; what stays in registers takes no memory, nor what it computes.
    What is read in no pass, as by kernels of text, is read once."""
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
    """The bytes of memory between two kernels; None where they are known at run time only."""
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
