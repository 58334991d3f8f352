"""Lowering of a nest's loops.

Each loop restricts its dimension to a range, or fixes a point of it (`points`). If the dimension is
no multiple of the step, serial and vector loops leave a remainder to loops of smaller steps;
unrolled loops and loops over work items are guarded.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import ZERO, add, index, multiply, operate, subtract, subtract_known
from dmlc.loops.element import View
from dmlc.loops.nodes import (
    Dim,
    Kind,
    Loop,
    Node,
    Pack,
    Point,
    Reduce,
    Stage,
    is_once,
    list_loops,
    list_phases,
    map_bodies,
    walk,
)
from dmlc.lowering.loop_fusion import fuse_loops
from dmlc.lowering.pipelined import fill_tiles, pipeline_loop
from dmlc.lowering.points import Points
from dmlc.lowering.scope import Scope
from dmlc.lowering.transposed import transpose_square
from dmlc.scalars import OPERATIONS
from dmlc.source import InternalError


@dataclasses.dataclass(frozen=True, slots=True)
class _Share:
    """Part of a loop's range, executed in steps of `width`."""

    width: int
    first: k.Expression
    last: k.Expression


class Loops(Points):
    """Lowers the loops of one nest, and calls `write` for their bodies."""

    def write(self, node: Loop, scope: Scope) -> list[k.Statement]:
        """A loop with its body; nothing if its dimension is empty."""
        if node.dim.size == 0:
            return []
        match node.kind:
            case Kind.GROUP:
                return self._write_group(node, scope)
            case Kind.LANE:
                return self._write_lane(node, scope)
            case Kind.UNROLL | Kind.LOOP if node.extent:
                return self._write_counted(node, scope)
            case Kind.VECTOR if node.extent:
                wide = dataclasses.replace(scope, lanes=node.step)
                return self._fix(node, wide, scope.start(node.dim), [])
            case _ if node.vectorization is not None:
                return self._write_vectorized(node, scope)
            case _:
                return self._write_range(node, scope)

    # Loops that others run -------------------------------------------------------------------

    def _write_group(self, node: Loop, scope: Scope) -> list[k.Statement]:
        dim, step, body = node.dim, node.step, list[k.Statement]()
        if any(n.kind is Kind.VECTOR and n.extent for n in list_loops(node.body, dim)):
            return self._write_partition(node, scope)
        exact = dim.size % step == 0 if isinstance(dim.size, int) else step == 1
        is_loose = self._limit is not None or not exact
        scope = scope.narrow(dim, is_loose=is_loose)
        if isinstance(dim.size, int) and dim.size <= step:
            return self._fix(node, scope, index(0), body)
        number: k.Expression = k.Position(k.Geometry.GROUP)
        loops = list_loops(node.body, dim)
        if not loops or loops[0].extent:
            if node.wanted and loops:
                number = self._frame.name(body, node.wanted, number)
            return self._fix(node, scope, multiply(number, step), body)
        start = self._frame.name(body, node.wanted, multiply(number, step))
        end: k.Expression = add(start, index(step))
        if is_loose:
            end = operate("min", end, dim.count)
        stop = self._frame.name(body, "end", end)
        return self._fix(node, scope.narrow(dim, stop=stop, is_loose=False), start, body)

    def _write_partition(self, node: Loop, scope: Scope) -> list[k.Statement]:
        """A loop over work groups that use vectors if all of their points are in bounds; the last
        one is scalar, with adjacent work items on adjacent points."""
        dim, step, body = node.dim, node.step, list[k.Statement]()
        within, beyond = scope.narrow(dim, is_loose=False), scope.narrow(dim, is_loose=True)
        scalar = dataclasses.replace(node, body=_scalarize(node.body, dim))
        size = dim.size if isinstance(dim.size, int) else None
        if size is not None and size < step:
            return self._fix(scalar, beyond, index(0), body)
        if size == step:
            return self._fix(node, within, index(0), body)
        start = self._frame.name(body, "begin", multiply(k.Position(k.Geometry.GROUP), step))
        if size is not None and size % step == 0 and self._limit is None:
            return self._fix(node, within, start, body)
        inside = operate("le", add(start, index(step)), dim.count)
        flag = self._frame.name(body, "whole", inside)
        outside = k.Operate(OPERATIONS["not"], (flag,), k.BOOL)
        whole = self._fix(node, within, start, [])
        rest = self._fix(scalar, beyond, start, [])
        return [*body, k.If(flag, tuple(whole)), k.If(outside, tuple(rest))]

    def _write_lane(self, node: Loop, scope: Scope) -> list[k.Statement]:
        dim, body = node.dim, list[k.Statement]()
        scope = dataclasses.replace(scope, used=scope.used | {node.wanted})
        scope = self._note_end(node, scope, body)
        if node.extent == 1:
            return self._fix(node, scope, scope.start(dim), body)
        start = add(scope.start(dim), multiply(self._items[node.wanted], node.step))
        inner = list_loops(node.body, dim)
        if any(n.step <= node.step or n.kind is Kind.VECTOR for n in inner if not n.extent):
            start = self._frame.name(body, f"first_{dim.wanted}", start)
            stop = scope.span(dim).stop or self._find_end(dim, scope, body)
            # An item that starts beyond the end has an empty range.
            end = operate("max", start, operate("min", add(start, index(node.step)), stop))
            scope = scope.narrow(dim, stop=self._frame.name(body, f"end_{dim.wanted}", end))
        return self._fix(node, scope, start, body)

    def _note_end(self, node: Loop, scope: Scope, body: list[k.Statement]) -> Scope:
        """Records that a loop may overrun its dimension, or the shorter last chunk of one."""
        dim = node.dim
        if scope.span(dim).start is not None:
            return scope
        first = dim.parts[0][0] if dim.parts else dim
        if self._find_remainder(first, scope) is not None:
            return scope.narrow(dim, stop=self._find_end(dim, scope, body), is_loose=True)
        if dim.size == node.extent * node.step:
            return scope
        return scope.narrow(dim, is_loose=True)

    # Loops of one work item ------------------------------------------------------------------

    def _write_counted(self, node: Loop, scope: Scope) -> list[k.Statement]:
        """A loop of a fixed number of steps."""
        dim, unroll, body = node.dim, node.kind is Kind.UNROLL, list[k.Statement]()
        scope = self._note_end(node, scope, body)
        start = scope.start(dim)
        if node.extent == 1:
            return self._fix(node, scope, start, body)
        number = self._frame.variable(node.wanted)
        counted = any(buffer.rows is node.dim for buffer in self._nest.buffers)
        if counted:
            self._values.counts[node.dim] = number
        if node.output:
            counted, further = True, multiply(number, node.output)
            scope = dataclasses.replace(scope, output=add(scope.output, further))
        if node.step == 1 and not scope.packs and not counted:
            made = self._fix(node, scope, number, [])
            last = add(start, index(node.extent))
            each = k.For(number, start, last, 1, tuple(made), unroll=unroll, rolled=not unroll)
            return body + transpose_square(self._frame, each)
        packs = {buffer: (into, number) for buffer, (into, _) in scope.packs.items()}
        scope = dataclasses.replace(scope, packs=packs)
        made = self._fix(node, scope, add(start, multiply(number, node.step)), [])
        last = index(node.extent)
        each = k.For(number, index(0), last, 1, tuple(made), unroll=unroll, rolled=not unroll)
        return [*body, each]

    def _write_range(self, node: Loop, scope: Scope) -> list[k.Statement]:
        """A loop over the remaining range of a dimension, with its remainder in smaller steps."""
        dim, body = node.dim, list[k.Statement]()
        start, stop = self._find_range(node, scope, body)
        finer = list_loops(node.body, dim)
        is_wide = node.kind is Kind.VECTOR
        # A tile may overrun the dimension.
        written_out = bool(finer and finer[0].extent and finer[0].dim is dim)
        parted = is_wide or (node.step > 1 and written_out)
        length = subtract_known(stop, start)
        if not parted and length is not None and length <= node.step:
            return self._fix(node, scope, start, body)
        if node.interleaved:
            return body + self._write_interleaved(node, scope, start, stop)
        counted = itertools.takewhile(lambda n: n.extent, finer)
        if any(n.kind is Kind.LANE and n.dim is dim for n in counted):
            return body + self._write_rounds(node, scope, start, stop)
        scope = scope.narrow(dim, is_loose=False)
        if self._is_row(node) or (is_wide and dim is self._nest.block):
            scope = self._name_bases(node, scope, body)
        if not parted:
            share = _Share(node.step, start, stop)
            return body + self._write_share(node, scope, share, backwards=node.backwards)
        ahead = self._fetch_ahead(node, scope, body)
        shares = self._share_out(node, scope, start, stop, body)
        for share in shares:
            body += self._write_share(node, scope, share, ahead)
        return body

    def _write_rounds(
        self, node: Loop, scope: Scope, start: k.Expression, stop: k.Expression
    ) -> list[k.Statement]:
        """A loop over points that the work items of a group share. All items have work in full
        steps; the remainder is executed in single rounds, the last of which is guarded."""
        dim, body = node.dim, list[k.Statement]()
        loops = list_loops(node.body, dim)
        (width,) = {n.step * n.extent for n in loops if n.kind is Kind.LANE}
        node = dataclasses.replace(node, name=node.name or "strip")
        once = dataclasses.replace(node, step=width, body=_roll(node.body, dim, width))
        scope = scope.narrow(dim, stop=stop)
        length = subtract_known(stop, start)
        if length is None and start == index(0) and is_once(node, self._bounds):
            return body + self._fix(once, scope.narrow(dim, is_loose=True), start, [])
        if length is None:
            rest = operate("mod", subtract(stop, start), index(node.step))
            middle = self._frame.name(body, f"{node.wanted}s_end", operate("sub", stop, rest))
            body += self._write_round(node, scope.narrow(dim, is_loose=False), start, middle)
            return body + self._write_round(once, scope.narrow(dim, is_loose=True), middle, stop)
        first = int(start.value) if isinstance(start, k.Literal) else 0
        last = first + length
        for each in (node, once):
            end = first + (last - first) // each.step * each.step
            inside = scope.narrow(dim, is_loose=False)
            body += self._write_round(each, inside, index(first), index(end))
            first = end
        loose = scope.narrow(dim, is_loose=True)
        return body + self._write_round(once, loose, index(first), index(last))

    def _write_round(
        self, node: Loop, scope: Scope, first: k.Expression, last: k.Expression
    ) -> list[k.Statement]:
        """Part of such a loop."""
        length, body = subtract_known(last, first), list[k.Statement]()
        if length == 0:
            return body
        if self._is_row(node):
            scope = self._name_bases(node, scope, body)
        if length is not None and length <= node.step:
            return body + self._fix(node, scope, first, [])
        variable = self._frame.variable(node.wanted)
        made = self._fix(node, scope, variable, [])
        return [*body, k.For(variable, first, last, node.step, tuple(made))]

    def _write_share(
        self,
        node: Loop,
        scope: Scope,
        share: _Share,
        ahead: Mapping[str, k.Expression] = MappingProxyType({}),
        *,
        backwards: bool = False,
    ) -> list[k.Statement]:
        """Part of a loop in steps of one width. Remainders of single points have no vectors, and do
        not unroll."""
        dim, width, last = node.dim, share.width, share.last
        within, whole = list[k.Statement](), width == node.step
        is_wide, is_block = node.kind is Kind.VECTOR, dim is self._nest.block
        variable = self._frame.variable(node.wanted if whole or is_wide else dim.wanted)
        place: k.Expression = variable
        if is_block:
            scope = dataclasses.replace(scope, output=variable)
            if not is_wide and not self._is_row(node):
                place = add(scope.start(dim), variable)
        if node.output:
            gone = variable if share.first == ZERO else operate("sub", variable, scope.start(dim))
            further = add(scope.output, multiply(gone, node.output))
            scope = dataclasses.replace(scope, output=further)
        if is_wide:
            within += [k.Prefetch(b, add(at, variable)) for b, at in ahead.items() if whole]
            scope = dataclasses.replace(scope, lanes=width)
        elif not whole:
            node = dataclasses.replace(node, body=_roll(node.body, dim))
        finer = list_loops(node.body, dim)
        if finer and not finer[0].extent and finer[0].dim is dim:
            end: k.Expression = add(variable, index(width))
            if not isinstance(last, k.Literal) or int(last.value) % width:
                end = operate("min", end, last)
            scope = scope.narrow(dim, stop=self._frame.name(within, f"{node.wanted}_end", end))
        elif node.backwards and not backwards and whole and isinstance(last, k.Literal):
            from_end = operate("sub", index(int(last.value) - width), variable)
            place = self._frame.name(within, dim.wanted, from_end)
        length = subtract_known(last, share.first)
        counter = variable
        if is_wide and length is not None and length % width:
            # The last vector overlaps the one before.
            counter = self._frame.variable("x")
            again = operate("min", counter, add(last, index(-width)))
            within.append(k.Let(variable, again))
        made = self._fix(node, scope, place, within)
        loop = k.For(counter, share.first, last, width, tuple(made), backwards=backwards)
        stages = [n for n in node.body if isinstance(n, Stage)]
        if not any(stage.ahead for stage in stages):
            is_shared = any(b.shared for stage in stages for b in stage.buffers)
            return fill_tiles(self._frame, loop) if is_shared else [loop]
        around = [n for n in walk(self._nest.body) if isinstance(n, Loop) and n.kind is Kind.LOOP]
        again = any(
            inner.dim is dim for n in around for inner in walk(n.body) if isinstance(inner, Loop)
        )
        return pipeline_loop(self._frame, loop, again=again)

    def _share_out(
        self,
        node: Loop,
        scope: Scope,
        start: k.Expression,
        stop: k.Expression,
        body: list[k.Statement],
    ) -> list[_Share]:
        """Parts of a loop's range: full steps, then shorter ones if the length is known, then
        single points. If stores are streaming, the points before the first aligned vector come
        first, one by one."""
        shares: list[_Share] = []
        if isinstance(start, k.Literal) and isinstance(stop, k.Literal):
            first = int(start.value)
            for width in (node.step, *node.rest, 1):
                last = first + (int(stop.value) - first) // width * width
                if last > first:
                    shares.append(_Share(width, index(first), index(last)))
                    first = last
            return shares
        streams = [p.streams for p in scope.work.values() if p.streams is not None]
        lead = next((s.lead for s in streams if s.lead is not None), None)
        if lead is not None:
            # Every run starts at a cache line relative to the buffer, so that the distance to the
            # first aligned vector is the same for all.
            aligned = operate("min", add(start, lead), stop)
            begin, start = start, self._frame.name(body, "vector_begin", aligned)
            shares.append(_Share(1, begin, start))
        rest = operate("mod", subtract(stop, start), index(node.step))
        name = "vector_end" if node.kind is Kind.VECTOR else f"{node.wanted}s_end"
        middle = self._frame.name(body, name, operate("sub", stop, rest))
        return [*shares, _Share(node.step, start, middle), _Share(1, middle, stop)]

    def _find_range(
        self, node: Loop, scope: Scope, body: list[k.Statement]
    ) -> tuple[k.Expression, k.Expression]:
        """Start and stop of a loop. Along the nest's block, it counts outputs."""
        dim = node.dim
        if node.part is not None:
            return index(node.part[0]), index(node.part[1])
        stop = scope.span(dim).stop
        if dim is self._nest.block:
            return index(0), stop or dim.count
        return scope.start(dim), stop or self._find_end(dim, scope, body)

    def _write_interleaved(
        self, node: Loop, scope: Scope, start: k.Expression, stop: k.Expression
    ) -> list[k.Statement]:
        """A software-pipelined loop that reduces a step's points while it finishes the previous
        step. The first reduction and the last finish are outside of the loop."""
        first, *others = node.body
        if not isinstance(first, Reduce):
            raise InternalError("an interleaved loop begins with no reduction")
        makes = dataclasses.replace(node, body=(dataclasses.replace(first, ends=False),))
        rest = dataclasses.replace(node, body=(dataclasses.replace(first, body=()), *others))
        block = self._frame.variable(node.wanted)
        body = self._fix(makes, scope, start, [])
        turn: list[k.Statement] = []
        before = self._frame.name(turn, "before", operate("sub", block, index(1)))
        done = self._fix(rest, scope, before, [])
        pair = fuse_loops(done, self._fix(makes, scope, block, []))
        if pair is None:
            raise InternalError("a reduction and what applies it have different loops")
        body.append(k.For(block, add(start, index(1)), stop, 1, (*turn, *pair)))
        last = self._frame.name(body, "last", operate("sub", stop, index(1)))
        return body + self._fix(rest, scope, last, [])

    # Vectors whose reads lie apart -----------------------------------------------------------

    def _write_vectorized(self, node: Loop, scope: Scope) -> list[k.Statement]:
        """A range vectorized in the middle although reads are not contiguous, with scalar ends."""
        vectorization, body = node.vectorization, list[k.Statement]()
        if vectorization is None:
            return body
        start, stop = self._find_range(node, scope, body)
        first: k.Expression = index(vectorization.first)
        last: k.Expression = index(vectorization.last)
        if not isinstance(stop, k.Literal):
            # A chunk of a longer row is vectorized only where the row is.
            whole = isinstance(node.dim.size, int) and vectorization.last < node.dim.size
            first, last = start, stop
            if whole:
                end = operate("min", stop, index(vectorization.last))
                last = self._frame.name(body, "vector_end", operate("max", start, end))
        phases = list_phases(node)
        middle = _Share(node.step, first, last)
        for share in (_Share(1, start, first), middle, _Share(1, last, stop)):
            if share.first == share.last:
                continue
            if share is not middle:
                body += self._write_stretch(node, scope, share)
                continue
            wide = scope
            for number in phases:
                emitter = self._values.make_emitter(number, vectorization.joints[number])
                wide = wide.note(number, emitter=emitter, opened=-1)
            body += self._values.open(
                phases[0], wide, lambda wide: self._write_stretch(node, wide, middle)
            )
        return body

    def _write_stretch(self, node: Loop, scope: Scope, share: _Share) -> list[k.Statement]:
        """A loop over part of a row."""
        body: list[k.Statement] = []
        if self._is_row(node):
            scope = self._name_bases(node, scope, body)
        if subtract_known(share.last, share.first) == 1:
            return body + self._fix(node, scope, share.first, [])
        return body + self._write_share(node, scope, share)

    # Rows --------------------------------------------------------------------------------------

    def _is_row(self, node: Loop) -> bool:
        """Whether all offsets are linear in the loop's variable, so that the start of the row gets
        a name."""
        within: Sequence[Node] = node.body
        while len(within) == 1:
            one = next(iter(within))
            match one:
                case Point():
                    return not node.dim.parts
                case Loop() if one.dim is not node.dim or not one.extent:
                    return False
                case Loop() | Reduce(serial=False) | Pack():
                    within = one.body
                case _:
                    return False
        return False

    def _name_bases(self, node: Loop, scope: Scope, body: list[k.Statement]) -> Scope:
        """Records the row's base offset of each view, with a name if it takes arithmetic. Views
        whose reads at computed indices have all been written need none."""
        dim = node.dim
        number, *more = list_phases(node)
        if more or number in self._values.serial:
            return scope
        around = scope.fix({dim: scope.start(dim)}) if dim is self._nest.block else scope
        at = self._values.position(number, around, partly=True)
        emitter, elements = self._values.emitter(number, scope), self._nest.phases[number].elements
        names: dict[k.Expression, k.Local] = {}
        bases: dict[View, k.Expression] = {}
        unneeded = emitter.list_settled(scope.depth)
        for view in elements.views():
            if view.local or view in unneeded:
                continue
            base = at(view)
            if isinstance(base, k.Operate):
                if base not in names:
                    names[base] = self._frame.name(body, "row_start", base)
                base = names[base]
            bases[view] = base
        based = frozenset(d for d in scope.known if d is not dim)
        return scope.note(number, based=based, bases=bases)

    def _fetch_ahead(
        self, node: Loop, scope: Scope, body: list[k.Statement]
    ) -> dict[str, k.Expression]:
        """Start of the next row along an outer loop, for each tensor that is prefetched."""
        dim = node.ahead
        if dim is None or dim not in scope.known or not isinstance(dim.size, int):
            return {}
        (number,) = list_phases(node)
        following = operate("min", add(scope.known[dim], index(1)), index(dim.size - 1))
        next_row = scope.fix({dim: self._frame.name(body, f"next_{dim.wanted}", following)})
        at = self._values.position(number, next_row.note(number, bases={}), partly=True)
        rows: dict[k.Expression, k.Local] = {}
        found: dict[str, k.Expression] = {}
        elements = self._nest.phases[number].elements
        stored = {view.tensor for view, _ in elements.results}
        for view in (view for view in elements.buffers() if view.tensor not in stored):
            steps = dict(self._values.terms[number][view])
            if view.dtype.bytes != 2 or steps.get(node.dim) != 1 or not steps.get(dim):
                continue
            start = at(view)
            if start not in rows:
                rows[start] = self._frame.name(body, "next_row", start)
            found[view.tensor] = rows[start]
        return found


