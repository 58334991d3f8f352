"""A schedule as a value: the loops of one kernel, as a tree over the phases that it computes.

The algorithm is what `phases` holds: at each point of a domain some scalar work, whose values are
stored or reduced. A `Nest` says in which order the points are computed, and by whom. `primitives`
make one nest of another, rules choose, and `lower` writes the statements. A nest prints whole, one
line per node.

A dimension is walked by one or more loops, the coarser ones in larger steps: each narrows the range
that those of smaller steps walk. Dimensions may be merged into one, which is walked in their place;
its number is taken apart where it is known.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast, get_args

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import OPEN, make_size, measure
from dmlc.loops.dims import SHORT_VECTOR, Buffer, Dim, Into, Kind, Tile
from dmlc.loops.element import Value
from dmlc.loops.permute import Patterns
from dmlc.loops.phases import Phase
from dmlc.loops.text import Plain, write_line
from dmlc.loops.vectorize import Vectorization
from dmlc.matrices import Instruction
from dmlc.scalars import DataType
from dmlc.sizes import Taken, divide_up, find_most, multiply
from dmlc.source import Span


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """A loop over a dimension, or the part of it that the loops around leave, in steps."""

    dim: Dim
    kind: Kind
    step: int
    body: tuple[Node, ...]
    name: str = ""
    """What its variable is called after; of LANE, the axis of the work items. What follows a dot
    tells loops apart that are called alike."""
    extent: int = 0
    """The steps of LANE and UNROLL, and of a LOOP where it has so many, wherever it starts; 1 of a
    VECTOR that is whole wherever its work group is: where that is not, its points go one by one."""
    part: tuple[int, int] | None = None
    """The part of the dimension that is walked, where that is not all."""
    backwards: bool = False
    rest: tuple[int, ...] = ()
    """The shorter steps that take what whole ones leave over, before it goes one by one."""
    vectorization: Vectorization | None = None
    """Of VECTOR: which points are vectorized though their reads are not contiguous. Others are
    scalar."""
    ahead: Dim | None = None
    """The loop around whose next step's reads are fetched meanwhile."""
    interleaved: bool = False
    """Whether each step makes the reduction that stands first in the loop, beside what the step
    before does with its own."""
    output: int = 0
    """How far apart the outputs of neighbouring points lie among the accumulators of a tile; of
    LANE, UNROLL and counted loops, those of neighbouring steps."""
    clamps: bool = False
    """Whether points beyond the end are read as the last one, and count for nothing; else nothing
    is done there."""

    @property
    def wanted(self) -> str:
        """What its variable is called after, or the axis of the work items."""
        return self.name.partition(".")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Reduce:
    """What the points inside add up to. One in another of the same phase makes a part of it."""

    phase: int
    body: tuple[Node, ...]
    array: bool = False
    """Whether its accumulators lie in private arrays: one for each point that parallel loops inside
    walk, and for each lane of a vector along reduced points."""
    resumes: bool = False
    """Whether it goes on from what the one around it has, instead of making a part of its own."""
    serial: bool = False
    """Whether points come in the order of the axes, each after the one before it."""
    into: Into | None = None
    """Where the outcome is put, if not in a local."""
    ends: bool = True
    """Whether the outcome is known after it; else a second node, with nothing inside, ends it."""
    tile: Tile | None = None
    """The accumulators that lie in arrays, where loops have an `output`."""
    joins: str = ""
    """Of a tile, and of a part: the axis of the work items whose tiles, or parts, become one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """The scalar work of a phase at one point: what it stores is stored, and what it reduces added.
    What it makes for others is put into a buffer, or is a local value from there on, by a name."""

    phase: int
    into: tuple[Into, ...] = ()
    """For each result of the phase."""
    name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Pack:
    """What several points store is put together first, and stored as one: as a vector, or as a word
    of 32 bits."""

    dim: Dim
    """The points; or the words, which are a dimension of their own."""
    buffers: tuple[str, ...]
    lanes: int
    body: tuple[Node, ...]

    @property
    def in_words(self) -> bool:
        """Whether it makes words."""
        return bool(self.dim.parts)


@dataclasses.dataclass(frozen=True, slots=True)
class Fill:
    """Zeros in a part of a buffer."""

    buffer: Buffer
    first: int
    last: int


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """Tiles that are put into buffers, before others read them. What lies in a buffer and not in
    its tile is 0. Work items that share them wait for each other."""

    buffers: tuple[Buffer, ...]
    body: tuple[Node, ...]
    steps: tuple[tuple[Dim, int], ...] = ()
    """The dimensions that loops around take so many steps of, where some of these may not be
    there."""
    is_whole: bool = True
    """Whether tiles take all of their buffers."""
    conditions: tuple[int, ...] = ()
    """The values without which a point is not there: of the one phase inside."""
    repeats: bool = True
    """Whether it comes again, when some may still read what it has put there before."""
    ahead: bool = False
    """Whether what the next step puts there is read before the present one uses its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """What is done where all outcomes of a reduction are numbers, and what where one is none."""

    phase: int
    body: tuple[Node, ...]
    others: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Permute:
    """Vectors permuted out of a line buffer, for a vector of points, are local values inside."""

    patterns: Patterns
    row: Buffer
    dim: Dim
    body: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Turns:
    """A stretch of points that are alike every so many: those that come first in each turn have the
    first of the cases, and so on, which are of the number of the turn. Others are left."""

    dim: Dim
    first: int
    last: int
    turn: Dim
    cases: tuple[tuple[Node, ...], ...]
    others: tuple[Node, ...]

    @property
    def body(self) -> tuple[Node, ...]:
        """All nodes inside."""
        return (*(node for case in self.cases for node in case), *self.others)


