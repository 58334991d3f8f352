"""Gathers and scatters of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dmlc.building.functions import Operand, Point, Scalar, Tensor
from dmlc.building.tensors import clamp, gather, gather_elements, normalize_axes, read_position
from dmlc.onnx.importing.nodes import Node, Rule, need_number
from dmlc.scalars import DataType
from dmlc.sizes import as_extent, measure
from dmlc.source import DmlcError, UnsupportedError


def _gather(node: Node) -> Tensor:
    return gather(node.builder, node.name, node.tensor(0), node.tensor(1), node.integer("axis"))


def _gather_elements(node: Node) -> Tensor:
    x, positions = node.tensor(0), node.tensor(1)
    return gather_elements(node.builder, node.name, x, positions, node.integer("axis"))


def _gather_nd(node: Node) -> Tensor:
    x, positions = node.tensor(0), node.tensor(1)
    batch, depth = node.integer("batch_dims"), positions.extents[-1]
    depth = need_number(depth, "the number of axes of its places")
    outer = positions.rank - 1
    extents = (*positions.extents[:-1], *x.extents[batch + depth :])

    def element(at: Point) -> Scalar:
        own: list[Operand] = list(at.indices[:batch])
        for number in range(depth):
            size = at.size(x.extents[batch + number])
            own.append(
                clamp(read_position(at, positions, (*at.indices[:outer], number), size), size)
            )
        return at.read(x, *own, *at.indices[outer:])

    return node.builder.compute(node.name, extents, element, x.dtype)


# Scatters: each place looks for what is written to it ------------------------------------------

_REDUCTIONS: Mapping[str, tuple[str, str]] = {
    "add": ("sum", "add"),
    "mul": ("product", "mul"),
    "max": ("max", "max"),
    "min": ("min", "min"),
}


def _write(
    node: Node,
    x: Tensor,
    axes: Sequence[int | str],
    matches: Callable[[Point], Scalar],
    update: Callable[[Point, Sequence[Scalar]], Scalar],
) -> Tensor:
    """Tensor with updates written into it. `axes` are the extents of the updates to search for an
    element, `matches` whether one of these is written to it, and `update` the value."""
    name, builder = node.name, node.builder
    reduction = node.text("reduction", "none")
    if reduction in _REDUCTIONS:
        combiner, operation = _REDUCTIONS[reduction]
        total = builder.reduce(f"{name}_total", combiner, x.extents, axes,
                               lambda at: update(at, at.reduced), x.dtype.compute,
                               matches)  # fmt: skip
        return builder.compute(
            name,
            x.extents,
            lambda at: at.read(x, *at.indices).apply(operation, at.read(total, *at.indices)),
            x.dtype,
        )
    if reduction != "none":
        raise UnsupportedError(f"the reduction {reduction}")

    def number(at: Point) -> Scalar:
        place = at.constant(0, DataType.INDEX)
        for index, extent in zip(at.reduced, axes, strict=True):
            place = place * at.size(extent) + index
        return place.cast(DataType.INT32)

    last = builder.reduce(f"{name}_last", "max", x.extents, axes, number, None, matches)

    def element(at: Point) -> Scalar:
        found = at.read(last, *at.indices)
        rest = found.apply("max", 0).cast(DataType.INDEX)
        places: list[Scalar] = []
        for extent in axes[::-1]:
            size = at.size(extent)
            places.insert(0, clamp(rest % size, size))
            rest = rest / size
        return (found >= 0).select(update(at, places), at.read(x, *at.indices))

    return builder.compute(name, x.extents, element, x.dtype)


def _scatter_elements(node: Node) -> Tensor:
    x, positions, updates = node.tensor(0), node.tensor(1), node.tensor(2)
    axis = node.axis(x.rank)
    if positions.rank != x.rank or updates.extents != positions.extents:
        raise DmlcError(f"{positions.name} and {updates.name} have other axes than {x.name}")

    def holds(at: Point) -> Scalar:
        """Whether an element's slice, apart from the axis, has updates."""
        found = at.constant(True, DataType.BOOL)
        for place, index in enumerate(at.indices):
            if place != axis and positions.extents[place] != x.extents[place]:
                found = found & (index < at.size(positions.extents[place]))
        return found

    def own(at: Point, step: Scalar) -> list[Scalar]:
        return [
            step if place == axis else
            index if positions.extents[place] == x.extents[place]
            else clamp(index, at.size(positions.extents[place]))
            for place, index in enumerate(at.indices)
        ]  # fmt: skip

    def matches(at: Point) -> Scalar:
        size = at.size(x.extents[axis])
        given = read_position(at, positions, own(at, at.reduced[0]), size)
        return holds(at) & given.equals(at.indices[axis])

    def update(at: Point, places: Sequence[Scalar]) -> Scalar:
        return at.read(updates, *own(at, places[0]))

    return _write(node, x, [positions.extents[axis]], matches, update)


def _scatter_nd(node: Node) -> Tensor:
    x, positions, updates = node.tensor(0), node.tensor(1), node.tensor(2)
    depth, outer = positions.extents[-1], positions.rank - 1
    depth = need_number(depth, "the number of axes of its places")
    if depth > x.rank or updates.extents != (*positions.extents[:-1], *x.extents[depth:]):
        raise DmlcError(f"{positions.name} and {updates.name} have other axes than {x.name}")

    def matches(at: Point) -> Scalar:
        found = at.constant(True, DataType.BOOL)
        for axis in range(depth):
            size = at.size(x.extents[axis])
            given = read_position(at, positions, (*at.reduced, axis), size)
            found = found & given.equals(at.indices[axis])
        return found

    def update(at: Point, places: Sequence[Scalar]) -> Scalar:
        return at.read(updates, *places, *at.indices[depth:])

    return _write(node, x, positions.extents[:outer], matches, update)


