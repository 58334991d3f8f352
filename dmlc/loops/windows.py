"""Small windows of adjacent outputs, computed side by side so that shared elements are loaded once.

If outputs reduce windows that slide along the last axis, or the last two, a work item computes a
block of neighbours. The points of each window are known at compile time for every index along such
an axis, so that they are unrolled as terms of sums; indices increase by equal steps from one work
item to the next. Points that take part in most windows only, as at an edge, are selected by a
condition, and loaded at an index where they take part. Other axes of the windows remain reductions.

If all points are unrolled, the points of one column are combined first, and then multiplied by
weights that depend on the column alone: adjacent windows share columns.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Container, Iterator, Mapping, Sequence

from dmlc import ir
from dmlc.ir.builder import BodyBuilder
from dmlc.loops.access import Positions, read_positions
from dmlc.loops.arrange import arrange
from dmlc.loops.element import Collector, Elements, View, prune, tensor_strides
from dmlc.loops.neighbours import Block, name_neighbour, write_at, write_reductions
from dmlc.loops.phases import Phase
from dmlc.scalars import DataType
from dmlc.sizes import known
from dmlc.transform.fuse import Group

_COLUMNS = 4
"""Neighbours of a work item along the last axis: a vector when stored."""
_ROWS = 2
"""Neighbours along the axis before it, if windows slide along it as well, and unrolling is not too
much."""


def write_windows(
    function: ir.Function, group: Group, stored: Container[str]
) -> tuple[Phase, ...] | None:
    """Phases of a group that reduces small windows, with neighbouring outputs for each work item;
    None if its reductions are no such windows, or indices have unequal steps. Stages in `stored`
    have memory."""
    windows = _Windows.find(function, group)
    if windows is None:
        return None
    for block in windows.list_blocks():
        phases = windows.write(block, stored)
        if phases is not None:
            return phases
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class _Windows:
    """Stages of a group over one domain: reductions, and their derived stages."""

    function: ir.Function
    reductions: tuple[ir.Stage, ...]
    derived: tuple[ir.Stage, ...]

    @classmethod
    def find(cls, function: ir.Function, group: Group) -> _Windows | None:
        if not group.passes or any(each.reduces or each.inner for each in group.passes[1:]):
            return None
        stages = [
            [s for m in each.members if (s := function.stage(m.stage)) is not None]
            for each in group.passes
        ]
        reductions, derived = stages[0], [s for own in stages[1:] for s in own]
        extents = reductions[0].extents
        if any(s.extents != extents for s in (*reductions, *derived)):
            return None
        if any(s.reduction is None or s.body.dtype is DataType.BOOL for s in reductions):
            return None
        return cls(function, tuple(reductions), tuple(derived))

    def list_blocks(self) -> Iterator[Block]:
        """Possible blocks of a work item, the largest first."""
        extents = self.reductions[0].extents
        last = len(extents) - 1
        for counts in (
            {last - 1: _ROWS, last: _COLUMNS},
            {last - 1: 1, last: _COLUMNS},
            {last: _COLUMNS},
        ):
            if min(counts) >= 0 and all(
                isinstance(size := extents[axis], int) and not size % count
                for axis, count in counts.items()
            ):
                yield Block(extents, counts)

    def write(self, block: Block, stored: Container[str]) -> tuple[Phase, ...] | None:
        """Phases for a block; None if it is not possible."""
        # Of equal extremes, the one with the lowest number among all points wins.
        whole = len(block.counts) > 1 or any(stage.is_positional for stage in self.reductions)
        made: list[tuple[ir.Stage, ...]] = []
        for stage in self.reductions:
            each = write_reductions(stage, self.function.arrays(), block, whole=whole)
            if each is None:
                return None
            made.append(each)
        if len({first.reduction and first.reduction.axes for first, *_ in made}) > 1:
            return None
        written = {each.name: each for each in itertools.chain(*made)}
        made += [self._copy(stage, block, written) for stage in self.derived]
        reductions, derived = made[: len(self.reductions)], made[len(self.reductions) :]
        function = self.function.with_stages((*self.function.stages, *itertools.chain(*made)))
        positions: dict[str, Positions] = {}
        for stage in itertools.chain(*reductions):
            # Its guard, which may have protected an index along an axis without windows, is gone.
            if stage.reduction is None:
                found = positions[stage.name] = read_positions(stage, function)
                loads = stage.body.loads()
                if not all(found.is_inside(load, i) for load in loads for i in load.indices):
                    return None
        return self._collect(function, block, reductions, derived, stored, positions)

    def _copy(
        self, stage: ir.Stage, block: Block, written: Mapping[str, ir.Stage]
    ) -> tuple[ir.Stage, ...]:
        """Copies of a derived stage for each of the neighbours; `written` are their reductions."""
        own = {s.name for s in (*self.reductions, *self.derived)}
        made: list[ir.Stage] = []
        for number, places in enumerate(block.list_places()):
            builder = BodyBuilder()
            near: dict[int, int] = {}
            chosen: dict[int, int] = {}
            for n, value in enumerate(stage.body.instructions):
                if not isinstance(value, ir.Load) or value.tensor not in own:
                    continue
                source = written.get(name_neighbour(value.tensor, number))
                if (
                    source is not None
                    and source.reduction is None
                    and source.dtype.is_integer
                    and not source.dtype.is_storage_only
                ):
                    # An index is recomputed in the reader, so that its interval is known there.
                    chosen[n] = near[n] = builder.copy(source.body)[source.body.result]
                    continue
                here = tuple(builder.add(ir.Index(axis)) for axis in range(len(block.domain)))
                name = name_neighbour(value.tensor, number)
                near[n] = builder.add(ir.Load(name, here, value.dtype))
            for load, place in chosen.items():
                for n in _list_following(stage.body, load):
                    found = self._choose(stage, n, load, builder, place, places)
                    if found is not None:
                        near[n] = found
            result = write_at(stage, self.function.arrays(), builder, places, near)
            name, body = name_neighbour(stage.name, number), builder.make(result)
            made.append(dataclasses.replace(stage, name=name, extents=block.turns, body=body))
        return tuple(made)

    def _choose(
        self,
        stage: ir.Stage,
        number: int,
        load: int,
        builder: BodyBuilder,
        place: int,
        places: Mapping[int, range],
    ) -> int | None:
        """Value of a stage that depends on a loaded index selected among constants: selected itself
        among its values for these. None if the index is selected otherwise."""
        instruction = builder.instructions[place]
        if isinstance(instruction, ir.Select):
            found = [
                self._choose(stage, number, load, builder, o, places)
                for o in (instruction.then, instruction.otherwise)
            ]
            if found[0] is None or found[1] is None:
                return None
            dtype = ir.value_type(stage.body.instructions[number])
            return builder.add(ir.Select(instruction.condition, found[0], found[1], dtype))
        if not isinstance(instruction, ir.Constant):
            return None
        known = BodyBuilder()
        value = known.copy(stage.body, {load: known.add(instruction)})[number]
        one = dataclasses.replace(stage, body=known.make(value))
        return write_at(one, self.function.arrays(), builder, places, {})

    def _collect(
        self,
        function: ir.Function,
        block: Block,
        reductions: Sequence[Sequence[ir.Stage]],
        derived: Sequence[Sequence[ir.Stage]],
        stored: Container[str],
        positions: Mapping[str, Positions],
    ) -> tuple[Phase, ...]:
        """Phases of the stages; `positions` are known for unrolled reductions."""
        domain = block.turns
        kept = {ir.Index(axis): axis for axis in range(len(domain))}
        placed = {
            name_neighbour(stage.name, number): self._view_stored(stage, places)
            for stage in (*self.reductions, *self.derived)
            for number, places in enumerate(block.list_places())
        }
        first = reductions[0][0].reduction
        inner = () if first is None else tuple(extent for _, extent in first.axes)
        work: list[Elements] = []
        near: dict[str, DataType] = {}
        if inner:
            collector = Collector(function, (*domain, *inner), {}, len(domain), placed=placed)
            for stage in itertools.chain(*reductions):
                axes = dict(kept)
                for place, (label, _) in enumerate(stage.reduction.axes if stage.reduction else ()):
                    axes[ir.Index(label, reduced=True)] = len(domain) + place
                collector.add_reduction(stage.name, axes)
                near[stage.name] = stage.dtype
            work.append(collector.elements())
        collector = Collector(
            function, domain, near, len(domain), placed=placed, positions=positions
        )
        # One neighbour after the other, so that few values are live at a time.
        alone = (*derived,) if inner else (*reductions, *derived)
        for stage in itertools.chain(*zip(*alone, strict=True)):
            collector.add_stage(stage.name, kept, leaves=False)
        every = zip((*self.reductions, *self.derived), (*reductions, *derived), strict=True)
        for stage in itertools.chain(*(own for before, own in every if before.name in stored)):
            if stage.name in near:
                collector.add_copy(stage.name, kept)
            else:
                collector.store(stage.name)
        work.append(prune(collector.elements()))
        return tuple(map(Phase, arrange(work, len(domain), as_written=True)))

    def _view_stored(self, stage: ir.Stage, places: Mapping[int, range]) -> View:
        """View of a neighbour's stored outputs."""
        strides = list(known(tensor_strides(self.function, stage.name)))
        offset = sum(strides[axis] * own.start for axis, own in places.items())
        for axis, own in places.items():
            strides[axis] *= own.step
        return View(stage.name, stage.dtype, tuple(strides), offset)


def _list_following(body: ir.Body, load: int) -> list[int]:
    """Values that depend on one load, constants and indices alone, and on which no other such value
    depends."""
    follows: dict[int, bool] = {}
    for number, value in enumerate(body.instructions):
        given = [follows.get(o) for o in ir.operands(value)]
        if number == load:
            follows[number] = True
        elif isinstance(value, ir.Index | ir.Constant):
            follows[number] = False
        elif not isinstance(value, ir.Load | ir.Symbol) and None not in given:
            follows[number] = any(given)
    passed = {o for n in follows for o in ir.operands(body.instructions[n]) if n != load}
    return [n for n, is_one in follows.items() if is_one and n not in passed]
