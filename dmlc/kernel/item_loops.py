"""The loops of one phase of a work item on a CPU: over points, over a block of outputs, in vectors.

What is done inside is the caller's: `item_folds` folds, `reduce_cpu` stores.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dmlc.kernel import nodes as k
from dmlc.kernel.element import Gather, View, lies_together, list_conditions, list_joins
from dmlc.kernel.emit import Emitter, Position, add, index, multiply, operate
from dmlc.kernel.guards import enter
from dmlc.kernel.item import Item
from dmlc.kernel.phases import Phase
from dmlc.kernel.schedule import Profile

_BAND = 4
"""Rows walked side by side, where vectors run across outputs: rows lie far apart in memory, and
reads of several are under way at once."""

_STREAMING_BAND = 2
"""The same, where points are folded and stored at once: of more streams, memory keeps up with
fewer. Measured: bands of four take 2.5 times as long, single rows 1.2 times."""

_LEAST_ROW, _LARGEST_ROW = 2048, 65536
"""Bytes of a row that is prefetched: no longer than stays cached until it is read."""

_FOUR = 4
"""The lanes of shorter vectors, for what long ones leave over."""

Write: TypeAlias = Callable[[int, Position], list[k.Statement]]
"""The innermost statements, for a number of lanes."""

Bounds: TypeAlias = tuple[k.Expression, k.Expression]
"""Where a loop starts and stops."""

Known: TypeAlias = dict[int, k.Expression]
"""The index along each axis that is known."""

Inner: TypeAlias = Callable[[], list[k.Statement]]
"""The statements inside others, that know all they need."""

Inside: TypeAlias = Callable[[Known, k.Expression], list[k.Statement]]
"""The statements of a loop, given what is known there and the output's number in the block."""


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """What to do before and after some rows of outputs: `load` for so many lanes from one output
    on, and `keep`."""

    load: Callable[[k.Local, int], list[k.Statement]]
    keep: Callable[[k.Local], list[k.Statement]]


