"""Makes a function smaller without changing what it computes, bit for bit.

One driver rebuilds every body, value by value: equal values become one, and local rules
(`instruction -> value`) replace what they match. Then stages that copy, repeat another stage or
are never read disappear. Every rule says what it does to NaN, infinities and zeros; none
re-associates, and none does arithmetic that the device might round differently: transcendental
functions are never folded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Function,
    Index,
    Instruction,
    Load,
    Parameter,
    Select,
    Stage,
    operands,
    with_operands,
)
from dmlc.scalars import DataType, Kind, convert


def simplify(function: Function) -> Function:
    """The same function with constants folded, common values shared and dead stages gone."""
    results = {r.name for r in function.results}
    replaced: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    stages: list[Stage] = []
    tensors = function.tensors()
    for stage in function.stages:
        body = simplify_body(stage.body, replaced)
        made = dataclasses.replace(stage, body=body)
        if stage.name not in results:
            source = _copied(made, tensors)
            if source is not None:
                replaced[stage.name] = source
                continue
            key = (made.dtype, made.domain, made.body, made.reduction)
            if key in first:
                replaced[stage.name] = first[key]
                continue
            first[key] = stage.name
        stages.append(made)
    return dataclasses.replace(function, stages=_live(stages, results))


def _copied(stage: Stage, tensors: Mapping[str, Parameter | Stage]) -> str | None:
    """The tensor of equal extents that a stage repeats element for element, unrounded."""
    result = stage.body.instructions[stage.body.result]
    if stage.reduction is not None or not isinstance(result, Load):
        return None
    tensor = tensors[result.tensor]
    extents = tensor.extents if isinstance(tensor, Parameter) else tensor.domain
    if extents != stage.domain or tensor.dtype.compute is not stage.dtype:
        return None
    positions = [stage.body.instructions[i] for i in result.indices]
    whole = positions == [Index(axis) for axis in range(len(stage.domain))]
    return result.tensor if whole else None


def _live(stages: list[Stage], results: set[str]) -> tuple[Stage, ...]:
    """The stages that some result depends on, in order."""
    needed = set(results)
    kept: list[Stage] = []
    for stage in reversed(stages):
        if stage.name in needed:
            kept.append(stage)
            needed.update(load.tensor for load in stage.body.loads())
    return tuple(reversed(kept))


# Bodies ------------------------------------------------------------------------------------


class Builder:
    """A body in the making, in which equal values are one."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._numbers: dict[Instruction, int] = {}

    def add(self, instruction: Instruction) -> int:
        """The value an instruction gives, after every rule that applies to it."""
        while instruction not in self._numbers:
            for rule in RULES:
                found = rule(instruction, self)
                if isinstance(found, int):
                    return found
                if found is not None:
                    instruction = found
                    break
            else:
                self._numbers[instruction] = len(self.instructions)
                self.instructions.append(instruction)
        return self._numbers[instruction]

    def constant(self, value: int) -> Constant | None:
        found = self.instructions[value]
        return found if isinstance(found, Constant) else None


def simplify_body(body: Body, replaced: dict[str, str]) -> Body:
    """A body with the rules applied, its loads redirected as `replaced` says."""
    builder = Builder()
    numbers: list[int] = []
    for instruction in body.instructions:
        moved = with_operands(instruction, tuple(numbers[o] for o in operands(instruction)))
        if isinstance(moved, Load) and moved.tensor in replaced:
            moved = dataclasses.replace(moved, tensor=replaced[moved.tensor])
        numbers.append(builder.add(moved))
    guard = None if body.guard is None else numbers[body.guard]
    return Body.make(builder.instructions, numbers[body.result], guard)


# Rules -------------------------------------------------------------------------------------

Rule = Callable[[Instruction, Builder], "int | Instruction | None"]
"""A value that exists already, another instruction, or None where the rule does not match."""


def fold_constants(instruction: Instruction, builder: Builder) -> Instruction | None:
    """An operation on constants, computed by the definition of the operation in the operation's
    own type. NaN, infinities and zeros come out as that definition has them."""
    if not isinstance(instruction, Apply | Cast):
        return None
    if isinstance(instruction, Apply) and instruction.operation.transcendental:
        return None
    given: list[Constant] = []
    for operand in operands(instruction):
        constant = builder.constant(operand)
        if constant is None:
            return None
        given.append(constant)
    arrays = [np.asarray([c.value], c.dtype.dtype) for c in given]
    with np.errstate(all="ignore"):
        if isinstance(instruction, Cast):
            value = convert(arrays[0], instruction.dtype)[0]
        else:
            value = np.asarray(instruction.operation.evaluate(*arrays))[0]
    return Constant(instruction.dtype, value.item())


