"""Sums of products in ONNX: matrix products and Einstein sums. `fourier` has Fourier transforms."""

from __future__ import annotations

import string
from collections.abc import Mapping

from dmlc.building.functions import Point, Scalar, Tensor
from dmlc.building.tensors import (
    map_elements,
    matrix_multiply,
    reshape,
    transpose,
)
from dmlc.ir import Extent
from dmlc.onnx.importing import fourier
from dmlc.onnx.importing.casts import round_into
from dmlc.onnx.importing.nodes import Node, Rule, need_number
from dmlc.scalars import DataType
from dmlc.source import DmlcError, UnsupportedError


def _matrix_product(node: Node) -> Tensor:
    return matrix_multiply(node.builder, node.name, node.tensor(0), node.tensor(1))


def _gemm(node: Node) -> Tensor:
    a, b, c = node.tensor(0), node.tensor(1), node.optional(2)
    if node.integer("transA"):
        a = transpose(node.builder, f"{node.name}_a", a, [1, 0])
    if node.integer("transB"):
        b = transpose(node.builder, f"{node.name}_b", b, [1, 0])
    alpha, beta = node.number("alpha"), node.number("beta")
    product = matrix_multiply(node.builder, f"{node.name}_product", a, b)
    if c is None and alpha == 1:
        return product

    def scale(value: Scalar, factor: float) -> Scalar:
        if factor == 1:
            return value
        if value.dtype.is_float:
            return value * factor
        return (value.cast(DataType.FLOAT64) * factor).cast(value.dtype)

    def formula(value: Scalar, *added: Scalar) -> Scalar:
        found = scale(value, alpha)
        return found + scale(added[0], beta) if added else found

    given = [product] if c is None else [product, c]
    return map_elements(node.builder, node.name, formula, *given, dtype=a.dtype,
                        extents=product.extents)  # fmt: skip


# Integers -------------------------------------------------------------------------------------


def center(node: Node, x: Tensor, zero: Tensor | None, axis: int) -> Tensor:
    """Integers minus their zero point, as INT32. A vector of zero points lies along `axis`."""
    if zero is None:
        return map_elements(node.builder, f"{node.name}_{x.name}", _widen, x)
    held = zero
    if zero.rank == 1 and zero.extents != (1,):
        extents: list[Extent] = [1] * x.rank
        extents[axis] = zero.extents[0]
        held = reshape(node.builder, f"{node.name}_zero", zero, extents)
    elif zero.rank == 1:
        held = reshape(node.builder, f"{node.name}_zero", zero, ())
    return map_elements(
        node.builder, f"{node.name}_{x.name}", lambda v, z: _widen(v) - _widen(z), x, held
    )


def _widen(value: Scalar) -> Scalar:
    return value.cast(DataType.INT32)


def _integer_product(node: Node) -> Tensor:
    a = center(node, node.tensor(0), node.optional(2), -2)
    b = center(node, node.tensor(1), node.optional(3), -1)
    return matrix_multiply(node.builder, node.name, a, b)


def _quantized_product(node: Node) -> Tensor:
    a, b = node.tensor(0), node.tensor(3)
    product = matrix_multiply(
        node.builder,
        f"{node.name}_product",
        center(node, a, node.tensor(2), -2),
        center(node, b, node.tensor(5), -1),
    )
    steps = [node.tensor(1), _align_columns(node, node.tensor(4), product), node.tensor(6)]
    return requantize(node, product, steps, node.tensor(7))


def _align_columns(node: Node, scale: Tensor, product: Tensor) -> Tensor:
    """Scale for each column of a product, shaped to broadcast."""
    if scale.rank > 1 or scale.extents in ((), (1,)) or scale.extents[0] == product.extents[-1]:
        return scale
    raise UnsupportedError("a scale for each row")


