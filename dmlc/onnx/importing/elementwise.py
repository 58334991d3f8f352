"""Element-wise operators of ONNX, on tensors that broadcast."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from dmlc.building.functions import Operand, Scalar, Tensor
from dmlc.building.tensors import map_elements, reshape
from dmlc.onnx.importing.nodes import Node, Rule, Value, dtype_of
from dmlc.scalars import DataType, Kind
from dmlc.source import DmlcError, UnsupportedError

Formula = Callable[..., Scalar]
Unary = Callable[[Scalar], Scalar]
Binary = Callable[[Scalar, Scalar], Scalar]


class Several(Protocol):
    """Formula of one or more values."""

    def __call__(self, *values: Scalar) -> Scalar: ...


def map_formula(node: Node, formula: Formula, *tensors: Tensor) -> Tensor:
    """Tensor of a formula, in the type of the first operand."""
    return map_elements(node.builder, node.name, formula, *tensors, dtype=tensors[0].dtype)


def _align(node: Node) -> list[Tensor]:
    """Inputs of a node. Before version 7, the second one has its axes from the attribute `axis` of
    the first on, and a slope of PRelu from axis 1 on; without these they are the last ones."""
    tensors = node.tensors()
    axis = node.attributes.get("axis") if node.attributes.get("broadcast") else None
    if node.version < 7 and (axis is not None or node.op_type == "PRelu"):
        first, second = tensors
        start = 1 if axis is None else node.axis(first.rank)
        extents = (*second.extents, *[1] * (first.rank - start - second.rank))
        tensors[1] = reshape(node.builder, f"{node.name}_{second.name}", second, extents)
    return tensors


def _map(formula: Unary | Binary) -> Rule:
    """Rule for a formula of all inputs, in the type of the first."""
    return lambda node: map_formula(node, formula, *_align(node))


def _join(formula: Several) -> Rule:
    return lambda node: map_formula(node, formula, *_align(node))


def _test(formula: Unary | Binary) -> Rule:
    """Rule for a formula of all inputs that gives a boolean."""
    return lambda node: map_elements(node.builder, node.name, formula, *_align(node))


def _operation(name: str) -> Rule:
    """Rule for an operation of the IR on all inputs."""
    return _join(lambda *values: values[0].apply(name, *values[1:]))


def _numbered(formula: Formula, *names: str) -> Rule:
    """A formula of the inputs, and of attributes that are numbers."""

    def rule(node: Node) -> Tensor:
        given = [node.number(name) for name in names]

        def held(*values: Scalar) -> Scalar:
            return formula(*values, *given)

        return map_formula(node, held, *node.tensors())

    return rule


def _fold(combine: Binary) -> Rule:
    """Rule for an operator of one or more inputs that are combined in order."""
    return _join(lambda *values: functools.reduce(combine, values))


def is_negative(x: Scalar) -> Scalar:
    return x < 0


def relu(x: Scalar) -> Scalar:
    return x.apply("max", 0)


def softplus(x: Scalar) -> Scalar:
    """`log(1 + exp(x))`, without overflow."""
    return relu(x) + (-x.apply("abs")).apply("exp").apply("log1p")


def tanh(x: Scalar) -> Scalar:
    return x.apply("tanh")


def _elu(x: Scalar, alpha: float) -> Scalar:
    return (x < 0).select(x.apply("expm1") * alpha, x)


def _celu(x: Scalar, alpha: float) -> Scalar:
    return relu(x) + ((x / alpha).apply("expm1") * alpha).apply("min", 0)


def _selu(x: Scalar, alpha: float, gamma: float) -> Scalar:
    return (x > 0).select(x * gamma, x.apply("expm1") * (alpha * gamma))


def _hard_sigmoid(x: Scalar, alpha: float, beta: float) -> Scalar:
    return (x * alpha + beta).apply("max", 0).apply("min", 1)


def _shrink(x: Scalar, bias: float, limit: float) -> Scalar:
    # Integers are compared with fractions, and moved by them, as fractions are.
    value = x if x.dtype.is_float else x.cast(DataType.FLOAT32)
    outer = (value > limit).select(value - bias, 0)
    return (value < -limit).select(value + bias, outer).cast(x.dtype)


def _gelu(node: Node) -> Tensor:
    def exact(x: Scalar) -> Scalar:
        return x * 0.5 * ((x * math.sqrt(0.5)).apply("erf") + 1)

    def approximate(x: Scalar) -> Scalar:
        inner = (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)
        return x * 0.5 * (tanh(inner) + 1)

    formula = approximate if node.text("approximate") == "tanh" else exact
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


def _square(x: Scalar) -> Scalar:
    return x * x


def _power(node: Node) -> Tensor:
    exponent = node.value(1)
    if isinstance(exponent, np.ndarray) and exponent.size == 1 and exponent.item() == 2:
        return map_formula(node, _square, node.tensor(0))

    def raise_to(base: Scalar, power: Scalar) -> Scalar:
        if base.dtype.is_float:
            return base.apply("pow", power.cast(base.dtype))
        if power.dtype.is_integer:
            return _multiply_up(base, power, _count_bits(exponent))
        found = base.cast(DataType.FLOAT64).apply("pow", power.cast(DataType.FLOAT64))
        return _snap(found).cast(base.dtype)

    return map_formula(node, raise_to, *_align(node))


def _count_bits(value: Value) -> int:
    """Number of bits of a type's largest integer, without the sign."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return max((abs(number).bit_length() for number in value.ravel().tolist()), default=0)
    return int(np.iinfo(dtype_of(value).dtype).max).bit_length()


