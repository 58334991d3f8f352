"""Records of arithmetic, comparisons, logic, roundings and bit operations. The rules are those of
IEEE 754, with these choices: `min`, `max` propagate NaN and keep the first operand on a tie; `sign`
keeps zeros; integers wrap; integer division truncates, and dividing by zero gives 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dmlc.scalars import float32, fractions, two_floats
from dmlc.scalars.expression import Value
from dmlc.scalars.operation import (
    SMOOTH,
    Derivative,
    Error,
    Keeps,
    Kinks,
    Operands,
    Record,
    Registry,
    Reverse,
    Share,
    Spelled,
    Spelling,
    Unsupported,
    Way,
)
from dmlc.scalars.types import Array, DataType, convert, data_type_of

REGISTRY = Registry()


NO_DOUBLE = Unsupported("HLSL only has + - * / and comparisons of double precision")
UNEQUAL = Spelling("!({0} == {1})", compound=True)
"""`a != b` becomes an ordered comparison, false for NaN, in SPIR-V."""


# NumPy's functions -------------------------------------------------------------------------------


def _integral(x: Array) -> bool:
    return x.dtype.kind in "iu"


def _are_natural(x: Array, y: Array) -> bool:
    """Whether many nonnegative numbers are divided by one positive number, as most indices are."""
    return y.size == 1 and x.size > 1 and y.item() > 0 and x.min().item() >= 0


def _divide(x: Array, y: Array) -> Array:
    if not _integral(x):
        return np.divide(x, y)
    if _are_natural(x, y):
        return np.floor_divide(x, y)
    zero = y == 0
    divisor = np.where(zero, y.dtype.type(1), y)
    # Floor division and remainder round towards minus infinity: step back to truncate. MIN // -1
    # wraps to MIN, with a remainder of 0.
    quotient: Array = np.floor_divide(x, divisor)
    inexact = (np.remainder(x, divisor) != 0) & ((x < 0) != (divisor < 0))
    return np.where(zero, x.dtype.type(0), np.asarray(quotient + inexact.astype(x.dtype)))


def _modulo(x: Array, y: Array) -> Array:
    if not _integral(x):
        return np.fmod(x, y)
    if _are_natural(x, y):
        # NumPy divides by one number fast, and takes long over a remainder.
        return np.asarray(x - np.floor_divide(x, y) * y)
    zero = y == 0
    return np.where(zero, x.dtype.type(0), np.fmod(x, np.where(zero, y.dtype.type(1), y)))


def _minimum(x: Array, y: Array) -> Array:
    if _integral(x):
        return np.minimum(x, y)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(y < x, y, x)).astype(x.dtype)


def _maximum(x: Array, y: Array) -> Array:
    if _integral(x):
        return np.maximum(x, y)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(y > x, y, x)).astype(x.dtype)


def _sign(x: Array) -> Array:
    return np.asarray(np.where(x == 0, x, np.sign(x)))


def _multiply_add(x: Array, y: Array, z: Array) -> Array:
    """Multiply-add of FLOAT32, rounded once. Wider types, as in the reference, stay exact."""
    if x.dtype != np.float32:
        return np.asarray(x * y + z)
    product, added = x.astype(np.float64) * y, z.astype(np.float64)
    whole = np.asarray(product + added)
    result = whole.astype(np.float32)
    # Rounding twice differs from rounding once where FLOAT64 gives what is as near to two
    # neighbours in FLOAT32: half of the bits that go, or any below the smallest normal number.
    tie = (whole.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    tie |= (np.abs(result) <= np.float32(2**-126)) & (whole != 0)
    if tie.any():
        parts = np.broadcast_arrays(product, added, whole)
        result[tie] = _round_once(*(part[tie] for part in parts))
    return result


def _round_once(product: Array, added: Array, whole: Array) -> Array:
    """Sum with the rounding error of FLOAT64 kept in its last bit by rounding to odd, so that a
    second rounding to FLOAT32 is correct at ties."""
    back = whole - product
    lost = (product - (whole - back)) + (added - back)
    bits = whole.view(np.int64)
    inexact = (lost != 0) & np.isfinite(whole) & np.isfinite(lost) & (bits & 1 == 0)
    nearer = np.where((lost > 0) == (whole > 0), 1, -1)
    return np.where(inexact, bits + nearer, bits).view(np.float64).astype(np.float32)


def _bits(y: Array) -> Array:
    """Shift distance modulo the width, as on GPUs."""
    return y & y.dtype.type(y.dtype.itemsize * 8 - 1)


def _shift_left(x: Array, y: Array) -> Array:
    return np.left_shift(x, _bits(y))


def _shift_right(x: Array, y: Array) -> Array:
    return np.right_shift(x, _bits(y))


def _reciprocal_root(x: Array) -> Array:
    return 1 / np.sqrt(x)


# Formulas -------------------------------------------------------------------------------------


def _fma(x: Value, y: Value, z: Value) -> Value:
    return x * y + z


def _trunc(x: Value) -> Value:
    return (x < 0).select(x.apply("ceil"), x.apply("floor"))


def _rsqrt(x: Value) -> Value:
    return x.like(1) / x.apply("sqrt")


# Derivatives ----------------------------------------------------------------------------------


def _extreme(before: str) -> Derivative:
    """Derivative of the larger or smaller of two values. If one of them is constant, the other gets
    the adjoint only strictly beyond it; if both vary, each gets half of it at a tie."""

    def spread(p: Reverse) -> Sequence[Value] | Sequence[Share]:
        a, b = p.operands
        is_first = a.apply(before, b)
        if not all(p.moving):
            operand = p.moving.index(True)
            is_chosen = is_first if operand == 0 else b.apply(before, a)
            return (Share(operand, p.d, ((is_chosen, True),)),)
        half = p.d * 0.5
        tied = a.apply("eq", b).select(half, 0)
        return tuple(chosen.select(p.d, tied) for chosen in (is_first, b.apply(before, a)))

    return spread


def end_kink(formula: str) -> str:
    """Derivative chosen at the end of a function's domain."""
    return f"{formula} has the derivative 0 in x where x = 0, and x cannot be negative"


