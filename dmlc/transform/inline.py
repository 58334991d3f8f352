"""Replaces loads of stages by the computation of what is loaded. `fuse` decides which stages."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping

from dmlc.ir import Body, Index, Instruction, Load, Stage, operands, with_operands

MOST_PLACES = 16
"""At how many places one reader may compute a stage. Reading each of a chain of stages at several
places would otherwise double the work from stage to stage."""


class TooManyPlacesError(Exception):
    """A reader wants a stage at more than `MOST_PLACES` places; `stage` is its name."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.stage = stage


@dataclasses.dataclass(frozen=True, slots=True)
class Inlined:
    """A reader that computes what it reads."""

    body: Body
    computed: tuple[str, ...]
    """The stages it computes, in the order they are finished."""
    left: tuple[str, ...]
    """The stages that it loads after all, since with them it would be too large."""


@dataclasses.dataclass(slots=True)
class _Frame:
    """A body being copied, at given positions."""

    body: Body
    positions: tuple[int, ...] | None
    """The values of `i0`, `i1`, ...; None for the reader itself, whose indices stay."""
    key: Load | None
    first: int = 0
    """How many instructions there were before it."""
    tensors: int = 0
    """How many tensors were loaded before it."""
    computed: int = 0
    """How many stages were computed before it."""
    numbers: list[int] = dataclasses.field(default_factory=list[int])


def inline_stages(reader: Stage, inlined: Mapping[str, Stage]) -> Body:
    """The reader's body with every load of an inlined stage replaced by that stage's body, at the
    place it was loaded from.

    What is wanted twice at one place is computed once, so that a chain of a thousand stages
    becomes a body of a thousand steps. Inlined stages have no reduction, and a body of their
    tensor's own type. Raises `TooManyPlacesError`.
    """
    return inline_within(reader, inlined).body


def inline_within(
    reader: Stage,
    inlined: Mapping[str, Stage],
    most_instructions: int = sys.maxsize,
    most_tensors: int = sys.maxsize,
) -> Inlined:
    """The same, but for stages that would alone take as many instructions, or read as many
    tensors: these are loaded, and what they are computed from is left to them.

    Raises `TooManyPlacesError`.
    """
    instructions: list[Instruction] = []
    numbers: dict[Instruction, int] = {}
    computed: dict[Load, int] = {}
    places: dict[str, int] = {}
    loaded: dict[str, None] = {}
    left: dict[str, None] = {}
    root = _Frame(reader.body, None, None)
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
        if isinstance(moved, Index) and frame.positions is not None:
            frame.numbers.append(frame.positions[moved.axis])
        elif not isinstance(moved, Load) or moved.tensor not in inlined or moved.tensor in left:
            frame.numbers.append(add(moved))
        elif moved in computed:
            frame.numbers.append(computed[moved])
        else:
            places[moved.tensor] = places.get(moved.tensor, 0) + 1
            if places[moved.tensor] > MOST_PLACES:
                raise TooManyPlacesError(moved.tensor)
            body = inlined[moved.tensor].body
            before = len(instructions), len(loaded), len(computed)
            frames.append(_Frame(body, moved.indices, moved, *before))
    guard = None if reader.body.guard is None else root.numbers[reader.body.guard]
    body = Body.make(instructions, root.numbers[reader.body.result], guard)
    read = {i.tensor for i in body.instructions if isinstance(i, Load)}
    done = dict.fromkeys(key.tensor for key in computed)
    return Inlined(
        body,
        tuple(name for name in done if name not in left),
        tuple(name for name in left if name in read),
    )
