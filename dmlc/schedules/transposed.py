"""Schedules of element-wise work for GPUs with transposed operands.

Adjacent work items take elements along the axis along which results are contiguous. An operand that
is contiguous along another axis would need a sector of memory for each element. A tile of it goes
through shared memory instead: stored along its own axis, and read across. A result that is
contiguous along the other axis is computed in that order, from the same tiles. Sizes alone
determine the tiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

from dmlc.kernel.arithmetic import round_up
from dmlc.kernel.names import split_words
from dmlc.loops.element import Elements, Gather, Place, Read, list_needed, operands, reads_elements
from dmlc.loops.legality import MOST_UNROLLED
from dmlc.loops.nodes import Nest
from dmlc.loops.phases import VECTOR, Phase
from dmlc.loops.staging import STAGED, renumber
from dmlc.loops.tiling import takes_vectors
from dmlc.schedules.rule import Work
from dmlc.sizes import known
from dmlc.source import InternalError

_SECTOR = 32
"""Smallest number of bytes that memory moves."""
_WORTH = 4
"""Smallest ratio of bytes moved per element across to those along for which an operand goes through
a tile."""
_SIDE = 32
"""Elements of a tile's row and column: a cache line of floats. If one axis is shorter, tiles are
longer along the other."""
_LEAST = 8
"""Smallest number of elements along each axis: with fewer, a group accesses whole sectors
anyway."""
_SHARED_BYTES = 1 << 14
"""Largest size of a group's tiles in bytes, so that several groups fit on a compute unit."""
_BANKS = 32
"""Banks of shared memory, each of which serves one work item at a time."""
_ELEMENT = 4
"""Bytes of an element of a tile."""
_MOST_TILES = _SHARED_BYTES // (_ELEMENT * _SIDE * (_SIDE + 1))
_BESIDE = 8
"""Work items that access a cache line together, in vectors."""
_BYTES = 16
"""Bytes that a work item loads and stores at once, if possible."""
Steps: TypeAlias = tuple[int, ...]
"""Distance in bytes between neighbours along each axis."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Staged:
    """A value that goes through a tile."""

    value: int
    along: int
    """Axis along which it is read."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Crossing:
    """Two axes of element-wise work along each of which some operand or result is contiguous."""

    row: int
    column: int
    """Axis along which the first result is contiguous."""
    staged: tuple[_Staged, ...]
    turned: tuple[int, ...] = ()
    """Results that are contiguous along the other axis."""


def choose_transposed(work: Work) -> Nest | None:
    """Nest of element-wise work with transposed operands; None if tiles do not help."""
    (phase,) = work.phases
    if phase.is_open or len(phase.space.sizes) < 2:
        return None
    found = _find_crossing(phase)
    return None if found is None else _Tiles(work, found).choose()


def lies_both_ways(phase: Phase) -> bool:
    """Whether some operands of a phase are contiguous along outputs, and some along the points of
    an output. Work items then extend along both, about a sector each, so that each sector is moved
    once."""
    space = phase.space
    if phase.is_open or not space.inner or not space.parallel:
        return False
    output, point = space.parallel[-1], space.inner[-1]
    if min(space.sizes[output], space.sizes[point]) < _LEAST:
        return False
    stored = (view for view, _ in phase.elements.results if not view.local)
    steps = [_in_bytes(known(view.strides), view.dtype.bytes) for view in stored]
    steps += _measure_reads(phase).values()
    ways = ((output, point), (point, output))
    return all(any(_crosses(own, walked, along) for own in steps) for walked, along in ways)


# What lies across ----------------------------------------------------------------------------


def _find_crossing(phase: Phase) -> _Crossing | None:
    elements, column = phase.elements, len(phase.space.sizes) - 1
    steps = _measure_reads(phase)
    lies = {n: _find_side(own, column) for n, own in steps.items()}
    stored = [_in_bytes(known(view.strides), view.dtype.bytes) for view, _ in elements.results]
    stands = [_find_side(own, column) for own in stored]
    sides = [axis for axis in (*lies.values(), *stands) if axis is not None]
    row = max(sides, key=lambda axis: (sides.count(axis), axis), default=None)
    if row is None or not _choose_tile(phase, row, column):
        return None
    turned = tuple(n for n, axis in enumerate(stands) if axis == row)
    across = [n for n, axis in lies.items() if axis == row and _is_stageable(phase, n)]
    if turned:
        roots = [root for _, root in elements.results]
        others = (root for n, root in enumerate(roots) if n not in turned)
        ahead = {v for root in others for v in list_needed(elements, root)}
        needed = {v for n in turned for v in list_needed(elements, roots[n])}
        back = [n for n, own in steps.items() if n in needed and _crosses(own, row, column)]
        staged = [_Staged(n, row) for n in across if n in ahead]
        staged += [_Staged(n, column) for n in back]
        if staged and len(staged) <= _MOST_TILES and all(_is_stageable(phase, n) for n in back):
            return _Crossing(row, column, tuple(staged), turned)
    made = _join_across(phase, across, column)
    chosen = made if len(made) <= len(across) else across
    staged = [_Staged(n, row) for n in chosen[:_MOST_TILES]]
    return _Crossing(row, column, tuple(staged)) if staged else None


