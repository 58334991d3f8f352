"""From a nest to statements: the one writer of kernels' loops.

A recursive walk over the schedule tree. Each loop narrows the range of its dimension or settles a
point of it, each reduction brings accumulators, and each point the values of its phase, written in
the outermost loop in which all they depend on is known. Where a dimension is no whole number of
steps, loops stop at its end, what is written out or shared by work items is guarded, and vectors
leave a remainder.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import begin, contribute, finish, merge, start
from dmlc.kernel.element import View, list_conditions, list_joins, list_needed, list_stored
from dmlc.kernel.emit import (
    Emitter,
    Names,
    Near,
    Position,
    add,
    find_guarded,
    index,
    local_name,
    multiply,
    operate,
    split_words,
)
from dmlc.kernel.nest import Dim, Kind, Loop, Nest, Node, Point, Reduce, Words, inside, list_loops
from dmlc.kernel.nest import list_phases, walk
from dmlc.kernel.phases import Gathered
from dmlc.scalars import OPERATIONS, DataType

_WORD = k.Type(DataType.UINT32)

Inside: TypeAlias = "Callable[[_Scope], list[k.Statement]]"
"""The statements inside others, from what is known there."""

State: TypeAlias = "dict[int, list[tuple[k.Local, ...]]]"
"""For each number of lanes the accumulators of each reduction of a phase."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Scope:
    """What is known in the body of a loop."""

    depth: int = 0
    """The loops around."""
    lanes: int = 1
    starts: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """Where the range starts that the loops inside walk; elsewhere it is 0."""
    stops: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    known: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """The point along each dimension that is settled."""
    loose: frozenset[Dim] = frozenset()
    """The dimensions whose range may go beyond their end."""
    opened: Mapping[int, int] = dataclasses.field(default_factory=dict[int, int])
    """For each phase the innermost scope whose values are written."""
    conditions: Mapping[int, tuple[int, ...]] = dataclasses.field(
        default_factory=dict[int, tuple[int, ...]]
    )
    """The conditions of each reduction that are still to be tested."""
    states: Mapping[int, State] = dataclasses.field(default_factory=dict[int, State])
    used: frozenset[str] = frozenset()
    """The axes of the work items that loops around have taken."""
    is_own: k.Expression | None = None
    """Whether what is computed is this work item's to store; None where all is."""
    words: Mapping[str, k.Local] = dataclasses.field(default_factory=dict[str, k.Local])
    half: k.Expression = index(0)
    flat: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])

    def with_known(self, dim: Dim, place: k.Expression) -> _Scope:
        return dataclasses.replace(self, known={**self.known, dim: place})


def lower_nest(
    nest: Nest, names: Names, limit: int | None
) -> tuple[list[k.Statement], tuple[k.Array, ...]]:
    """The statements of a nest, and the arrays they need. Where a launch has more groups than
    `limit` along a dimension, more may run than it takes."""
    writer = _Writer(nest, names, limit)
    body = writer.name_lanes()
    return body + writer.write(nest.body, _Scope()), tuple(writer.arrays)


