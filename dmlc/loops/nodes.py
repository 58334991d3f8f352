"""Schedules as values: the loops of one kernel, as a tree over its phases.

`phases` are the algorithm: the scalar work at each point of a domain, whose values are stored or
reduced. A `Nest` is the order in which the points are computed, and by whom. `primitives` transform
nests, rules choose among them, and `lower` writes the statements. A nest prints completely, one
line per node.

A dimension has one or more nested loops, with decreasing steps: each restricts the range of the
next. Dimensions may be merged into one, whose loop replaces theirs; its index is split where it is
fixed.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast, get_args

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import OPEN, make_size, measure
from dmlc.loops.dims import SHORT_VECTOR, Buffer, Dim, Into, Kind, Tile
from dmlc.loops.element import Value
from dmlc.loops.permute import Patterns
from dmlc.loops.phases import Phase
from dmlc.loops.text import BODIES, PlainForm, write_line
from dmlc.loops.vectorize import Vectorization
from dmlc.matrices import Instruction
from dmlc.scalars import DataType
from dmlc.sizes import Taken, divide_up, find_most, multiply
from dmlc.source import Span


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """A loop over a dimension, or over the range that enclosing loops leave of it, in steps."""

    dim: Dim
    kind: Kind
    step: int
    body: tuple[Node, ...]
    name: str = ""
    """Stem of its variable's name; for LANE, the axis of the work items. A suffix after a dot
    distinguishes loops of equal names."""
    extent: int = 0
    """Number of steps of LANE and UNROLL, and of a LOOP with a fixed number of them. It is 1 for a
    VECTOR that is full wherever its work group is in bounds; otherwise its points are scalar."""
    part: tuple[int, int] | None = None
    """Range of the dimension, if it is not all of it."""
    backwards: bool = False
    rest: tuple[int, ...] = ()
    """Smaller steps for the remainder, before single points."""
    vectorization: Vectorization | None = None
    """For VECTOR: the points that are vectorized although their reads are not contiguous. Others
    are scalar."""
    ahead: Dim | None = None
    """Enclosing loop whose next iteration's reads are prefetched."""
    interleaved: bool = False
    """Whether each iteration overlaps its first reduction with the rest of the previous
    iteration."""
    output: int = 0
    """Stride in a tile's accumulators between outputs of adjacent points; for LANE, UNROLL and
    counted loops, of adjacent steps."""
    clamps: bool = False
    """Whether points out of bounds are clamped to the last one and masked; otherwise they are
    skipped."""

    @property
    def wanted(self) -> str:
        """Stem of its variable's name, or the axis of the work items."""
        return self.name.partition(".")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Reduce:
    """Reduction of the points inside. Inside another one of the same phase, it is a partial
    reduction."""

    phase: int
    body: tuple[Node, ...]
    array: bool = False
    """Whether its accumulators are in private arrays: one for each point of parallel loops inside,
    and for each lane of a vector along reduced points."""
    resumes: bool = False
    """Whether it continues with the accumulators of the enclosing reduction, instead of having its
    own."""
    serial: bool = False
    """Whether points are combined sequentially in the order of the axes."""
    into: Into | None = None
    """Where the result is stored, if not in a local."""
    ends: bool = True
    """Whether the result is known after it; otherwise a second node with an empty body ends it."""
    tile: Tile | None = None
    """Accumulators in arrays, if loops have an `output`."""
    joins: str = ""
    """For a tile or a partial reduction: the axis of the work items over which it is reduced."""


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """Scalar work of a phase at one point: results are stored, and reduced values combined. Values
    for other phases go to a buffer, or become a local value with a name."""

    phase: int
    into: tuple[Into, ...] = ()
    """Targets of the phase's results."""
    name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Pack:
    """Collects the stores of several points, and stores them as one vector, or as one 32-bit
    word."""

    dim: Dim
    """Dimension of the points; or of the words."""
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
    """Fills buffers with tiles, before others read them. Elements of a buffer outside its tile are
    0. Work items that share the buffers synchronize."""

    buffers: tuple[Buffer, ...]
    body: tuple[Node, ...]
    steps: tuple[tuple[Dim, int], ...] = ()
    """Dimensions with the steps of enclosing loops, where a step may be out of bounds."""
    is_whole: bool = True
    """Whether tiles fill their buffers."""
    conditions: tuple[int, ...] = ()
    """Values of the phase inside that must be true for a point to exist."""
    repeats: bool = True
    """Whether it is executed again, while some items may still read the previous contents."""
    ahead: bool = False
    """Whether the next step's elements are loaded before the current ones are used."""


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """Branch on whether all results of a reduction are numbers; `others` is executed if one is
    NaN."""

    phase: int
    body: tuple[Node, ...]
    others: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Permute:
    """Makes vectors permuted out of a line buffer, for a vector of points, local values inside."""

    patterns: Patterns
    row: Buffer
    dim: Dim
    body: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Turns:
    """Range of points in periodic cases: point `first + n` has case `n % period` in iteration
    `n // period` of the `turn` dimension. Points out of the range have `others`."""

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
    """Executed at the first index of a dimension alone, as it would be the same at others."""

    dim: Dim
    body: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Rescale:
    """Reduces a maximum inside; if it grows, sums weighted by the exponential of the difference
    from it are scaled to the new maximum. From there on the maximum is available; as 0 while it is
    negative infinity."""

    phase: int
    """Phase of the maximum."""
    sums: tuple[int, ...]
    """Phases of the sums."""
    body: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Multiply:
    """Multiplication of tiles by a matrix instruction. The subgroups of a group share the outputs;
    `each` is the number of accumulator matrices of a subgroup, along rows and columns."""

    phase: int
    body: tuple[Node, ...]
    """Loops over rows, columns and points."""
    instruction: Instruction
    each: tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Where:
    """Executed if a phase's value is true; otherwise no point inside would change anything. The
    value is computed at the first points of the enclosing tiles, and is uniform in a group."""

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
    """Call of a primitive in a script. Prints as `split i0 64 as b`."""

    verb: str
    arguments: tuple[str | int, ...]
    """Name of a loop, and further arguments."""
    name: str = ""
    """Name of the result; generated if empty."""
    span: Span | None = dataclasses.field(default=None, compare=False, repr=False)
    """Source, if a user wrote it."""

    def __str__(self) -> str:
        words = (self.verb, *map(str, self.arguments), *(("as", self.name) if self.name else ()))
        return " ".join(words)


