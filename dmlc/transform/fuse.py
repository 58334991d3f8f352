"""Decides which stages share a kernel, and inlines the stages that need no memory of their own.

Element-wise work that only other stages read is computed where it is read. What stays is grouped:
stages over one domain, none of which needs another's memory, are one kernel. A reader of a 16-bit
result reads what was stored, rounding and all, so that it runs in a later kernel.
"""

from __future__ import annotations

import dataclasses
import math

from dmlc.ir import (
    Body,
    Function,
    Index,
    Instruction,
    Load,
    Parameter,
    Stage,
    operands,
    with_operands,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """The stages of one kernel, and why they are one."""

    stages: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Fusion:
    """A function without the stages that were inlined, and its kernels in execution order."""

    function: Function
    groups: tuple[Group, ...]

    def traffic(self, group: Group) -> tuple[int, int] | None:
        """The bytes a kernel reads and writes when each tensor moves once; None where sizes are
        known at run time only."""
        tensors = self.function.tensors()
        read = {
            load.tensor
            for stage in self.function.stages
            if stage.name in group.stages
            for load in stage.body.loads()
        }
        sizes = [_bytes(tensors[name]) for name in read], [_bytes(tensors[n]) for n in group.stages]
        moved: list[int] = []
        for side in sizes:
            known = [size for size in side if size is not None]
            if len(known) != len(side):
                return None
            moved.append(sum(known))
        return moved[0], moved[1]


def _bytes(tensor: Parameter | Stage) -> int | None:
    extents = tensor.extents if isinstance(tensor, Parameter) else tensor.domain
    sizes = [e for e in extents if isinstance(e, int)]
    if len(sizes) != len(extents):
        return None
    return math.prod(sizes) * tensor.dtype.bytes


def fuse(function: Function) -> Fusion:
    """Inlines what only other stages read and groups the rest into kernels."""
    results = {r.name for r in function.results}
    inlined = {s.name: s for s in function.stages if is_inlinable(s)}
    kept = tuple(
        dataclasses.replace(stage, body=inline(stage, inlined))
        for stage in function.stages
        if stage.name in results or stage.name not in inlined
    )
    made = dataclasses.replace(function, stages=kept)
    return Fusion(made, _group(made))


def is_inlinable(stage: Stage) -> bool:
    """Whether a stage's value can be had without its memory: nothing is folded, and storing it
    rounds nothing."""
    return stage.reduction is None and not stage.dtype.is_storage_only


@dataclasses.dataclass(slots=True)
class _Frame:
    """A body being copied at given positions."""

    body: Body
    positions: tuple[int, ...] | None
    """The values of `i0`, `i1`, ...; None for the stage itself, whose indices stay."""
    key: tuple[str, tuple[int, ...]] | None
    numbers: list[int] = dataclasses.field(default_factory=list[int])


def inline(stage: Stage, inlined: dict[str, Stage]) -> Body:
    """The stage's body with every load of an inlined stage replaced by its computation.

    What is read twice at the same place is computed once, so that a chain of a thousand stages
    becomes a body of a thousand steps.
    """
    instructions: list[Instruction] = []
    values: dict[Instruction, int] = {}
    computed: dict[tuple[str, tuple[int, ...]], int] = {}

    def add(instruction: Instruction) -> int:
        if instruction not in values:
            values[instruction] = len(instructions)
            instructions.append(instruction)
        return values[instruction]

    root = _Frame(stage.body, None, None)
    frames = [root]
    while frames:
        frame = frames[-1]
        if len(frame.numbers) == len(frame.body.instructions):
            frames.pop()
            if frame.key is not None:
                computed[frame.key] = frame.numbers[frame.body.result]
            continue
        instruction = frame.body.instructions[len(frame.numbers)]
        moved = with_operands(instruction, tuple(frame.numbers[o] for o in operands(instruction)))
        if isinstance(moved, Index) and frame.positions is not None:
            frame.numbers.append(frame.positions[moved.axis])
        elif isinstance(moved, Load) and moved.tensor in inlined:
            key = (moved.tensor, moved.indices)
            if key in computed:
                frame.numbers.append(computed[key])
            else:
                frames.append(_Frame(inlined[moved.tensor].body, moved.indices, key))
        else:
            frame.numbers.append(add(moved))
    guard = None if stage.body.guard is None else root.numbers[stage.body.guard]
    return Body.make(instructions, root.numbers[stage.body.result], guard)


def _group(function: Function) -> tuple[Group, ...]:
    members: list[list[Stage]] = []
    reasons: list[str] = []
    home: dict[str, int] = {}
    for stage in function.stages:
        read = [home[load.tensor] for load in stage.body.loads() if load.tensor in home]
        earliest = max(read, default=-1) + 1
        place = next(
            (
                number
                for number in range(earliest, len(members))
                if stage.reduction is None
                and members[number][0].reduction is None
                and members[number][0].domain == stage.domain
            ),
            None,
        )
        if place is None:
            place = len(members)
            members.append([])
            reasons.append(_reason(stage, function, earliest > 0))
        elif len(members[place]) == 1:
            reasons[place] += "; further results over the same domain are computed beside it"
        members[place].append(stage)
        home[stage.name] = place
    return tuple(
        Group(tuple(s.name for s in stages), reason)
        for stages, reason in zip(members, reasons, strict=True)
    )


def _reason(stage: Stage, function: Function, waits: bool) -> str:
    if waits:
        read = ", ".join(
            dict.fromkeys(
                f"%{load.tensor}" for load in stage.body.loads() if function.stage(load.tensor)
            )
        )
        return f"%{stage.name} reads {read} as stored, so that it runs after"
    if stage.reduction is not None:
        return f"%{stage.name} is a reduction"
    return f"%{stage.name} leaves the function, with all that only it reads inlined"
