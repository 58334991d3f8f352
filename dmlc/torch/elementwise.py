"""PyTorch's element-wise operators as stages: a formula each, with PyTorch's types.

A rule gets the tensors and numbers of a node, and makes one tensor of the group's function. It
raises `DmlcError` for cases that it does not cover; the node then stays with eager."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import torch

from dmlc.building.functions import FunctionBuilder, Point, Scalar, Tensor
from dmlc.building.tensors import read_broadcast
from dmlc.scalars import OPERATIONS, DataType
from dmlc.source import UnsupportedError
from dmlc.torch.tensors import TORCH_TYPES, data_type_of

Operand: TypeAlias = Tensor | bool | int | float


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """Context of a rule: the function under construction, and the node's result."""

    builder: FunctionBuilder
    name: str
    dtype: DataType
    extents: tuple[int, ...]
    sources: tuple[torch.Tensor, ...] = ()
    """The tensors that the node reads, without their elements."""

    def compute(self, element: Callable[[Point], Scalar]) -> Tensor:
        """Tensor with `element` at each point, converted to its type."""

        def converted(at: Point) -> Scalar:
            return element(at).cast(self.dtype.compute)

        return self.builder.compute(self.name, self.extents, converted, self.dtype)

    def read(self, at: Point, operand: Operand, dtype: DataType) -> Scalar:
        """Element of an operand that broadcasts to the tensor, in a compute type."""
        if isinstance(operand, Tensor):
            return read_broadcast(at, operand, at.indices).cast(dtype)
        return at.constant(operand, dtype)


Rule: TypeAlias = Callable[..., Tensor | tuple[Tensor | None, ...]]
"""Makes what a node gives: a tensor, or some, with None for each that the node was not to give. Its
first argument is a `Site`; the others are those of the node, with tensors in the place of nodes."""

Formula: TypeAlias = Callable[..., Scalar]


def apply(operation: str) -> Formula:
    """An operation of the IR as a formula."""

    def formula(first: Scalar, *others: Scalar) -> Scalar:
        return first.apply(operation, *others)

    return formula


def by_result(formula: Formula, count: int) -> Rule:
    """Rule that computes in the type of the result."""

    def rule(site: Site, *operands: Operand) -> Tensor:
        _expect(operands, count)
        dtype = site.dtype.compute
        return site.compute(lambda at: formula(*(site.read(at, o, dtype) for o in operands)))

    return rule


def by_operands(formula: Formula, count: int) -> Rule:
    """Rule that computes in the type that PyTorch promotes the operands to."""

    def rule(site: Site, *operands: Operand) -> Tensor:
        _expect(operands, count)
        common = promote(operands)
        given = [_round(o, common) for o in operands]
        dtype = data_type_of(common).compute
        return site.compute(lambda at: formula(*(site.read(at, o, dtype) for o in given)))

    return rule


def _expect(operands: tuple[Operand, ...], count: int) -> None:
    if len(operands) != count:
        raise UnsupportedError(f"{len(operands)} operands are given, and {count} are mapped")


def promote(operands: tuple[Operand, ...]) -> torch.dtype:
    """Type to which PyTorch promotes operands: tensors of rank 0 and numbers have lower
    priority."""
    shown = [
        torch.empty([0] * min(o.rank, 1), dtype=TORCH_TYPES[o.dtype])
        if isinstance(o, Tensor)
        else o
        for o in operands
    ]
    if len(shown) == 1:
        return torch.result_type(shown[0], shown[0])
    return torch.result_type(shown[0], shown[1])


def _round(operand: Operand, common: torch.dtype) -> Operand:
    """Operand in which a number is rounded to the common type of the tensors."""
    if isinstance(operand, Tensor):
        return operand
    return torch.tensor(operand, dtype=common).item()


def _add(site: Site, one: Operand, other: Operand, *, alpha: float = 1) -> Tensor:
    return _sum(site, one, other, alpha, "add")