def leave_end(p: Reverse, value: Value) -> tuple[tuple[Value, bool], ...]:
    """Condition that a value is nonzero, for a value whose least is 0."""
    return ((value.apply("ne", 0), True),) if p.ending else ()


def _product(p: Reverse) -> Sequence[Value] | Sequence[Share]:
    """Adjoint times the other operand; for a square, times twice the operand."""
    left, right = p.operands
    return (Share(0, p.d * left * 2),) if left is right else (p.d * right, p.d * left)


def _quotient(p: Reverse) -> Sequence[Value]:
    unit = p.d / p.operands[1]
    return unit, -(unit * p.y)


def _remainder(p: Reverse) -> Sequence[Value]:
    """Derivative of `x % y`, which is `x - y * trunc(x / y)`."""
    quotient = (p.x / p.operands[1]).apply("trunc")
    return p.d, -(p.d * quotient)


# Numbers --------------------------------------------------------------------------------------

# fmt: off
REGISTRY.add(Record(
    "add", 2, Operands.NUMBER, np.add,
    boolean=False, symbol="+", narrows=None, internal=False, meaning="the sum",
    edges={
        "float": "add(inf, -inf) = nan; add(0, -0) = 0; add(-0, -0) = -0",
        "integer": "add(MAX, 1) = MIN",
    },
    derivative=lambda p: (p.d, p.d), kinks=SMOOTH, cost=1, error=Error.ROUNDED, range=fractions.add,
    never_negative=Keeps.OPERANDS, whole=Keeps.OPERANDS, limits=(),
    float32=None, float64=None, infix="{0} + {1}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    formula=None, onnx="Add", mlir=("arith.addf", "arith.addi", "arith.addi"), torch=None, pages=(),
    cgc=("add",),
))
REGISTRY.add(Record(
    "sub", 2, Operands.NUMBER, np.subtract,
    boolean=False, symbol="-", narrows=None, internal=False, meaning="the difference",
    edges={
        "float": "sub(inf, inf) = nan; sub(0, 0) = 0; sub(-0, 0) = -0",
        "integer": "sub(MIN, 1) = MAX",
    },
    derivative=lambda p: (p.d, -p.d), kinks=SMOOTH,
    cost=1, error=Error.ROUNDED, range=fractions.subtract,
    never_negative=Keeps.NEVER, whole=Keeps.OPERANDS, limits=(),
    float32=None, float64=None, infix="{0} - {1}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    formula=None, onnx="Sub", mlir=("arith.subf", "arith.subi", "arith.subi"), torch=None, pages=(),
    cgc=("subtract", "sub"),
))
REGISTRY.add(Record(
    "mul", 2, Operands.NUMBER, np.multiply,
    boolean=False, symbol="*", narrows=None, internal=False, meaning="the product",
    edges={
        "float": "mul(0, inf) = nan; mul(-1, 0) = -0",
        "signed": "mul(MIN, -1) = MIN",
    },
    derivative=_product, kinks=SMOOTH, cost=1, error=Error.ROUNDED, range=fractions.multiply,
    never_negative=Keeps.OPERANDS, whole=Keeps.OPERANDS, limits=(),
    float32=None, float64=None, infix="{0} * {1}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    formula=None, onnx="Mul", mlir=("arith.mulf", "arith.muli", "arith.muli"), torch=None, pages=(),
    cgc=("multiply", "mul"),
))
REGISTRY.add(Record(
    "fma", 3, Operands.FLOAT32, _multiply_add,
    boolean=False, symbol=None, narrows=None, internal=True,
    meaning="the product of two operands and the third, rounded once where the device can",
    edges={
        "float": "fma(2, 3, 1) = 7; fma(inf, 1, -inf) = nan; fma(0, inf, 1) = nan; "
        "fma(-1, 0, -0) = -0",
    },
    derivative=lambda p: (p.d * p.operands[1], p.d * p.x, p.d), kinks=SMOOTH,
    cost=1, error=Error.FEW_UNITS, range=fractions.multiply_add,
    never_negative=Keeps.NEVER, whole=Keeps.NEVER, limits=(),
    float32=None, float64=None, infix=None,
    hlsl=Spelling("mad({a}, {b}, {c})"), opencl=Way.HELPER, wgsl=Way.CALL,
    formula=_fma, onnx=None, mlir=("math.fma", "", ""), torch=None, pages=(),
    cgc=(),
))
REGISTRY.add(Record(
    "div", 2, Operands.NUMBER, _divide,
    boolean=False, symbol="/", narrows=None, internal=False,
    meaning="the quotient; of integers the part before the point, and 0 where the divisor is 0",
    edges={
        "float": "div(1, 0) = inf; div(1, -0) = -inf; div(0, 0) = nan; div(inf, inf) = nan",
        "integer": "div(7, 2) = 3; div(7, 0) = 0",
        "signed": "div(-7, 2) = -3; div(7, -2) = -3; div(MIN, -1) = MIN",
    },
    derivative=_quotient, kinks=SMOOTH, cost=4, error=Error.PROMISED, range=fractions.divide,
    never_negative=Keeps.OPERANDS, whole=Keeps.NEVER, limits=(),
    float32=None, float64=None, infix="{0} / {1}", hlsl=Way.INFIX, opencl=Way.INFIX,
    wgsl=Spelling("{H}({a}, {b})", helper="divide", within="{0} / {1}"),
    formula=None, onnx="Div", mlir=("arith.divf", "arith.divsi", "arith.divui"),
    cgc=("divide", "div"),
    torch=None, pages=(),
))
REGISTRY.add(Record(
    "div_nearest", 2, Operands.FLOAT, np.divide,
    boolean=False, symbol=None, narrows=None, internal=True,
    meaning="the same quotient, correctly rounded on every device for operands from 2^-50 to 2^50",
    edges={"float": "div_nearest(7, 2) = 3.5; div_nearest(1, 0) = inf; div_nearest(0, 0) = nan"},
    derivative=_quotient, kinks=SMOOTH, cost=40, error=Error.PROMISED, range=fractions.divide,
    never_negative=Keeps.OPERANDS, whole=Keeps.NEVER, limits=(),
    float32=two_floats.div_nearest, float64=two_floats.div_nearest_double, infix=None,
    hlsl=Way.ROUTINE, opencl=(Way.HELPER, Spelling("{0} / {1}", compound=True)), wgsl=Way.ROUTINE,
    formula=None, onnx="Div", mlir=("arith.divf", "", ""), torch=None, pages=(),
    cgc=(),
))
REGISTRY.add(Record(
    "mod", 2, Operands.NUMBER, _modulo,
    boolean=False, symbol="%", narrows=None, internal=False,
    meaning="what that quotient leaves, with the sign of the first operand",
    edges={
        "float": "mod(-7, 2) = -1; mod(-4, 2) = -0; mod(7, inf) = 7; mod(inf, 2) = nan; "
        "mod(7, 0) = nan",
        "integer": "mod(7, 2) = 1; mod(7, 0) = 0",
        "signed": "mod(-7, 2) = -1; mod(7, -2) = 1; mod(MIN, -1) = 0",
    },
    derivative=_remainder,
    kinks=Kinks("x % c has the derivative 1 in x where x is a multiple of c", None, None),
    cost=8, error=Error.NONE, range=None,
    never_negative=Keeps.OPERANDS, whole=Keeps.OPERANDS, limits=(),
    float32=None, float64=None, infix="{0} % {1}", hlsl=(Way.HELPER, NO_DOUBLE),
    opencl=Spelling("fmod({a}, {b})"), wgsl=Spelling("{H}({a}, {b})", helper="remainder"),
    formula=None, onnx=None, mlir=("arith.remf", "arith.remsi", "arith.remui"),
    cgc=(),
    torch=None, pages=(),
))
REGISTRY.add(Record(
    "neg", 1, Operands.NUMBER, np.negative,
    boolean=False, symbol="-", narrows=None, internal=False, meaning="the negative",
    edges={
        "float": "neg(0) = -0; neg(-inf) = inf",
        "signed": "neg(MIN) = MIN",
        "unsigned": "neg(1) = MAX",
    },
    derivative=lambda p: -p.d, kinks=SMOOTH, cost=1, error=Error.NONE, range=fractions.negate,
    never_negative=Keeps.NEVER, whole=Keeps.OPERANDS, limits=(),
    float32=None, float64=None, infix="-{0}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    formula=None, onnx="Neg", mlir=("arith.negf", "", ""), torch="neg", pages=(),
    cgc=("negate", "neg"),
))
REGISTRY.add(Record(
    "abs", 1, Operands.NUMBER, np.abs,
    boolean=False, symbol=None, narrows=None, internal=False, meaning="without the sign",
    edges={
        "float": "abs(-0) = 0; abs(-inf) = inf; abs(nan) = nan",
        "signed": "abs(MIN) = MIN",
    },
    derivative=lambda p: p.d * p.x.apply("sign"),
    kinks=Kinks("abs(x) has the derivative 0 at x = 0", None, None),
    cost=1, error=Error.NONE, range=fractions.absolute,
    never_negative=Keeps.ALWAYS, whole=Keeps.OPERANDS, limits=(),
    float32=None, float64=None, infix=None,
    hlsl=Way.CALL, opencl=Spelling("fabs({a})"), wgsl=Way.CALL,
    formula=None, onnx="Abs", mlir=("math.absf", "math.absi", ""), torch="abs", pages=("abs",),
    cgc=("abs",),
))
REGISTRY.add(Record(
    "sign", 1, Operands.NUMBER, _sign,
    boolean=False, symbol=None, narrows=None, internal=False, meaning="1, -1, or the zero itself",
    edges={
        "float": "sign(-0) = -0; sign(-inf) = -1; sign(nan) = nan",
        "integer": "sign(0) = 0; sign(MAX) = 1",
        "signed": "sign(MIN) = -1",
    },
    derivative=None, kinks=SMOOTH, cost=1, error=Error.NONE, range=None,
    never_negative=Keeps.NEVER, whole=Keeps.ALWAYS, limits=(),
    float32=None, float64=None, infix=None,
    hlsl=Way.HELPER, opencl=Way.HELPER, wgsl=Spelling("{H}({a})", helper="sign_of"),
    formula=None, onnx=None, mlir=("", "", ""), torch=None, pages=("sign",),
    cgc=("sign",),
))
REGISTRY.add(Record(
    "min", 2, Operands.NUMBER, _minimum,
    boolean=False, symbol=None, narrows=None, internal=False,
    meaning="the smaller; the first of two that are equal",
    edges={"float": "min(nan, 1) = nan; min(1, nan) = nan; min(0, -0) = 0; min(-0, 0) = -0"},
    derivative=_extreme("lt"),
    kinks=Kinks(
        "min(x, c) has the derivative 0 in x where x = c",
        "min(a, b) has the derivative 1/2 in each where a = b",
        None,
    ),
    cost=1, error=Error.NONE, range=fractions.pick(min),
    never_negative=Keeps.OPERANDS, whole=Keeps.OPERANDS, limits=(),
    float32=None, float64=None, infix=None,
    hlsl=Way.HELPER, opencl=Way.HELPER, wgsl=Spelling("{H}({a}, {b})", helper="lesser"),
    formula=None, onnx=None, mlir=("", "arith.minsi", "arith.minui"),
    cgc=("min", "minimum"),
    torch=None, pages=("min", "\\min"),
))
REGISTRY.add(Record(
    "max", 2, Operands.NUMBER, _maximum,
    boolean=False, symbol=None, narrows=None, internal=False,
    meaning="the larger; the first of two that are equal",
    edges={"float": "max(nan, 1) = nan; max(1, nan) = nan; max(0, -0) = 0; max(-0, 0) = -0"},
    derivative=_extreme("gt"),
    kinks=Kinks(
        "max(x, c) has the derivative 0 in x where x = c",
        "max(a, b) has the derivative 1/2 in each where a = b",
        None,
    ),
    cost=1, error=Error.NONE, range=fractions.pick(max),
    never_negative=Keeps.OPERANDS, whole=Keeps.OPERANDS, limits=(),
    float32=None, float64=None, infix=None,
    hlsl=Way.HELPER, opencl=Way.HELPER, wgsl=Spelling("{H}({a}, {b})", helper="greater"),
    formula=None, onnx=None, mlir=("", "arith.maxsi", "arith.maxui"),
    cgc=("max", "maximum"),
    torch=None, pages=("max", "\\max"),
))


