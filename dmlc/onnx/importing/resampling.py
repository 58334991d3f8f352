"""Resampling operators of ONNX, which sample tensors between their elements."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.tensors import clamp, normalize_axes
from dmlc.onnx.importing.casts import round_into
from dmlc.onnx.importing.nodes import Node, OpenSizeError, Rule, need_number
from dmlc.scalars import Array, DataType
from dmlc.sizes import LARGEST, Measure, Size, as_extent, divide_down, list_measured, measure
from dmlc.source import DmlcError, UnsupportedError

# Resize: what each place of an axis reads is known, so it is a table of places and weights --------


Ratio: TypeAlias = float | tuple[Measure, Measure]
"""How much longer an axis becomes: a number, or the new size and the old one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Taps:
    """Taps of each element of the result along an axis: the indices that it reads, and their
    weights. Both have a row for each element of the result."""

    places: Array
    weights: Array


def _resize(node: Node) -> Tensor:
    x = node.tensor(0)
    sizes = [measure(extent) for extent in x.extents]
    given = node.integers("axes") or list(range(x.rank))
    normalize_axes(given, x.rank)
    axes = [axis % x.rank for axis in given]
    ratios, shape = _read_ratios(node, sizes, axes)
    region = node.array(1).ravel().tolist() if node.has(1) else []
    outside: list[tuple[int, Array]] = []
    found = x
    for axis in axes:
        name = f"{node.name}_axis{axis}"
        size, result, ratio = sizes[axis], shape[axis], ratios[axis]
        if isinstance(result, int) and result < 0:
            raise DmlcError(f"an axis is resized to {result:,}")
        if size == result and ratio in (1, (1, 1)):
            continue
        if isinstance(size, Size) or isinstance(result, Size) or isinstance(ratio, tuple):
            if not isinstance(ratio, tuple):
                raise _refuse_open("a ratio that is kept", size, result)
            found = _resize_open(node, name, found, axis, result, ratio)
            continue
        window = None
        if node.text("coordinate_transformation_mode") == "tf_crop_and_resize":
            number = axes.index(axis)
            if len(region) != 2 * len(axes):
                raise DmlcError(f"its region has {len(region)} numbers for {len(axes)} axes")
            window = (region[number], region[number + len(axes)])
        places = _transform(node, size, result, ratio, window)
        if window is not None:
            beyond = (places < 0) | (places > size - 1)
            outside += [(axis, beyond)] if beyond.any() else []
        taps = _find_taps(node, places, size, ratio)
        found = _apply_taps(node, name, found, axis, taps)
    value = node.number("extrapolation_value")
    held = [(axis, node.place(b, f"{node.name}_beyond{axis}")) for axis, b in outside]

    def element(at: Point) -> Scalar:
        result = at.read(found, *at.indices)
        for axis, beyond in held:
            result = at.read(beyond, at.indices[axis]).select(value, result)
        if result.dtype.is_float and not x.dtype.is_float:
            return round_into(result, None, x.dtype)
        return result

    return node.builder.compute(node.name, found.extents, element, x.dtype)


def _read_ratios(
    node: Node, sizes: Sequence[Measure], axes: Sequence[int]
) -> tuple[list[Ratio], list[Measure]]:
    """Scale and new extent of each axis."""
    ratios: list[Ratio] = [1.0] * len(sizes)
    shape = list(sizes)
    last = 1 if node.version < 11 else 2
    if node.has(last) and node.array(last).size > 0:
        for axis, scale in zip(axes, node.array(last).ravel().tolist(), strict=True):
            size = sizes[axis]
            if not 0 < scale < math.inf:
                raise DmlcError(f"a scale of {scale}")
            if isinstance(size, int):
                ratios[axis], shape[axis] = scale, math.floor(scale * size)
                continue
            ratios[axis] = over, under = _find_fraction(scale)
            shape[axis] = divide_down(size * over, under)
        return ratios, shape
    wanted = node.measures(3)
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        for axis, size in zip(axes, wanted, strict=True):
            ratios[axis], shape[axis] = _find_ratio(size, sizes[axis]), size
        return ratios, shape
    numbers = {axis: need_number(sizes[axis], "an axis whose ratio is kept") for axis in axes}
    asked = [_divide(s, numbers[axis]) for axis, s in zip(axes, node.numbers(3), strict=True)]
    ratio = (min if policy == "not_larger" else max)(asked)
    for axis in axes:
        ratios[axis], shape[axis] = ratio, math.floor(ratio * numbers[axis] + 0.5)
    return ratios, shape