@dataclasses.dataclass(frozen=True, slots=True)
class Nest:
    """Phases of one kernel, and the order in which their points are computed."""

    phases: tuple[Phase, ...]
    dims: tuple[tuple[Dim, ...], ...]
    """Dimension of each axis of each phase's points."""
    body: tuple[Node, ...]
    lanes: tuple[tuple[str, int], ...] = ()
    """Axes of the work items of a group with their extents, the last of which is contiguous. Empty:
    groups of one work item."""
    buffers: tuple[Buffer, ...] = ()
    """Private arrays for values that phases make for others."""
    block: Dim | None = None
    """Dimension along which each work item has a block of outputs, in arrays."""
    streams: frozenset[int] = frozenset()
    """Phases whose stores of whole vectors may bypass the caches."""
    words: str = dataclasses.field(default="", compare=False)
    """For readers: the work of each work item."""
    holds: bool = False
    """Whether work items keep values that one phase reads until other phases have used them."""
    script: tuple[Call, ...] = ()
    """Calls that made it from the naive nest; empty if it was made otherwise."""

    def __str__(self) -> str:
        """Complete text: script, work of the phases, dimensions, buffers, and nodes. `parse_nest`
        reads it."""
        head = [f"call {call}" for call in self.script]
        for number, phase in enumerate(self.phases):
            head.append(f"// phase {number}: {_describe_point(Point(number), phase)}")
            head += (f"//   {line}" for line in PLAIN.list_fields(phase))
        for noun, values in (("dim", list_dims(self)), ("buffer", list_buffers(self))):
            head += (write_line({"op": noun, **PLAIN.record(each)}) for each in values)
        about = PLAIN.record(self, ("phases", "body", "script"))
        return "\n".join([*head, write_line({"op": "nest", **about}), *self.list_lines()])

    def with_phase(self, number: int, phase: Phase, dims: tuple[Dim, ...] | None = None) -> Nest:
        """Nest with another phase of a number, or a further one, and the dimensions of its axes, if
        these are others."""
        own = self.dims[number] if dims is None else dims
        phases = (*self.phases[:number], phase, *self.phases[number + 1 :])
        every = (*self.dims[:number], own, *self.dims[number + 1 :])
        return dataclasses.replace(self, phases=phases, dims=every)

    def list_lines(self) -> list[str]:
        """Text of the nodes alone, one line each."""
        return list(PLAIN.tree(self.body, lambda node, around: _remark(self, node, around)))


