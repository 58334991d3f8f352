"""Window operators of ONNX: convolutions and pooling."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.tensors import map_elements, reduce_axes, reshape
from dmlc.building.windows import Windows, convolve, convolve_transposed, pool
from dmlc.ir import Extent
from dmlc.onnx.importing.casts import cast_tensor
from dmlc.onnx.importing.nodes import Node, OpenSizeError, Rule, need_number
from dmlc.onnx.importing.products import center, requantize
from dmlc.onnx.importing.reductions import mean_over
from dmlc.scalars import DataType
from dmlc.sizes import (
    Measure,
    as_extent,
    divide_down,
    divide_up,
    find_least,
    list_measured,
    measure,
)
from dmlc.source import DmlcError, UnsupportedError


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """Windows, with their number along each axis and the padding after each."""

    windows: Windows
    after: tuple[Measure, ...]
    extents: tuple[Extent, ...]


def read_windows(node: Node, space: Sequence[Extent], kernel: Sequence[int]) -> Counted:
    """Windows of a node, over axes of these sizes."""
    count = len(space)
    strides, dilations, pads = _read_steps(node, kernel, count)
    before: list[Measure] = [*pads[:count]]
    after: list[Measure] = [*pads[count:]]
    automatic = node.text("auto_pad")
    if automatic == "VALID":
        before, after = [0] * count, [0] * count
    extents: list[Extent] = []
    for axis in range(count):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        size, stride = measure(space[axis]), strides[axis]
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            results = divide_up(size, stride)
            total = _pad_alike((results - 1) * stride + span - size, span, stride)
            half = divide_down(total, 2)
            before[axis] = half if automatic == "SAME_UPPER" else total - half
            after[axis] = total - before[axis]
            extents.append(as_extent(results))
            continue
        room = size + before[axis] + after[axis] - span
        if node.integer("ceil_mode"):
            results = divide_up(room, stride) + 1
            room = size + before[axis]
            if isinstance(room, int) and isinstance(results, int):
                # The last window has to begin on an element, or in the padding before it.
                results -= (results - 1) * stride >= room
            elif find_least(span - stride - after[axis]) < 0:
                size = measure(space[axis])
                raise OpenSizeError(
                    f"ceil_mode over an axis of {size}, where windows may begin behind its end",
                    list_measured(size),
                )
        else:
            results = divide_down(room, stride) + 1
        extents.append(as_extent(results))
    windows = Windows(tuple(kernel), tuple(strides), tuple(dilations), tuple(before))
    return Counted(windows, tuple(after), tuple(extents))


def _read_steps(
    node: Node, kernel: Sequence[int], count: int
) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and padding of windows over `count` axes."""
    strides = node.integers("strides") or [1] * count
    dilations = node.integers("dilations") or [1] * count
    pads = node.integers("pads") or [0] * (2 * count)
    for what, numbers, wanted in (
        ("windows", kernel, count), ("strides", strides, count), ("dilations", dilations, count),
        ("pads", pads, 2 * count),
    ):  # fmt: skip
        if len(numbers) != wanted:
            raise DmlcError(f"its {what} have {len(numbers)} numbers for {count} axes of space")
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise DmlcError("its windows, strides and dilations are 1 or more")
    return strides, dilations, pads


def _pad_alike(over: Measure, span: int, stride: int) -> Measure:
    """Total padding with which an axis has one window per stride: the part of the last window
    beyond the end, if that is positive."""
    if isinstance(over, int):
        return max(0, over)
    # The last stride begins on the last elements, and no more of these than a stride has.
    if span >= stride:
        return over
    if span == 1:
        return 0
    raise OpenSizeError(
        f"the padding of strides of {stride} over windows of {span} depends on a size left open",
        over.symbols,
    )


# Convolutions ---------------------------------------------------------------------------------


def _kernel(node: Node, weight: Tensor) -> list[int]:
    return node.fixed(weight)[2:]


def _convolve(
    node: Node, name: str, x: Tensor, weight: Tensor, dtype: DataType | None = None
) -> Tensor:
    """Convolution of a tensor. 16-bit floats are accumulated in FLOAT32."""
    found = read_windows(node, x.extents[2:], _kernel(node, weight))
    groups, inner = node.integer("group"), node.fixed(weight)[1]
    if node.builder.unify(x.extents[1], inner * groups) is None:
        raise DmlcError(f"{x.name} has not the {inner} channels of {groups} groups")
    return convolve(node.builder, name, x, weight, found.windows, found.extents, groups, dtype)


def _add_bias(node: Node, x: Tensor, bias: Tensor | None, dtype: DataType) -> Tensor:
    """Tensor plus a bias for each channel."""
    if bias is None:
        return map_elements(node.builder, node.name, lambda v: v, x, dtype=dtype)
    flat = reshape(node.builder, f"{node.name}_bias", bias, (bias.extents[0], *[1] * (x.rank - 2)))
    return map_elements(node.builder, node.name, lambda v, b: v + b, x, flat, dtype=dtype)


