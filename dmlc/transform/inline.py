"""Replaces loads of stages by the computation of what is loaded. `fuse` decides which stages."""

from __future__ import annotations

import dataclasses
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


@dataclasses.dataclass(slots=True)
class _Frame:
    """A body being copied, at given positions."""

    body: Body
    positions: tuple[int, ...] | None
    """The values of `i0`, `i1`, ...; None for the reader itself, whose indices stay."""
    key: Load | None
    numbers: list[int] = dataclasses.field(default_factory=list[int])


def inline_stages(reader: Stage, inlined: Mapping[str, Stage]) -> Body:
    """The reader's body with every load of an inlined stage replaced by that stage's body, at the
    place it was loaded from.

    What is wanted twice at one place is computed once, so that a chain of a thousand stages
    becomes a body of a thousand steps. Inlined stages have no reduction, and a body of their
    tensor's own type. Raises `TooManyPlacesError`.
    """
    instructions: list[Instruction] = []
    numbers: dict[Instruction, int] = {}
    computed: dict[Load, int] = {}
    places: dict[str, int] = {}
    root = _Frame(reader.body, None, None)
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
        elif isinstance(moved, Load) and moved.tensor in inlined and moved not in computed:
            places[moved.tensor] = places.get(moved.tensor, 0) + 1
            if places[moved.tensor] > MOST_PLACES:
                raise TooManyPlacesError(moved.tensor)
            frames.append(_Frame(inlined[moved.tensor].body, moved.indices, moved))
        elif moved in computed:
            frame.numbers.append(computed[moved])
        else:
            if moved not in numbers:
                numbers[moved] = len(instructions)
                instructions.append(moved)
            frame.numbers.append(numbers[moved])
    guard = None if reader.body.guard is None else root.numbers[reader.body.guard]
    return Body.make(instructions, root.numbers[reader.body.result], guard)
