"""Values of a nest's phases, each emitted in the outermost loop where its operands are known.

It determines the offset of a view, the values first known in a scope and the conditions they need,
and the layout of buffers between phases. `loops` lowers the loops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, guard, index, multiply, subtract
from dmlc.kernel.frame import Frame
from dmlc.loops.element import View, list_joins, list_needed
from dmlc.loops.nodes import (
    Buffer,
    Dim,
    Into,
    Kind,
    Loop,
    Nest,
    Node,
    Point,
    Reduce,
    Stage,
    Turns,
    Where,
    inside,
    list_loops,
    list_phases,
    walk,
)
from dmlc.loops.vectorize import Joint
from dmlc.lowering.emit import Emitter, Position, find_levels
from dmlc.lowering.scope import Inside, Scope
from dmlc.schedules.streaming import Streaming
from dmlc.sizes import Measure
from dmlc.source import InternalError


class Values:
    """Emitter of the values of a nest's phases."""

    def __init__(self, nest: Nest, frame: Frame, streaming: Streaming) -> None:
        self._nest = nest
        self._frame = frame
        self._streaming = streaming
        self._named = {buffer.name: buffer for buffer in nest.buffers}
        self.arrays: dict[Buffer, str] = {}
        """Name of each buffer's array."""
        self.counts: dict[Dim, k.Expression] = {}
        """Iteration of each enclosing loop that has a row in a buffer per iteration."""
        numbers = range(len(nest.phases))
        loops = [(n, list_phases(n)) for n in walk(nest.body) if isinstance(n, Loop)]
        self.terms = [
            _find_terms(nest, number, [loop for loop, phases in loops if number in phases])
            for number in numbers
        ]
        """Strides of each view of each phase, by dimension."""
        self._paths = [_find_path(nest.body, number) for number in numbers]
        self._levels = [_find_levels(nest.dims[n], self._paths[n]) for n in numbers]
        self.serial = {n.phase for n in walk(nest.body) if isinstance(n, Reduce) and n.serial}
        """Phases that reduce their points sequentially."""
        self._emitters = [self.make_emitter(number, None) for number in numbers]

    def make_buffers(self) -> None:
        """Makes the arrays for values that phases store for others."""
        for buffer in self._nest.buffers:
            self._make_buffer(buffer)

    def make_emitter(self, number: int, joint: Joint | None) -> Emitter:
        phase, path = self._nest.phases[number], self._paths[number]
        elements, levels, terms = phase.elements, self._levels[number], self.terms[number]

        def depth(view: View) -> int:
            return max((levels[dim] for dim, _ in terms[view]), default=0)

        filling = _find_filling(path)
        vectors = [n.dim for n in filling if isinstance(n, Loop) and n.kind is Kind.VECTOR]
        vectors += [dim.within for dim in vectors if dim.within is not None]
        vectors += [part for dim in vectors for part, _ in dim.parts[-1:]]
        tests, values = self.tests(number), find_levels(elements, depth)
        if tests:
            # Loads protected by a guard come after all of its conditions.
            innermost = sum(isinstance(n, Loop) for n in path)
            outside = next(i for i, n in enumerate(path) if isinstance(n, Reduce))
            around = sum(isinstance(n, Loop) for n in path[:outside])
            least = innermost if elements.results else around + 1
            guards = (values[f.guard] for f in elements.reductions if f.guard is not None)
            values = find_levels(elements, depth, max([least, *guards]))
        stages = [n for n in path if isinstance(n, Stage) and n.conditions]
        for stage in stages:
            values = find_levels(elements, depth, max(values[c] for c in stage.conditions))
        return Emitter(
            elements,
            self._frame.names,
            values,
            self._frame.local,
            lambda view: any(dim in vectors for dim, _ in terms[view]),
            list_joins(elements) if tests else (),
            joint,
        )

    def tests(self, number: int) -> bool:
        """Whether the guard of a phase's reductions is tested before the loads that it protects;
        otherwise it selects the added value, as in vectors along the points."""
        phase = self._nest.phases[number]
        if phase.has_several_guards:
            return False
        if not phase.accumulators or number in self.serial:
            return bool(phase.accumulators)
        vectors = [n for n in self._paths[number] if isinstance(n, Loop) and n.kind is Kind.VECTOR]
        return phase.tests_guard and not vectors

    def position(self, number: int, scope: Scope, *, partly: bool = False) -> Position:
        """Offsets of a phase's views; `partly` if some of their dimensions are not fixed yet."""
        terms, progress = self.terms[number], scope.progress(number)

        def position(view: View) -> k.Expression:
            buffer = self._named.get(view.tensor)
            # A linear view is read at the offset of its strides.
            if view.local and not (buffer is not None and buffer.linear):
                own = buffer is None or buffer.dim is self._nest.block
                return scope.output if own or buffer is None else scope.known[buffer.dim]
            if not partly and not all(dim in scope.known for dim, _ in terms[view]):
                raise InternalError(f"'{view.tensor}' is looked for where no point is settled")
            base = progress.bases.get(view)
            known = scope.known if base is None else scope.known.keys() - progress.based
            steps = [multiply(scope.known[d], s) for d, s in terms[view] if d in known]
            return add(*steps, index(view.offset)) if base is None else add(base, *steps)

        return position

    def emitter(self, number: int, scope: Scope) -> Emitter:
        return scope.progress(number).emitter or self._emitters[number]

    def open(self, number: int, scope: Scope, within: Inside) -> list[k.Statement]:
        """Emits the values of a phase that are known now and not emitted yet, and the body, under
        the conditions that are known now."""
        progress = scope.progress(number)
        level = progress.opened + 1
        if level > scope.depth:
            return self._open_streams(number, scope, within)
        emitter = self.emitter(number, scope)
        here = [c for c in progress.conditions if emitter.level(c) == level]
        left = tuple(c for c in progress.conditions if c not in here)
        further = scope.note(number, opened=level, conditions=left)
        emitter.forget(level)
        return self.enter(number, level, scope, here, lambda: self.open(number, further, within))

    def choose(
        self,
        node: Where,
        scope: Scope,
        write: Callable[[Sequence[Node], Scope], list[k.Statement]],
    ) -> list[k.Statement]:
        """Body of a node, under the condition given by a phase's value."""
        number = node.phase
        ((_, root),) = self._nest.phases[number].elements.results
        tiled = (dim.within for dim in self._nest.dims[number] if dim.within is not None)
        starts = {whole: scope.start(whole) for whole in tiled}

        def within(inner: Scope) -> list[k.Statement]:
            condition = self.emitter(number, inner).value(root)
            return [k.If(condition, tuple(write(node.body, scope)))]

        return self.open(number, dataclasses.replace(scope.fix(starts), lanes=1), within)

    def _open_streams(self, number: int, scope: Scope, within: Inside) -> list[k.Statement]:
        """Determines once which results bypass the caches."""
        if number not in self._nest.streams or scope.progress(number).streams is not None:
            return within(scope)
        body: list[k.Statement] = []
        sizes = [dim.size for dim in self._nest.dims[number] if isinstance(dim.size, k.Scalar)]
        count = sizes[0] if sizes else None
        phase = self._nest.phases[number]
        streams = self._streaming.open(phase, count, self._frame, body)
        return body + within(scope.note(number, streams=streams))

    def enter(
        self,
        number: int,
        level: int,
        scope: Scope,
        conditions: Sequence[int],
        within: Callable[[], list[k.Statement]],
    ) -> list[k.Statement]:
        """Values of a scope and the body, under conditions that are uniform over lanes. Each
        condition is tested right after the values it needs."""
        emitter, position = self.emitter(number, scope), self.position(number, scope)
        lanes = scope.lanes if level >= self._vector_level(number) else 1
        if not conditions:
            made = emitter.lets(level, position, lanes, around=True, rest=True)
            return made + within()
        first, *others = conditions
        needed = list_needed(self._nest.phases[number].elements, first)
        before = emitter.lets(level, position, only=needed)
        condition = emitter.value(first)
        return before + guard([condition], self.enter(number, level, scope, others, within))

    def _vector_level(self, number: int) -> int:
        """Scope of a phase's vectorized loop."""
        loops = [n for n in self._paths[number] if isinstance(n, Loop)]
        own = sum(isinstance(n, Loop) for n in _find_filling(self._paths[number]))
        wide = (i + 1 for i, n in enumerate(loops) if n.kind is Kind.VECTOR)
        return next((level for level in wide if level > len(loops) - own), len(loops) + 1)

    def _make_buffer(self, buffer: Buffer) -> None:
        """Makes the array of a buffer."""
        taken = self._frame.names.take(buffer.wanted)
        array = k.Array(taken, buffer.dtype, buffer.size, buffer.shared)
        self._frame.arrays.append(array)
        self.arrays[buffer] = array.name

        def read(place: k.Expression, lanes: int) -> k.Expression:
            kind = k.Type(buffer.dtype, lanes)
            return k.LoadLocal(array.name, self._offset_of(buffer, place), kind)

        self._frame.local[buffer.name] = read

    def _offset_of(self, buffer: Buffer, place: k.Expression) -> k.Expression:
        """Offset of an element of a buffer's row in its array."""
        return add(self.offset(buffer), place, index(buffer.front))

    def offset(self, buffer: Buffer) -> k.Expression:
        row = index(0) if buffer.rows is None else self.counts.get(buffer.rows, index(0))
        return multiply(row, buffer.pitch)

    def store_value(self, into: Into, value: k.Expression, scope: Scope) -> k.Statement:
        """Stores a value to a buffer."""
        point = scope.output if into.dim is self._nest.block else scope.known[into.dim]
        place = add(multiply(point, into.step), index(into.offset))
        return k.StoreLocal(self.arrays[into.buffer], self._offset_of(into.buffer, place), value)

    def store_tile(self, into: Into, value: k.Expression, scope: Scope) -> list[k.Statement]:
        """Stores a point of a tile, or a vector of points, to a buffer."""
        origins, places, body = scope.origins or {}, list[k.Expression](), list[k.Statement]()
        for dim, step in into.tile:
            start, point = origins[dim], scope.known[dim]
            places.append(multiply(subtract(point, start), step))
        array, lanes = self.arrays[into.buffer], value.type.lanes
        is_beside = into.lane == 1
        if lanes == 1 or (is_beside and self._frame.lanes > 1):
            return [k.StoreLocal(array, add(*places), value)]
        vector = value if isinstance(value, k.Local) else self._frame.name(body, "part", value)
        if is_beside and into.in_vectors:
            return [*body, k.StoreLocal(array, add(*places), vector)]
        place = add(*places)
        if isinstance(place, k.Operate):
            place = self._frame.name(body, "place", place)
        for lane in range(lanes):
            part = k.Extract(vector, (lane,), k.Type(vector.type.dtype))
            body.append(k.StoreLocal(array, add(place, index(lane * into.lane)), part))
        return body