def _measure_reads(phase: Phase) -> dict[int, Steps]:
    """Byte strides of each load; a load at computed indices counts as stride 1 per varying index,
    and data-dependent ones as scattered."""
    found: dict[int, Steps] = {}
    moving: list[tuple[bool, ...]] = []
    for number, value in enumerate(phase.elements.values):
        if not isinstance(value, Read | Gather) or value.view.local:
            continue
        steps = known(value.view.strides)
        if isinstance(value, Gather):
            moving = moving or [phase.find_moving(axis) for axis in range(len(steps))]
            terms = [
                (n, _SECTOR if reads_elements(phase.elements, n) else step)
                for n, step in value.terms
                if isinstance(step, int)
            ]
            steps = tuple(
                own + sum(step for n, step in terms if moves[n])
                for own, moves in zip(steps, moving, strict=True)
            )
        found[number] = _in_bytes(steps, value.view.dtype.bytes)
    return found


def _in_bytes(strides: Sequence[int], size: int) -> Steps:
    return tuple(abs(step) * size for step in strides)


def _find_side(steps: Steps, column: int) -> int | None:
    """Axis along which an operand is contiguous that takes a sector per element along the
    columns."""
    axes = [axis for axis in range(len(steps)) if _crosses(steps, column, axis)]
    return min(axes, key=lambda axis: steps[axis], default=None)


def _crosses(steps: Steps, walked: int, along: int) -> bool:
    """Whether memory moves much more per element along one axis than along another."""
    return steps[along] > 0 and _WORTH * steps[along] <= min(steps[walked], _SECTOR)


def _is_stageable(phase: Phase, number: int) -> bool:
    return phase.elements.values[number].dtype in STAGED


def _join_across(phase: Phase, across: Sequence[int], column: int) -> list[int]:
    """Values that depend only on transposed operands, and not on the column otherwise: these go
    through tiles instead of their operands. The operands themselves if some values have another
    type."""
    values, moving = phase.elements.values, phase.find_moving(column)
    joins: list[bool] = []
    for number, value in enumerate(values):
        is_read = isinstance(value, Read | Place | Gather)
        own = operands(value)
        inside = all(joins[o] or not moving[o] for o in own) and any(joins[o] for o in own)
        joins.append(number in across if is_read else inside)
    used = {o for n, value in enumerate(values) if not joins[n] for o in operands(value)}
    used.update(number for _, number in phase.elements.results)
    made = [number for number in sorted(used) if joins[number]]
    return made if all(_is_stageable(phase, n) for n in made) else list(across)


# Tiles ---------------------------------------------------------------------------------------


def _choose_tile(phase: Phase, row: int, column: int) -> tuple[int, int] | None:
    """Rows and columns of a tile; None if the axes are too short."""
    lengths = [round_up(phase.space.sizes[axis]) for axis in (row, column)]
    rows, columns = (min(_SIDE, length) for length in lengths)
    points = _SIDE * _SIDE
    if rows < _SIDE:
        columns = points // rows
    elif columns < _SIDE:
        rows = points // columns
    too_short = min(phase.space.sizes[axis] for axis in (row, column)) < _LEAST
    return None if too_short or rows > lengths[0] or columns > lengths[1] else (rows, columns)