def _scalarize(nodes: Sequence[Node], dim: Dim) -> tuple[Node, ...]:
    """Scalar version of nodes with vectors along a dimension: adjacent work items get adjacent
    points, as many each as before."""
    loops = list_loops(nodes, dim)
    items = math.prod(n.extent for n in loops if n.kind is Kind.LANE)
    inner = [n for n in loops if n.kind is not Kind.LANE]
    points = math.prod(n.step if n.kind is Kind.VECTOR else n.extent for n in inner)

    def change(node: Node) -> Node:
        if isinstance(node, Loop) and node.dim is dim:
            made = Loop(dim, node.kind, 1, tuple(map(change, node.body)), node.name, 1)
            if node.kind is Kind.LANE:
                return dataclasses.replace(made, extent=node.extent)
            if node is inner[0]:
                # The same loops, one of which has all the iterations.
                return dataclasses.replace(made, kind=Kind.LOOP, step=items, extent=points)
            return made
        return map_bodies(node, lambda body: tuple(map(change, body)))

    return tuple(map(change, nodes))


def _roll(nodes: Sequence[Node], dim: Dim, least: int = 0) -> tuple[Node, ...]:
    """Nodes with one iteration of the unrolled loops over a dimension whose steps are at least
    `least`."""
    made: list[Node] = []
    for node in nodes:
        node = map_bodies(node, lambda body: _roll(body, dim, least))
        if isinstance(node, Pack) and node.dim is dim and not node.in_words:
            made += node.body
            continue
        if (
            isinstance(node, Loop)
            and node.dim is dim
            and node.extent
            and node.kind is not Kind.LANE
            and node.step >= least
        ):
            node = dataclasses.replace(node, extent=1)
        made.append(node)
    return tuple(made)
