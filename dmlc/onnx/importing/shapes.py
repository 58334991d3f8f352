"""Operators of ONNX that change shapes or move elements, and compute none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.library import apply_operator
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
from dmlc.onnx.importing.names import read_type
from dmlc.onnx.importing.nodes import (
    Node,
    OpenSizeError,
    Rule,
    Value,
    as_extents,
    dtype_of,
    extents_of,
    hold_sizes,
    need_number,
)
from dmlc.scalars import Array, DataType
from dmlc.sizes import (
    LARGEST,
    Measure,
    Size,
    as_extent,
    divide_down,
    divide_exactly,
    divide_up,
    find_least,
    list_measured,
    measure,
    multiply,
    write_condition,
)
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
        shape = [int(size) for size in as_extents(sizes)]
        if math.prod(shape) >= 2**63:
            raise DmlcError(f"it gives a tensor of {math.prod(shape):,} elements")
        return np.broadcast_to(value.reshape(()), shape)
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
    for axis, size in enumerate(node.sizes("shape", 1)):
        copies = size == 0 and not node.integer("allowzero")
        given.append(measure(x.extents[axis]) if copies else size)
    return reshape(node.builder, node.name, x, as_extents(_fill(node, x, given)))


def _fill(node: Node, x: Tensor, sizes: Sequence[Measure]) -> list[Measure]:
    """Sizes with the remaining number of elements in place of -1."""
    if -1 not in sizes:
        return list(sizes)
    total, rest = multiply(x.extents), multiply(size for size in sizes if size != -1)
    left = _divide_exactly(node, total, rest)
    return [left if size == -1 else size for size in sizes]


def _divide_exactly(node: Node, total: Measure, by: Measure) -> Measure:
    """Size divided by a number that must divide it. For an open size that is checked at run time.
    Raises `DmlcError` if it never does."""
    found = divide_exactly(total, by)
    if found is not None or total == by == 0:
        return 0 if found is None else found
    if isinstance(by, Size) and len(by.terms) == 1:
        ((symbols, number),) = by.terms
        rest = divide_exactly(total, Size(((symbols, 1),)))
        if rest is not None:
            return _divide_exactly(node, rest, number)
    if isinstance(by, Size):
        symbols = (*list_measured(total), *by.symbols)
        raise OpenSizeError(f"whether {total} is a multiple of {by} is not known", symbols)
    if isinstance(total, int) or by < 1:
        raise DmlcError(f"{total} elements are no whole number of parts of {by} elements")
    each = divide_down(total, by)
    node.builder.check(write_condition(total, "==", each * by))
    return each


def _flatten(node: Node) -> Tensor:
    x = node.tensor(0)
    axis = node.integer("axis")
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
    extents = join_extents(node.builder, [extents_of(value), as_extents(sizes)])
    fixed = [extent for extent in extents if isinstance(extent, int)]
    if isinstance(value, np.ndarray) and len(fixed) == len(extents):
        return np.broadcast_to(value, fixed)
    return expand(node.builder, node.name, node.tensor(0), extents)


def _tile(node: Node) -> Tensor:
    x, repeats = node.tensor(0), node.measures(1)
    extents = [as_extent(measure(e) * r) for e, r in zip(x.extents, repeats, strict=True)]

    def element(at: Point) -> Scalar:
        pairs = zip(at.indices, x.extents, repeats, strict=True)
        return at.read(x, *(i if r == 1 else i % at.size(e) for i, e, r in pairs))

    return node.builder.compute(node.name, extents, element, x.dtype)


def _concat(node: Node) -> Tensor:
    return concatenate(node.builder, node.name, node.tensors(), node.integer("axis", 1))


def _split(node: Node) -> list[Tensor]:
    x = node.tensor(0)
    (axis,) = normalize_axes([node.integer("axis")], x.rank)
    lengths = node.sizes("split", 1)
    size, count = measure(x.extents[axis]), len(node.outputs)
    if not lengths:
        each = divide_up(size, count)
        if isinstance(size, int) and isinstance(each, int):
            lengths = [max(0, min(each, size - part * each)) for part in range(count)]
        else:
            lengths = [each] * (count - 1) + [size - each * (count - 1)]
    found: list[Tensor] = []
    start: Measure = 0
    for name, length in zip(node.outputs, lengths, strict=True):
        starts = [start if k == axis else 0 for k in range(x.rank)]
        extents = [as_extent(length) if k == axis else e for k, e in enumerate(x.extents)]
        found.append(slice_axes(node.builder, name, x, starts, [1] * x.rank, extents))
        start = start + length
    return found


def _slice(node: Node) -> Tensor:
    x = node.tensor(0)
    starts, ends = node.sizes("starts", 1), node.sizes("ends", 2)
    axes = node.setting("axes", 3)
    given = axes or list(range(len(starts)))
    normalize_axes(given, x.rank)
    chosen = [axis % x.rank for axis in given]
    steps = node.numbers(4) if node.has(4) else [1] * len(starts)
    first: list[Measure] = [0] * x.rank
    moves, extents = [1] * x.rank, list(x.extents)
    for axis, start, end, step in zip(chosen, starts, ends, steps, strict=True):
        if step == 0:
            raise DmlcError("it has steps of 0")
        first[axis], count = _slice_bounds(node, measure(x.extents[axis]), start, end, step)
        extents[axis], moves[axis] = as_extent(count), step
    return slice_axes(node.builder, node.name, x, first, moves, extents)


_FAR = 10**8
"""From here on a place stands for the end of an axis of open size. That it is none is checked."""


def _slice_bounds(
    node: Node, size: Measure, start: Measure, end: Measure, step: int
) -> tuple[Measure, Measure]:
    """Start and length of a slice along an axis. Bounds relative to open sizes are inside unless
    known to be outside."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        places = range(*slice(start, end, step).indices(size))
        return places.start, len(places)
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def hold(place: Measure) -> Measure:
        if isinstance(place, int) and abs(place) >= _FAR:
            node.builder.check_at_most(size, min(abs(place), LARGEST))
            return high if place > 0 else low
        found = size + place if find_least(place * -1) > 0 else place
        if find_least(low - found) >= 0:
            return low
        return high if find_least(found - high) >= 0 else found

    first, last = hold(start), hold(end)
    moved = last - first if step > 0 else first - last
    count = divide_up(moved, abs(step))
    return (0, 0) if find_least(count * -1) >= 0 else (first, count)


