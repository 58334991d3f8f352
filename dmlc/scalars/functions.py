"""Records of exponential, trigonometric and hyperbolic functions and the like."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dmlc.scalars import angles, float32, fractions
from dmlc.scalars.arithmetic import NO_DOUBLE, REGISTRY, end_kink, leave_end
from dmlc.scalars.expression import Routine, Value
from dmlc.scalars.fractions import Fraction
from dmlc.scalars.operation import (
    SMOOTH,
    Derivative,
    Error,
    Keeps,
    Kinks,
    Operands,
    Record,
    Reverse,
    Share,
    Spelled,
    Spelling,
    Way,
)
from dmlc.scalars.types import Array


def _function(
    name: str,
    arity: int,
    evaluate: Callable[..., Array],
    *,
    meaning: str,
    edges: str,
    derivative: Derivative,
    kinks: Kinks,
    cost: int,
    range: Callable[..., Fraction] | None,
    never_negative: Keeps,
    limits: tuple[float, ...],
    formula: Callable[..., Value] | None,
    float32: Routine,
    float64: Routine | None,
    opencl: Spelled,
    onnx: str | None,
    cgc: tuple[str, ...],
    mlir: str,
    torch: str | None,
    pages: tuple[str, ...],
) -> None:
    """Adds a function of floats whose results differ slightly between backends."""
    REGISTRY.add(Record(
        name, arity, Operands.FLOAT, evaluate,
        boolean=False, symbol=None, narrows=None, internal=False, meaning=meaning,
        edges={"float": edges}, derivative=derivative, kinks=kinks, cost=cost,
        error=Error.FUNCTION, range=range, never_negative=never_negative, whole=Keeps.NEVER,
        limits=limits, formula=formula, float32=float32, float64=float64, infix=None,
        hlsl=(Way.ROUTINE, NO_DOUBLE), opencl=opencl, wgsl=Way.ROUTINE, onnx=onnx,
        cgc=cgc,
        mlir=(mlir, "", ""), torch=torch, pages=pages,
    ))  # fmt: skip


def _one_minus_square(x: Value) -> Value:
    return 1 - x * x


def _one_plus_square(x: Value) -> Value:
    return x * x + 1


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=x.dtype)


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _power(x: Array, y: Array) -> Array:
    """`pow` of IEEE 754. NumPy uses the square root for a scalar exponent of 0.5, which differs for
    negative infinity and for -0: each element has an exponent of its own."""
    x, y = np.broadcast_arrays(x, y)
    return np.asarray(np.power(x.ravel(), y.ravel()).reshape(x.shape))


def _spread_power(p: Reverse) -> Sequence[Share]:
    """Derivatives of `pow(x, y)`: with respect to x, `y * pow(x, y - 1)`, or 0 for y = 0, and at x
    = 0 if x cannot be negative; with respect to y, `pow(x, y) * log(x)`, or 0 where the power is 0,
    and for x = y = 0."""
    x, y = p.operands
    one = y - 1
    still = y.apply("ne", 0)
    risen = p.y.apply("ne", 0)
    corner = x.apply("eq", 0).apply("and", y.apply("eq", 0))
    by_x = p.d * y * x.apply("pow", one)
    by_y = p.d * p.y * x.apply("log")
    return (
        Share(0, by_x, ((still, True), *leave_end(p, x))),
        Share(1, by_y, ((risen, True), (corner, False))),
    )


def _spread_angle(p: Reverse) -> Sequence[Value]:
    y, x = p.operands
    unit = p.d / (x * x + y * y)
    return unit * x, -(unit * y)


def _exp2(x: Value) -> Value:
    return x.operate("pow", 2, x)


def _log2(x: Value) -> Value:
    return x.apply("log") * (1 / math.log(2))


def _expm1(x: Value) -> Value:
    """`exp(x) - 1` for small x, from a hyperbolic tangent, which keeps its digits."""
    half, one = (x * 0.5).apply("tanh"), x.like(1)
    near, far = half * 2 / (one - half), x.apply("exp") - one
    return (x.apply("abs") < one).select(near, far)


def _sigmoid(x: Value) -> Value:
    one = x.like(1)
    return one / (one + (-x).apply("exp"))


def _log1p(x: Value) -> Value:
    """`log(1 + x)` for small x: the logarithm of 1 + x rounded, corrected by the rounding error of
    the sum."""
    sum_ = x + 1
    far, rest = sum_.apply("log"), sum_ - 1
    near = far * x / rest
    near = rest.apply("eq", 0).select(x, near)
    return (x.apply("abs") < 0.5).select(near, far)


def _find_angle(y: Value, x: Value) -> Value:
    """Angle in the first quadrant, reflected according to the signs."""
    zero, high, wide = x.like(0), y.apply("abs"), x.apply("abs")
    same, slope = high.apply("eq", zero).select(zero, x.like(1)), high / wide
    # 0 / 0 and inf / inf have a direction here.
    angle = high.apply("eq", wide).select(same, slope).apply("atan")
    angle = _has_sign(x).select(math.pi - angle, angle)
    return _has_sign(y).select(-angle, angle)


def _has_sign(x: Value) -> Value:
    """Whether the sign bit is set, also for -0.0."""
    below = 1 / x < 0
    return (x < 0).apply("or", below)


# fmt: off
_function(
    "exp", 1, np.exp,
    meaning="e to that power", edges="exp(0) = 1; exp(-inf) = 0; exp(inf) = inf; exp(nan) = nan",
    derivative=lambda p: p.d * p.y, kinks=SMOOTH,
    cost=20, range=fractions.between(0, math.inf), never_negative=Keeps.ALWAYS, limits=(0,),
    float32=float32.exp, float64=None, opencl=(Way.HELPER, Way.CALL), formula=None, onnx="Exp",
    mlir="math.exp", cgc=("exp",),
    torch="exp", pages=("exp", "\\exp"),
)
_function(
    "exp2", 1, np.exp2,
    meaning="2 to that power", edges="exp2(-1) = 0.5; exp2(-inf) = 0; exp2(inf) = inf",
    derivative=lambda p: p.d * p.y * math.log(2), kinks=SMOOTH,
    cost=20, range=fractions.between(0, math.inf), never_negative=Keeps.ALWAYS, limits=(0,),
    float32=float32.exp2, float64=None, opencl=Way.CALL, formula=_exp2, onnx=None, mlir="math.exp2",
    cgc=(),
    torch="exp2", pages=(),
)
_function(
    "expm1", 1, np.expm1,
    meaning="e to that power, less 1", edges="expm1(-0) = -0; expm1(-inf) = -1; expm1(inf) = inf",
    derivative=lambda p: p.d * p.x.apply("exp"), kinks=SMOOTH,
    cost=20, range=None, never_negative=Keeps.NEVER, limits=(-1,),
    float32=float32.expm1, float64=None, opencl=(Way.HELPER, Way.CALL),
    formula=_expm1, onnx=None, mlir="math.expm1", torch="expm1", pages=(),
    cgc=(),
)
_function(
    "log", 1, np.log,
    meaning="the natural logarithm",
    edges="log(1) = 0; log(0) = -inf; log(-0) = -inf; log(-1) = nan; log(inf) = inf",
    derivative=lambda p: p.d / p.x, kinks=SMOOTH,
    cost=20, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=float32.log, float64=None, opencl=(Way.HELPER, Way.CALL), formula=None, onnx="Log",
    mlir="math.log", cgc=("log",),
    torch="log", pages=("log", "ln", "\\log", "\\ln"),
)
_function(
    "log2", 1, np.log2,
    meaning="the logarithm to base 2", edges="log2(8) = 3; log2(0) = -inf; log2(-1) = nan",
    derivative=lambda p: p.d / (p.x * math.log(2)), kinks=SMOOTH,
    cost=20, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=float32.log2, float64=None, opencl=Way.CALL, formula=_log2, onnx=None, mlir="math.log2",
    cgc=(),
    torch="log2", pages=(),
)
_function(
    "log1p", 1, np.log1p,
    meaning="the natural logarithm of 1 more",
    edges="log1p(-0) = -0; log1p(-1) = -inf; log1p(-2) = nan",
    derivative=lambda p: p.d / (p.x + 1), kinks=SMOOTH,
    cost=20, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=float32.log1p, float64=None,
    opencl=(Way.HELPER, Spelling("{H}({a})", helper="log1p_wide")),
    formula=_log1p, onnx=None, mlir="math.log1p", torch="log1p", pages=(),
    cgc=(),
)
_function(
    "pow", 2, _power,
    meaning="the first to the power of the second",
    edges="pow(nan, 0) = 1; pow(1, nan) = 1; pow(0, -1) = inf; pow(-0, -1) = -inf; "
    "pow(-8, 0.5) = nan; pow(-1, inf) = 1; pow(-2, 3) = -8",
    derivative=_spread_power, kinks=Kinks(None, None, end_kink("pow(x, y)")),
    cost=40, range=None, never_negative=Keeps.OPERANDS, limits=(),
    float32=float32.pow, float64=None, opencl=Way.CALL, formula=None, onnx="Pow", mlir="math.powf",
    cgc=(),
    torch=None, pages=("pow",),
)
_function(
    "sin", 1, np.sin,
    meaning="of an angle in radians", edges="sin(-0) = -0; sin(inf) = nan",
    derivative=lambda p: p.d * p.x.apply("cos"), kinks=SMOOTH,
    cost=20, range=fractions.wave, never_negative=Keeps.NEVER, limits=(),
    float32=angles.sin, float64=None,
    opencl=(Way.HELPER, Way.CALL),
    formula=None, onnx="Sin", mlir="math.sin", torch="sin", pages=("\\sin",),
    cgc=("sin",),
)
_function(
    "cos", 1, np.cos,
    meaning="of an angle in radians", edges="cos(0) = 1; cos(inf) = nan",
    derivative=lambda p: -(p.d * p.x.apply("sin")), kinks=SMOOTH,
    cost=20, range=fractions.wave, never_negative=Keeps.NEVER, limits=(),
    float32=angles.cos, float64=None,
    opencl=(Way.HELPER, Way.CALL),
    formula=None, onnx="Cos", mlir="math.cos", torch="cos", pages=("\\cos",),
    cgc=("cos",),
)
_function(
    "tan", 1, np.tan,
    meaning="of an angle in radians", edges="tan(-0) = -0; tan(inf) = nan",
    derivative=lambda p: p.d * _one_plus_square(p.y), kinks=SMOOTH,
    cost=40, range=None, never_negative=Keeps.NEVER, limits=(), float32=angles.tan, float64=None,
    opencl=(Spelling("tan({a})", vector="{H}({a})", helper="tan"), Way.CALL),
    formula=None, onnx="Tan", mlir="math.tan", torch="tan", pages=("\\tan",),
    cgc=(),
)
_function(
    "asin", 1, np.arcsin,
    meaning="the angle with that sine", edges="asin(-0) = -0; asin(2) = nan",
    derivative=lambda p: p.d / _one_minus_square(p.x).apply("sqrt"), kinks=SMOOTH,
    cost=20, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=angles.asin, float64=None, opencl=Way.CALL, formula=None, onnx="Asin", mlir="math.asin",
    cgc=(),
    torch="asin", pages=("\\arcsin",),
)
_function(
    "acos", 1, np.arccos,
    meaning="the angle with that cosine", edges="acos(1) = 0; acos(2) = nan",
    derivative=lambda p: p.d / -_one_minus_square(p.x).apply("sqrt"), kinks=SMOOTH,
    cost=20, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=angles.acos, float64=None, opencl=Way.CALL, formula=None, onnx="Acos", mlir="math.acos",
    cgc=(),
    torch="acos", pages=("\\arccos",),
)
_function(
    "atan", 1, np.arctan,
    meaning="the angle with that tangent, between -pi/2 and pi/2",
    edges="atan(-0) = -0; atan(nan) = nan",
    derivative=lambda p: p.d / _one_plus_square(p.x), kinks=SMOOTH,
    cost=20, range=fractions.between(-math.pi / 2, math.pi / 2),
    never_negative=Keeps.NEVER, limits=(), float32=angles.atan, float64=None, opencl=Way.CALL,
    formula=None, onnx="Atan", mlir="math.atan", torch="atan", pages=("\\arctan",),
    cgc=(),
)
_function(
    "atan2", 2, np.arctan2,
    meaning="the angle of a point, its height first, between -pi and pi",
    edges="atan2(0, 0) = 0; atan2(-0, 0) = -0; atan2(1, inf) = 0; atan2(nan, 1) = nan",
    derivative=_spread_angle, kinks=SMOOTH,
    cost=40, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=angles.atan2, float64=None, opencl=Way.CALL,
    formula=_find_angle, onnx=None, mlir="math.atan2", torch=None, pages=(),
    cgc=(),
)
_function(
    "sinh", 1, np.sinh,
    meaning="the hyperbolic sine", edges="sinh(-0) = -0; sinh(-inf) = -inf",
    derivative=lambda p: p.d * p.x.apply("cosh"), kinks=SMOOTH,
    cost=20, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=float32.sinh, float64=None, opencl=Way.CALL,
    formula=None, onnx="Sinh", mlir="math.sinh", torch="sinh", pages=("\\sinh",),
    cgc=(),
)
_function(
    "cosh", 1, np.cosh,
    meaning="the hyperbolic cosine", edges="cosh(0) = 1; cosh(-inf) = inf",
    derivative=lambda p: p.d * p.x.apply("sinh"), kinks=SMOOTH,
    cost=20, range=None, never_negative=Keeps.ALWAYS, limits=(),
    float32=float32.cosh, float64=None, opencl=Way.CALL,
    formula=None, onnx="Cosh", mlir="math.cosh", torch="cosh", pages=("\\cosh",),
    cgc=(),
)
_function(
    "tanh", 1, np.tanh,
    meaning="the hyperbolic tangent", edges="tanh(-0) = -0; tanh(inf) = 1; tanh(-inf) = -1",
    derivative=lambda p: p.d * _one_minus_square(p.y), kinks=SMOOTH,
    cost=20, range=fractions.between(-1, 1), never_negative=Keeps.NEVER, limits=(-1, 1),
    float32=float32.tanh, float64=None, opencl=(Way.HELPER, Way.CALL),
    formula=None, onnx="Tanh", mlir="math.tanh", torch="tanh", pages=("tanh", "\\tanh"),
    cgc=(),
)
_function(
    "asinh", 1, np.arcsinh,
    meaning="the inverse of sinh", edges="asinh(-0) = -0; asinh(-inf) = -inf",
    derivative=lambda p: p.d / _one_plus_square(p.x).apply("sqrt"), kinks=SMOOTH,
    cost=40, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=float32.asinh, float64=None, opencl=Way.CALL,
    formula=None, onnx="Asinh", mlir="math.asinh", torch="asinh", pages=(),
    cgc=(),
)
_function(
    "acosh", 1, np.arccosh,
    meaning="the inverse of cosh, 0 or more",
    edges="acosh(1) = 0; acosh(0.5) = nan; acosh(inf) = inf",
    derivative=lambda p: p.d / ((p.x - 1).apply("sqrt") * (p.x + 1).apply("sqrt")), kinks=SMOOTH,
    cost=40, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=float32.acosh, float64=None, opencl=Way.CALL,
    formula=None, onnx="Acosh", mlir="math.acosh", torch="acosh", pages=(),
    cgc=(),
)
_function(
    "atanh", 1, np.arctanh,
    meaning="the inverse of tanh",
    edges="atanh(-0) = -0; atanh(1) = inf; atanh(-1) = -inf; atanh(2) = nan",
    derivative=lambda p: p.d / _one_minus_square(p.x), kinks=SMOOTH,
    cost=40, range=None, never_negative=Keeps.NEVER, limits=(),
    float32=float32.atanh, float64=None, opencl=Way.CALL,
    formula=None, onnx="Atanh", mlir="math.atanh", torch="atanh", pages=(),
    cgc=(),
)
_function(
    "erf", 1, _erf,
    meaning="the error function", edges="erf(-0) = -0; erf(inf) = 1; erf(-inf) = -1",
    derivative=lambda p: p.d * (2 / math.sqrt(math.pi)) * (-(p.x * p.x)).apply("exp"), kinks=SMOOTH,
    cost=40, range=fractions.between(-1, 1), never_negative=Keeps.NEVER, limits=(-1, 1),
    float32=float32.erf, float64=None, opencl=(Way.HELPER, Way.CALL),
    formula=None, onnx="Erf", mlir="math.erf", torch="erf", pages=("erf",),
    cgc=(),
)
_function(
    "sigmoid", 1, _logistic,
    meaning="1 / (1 + exp(-x))", edges="sigmoid(0) = 0.5; sigmoid(-inf) = 0; sigmoid(inf) = 1",
    derivative=lambda p: p.d * p.y * (1 - p.y), kinks=SMOOTH,
    cost=20, range=fractions.between(0, 1), never_negative=Keeps.ALWAYS, limits=(0, 1),
    float32=float32.sigmoid, float64=None,
    opencl=(Way.HELPER, Spelling("{H}({a})", helper="sigmoid_wide")),
    formula=_sigmoid, onnx=None, mlir="",
    cgc=("sigmoid",),
    torch="sigmoid", pages=("sigmoid",),
)
