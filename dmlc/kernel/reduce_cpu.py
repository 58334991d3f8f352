"""Kernels with reductions on a CPU: a work item folds one output, or a block of neighbouring ones.

Folded points that lie side by side in memory are added up in vectors; where outputs do, vectors
run across a block of outputs, whose states are arrays. Short rows of many outputs are taken in
blocks too, so that a work item reads on in memory. Floating-point states are flushed into totals
every few thousand points, for precision's sake. A pass that applies what was folded runs over the
outermost dimension backwards: what was read last is still in the caches. Where the tensors are
large, a work item takes several outputs and folds each while it applies the one before: reading and
writing at once, memory moves more than in turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.build import Builder, Shape
from dmlc.kernel.element import View
from dmlc.kernel.emit import Names, Near, Position, add, index, multiply, operate
from dmlc.kernel.hoist import hoist
from dmlc.kernel.item import Item
from dmlc.kernel.item_folds import Folds
from dmlc.kernel.item_loops import Known, Loops, choose_lanes
from dmlc.kernel.overlap import overlap
from dmlc.kernel.phases import Phase
from dmlc.kernel.schedule import Limits, Profile
from dmlc.source import InternalError

_COLUMNS = 256
"""Neighbouring outputs in a block, at most, where vectors run across them."""
_WIDE_COLUMNS = 4096
"""The same, where the fold stores on its way: whole rows then stream, two in half the time that
blocks of 256 take, and the states still fit the first cache."""
_COLUMN_STEP = 64
"""Blocks of columns hold a multiple of these: whole cache lines, whatever the type."""
_SHORT_ROW = 200
"""A row of no more points than this is read together with its neighbours' rows."""
_ROWS = 16
"""Neighbouring outputs in a block of short rows."""
_MOST_OVERLAPPED = 8
"""Outputs that a work item takes in turn, at most, folding each while it applies the one before.
The first is folded, and the last applied, by itself."""


