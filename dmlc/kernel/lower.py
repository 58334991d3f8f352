"""From a nest to statements: the one writer of kernels' loops.

A recursive walk over the schedule tree. Each loop narrows the range of its dimension or settles a
point of it, each reduction brings accumulators, and each point the values of its phase, written in
the outermost loop in which all they depend on is known. Where a dimension is no whole number of
steps, loops stop at its end, what is written out or shared by work items is guarded, and vectors
leave a remainder.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

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
from dmlc.kernel.element import View, list_conditions, list_stored
from dmlc.kernel.emit import (
    Names,
    add,
    index,
    local_name,
    multiply,
    operate,
    split_words,
)
from dmlc.kernel.overlap import overlap
from dmlc.kernel.picked import load_patterns
from dmlc.kernel.schedule.nest import (
    Dim,
    Fill,
    Kind,
    Loop,
    Nest,
    Node,
    Pack,
    Pick,
    Point,
    Reduce,
    Turns,
    list_loops,
    list_phases,
    walk,
)
from dmlc.kernel.scope import (
    Half,
    Scope,
    both,
    count_steps,
    find_shared,
    guard,
    has_flush,
    known_number,
    roll,
)
from dmlc.kernel.streaming import Streaming
from dmlc.kernel.values import Values
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import InternalError

_WORD = k.Type(DataType.UINT32)

_FOUR = 4
"""The lanes of shorter vectors, for what long ones leave over."""


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
        self._limit = limit
        self._values = Values(nest, frame, streaming)
        self._lanes: dict[str, k.Expression] = {}
        """The number of this work item along each axis of its group."""
        self._halves: dict[int, Accumulators] = {}
        """The accumulators of reductions that are made at one place and ended at another."""

    def write_all(self) -> list[k.Statement]:
        """The whole body of the kernel."""
        body = self._name_lanes()
        self._values.make_buffers()
        return body + self._write(self._nest.body, Scope())

    # The tree ---------------------------------------------------------------------------------

    def _write(self, nodes: Sequence[Node], scope: Scope) -> list[k.Statement]:
        """The statements of some nodes, one after the other."""
        made: list[k.Statement] = []
        for node in nodes:
            made += self._write_node(node, scope)
        return made

    def _write_node(self, node: Node, scope: Scope) -> list[k.Statement]:
        idle = [a for a in self._nest.lanes if a[0] not in scope.used and a[1] > 1]
        if idle:
            loops = [n for n in walk((node,)) if isinstance(n, Loop) and n.kind is Kind.LANE]
            taken = {loop.name for loop in loops}
            idle = [a for a in idle if a[0] not in taken]
        if idle:
            # What work items do not share they have all, and the first one stores.
            owns = [operate("eq", self._lanes[name], index(0)) for name, _ in idle]
            owns += [] if scope.is_own is None else [scope.is_own]
            used = frozenset(name for name, _ in self._nest.lanes)
            if any(isinstance(n, Reduce) for n in walk((node,))):
                all_own = functools.reduce(both, owns)
                alone = dataclasses.replace(scope, used=used, is_own=all_own)
                return self._write_node(node, alone)
            alone = dataclasses.replace(scope, used=used, is_own=None)
            return guard(owns, self._write_node(node, alone))
        match node:
            case Point():
                return self._write_point(node, scope)
            case Loop():
                return self._open_all(list_phases(node), node, scope)
            case Reduce():
                return self._values.open(
                    node.phase, scope, lambda scope: self._write_reduce(node, scope)
                )
            case Pack():
                return self._write_packed(node, scope)
            case Fill():
                return self._write_zeros(node)
            case Pick():
                return self._write_picked(node, scope)
            case Turns():
                return self._write_turns(node, scope)

    def _open_all(self, phases: Sequence[int], node: Loop, scope: Scope) -> list[k.Statement]:
        """A loop, before which the values of its first phase are written; where the loop picks,
        those of all."""
        picks = any(isinstance(n, Pick) for n in node.body)
        rest = phases[1:] if picks else ()

        def within(scope: Scope) -> list[k.Statement]:
            return self._open_all(rest, node, scope) if rest else self._write_loop(node, scope)

        return self._values.open(phases[0], scope, within)

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

    def _write_loop(self, node: Loop, scope: Scope) -> list[k.Statement]:
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

    def _write_group(self, node: Loop, scope: Scope) -> list[k.Statement]:
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

    def _write_lane(self, node: Loop, scope: Scope) -> list[k.Statement]:
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

    def _write_counted(self, node: Loop, scope: Scope) -> list[k.Statement]:
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
            self._values.counts[node.dim] = number
        if node.step == 1 and not scope.packs and not counted:
            made = self._settle(node, scope, number, [])
            last = add(start, index(node.extent))
            return [k.For(number, start, last, 1, tuple(made), unroll=unroll)]
        packs = {buffer: (into, number) for buffer, (into, _) in scope.packs.items()}
        scope = dataclasses.replace(scope, packs=packs)
        made = self._settle(node, scope, add(start, multiply(number, node.step)), [])
        return [k.For(number, index(0), index(node.extent), 1, tuple(made), unroll=unroll)]

    def _write_serial(self, node: Loop, scope: Scope) -> list[k.Statement]:
        dim, body = node.dim, list[k.Statement]()
        start, stop = self._find_range(node, scope, body)
        finer = list_loops(node.body, dim)
        if node.step > 1 and finer and finer[0].extent:
            loops = self._write_whole_steps(node, scope, start, stop, body)
            return body + loops
        low, high = known_number(start), known_number(stop)
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
        self, node: Loop, scope: Scope, start: k.Expression, stop: k.Expression
    ) -> list[k.Statement]:
        """A loop that reduces each step's points beside what it does with those of the one before.
        The first is reduced, and the last done with, by itself."""
        makes = dataclasses.replace(node, body=node.body[:1], interleaved=False)
        rest = dataclasses.replace(node, interleaved=False)
        making = dataclasses.replace(scope, half=Half.MAKE)
        ending = dataclasses.replace(scope, half=Half.END)
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
        self, node: Loop, scope: Scope, body: list[k.Statement]
    ) -> tuple[k.Expression, k.Expression]:
        """Where a loop starts and stops. Along a block it counts its outputs."""
        dim = node.dim
        if node.part is not None:
            return index(node.part[0]), index(node.part[1])
        if dim is self._nest.block:
            return index(0), scope.stops.get(dim) or dim.count
        start = scope.starts.get(dim, index(0))
        return start, scope.stops.get(dim) or self._find_end(dim, scope, body)

    def _find_end(self, dim: Dim, scope: Scope, body: list[k.Statement]) -> k.Expression:
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
        scope: Scope,
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
            whole = node if width > 1 else dataclasses.replace(node, body=roll(node.body, dim))
            made = self._settle(whole, scope, place, within)
            loops.append(k.For(variable, first, last, width, tuple(made)))
        return loops

    def _settle(
        self, node: Loop, scope: Scope, place: k.Expression, body: list[k.Statement]
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
        self, node: Loop, scope: Scope, dim: Dim, place: k.Expression
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
            for terms in self._values.terms[number].values()
            for part, _ in terms
        }
        needed.update(n.dim for n in walk(node.body) if isinstance(n, Turns))
        counts = [count_steps(part, step) for part, step in dim.parts]
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
        return body + guard(checks, self._write(node.body, scope))

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

    def _check_piece(self, dim: Dim, place: k.Expression, scope: Scope) -> list[k.Expression]:
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

    def _name_bases(self, node: Loop, scope: Scope, body: list[k.Statement]) -> Scope:
        """What each view's position in a row starts from, named where it takes arithmetic. Reads at
        computed positions that have been made by then need none."""
        dim = node.dim
        (number,) = list_phases(node)
        if number in self._values.serial:
            return scope
        known = dict(scope.known)
        if dim is self._nest.block:
            known[dim] = scope.starts.get(dim, index(0))
        at = self._values.position(number, dataclasses.replace(scope, known=known), partly=True)
        emitter, elements = self._values.emitter(number, scope), self._nest.phases[number].elements
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

    def _write_vectors(self, node: Loop, scope: Scope) -> list[k.Statement]:
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
        scope: Scope,
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
        self, node: Loop, scope: Scope, start: k.Expression, stop: k.Expression
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
                emitters={n: self._values.make_emitter(n, together) for n in phases},
            )

            def within(
                wide: Scope, low: k.Expression = low, high: k.Expression = high
            ) -> list[k.Statement]:
                return self._write_stretch(
                    node, dataclasses.replace(wide, lanes=node.step), variable, low, high
                )

            body += self._values.open(phases[0], wide, within)
        return body

    def _write_stretch(
        self,
        node: Loop,
        scope: Scope,
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
        low, high = known_number(first), known_number(last)
        if low is not None and high is not None and (high - low) % lanes:
            # The last vector takes some points of the one before once more.
            place = self.frame.variable("x")
            again = operate("min", place, index(high - lanes))
            within.append(k.Let(variable, again))
        made = self._settle(node, scope, variable, within)
        return [*body, k.For(place, first, last, lanes, tuple(made))]

    def _fetch_ahead(
        self, node: Loop, scope: Scope, body: list[k.Statement]
    ) -> dict[str, k.Expression]:
        """Where the next row along a loop around starts, for each tensor that is fetched."""
        dim = node.ahead
        if dim is None or dim not in scope.known or not isinstance(dim.size, int):
            return {}
        (number,) = list_phases(node)
        phase = self._nest.phases[number]
        following = operate("min", add(scope.known[dim], index(1)), index(dim.size - 1))
        known = {**scope.known, dim: self.frame.name(body, f"next_{dim.name}", following)}
        at = self._values.position(
            number, dataclasses.replace(scope, known=known, bases={}), partly=True
        )
        rows: dict[k.Expression, k.Local] = {}
        found: dict[str, k.Expression] = {}
        for view in phase.elements.buffers():
            steps = dict(self._values.terms[number][view])
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
        return isinstance(node, Reduce) and bool(find_shared(node))

    def _write_reduce(self, node: Reduce, scope: Scope) -> list[k.Statement]:
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
            suffix = "_total" if width > 1 or has_flush(node) else "_block"
            known = self._halves.get(number)
            state = known or make_arrays(frame, gathered, suffix, size, width)
            body = [] if scope.half is Half.END else fill(frame, state)
            if scope.half is not None:
                self._halves[number] = state
        else:
            nested = any(isinstance(n, Reduce) for n in walk(node.body))
            suffix = "_total" if nested else ""
            state = Accumulators(gathered, {}, [], serial=node.serial, suffix=suffix)
            body = []
        half = scope.half if outer is None else None
        scope = dataclasses.replace(scope, states={**scope.states, number: state})
        inner = self._write_reduced(node, scope, outer is None) if half is not Half.END else []
        if not state.arrays and not node.resumes:
            if not state.registers:
                state.take(frame, scope.lanes)
            body = state.declare()
        body += inner
        if half is Half.MAKE:
            return body
        if node.resumes and outer is not None:
            return body + keep(outer, state, scope.output)
        if outer is not None:
            return body + flush(frame, state, outer, scope.output)
        return body + self._finish(node, state, scope, blocked)

    def _finish(
        self, node: Reduce, state: Accumulators, scope: Scope, blocked: bool
    ) -> list[k.Statement]:
        """What makes accumulators the outcome of their reductions."""
        shared, body, frame = find_shared(node), list[k.Statement](), self.frame
        if state.arrays and (state.lanes > 1 or not blocked):
            count = None
            if blocked and self._nest.block is not None:
                count = scope.stops.get(self._nest.block) or self._nest.block.count
            width, changes = self._block_width(), bool(shared)
            state, body = join_lanes(frame, state, count, width, changes=changes)
        for axis in shared:
            body += join_items(frame, state, self._nest.lanes, self._lanes, axis)
        if node.into is not None:
            ((each, own),) = zip(state.gathered, next(iter(state.registers.values())), strict=True)
            value = finish(each.fold, own, each.fold.dtype, in_order=state.serial)
            return [*body, self._values.put(node.into, value, scope)]
        have_at_hand(self.frame, state, body)
        return body

    def _write_reduced(self, node: Reduce, scope: Scope, first: bool) -> list[k.Statement]:
        """What is inside a reduction, under the conditions that are known by then."""
        number, elements = node.phase, self._nest.phases[node.phase].elements
        if not first or not self._values.tests(number):
            return self._write(node.body, scope)
        emitter = self._values.emitter(number, scope)
        left = frozenset[int]()
        if scope.together is not None:
            left = scope.together.certain[number] | scope.together.masks[number]
        conditions = [c for c in list_conditions(elements) if c not in left]
        above = [c for c in conditions if emitter.level(c) <= scope.depth]
        if elements.results:
            above = []
        pending = tuple(c for c in conditions if c not in above)
        within = dataclasses.replace(scope, conditions={**scope.conditions, number: pending})
        return self._values.enter(
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

    def _write_point(self, node: Point, scope: Scope) -> list[k.Statement]:
        number = node.phase
        phase = self._nest.phases[number]
        if node.into or node.name:
            return self._values.open(number, scope, lambda scope: self._hold(node, scope))
        if number not in scope.states:
            return self._values.open(number, scope, lambda scope: self._store(number, scope))
        conditions = scope.conditions.get(number, ())
        if not conditions or not phase.elements.results:
            return self._values.open(
                number,
                scope,
                lambda scope: self._accumulate(number, scope) + self._store(number, scope),
            )
        # What is stored does not depend on the conditions of what is added.
        emitter, level = self._values.emitter(number, scope), scope.depth
        free = {**scope.conditions, number: ()}
        around = dataclasses.replace(scope, depth=level - 1, conditions=free)

        def within(around: Scope) -> list[k.Statement]:
            inner = dataclasses.replace(around, depth=level)
            emitter.forget(level)
            needed = list_stored(phase.elements)
            made = emitter.lets(
                level, self._values.position(number, inner), inner.lanes, only=needed
            )
            made += self._store(number, inner)
            return made + self._values.enter(
                number, level, inner, conditions, lambda: self._accumulate(number, inner)
            )

        return self._values.open(number, around, within)

    def _hold(self, node: Point, scope: Scope) -> list[k.Statement]:
        """What a point makes for others."""
        emitter = self._values.emitter(node.phase, scope)
        results = self._nest.phases[node.phase].elements.results
        values = [emitter.value(number, scope.lanes) for _, number in results]
        if node.name:
            self.frame.near[node.name] = always(values[0])
            return []
        return [
            self._values.put(to, value, scope) for to, value in zip(node.into, values, strict=True)
        ]

    def _accumulate(self, number: int, scope: Scope) -> list[k.Statement]:
        """A point, or as many as there are lanes, enters the accumulators."""
        emitter, lanes = self._values.emitter(number, scope), scope.lanes
        points: list[tuple[k.Expression, ...]] = []
        state = scope.states[number]
        masks: list[int] = []
        if scope.together is not None:
            together = scope.together
            masks = sorted(together.masks[number] - together.certain[number])
        for gathered in state.gathered:
            fold = gathered.fold
            guard: k.Expression | None = None
            if fold.guard is not None and not self._values.tests(number):
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

    def _store(self, number: int, scope: Scope) -> list[k.Statement]:
        """The stores of a point's results."""
        position, emitter = (
            self._values.position(number, scope),
            self._values.emitter(number, scope),
        )
        streams = scope.streams.get(number)
        whole = scope.lanes == self.frame.lanes or scope.together is not None
        flags = streams.flags if streams is not None and whole else {}
        made: list[k.Statement] = []
        for store in emitter.stores(position, scope.lanes, flags):
            into, element = scope.packs.get(store.buffer, (None, index(0)))
            if into is None:
                made.append(store)
            elif isinstance(into, k.Local):
                made.append(k.PutHalf(into, store.buffer, element, store.value))
            else:
                made.append(k.Put(into, element, store.value))
        return guard([] if scope.is_own is None else [scope.is_own], made)

    def _write_zeros(self, node: Fill) -> list[k.Statement]:
        """Zeros in a part of a buffer, of each row."""
        buffer = node.buffer
        rows = buffer.size // buffer.pitch if buffer.pitch else 1
        row = self.frame.variable("row") if rows > 1 else index(0)
        place = self.frame.variable("x")
        zero = k.Literal(k.Type(buffer.dtype), 0.0 if buffer.dtype.is_float else 0)
        put = k.Put(self._values.arrays[buffer], add(multiply(row, buffer.pitch), place), zero)
        made = k.For(place, index(node.first), index(node.last), 1, (put,))
        if isinstance(row, k.Local):
            made = k.For(row, index(0), index(rows), 1, (made,))
        return [made]

    def _write_picked(self, node: Pick, scope: Scope) -> list[k.Statement]:
        """Vectors that are made of what a row has at hand."""
        row, array = node.row, self._values.arrays[node.row]

        def load(place: k.Expression, lanes: int) -> k.Expression:
            return k.Element(array, place, k.Type(row.dtype, lanes))

        lets, picked = load_patterns(
            node.patterns,
            scope.known[node.dim],
            self._values.offset(row),
            row.front,
            load,
            self.frame.let,
        )
        for name, value in picked.items():
            self.frame.near[name] = always(value)
        return [*lets, *self._write(node.body, scope)]

    def _write_turns(self, node: Turns, scope: Scope) -> list[k.Statement]:
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
            is_inside = both(operate("ge", place, index(node.first)), is_inside)
        made: list[k.Statement] = []
        flag = self.frame.name(made, "inside", is_inside)
        outside = k.Operate(OPERATIONS["not"], (flag,), k.BOOL)
        others = self._write(node.others, scope)
        return [*made, k.If(flag, tuple(within)), k.If(outside, tuple(others))]

    def _write_packed(self, node: Pack, scope: Scope) -> list[k.Statement]:
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
        position = self._values.position(number, dataclasses.replace(scope, known=first))
        streams = scope.streams.get(number)
        flags = {} if streams is None else streams.flags
        for view, array in arrays.items():
            value = k.Element(array, index(0), k.Type(view.dtype.compute, node.lanes))
            body.append(k.Store(view.tensor, position(view), value, flags.get(view.tensor)))
        return body
