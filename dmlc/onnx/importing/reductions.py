"""Reductions and normalizations of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dmlc.binding import TensorDesc
from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.library import apply_operator
from dmlc.building.tensors import map_elements, normalize_axes, reduce_axes, reshape
from dmlc.ir import Extent
from dmlc.onnx.importing.casts import cast_tensor
from dmlc.onnx.importing.nodes import Node, Rule, need_number
from dmlc.scalars import DataType
from dmlc.sizes import as_extent, multiply
from dmlc.source import DmlcError

Formula = Callable[[Scalar], Scalar]


def _same(x: Scalar) -> Scalar:
    return x


def square(x: Scalar) -> Scalar:
    return x * x


def _absolute(x: Scalar) -> Scalar:
    return x.apply("abs")


def count_places(at: Point, x: Tensor, axes: Sequence[int]) -> Scalar:
    """Number of elements along axes, as an INDEX."""
    count = at.constant(1, DataType.INDEX)
    for axis in axes:
        count = count * at.size(x.extents[axis])
    return count


def mean_over(
    node: Node, name: str, x: Tensor, axes: Sequence[int], keep: bool, formula: Formula = _same
) -> Tensor:
    """Mean along axes, in the compute type of floats."""
    compute = x.dtype.compute
    total = reduce_axes(node.builder, f"{name}_total", "sum", x, axes, keep, formula, compute)

    def element(at: Point) -> Scalar:
        return at.read(total, *at.indices) / count_places(at, x, axes).cast(compute)

    return node.builder.compute(name, total.extents, element)


def _find_axes(node: Node, x: Tensor) -> tuple[int, ...] | None:
    """Axes of a reduction; None if it does nothing."""
    axes = node.setting("axes", 1)
    if not axes:
        return None if node.integer("noop_with_empty_axes") else tuple(range(x.rank))
    return normalize_axes(axes, x.rank)


def _reduction(combiner: str, formula: Formula = _same, after: Formula = _same) -> Rule:
    """Rule for a reduction of `formula` of each element, followed by `after`."""

    def rule(node: Node) -> Tensor:
        x = node.tensor(0)
        axes, keep = _find_axes(node, x), bool(node.integer("keepdims"))
        if axes is None:
            return map_elements(
                node.builder, node.name, lambda v: after(formula(v)), x, dtype=x.dtype
            )
        combine = combiner
        if x.dtype is DataType.BOOL:
            combine = {"max": "any", "min": "all"}.get(combiner, combiner)
        if after is _same:
            return reduce_axes(node.builder, node.name, combine, x, axes, keep, formula)
        total = reduce_axes(node.builder, f"{node.name}_total", combine, x, axes, keep, formula,
                            x.dtype.compute)  # fmt: skip
        return map_elements(node.builder, node.name, after, total, dtype=x.dtype)

    return rule


def _function(name: str) -> Formula:
    """Function of a float; for an integer, with the result truncated."""

    def formula(x: Scalar) -> Scalar:
        return x.cast(x.dtype if x.dtype.is_float else DataType.FLOAT64).apply(name).cast(x.dtype)

    return formula


def _reduce_mean(node: Node) -> Tensor:
    x = node.tensor(0)
    axes, keep = _find_axes(node, x), bool(node.integer("keepdims"))
    if axes is None:
        return x
    if x.dtype.is_float:
        found = mean_over(node, f"{node.name}_mean", x, axes, keep)
        return cast_tensor(node, found, x.dtype)
    total = reduce_axes(node.builder, f"{node.name}_total", "sum", x, axes, keep)

    def element(at: Point) -> Scalar:
        return at.read(total, *at.indices) / count_places(at, x, axes).cast(x.dtype)

    return node.builder.compute(node.name, total.extents, element)


def _log_sum_exp(node: Node) -> Tensor:
    x = node.tensor(0)
    axes, keep = _find_axes(node, x), bool(node.integer("keepdims"))
    if axes is None:
        return x
    builder, wanted = node.builder, x.dtype
    if not wanted.is_float:
        # As other functions of sums of integers, whose fractions are cut off.
        x = map_elements(builder, f"{node.name}_wide", lambda v: v.cast(DataType.FLOAT64), x)
    compute = x.dtype.compute
    top = reduce_axes(builder, f"{node.name}_top", "max", x, axes, True)

    def held(most: Scalar) -> Scalar:
        return most.apply("isinf").select(0, most)

    powers = map_elements(
        builder, f"{node.name}_powers", lambda v, m: (v - held(m)).apply("exp"), x, top
    )
    total = reduce_axes(builder, f"{node.name}_total", "sum", powers, axes, True, dtype=compute)
    found = map_elements(builder, node.name, lambda t, m: t.apply("log") + held(m), total, top,
                         dtype=x.dtype)  # fmt: skip
    found = cast_tensor(node, found, wanted)
    if keep:
        return found
    kept = [extent for axis, extent in enumerate(found.extents) if axis not in axes]
    return reshape(builder, node.name, found, kept)


def _arg(operator: str) -> Rule:
    def rule(node: Node) -> Tensor:
        x = node.tensor(0)
        axis = node.axis(x.rank)
        kept: list[Extent] = [1 if k == axis else e for k, e in enumerate(x.extents)]
        direction = "DECREASING" if node.integer("select_last_index") else "INCREASING"
        settings = {"Axes": [axis], "AxisDirection": direction}
        found = apply_operator(
            node.builder, node.name, operator, {"InputTensor": x}, settings,
            TensorDesc(DataType.INT64, kept),
        )  # fmt: skip
        if node.integer("keepdims"):
            return found
        return reshape(node.builder, node.name, found, [*kept[:axis], *kept[axis + 1 :]])

    return rule


def _cumulative(operator: str, exclusive: str) -> Rule:
    """Rule for a cumulative sum or product."""

    def rule(node: Node) -> Tensor:
        x = node.tensor(0)
        (axis,) = normalize_axes(node.numbers(1), x.rank)
        direction = "DECREASING" if node.integer("reverse") else "INCREASING"
        settings = {exclusive: bool(node.integer("exclusive"))}
        settings |= {"Axis": axis, "AxisDirection": direction}
        return apply_operator(node.builder, node.name, operator, {"InputTensor": x}, settings)

    return rule


# Softmax --------------------------------------------------------------------------------------


def _softmax(operator: str) -> Rule:
    def rule(node: Node) -> Tensor:
        x = node.tensor(0)
        first = node.axis(x.rank)
        axes = [first] if node.version >= 13 else list(range(first, x.rank))
        return apply_operator(node.builder, node.name, operator, {"InputTensor": x}, {"Axes": axes})

    return rule


# Normalisation --------------------------------------------------------------------------------


def _standardize(
    node: Node, x: Tensor, axes: Sequence[int], epsilon: float, centered: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Elements minus their mean along axes, divided by their standard deviation; the inverse of the
    latter, and the mean."""
    builder, name = node.builder, node.name
    mean = mean_over(node, f"{name}_mean", x, axes, True) if centered else None
    moved = x
    if mean is not None:
        moved = map_elements(builder, f"{name}_moved", lambda v, m: v - m, x, mean)
    variance = mean_over(node, f"{name}_variance", moved, axes, True, square)
    inverse = map_elements(
        builder, f"{name}_inverse", lambda v: 1 / (v + epsilon).apply("sqrt"), variance
    )
    scaled = map_elements(builder, f"{name}_scaled", lambda v, i: v * i, moved, inverse)
    return scaled, inverse, mean


