"""Sign analysis: values that cannot be negative by their formulas, such as squares, absolute values
and sums of these.

Such a value has its minimum where it is 0, so that a root of it, such as a norm, has a kink there:
`derivatives` gives it the derivative 0, as `abs` has. For the root of an input, 0 is the edge of
the domain.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from dmlc.ir import Apply, Body, Cast, Constant, Instruction, Load, Select, Stage
from dmlc.scalars import OPERATIONS, Keeps


class Sign(enum.IntEnum):
    """Knowledge about the sign of a value that is not NaN."""

    UNKNOWN = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


class Signs:
    """Signs of the values of stages, in the order of a function."""

    def __init__(self, stages: Iterable[Stage]) -> None:
        self._known: dict[str, Sign] = {}
        for stage in stages:
            self._known[stage.name] = self._find_stage(stage)

    def _find_stage(self, stage: Stage) -> Sign:
        reduction = stage.reduction
        if not stage.dtype.is_float or (reduction and not reduction.record.signless):
            return Sign.UNKNOWN
        found = self.find(stage.body)[stage.body.result]
        exact = reduction is None and stage.dtype is stage.dtype.compute
        return found if exact else min(found, Sign.NOT_NEGATIVE)

    def find(self, body: Body) -> tuple[Sign, ...]:
        """Sign of each value of a body that reads the stages."""
        return body.interpret(lambda value, given: self._find_value(value, body, given))

    def _find_value(self, value: Instruction, body: Body, given: Sequence[Sign]) -> Sign:
        match value:
            case Constant(dtype=dtype, value=number) if dtype.is_float:
                return Sign(int(number >= 0) + int(number > 0))
            case Load(tensor=tensor):
                return self._known.get(tensor, Sign.UNKNOWN)
            case Select():
                return min(given[1:])
            case Cast():
                return min(given[0], Sign.NOT_NEGATIVE)
            case Apply(operation=operation, operands=operands):
                return _find_made(operation.name, operands, body, given)
            case _:
                return Sign.UNKNOWN


def _find_made(name: str, operands: Sequence[int], body: Body, signs: Sequence[Sign]) -> Sign:
    match name:
        case "add":
            return max(signs) if all(signs) else Sign.UNKNOWN
        case "max":
            return max(signs)
        case "stop_gradient" | "with_gradient":
            return signs[0]
        case "mul" if operands[0] == operands[1]:
            return Sign.NOT_NEGATIVE
        case "pow":
            power = body.instructions[operands[1]]
            even = isinstance(power, Constant) and power.value % 2 == 0
            return Sign.NOT_NEGATIVE if signs[0] or even else Sign.UNKNOWN
        case "sqrt":
            return min(*signs, Sign.NOT_NEGATIVE)
        case _:
            pass
    match OPERATIONS[name].never_negative:
        case Keeps.ALWAYS:
            return Sign.NOT_NEGATIVE
        case Keeps.OPERANDS:
            # It may round to 0 even if no operand is 0.
            return min(*signs, Sign.NOT_NEGATIVE)
        case Keeps.NUMBER | Keeps.NEVER:
            return Sign.UNKNOWN