def _find_pitch(rows: int, columns: int) -> int:
    """Row stride of a tile in shared memory, such that a column is spread over several banks."""
    return columns + max(1, _BANKS // rows)


class _Tiles:
    """Tiles of a group, and their distribution over its work items."""

    def __init__(self, work: Work, found: _Crossing) -> None:
        self._rule, self._phase, self._found = work.begin(), work.phases[0], found
        self._items, self._fill = work.profile.group_size, work.profile.fill
        rows, columns = self._choose_sides()
        self._sides = {found.row: rows, found.column: columns}

    def _choose_sides(self) -> tuple[int, int]:
        """Rows and columns of a tile: twice as many rows if there are enough groups."""
        found, sizes = self._found, self._phase.space.sizes
        cut = _choose_tile(self._phase, found.row, found.column)
        if cut is None:
            raise InternalError("axes are too short for tiles")
        rows, columns = cut
        size = 2 * rows * _find_pitch(2 * rows, columns) * _ELEMENT
        fits = len(found.staged) * size <= _SHARED_BYTES
        many = math.prod(sizes) // (rows * columns) >= 2 * self._fill
        is_large = many and fits and sizes[found.row] >= 2 * rows
        return (2 * rows if is_large else rows), columns

    def choose(self) -> Nest:
        found, rule, results = self._found, self._rule, self._phase.elements.results
        (rows, columns), loops = self._sides.values(), rule.outer
        rule.do("tile", loops[found.row], rows, name="row")
        rule.do("tile", loops[found.column], columns, name="column")
        rule.put_in_order([*loops, "row", "column"])
        tile = rule.do("bind", rule.fuse(loops, "tile"), "group")
        pad, numbers = _find_pitch(rows, columns) - columns, [s.value for s in found.staged]
        names: list[str] = []
        while numbers:
            elements, value = rule.nest.phases[0].elements, numbers.pop(0)
            names.append(self._name(elements, value))
            rule.do("stage", tile, f"%{value}", "shared", "column", pad, name=names[-1])
            new = renumber(elements, value)
            numbers = [new[each] for each in numbers]
        if 0 < len(found.turned) < len(results):
            turned = [results[number][0].tensor for number in found.turned]
            rule.do("fission", "row", ",".join(turned))
            self._go_over(len(rule.nest.phases) - 1, found.column, "", copy=".2")
            self._go_over(0, found.row, "", own="turned_")
        else:
            self._go_over(0, found.row if found.turned else found.column, "")
        for number, (staged, name) in enumerate(zip(found.staged, names, strict=True)):
            self._go_over(1 + number, staged.along, f"{name}_")
        return rule.finish(f"a group computes a tile of {rows} by {columns} elements")

    def _name(self, elements: Elements, number: int) -> str:
        """Stem of a tile's name: a tensor that its value depends on."""
        needed = (elements.values[n] for n in sorted(list_needed(elements, number)))
        tensor = next(v.view.tensor for v in needed if isinstance(v, Read | Gather))
        taken = {buffer.wanted for buffer in self._rule.nest.buffers}
        names = (f"{split_words(tensor)}{n or ''}" for n in range(len(taken) + 1))
        return next(name for name in names if f"{name}_tile" not in taken)

    def _go_over(self, number: int, axis: int, name: str, own: str = "", copy: str = "") -> None:
        """Distributes the points of a tile over the work items of a group, with adjacent ones along
        an axis. Its loops are named after a buffer that they fill, or are a `copy`; its work-item
        axes are its `own` if there are other loops."""
        found, rule, is_fill = self._found, self._rule, bool(name)
        beyond = found.column if axis == found.row else found.row
        names = {found.row: f"{name}row{copy}", found.column: f"{name}column{copy}"}
        along, other = names[axis], names[beyond]
        # Vectors are read from a row of a tile.
        reads_row = is_fill or axis == found.column
        width = self._measure_width(rule.nest.phases[number], axis) if reads_row else 1
        # Elements beyond a cache line share the banks of its start.
        across = min(self._sides[axis], max(_SIDE, _BESIDE * width)) // width
        across = min(across, MOST_UNROLLED * self._items // self._sides[beyond])
        across = max(across, self._items // self._sides[beyond])
        rule.put_in_order([other, along])
        whose = ("own",) if own else ()
        sizes = self._sides[beyond], self._items // across
        rule.take(other, f"{own or name}rows", *sizes, *whose)
        neighbours = along
        if width > 1:
            neighbours = rule.do("split", along, width, name=f"{along}s")
            if width > VECTOR:
                rule.do("unroll", rule.do("split", along, VECTOR, name=f"{along}_part"))
            rule.do("vectorize", along, VECTOR, "whole")
        sizes = self._sides[axis] // width, across
        rule.take(neighbours, f"{own or name}columns", *sizes, *whose)

    def _measure_width(self, phase: Phase, axis: int) -> int:
        """Adjacent elements along an axis that a work item takes at once."""
        if not takes_vectors(phase, axis, self._rule.limits):
            return 1
        views = phase.elements.buffers()
        moved = [view.dtype.bytes for view in views if view.strides[axis]]
        size = phase.space.sizes[axis]
        width = max(VECTOR, _BYTES // max(moved))
        fits = size % width == 0 and width * self._items <= math.prod(self._sides.values())
        return width if fits else VECTOR
