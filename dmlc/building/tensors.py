"""Operations on whole tensors of a `FunctionBuilder`, as in array libraries. Each makes one stage,
in index notation; fusion decides later which of them are stored. So an operation that only moves
elements, such as a transpose, is free if it is fused with its reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import overload

from dmlc.building.functions import FunctionBuilder, Operand, Point, Scalar, Tensor
from dmlc.ir import Extent
from dmlc.scalars import DataType, is_positional
from dmlc.sizes import Measure, as_extent, find_least, measure, multiply
from dmlc.source import DmlcError, counted


def show_extents(extents: Sequence[Extent]) -> str:
    """Sizes in messages: `[2, N]`."""
    return f"[{', '.join(str(extent) for extent in extents)}]"


def join_extents(
    builder: FunctionBuilder, shapes: Sequence[Sequence[Extent]]
) -> tuple[Extent, ...]:
    """Broadcast shape of some tensors, aligned at their last axes. Raises `DmlcError` if there is
    none."""
    rank = max((len(shape) for shape in shapes), default=0)
    joined: list[Extent] = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if joined[axis] == 1:
                joined[axis] = extent
            elif extent != 1:
                one = builder.unify(joined[axis], extent)
                if one is None:
                    given = " and ".join(show_extents(s) for s in shapes)
                    raise DmlcError(f"tensors of the sizes {given} do not broadcast")
                joined[axis] = one
    return tuple(joined)


def read_broadcast(at: Point, tensor: Tensor, indices: Sequence[Scalar]) -> Scalar:
    """Element of a tensor at an index into its broadcast shape."""
    return at.read(tensor, *_index_broadcast(tensor.extents, indices))


def _index_broadcast(own: Sequence[Extent], indices: Sequence[Scalar]) -> list[Operand]:
    """Index into a shape for an index into its broadcast shape, aligned at the last axes."""
    pairs = zip(indices[len(indices) - len(own) :], own, strict=True)
    return [0 if extent == 1 else index for index, extent in pairs]


@overload
def map_elements(
    builder: FunctionBuilder,
    name: str,
    formula: Callable[[Scalar], Scalar],
    one: Tensor,
    /,
    *,
    dtype: DataType | None = None,
    extents: Sequence[Extent] | None = None,
) -> Tensor: ...
@overload
def map_elements(
    builder: FunctionBuilder,
    name: str,
    formula: Callable[[Scalar, Scalar], Scalar],
    one: Tensor,
    two: Tensor,
    /,
    *,
    dtype: DataType | None = None,
    extents: Sequence[Extent] | None = None,
) -> Tensor: ...
@overload
def map_elements(
    builder: FunctionBuilder,
    name: str,
    formula: Callable[[Scalar, Scalar, Scalar], Scalar],
    one: Tensor,
    two: Tensor,
    three: Tensor,
    /,
    *,
    dtype: DataType | None = None,
    extents: Sequence[Extent] | None = None,
) -> Tensor: ...
@overload
def map_elements(
    builder: FunctionBuilder,
    name: str,
    formula: Callable[..., Scalar],
    *tensors: Tensor,
    dtype: DataType | None = None,
    extents: Sequence[Extent] | None = None,
) -> Tensor: ...
def map_elements(
    builder: FunctionBuilder,
    name: str,
    formula: Callable[..., Scalar],
    *tensors: Tensor,
    dtype: DataType | None = None,
    extents: Sequence[Extent] | None = None,
) -> Tensor:
    """Tensor of `formula` applied to the elements of tensors, broadcast to `extents` or to their
    common shape."""
    shapes = [tensor.extents for tensor in tensors]
    joined = join_extents(builder, shapes if extents is None else [extents, *shapes])
    if extents is not None and any(e == 1 != j for e, j in zip(extents, joined, strict=False)):
        joined = ()
    if extents is not None and len(joined) != len(extents):
        shown = " and ".join(show_extents(shape) for shape in shapes)
        raise DmlcError(f"tensors of the sizes {shown} do not broadcast to {show_extents(extents)}")

    def element(at: Point) -> Scalar:
        return formula(*(read_broadcast(at, tensor, at.indices) for tensor in tensors))

    return builder.compute(name, joined, element, dtype)


def expand(
    builder: FunctionBuilder, name: str, tensor: Tensor, extents: Sequence[Extent]
) -> Tensor:
    """Tensor broadcast to larger sizes."""
    return map_elements(builder, name, _same, tensor, dtype=tensor.dtype, extents=extents)


def _same(value: Scalar) -> Scalar:
    return value


def reduce_axes(
    builder: FunctionBuilder,
    name: str,
    combiner: str,
    tensor: Tensor,
    axes: Sequence[int],
    keep: bool = False,
    formula: Callable[[Scalar], Scalar] = _same,
    dtype: DataType | None = None,
) -> Tensor:
    """Reduction of a tensor's elements, each after `formula`, along some axes. `keep` leaves each
    of these as an axis of size 1. `dtype` is the storage type of the result, the tensor's own if
    None."""
    order = normalize_axes(axes, tensor.rank)
    kept = [axis for axis in range(tensor.rank) if keep or axis not in order]
    extents = [1 if axis in order else tensor.extents[axis] for axis in kept]
    stored = dtype
    if stored is None and not is_positional(combiner):
        stored = tensor.dtype

    def element(at: Point) -> Scalar:
        own = dict(zip(kept, at.indices, strict=True))
        own |= dict(zip(order, at.reduced, strict=True))
        return formula(at.read(tensor, *(own[axis] for axis in range(tensor.rank))))

    sizes = [tensor.extents[axis] for axis in order]
    return builder.reduce(name, combiner, extents, sizes, element, stored)


def normalize_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes from 0, in order; negative ones count from the end. Raises `DmlcError` for an axis out
    of bounds and for a repeated one."""
    found: list[int] = []
    for axis in axes:
        if not -rank <= axis < rank:
            raise DmlcError(f"there is no axis {axis} among {rank}")
        found.append(axis % rank)
    if len(dict.fromkeys(found)) < len(found):
        raise DmlcError(f"an axis is named twice in {list(axes)}")
    return tuple(sorted(found))


