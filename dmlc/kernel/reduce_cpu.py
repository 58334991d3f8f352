"""Kernels with reductions on a CPU: a work item folds one output, or a block of neighbouring ones.

Folded points that lie side by side in memory are added up in vectors; where outputs do, vectors
run across a block of outputs, whose states are arrays. Short rows of many outputs are taken in
blocks too, so that a work item reads on in memory. Floating-point states are flushed into totals
every few thousand points, for precision's sake. A pass that applies what was folded runs over the
outermost dimension backwards: what was read last is still in the caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import contribute, finish, is_positional, merge, start
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import View
from dmlc.kernel.emit import (
    Emitter,
    Names,
    Near,
    Position,
    add,
    index,
    local_name,
    multiply,
    operate,
    split_words,
)
from dmlc.kernel.hoist import hoist
from dmlc.kernel.phases import Gathered, Phase
from dmlc.kernel.schedule import Limits, Profile
from dmlc.scalars import DataType

_COLUMNS = 256
"""Neighbouring outputs in a block, at most, where vectors run across them."""
_COLUMN_STEP = 64
"""Blocks of columns hold a multiple of these: whole cache lines, whatever the type."""
_SHORT_ROW = 200
"""A row of no more points than this is read together with its neighbours' rows."""
_ROWS = 16
"""Neighbouring outputs in a block of short rows."""
_FLUSH_ROW, _FLUSH_COLUMN = 4096, 1024
"""Points after which states are flushed: of a vector of lanes, and of one lane."""

_BAND = 4
"""Rows walked side by side, where vectors run across outputs: rows lie far apart in memory, and
reads of several are under way at once."""

_Write = Callable[[int, Position], list[k.Statement]]
"""The innermost statements, for a number of lanes."""

_Bounds = tuple[k.Expression, k.Expression]
"""Where a loop starts and stops."""


