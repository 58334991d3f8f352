"""How a work item on a CPU folds: in registers and in arrays, flushed into totals on the way.

Rows of points are folded in vectors, whose lanes become one at the end; outputs that lie side by
side are folded in vectors across them.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.accumulate import contribute, finish, merge, start
from dmlc.kernel.element import list_stored
from dmlc.kernel.emit import Near, Position, add, index, local_name, multiply, split_words
from dmlc.kernel.item_loops import Bounds, Hold, Known, Loops
from dmlc.kernel.phases import Gathered
from dmlc.scalars import DataType

_FLUSH_ROW, _FLUSH_COLUMN = 4096, 1024
"""Points after which states are flushed: of a vector of lanes, and of one lane."""


class Folds(Loops):
    """Writes what folds."""

    def _fold_rows(self) -> None:
        """Folds points that lie side by side, in vectors; each output has a total of its own."""
        totals = self._make_totals()
        variables = self._gather_rows(totals)
        if totals:
            self._finish_rows(totals)
        for each, state in zip(self.phase.gathered, variables, strict=False):
            self._keep_locals(each, state)

    def _make_totals(self) -> list[tuple[str, ...]]:
        """Arrays for the totals of each fold, a vector for each output of the block; none where
        variables do."""
        item, lanes = self.item, self._lanes(self.axes[-1])
        if not item.in_blocks and lanes == 1:
            return []
        suffix = "_total" if lanes > 1 else "_block"
        return [self._make_arrays(g, suffix, item.width * lanes) for g in self.phase.gathered]

    def _gather_rows(self, totals: Sequence[Sequence[str]]) -> list[tuple[k.Local, ...]]:
        """Folds points into `totals`; without these, into variables, which it gives."""
        axes, gathered = self.axes, self.phase.gathered
        block = axes.index(self.block_axis) + 1 if self.block_axis is not None else 0
        inner = axes[block:]
        split, strips = self._split(inner, _FLUSH_ROW)
        lanes = self._lanes(inner[-1])
        variables: list[tuple[k.Local, ...]] = []
        if totals:
            self.body += self._fill(gathered, totals)
        elif block + split or strips:
            variables = [self._make_variables(g, 1, "_total", self.body) for g in gathered]

        def flushed(known: Known, output: k.Expression) -> list[k.Statement]:
            def add_up(bounds: Bounds | None) -> list[k.Statement]:
                body: list[k.Statement] = []
                states = self._add_up(inner[split:], known, output, bounds, body)
                for _, found in states:
                    for number, (each, state) in enumerate(zip(gathered, found, strict=True)):
                        if totals:
                            place = multiply(output, lanes)
                            body += self._merge_arrays(each, totals[number], place, state)
                        elif variables:
                            body += self._merge_locals(each, variables[number], state)
                if not totals and not variables:
                    variables.extend(states[0][1])
                return body

            return self._strips(inner[-1], _FLUSH_ROW, add_up) if strips else add_up(None)

        self.body += self._around(axes[: block + split], self.known, index(0), flushed)
        return variables

    def _is_in_strips(self) -> bool:
        """Whether the innermost axis is folded in strips."""
        return self._split(self.axes, _FLUSH_ROW)[1]

    def _add_up(
        self,
        axes: Sequence[int],
        known: Known,
        output: k.Expression,
        bounds: Bounds | None,
        body: list[k.Statement],
    ) -> list[tuple[int, list[tuple[k.Local, ...]]]]:
        """Folds some points in registers, and gives the states: of vectors, and of the points
        left over."""
        gathered = self.phase.gathered
        widths = self._widths(axes[-1], bounds)
        states = {
            width: [
                self._make_variables(g, width, "_rest" if number else "", body) for g in gathered
            ]
            for number, width in enumerate(widths)
        }

        def fold(width: int, position: Position) -> list[k.Statement]:
            return self._fold_point(position, width, states[width])

        if bounds is not None:
            body += self._vectors(axes[-1], known, output, fold, bounds)
        else:
            body += self._nest(axes, known, output, fold)
        return list(states.items())

    def _finish_rows(self, totals: Sequence[Sequence[str]]) -> None:
        """Folds the lanes of each total, in a tree, and has the outcome at hand."""
        gathered, item = self.phase.gathered, self.item
        lanes = self._lanes(self.axes[-1])
        number = k.Local(item.names.take("j"), k.INDEX) if item.in_blocks else index(0)
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
        if not item.in_blocks:
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
            packed = [self._make_arrays(g, "_block", item.width) for g in gathered]
            for each, arrays, to in zip(gathered, totals, packed, strict=True):
                body += [
                    k.Put(b, number, k.Element(a, first, k.Type(slot.dtype)))
                    for a, b, slot in zip(arrays, to, each.slots, strict=True)
                ]
        if body and isinstance(number, k.Local):
            self.body.append(k.For(number, index(0), item.count, 1, tuple(body)))
        for each, arrays in zip(gathered, packed, strict=True):
            self._keep_arrays(each, arrays)

    def _fold_columns(self) -> None:
        """Folds a block of outputs that lie side by side: vectors run across them."""
        gathered = self.phase.gathered
        reduced = [axis for axis in self.axes if axis != self.block_axis]
        split, strips = self._split(reduced, _FLUSH_COLUMN)
        flushes = strips or split > 0
        states = [self._make_arrays(g, "_block", self.item.width) for g in gathered]
        totals = states
        if flushes:
            totals = [self._make_arrays(g, "_total", self.item.width) for g in gathered]
            self.body += self._fill(gathered, totals)

        held: list[tuple[k.Local, ...]] = []

        def load(output: k.Local, lanes: int) -> list[k.Statement]:
            body: list[k.Statement] = []
            held[:] = self._load_states(states, output, lanes, body)
            return body

        def keep(output: k.Local) -> list[k.Statement]:
            return [
                k.Put(array, output, local)
                for arrays, state in zip(states, held, strict=True)
                for array, local in zip(arrays, state, strict=True)
            ]

        def add_up_row(lanes: int, position: Position) -> list[k.Statement]:
            return self._fold_point(position, lanes, held)

        hold = Hold(load, keep)

        def gather(
            known: Known, output: k.Expression, bounds: Bounds | None = None
        ) -> list[k.Statement]:
            def bands(known: Known, output: k.Expression) -> list[k.Statement]:
                return self._bands(known, bounds, add_up_row, hold)

            body = self._fill(gathered, states)
            body += self._around(reduced[split:-1], known, output, bands)
            if flushes:
                body.append(self._flush_columns(gathered, states, totals))
            return body

        def flushed(known: Known, output: k.Expression) -> list[k.Statement]:
            if not strips:
                return gather(known, output)
            return self._strips(
                reduced[-1], _FLUSH_COLUMN, lambda bounds: gather(known, output, bounds)
            )

        self.body += self._around(reduced[:split], self.known, index(0), flushed)
        for each, arrays in zip(gathered, totals, strict=True):
            self._keep_arrays(each, arrays)

    def _flush_columns(
        self,
        gathered: Sequence[Gathered],
        states: Sequence[Sequence[str]],
        totals: Sequence[Sequence[str]],
    ) -> k.Statement:
        size = next(a.size for a in self.item.arrays if a.name == states[0][0])
        lanes = self.item.profile.lanes if size > 1 else 1
        number = k.Local(self.item.names.take("j"), k.INDEX)
        body: list[k.Statement] = []
        for each, arrays, sums in zip(gathered, states, totals, strict=True):
            parts = [
                k.Element(a, number, k.Type(s.dtype, lanes))
                for a, s in zip(arrays, each.slots, strict=True)
            ]
            body += self._merge_arrays(each, sums, number, parts)
        return k.For(number, index(0), index(size), lanes, tuple(body))

    def _fold_point(
        self, position: Position, lanes: int, states: Sequence[Sequence[k.Local]]
    ) -> list[k.Statement]:
        """The innermost statements: the points at hand enter the states of the folds, and what
        they leave on the way is stored."""
        level = 1 + len(self.axes)

        def gather() -> list[k.Statement]:
            made: list[k.Statement] = []
            for each, state in zip(self.phase.gathered, states, strict=True):
                made += self._merge_locals(each, state, self._point(each, lanes))
            return made

        if not self.tests_guard:
            made = self.emitter.lets(level, position, lanes) + gather()
            return made + self._stores(lanes, position)
        self.emitter.forget(level)
        stored = self.emitter.lets(level, position, only=list_stored(self.phase.elements))
        stored += self._stores(lanes, position)
        return stored + self._enter(level, position, lanes, gather)

    def _point(self, gathered: Gathered, lanes: int) -> tuple[k.Expression, ...]:
        """The state of the points at hand."""
        fold, value = gathered.fold, self.emitter.value
        tested = fold.guard is None or self.tests_guard
        guard = None if fold.guard is None or tested else value(fold.guard, lanes)
        place = None if fold.place is None else value(fold.place, lanes)
        return contribute(gathered.slots, value(fold.value, lanes), guard, place)

    def _merge_locals(
        self, gathered: Gathered, state: Sequence[k.Local], other: Sequence[k.Expression]
    ) -> list[k.Statement]:
        statements, merged = merge(gathered.fold, state, other, self.item.names.take)
        return statements + [k.Assign(s, m) for s, m in zip(state, merged, strict=True)]

    def _merge_arrays(
        self,
        gathered: Gathered,
        arrays: Sequence[str],
        place: k.Expression,
        other: Sequence[k.Expression],
    ) -> list[k.Statement]:
        mine = [k.Element(a, place, o.type) for a, o in zip(arrays, other, strict=True)]
        statements, merged = merge(gathered.fold, mine, other, self.item.names.take)
        return statements + [k.Put(a, place, m) for a, m in zip(arrays, merged, strict=True)]

    def _make_arrays(self, gathered: Gathered, suffix: str, size: int) -> tuple[str, ...]:
        name = split_words(gathered.name)
        return tuple(
            self.item.array(f"{name}{slot.suffix}{suffix}", slot.dtype, size)
            for slot in gathered.slots
        )

    def _make_variables(
        self, gathered: Gathered, lanes: int, suffix: str, body: list[k.Statement]
    ) -> tuple[k.Local, ...]:
        """Variables for the state before any point."""
        made: list[k.Local] = []
        for slot in gathered.slots:
            words = split_words(gathered.name) if suffix else local_name(gathered.name)
            name = self.item.names.take(f"{words}{slot.suffix}{suffix}")
            made.append(k.Local(name, k.Type(slot.dtype, lanes)))
            body.append(k.Variable(made[-1], start(slot, lanes)))
        return tuple(made)

    def _load_states(
        self,
        states: Sequence[Sequence[str]],
        output: k.Local,
        lanes: int,
        body: list[k.Statement],
    ) -> list[tuple[k.Local, ...]]:
        """Variables that hold the states of some outputs for a while."""
        made: list[tuple[k.Local, ...]] = []
        for each, arrays in zip(self.phase.gathered, states, strict=True):
            locals_: list[k.Local] = []
            for slot, array in zip(each.slots, arrays, strict=True):
                wanted = f"{local_name(each.name)}{slot.suffix}"
                local = k.Local(self.item.names.take(wanted), k.Type(slot.dtype, lanes))
                body.append(k.Variable(local, k.Element(array, output, local.type)))
                locals_.append(local)
            made.append(tuple(locals_))
        return made

    def _fill(
        self, gathered: Sequence[Gathered], arrays: Sequence[Sequence[str]]
    ) -> list[k.Statement]:
        """Sets arrays of one size to the state before any point."""
        size = next(a.size for a in self.item.arrays if a.name == arrays[0][0])
        lanes = self.item.profile.lanes if size > 1 else 1
        once = size == lanes
        number = index(0) if once else k.Local(self.item.names.take("j"), k.INDEX)
        puts = tuple(
            k.Put(name, number, start(slot, lanes))
            for each, names in zip(gathered, arrays, strict=True)
            for slot, name in zip(each.slots, names, strict=True)
        )
        if not isinstance(number, k.Local):
            return list(puts)
        return [k.For(number, index(0), index(size), lanes, puts)]

    def _keep_locals(self, gathered: Gathered, state: Sequence[k.Local]) -> None:
        """Has a state, and the reductions it is, at hand from here on: the only one there is."""
        for number, local in enumerate(state):
            self.item.near[gathered.slot_name(number)] = _always(local)
        for stage, dtype in gathered.stages:
            value = finish(gathered.fold, state, dtype.compute)
            if not isinstance(value, k.Local):
                value = self._name(self.body, local_name(stage), value)
            self.item.near[stage] = _always(value)

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
            self.item.near[gathered.slot_name(number)] = part
        for stage, dtype in gathered.stages:
            self.item.near[stage] = value(dtype)


def _always(value: k.Expression) -> Near:
    return lambda position, lanes: value
