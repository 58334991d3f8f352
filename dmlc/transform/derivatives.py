"""Derivatives of scalar operations in bodies, from the operations' records.

A record's rule takes the adjoint of an operation's result, and gives those of its operands. It is
exact, kinks included: `docs/explanation/gradients.md` publishes the choices at kinks, and a
`Choice` names one that a function makes. Roundings, signs, comparisons and integers have derivative
0.

An adjoint may hold under conditions. They are applied last, so that a NaN of a branch not taken
does not reach the gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from dmlc.ir import Apply
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.scalars import Part, Point, Value
from dmlc.scalars.operation import Unsupported
from dmlc.source import DmlcError, InternalError, Span

Condition: TypeAlias = tuple[int, bool]
"""A BOOL value of a body, and whether it must be true or false."""


@dataclasses.dataclass(frozen=True, slots=True)
class Adjoint:
    """Derivative of the differentiated result by a value: `value` if all conditions hold, and 0
    otherwise."""

    value: int
    conditions: tuple[Condition, ...] = ()

    def under(self, conditions: tuple[Condition, ...]) -> Adjoint:
        """The same adjoint under further conditions."""
        new = tuple(c for c in conditions if c not in self.conditions)
        return Adjoint(self.value, (*self.conditions, *new))


def spread(
    builder: BodyBuilder, made: int, adjoint: int, moving: Sequence[bool], ending: bool
) -> list[tuple[int, Adjoint]]:
    """Adjoints of the operands of operation `made` from its adjoint; `moving` and `ending` are as
    in `Point`. Raises `InternalError` if the result's derivative is 0."""
    instruction = builder.instructions[made]
    if not isinstance(instruction, Apply):
        raise InternalError(f"value {made} of a body is no operation")
    rule = IR_OPERATIONS[instruction.operation.name].derivative
    if rule is None or isinstance(rule, Unsupported):
        raise InternalError(f"'{instruction.operation.name}' does not move with its operands")
    # An operand that occurs twice is one value, as rules for squares require.
    values = {number: builder.wrap(number) for number in instruction.operands}
    operands = tuple(values[number] for number in instruction.operands)
    point = Point(builder.wrap(adjoint), builder.wrap(made), operands, tuple(moving), ending)
    found = rule(point)
    parts: list[tuple[int, Adjoint]] = []
    for place, each in enumerate([found] if isinstance(found, Value) else found):
        part = each if isinstance(each, Part) else Part(place, each)
        conditions = tuple((builder.unwrap(value), holds) for value, holds in part.conditions)
        got = Adjoint(builder.unwrap(part.value), conditions)
        parts.append((instruction.operands[part.operand], got))
    return parts


def list_leading(made: Apply, span: Span | None = None) -> tuple[int, ...]:
    """Operands with a derivative that is not 0 everywhere. Raises `DmlcError` for an operation
    without a derivative, at `span`."""
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
    # The slope operand of `with_gradient` is a derivative itself, and has none.
    return made.operands[:2] if operation.name == "with_gradient" else made.operands


def find_kink(made: Apply, moving: Sequence[bool], ending: bool = False) -> str | None:
    """Choice of derivative at an operation's kink, if it has one; `ending` as in `Point`."""
    kinks = IR_OPERATIONS[made.operation.name].kinks
    if kinks.tie is not None and all(moving):
        return kinks.tie
    return kinks.end if kinks.end is not None and ending and moving[0] else kinks.point