class _Writer:
    def __init__(self, nest: Nest, names: Names, limit: int | None) -> None:
        self._nest = nest
        self._names = names
        self._limit = limit
        self._near: dict[str, Near] = {}
        self.arrays: list[k.Array] = []
        self._lanes: dict[str, k.Expression] = {}
        """The number of this work item along each axis of its group."""
        self._terms = [_find_terms(nest, number) for number in range(len(nest.phases))]
        self._levels = [_find_levels(nest, number) for number in range(len(nest.phases))]
        self._serial = {n.phase for n in walk(nest.body) if isinstance(n, Reduce) and n.serial}
        self._emitters = [self._make_emitter(number) for number in range(len(nest.phases))]

    # Names ------------------------------------------------------------------------------------

    def _name(self, body: list[k.Statement], name: str, value: k.Expression) -> k.Local:
        local = k.Local(self._names.take(name), value.type)
        body.append(k.Let(local, value))
        return local

    def _variable(self, name: str) -> k.Local:
        return k.Local(self._names.take(name), k.INDEX)

    # Values of phases -------------------------------------------------------------------------

    def _make_emitter(self, number: int) -> Emitter:
        phase = self._nest.phases[number]
        levels, terms = self._levels[number], self._terms[number]

        def depth(view: View) -> int:
            return max((levels[dim] for dim, _ in terms[view]), default=0)

        elements = phase.elements
        reduce = next(
            (
                n
                for n in walk(self._nest.body)
                if isinstance(n, Reduce) and n.phase == number
            ),
            None,
        )
        tests = reduce is not None and self._tests(number)
        guarded = 0
        if tests:
            innermost = max(levels.values(), default=0)
            least = innermost if elements.results else self._reduce_level(number) + 1
            guarded = find_guarded(elements, self._names, depth, least)
        return Emitter(
            elements,
            self._names,
            depth,
            self._near,
            guarded=guarded,
            apart=list_joins(elements) if tests else (),
        )

    def _tests(self, number: int) -> bool:
        """Whether the guard of a phase's reductions is tested before what it protects is read;
        otherwise it chooses what a point adds."""
        return number in self._serial or self._nest.phases[number].tests_guard

    def _reduce_level(self, number: int) -> int:
        """The loops around the reductions of a phase."""

        def find(nodes: Sequence[Node], depth: int) -> int | None:
            for node in nodes:
                if isinstance(node, Reduce) and node.phase == number:
                    return depth
                found = find(inside(node), depth + isinstance(node, Loop))
                if found is not None:
                    return found
            return None

        return find(self._nest.body, 0) or 0

    def _position(self, number: int, scope: _Scope) -> Position:
        terms = self._terms[number]

        def position(view: View) -> k.Expression:
            if view.near:
                return index(0)
            steps = [multiply(scope.known[d], s) for d, s in terms[view] if d in scope.known]
            return add(*steps, index(view.offset))

        return position

    def _open(self, number: int, scope: _Scope, within: Inside) -> list[k.Statement]:
        """The values of a phase that are known by now and not written yet, and what is inside:
        under the conditions that are known by now, too."""
        level = scope.opened.get(number, -1) + 1
        if level > scope.depth:
            return within(scope)
        emitter = self._emitters[number]
        here = [c for c in scope.conditions.get(number, ()) if emitter.level(c) == level]
        left = tuple(c for c in scope.conditions.get(number, ()) if c not in here)
        further = dataclasses.replace(
            scope,
            opened={**scope.opened, number: level},
            conditions={**scope.conditions, number: left},
        )
        emitter.forget(level)
        return self._enter(
            number, level, scope, here, lambda: self._open(number, further, within)
        )

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
        emitter, position = self._emitters[number], self._position(number, scope)
        if not conditions:
            made = emitter.lets(level, position, scope.lanes, around=True, rest=True)
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

    # The tree ---------------------------------------------------------------------------------

    def write(self, nodes: Sequence[Node], scope: _Scope) -> list[k.Statement]:
        """The statements of some nodes, one after the other."""
        made: list[k.Statement] = []
        for node in nodes:
            made += self._write_node(node, scope)
        return made

    def _write_node(self, node: Node, scope: _Scope) -> list[k.Statement]:
        taken = {n.name for n in walk((node,)) if isinstance(n, Loop) and n.kind is Kind.LANE}
        idle = [a for a in self._nest.lanes if a[0] not in scope.used | taken and a[1] > 1]
        if idle and scope.used | taken and not any(isinstance(n, Reduce) for n in walk((node,))):
            # What no work items share is the first one's to store.
            conditions = [operate("eq", self._lanes[name], index(0)) for name, _ in idle]
            conditions += [] if scope.is_own is None else [scope.is_own]
            alone = dataclasses.replace(scope, used=frozenset(n for n, _ in self._nest.lanes))
            alone = dataclasses.replace(alone, is_own=None)
            return _guard(conditions, self._write_node(node, alone))
        match node:
            case Point():
                return self._write_point(node.phase, scope)
            case Loop():
                first = list_phases(node)[0]
                return self._open(first, scope, lambda scope: self._write_loop(node, scope))
            case Reduce():
                return self._open(node.phase, scope, lambda scope: self._write_reduce(node, scope))
            case Words():
                return self._write_words(node, scope)

    # Loops ------------------------------------------------------------------------------------

    def _write_loop(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        match node.kind:
            case Kind.GROUP:
                return self._write_group(node, scope)
            case Kind.LANE:
                return self._write_lane(node, scope)
            case Kind.UNROLL:
                return self._write_unrolled(node, scope)
            case Kind.LOOP | Kind.VECTOR:
                return self._write_serial(node, scope)

    def _write_group(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        dim, step, body = node.dim, node.step, list[k.Statement]()
        number: k.Expression = k.Position(k.Geometry.GROUP)
        if self._limit is not None or not isinstance(dim.size, int) or dim.size % step != 0:
            scope = dataclasses.replace(scope, loose=scope.loose | {dim})
        if isinstance(dim.size, int) and dim.size <= step:
            starts = {**scope.starts, dim: index(0)}
            scope = dataclasses.replace(scope, starts=starts)
            return body + self._settle(node, scope, index(0))
        if node.name and list_loops(node.body, dim):
            number = self._name(body, node.name, number)
        return body + self._settle(node, scope, multiply(number, step))

    def name_lanes(self) -> list[k.Statement]:
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
            self._lanes[name] = self._name(body, name, lane) if shared else lane
        return body

    def _write_lane(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        body: list[k.Statement] = []
        scope = dataclasses.replace(scope, used=scope.used | {node.name})
        if node.extent == 1:
            return self._settle(node, scope, scope.starts.get(node.dim, index(0)))
        lane = self._lanes[node.name]
        start = add(scope.starts.get(node.dim, index(0)), multiply(lane, node.step))
        if node.dim not in scope.starts:
            scope = dataclasses.replace(scope, loose=scope.loose | {node.dim})
        return body + self._settle(node, scope, start)

    def _write_unrolled(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        number = self._variable(node.name)
        start = scope.starts.get(node.dim, index(0))
        place = add(start, multiply(number, node.step))
        if scope.words:
            scope = dataclasses.replace(scope, half=number)
        made = self._settle(node, scope, place)
        return [k.For(number, index(0), index(node.extent), 1, tuple(made), unroll=True)]

    def _write_serial(self, node: Loop, scope: _Scope) -> list[k.Statement]:
        dim, body = node.dim, list[k.Statement]()
        start = scope.starts.get(dim, index(0))
        stop = scope.stops.get(dim) or self._find_stop(dim, scope, body)
        if start == index(0) and isinstance(stop, k.Literal) and stop.value <= node.step:
            return body + self._settle(node, scope, start)
        variable = self._variable(node.name)
        loose = scope.loose - {dim}
        made = self._settle(node, dataclasses.replace(scope, loose=loose), variable)
        loop = k.For(variable, start, stop, node.step, tuple(made), backwards=node.backwards)
        return [*body, loop]

    def _find_stop(self, dim: Dim, scope: _Scope, body: list[k.Statement]) -> k.Expression:
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
            return self._name(body, "end", length)
        inner = math.prod(p.size for p, _ in dim.parts[1:] if isinstance(p.size, int))
        return self._name(body, "points", multiply(length, inner))

    def _settle(self, node: Loop, scope: _Scope, place: k.Expression) -> list[k.Statement]:
        """What is inside a step of a loop that starts at a place: a range for the loops inside, or
        a point."""
        dim, body = node.dim, list[k.Statement]()
        deeper = dataclasses.replace(scope, depth=scope.depth + 1)
        further = list_loops(node.body, dim)
        if further:
            starts = {**scope.starts, dim: place}
            named = node.kind is Kind.LANE and isinstance(place, k.Operate | k.Position)
            if named and any(loop.kind is Kind.UNROLL for loop in further):
                starts[dim] = self._name(body, "first", place)
            return body + self.write(node.body, dataclasses.replace(deeper, starts=starts))
        if isinstance(place, k.Operate | k.Position):
            place = self._name(body, dim.name, place)
        if dim not in scope.loose:
            return body + self._settle_parts(node, deeper, dim, place)
        bound = dim.count
        if len(dim.parts) == 1:
            part, step = dim.parts[0]
            inside_range = operate("lt", multiply(place, step), part.count)
        else:
            inside_range = operate("lt", place, bound)
        deeper = dataclasses.replace(deeper, loose=scope.loose - {dim})
        if not any(self._is_shared(n) for n in walk(node.body)):
            made = self._settle_parts(node, deeper, dim, place)
            return [*body, k.If(inside_range, tuple(made))]
        # All work items meet the barriers inside: those beyond the end repeat the last point.
        last = index(int(dim.size) - 1) if isinstance(dim.size, int) else bound
        place = self._name(body, "at", operate("min", place, last))
        deeper = dataclasses.replace(deeper, is_own=inside_range)
        return body + self._settle_parts(node, deeper, dim, place)

    def _is_shared(self, node: Node) -> bool:
        """Whether the work items of a group make one accumulator of theirs."""
        return isinstance(node, Reduce) and self._share(node) is not None

    def _share(self, node: Reduce) -> tuple[str, int] | None:
        """The axis along which work items share what they reduce."""
        for each in walk(node.body):
            if isinstance(each, Loop) and each.kind is Kind.LANE and each.extent > 1:
                return each.name, each.extent
        return None

    def _settle_parts(
        self, node: Loop, scope: _Scope, dim: Dim, place: k.Expression
    ) -> list[k.Statement]:
        """What is inside where a point of a dimension is settled, and so are the dimensions that it
        was made of."""
        scope = scope.with_known(dim, place)
        body: list[k.Statement] = []
        if not dim.parts:
            return self.write(node.body, scope)
        needed = {
            part
            for number in list_phases(node)
            for terms in self._terms[number].values()
            for part, _ in terms
        }
        counts = [_count_steps(part, step) for part, step in dim.parts]
        inner, outermost = math.prod(counts), True
        known, starts = dict(scope.known), dict(scope.starts)
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
                digit = self._name(body, part.name, digit)
            if loops:
                starts[part] = multiply(digit, step)
                continue
            known[part] = digit
            if part.piece is not None and part is not dim.parts[0][0]:
                checks += self._check_piece(part, digit, scope)
        scope = dataclasses.replace(scope, known=known, starts=starts)
        return body + _guard(checks, self.write(node.body, scope))

    def _check_piece(self, dim: Dim, place: k.Expression, scope: _Scope) -> list[k.Expression]:
        number, whole = dim.piece or (dim, 0)
        if not isinstance(dim.size, int) or whole % dim.size == 0:
            return []
        rest = operate("sub", index(whole), multiply(scope.known[number], dim.size))
        return [operate("lt", place, rest)]

    def _write_words(self, node: Words, scope: _Scope) -> list[k.Statement]:
        """Words that are put together from what is stored inside."""
        words = {b: k.Local(self._names.take(f"{local_name(b)}_word"), _WORD) for b in node.buffers}
        pair = scope.known[node.dim]
        (whole, _), body = node.dim.parts[0], list[k.Statement]()
        body += [k.Variable(word, k.Literal(_WORD, 0)) for word in words.values()]
        scope = dataclasses.replace(scope, words=words, loose=scope.loose | {whole})
        body += self.write(node.body, scope)
        body += [k.StoreWord(buffer, pair, word) for buffer, word in words.items()]
        return body

    # Reductions -------------------------------------------------------------------------------

    def _write_reduce(self, node: Reduce, scope: _Scope) -> list[k.Statement]:
        number = node.phase
        phase, emitter = self._nest.phases[number], self._emitters[number]
        lanes = scope.lanes
        states: list[tuple[k.Local, ...]] = []
        body: list[k.Statement] = []
        for gathered in phase.gathered:
            first = [start(slot, lanes) for slot in gathered.slots]
            if node.serial:
                first = begin(gathered.fold, gathered.slots, lanes)
            words = local_name(gathered.name)
            state = tuple(
                k.Local(self._names.take(f"{words}{slot.suffix}"), k.Type(slot.dtype, lanes))
                for slot in gathered.slots
            )
            body += [k.Variable(s, value) for s, value in zip(state, first, strict=True)]
            states.append(state)
        conditions: tuple[int, ...] = ()
        if self._tests(number):
            conditions = list_conditions(phase.elements)
        above = [c for c in conditions if emitter.level(c) <= scope.depth]
        if phase.elements.results:
            above = []
        left = tuple(c for c in conditions if c not in above)
        within = dataclasses.replace(
            scope,
            states={**scope.states, number: {lanes: states}},
            conditions={**scope.conditions, number: left},
        )
        body += self._enter(
            number, scope.depth, scope, above, lambda: self.write(node.body, within)
        )
        shared = self._share(node)
        if shared is not None:
            body += self._join(shared, phase.gathered, states)
        for gathered, state in zip(phase.gathered, states, strict=True):
            self._keep(gathered, state, body, serial=node.serial)
        return body

    def _join(
        self,
        axis: tuple[str, int],
        gathered: Sequence[Gathered],
        states: Sequence[tuple[k.Local, ...]],
    ) -> list[k.Statement]:
        """The accumulators of work items along an axis become one, in a tree; each gets it."""
        name, extent = axis
        lane = k.Position(k.Geometry.LANE)
        size = math.prod(side for _, side in self._nest.lanes)
        after = [n for n, _ in self._nest.lanes].index(name) + 1
        apart = math.prod(side for _, side in self._nest.lanes[after:])
        arrays: list[tuple[str, ...]] = []
        body: list[k.Statement] = []
        for each, state in zip(gathered, states, strict=True):
            own: list[str] = []
            for slot, local in zip(each.slots, state, strict=True):
                array = self._names.take(f"{split_words(each.name)}{slot.suffix}_lanes")
                self.arrays.append(k.Array(array, slot.dtype, size, shared=True))
                body.append(k.Put(array, lane, local))
                own.append(array)
            arrays.append(tuple(own))
        if not arrays:
            return []
        width = self._variable("width")
        other = add(lane, operate("mul", width, index(apart)) if apart > 1 else width)
        inside: list[k.Statement] = []
        for each, state, names in zip(gathered, states, arrays, strict=True):
            theirs = [k.Element(n, other, s.type) for n, s in zip(names, state, strict=True)]
            statements, merged = merge(each.fold, state, theirs, self._names.take)
            inside += statements
            for array, local, value in zip(names, state, merged, strict=True):
                inside += [k.Assign(local, value), k.Put(array, lane, local)]
        number = self._lanes[name]
        step = k.If(operate("lt", number, width), tuple(inside))
        body += [k.Barrier(), k.Halve(width, extent // 2, (step, k.Barrier()))]
        first = self._lanes[self._nest.lanes[after][0]] if apart > 1 else index(0)
        for state, names in zip(states, arrays, strict=True):
            body += [
                k.Assign(local, k.Element(array, first, local.type))
                for array, local in zip(names, state, strict=True)
            ]
        return body

    def _keep(
        self,
        gathered: Gathered,
        state: tuple[k.Local, ...],
        body: list[k.Statement],
        *,
        serial: bool,
    ) -> None:
        """Has a state, and the reductions it is, at hand from here on."""
        for number, local in enumerate(state):
            self._near[gathered.slot_name(number)] = _always(local)
        for stage, dtype in gathered.stages:
            value = finish(gathered.fold, state, dtype.compute, in_order=serial)
            if not isinstance(value, k.Local):
                value = self._name(body, local_name(stage), value)
            self._near[stage] = _always(value)

    # Points -----------------------------------------------------------------------------------

    def _write_point(self, number: int, scope: _Scope) -> list[k.Statement]:
        phase = self._nest.phases[number]
        states = scope.states.get(number)
        if states is None:
            return self._open(number, scope, lambda scope: self._store(number, scope))
        conditions = scope.conditions.get(number, ())
        if not conditions or not phase.elements.results:
            return self._open(
                number,
                scope,
                lambda scope: self._accumulate(number, scope) + self._store(number, scope),
            )
        # What is stored does not depend on the conditions of what is added.
        emitter = self._emitters[number]
        free = {**scope.conditions, number: ()}
        around = dataclasses.replace(scope, depth=scope.depth - 1, conditions=free)

        def within(_: _Scope) -> list[k.Statement]:
            position = self._position(number, scope)
            emitter.forget(scope.depth)
            made = emitter.lets(
                scope.depth, position, scope.lanes, only=list_stored(phase.elements)
            )
            made += self._store(number, scope)
            return made + self._enter(
                number, scope.depth, scope, conditions, lambda: self._accumulate(number, scope)
            )

        return self._open(number, around, within)

    def _accumulate(self, number: int, scope: _Scope) -> list[k.Statement]:
        """A point, or as many as there are lanes, enters the accumulators."""
        emitter, lanes = self._emitters[number], scope.lanes
        made: list[k.Statement] = []
        tests, serial = self._tests(number), number in self._serial
        for gathered, state in zip(
            self._nest.phases[number].gathered, scope.states[number][lanes], strict=True
        ):
            fold = gathered.fold
            chosen = fold.guard is not None and not tests
            guard = emitter.value(fold.guard, lanes) if chosen and fold.guard is not None else None
            place = None if fold.place is None else emitter.value(fold.place, lanes)
            point = contribute(gathered.slots, emitter.value(fold.value, lanes), guard, place)
            statements, merged = merge(fold, state, point, self._names.take, in_order=serial)
            made += statements
            made += [k.Assign(s, m) for s, m in zip(state, merged, strict=True)]
        return made

    def _store(self, number: int, scope: _Scope) -> list[k.Statement]:
        position = self._position(number, scope)
        made: list[k.Statement] = []
        for statement in self._emitters[number].stores(position, scope.lanes, {}):
            word = scope.words.get(statement.buffer)
            if word is None:
                made.append(statement)
            else:
                made.append(k.PutHalf(word, statement.buffer, scope.half, statement.value))
        return _guard([] if scope.is_own is None else [scope.is_own], made)


def _find_levels(nest: Nest, number: int) -> dict[Dim, int]:
    """How many loops are around where a point of each dimension is settled, for a phase."""
    levels = dict.fromkeys(nest.dims[number], 0)

    def find(nodes: Sequence[Node], depth: int, path: tuple[Loop, ...]) -> None:
        for node in nodes:
            if isinstance(node, Point) and node.phase == number:
                for place, loop in enumerate(path):
                    settle(loop.dim, place + 1)
            further = (*path, node) if isinstance(node, Loop) else path
            find(inside(node), depth + isinstance(node, Loop), further)

    def settle(dim: Dim, level: int) -> None:
        levels[dim] = max(level, levels.get(dim, 0))
        for part, _ in dim.parts:
            settle(part, level)

    find(nest.body, 0, ())
    return levels


def _find_terms(nest: Nest, number: int) -> dict[View, tuple[tuple[Dim, int], ...]]:
    """For each view of a phase the dimensions it moves along, each with its stride. Along merged
    dimensions that it walks as one it moves along these."""
    phase, dims = nest.phases[number], nest.dims[number]
    merged = dict.fromkeys(
        n.dim for n in walk(nest.body)
        if isinstance(n, Loop) and len(n.dim.parts) > 1 and number in list_phases(n)
    )
    terms: dict[View, tuple[tuple[Dim, int], ...]] = {}
    for view, strides in phase.space.walk.strides.items():
        steps = {dim: step for dim, step in zip(dims, strides, strict=True) if step}
        for whole in merged:
            parts = [part for part, _ in whole.parts]
            if any(step != 1 for _, step in whole.parts) or not set(parts) <= set(dims):
                continue
            sizes = tuple(p.size for p in parts if isinstance(p.size, int))
            packed = ir.packed_strides(sizes)
            own = tuple(steps.get(part, 0) for part in parts)
            if own == packed and len(sizes) == len(parts) and not view.near:
                steps = {d: s for d, s in steps.items() if d not in parts} | {whole: 1}
        terms[view] = tuple(steps.items())
    return terms


def _count_steps(dim: Dim, step: int) -> int:
    return -(-dim.size // step) if isinstance(dim.size, int) else 0


def _always(value: k.Expression) -> Near:
    return lambda position, lanes: value


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