class Loops:
    """Writes the loops of one phase."""

    def __init__(self, item: Item, phase: Phase, known: Known, backwards: bool = False) -> None:
        self.item = item
        self.phase = phase
        self.known = known
        self.backwards = backwards
        self.body: list[k.Statement] = []
        self.streaming: dict[str, k.Expression] = {}
        self.builder = item.builder(phase)
        self.block_axis = phase.space.kept[-1] if item.in_blocks else None
        axes = range(len(phase.space.sizes))
        if phase.is_hoisted:
            axes = phase.space.kept
        self.axes = [axis for axis in axes if axis not in known]
        """The axes to loop over, outermost first."""
        self.in_bands = len(self.axes) > 1 and self.axes[-1] == self.block_axis
        if self.in_bands:
            self.axes[-2:] = reversed(self.axes[-2:])
        levels = {axis: 2 + depth for depth, axis in enumerate(self.axes)}
        depth = self.builder.depth(lambda axis: levels.get(axis, 1))
        elements = phase.elements
        self.tests_guard = phase.tests_guard and self.goes_by_ones
        """Whether the guard of what is folded is tested; in vectors it chooses what they add."""
        self.conditions = list_conditions(elements) if self.tests_guard else ()
        """What is still to be tested."""
        self.emitter = Emitter(
            elements,
            item.names,
            depth,
            item.near,
            self._is_wide,
            guarded=1 + len(self.axes),
            apart=list_joins(elements) if self.tests_guard else (),
            numbered=True,
        )

    @property
    def goes_by_ones(self) -> bool:
        """Whether the innermost loops take points, or outputs, one by one."""
        if not self.axes:
            return True
        return self._lanes(self.axes[-2] if self.in_bands else self.axes[-1]) == 1

    def _is_wide(self, view: View) -> bool:
        """Whether a view changes along vectors. Outside bands whatever is read there does."""
        if not self.in_bands or self.block_axis is None:
            return True
        return bool(self.phase.space.walk.strides[view][self.block_axis])

    def _begin(self) -> None:
        """Writes what stands before all loops."""
        position = self._position(self.known, index(0))
        self.body += self.emitter.lets(0, position)
        self.body += self.emitter.lets(1, position)

    def _open_streams(self) -> None:
        """Settles which results pass the caches by, before all loops."""
        if self.phase.space.inner and self.phase.elements.results:
            self.streaming, flags = self.builder.streaming()
            self.body += flags

    def _stores(self, lanes: int, position: Position) -> list[k.Statement]:
        """The stores of the results, each value of which has been written."""
        whole = lanes == self.item.profile.lanes
        return [*self.emitter.stores(position, lanes, self.streaming if whole else {})]

    def _name(self, body: list[k.Statement], name: str, value: k.Expression) -> k.Local:
        let = self.builder.let(name, value)
        body.append(let)
        return let.local

    def _position(self, known: Known, output: k.Expression) -> Position:
        """Positions where the indices are known; `output` is the number within the block."""
        at = self.builder.at(known)
        return lambda view: output if view.near else at(view)

    def _stop(self, axis: int, statements: list[k.Statement]) -> k.Expression:
        space = self.phase.space
        piece = space.pieces.get(axis)
        if axis == self.block_axis:
            return self.item.count
        if piece is None or piece.size % piece.length == 0:
            return index(space.sizes[axis])
        rest = operate("sub", index(piece.size), multiply(self.known[piece.number], piece.length))
        local = k.Local(self.item.names.take("end"), k.INDEX)
        statements.append(k.Let(local, operate("min", index(piece.length), rest)))
        return local

    def _nest(
        self,
        axes: Sequence[int],
        known: Known,
        output: k.Expression,
        write: Write,
    ) -> list[k.Statement]:
        """Loops over `axes`, the innermost in vectors where the tensors allow it."""
        if len(axes) == 1:
            return self._vectors(axes[0], known, output, write)

        def inside(known: Known, output: k.Expression) -> list[k.Statement]:
            return self._nest(axes[1:], known, output, write)

        return self._loop(axes[0], known, output, inside)

    def _around(
        self,
        axes: Sequence[int],
        known: Known,
        output: k.Expression,
        inside: Inside,
    ) -> list[k.Statement]:
        """Loops over `axes` around some statements."""
        if not axes:
            return inside(known, output)

        def further(known: Known, output: k.Expression) -> list[k.Statement]:
            return self._around(axes[1:], known, output, inside)

        return self._loop(axes[0], known, output, further)

    def _loop(
        self,
        axis: int,
        known: Known,
        output: k.Expression,
        inside: Inside,
    ) -> list[k.Statement]:
        """A loop over one axis, and the values that belong to its scope."""
        before: list[k.Statement] = []
        stop = self._stop(axis, before)
        body: list[k.Statement] = []
        if axis == self.block_axis:
            variable = output = k.Local(self.item.names.take("j"), k.INDEX)
            place = add(self.item.first, variable)
            if place is not variable:
                local = k.Local(self.item.names.take(f"i{axis}"), k.INDEX)
                body.append(k.Let(local, place))
                place = local
        else:
            variable = k.Local(self.item.names.take(f"i{axis}"), k.INDEX)
            place = variable
        level = 2 + self.axes.index(axis)
        inner = {**known, axis: place}
        position = self._position(inner, output)
        body += self._enter(level, position, 1, lambda: inside(inner, output))
        backwards = self.backwards and axis == self.axes[0]
        loop = k.For(variable, index(0), stop, 1, tuple(body), backwards=backwards)
        return [*before, loop]

    def _enter(
        self, level: int, position: Position, lanes: int, inside: Inner
    ) -> list[k.Statement]:
        """The values of a scope and what is inside: where the conditions hold that the scope is
        the first to know, if nothing is stored there that does not depend on them."""
        if not self.tests_guard:
            return self.emitter.lets(level, position, lanes) + inside()
        innermost = level == 1 + len(self.axes)
        stored = self.phase.elements.results and not innermost
        here = [
            c
            for c in self.conditions
            if innermost or (self.emitter.level(c) == level and not stored)
        ]
        self.conditions = [c for c in self.conditions if c not in here]
        if not innermost:
            self.emitter.forget(level)
        made = enter(self.phase.elements, self.emitter, level, position, here, inside)
        self.conditions = [*here, *self.conditions]
        return made

    def _lanes(self, axis: int) -> int:
        """How many points along an axis make one vector."""
        long = self.item.width if axis == self.block_axis else self.phase.space.sizes[axis]
        return choose_lanes(self.phase, axis, long, self.item.profile)

    def _widths(self, axis: int, bounds: Bounds | None = None) -> tuple[int, ...]:
        """The lanes of the loops that `_vectors` makes of an axis, in order."""
        lanes, size = self._lanes(axis), self.phase.space.sizes[axis]
        if lanes == 1:
            return (1,)
        if bounds is not None or axis in self.phase.space.pieces:
            return (lanes, 1)
        return tuple(width for width, _, _ in _share_out(size, lanes))

    def _vectors(
        self,
        axis: int,
        known: Known,
        output: k.Expression,
        write: Write,
        bounds: Bounds | None = None,
    ) -> list[k.Statement]:
        """The innermost loop: whole vectors, and what is left over one by one."""
        body: list[k.Statement] = []
        names, lanes = self.item.names, self._lanes(axis)
        first, stop = bounds or (index(0), self._stop(axis, body))
        in_block = axis == self.block_axis
        variable = k.Local(names.take("j" if in_block else "i"), k.INDEX)
        start_at = {**known, axis: self.item.first} if in_block else known
        bases = self._bases(start_at, body)
        ahead = self._fetch_ahead(axis, start_at, body) if bounds is None else {}
        steps = self.phase.space.walk.strides

        def position(view: View) -> k.Expression:
            if view.near:
                return variable if in_block else output
            return add(bases[view], multiply(variable, steps[view][axis]))

        for width, start, end in self._share(first, stop, lanes, body):
            inside = write(width, position)
            if width == lanes:
                inside = [k.Prefetch(t, add(base, variable)) for t, base in ahead.items()] + inside
            body.append(k.For(variable, start, end, width, tuple(inside)))
        return body

    def _fetch_ahead(
        self, axis: int, known: Known, statements: list[k.Statement]
    ) -> dict[str, k.Expression]:
        """Where the next row along the loop around this one starts, for each tensor to prefetch.

        Measured: a fold of rows of 16-bit elements takes a quarter less time for it where caches
        hold the tensors; one of 32-bit elements waits for memory with it and without, and a pass
        that stores finds what it reads where the fold before left it.
        """
        place = self.axes.index(axis) if axis in self.axes else 0
        outer = self.axes[place - 1] if place else -1
        size = self.phase.space.sizes[axis]
        if not self.phase.gathered or outer not in known or outer == self.block_axis:
            return {}
        views: list[View] = []
        stored = {view for view, _ in self.phase.elements.results}
        for view in self.phase.elements.buffers():
            if view in stored:
                continue
            strides = self.phase.space.walk.strides[view]
            apart = strides[axis] == 1 and strides[outer] > size
            if view.dtype.bytes == 2 and apart and _LEAST_ROW <= 2 * size <= _LARGEST_ROW:
                views.append(view)
        if not views or outer in self.phase.space.pieces:
            return {}
        last = index(self.phase.space.sizes[outer] - 1)
        following = operate("min", add(known[outer], index(1)), last)
        let = self.builder.let(f"next_i{outer}", following)
        statements.append(let)
        at = self.builder.at({**known, outer: let.local})
        rows: dict[k.Expression, k.Local] = {}
        for view in views:
            start = at(view)
            if start not in rows:
                rows[start] = self._name(statements, "next_row", start)
        return {view.tensor: rows[at(view)] for view in views}

    def _share(
        self, first: k.Expression, stop: k.Expression, lanes: int, body: list[k.Statement]
    ) -> list[tuple[int, k.Expression, k.Expression]]:
        """The loops over a stretch: their lanes and bounds. What whole vectors leave over is taken
        by fours, where its length is known, and then one by one."""
        if lanes == 1:
            return [(1, first, stop)]
        if isinstance(stop, k.Literal) and first == index(0):
            return [
                (width, index(start), index(end))
                for width, start, end in _share_out(int(stop.value), lanes)
            ]
        length = stop if first == index(0) else operate("sub", stop, first)
        rest = operate("mod", length, index(lanes))
        middle = self._name(body, "vector_end", operate("sub", stop, rest))
        return [(lanes, first, middle), (1, middle, stop)]

    def _bases(self, known: Known, statements: list[k.Statement]) -> dict[View, k.Expression]:
        """What each view's position starts from, named where it takes arithmetic. Reads at computed
        positions that have been made by then need none."""
        at = self.builder.at(known)
        named: dict[k.Expression, k.Local] = {}
        bases: dict[View, k.Expression] = {}
        first = (0 if self.in_bands else 1) + len(self.axes)
        gathers = [
            (n, v) for n, v in enumerate(self.phase.elements.values) if isinstance(v, Gather)
        ]
        inside = {value.view for number, value in gathers if self.emitter.level(number) >= first}
        outside = {value.view for _, value in gathers} - inside
        for view in self.phase.elements.views():
            if view.near or view in outside:
                continue
            base = at(view)
            if isinstance(base, k.Operate):
                if base not in named:
                    let = self.builder.let("row_start", base)
                    statements.append(let)
                    named[base] = let.local
                base = named[base]
            bases[view] = base
        return bases

    def _split(self, axes: Sequence[int], most: int) -> tuple[int, bool]:
        """From which of `axes` on there are at most so many points; and whether the innermost
        alone has more, and is walked in strips."""
        sizes = self.phase.space.sizes
        split = len(axes) - 1
        if split < 0 or sizes[axes[split]] > most:
            return max(split, 0), split >= 0
        while split > 0 and math.prod(sizes[axis] for axis in axes[split - 1 :]) <= most:
            split -= 1
        return split, False

    def _strips(
        self,
        axis: int,
        length: int,
        inside: Callable[[Bounds], list[k.Statement]],
    ) -> list[k.Statement]:
        """A long axis in strips: `inside` is given the bounds of one."""
        before: list[k.Statement] = []
        stop = self._stop(axis, before)
        strip = k.Local(self.item.names.take("strip"), k.INDEX)
        end = self.builder.let("strip_end", operate("min", add(strip, index(length)), stop))
        body = (end, *inside((strip, end.local)))
        return [*before, k.For(strip, index(0), stop, length, body)]

    def _bands(
        self,
        known: Known,
        bounds: Bounds | None,
        write: Write,
        hold: Hold | None = None,
    ) -> list[k.Statement]:
        """Loops over rows, a few at a time, and over the outputs of the block, in vectors."""
        row_axis, body = self.axes[-1], list[k.Statement]()
        first, stop = bounds or (index(0), self._stop(row_axis, body))
        stores = self.phase.gathered and self.phase.elements.results
        rows = _STREAMING_BAND if stores else _BAND
        if isinstance(stop, k.Literal):
            middle: k.Expression = index(int(stop.value) // rows * rows)
        else:
            length = stop if first == index(0) else operate("sub", stop, first)
            rest = operate("mod", length, index(rows))
            let = self.builder.let("bands_end", operate("sub", stop, rest))
            body.append(let)
            middle = let.local
        if middle != first:
            body.append(self._band_loop(known, (first, middle), rows, write, hold))
        if middle != stop:
            body.append(self._band_loop(known, (middle, stop), 1, write, hold))
        return body

    def _band_loop(
        self,
        known: Known,
        bounds: Bounds,
        rows: int,
        write: Write,
        hold: Hold | None,
    ) -> k.For:
        """The loop over bands of so many rows."""
        names, row_axis, block_axis = self.item.names, self.axes[-1], self.axes[-2]
        steps = self.phase.space.walk.strides
        band = k.Local(names.take("band" if rows > 1 else f"i{row_axis}"), k.INDEX)
        body: list[k.Statement] = []
        start_row: k.Expression = band
        if self.backwards and rows > 1 and isinstance(bounds[1], k.Literal):
            from_end = index(int(bounds[1].value) - rows)
            start_row = self._name(body, f"i{row_axis}", operate("sub", from_end, band))
        bases = self._bases({**known, block_axis: self.item.first}, body)
        level = len(self.axes)

        def across(lanes: int, output: k.Local) -> list[k.Statement]:
            def at_output(view: View) -> k.Expression:
                if view.near:
                    return output
                return add(bases[view], multiply(output, steps[view][block_axis]))

            def at_row(row: k.Expression) -> Position:
                return lambda view: (
                    output
                    if view.near
                    else add(at_output(view), multiply(row, steps[view][row_axis]))
                )

            made = self.emitter.lets(level, at_output, lanes, around=True)
            if hold is not None:
                made += hold.load(output, lanes)
            if rows == 1:
                made += write(lanes, at_row(start_row))
            else:
                row = k.Local(names.take(f"i{row_axis}"), k.INDEX)
                inside = tuple(write(lanes, at_row(row)))
                last = add(start_row, index(rows))
                made.append(k.For(row, start_row, last, 1, inside, unroll=True))
            if hold is not None:
                made += hold.keep(output)
            return made

        body += self._across(block_axis, across)
        return k.For(band, bounds[0], bounds[1], rows, tuple(body))

    def _across(
        self, axis: int, inside: Callable[[int, k.Local], list[k.Statement]]
    ) -> list[k.Statement]:
        """The loop over the outputs of the block: whole vectors, and what is left over."""
        lanes, stop = self._lanes(axis), self.item.count
        output = k.Local(self.item.names.take("j"), k.INDEX)
        body: list[k.Statement] = []
        for width, start, end in self._share(index(0), stop, lanes, body):
            body.append(k.For(output, start, end, width, tuple(inside(width, output))))
        return body


def choose_lanes(phase: Phase, axis: int, long: int, profile: Profile) -> int:
    """How many of so many points along an axis make one vector."""
    if not lies_together(phase.elements, phase.space.walk.strides, axis):
        return 1
    return next((width for width in (profile.lanes, _FOUR) if width <= long), 1)


def _share_out(size: int, lanes: int) -> list[tuple[int, int, int]]:
    """Lanes and bounds of the loops over so many points."""
    made: list[tuple[int, int, int]] = []
    start = 0
    for width in (lanes, _FOUR, 1):
        end = start + (size - start) // width * width
        if end > start:
            made.append((width, start, end))
            start = end
    return made