def choose_branch(instruction: Instruction, builder: Builder) -> int | Instruction | None:
    """`select` on a constant, or of one value twice, is that branch; a negated condition swaps
    the branches. Selects pass NaN, infinities and zeros on untouched."""
    if not isinstance(instruction, Select):
        return None
    constant = builder.constant(instruction.condition)
    if constant is not None:
        return instruction.then if constant.value else instruction.otherwise
    if instruction.then == instruction.otherwise:
        return instruction.then
    condition = builder.instructions[instruction.condition]
    if isinstance(condition, Apply) and condition.operation.name == "not":
        return Select(
            condition.operands[0], instruction.otherwise, instruction.then, instruction.dtype
        )
    return None


def drop_cast(instruction: Instruction, builder: Builder) -> int | None:
    """A cast to the type a value has already changes nothing, whatever the value."""
    if isinstance(instruction, Cast):
        operand = builder.instructions[instruction.operand]
        same = DataType.INDEX if isinstance(operand, Index) else operand.dtype
        if same is instruction.dtype:
            return instruction.operand
    return None


_INVOLUTIONS = ("neg", "not", "bit_not")
_IDEMPOTENT = ("abs", "floor", "ceil", "round", "trunc")


def cancel_unary(instruction: Instruction, builder: Builder) -> int | None:
    """`neg(neg(x))` is x, zeros and infinities included (of a NaN, only the sign may differ, which
    no operation of the language shows); `abs(abs(x))` is `abs(x)`, and so for roundings."""
    if not isinstance(instruction, Apply) or instruction.operation.arity != 1:
        return None
    inner = builder.instructions[instruction.operands[0]]
    if not isinstance(inner, Apply) or inner.operation is not instruction.operation:
        return None
    if instruction.operation.name in _INVOLUTIONS:
        return inner.operands[0]
    return instruction.operands[0] if instruction.operation.name in _IDEMPOTENT else None


def drop_neutral(instruction: Instruction, builder: Builder) -> int | None:
    """`x * 1`, `x / 1`, `x - 0` and `x + (-0.0)` are x for every x, -0 and NaN included. `x + 0.0`
    is not (-0 + 0 is +0), nor is `x * 0` 0 (of a NaN or an infinity): both stay, except that
    integers have neither."""
    if not isinstance(instruction, Apply) or instruction.operation.arity != 2:
        return None
    left, right = instruction.operands
    name, whole = instruction.operation.name, not instruction.dtype.is_float
    if _is_neutral(name, builder.constant(right), whole, right=True):
        return left
    if _is_neutral(name, builder.constant(left), whole, right=False):
        return right
    if name in ("min", "max", "and", "or", "bit_and", "bit_or") and left == right:
        return left
    return None


def _is_neutral(name: str, constant: Constant | None, whole: bool, right: bool) -> bool:
    if constant is None:
        return False
    negative_zero = Constant(constant.dtype, -0.0)
    match name:
        case "mul":
            return constant.value == 1
        case "div":
            return right and constant.value == 1
        case "add":
            return constant.value == 0 if whole else constant == negative_zero
        case "sub":
            return right and constant.value == 0 and (whole or constant != negative_zero)
        case "and":
            return constant.value is True
        case "or":
            return constant.value is False
        case "bit_or" | "bit_xor":
            return constant.value == 0
        case "shift_left" | "shift_right":
            return right and constant.value == 0
        case _:
            return False


def absorb(instruction: Instruction, builder: Builder) -> Instruction | None:
    """`x && false` is false and `x || true` is true; an integer times 0 is 0. Not so for floats,
    where 0 times NaN or infinity is NaN."""
    if not isinstance(instruction, Apply) or instruction.operation.arity != 2:
        return None
    name = instruction.operation.name
    for operand in instruction.operands:
        constant = builder.constant(operand)
        if constant is None:
            continue
        if (name == "and" and constant.value is False) or (name == "or" and constant.value is True):
            return constant
        whole = instruction.dtype.kind in (Kind.SIGNED, Kind.UNSIGNED, Kind.INDEX)
        if name in ("mul", "bit_and") and whole and constant.value == 0:
            return constant
    return None


RULES: tuple[Rule, ...] = (
    fold_constants,
    choose_branch,
    drop_cast,
    cancel_unary,
    drop_neutral,
    absorb,
)
