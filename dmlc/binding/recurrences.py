"""Recurrences while they are bound: the names that stand for tensors of which a part is there.

What a recurrence reads of itself is an element of the same step, of what is defined above, or one
of the step before. The stages that this makes a loop of are sorted out once all of its statements
are there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dmlc import ir
from dmlc.binding.builder import Builder
from dmlc.binding.nodes import Node
from dmlc.binding.values import span_text
from dmlc.ir.verify import check_loop
from dmlc.scalars import DataType
from dmlc.source import DmlcError, Note, Span
from dmlc.transform.loops import gather_loop


@dataclasses.dataclass(slots=True)
class Course:
    """A recurrence in the making."""

    steps: int
    time: Node
    """The index variable of the steps."""
    backwards: bool | None = None
    """Whether it reads what follows, `t + 1`; None until something is read."""
    first_read: Span | None = None


@dataclasses.dataclass(slots=True)
class Recurrent:
    """A name that a recurrence defines, while it does."""

    stage: str
    before: str
    """What the tensor is called that holds the step before."""
    extents: tuple[ir.Extent, ...]
    span: Span
    course: Course
    dtype: DataType | None = None
    """None until it is known: then what is read of it takes the type of what it meets."""
    truth: bool = False
    """Whether it is taken for a boolean, and for no number, until then: where no `else` says."""
    number: bool = False
    """Whether it is known to be a number, of whatever type."""
    defined: bool = False
    """Whether this step has it already."""
    delayed: bool = False
    """Whether the step before is read."""

    def find_offset(self, builder: Builder, position: Node, span: Span) -> int:
        """How far a step that is read lies from the one at hand: 0, or 1 to where it comes from.
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


def _find_offset(builder: Builder, position: Node, time: Node) -> int | None:
    """How far a position lies from the step at hand; None where that is not known."""
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
    """The stages of a recurrence, those of its loop together, and the loop; None where nothing
    reads a step before. Raises `DmlcError` for stages that no loop computes."""
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
