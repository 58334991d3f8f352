"""From a nest to statements: the one writer of kernels' loops.

A recursive walk over the schedule tree. Each loop narrows the range of its dimension or settles a
point of it, each reduction brings accumulators, and each point the values of its phase, written in
the outermost loop in which all they depend on is known. Where a dimension is no whole number of
steps, loops stop at its end, what is written out or shared by work items is guarded, and vectors
leave a remainder.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import contribute, finish
from dmlc.kernel.accumulators import (
    Accumulators,
    Frame,
    always,
    enter,
    fill,
    flush,
    have_at_hand,
    join_items,
    join_lanes,
    keep,
    load,
    make_arrays,
)
from dmlc.kernel.element import View, list_conditions, list_joins, list_needed, list_stored
from dmlc.kernel.emit import (
    Emitter,
    Names,
    Position,
    add,
    find_guarded,
    index,
    local_name,
    multiply,
    operate,
    split_words,
)
from dmlc.kernel.lanes import Lanes
from dmlc.kernel.overlap import overlap
from dmlc.kernel.picked import load_patterns, spread_loads
from dmlc.kernel.schedule.nest import (
    Buffer,
    Dim,
    Fill,
    Into,
    Kind,
    Loop,
    Nest,
    Node,
    Pack,
    Pick,
    Point,
    Reduce,
    Turns,
    inside,
    list_loops,
    list_phases,
    walk,
)
from dmlc.kernel.streaming import Streaming, Streams
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import InternalError

_WORD = k.Type(DataType.UINT32)

_FOUR = 4
"""The lanes of shorter vectors, for what long ones leave over."""

_Inside: TypeAlias = "Callable[[_Scope], list[k.Statement]]"
"""The statements inside others, from what is known there."""


_ZERO = index(0)


class _Half(enum.Enum):
    """What is written of a reduction whose two ends lie apart."""

    MAKE = "make"
    END = "end"


@dataclasses.dataclass(frozen=True, slots=True)
class _Scope:
    """What is known in the body of a loop."""

    depth: int = 0
    """The loops around."""
    lanes: int = 1
    starts: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """Where the range starts that the loops inside walk; elsewhere it is 0."""
    stops: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """Where it ends; elsewhere that is the end of the dimension."""
    known: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """The point along each dimension that is settled."""
    loose: frozenset[Dim] = frozenset()
    """The dimensions whose range may go beyond their end."""
    output: k.Expression = _ZERO
    """Which output of a block it is."""
    bases: Mapping[int, tuple[frozenset[Dim], Mapping[View, k.Expression]]] = dataclasses.field(
        default_factory=dict[int, "tuple[frozenset[Dim], Mapping[View, k.Expression]]"]
    )
    """Of phases what positions come to that are known along some dimensions."""
    opened: Mapping[int, int] = dataclasses.field(default_factory=dict[int, int])
    """For each phase the innermost scope whose values are written."""
    emitters: Mapping[int, Emitter] = dataclasses.field(default_factory=dict[int, Emitter])
    """In place of those of whole phases."""
    together: Lanes | None = None
    """How the lanes of a vector go together, where they do not lie side by side."""
    conditions: Mapping[int, tuple[int, ...]] = dataclasses.field(
        default_factory=dict[int, tuple[int, ...]]
    )
    """The conditions of each reduction that are still to be tested."""
    states: Mapping[int, Accumulators] = dataclasses.field(default_factory=dict[int, Accumulators])
    used: frozenset[str] = frozenset()
    """The axes of the work items that loops around have taken."""
    half: _Half | None = None
    """Which end is written of reductions whose ends lie apart."""
    is_own: k.Expression | None = None
    """Whether what is computed is this work item's to store; None where all is."""
    streams: Mapping[int, Streams] = dataclasses.field(default_factory=dict[int, Streams])
    packs: Mapping[str, tuple[k.Local | str, k.Expression]] = dataclasses.field(
        default_factory=dict[str, "tuple[k.Local | str, k.Expression]"]
    )
    """What is put together of what is stored: the word or array of each buffer, and the number of
    the element in it."""


def lower_nest(
    nest: Nest, names: Names, vector: int, streaming: Streaming, limit: int | None
) -> tuple[list[k.Statement], tuple[k.Array, ...]]:
    """The statements of a nest, and the arrays they need. Whole vectors have `vector` lanes. Where
    a launch has more groups than `limit` along a dimension, more may run than it takes."""
    writer = _Writer(nest, Frame(names, vector), streaming, limit)
    return writer.write_all(), tuple(writer.frame.arrays)