PLAIN = PlainForm(
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
"""Spelling of nodes; dimensions and buffers are defined once and referred to by name."""


def list_dims(nest: Nest) -> list[Dim]:
    """All dimensions of a nest, each after its parts; equal ones once."""
    return list_named(nest)[0]


def list_buffers(nest: Nest) -> list[Buffer]:
    """All buffers of a nest."""
    return list_named(nest)[1]


def list_named(nest: Nest) -> tuple[list[Dim], list[Buffer]]:
    """Dimensions and buffers of a nest, as `list_dims` and `list_buffers` return them."""
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
"""Types of values without parts."""


@functools.cache
def _list_fields(of: type[Any]) -> tuple[str, ...]:
    """Fields of a class that may contain dimensions."""
    fields = dataclasses.fields(of) if dataclasses.is_dataclass(of) else ()
    return tuple(field.name for field in fields if field.type not in ("bool", "int", "str"))


def inside(node: Node) -> tuple[Node, ...]:
    """Child nodes."""
    kind = type(node)
    if kind is Numbers:
        node = cast("Numbers", node)
        return (*node.body, *node.others)
    return () if kind in _BARE else cast("Loop", node).body


_BARE: frozenset[type[object]] = frozenset({Point, Fill})
"""Kinds of nodes without children."""


def walk(nodes: Sequence[Node], *, filled: bool = True) -> Iterator[Node]:
    """Nodes and their descendants, outermost first; with `filled`, those that fill tiles too."""
    pending = list(reversed(nodes))
    while pending:
        node = pending.pop()
        yield node
        if filled or not isinstance(node, Stage):
            pending += reversed(inside(node))


@functools.cache
def _list_bodies(of: type[Any]) -> tuple[str, ...]:
    """Fields of a class that contain child nodes."""
    return tuple(field.name for field in dataclasses.fields(of) if field.name in BODIES)


def map_bodies(node: Node, write: Callable[[tuple[Node, ...]], tuple[Node, ...]]) -> Node:
    """Node with what `write` makes of its child nodes; the same object if these stay the same."""
    parts: dict[str, Any] = {}
    for name in _list_bodies(type(node)):
        own = getattr(node, name)
        made = tuple(map(write, own)) if name == "cases" else write(own)
        if len(made) != len(own) or not all(map(operator.is_, made, own)):
            parts[name] = made
    return dataclasses.replace(node, **parts) if parts else node


def name_apart(nodes: Sequence[Node], taken: Counter[str] | None = None) -> tuple[Node, ...]:
    """Nodes in which loops of equal names are numbered after a dot."""
    taken = Counter() if taken is None else taken
    made: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            taken[node.name] += 1
            if taken[node.name] > 1:
                node = dataclasses.replace(node, name=f"{node.name}.{taken[node.name]}")
        made.append(map_bodies(node, lambda body: name_apart(body, taken)))
    return tuple(made)


def name_loops(nest: Nest) -> set[str]:
    """Names of all loops."""
    return {n.name for n in walk(nest.body) if isinstance(n, Loop)}


def take_name(wanted: str, taken: set[str]) -> str:
    """Name that is not taken, and is from now on: the wanted one, or its stem with a number."""
    stem = wanted.partition(".")[0]
    numbered = (f"{stem}.{number}" for number in range(2, len(taken) + 3))
    name = next(each for each in (wanted, *numbered) if each not in taken)
    taken.add(name)
    return name


def list_phases(node: Node, *, filled: bool = True) -> tuple[int, ...]:
    """Phases whose points are inside, or whose reduction ends there, in order."""
    nodes = walk((node,), filled=filled)
    return tuple(dict.fromkeys(n.phase for n in nodes if isinstance(n, Point | Reduce)))


def list_loops(nodes: Sequence[Node], dim: Dim) -> list[Loop]:
    """Loops over a dimension, or a tile of it, in some nodes, outermost first."""
    return [n for n in walk(nodes) if isinstance(n, Loop) and dim in (n.dim, n.dim.within)]


def is_once(loop: Loop, bounds: Taken) -> bool:
    """Whether the work items cover the whole dimension of a loop at once, a point or a vector each,
    for sizes with these bounds."""
    most = find_most(measure(loop.dim.size), bounds)
    lanes = [n for n in list_loops(loop.body, loop.dim) if n.kind is Kind.LANE]
    return most is not None and any(most <= n.step * n.extent for n in lanes)


def list_arrangements(nest: Nest) -> list[tuple[tuple[str, int], ...]]:
    """Further arrangements of a group's work items along other axes, as where they fill buffers.
    Each block of loops has its own."""
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
    """Work-item axes of the loops in a node, outermost first."""
    loops = [n for n in walk((node,)) if isinstance(n, Loop) and n.kind is Kind.LANE]
    return tuple((n.wanted, n.extent) for n in loops)


def find_shared(node: Reduce) -> list[str]:
    """Work-item axes over which a reduction remains to be combined, after its partial
    reductions."""
    if node.tile is not None:
        return [node.joins] if node.joins else []
    inner = list(walk(node.body, filled=False))
    if any(isinstance(n, Reduce) and n.joins and n.phase == node.phase for n in inner):
        return []
    loops = [n for n in inner if isinstance(n, Loop) and n.kind is Kind.LANE and n.extent > 1]
    return list(dict.fromkeys(n.wanted for n in loops))


def is_multiple_of(dim: Dim, step: int) -> bool:
    """Whether a dimension is a multiple of the step, in every chunk if it is a chunk of a longer
    one."""
    whole = dim.size if dim.piece is None else dim.piece[1]
    sizes = (whole, dim.size) if isinstance(dim.size, int) else ()
    return bool(sizes) and not any(isinstance(n, int) and n % step for n in sizes)


def in_vectors(dim: Dim, lanes: int, body: tuple[Node, ...], name: str = "i") -> Loop:
    """Vectorized loop, with its remainder in shorter vectors and then scalars."""
    rest = (SHORT_VECTOR,) if lanes > SHORT_VECTOR else ()
    return Loop(dim, Kind.VECTOR, lanes, body, name, rest=rest)


def number_steps(name: str, parts: Sequence[tuple[Dim, int]]) -> Dim:
    """Dimension of the step numbers of some dimensions, the last of which varies fastest."""
    counts = [
        dim.count_steps(step) if isinstance(dim.size, int) else divide_up(measure(dim.size), step)
        for dim, step in parts
    ]
    return Dim(name, make_size(multiply(counts)), tuple(parts))


def _remark(nest: Nest, node: Node, around: Sequence[Node]) -> str:
    """Remark on a node's line, for readers."""
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
    """Range of a loop: `0..4,096`, or the step of the enclosing loop."""
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
    """Names, each once: neighbours have one name."""
    return ", ".join(dict.fromkeys(name.partition("#")[0] for name in names))