def transpose(builder: FunctionBuilder, name: str, tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Tensor whose axis `k` is the axis `order[k]` of this one."""
    if sorted(order) != list(range(tensor.rank)):
        raise DmlcError(f"{list(order)} is no order of {tensor.rank} axes")

    def element(at: Point) -> Scalar:
        return at.read(tensor, *(at.indices[order.index(axis)] for axis in range(tensor.rank)))

    extents = [tensor.extents[axis] for axis in order]
    return builder.compute(name, extents, element, tensor.dtype)


def reshape(
    builder: FunctionBuilder, name: str, tensor: Tensor, extents: Sequence[Extent]
) -> Tensor:
    """Tensor of other sizes with the same elements in row-major order."""
    wanted = tuple(as_extent(measure(extent)) for extent in extents)
    whole, own_whole = as_extent(multiply(wanted)), as_extent(multiply(tensor.extents))
    if builder.unify(whole, own_whole) is None:
        raise DmlcError(
            f"{tensor.name} has the sizes {show_extents(tensor.extents)}, and not as many "
            f"elements as {show_extents(wanted)}"
        )
    if wanted == tensor.extents:
        return tensor

    def element(at: Point) -> Scalar:
        if 0 in wanted:
            return at.read(tensor, *(0 for _ in tensor.extents))
        if whole != own_whole:
            position = flatten(at, at.indices, wanted)
            return at.read(tensor, *unflatten(at, position, tensor.extents))
        places: list[Operand] = [0] * tensor.rank
        for own, others in _match_axes(tensor.extents, wanted):
            position = flatten(at, [at.indices[axis] for axis in others],
                               [wanted[axis] for axis in others])  # fmt: skip
            given = unflatten(at, position, [tensor.extents[axis] for axis in own])
            for axis, place in zip(own, given, strict=True):
                places[axis] = place
        return at.read(tensor, *places)

    return builder.compute(name, wanted, element, tensor.dtype)


def flatten(at: Point, indices: Sequence[Scalar], extents: Sequence[Extent]) -> Scalar:
    """Row-major linear index into a tensor of these sizes."""
    position = at.constant(0, DataType.INDEX)
    for index, extent in zip(indices, extents, strict=True):
        position = position * at.size(extent) + index
    return position


def unflatten(at: Point, position: Scalar, extents: Sequence[Extent]) -> list[Scalar]:
    """Index along each axis for a row-major linear index."""
    places: list[Scalar] = []
    outer = next((axis for axis, extent in enumerate(extents) if extent != 1), 0)
    for axis in reversed(range(len(extents))):
        if extents[axis] == 1:
            places.append(at.constant(0, DataType.INDEX))
        elif axis == outer:
            places.append(position)
        else:
            places.append(position % at.size(extents[axis]))
            position = position / at.size(extents[axis])
    return places[::-1]


def _match_axes(
    one: Sequence[Extent], other: Sequence[Extent]
) -> list[tuple[list[int], list[int]]]:
    """Smallest groups of neighbouring axes of two shapes with equal products, so that an axis of
    both keeps its index. Neither shape has an axis of size 0."""
    matched: list[tuple[list[int], list[int]]] = []
    first, second = 0, 0
    while first < len(one) or second < len(other):
        own, others = [first] if first < len(one) else [], [second] if second < len(other) else []
        first, second = first + len(own), second + len(others)
        left = multiply(one[axis] for axis in own)
        right = multiply(other[axis] for axis in others)
        while left != right:
            # A product without a quotient by the rest can only be matched by more axes.
            if first < len(one) and (second == len(other) or _is_less(left, right)):
                left = left * measure(one[first])
                own.append(first)
                first += 1
            elif second < len(other):
                right = right * measure(other[second])
                others.append(second)
                second += 1
            else:
                raise DmlcError(f"{show_extents(one)} and {show_extents(other)} do not match")
        matched.append((own, others))
    return matched


def _is_less(one: Measure, other: Measure) -> bool:
    """Whether a product of sizes lacks factors of another, as far as known."""
    if isinstance(one, int) and isinstance(other, int):
        return one < other
    difference = other - one
    return isinstance(difference, int) or difference.bounds()[0] > 0


def slice_axes(
    builder: FunctionBuilder,
    name: str,
    tensor: Tensor,
    starts: Sequence[Measure],
    steps: Sequence[int],
    extents: Sequence[Extent],
) -> Tensor:
    """Slice of a tensor with a start, a step, which may be negative, and a size for each axis.
    Raises `DmlcError` if it is out of bounds."""
    for axis, (start, step, extent) in enumerate(zip(starts, steps, extents, strict=True)):
        size = measure(tensor.extents[axis])
        if (start == 0 and step == 1 and measure(extent) == size) or extent == 0:
            continue
        last = start + (measure(extent) - 1) * step
        ends = [find_least(place) for place in (start, last, size - 1 - start, size - 1 - last)]
        if min(ends) >= 0:
            continue
        if not builder.assumes or all(isinstance(place, int) for place in (start, last, size)):
            raise DmlcError(
                f"axis {axis} of {tensor.name} has {size} places, and {extent} from {start} in "
                f"steps of {step} are not all there"
            )
        for place in (start, last):
            builder.check_at_most(0, place)
            builder.check_at_most(place, size - 1)

    def element(at: Point) -> Scalar:
        rows = zip(at.indices, starts, steps, strict=True)
        places = [index * step + at.measure(start) for index, start, step in rows]
        return at.read(tensor, *places)

    return builder.compute(name, extents, element, tensor.dtype)


def pad(
    builder: FunctionBuilder,
    name: str,
    tensor: Tensor,
    before: Sequence[int],
    after: Sequence[int],
    value: bool | int | float = 0,
) -> Tensor:
    """Tensor padded with `value` before and after each axis."""
    pairs = zip(before, tensor.extents, after, strict=True)
    extents = [as_extent(measure(size) + front + back) for front, size, back in pairs]

    def element(at: Point) -> Scalar:
        inside: Scalar | None = None
        places: list[Scalar] = []
        for axis, index in enumerate(at.indices):
            size = at.size(tensor.extents[axis])
            place = index - before[axis]
            if before[axis] or after[axis]:
                holds = (place >= 0) & (place < size)
                inside = holds if inside is None else inside & holds
                place = clamp(place, size)
            places.append(place)
        found = at.read(tensor, *places)
        return found if inside is None else inside.select(found, value)

    if 0 in tensor.extents:
        constant = tensor.dtype.compute
        return builder.compute(name, extents, lambda at: at.constant(value, constant), tensor.dtype)
    return builder.compute(name, extents, element, tensor.dtype)


def clamp(place: Scalar, size: Scalar) -> Scalar:
    """Index clamped to an axis, to keep a read in bounds whose value is not used."""
    return place.apply("max", 0).apply("min", size - 1)


def concatenate(
    builder: FunctionBuilder, name: str, tensors: Sequence[Tensor], axis: int
) -> Tensor:
    """Concatenation along an axis of tensors of one type, with equal sizes along the other axes."""
    (place,) = normalize_axes([axis], min(tensor.rank for tensor in tensors))
    given = [tensor for tensor in tensors if tensor.extents[place] != 0] or list(tensors[:1])
    first = given[0]
    ends: list[Measure] = []
    total: Measure = 0
    joined = list(first.extents)
    for tensor in given:
        if tensor.dtype is not first.dtype or tensor.rank != first.rank:
            raise DmlcError(f"{tensor.name} and {first.name} do not join along axis {axis}")
        for k, extent in enumerate(tensor.extents):
            one = extent if k == place else builder.unify(joined[k], extent)
            if one is None:
                raise DmlcError(f"{tensor.name} and {first.name} do not join along axis {axis}")
            joined[k] = one
        total = total + measure(tensor.extents[place])
        ends.append(total)
    joined[place] = as_extent(total)

    def element(at: Point) -> Scalar:
        found: Scalar | None = None
        for tensor, end in reversed(list(zip(given, ends, strict=True))):
            own = list(at.indices)
            start = end - measure(tensor.extents[place])
            moved = at.indices[place] - at.size(as_extent(start))
            if len(given) > 1:
                moved = clamp(moved, at.size(tensor.extents[place]))
            own[place] = moved
            value = at.read(tensor, *own)
            before = at.indices[place] < at.size(as_extent(end))
            found = value if found is None else before.select(value, found)
        if found is None:
            raise DmlcError("there is nothing to join")
        return found

    return builder.compute(name, joined, element, first.dtype)


def stack_tensors(
    builder: FunctionBuilder, name: str, tensors: Sequence[Tensor], axis: int
) -> Tensor:
    """Tensors of one type and size along a new axis."""
    if not tensors:
        raise DmlcError("there is nothing to stack")
    first = tensors[0]
    if any((t.dtype, t.extents) != (first.dtype, first.extents) for t in tensors):
        raise DmlcError("tensors that are stacked have one type and the same sizes")
    (place,) = normalize_axes([axis], first.rank + 1)
    extents = [*first.extents[:place], len(tensors), *first.extents[place:]]

    def element(at: Point) -> Scalar:
        own = (*at.indices[:place], *at.indices[place + 1 :])
        found = at.read(tensors[-1], *own)
        for number, tensor in reversed(list(enumerate(tensors[:-1]))):
            found = (at.indices[place] <= number).select(at.read(tensor, *own), found)
        return found

    return builder.compute(name, extents, element, first.dtype)


def gather(
    builder: FunctionBuilder, name: str, tensor: Tensor, positions: Tensor, axis: int
) -> Tensor:
    """Slices of a tensor at indices along an axis: its sizes, with those of `positions` in place of
    the axis. A negative index counts from the end; one out of bounds is clamped."""
    (place,) = normalize_axes([axis], tensor.rank)
    extents = (*tensor.extents[:place], *positions.extents, *tensor.extents[place + 1 :])

    def element(at: Point) -> Scalar:
        before, rest = at.indices[:place], at.indices[place:]
        size = at.size(tensor.extents[place])
        position = clamp(read_position(at, positions, rest[: positions.rank], size), size)
        return at.read(tensor, *before, position, *rest[positions.rank :])

    return builder.compute(name, extents, element, tensor.dtype)


def gather_elements(
    builder: FunctionBuilder, name: str, tensor: Tensor, positions: Tensor, axis: int
) -> Tensor:
    """Elements of a tensor, in the sizes of `positions`, which has their indices along an axis as
    `gather` takes them; their indices along the others are those in `positions`. Raises `DmlcError`
    for positions of other axes."""
    if positions.rank != tensor.rank:
        raise DmlcError(
            f"{positions.name} has {counted(positions.rank, 'axis', 'axes')}, and {tensor.name} "
            f"has {tensor.rank}: they must have as many"
        )
    (place,) = normalize_axes([axis], tensor.rank)

    def element(at: Point) -> Scalar:
        size = at.size(tensor.extents[place])
        own = list(at.indices)
        own[place] = clamp(read_position(at, positions, at.indices, size), size)
        return at.read(tensor, *own)

    return builder.compute(name, positions.extents, element, tensor.dtype)


def read_position(at: Point, positions: Tensor, indices: Sequence[Operand], size: Scalar) -> Scalar:
    """Index that a tensor holds, as INDEX; a negative one counts from the end of an axis of this
    size."""
    given = at.read(positions, *indices).cast(DataType.INDEX)
    return (given < 0).select(given + size, given)


def matrix_multiply(builder: FunctionBuilder, name: str, one: Tensor, other: Tensor) -> Tensor:
    """Matrix product of the last two axes of each; the axes before them broadcast. A tensor of one
    axis is a row as `one` and a column as `other`, and the result lacks that axis. 16-bit floats
    are accumulated in FLOAT32."""
    if one.rank == 0 or other.rank == 0:
        raise DmlcError("a matrix product is of tensors of one axis or more")
    batch = join_extents(builder, [one.extents[:-2], other.extents[:-2]])
    rows = one.extents[-2:-1]
    columns = other.extents[-1:] if other.rank > 1 else ()
    inner = builder.unify(one.extents[-1], other.extents[-2:][0])
    if inner is None:
        shown = f"{show_extents(one.extents)} and {show_extents(other.extents)}"
        raise DmlcError(f"there is no matrix product of the sizes {shown}")

    def element(at: Point) -> Scalar:
        outer = at.indices[: len(batch)]
        row = at.indices[len(batch) : len(batch) + len(rows)]
        column = at.indices[len(batch) + len(rows) :]
        left = _index_broadcast(one.extents[:-2], outer)
        right = _index_broadcast(other.extents[:-2], outer)
        (step,) = at.reduced
        return at.read(one, *left, *row, step) * at.read(other, *right, step, *column)

    extents = (*batch, *rows, *columns)
    return builder.reduce(name, "sum", extents, [inner], element, one.dtype)


def count_elements(tensor: Tensor) -> int:
    """Number of a tensor's elements. Raises `DmlcError` if it is known only at run time."""
    sizes = [extent for extent in tensor.extents if isinstance(extent, int)]
    if len(sizes) < tensor.rank:
        raise DmlcError(f"the sizes of {tensor.name} are known at run time only")
    return math.prod(sizes)
