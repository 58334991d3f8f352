"""Random legal schedules: verbs that are drawn, and tried on the plainest nest that there is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.assemble import make_kernel
from dmlc.kernel.group import collect_group
from dmlc.kernel.schedule import CPU, Limits, Profile
from dmlc.kernel.schedule.nest import Kind, Loop, Nest, walk
from dmlc.kernel.schedule.verbs import (
    ScheduleError,
    bind,
    deal,
    interleave,
    merge,
    naive,
    reorder,
    split,
    unroll,
    vectorize,
)
from dmlc.source import UnsupportedError
from dmlc.transform.cost import Budget
from dmlc.transform.fuse import Fusion, Group, fuse

Step: TypeAlias = tuple[str, int, int]
"""A verb, the loop from which on one is looked for that it suits, and its number."""


def _vectorize_all(nest: Nest, loop: Loop, number: int) -> Nest:
    """Every loop that can go in vectors: only such are interleaved."""
    done = 0
    for each in range(len(_list_loops(nest))):
        try:
            nest = vectorize(nest, _list_loops(nest)[each], (4, 16)[number % 2])
            done += 1
        except ScheduleError:
            continue
    if not done:
        raise ScheduleError("no loop goes in vectors")
    return nest


VERBS: Mapping[str, Callable[[Nest, Loop, int], Nest]] = {
    "split": lambda nest, loop, number: split(nest, loop, (2, 3, 4, 8)[number]),
    "merge": lambda nest, loop, number: merge(nest, loop, f"m{loop.name}"),
    "reorder": lambda nest, loop, number: reorder(nest, loop),
    "groups": lambda nest, loop, number: bind(nest, loop, Kind.GROUP),
    "items": lambda nest, loop, number: bind(nest, loop, Kind.LANE, ("row", "column")[number % 2]),
    "deal": lambda nest, loop, number: deal(
        nest, loop, ("row", "column")[number % 2], (2, 4)[number // 2]
    ),
    "unroll": lambda nest, loop, number: unroll(nest, loop),
    "vectorize": lambda nest, loop, number: vectorize(nest, loop, (4, 16)[number % 2]),
    "vectorize all": _vectorize_all,
    "interleave": lambda nest, loop, number: interleave(nest, loop),
}
SCALAR_VERBS: tuple[str, ...] = tuple(verb for verb in VERBS if not verb.startswith("vectorize"))
"""What languages without vectors of sixteen have."""


def draw_steps(random: Random, verbs: Sequence[str] = tuple(VERBS)) -> list[Step]:
    """Some steps; half of them have what it takes to interleave loops, where there are vectors."""

    def some(most: int) -> list[Step]:
        return [(random.choice(verbs), random.randrange(8), random.randrange(4))
                for _ in range(random.randint(0, most))]  # fmt: skip

    if random.randrange(2) or "vectorize all" not in verbs:
        return some(8)
    ahead = [("vectorize all", 0, random.randrange(2)), ("interleave", 0, 0)]
    return [*some(2), *ahead, *some(4)]


def _list_loops(nest: Nest) -> list[Loop]:
    return [n for n in walk(nest.body) if isinstance(n, Loop)]


def follow(
    nest: Nest, steps: Sequence[Step], most_items: int | None = None
) -> tuple[Nest, list[str]]:
    """A nest after those of some steps that are legal for a loop of it and give no group more work
    items than that, and their verbs."""
    done: list[str] = []
    for verb, which, number in steps:
        loops = _list_loops(nest)
        first = which % max(1, len(loops))
        for loop in (*loops[first:], *loops[:first]):
            try:
                made = VERBS[verb](nest, loop, number)
            except ScheduleError:
                continue
            items = math.prod(extent for _, extent in made.lanes)
            if most_items is None or items <= most_items:
                nest = made
                done.append(verb)
                break
    return nest, done


def fuse_plainly(function: ir.Function, longest_row: int, budget: Budget) -> Fusion:
    """Fusion whose groups any schedule does for: their kernels hold no rows."""
    return fuse(function, 0, dataclasses.replace(budget, held=0))


_MOST_STEPS = 1 << 14
"""Of one work item: lavapipe ends loops, wherever they are, after 65,535 steps of a kernel."""
_SHARED_OUT: tuple[Step, ...] = (*[("merge", 0, 0)] * 3, ("groups", 0, 0))
"""What gives work groups as many points as there are."""


def _count_steps(nest: Nest) -> int:
    """The points that one work item goes through, at most, if its group has no other."""
    points = sum(math.prod(phase.space.sizes) for phase in nest.phases)
    groups = (n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.GROUP)
    return points // max(1, math.prod(loop.dim.count_steps(loop.step) for loop in groups))


@dataclasses.dataclass(frozen=True)
class DrawnSchedule:
    """Lowers groups of stages to a kernel each, by a schedule that a number stands for. `done`
    takes the nests, as text, in the order of the kernels."""

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
        steps = draw_steps(random, tuple(VERBS) if limits.vector_lanes == 0 else SCALAR_VERBS)
        nest, _ = follow(naive(phases), steps, limits.group_size)
        if _count_steps(nest) > _MOST_STEPS:
            nest, _ = follow(naive(phases), [*_SHARED_OUT, *steps], limits.group_size)
        count = _count_steps(nest)
        if count > _MOST_STEPS:
            raise UnsupportedError(
                f"one work item would take {count:,} steps, and drivers end loops after some 65,000"
            )
        self.done.append(str(nest))
        # Verbs settle what a profile would: the lanes of its vectors alone are taken from here.
        return (make_kernel(function, phases, group.stages, passes, CPU, limits, nest=nest),)
