"""Keys of stages in the schedule table: kernel class, type and size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlc import ir
from dmlc.kernel.target import Profile, Subject
from dmlc.loops.phases import Phase
from dmlc.schedules import skinny
from dmlc.schedules.choose import find_product
from dmlc.schedules.gpu import lies_across


def describe(function: ir.Function, stages: Sequence[str], kind: str) -> Subject:
    """Key of stages of a class, by the largest tensor that they read or store."""
    tensors, known = function.tensors(), dict[str, int | None]()
    for name in stages:
        stage = function.stage(name)
        read = [] if stage is None else [load.tensor for load in stage.body.loads()]
        known |= {each: _count(tensors[each].extents) for each in (*read, name)}
    largest = max(known, key=lambda name: known[name] or 0)
    size = None if None in known.values() else known[largest]
    return Subject(kind, tensors[largest].dtype, size)


def describe_reduction(
    function: ir.Function, stages: Sequence[str], phases: Sequence[Phase], p: Profile
) -> Subject:
    """Key of stages with reductions, in these phases."""
    plain = describe(
        function, stages, "column_reduction" if lies_across(phases) else "row_reduction"
    )
    found = find_product(phases, p)
    if found is None:
        return plain
    sizes = found.settle(p.taken)
    is_skinny = p.grouped and skinny.find_shape(sizes) is not None
    kind = "convolution" if _has_windows(function, found.phase) else "product"
    is_open = found.phase.is_open
    outputs = None if is_open else sizes.batches * sizes.rows * sizes.columns
    return Subject("skinny_product" if is_skinny else kind, plain.dtype, outputs, sizes.batches,
                   sizes.rows, sizes.columns)  # fmt: skip


def _has_windows(function: ir.Function, phase: Phase) -> bool:
    """Whether adjacent outputs share loads: there are more loads than elements."""
    if phase.has_positions:
        return True
    tensors, extents = function.tensors(), phase.space.extents
    for view in phase.elements.buffers():
        moved = [e for e, s in zip(extents, view.strides, strict=True) if s]
        points, whole = _count(moved), _count(tensors[view.tensor].extents)
        if points is not None and whole is not None and points > whole:
            return True
    return False


def _count(extents: Sequence[object]) -> int | None:
    """Number of elements of a tensor; None if known at run time only."""
    numbers = [extent for extent in extents if isinstance(extent, int)]
    return math.prod(numbers) if len(numbers) == len(extents) else None
