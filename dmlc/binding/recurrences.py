"""Recurrences during binding: their names denote tensors of which some steps are known.

A recurrence reads elements of its own current step, if they are defined above, or of the step
before. `sort_stages` collects the stages of the loop after the last statement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.binding.builder import NodeBuilder
from dmlc.binding.nodes import Node
from dmlc.binding.values import span_text
from dmlc.ir.verify import check_loop
from dmlc.scalars import DataType
from dmlc.source import DmlcError, Note, Span
from dmlc.transform.loops import gather_loop


@dataclasses.dataclass(slots=True)
class Course:
    """Recurrence under construction."""

    steps: ir.Extent
    time: Node
    """The index variable of the steps."""
    backwards: bool | None = None
    """Whether it reads the following step, `t + 1`; None before the first such read."""
    first_read: Span | None = None


@dataclasses.dataclass(slots=True)
class Recurrent:
    """Name that an open recurrence defines."""

    stage: str
    before: str
    """Name of the tensor that holds the step before."""
    extents: tuple[ir.Extent, ...]
    span: Span
    course: Course
    dtype: DataType | None = None
    """None until inferred; until then a read takes the type of the other operand."""
    truth: bool = False
    """Whether it counts as a boolean until its type is known; the inference tries a number
    first."""
    number: bool = False
    """Whether it is known to be a number, of any type."""
    defined: bool = False
    """Whether the current step is defined already."""
    delayed: bool = False
    """Whether the step before is read."""

    def find_offset(self, builder: NodeBuilder, position: Node, span: Span) -> int:
        """Distance of a read from the current step: 0 or 1, against the direction of the loop.
        Raises `DmlcError` for any other."""
        course = self.course
        offset = _find_offset(builder, position, course.time)
        if offset not in (-1, 0, 1):
            raise DmlcError(
                f"a recurrence reads the step before, and {span_text(span)} is none that is a "
                "step before or after",
                span,
                ["the first index is that of the steps: write t - 1, or t + 1 where the last "
                 "place is the first step"], code="E0413",
            )  # fmt: skip
        if offset == 0:
            if not self.defined:
                raise DmlcError(
                    f"'{self.stage}' is read at its own step before it is defined there",
                    span,
                    [Note("it is defined here", self.span)],
                    code="E0413",
                )
            return 0
        if course.backwards is None:
            course.backwards, course.first_read = offset == 1, span
        if course.backwards is not (offset == 1):
            notes = [] if course.first_read is None else [Note("and here", course.first_read)]
            raise DmlcError(
                "a recurrence goes one way, and this reads the other", span, notes, code="E0413"
            )
        self.delayed = True
        return offset


def _find_offset(builder: NodeBuilder, position: Node, time: Node) -> int | None:
    """Offset of an index from the current step; None if unknown."""
    if position.free != time.free:
        return None
    stage = builder.positions.probe(position)
    if stage is None:
        return None
    form = ir.find_affine(stage.body)[stage.body.result]
    if form is None or form.factors != ((ir.Index(0), 1),):
        return None
    return form.constant


def sort_stages(
    stages: Sequence[ir.Stage], names: Mapping[str, Recurrent], span: Span
) -> tuple[list[ir.Stage], ir.Loop | None]:
    """Stages of a recurrence with those of its loop adjacent, and the loop; None if nothing reads a
    step before. Raises `DmlcError` for stages that no loop computes."""
    delays = {
        r.before: ir.Delay(r.before, r.dtype or DataType.FLOAT32, r.extents, r.stage, r.span)
        for r in names.values()
        if r.delayed
    }
    backwards = any(r.course.backwards for r in names.values())
    found, loop = gather_loop(stages, list(delays.values()), backwards)
    if loop is None:
        return found, None
    own = tuple(stage for stage in found if stage.name in loop.stages)
    made = ir.Function("recurrence", (), own, (), loops=(loop,))
    fault = check_loop(made, loop, 0)
    if fault is not None:
        raise DmlcError(
            f"this recurrence is none: {fault.node[1:]}: {fault.why}",
            fault.span or span,
            code="E0413",
        )
    return found, loop
