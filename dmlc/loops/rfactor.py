"""Reductions in two kernels: `rfactor` cuts the reduced points into chunks, before there is a
nest."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.loops.arrange import cut
from dmlc.loops.naive import name_inner, name_parallel
from dmlc.loops.nodes import Call, Nest
from dmlc.loops.phases import Phase, with_elements
from dmlc.loops.script import Argument, On, ScheduleError, demand, primitive
from dmlc.sizes import divide_up
from dmlc.source import list_names

RFACTOR, PIECES = "rfactor", "pieces"


@primitive(Argument.NUMBER, Argument.WORD, Argument.NUMBER, optional=2)
def rfactor(on: On, points: int, unit: str = "", multiple: int = 1) -> Nest:
    """Splits a reduction into two kernels: the first reduces chunks of `points` points of a loop
    and stores partial results, and the second combines these and computes derived values. With the
    word `pieces`, `points` is the number of chunks, whatever the size, and all but the last have a
    multiple of `multiple` points, if given. It is the first call in a kernel's section. Changes the
    order of sums.

    `for k in 0..n: y += f(k) -> for p in 0..n / points: for k in piece p: y_parts[p] +=
    f(k)` and `for p: y += y_parts[p]`
    """
    raise ScheduleError("it stands at the head of the section of a kernel")


def name_points(phase: Phase) -> tuple[str, ...]:
    """Names of the loops over the reduced points of a kernel's first phase, by inner axis."""
    dims = name_inner(phase, name_parallel(phase), "k" if phase.accumulators else "i", 0)
    return tuple(dims[axis].name for axis in phase.space.inner)


def make_cut(phase: Phase, axis: int, number: int, *unit: str | int) -> Call:
    """Call that cuts an inner axis into chunks of `number` points, or into `number` chunks
    (`PIECES`), of a multiple of points if that is given."""
    name = name_points(phase)[phase.space.inner.index(axis)]
    return Call(RFACTOR, (name, number, *unit))


def cut_points(phases: Sequence[Phase], call: Call) -> Phase:
    """The first phase with an axis cut into chunks by a call. Raises `ScheduleError`,
    which names the call, if that is not legal."""
    try:
        return _cut_points(phases[0], call)
    except ScheduleError as error:
        raise ScheduleError(f"{call}: {error.diagnostics[0].message}", call.span) from None


def _cut_points(phase: Phase, call: Call) -> Phase:
    demand(len(call.arguments) in (2, 3, 4) and not call.name, f"it is '{RFACTOR} LOOP POINTS', or "
            f"'{RFACTOR} LOOP NUMBER {PIECES} [MULTIPLE]'")  # fmt: skip
    loop, number, *unit = call.arguments
    demand(isinstance(number, int), f"'{number}' is no number of points")
    demand(unit[:1] in ([], [PIECES]), f"'{unit and unit[0]}' is not '{PIECES}'")
    multiple = unit[1] if len(unit) > 1 else 1
    if not isinstance(multiple, int) or multiple < 1:
        raise ScheduleError(f"'{multiple}' is no number that points are a multiple of")
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
        length = divide_up(size, many * multiple) * multiple
        # For a known size, no chunk is empty.
        pieces = -(-size // length) if isinstance(size, int) and isinstance(length, int) else many
        return with_elements(phase, cut(phase.elements, axis, length, pieces))
    least = f"'{loop}' has {size} points: a piece has fewer, and one at least"
    demand(many > 0 and not (isinstance(size, int) and many >= size), least)
    return with_elements(phase, cut(phase.elements, axis, many, divide_up(size, many)))