def _find_fraction(scale: float) -> tuple[int, int]:
    """Fraction of small integers nearest to a FLOAT32. Raises `UnsupportedError` if none is near,
    as an open size times such a scale is no size."""
    found = Fraction(scale).limit_denominator(1024)
    if found <= 0 or np.float32(float(found)) != np.float32(scale):
        raise UnsupportedError(f"a scale of {scale}, which is no fraction, of an open size")
    return found.numerator, found.denominator


def _find_ratio(result: Measure, size: Measure) -> Ratio:
    """Ratio of two sizes: a fraction if it is one for all values of the symbols, or else both
    sizes."""
    if isinstance(result, int) and isinstance(size, int):
        return _divide(result, size)
    if isinstance(result, Size) and isinstance(size, Size):
        times = Fraction(result.terms[0][1], size.terms[0][1])
        if result * times.denominator == size * times.numerator:
            return times.numerator, times.denominator
    return result, size


def _divide(result: int, size: int) -> float:
    if size == 0 and result:
        raise UnsupportedError(f"an axis of no elements cannot be resized to {result:,}")
    return result / size if size else 1.0


def _transform(
    node: Node, size: int, result: int, ratio: float, window: tuple[float, float] | None
) -> Array:
    """Coordinate in the tensor of each element of the result."""
    node.hold(8 * result)
    places = np.arange(result, dtype=np.float64)
    mode = node.text("coordinate_transformation_mode", "asymmetric")
    length = ratio * size
    match mode:
        case "half_pixel":
            return (places + 0.5) / ratio - 0.5
        case "pytorch_half_pixel":
            return (places + 0.5) / ratio - 0.5 if length > 1 else places * 0
        case "half_pixel_symmetric":
            center = size / 2 * (1 - result / length)
            return center + (places + 0.5) / ratio - 0.5
        case "asymmetric":
            return places / ratio
        case "align_corners":
            return places * (size - 1) / (length - 1) if length != 1 else places * 0
        case "tf_crop_and_resize" if window is not None:
            first, last = window
            if length > 1:
                return first * (size - 1) + places * (last - first) * (size - 1) / (length - 1)
            return places * 0 + 0.5 * (first + last) * (size - 1)
        case _:
            raise UnsupportedError(f"the mode {mode}")


