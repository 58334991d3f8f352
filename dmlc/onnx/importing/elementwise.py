"""Operators of ONNX that compute each element by itself, of tensors that broadcast."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np

from dmlc.building.functions import Scalar, Tensor
from dmlc.building.tensors import map_elements
from dmlc.onnx.importing.nodes import Node, Rule
from dmlc.scalars import DataType, Kind
from dmlc.source import DmlcError, UnsupportedError

Formula = Callable[..., Scalar]


def map_formula(node: Node, formula: Formula, *tensors: Tensor, predicate: bool = False) -> Tensor:
    """A formula of tensors, stored in the type of the first unless it is a predicate."""
    dtype = None if predicate else tensors[0].dtype
    return map_elements(node.builder, node.name, formula, *tensors, dtype=dtype)


def _operation(name: str) -> Rule:
    """An operation of the IR on all inputs."""

    def rule(node: Node) -> Tensor:
        return map_formula(node, lambda x, *others: x.apply(name, *others), *node.tensors())

    return rule


def _predicate(formula: Formula) -> Rule:
    def rule(node: Node) -> Tensor:
        return map_formula(node, formula, *node.tensors(), predicate=True)

    return rule


def _formula(formula: Formula, **numbers: float) -> Rule:
    """A formula of the inputs, and of attributes that are numbers with these defaults."""

    def rule(node: Node) -> Tensor:
        given = [node.number(name, default) for name, default in numbers.items()]
        return map_formula(node, lambda *x: formula(*x, *given), *node.tensors())

    return rule


def _fold(combine: Callable[[Scalar, Scalar], Scalar]) -> Rule:
    """An operator of one or more inputs."""

    def rule(node: Node) -> Tensor:
        return map_formula(node, lambda *x: functools.reduce(combine, x), *node.tensors())

    return rule


def is_negative(x: Scalar) -> Scalar:
    return x < 0


def relu(x: Scalar) -> Scalar:
    return x.apply("max", 0)


def softplus(x: Scalar) -> Scalar:
    """`log(1 + exp(x))`, without overflow."""
    return relu(x) + (-x.apply("abs")).apply("exp").apply("log1p")


def tanh(x: Scalar) -> Scalar:
    return x.apply("tanh")


def _mean(node: Node) -> Tensor:
    count = len(node.inputs)
    return map_formula(node, lambda *x: functools.reduce(Scalar.__add__, x) / count,
                       *node.tensors())  # fmt: skip


def _elu(x: Scalar, alpha: float) -> Scalar:
    return (x < 0).select(x.apply("expm1") * alpha, x)


def _celu(x: Scalar, alpha: float) -> Scalar:
    return relu(x) + ((x / alpha).apply("expm1") * alpha).apply("min", 0)


def _selu(x: Scalar, alpha: float, gamma: float) -> Scalar:
    return (x > 0).select(x * gamma, x.apply("expm1") * (alpha * gamma))


def _hard_sigmoid(x: Scalar, alpha: float, beta: float) -> Scalar:
    return (x * alpha + beta).apply("max", 0).apply("min", 1)


def _shrink(x: Scalar, bias: float, limit: float) -> Scalar:
    outer = (x > limit).select(_offset(x, -bias), 0)
    return (x < -limit).select(_offset(x, bias), outer)


def _offset(x: Scalar, by: float) -> Scalar:
    """A number is added to integers as a fraction is, and the sum made one of them again."""
    if x.dtype.is_float:
        return x + by
    return (x.cast(DataType.FLOAT32) + by).cast(x.dtype)


def _gelu(node: Node) -> Tensor:
    def exact(x: Scalar) -> Scalar:
        return x * 0.5 * ((x * math.sqrt(0.5)).apply("erf") + 1)

    def approximate(x: Scalar) -> Scalar:
        inner = (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)
        return x * 0.5 * (tanh(inner) + 1)

    formula = approximate if node.text("approximate", "none") == "tanh" else exact
    return map_formula(node, formula, *node.tensors())


def _remainder(node: Node) -> Tensor:
    def truncated(x: Scalar, y: Scalar) -> Scalar:
        return x % y

    def floored(x: Scalar, y: Scalar) -> Scalar:
        rest = x % y
        # The sign is that of the divisor.
        turns = rest.differs(0) & is_negative(rest).differs(is_negative(y))
        return turns.select(rest + y, rest)

    return map_formula(node, truncated if node.integer("fmod") else floored, *node.tensors())


def _power(node: Node) -> Tensor:
    exponent = node.value(1)
    if isinstance(exponent, np.ndarray) and exponent.size == 1 and exponent.item() == 2:
        return map_formula(node, lambda base: base * base, node.tensor(0))

    def raise_to(base: Scalar, power: Scalar) -> Scalar:
        if base.dtype.is_float:
            return base.apply("pow", power.cast(base.dtype))
        # FLOAT64 has all results that fit into 32 bits.
        wide = base.cast(DataType.FLOAT64).apply("pow", power.cast(DataType.FLOAT64))
        return wide.apply("round").cast(base.dtype)

    return map_formula(node, raise_to, node.tensor(0), node.tensor(1))


def _shift(node: Node) -> Tensor:
    left = node.text("direction") == "LEFT"

    def shift(x: Scalar, by: Scalar) -> Scalar:
        shifted = x.apply("shift_left" if left else "shift_right", by)
        # The IR takes distances modulo the width; beyond it, all bits are shifted out.
        beyond = (x < 0).select(x * 0 - 1, 0) if not left and signed(x) else x * 0
        return ((by >= 0) & (by < x.dtype.bytes * 8)).select(shifted, beyond)

    return map_formula(node, shift, *node.tensors())


def signed(x: Scalar) -> bool:
    return x.dtype.kind is Kind.SIGNED


def _clip(node: Node) -> Tensor:
    x = node.tensor(0)
    if "min" in node.attributes or "max" in node.attributes:
        low, high = node.number("min", -math.inf), node.number("max", math.inf)
        return map_formula(node, lambda v: v.apply("max", low).apply("min", high), x)
    bounds = [(name, node.optional(k)) for k, name in ((1, "max"), (2, "min"))]
    given = [(name, tensor) for name, tensor in bounds if tensor is not None]

    def clip(value: Scalar, *limits: Scalar) -> Scalar:
        for (name, _), limit in zip(given, limits, strict=True):
            value = value.apply(name, limit)
        return value

    return map_formula(node, clip, x, *(tensor for _, tensor in given))


def _where(node: Node) -> Tensor:
    condition, then, otherwise = node.tensors()
    if then.dtype is not otherwise.dtype:
        raise DmlcError(f"it chooses from {then.dtype.name} and {otherwise.dtype.name}")
    return map_elements(node.builder, node.name, lambda c, x, y: c.select(x, y), condition, then,
                        otherwise, dtype=then.dtype)  # fmt: skip


def _is_infinite(node: Node) -> Tensor:
    wanted = (node.integer("detect_negative", 1), node.integer("detect_positive", 1))

    def test(x: Scalar) -> Scalar:
        found = x.apply("isinf")
        if wanted == (1, 1):
            return found
        if wanted == (0, 0):
            return found & x.differs(x)
        return found & ((x < 0) if wanted[0] else (x > 0))

    return map_formula(node, test, node.tensor(0), predicate=True)


def _prelu(node: Node) -> Tensor:
    x, slope = node.tensors()
    return map_formula(node, lambda v, s: (v < 0).select(v * s, v), x, slope)


def _swish(x: Scalar, alpha: float) -> Scalar:
    return x * (x * alpha).apply("sigmoid")


def _swiglu(x: Scalar, y: Scalar, alpha: float) -> Scalar:
    return _swish(x, alpha) * y


def _dropout(node: Node) -> tuple[Tensor, Tensor | None]:
    x = node.tensor(0)
    training = node.has(2) and bool(node.array(2).all())
    ratio = float(node.array(1)) if node.has(1) and training else 0.0
    if training and ratio != 0:
        raise UnsupportedError("it draws random numbers: training_mode is true")
    mask = None
    if node.wants(1):
        mask = node.builder.compute(
            node.outputs[1], x.extents, lambda at: at.constant(True, DataType.BOOL)
        )
    return x, mask


def _sign_of(x: Scalar) -> Scalar:
    if x.dtype.kind is Kind.UNSIGNED:
        return x.apply("min", 1)
    return x.apply("sign")


def _absolute(x: Scalar) -> Scalar:
    return x if x.dtype.kind is Kind.UNSIGNED else x.apply("abs")


_SIMPLE = {
    "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "BitwiseAnd": "bit_and", "BitwiseNot": "bit_not", "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf",
    "Exp": "exp", "Floor": "floor", "Log": "log", "Neg": "neg", "Round": "round",
    "Sigmoid": "sigmoid", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan",
    "Tanh": "tanh", "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div",
}  # fmt: skip
"""The operators that are operations of the IR."""

RULES: Mapping[str, Rule] = {
    **{op_type: _operation(name) for op_type, name in _SIMPLE.items()},
    "Abs": _formula(_absolute),
    "And": _predicate(lambda x, y: x & y),
    "BitShift": _shift,
    "Celu": _formula(_celu, alpha=1.0),
    "Clip": _clip,
    "Dropout": _dropout,
    "Elu": _formula(_elu, alpha=1.0),
    "Equal": _predicate(lambda x, y: x.equals(y)),
    "Gelu": _gelu,
    "Greater": _predicate(lambda x, y: x > y),
    "GreaterOrEqual": _predicate(lambda x, y: x >= y),
    "HardSigmoid": _formula(_hard_sigmoid, alpha=0.2, beta=0.5),
    "HardSwish": _formula(lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5)),
    "IsInf": _is_infinite,
    "IsNaN": _predicate(lambda x: x.apply("isnan")),
    "LeakyRelu": _formula(lambda x, alpha: (x < 0).select(x * alpha, x), alpha=0.01),
    "Less": _predicate(lambda x, y: x < y),
    "LessOrEqual": _predicate(lambda x, y: x <= y),
    "Max": _fold(lambda x, y: x.apply("max", y)),
    "Mean": _mean,
    "Min": _fold(lambda x, y: x.apply("min", y)),
    "Mish": _formula(lambda x: x * tanh(softplus(x))),
    "Mod": _remainder,
    "Not": _predicate(lambda x: ~x),
    "Or": _predicate(lambda x, y: x | y),
    "PRelu": _prelu,
    "Pow": _power,
    "Reciprocal": _formula(lambda x: 1 / x),
    "Relu": _formula(relu),
    "Selu": _formula(_selu, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Shrink": _formula(_shrink, bias=0.0, lambd=0.5),
    "Sign": _formula(_sign_of),
    "Softplus": _formula(softplus),
    "Softsign": _formula(lambda x: x / (x.apply("abs") + 1)),
    "Sum": _fold(lambda x, y: x + y),
    "SwiGLU": _formula(_swiglu, alpha=1.0),
    "Swish": _formula(_swish, alpha=1.0),
    "ThresholdedRelu": _formula(lambda x, alpha: (x > alpha).select(x, 0), alpha=1.0),
    "Where": _where,
    "Xor": _predicate(lambda x, y: x ^ y),
}  # fmt: skip