def _tensor_scatter(node: Node) -> Tensor:
    """Copy of a tensor in which consecutive updates along an axis replace elements, from a start
    index per batch on."""
    past, updates, starts = node.tensor(0), node.tensor(1), node.optional(2)
    axis = node.axis(past.rank)
    circular = node.text("mode") == "circular"
    count = updates.extents[axis]

    def element(at: Point) -> Scalar:
        place, size = at.indices[axis], at.size(past.extents[axis])
        start = at.constant(0, DataType.INDEX)
        if starts is not None:
            start = at.read(starts, at.indices[0]).cast(DataType.INDEX)
        step = place - start
        if circular:
            step = (step % size + size) % size
        own = list(at.indices)
        own[axis] = clamp(step, at.size(count))
        taken = (step >= 0) & (step < at.size(count))
        return taken.select(at.read(updates, *own), at.read(past, *at.indices))

    return node.builder.compute(node.name, past.extents, element, past.dtype)


def _one_hot(node: Node) -> Tensor:
    positions, values = node.tensor(0), node.tensor(2)
    depth = as_extent(node.measures(1)[0])
    axis = node.axis(positions.rank + 1)
    extents = (*positions.extents[:axis], depth, *positions.extents[axis:])

    def element(at: Point) -> Scalar:
        own = (*at.indices[:axis], *at.indices[axis + 1 :])
        place = read_position(at, positions, own, at.size(depth))
        chosen = place.equals(at.indices[axis])
        return chosen.select(at.read(values, 1), at.read(values, 0))

    return node.builder.compute(node.name, extents, element, values.dtype)


def _reverse_sequence(node: Node) -> Tensor:
    x, lengths = node.tensor(0), node.tensor(1)
    batch, time = node.integer("batch_axis"), node.integer("time_axis")
    normalize_axes([batch, time], x.rank)

    def element(at: Point) -> Scalar:
        length = at.read(lengths, at.indices[batch]).cast(DataType.INDEX)
        own = list(at.indices)
        turned = clamp(length - 1 - at.indices[time], at.size(x.extents[time]))
        own[time] = (at.indices[time] < length).select(turned, at.indices[time])
        return at.read(x, *own)

    return node.builder.compute(node.name, x.extents, element, x.dtype)


def _top(node: Node) -> list[Tensor | None]:
    """First elements of a sorted order: each element counts those before it, and a result finds the
    element with its count. NaN is larger than every number, as in NumPy, and equal to NaN."""
    x, builder = node.tensor(0), node.builder
    (count,) = node.measures(1) if node.has(1) else [node.integer("k")]
    axis, largest = node.axis(x.rank), node.integer("largest", 1)
    size = x.extents[axis]
    node.builder.check_at_most(count, measure(size))

    def before(at: Point) -> Scalar:
        own = list(at.indices)
        value = at.read(x, *own)
        own[axis] = at.reduced[0]
        other = at.read(x, *own)
        first = at.reduced[0] < at.indices[axis]
        ahead = other > value if largest else other < value
        comes = ahead | (other.equals(value) & first)
        if not x.dtype.is_float:
            return comes
        greatest, least = (other, value) if largest else (value, other)
        return comes | (greatest.differs(greatest) & (least.equals(least) | first))

    rank = builder.reduce(
        f"{node.name}_rank", "sum", x.extents, [size],
        lambda at: at.constant(1, DataType.INT32), None, before,
    )  # fmt: skip

    def matches(at: Point) -> Scalar:
        own = list(at.indices)
        own[axis] = at.reduced[0]
        return at.read(rank, *own).cast(DataType.INDEX).equals(at.indices[axis])

    extents = [
        as_extent(count) if place == axis else extent for place, extent in enumerate(x.extents)
    ]
    name = node.outputs[1] if node.wants(1) else f"{node.name}_places"
    places = builder.reduce(
        name, "sum", extents, [size],
        lambda at: at.reduced[0].cast(DataType.INT64), None, matches,
    )  # fmt: skip

    def element(at: Point) -> Scalar:
        own = list(at.indices)
        own[axis] = clamp(at.read(places, *own).cast(DataType.INDEX), at.size(size))
        return at.read(x, *own)

    return [builder.compute(node.name, extents, element, x.dtype), places]


def _feature_extractor(node: Node) -> Tensor:
    x, places = node.tensor(0), node.numbers(1)
    held = node.builder.table(f"{node.name}_columns", np.array(places, np.int32))

    def element(at: Point) -> Scalar:
        size = at.size(x.extents[-1])
        column = clamp(at.read(held, at.indices[-1]).cast(DataType.INDEX), size)
        return at.read(x, *at.indices[:-1], column)

    if x.rank == 0:
        raise DmlcError("it takes features of a tensor without axes")
    return node.builder.compute(node.name, (*x.extents[:-1], len(places)), element, x.dtype)


RULES: Mapping[str, Rule] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "TopK": _top,
}

MACHINE_LEARNING: Mapping[str, Rule] = {"ArrayFeatureExtractor": _feature_extractor}
