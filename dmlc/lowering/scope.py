"""What is known at a place of a kernel in the making."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import ZERO
from dmlc.loops.element import View
from dmlc.loops.nodes import Dim
from dmlc.lowering.accumulators import Accumulators
from dmlc.lowering.emit import Emitter
from dmlc.schedules.streaming import Streams


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """The part of a dimension that the loops inside walk."""

    start: k.Expression | None = None
    """Where it starts; elsewhere that is 0."""
    stop: k.Expression | None = None
    """Where it ends; elsewhere that is the end of the dimension."""
    is_loose: bool = False
    """Whether it may go beyond the end of the dimension."""


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """What is written of a phase so far."""

    opened: int = -1
    """The innermost scope whose values are written."""
    emitter: Emitter | None = None
    """In place of that of the whole phase."""
    conditions: tuple[int, ...] = ()
    """What is still to be tested of what its reductions demand."""
    state: Accumulators | None = None
    streams: Streams | None = None
    based: frozenset[Dim] = frozenset()
    """The dimensions along which `bases` are."""
    bases: Mapping[View, k.Expression] = dataclasses.field(default_factory=dict[View, k.Expression])
    """What positions come to that are known along some dimensions."""


_NO_SPAN, _NOTHING = Span(), Progress()


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What is known in the body of a loop."""

    depth: int = 0
    """The loops around."""
    lanes: int = 1
    spans: Mapping[Dim, Span] = dataclasses.field(default_factory=dict[Dim, Span])
    known: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """The point along each dimension that is settled."""
    output: k.Expression = ZERO
    """Which output of a block it is."""
    work: Mapping[int, Progress] = dataclasses.field(default_factory=dict[int, Progress])
    """By the numbers of phases."""
    used: frozenset[str] = frozenset()
    """The axes of the work items that loops around have taken."""
    is_own: k.Expression | None = None
    """Whether what is computed is this work item's to store; None where all is. Of a tile, whether
    it is there at all."""
    is_there: k.Expression | None = None
    """Whether the point is one, and not beyond the end; None where all are."""
    origins: Mapping[Dim, k.Expression] | None = None
    """Where a tile starts that is put into a buffer."""
    packs: Mapping[str, tuple[k.Local | str, k.Expression]] = dataclasses.field(
        default_factory=dict[str, "tuple[k.Local | str, k.Expression]"]
    )
    """What is put together of what is stored: the word or array of each buffer, and the number of
    the element in it."""

    def span(self, dim: Dim) -> Span:
        return self.spans.get(dim, _NO_SPAN)

    def start(self, dim: Dim) -> k.Expression:
        """Where the part of a dimension starts that is walked here."""
        return self.span(dim).start or ZERO

    def narrow(
        self,
        dim: Dim,
        *,
        start: k.Expression | None = None,
        stop: k.Expression | None = None,
        is_loose: bool | None = None,
    ) -> Scope:
        """The same where more is known of a span."""
        known = self.span(dim)
        is_loose = known.is_loose if is_loose is None else is_loose
        if start is None and stop is None and is_loose == known.is_loose:
            return self
        span = Span(start or known.start, stop or known.stop, is_loose)
        return dataclasses.replace(self, spans={**self.spans, dim: span})

    def settle(self, points: Mapping[Dim, k.Expression]) -> Scope:
        """The same with some dimensions settled."""
        return dataclasses.replace(self, known={**self.known, **points})

    def progress(self, number: int) -> Progress:
        return self.work.get(number, _NOTHING)

    def note(self, number: int, **changes: Any) -> Scope:
        """The same, further on with a phase."""
        progress = dataclasses.replace(self.progress(number), **changes)
        return dataclasses.replace(self, work={**self.work, number: progress})


Inside: TypeAlias = Callable[[Scope], list[k.Statement]]
"""The statements inside others, from what is known there."""
