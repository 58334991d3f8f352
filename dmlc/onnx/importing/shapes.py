"""Operators of ONNX on the shapes of tensors: what moves elements, and computes none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.tensors import (
    clamp,
    concatenate,
    expand,
    join_extents,
    normalize_axes,
    pad,
    reshape,
    slice_axes,
    transpose,
)
from dmlc.ir import Extent
from dmlc.onnx.importing.names import read_type
from dmlc.onnx.importing.nodes import (
    Node,
    Rule,
    Value,
    as_extents,
    dtype_of,
    extents_of,
    hold_sizes,
)
from dmlc.scalars import Array, DataType
from dmlc.sizes import Measure, Size, as_extent, measure, multiply
from dmlc.source import DmlcError, UnsupportedError


def _identity(node: Node) -> Value:
    return node.value(0)


def _constant(node: Node) -> Array:
    for name in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if name in node.attributes:
            dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
                     "value_ints": np.int64}.get(name)  # fmt: skip
            return np.asarray(node.attributes[name], dtype)
    raise UnsupportedError("it is a constant of texts, or a sparse one")


def _constant_of_shape(node: Node) -> Value:
    value = np.asarray(node.attributes.get("value", np.zeros(1, np.float32)))
    sizes = node.measures(0)
    if all(isinstance(size, int) for size in sizes):
        return np.broadcast_to(value.reshape(()), [int(size) for size in as_extents(sizes)])
    dtype = dtype_of(value)
    held = value.ravel()[0].item()
    return node.builder.compute(
        node.name, as_extents(sizes), lambda at: at.constant(held, dtype.compute), dtype
    )


def _shape(node: Node) -> Array:
    extents = extents_of(node.value(0))
    rank = len(extents)
    start, end = node.integer("start"), node.integer("end", rank)
    taken = extents[slice(start, end)]
    return hold_sizes(taken, [measure(extent) for extent in taken])


def _size(node: Node) -> Array:
    product = multiply(extents_of(node.value(0)))
    held = hold_sizes([as_extent(product)], [product])
    return held.reshape(())


def _reshape(node: Node) -> Tensor:
    x = node.tensor(0)
    given: list[Measure] = []
    wanted = node.measures(1) if node.has(1) else list(node.integers("shape") or [])
    for axis, size in enumerate(wanted):
        copies = size == 0 and not node.integer("allowzero")
        given.append(measure(x.extents[axis]) if copies else size)
    return reshape(node.builder, node.name, x, as_extents(_fill(x, given)))


def _fill(x: Tensor, sizes: Sequence[Measure]) -> list[Measure]:
    """Sizes with what is left of a tensor in place of -1."""
    if -1 not in sizes:
        return list(sizes)
    total, rest = multiply(x.extents), multiply(size for size in sizes if size != -1)
    left = _divide(total, rest)
    if left is None:
        raise DmlcError(f"{x.name} has no whole number of parts of {rest} elements")
    return [left if size == -1 else size for size in sizes]


def _divide(total: Measure, by: Measure) -> Measure | None:
    """A quotient without rest, where that is known."""
    if isinstance(by, int):
        if by == 0:
            return 0
        if isinstance(total, int):
            return total // by if total % by == 0 else None
        return total.divide(by)
    if total == by:
        return 1
    if isinstance(total, int) or len(by.terms) > 1:
        return None
    symbols, number = next(iter(by.terms))
    terms: list[tuple[tuple[str, ...], int]] = []
    for own, count in total.terms:
        rest = list(own)
        for symbol in symbols:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if count % number:
            return None
        terms.append((tuple(rest), count // number))
    found = Size(tuple(terms))
    return found + 0


def _flatten(node: Node) -> Tensor:
    x = node.tensor(0)
    axis = node.integer("axis", 1)
    place = axis + x.rank if axis < 0 else axis
    sizes = [multiply(x.extents[:place]), multiply(x.extents[place:])]
    return reshape(node.builder, node.name, x, as_extents(sizes))


def _squeeze(node: Node) -> Tensor:
    x, axes = node.tensor(0), node.setting("axes", 1)
    if axes is None:
        dropped = [axis for axis, extent in enumerate(x.extents) if extent == 1]
    else:
        dropped = list(normalize_axes(axes, x.rank))
    if any(x.extents[axis] != 1 for axis in dropped):
        raise DmlcError(f"it drops axes of {x.name} that have more than one place")
    kept = [extent for axis, extent in enumerate(x.extents) if axis not in dropped]
    return reshape(node.builder, node.name, x, kept)


def _unsqueeze(node: Node) -> Tensor:
    x, axes = node.tensor(0), node.setting("axes", 1) or []
    rank = x.rank + len(axes)
    added = normalize_axes(axes, rank)
    rest = iter(x.extents)
    extents = [1 if axis in added else next(rest) for axis in range(rank)]
    return reshape(node.builder, node.name, x, extents)


def _transpose(node: Node) -> Tensor:
    x = node.tensor(0)
    order = node.integers("perm")
    return transpose(node.builder, node.name, x, list(range(x.rank))[::-1]
                     if order is None else order)  # fmt: skip


def _expand(node: Node) -> Value:
    value, sizes = node.value(0), node.measures(1)
    extents = join_extents([extents_of(value), as_extents(sizes)])
    fixed = [extent for extent in extents if isinstance(extent, int)]
    if isinstance(value, np.ndarray) and len(fixed) == len(extents):
        return np.broadcast_to(value, fixed)
    return expand(node.builder, node.name, node.tensor(0), extents)


def _tile(node: Node) -> Tensor:
    x, repeats = node.tensor(0), node.numbers(1)
    extents = [as_extent(measure(e) * r) for e, r in zip(x.extents, repeats, strict=True)]

    def element(at: Point) -> Scalar:
        pairs = zip(at.indices, x.extents, repeats, strict=True)
        return at.read(x, *(i if r == 1 else i % at.size(e) for i, e, r in pairs))

    return node.builder.compute(node.name, extents, element, x.dtype)


def _concat(node: Node) -> Tensor:
    return concatenate(node.builder, node.name, node.tensors(), node.integer("axis"))


def _split(node: Node) -> list[Tensor]:
    x = node.tensor(0)
    (axis,) = normalize_axes([node.integer("axis")], x.rank)
    lengths = node.setting("split", 1)
    if lengths is None:
        size, count = x.extents[axis], len(node.outputs)
        if not isinstance(size, int):
            raise UnsupportedError("it splits an axis whose size is left open")
        each = -(-size // count)
        lengths = [max(0, min(each, size - part * each)) for part in range(count)]
    found: list[Tensor] = []
    start = 0
    for name, length in zip(node.outputs, lengths, strict=True):
        starts = [start if k == axis else 0 for k in range(x.rank)]
        extents = [length if k == axis else e for k, e in enumerate(x.extents)]
        found.append(slice_axes(node.builder, name, x, starts, [1] * x.rank, extents))
        start += length
    return found


def _slice(node: Node) -> Tensor:
    x = node.tensor(0)
    starts = node.measures(1) if node.has(1) else list(node.integers("starts") or [])
    ends = node.measures(2) if node.has(2) else list(node.integers("ends") or [])
    axes = node.setting("axes", 3)
    given = axes or list(range(len(starts)))
    normalize_axes(given, x.rank)
    chosen = [axis % x.rank for axis in given]
    steps = node.numbers(4) if node.has(4) else [1] * len(starts)
    first, moves, extents = [0] * x.rank, [1] * x.rank, list(x.extents)
    for axis, start, end, step in zip(chosen, starts, ends, steps, strict=True):
        first[axis], extents[axis] = _cut(x.extents[axis], start, end, step)
        moves[axis] = step
    return slice_axes(node.builder, node.name, x, first, moves, extents)


_FAR = 2**31 - 1
"""What stands for the end of an axis, however long it is."""


def _cut(extent: Extent, start: Measure, end: Measure, step: int) -> tuple[int, Extent]:
    """Where a slice starts, and how many places it has."""
    if isinstance(extent, int) and isinstance(start, int) and isinstance(end, int):
        places = range(*slice(start, end, step).indices(extent))
        return places.start, len(places)
    whole = measure(extent)
    if start == 0 and step == 1 and (end == whole or (isinstance(end, int) and end >= _FAR)):
        return 0, extent
    raise UnsupportedError(f"it cuts the axis {extent}, whose size is left open")


def _pad(node: Node) -> Tensor:
    x = node.tensor(0)
    amounts = node.numbers(1) if node.has(1) else list(node.integers("pads") or [])
    axes = node.numbers(3) if node.has(3) else list(range(x.rank))
    before, after = [0] * x.rank, [0] * x.rank
    for number, axis in enumerate(axes):
        before[axis], after[axis] = amounts[number], amounts[number + len(axes)]
    mode = node.text("mode", "constant")
    if mode == "constant":
        value = node.array(2).ravel()[0].item() if node.has(2) else node.number("value", 0)
        if not x.dtype.is_float:
            value = bool(value) if x.dtype is DataType.BOOL else int(value)
        return pad(node.builder, node.name, x, before, after, value)
    if mode not in ("edge", "reflect", "wrap"):
        raise UnsupportedError(f"the mode {mode}")
    # What is cut off is gone before what is left is continued beyond its ends.
    x = _cut_ends(node, x, [max(-amount, 0) for amount in before],
                  [max(-amount, 0) for amount in after])  # fmt: skip
    before, after = ([max(amount, 0) for amount in amounts] for amounts in (before, after))
    for axis, extent in enumerate(x.extents):
        if extent == 0 and (before[axis] or after[axis]):
            raise DmlcError(f"nothing is left of axis {axis} that could be continued")
    sizes = zip(before, x.extents, after, strict=True)
    extents = [as_extent(measure(size) + front + back) for front, size, back in sizes]

    def element(at: Point) -> Scalar:
        places: list[Scalar] = []
        for axis, index in enumerate(at.indices):
            if not (before[axis] or after[axis]):
                places.append(index)
                continue
            size = at.size(x.extents[axis])
            places.append(clamp(_fold_place(index - before[axis], size, mode), size))
        return at.read(x, *places)

    return node.builder.compute(node.name, extents, element, x.dtype)


def _cut_ends(node: Node, x: Tensor, first: Sequence[int], last: Sequence[int]) -> Tensor:
    """What is left of a tensor without so many places before and after each axis."""
    if not any((*first, *last)):
        return x
    extents: list[Extent] = []
    for axis, (size, front, back) in enumerate(zip(x.extents, first, last, strict=True)):
        left = measure(size) - front - back
        if isinstance(left, int) and left < 0:
            raise DmlcError(f"{front + back} places are cut off the {size} of axis {axis}")
        if not isinstance(left, int) and front + back:
            node.builder.check(f"{size} > {front + back}")
        extents.append(as_extent(left))

    def element(at: Point) -> Scalar:
        rows = zip(at.indices, x.extents, first, last, strict=True)
        return at.read(x, *(clamp(index + front, at.size(size)) if front or back else index
                            for index, size, front, back in rows))  # fmt: skip

    return node.builder.compute(f"{node.name}_cut", extents, element, x.dtype)


def _fold_place(place: Scalar, size: Scalar, mode: str) -> Scalar:
    """The place inside of an axis that one outside stands for."""
    if mode == "edge":
        return place
    if mode == "wrap":
        return (place % size + size) % size
    last = size - 1
    inside = place.apply("abs") % (last * 2).apply("max", 1)
    return last - (last - inside).apply("abs")


def _depth_to_space(node: Node) -> Tensor:
    x, block = node.tensor(0), node.integer("blocksize")
    count, depth, height, width = x.extents
    if not isinstance(depth, int) or depth % block**2:
        raise DmlcError(f"{depth} channels are no blocks of {block} by {block}")
    channels = depth // block**2
    columns_first = node.text("mode", "DCR") == "DCR"

    def element(at: Point) -> Scalar:
        n, c, h, w = at.indices
        row, column = h % block, w % block
        place = (row * block + column) * channels + c if columns_first else (
            c * block + row) * block + column  # fmt: skip
        return at.read(x, n, place, h / block, w / block)

    extents = [count, channels, *(as_extent(measure(e) * block) for e in (height, width))]
    return node.builder.compute(node.name, extents, element, x.dtype)


def _space_to_depth(node: Node) -> Tensor:
    x, block = node.tensor(0), node.integer("blocksize")
    count, channels, *space = x.extents
    parts = [_divide(measure(extent), block) for extent in space]
    if not isinstance(channels, int) or any(part is None for part in parts):
        raise DmlcError(f"{x.name} is not made of blocks of {block} by {block}")
    depth_first = node.text("mode", "DCR") == "DCR"

    def element(at: Point) -> Scalar:
        n, c, h, w = at.indices
        if depth_first:
            channel, inside = c % channels, c / channels
        else:
            channel, inside = c / block**2, c % block**2
        return at.read(x, n, channel, h * block + inside / block, w * block + inside % block)

    extents = [count, channels * block**2, *(as_extent(p) for p in parts if p is not None)]
    return node.builder.compute(node.name, extents, element, x.dtype)


def _range(node: Node) -> Array:
    dtype = node.array(0).dtype
    if dtype.kind in "iuO":
        start, limit, delta = (node.numbers(k)[0] for k in range(3))
    else:
        start, limit, delta = (float(node.array(k).ravel()[0]) for k in range(3))
    if not (delta and math.isfinite(start) and math.isfinite(limit) and math.isfinite(delta)):
        raise DmlcError(f"it goes from {start} to {limit} by {delta}, which has no end")
    count = max(0, math.ceil((limit - start) / delta))
    node.hold(8 * count)
    if dtype.kind in "iu":
        return np.array([start + step * delta for step in range(count)], dtype)
    # Types that NumPy has not are computed in FLOAT32.
    own = dtype.type if dtype.kind == "f" else np.float32
    arange: Any = np.arange
    return arange(own(start), own(limit), own(delta)).astype(dtype)


def _eye(node: Node) -> Tensor:
    value = node.value(0)
    chosen = node.integer("dtype")
    dtype = read_type(chosen) if chosen else dtype_of(value)
    offset = node.integer("k")

    def element(at: Point) -> Scalar:
        row, column = at.indices
        return (row + offset).equals(column).cast(dtype.compute)

    return node.builder.compute(node.name, extents_of(value), element, dtype)


def _trilu(node: Node) -> Tensor:
    x = node.tensor(0)
    offset = node.numbers(1)[0] if node.has(1) else 0
    offset = max(-_FAR, min(_FAR, offset))
    upper = node.integer("upper", 1)

    def element(at: Point) -> Scalar:
        row, column = at.indices[-2:]
        kept = column - row >= offset if upper else column - row <= offset
        zero = False if x.dtype is DataType.BOOL else 0
        return kept.select(at.read(x, *at.indices), zero)

    return node.builder.compute(node.name, x.extents, element, x.dtype)


def _has_element(node: Node) -> Array:
    return np.array(node.has(0))


RULES: Mapping[str, Rule] = {
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "EyeLike": _eye,
    "Flatten": _flatten,
    "Identity": _identity,
    "OptionalGetElement": _identity,
    "OptionalHasElement": _has_element,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