def _find_taps(node: Node, places: Array, size: int, ratio: float) -> Taps:
    """Taps along an axis of a given size at these coordinates."""
    mode = node.text("mode")
    if mode == "nearest":
        chosen = np.clip(_round(node, places), 0, size - 1).astype(np.int32)
        return Taps(chosen[:, None], np.ones((len(places), 1), np.float32))
    shrunk = min(ratio, 1.0) if node.integer("antialias") else 1.0
    if mode == "linear":
        kernel, reach = _linear_kernel, 1.0
    elif mode == "cubic":
        kernel = functools.partial(_cubic_kernel, factor=node.number("cubic_coeff_a", -0.75))
        reach = 2.0
    else:
        raise UnsupportedError(f"the mode {mode}")
    width = reach / shrunk
    first = np.floor(places - width).astype(np.int64) + 1
    count = int(np.ceil(2 * width))
    node.hold(24 * count * len(places))
    rows = first[:, None] + np.arange(count)
    weights = kernel(np.abs(rows - places[:, None]) * shrunk)
    if node.integer("exclude_outside") or node.integer("antialias"):
        inside = (rows >= 0) & (rows < size)
        if node.integer("exclude_outside"):
            weights = np.where(inside, weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
    return Taps(np.clip(rows, 0, size - 1).astype(np.int32), weights.astype(np.float32))


def _round(node: Node, places: Array) -> Array:
    mode = node.text("nearest_mode", "floor")
    match mode:
        case "round_prefer_floor":
            return np.ceil(places - 0.5)
        case "round_prefer_ceil":
            return np.floor(places + 0.5)
        case "floor":
            return np.floor(places)
        case "ceil":
            return np.ceil(places)
        case _:
            raise UnsupportedError(f"rounding by {mode}")


def _linear_kernel(distance: Array) -> Array:
    return np.maximum(0, 1 - distance)


def _cubic_kernel(distance: Array, factor: float) -> Array:
    near = ((factor + 2) * distance - (factor + 3)) * distance**2 + 1
    far = ((factor * distance - 5 * factor) * distance + 8 * factor) * distance - 4 * factor
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _apply_taps(node: Node, name: str, x: Tensor, axis: int, taps: Taps) -> Tensor:
    """Tensor resampled along an axis. Integers give FLOAT32 sums, which are rounded once, after all
    axes."""
    results, count = taps.places.shape
    size = x.extents[axis]
    extents = [results if k == axis else e for k, e in enumerate(x.extents)]
    if count == 1:
        line = _find_line(taps.places[:, 0], size)
        if line == (1, 1) and results == size:
            return x
        held = None if line else node.place(taps.places[:, 0], f"{name}_places")

        def pick(at: Point) -> Scalar:
            own = list(at.indices)
            if line is not None:
                own[axis] = own[axis] * line[0] / line[1]
            elif held is not None:
                own[axis] = clamp(at.read(held, own[axis]).cast(DataType.INDEX), at.size(size))
            return at.read(x, *own)

        return node.builder.compute(name, extents, pick, x.dtype)
    places = node.place(taps.places, f"{name}_places")
    weights = node.place(taps.weights, f"{name}_weights")

    def element(at: Point) -> Scalar:
        own = list(at.indices)
        (step,) = at.reduced
        place, weight = (at.read(table, at.indices[axis], step) for table in (places, weights))
        own[axis] = clamp(place.cast(DataType.INDEX), at.size(size))
        value = at.read(x, *own)
        if not value.dtype.is_float:
            value = value.cast(DataType.FLOAT32)
        return value * weight.cast(value.dtype)

    return node.builder.reduce(name, "sum", extents, [count], element)


def _find_line(places: Array, size: object) -> tuple[int, int] | None:
    """Integers by which an element's index is multiplied and divided to give the index that it
    reads, rounded down: a form about which fusion can prove facts."""
    count = len(places)
    if not isinstance(size, int) or count == 0:
        return None
    divisor = math.gcd(size, count)
    over, under = size // divisor, count // divisor
    return (over, under) if (np.arange(count) * over // under == places).all() else None


def _upsample(node: Node) -> Tensor:
    first = [1.0, 1.0, node.number("height_scale"), node.number("width_scale")]
    held = np.array(node.floats("scales") or first, np.float32)
    scales = node.inputs[1] if node.has(1) else held
    return _resize(dataclasses.replace(node, inputs=(node.inputs[0], None, scales), version=11))


# Axes of sizes that are left open: each place finds what it reads by whole numbers --------------


def _resize_open(
    node: Node, name: str, x: Tensor, axis: int, result: Measure, ratio: tuple[Measure, Measure]
) -> Tensor:
    """Tensor resized along an axis if its size is open, or the new one is. Coordinates are
    fractions of integers, so that rounding does not depend on the axis' length."""
    mode, extent = node.text("mode"), x.extents[axis]
    size = measure(extent)
    if node.integer("antialias") or node.integer("exclude_outside"):
        raise _refuse_open("antialias and exclude_outside", size, result)
    if mode not in ("nearest", *_WEIGHTS):
        raise UnsupportedError(f"the mode {mode}")
    if mode == "cubic" and node.number("cubic_coeff_a", -0.75) != -0.75:
        raise _refuse_open("cubic_coeff_a", size, result)
    scaled, offset, whole = _find_line_open(node, size, result, *ratio)
    for bound in (scaled * result + offset + whole * 2, whole * 2):
        node.builder.check_at_most(bound, LARGEST)
    extents = [as_extent(result) if k == axis else e for k, e in enumerate(x.extents)]

    def read(at: Point, place: Scalar) -> Scalar:
        own = list(at.indices)
        own[axis] = clamp(place, at.size(extent))
        return at.read(x, *own)

    def divide(at: Point) -> tuple[Scalar, Scalar, Scalar]:
        """Floor of a coordinate, the numerator of its fractional part, and the denominator.
        Coordinates start at -1, as quotients are truncated."""
        parts = at.measure(whole)
        moved = at.indices[axis] * at.measure(scaled) + at.measure(offset + whole)
        return moved / parts - 1, moved % parts, parts

    def pick(at: Point) -> Scalar:
        floor, over, parts = divide(at)
        rounding = node.text("nearest_mode", "floor")
        match rounding:
            case "floor":
                return read(at, floor)
            case "ceil":
                up = over > 0
            case "round_prefer_floor":
                up = over * 2 > parts
            case "round_prefer_ceil":
                up = over * 2 >= parts
            case _:
                raise UnsupportedError(f"rounding by {rounding}")
        return read(at, up.select(floor + 1, floor))

    if mode == "nearest":
        return node.builder.compute(name, extents, pick, x.dtype)
    first, weigh = _WEIGHTS[mode]
    compute = x.dtype.compute if x.dtype.is_float else DataType.FLOAT32

    def blend(at: Point) -> Scalar:
        floor, over, parts = divide(at)
        total: Scalar | None = None
        for step, weight in enumerate(weigh(over.cast(compute) / parts.cast(compute))):
            value = read(at, floor + (first + step)).cast(compute) * weight
            total = value if total is None else total + value
        if total is None:
            raise DmlcError("an interpolation of nothing")
        return total

    return node.builder.compute(name, extents, blend, x.dtype if x.dtype.is_float else None)


def _find_line_open(
    node: Node, size: Measure, result: Measure, over: Measure, under: Measure
) -> tuple[Measure, Measure, Measure]:
    """Numbers for the coordinate `(first * i + second) / third` of element `i`, along an axis that
    becomes `over / under` times as long."""
    mode = node.text("coordinate_transformation_mode", "asymmetric")
    match mode:
        case "pytorch_half_pixel" | "half_pixel":
            if mode == "pytorch_half_pixel":
                # A result of one place is another case.
                node.builder.check_at_most(2, result)
            return under * 2, under - over, over * 2
        case "asymmetric":
            return under, 0, over
        case "align_corners":
            if (over, under) != (result, size):
                # Of the length before it is rounded down.
                node.builder.check_at_most(under + 1, over * size)
                return (size - 1) * under, 0, over * size - under
            node.builder.check_at_most(2, result)
            return size - 1, 0, result - 1
        case _:
            raise _refuse_open(f"the mode {mode}", size, result)


def _refuse_open(what: str, size: Measure, result: Measure) -> OpenSizeError:
    symbols = dict.fromkeys((*list_measured(size), *list_measured(result)))
    return OpenSizeError(f"{what} of an axis of {size} that becomes {result}", tuple(symbols))


# Places that a tensor says ------------------------------------------------------------------------


def _linear_weights(part: Scalar) -> list[Scalar]:
    return [1 - part, part]


def _cubic_weights(part: Scalar) -> list[Scalar]:
    """Weights of the four elements around a coordinate, whose distance from the second is
    `part`."""
    factor = -0.75

    def near(d: Scalar) -> Scalar:
        return (d * (factor + 2) - (factor + 3)) * d * d + 1

    def far(d: Scalar) -> Scalar:
        return ((d * factor - 5 * factor) * d + 8 * factor) * d - 4 * factor

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


_LINEAR, _CUBIC = ("linear", "bilinear"), ("cubic", "bicubic")
_WEIGHTS: Mapping[str, tuple[int, Callable[[Scalar], list[Scalar]]]] = {
    **dict.fromkeys(_LINEAR, (0, _linear_weights)),
    **dict.fromkeys(_CUBIC, (-1, _cubic_weights)),
}
"""By mode: which element before a place is the first that counts, and the weights from it on."""

_FAR = 7.0
"""The numbers of a grid go from -1 to 1. As far from 0 as this one, and beyond, all elements around
a place are outside of its axis, however long that is."""


def _grid_sample(node: Node) -> Tensor:
    x, grid = node.tensor(0), node.tensor(1)
    mode = node.text("mode")
    padding, aligned = node.text("padding_mode"), node.integer("align_corners")
    space = x.rank - 2
    if mode != "nearest" and mode not in _WEIGHTS:
        raise UnsupportedError(f"the mode {mode}")
    compute = x.dtype.compute

    def find_place(at: Point, axis: int) -> Scalar:
        """Coordinate of a grid point along a spatial axis."""
        own = (at.indices[0], *at.indices[2:], space - 1 - axis)
        given = at.read(grid, *own).cast(compute)
        if padding != "reflection":
            # What lies further out reads the same, and infinity is no place.
            given = given.apply("max", -_FAR).apply("min", _FAR)
        size = at.size(x.extents[2 + axis]).cast(compute)
        if aligned:
            return (given + 1) / 2 * (size - 1)
        return ((given + 1) * size - 1) / 2

    def reflect(place: Scalar, size: Scalar) -> Scalar:
        """Coordinate reflected at the ends of an axis until it is inside."""
        low = 0.0 if aligned else -0.5
        # There and back. Along an axis of size 1 with its corners aligned all places are 0.
        period = ((size - 1 if aligned else size) * 2).apply("max", 1)
        inside = (place - low).apply("abs") % period
        return inside.apply("min", period - inside) + low

    def read(at: Point, places: Sequence[Scalar]) -> Scalar:
        """Element at integer coordinates, or the padding outside."""
        inside = at.constant(True, DataType.BOOL)
        own: list[Scalar] = []
        for axis, place in enumerate(places):
            size = at.size(x.extents[2 + axis])
            within = place
            if padding == "reflection":
                within = reflect(place, size.cast(compute)).apply("round")
            elif padding == "zeros":
                inside = inside & (place >= 0) & (place <= (size - 1).cast(compute))
            own.append(clamp(within.cast(DataType.INDEX), size))
        value = at.read(x, *at.indices[:2], *own)
        return inside.select(value, 0) if padding == "zeros" else value

    def element(at: Point) -> Scalar:
        places = [find_place(at, axis) for axis in range(space)]
        sizes = [at.size(extent).cast(compute) for extent in x.extents[2:]]
        if padding == "border" and mode in _LINEAR:
            places = [p.apply("max", 0).apply("min", s - 1)
                      for p, s in zip(places, sizes, strict=True)]  # fmt: skip
        elif padding == "reflection":
            places = [reflect(p, s) for p, s in zip(places, sizes, strict=True)]
        if mode == "nearest":
            return read(at, [place.apply("round") for place in places])
        first, weigh = _WEIGHTS[mode]
        floors = [place.apply("floor") for place in places]
        weights = [weigh(p - f) for p, f in zip(places, floors, strict=True)]
        total: Scalar | None = None
        for steps in itertools.product(range(len(weights[0])), repeat=space):
            corner = [floor + (first + step) for floor, step in zip(floors, steps, strict=True)]
            value = read(at, corner)
            for axis, step in enumerate(steps):
                value = value * weights[axis][step]
            total = value if total is None else total + value
        if total is None:
            raise DmlcError("a grid of no axes")
        return total

    extents = (x.extents[0], x.extents[1], *grid.extents[1:-1])
    return node.builder.compute(node.name, extents, element, x.dtype)


def _pool_regions(node: Node) -> Tensor:
    """RoiAlign: mean or maximum of samples in the cells of regions."""
    x, regions, batches = node.tensor(0), node.tensor(1), node.tensor(2)
    rows, columns = node.integer("output_height"), node.integer("output_width")
    ratio = node.integer("sampling_ratio")
    if ratio <= 0:
        raise UnsupportedError("a number of samples that depends on the sizes of regions")
    scale, mode = node.number("spatial_scale"), node.text("mode")
    half = node.text("coordinate_transformation_mode") == "half_pixel"
    compute = x.dtype.compute
    offset = 0.5 if half else 0.0

    def find_place(at: Point, axis: int) -> Scalar:
        region, cells = at.indices[0], (rows, columns)[axis]
        start, end = (at.read(regions, region, k) * scale - offset for k in (1 - axis, 3 - axis))
        length = end - start if half else (end - start).apply("max", 1)
        cell, step = at.indices[2 + axis].cast(compute), at.reduced[axis].cast(compute)
        return start + (cell + (step + 0.5) / ratio) * (length / cells)

    def element(at: Point) -> Scalar:
        batch = clamp(at.read(batches, at.indices[0]).cast(DataType.INDEX), at.size(x.extents[0]))
        lines: list[list[tuple[Scalar, Scalar]]] = []
        inside = at.constant(True, DataType.BOOL)
        for axis in range(2):
            place, size = find_place(at, axis), at.size(x.extents[2 + axis])
            inside = inside & (place >= -1) & (place <= size.cast(compute))
            held = place.apply("max", 0).apply("min", (size - 1).cast(compute))
            floor = held.apply("floor")
            first = clamp(floor.cast(DataType.INDEX), size)
            part = held - floor
            lines.append([(first, 1 - part), (clamp(first + 1, size), part)])
        found: Scalar | None = None
        for (row, one), (column, other) in itertools.product(*lines):
            value = at.read(x, batch, at.indices[1], row, column) * (one * other)
            if found is None:
                found = value
            else:
                found = found.apply("max", value) if mode == "max" else found + value
        if found is None:
            raise DmlcError("a region of no samples")
        found = inside.select(found, 0)
        return found if mode == "max" else found / (ratio * ratio)

    extents = (regions.extents[0], x.extents[1], rows, columns)
    return node.builder.reduce(
        node.name, "max" if mode == "max" else "sum", extents, [ratio, ratio], element, x.dtype
    )


RULES: Mapping[str, Rule] = {
    "GridSample": _grid_sample,
    "Resize": _resize,
    "RoiAlign": _pool_regions,
    "Upsample": _upsample,
}