def _subtract(site: Site, one: Operand, other: Operand, *, alpha: float = 1) -> Tensor:
    return _sum(site, one, other, alpha, "sub")


def _sum(site: Site, one: Operand, other: Operand, alpha: float, operation: str) -> Tensor:
    dtype = site.dtype.compute

    def element(at: Point) -> Scalar:
        second = site.read(at, other, dtype)
        return site.read(at, one, dtype).apply(operation, second if alpha == 1 else second * alpha)

    return site.compute(element)


def _divide(
    site: Site, one: Operand, other: Operand, *, rounding_mode: str | None = None
) -> Tensor:
    dtype = site.dtype.compute
    if rounding_mode == "floor" or (rounding_mode == "trunc" and not dtype.is_float):
        raise UnsupportedError(f"division with rounding_mode={rounding_mode!r} is not mapped")

    def element(at: Point) -> Scalar:
        found = site.read(at, one, dtype) / site.read(at, other, dtype)
        return found.apply("trunc") if rounding_mode == "trunc" else found

    return site.compute(element)


def _raise_to(site: Site, one: Operand, other: Operand) -> Tensor:
    dtype = site.dtype.compute
    if not dtype.is_float:
        raise UnsupportedError("powers of integers are not mapped")

    def element(at: Point) -> Scalar:
        base = site.read(at, one, dtype)
        known = None if isinstance(other, Tensor) else _power(base, float(other))
        return base.apply("pow", site.read(at, other, dtype)) if known is None else known

    return site.compute(element)


def _power(base: Scalar, exponent: float) -> Scalar | None:
    """Power by an exponent for which PyTorch too uses exact operations; None for others."""
    match exponent:
        case 0.5:
            return base.apply("sqrt")
        case -0.5:
            return base.apply("rsqrt")
        case 1.0:
            return base
        case 2.0:
            return base * base
        case 3.0:
            return base * base * base
        case -1.0:
            return 1 / base
        case -2.0:
            return 1 / (base * base)
        case _:
            return None


def _clamp(
    site: Site, one: Operand, low: Operand | None = None, high: Operand | None = None
) -> Tensor:
    dtype = site.dtype.compute

    def element(at: Point) -> Scalar:
        found = site.read(at, one, dtype)
        if low is not None:
            found = found.apply("max", site.read(at, low, dtype))
        if high is not None:
            found = found.apply("min", site.read(at, high, dtype))
        return found

    return site.compute(element)


def _choose(site: Site, condition: Tensor, then: Operand, otherwise: Operand) -> Tensor:
    dtype = site.dtype.compute

    def element(at: Point) -> Scalar:
        chosen = site.read(at, condition, DataType.BOOL)
        return chosen.select(site.read(at, then, dtype), site.read(at, otherwise, dtype))

    return site.compute(element)


def _convert(site: Site, one: Tensor, *_: object, **__: object) -> Tensor:
    """Copy in the type and sizes of the result. The group chooses the layout."""
    return site.compute(lambda at: read_broadcast(at, one, at.indices))


def _fill(site: Site, *values: Any, **_: object) -> Tensor:
    """Tensor filled with the last operand: `full(size, number)`."""
    return site.compute(lambda at: at.constant(values[-1], site.dtype.compute))


def _fill_with(value: int) -> Rule:
    def rule(site: Site, *_: object, **__: object) -> Tensor:
        return site.compute(lambda at: at.constant(value, site.dtype.compute))

    return rule


def _count(site: Site, *values: Any, **_: object) -> Tensor:
    """`arange(start, end, step)` of integers."""
    bounds = [v for v in values if v is not None]
    start, step = 0 if len(bounds) < 2 else bounds[0], bounds[2] if len(bounds) > 2 else 1
    return _iota(site, 0, start=start, step=step)


