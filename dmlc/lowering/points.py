"""Points fixed by loops, and the dimensions that a dimension was merged from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import (
    ZERO,
    add,
    both,
    guard,
    index,
    measure,
    multiply,
    operate,
    size,
    split_number,
)
from dmlc.kernel.frame import Frame
from dmlc.loops.element import Gather
from dmlc.loops.nodes import (
    Dim,
    Kind,
    Loop,
    Nest,
    Node,
    Once,
    Point,
    Reduce,
    Stage,
    Turns,
    find_shared,
    is_multiple_of,
    list_loops,
    list_phases,
    walk,
)
from dmlc.lowering.scope import Scope
from dmlc.lowering.values import Values
from dmlc.sizes import Measure, Taken, divide_up
from dmlc.sizes import multiply as multiply_sizes


class Points:
    """Fixes the points of one nest's loops, and calls `write` for their bodies."""

    def __init__(
        self,
        nest: Nest,
        frame: Frame,
        values: Values,
        items: Mapping[str, k.Expression],
        limit: int | None,
        write: Callable[[Sequence[Node], Scope], list[k.Statement]],
        bounds: Taken = (),
    ) -> None:
        self._nest = nest
        self._frame = frame
        self._values = values
        self._items = items
        """Coordinate of this work item along each axis of its group."""
        self._limit = limit
        self._write = write
        self._bounds = bounds
        """Upper bounds of open sizes."""

    def _fix(
        self, node: Loop, scope: Scope, place: k.Expression, body: list[k.Statement]
    ) -> list[k.Statement]:
        """Body of a loop's step that starts at index `place`: with a range for the loops inside, or
        a point. `body` has the preceding statements."""
        dim = node.dim
        scope = dataclasses.replace(scope, depth=scope.depth + 1)
        further = list_loops(node.body, dim)
        if further:
            named = node.kind is Kind.LANE and isinstance(place, k.Operate | k.Position)
            if named and any(loop.kind is Kind.UNROLL for loop in further):
                place = self._frame.name(body, "first", place)
            counted = node.extent and node.kind in (Kind.UNROLL, Kind.LOOP)
            if counted and further[0].dim.within is dim:
                # Some of the steps may start out of bounds.
                is_whole = is_multiple_of(dim, node.step * node.extent)
                scope = scope.narrow(dim, is_loose=not is_whole)
            if counted and not further[0].extent:
                place = self._frame.name(body, f"first_{dim.wanted}", place)
                end = scope.span(dim).stop or self._find_end(dim, scope, body)
                last = operate("max", place, operate("min", add(place, index(node.step)), end))
                scope = scope.narrow(dim, stop=self._frame.name(body, f"end_{dim.wanted}", last))
            return body + self._write(node.body, scope.narrow(dim, start=place))
        if isinstance(place, k.Operate | k.Position):
            place = self._frame.name(body, dim.wanted, place)
        if dim.within is not None:
            return body + self._fix_tile(node, scope, dim, dim.within, place)
        if not scope.span(dim).is_loose:
            return body + self._fix_parts(node, scope, dim, place)
        is_inside = operate("lt", place, scope.span(dim).stop or dim.count)
        scope = scope.narrow(dim, is_loose=False)
        if len(dim.parts) == 1:
            part, step = dim.parts[0]
            is_inside = operate("lt", multiply(place, step), part.count)
        meets = any(isinstance(n, Reduce) and find_shared(n) for n in walk(node.body))
        if not meets and not node.clamps:
            return body + guard([is_inside], self._fix_parts(node, scope, dim, place))
        # All items must reach the barriers inside: those out of bounds repeat the last point.
        stop = scope.span(dim).stop or dim.count
        last = operate("sub", stop, index(scope.lanes))
        last = index(int(stop.value) - scope.lanes) if isinstance(stop, k.Literal) else last
        place = self._frame.name(body, "at", operate("min", place, last))
        if not meets:
            is_inside = self._frame.name(body, "inside", is_inside)
        is_own = is_inside if scope.is_own is None else both(scope.is_own, is_inside)
        there = scope.is_there if meets else is_inside
        scope = dataclasses.replace(scope, is_own=is_own, is_there=there)
        return body + self._fix_parts(node, scope, dim, place)

    def _fix_tile(
        self, node: Loop, scope: Scope, tile: Dim, whole: Dim, place: k.Expression
    ) -> list[k.Statement]:
        """Body for a fixed point of a tile, and so of its dimension. It is skipped where the tile
        overruns the dimension, unless it fills a buffer: then the index is clamped."""
        body, size = list[k.Statement](), tile.size
        scope = scope.fix({tile: place})
        parts = {whole, whole.whole, *(part for part, _ in whole.whole.parts)}
        if not any(parts & set(self._nest.dims[number]) for number in list_phases(node)):
            return self._write(node.body, scope)
        at = add(scope.start(whole), place)
        if isinstance(at, k.Operate):
            at = self._frame.name(body, whole.wanted, at)
        stop = self._find_end(whole, scope, body)
        known = int(stop.value) if isinstance(stop, k.Literal) else 0
        is_loose, scope = scope.span(whole).is_loose, scope.narrow(whole, is_loose=False)
        if known and isinstance(size, int) and known % size == 0 and not is_loose:
            return body + self._fix_parts(node, scope, whole, at)
        if node.kind is Kind.VECTOR and not self._touches(node, whole):
            return body + self._fix_parts(node, scope, whole, at)
        is_inside = operate("lt", at, stop)
        # Items that fill tiles together all execute the body; their results are masked.
        filled = (n for n in walk(node.body) if isinstance(n, Stage))
        meets = node.kind is Kind.LANE and any(b.shared for n in filled for b in n.buffers)
        if scope.origins is None and not meets:
            return body + guard([is_inside], self._fix_parts(node, scope, whole, at))
        width = node.step if node.kind is Kind.VECTOR else 1
        last = index(known - width) if known else operate("sub", stop, index(width))
        at = self._frame.name(body, "at", operate("min", at, last))
        puts = (into for n in walk(node.body) if isinstance(n, Point) for into in n.into)
        if any(node.dim in into.loose for into in puts):
            return body + self._fix_parts(node, scope, whole, at)
        is_own = is_inside if scope.is_own is None else both(scope.is_own, is_inside)
        scope = dataclasses.replace(scope, is_own=is_own)
        return body + self._fix_parts(node, scope, whole, at)

    def _touches(self, node: Loop, dim: Dim) -> bool:
        """Whether the body reduces points of a dimension, or accesses memory along it."""
        made = _list_parts(dim.whole)
        for number in list_phases(node, filled=False):
            dims, phase = self._nest.dims[number], self._nest.phases[number]
            if any(dims[axis] in made for axis in phase.space.inner if axis < len(dims)):
                return True
            terms = self._values.terms[number]
            if any(d in made for v in phase.elements.buffers() if not v.local for d, _ in terms[v]):
                return True
            gathers = [n for n, v in enumerate(phase.elements.values) if isinstance(v, Gather)]
            axes = [axis for axis, own in enumerate(dims) if gathers and own in made]
            if any(phase.find_moving(axis)[n] for axis in axes for n in gathers):
                return True
        return False

    def _fix_parts(
        self, node: Loop, scope: Scope, dim: Dim, place: k.Expression
    ) -> list[k.Statement]:
        """Body for a fixed point of a dimension, and of the dimensions that it was merged from."""
        if dim.within is not None:
            return self._fix_tile(node, scope, dim, dim.within, place)
        scope = scope.fix({dim: place})
        if not dim.parts:
            return self._write(node.body, scope)
        body: list[k.Statement] = []
        needed = {
            part
            for number in list_phases(node)
            for terms in self._values.terms[number].values()
            for part, _ in terms
        }
        needed.update(n.dim for n in walk(node.body) if isinstance(n, Turns | Once))
        counts = [
            part.count_steps(step)
            if isinstance(part.size, int)
            else divide_up(measure(part.size), step)
            for part, step in dim.parts
        ]
        if len(counts) == 1:
            digits = [place]
        elif all(isinstance(count, int) for count in counts):
            digits = split_number(place, counts)
        else:
            digits = self._split_open(place, counts, body)
        settled: dict[Dim, k.Expression] = {}
        checks: list[k.Expression] = []
        inside = scope
        for number, (part, step) in enumerate(dim.parts):
            digit = digits[number]
            loops = list_loops(node.body, part)
            if part not in needed and not loops and part.piece is None:
                continue
            if isinstance(digit, k.Operate):
                digit = self._frame.name(body, part.wanted, digit)
            if loops:
                inside = self._narrow(part, step, digit, inside, body, loops[0])
                continue
            settled[part] = digit
            rest = self._find_remainder(part, scope) if number else None
            checks += [] if rest is None else [operate("lt", digit, rest)]
        return body + guard(checks, self._write(node.body, inside.fix(settled)))

    def _split_open(
        self, place: k.Expression, counts: Sequence[Measure], body: list[k.Statement]
    ) -> list[k.Expression]:
        """Digits of a linear index in a mixed radix with open sizes: with one division for each
        digit but the first, as divisions are slow."""
        outermost = next((n for n, count in enumerate(counts) if count != 1), 0)
        digits: list[k.Expression] = [ZERO] * len(counts)
        for number in range(len(counts) - 1, outermost, -1):
            if counts[number] == 1:
                continue
            above = self._frame.name(body, "above", operate("div", place, size(counts[number])))
            digits[number] = operate("sub", place, multiply(above, counts[number]))
            place = above
        digits[outermost] = place
        return digits

    def _narrow(
        self,
        dim: Dim,
        step: int,
        digit: k.Expression,
        scope: Scope,
        body: list[k.Statement],
        first: Loop,
    ) -> Scope:
        """Scope for loops over one step of a dimension, of which `first` is the outermost."""
        start, rest = multiply(digit, step), self._find_remainder(dim, scope)
        count = dim.count if rest is None else operate("min", dim.count, rest)
        if not isinstance(dim.size, int) and not first.extent:
            start = self._frame.name(body, f"first_{dim.wanted}", start)
            end = operate("min", add(start, index(step)), count)
            stop = self._frame.name(body, f"end_{dim.wanted}", end)
            return scope.narrow(dim, start=start, stop=stop)
        single = dim.count_steps(step) <= 1
        if single or not isinstance(dim.size, int) or isinstance(start, k.Literal):
            return scope.narrow(dim, start=start)
        is_block, is_whole = dim is self._nest.block, is_multiple_of(dim, step)
        start = self._frame.name(body, "first" if is_block else f"first_{dim.wanted}", start)
        if first.dim.within is dim:
            # Tiles check the end of the whole dimension.
            return scope.narrow(dim, start=start)
        if is_block:
            stop: k.Expression = index(step)
            if not is_whole:
                left = operate("sub", count, start)
                stop = self._frame.name(body, "count", operate("min", stop, left))
            return scope.narrow(dim, start=start, stop=stop)
        end: k.Expression = add(start, index(step))
        end = end if is_whole else operate("min", end, count)
        return scope.narrow(dim, start=start, stop=self._frame.name(body, f"end_{dim.wanted}", end))

    # Pieces of longer dimensions ---------------------------------------------------------------

    def _find_remainder(self, dim: Dim, scope: Scope) -> k.Expression | None:
        """Remaining length of a chunked dimension at the start of a chunk; None if all chunks are
        full."""
        if dim.piece is None:
            return None
        number, whole = dim.piece
        length, total = measure(dim.size), measure(whole)
        if isinstance(length, int) and isinstance(total, int):
            if not total % length:
                # The chunk's number may be unknown if no offset depends on it.
                return None
            return operate("sub", index(total), multiply(scope.known[number], length))
        before = multiply(scope.known[number], length)
        # There may be empty chunks beyond the end.
        return operate("sub", size(total), operate("min", before, size(total)))

    def _find_end(self, dim: Dim, scope: Scope, body: list[k.Statement]) -> k.Expression:
        """End of a dimension, which for the last chunk may be earlier."""
        (first, step), *finer = dim.parts or ((dim, 1),)
        rest = self._find_remainder(first, scope)
        if rest is None:
            return dim.count
        length = operate("min", first.count, rest)
        if first is dim:
            return self._frame.name(body, "end", length)
        if step > 1:
            length = operate("div", operate("add", length, index(step - 1)), index(step))
        inner = multiply_sizes(divide_up(measure(part.size), each) for part, each in finer)
        return self._frame.name(body, "points", multiply(length, inner))


def _list_parts(dim: Dim) -> set[Dim]:
    """A dimension, and all that it was merged from."""
    return {dim}.union(*(_list_parts(part) for part, _ in dim.parts))
