"""Local rules for scalar values: each replaces one instruction by a simpler one, or declines.

A rule takes an instruction and the values before it. It returns the number of an existing value,
another instruction, or None. Every rule preserves the result bit for bit, for all operands, and its
docstring covers NaN, infinities and zeros; none re-associates.

All NaNs count as equal: no operation of the language shows the sign or the payload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from dmlc.ir.nodes import Apply, Cast, Constant, Instruction, Select, operands, value_type
from dmlc.scalars import OPERATIONS, Array, DataType, convert

Values: TypeAlias = Sequence[Instruction]
Rule: TypeAlias = Callable[[Instruction, Values], "int | Instruction | None"]


def fold_constants(instruction: Instruction, values: Values) -> Instruction | None:
    """Evaluates an operation on constants, by the operation's definition.

    In FLOAT32 only if the value is exact. An inexact one is left to the device: the reference has
    more precision, and a GPU's division may round differently. Transcendental functions are left
    too, for the same reason, unless the result is NaN. NaN, infinities and zeros come out as the
    definition has them.
    """
    if not isinstance(instruction, Apply | Cast):
        return None
    given: list[Constant] = []
    for operand in operands(instruction):
        constant = values[operand]
        if not isinstance(constant, Constant):
            return None
        given.append(constant)
    with np.errstate(all="ignore"):
        arrays = [np.asarray([c.value], c.dtype.dtype) for c in given]
        value = _evaluate(instruction, arrays)
        if isinstance(instruction, Apply) and instruction.operation.transcendental:
            return Constant(instruction.dtype, value) if value != value else None
        if isinstance(instruction, Apply) and given[0].dtype is DataType.FLOAT32:
            exact = _evaluate(instruction, [a.astype(np.float64) for a in arrays])
            if exact != value and not (exact != exact and value != value):
                return None
    return Constant(instruction.dtype, value)


def _evaluate(instruction: Apply | Cast, arrays: list[Array]) -> bool | int | float:
    if isinstance(instruction, Cast):
        return convert(arrays[0], instruction.dtype)[0].item()
    return np.asarray(instruction.operation.evaluate(*arrays))[0].item()


def choose_branch(instruction: Instruction, values: Values) -> int | Instruction | None:
    """`select` on a constant, or of one value twice, is that branch; on a negated condition it
    swaps the branches; of true and false it is the condition. NaN, infinities and zeros pass
    through a select untouched."""
    if not isinstance(instruction, Select):
        return None
    condition = values[instruction.condition]
    if isinstance(condition, Constant):
        return instruction.then if condition.value else instruction.otherwise
    if instruction.then == instruction.otherwise:
        return instruction.then
    if isinstance(condition, Apply) and condition.operation.name == "not":
        return Select(
            condition.operands[0], instruction.otherwise, instruction.then, instruction.dtype
        )
    branches = values[instruction.then], values[instruction.otherwise]
    is_itself = branches == (Constant(DataType.BOOL, True), Constant(DataType.BOOL, False))
    return instruction.condition if is_itself else None


def drop_cast(instruction: Instruction, values: Values) -> int | None:
    """A cast to the type a value has already is that value: NaN, infinities and -0 included."""
    if not isinstance(instruction, Cast):
        return None
    source = value_type(values[instruction.operand])
    return instruction.operand if source is instruction.dtype else None


_INVOLUTIONS = ("neg", "not", "bit_not")
_IDEMPOTENT = ("abs", "sign", "floor", "ceil", "round", "trunc")


def cancel_unary(instruction: Instruction, values: Values) -> int | None:
    """`neg(neg(x))` is x and `abs(abs(x))` is `abs(x)`, and so for the other involutions, for
    `sign` and for roundings. NaN stays NaN, infinities stay, and a zero keeps its sign."""
    if not isinstance(instruction, Apply) or instruction.operation.arity != 1:
        return None
    inner = values[instruction.operands[0]]
    if not isinstance(inner, Apply) or inner.operation is not instruction.operation:
        return None
    if instruction.operation.name in _INVOLUTIONS:
        return inner.operands[0]
    return instruction.operands[0] if instruction.operation.name in _IDEMPOTENT else None


_ALL_ONES = math.nan
"""Stands for the integer with all bits set in the tables below."""

_NEUTRAL = {
    "mul": 1, "add": -0.0, "bit_or": 0, "bit_xor": 0, "bit_and": _ALL_ONES, "and": True, "or": False
}  # fmt: skip
"""Neutral element of an operation, on either side."""

_RIGHT_NEUTRAL = {"div": 1, "sub": 0.0, "shift_left": 0, "shift_right": 0}
"""Neutral right operand of an operation."""

_ABSORBING = {"mul": 0, "bit_and": 0, "bit_or": _ALL_ONES, "and": False, "or": True}
"""Absorbing element of an operation on integers or booleans: the result if either operand is it."""

_SAME = ("min", "max", "and", "or", "bit_and", "bit_or")


def _is_constant(value: Instruction, wanted: float | None) -> bool:
    """Whether a value is a constant of the tables. Zeros of floats are distinguished by sign."""
    if wanted is None or not isinstance(value, Constant):
        return False
    if wanted is _ALL_ONES:
        limits = np.iinfo(value.dtype.dtype)
        return value.value == (-1 if limits.min < 0 else limits.max)
    signed = value.dtype.is_float and math.copysign(1, value.value) != math.copysign(1, wanted)
    return value.value == wanted and not signed


def drop_neutral(instruction: Instruction, values: Values) -> int | None:
    """`x * 1`, `x / 1`, `x - 0.0` and `x + -0.0` are x for every x, as are `min(x, x)` and the
    like: NaN, infinities and -0 are kept. `x + 0.0` is left, for -0 + 0 is +0. Integers and
    booleans have their neutral elements: `x + 0`, `x << 0`, `x & -1`, `x && true`."""
    if not isinstance(instruction, Apply) or instruction.operation.arity != 2:
        return None
    left, right = instruction.operands
    name = instruction.operation.name
    neutral = _NEUTRAL.get(name)
    if _is_constant(values[right], _RIGHT_NEUTRAL.get(name, neutral)):
        return left
    if _is_constant(values[left], neutral):
        return right
    return left if name in _SAME and left == right else None


def part_multiply_add(instruction: Instruction, values: Values) -> Instruction | None:
    """`fma(x, 1, z)` is `z + x`, and `fma(x, y, -0.0)` is `x * y`: each is rounded once either way.
    NaN, infinities and zeros come out the same."""
    if not isinstance(instruction, Apply) or instruction.operation.name != "fma":
        return None
    x, y, z = instruction.operands
    for one, other in ((x, y), (y, x)):
        if _is_constant(values[other], 1):
            return Apply(OPERATIONS["add"], (z, one), instruction.dtype)
    if _is_constant(values[z], -0.0):
        return Apply(OPERATIONS["mul"], (x, y), instruction.dtype)
    return None


def absorb(instruction: Instruction, values: Values) -> Instruction | None:
    """Integers and booleans only: `x * 0`, `x & 0`, `x % 1`, `x - x` and `x ^ x` are 0, `x | -1`
    is -1, `x && false` is false and `x || true` is true. Floats are left: 0 times NaN or infinity
    is NaN, 0 times a negative number is -0, and infinity less itself is NaN."""
    if not isinstance(instruction, Apply) or instruction.operation.arity != 2:
        return None
    left, right = instruction.operands
    name, dtype = instruction.operation.name, value_type(values[left])
    if dtype.is_float:
        return None
    if left == right and name in ("sub", "bit_xor"):
        return Constant(dtype, 0)
    for number in (left, right):
        if _is_constant(values[number], _ABSORBING.get(name)):
            return values[number]
    if name == "mod" and values[right] == Constant(dtype, 1):
        return Constant(dtype, 0)
    return None


_HOLDS_OF_ITSELF = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}


def compare_same(instruction: Instruction, values: Values) -> Constant | None:
    """An integer or a boolean equals itself. A float may be NaN, which does not, so its comparison
    is left, also for infinities and zeros."""
    if not isinstance(instruction, Apply) or len(set(instruction.operands)) > 1:
        return None
    holds = _HOLDS_OF_ITSELF.get(instruction.operation.name)
    if holds is None or value_type(values[instruction.operands[0]]).is_float:
        return None
    return Constant(DataType.BOOL, holds)


_DEFINED_AT_NAN = ("pow",)
"""Operations that may give a number where an operand is NaN: `pow(1, nan)` is 1."""


def spread_nan(instruction: Instruction, values: Values) -> Instruction | None:
    """A float operation on a constant NaN is NaN, whatever the other operand, infinities and zeros
    too. PoCL's roundings and exponentials of a NaN known at compile time are undefined, and the
    loop around them is optimized away."""
    if not isinstance(instruction, Apply) or not instruction.dtype.is_float:
        return None
    if instruction.operation.name in _DEFINED_AT_NAN:
        return None
    for operand in instruction.operands:
        value = values[operand]
        if isinstance(value, Constant) and value.value != value.value:
            return Constant(instruction.dtype, math.nan)
    return None


RULES: tuple[Rule, ...] = (
    fold_constants,
    spread_nan,
    choose_branch,
    drop_cast,
    cancel_unary,
    drop_neutral,
    part_multiply_add,
    absorb,
    compare_same,
)
"""All rules, in the order in which they are tried."""
