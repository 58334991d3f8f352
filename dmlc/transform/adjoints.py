"""Building blocks of gradient bodies: loads at the stage's own index, sums of adjoints, conditions.

`differentiate` decides where each adjoint goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dmlc.ir import (
    Apply,
    Body,
    Constant,
    Extent,
    Instruction,
    Load,
    Reduction,
    Stage,
    Tensor,
    value_type,
)
from dmlc.ir.below import SizeBounds
from dmlc.ir.builder import BodyBuilder
from dmlc.scalars import DataType
from dmlc.source import Span
from dmlc.transform.derivatives import Adjoint, Condition, list_leading


def find_moving(body: Body, moving: Iterable[str], span: Span | None = None) -> tuple[bool, ...]:
    """Whether each value of a body depends differentiably on tensors in `moving`. `span` is the
    body's source. Raises `DmlcError` if a value depends on them through an operation without a
    derivative."""
    tensors = set(moving)

    def find(instruction: Instruction, given: list[bool]) -> bool:
        moves = any(given)
        match instruction:
            case Load(tensor=tensor):
                moves = tensor in tensors
            case Apply() if moves:
                # The operands with a derivative come first.
                moves = any(given[: len(list_leading(instruction, span))])
            case _:
                pass
        return moves and value_type(instruction).is_float

    return body.interpret(find)


def is_stopped(stages: Iterable[Stage], tensor: str) -> bool:
    """Whether an operand of `stop_gradient` depends on a tensor, directly or not."""
    reached = {tensor}

    def find(value: Instruction, given: list[bool]) -> bool:
        return any(given) or (isinstance(value, Load) and value.tensor in reached)

    for stage in stages:
        found = stage.body.interpret(find)
        for value, depends in zip(stage.body.instructions, found, strict=True):
            stops = isinstance(value, Apply) and value.operation.name == "stop_gradient"
            if stops and depends:
                return True
        if any(found):
            reached.add(stage.name)
    return False


def load_own(builder: BodyBuilder, name: str, tensor: Tensor, dtype: DataType) -> int:
    """Element of a tensor at the own index of a stage over the same axes."""
    places = tuple(builder.index(axis) for axis in range(len(tensor.extents)))
    return builder.add(Load(name, places, dtype))


def number_point(builder: BodyBuilder, stage: Stage) -> int:
    """Linear index of a reduction's point, as `argmax` gives it."""
    total: int | None = None
    for label, extent in stage.axes:
        place = builder.reduced(label)
        if total is not None:
            place = builder.apply("add", builder.apply("mul", total, builder.size(extent)), place)
        total = place
    return builder.constant(0) if total is None else total


def add_adjoints(builder: BodyBuilder, parts: Sequence[Adjoint], given: Instruction) -> Adjoint:
    """Sum of several adjoints of a value, under their common conditions. If computing it takes
    more, also under the condition that one of the others holds, as an adjoint that none selects may
    be infinite."""
    sums: dict[tuple[Condition, ...], int] = {}
    for part in parts:
        before = sums.get(part.conditions)
        value = part.value if before is None else builder.apply("add", before, part.value)
        sums[part.conditions] = value
    if len(sums) == 1:
        ((conditions, value),) = sums.items()
        return Adjoint(value, conditions)
    shared = tuple(c for c in next(iter(sums)) if all(c in conditions for conditions in sums))
    rests = [
        (tuple(c for c in conditions if c not in shared), value)
        for conditions, value in sums.items()
    ]
    match rests:
        case [(((one, holds),), then), (((two, fails),), other)] if one == two and holds != fails:
            then, otherwise = (then, other) if holds else (other, then)
            return Adjoint(builder.select(one, then, otherwise), shared)
        case _:
            pass
    total = builder.fold("add", [choose(builder, conditions, value) for conditions, value in rests])
    held = [_conjoin(builder, conditions) for conditions, _ in rests]
    known = [condition for condition in held if condition is not None]
    if known and len(known) == len(held) and not isinstance(given, Load):
        shared = (*shared, (builder.fold("or", known), True))
    return Adjoint(total, shared)


def _conjoin(builder: BodyBuilder, conditions: Sequence[Condition]) -> int | None:
    """Conjunction of conditions; None if there are none."""
    return builder.join(c if holds else builder.apply("not", c) for c, holds in conditions)


def choose(builder: BodyBuilder, conditions: Sequence[Condition], value: int) -> int:
    """`value` if the conditions hold, and 0 otherwise."""
    condition = _conjoin(builder, conditions)
    if condition is None:
        return value
    zero = builder.add(Constant(builder.type_of(value), 0.0))
    return builder.select(condition, value, zero)


def drop_certain(
    builder: BodyBuilder,
    conditions: Sequence[int],
    domain: Sequence[Extent],
    axes: tuple[tuple[int, Extent], ...],
) -> list[int]:
    """Conditions that are not true at every index, given the extents of the axes."""
    body = Body(tuple(builder.instructions), 0)
    reduction = Reduction("sum", axes) if axes else None
    stage = Stage("", DataType.FLOAT32, tuple(domain), body, reduction)
    proof = SizeBounds(stage)
    return [c for c in dict.fromkeys(conditions) if not proof.is_certain(c)]
