"""Inlining: computes stages where they are read, as long as bodies stay small enough.

`cost` decides which stages are worth storing; here more are stored, if a body would have too many
instructions, read too many tensors, or compute one stage at too many indices.

A load is proved in bounds over the points of its own stage. Once the stage is inlined at
data-dependent indices, only interval analysis remains, which is weaker: it says of `i - i % 2`,
which is never negative, that it may be -1. The index is then clamped to the tensor. That changes
nothing, as the index has been proved in bounds for the stage itself, and it makes the proof
possible again.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from dmlc.index.intervals import Interval
from dmlc.ir import Body, Function, Index, Instruction, Load, Stage, Tensor, operands, with_operands
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.inside import find_open_reads
from dmlc.ir.ranges import table_ranges
from dmlc.transform.cost import Budget
from dmlc.transform.simplify import is_inlinable, list_live

MOST_PLACES = 16
"""Largest number of indices at which one reader computes a stage. Otherwise the work of a chain of
stages, each read at several indices, would double from stage to stage."""


def inline_stages(reader: Stage, inlined: Mapping[str, Stage]) -> Stage:
    """Reader with the body of each inlined stage in place of its loads, at the loaded index; the
    same object if it loads none of them, or one at too many indices.

    A value needed twice at one index is computed once, so that a chain of a thousand stages becomes
    a body of a thousand steps. Inlined stages have no reduction, and a body of their tensor's own
    type.
    """
    if not any(load.tensor in inlined for load in reader.body.loads()):
        return reader
    made = _inline(reader, inlined)
    return reader if isinstance(made, str) else dataclasses.replace(reader, body=made.body)


# A function --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """The remaining stages after inlining."""

    stages: tuple[Stage, ...]
    """Stages that results depend on, in the function's order."""
    computed: Mapping[str, tuple[str, ...]]
    """Stages inlined into each of them."""
    reasons: Mapping[str, str]
    """Reasons why some stages are not inlined."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Attempt:
    """A stage with its operands inlined, and the inputs of that outcome."""

    asked: frozenset[str]
    """Tensors that were considered: the outcome depends on which of them are inlined."""
    inlined: frozenset[str]
    """Those of them that were inlined."""
    made: _Inlined
    crowded: tuple[str, ...]
    """Stages that it would compute at too many indices."""

    def holds(self, inlined: Mapping[str, Stage]) -> bool:
        """Whether inlining the stages `inlined` would have the same outcome."""
        return all((name in inlined) == (name in self.inlined) for name in self.asked)


Attempts: TypeAlias = dict[str, _Attempt]
"""Last outcome of inlining for each stage."""


def inline_producers(
    function: Function,
    stored: Mapping[str, str],
    shared: Iterable[str],
    budget: Budget,
    attempts: Attempts | None = None,
) -> Drawn:
    """Function's stages with all inlinable stages inlined, except those `stored` (each for its
    reason), those `shared`, and those that would make a body too large. `attempts` caches outcomes
    for further calls with the same function and budget."""
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
            # Stages that have computed it so far read it instead.
            pending += [u for u in users.pop(gone, []) if bodies.pop(u, None) is not None]
        pending += [load.tensor for load in made.body.loads() if load.tensor in stages]
    kept = (stage for stage in function.stages if stage.name in bodies)
    left = [dataclasses.replace(stage, body=bodies[stage.name].body) for stage in kept]
    computed_in = {name: made.computed for name, made in bodies.items()}
    return Drawn(clamp_reads(function, list_live(left, results)), computed_in, reasons)


def _inline_bounded(stage: Stage, inlined: Mapping[str, Stage], budget: Budget) -> _Attempt:
    """Stage with its operands inlined, within a budget."""
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
    """A reader with inlined stages."""

    body: Body
    computed: tuple[str, ...]
    """Inlined stages, in the order they are finished."""
    left: tuple[str, ...]
    """Stages that it loads after all, as it would be too large with them."""


@dataclasses.dataclass(slots=True)
class _BodyCopy:
    """A body being copied at the indices of a load, `key`; the reader itself has None."""

    rest: Iterator[Instruction]
    """Instructions without numbers."""
    result: int
    key: Load | None
    first: int = 0
    """Number of instructions before it."""
    tensors: int = 0
    """Number of tensors loaded before it."""
    computed: int = 0
    """Number of stages computed before it."""
    numbers: list[int] = dataclasses.field(default_factory=list[int])


def _inline(
    reader: Stage,
    inlined: Mapping[str, Stage],
    most_instructions: int = sys.maxsize,
    most_tensors: int = sys.maxsize,
    asked: set[str] | None = None,
) -> _Inlined | str:
    """Reader with inlined stages, except those that alone would exceed `most_instructions` or
    `most_tensors`: these are loaded, and keep their own inlined operands. Returns instead the name
    of a stage that it would compute at more than `MOST_PLACES` indices. Tensors considered are
    added to `asked`."""
    asked = set() if asked is None else asked
    instructions: list[Instruction] = []
    numbers: dict[Instruction, int] = {}
    computed: dict[Load, int] = {}
    places: dict[str, int] = {}
    loaded: dict[str, None] = {}
    left: dict[str, None] = {}
    root = _BodyCopy(iter(reader.body.instructions), reader.body.result, None)
    frames = [root]

    def add(instruction: Instruction) -> int:
        number = numbers.setdefault(instruction, len(instructions))
        if number == len(instructions):
            instructions.append(instruction)
            if isinstance(instruction, Load):
                loaded[instruction.tensor] = None
        return number

    def forget(frame: _BodyCopy) -> None:
        """Discards the values computed for one frame alone."""
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
        key, known = frame.key, frame.numbers
        for instruction in frame.rest:
            if isinstance(instruction, Index) and key is not None:
                known.append(key.indices[instruction.axis])
                continue
            moved = with_operands(instruction, tuple([known[o] for o in operands(instruction)]))
            if isinstance(moved, Load):
                asked.add(moved.tensor)
            if not isinstance(moved, Load) or moved.tensor not in inlined or moved.tensor in left:
                known.append(add(moved))
            elif moved in computed:
                known.append(computed[moved])
            else:
                places[moved.tensor] = places.get(moved.tensor, 0) + 1
                if places[moved.tensor] > MOST_PLACES:
                    return moved.tensor
                before = len(instructions), len(loaded), len(computed)
                body = inlined[moved.tensor].body
                frames.append(_BodyCopy(iter(body.instructions), body.result, moved, *before))
                break
        else:
            frames.pop()
            if key is None:
                continue
            size, tensors = len(instructions) - frame.first, len(loaded) - frame.tensors
            if size < most_instructions and tensors < most_tensors:
                computed[key] = known[frame.result]
            else:
                forget(frame)
                left[key.tensor] = None
                computed[key] = add(key)
            frames[-1].numbers.append(computed[key])
    guard = None if reader.body.guard is None else root.numbers[reader.body.guard]
    body = Body.make(instructions, root.numbers[reader.body.result], guard)
    read = {load.tensor for load in body.loads()}
    done = dict.fromkeys(key.tensor for key in computed)
    computed_here = tuple(name for name in done if name not in left)
    return _Inlined(body, computed_here, tuple(name for name in left if name in read))


# Clamps ------------------------------------------------------------------------------------


def clamp_reads(function: Function, stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages with inlined operands, in order, whose loads that are no longer proved in bounds have
    their indices clamped to the tensors."""
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
    """Stage whose loads of tensors in `known` are proved in bounds or clamped (the same object if
    all are proved), and the interval of its elements. `reach` has the intervals of other tensors,
    where known."""
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