def _apply_affine(
    node: Node, x: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: DataType
) -> Tensor:
    """Tensor times a scale plus a bias, which broadcast."""
    given = [tensor for tensor in (scale, bias) if tensor is not None]

    def formula(value: Scalar, *others: Scalar) -> Scalar:
        rest = list(others)
        if scale is not None:
            value = value * rest.pop(0).cast(value.dtype)
        if bias is not None:
            value = value + rest.pop(0).cast(value.dtype)
        return value

    return map_elements(node.builder, node.name, formula, x, *given, dtype=dtype)


def _layer_normalization(node: Node) -> list[Tensor | None]:
    x = node.tensor(0)
    axes = list(range(node.axis(x.rank), x.rank))
    scaled, inverse, mean = _standardize(node, x, axes, node.number("epsilon"))
    y = _apply_affine(node, scaled, node.optional(1), node.optional(2), x.dtype)
    return [y, mean, inverse]


def _rms_normalization(node: Node) -> Tensor:
    x = node.tensor(0)
    axes = list(range(node.axis(x.rank), x.rank))
    epsilon = node.number("epsilon")
    scaled, _, _ = _standardize(node, x, axes, epsilon, centered=False)
    return _apply_affine(node, scaled, node.optional(1), None, x.dtype)


def _by_channel(node: Node, tensor: Tensor, rank: int) -> Tensor:
    """Vector reshaped so that its axis is axis 1."""
    extents: list[Extent] = [1] * rank
    extents[1] = as_extent(multiply(tensor.extents))
    return reshape(node.builder, f"{node.name}_{tensor.name}", tensor, extents)


