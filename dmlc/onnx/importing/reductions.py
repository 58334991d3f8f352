"""Reductions and normalizations of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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


def _find_moments(node: Node, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The mean and the variance along axes."""
    mean = mean_over(node, f"{node.name}_mean", x, axes, True)
    moved = map_elements(node.builder, f"{node.name}_moved", lambda v, m: v - m, x, mean)
    return mean, mean_over(node, f"{node.name}_variance", moved, axes, True, square)


_SMALLEST = 1e-9
"""What MeanVarianceNormalization adds to a variance."""


def _normalize(node: Node, operator: str, tensors: Mapping[str, Tensor], **more: object) -> Tensor:
    """Normalization by an operator of the library. Tensors of different types are converted to the
    largest, FLOAT32 at least."""
    x, types = tensors["InputTensor"], {tensor.dtype for tensor in tensors.values()}
    if len(types) > 1:
        wide = max((*types, DataType.FLOAT32), key=lambda dtype: dtype.bytes)
        tensors = {row: cast_tensor(node, tensor, wide) for row, tensor in tensors.items()}
    settings = {"Epsilon": node.number("epsilon", _SMALLEST), **more}
    found = apply_operator(node.builder, node.name, f"directml.{operator}", tensors, settings)
    return cast_tensor(node, found, x.dtype)


def _standardize(
    node: Node, x: Tensor, axes: Iterable[int], *affine: Tensor | None, centered: bool = True
) -> Tensor:
    """Elements less their mean along axes, by the root of their variance; times a scale and plus a
    bias, which broadcast."""
    tensors = {"InputTensor": x}
    for row, tensor in zip(("ScaleTensor", "BiasTensor"), affine, strict=False):
        if tensor is not None:
            extents = (*[1] * (x.rank - tensor.rank), *tensor.extents)
            tensors[row] = reshape(node.builder, f"{node.name}_{tensor.name}", tensor, extents)
    return _normalize(node, "MEAN_VARIANCE_NORMALIZATION2", tensors, Axes=[*axes],
                      UseMean=centered, UseVariance=True)  # fmt: skip


def _layer_normalization(node: Node) -> list[Tensor | None]:
    x = node.tensor(0)
    axes, epsilon = range(node.axis(x.rank), x.rank), node.number("epsilon")
    y = _standardize(node, x, axes, node.tensor(1), node.optional(2))
    if not (node.wants(1) or node.wants(2)):
        return [y]
    mean, variance = _find_moments(node, x, axes)
    inverse = map_elements(
        node.builder, f"{node.name}_inverse", lambda v: 1 / (v + epsilon).apply("sqrt"), variance
    )
    return [y, mean, inverse]


def _rms_normalization(node: Node) -> Tensor:
    x = node.tensor(0)
    return _standardize(node, x, range(node.axis(x.rank), x.rank), node.tensor(1), centered=False)


def _by_channel(node: Node, tensor: Tensor, x: Tensor) -> Tensor:
    """Tensor of one axis as one that has it as the axis 1, beside another: of one axis, which has
    one channel."""
    count = as_extent(multiply(tensor.extents))
    node.builder.unify(count, x.extents[1] if x.rank > 1 else 1)
    extents = (1, count, *[1] * (x.rank - 2)) if x.rank > 1 else (count,)
    return reshape(node.builder, f"{node.name}_{tensor.name}", tensor, extents)


def _instance_normalization(node: Node) -> Tensor:
    x = node.tensor(0)
    return _standardize(
        node, x, range(2, x.rank), *(_by_channel(node, node.tensor(k), x) for k in (1, 2))
    )


def _group_normalization(node: Node) -> Tensor:
    """Scales and biases are those of channels, or before version 21 of groups."""
    x, groups, builder = node.tensor(0), node.integer("num_groups"), node.builder
    channels = need_number(x.extents[1], "the number of channels")
    if groups < 1 or channels % groups:
        raise DmlcError(f"{channels} channels are not {groups} groups of one size")
    split = (x.extents[0], groups, channels // groups, *x.extents[2:])
    parts = reshape(builder, f"{node.name}_parts", x, split)
    affine: list[Tensor] = []
    for tensor in (node.tensor(1), node.tensor(2)):
        (count,) = node.fixed(tensor, 1)
        split = (1, groups, count // groups, *[1] * (x.rank - 2))
        affine.append(reshape(builder, f"{node.name}_{tensor.name}", tensor, split))
    scaled = _standardize(node, parts, range(2, parts.rank), *affine)
    return reshape(builder, node.name, scaled, x.extents)


def _mean_variance_normalization(node: Node) -> Tensor:
    x = node.tensor(0)
    return _standardize(node, x, normalize_axes(node.integers("axes") or [], x.rank))


def _batch_normalization(node: Node) -> list[Tensor | None]:
    x, momentum = node.tensor(0), node.number("momentum")
    scale, bias, *moments = (_by_channel(node, node.tensor(k), x) for k in range(1, 5))
    updated: list[Tensor | None] = []

    def update(old: Scalar, new: Scalar) -> Scalar:
        return old * momentum + new.cast(old.dtype) * (1 - momentum)

    if node.integer("training_mode"):
        given = moments
        moments = _find_moments(node, x, [axis for axis in range(x.rank) if axis != 1])
        for name, old, new in zip(node.outputs[1:], given, moments, strict=False):
            made = map_elements(node.builder, f"{node.name}_new", update, old, new, dtype=old.dtype)
            name = name or f"{node.name}_flat"
            extents = made.extents[1:2] or made.extents
            updated.append(reshape(node.builder, name, made, extents))
    tensors = {"InputTensor": x, "ScaleTensor": scale, "BiasTensor": bias}
    tensors |= zip(("MeanTensor", "VarianceTensor"), moments, strict=True)
    return [_normalize(node, "BATCH_NORMALIZATION", tensors), *updated]


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
