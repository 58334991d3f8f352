"""A reduction in two kernels: `rfactor` cuts the points that a kernel reduces into pieces, before
there is a nest."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.loops.naive import name_inner, name_parallel
from dmlc.loops.nodes import Call, Nest
from dmlc.loops.phases import Phase
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive
from dmlc.loops.space import Space, cut
from dmlc.sizes import divide_up
from dmlc.source import list_names

RFACTOR, PIECES = "rfactor", "pieces"


@primitive(Argument.NUMBER, Argument.WORD, optional=1)
def rfactor(on: On, points: int, unit: str = "") -> Nest:
    """A reduction in two kernels: the first reduces pieces of so many points of a loop and stores
    partial results, and the second combines these and computes what derives from them. With the
    word `pieces` there are so many pieces, whatever the size is. It stands at the head of the
    section of a kernel. Changes the order of sums.

    `for k in 0..n: y += f(k) -> for p in 0..n / points: for k in piece p: y_parts[p] += f(k)`
    and `for p: y += y_parts[p]`
    """
    raise ScheduleError("it stands at the head of the section of a kernel")


def name_points(phase: Phase) -> tuple[str, ...]:
    """The loops over the points of each output of the first phase of a kernel, for each of its
    inner axes."""
    dims = name_inner(phase, name_parallel(phase), "k" if phase.accumulators else "i", 0)
    return tuple(dims[axis].name for axis in phase.space.inner)


def make_cut(phase: Phase, axis: int, number: int, unit: str = "") -> Call:
    """The call that cuts an inner axis into pieces of so many points, or into so many `PIECES`."""
    name = name_points(phase)[phase.space.inner.index(axis)]
    return Call(RFACTOR, (name, number, *([unit] if unit else ())))


def cut_points(phases: Sequence[Phase], call: Call) -> Space:
    """The space of the first phase with an axis cut into pieces, as a call says. Raises
    `ScheduleError`, which names the call, where that is not legal."""
    try:
        return _cut_points(phases[0], call)
    except ScheduleError as error:
        raise ScheduleError(f"{call}: {error.diagnostics[0].message}", call.span) from None


def _cut_points(phase: Phase, call: Call) -> Space:
    demand(len(call.arguments) in (2, 3) and not call.name, f"it is '{RFACTOR} LOOP POINTS', or "
            f"'{RFACTOR} LOOP NUMBER {PIECES}'")  # fmt: skip
    loop, number, *unit = call.arguments
    demand(isinstance(number, int), f"'{number}' is no number of points")
    demand(unit in ([], [PIECES]), f"'{unit and unit[0]}' is not '{PIECES}'")
    space, names = phase.space, name_points(phase)
    what = list_names([each.name for each in phase.accumulators])
    demand(
        loop in names, f"{what} is not reduced along a loop '{loop}', but along {', '.join(names)}"
    )
    axis, many = space.inner[names.index(str(loop))], int(number)
    size = space.extents[axis]
    if unit:
        demand(many > 1, "one piece is the whole")
        demand(not isinstance(size, int) or many <= size, f"'{loop}' has {size} points")
        # Of a known size, no piece is empty.
        return cut(space, axis, divide_up(size, many), None if isinstance(size, int) else many)
    if not isinstance(size, int):
        raise ScheduleError(f"the size of '{loop}' is left open: say how many pieces there are, as "
            f"in '{RFACTOR} {loop} 512 {PIECES}'")  # fmt: skip
    demand(0 < many < size, f"'{loop}' has {size} points: a piece has fewer, and one at least")
    return cut(space, axis, many)