def choose_width(phases: Sequence[Phase], profile: Profile) -> int:
    """The number of neighbouring outputs a work item folds at once."""
    space = phases[0].space
    if not space.kept:
        return 1
    last, neighbours = space.kept[-1], space.kept_sizes[-1]
    if last == len(space.sizes) - 1:
        columns = _WIDE_COLUMNS if phases[0].elements.results else _COLUMNS
        blocks = -(-neighbours // columns)
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


def goes_in_vectors(phases: Sequence[Phase], profile: Profile) -> bool:
    """Whether whole vectors fold, along the innermost axis."""
    space = phases[0].space
    axis = len(space.sizes) - 1
    long = choose_width(phases, profile) if axis in space.kept else space.sizes[axis]
    return choose_lanes(phases[0], axis, long, profile) == profile.lanes


def lower_items(
    phases: Sequence[Phase],
    names: Names,
    profile: Profile,
    limits: Limits,
    buffers: tuple[k.Buffer, ...],
) -> tuple[Shape, tuple[k.Array, ...]]:
    """The kernel of some phases, and the arrays it needs."""
    width = choose_width(phases, profile)
    item = Item(names, profile, limits, buffers, width)
    blocks = count_items(phases, profile)
    inner = max(1, *(p.space.inner_count for p in phases)) * width
    run = min(max(1, profile.per_item // inner), max(blocks, 1))
    builder = item.builder(phases[0])
    turns = min(blocks // profile.groups, _MOST_OVERLAPPED)
    if turns > 1 and _is_overlapped(item, phases):
        body = _Turns(item, phases, builder, blocks, turns).write()
        words = f"each computes {turns:,} outputs"
        return Shape(k.Launch(blocks, turns, 1), words, body), tuple(item.arrays)

    def make(block: k.Expression) -> list[k.Statement]:
        return _write_block(item, phases, builder, block)

    body = builder.share_blocks(blocks, run, make)
    outputs = run * width
    words = f"each computes {outputs:,} output{'s' if outputs > 1 else ''}"
    return Shape(k.Launch(blocks, run, 1), words, body), tuple(item.arrays)


def _write_block(
    item: Item, phases: Sequence[Phase], builder: Builder, block: k.Expression
) -> list[k.Statement]:
    """Every phase of one block of outputs."""
    kept = phases[0].space.kept_sizes
    outer = kept[:-1] if item.in_blocks else kept
    parts = list(enumerate(outer))
    if item.in_blocks:
        parts.append((len(outer), -(-kept[-1] // item.width)))
    known: Known = {}
    body = builder.decompose(block, parts, known)
    if item.in_blocks:
        item.find_block(known.pop(len(outer)), kept[-1], body)
    for number, phase in enumerate(phases):
        at = {phase.space.kept[n]: i for n, i in known.items()}
        if item.in_blocks and not phase.is_kept:
            before, phase = hoist(phase, phase.space.kept[-1])
            if before is not None:
                body += _Factors(item, before, at).write()
        backwards = number > 0 and not phase.is_kept
        body += _Writer(item, phase, at, backwards).write()
    return body


class _Writer(Folds):
    """Writes one phase: what folds, and what stores."""

    def is_folded_like(self, other: _Writer) -> bool:
        """Whether the phase folds vectors into totals, in the loops another phase has."""
        lanes = self._lanes(self.axes[-1])
        same = lanes > 1 and lanes == other._lanes(other.axes[-1])
        return same and not self.in_bands and not self._is_in_strips()

    def write_fold(self, totals: Sequence[Sequence[str]] = ()) -> Sequence[Sequence[str]]:
        """Writes a fold up to its totals, which are new where none are given."""
        self._begin()
        self._open_streams()
        totals = totals or self._make_totals()
        self._gather_rows(totals)
        return totals

    def write_end(self, totals: Sequence[Sequence[str]]) -> list[k.Statement]:
        """What makes the totals of a fold its outcome."""
        self._finish_rows(totals)
        return self.body

    def write(self) -> list[k.Statement]:
        self._begin()
        self._open_streams()
        if self.phase.gathered:
            if self.in_bands:
                self._fold_columns()
            else:
                self._fold_rows()
            return self.body

        def store(lanes: int, position: Position) -> list[k.Statement]:
            made = self.emitter.lets(1 + max(1, len(self.axes)), position, lanes)
            return made + self._stores(lanes, position)

        def bands(known: Known, output: k.Expression) -> list[k.Statement]:
            return self._bands(known, None, store)

        if not self.axes:
            self.body += self.emitter.stores(self._position(self.known, index(0)), 1, {})
        elif self.in_bands:
            self.body += self._around(self.axes[:-2], self.known, index(0), bands)
        else:
            self.body += self._nest(self.axes, self.known, index(0), store)
        return self.body


def _is_overlapped(item: Item, phases: Sequence[Phase]) -> bool:
    """Whether outputs are folded, each in large rows of vectors, and then applied to large tensors
    in the same loops."""
    fold, *between, apply = phases
    if item.in_blocks or not fold.gathered or apply.is_kept or apply.gathered:
        return False
    same = fold.space.sizes == apply.space.sizes and fold.space.kept == apply.space.kept
    pieces = fold.space.pieces or apply.space.pieces
    if not same or pieces or not all(p.is_kept and not p.gathered for p in between):
        return False
    if not item.builder(apply).is_large:
        return False
    writers = [_Writer(item, phase, dict.fromkeys(phase.space.kept, index(0))) for phase in phases]
    return writers[0].is_folded_like(writers[-1])


class _Turns:
    """Writes a work item that folds each of its outputs while it applies the one before."""

    def __init__(
        self, item: Item, phases: Sequence[Phase], builder: Builder, blocks: int, turns: int
    ) -> None:
        self.item = item
        self.fold, *self.between, self.apply = phases
        self.builder = builder
        self.blocks = blocks
        self.turns = turns

    def write(self) -> list[k.Statement]:
        begin = self.builder.let("begin", multiply(k.Position(k.Geometry.GROUP), self.turns))
        stop = add(begin.local, index(self.turns))
        if self.blocks % self.turns:
            stop = operate("min", stop, index(self.blocks))
        end = self.builder.let("end", stop)
        body: list[k.Statement] = [begin, end]

        folds = self._writer(self.fold, self._locate(begin.local, body))
        totals = folds.write_fold()
        body += folds.body

        block = k.Local(self.item.names.take("block"), k.INDEX)
        before = self.builder.let("before", operate("sub", block, index(1)))
        turn: list[k.Statement] = [before]
        applies = self._finish(before.local, totals, turn)
        folds = self._writer(self.fold, self._locate(block, turn))
        folds.write_fold(totals)
        both = overlap(applies, folds.body)
        if both is None:
            raise InternalError("a fold and what applies it have different loops")
        turn += both
        first = add(begin.local, index(1))
        body.append(k.For(block, first, end.local, 1, tuple(turn)))

        last = self.builder.let("last", operate("sub", end.local, index(1)))
        body.append(last)
        applies = self._finish(last.local, totals, body)
        return body + applies

    def _locate(self, block: k.Expression, body: list[k.Statement]) -> Known:
        known: Known = {}
        kept = list(enumerate(self.fold.space.kept_sizes))
        body += self.builder.decompose(block, kept, known)
        return known

    def _writer(self, phase: Phase, known: Known, backwards: bool = False) -> _Writer:
        at = {phase.space.kept[n]: i for n, i in known.items()}
        return _Writer(self.item, phase, at, backwards)

    def _finish(
        self, block: k.Expression, totals: Sequence[Sequence[str]], body: list[k.Statement]
    ) -> list[k.Statement]:
        """Ends the fold of a block and stores what derives from it; gives what applies it."""
        known = self._locate(block, body)
        body += self._writer(self.fold, known).write_end(totals)
        for phase in self.between:
            body += self._writer(phase, known).write()
        return self._writer(self.apply, known, backwards=True).write()


class _Factors(Loops):
    """Writes what was hoisted out of a phase: values of each output of the block, into arrays."""

    def write(self) -> list[k.Statement]:
        self._begin()
        results = self.phase.elements.results
        arrays = {
            view.tensor: self.item.array("factors", view.dtype, self.item.width)
            for view, _ in results
        }

        def put(lanes: int, position: Position) -> list[k.Statement]:
            made = self.emitter.lets(2, position, lanes)
            for view, number in results:
                value = self.emitter.value(number, lanes)
                made.append(k.Put(arrays[view.tensor], position(view), value))
            return made

        self.body += self._nest(self.axes, self.known, index(0), put)
        for view, _ in results:
            self.item.near[view.tensor] = _at(arrays[view.tensor], view)
        return self.body


def _at(array: str, view: View) -> Near:
    return lambda place, lanes: k.Element(array, place, k.Type(view.dtype, lanes))