def _iota(site: Site, _: int, *, start: Any, step: Any, **__: object) -> Tensor:
    if not (isinstance(start, int) and isinstance(step, int)):
        raise UnsupportedError("ranges of fractions are not mapped")
    return site.compute(lambda at: at.indices[0] * step + start)


def _copy(site: Site, _: Tensor, source: Tensor, *__: object) -> Tensor:
    return _convert(site, source)


def _sign(x: Scalar) -> Scalar:
    """Sign as PyTorch defines it: 0 for NaN."""
    return (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype)


def _relu(x: Scalar) -> Scalar:
    return x.apply("max", 0)


def _reciprocal(x: Scalar) -> Scalar:
    return 1 / x


aten, prims = torch.ops.aten, torch.ops.prims

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _make_rules() -> dict[Any, Rule]:
    rules: dict[Any, Rule] = {
        getattr(aten, operation.torch).default: by_result(apply(operation.name), 1)
        for operation in OPERATIONS.values()
        if operation.torch is not None
    }
    for name in _COMPARISONS:
        for overload in ("Tensor", "Scalar"):
            rules[getattr(getattr(aten, name), overload)] = by_operands(apply(name), 2)
    both: dict[str, Rule] = {
        "add": _add,
        "sub": _subtract,
        "mul": by_result(apply("mul"), 2),
        "div": _divide,
        "bitwise_and": by_result(Scalar.__and__, 2),
        "bitwise_or": by_result(Scalar.__or__, 2),
        "bitwise_xor": by_result(Scalar.__xor__, 2),
    }
    for name, rule in both.items():
        for overload in ("Tensor", "Scalar"):
            rules[getattr(getattr(aten, name), overload)] = rule
    rules |= {
        aten.div.Tensor_mode: _divide,
        aten.reciprocal.default: by_result(_reciprocal, 1),
        aten.relu.default: by_result(_relu, 1),
        aten.sign.default: by_result(_sign, 1),
        aten.isnan.default: by_operands(apply("isnan"), 1),
        aten.isinf.default: by_operands(apply("isinf"), 1),
        aten.maximum.default: by_result(apply("max"), 2),
        aten.minimum.default: by_result(apply("min"), 2),
        aten.atan2.default: by_result(apply("atan2"), 2),
        aten.pow.Tensor_Scalar: _raise_to,
        aten.pow.Tensor_Tensor: _raise_to,
        aten.pow.Scalar: _raise_to,
        aten.clamp.default: _clamp,
        aten.clamp.Tensor: _clamp,
        aten.where.self: _choose,
        aten.bitwise_not.default: by_result(Scalar.__invert__, 1),
        aten._to_copy.default: _convert,
        aten.clone.default: _convert,
        aten.copy.default: _copy,
        prims.convert_element_type.default: _convert,
    }
    return rules


ELEMENTWISE: Mapping[Any, Rule] = MappingProxyType(_make_rules())
"""The rule of each operator that computes element by element."""

CREATION: Mapping[Any, Rule] = MappingProxyType({
    aten.full.default: _fill,
    aten.full_like.default: _fill,
    aten.fill.Scalar: _fill,
    aten.scalar_tensor.default: _fill,
    aten.new_full.default: _fill,
    aten.zeros.default: _fill_with(0),
    aten.zeros_like.default: _fill_with(0),
    aten.new_zeros.default: _fill_with(0),
    aten.ones.default: _fill_with(1),
    aten.ones_like.default: _fill_with(1),
    aten.new_ones.default: _fill_with(1),
    # Whatever is in memory that nothing was written to.
    aten.empty.memory_format: _fill_with(0),
    aten.empty_like.default: _fill_with(0),
    aten.new_empty.default: _fill_with(0),
    aten.arange.default: _count,
    aten.arange.start: _count,
    aten.arange.start_step: _count,
    prims.iota.default: _iota,
})  # fmt: skip
"""Those that need no tensor's elements: each group that reads one makes its own."""
