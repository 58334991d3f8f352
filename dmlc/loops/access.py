"""Analysis of the indices in a stage's body: affine loads, and intervals of indices.

An index is *even* along the indices it depends on if it is a sum of these, each times a
non-negative constant, plus a constant: strides and an offset then describe it. Every other index is
a value that a kernel computes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.index.affine import Affine
from dmlc.index.intervals import Interval, is_within, meet
from dmlc.ir.below import SizeBounds
from dmlc.ir.index import IndexFacts, find_affine, find_part, read_comparison
from dmlc.ir.inside import is_inside_along
from dmlc.ir.ranges import Ranges, number_ranges, table_ranges
from dmlc.kernel.target import RUN_TIME_COUNT
from dmlc.scalars import DataType
from dmlc.sizes import Measure, parse_size


@dataclasses.dataclass(frozen=True, slots=True)
class Positions:
    """Facts about the indices in one body."""

    ranges: tuple[Interval, ...]
    """Interval of each INDEX value, regardless of the guard."""
    needed: frozenset[int]
    """Values that must be computed: all except those used by even indices alone."""
    sizes: Mapping[str, tuple[ir.Extent, ...]]
    """Extents of the tensors read."""
    forms: tuple[Affine[ir.Index] | None, ...]
    along: Mapping[tuple[int, str], bool]
    """Whether an index is in bounds of an axis of open size, regardless of the guard."""

    def is_inside(self, load: ir.Load, position: int) -> bool:
        """Whether an index of a load is in bounds, regardless of the guard."""
        return all(
            self.is_within(number, size)
            for number, size in zip(load.indices, self.sizes[load.tensor], strict=True)
            if number == position
        )

    def is_within(self, number: int, size: ir.Extent) -> bool:
        """Whether a value is a valid index along an axis of that size, regardless of the guard."""
        if isinstance(size, str):
            return self.along[number, size]
        return is_within(self.ranges[number], max(size, 1))

    def list_forms(self, load: ir.Load) -> tuple[Affine[ir.Index] | None, ...]:
        """Affine form of each index of a load, if it is even and in bounds; else None. Along an
        axis of run-time stride, the form must start at 0, as offsets are numbers."""
        found: list[Affine[ir.Index] | None] = []
        extents = self.sizes[load.tensor]
        for axis, (number, extent) in enumerate(zip(load.indices, extents, strict=True)):
            form = self._choose_form(number, extent)
            is_open = any(isinstance(e, str) for e in extents[axis + 1 :])
            found.append(None if form is not None and form.constant and is_open else form)
        return tuple(found)

    def _choose_form(self, number: int, size: ir.Extent) -> Affine[ir.Index] | None:
        form = self.forms[number]
        if form is None or any(factor < 0 for _, factor in form.factors):
            return None
        return form if self.is_within(number, size) else None


MOST_ALONE = 32
"""Largest number of points of an output that work items never share: pieces of a reduction have
more."""


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """Guard `piece * length + point < size` of a reduction: the end of the last of the pieces that
    an axis of `size` elements is cut into."""

    position: int
    """The compared position, as a value of the body."""
    piece: ir.Index
    point: ir.Index
    length: int
    size: Measure


def find_end(stage: ir.Stage) -> End | None:
    """End that the guard of a reduction is; None if it is none."""
    body = stage.body
    compared = () if body.guard is None else read_comparison(body.instructions, body.guard)
    for _, position, bound in (each for each in compared if each[0] == "lt"):
        form, size = find_affine(body)[position], _read_size(body.instructions[bound])
        if form is None or size is None or form.constant:
            continue
        for (piece, step), (point, factor) in itertools.permutations(form.factors, 2):
            is_whole = len(form.factors) == 2 and factor == 1 and stage.extent(point) == step
            if is_whole and step > MOST_ALONE and point.reduced and not piece.reduced:
                return End(position, piece, point, step, size)
    return None


def _read_size(instruction: ir.Instruction) -> Measure | None:
    """Size that an instruction gives; None for others."""
    match instruction:
        case ir.Symbol(name=name):
            return parse_size(name)
        case ir.Constant(dtype=DataType.INDEX, value=value):
            return int(value)
        case _:
            return None


def read_positions(stage: ir.Stage, function: ir.Function, end: End | None = None) -> Positions:
    """Facts about the indices in a stage's body. Where the guard is the `end` of pieces, loops
    visit no points beyond it, and it is not computed."""
    body, tensors = stage.body, function.tensors()
    read = (tensors[load.tensor] for load in body.loads())
    numbers = number_ranges(each for each in read if isinstance(each, ir.Stage))
    ranges = find_ranges(stage, table_ranges(function.tables) | numbers)
    if end is not None and isinstance(end.size, int):
        below = meet(ranges[end.position], (0, end.size - 1))
        ranges = (*ranges[: end.position], below, *ranges[end.position + 1 :])
    sizes = {load.tensor: tensors[load.tensor].extents for load in body.loads()}
    along = _find_along(stage, sizes, guarded=end is not None)
    positions = Positions(ranges, frozenset(), sizes, find_affine(body), along)
    needed: set[int] = {body.result}
    if body.guard is not None and end is None:
        needed.add(body.guard)
    for number in range(len(body.instructions) - 1, -1, -1):
        if number not in needed:
            continue
        instruction = body.instructions[number]
        if isinstance(instruction, ir.Load):
            chosen = positions.list_forms(instruction)
            needed.update(
                position
                for position, form in zip(instruction.indices, chosen, strict=True)
                if form is None
            )
        else:
            needed.update(ir.operands(instruction))
    return dataclasses.replace(positions, needed=frozenset(needed))


def join_digits(body: ir.Body, terms: Sequence[tuple[int, Measure]]) -> list[tuple[int, Measure]]:
    """Terms of an offset (value number and stride), with the digits of a number recombined:
    `(v / 4) * 12 + (v % 4) * 3` is `v * 3`."""
    found = list(terms)
    while (pair := _find_digits(body, found)) is not None:
        high, low, whole = pair
        found[low] = (whole, found[low][1])
        del found[high]
    return found


def _find_digits(
    body: ir.Body, terms: Sequence[tuple[int, Measure]]
) -> tuple[int, int, int] | None:
    """Two terms that are a quotient and the remainder of the same number, and that number."""
    for low, (over, step) in enumerate(terms):
        (value, size, count), remainder = find_part(body, over), body.instructions[over]
        is_last = isinstance(remainder, ir.Apply) and remainder.operation.name == "mod"
        if count is None or not is_last:
            continue
        whole = ir.operands(remainder)[0]
        left = None if value == whole else find_part(body, whole)[2]
        wanted = value, size * count, None if left is None else left // count
        for high, (quotient, other) in enumerate(terms):
            if other == step * count and find_part(body, quotient) == wanted:
                return high, low, whole
    return None


def _find_along(
    stage: ir.Stage, sizes: Mapping[str, tuple[ir.Extent, ...]], *, guarded: bool
) -> dict[tuple[int, str], bool]:
    """Which indices are in bounds of axes of open size at every point, or those that are not
    `guarded` out."""
    asked = {
        (number, size): None
        for load in stage.body.loads()
        for number, size in zip(load.indices, sizes[load.tensor], strict=True)
        if isinstance(size, str)
    }
    if not asked:
        return {}
    body = stage.body if guarded else dataclasses.replace(stage.body, guard=None)
    free = dataclasses.replace(stage, body=body)
    ranges = Ranges.of(free)
    return {key: is_inside_along(free, key[0], key[1], ranges) for key in asked}


def _divides_by_size(body: ir.Body, instruction: ir.Instruction) -> bool:
    """Whether a value is a quotient or remainder by a run-time size."""
    if not isinstance(instruction, ir.Apply) or instruction.operation.name not in ("div", "mod"):
        return False
    return isinstance(body.instructions[instruction.operands[1]], ir.Symbol)


def find_ranges(stage: ir.Stage, tables: Mapping[str, Interval]) -> tuple[Interval, ...]:
    """Interval of each INDEX value over all points: by interval analysis, then by evaluation where
    possible."""
    facts = IndexFacts(stage)
    ranges, found = Ranges(stage, tables), list[Interval]()
    for number, instruction in enumerate(stage.body.instructions):
        reach = ranges.add(instruction)
        if ir.value_type(instruction) is DataType.INDEX and math.inf in (-reach[0], reach[1]):
            values = facts.evaluate([number])
            if values is not None:
                reach = (int(values[0].min()), int(values[0].max())) if values[0].size else (0, 0)
            elif isinstance(instruction, ir.Index):
                reach = (0, RUN_TIME_COUNT - 1)
            ranges.settle(number, reach)
        elif _divides_by_size(stage.body, instruction):
            reach = meet(reach, SizeBounds(stage, ranges).interval(number))
            ranges.settle(number, reach)
        found.append(reach)
    return tuple(found)