def _multiply_up(base: Scalar, power: Scalar, bits: int) -> Scalar:
    """Integer to the power of another one of at most `bits` bits, modulo the range of its type. A
    negative power gives the truncated inverse, and 0 for base 0."""
    found, factor, rest = base * 0 + 1, base, power
    is_signed = power.dtype.kind is Kind.SIGNED
    if is_signed:
        rest = power.apply("abs")
    for bit in range(bits):
        if bit:
            factor = factor * factor
        found = (rest & (1 << bit)).differs(0).select(found * factor, found)
    if not is_signed:
        return found
    ends = base.equals(1)
    if base.dtype.kind is Kind.SIGNED:
        ends = ends | base.equals(-1)
    return (power >= 0).select(found, ends.select(found, 0))


_ERROR = 2.0**-48
"""By how much of itself a power of FLOAT64s may be off: 16 units in the last place, in OpenCL."""


def _snap(x: Scalar) -> Scalar:
    """Power of FLOAT64s, rounded to the nearest integer if that is within its error."""
    near = x.apply("round")
    return ((x - near).apply("abs") <= near.apply("abs") * _ERROR).select(near, x)


def _shift(node: Node) -> Tensor:
    left = node.text("direction") == "LEFT"

    def shift(x: Scalar, by: Scalar) -> Scalar:
        shifted = x.apply("shift_left" if left else "shift_right", by)
        # The IR takes distances modulo the width; beyond it, all bits are shifted out.
        beyond = (x < 0).select(x * 0 - 1, 0) if not left and x.dtype.kind is Kind.SIGNED else x * 0
        return ((by >= 0) & (by < x.dtype.bytes * 8)).select(shifted, beyond)

    return map_formula(node, shift, *node.tensors())


def _clip(node: Node) -> Tensor:
    x = node.tensor(0)
    if "min" in node.attributes or "max" in node.attributes:
        low, high = node.number("min", -math.inf), node.number("max", math.inf)

        def hold(value: Scalar) -> Scalar:
            return value.apply("max", low).apply("min", high)

        return map_formula(node, hold, x)
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
    wanted = (node.integer("detect_negative"), node.integer("detect_positive"))

    def test(x: Scalar) -> Scalar:
        found = x.apply("isinf")
        if wanted == (1, 1):
            return found
        if wanted == (0, 0):
            return found & x.differs(x)
        return found & ((x < 0) if wanted[0] else (x > 0))

    return map_elements(node.builder, node.name, test, node.tensor(0))


def _leak(x: Scalar, slope: Operand) -> Scalar:
    return (x < 0).select(x * slope, x)


def _threshold(x: Scalar, alpha: float) -> Scalar:
    return (x > alpha).select(x, 0)


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
    "Abs": _map(_absolute),
    "And": _test(lambda x, y: x & y),
    "BitShift": _shift,
    "Celu": _numbered(_celu, "alpha"),
    "Clip": _clip,
    "Dropout": _dropout,
    "Elu": _numbered(_elu, "alpha"),
    "Equal": _test(lambda x, y: x.equals(y)),
    "Gelu": _gelu,
    "Greater": _test(lambda x, y: x > y),
    "GreaterOrEqual": _test(lambda x, y: x >= y),
    "HardSigmoid": _numbered(_hard_sigmoid, "alpha", "beta"),
    "HardSwish": _map(lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5)),
    "IsInf": _is_infinite,
    "IsNaN": _test(lambda x: x.apply("isnan")),
    "LeakyRelu": _numbered(_leak, "alpha"),
    "Less": _test(lambda x, y: x < y),
    "LessOrEqual": _test(lambda x, y: x <= y),
    "Max": _fold(lambda x, y: x.apply("max", y)),
    "Mean": _join(lambda *values: functools.reduce(Scalar.__add__, values) / len(values)),
    "Min": _fold(lambda x, y: x.apply("min", y)),
    "Mish": _map(lambda x: x * tanh(softplus(x))),
    "Mod": _remainder,
    "Not": _test(lambda x: ~x),
    "Or": _test(lambda x, y: x | y),
    "PRelu": _map(_leak),
    "Pow": _power,
    "Reciprocal": _map(lambda x: 1 / x),
    "Relu": _map(relu),
    "Selu": _numbered(_selu, "alpha", "gamma"),
    "Shrink": _numbered(_shrink, "bias", "lambd"),
    "Sign": _map(_sign_of),
    "Softplus": _map(softplus),
    "Softsign": _map(lambda x: x / (x.apply("abs") + 1)),
    "Sum": _fold(lambda x, y: x + y),
    "SwiGLU": _numbered(_swiglu, "alpha"),
    "Swish": _numbered(_swish, "alpha"),
    "ThresholdedRelu": _numbered(_threshold, "alpha"),
    "Where": _where,
    "Xor": _test(lambda x, y: x ^ y),
}  # fmt: skip
