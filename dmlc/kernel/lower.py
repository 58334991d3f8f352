"""Lowers a group of element-wise stages to one kernel, shaped by a device profile.

On a CPU a work item computes a long run of elements in a loop of vectors; on a GPU it computes a
few, a group's width apart. Packed tensors of any shape share one kernel, which is told their
element count when it runs; where operands are strided or broadcast, their sizes are constants in
the kernel. What the stages compute is `element`'s, how far dimensions merge is `collapse`'s.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.collapse import Walk, collapse
from dmlc.kernel.element import Elements, Read, View, collect_elements
from dmlc.kernel.emit import Emitter, Names, add, index, multiply, operate
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.schedule import RUN_TIME_COUNT, Limits, Profile
from dmlc.scalars import OPERATIONS
from dmlc.source import UnsupportedError

_CACHE_LINE = 64


def lower(
    function: ir.Function, stages: tuple[str, ...], profile: Profile, limits: Limits
) -> k.Kernel:
    """The kernel that computes element-wise stages over one domain.

    Raises `UnsupportedError` where the stages are not element-wise or pass a limit of the target.
    """
    elements = collect_elements(function, stages)
    walk = collapse(elements)
    buffers = _list_buffers(function, elements)
    _check_limits(function, walk, buffers, limits)
    builder = _Builder(elements, walk, profile, limits, buffers)
    if profile.lanes == 1:
        shape = builder.lower_flat()
    elif walk.packed:
        shape = builder.lower_run()
    else:
        shape = builder.lower_nest()
    return k.Kernel(
        function.name,
        buffers,
        builder.scalars,
        shape.launch,
        tuple(shape.body),
        builder.index_bits,
        tuple(describe_stage(function, name) for name in stages),
        shape.walk,
    )


def _list_buffers(function: ir.Function, elements: Elements) -> tuple[k.Buffer, ...]:
    """The tensors a kernel touches, in the function's order."""
    read = {v.view.tensor for v in elements.values if isinstance(v, Read)}
    written = {view.tensor for view, _ in elements.results}
    access = {
        (True, False): k.Access.READ,
        (False, True): k.Access.WRITE,
        (True, True): k.Access.READ_WRITE,
    }
    return tuple(
        k.Buffer(name, tensor.dtype, access[name in read, name in written])
        for name, tensor in function.tensors().items()
        if name in read or name in written
    )


def _largest_offset(walk: Walk) -> int:
    """The largest element offset of any view, sizes permitting."""
    sizes = [e for e in walk.sizes if isinstance(e, int)]
    if len(sizes) != len(walk.sizes):
        return 0
    return max(
        view.offset + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
        for view, steps in walk.strides.items()
    )