def choose_width(phases: Sequence[Phase], profile: Profile) -> int:
    """The number of neighbouring outputs a work item folds at once."""
    space = phases[0].space
    if not space.kept:
        return 1
    last, neighbours = space.kept[-1], space.kept_sizes[-1]
    if last == len(space.sizes) - 1:
        blocks = -(-neighbours // _COLUMNS)
        each = -(-neighbours // blocks)
        return neighbours if blocks == 1 else -(-each // _COLUMN_STEP) * _COLUMN_STEP
    outside = any(axis < last for axis in space.inner)
    row = math.prod(space.sizes[axis] for axis in space.inner if axis > last)
    if not outside or row > _SHORT_ROW:
        return 1
    width = min(_ROWS, neighbours)
    while width > 1 and _count_blocks(space.kept_sizes, width) < profile.groups:
        width //= 2
    return width


def count_items(phases: Sequence[Phase], profile: Profile) -> int:
    """The number of blocks of outputs, each of which one work item has to itself."""
    return _count_blocks(phases[0].space.kept_sizes, choose_width(phases, profile))


def _count_blocks(kept: tuple[int, ...], width: int) -> int:
    return math.prod(kept[:-1]) * -(-kept[-1] // width) if kept else 1


def lower_items(
    phases: Sequence[Phase],
    names: Names,
    profile: Profile,
    limits: Limits,
    buffers: tuple[k.Buffer, ...],
) -> tuple[Shape, tuple[k.Array, ...]]:
    """The kernel of some phases, and the arrays it needs."""
    return _Items(phases, names, profile, limits, buffers).lower()


class _Items:
    """Writes one kernel, phase by phase."""

    def __init__(
        self,
        phases: Sequence[Phase],
        names: Names,
        profile: Profile,
        limits: Limits,
        buffers: tuple[k.Buffer, ...],
    ) -> None:
        self.phases = phases
        self.names = names
        self.profile = profile
        self.limits = limits
        self.buffers = buffers
        self.width = choose_width(phases, profile)
        self.near: dict[str, Near] = {}
        self.arrays: list[k.Array] = []
        self.first: k.Expression = index(0)
        """The first output of the block, along the innermost kept dimension."""
        self.count: k.Expression = index(self.width)
        """The outputs of the block: fewer at the end."""

    @property
    def in_blocks(self) -> bool:
        return self.width > 1

    def builder(self, phase: Phase) -> Builder:
        return Builder(
            phase.elements,
            phase.space.walk,
            self.profile,
            self.limits,
            self.buffers,
            self.names,
        )

    def array(self, name: str, slot_type: k.Type, size: int) -> str:
        """A new array of the work item's own; whole vectors fit."""
        taken = self.names.take(name)
        lanes = self.profile.lanes
        whole = -(-size // lanes) * lanes if size > 1 else 1
        self.arrays.append(k.Array(taken, slot_type.dtype, whole))
        return taken

    def lower(self) -> tuple[Shape, tuple[k.Array, ...]]:
        kept = self.phases[0].space.kept_sizes
        blocks = count_items(self.phases, self.profile)
        inner = max(1, max(p.space.inner_count for p in self.phases)) * self.width
        run = min(max(1, self.profile.per_item // inner), max(blocks, 1))
        launch = k.Launch(blocks, run, 1)
        builder = self.builder(self.phases[0])

        def make(block: k.Expression) -> list[k.Statement]:
            return self._write_block(builder, block, kept)

        body = builder.share_blocks(blocks, run, make)
        outputs = run * self.width
        words = f"each computes {outputs:,} output{'s' if outputs > 1 else ''}"
        return Shape(launch, words, body), tuple(self.arrays)

    def _write_block(
        self, builder: Builder, block: k.Expression, kept: tuple[int, ...]
    ) -> list[k.Statement]:
        outer = kept[:-1] if self.in_blocks else kept
        parts = list(enumerate(outer))
        if self.in_blocks:
            parts.append((len(outer), -(-kept[-1] // self.width)))
        known: dict[int, k.Expression] = {}
        body = builder.decompose(block, parts, known)
        if self.in_blocks:
            self._find_block(known.pop(len(outer)), kept[-1], body)
        folded = False
        for phase in self.phases:
            at = {phase.space.kept[number]: i for number, i in known.items()}
            writer = _Writer(self, phase, at, backwards=folded and not phase.is_kept)
            body += writer.write()
            folded = True
        return body

    def _find_block(self, number: k.Expression, size: int, body: list[k.Statement]) -> None:
        self.first = multiply(number, self.width)
        if isinstance(self.first, k.Operate):
            local = k.Local(self.names.take("first"), k.INDEX)
            body.append(k.Let(local, self.first))
            self.first = local
        if size % self.width:
            rest = operate("sub", index(size), self.first)
            local = k.Local(self.names.take("count"), k.INDEX)
            body.append(k.Let(local, operate("min", index(self.width), rest)))
            self.count = local


class _Writer:
    """Writes one phase of a work item."""

    def __init__(
        self, items: _Items, phase: Phase, known: dict[int, k.Expression], backwards: bool
    ) -> None:
        self.items = items
        self.known = known
        self.backwards = backwards
        self.body: list[k.Statement] = []
        self._states: list[tuple[k.Local, ...]] = []
        self.in_bands = False
        self.block_axis = phase.space.kept[-1] if items.in_blocks else None
        if self.block_axis is not None and not phase.is_kept:
            phase = self._hoist(phase, self.block_axis)
        self.phase = phase
        self.builder = items.builder(phase)
        axes = range(len(phase.space.sizes))
        self.axes = [axis for axis in axes if axis not in known]
        """The axes to loop over, outermost first."""
        self.in_bands = len(self.axes) > 1 and self.axes[-1] == self.block_axis
        if self.in_bands:
            self.axes[-2:] = reversed(self.axes[-2:])
        self.emitter = self._emitter(phase, self.builder, self.axes)

    def _emitter(self, phase: Phase, builder: Builder, axes: Sequence[int]) -> Emitter:
        levels = {axis: 2 + depth for depth, axis in enumerate(axes)}
        depth = builder.depth(lambda axis: levels.get(axis, 1))
        strides, block = builder.walk.strides, self.block_axis

        def wide(view: View) -> bool:
            return not self.in_bands or block is None or bool(strides[view][block])

        return Emitter(phase.elements, self.items.names, depth, self.items.near, wide)

    def write(self) -> list[k.Statement]:
        space = self.phase.space
        position = self._position(self.known, index(0))
        self.body += self.emitter.lets(0, position)
        self.body += self.emitter.lets(1, position)
        if self.phase.gathered:
            if self.in_bands:
                self._fold_columns()
            else:
                self._fold_rows()
            return self.body
        if space.inner:
            streaming, flags = self.builder.streaming()
            self.body += flags
        else:
            streaming = {}

        def store(lanes: int, position: Position) -> list[k.Statement]:
            made = self.emitter.lets(1 + max(1, len(self.axes)), position, lanes)
            return made + self.emitter.stores(position, lanes, streaming)

        def bands(known: dict[int, k.Expression], output: k.Expression) -> list[k.Statement]:
            return self._bands(known, None, None, store)

        if not self.axes:
            self.body += self.emitter.stores(position, 1, {})
        elif self.in_bands:
            self.body += self._around(self.axes[:-2], self.known, index(0), bands)
        else:
            self.body += self._nest(self.axes, self.known, index(0), store)
        return self.body

    # Loops --------------------------------------------------------------------------------

    def _position(self, known: dict[int, k.Expression], output: k.Expression) -> Position:
        """Positions where the indices are known; `output` is the number within the block."""
        at = self.builder.at(known)
        return lambda view: output if view.near else at(view)

    def _stop(self, axis: int, statements: list[k.Statement]) -> k.Expression:
        space = self.phase.space
        piece = space.pieces.get(axis)
        if axis == self.block_axis:
            return self.items.count
        if piece is None or piece.size % piece.length == 0:
            return index(space.sizes[axis])
        rest = operate("sub", index(piece.size), multiply(self.known[piece.number], piece.length))
        local = k.Local(self.items.names.take("end"), k.INDEX)
        statements.append(k.Let(local, operate("min", index(piece.length), rest)))
        return local

    def _nest(
        self,
        axes: Sequence[int],
        known: dict[int, k.Expression],
        output: k.Expression,
        write: _Write,
    ) -> list[k.Statement]:
        """Loops over `axes`, the innermost in vectors where the tensors allow it."""
        if len(axes) == 1:
            return self._vectors(axes[0], known, output, write)

        def inside(known: dict[int, k.Expression], output: k.Expression) -> list[k.Statement]:
            return self._nest(axes[1:], known, output, write)

        return self._loop(axes[0], known, output, inside)

    def _loop(
        self,
        axis: int,
        known: dict[int, k.Expression],
        output: k.Expression,
        inside: Callable[[dict[int, k.Expression], k.Expression], list[k.Statement]],
    ) -> list[k.Statement]:
        """A loop over one axis, and the values that belong to its scope."""
        before: list[k.Statement] = []
        stop = self._stop(axis, before)
        body: list[k.Statement] = []
        if axis == self.block_axis:
            variable = output = k.Local(self.items.names.take("j"), k.INDEX)
            place = add(self.items.first, variable)
            if place is not variable:
                local = k.Local(self.items.names.take(f"i{axis}"), k.INDEX)
                body.append(k.Let(local, place))
                place = local
        else:
            variable = k.Local(self.items.names.take(f"i{axis}"), k.INDEX)
            place = variable
        level = 2 + self.axes.index(axis)
        inner = {**known, axis: place}
        body += self.emitter.lets(level, self._position(inner, output))
        body += inside(inner, output)
        backwards = self.backwards and axis == self.axes[0]
        loop = k.For(variable, index(0), stop, 1, tuple(body), backwards=backwards)
        return [*before, loop]

    def _lanes(self, axis: int) -> int:
        """How many points along an axis make one vector."""
        views = self.phase.elements.buffers()
        strides = self.phase.space.walk.strides
        together = all(strides[v][axis] in (0, 1) for v in views)
        scalar = any(is_positional(g.fold) for g in self.phase.gathered)
        long = self.phase.space.sizes[axis] >= self.items.profile.lanes
        if axis == self.block_axis:
            long = self.items.width >= self.items.profile.lanes
        return self.items.profile.lanes if together and long and not scalar else 1

    def _vectors(
        self,
        axis: int,
        known: dict[int, k.Expression],
        output: k.Expression,
        write: _Write,
        bounds: _Bounds | None = None,
    ) -> list[k.Statement]:
        """The innermost loop: whole vectors, and what is left over one by one."""
        body: list[k.Statement] = []
        names, lanes = self.items.names, self._lanes(axis)
        first, stop = bounds or (index(0), self._stop(axis, body))
        in_block = axis == self.block_axis
        variable = k.Local(names.take("j" if in_block else "i"), k.INDEX)
        start_at = {**known, axis: self.items.first} if in_block else known
        bases = self._bases(start_at, body)
        steps = self.phase.space.walk.strides

        def position(view: View) -> k.Expression:
            if view.near:
                return variable if in_block else output
            return add(bases[view], multiply(variable, steps[view][axis]))

        if lanes == 1:
            return [*body, k.For(variable, first, stop, 1, tuple(write(1, position)))]
        if isinstance(stop, k.Literal):
            whole = int(stop.value) // lanes * lanes
            middle: k.Expression = index(whole)
            rest = whole != stop.value
        else:
            length = stop if first == index(0) else operate("sub", stop, first)
            left_over = operate("mod", length, index(lanes))
            let = self.builder.let("vector_end", operate("sub", stop, left_over))
            body.append(let)
            middle, rest = let.local, True
        body.append(k.For(variable, first, middle, lanes, tuple(write(lanes, position))))
        if rest:
            body.append(k.For(variable, middle, stop, 1, tuple(write(1, position))))
        return body

    def _bases(
        self, known: dict[int, k.Expression], statements: list[k.Statement]
    ) -> dict[View, k.Expression]:
        """What each view's position starts from, named where it takes arithmetic."""
        at = self.builder.at(known)
        named: dict[k.Expression, k.Local] = {}
        bases: dict[View, k.Expression] = {}
        for view in self.phase.elements.views():
            if view.near:
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

    # Folding ------------------------------------------------------------------------------

    def _point(self, gathered: Gathered, lanes: int) -> tuple[k.Expression, ...]:
        """The state of the points at hand."""
        fold, value = gathered.fold, self.emitter.value
        guard = None if fold.guard is None else value(fold.guard, lanes)
        place = None if fold.place is None else value(fold.place, lanes)
        return contribute(gathered.slots, value(fold.value, lanes), guard, place)

    def _merge_locals(
        self, gathered: Gathered, state: Sequence[k.Local], other: Sequence[k.Expression]
    ) -> list[k.Statement]:
        statements, merged = merge(gathered.fold, state, other, self.items.names.take)
        return statements + [k.Assign(s, m) for s, m in zip(state, merged, strict=True)]

    def _merge_arrays(
        self,
        gathered: Gathered,
        arrays: Sequence[str],
        place: k.Expression,
        other: Sequence[k.Expression],
    ) -> list[k.Statement]:
        mine = [k.Element(a, place, o.type) for a, o in zip(arrays, other, strict=True)]
        statements, merged = merge(gathered.fold, mine, other, self.items.names.take)
        return statements + [k.Put(a, place, m) for a, m in zip(arrays, merged, strict=True)]

    def _make_arrays(self, gathered: Gathered, suffix: str, size: int) -> tuple[str, ...]:
        name = split_words(gathered.name)
        return tuple(
            self.items.array(f"{name}{slot.suffix}{suffix}", k.Type(slot.dtype), size)
            for slot in gathered.slots
        )

    def _fill(
        self, gathered: Sequence[Gathered], arrays: Sequence[Sequence[str]]
    ) -> list[k.Statement]:
        """Sets arrays of one size to the state before any point."""
        size = next(a.size for a in self.items.arrays if a.name == arrays[0][0])
        lanes = self.items.profile.lanes if size > 1 else 1
        once = size == lanes
        number = index(0) if once else k.Local(self.items.names.take("j"), k.INDEX)
        puts = tuple(
            k.Put(name, number, start(slot, lanes))
            for each, names in zip(gathered, arrays, strict=True)
            for slot, name in zip(each.slots, names, strict=True)
        )
        if not isinstance(number, k.Local):
            return list(puts)
        return [k.For(number, index(0), index(size), lanes, puts)]

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
        inside: Callable[[_Bounds], list[k.Statement]],
    ) -> list[k.Statement]:
        """A long axis in strips: `inside` is given the bounds of one."""
        before: list[k.Statement] = []
        stop = self._stop(axis, before)
        strip = k.Local(self.items.names.take("strip"), k.INDEX)
        end = self.builder.let("strip_end", operate("min", add(strip, index(length)), stop))
        body = (end, *inside((strip, end.local)))
        return [*before, k.For(strip, index(0), stop, length, body)]

    def _fold_rows(self) -> None:
        """Folds points that lie side by side, in vectors; each output has a total of its own."""
        axes, gathered, items = self.axes, self.phase.gathered, self.items
        block = axes.index(self.block_axis) + 1 if self.block_axis is not None else 0
        inner = axes[block:]
        split, strips = self._split(inner, _FLUSH_ROW)
        lanes = self._lanes(inner[-1])
        arrays: list[tuple[str, ...]] = []
        variables: list[tuple[k.Local, ...]] = []
        if items.in_blocks or lanes > 1:
            suffix = "_total" if lanes > 1 else "_block"
            arrays = [self._make_arrays(g, suffix, items.width * lanes) for g in gathered]
            self.body += self._fill(gathered, arrays)
        elif block + split or strips:
            variables = [self._make_variables(g, 1, "_total", self.body) for g in gathered]

        def flushed(known: dict[int, k.Expression], output: k.Expression) -> list[k.Statement]:
            def add_up(bounds: _Bounds | None) -> list[k.Statement]:
                body: list[k.Statement] = []
                states = self._add_up(inner[split:], known, output, bounds, body)
                for _, found in states:
                    for number, (each, state) in enumerate(zip(gathered, found, strict=True)):
                        if arrays:
                            place = multiply(output, lanes)
                            body += self._merge_arrays(each, arrays[number], place, state)
                        elif variables:
                            body += self._merge_locals(each, variables[number], state)
                if not arrays and not variables:
                    variables.extend(states[0][1])
                return body

            return self._strips(inner[-1], _FLUSH_ROW, add_up) if strips else add_up(None)

        self.body += self._around(axes[: block + split], self.known, index(0), flushed)
        if arrays:
            self._finish_rows(arrays, lanes)
        for each, state in zip(gathered, variables, strict=False):
            self._keep_locals(each, state)

    def _make_variables(
        self, gathered: Gathered, lanes: int, suffix: str, body: list[k.Statement]
    ) -> tuple[k.Local, ...]:
        """Variables for the state before any point."""
        made: list[k.Local] = []
        for slot in gathered.slots:
            words = split_words(gathered.name) if suffix else local_name(gathered.name)
            name = self.items.names.take(f"{words}{slot.suffix}{suffix}")
            made.append(k.Local(name, k.Type(slot.dtype, lanes)))
            body.append(k.Variable(made[-1], start(slot, lanes)))
        return tuple(made)

    def _around(
        self,
        axes: Sequence[int],
        known: dict[int, k.Expression],
        output: k.Expression,
        inside: Callable[[dict[int, k.Expression], k.Expression], list[k.Statement]],
    ) -> list[k.Statement]:
        """Loops over `axes` around some statements."""
        if not axes:
            return inside(known, output)

        def further(known: dict[int, k.Expression], output: k.Expression) -> list[k.Statement]:
            return self._around(axes[1:], known, output, inside)

        return self._loop(axes[0], known, output, further)

    def _add_up(
        self,
        axes: Sequence[int],
        known: dict[int, k.Expression],
        output: k.Expression,
        bounds: _Bounds | None,
        body: list[k.Statement],
    ) -> list[tuple[int, list[tuple[k.Local, ...]]]]:
        """Folds some points in registers, and gives the states: of vectors, and of the points
        left over."""
        gathered, lanes = self.phase.gathered, self._lanes(axes[-1])
        size = self.phase.space.sizes[axes[-1]]
        left_over = bounds is not None or axes[-1] in self.phase.space.pieces or size % lanes
        widths = (lanes, 1) if lanes > 1 and left_over else (lanes,)
        states = {
            width: [
                self._make_variables(g, width, "" if width == lanes else "_rest", body)
                for g in gathered
            ]
            for width in widths
        }
        level = 1 + len(self.axes)

        def fold(width: int, position: Position) -> list[k.Statement]:
            made = self.emitter.lets(level, position, width)
            for each, state in zip(gathered, states[width], strict=True):
                made += self._merge_locals(each, state, self._point(each, width))
            return made

        if bounds is not None:
            body += self._vectors(axes[-1], known, output, fold, bounds)
        else:
            body += self._nest(axes, known, output, fold)
        return list(states.items())

    def _finish_rows(self, totals: Sequence[Sequence[str]], lanes: int) -> None:
        """Folds the lanes of each total, in a tree, and has the outcome at hand."""
        gathered, items = self.phase.gathered, self.items
        number = k.Local(items.names.take("j"), k.INDEX) if items.in_blocks else index(0)
        first = multiply(number, lanes)
        body: list[k.Statement] = []
        width = lanes // 2
        while width:
            for each, arrays in zip(gathered, totals, strict=True):
                theirs = [
                    k.Element(a, add(first, index(width)), k.Type(s.dtype, width))
                    for a, s in zip(arrays, each.slots, strict=True)
                ]
                body += self._merge_arrays(each, arrays, first, theirs)
            width //= 2
        if not items.in_blocks:
            self.body += body
            for each, arrays in zip(gathered, totals, strict=True):
                state: list[k.Local] = []
                for slot, array in zip(each.slots, arrays, strict=True):
                    element = k.Element(array, index(0), k.Type(slot.dtype))
                    wanted = f"{local_name(each.name)}{slot.suffix}"
                    state.append(self._name(self.body, wanted, element))
                self._keep_locals(each, state)
            return
        packed = totals
        if lanes > 1:
            packed = [self._make_arrays(g, "_block", items.width) for g in gathered]
            for each, arrays, to in zip(gathered, totals, packed, strict=True):
                body += [
                    k.Put(b, number, k.Element(a, first, k.Type(slot.dtype)))
                    for a, b, slot in zip(arrays, to, each.slots, strict=True)
                ]
        if body and isinstance(number, k.Local):
            self.body.append(k.For(number, index(0), items.count, 1, tuple(body)))
        for each, arrays in zip(gathered, packed, strict=True):
            self._keep_arrays(each, arrays)

    def _keep_locals(self, gathered: Gathered, state: Sequence[k.Local]) -> None:
        """Has a state, and the reductions it is, at hand from here on: the only one there is."""
        for number, local in enumerate(state):
            self.items.near[gathered.slot_name(number)] = _always(local)
        for stage, dtype in gathered.stages:
            value = finish(gathered.fold, state, dtype.compute)
            if not isinstance(value, k.Local):
                value = self._name(self.body, local_name(stage), value)
            self.items.near[stage] = _always(value)

    def _keep_arrays(self, gathered: Gathered, arrays: Sequence[str]) -> None:
        """The same of a block of outputs."""

        def element(number: int) -> Near:
            array, slot = arrays[number], gathered.slots[number]
            return lambda place, lanes: k.Element(array, place, k.Type(slot.dtype, lanes))

        def value(dtype: DataType) -> Near:
            return lambda place, lanes: finish(
                gathered.fold, [part(place, lanes) for part in parts], dtype.compute
            )

        parts = [element(number) for number in range(len(arrays))]
        for number, part in enumerate(parts):
            self.items.near[gathered.slot_name(number)] = part
        for stage, dtype in gathered.stages:
            self.items.near[stage] = value(dtype)

    def _fold_columns(self) -> None:
        """Folds a block of outputs that lie side by side: vectors run across them."""
        gathered = self.phase.gathered
        reduced = [axis for axis in self.axes if axis != self.block_axis]
        split, strips = self._split(reduced, _FLUSH_COLUMN)
        flushes = strips or split > 0
        states = [self._make_arrays(g, "_block", self.items.width) for g in gathered]
        totals = states
        if flushes:
            totals = [self._make_arrays(g, "_total", self.items.width) for g in gathered]
            self.body += self._fill(gathered, totals)

        def gather(
            known: dict[int, k.Expression], output: k.Expression, bounds: _Bounds | None = None
        ) -> list[k.Statement]:
            def bands(known: dict[int, k.Expression], output: k.Expression) -> list[k.Statement]:
                return self._bands(known, bounds, states, self._add_up_rows)

            body = self._fill(gathered, states)
            body += self._around(reduced[split:-1], known, output, bands)
            if flushes:
                body.append(self._flush_columns(gathered, states, totals))
            return body

        def flushed(known: dict[int, k.Expression], output: k.Expression) -> list[k.Statement]:
            if not strips:
                return gather(known, output)
            return self._strips(
                reduced[-1], _FLUSH_COLUMN, lambda bounds: gather(known, output, bounds)
            )

        self.body += self._around(reduced[:split], self.known, index(0), flushed)
        for each, arrays in zip(gathered, totals, strict=True):
            self._keep_arrays(each, arrays)

    def _add_up_rows(self, lanes: int, position: Position) -> list[k.Statement]:
        """Folds one row of a band into the variables that hold the states."""
        made = self.emitter.lets(1 + len(self.axes), position, lanes)
        for each, state in zip(self.phase.gathered, self._states, strict=True):
            made += self._merge_locals(each, state, self._point(each, lanes))
        return made

    def _bands(
        self,
        known: dict[int, k.Expression],
        bounds: _Bounds | None,
        states: Sequence[Sequence[str]] | None,
        write: _Write,
    ) -> list[k.Statement]:
        """Loops over rows, a few at a time, and over the outputs of the block, in vectors.

        Where there are `states`, the outputs' states stay in variables while a band is walked.
        """
        row_axis, body = self.axes[-1], list[k.Statement]()
        first, stop = bounds or (index(0), self._stop(row_axis, body))
        if isinstance(stop, k.Literal):
            middle: k.Expression = index(int(stop.value) // _BAND * _BAND)
        else:
            length = stop if first == index(0) else operate("sub", stop, first)
            rest = operate("mod", length, index(_BAND))
            let = self.builder.let("bands_end", operate("sub", stop, rest))
            body.append(let)
            middle = let.local
        if middle != first:
            body.append(self._band_loop(known, (first, middle), _BAND, states, write))
        if middle != stop:
            body.append(self._band_loop(known, (middle, stop), 1, states, write))
        return body

    def _band_loop(
        self,
        known: dict[int, k.Expression],
        bounds: _Bounds,
        rows: int,
        states: Sequence[Sequence[str]] | None,
        write: _Write,
    ) -> k.For:
        """The loop over bands of so many rows."""
        names, row_axis, block_axis = self.items.names, self.axes[-1], self.axes[-2]
        steps = self.phase.space.walk.strides
        band = k.Local(names.take("band" if rows > 1 else f"i{row_axis}"), k.INDEX)
        body: list[k.Statement] = []
        start_row: k.Expression = band
        if self.backwards and rows > 1 and isinstance(bounds[1], k.Literal):
            from_end = index(int(bounds[1].value) - rows)
            start_row = self._name(body, f"i{row_axis}", operate("sub", from_end, band))
        bases = self._bases({**known, block_axis: self.items.first}, body)
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
            self._states = self._load_states(states or (), output, lanes, made)
            if rows == 1:
                made += write(lanes, at_row(start_row))
            else:
                row = k.Local(names.take(f"i{row_axis}"), k.INDEX)
                inside = tuple(write(lanes, at_row(row)))
                last = add(start_row, index(rows))
                made.append(k.For(row, start_row, last, 1, inside, unroll=True))
            for state, arrays in zip(self._states, states or (), strict=True):
                made += [k.Put(a, output, s) for a, s in zip(arrays, state, strict=True)]
            return made

        body += self._across(block_axis, across)
        return k.For(band, bounds[0], bounds[1], rows, tuple(body))

    def _across(
        self, axis: int, inside: Callable[[int, k.Local], list[k.Statement]]
    ) -> list[k.Statement]:
        """The loop over the outputs of the block: whole vectors, and what is left over."""
        lanes, stop = self._lanes(axis), self.items.count
        output = k.Local(self.items.names.take("j"), k.INDEX)
        if lanes == 1:
            return [k.For(output, index(0), stop, 1, tuple(inside(1, output)))]
        body: list[k.Statement] = []
        if isinstance(stop, k.Literal):
            middle: k.Expression = index(int(stop.value) // lanes * lanes)
        else:
            rest = operate("mod", stop, index(lanes))
            middle = self._name(body, "vector_end", operate("sub", stop, rest))
        body.append(k.For(output, index(0), middle, lanes, tuple(inside(lanes, output))))
        if middle != stop:
            body.append(k.For(output, middle, stop, 1, tuple(inside(1, output))))
        return body

    def _load_states(
        self,
        states: Sequence[Sequence[str]],
        output: k.Local,
        lanes: int,
        body: list[k.Statement],
    ) -> list[tuple[k.Local, ...]]:
        """Variables that hold the states of some outputs for a while."""
        made: list[tuple[k.Local, ...]] = []
        for each, arrays in zip(self.phase.gathered, states, strict=False):
            locals_: list[k.Local] = []
            for slot, array in zip(each.slots, arrays, strict=True):
                wanted = f"{local_name(each.name)}{slot.suffix}"
                local = k.Local(self.items.names.take(wanted), k.Type(slot.dtype, lanes))
                body.append(k.Variable(local, k.Element(array, output, local.type)))
                locals_.append(local)
            made.append(tuple(locals_))
        return made

    def _name(self, body: list[k.Statement], name: str, value: k.Expression) -> k.Local:
        let = self.builder.let(name, value)
        body.append(let)
        return let.local

    def _flush_columns(
        self,
        gathered: Sequence[Gathered],
        states: Sequence[Sequence[str]],
        totals: Sequence[Sequence[str]],
    ) -> k.Statement:
        size = next(a.size for a in self.items.arrays if a.name == states[0][0])
        positional = any(is_positional(g.fold) for g in gathered)
        lanes = self.items.profile.lanes if size > 1 and not positional else 1
        number = k.Local(self.items.names.take("j"), k.INDEX)
        body: list[k.Statement] = []
        for each, arrays, sums in zip(gathered, states, totals, strict=True):
            parts = [
                k.Element(a, number, k.Type(s.dtype, lanes))
                for a, s in zip(arrays, each.slots, strict=True)
            ]
            body += self._merge_arrays(each, sums, number, parts)
        return k.For(number, index(0), index(size), lanes, tuple(body))

    # Hoisting -----------------------------------------------------------------------------

    def _hoist(self, phase: Phase, axis: int) -> Phase:
        """Computes what changes from output to output only before the loops over points, into
        arrays, and gives the phase that reads these."""
        before, rest = hoist(phase, axis)
        if before is None:
            return rest
        self.phase = before
        self.builder = self.items.builder(before)
        self.axes = [axis]
        self.emitter = self._emitter(before, self.builder, [axis])
        position = self._position(self.known, index(0))
        self.body += self.emitter.lets(0, position) + self.emitter.lets(1, position)
        results = before.elements.results
        arrays = {
            view.tensor: self.items.array("factors", k.Type(view.dtype), self.items.width)
            for view, _ in results
        }

        def put(lanes: int, position: Position) -> list[k.Statement]:
            made = self.emitter.lets(2, position, lanes)
            for view, number in results:
                value = self.emitter.value(number, lanes)
                made.append(k.Put(arrays[view.tensor], position(view), value))
            return made

        self.body += self._nest([axis], self.known, index(0), put)
        for view, _ in results:
            self.items.near[view.tensor] = _at(arrays[view.tensor], view)
        return rest


def _always(value: k.Expression) -> Near:
    return lambda position, lanes: value


def _at(array: str, view: View) -> Near:
    return lambda place, lanes: k.Element(array, place, k.Type(view.dtype, lanes))