def _find_path(nodes: Sequence[Node], number: int) -> tuple[Node, ...]:
    """Nodes around a phase's point, outermost first."""
    for node in nodes:
        if isinstance(node, Point | Where) and node.phase == number:
            return (node,)
        found = _find_path(inside(node), number)
        if found:
            return (node, *found)
    return ()


def _find_filling(path: Sequence[Node]) -> Sequence[Node]:
    """Part of a path that does not belong to enclosing vectors: from the node that fills tiles on,
    or the node of a condition."""
    point = path[-1]
    tile = {d for i in point.into for d, _ in i.tile} if isinstance(point, Point) else set[Dim]()
    wide = [n.dim in tile for n in path if isinstance(n, Loop) and n.kind is Kind.VECTOR]
    # Work items store their vectors whole.
    inside = [p for p, node in enumerate(path) if isinstance(node, Stage) and not any(wide)]
    inside += [len(path) - 1] * any(isinstance(node, Where) for node in path[-1:])
    return path[inside[-1] :] if inside else path


def _find_levels(dims: Sequence[Dim], path: Sequence[Node]) -> dict[Dim, int]:
    """Number of enclosing loops in which the index along each dimension is fixed."""
    levels = dict.fromkeys(dims, 0)

    def fix(dim: Dim, level: int) -> None:
        levels[dim] = max(level, levels.get(dim, 0))
        for part, _ in dim.parts:
            fix(part, level)
        if dim.within is not None:
            fix(dim.within, level)

    around = 0
    for node in path:
        if isinstance(node, Loop):
            around += 1
            fix(node.dim, around)
        elif isinstance(node, Turns):
            fix(node.turn, around)
    return levels