def _convolution(node: Node) -> Tensor:
    x, weight, bias = node.tensor(0), node.tensor(1), node.optional(2)
    if bias is None:
        return _convolve(node, node.name, x, weight, x.dtype)
    total = _convolve(node, f"{node.name}_total", x, weight)
    return _add_bias(node, total, bias, x.dtype)


def _integer_convolution(node: Node) -> Tensor:
    x = center(node, node.tensor(0), node.optional(2), 0)
    weight = center(node, node.tensor(1), node.optional(3), 0)
    return _convolve(node, node.name, x, weight)


def _quantized_convolution(node: Node) -> Tensor:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (node.tensor(k) for k in range(8))
    total = _convolve(
        node, f"{node.name}_total", center(node, x, x_zero, 0), center(node, w, w_zero, 0)
    )
    bias = node.optional(8)
    if bias is not None:
        flat = reshape(node.builder, f"{node.name}_bias", bias, (bias.extents[0],
                       *[1] * (total.rank - 2)))  # fmt: skip
        total = map_elements(node.builder, f"{node.name}_sum", lambda v, b: v + b, total, flat)
    if w_scale.rank == 1:
        extents = () if w_scale.extents == (1,) else (w_scale.extents[0], *[1] * (total.rank - 2))
        w_scale = reshape(node.builder, f"{node.name}_w_scale", w_scale, extents)
    return requantize(node, total, [x_scale, w_scale, scale], zero)


def _transposed_convolution(node: Node) -> Tensor:
    x, weight, bias = node.tensor(0), node.tensor(1), node.optional(2)
    kernel, groups = _kernel(node, weight), node.integer("group")
    count = x.rank - 2
    strides, dilations, pads = _read_steps(node, kernel, count)
    before: list[Measure] = [*pads[:count]]
    more = node.integers("output_padding") or [0] * count
    if len(more) != count:
        raise DmlcError(f"its output_padding has {len(more)} numbers for {count} axes")
    wanted = node.integers("output_shape")
    automatic = node.text("auto_pad")
    extents: list[Extent] = []
    for axis, extent in enumerate(x.extents[2:]):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        full = (measure(extent) - 1) * strides[axis] + span + more[axis]
        if wanted is None and automatic not in ("SAME_UPPER", "SAME_LOWER"):
            extents.append(as_extent(full - pads[axis] - pads[axis + count]))
            continue
        size = measure(extent) * strides[axis] if wanted is None else wanted[-count:][axis]
        total = max(need_number(full - size, "what a result is cut by"), 0)
        # ONNX has the larger half behind for SAME_UPPER in its text, and before it in its figures.
        before[axis] = total // 2 if automatic == "SAME_UPPER" else total - total // 2
        extents.append(as_extent(size))
    inner = node.fixed(weight)[0]
    if x.extents[1] != inner:
        raise DmlcError(f"{x.name} has not the {inner} channels of {weight.name}")

    windows = Windows(tuple(kernel), tuple(strides), tuple(dilations), tuple(before))
    total = convolve_transposed(
        node.builder, f"{node.name}_total", x, weight, windows, extents, groups
    )
    return _add_bias(node, total, bias, x.dtype)


# Poolings -------------------------------------------------------------------------------------


def _pool(
    node: Node, name: str, combiner: str, found: Counted, dtype: DataType | None,
    formula: Callable[[Scalar], Scalar] | None = None,
) -> Tensor:  # fmt: skip
    """Reduction of each window's elements by a combiner."""
    x = node.tensor(0)
    return pool(node.builder, name, combiner, x, found.windows, found.extents, dtype, formula)


def _windows_of(node: Node, x: Tensor) -> Counted:
    kernel = node.integers("kernel_shape")
    if kernel is None:
        raise DmlcError("it has no kernel_shape")
    return read_windows(node, x.extents[2:], kernel)


def _max_pool(node: Node) -> list[Tensor | None]:
    x = node.tensor(0)
    counted = _windows_of(node, x)
    windows = counted.windows
    found = _pool(node, node.name, "max", counted, x.dtype)
    if not node.wants(1):
        return [found]
    first = _pool(node, f"{node.name}_first", "argmax", counted, DataType.INT64)
    columns_first = node.integer("storage_order")

    def element(at: Point) -> Scalar:
        """Linear index in the tensor of a window's element, whose number within the window is
        given."""
        rest = at.read(first, *at.indices).cast(DataType.INDEX)
        steps: list[Scalar] = []
        for size in windows.kernel[::-1]:
            steps.insert(0, rest % size)
            rest = rest / size
        inside = windows.places(at, at.indices[2:], steps)
        axes = list(range(2, x.rank))
        number = at.indices[0] * at.size(x.extents[1]) + at.indices[1]
        for axis in axes[::-1] if columns_first else []:
            number = number * at.size(x.extents[axis]) + inside[axis - 2]
        for axis in [] if columns_first else axes:
            number = number * at.size(x.extents[axis]) + inside[axis - 2]
        return number.cast(DataType.INT64)

    return [found, node.builder.compute(node.outputs[1], found.extents, element)]


