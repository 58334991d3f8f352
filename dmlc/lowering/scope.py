"""Static knowledge at a point of a kernel under construction."""

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
class IndexRange:
    """Range of a dimension that the inner loops iterate over."""

    start: k.Expression | None = None
    """Start; 0 if None."""
    stop: k.Expression | None = None
    """Stop; the end of the dimension if None."""
    is_loose: bool = False
    """Whether it may overrun the dimension."""


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Emitted part of a phase."""

    opened: int = -1
    """Innermost scope whose values have been emitted."""
    emitter: Emitter | None = None
    """Replacement for the phase's emitter."""
    conditions: tuple[int, ...] = ()
    """Conditions of its reductions that remain to be tested."""
    state: Accumulators | None = None
    streams: Streams | None = None
    based: frozenset[Dim] = frozenset()
    """Dimensions included in `bases`."""
    bases: Mapping[View, k.Expression] = dataclasses.field(default_factory=dict[View, k.Expression])
    """Offsets of views, as far as known along some dimensions."""


_NO_SPAN, _NOTHING = IndexRange(), Progress()


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """Static knowledge in the body of a loop."""

    depth: int = 0
    """Number of enclosing loops."""
    lanes: int = 1
    spans: Mapping[Dim, IndexRange] = dataclasses.field(default_factory=dict[Dim, IndexRange])
    known: Mapping[Dim, k.Expression] = dataclasses.field(default_factory=dict[Dim, k.Expression])
    """Fixed index along each dimension."""
    output: k.Expression = ZERO
    """Number of the output in its block."""
    work: Mapping[int, Progress] = dataclasses.field(default_factory=dict[int, Progress])
    """State of each phase, by number."""
    used: frozenset[str] = frozenset()
    """Axes of work items used by enclosing loops."""
    is_own: k.Expression | None = None
    """Whether this work item stores the results; None if always. For a tile, whether the point is
    in bounds."""
    is_there: k.Expression | None = None
    """Whether the point is in bounds; None if always."""
    origins: Mapping[Dim, k.Expression] | None = None
    """Start of a tile that fills a buffer."""
    packs: Mapping[str, tuple[k.Local | str, k.Expression]] = dataclasses.field(
        default_factory=dict[str, "tuple[k.Local | str, k.Expression]"]
    )
    """Target of stores that are collected: the word or array of each buffer, and the element's
    number in it."""

    def span(self, dim: Dim) -> IndexRange:
        return self.spans.get(dim, _NO_SPAN)

    def start(self, dim: Dim) -> k.Expression:
        """Start of a dimension's range."""
        return self.span(dim).start or ZERO

    def narrow(
        self,
        dim: Dim,
        *,
        start: k.Expression | None = None,
        stop: k.Expression | None = None,
        is_loose: bool | None = None,
    ) -> Scope:
        """Scope with a narrower range of a dimension."""
        known = self.span(dim)
        is_loose = known.is_loose if is_loose is None else is_loose
        if start is None and stop is None and is_loose == known.is_loose:
            return self
        span = IndexRange(start or known.start, stop or known.stop, is_loose)
        return dataclasses.replace(self, spans={**self.spans, dim: span})

    def fix(self, points: Mapping[Dim, k.Expression]) -> Scope:
        """Scope with further dimensions fixed."""
        return dataclasses.replace(self, known={**self.known, **points})

    def progress(self, number: int) -> Progress:
        return self.work.get(number, _NOTHING)

    def note(self, number: int, **changes: Any) -> Scope:
        """Scope with changes to the state of a phase."""
        progress = dataclasses.replace(self.progress(number), **changes)
        return dataclasses.replace(self, work={**self.work, number: progress})


Inside: TypeAlias = Callable[[Scope], list[k.Statement]]
"""Statements of a body, given its scope."""
