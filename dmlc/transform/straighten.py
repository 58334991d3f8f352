"""Removes the loops of a function before differentiation, and adds loops to its gradient.

With its delays as parameters, a loop's body is straight-line code, which `differentiate` handles at
every step. The adjoint of a delay is the adjoint of its stage one step earlier: the adjoints form a
loop in the opposite direction, in which each step passes values to the step before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from dmlc.ir import Delay, Function, Loop, Parameter, Stage
from dmlc.ir.naming import take_name
from dmlc.source import UnsupportedError
from dmlc.transform.loops import drop_short_loops, gather_loop, make_shift
from dmlc.transform.simplify import redirect_loads, rename_loop


@dataclasses.dataclass(frozen=True, slots=True)
class LoopAdjoints:
    """The loops of a function, and the names of the adjoints that pass between steps."""

    loops: tuple[Loop, ...] = ()
    incoming: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Adjoint that comes from the next step, for each stage that has a delay."""
    outgoing: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Adjoint of each delay."""

    def names(self) -> tuple[str, ...]:
        """Names of all these adjoints."""
        return (*self.incoming.values(), *self.outgoing.values())

    def seeds(self) -> Iterable[tuple[str, str]]:
        return self.incoming.items()

    def renamed(self, names: Mapping[str, str]) -> LoopAdjoints:
        """The same for renamed stages."""
        loops = tuple(rename_loop(loop, names) for loop in self.loops)
        incoming = {names.get(name, name): own for name, own in self.incoming.items()}
        return LoopAdjoints(loops, incoming, self.outgoing)


def straighten(
    function: Function, taken: Iterable[str], given: Collection[str]
) -> tuple[Function, LoopAdjoints]:
    """Function without loops, whose delays are parameters; the same object if it has none. Adjoints
    get names not in `taken`. Stages in `given` may have no delay."""
    function = drop_short_loops(function)
    if not function.loops:
        return function, LoopAdjoints()
    names = dict.fromkeys((*function.tensors(), *taken))
    incoming: dict[str, str] = {}
    outgoing: dict[str, str] = {}
    for delay in function.delays():
        if not delay.dtype.is_float:
            continue
        if delay.of in incoming or delay.of in given:
            raise UnsupportedError(
                f"'{delay.of}' is read a step later twice, or leaves its function: its gradient is "
                "not derived",
                delay.span,
            )
        incoming[delay.of] = take_name(f"d_{delay.of}_next", names)
        outgoing[delay.name] = take_name(f"d_{delay.name}", names)
    added = tuple(Parameter(d.name, d.dtype, d.extents, None, d.span) for d in function.delays())
    straight = dataclasses.replace(
        function, parameters=(*function.parameters, *added), loops=(), in_place=()
    )
    return straight, LoopAdjoints(function.loops, incoming, outgoing)


def close_loops(made: Function, adjoints: LoopAdjoints, taken: dict[str, None]) -> Function:
    """Gradient of a straightened function, with the loops that it reads of the function, and those
    of the adjoints."""
    if not adjoints.loops:
        return made
    loops: list[Loop] = []
    names = {stage.name for stage in made.stages}
    stages = list(made.stages)
    gone = set(adjoints.names())
    for loop in adjoints.loops:
        if loop.stages[0] in names:
            loops.append(loop)
            stages = _shift_reads(stages, loop, taken)
        gone.update(delay.name for delay in loop.delays)
    for loop in reversed(adjoints.loops):
        delays = [
            Delay(adjoints.incoming[d.of], d.dtype, d.extents, adjoints.outgoing[d.name], d.span)
            for d in loop.delays
            if d.name in adjoints.outgoing
        ]
        stages, back = gather_loop(stages, delays, not loop.backwards, loops)
        if back is not None:
            loops.append(back)
            stages = _shift_reads(stages, back, taken)
    order = {stage.name: number for number, stage in enumerate(stages)}
    return dataclasses.replace(
        made,
        parameters=tuple(p for p in made.parameters if p.name not in gone),
        stages=tuple(stages),
        results=tuple(r for r in made.results if r.name not in gone),
        loops=tuple(sorted(loops, key=lambda loop: order[loop.stages[0]])),
    )


def _shift_reads(stages: list[Stage], loop: Loop, taken: dict[str, None]) -> list[Stage]:
    """Stages in which those outside of a loop read delays through a shifted copy."""
    own = set(loop.stages)
    delays = {delay.name: delay for delay in loop.delays}
    read = {
        load.tensor
        for stage in stages
        if stage.name not in own
        for load in stage.body.loads()
        if load.tensor in delays
    }
    shifts = {name: take_name(f"{delays[name].of}_shifted", taken) for name in sorted(read)}
    made: list[Stage] = []
    for stage in stages:
        made.append(stage if stage.name in own else redirect_loads(stage, shifts))
        if stage.name == loop.stages[-1]:
            made += [make_shift(own, delays[n], loop.backwards) for n, own in shifts.items()]
    return made