def _instance_normalization(node: Node) -> Tensor:
    x = node.tensor(0)
    scaled, _, _ = _standardize(node, x, range(2, x.rank), node.number("epsilon"))
    scale, bias = (_by_channel(node, node.tensor(k), x.rank) for k in (1, 2))
    return _apply_affine(node, scaled, scale, bias, x.dtype)


def _group_normalization(node: Node) -> Tensor:
    x, groups = node.tensor(0), node.integer("num_groups")
    channels = x.extents[1]
    channels = need_number(channels, "the number of channels")
    if groups < 1 or channels % groups:
        raise DmlcError(f"{channels} channels are not {groups} groups of one size")
    split = (x.extents[0], groups, channels // groups, *x.extents[2:])
    parts = reshape(node.builder, f"{node.name}_parts", x, split)
    axes = range(2, parts.rank)
    scaled, _, _ = _standardize(node, parts, axes, node.number("epsilon"))
    scale, bias = node.tensor(1), node.tensor(2)
    if node.version < 21 and scale.extents == (groups,):
        each = (1, groups, *[1] * (parts.rank - 2))
        scale, bias = (
            reshape(node.builder, f"{node.name}_{t.name}", t, each) for t in (scale, bias)
        )
        return reshape(
            node.builder, node.name, _apply_affine(node, scaled, scale, bias, x.dtype), x.extents
        )
    joined = reshape(node.builder, f"{node.name}_joined", scaled, x.extents)
    scale, bias = (_by_channel(node, t, x.rank) for t in (scale, bias))
    return _apply_affine(node, joined, scale, bias, x.dtype)


def _mean_variance_normalization(node: Node) -> Tensor:
    x = node.tensor(0)
    axes = normalize_axes(node.integers("axes") or [], x.rank)
    scaled, _, _ = _standardize(node, x, axes, 1e-9)
    return cast_tensor(node, scaled, x.dtype)


def _batch_normalization(node: Node) -> list[Tensor | None]:
    x, builder = node.tensor(0), node.builder
    epsilon, momentum = node.number("epsilon"), node.number("momentum")
    given = [_by_channel(node, node.tensor(k), x.rank) for k in range(1, 5)]
    scale, bias, mean, variance = given
    axes = [axis for axis in range(x.rank) if axis != 1]
    updated: list[Tensor | None] = []
    if node.integer("training_mode"):
        own_mean = mean_over(node, f"{node.name}_mean", x, axes, True)
        moved = map_elements(builder, f"{node.name}_moved", lambda v, m: v - m, x, own_mean)
        own_variance = mean_over(node, f"{node.name}_variance", moved, axes, True, square)

        def update(old: Scalar, new: Scalar) -> Scalar:
            return old * momentum + new.cast(old.dtype) * (1 - momentum)

        pairs = ((node.tensor(3), own_mean, 1), (node.tensor(4), own_variance, 2))
        for old, new, number in pairs:
            if node.wants(number):
                flat = reshape(builder, f"{node.name}_flat", new, old.extents)
                updated.append(map_elements(builder, node.outputs[number], update, old, flat,
                                            dtype=old.dtype))  # fmt: skip
        mean, variance = own_mean, own_variance

    def formula(v: Scalar, s: Scalar, b: Scalar, m: Scalar, d: Scalar) -> Scalar:
        s, b, m, d = (each.cast(v.dtype) for each in (s, b, m, d))
        return (v - m) / (d + epsilon).apply("sqrt") * s + b

    y = map_elements(builder, node.name, formula, x, scale, bias, mean, variance, dtype=x.dtype)
    return [y, *updated]


def _lp_normalization(node: Node) -> Tensor:
    x = node.tensor(0)
    axis, power = node.axis(x.rank), node.integer("p")
    formula = square if power == 2 else _absolute
    total = reduce_axes(node.builder, f"{node.name}_total", "sum", x, [axis], True, formula,
                        x.dtype.compute)  # fmt: skip

    def divide(value: Scalar, norm: Scalar) -> Scalar:
        length = norm.apply("sqrt") if power == 2 else norm
        return length.equals(0).select(0, value / length)

    return map_elements(node.builder, node.name, divide, x, total, dtype=x.dtype)


def _local_response(node: Node) -> Tensor:
    x, size = node.tensor(0), node.integer("size")
    alpha, beta = node.number("alpha"), node.number("beta")
    bias, before = node.number("bias"), (size - 1) // 2

    def place(at: Point) -> Scalar:
        return at.indices[1] + at.reduced[0] - before

    def guard(at: Point) -> Scalar:
        return (place(at) >= 0) & (place(at) < at.size(x.extents[1]))

    def element(at: Point) -> Scalar:
        return square(at.read(x, at.indices[0], place(at), *at.indices[2:]))

    total = node.builder.reduce(f"{node.name}_total", "sum", x.extents, [size], element,
                                x.dtype.compute, guard)  # fmt: skip
    return map_elements(node.builder, node.name,
                        lambda v, t: v / (t * (alpha / size) + bias).apply("pow", beta), x, total,
                        dtype=x.dtype)  # fmt: skip


RULES: Mapping[str, Rule] = {
    "ArgMax": _arg("directml.ARGMAX"),
    "ArgMin": _arg("directml.ARGMIN"),
    "BatchNormalization": _batch_normalization,
    "CumProd": _cumulative("directml.CUMULATIVE_PRODUCT", "HasExclusiveProduct"),
    "CumSum": _cumulative("directml.CUMULATIVE_SUMMATION", "HasExclusiveSum"),
    "GroupNormalization": _group_normalization,
    "Hardmax": _softmax("directml.ACTIVATION_HARDMAX1"),
    "InstanceNormalization": _instance_normalization,
    "LRN": _local_response,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _softmax("directml.ACTIVATION_LOG_SOFTMAX1"),
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": _rms_normalization,
    "ReduceL1": _reduction("sum", _absolute),
    "ReduceL2": _reduction("sum", square, _function("sqrt")),
    "ReduceLogSum": _reduction("sum", _same, _function("log")),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _reduction("max"),
    "ReduceMean": _reduce_mean,
    "ReduceMin": _reduction("min"),
    "ReduceProd": _reduction("product"),
    "ReduceSum": _reduction("sum"),
    "ReduceSumSquare": _reduction("sum", square),
    "Softmax": _softmax("directml.ACTIVATION_SOFTMAX1"),
}  # fmt: skip
