"""Operators of ONNX that say how far a prediction is off."""

from __future__ import annotations

from collections.abc import Mapping

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.tensors import map_elements, reduce_axes
from dmlc.onnx.importing.nodes import Node, Rule
from dmlc.scalars import DataType
from dmlc.source import DmlcError


def _negative_log_likelihood(node: Node) -> Tensor:
    return _lose(node, node.tensor(0), node.tensor(1), node.optional(2))


def _lose(node: Node, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The loss of log-probabilities along the axis 1, where another tensor says which is right."""
    ignored = node.attributes.get("ignore_index")
    builder, compute = node.builder, x.dtype.compute
    classes = x.extents[1]
    beside = (x.extents[0], *x.extents[2:])
    pairs = zip(beside, target.extents, strict=False)
    extents = [one for pair in pairs if (one := builder.unify(*pair)) is not None]
    if not len(extents) == len(beside) == target.rank:
        raise DmlcError(f"{target.name} has other sizes than {x.name} has beside its axis 1")

    def chosen(at: Point) -> tuple[Scalar, Scalar]:
        given = at.read(target, *at.indices)
        place = given.cast(DataType.INDEX).apply("max", 0).apply("min", at.size(classes) - 1)
        takes = given.equals(given)
        return place, takes if ignored is None else given.differs(node.integer("ignore_index"))

    def weigh(at: Point) -> Scalar:
        place, takes = chosen(at)
        found = at.constant(1, compute) if weight is None else at.read(weight, place)
        return takes.select(found, 0)

    def element(at: Point) -> Scalar:
        place, takes = chosen(at)
        value = at.read(x, at.indices[0], place, *at.indices[1:])
        return takes.select(-value * weigh(at), 0)

    reduction = node.text("reduction", "mean")
    if reduction == "none":
        return builder.compute(node.name, extents, element, x.dtype)
    each = builder.compute(f"{node.name}_each", extents, element)
    axes = range(len(extents))
    if reduction == "sum":
        return reduce_axes(builder, node.name, "sum", each, axes, dtype=x.dtype)
    total = reduce_axes(builder, f"{node.name}_total", "sum", each, axes)
    weights = builder.compute(f"{node.name}_weights", extents, weigh)
    count = reduce_axes(builder, f"{node.name}_count", "sum", weights, axes)
    return map_elements(builder, node.name, lambda t, c: t / c, total, count, dtype=x.dtype)


def _cross_entropy(node: Node) -> list[Tensor | None]:
    x, builder = node.tensor(0), node.builder
    top = reduce_axes(builder, f"{node.name}_top", "max", x, [1], True)
    moved = map_elements(builder, f"{node.name}_moved", lambda v, m: v - m, x, top)
    total = reduce_axes(builder, f"{node.name}_sum", "sum", moved, [1], True,
                        lambda v: v.apply("exp"))  # fmt: skip
    name = node.outputs[1] if node.wants(1) else f"{node.name}_log"
    logs = map_elements(builder, name, lambda v, t: v - t.apply("log"), moved, total,
                        dtype=x.dtype)  # fmt: skip
    return [_lose(node, logs, node.tensor(1), node.optional(2)), logs]


RULES: Mapping[str, Rule] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
