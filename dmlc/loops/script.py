"""Scripts: the calls that make one nest of another, as text, and what the primitives that they name
are registered with."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Collection, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.target import Limits
from dmlc.loops.nodes import (
    Call,
    Dim,
    Kind,
    Loop,
    Nest,
    Node,
    Pack,
    Point,
    Reduce,
    list_dims,
    list_loops,
    walk,
)
from dmlc.source import DmlcError


class ScheduleError(DmlcError):
    """A primitive would change what a nest computes, or has nothing to work on."""


def demand(holds: bool, message: str) -> None:
    if not holds:
        raise ScheduleError(message)


class Argument(enum.Enum):
    """What a primitive takes beside a loop."""

    NUMBER = "a number"
    WORD = "a word"


@dataclasses.dataclass(frozen=True, slots=True)
class Primitive:
    """A way to make one nest of another."""

    name: str
    arguments: tuple[Argument, ...]
    optional: int
    """How many of the last arguments may be left out."""
    takes_loop: bool
    """Whether the name of a loop comes first."""
    run: Callable[..., Nest]
    """Takes what it works on, `On`, and the arguments."""

    @property
    def words(self) -> str:
        """What it does, for a person."""
        return str(self.run.__doc__).strip()


PRIMITIVES: dict[str, Primitive] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class On:
    """What a primitive works on."""

    nest: Nest
    function: ir.Function
    limits: Limits
    loop: Loop
    name: str
    """That the caller wants for what is made; empty: one is made up."""

    def replace(self, new: Node) -> Nest:
        return replace_node(self.nest, self.loop, new)

    def take(self, wanted: str, *, beside: bool = False) -> str:
        """The caller's name for what is made, or else one that no loop has: but the loop that it
        stands for, or that is kept `beside` it."""
        taken = {n.name for n in walk(self.nest.body) if isinstance(n, Loop)}
        taken -= set() if beside else {self.loop.name}
        if self.name:
            demand(self.name not in taken, f"there is a loop '{self.name}'")
            return self.name
        return self.find_name(wanted, taken)

    def find_name(self, wanted: str, taken: Collection[str] | None = None) -> str:
        """A name that no loop has, or none of those that are `taken`."""
        if taken is None:
            taken = {n.name for n in walk(self.nest.body) if isinstance(n, Loop)}
        if wanted not in taken:
            return wanted
        stem = wanted.partition(".")[0]
        return next(n for i in range(2, len(taken) + 3) if (n := f"{stem}.{i}") not in taken)

    def name_dim(self, wanted: str, but: Dim | None = None) -> str:
        """A name for a dimension, which no other has, `but` the one that it stands for."""
        return self.find_name(wanted, {dim.name for dim in list_dims(self.nest) if dim is not but})


def primitive(
    *arguments: Argument, optional: int = 0, takes_loop: bool = True
) -> Callable[[Callable[..., Nest]], Callable[..., Nest]]:
    def register(run: Callable[..., Nest]) -> Callable[..., Nest]:
        name = run.__name__
        PRIMITIVES[name] = Primitive(name, arguments, optional, takes_loop, run)
        return run

    return register


# As text ------------------------------------------------------------------------------------


_LINE = re.compile(r"(?P<verb>\w+)(?P<arguments>( [^\s]+)*?)( as (?P<name>[^\s]+))?")


def parse_script(text: str) -> tuple[Call, ...]:
    """The calls of a script, one to a line; what follows `//` is left out. Raises `ScheduleError`,
    with the number of the line, where one is no call."""
    calls: list[Call] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = " ".join(line.partition("//")[0].split())
        if not words:
            continue
        match = _LINE.fullmatch(words)
        if match is None:
            raise ScheduleError(f"line {number}: '{words}' is no call of a primitive")
        given = match["arguments"].split()
        numbers = (int(word) if word.isdecimal() else word for word in given)
        calls.append(Call(match["verb"], tuple(numbers), match["name"] or ""))
    return tuple(calls)


def print_script(script: Sequence[Call]) -> str:
    """A script as `parse_script` reads it."""
    return "\n".join(map(str, script))


# One node for another -------------------------------------------------------------------------


def replace_node(nest: Nest, old: Node, new: Node) -> Nest:
    """The nest with one node for another. Loops that are interleaved still can be."""
    made = dataclasses.replace(nest, body=_change(nest.body, lambda n: new if n is old else None))
    for node in walk(made.body):
        if isinstance(node, Loop) and node.interleaved:
            _check_interleaved(made, node)
    return made


def _check_interleaved(nest: Nest, loop: Loop) -> None:
    """Refuses an interleaved loop that each step of would not find the next one's points in."""
    serial = loop.kind is Kind.LOOP and not loop.extent and loop.step == 1
    demand(serial and not list_loops(loop.body, loop.dim),
            "only serial loops by ones are interleaved")  # fmt: skip
    demand(loop.dim is not nest.block, "blocks of outputs are not interleaved")
    around = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.LANE]
    taken = {n.wanted for n in around if any(each is loop for each in walk(n.body))}
    idle = any(side > 1 and name not in taken for name, side in nest.lanes)
    demand(not idle, "work items that have nothing of their own make nothing ahead")
    first, *between = loop.body
    last = between.pop() if between else None
    demand(isinstance(first, Reduce) and first.array, "what is made ahead is kept in arrays")
    loops = [n for n in walk(loop.body) if isinstance(n, Loop)]
    parted = [(n.dim.size, n.step) for n in loops if list_loops(n.body, n.dim)]
    even = all(isinstance(size, int) and size % step == 0 for size, step in parted)
    demand(even and all(n.dim.piece is None for n in loops),
            "pieces may end at different places")  # fmt: skip
    fits = last is not None and all(isinstance(n, Point) for n in between)
    demand(fits and last is not None and list_steps(first) == list_steps(last),
            "a reduction and what is done beside it have different loops")  # fmt: skip


def list_steps(node: Node) -> list[tuple[Kind, int, int | k.Scalar]]:
    """The loops in a node, outermost first: their kinds, steps and extents."""
    loops = [n for n in walk((node,)) if isinstance(n, Loop)]
    return [(n.kind, n.step, n.dim.size) for n in loops]


def _change(nodes: Sequence[Node], change: Callable[[Node], Node | None]) -> tuple[Node, ...]:
    """The nodes, some of them changed; those that nothing changes in stay themselves."""
    made: list[Node] = []
    for node in nodes:
        changed = change(node)
        if changed is None and isinstance(node, Loop | Reduce | Pack):
            body = _change(node.body, change)
            same = all(a is b for a, b in zip(body, node.body, strict=True))
            changed = node if same else dataclasses.replace(node, body=body)
        made.append(node if changed is None else changed)
    return tuple(made)
