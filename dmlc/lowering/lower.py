"""Lowering of a loop nest to statements, by recursion over the schedule tree.

`loops` lowers loops, `reductions` reductions, and `values` the values, each in the outermost loop
where its operands are known. This module lowers the nodes inside them: points, and nodes with
several points.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import (
    ZERO,
    add,
    both,
    either,
    guard,
    index,
    multiply,
    operate,
    split_number,
    subtract,
    widen,
    zero_of,
)
from dmlc.kernel.frame import Frame
from dmlc.kernel.names import Names, local_name, split_words
from dmlc.loops.element import list_stored
from dmlc.loops.nodes import (
    Fill,
    Kind,
    Loop,
    Multiply,
    Nest,
    Node,
    Numbers,
    Once,
    Pack,
    Permute,
    Point,
    Reduce,
    Rescale,
    Stage,
    Turns,
    Where,
    is_multiple_of,
    list_arrangements,
    list_items,
    list_phases,
    walk,
)
from dmlc.loops.phases import Scatter
from dmlc.lowering.accumulators import always
from dmlc.lowering.loops import Loops
from dmlc.lowering.matrices import Products
from dmlc.lowering.reductions import Reductions
from dmlc.lowering.scope import Scope
from dmlc.lowering.shuffles import load_patterns
from dmlc.lowering.values import Values
from dmlc.scalars import COMBINERS, DataType
from dmlc.schedules.streaming import Streaming
from dmlc.sizes import Taken

_WORD = k.Type(DataType.UINT32)


def lower_nest(
    nest: Nest,
    names: Names,
    vector: int,
    streaming: Streaming,
    limit: int | None,
    bounds: Taken = (),
) -> tuple[list[k.Statement], tuple[k.Array, ...], tuple[k.Matrix, ...]]:
    """Statements of a nest, with their arrays and matrices. Full vectors have `vector` lanes. If a
    launch has more than `limit` groups along a dimension, it may have idle groups. Open sizes have
    `bounds`."""
    writer = _Writer(nest, Frame(names, vector), streaming, limit, bounds)
    return writer.write_all(), tuple(writer.frame.arrays), tuple(writer.products.matrices)


class _Writer:
    def __init__(
        self, nest: Nest, frame: Frame, streaming: Streaming, limit: int | None, bounds: Taken
    ) -> None:
        self.frame = frame
        self._nest = nest
        self._arrangements = list_arrangements(nest)
        self._values = values = Values(nest, frame, streaming)
        self._items: dict[str, k.Expression] = {}
        """Coordinate of this work item along each axis of its group."""
        self._loops = Loops(nest, frame, values, self._items, limit, self._write, bounds)
        self._reductions = Reductions(nest, frame, values, self._items, self._write)
        self.products = Products(nest, frame, values, self._write)

    def write_all(self) -> list[k.Statement]:
        """Body of the kernel."""
        body = self._name_items()
        self._values.make_buffers()
        return body + self._write(self._nest.body, Scope())

    def _name_items(self) -> list[k.Statement]:
        """Definitions of this work item's coordinates."""
        body: list[k.Statement] = []
        for axes in (self._nest.lanes, *self._arrangements):
            extents = [extent for _, extent in axes]
            digits = split_number(k.Position(k.Geometry.LANE), extents)
            for (name, extent), digit in zip(axes, digits, strict=True):
                named = len(extents) > 1 and extent > 1
                self._items[name] = self.frame.name(body, name, digit) if named else digit
        return body

    # The tree ---------------------------------------------------------------------------------

    def _write(self, nodes: Sequence[Node], scope: Scope) -> list[k.Statement]:
        """Statements of nodes in order."""
        return [statement for node in nodes for statement in self._write_node(node, scope)]

    def _write_node(self, node: Node, scope: Scope) -> list[k.Statement]:
        own = list_items(node)
        stands = isinstance(node, Loop) and node.kind is Kind.LANE and own in self._arrangements
        if isinstance(node, Loop) and stands and scope.origins is None:
            # A block with its own arrangement of the items may use only some of them.
            there = math.prod(side for _, side in self._nest.lanes)
            count = math.prod(extent for _, extent in own)
            alone = operate("lt", k.Position(k.Geometry.LANE), index(count))
            made = self._open_all(list_phases(node), node, scope)
            return guard([alone] if count < there else [], made)
        product = self.products.find(node) if isinstance(node, Reduce) else None
        if product is not None and isinstance(node, Reduce):
            # All work items execute it together.
            every = dataclasses.replace(scope, used=scope.used | set(self._items))
            return self.products.begin(node, product, every)
        if isinstance(node, Reduce) and self.products.ends(node):
            return self.products.end(node, scope)
        idle = self._list_idle(node, scope)
        if idle:
            # Work that is not distributed is done by all items, and stored by the first.
            owns = [operate("eq", self._items[name], index(0)) for name in idle]
            owns += [] if scope.is_own is None else [scope.is_own]
            alone = dataclasses.replace(scope, used=scope.used | set(idle), is_own=None)
            if not any(isinstance(n, Reduce | Stage) for n in walk((node,))):
                return guard(owns, self._write_node(node, alone))
            scope = dataclasses.replace(alone, is_own=functools.reduce(both, owns))
        match node:
            case Point():
                return self._write_point(node, scope)
            case Loop():
                return self._open_all(list_phases(node), node, scope)
            case Reduce():
                return self._values.open(
                    node.phase, scope, lambda scope: self._reductions.write(node, scope)
                )
            case Pack():
                return self._write_packed(node, scope)
            case Fill():
                return self._write_zeros(node)
            case Stage():
                return self._write_stage(node, scope)
            case Numbers():
                return self._write_numbers(node, scope)
            case Permute():
                return self._write_permuted(node, scope)
            case Turns():
                return self._write_turns(node, scope)
            case Rescale():
                return self._reductions.rescale(node, scope)
            case Multiply():
                return self.products.write_steps(node)
            case Where():
                return self._values.choose(node, scope, self._write)
            case Once():
                is_first = operate("eq", scope.known[node.dim], index(0))
                return guard([is_first], self._write(node.body, scope))

    def _list_idle(self, node: Node, scope: Scope) -> list[str]:
        """Axes of work items along which a node's work is not distributed by a loop around or
        inside it."""
        lanes = self._nest.lanes
        idle = [name for name, side in lanes if side > 1 and name not in scope.used]
        if not idle or isinstance(node, Stage):
            return []
        loops = [n for n in walk((node,), filled=False) if isinstance(n, Loop)]
        taken = {loop.wanted for loop in loops if loop.kind is Kind.LANE}
        others = {name for axes in self._arrangements for name, _ in axes}
        stands_elsewhere = not others.isdisjoint(taken | scope.used)
        points = [n for n in walk((node,) if idle else ()) if isinstance(n, Point)]
        # Private arrays are filled by every item.
        keeps = all(n.into and not n.into[0].buffer.shared for n in points)
        return [] if stands_elsewhere or keeps else [name for name in idle if name not in taken]

    def _open_all(self, phases: Sequence[int], node: Loop, scope: Scope) -> list[k.Statement]:
        """A loop, preceded by the values of its first phase; of all phases, if it permutes."""
        permutation = any(isinstance(n, Permute) for n in node.body)
        rest = phases[1:] if permutation else ()

        def within(scope: Scope) -> list[k.Statement]:
            return self._open_all(rest, node, scope) if rest else self._loops.write(node, scope)

        return self._values.open(phases[0], scope, within)

    # Points -----------------------------------------------------------------------------------

    def _write_point(self, node: Point, scope: Scope) -> list[k.Statement]:
        number, values = node.phase, self._values
        progress, elements = scope.progress(number), self._nest.phases[number].elements
        if node.into or node.name:
            return values.open(number, scope, lambda scope: self._write_results(node, scope))
        if not progress.conditions or not elements.results:
            return values.open(
                number,
                scope,
                lambda scope: (
                    self._reductions.accumulate(number, scope) + self._store(number, scope)
                ),
            )
        # Stores are not subject to the reduction's conditions.
        emitter, level = values.emitter(number, scope), scope.depth
        free = scope.note(number, conditions=())

        def within(around: Scope) -> list[k.Statement]:
            inner = dataclasses.replace(around, depth=level)
            emitter.forget(level)
            needed = list_stored(elements)
            made = emitter.lets(level, values.position(number, inner), inner.lanes, only=needed)
            made += self._store(number, inner)
            return made + values.enter(
                number,
                level,
                inner,
                progress.conditions,
                lambda: self._reductions.accumulate(number, inner),
            )

        return values.open(number, dataclasses.replace(free, depth=level - 1), within)

    def _write_results(self, node: Point, scope: Scope) -> list[k.Statement]:
        """Writes a point's results to buffers or locals."""
        emitter = self._values.emitter(node.phase, scope)
        results = self._nest.phases[node.phase].elements.results
        values = [emitter.value(number, scope.lanes) for _, number in results]
        if node.name:
            self.frame.local[node.name] = always(values[0])
            return []
        if scope.origins is not None:
            (into,), (value,) = node.into, values
            if scope.is_own is not None and len(into.loose) < len(into.tile):
                zero = widen(zero_of(value.type.dtype), scope.lanes)
                value = k.Select(scope.is_own, value, zero, value.type)
            return self._values.store_tile(into, value, scope)
        return [
            self._values.store_value(to, value, scope)
            for to, value in zip(node.into, values, strict=True)
        ]

    def _store(self, number: int, scope: Scope) -> list[k.Statement]:
        """Stores of a point's results."""
        position = self._values.position(number, scope)
        scatter = self._nest.phases[number].scatter
        if scatter is not None:
            return self._scatter(number, scatter, position(scatter.view), scope)
        emitter, streams = self._values.emitter(number, scope), scope.progress(number).streams
        whole = scope.lanes == self.frame.lanes or emitter.joint is not None
        flags = streams.flags if streams is not None and whole else {}
        made: list[k.Statement] = []
        for store in emitter.stores(position, scope.lanes, flags):
            into, element = scope.packs.get(store.buffer, (None, index(0)))
            if into is None:
                made.append(store)
            elif isinstance(into, k.Local):
                made.append(k.InsertHalf(into, store.buffer, element, store.value))
            else:
                made.append(k.StoreLocal(into, element, store.value))
        return guard([] if scope.is_own is None else [scope.is_own], made)

    def _scatter(
        self, number: int, scatter: Scatter, start: k.Expression, scope: Scope
    ) -> list[k.Statement]:
        """Combines a point with the element that it selects, at an offset from `start`."""
        emitter = self._values.emitter(number, scope)
        place, value = (emitter.value(root) for root in emitter.list_results())
        inside = operate("ge", place, zero_of(place.type.dtype))
        then: list[k.Statement] = []
        element = add(start, k.Convert(place, k.INDEX))
        if not isinstance(element, k.Local):
            element = self.frame.name(then, "element", element)
        own = k.Load(scatter.view.tensor, element, value.type)
        combined = operate(COMBINERS[scatter.combiner].operation.name, own, value)
        then.append(k.Store(scatter.view.tensor, element, combined))
        return [k.If(inside, tuple(then))]

    # Several points ---------------------------------------------------------------------------

    def _write_zeros(self, node: Fill) -> list[k.Statement]:
        """Zeros in a part of each row of a buffer."""
        buffer = node.buffer
        rows = buffer.size // buffer.pitch if buffer.pitch else 1
        row = self.frame.variable("row") if rows > 1 else index(0)
        place = self.frame.variable("x")
        zero = zero_of(buffer.dtype)
        put = k.StoreLocal(
            self._values.arrays[buffer], add(multiply(row, buffer.pitch), place), zero
        )
        made = k.For(place, index(node.first), index(node.last), 1, (put,))
        if isinstance(row, k.Local):
            made = k.For(row, index(0), index(rows), 1, (made,))
        return [made]

    def _write_stage(self, node: Stage, scope: Scope) -> list[k.Statement]:
        """Fills buffers with tiles, and with zeros first if a tile may not fill them."""
        points = [n for n in walk(node.body) if isinstance(n, Point)]
        dims = [dim for point in points for into in point.into for dim, _ in into.tile]
        # Points of a tile are numbered from its start.
        origins = {dim: ZERO if dim.within is not None else scope.start(dim) for dim in dims}
        inner = dataclasses.replace(scope, origins=origins, is_own=None)
        tested: list[k.Expression] = []
        if node.conditions:
            number = points[0].phase
            emitter, opened = self._values.emitter(number, scope), scope.progress(number).opened
            # Conditions known in enclosing loops have been written.
            known = [c for c in node.conditions if emitter.level(c) <= opened]
            tested = [emitter.value(condition) for condition in known]
            left = tuple(c for c in node.conditions if c not in known)
            inner = inner.note(number, conditions=left)
        there, made = math.prod(side for _, side in self._nest.lanes), list[k.Statement]()
        own = set(self._nest.lanes)
        is_shared = any(buffer.shared for buffer in node.buffers)
        for each in node.body:
            # A tile is filled point by point, or in its own vectors, unless the items already
            # have vectors along it.
            into = [i for n in walk((each,)) if isinstance(n, Point) for i in n.into]
            is_known = any(dim in scope.known for i in into for dim, _ in i.tile)
            lanes, items = scope.lanes if is_known else 1, list_items(each)
            used = scope.used if own & set(items) else scope.used | set(self._items)
            filled = self._write_node(each, dataclasses.replace(inner, lanes=lanes, used=used))
            count = math.prod(extent for _, extent in items)
            alone = operate("lt", k.Position(k.Geometry.LANE), index(count))
            # Work items along the tile's dimension fill their own part, as in private arrays.
            is_own = not is_shared or is_known or bool(own & set(items))
            made += guard([*tested, *([alone] if count < there and not is_own else [])], filled)
        if is_shared:
            return [*[k.Barrier()] * node.repeats, *made, k.Barrier()]
        zeros: list[k.Statement] = []
        for buffer in node.buffers:
            zeros += self._write_zeros(Fill(buffer, 0, buffer.size))
        if node.is_whole and not node.conditions:
            lengths = [
                operate("lt", operate("sub", stop, scope.start(dim)), index(step))
                for dim, step in node.steps
                if (stop := scope.span(dim).stop) is not None and not is_multiple_of(dim, step)
            ]
            zeros = guard([functools.reduce(either, lengths)], zeros) if lengths else []
        return [*zeros, *made]

    def _write_numbers(self, node: Numbers, scope: Scope) -> list[k.Statement]:
        """One branch if no result is NaN, and another otherwise."""
        phase = self._nest.phases[node.phase]
        reduces = [n for n in walk(self._nest.body) if isinstance(n, Reduce)]
        reduces = [n for n in reduces if n.phase == node.phase]
        tile = next((n.tile for n in reduces if n.tile is not None), None)
        into = next((n.into for n in reduces if n.into is not None), None)
        made: list[k.Statement] = []
        flag = k.Local(self.frame.names.take("is_lost"), k.BOOL)
        place = self.frame.variable("j")
        if tile is not None or len(phase.accumulators) > 1:
            made.append(k.Variable(flag, k.Literal(k.BOOL, value=False)))
        for accumulator in phase.accumulators:
            if into is None:
                value = self.frame.local[accumulator.slot_name(0)](place, 1)
            else:
                steps = (multiply(scope.known[dim], step) for dim, step in into.tile)
                array = self._values.arrays[into.buffer]
                kept = k.Type(into.buffer.dtype)
                value = k.LoadLocal(array, functools.reduce(add, steps), kept)
            is_lost = operate("isnan", value)
            lost = k.Assign(flag, either(flag, is_lost)) if made else k.Let(flag, is_lost)
            if tile is None:
                made.append(lost)
                continue
            last = index(tile.rows * tile.pitch)
            made.append(k.For(place, index(0), last, 1, (lost,), unroll=tile.registers))
        done = self._write(node.body, scope)
        others = self._write(node.others, scope)
        return [
            *made,
            k.If(operate("not", flag), tuple(done)),
            k.If(flag, tuple(others), rare=True),
        ]

    def _write_permuted(self, node: Permute, scope: Scope) -> list[k.Statement]:
        """Vectors permuted out of a line buffer."""
        row, array = node.row, self._values.arrays[node.row]

        def load(place: k.Expression, lanes: int) -> k.Expression:
            return k.LoadLocal(array, place, k.Type(row.dtype, lanes))

        lets, permuted = load_patterns(
            node.patterns,
            scope.known[node.dim],
            self._values.offset(row),
            row.front,
            load,
            self.frame.let,
        )
        for name, value in permuted.items():
            self.frame.local[name] = always(value)
        return [*lets, *self._write(node.body, scope)]

    def _write_turns(self, node: Turns, scope: Scope) -> list[k.Statement]:
        """A range of points with periodic cases, and other points."""
        place, period = scope.known[node.dim], len(node.cases)
        gone = subtract(place, index(node.first))
        within: list[k.Statement] = []
        for number, case in enumerate(node.cases):
            body: list[k.Statement] = []
            turn = gone if period == 1 else operate("div", gone, index(period))
            if isinstance(turn, k.Operate):
                turn = self.frame.name(body, "turn", turn)
            body += self._write(case, scope.fix({node.turn: turn}))
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
        outside = operate("not", flag)
        others = self._write(node.others, scope)
        return [*made, k.If(flag, tuple(within)), k.If(outside, tuple(others))]

    def _write_packed(self, node: Pack, scope: Scope) -> list[k.Statement]:
        """Elements collected from stores inside, and stored together."""
        body: list[k.Statement] = []
        if node.in_words:
            words = {
                b: k.Local(self.frame.names.take(f"{local_name(b)}_word"), _WORD)
                for b in node.buffers
            }
            body += [k.Variable(word, k.Literal(_WORD, 0)) for word in words.values()]
            packs = {b: (word, index(0)) for b, word in words.items()}
            ((whole, _),) = node.dim.parts
            inner = dataclasses.replace(scope.narrow(whole, is_loose=True), packs=packs)
            body += self._write(node.body, inner)
            pair = scope.known[node.dim]
            return body + [k.StoreWord(b, pair, word) for b, word in words.items()]
        (number,) = list_phases(node)
        arrays = {
            v: self.frame.array(f"{split_words(v.tensor)}_block", v.dtype.compute, node.lanes)
            for v, _ in self._nest.phases[number].elements.results
        }
        packs = {v.tensor: (array, index(0)) for v, array in arrays.items()}
        body += self._write(node.body, dataclasses.replace(scope, packs=packs))
        position = self._values.position(number, scope.fix({node.dim: scope.start(node.dim)}))
        streams = scope.progress(number).streams
        flags = {} if streams is None else streams.flags
        stores: list[k.Statement] = []
        for view, array in arrays.items():
            value = k.LoadLocal(array, index(0), k.Type(view.dtype.compute, node.lanes))
            stores.append(k.Store(view.tensor, position(view), value, flags.get(view.tensor)))
        return body + guard([] if scope.is_own is None else [scope.is_own], stores)
