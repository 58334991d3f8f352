"""Scripts: calls of primitives as text, and the registry of the primitives."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterator, Sequence

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
    Numbers,
    Point,
    Reduce,
    list_dims,
    list_loops,
    map_bodies,
    name_loops,
    take_name,
    walk,
)
from dmlc.source import DmlcError, InternalError, Source, Span


class ScheduleError(DmlcError):
    """A primitive would change a result, or does not apply."""


def demand(holds: bool, message: str) -> None:
    if not holds:
        raise ScheduleError(message)


class Argument(enum.Enum):
    """Kind of a primitive's argument other than a loop."""

    NUMBER = "a number"
    WORD = "a word"


@dataclasses.dataclass(frozen=True, slots=True)
class Primitive:
    """A transformation of nests."""

    name: str
    arguments: tuple[Argument, ...]
    optional: int
    """Number of last arguments that may be omitted."""
    takes_loop: bool
    """Whether the first argument is the name of a loop."""
    run: Callable[..., Nest]
    """Implementation, which gets `On` and the arguments."""
    takes_block: bool = False
    """Whether the loop may be one over a block of outputs, in each phase; otherwise it stays one
    loop."""

    @property
    def words(self) -> str:
        """Description, for readers."""
        return str(self.run.__doc__).strip()

    @property
    def usage(self) -> str:
        """Synopsis, such as `split LOOP FACTOR`."""
        given = [*inspect.signature(self.run).parameters][1:]
        least = len(given) - self.optional
        words = [name.upper() if n < least else f"[{name.upper()}]" for n, name in enumerate(given)]
        return " ".join([self.name, *(["LOOP"] * self.takes_loop), *words])


PRIMITIVES: dict[str, Primitive] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class On:
    """Subject of a primitive: the nest, the loop and the call."""

    nest: Nest
    function: ir.Function
    limits: Limits
    loop: Loop
    name: str
    """Name for the result; generated if empty."""

    def replace(self, new: Node) -> Nest:
        return replace_node(self.nest, self.loop, new)

    def take(self, wanted: str, *, beside: bool = False) -> str:
        """The caller's name for a new loop, or else an unused one; it may equal that of the loop it
        replaces, unless that stays `beside` it."""
        taken = name_loops(self.nest) - (set() if beside else {self.loop.name})
        if self.name:
            demand(self.name not in taken, f"there is a loop '{self.name}'")
            return self.name
        return take_name(wanted, taken)

    def find_name(self, wanted: str) -> str:
        """Name that no loop has."""
        return take_name(wanted, name_loops(self.nest))

    def name_dim(self, wanted: str, but: Dim | None = None) -> str:
        """Name for a dimension that no other has, except the one that it replaces."""
        return take_name(wanted, {dim.name for dim in list_dims(self.nest) if dim is not but})


def primitive(
    *arguments: Argument, optional: int = 0, takes_loop: bool = True, takes_block: bool = False
) -> Callable[[Callable[..., Nest]], Callable[..., Nest]]:
    def register(run: Callable[..., Nest]) -> Callable[..., Nest]:
        name = run.__name__
        if name in PRIMITIVES:
            raise InternalError(f"two primitives are called '{name}'")
        PRIMITIVES[name] = Primitive(name, arguments, optional, takes_loop, run, takes_block)
        return run

    return register


# As text ------------------------------------------------------------------------------------


_LINE = re.compile(r"(?P<verb>\w+)(?P<arguments>(\s+\S+)*?)(\s+as\s+(?P<name>\S+))?")


def list_lines(source: Source) -> Iterator[Span]:
    """Non-empty lines of a text, without comments (`//`), split at `;`."""
    start = 0
    for line in source.text.split("\n"):
        first = start
        for said in line.partition("//")[0].split(";"):
            if said.strip():
                begin = first + len(said) - len(said.lstrip())
                yield Span(source, begin, first + len(said.rstrip()))
            first += len(said) + 1
        start += len(line) + 1