def _average_pool(node: Node) -> Tensor:
    x = node.tensor(0)
    found = _windows_of(node, x)
    windows = found.windows
    total = _pool(node, f"{node.name}_total", "sum", found, x.dtype.compute)
    before: Sequence[Measure] = [0] * len(found.extents)
    after = before
    if node.integer("count_include_pad"):
        before, after = windows.before, found.after

    def guard(at: Point) -> Scalar:
        holds = at.constant(True, DataType.BOOL)
        places = windows.places(at, at.indices, at.reduced)
        for axis, place in enumerate(places):
            end = at.size(x.extents[2 + axis]) + at.measure(after[axis])
            holds = holds & (place >= at.measure(before[axis] * -1)) & (place < end)
        return holds

    count = node.builder.reduce(
        f"{node.name}_count", "sum", found.extents, windows.kernel,
        lambda at: at.constant(1, x.dtype.compute), None, guard,
    )  # fmt: skip
    return map_elements(node.builder, node.name, lambda t, c: t / c, total, count, dtype=x.dtype)


def _lp_pool(node: Node) -> Tensor:
    x, power = node.tensor(0), float(node.integer("p"))
    if not power:
        raise DmlcError("its norm is of the power 0, and there is no such root")

    def raised(value: Scalar) -> Scalar:
        size = value.apply("abs")
        return size if power == 1 else size * size if power == 2 else size.apply("pow", power)

    total = _pool(node, f"{node.name}_total", "sum", _windows_of(node, x), x.dtype.compute, raised)
    return map_elements(node.builder, node.name, lambda t: t.apply("pow", 1 / power), total,
                        dtype=x.dtype)  # fmt: skip


def _global(combiner: str) -> Rule:
    def rule(node: Node) -> Tensor:
        x = node.tensor(0)
        axes = range(2, x.rank)
        if combiner == "max":
            return reduce_axes(node.builder, node.name, "max", x, axes, True)
        return cast_tensor(node, mean_over(node, node.name, x, axes, True), x.dtype)

    return rule


def _max_unpool(node: Node) -> Tensor:
    x, numbers = node.tensor(0), node.tensor(1)
    kernel = node.integers("kernel_shape") or []
    count = x.rank - 2
    strides, _, pads = _read_steps(node, kernel, count)
    sizes = node.fixed(x)
    own = [
        (sizes[2 + k] - 1) * strides[k] + kernel[k] - pads[k] - pads[k + count]
        for k in range(count)
    ]
    extents = node.numbers(2) if node.has(2) else [*sizes[:2], *own]
    space = sizes[2:]
    # Numbers count the places of what the windows give, whatever sizes are asked for.
    inner = own

    def guard(at: Point) -> Scalar:
        number = at.indices[0] * sizes[1] + at.indices[1]
        holds = at.constant(True, DataType.BOOL)
        for axis, size in enumerate(inner):
            holds = holds & (at.indices[2 + axis] < size)
            number = number * size + at.indices[2 + axis]
        given = at.read(numbers, *at.indices[:2], *at.reduced).cast(DataType.INDEX)
        return holds & given.equals(number)

    def element(at: Point) -> Scalar:
        return at.read(x, *at.indices[:2], *at.reduced)

    if extents[:2] != sizes[:2]:
        raise UnsupportedError("other batches and channels than its input has")
    return node.builder.reduce(node.name, "sum", extents, space, element, x.dtype, guard)


def _columns_to_image(node: Node) -> Tensor:
    x, space, block = node.tensor(0), node.numbers(1), node.numbers(2)
    found = read_windows(node, space, block)
    counts = [need_number(extent, "a number of windows") for extent in found.extents]
    total = math.prod(counts)
    size = math.prod(block)
    batch, rows = x.extents[0], need_number(x.extents[1], "the number of rows")

    def steps(at: Point) -> tuple[list[Scalar], Scalar]:
        return found.windows.sources(at, at.indices[2:], at.reduced, counts)

    def element(at: Point) -> Scalar:
        row, column = at.indices[1], at.constant(0, DataType.INDEX)
        for axis, place in enumerate(steps(at)[0]):
            row = row * block[axis] + at.reduced[axis]
            column = column * counts[axis] + place
        return at.read(x, at.indices[0], row, column.apply("max", 0).apply("min", total - 1))

    return node.builder.reduce(
        node.name, "sum", (batch, rows // size, *space), block, element, x.dtype,
        lambda at: steps(at)[1],
    )  # fmt: skip


RULES: Mapping[str, Rule] = {
    "AveragePool": _average_pool,
    "Col2Im": _columns_to_image,
    "Conv": _convolution,
    "ConvInteger": _integer_convolution,
    "ConvTranspose": _transposed_convolution,
    "GlobalAveragePool": _global("sum"),
    "GlobalMaxPool": _global("max"),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
    "QLinearConv": _quantized_convolution,
}
