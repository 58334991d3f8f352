"""One kernel in the making: what the ways to walk a domain share.

Names, scalar arguments, index arithmetic from strides, and when stores may pass the caches by.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.collapse import Walk
from dmlc.kernel.element import Elements, View
from dmlc.kernel.emit import Names, add, index, multiply, operate
from dmlc.kernel.schedule import Limits, Profile
from dmlc.scalars import OPERATIONS, DataType

CACHE_LINE = 64
"""Bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How a kernel's work is cut up, and its statements."""

    launch: k.Launch
    walk: str
    """The same for a person."""
    body: list[k.Statement]


class Builder:
    """Hands out names and spells positions for one kernel."""

    def __init__(
        self,
        elements: Elements,
        walk: Walk,
        profile: Profile,
        limits: Limits,
        buffers: tuple[k.Buffer, ...],
        names: Names | None = None,
    ) -> None:
        self.elements = elements
        self.walk = walk
        self.profile = profile
        self.limits = limits
        self.names = names or Names(b.name for b in buffers)
        self._buffers = buffers
        self.scalars: tuple[tuple[k.Scalar, int | str], ...] = ()
        self.arrays: list[k.Array] = []

    def sizes(self) -> tuple[int, ...]:
        return tuple(e for e in self.walk.sizes if isinstance(e, int))

    def count(self) -> int:
        return math.prod(self.sizes())

    def take_count(self) -> k.Scalar:
        """The element count as an argument."""
        scalar = k.Scalar(self.names.take("n"))
        self.scalars = ((scalar, self.walk.count),)
        return scalar

    def take_array(self, name: str, dtype: DataType, size: int) -> k.Array:
        """An array of the work item's own."""
        array = k.Array(self.names.take(name), dtype, size)
        self.arrays.append(array)
        return array

    def let(self, name: str, value: k.Expression) -> k.Let:
        return k.Let(k.Local(self.names.take(name), value.type), value)

    def fixed(self, view: View) -> k.Expression:
        return index(view.offset)

    def at(self, known: dict[int, k.Expression]) -> Callable[[View], k.Expression]:
        """Positions from the indices of the dimensions known so far."""

        def position(view: View) -> k.Expression:
            strides = self.walk.strides[view]
            terms = [multiply(i, strides[axis]) for axis, i in known.items()]
            return add(*terms, index(view.offset))

        return position

    def depth(self, level: Callable[[int], int]) -> Callable[[View], int]:
        """The scope a view changes in, from the scope that each dimension is walked in."""

        def depth(view: View) -> int:
            strides = self.walk.strides[view]
            return max((level(axis) for axis, s in enumerate(strides) if s), default=0)

        return depth

    def decompose(
        self,
        number: k.Expression,
        parts: Sequence[tuple[int, int]],
        known: dict[int, k.Expression],
        needed: set[int] | None = None,
    ) -> list[k.Statement]:
        """Splits a linear number over dimensions given as (axis, size), outermost first.

        Gives the locals of the indices, and puts these into `known`; those not `needed` are
        left out.
        """
        statements: list[k.Statement] = []
        inner = math.prod(size for _, size in parts)
        outermost = True
        for axis, size in parts:
            inner //= size
            if size == 1:
                known[axis] = index(0)
                continue
            value = number if inner == 1 else operate("div", number, index(inner))
            if not outermost:
                value = operate("mod", value, index(size))
            outermost = False
            if needed is not None and axis not in needed:
                continue
            if value is not number:
                let = self.let(f"i{axis}", value)
                statements.append(let)
                value = let.local
            known[axis] = value
        return statements

    def share_blocks(
        self, blocks: int, run: int, make: Callable[[k.Expression], list[k.Statement]]
    ) -> list[k.Statement]:
        """The blocks of this work group: `run` of `blocks`, each as `make` writes it."""
        group = k.Position(k.Geometry.GROUP)
        if blocks == 1:
            return make(index(0))
        block = k.Local(self.names.take("block"), k.INDEX)
        if run == 1:
            return [k.Let(block, group), *make(block)]
        if run == blocks:
            return [k.For(block, index(0), index(blocks), 1, tuple(make(block)))]
        begin = self.let("begin", multiply(group, run))
        end = self.let("end", operate("min", add(begin.local, index(run)), index(blocks)))
        loop = k.For(block, begin.local, end.local, 1, tuple(make(block)))
        return [begin, end, loop]

    def bases(
        self, known: dict[int, k.Expression], axis: int, statements: list[k.Statement]
    ) -> dict[View, k.Expression]:
        """What each view's position in a row starts from, named where it takes arithmetic."""
        at = self.at({a: i for a, i in known.items() if a != axis})
        named: dict[k.Expression, k.Local] = {}
        bases: dict[View, k.Expression] = {}
        for view in self.walk.strides:
            base = at(view)
            if isinstance(base, k.Operate):
                if base not in named:
                    let = self.let("row_start", base)
                    statements.append(let)
                    named[base] = let.local
                base = named[base]
            bases[view] = base
        return bases

    def streaming(self) -> tuple[dict[str, k.Expression], list[k.Statement]]:
        """For each tensor stored in rows of constant sizes, when its stores may pass the caches
        by; and the locals for it.

        A streaming store needs an aligned vector. The kernel's own steps keep to that where rows
        start on cache lines; whether the buffer does is seen at run time.
        """
        if not self._weighs(1):
            return {}, []
        streaming: dict[str, k.Expression] = {}
        flags: list[k.Statement] = []
        for view in self._streamed():
            strides = self.walk.strides[view]
            if strides[-1] != 1 or any(s * view.dtype.bytes % CACHE_LINE for s in strides[:-1]):
                continue
            let = self.let("streaming", operate("eq", k.Lead(view.tensor, CACHE_LINE), index(0)))
            flags.append(let)
            streaming[view.tensor] = let.local
        return streaming, flags

    def streaming_run(
        self, count: k.Scalar
    ) -> tuple[dict[str, k.Expression], k.Local | None, list[k.Statement]]:
        """The same for a packed run of `count` elements, and how many elements of the run stand
        before the first aligned vector: stores are aligned where vectors start there.

        The first result decides where vectors start; the others stream where they agree.
        """
        least = self._least_streamed()
        views = self._streamed()
        if least is None or not views:
            return {}, None, []
        large = self.let("streaming", operate("ge", count, index(least)))
        first = k.Choose(large.local, k.Lead(views[0].tensor, CACHE_LINE), index(0), k.INDEX)
        lead = self.let("lead", first)
        streaming: dict[str, k.Expression] = {views[0].tensor: large.local}
        flags: list[k.Statement] = [large, lead]
        for view in views[1:]:
            same = operate("eq", k.Lead(view.tensor, CACHE_LINE), lead.local)
            both = k.Operate(OPERATIONS["and"], (large.local, same), k.BOOL)
            let = self.let("streaming", both)
            flags.append(let)
            streaming[view.tensor] = let.local
        return streaming, lead.local, flags

    @property
    def is_large(self) -> bool:
        """Whether so much memory is touched that reading and writing had better take turns: a
        third of what it takes for stores to pass the caches by."""
        return self._weighs(3)

    def _weighs(self, times: int) -> bool:
        """Whether so many times the memory that the kernel touches is more than caches keep."""
        threshold = self.profile.streaming_bytes
        touched = sum(b.bytes or 0 for b in self._buffers)
        return threshold is not None and times * touched >= threshold

    def _least_streamed(self) -> int | None:
        """The number of elements of a packed run from which on stores may pass the caches by."""
        threshold = self.profile.streaming_bytes
        if threshold is None:
            return None
        walked = {view.tensor for view, steps in self.walk.strides.items() if any(steps)}
        fixed = sum(b.bytes or 0 for b in self._buffers if b.name not in walked)
        each = sum(b.dtype.bytes for b in self._buffers if b.name in walked)
        return max(0, -(-(threshold - fixed) // each))

    def _streamed(self) -> list[View]:
        """The results that may be streamed: a mask is a vector only once it is narrowed to
        bytes."""
        return [v for v, _ in self.elements.results if v.dtype is not DataType.BOOL]
