"""Input of rules, and the builder of their scripts, which calls primitives by `apply` like everyone
else."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits, Profile
from dmlc.loops.legality import MOST_UNROLLED, chain
from dmlc.loops.naive import naive
from dmlc.loops.nodes import (
    Call,
    Loop,
    Nest,
    list_loops,
    list_phases,
    name_loops,
    take_name,
    walk,
)
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.primitives import apply
from dmlc.loops.script import ScheduleError
from dmlc.schedules.streaming import Streaming


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Input of a rule: see `choose`."""

    function: ir.Function
    phases: tuple[Phase, ...]
    profile: Profile
    limits: Limits
    streaming: Streaming
    serial: bool = False
    count: k.Scalar | None = None

    def begin(self) -> Rule:
        """The naive nest, for a script."""
        return Rule(self)

    @property
    def is_gpu(self) -> bool:
        return self.profile.grouped

    @property
    def is_open(self) -> bool:
        """Whether sizes are known at run time only."""
        return self.count is None and any(phase.is_open for phase in self.phases)


class Rule:
    """A nest under construction by a script."""

    def __init__(self, work: Work) -> None:
        self.function, self.limits = work.function, work.limits
        self.nest = naive(work.phases, work.count)

    @property
    def outer(self) -> list[str]:
        """Loops nested one in the other without siblings, outermost first."""
        return [loop.name for loop in chain(self.nest.body)]

    def do(self, verb: str, *arguments: str | int, name: str = "") -> str:
        """Calls a primitive. Returns the name of the new loop, or of the one it is applied to:
        `name`, with a number if another loop has it."""
        loop = str(arguments[0]) if arguments else ""
        if name and (name != loop or verb == "split"):
            name = take_name(name, name_loops(self.nest))
        call = Call(verb, arguments, name)
        self.nest = apply(self.nest, self.function, self.limits, call)
        return name or loop

    def offers(self, verb: str, *arguments: str | int, name: str = "") -> bool:
        """Calls a primitive if that is legal, and returns whether it is."""
        with contextlib.suppress(ScheduleError):
            self.do(verb, *arguments, name=name)
            return True
        return False

    def find_block(self, number: int) -> str:
        """Loop of a phase over a block of outputs; empty if there is none."""
        loops = list_loops(self.nest.body, self.nest.block) if self.nest.block else []
        return next((loop.name for loop in loops if number in list_phases(loop)), "")

    def fuse(self, loops: Sequence[str], name: str) -> str:
        """Merges nested loops into one whose steps are counted; without loops, adds a loop of one
        step."""
        if not loops:
            return self.do("once", name=name)
        first, *others = loops
        if not others:
            return self.do("normalize", first, name=name)
        for _ in others:
            first = self.do("fuse", first, name=name)
        return first

    def merge(self, loops: Sequence[str], name: str) -> str:
        """Merges nested loops into one; a single loop is unchanged."""
        return self.fuse(loops, name) if len(loops) > 1 else loops[0]

    def take(
        self, loop: str, axis: str, count: int, items: int, *whose: str, rolled: bool = False
    ) -> None:
        """Distributes `count` steps of a loop over a tile cyclically over `items` work items along
        an axis; each item's steps are unrolled, or `rolled`."""
        if count == items > 1:
            self.do("bind", loop, axis, *whose)
            return
        if items > 1:
            self.do("deal", loop, axis, items, *whose)
        self.do("roll" if rolled else "unroll", loop)

    def spread(
        self, loops: tuple[str, str], axes: tuple[str, str], sizes: tuple[int, int], items: int,
        width: int, *whose: str, parts: tuple[str, str] = ("", ""), rolled: bool = False,
    ) -> None:  # fmt: skip
        """Distributes the points of two nested loops of these sizes over all work items of a group:
        of the inner loop cyclically, in vectors of `width` adjacent points, or in `parts` of so
        many; of the outer loop no more to each than is unrolled."""
        (outer, inner), (count, many), (part, half) = loops, sizes, parts
        steps = many // width
        down = max(count // MOST_UNROLLED, items // min(steps, items))
        down = min(down, count, items)
        self.take(outer, axes[0], count, down, *whose, rolled=rolled)
        step = self.do("split", inner, width, name=part or axes[1]) if width > 1 else inner
        self.take(step, axes[1], steps, min(steps, items // down), *whose, rolled=rolled)
        if width > VECTOR:
            self.do("unroll", self.do("split", inner, VECTOR, name=half))
        if width > 1:
            self.do("vectorize", inner, VECTOR, "whole")

    def put_in_order(self, loops: Sequence[str]) -> None:
        """Reorders loops nested one in the other without siblings."""
        nodes = walk(self.nest.body)
        now = [n.name for n in nodes if isinstance(n, Loop) and n.name in loops]
        for place, wanted in enumerate(loops):
            for before in range(now.index(wanted) - 1, place - 1, -1):
                self.do("reorder", now[before])
                now[before : before + 2] = reversed(now[before : before + 2])

    def finish(self, words: str) -> Nest:
        """The nest; `words` describe a work item's part for readers."""
        return dataclasses.replace(self.nest, words=words)