# Comparisons and logic ------------------------------------------------------------------------


def _truth(
    name: str,
    arity: int,
    operands: Operands,
    evaluate: Callable[..., Array],
    *,
    symbol: str | None,
    meaning: str,
    edges: Mapping[str, str],
    infix: str | None,
    hlsl: Spelled | None,
    opencl: Spelled | None,
    wgsl: Spelled | None,
    onnx: str | None,
    cgc: tuple[str, ...],
    mlir: tuple[str, str, str],
) -> None:
    """Adds an operation with a BOOL result."""
    REGISTRY.add(Record(
        name, arity, operands, evaluate,
        boolean=True, symbol=symbol, narrows=None, internal=False, meaning=meaning, edges=edges,
        derivative=None, kinks=SMOOTH, cost=1, error=Error.NONE, range=None,
        never_negative=Keeps.NEVER, whole=Keeps.NEVER, limits=(), formula=None,
        float32=None, float64=None, infix=infix, hlsl=hlsl, opencl=opencl, wgsl=wgsl, onnx=onnx,
        cgc=cgc,
        mlir=mlir, torch=None, pages=(),
    ))


_truth(
    "eq", 2, Operands.ANY, np.equal, symbol="==", meaning="whether they are equal",
    edges={"float": "eq(nan, nan) = false; eq(0, -0) = true; eq(inf, inf) = true"},
    infix="{0} == {1}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    onnx="Equal", mlir=("oeq", "eq", "eq"),
    cgc=("equal",),
)
_truth(
    "ne", 2, Operands.ANY, np.not_equal, symbol="!=", meaning="whether they are not",
    edges={"float": "ne(nan, nan) = true; ne(0, -0) = false"},
    infix="{0} != {1}", hlsl=UNEQUAL, opencl=Way.INFIX, wgsl=UNEQUAL,
    onnx=None, mlir=("une", "ne", "ne"),
    cgc=(),
)
_truth(
    "lt", 2, Operands.NUMBER, np.less, symbol="<", meaning="whether the first is less",
    edges={"float": "lt(-0, 0) = false; lt(nan, 1) = false; lt(1, nan) = false"},
    infix="{0} < {1}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    onnx="Less", mlir=("olt", "slt", "ult"),
    cgc=("less",),
)
_truth(
    "le", 2, Operands.NUMBER, np.less_equal, symbol="<=", meaning="whether it is less, or equal",
    edges={"float": "le(-0, 0) = true; le(nan, nan) = false"},
    infix="{0} <= {1}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    onnx="LessOrEqual", mlir=("ole", "sle", "ule"),
    cgc=(),
)
_truth(
    "gt", 2, Operands.NUMBER, np.greater, symbol=">", meaning="whether the first is greater",
    edges={"float": "gt(0, -0) = false; gt(nan, 1) = false; gt(1, nan) = false"},
    infix="{0} > {1}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    onnx="Greater", mlir=("ogt", "sgt", "ugt"),
    cgc=(),
)
_truth(
    "ge", 2, Operands.NUMBER, np.greater_equal, symbol=">=",
    meaning="whether it is greater, or equal",
    edges={"float": "ge(-0, 0) = true; ge(nan, nan) = false"},
    infix="{0} >= {1}", hlsl=Way.INFIX, opencl=Way.INFIX, wgsl=Way.INFIX,
    onnx="GreaterOrEqual", mlir=("oge", "sge", "uge"),
    cgc=(),
)
_truth(
    "and", 2, Operands.BOOL, np.logical_and, symbol="&&",
    meaning="whether both hold; both are computed",
    edges={"boolean": "and(true, false) = false; and(true, true) = true"},
    infix="{0} && {1}", hlsl=None, opencl=None, wgsl=None, onnx="And", mlir=("", "", "arith.andi"),
    cgc=("and",),
)
_truth(
    "or", 2, Operands.BOOL, np.logical_or, symbol="||",
    meaning="whether one holds; both are computed",
    edges={"boolean": "or(true, false) = true; or(false, false) = false"},
    infix="{0} || {1}", hlsl=None, opencl=None, wgsl=None, onnx="Or", mlir=("", "", "arith.ori"),
    cgc=("or",),
)
_truth(
    "not", 1, Operands.BOOL, np.logical_not, symbol="!", meaning="whether it does not hold",
    edges={"boolean": "not(false) = true"}, infix="!{0}", hlsl=None, opencl=None, wgsl=None,
    onnx="Not", mlir=("", "", ""),
    cgc=("not",),
)