def _check_limits(
    function: ir.Function, walk: Walk, buffers: tuple[k.Buffer, ...], limits: Limits
) -> None:
    if len(buffers) > limits.buffers:
        raise UnsupportedError(
            f"'{function.name}' needs {len(buffers)} buffers in one kernel, and target "
            f"'{limits.target}' allows {limits.buffers} ({limits.buffers_reason}); "
            "compute it in several operators",
            function.span,
        )
    count = walk.count if isinstance(walk.count, int) else 0
    reached = max(count, _largest_offset(walk) + 1)
    if reached > limits.elements:
        raise UnsupportedError(
            f"'{function.name}' reaches element {reached:,} of a tensor, and target "
            f"'{limits.target}' allows {limits.elements:,} ({limits.elements_reason}); "
            "split the tensors",
            function.span,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """How a kernel's work is cut up, and its statements."""

    launch: k.Launch
    walk: str
    body: list[k.Statement]


class _Builder:
    """One kernel in the making."""

    def __init__(
        self,
        elements: Elements,
        walk: Walk,
        profile: Profile,
        limits: Limits,
        buffers: tuple[k.Buffer, ...],
    ) -> None:
        self._elements = elements
        self._walk = walk
        self._profile = profile
        self._limits = limits
        self._names = Names(b.name for b in buffers)
        self._bytes = sum(b.dtype.bytes for b in buffers)
        self.scalars: tuple[tuple[k.Scalar, int | str], ...] = ()
        self.index_bits = 32
        count = walk.count if isinstance(walk.count, int) else 0
        if max(count, _largest_offset(walk)) > RUN_TIME_COUNT:
            self.index_bits = limits.index_bits

    # CPU: one run of packed elements per work item ----------------------------------------

    def lower_run(self) -> _Shape:
        """A work item computes `per_item` adjacent elements, in vectors and then one by one."""
        count, per_item = self._take_count(), self._profile.per_item
        launch = k.Launch(self._walk.count, per_item, 1)
        words = f"each computes {per_item:,} adjacent elements"
        emitter = Emitter(self._elements, self._names, self._depth(lambda axis: 1))
        group = k.Position(k.Geometry.GROUP)
        begin = self._let("begin", multiply(group, per_item))
        end = self._let("end", operate("min", add(begin.local, index(per_item)), count))
        streaming, flags = self._streaming(count)
        body: list[k.Statement] = [*emitter.lets(0, self._fixed), begin, end, *flags]
        body += self._loop_vectors(emitter, 1, 0, {}, begin.local, end.local, streaming)
        return _Shape(launch, words, body)

    # CPU: a nest of loops -----------------------------------------------------------------

    def lower_nest(self) -> _Shape:
        """Constant loops over the inner dimensions; the outer ones are found from the number of
        the work item."""
        sizes = self._sizes()
        last, per_item = len(sizes) - 1, self._profile.per_item
        split = last
        while split > 0 and math.prod(sizes[split - 1 :]) <= per_item:
            split -= 1
        if sizes[last] > per_item:
            return self._nest_pieces(sizes)
        inner = math.prod(sizes[split:])
        blocks = math.prod(sizes[:split])
        run = min(max(1, per_item // inner), blocks)
        launch = k.Launch(blocks, run, 1)
        words = f"each computes {run * inner:,} elements"
        depths = {axis: 1 if axis < split else axis - split + 2 for axis in range(last + 1)}
        emitter = Emitter(self._elements, self._names, self._depth(lambda axis: depths[axis]))
        streaming, flags = self._streaming(None)
        body: list[k.Statement] = [*emitter.lets(0, self._fixed), *flags]
        group = k.Position(k.Geometry.GROUP)
        block = k.Local(self._names.take("block"), k.INDEX)
        known: dict[int, k.Expression] = {}
        inside = self._decompose(block, sizes[:split], known)
        inside += emitter.lets(1, self._at(known))
        inside += self._nest(emitter, split, split, known, streaming)
        if blocks == 1:
            return _Shape(launch, words, body + inside)
        if run == 1:
            return _Shape(launch, words, [*body, k.Let(block, group), *inside])
        begin = self._let("begin", multiply(group, run))
        stop = operate("min", add(begin.local, index(run)), index(blocks))
        end = self._let("end", stop)
        body += [begin, end, k.For(block, begin.local, end.local, 1, tuple(inside))]
        return _Shape(launch, words, body)

    def _nest_pieces(self, sizes: tuple[int, ...]) -> _Shape:
        """Rows longer than a work item's share are cut into pieces."""
        last, per_item = len(sizes) - 1, self._profile.per_item
        rows, pieces = math.prod(sizes[:-1]), -(-sizes[-1] // per_item)
        launch = k.Launch(rows * pieces, 1, 1)
        words = f"each computes {per_item:,} elements of a row"
        emitter = Emitter(
            self._elements, self._names, self._depth(lambda axis: 1 if axis < last else 2)
        )
        streaming, flags = self._streaming(None)
        body: list[k.Statement] = [*emitter.lets(0, self._fixed), *flags]
        piece: k.Expression = k.Position(k.Geometry.GROUP)
        known: dict[int, k.Expression] = {}
        if rows > 1:
            row = self._let("row", operate("div", piece, index(pieces)))
            piece = operate("mod", piece, index(pieces))
            body += [row, *self._decompose(row.local, sizes[:-1], known)]
        begin = self._let("begin", multiply(piece, per_item))
        stop = operate("min", add(begin.local, index(per_item)), index(sizes[-1]))
        end = self._let("end", stop)
        body += [begin, end, *emitter.lets(1, self._at(known))]
        bases = self._bases(known, last, body)
        body += self._loop_vectors(emitter, 2, last, bases, begin.local, end.local, streaming)
        return _Shape(launch, words, body)

    def _nest(
        self,
        emitter: Emitter,
        split: int,
        axis: int,
        known: dict[int, k.Expression],
        streaming: dict[str, k.Expression],
    ) -> list[k.Statement]:
        """The loops over dimensions `axis` and further in."""
        sizes = self._sizes()
        level = axis - split + 2
        body: list[k.Statement] = []
        if axis == len(sizes) - 1:
            bases = self._bases(known, axis, body)
            start, stop = index(0), index(sizes[axis])
            return body + self._loop_vectors(emitter, level, axis, bases, start, stop, streaming)
        variable = k.Local(self._names.take(f"i{axis}"), k.INDEX)
        inner = {**known, axis: variable}
        body += emitter.lets(level, self._at(inner))
        body += self._nest(emitter, split, axis + 1, inner, streaming)
        return [k.For(variable, index(0), index(sizes[axis]), 1, tuple(body))]

    def _loop_vectors(
        self,
        emitter: Emitter,
        level: int,
        axis: int,
        bases: dict[View, k.Expression],
        start: k.Expression,
        stop: k.Expression,
        streaming: dict[str, k.Expression],
    ) -> list[k.Statement]:
        """The innermost loop: whole vectors, and what is left over one by one.

        `start` must be a multiple of the number of lanes.
        """
        lanes = self._profile.lanes
        variable = k.Local(self._names.take("i"), k.INDEX)
        steps = {view: strides[axis] for view, strides in self._walk.strides.items()}

        def position(view: View) -> k.Expression:
            base = bases.get(view, index(view.offset))
            return add(base, multiply(variable, steps[view]))

        def inner(width: int) -> tuple[k.Statement, ...]:
            made = emitter.lets(level, position, width)
            return (*made, *emitter.stores(position, width, streaming))

        if any(step > 1 for step in steps.values()):
            return [k.For(variable, start, stop, 1, inner(1))]
        if isinstance(stop, k.Literal):
            whole = int(stop.value) // lanes * lanes
            loops: list[k.Statement] = []
            if whole:
                loops.append(k.For(variable, start, index(whole), lanes, inner(lanes)))
            if whole != stop.value:
                loops.append(k.For(variable, index(whole), stop, 1, inner(1)))
            return loops
        left_over = operate("mod", stop, index(lanes))
        middle = self._let("vector_end", operate("sub", stop, left_over))
        return [
            middle,
            k.For(variable, start, middle.local, lanes, inner(lanes)),
            k.For(variable, middle.local, stop, 1, inner(1)),
        ]

    # GPU: a few elements per work item ----------------------------------------------------

    def lower_flat(self) -> _Shape:
        """Element `group * per_group + k * group_size + lane`, for each k below `per_item`."""
        profile, walk = self._profile, self._walk
        count = self._take_count() if walk.packed else index(self._count())
        row = self._limits.row
        if isinstance(walk.count, int) and not walk.packed:
            groups = -(-walk.count // profile.per_group)
            row = row if row is not None and groups > row else None
        launch = k.Launch(walk.count, profile.per_group, profile.group_size, row)
        words = f"each computes {profile.per_item} elements, {profile.group_size} apart"
        emitter = Emitter(self._elements, self._names, self._depth(lambda axis: 1))
        body = emitter.lets(0, self._fixed)
        group = self._let("group", k.Position(k.Geometry.GROUP))
        start = multiply(group.local, profile.per_group)
        first = self._let("first", add(start, k.Position(k.Geometry.LANE)))
        number = k.Local(self._names.take("k"), k.INDEX)
        element = self._let("i", add(first.local, multiply(number, profile.group_size)))
        inside: list[k.Statement] = []
        position = self._flat_position(element.local, inside)
        inside += emitter.lets(1, position)
        inside += emitter.stores(position, 1, {})
        guard = k.If(operate("lt", element.local, count), tuple(inside))
        loop = k.For(number, index(0), index(profile.per_item), 1, (element, guard), unroll=True)
        return _Shape(launch, words, [*body, group, first, loop])

    def _flat_position(
        self, element: k.Local, statements: list[k.Statement]
    ) -> Callable[[View], k.Expression]:
        """Positions from the element's number; `statements` takes the decomposition they need."""
        if len(self._walk.sizes) == 1:
            return self._at({0: element})
        sizes = self._sizes()
        packed = ir.packed_strides(sizes)
        strided = [s for s in self._walk.strides.values() if s != packed]
        needed = {axis for axis in range(len(sizes)) if any(s[axis] for s in strided)}
        known: dict[int, k.Expression] = {}
        statements += self._decompose(element, sizes, known, needed)
        at = self._at(known)

        def position(view: View) -> k.Expression:
            if self._walk.strides[view] == packed:
                return add(element, index(view.offset))
            return at(view)

        return position

    # Shared pieces ------------------------------------------------------------------------

    def _sizes(self) -> tuple[int, ...]:
        return tuple(e for e in self._walk.sizes if isinstance(e, int))

    def _count(self) -> int:
        return math.prod(self._sizes())

    def _take_count(self) -> k.Scalar:
        """The element count as an argument."""
        scalar = k.Scalar(self._names.take("n"))
        self.scalars = ((scalar, self._walk.count),)
        return scalar

    def _let(self, name: str, value: k.Expression) -> k.Let:
        return k.Let(k.Local(self._names.take(name), value.type), value)

    def _fixed(self, view: View) -> k.Expression:
        return index(view.offset)

    def _at(self, known: dict[int, k.Expression]) -> Callable[[View], k.Expression]:
        """Positions from the indices of the dimensions known so far."""

        def position(view: View) -> k.Expression:
            strides = self._walk.strides[view]
            terms = [multiply(i, strides[axis]) for axis, i in known.items()]
            return add(*terms, index(view.offset))

        return position

    def _depth(self, level: Callable[[int], int]) -> Callable[[View], int]:
        """The scope a view changes in, from the scope that each dimension is walked in."""

        def depth(view: View) -> int:
            strides = self._walk.strides[view]
            return max((level(axis) for axis, s in enumerate(strides) if s), default=0)

        return depth

    def _decompose(
        self,
        number: k.Expression,
        sizes: tuple[int, ...],
        known: dict[int, k.Expression],
        needed: set[int] | None = None,
    ) -> list[k.Statement]:
        """Index locals, outermost first, of a linear number over `sizes`; `known` takes them."""
        if len(sizes) == 1:
            known[0] = number
            return []
        statements: list[k.Statement] = []
        for axis, size in enumerate(sizes):
            if needed is not None and axis not in needed:
                continue
            inner = math.prod(sizes[axis + 1 :])
            value = number if inner == 1 else operate("div", number, index(inner))
            if axis > 0:
                value = operate("mod", value, index(size))
            let = self._let(f"i{axis}", value)
            statements.append(let)
            known[axis] = let.local
        return statements

    def _bases(
        self, known: dict[int, k.Expression], axis: int, statements: list[k.Statement]
    ) -> dict[View, k.Expression]:
        """What each view's position in a row starts from, named where it takes arithmetic."""
        at = self._at({a: i for a, i in known.items() if a != axis})
        named: dict[k.Expression, k.Local] = {}
        bases: dict[View, k.Expression] = {}
        for view in self._walk.strides:
            base = at(view)
            if isinstance(base, k.Operate):
                if base not in named:
                    let = self._let("row_start", base)
                    statements.append(let)
                    named[base] = let.local
                base = named[base]
            bases[view] = base
        return bases

    def _streaming(
        self, count: k.Scalar | None
    ) -> tuple[dict[str, k.Expression], list[k.Statement]]:
        """For each stored tensor, when its stores may pass the caches by; and the locals for it.

        A streaming store needs an aligned vector. The kernel's own steps keep to that where rows
        start on cache lines; whether the buffer does is seen at run time.
        """
        threshold = self._profile.streaming_bytes
        if threshold is None:
            return {}, []
        least = -(-threshold // self._bytes)
        if count is None and self._count() < least:
            return {}, []
        streaming: dict[str, k.Expression] = {}
        flags: list[k.Statement] = []
        for view, _ in self._elements.results:
            strides = self._walk.strides[view]
            if strides[-1] != 1 or any(s * view.dtype.bytes % _CACHE_LINE for s in strides[:-1]):
                continue
            when: k.Expression = k.Aligned(view.tensor, _CACHE_LINE)
            if count is not None:
                large = operate("ge", count, index(least))
                when = k.Operate(OPERATIONS["and"], (large, when), k.BOOL)
            let = self._let("streaming", when)
            flags.append(let)
            streaming[view.tensor] = let.local
        return streaming, flags