@dataclasses.dataclass(frozen=True, slots=True)
class Once:
    """What is done at the first point of a dimension alone: elsewhere it would be the same."""

    dim: Dim
    body: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Rescale:
    """What is inside adds to a maximum; where that grows, sums of what is weighted by the
    exponential of the distance from it are scaled, so that they are of the distance from the new
    one. From there on the maximum is at hand, or 0 while that is a negative infinity."""

    phase: int
    """What has the maximum."""
    sums: tuple[int, ...]
    """The phases of the sums."""
    body: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Multiply:
    """All points of tiles at once, by a matrix instruction. The subgroups of a group share the
    outputs, and have so many matrices of sums `each`: one below the other, and side by side."""

    phase: int
    body: tuple[Node, ...]
    """Loops over rows, columns and points."""
    instruction: Instruction
    each: tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Where:
    """What is inside is done where a value holds, which a phase has as its result: where it does
    not, none of the points inside would change anything. The value is that of the first points of
    the tiles around, and the same for all work items of a group."""

    phase: int
    body: tuple[Node, ...]


Node: TypeAlias = (
    Loop
    | Reduce
    | Point
    | Pack
    | Fill
    | Stage
    | Numbers
    | Permute
    | Turns
    | Once
    | Rescale
    | Multiply
    | Where
)


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A step of a script: a primitive, and what it is applied to. Prints as `split i0 64 as b`."""

    verb: str
    arguments: tuple[str | int, ...]
    """The name of a loop, and what the primitive takes besides."""
    name: str = ""
    """What it makes is called so; else a name is made up."""
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)
    """Where a person has written it."""

    def __str__(self) -> str:
        words = (self.verb, *map(str, self.arguments), *(("as", self.name) if self.name else ()))
        return " ".join(words)


@dataclasses.dataclass(frozen=True, slots=True)
class Nest:
    """The phases of one kernel and the order in which their points are computed."""

    phases: tuple[Phase, ...]
    dims: tuple[tuple[Dim, ...], ...]
    """For each phase the dimension of each axis of its points."""
    body: tuple[Node, ...]
    lanes: tuple[tuple[str, int], ...] = ()
    """The axes along which the work items of a group stand, each with its extent, the last of which
    has neighbours side by side. None: groups of one work item."""
    buffers: tuple[Buffer, ...] = ()
    """The private arrays of what phases make for others."""
    block: Dim | None = None
    """The dimension along which each work item has a block of outputs, kept in arrays."""
    streams: frozenset[int] = frozenset()
    """The phases whose stores of whole vectors may pass the caches by."""
    words: str = dataclasses.field(default="", compare=False)
    """For a person: what each work item does."""
    holds: bool = False
    """Whether work items hold what one phase reads until the others have read it, too."""
    script: tuple[Call, ...] = ()
    """What has made it of the naive nest; empty where it was made otherwise."""

    def __str__(self) -> str:
        """All there is to say: the script, the work of the phases, dimensions, buffers, and the
        nodes. `parse_nest` reads it."""
        head = [f"call {call}" for call in self.script]
        for number, phase in enumerate(self.phases):
            head.append(f"// phase {number}: {_describe_point(Point(number), phase)}")
            head += (f"//   {line}" for line in PLAIN.list_fields(phase))
        for noun, values in (("dim", list_dims(self)), ("buffer", list_buffers(self))):
            head += (write_line({"op": noun, **PLAIN.record(each)}) for each in values)
        about = PLAIN.record(self, ("phases", "body", "script"))
        return "\n".join([*head, write_line({"op": "nest", **about}), *self.list_lines()])

    def list_lines(self) -> list[str]:
        """The nodes alone, a line each."""
        return list(PLAIN.tree(self.body, lambda node, around: _say(self, node, around)))


PLAIN = Plain(
    {
        Dim: lambda dim: dim.name,
        Buffer: lambda buffer: buffer.name,
        k.Scalar: lambda scalar: scalar.name,
        DataType: lambda dtype: dtype.name,
        Call: str,
        Instruction: lambda instruction: instruction.name,
    },
    (*get_args(Node), *get_args(Value)),
)
"""How nodes are written. What dimensions and buffers are, a print says once."""


def list_dims(nest: Nest) -> list[Dim]:
    """All dimensions of a nest, each after those that it is made of; those of one name once, where
    they are equal."""
    return list_named(nest)[0]


def list_buffers(nest: Nest) -> list[Buffer]:
    """All buffers of a nest."""
    return list_named(nest)[1]


def list_named(nest: Nest) -> tuple[list[Dim], list[Buffer]]:
    """The dimensions and the buffers of a nest, as `list_dims` and `list_buffers` give them."""
    found: dict[Dim | Buffer, None] = {}

    def look(value: Any) -> None:
        if isinstance(value, tuple):
            for each in cast("tuple[Any, ...]", value):
                if type(each) not in _LEAVES:
                    look(each)
        elif names := _list_fields(cast("type[Any]", type(value))):
            for name in names:
                each = getattr(value, name)
                if type(each) not in _LEAVES:
                    look(each)
            if isinstance(value, Dim | Buffer):
                found.setdefault(value)

    look((nest.dims, nest.body, nest.buffers, nest.block))
    dims = [each for each in found if isinstance(each, Dim)]
    return dims, [each for each in found if isinstance(each, Buffer)]


_LEAVES: frozenset[type[object]] = frozenset({bool, int, float, str, type(None)})
"""The types of what has no parts."""


@functools.cache
def _list_fields(of: type[Any]) -> tuple[str, ...]:
    """The fields of a class that may have dimensions, or what has some."""
    fields = dataclasses.fields(of) if dataclasses.is_dataclass(of) else ()
    return tuple(field.name for field in fields if field.type not in ("bool", "int", "str"))


def inside(node: Node) -> tuple[Node, ...]:
    """The nodes right inside one."""
    kind = type(node)
    if kind is Numbers:
        node = cast("Numbers", node)
        return (*node.body, *node.others)
    return () if kind in _BARE else cast("Loop", node).body


_BARE: frozenset[type[object]] = frozenset({Point, Fill})
"""The kinds of nodes that have none in them."""


def walk(nodes: Sequence[Node], *, filled: bool = True) -> Iterator[Node]:
    """Nodes and all that is inside them, outermost first; without what fills tiles, if not
    `filled`."""
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        yield node
        if filled or not isinstance(node, Stage):
            pending += reversed(inside(node))


def list_phases(node: Node, *, filled: bool = True) -> tuple[int, ...]:
    """The phases whose points are inside, or end there, in order."""
    nodes = walk((node,), filled=filled)
    return tuple(dict.fromkeys(n.phase for n in nodes if isinstance(n, Point | Reduce)))


def list_loops(nodes: Sequence[Node], dim: Dim) -> list[Loop]:
    """The loops over a dimension, or a tile of it, in some nodes, outermost first."""
    return [n for n in walk(nodes) if isinstance(n, Loop) and dim in (n.dim, n.dim.within)]


def is_once(loop: Loop, bounds: Taken) -> bool:
    """Whether work items take all of a dimension that a loop goes over at once, a point or a vector
    each, of sizes with such bounds."""
    most = find_most(measure(loop.dim.size), bounds)
    lanes = [n for n in list_loops(loop.body, loop.dim) if n.kind is Kind.LANE]
    return most is not None and any(most <= n.step * n.extent for n in lanes)


def list_standings(nest: Nest) -> list[tuple[tuple[str, int], ...]]:
    """Other axes than those of a nest along which the same work items stand: where they fill
    buffers, for one. Each block of loops has its own."""
    named, made = dict(nest.lanes), list[tuple[tuple[str, int], ...]]()

    def collect(node: Node) -> None:
        if isinstance(node, Loop) and node.kind is Kind.LANE and node.wanted not in named:
            made.append(list_items(node))
            return
        for each in inside(node):
            collect(each)

    for node in nest.body:
        collect(node)
    return made


def list_items(node: Node) -> tuple[tuple[str, int], ...]:
    """The axes of the work items that loops in a node take, outermost first."""
    loops = [n for n in walk((node,)) if isinstance(n, Loop) and n.kind is Kind.LANE]
    return tuple((n.wanted, n.extent) for n in loops)


def find_shared(node: Reduce) -> list[str]:
    """The axes along which work items share what they reduce: what parts of it join is theirs."""
    if node.tile is not None:
        return [node.joins] if node.joins else []
    inner = list(walk(node.body, filled=False))
    if any(isinstance(n, Reduce) and n.joins and n.phase == node.phase for n in inner):
        return []
    loops = [n for n in inner if isinstance(n, Loop) and n.kind is Kind.LANE and n.extent > 1]
    return list(dict.fromkeys(n.wanted for n in loops))


def comes_out_even(dim: Dim, step: int) -> bool:
    """Whether a dimension is a whole number of steps, wherever it is a piece of a longer one."""
    whole = dim.size if dim.piece is None else dim.piece[1]
    sizes = (whole, dim.size) if isinstance(dim.size, int) else ()
    return bool(sizes) and not any(isinstance(n, int) and n % step for n in sizes)


def in_vectors(dim: Dim, lanes: int, body: tuple[Node, ...], name: str = "i") -> Loop:
    """A loop in vectors, what is left over in shorter ones, and then one by one."""
    rest = (SHORT_VECTOR,) if lanes > SHORT_VECTOR else ()
    return Loop(dim, Kind.VECTOR, lanes, body, name, rest=rest)


def number_steps(name: str, parts: Sequence[tuple[Dim, int]]) -> Dim:
    """The numbers of steps of some dimensions, the last of which runs fastest."""
    counts = [
        dim.count_steps(step) if isinstance(dim.size, int) else divide_up(measure(dim.size), step)
        for dim, step in parts
    ]
    return Dim(name, make_size(multiply(counts)), tuple(parts))


def share_blocks(
    parts: Sequence[tuple[Dim, int]],
    most: int,
    body: tuple[Node, ...],
) -> tuple[tuple[Node, ...], int]:
    """Loops over the steps of some dimensions, of which work groups take so many each at most; and
    how many they take."""
    blocks = math.prod(dim.count_steps(step) for dim, step in parts)
    block, run = Dim("block", blocks, tuple(parts)), min(max(1, most), blocks)
    name = "block"
    if 1 < run < blocks:
        body, name = (Loop(block, Kind.LOOP, 1, body, name),), "begin"
    elif run == blocks > 1:
        body = (Loop(block, Kind.LOOP, 1, body, name),)
    return (Loop(block, Kind.GROUP, max(run, 1), body, name),), run


def _say(nest: Nest, node: Node, around: Sequence[Node]) -> str:
    """What a node comes to, for the reader of its line."""
    match node:
        case Loop():
            return _describe_range(node, [each for each in around if isinstance(each, Loop)])
        case Point() | Reduce() | Numbers() | Rescale() | Where() if node.phase >= len(nest.phases):
            return "no phase"
        case Point():
            return _describe_point(node, nest.phases[node.phase])
        case Reduce() | Numbers():
            return _list_names(each.name for each in nest.phases[node.phase].accumulators)
        case Rescale():
            made = (each.name for n in node.sums for each in nest.phases[n].accumulators)
            return _list_names(made)
        case Stage():
            shared = "shared " * any(buffer.shared for buffer in node.buffers)
            sizes = (f"{buffer.wanted} ({buffer.size:,})" for buffer in node.buffers)
            return f"put into {shared}{', '.join(sizes)}"
        case _:
            return ""


def _describe_range(loop: Loop, around: Sequence[Loop]) -> str:
    """What a loop walks: `0..4,096`, or so many points of a step of the loop around it."""
    dim, size = loop.dim, loop.dim.size
    outer = [each.step for each in around if each.dim is dim]
    if loop.extent:
        return ""
    if loop.part is None and outer and outer[-1] > loop.step:
        return f"{outer[-1]:,}"
    shown = size.name.removeprefix(OPEN) if isinstance(size, k.Scalar) else f"{size:,}"
    parts = [part.wanted for part, _ in dim.parts]
    made_of = f" of {', '.join(parts)}" if parts and not outer else ""
    return ("0.." + shown if loop.part is None else "..".join(map(str, loop.part))) + made_of


def _describe_point(node: Point, phase: Phase) -> str:
    stored = [view.tensor for view, _ in phase.elements.results if not view.local]
    kept = [into.buffer.wanted for into in node.into] or [node.name] * bool(node.name)
    added = [each.name for each in phase.accumulators]
    added += [] if phase.scatter is None else [f"an element of {phase.scatter.view.tensor}"]
    parts = [("add to", added), ("store", stored), ("keep", kept)]
    return "; ".join(f"{what} {_list_names(names)}" for what, names in parts if names)


def _list_names(names: Iterable[str]) -> str:
    """Each once: what is written for several neighbours has one name."""
    return ", ".join(dict.fromkeys(name.partition("#")[0] for name in names))