# Roundings and roots --------------------------------------------------------------------------


def _rounding(
    name: str,
    evaluate: Callable[..., Array],
    one: Callable[[float], int],
    *,
    meaning: str,
    edges: str,
    formula: Callable[..., Value] | None,
    opencl: Spelled,
    onnx: str | None,
    cgc: tuple[str, ...],
    mlir: str,
    pages: tuple[str, ...],
) -> None:
    """Adds an operation that rounds a float to a whole number."""
    REGISTRY.add(Record(
        name, 1, Operands.FLOAT, evaluate,
        boolean=False, symbol=None, narrows=None, internal=False, meaning=meaning,
        edges={"float": edges}, derivative=None, kinks=SMOOTH, cost=1, error=Error.NONE,
        range=fractions.step(one), never_negative=Keeps.NEVER, whole=Keeps.ALWAYS, limits=(),
        formula=formula, float32=None, float64=None, infix=None, hlsl=(Way.CALL, NO_DOUBLE),
        opencl=opencl, wgsl=Way.CALL, onnx=onnx, mlir=(mlir, "", ""), torch=name, pages=pages,
        cgc=cgc,
    ))


_rounding(
    "floor", np.floor, math.floor, meaning="the next whole number below",
    edges="floor(-0.5) = -1; floor(-0) = -0; floor(-inf) = -inf; floor(nan) = nan",
    formula=None, opencl=Way.CALL, onnx="Floor", mlir="math.floor", pages=("floor",),
    cgc=(),
)
_rounding(
    "ceil", np.ceil, math.ceil, meaning="the next whole number above",
    edges="ceil(0.5) = 1; ceil(-0.5) = -0; ceil(inf) = inf; ceil(nan) = nan",
    formula=None, opencl=Way.CALL, onnx="Ceil", mlir="math.ceil", pages=("ceil",),
    cgc=("ceil",),
)
_rounding(
    "round", np.rint, round, meaning="the nearest whole number, of two the even one",
    edges="round(0.5) = 0; round(1.5) = 2; round(2.5) = 2; round(-0.5) = -0; round(nan) = nan",
    formula=None, opencl=Spelling("rint({a})"), onnx="Round", mlir="math.roundeven",
    cgc=(),
    pages=("round",),
)
_rounding(
    "trunc", np.trunc, math.trunc, meaning="the whole number before the point",
    edges="trunc(1.5) = 1; trunc(-1.5) = -1; trunc(-0.5) = -0; trunc(inf) = inf; trunc(nan) = nan",
    formula=_trunc, opencl=Way.CALL, onnx=None, mlir="math.trunc", pages=(),
    cgc=(),
)
REGISTRY.add(Record(
    "sqrt", 1, Operands.FLOAT, np.sqrt,
    boolean=False, symbol=None, narrows=None, internal=False,
    meaning="the square root, rounded once",
    edges={"float": "sqrt(-0) = -0; sqrt(-1) = nan; sqrt(inf) = inf"},
    derivative=lambda p: (Share(0, p.d * 0.5 / p.y, leave_end(p, p.y)),),
    kinks=Kinks(None, None, end_kink("sqrt(x)")),
    cost=4, error=Error.PROMISED, range=fractions.root,
    never_negative=Keeps.NUMBER, whole=Keeps.NEVER, limits=(),
    float32=None, float64=None, infix=None,
    hlsl=(Way.CALL, NO_DOUBLE), opencl=Way.CALL, wgsl=Way.CALL,
    formula=None, onnx="Sqrt", mlir=("math.sqrt", "", ""), torch="sqrt", pages=("sqrt",),
    cgc=(),
))
REGISTRY.add(Record(
    "rsqrt", 1, Operands.FLOAT, _reciprocal_root,
    boolean=False, symbol=None, narrows=None, internal=False, meaning="one over the square root",
    edges={"float": "rsqrt(0) = inf; rsqrt(-0) = -inf; rsqrt(inf) = 0; rsqrt(-1) = nan"},
    derivative=lambda p: p.d * -0.5 * (p.y * (p.y * p.y)), kinks=SMOOTH,
    cost=8, error=Error.FUNCTION, range=None,
    never_negative=Keeps.NUMBER, whole=Keeps.NEVER, limits=(),
    float32=float32.rsqrt, float64=None, infix=None, hlsl=(Way.ROUTINE, NO_DOUBLE),
    opencl=Spelling("1 / sqrt({a})", compound=True), wgsl=Way.ROUTINE,
    formula=_rsqrt, onnx=None, mlir=("math.rsqrt", "", ""), torch="rsqrt", pages=(),
    cgc=(),
))
_truth(
    "isnan", 1, Operands.FLOAT, np.isnan, symbol=None, meaning="whether it is NaN",
    edges={"float": "isnan(nan) = true; isnan(inf) = false"}, infix=None, hlsl=Way.HELPER,
    opencl=Spelling("isnan({a})", vector="({0} != {0})"),
    wgsl=Spelling("{H}({a})", helper="is_nan"), onnx="IsNaN", mlir=("", "", ""),
    cgc=(),
)
_truth(
    "isinf", 1, Operands.FLOAT, np.isinf, symbol=None, meaning="whether it is infinite",
    edges={"float": "isinf(-inf) = true; isinf(nan) = false"}, infix=None,
    hlsl=(
        Spelling("abs({a}) == asfloat(0x7f800000)", compound=True),
        Spelling("abs({a}) == asdouble(0x0, 0x7ff00000)", compound=True),
    ),
    opencl=Way.CALL, wgsl=Spelling("{H}({a})", helper="is_infinite"),
    onnx="IsInf", mlir=("", "", ""),
    cgc=(),
)