def requantize(node: Node, total: Tensor, scales: list[Tensor], zero: Tensor) -> Tensor:
    """Sum of products of integers, converted to the scale of the result."""

    def formula(value: Scalar, one: Scalar, other: Scalar, own: Scalar, point: Scalar) -> Scalar:
        factor = one.cast(DataType.FLOAT32) * other.cast(DataType.FLOAT32)
        scaled = value.cast(DataType.FLOAT32) * (factor / own.cast(DataType.FLOAT32))
        return round_into(scaled, point, zero.dtype)

    return map_elements(node.builder, node.name, formula, total, *scales, zero, dtype=zero.dtype,
                        extents=total.extents)  # fmt: skip


# Einstein sums --------------------------------------------------------------------------------


def _einsum(node: Node) -> Tensor:
    tensors = node.tensors()
    equation = node.text("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise DmlcError(f"'{equation}' is of {len(terms)} tensors, and {len(tensors)} are given")
    spelt = [_spell_axes(term, tensor.rank) for term, tensor in zip(terms, tensors, strict=True)]
    dots = max((len([c for c in term if c.isdigit()]) for term in spelt), default=0)
    if arrow:
        result = right.replace("...", _digits(dots))
    else:
        letters = "".join(term for term in spelt)
        once = sorted(c for c in dict.fromkeys(letters) if letters.count(c) == 1 and c.isalpha())
        result = _digits(dots) + "".join(once)
    sizes: dict[str, Extent] = {}
    for term, tensor in zip(spelt, tensors, strict=True):
        for letter, extent in zip(term, tensor.extents, strict=True):
            if sizes.setdefault(letter, extent) == 1:
                sizes[letter] = extent
            elif extent != 1:
                one = node.builder.unify(sizes[letter], extent)
                if one is None:
                    raise DmlcError(f"'{letter}' is {sizes[letter]} and {extent} in '{equation}'")
                sizes[letter] = one
    summed = [letter for letter in sizes if letter not in result]

    def element(at: Point) -> Scalar:
        places = dict(zip(result, at.indices, strict=True))
        places |= dict(zip(summed, at.reduced, strict=True))
        product: Scalar | None = None
        for term, tensor in zip(spelt, tensors, strict=True):
            pairs = zip(term, tensor.extents, strict=True)
            value = at.read(tensor, *(0 if e == 1 else places[letter] for letter, e in pairs))
            product = value if product is None else product * value
        if product is None:
            raise DmlcError("an Einstein sum of no tensors")
        return product

    extents = [sizes[letter] for letter in result]
    dtype = tensors[0].dtype
    if not summed:
        return node.builder.compute(node.name, extents, element, dtype)
    axes = [sizes[letter] for letter in summed]
    return node.builder.reduce(node.name, "sum", extents, axes, element, dtype)


def _digits(count: int) -> str:
    """Digits as names of the axes that `...` stands for; the last axis is 0."""
    return string.digits[:count][::-1]


def _spell_axes(term: str, rank: int) -> str:
    if "..." not in term:
        if len(term) != rank:
            raise DmlcError(f"'{term}' names other axes than a tensor of {rank} has")
        return term
    return term.replace("...", _digits(rank - len(term) + 3))


def _determinant(node: Node) -> Tensor:
    x = node.tensor(0)
    size = need_number(x.extents[-1], "the number of columns")
    if size > 4 or x.extents[-2] != size:
        raise UnsupportedError(f"the determinant of {x.extents[-2]} rows and {size} columns")

    def expand(at: Point, row: int, columns: list[int]) -> Scalar:
        if row == size:
            return at.constant(1, x.dtype.compute)
        total: Scalar | None = None
        for number, column in enumerate(columns):
            rest = expand(at, row + 1, [c for c in columns if c != column])
            part = at.read(x, *at.indices, row, column) * rest
            part = -part if number % 2 else part
            total = part if total is None else total + part
        if total is None:
            raise DmlcError("the determinant of nothing")
        return total

    return node.builder.compute(
        node.name, x.extents[:-2], lambda at: expand(at, 0, list(range(size))), x.dtype
    )


RULES: Mapping[str, Rule] = {
    "Det": _determinant,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matrix_product,
    "MatMulInteger": _integer_product,
    "QLinearMatMul": _quantized_product,
    **fourier.RULES,
}
