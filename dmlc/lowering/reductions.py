"""Lowering of a nest's reductions, and of the points that they combine.

A reduction has accumulators: in registers, or in arrays with an element for each output of a block
and each lane of a vector. A nested partial reduction has its own accumulators, which are combined
with the outer ones. Accumulators of several work items are combined in shared memory.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import ZERO, both, operate, widen
from dmlc.kernel.frame import Frame
from dmlc.loops.accumulate import State, contribute, finish
from dmlc.loops.element import list_conditions
from dmlc.loops.legality import rises
from dmlc.loops.nodes import Kind, Loop, Nest, Node, Point, Reduce, Rescale, find_shared, walk
from dmlc.lowering.accumulators import (
    Accumulators,
    always,
    combine_block,
    combine_registers,
    copy_tile,
    flush,
    flush_tile,
    initialize,
    join_lanes,
    join_vectors,
    load,
    make_arrays,
    make_tile,
    publish_results,
    store_back,
    walk_arrays,
)
from dmlc.lowering.joins import join_items, join_tiles
from dmlc.lowering.scope import Scope
from dmlc.lowering.values import Values
from dmlc.source import InternalError


class Reductions:
    """Lowers the reductions of one nest, and calls `write` for their bodies."""

    def __init__(
        self,
        nest: Nest,
        frame: Frame,
        values: Values,
        items: Mapping[str, k.Expression],
        write: Callable[[Sequence[Node], Scope], list[k.Statement]],
    ) -> None:
        self._nest = nest
        self._frame = frame
        self._values = values
        self._items = items
        self._write = write
        self._begun: dict[int, Accumulators] = {}
        """Accumulators of reductions that one node begins and another ends."""
        loops = [n for n in walk(nest.body) if isinstance(n, Loop) and n.kind is Kind.LOOP]
        reduced = (n for loop in loops for n in walk(loop.body) if isinstance(n, Reduce))
        self._repeated = {node.phase for node in reduced}
        """Phases that are reduced repeatedly, in an outer loop."""

    def write(self, node: Reduce, scope: Scope) -> list[k.Statement]:
        """A reduction with its body."""
        number, frame = node.phase, self._frame
        if not node.body:
            return self._finish(node, self._begun[number], scope, is_blocked=False)
        accumulators = self._nest.phases[number].accumulators
        outer = scope.progress(number).state
        if outer is not None and not node.resumes and all(isinstance(n, Point) for n in node.body):
            # A partial reduction of one point is that point.
            return self._write_inside(node, scope, is_first=False)
        loops = [n for n in walk(node.body) if isinstance(n, Loop)]
        is_blocked = any(n.dim is self._nest.block for n in loops)
        body: list[k.Statement] = []
        if node.tile is not None:
            reduced = [self._nest.dims[number][a] for a in self._nest.phases[number].space.inner]
            along = (n.step for n in loops if n.kind is Kind.VECTOR and n.dim in reduced)
            state = make_tile(
                frame, accumulators, node.tile, 1 if outer is None else next(along, 1)
            )
            body = initialize(frame, state)
            if node.resumes and outer is not None:
                body = copy_tile(state, outer, scope.output, back=False)
        elif node.resumes and outer is not None:
            state, body = load(frame, outer, scope.output, scope.lanes)
        elif outer is None and number in self._begun:
            state = self._begun[number]
            body = initialize(frame, state)
        elif node.array:
            across = any(n.kind is Kind.VECTOR and n.dim is self._nest.block for n in loops)
            wide = next((n.step for n in loops if n.kind is Kind.VECTOR), 1)
            lanes = 1 if across else wide
            parted = any(isinstance(n, Reduce) and n.array for n in walk(node.body))
            suffix = "_total" if lanes > 1 or parted else "_block"
            state = make_arrays(
                frame, accumulators, suffix, self._width() if is_blocked else 1, lanes
            )
            body = initialize(frame, state)
        else:
            nested = any(isinstance(n, Reduce) for n in walk(node.body))
            state = Accumulators(
                accumulators, {}, serial=node.serial, suffix="_total" if nested else ""
            )
        state = dataclasses.replace(state, rises=node.serial or rises(self._nest, node))
        inside = scope.note(number, state=state)
        if node.tile is not None and outer is not None:
            inside = dataclasses.replace(inside, output=ZERO)
        inner = self._write_inside(node, inside, is_first=outer is None)
        if not state.arrays and not node.resumes:
            if not state.registers:
                state.take(frame, scope.lanes)
            body = state.declare()
        body += inner
        if node.tile is not None and outer is not None:
            if not node.resumes:
                return body + flush_tile(frame, state, outer, scope.output)
            return body + copy_tile(state, outer, scope.output, back=True)
        if not node.ends:
            self._begun[number] = state
            return body
        if node.resumes and outer is not None:
            return body + store_back(outer, state, scope.output)
        if outer is not None:
            if node.joins:
                body += self._join(node, state, node.joins)
            return body + flush(frame, state, outer, scope.output)
        return body + self._finish(node, state, scope, is_blocked=is_blocked)

    def rescale(self, node: Rescale, scope: Scope) -> list[k.Statement]:
        """The body, then the scaling of sums for the growth of the maximum."""
        frame, lanes, body = self._frame, scope.lanes, list[k.Statement]()
        state = scope.progress(node.phase).state
        if state is None:
            raise InternalError("sums are rescaled by what is reduced nowhere")
        (maximum,), ((own,),) = state.accumulators, state.take(frame, lanes)
        before = frame.name(body, "before", own)
        body += self._write(node.body, scope)

        def number(value: float) -> k.Expression:
            return widen(k.Literal(k.Type(own.type.dtype), value), lanes)

        # An unchanged maximum may be infinite, and its difference with itself NaN.
        stays = operate("eq", before, own)
        grown = operate("exp", operate("sub", before, own))
        scale = frame.name(body, "scale", k.Select(stays, number(1.0), grown, own.type))
        is_none = operate("eq", own, number(-math.inf))
        at_hand = frame.name(body, "largest", k.Select(is_none, number(0.0), own, own.type))
        for name, _ in maximum.stages:
            frame.local[name] = always(at_hand)
        scaled: list[k.Statement] = []
        for sums in (scope.progress(phase).state for phase in node.sums):
            if sums is None:
                raise InternalError("sums are rescaled before there are any")
            if not sums.arrays:
                locals_ = [local for each in sums.take(frame, lanes) for local in each]
                scaled += [k.Assign(local, operate("mul", local, scale)) for local in locals_]
                continue
            scaled += walk_arrays(
                frame,
                sums,
                lambda _, each, own, at, lanes: own.write(
                    at, [operate("mul", v, scale) for v in own.read(at, lanes)]
                ),
            )
        if lanes > 1:
            return body + scaled
        # The maximum seldom grows after the first few blocks.
        return [*body, k.If(operate("ne", scale, number(1.0)), tuple(scaled))]

    def _finish(
        self, node: Reduce, state: Accumulators, scope: Scope, *, is_blocked: bool
    ) -> list[k.Statement]:
        """Reduces accumulators over lanes and work items, and makes the results readable."""
        shared, body, frame, block = find_shared(node), list[k.Statement](), self._frame, None
        if is_blocked:
            block = self._nest.block
        if state.arrays and state.tile is None and (state.lanes > 1 or block is None):
            count = None if block is None else scope.span(block).stop or block.count
            state, body = join_lanes(frame, state, count, self._width(), changes=bool(shared))
        loops = [n for n in walk(node.body, filled=False) if isinstance(n, Loop)]
        wide = any(n.kind is Kind.VECTOR for n in loops)
        if wide and not state.arrays:
            state, joined = join_vectors(frame, state)
            body += joined
        for axis in shared:
            if state.tile is not None:
                body += join_tiles(frame, state, self._nest.lanes, self._items, axis)
                continue
            body += self._join(node, state, axis)
        if node.into is not None:
            ((each, own),) = zip(
                state.accumulators, next(iter(state.registers.values())), strict=True
            )
            value = finish(each, own, each.dtype, in_order=state.serial)
            return [*body, self._values.store_value(node.into, value, scope)]
        publish_results(frame, state, body)
        return body

    def _join(self, node: Reduce, state: Accumulators, axis: str) -> list[k.Statement]:
        """Combines the accumulators of the work items along an axis."""
        # Others may still read this item's previous shared values.
        before = [k.Barrier()] * (node.phase in self._repeated)
        lanes, items = self._nest.lanes, self._items
        return [*before, *join_items(self._frame, state, lanes, items, axis)]

    def _write_inside(self, node: Reduce, scope: Scope, *, is_first: bool) -> list[k.Statement]:
        """Body of a reduction, under the conditions that are known in its scope."""
        number, elements = node.phase, self._nest.phases[node.phase].elements
        if not is_first or not self._values.tests(number):
            return self._write(node.body, scope)
        emitter = self._values.emitter(number, scope)
        left = frozenset[int]()
        if emitter.joint is not None:
            left = emitter.joint.certain | emitter.joint.masks
        conditions = [c for c in list_conditions(elements) if c not in left]
        above = [c for c in conditions if emitter.level(c) <= scope.depth]
        if elements.results:
            above = []
        within = scope.note(number, conditions=tuple(c for c in conditions if c not in above))
        return self._values.enter(
            number, scope.depth, scope, above, lambda: self._write(node.body, within)
        )

    def _width(self) -> int:
        """Outputs of a block."""
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

    def accumulate(self, number: int, scope: Scope) -> list[k.Statement]:
        """Combines a point, or a vector of points, with the accumulators."""
        emitter, lanes = self._values.emitter(number, scope), scope.lanes
        state, masks = scope.progress(number).state, list[int]()
        if state is None:
            return []
        if emitter.joint is not None:
            masks = sorted(emitter.joint.masks - emitter.joint.certain)
        points: list[State] = []
        for reduction in state.accumulators:
            guard: k.Expression | None = None
            if reduction.guard is not None and not self._values.tests(number):
                guard = emitter.value(reduction.guard, lanes)
            # Rows out of bounds are not stored, but must not enter reductions over rows.
            beyond = scope.is_own if self._nest.phases[number].is_across else scope.is_there
            if beyond is not None:
                guard = beyond if guard is None else both(guard, beyond)
            for mask in masks:
                holds = emitter.value(mask, lanes)
                if guard is not None:
                    holds = both(guard, holds)
                guard = holds
            place = None if reduction.place is None else emitter.value(reduction.place, lanes)
            values = [emitter.value(n, lanes) for n in reduction.values]
            points.append(contribute(reduction.slots, values, guard, place))
        if state.arrays:
            return combine_block(self._frame, state, scope.output, points)
        return combine_registers(self._frame, state, lanes, points)
