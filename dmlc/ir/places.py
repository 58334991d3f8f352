"""Memory layout of tensors, and loads at the stage's own index."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.ir.nodes import Constant, Extent, Index, Load, Stage
from dmlc.parameters import expect
from dmlc.scalars import DataType as T
from dmlc.sizes import Measure, estimate, find_least, measure


def overlaps(sizes: Sequence[Extent], strides: Sequence[Extent]) -> bool:
    """Whether two elements of a tensor of these extents and strides may share memory.

    Conservative: true for every layout that overlaps, but also for interleaved ones that do not,
    and for layouts that overlap for some values of the symbols only.
    """
    if 0 in sizes:
        return False
    axes = [(measure(s), measure(n)) for s, n in zip(strides, sizes, strict=True) if n != 1]
    reach: Measure = 0
    for stride, size in sorted(axes, key=lambda axis: (estimate(axis[0]), estimate(axis[1]))):
        if find_least(stride - reach) <= 0:
            return True
        reach = reach + (size - 1) * stride
    return False


def find_along(
    stage: Stage, load: Load, extents: Sequence[Extent]
) -> tuple[Index | None, ...] | None:
    """Index along each axis of a tensor of these extents at which a load reads: one that ranges
    over the whole axis, or None along an axis of size 1. None if the load has any other index."""
    found: list[Index | None] = []
    for extent, number in zip(extents, load.indices, strict=True):
        match stage.body.instructions[number]:
            case Index() as index if stage.extent(index) == extent != 1:
                found.append(index)
            case Index() | Constant() if extent == 1:
                found.append(None)
            case _:
                return None
    return tuple(found)


def reads_own_place(stage: Stage, load: Load) -> bool:
    """Whether a load reads the element at the same index as the one that the stage computes."""
    expect("stage", stage, Stage, "an ir.Stage")
    return is_own_place(stage, expect("load", load, Load, "an ir.Load"))


def is_own_place(stage: Stage, load: Load) -> bool:
    """`reads_own_place` without checking the types of its arguments."""
    if stage.reduction is not None or len(load.indices) != len(stage.extents):
        return False
    for axis, number in enumerate(load.indices):
        match stage.body.instructions[number]:
            case Index(axis=own, reduced=False) if own == axis:
                pass
            case Constant(dtype=T.INDEX, value=0) if stage.extents[axis] == 1:
                pass
            case _:
                return False
    return True
