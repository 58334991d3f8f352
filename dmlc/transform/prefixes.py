"""Prefix scans of whole rows, which have kernels of their own.

    Y[i] = sum[k : n where k <= i](X[k])

Scans may be inclusive or exclusive, and forwards or backwards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container

from dmlc.ir import Body, Extent, Function, Index, Load, Stage, reads_own_place
from dmlc.ir.builder import BodyBuilder
from dmlc.scalars import DataType
from dmlc.sizes import find_symbols
from dmlc.transform.scans import find_scan, settle_extents


@dataclasses.dataclass(frozen=True, slots=True)
class Prefix:
    """A stage that scans its rows."""

    stage: Stage
    axis: int
    """Axis of the rows."""
    point: Index
    value: int
    """The scanned value."""
    goes_back: bool
    is_inclusive: bool
    """Whether an element's own value is included."""

    def place(self, builder: BodyBuilder) -> Body:
        """Body of the scanned value, for a stage of the same domain."""
        instructions = self.stage.body.instructions
        own = builder.add(Index(self.axis))
        moved = {n: own for n, each in enumerate(instructions) if each == self.point}
        return builder.make(builder.copy(self.stage.body, moved)[self.value])

    def part_extents(self) -> tuple[tuple[Extent, ...], tuple[Extent, ...], tuple[Extent, ...]]:
        """Extents of the axes before that of the rows, of that axis, and after it."""
        extents, axis = self.stage.extents, self.axis
        return extents[:axis], extents[axis : axis + 1], extents[axis + 1 :]


def find_prefix(stage: Stage) -> Prefix | None:
    """Scan of a stage; None if it is none, or computes more. Rows of open size count as long."""
    reduction, body = stage.reduction, stage.body
    if reduction is None or len(reduction.axes) != 1 or body.dtype is DataType.BOOL:
        return None
    settled = settle_extents(stage)
    scan = find_scan(settled)
    if scan is None or scan.stage is not settled or not (scan.has_rows and scan.is_worth_it):
        return None
    ((index, _),) = scan.last.factors
    if stage.extent(index) != stage.extent(scan.point):
        return None
    is_inclusive = scan.last.constant == 0
    return Prefix(stage, index.axis, scan.point, body.result, scan.goes_back, is_inclusive)


def list_prefixes(
    function: Function, paired: Container[DataType] = (), *, walks: bool = False
) -> dict[str, tuple[str, ...]]:
    """Stages that scan their rows and are contiguous in memory; each with the stage that stores the
    scan in another type, unless that type is in `paired`. With `walks`, only those of open sizes:
    others are scanned in blocks."""
    found: dict[str, tuple[str, ...]] = {}
    for stage in function.stages:
        if (walks and not find_symbols(stage.sizes)) or find_prefix(stage) is None:
            continue
        if (result := function.result(stage.name)) is None:
            stored = _find_stored(function, stage)
            kept = stored is not None and stored.dtype not in paired
            found[stage.name] = (stored.name,) if stored is not None and kept else ()
        elif result.strides is None:
            found[stage.name] = ()
    return found


def _find_stored(function: Function, stage: Stage) -> Stage | None:
    """The only reader of a stage, if it only converts it to a narrower type."""
    readers = function.readers().get(stage.name, ())
    reader = function.stage(readers[0]) if len(readers) == 1 else None
    if reader is None or reader.reduction is not None or not reader.dtype.is_storage_only:
        return None
    load, result = reader.body.instructions[reader.body.result], function.result(reader.name)
    same = isinstance(load, Load) and load.tensor == stage.name and reads_own_place(reader, load)
    is_packed = result is None or result.strides is None
    return reader if same and is_packed and reader.extents == stage.extents else None
