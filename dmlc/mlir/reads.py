"""Reads of a stage's body: operands of `linalg.generic`, or single elements.

A read at indices that are sums of loop indices, each times a positive number, is an operand with an
affine map, if no point is out of bounds. Since maps begin at 0, an offset, a stride or a smaller
size becomes a slice of the operand. Any other read is `tensor.extract`. A map is evaluated at all
points: so a read that only the guard keeps in bounds is not an operand, and is clamped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc.index.affine import Affine
from dmlc.index.intervals import Interval
from dmlc.ir import Extent, Index, Load, Stage
from dmlc.ir.index import find_affine, reach_back
from dmlc.ir.inside import find_outside
from dmlc.ir.nodes import Tensor
from dmlc.ir.ranges import Ranges


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """Part of a tensor's axis that an operand reads."""

    offset: int
    size: Extent
    stride: int
    factors: tuple[tuple[Index, int], ...]
    """Loop indices along it; empty if it reads one element, and lacks the axis."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """Tensor, or slice of it, that is read through maps."""

    tensor: str
    cuts: tuple[Cut, ...]
    extents: tuple[Extent, ...]
    """Sizes of the whole tensor."""

    @property
    def is_whole(self) -> bool:
        return all(
            cut.factors and (cut.offset, cut.size, cut.stride) == (0, extent, 1)
            for cut, extent in zip(self.cuts, self.extents, strict=True)
        )

    @property
    def kept(self) -> tuple[Cut, ...]:
        """Axes of the operand."""
        return tuple(cut for cut in self.cuts if cut.factors)

    def named(self) -> set[Index]:
        """Loop indices whose extents follow from the operand's sizes."""
        return {cut.factors[0][0] for cut in self.kept if _runs(cut)}


@dataclasses.dataclass(frozen=True, slots=True)
class Extraction:
    """Read of one element."""

    held: tuple[int, ...]
    """Axes along which the index is clamped."""


def _runs(cut: Cut) -> bool:
    """Whether an axis of an operand is a single loop index with factor 1."""
    return len(cut.factors) == 1 and cut.factors[0][1] == 1


def plan_reads(
    stage: Stage, tensors: Mapping[str, Tensor], reach: Mapping[str, Interval]
) -> dict[int, Operand | Extraction]:
    """Form of each load of a stage that has points, by the number of its value. `reach` has the
    ranges of tensors of whole numbers."""
    # Without the guard: what has to be proved holds at every point.
    free = dataclasses.replace(stage, body=dataclasses.replace(stage.body, guard=None))
    ranges = Ranges(free, reach)
    forms = find_affine(stage.body)
    found: dict[int, Operand | Extraction] = {}
    for number, instruction in enumerate(stage.body.instructions):
        if isinstance(instruction, Load):
            extents = tensors[instruction.tensor].extents
            cuts = _slice(stage, [forms[i] for i in instruction.indices], extents)
            if cuts is not None:
                found[number] = Operand(instruction.tensor, cuts, extents)
            else:
                outside = find_outside(free, instruction, ranges, extents)
                found[number] = Extraction(tuple(axis for axis, _ in outside))
        ranges.add(instruction)
    return found


def _slice(
    stage: Stage, forms: Sequence[Affine[Index] | None], extents: Sequence[Extent]
) -> tuple[Cut, ...] | None:
    """Parts of a tensor's axes for these indices; None if no operand is possible."""
    cuts: list[Cut] = []
    for form, extent in zip(forms, extents, strict=True):
        cut = None if form is None else _slice_axis(stage, form, extent)
        if cut is None:
            return None
        cuts.append(cut)
    return tuple(cuts)


def _slice_axis(stage: Stage, form: Affine[Index], extent: Extent) -> Cut | None:
    sizes = [stage.extent(index) for index, _ in form.factors]
    if len(sizes) == 1 and form == Affine(0, form.factors) and sizes[0] == extent:
        index, factor = form.factors[0]
        return Cut(0, extent, 1, ((index, factor),)) if factor == 1 else None
    last = form.constant
    for (_, factor), size in zip(form.factors, sizes, strict=True):
        if not isinstance(size, int) or factor < 1:
            return None
        last += factor * (size - 1)
    if form.constant < 0 or not isinstance(extent, int) or last >= extent:
        return None
    if len(form.factors) == 1:
        (index, factor), size = form.factors[0], sizes[0]
        return Cut(form.constant, size or 0, factor, ((index, 1),))
    if not form.constant and form.factors:
        return Cut(0, extent, 1, form.factors)
    return Cut(form.constant, last - form.constant + 1, 1, form.factors)


def list_used(stage: Stage, reads: Mapping[int, Operand | Extraction]) -> list[int]:
    """Values that are computed in the body, in order, without the indices of operands."""
    body = stage.body
    roots = [body.result] if body.guard is None else [body.result, body.guard]
    leaves = {number for number, read in reads.items() if isinstance(read, Operand)}
    return reach_back(body.instructions, roots, leaves=leaves)


def list_missing(stage: Stage, given: Sequence[Operand]) -> list[Index]:
    """Reduction indices that no operand determines: an additional operand must have their sizes."""
    named = {index for operand in given for index in operand.named()}
    return [index for index in stage.indices if index.reduced and index not in named]
