"""Random legal schedules: random calls of primitives, applied to an unscheduled nest where they are
legal."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import CPU, Limits, Profile
from dmlc.loops.naive import naive
from dmlc.loops.nodes import Call, Kind, Loop, Nest, walk
from dmlc.loops.primitives import apply
from dmlc.loops.script import PRIMITIVES, ScheduleError
from dmlc.lowering.assemble import make_kernel
from dmlc.lowering.group import collect_group
from dmlc.source import UnsupportedError
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import Fusion, Group, fuse

Step: TypeAlias = tuple[str, int, int]
"""Random call: its form in `DRAWN`, the index of the first loop that is tried, and a number that
chooses its arguments."""

AXES = "row", "column"
VALUES = "left", "right", "%0", "%1"
TILE = "(tile)"
"""Placeholder for the name of any tile."""

DRAWN: Mapping[str, Callable[[int], Sequence[str | int]]] = {
    "split": lambda number: ("split", (2, 3, 4, 8)[number]),
    "fuse": lambda number: ("fuse",),
    "normalize": lambda number: ("normalize",),
    "once": lambda number: ("once",),
    "rename": lambda number: ("rename",),
    "reorder": lambda number: ("reorder",),
    "axis": lambda number: ("axis", AXES[number % 2], (1, 2, 4, 8)[number]),
    "groups": lambda number: ("bind", "group"),
    "items": lambda number: ("bind", AXES[number % 2]),
    "deal": lambda number: ("deal", AXES[number % 2], (2, 4)[number // 2]),
    "share": lambda number: ("share", AXES[number % 2], (1, 4, 8, 4)[number], (1, 2, 4, 1)[number]),
    "unroll": lambda number: ("unroll",),
    "unroll all": lambda number: ("unroll",),
    "roll": lambda number: ("roll",),
    "part": lambda number: ("part", (2, 3)[number % 2]),
    "thin": lambda number: ("thin", (2, 3)[number % 2]),
    "tile": lambda number: ("tile", (2, 3, 4, 8)[number]),
    "tile all": lambda number: ("tile", (2, 4)[number % 2]),
    "jam": lambda number: ("jam",),
    "recheck": lambda number: ("recheck",),
    "stage": lambda number: ("stage", VALUES[number], "shared", TILE, (0, 0, 1, 4)[number]),
    "pipeline": lambda number: ("pipeline",),
    "items of a tile": lambda number: ("bind", f"own{number}"),
    "deal a tile": lambda number: ("deal", f"own{number}", 2),
    "fission": lambda number: ("fission", ("Y", "Z")[number % 2]),
    "items of a block": lambda number: ("bind", f"own{number}", "own"),
    "pack": lambda number: ("pack", (4, 16)[number % 2]),
    "vectorize": lambda number: ("vectorize", (4, 16)[number % 2]),
    "vectorize whole": lambda number: ("vectorize", 4, "whole"),
    "vectorize gather": lambda number: ("vectorize", 8, ("gather", "aligned")[number % 2]),
    "vectorize all": lambda number: ("vectorize", (4, 16)[number % 2]),
    "stream": lambda number: ("stream",),
    **{
        verb: lambda number, verb=verb: (verb,)
        for verb in ("expand", "partial", "relax", "resume", "reverse", "prefetch", "hoist")
    },
    "interleave": lambda number: ("interleave",),
}
"""Forms of calls: the primitive and its arguments but the loop, by a number below four."""
SCALAR: tuple[str, ...] = tuple(
    name
    for name in DRAWN
    if name == "vectorize whole" or not name.startswith(("vec", "pack", "expand"))
)
"""Forms for languages whose vectors have at most four lanes."""


_BLOCKED = ("hoist", "split", *["reorder"] * 4, "unroll", "partial", "resume", *["vectorize"] * 2,
            "reverse", "prefetch")  # fmt: skip


_ALL = ("vectorize all", "tile all", "unroll all")
"""Forms that are applied to every loop that permits them."""


def draw_steps(random: Random, names: Sequence[str] = tuple(DRAWN)) -> list[Step]:
    """Random steps of the forms `names`. Some schedules need several calls in order, which chance
    rarely draws: a fifth of the results interleave vectorized loops, a fifth make a block of
    outputs and reorder its loops, and a fifth stage values, some of them pipelined."""

    def draw(name: str) -> Step:
        return name, random.randrange(8), random.randrange(4)

    def some(most: int) -> list[Step]:
        return [draw(random.choice(names)) for _ in range(random.randint(0, most))]

    kind = random.randrange(5)
    if kind == 4:
        begun = [("tile all", 0, random.randrange(2)), *[("reorder", 1, 0)] * random.randrange(2)]
        staged = [("stage", random.randrange(8), n) for n in random.sample(range(4), 2)]
        ahead = [("unroll all", 0, 0), ("pipeline", 0, 0)] * random.randrange(2)
        return [*some(2), *begun, *some(3), *staged, *some(2), *ahead, *some(3)]
    if kind > 1 or "expand" not in names:
        return some(8)
    if kind == 1:
        ahead = [("vectorize all", 0, random.randrange(2)), ("interleave", 0, 0)]
        return [*some(2), *ahead, *some(4)]
    return [*map(draw, ("expand", *(each for each in _BLOCKED if random.randrange(4)))), *some(2)]


def _list_loops(nest: Nest) -> list[str]:
    return [n.name for n in walk(nest.body) if isinstance(n, Loop)]


def follow(
    nest: Nest,
    function: ir.Function,
    limits: Limits,
    steps: Sequence[Step],
    most_items: int | None = None,
    refused: Counter[str] | None = None,
) -> tuple[Nest, list[str]]:
    """Nest after the legal ones of some steps, and the forms of these. A step is applied to the
    first loop that permits it, unless a group would then have more than `most_items` work items.
    `refused` counts illegal calls, by primitive and reason."""
    done: list[str] = []
    for name, which, number in steps:
        verb, *arguments = DRAWN[name](number)
        loops = _list_loops(nest)
        first = which % max(1, len(loops))
        for loop in (*loops[first:], *loops[:first]):
            given = (loop, *arguments) if PRIMITIVES[str(verb)].takes_loop else tuple(arguments)
            calls = [Call(str(verb), each, f"m{loop}" if name == "fuse" else "")
                     for each in _name_tiles(nest, given)]  # fmt: skip
            made = _try(nest, function, limits, calls, most_items, refused)
            if made is not None:
                nest = made
                done.append(name)
                if name not in _ALL:
                    break
    return nest, done


def _name_tiles(nest: Nest, given: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    """Arguments of a call, once for each tile if they have its placeholder."""
    if TILE not in given:
        return [given]
    dims = dict.fromkeys(n.dim for n in walk(nest.body) if isinstance(n, Loop))
    tiles = [dim.name for dim in dims if dim.within is not None]
    return [tuple(tile if each == TILE else each for each in given) for tile in tiles]


def _try(
    nest: Nest,
    function: ir.Function,
    limits: Limits,
    calls: Sequence[Call],
    most_items: int | None,
    refused: Counter[str] | None,
) -> Nest | None:
    """Nest after the first legal one of some calls; None if none is legal."""
    for call in calls:
        try:
            made = apply(nest, function, limits, call)
        except ScheduleError as error:
            if refused is not None:
                reason = error.diagnostics[0].message.removeprefix(f"{call}: ")
                refused[f"{call.verb}: {reason}"] += 1
            continue
        if most_items is None or math.prod(extent for _, extent in made.lanes) <= most_items:
            return made
    return None


def fuse_plainly(function: ir.Function, longest_row: int, budget: Budget) -> Fusion:
    """Fusion without groups that keep rows in shared memory, which need schedules of their own."""
    return fuse(function, 0, dataclasses.replace(budget, held=0))


_MOST_STEPS = 1 << 14
"""Largest number of steps of a work item: lavapipe ends loops after 65,535 steps of a kernel."""
_SHARED_OUT: tuple[Step, ...] = (*[("fuse", 0, 0)] * 3, ("groups", 0, 0))
"""Steps that distribute the points over work groups."""


def _count_steps(nest: Nest) -> int:
    """Largest number of points of a work group, and so of one work item."""
    points = sum(math.prod(phase.space.sizes) for phase in nest.phases)
    groups = (n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.GROUP)
    return points // max(1, math.prod(loop.dim.count_steps(loop.step) for loop in groups))


@dataclasses.dataclass(frozen=True)
class DrawnSchedule:
    """Lowering of each group of stages to one kernel by a random schedule. `done` receives the
    nests as text, in the order of the kernels."""

    seed: int
    done: list[str] = dataclasses.field(default_factory=list[str])

    def __call__(
        self, function: ir.Function, group: Group, profile: Profile, limits: Limits
    ) -> tuple[k.Kernel, ...]:
        phases, passes = collect_group(function, group)
        for view in (view for phase in phases for view, _ in phase.elements.results):
            if view.dtype in limits.word_types:
                raise UnsupportedError(
                    f"'{view.tensor}' is {view.dtype.name} and is stored two elements at a time, "
                    "for which no schedule is drawn"
                )
        random = Random(f"{self.seed} {' '.join(group.stages)}")
        steps = draw_steps(random, tuple(DRAWN) if limits.vector_lanes == 0 else SCALAR)
        start, most = naive(phases), limits.group_size
        nest, _ = follow(start, function, limits, steps, most)
        if _count_steps(nest) > _MOST_STEPS:
            nest, _ = follow(start, function, limits, [*_SHARED_OUT, *steps], most)
        count = _count_steps(nest)
        if count > _MOST_STEPS:
            raise UnsupportedError(
                f"one work item would take {count:,} steps, and drivers end loops after some 65,000"
            )
        self.done.append(str(nest))
        # The nest decides all that a profile does, but the lanes of vectors.
        return (make_kernel(function, phases, group.stages, passes, CPU, limits, nest=nest),)
