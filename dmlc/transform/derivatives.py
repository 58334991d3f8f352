"""The derivatives of scalar operations in bodies of the IR, from the records of the operations.

A record's rule is given the adjoint of an operation's result, and gives what each operand gets of
it. It holds exactly, kinks included: `docs/explanation/gradients.md` publishes the choices, and a
`Choice` says which of them a function makes. Roundings and signs do not move with their operands,
nor do comparisons, and integers.

A part may hold under conditions. These stay outside everything that is computed from it, so that
the NaN of a value that was not chosen stays out of the gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from dmlc import scalars
from dmlc.ir import Apply, Constant, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.scalars import OPERATIONS, Part
from dmlc.scalars.operation import Number
from dmlc.source import InternalError

Condition: TypeAlias = tuple[int, bool]
"""A BOOL value of a body, and whether it is to hold or not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Adjoint:
    """The derivative of what is differentiated by a value: `value` where all conditions hold, and
    0 elsewhere."""

    value: int
    conditions: tuple[Condition, ...] = ()

    def under(self, conditions: tuple[Condition, ...]) -> Adjoint:
        """The same under other conditions as well."""
        new = tuple(c for c in conditions if c not in self.conditions)
        return Adjoint(self.value, (*self.conditions, *new))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Value(scalars.Value):
    """A value of a body in the making."""

    builder: BodyBuilder
    number: int

    def operate(self, name: str, *given: Number) -> _Value:
        return self._made(self.builder.apply(name, *map(self._find, given)))

    def select(self, then: Number, otherwise: Number) -> _Value:
        typed = next(v for v in (then, otherwise) if isinstance(v, _Value))
        first, second = typed._find(then), typed._find(otherwise)
        return self._made(self.builder.select(self.number, first, second))

    def _made(self, number: int) -> _Value:
        return _Value(self.builder, number)

    def _find(self, given: Number) -> int:
        """A value, or the nearest literal of this one's type."""
        if isinstance(given, scalars.Value):
            return _find_number(given)
        dtype = value_type(self.builder.instructions[self.number])
        return self.builder.add(Constant(dtype, float(dtype.dtype.type(given))))


def spread(
    builder: BodyBuilder, made: int, adjoint: int, moving: Sequence[bool], ending: bool
) -> list[tuple[int, Adjoint]]:
    """What the operands of the operation `made` get of its adjoint; `moving` and `ending` as a
    `scalars.Point` has them. Raises `InternalError` where the result does not move."""
    instruction = builder.instructions[made]
    if not isinstance(instruction, Apply):
        raise InternalError(f"value {made} of a body is no operation")
    rule = OPERATIONS[instruction.operation.name].derivative
    if rule is None:
        raise InternalError(f"'{instruction.operation.name}' does not move with its operands")
    # An operand that is there twice is one value: rules ask for squares.
    values = {number: _Value(builder, number) for number in instruction.operands}
    operands = tuple(values[number] for number in instruction.operands)
    d, y = _Value(builder, adjoint), _Value(builder, made)
    found = rule(scalars.Point(d, y, operands, tuple(moving), ending))
    parts: list[tuple[int, Adjoint]] = []
    for place, each in enumerate([found] if isinstance(found, scalars.Value) else found):
        part = each if isinstance(each, Part) else Part(place, each)
        conditions = tuple((_find_number(value), holds) for value, holds in part.conditions)
        adjusted = Adjoint(_find_number(part.value), conditions)
        parts.append((instruction.operands[part.operand], adjusted))
    return parts


def _find_number(value: Number) -> int:
    if not isinstance(value, _Value):
        raise InternalError("a derivative is made of values of another body")
    return value.number


def find_kink(made: Apply, moving: Sequence[bool], ending: bool = False) -> str | None:
    """The choice that an operation makes where it has a kink; `ending` as a `scalars.Point` has
    it."""
    kinks = OPERATIONS[made.operation.name].kinks
    if kinks.tie is not None and all(moving):
        return kinks.tie
    return kinks.end if kinks.end is not None and ending and moving[0] else kinks.point