def _find_terms(
    nest: Nest, number: int, loops: Sequence[Loop]
) -> dict[View, tuple[tuple[Dim, Measure], ...]]:
    """Strides of each view of a phase by dimension; the phase's points are in `loops`. A merged
    dimension with a single stride is one term; in a shared tile, the dimensions are those of the
    tile."""
    phase, dims = nest.phases[number], nest.dims[number]
    walked = dict.fromkeys(dim for n in loops for dim in (n.dim, n.dim.within) if dim is not None)
    merged = [dim for dim in walked if len(dim.parts) > 1]
    terms: dict[View, tuple[tuple[Dim, Measure], ...]] = {}
    targets = () if phase.scatter is None else (phase.scatter.view,)
    for view in (*phase.elements.views(), *targets):
        steps = {dim: step for dim, step in zip(dims, view.strides, strict=True) if step}
        for whole in merged:
            parts = [part for part, _ in whole.parts]
            if any(step != 1 for _, step in whole.parts) or not set(parts) <= set(dims):
                continue
            if any(list_loops(nest.body, part) for part in parts):
                continue
            sizes = tuple(p.size for p in parts if isinstance(p.size, int))
            if len(sizes) < len(parts):
                continue
            own = tuple(steps.get(part, 0) for part in parts)
            if own == ir.packed_strides(sizes) and not view.local:
                steps = {d: s for d, s in steps.items() if d not in parts} | {whole: 1}
        terms[view] = tuple(steps.items())
    return terms
