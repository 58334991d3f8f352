"""Unrolls the loops over time of a function: each step becomes stages of its own.

This serves toolchains that do not accept loops. A step's stages have extent 1 along the first axis;
a stage that is read outside of its loop is assembled from its steps.
"""

from __future__ import annotations

import dataclasses

from dmlc.ir import Constant, Function, Index, Instruction, Load, Loop, Select, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.naming import take_name
from dmlc.source import UnsupportedError
from dmlc.transform.loops import drop_short_loops

MOST_STEPS = 64
"""Largest number of steps that is unrolled, as there is a stage for each stage and step."""


def unroll_loops(function: Function, reader: str, most: int = MOST_STEPS) -> Function:
    """Equivalent of a verified function without loops; the same object if it has none. Raises
    `UnsupportedError`, which names the `reader` that accepts no loops, if a loop has more than
    `most` steps or an open number of them."""
    function = drop_short_loops(function)
    if not function.loops:
        return function
    homes = {name: loop for loop in function.loops for name in loop.stages}
    names = dict.fromkeys(function.tensors())
    stages: list[Stage] = []
    for stage in function.stages:
        loop = homes.get(stage.name)
        if loop is None:
            stages.append(stage)
        elif stage.name == loop.stages[0]:
            stages += _Unroller(function, loop, reader, names, most).write()
    return dataclasses.replace(function, stages=tuple(stages), loops=())


class _Unroller:
    """Writer of the steps of one loop."""

    def __init__(
        self, function: Function, loop: Loop, reader: str, names: dict[str, None], most: int
    ) -> None:
        self._function, self._loop, self._names = function, loop, names
        own = set(loop.stages)
        self._stages = [stage for stage in function.stages if stage.name in own]
        self._delays = {delay.name: delay for delay in loop.delays}
        self._made: dict[tuple[str, int], str] = {}
        """Name of each stage at each step."""
        steps = self._stages[0].extents[0]
        if not isinstance(steps, int) or steps > most:
            raise UnsupportedError(
                f"'{function.name}' has a loop over {steps} steps, and {reader} takes loops "
                f"unrolled, of at most {most} steps",
                self._stages[0].span,
                notes=[f"export it with at most {most} steps"],
            )
        self._steps = steps

    def write(self) -> list[Stage]:
        """Stages of all steps, and assembled ones for outside readers."""
        order = range(self._steps)
        made: list[Stage] = []
        for step in reversed(order) if self._loop.backwards else order:
            made += [self._write_step(stage, step) for stage in self._stages]
        wanted = {result.name for result in self._function.results}
        for name, readers in self._function.readers().items():
            if not set(readers) <= set(self._loop.stages):
                wanted.add(name)
        return made + [self._join(stage) for stage in self._stages if stage.name in wanted]

    def _write_step(self, stage: Stage, step: int) -> Stage:
        name = take_name(f"{stage.name}_{step}", self._names)
        self._made[stage.name, step] = name
        builder, own = BodyBuilder(), {*self._loop.stages, *self._delays}

        def change(_: int, moved: Instruction) -> int | None:
            match moved:
                case Index(axis=0, reduced=False):
                    return builder.constant(step)
                case Load(tensor=tensor, dtype=dtype) if tensor in own:
                    delay = self._delays.get(tensor)
                    before = step + 1 if self._loop.backwards else step - 1
                    key = (tensor, step) if delay is None else (delay.of, before)
                    if key not in self._made:  # No step precedes the first.
                        return builder.add(Constant(dtype, 0.0 if dtype.is_float else 0))
                    places = (builder.constant(0), *moved.indices[1:])
                    return builder.add(Load(self._made[key], places, dtype))
                case _:
                    return None

        made = builder.remake(stage, change)
        return dataclasses.replace(made, name=name, extents=(1, *stage.extents[1:]))

    def _join(self, stage: Stage) -> Stage:
        """Stage assembled from its steps: a tree of selects by the first index."""
        builder = BodyBuilder()
        here, zero = builder.index(0), builder.constant(0)
        rest = tuple(builder.index(axis) for axis in range(1, len(stage.extents)))

        def choose(first: int, count: int) -> int:
            if count == 1:
                name = self._made[stage.name, first]
                return builder.add(Load(name, (zero, *rest), stage.dtype))
            half = count // 2
            below = builder.apply("lt", here, builder.constant(first + half))
            then, otherwise = choose(first, half), choose(first + half, count - half)
            return builder.add(Select(below, then, otherwise, stage.dtype))

        body = builder.make(choose(0, self._steps))
        return Stage(stage.name, stage.dtype, stage.extents, body, None, stage.span)
