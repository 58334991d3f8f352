"""Scans of whole rows, as kernels of their own have them.

    Y[i] = sum[k : n where k <= i](X[k])

Rows may be scanned up to each element or short of it, and from the last one back.
"""

from __future__ import annotations

import dataclasses

from dmlc.ir import Body, Function, Index, Stage
from dmlc.ir.builder import BodyBuilder
from dmlc.scalars import DataType
from dmlc.transform.scans import find_scan


@dataclasses.dataclass(frozen=True, slots=True)
class Prefix:
    """A stage that scans its rows."""

    stage: Stage
    axis: int
    """That of the rows."""
    point: Index
    value: int
    """What is scanned."""
    goes_back: bool
    is_inclusive: bool
    """Whether an element is among those that it reduces."""

    def place(self, builder: BodyBuilder) -> Body:
        """What is scanned, as the body of a stage of the same domain."""
        instructions = self.stage.body.instructions
        own = builder.add(Index(self.axis))
        moved = {n: own for n, each in enumerate(instructions) if each == self.point}
        return builder.make(builder.copy(self.stage.body, moved)[self.value])


def find_prefix(stage: Stage) -> Prefix | None:
    """How a stage scans its rows; None where it does not, or does more."""
    reduction, body = stage.reduction, stage.body
    if reduction is None or len(reduction.axes) != 1 or body.dtype is DataType.BOOL:
        return None
    scan = find_scan(stage)
    if scan is None or scan.stage is not stage or not (scan.has_rows and scan.is_worth_it):
        return None
    ((index, _),) = scan.last.factors
    is_inclusive = scan.last.constant == 0
    return Prefix(stage, index.axis, scan.point, body.result, scan.goes_back, is_inclusive)


def list_prefixes(function: Function) -> list[str]:
    """The stages of a function that scan their rows, and lie in memory without gaps."""
    return [
        stage.name
        for stage in function.stages
        if find_prefix(stage) is not None
        and ((result := function.result(stage.name)) is None or result.strides is None)
    ]
