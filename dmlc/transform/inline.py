"""Inlines producers: computes stages where they are read, as far as bodies stay small enough.

Which stages had better be stored is `cost`'s to say; here more of them are, where a body would have
too many instructions, read too many tensors, or compute one stage at too many places.

A read is proved inside over the points of its own stage. Once that stage is computed where another
reads it, at positions that depend on elements, intervals are all there is: of `i - i % 2`, which
no place takes below 0, they say that it may be -1. A clamp to the tensor's size changes nothing
there, since the position is one that the stage itself has been proved at, and proves it anew.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from dmlc.index.intervals import Interval
from dmlc.ir import Body, Function, Index, Instruction, Load, Stage, Tensor, operands, with_operands
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.inside import find_open_reads
from dmlc.ir.ranges import table_ranges
from dmlc.transform.cost import Budget
from dmlc.transform.simplify import is_inlinable, list_live

MOST_PLACES = 16
"""At how many places one reader may compute a stage. Reading each of a chain of stages at several
places would otherwise double the work from stage to stage."""


def inline_stages(reader: Stage, inlined: Mapping[str, Stage]) -> Stage:
    """The reader with every load of an inlined stage replaced by that stage's body, at the place it
    was loaded from; the reader itself where there is none, or too many of one stage.

    What is wanted twice at one place is computed once, so that a chain of a thousand stages
    becomes a body of a thousand steps. Inlined stages have no reduction, and a body of their
    tensor's own type.
    """
    if not any(load.tensor in inlined for load in reader.body.loads()):
        return reader
    made = _inline(reader, inlined)
    return reader if isinstance(made, str) else dataclasses.replace(reader, body=made.body)


# A function --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """The stages that are left, and what became of the others."""

    stages: tuple[Stage, ...]
    """Those that results depend on, in the function's order."""
    computed: Mapping[str, tuple[str, ...]]
    """What each of them computes itself."""
    reasons: Mapping[str, str]
    """Why some of them are not computed where they are read."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Attempt:
    """One stage with what it reads drawn in, and what decided that."""

    asked: frozenset[str]
    """The tensors that were asked for: whether these are inlined decides all."""
    inlined: frozenset[str]
    """Those of them that were."""
    made: _Inlined
    crowded: tuple[str, ...]
    """What it wants at too many places."""

    def holds(self, inlined: Mapping[str, Stage]) -> bool:
        """Whether the same comes of inlining others."""
        return all((name in inlined) == (name in self.inlined) for name in self.asked)


Attempts: TypeAlias = dict[str, _Attempt]
"""By stage, what the last attempt to inline what it reads came to."""


def inline_producers(
    function: Function,
    stored: Mapping[str, str],
    shared: Iterable[str],
    budget: Budget,
    attempts: Attempts | None = None,
) -> Drawn:
    """The function's stages with what they read drawn into them: every inlinable stage but those
    `stored`, each for its reason, those `shared`, and those that would make a body too large.
    `attempts` keeps what came of each stage, for another call with the same function and budget."""
    attempts = {} if attempts is None else attempts
    results = {r.name for r in function.results}
    reasons = dict(stored)
    stages, held = {s.name: s for s in function.stages}, {*stored, *shared}
    inlined = {n: s for n, s in stages.items() if is_inlinable(s) and n not in held}
    bodies: dict[str, _Inlined] = {}
    users: dict[str, list[str]] = {}
    pending = [r.name for r in reversed(function.results)]
    while pending:
        name = pending.pop()
        if name in bodies:
            continue
        attempt = attempts.get(name)
        if attempt is None or not attempt.holds(inlined):
            attempt = attempts[name] = _inline_bounded(stages[name], inlined, budget)
        made, crowded = attempt.made, attempt.crowded
        bodies[name] = made
        for computed in made.computed:
            users.setdefault(computed, []).append(name)
        for gone in (*crowded, *made.left):
            reasons[gone] = (
                f"%{gone} is read at more than {MOST_PLACES} places of one stage"
                if gone in crowded
                else f"%{gone} is stored, for a kernel holds about {budget.most_instructions:,} "
                f"instructions and {budget.most_buffers:,} tensors"
            )
            inlined.pop(gone, None)
            # Whoever has computed it so far reads it instead.
            pending += [u for u in users.pop(gone, []) if bodies.pop(u, None) is not None]
        pending += [load.tensor for load in made.body.loads() if load.tensor in stages]
    kept = (stage for stage in function.stages if stage.name in bodies)
    left = [dataclasses.replace(stage, body=bodies[stage.name].body) for stage in kept]
    computed_in = {name: made.computed for name, made in bodies.items()}
    return Drawn(clamp_reads(function, list_live(left, results)), computed_in, reasons)


def _inline_bounded(stage: Stage, inlined: Mapping[str, Stage], budget: Budget) -> _Attempt:
    """One stage with what it reads drawn in, as far as a budget allows."""
    crowded: dict[str, None] = {}
    asked: set[str] = set()
    tensors = max(2, budget.most_buffers - 1)
    while True:
        own = {n: s for n, s in inlined.items() if n not in crowded} if crowded else inlined
        made = _inline(stage, own, budget.most_instructions, tensors, asked)
        if isinstance(made, str):
            crowded[made] = None
        elif tensors == 1 or len({i.tensor for i in made.body.loads()}) < budget.most_buffers:
            drawn = frozenset(name for name in asked if name in inlined)
            return _Attempt(frozenset(asked), drawn, made, tuple(crowded))
        else:
            tensors -= max(1, tensors // 4)


# A body ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Inlined:
    """A reader that computes what it reads."""

    body: Body
    computed: tuple[str, ...]
    """The stages it computes, in the order they are finished."""
    left: tuple[str, ...]
    """The stages that it loads after all, since with them it would be too large."""


@dataclasses.dataclass(slots=True)
class _Frame:
    """A body being copied, at the positions of a load; None for the reader itself, whose indices
    stay."""

    body: Body
    key: Load | None
    first: int = 0
    """How many instructions there were before it."""
    tensors: int = 0
    """How many tensors were loaded before it."""
    computed: int = 0
    """How many stages were computed before it."""
    numbers: list[int] = dataclasses.field(default_factory=list[int])


def _inline(
    reader: Stage,
    inlined: Mapping[str, Stage],
    most_instructions: int = sys.maxsize,
    most_tensors: int = sys.maxsize,
    asked: set[str] | None = None,
) -> _Inlined | str:
    """A reader that computes inlined stages, but for those that would alone take as many
    instructions, or read as many tensors: these are loaded, and what they are computed from is
    left to them. Or else a stage that it wants at more than `MOST_PLACES` places. The tensors that
    are loaded on the way are added to `asked`.
    """
    asked = set() if asked is None else asked
    instructions: list[Instruction] = []
    numbers: dict[Instruction, int] = {}
    computed: dict[Load, int] = {}
    places: dict[str, int] = {}
    loaded: dict[str, None] = {}
    left: dict[str, None] = {}
    root = _Frame(reader.body, None)
    frames = [root]

    def add(instruction: Instruction) -> int:
        number = numbers.setdefault(instruction, len(instructions))
        if number == len(instructions):
            instructions.append(instruction)
            if isinstance(instruction, Load):
                loaded[instruction.tensor] = None
        return number

    def forget(frame: _Frame) -> None:
        """Undoes what was computed in a frame, for it alone."""
        for instruction in instructions[frame.first :]:
            del numbers[instruction]
        del instructions[frame.first :]
        while len(loaded) > frame.tensors:
            loaded.popitem()
        while len(computed) > frame.computed:
            key, _ = computed.popitem()
            places[key.tensor] -= 1

    while frames:
        frame = frames[-1]
        if len(frame.numbers) == len(frame.body.instructions):
            frames.pop()
            if frame.key is None:
                continue
            size, tensors = len(instructions) - frame.first, len(loaded) - frame.tensors
            if size < most_instructions and tensors < most_tensors:
                computed[frame.key] = frame.numbers[frame.body.result]
                continue
            forget(frame)
            left[frame.key.tensor] = None
            computed[frame.key] = add(frame.key)
            continue
        instruction = frame.body.instructions[len(frame.numbers)]
        moved = with_operands(instruction, tuple([frame.numbers[o] for o in operands(instruction)]))
        if isinstance(moved, Index) and frame.key is not None:
            frame.numbers.append(frame.key.indices[moved.axis])
            continue
        if isinstance(moved, Load):
            asked.add(moved.tensor)
        if not isinstance(moved, Load) or moved.tensor not in inlined or moved.tensor in left:
            frame.numbers.append(add(moved))
        elif moved in computed:
            frame.numbers.append(computed[moved])
        else:
            places[moved.tensor] = places.get(moved.tensor, 0) + 1
            if places[moved.tensor] > MOST_PLACES:
                return moved.tensor
            before = len(instructions), len(loaded), len(computed)
            frames.append(_Frame(inlined[moved.tensor].body, moved, *before))
    guard = None if reader.body.guard is None else root.numbers[reader.body.guard]
    body = Body.make(instructions, root.numbers[reader.body.result], guard)
    read = {load.tensor for load in body.loads()}
    done = dict.fromkeys(key.tensor for key in computed)
    computed_here = tuple(name for name in done if name not in left)
    return _Inlined(body, computed_here, tuple(name for name in left if name in read))


# Clamps ------------------------------------------------------------------------------------


def clamp_reads(function: Function, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages that compute some others of a function themselves, each after what it reads, with
    the reads that this has left without proof clamped to their tensors."""
    known: dict[str, Tensor] = {t.name: t for t in (*function.parameters, *function.tables)}
    reach = table_ranges(function.tables)
    made: list[Stage] = []
    for stage in stages:
        clamped, held = clamp_stage(stage, known, reach)
        if held is not None:
            reach[stage.name] = held
        known[stage.name] = clamped
        made.append(clamped)
    return tuple(made)


def clamp_stage(
    stage: Stage, known: Mapping[str, Tensor], reach: Mapping[str, Interval]
) -> tuple[Stage, Interval | None]:
    """The same of one stage that reads tensors in `known`; the stage itself where all its reads are
    proved. And the interval of its elements. `reach` has that of other tensors, where known."""
    found, held = find_open_reads(stage, known, reach)
    if not found:
        return stage, held
    builder = BodyBuilder()

    def clamp(number: int, moved: Instruction) -> int | None:
        if not isinstance(moved, Load) or number not in found:
            return None
        given = list(moved.indices)
        for axis in found[number]:
            extent = known[moved.tensor].extents[axis]
            last = builder.apply("sub", builder.size(extent), builder.constant(1))
            low = builder.apply("max", given[axis], builder.constant(0))
            given[axis] = builder.apply("min", low, last)
        return builder.add(with_operands(moved, tuple(given)))

    return builder.remake(stage, clamp), held
