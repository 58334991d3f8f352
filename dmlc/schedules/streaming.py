"""Memory footprint of a kernel, and the condition under which its stores bypass the caches: if the
footprint exceeds these."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import both, index, operate
from dmlc.kernel.frame import Frame
from dmlc.loops.element import Gather, View
from dmlc.loops.phases import Phase
from dmlc.scalars import DataType
from dmlc.sizes import known
from dmlc.transform.traffic import count_bytes

CACHE_LINE = 64
"""Size of a cache line in bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Streams:
    """Stores that bypass the caches: buffers, and conditions."""

    flags: dict[str, k.Expression]
    lead: k.Expression | None = None
    """Number of elements of a run before the first aligned vector."""


@dataclasses.dataclass(frozen=True, slots=True)
class Streaming:
    """Footprint of one kernel, and the footprint in bytes from which stores bypass the caches
    (None: never).

    A streaming store needs an aligned vector.
    """

    buffers: tuple[k.Buffer, ...]
    threshold: int | None

    def is_large(self, times: int = 1) -> bool:
        """Whether `times` times the kernel's footprint exceeds the caches."""
        touched = sum(b.bytes or 0 for b in self.buffers)
        return self.threshold is not None and times * touched >= self.threshold

    def open(
        self, phase: Phase, count: k.Scalar | None, frame: Frame, body: list[k.Statement]
    ) -> Streams:
        """Conditions under which results of a phase bypass the caches. `count` is the size of a
        packed run, if known at run time only."""
        if count is not None:
            return self._open_run(phase, count, frame, body)
        return self._open_rows(phase, frame, body)

    def _open_rows(self, phase: Phase, frame: Frame, body: list[k.Statement]) -> Streams:
        """Conditions if rows start at cache lines: vectors stay aligned, and the buffer's alignment
        is tested at run time."""
        if not self.is_large():
            return Streams({})
        flags: dict[str, k.Expression] = {}
        for view in self._list_streamed(phase):
            if not has_aligned_rows(view):
                continue
            aligned = operate("eq", k.Lead(view.tensor, CACHE_LINE), index(0))
            flags[view.tensor] = frame.name(body, "streaming", aligned)
        return Streams(flags)

    def _open_run(
        self, phase: Phase, count: k.Scalar, frame: Frame, body: list[k.Statement]
    ) -> Streams:
        """Conditions if vectors start at the first aligned element of the first result; other
        results are streamed if they agree."""
        views = self._list_streamed(phase)
        if self.threshold is None or not views:
            return Streams({})
        least = index(self._least_count(phase, self.threshold))
        large = frame.name(body, "streaming", operate("ge", count, least))
        first = k.Select(large, k.Lead(views[0].tensor, CACHE_LINE), index(0), k.INDEX)
        lead = frame.name(body, "lead", first)
        flags: dict[str, k.Expression] = {views[0].tensor: large}
        for view in views[1:]:
            same = operate("eq", k.Lead(view.tensor, CACHE_LINE), lead)
            flags[view.tensor] = frame.name(body, "streaming", both(large, same))
        return Streams(flags, lead)

    def _list_streamed(self, phase: Phase) -> Sequence[View]:
        """Results in memory that may be streamed; not BOOL, whose vectors must be narrowed to bytes
        first, and not what the kernel reads again."""
        again = {b.name for b in self.buffers if b.access is k.Access.READ_WRITE}
        results = [v for v, _ in phase.elements.results if not v.local]
        return [v for v in results if v.dtype is not DataType.BOOL and v.tensor not in again]

    def _least_count(self, phase: Phase, threshold: int) -> int:
        """Number of elements of a packed run from which stores may bypass the caches."""
        walked = {view.tensor for view in phase.elements.views() if any(view.strides)}
        fixed = sum(b.bytes or 0 for b in self.buffers if b.name not in walked)
        each = sum(b.dtype.bytes for b in self.buffers if b.name in walked)
        return max(0, -(-(threshold - fixed) // each))


def has_aligned_rows(view: View) -> bool:
    """Whether rows of a view are contiguous, and start at multiples of a cache line."""
    *outer, last = known(view.strides)
    return last == 1 and not any(step * view.dtype.bytes % CACHE_LINE for step in outer)


def measure_footprint(function: ir.Function, passes: Iterable[Phase]) -> dict[str, int | None]:
    """Bytes of each tensor that passes access, by name; None if a size is known at run time only.

    Each element of a view counts once. Several views of a tensor in one pass add up, to at most the
    tensor; later passes are assumed to access the same elements, up to their number. Loads at
    computed indices may access all of a tensor.
    """
    tensors = function.tensors()
    touched: dict[str, int | None] = {}
    for phase in passes:
        anywhere = {v.view for v in phase.elements.values if isinstance(v, Gather)}
        own: dict[str, int | None] = {}
        for view in phase.elements.buffers():
            tensor = tensors.get(view.tensor)
            whole = None if tensor is None else count_bytes(tensor)
            count = phase.count_steps(view)
            size = None if count is None else count * view.dtype.bytes
            if view in anywhere and whole is not None:
                size = whole
            before = own.get(view.tensor, 0)
            both = None if size is None or before is None else size + before
            own[view.tensor] = both if both is None or whole is None else min(both, whole)
        for name, size in own.items():
            before = touched.get(name, 0)
            touched[name] = None if size is None or before is None else max(size, before)
    return touched