def parse_call(line: Span) -> Call:
    """Call in a line. Raises `ScheduleError`."""
    match = _LINE.fullmatch(line.text)
    if match is None:
        raise ScheduleError(f"'{line.text}' is no call of a primitive", line)
    given = match["arguments"].split()
    # Numbers have no more digits than any size.
    numbers = (int(w) if w.isdecimal() and w.isascii() and len(w) < 20 else w for w in given)
    return Call(match["verb"], tuple(numbers), match["name"] or "", line)


def parse_script(text: str, name: str = "<script>") -> tuple[Call, ...]:
    """Calls of a script, one per line, or separated by `;`; `//` starts a comment. Raises
    `ScheduleError` with the location, in which the text has the name `name`."""
    return tuple(map(parse_call, list_lines(Source(name, text))))


def print_script(script: Sequence[Call]) -> str:
    """Text of a script, which `parse_script` reads."""
    return "\n".join(map(str, script))


# One node for another -------------------------------------------------------------------------


def replace_node(nest: Nest, old: Node, *new: Node) -> Nest:
    """Nest with other nodes in place of one. Checks that interleaved loops are still valid."""
    made = dataclasses.replace(nest, body=change(nest.body, old, *new))
    for node in walk(made.body):
        if isinstance(node, Loop) and node.interleaved:
            _check_interleaved(made, node)
    return made


def _check_interleaved(nest: Nest, loop: Loop) -> None:
    """Refuses an interleaved loop whose steps no longer contain the next step's points."""
    serial = loop.kind is Kind.LOOP and not loop.extent and loop.step == 1
    demand(serial and not list_loops(loop.body, loop.dim),
            "only serial loops by ones are interleaved")  # fmt: skip
    demand(nest.block is None, "blocks of outputs are not interleaved")
    counted = [n.step * n.extent for n in list_loops(nest.body, loop.dim) if n.extent]
    some = all(isinstance(loop.dim.size, int) and loop.dim.size % n == 0 for n in counted)
    demand(some, "a step that there may not be makes nothing ahead")
    around = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.LANE]
    taken = {n.wanted for n in around if any(each is loop for each in walk(n.body))}
    idle = any(side > 1 and name not in taken for name, side in nest.lanes)
    demand(not idle, "work items that have nothing of their own make nothing ahead")
    checked = any(isinstance(n, Numbers) for n in loop.body)
    demand(not checked, "outcomes that are checked are not made ahead")
    first, *between = loop.body
    last = between.pop() if between else None
    demand(isinstance(first, Reduce) and first.array, "what is made ahead is kept in arrays")
    loops = [n for n in walk(loop.body) if isinstance(n, Loop)]
    backwards = any(isinstance(n, Loop) and n.backwards for n in walk((first,)))
    demand(not backwards, "what is made ahead goes forwards")
    parted = [(n.dim.size, n.step, list_loops(n.body, n.dim)) for n in loops]
    even = all(isinstance(size, int) and size % step == 0 for size, step, finer in parted if finer)
    ends = any(each.kind is Kind.VECTOR for size, step, finer in parted if size != step
               for each in finer)  # fmt: skip
    demand(even and not ends and all(n.dim.piece is None for n in loops),
            "pieces may end at different places")  # fmt: skip
    fits = last is not None and all(isinstance(n, Point) for n in between)
    demand(fits and last is not None and list_steps(first) == list_steps(last),
            "a reduction and what is done beside it have different loops")  # fmt: skip


def list_steps(node: Node) -> list[tuple[Kind, int, int | k.Scalar]]:
    """Loops in a node, outermost first: kinds, steps and extents."""
    loops = [n for n in walk((node,)) if isinstance(n, Loop)]
    return [(n.kind, n.step, n.dim.size) for n in loops]


def change(nodes: Sequence[Node], old: Node, *new: Node) -> tuple[Node, ...]:
    """Nodes with others in place of one; unaffected nodes are the same objects."""
    made: list[Node] = []
    for node in nodes:
        if node is old:
            made += new
        else:
            made.append(map_bodies(node, lambda body: change(body, old, *new)))
    return tuple(made)
