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

from dmlc.ir import Apply, Constant, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.scalars import Domain, Part, Point, Value
from dmlc.scalars.operation import Unsupported
from dmlc.source import DmlcError, InternalError, Span

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
class _Body(Domain[int]):
    """Values are those of a body in the making."""

    builder: BodyBuilder

    def apply(self, name: str, given: Sequence[int]) -> int:
        return self.builder.apply(name, *given)

    def select(self, condition: int, then: int, otherwise: int) -> int:
        return self.builder.select(condition, then, otherwise)

    def number(self, value: int | float, like: int) -> int:
        """The nearest literal of that type."""
        dtype = value_type(self.builder.instructions[like])
        return self.builder.add(Constant(dtype, float(dtype.dtype.type(value))))


def spread(
    builder: BodyBuilder, made: int, adjoint: int, moving: Sequence[bool], ending: bool
) -> list[tuple[int, Adjoint]]:
    """What the operands of the operation `made` get of its adjoint; `moving` and `ending` as a
    `Point` has them. Raises `InternalError` where the result does not move."""
    instruction = builder.instructions[made]
    if not isinstance(instruction, Apply):
        raise InternalError(f"value {made} of a body is no operation")
    rule = IR_OPERATIONS[instruction.operation.name].derivative
    if rule is None or isinstance(rule, Unsupported):
        raise InternalError(f"'{instruction.operation.name}' does not move with its operands")
    body = _Body(builder)
    # An operand that is there twice is one value: rules ask for squares.
    values = {number: body.wrap(number) for number in instruction.operands}
    operands = tuple(values[number] for number in instruction.operands)
    point = Point(body.wrap(adjoint), body.wrap(made), operands, tuple(moving), ending)
    found = rule(point)
    parts: list[tuple[int, Adjoint]] = []
    for place, each in enumerate([found] if isinstance(found, Value) else found):
        part = each if isinstance(each, Part) else Part(place, each)
        conditions = tuple((body.unwrap(value), holds) for value, holds in part.conditions)
        got = Adjoint(body.unwrap(part.value), conditions)
        parts.append((instruction.operands[part.operand], got))
    return parts


def list_leading(made: Apply, span: Span | None = None) -> tuple[int, ...]:
    """The operands that an operation moves with; none where its derivative is 0. Raises `DmlcError`
    for an operation that has no derivative: 0 would be wrong, and nothing would say so. `span` is
    its place."""
    operation = IR_OPERATIONS[made.operation.name]
    if operation.derivative is None:
        return ()
    if isinstance(operation.derivative, Unsupported):
        parameters = ", ".join("xyz"[: operation.arity])
        raise DmlcError(
            f"'{operation.name}' has no derivative, and a gradient goes through it: "
            f"{operation.derivative.reason}",
            span,
            [
                f"write its gradient: function f({parameters}) = {operation.name}({parameters}), "
                "then gradient of f with respect to x = ...",
                "stop_gradient(x) around what it is given says that the gradient is 0 there",
            ],
            code="E0703",
        )
    # The slope of `with_gradient` says how its value moves: it moves nothing.
    return made.operands[:2] if operation.name == "with_gradient" else made.operands


def find_kink(made: Apply, moving: Sequence[bool], ending: bool = False) -> str | None:
    """The choice that an operation makes where it has a kink; `ending` as a `Point` has
    it."""
    kinks = IR_OPERATIONS[made.operation.name].kinks
    if kinks.tie is not None and all(moving):
        return kinks.tie
    return kinks.end if kinks.end is not None and ending and moving[0] else kinks.point