# Bits -----------------------------------------------------------------------------------------


def _bitwise(
    name: str,
    arity: int,
    evaluate: Callable[..., Array],
    *,
    meaning: str,
    edges: Mapping[str, str],
    infix: str | None,
    onnx: str | None,
    cgc: tuple[str, ...],
    mlir: tuple[str, str],
) -> None:
    """Adds an operation on the bits of integers."""
    REGISTRY.add(Record(
        name, arity, Operands.INTEGER, evaluate,
        boolean=False, symbol=None, narrows=None, internal=False, meaning=meaning, edges=edges,
        derivative=None, kinks=SMOOTH, cost=1, error=Error.NONE, range=None,
        never_negative=Keeps.NEVER, whole=Keeps.ALWAYS, limits=(), formula=None,
        float32=None, float64=None, infix=infix, hlsl=None, opencl=None, wgsl=None, onnx=onnx,
        cgc=cgc,
        mlir=("", *mlir), torch=None, pages=(),
    ))


_bitwise(
    "bit_and", 2, np.bitwise_and, meaning="the bits that both have",
    edges={"integer": "bit_and(6, 3) = 2", "signed": "bit_and(-1, 5) = 5"},
    infix="{0} & {1}", onnx="BitwiseAnd", mlir=("arith.andi", "arith.andi"),
    cgc=(),
)
_bitwise(
    "bit_or", 2, np.bitwise_or, meaning="the bits that one has",
    edges={"integer": "bit_or(6, 3) = 7"},
    infix="{0} | {1}", onnx="BitwiseOr", mlir=("arith.ori", "arith.ori"),
    cgc=(),
)
_bitwise(
    "bit_xor", 2, np.bitwise_xor, meaning="the bits that one alone has",
    edges={"integer": "bit_xor(6, 3) = 5; bit_xor(MAX, MAX) = 0"},
    infix="{0} ^ {1}", onnx="BitwiseXor", mlir=("arith.xori", "arith.xori"),
    cgc=(),
)
_bitwise(
    "bit_not", 1, np.invert, meaning="the bits that it lacks",
    edges={"signed": "bit_not(0) = -1", "unsigned": "bit_not(0) = MAX"},
    infix="~{0}", onnx="BitwiseNot", mlir=("", ""),
    cgc=(),
)
_bitwise(
    "shift_left", 2, _shift_left, meaning="its bits moved up, by the distance modulo the width",
    edges={
        "integer": "shift_left(3, 2) = 12; shift_left(3, WIDTH) = 3",
        "signed": "shift_left(MAX, 1) = -2; shift_left(1, -1) = MIN",
    },
    infix=None, onnx=None, mlir=("arith.shli", "arith.shli"),
    cgc=(),
)
_bitwise(
    "shift_right", 2, _shift_right,
    meaning="its bits moved down, likewise; negative numbers stay negative",
    edges={
        "integer": "shift_right(12, 2) = 3; shift_right(3, WIDTH) = 3",
        "signed": "shift_right(-7, 1) = -4; shift_right(MIN, -1) = -1",
        "unsigned": "shift_right(MAX, MAX) = 1",
    },
    infix=None, onnx=None, mlir=("arith.shrsi", "arith.shrui"),
    cgc=(),
)