class _Writer:
    def __init__(self, nest: Nest, frame: Frame, streaming: Streaming, limit: int | None) -> None:
        self.frame = frame
        self._nest = nest
        self._streaming = streaming
        self._limit = limit
        self._lanes: dict[str, k.Expression] = {}
        """The number of this work item along each axis of its group."""
        numbers = range(len(nest.phases))
        self._terms = [_find_terms(nest, number) for number in numbers]
        self._paths = [_find_path(nest.body, number) for number in numbers]
        self._levels = [_find_levels(nest.dims[n], self._paths[n]) for n in numbers]
        self._halves: dict[int, Accumulators] = {}
        """The accumulators of reductions that are made at one place and ended at another."""
        self._named = {buffer.name: buffer for buffer in nest.buffers}
        self._arrays: dict[Buffer, str] = {}
        self._counts: dict[Dim, k.Expression] = {}
        """The step that a loop around is at."""
        self._serial = {n.phase for n in walk(nest.body) if isinstance(n, Reduce) and n.serial}
        self._emitters = [self._make_emitter(number, None) for number in numbers]

    def write_all(self) -> list[k.Statement]:
        """The whole body of the kernel."""
        body = self._name_lanes()
        for buffer in self._nest.buffers:
            self._make_buffer(buffer)
        return body + self._write(self._nest.body, _Scope())

    # Values of phases -------------------------------------------------------------------------

    def _make_emitter(self, number: int, together: Lanes | None) -> Emitter:
        phase, path = self._nest.phases[number], self._paths[number]
        elements, levels, terms = phase.elements, self._levels[number], self._terms[number]

        def depth(view: View) -> int:
            return max((levels[dim] for dim, _ in terms[view]), default=0)

        vectors = next((n.dim for n in path if isinstance(n, Loop) and n.kind is Kind.VECTOR), None)
        guarded, tests = 0, self._tests(number)
        if tests:
            innermost = sum(isinstance(n, Loop) for n in path)
            outside = next(i for i, n in enumerate(path) if isinstance(n, Reduce))
            around = sum(isinstance(n, Loop) for n in path[:outside])
            least = innermost if elements.results else around + 1
            guarded = find_guarded(elements, self.frame.names, depth, least)
        return Emitter(
            elements,
            self.frame.names,
            depth,
            self.frame.near,
            wide=lambda view: any(dim is vectors for dim, _ in terms[view]),
            guarded=guarded,
            apart=list_joins(elements) if tests else (),
            spread={} if together is None else spread_loads(together.patterns[number], self._let),
            slants={} if together is None else together.slants[number],
            fixed=() if together is None else together.fixed[number],
            numbered=together is None,
        )

    def _let(self, name: str, value: k.Expression) -> k.Let:
        return self.frame.let(name, value)

    def _tests(self, number: int) -> bool:
        """Whether the guard of a phase's reductions is tested before what it protects is read;
        otherwise it chooses what a point adds, as in vectors along the points."""
        phase = self._nest.phases[number]
        if not phase.gathered or number in self._serial:
            return bool(phase.gathered)
        vectors = [n for n in self._paths[number] if isinstance(n, Loop) and n.kind is Kind.VECTOR]
        return phase.tests_guard and not vectors

    def _position(self, number: int, scope: _Scope) -> Position:
        terms = self._terms[number]
        based, bases = scope.bases.get(number, (frozenset[Dim](), {}))

        def position(view: View) -> k.Expression:
            if view.near and not self._is_linear(view.tensor):
                buffer = self._named.get(view.tensor)
                own = buffer is None or buffer.dim is self._nest.block
                return scope.output if own or buffer is None else scope.known[buffer.dim]
            base = bases.get(view)
            known = scope.known if base is None else scope.known.keys() - based
            steps = [multiply(scope.known[d], s) for d, s in terms[view] if d in known]
            return add(*steps, index(view.offset)) if base is None else add(base, *steps)

        return position

    def _is_linear(self, name: str) -> bool:
        """Whether a buffer is read wherever strides say."""
        return name in self._named and self._named[name].linear

    def _emitter(self, number: int, scope: _Scope) -> Emitter:
        return scope.emitters.get(number, self._emitters[number])

    def _open(self, number: int, scope: _Scope, within: _Inside) -> list[k.Statement]:
        """The values of a phase that are known by now and not written yet, and what is inside:
        under the conditions that are known by now, too."""
        level = scope.opened.get(number, -1) + 1
        if level > scope.depth:
            return self._open_streams(number, scope, within)
        emitter = self._emitter(number, scope)
        pending = scope.conditions.get(number, ())
        here = [c for c in pending if emitter.level(c) == level]
        left = tuple(c for c in pending if c not in here)
        further = dataclasses.replace(
            scope,
            opened={**scope.opened, number: level},
            conditions={**scope.conditions, number: left},
        )
        emitter.forget(level)
        return self._enter(number, level, scope, here, lambda: self._open(number, further, within))

    def _open_streams(self, number: int, scope: _Scope, within: _Inside) -> list[k.Statement]:
        """Settles which results pass the caches by, once."""
        if number not in self._nest.streams or number in scope.streams:
            return within(scope)
        body: list[k.Statement] = []
        sizes = [dim.size for dim in self._nest.dims[number] if isinstance(dim.size, k.Scalar)]
        count = sizes[0] if sizes else None
        phase = self._nest.phases[number]
        streams = self._streaming.open(phase, count, self.frame, body)
        scope = dataclasses.replace(scope, streams={**scope.streams, number: streams})
        return body + within(scope)

    def _enter(
        self,
        number: int,
        level: int,
        scope: _Scope,
        conditions: Sequence[int],
        within: Callable[[], list[k.Statement]],
    ) -> list[k.Statement]:
        """The values of a scope and what is inside, where some conditions hold. Each comes right
        after the values it needs, and before all others; it is the same in all lanes."""
        emitter, position = self._emitter(number, scope), self._position(number, scope)
        lanes = scope.lanes if level >= self._vector_level(number) else 1
        if not conditions:
            made = emitter.lets(level, position, lanes, around=True, rest=True)
            return made + within()
        first, *others = conditions
        needed = list_needed(self._nest.phases[number].elements, first)
        before = emitter.lets(level, position, only=needed)
        condition = emitter.value(first)
        then = self._enter(number, level, scope, others, within)
        match then:
            case [k.If(condition=second, then=innermost)] if others:
                return [*before, k.If(_both(condition, second), innermost)]
            case _:
                return [*before, k.If(condition, tuple(then))]

    def _vector_level(self, number: int) -> int:
        """The scope of a phase's loop in vectors."""
        loops = [n for n in self._paths[number] if isinstance(n, Loop)]
        return next((i + 1 for i, n in enumerate(loops) if n.kind is Kind.VECTOR), len(loops) + 1)

    # The tree ---------------------------------------------------------------------------------

    def _write(self, nodes: Sequence[Node], scope: _Scope) -> list[k.Statement]:
        """The statements of some nodes, one after the other."""
        made: list[k.Statement] = []
        for node in nodes:
            made += self._write_node(node, scope)
        return made

    def _write_node(self, node: Node, scope: _Scope) -> list[k.Statement]:
        taken = {n.name for n in walk((node,)) if isinstance(n, Loop) and n.kind is Kind.LANE}
        idle = [a for a in self._nest.lanes if a[0] not in scope.used | taken and a[1] > 1]
        if idle:
            # What work items do not share they have all, and the first one stores.
            owns = [operate("eq", self._lanes[name], index(0)) for name, _ in idle]
            owns += [] if scope.is_own is None else [scope.is_own]
            used = frozenset(name for name, _ in self._nest.lanes)
            if any(isinstance(n, Reduce) for n in walk((node,))):
                all_own = functools.reduce(_both, owns)
                alone = dataclasses.replace(scope, used=used, is_own=all_own)
                return self._write_node(node, alone)
            alone = dataclasses.replace(scope, used=used, is_own=None)
            return _guard(owns, self._write_node(node, alone))
        match node:
            case Point():
                return self._write_point(node, scope)
            case Loop():
                return self._open_all(list_phases(node), node, scope)
            case Reduce():
                return self._open(node.phase, scope, lambda scope: self._write_reduce(node, scope))
            case Pack():
                return self._write_packed(node, scope)
            case Fill():
                return self._write_zeros(node)
            case Pick():
                return self._write_picked(node, scope)
            case Turns():
                return self._write_turns(node, scope)

    def _open_all(self, phases: Sequence[int], node: Loop, scope: _Scope) -> list[k.Statement]:
        """A loop, before which the values of its first phase are written; where the loop picks,
        those of all."""
        picks = any(isinstance(n, Pick) for n in node.body)
        rest = phases[1:] if picks else ()

        def within(scope: _Scope) -> list[k.Statement]:
            return self._open_all(rest, node, scope) if rest else self._write_loop(node, scope)

        return self._open(phases[0], scope, within)

    # Loops ------------------------------------------------------------------------------------

    def _name_lanes(self) -> list[k.Statement]:
        """The number of this work item along each axis of its group."""
        body: list[k.Statement] = []
        inner = math.prod(extent for _, extent in self._nest.lanes)
        outermost = True
        for name, extent in self._nest.lanes:
            inner //= extent
            if extent == 1:
                self._lanes[name] = index(0)
                continue
            lane: k.Expression = k.Position(k.Geometry.LANE)
            if inner > 1:
                lane = operate("div", lane, index(inner))
            if not outermost:
                lane = operate("mod", lane, index(extent))
            outermost = False
            shared = len(self._nest.lanes) > 1
            self._lanes[name] = self.frame.name(body, name, lane) if shared else lane
        return body

    def _write_loop(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        match node.kind:
            case Kind.GROUP:
                return self._write_group(node, scope)
            case Kind.LANE:
                return self._write_lane(node, scope)
            case Kind.UNROLL:
                return self._write_counted(node, scope)
            case Kind.LOOP:
                counted = bool(node.extent)
                return (self._write_counted if counted else self._write_serial)(node, scope)
            case Kind.VECTOR:
                return self._write_vectors(node, scope)

    def _write_group(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        dim, step, body = node.dim, node.step, list[k.Statement]()
        if isinstance(dim.size, int) and dim.size <= step:
            if dim.size < step or self._limit is not None:
                scope = dataclasses.replace(scope, loose=scope.loose | {dim})
            return self._settle(node, scope, index(0), body)
        if self._limit is not None or not isinstance(dim.size, int) or dim.size % step != 0:
            scope = dataclasses.replace(scope, loose=scope.loose | {dim})
        number: k.Expression = k.Position(k.Geometry.GROUP)
        loops = list_loops(node.body, dim)
        if not loops or loops[0].extent:
            if node.name and loops:
                number = self.frame.name(body, node.name, number)
            return self._settle(node, scope, multiply(number, step), body)
        start = self.frame.name(body, node.name, multiply(number, step))
        end: k.Expression = add(start, index(step))
        if dim in scope.loose:
            end = operate("min", end, dim.count)
        stop = self.frame.name(body, "end", end)
        scope = dataclasses.replace(
            scope, stops={**scope.stops, dim: stop}, loose=scope.loose - {dim}
        )
        return self._settle(node, scope, start, body)

    def _write_lane(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        dim = node.dim
        scope = dataclasses.replace(scope, used=scope.used | {node.name})
        start = scope.starts.get(dim, index(0))
        if node.extent == 1:
            return self._settle(node, scope, start, [])
        if dim not in scope.starts and dim.size != node.extent * node.step:
            scope = dataclasses.replace(scope, loose=scope.loose | {dim})
        body: list[k.Statement] = []
        start = add(start, multiply(self._lanes[node.name], node.step))
        inner = list_loops(node.body, dim)
        if any(n.step < node.step or n.kind is Kind.VECTOR for n in inner):
            start = self.frame.name(body, f"first_{dim.name}", start)
            stop = scope.stops.get(dim) or self._find_end(dim, scope, body)
            end = operate("min", add(start, index(node.step)), stop)
            stops = {**scope.stops, dim: self.frame.name(body, f"end_{dim.name}", end)}
            scope = dataclasses.replace(scope, stops=stops)
        return self._settle(node, scope, start, body)

    def _write_counted(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        """A loop over so many steps, all of which there are."""
        dim, unroll = node.dim, node.kind is Kind.UNROLL
        if dim not in scope.starts and dim.size != node.extent * node.step:
            scope = dataclasses.replace(scope, loose=scope.loose | {dim})
        start = scope.starts.get(dim, index(0))
        if node.extent == 1:
            return self._settle(node, scope, start, [])
        number = self.frame.variable(node.name)
        counted = any(buffer.rows is node.dim for buffer in self._nest.buffers)
        if counted:
            self._counts[node.dim] = number
        if node.step == 1 and not scope.packs and not counted:
            made = self._settle(node, scope, number, [])
            last = add(start, index(node.extent))
            return [k.For(number, start, last, 1, tuple(made), unroll=unroll)]
        packs = {buffer: (into, number) for buffer, (into, _) in scope.packs.items()}
        scope = dataclasses.replace(scope, packs=packs)
        made = self._settle(node, scope, add(start, multiply(number, node.step)), [])
        return [k.For(number, index(0), index(node.extent), 1, tuple(made), unroll=unroll)]

    def _write_serial(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        dim, body = node.dim, list[k.Statement]()
        start, stop = self._find_range(node, scope, body)
        finer = list_loops(node.body, dim)
        if node.step > 1 and finer and finer[0].extent:
            loops = self._write_whole_steps(node, scope, start, stop, body)
            return body + loops
        low, high = _number(start), _number(stop)
        if low is not None and high is not None and high <= low + node.step:
            return self._settle(node, scope, start, body)
        if node.interleaved:
            return body + self._write_interleaved(node, scope, start, stop)
        variable = self.frame.variable(node.name)
        scope = dataclasses.replace(scope, loose=scope.loose - {dim})
        within: list[k.Statement] = []
        place: k.Expression = variable
        if dim is self._nest.block:
            scope = dataclasses.replace(scope, output=variable)
            if not self._is_row(node):
                place = add(scope.starts.get(dim, index(0)), variable)
        if list_loops(node.body, dim):
            end: k.Expression = add(variable, index(node.step))
            if not isinstance(stop, k.Literal) or int(stop.value) % node.step:
                end = operate("min", end, stop)
            named = self.frame.name(within, f"{node.name}_end", end)
            scope = dataclasses.replace(scope, stops={**scope.stops, dim: named})
        elif self._is_row(node):
            scope = self._name_bases(node, scope, body)
        made = self._settle(node, scope, place, within)
        loop = k.For(variable, start, stop, node.step, tuple(made), backwards=node.backwards)
        return [*body, loop]

    def _write_interleaved(
        self, node: Loop, scope: _Scope, start: k.Expression, stop: k.Expression
    ) -> list[k.Statement]:
        """A loop that reduces each step's points beside what it does with those of the one before.
        The first is reduced, and the last done with, by itself."""
        makes = dataclasses.replace(node, body=node.body[:1], interleaved=False)
        rest = dataclasses.replace(node, interleaved=False)
        making = dataclasses.replace(scope, half=_Half.MAKE)
        ending = dataclasses.replace(scope, half=_Half.END)
        block = self.frame.variable(node.name)
        body = self._settle(makes, making, start, [])
        turn: list[k.Statement] = []
        before = self.frame.name(turn, "before", operate("sub", block, index(1)))
        done = self._settle(rest, ending, before, [])
        both = overlap(done, self._settle(makes, making, block, []))
        if both is None:
            raise InternalError("a reduction and what applies it have different loops")
        first = add(start, index(1))
        body.append(k.For(block, first, stop, 1, (*turn, *both)))
        last = self.frame.name(body, "last", operate("sub", stop, index(1)))
        return body + self._settle(rest, ending, last, [])

    def _find_range(
        self, node: Loop, scope: _Scope, body: list[k.Statement]
    ) -> tuple[k.Expression, k.Expression]:
        """Where a loop starts and stops. Along a block it counts its outputs."""
        dim = node.dim
        if node.part is not None:
            return index(node.part[0]), index(node.part[1])
        if dim is self._nest.block:
            return index(0), scope.stops.get(dim) or dim.count
        start = scope.starts.get(dim, index(0))
        return start, scope.stops.get(dim) or self._find_end(dim, scope, body)

    def _find_end(self, dim: Dim, scope: _Scope, body: list[k.Statement]) -> k.Expression:
        """The end of a dimension: that of the last piece of a longer one may come sooner."""
        first = dim.parts[0][0] if dim.parts else dim
        if first.piece is None or not isinstance(first.size, int):
            return dim.count
        number, whole = first.piece
        if whole % first.size == 0:
            return dim.count
        rest = operate("sub", index(whole), multiply(scope.known[number], first.size))
        length = operate("min", index(first.size), rest)
        if first is dim:
            return self.frame.name(body, "end", length)
        inner = math.prod(p.size for p, _ in dim.parts[1:] if isinstance(p.size, int))
        return self.frame.name(body, "points", multiply(length, inner))

    def _write_whole_steps(
        self,
        node: Loop,
        scope: _Scope,
        start: k.Expression,
        stop: k.Expression,
        body: list[k.Statement],
    ) -> list[k.Statement]:
        """A loop by steps that are written out inside; what these leave over goes one by one."""
        dim, step = node.dim, node.step
        if isinstance(stop, k.Literal):
            middle: k.Expression = index(int(stop.value) // step * step)
        else:
            length = stop if start == index(0) else operate("sub", stop, start)
            rest = operate("mod", length, index(step))
            middle = self.frame.name(body, f"{node.name}s_end", operate("sub", stop, rest))
        loops: list[k.Statement] = []
        if self._is_row(node):
            scope = self._name_bases(node, scope, body)
        scope = dataclasses.replace(scope, loose=scope.loose - {dim})
        for width, first, last in ((step, start, middle), (1, middle, stop)):
            if first == last:
                continue
            variable = self.frame.variable(node.name if width > 1 else dim.name)
            within: list[k.Statement] = []
            place: k.Expression = variable
            if node.backwards and width > 1 and isinstance(last, k.Literal):
                from_end = operate("sub", index(int(last.value) - width), variable)
                place = self.frame.name(within, dim.name, from_end)
            whole = node if width > 1 else dataclasses.replace(node, body=_roll(node.body, dim))
            made = self._settle(whole, scope, place, within)
            loops.append(k.For(variable, first, last, width, tuple(made)))
        return loops

    def _settle(
        self, node: Loop, scope: _Scope, place: k.Expression, body: list[k.Statement]
    ) -> list[k.Statement]:
        """What is inside a step of a loop that starts at a place: a range for the loops inside, or
        a point. `body` has the statements before it."""
        dim = node.dim
        deeper = dataclasses.replace(scope, depth=scope.depth + 1)
        further = list_loops(node.body, dim)
        if further:
            starts = {**scope.starts, dim: place}
            named = node.kind is Kind.LANE and isinstance(place, k.Operate | k.Position)
            if named and any(loop.kind is Kind.UNROLL for loop in further):
                starts[dim] = self.frame.name(body, "first", place)
            return body + self._write(node.body, dataclasses.replace(deeper, starts=starts))
        if isinstance(place, k.Operate | k.Position):
            place = self.frame.name(body, dim.name, place)
        if dim not in scope.loose:
            return body + self._settle_parts(node, deeper, dim, place)
        bound = dim.count
        is_inside = operate("lt", place, bound)
        if len(dim.parts) == 1:
            part, step = dim.parts[0]
            is_inside = operate("lt", multiply(place, step), part.count)
        deeper = dataclasses.replace(deeper, loose=scope.loose - {dim})
        if not any(self._is_shared(n) for n in walk(node.body)):
            made = self._settle_parts(node, deeper, dim, place)
            return [*body, k.If(is_inside, tuple(made))]
        # All work items meet the barriers inside: those beyond the end repeat the last point.
        last = operate("sub", bound, index(1))
        last = index(int(dim.size) - 1) if isinstance(dim.size, int) else last
        place = self.frame.name(body, "at", operate("min", place, last))
        deeper = dataclasses.replace(deeper, is_own=is_inside)
        return body + self._settle_parts(node, deeper, dim, place)

    def _settle_parts(
        self, node: Loop, scope: _Scope, dim: Dim, place: k.Expression
    ) -> list[k.Statement]:
        """What is inside where a point of a dimension is settled, and so are the dimensions that it
        was made of."""
        scope = dataclasses.replace(scope, known={**scope.known, dim: place})
        if not dim.parts:
            return self._write(node.body, scope)
        body: list[k.Statement] = []
        needed = {
            part
            for number in list_phases(node)
            for terms in self._terms[number].values()
            for part, _ in terms
        }
        needed.update(n.dim for n in walk(node.body) if isinstance(n, Turns))
        counts = [_count_steps(part, step) for part, step in dim.parts]
        inner, outermost = math.prod(counts), True
        known, starts, stops = dict(scope.known), dict(scope.starts), dict(scope.stops)
        checks: list[k.Expression] = []
        for (part, step), count in zip(dim.parts, counts, strict=True):
            inner //= max(count, 1)
            if len(dim.parts) == 1:
                digit: k.Expression = place
            elif count == 1:
                digit = index(0)
            else:
                digit = place if inner == 1 else operate("div", place, index(inner))
                if not outermost:
                    digit = operate("mod", digit, index(count))
                outermost = False
            loops = list_loops(node.body, part)
            if part not in needed and not loops and part.piece is None:
                continue
            if isinstance(digit, k.Operate):
                digit = self.frame.name(body, part.name, digit)
            if loops:
                starts[part], stop = self._narrow(part, step, count, digit, body)
                if stop is not None:
                    stops[part] = stop
                continue
            known[part] = digit
            if part.piece is not None and part is not dim.parts[0][0]:
                checks += self._check_piece(part, digit, scope)
        scope = dataclasses.replace(scope, known=known, starts=starts, stops=stops)
        return body + _guard(checks, self._write(node.body, scope))

    def _narrow(
        self, dim: Dim, step: int, count: int, digit: k.Expression, body: list[k.Statement]
    ) -> tuple[k.Expression, k.Expression | None]:
        """The range of a dimension that one of so many steps of it has."""
        start = multiply(digit, step)
        if count <= 1 or not isinstance(dim.size, int) or not isinstance(start, k.Operate):
            return start, None
        blocked = dim is self._nest.block
        start = self.frame.name(body, "first" if blocked else f"first_{dim.name}", start)
        if blocked:
            if dim.size % step == 0:
                return start, index(step)
            rest = operate("sub", index(dim.size), start)
            return start, self.frame.name(body, "count", operate("min", index(step), rest))
        end: k.Expression = add(start, index(step))
        if dim.size % step:
            end = operate("min", end, index(dim.size))
        return start, self.frame.name(body, f"end_{dim.name}", end)

    def _check_piece(self, dim: Dim, place: k.Expression, scope: _Scope) -> list[k.Expression]:
        """What tells the points of a piece from those beyond its end."""
        number, whole = dim.piece or (dim, 0)
        if not isinstance(dim.size, int) or whole % dim.size == 0:
            return []
        rest = operate("sub", index(whole), multiply(scope.known[number], dim.size))
        return [operate("lt", place, rest)]

    # Vectors ----------------------------------------------------------------------------------

    def _is_row(self, node: Loop) -> bool:
        """Whether positions go on evenly from where a loop starts: then that gets a name."""
        within = node.body
        while len(within) == 1 and not isinstance(within[0], Point):
            one = within[0]
            if isinstance(one, Pick | Turns | Fill) or (isinstance(one, Reduce) and one.serial):
                return False
            if isinstance(one, Loop) and not (one.dim is node.dim and one.extent):
                return False
            within = one.body
        points = [n for n in within if isinstance(n, Point)]
        return len(points) == len(within) == 1 and not node.dim.parts

    def _name_bases(self, node: Loop, scope: _Scope, body: list[k.Statement]) -> _Scope:
        """What each view's position in a row starts from, named where it takes arithmetic. Reads at
        computed positions that have been made by then need none."""
        dim = node.dim
        (number,) = list_phases(node)
        if number in self._serial:
            return scope
        known = dict(scope.known)
        if dim is self._nest.block:
            known[dim] = scope.starts.get(dim, index(0))
        at = self._position(number, dataclasses.replace(scope, known=known))
        emitter, elements = self._emitter(number, scope), self._nest.phases[number].elements
        names: dict[k.Expression, k.Local] = {}
        bases: dict[View, k.Expression] = {}
        unneeded = emitter.list_settled(scope.depth)
        for view in elements.views():
            if view.near or view in unneeded:
                continue
            base = at(view)
            if isinstance(base, k.Operate):
                if base not in names:
                    names[base] = self.frame.name(body, "row_start", base)
                base = names[base]
            bases[view] = base
        based = frozenset(d for d in scope.known if d is not dim)
        return dataclasses.replace(scope, bases={**scope.bases, number: (based, bases)})

    def _write_vectors(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        dim, body = node.dim, list[k.Statement]()
        start, stop = self._find_range(node, scope, body)
        if node.together is not None:
            return body + self._write_together(node, scope, start, stop)
        if self._is_row(node) or dim is self._nest.block:
            phases = list_phases(node)
            scope = self._name_bases(node, scope, body) if len(phases) == 1 else scope
        ahead = self._fetch_ahead(node, scope, body)
        made: list[k.Statement] = []
        variable = self.frame.variable("j" if dim is self._nest.block else "i")
        lead = next((s.lead for s in scope.streams.values() if s.lead is not None), None)
        for width, first, last in self._share_out(node.step, start, stop, lead, body):
            within: list[k.Statement] = []
            if width == node.step:
                within = [k.Prefetch(b, add(base, variable)) for b, base in ahead.items()]
            wide = dataclasses.replace(scope, lanes=width)
            made.append(self._loop_wide(node, wide, variable, first, last, within))
        return body + made

    def _loop_wide(
        self,
        node: Loop,
        scope: _Scope,
        variable: k.Local,
        first: k.Expression,
        last: k.Expression,
        within: list[k.Statement],
    ) -> k.For:
        if node.dim is self._nest.block:
            scope = dataclasses.replace(scope, output=variable)
        made = self._settle(node, scope, variable, within)
        return k.For(variable, first, last, scope.lanes, tuple(made))

    def _share_out(
        self,
        lanes: int,
        start: k.Expression,
        stop: k.Expression,
        lead: k.Expression | None,
        body: list[k.Statement],
    ) -> list[tuple[int, k.Expression, k.Expression]]:
        """The loops over a stretch: their lanes and bounds. What whole vectors leave over is taken
        by fours, where its length is known, and then one by one. The first `lead` elements come
        before all vectors."""
        if isinstance(start, k.Literal) and isinstance(stop, k.Literal):
            shares: list[tuple[int, k.Expression, k.Expression]] = []
            first = int(start.value)
            for width in dict.fromkeys((lanes, _FOUR, 1)):
                last = first + (int(stop.value) - first) // width * width
                if last > first:
                    shares.append((width, index(first), index(last)))
                    first = last
            return shares
        shares = []
        if lead is not None:
            # Every run starts a whole number of cache lines into the memory, so that the first
            # aligned vector is as far into each.
            aligned = operate("min", add(start, lead), stop)
            begin, start = start, self.frame.name(body, "vector_begin", aligned)
            shares.append((1, begin, start))
        length = stop if start == index(0) else operate("sub", stop, start)
        rest = operate("mod", length, index(lanes))
        middle = self.frame.name(body, "vector_end", operate("sub", stop, rest))
        return [*shares, (lanes, start, middle), (1, middle, stop)]

    def _write_together(
        self, node: Loop, scope: _Scope, start: k.Expression, stop: k.Expression
    ) -> list[k.Statement]:
        """A stretch whose middle goes in vectors though reads lie apart, and its ends one by
        one."""
        together, body = node.together, list[k.Statement]()
        if together is None:
            return body
        first: k.Expression = index(together.first)
        last: k.Expression = index(together.last)
        if not isinstance(stop, k.Literal):
            # A piece of a longer row has vectors only where the row does.
            whole = isinstance(node.dim.size, int) and together.last < node.dim.size
            first, last = start, stop
            if whole:
                end = operate("min", stop, index(together.last))
                last = self.frame.name(body, "vector_end", operate("max", start, end))
        variable = self.frame.variable("i")
        for lanes, low, high in ((1, start, first), (node.step, first, last), (1, last, stop)):
            if low == high:
                continue
            if lanes == 1:
                body += self._write_stretch(node, scope, variable, low, high)
                continue
            phases = list_phases(node)
            wide = dataclasses.replace(
                scope,
                together=together,
                opened={n: o for n, o in scope.opened.items() if n not in phases},
                emitters={n: self._make_emitter(n, together) for n in phases},
            )

            def within(
                wide: _Scope, low: k.Expression = low, high: k.Expression = high
            ) -> list[k.Statement]:
                return self._write_stretch(
                    node, dataclasses.replace(wide, lanes=node.step), variable, low, high
                )

            body += self._open(phases[0], wide, within)
        return body

    def _write_stretch(
        self,
        node: Loop,
        scope: _Scope,
        variable: k.Local,
        first: k.Expression,
        last: k.Expression,
    ) -> list[k.Statement]:
        """A loop over a part of a row."""
        body: list[k.Statement] = []
        if self._is_row(node):
            scope = self._name_bases(node, scope, body)
        if isinstance(first, k.Literal) and last == index(int(first.value) + 1):
            return body + self._settle(node, scope, first, [])
        place, within = variable, list[k.Statement]()
        lanes = scope.lanes
        low, high = _number(first), _number(last)
        if low is not None and high is not None and (high - low) % lanes:
            # The last vector takes some points of the one before once more.
            place = self.frame.variable("x")
            again = operate("min", place, index(high - lanes))
            within.append(k.Let(variable, again))
        made = self._settle(node, scope, variable, within)
        return [*body, k.For(place, first, last, lanes, tuple(made))]

    def _fetch_ahead(
        self, node: Loop, scope: _Scope, body: list[k.Statement]
    ) -> dict[str, k.Expression]:
        """Where the next row along a loop around starts, for each tensor that is fetched."""
        dim = node.ahead
        if dim is None or dim not in scope.known or not isinstance(dim.size, int):
            return {}
        (number,) = list_phases(node)
        phase = self._nest.phases[number]
        following = operate("min", add(scope.known[dim], index(1)), index(dim.size - 1))
        known = {**scope.known, dim: self.frame.name(body, f"next_{dim.name}", following)}
        at = self._position(number, dataclasses.replace(scope, known=known, bases={}))
        rows: dict[k.Expression, k.Local] = {}
        found: dict[str, k.Expression] = {}
        for view in phase.elements.buffers():
            steps = dict(self._terms[number][view])
            if view.dtype.bytes != 2 or steps.get(node.dim) != 1 or not steps.get(dim):
                continue
            start = at(view)
            if start not in rows:
                rows[start] = self.frame.name(body, "next_row", start)
            found[view.tensor] = rows[start]
        return found

    # Reductions -------------------------------------------------------------------------------

    def _is_shared(self, node: Node) -> bool:
        """Whether the work items of a group make one accumulator of theirs."""
        return isinstance(node, Reduce) and _find_shared(node) is not None

    def _write_reduce(self, node: Reduce, scope: _Scope) -> list[k.Statement]:
        number, frame = node.phase, self.frame
        gathered = self._nest.phases[number].gathered
        outer = scope.states.get(number)
        loops = [n for n in walk(node.body) if isinstance(n, Loop)]
        blocked = any(n.dim is self._nest.block for n in loops)
        width = next((n.step for n in loops if n.kind is Kind.VECTOR), 1)
        if any(n.kind is Kind.VECTOR and n.dim is self._nest.block for n in loops):
            width = 1
        if node.resumes and outer is not None:
            state, body = load(frame, outer, scope.output, scope.lanes)
        elif node.array:
            size = self._block_width() if blocked else 1
            suffix = "_total" if width > 1 or _has_flush(node) else "_block"
            known = self._halves.get(number)
            state = known or make_arrays(frame, gathered, suffix, size, width)
            body = [] if scope.half is _Half.END else fill(frame, state)
            if scope.half is not None:
                self._halves[number] = state
        else:
            nested = any(isinstance(n, Reduce) for n in walk(node.body))
            suffix = "_total" if nested else ""
            state = Accumulators(gathered, {}, [], serial=node.serial, suffix=suffix)
            body = []
        half = scope.half if outer is None else None
        scope = dataclasses.replace(scope, states={**scope.states, number: state})
        inner = self._write_reduced(node, scope, outer is None) if half is not _Half.END else []
        if not state.arrays and not node.resumes:
            if not state.registers:
                state.take(frame, scope.lanes)
            body = state.declare()
        body += inner
        if half is _Half.MAKE:
            return body
        if node.resumes and outer is not None:
            return body + keep(outer, state, scope.output)
        if outer is not None:
            return body + flush(frame, state, outer, scope.output)
        return body + self._finish(node, state, scope, blocked)

    def _finish(
        self, node: Reduce, state: Accumulators, scope: _Scope, blocked: bool
    ) -> list[k.Statement]:
        """What makes accumulators the outcome of their reductions."""
        shared, body, frame = _find_shared(node), list[k.Statement](), self.frame
        if state.arrays and (state.lanes > 1 or not blocked):
            count = None
            if blocked and self._nest.block is not None:
                count = scope.stops.get(self._nest.block) or self._nest.block.count
            width, changes = self._block_width(), shared is not None
            state, body = join_lanes(frame, state, count, width, changes=changes)
        if shared is not None:
            body += join_items(frame, state, self._nest.lanes, self._lanes, shared)
        if node.into is not None:
            ((each, own),) = zip(state.gathered, next(iter(state.registers.values())), strict=True)
            value = finish(each.fold, own, each.fold.dtype, in_order=state.serial)
            return [*body, self._put(node.into, value, scope)]
        have_at_hand(self.frame, state, body)
        return body

    def _write_reduced(self, node: Reduce, scope: _Scope, first: bool) -> list[k.Statement]:
        """What is inside a reduction, under the conditions that are known by then."""
        number, elements = node.phase, self._nest.phases[node.phase].elements
        if not first or not self._tests(number):
            return self._write(node.body, scope)
        emitter = self._emitter(number, scope)
        left = frozenset[int]()
        if scope.together is not None:
            left = scope.together.certain[number] | scope.together.masks[number]
        conditions = [c for c in list_conditions(elements) if c not in left]
        above = [c for c in conditions if emitter.level(c) <= scope.depth]
        if elements.results:
            above = []
        pending = tuple(c for c in conditions if c not in above)
        within = dataclasses.replace(scope, conditions={**scope.conditions, number: pending})
        return self._enter(
            number, scope.depth, scope, above, lambda: self._write(node.body, within)
        )

    def _block_width(self) -> int:
        """The outputs of a block."""
        block = self._nest.block
        if block is None:
            return 1
        steps = [
            step
            for n in walk(self._nest.body)
            if isinstance(n, Loop)
            for part, step in n.dim.parts
            if part is block
        ]
        size = block.size if isinstance(block.size, int) else 1
        return min([*steps, size])

    # Points -----------------------------------------------------------------------------------

    def _write_point(self, node: Point, scope: _Scope) -> list[k.Statement]:
        number = node.phase
        phase = self._nest.phases[number]
        if node.into or node.name:
            return self._open(number, scope, lambda scope: self._hold(node, scope))
        if number not in scope.states:
            return self._open(number, scope, lambda scope: self._store(number, scope))
        conditions = scope.conditions.get(number, ())
        if not conditions or not phase.elements.results:
            return self._open(
                number,
                scope,
                lambda scope: self._accumulate(number, scope) + self._store(number, scope),
            )
        # What is stored does not depend on the conditions of what is added.
        emitter, level = self._emitter(number, scope), scope.depth
        free = {**scope.conditions, number: ()}
        around = dataclasses.replace(scope, depth=level - 1, conditions=free)

        def within(around: _Scope) -> list[k.Statement]:
            inner = dataclasses.replace(around, depth=level)
            emitter.forget(level)
            needed = list_stored(phase.elements)
            made = emitter.lets(level, self._position(number, inner), inner.lanes, only=needed)
            made += self._store(number, inner)
            return made + self._enter(
                number, level, inner, conditions, lambda: self._accumulate(number, inner)
            )

        return self._open(number, around, within)

    def _hold(self, node: Point, scope: _Scope) -> list[k.Statement]:
        """What a point makes for others."""
        emitter = self._emitter(node.phase, scope)
        results = self._nest.phases[node.phase].elements.results
        values = [emitter.value(number, scope.lanes) for _, number in results]
        if node.name:
            self.frame.near[node.name] = always(values[0])
            return []
        return [self._put(to, value, scope) for to, value in zip(node.into, values, strict=True)]

    def _accumulate(self, number: int, scope: _Scope) -> list[k.Statement]:
        """A point, or as many as there are lanes, enters the accumulators."""
        emitter, lanes = self._emitter(number, scope), scope.lanes
        points: list[tuple[k.Expression, ...]] = []
        state = scope.states[number]
        masks: list[int] = []
        if scope.together is not None:
            together = scope.together
            masks = sorted(together.masks[number] - together.certain[number])
        for gathered in state.gathered:
            fold = gathered.fold
            guard: k.Expression | None = None
            if fold.guard is not None and not self._tests(number):
                guard = emitter.value(fold.guard, lanes)
            for mask in masks:
                holds = emitter.value(mask, lanes)
                if guard is not None:
                    holds = k.Operate(OPERATIONS["and"], (guard, holds), holds.type)
                guard = holds
            place = None if fold.place is None else emitter.value(fold.place, lanes)
            points.append(
                contribute(gathered.slots, emitter.value(fold.value, lanes), guard, place)
            )
        return enter(self.frame, state, lanes, points)

    def _store(self, number: int, scope: _Scope) -> list[k.Statement]:
        """The stores of a point's results."""
        position, emitter = self._position(number, scope), self._emitter(number, scope)
        streams = scope.streams.get(number)
        flags = streams.flags if streams is not None and scope.lanes == self.frame.lanes else {}
        made: list[k.Statement] = []
        for store in emitter.stores(position, scope.lanes, flags):
            into, element = scope.packs.get(store.buffer, (None, index(0)))
            if into is None:
                made.append(store)
            elif isinstance(into, k.Local):
                made.append(k.PutHalf(into, store.buffer, element, store.value))
            else:
                made.append(k.Put(into, element, store.value))
        return _guard([] if scope.is_own is None else [scope.is_own], made)

    def _make_buffer(self, buffer: Buffer) -> None:
        """The array of what phases make for others."""
        array = k.Array(self.frame.names.take(buffer.wanted), buffer.dtype, buffer.size)
        self.frame.arrays.append(array)
        self._arrays[buffer] = array.name

        def read(place: k.Expression, lanes: int) -> k.Expression:
            kind = k.Type(buffer.dtype, lanes)
            return k.Element(array.name, self._place(buffer, place), kind)

        self.frame.near[buffer.name] = read

    def _place(self, buffer: Buffer, place: k.Expression) -> k.Expression:
        """Where in its array an element of a buffer's row is."""
        return add(self._offset(buffer), place, index(buffer.front))

    def _offset(self, buffer: Buffer) -> k.Expression:
        row = index(0) if buffer.rows is None else self._counts.get(buffer.rows, index(0))
        return multiply(row, buffer.pitch)

    def _put(self, into: Into, value: k.Expression, scope: _Scope) -> k.Statement:
        """Puts a value into a buffer."""
        point = scope.output if into.dim is self._nest.block else scope.known[into.dim]
        place = add(multiply(point, into.step), index(into.offset))
        return k.Put(self._arrays[into.buffer], self._place(into.buffer, place), value)

    def _write_zeros(self, node: Fill) -> list[k.Statement]:
        """Zeros in a part of a buffer, of each row."""
        buffer = node.buffer
        rows = buffer.size // buffer.pitch if buffer.pitch else 1
        row = self.frame.variable("row") if rows > 1 else index(0)
        place = self.frame.variable("x")
        zero = k.Literal(k.Type(buffer.dtype), 0.0 if buffer.dtype.is_float else 0)
        put = k.Put(self._arrays[buffer], add(multiply(row, buffer.pitch), place), zero)
        made = k.For(place, index(node.first), index(node.last), 1, (put,))
        if isinstance(row, k.Local):
            made = k.For(row, index(0), index(rows), 1, (made,))
        return [made]

    def _write_picked(self, node: Pick, scope: _Scope) -> list[k.Statement]:
        """Vectors that are made of what a row has at hand."""
        row, array = node.row, self._arrays[node.row]

        def load(place: k.Expression, lanes: int) -> k.Expression:
            return k.Element(array, place, k.Type(row.dtype, lanes))

        lets, picked = load_patterns(
            node.patterns, scope.known[node.dim], self._offset(row), row.front, load, self._let
        )
        for name, value in picked.items():
            self.frame.near[name] = always(value)
        return [*lets, *self._write(node.body, scope)]

    def _write_turns(self, node: Turns, scope: _Scope) -> list[k.Statement]:
        """What is done for a stretch of points that are alike every so many, and for others."""
        place, period = scope.known[node.dim], len(node.cases)
        gone = operate("sub", place, index(node.first)) if node.first else place
        within: list[k.Statement] = []
        for number, case in enumerate(node.cases):
            body: list[k.Statement] = []
            turn = gone if period == 1 else operate("div", gone, index(period))
            if isinstance(turn, k.Operate):
                turn = self.frame.name(body, "turn", turn)
            body += self._write(
                case, dataclasses.replace(scope, known={**scope.known, node.turn: turn})
            )
            if period > 1:
                which = operate("mod", gone, index(period))
                body = [k.If(operate("eq", which, index(number)), tuple(body))]
            within += body
        if not node.others:
            return within
        is_inside = operate("lt", place, index(node.last))
        if node.first:
            is_inside = _both(operate("ge", place, index(node.first)), is_inside)
        made: list[k.Statement] = []
        flag = self.frame.name(made, "inside", is_inside)
        outside = k.Operate(OPERATIONS["not"], (flag,), k.BOOL)
        others = self._write(node.others, scope)
        return [*made, k.If(flag, tuple(within)), k.If(outside, tuple(others))]

    def _write_packed(self, node: Pack, scope: _Scope) -> list[k.Statement]:
        """What is put together of what is stored inside, and stored as one."""
        number = list_phases(node)[0]
        body: list[k.Statement] = []
        if node.in_words:
            words = {
                b: k.Local(self.frame.names.take(f"{local_name(b)}_word"), _WORD)
                for b in node.buffers
            }
            body += [k.Variable(word, k.Literal(_WORD, 0)) for word in words.values()]
            packs = {b: (word, index(0)) for b, word in words.items()}
            ((whole, _),) = node.dim.parts
            scope = dataclasses.replace(scope, packs=packs, loose=scope.loose | {whole})
            body += self._write(node.body, scope)
            pair = scope.known[node.dim]
            return body + [k.StoreWord(b, pair, word) for b, word in words.items()]
        results = self._nest.phases[number].elements.results
        arrays = {
            v: self.frame.array(f"{split_words(v.tensor)}_block", v.dtype.compute, node.lanes)
            for v, _ in results
        }
        packs = {v.tensor: (array, index(0)) for v, array in arrays.items()}
        body += self._write(node.body, dataclasses.replace(scope, packs=packs))
        first = {**scope.known, node.dim: scope.starts[node.dim]}
        position = self._position(number, dataclasses.replace(scope, known=first))
        streams = scope.streams.get(number)
        flags = {} if streams is None else streams.flags
        for view, array in arrays.items():
            value = k.Element(array, index(0), k.Type(view.dtype.compute, node.lanes))
            body.append(k.Store(view.tensor, position(view), value, flags.get(view.tensor)))
        return body


def _has_flush(node: Reduce) -> bool:
    """Whether a part of a reduction is made in arrays of its own."""
    return any(isinstance(n, Reduce) and n.array for n in walk(node.body))


def _find_shared(node: Reduce) -> str | None:
    """The axis along which work items share what they reduce."""
    for each in walk(node.body):
        if isinstance(each, Loop) and each.kind is Kind.LANE and each.extent > 1:
            return each.name
    return None


def _roll(nodes: Sequence[Node], dim: Dim) -> tuple[Node, ...]:
    """The same with one step of the written out loops over a dimension."""
    made: list[Node] = []
    for node in nodes:
        if not isinstance(node, Loop | Reduce | Pack):
            made.append(node)
            continue
        node = dataclasses.replace(node, body=_roll(node.body, dim))
        if isinstance(node, Pack) and node.dim is dim:
            made += node.body
            continue
        if isinstance(node, Loop) and node.dim is dim and node.extent:
            node = dataclasses.replace(node, extent=1)
        made.append(node)
    return tuple(made)


def _find_path(nodes: Sequence[Node], number: int) -> tuple[Node, ...]:
    """The nodes around a phase's point, outermost first."""
    for node in nodes:
        if isinstance(node, Point):
            if node.phase == number:
                return (node,)
            continue
        found = _find_path(inside(node), number)
        if found:
            return (node, *found)
    return ()


def _find_levels(dims: Sequence[Dim], path: Sequence[Node]) -> dict[Dim, int]:
    """How many loops are around where a point of each dimension is settled."""
    levels = dict.fromkeys(dims, 0)

    def settle(dim: Dim, level: int) -> None:
        levels[dim] = max(level, levels.get(dim, 0))
        for part, _ in dim.parts:
            settle(part, level)

    for place, loop in enumerate(n for n in path if isinstance(n, Loop)):
        settle(loop.dim, place + 1)
    return levels


def _find_terms(nest: Nest, number: int) -> dict[View, tuple[tuple[Dim, int], ...]]:
    """For each view of a phase the dimensions it moves along, each with its stride. Along merged
    dimensions that it walks as one it moves along these."""
    phase, dims = nest.phases[number], nest.dims[number]
    merged = dict.fromkeys(
        n.dim
        for n in walk(nest.body)
        if isinstance(n, Loop) and len(n.dim.parts) > 1 and number in list_phases(n)
    )
    terms: dict[View, tuple[tuple[Dim, int], ...]] = {}
    for view, strides in phase.space.walk.strides.items():
        steps = {dim: step for dim, step in zip(dims, strides, strict=True) if step}
        for whole in merged:
            parts = [part for part, _ in whole.parts]
            if any(step != 1 for _, step in whole.parts) or not set(parts) <= set(dims):
                continue
            if any(list_loops(nest.body, part) for part in parts):
                continue
            sizes = tuple(p.size for p in parts if isinstance(p.size, int))
            own = tuple(steps.get(part, 0) for part in parts)
            if own == ir.packed_strides(sizes) and not view.near:
                steps = {d: s for d, s in steps.items() if d not in parts} | {whole: 1}
        terms[view] = tuple(steps.items())
    return terms


def _number(place: k.Expression) -> int | None:
    """A position that is known as it is written."""
    return int(place.value) if isinstance(place, k.Literal) else None


def _count_steps(dim: Dim, step: int) -> int:
    return -(-dim.size // step) if isinstance(dim.size, int) else 0


def _both(first: k.Expression, second: k.Expression) -> k.Expression:
    return k.Operate(OPERATIONS["and"], (first, second), k.BOOL)


def _guard(
    conditions: Sequence[k.Expression], statements: Sequence[k.Statement]
) -> list[k.Statement]:
    """The statements where all conditions hold."""
    if not conditions or not statements:
        return list(statements)
    whole = conditions[0]
    for condition in conditions[1:]:
        whole = _both(whole, condition)
    return [k.If(whole, tuple(statements))]
