"""Fewer, longer dimensions: how the domain of an element-wise kernel is walked.

The order in which independent elements are computed is free. So the dimensions are sorted by
how the first result lies in memory, and neighbours that every operand walks as one are merged.
"""

from __future__ import annotations

import dataclasses
import math

from dmlc.ir.nodes import Extent
from dmlc.kernel.element import Elements, View


@dataclasses.dataclass(frozen=True, slots=True)
class Walk:
    """Dimensions to walk, outermost first, and each view's strides along them in elements."""

    sizes: tuple[Extent, ...]
    strides: dict[View, tuple[int, ...]]
    packed: bool
    """One dimension, and every view either walks it element by element or stands still: nothing
    but the number of elements depends on the tensors' sizes."""

    @property
    def count(self) -> Extent:
        """The number of elements."""
        if len(self.sizes) == 1:
            return self.sizes[0]
        return math.prod(e for e in self.sizes if isinstance(e, int))


def collapse(elements: Elements) -> Walk:
    """The shortest walk over the kernel's domain."""
    views = tuple(dict.fromkeys(elements.views()))
    symbols = [e for e in elements.domain if isinstance(e, str)]
    if symbols:
        strides = {view: view.strides for view in views}
        return Walk(elements.domain, strides, packed=not any(v.offset for v in views))

    sizes = [e for e in elements.domain if isinstance(e, int)]
    if math.prod(sizes) <= 1:
        # No step is ever taken, so any will do: the same as for every packed tensor.
        return Walk(
            (math.prod(sizes),), dict.fromkeys(views, (1,)), not any(v.offset for v in views)
        )

    first = elements.results[0][0]
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    axes.sort(key=lambda axis: -first.strides[axis])
    merged: list[tuple[int, tuple[int, ...]]] = []
    for axis in axes:
        size, steps = sizes[axis], tuple(view.strides[axis] for view in views)
        if merged and all(o == i * size for o, i in zip(merged[-1][1], steps, strict=True)):
            size *= merged.pop()[0]
        merged.append((size, steps))
    strides = {view: tuple(steps[k] for _, steps in merged) for k, view in enumerate(views)}
    packed = len(merged) == 1 and all(
        strides[view][0] in (0, 1) and not view.offset for view in views
    )
    return Walk(tuple(size for size, _ in merged), strides, packed)