def _pad(node: Node) -> Tensor:
    x = node.tensor(0)
    amounts = node.setting("pads" if node.version > 1 else "paddings", 1) or []
    axes = node.numbers(3) if node.has(3) else list(range(x.rank))
    before, after = [0] * x.rank, [0] * x.rank
    for number, axis in enumerate(axes):
        before[axis], after[axis] = amounts[number], amounts[number + len(axes)]
    mode = node.text("mode", "constant")
    if mode == "constant":
        value = node.array(2).ravel()[0].item() if node.has(2) else node.number("value")
        if not x.dtype.is_float:
            value = bool(value) if x.dtype is DataType.BOOL else int(value)
        return pad(node.builder, node.name, x, before, after, value)
    if mode not in ("edge", "reflect", "wrap"):
        raise UnsupportedError(f"the mode {mode}")
    # What is cut off is gone before what is left is continued beyond its ends.
    x = _crop(node, x, [max(-amount, 0) for amount in before],
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
            places.append(clamp(_wrap_index(index - before[axis], size, mode), size))
        return at.read(x, *places)

    return node.builder.compute(node.name, extents, element, x.dtype)


def _crop(node: Node, x: Tensor, first: Sequence[int], last: Sequence[int]) -> Tensor:
    """Tensor without some elements before and after each axis."""
    if not any((*first, *last)):
        return x
    left = [measure(e) - front - back
            for e, front, back in zip(x.extents, first, last, strict=True)]  # fmt: skip
    if any(isinstance(size, int) and size < 0 for size in left):
        raise DmlcError(f"{first} and {last} places are cut off the ends of {x.extents}")
    return slice_axes(
        node.builder,
        f"{node.name}_cut",
        x,
        first,
        [1] * x.rank,
        [as_extent(n) for n in left],
    )


def _wrap_index(place: Scalar, size: Scalar, mode: str) -> Scalar:
    """Index inside an axis for one outside, by a padding mode."""
    if mode == "edge":
        return place
    if mode == "wrap":
        return (place % size + size) % size
    last = size - 1
    inside = place.apply("abs") % (last * 2).apply("max", 1)
    return last - (last - inside).apply("abs")


_ORDERS = {"DCR": "DEPTH_COLUMN_ROW", "CRD": "COLUMN_ROW_DEPTH"}


def _depth_space(operator: str) -> Rule:
    def rule(node: Node) -> Tensor:
        order = _ORDERS.get(node.text("mode", "DCR"))
        if order is None:
            raise UnsupportedError(f"the mode {node.text('mode')}")
        settings = {"BlockSize": node.integer("blocksize"), "Order": order}
        return apply_operator(
            node.builder, node.name, operator, {"InputTensor": node.tensor(0)}, settings
        )

    return rule


def _range(node: Node) -> Value:
    dtype = node.array(0).dtype
    if any(isinstance(node.array(k).ravel()[0], Size) for k in range(3)):
        start, limit, delta = (node.measures(k)[0] for k in range(3))
        step = need_number(delta, "the step of a range")
        if step == 0:
            raise DmlcError("it has steps of 0")
        count = divide_up((limit - start) * (1 if step > 0 else -1), abs(step))
        return node.builder.compute(
            node.name, [as_extent(count)],
            lambda at: (at.indices[0] * step + at.measure(start)).cast(DataType.INT64),
        )  # fmt: skip
    if dtype.kind in "iuO":
        first, last, by = (node.numbers(k)[0] for k in range(3))
    else:
        first, last, by = (float(node.array(k).ravel()[0]) for k in range(3))
    if not (by and math.isfinite(first) and math.isfinite(last) and math.isfinite(by)):
        raise DmlcError(f"it goes from {first} to {last} by {by}, which has no end")
    number = max(0, math.ceil((last - first) / by))
    node.hold(8 * number)
    if dtype.kind in "iu":
        return np.array([first + step * by for step in range(number)], dtype)
    # Types that NumPy has not are computed in FLOAT32.
    own = dtype.type if dtype.kind == "f" else np.float32
    arange: Any = np.arange
    return arange(own(first), own(last), own(by)).astype(dtype)


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
    offset = max(-LARGEST, min(LARGEST, offset))
    upper = node.integer("upper")

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
    "DepthToSpace": _depth_space("directml.DEPTH_TO_SPACE1"),
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
    "SpaceToDepth": _depth_space("directml.SPACE_TO_DEPTH1"),
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