# Types of 16 bits -----------------------------------------------------------------------------


def _narrowing(
    dtype: DataType, *, meaning: str, edges: str, cost: int, opencl: Spelled, wgsl: Spelled
) -> None:
    """Adds the rounding of FLOAT32 to a 16-bit type, as by `cast(x, FLOAT16)`. Passes also create
    such operations."""

    def evaluate(x: Array) -> Array:
        own = data_type_of(x.dtype)
        assert own is not None
        return convert(convert(x, dtype), own)

    REGISTRY.add(Record(
        f"round_{dtype.name.lower()}", 1, Operands.FLOAT32, evaluate,
        boolean=False, symbol=None, narrows=dtype, internal=True, meaning=meaning,
        edges={"float": edges}, derivative=lambda p: p.d, kinks=SMOOTH, cost=cost,
        error=Error.FEW_UNITS, range=None, never_negative=Keeps.OPERANDS, whole=Keeps.NEVER,
        limits=(), formula=None, float32=None, float64=None, infix=None, hlsl=Way.HELPER,
        opencl=opencl, wgsl=wgsl, onnx=None, mlir=("", "", ""), torch=None, pages=(),
        cgc=(),
    ))


_narrowing(
    DataType.FLOAT16, meaning="the nearest value of FLOAT16, as storing and loading gives it",
    edges="round_float16(65519) = 65504; round_float16(65520) = inf; round_float16(-1e-8) = -0",
    cost=8, opencl=Spelling("{H}({a})", helper="round_half"),
    wgsl=Spelling("{H}({a})", helper="round_f16"),
)
_narrowing(
    DataType.BFLOAT16, meaning="the nearest value of BFLOAT16, likewise",
    edges="round_bfloat16(1.00390625) = 1; round_bfloat16(1.01171875) = 1.015625; "
    "round_bfloat16(nan) = nan",
    cost=4, opencl=Way.HELPER, wgsl=Spelling("{H}({a})", helper="round_bf16"),
)
