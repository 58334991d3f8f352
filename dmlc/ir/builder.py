"""Makes bodies of scalar values, in which equal values are one and every local rule has been used.

Passes write what they change with it, be it all of a body or a value among others. Which values
these are is theirs to say, and what a value may be replaced by is `rules`' business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from dmlc.ir.nodes import (
    Apply,
    Body,
    Cast,
    Constant,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    operands,
    value_type,
    with_operands,
)
from dmlc.ir.rules import RULES
from dmlc.scalars import OPERATIONS, DataType

Change: TypeAlias = Callable[[int, Instruction], "int | None"]


class Builder:
    """A body in the making, in which equal values are one."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._numbers: dict[Instruction, int] = {}

    def constant(self, value: int, dtype: DataType = DataType.INDEX) -> int:
        """A whole number, as a position or in another type."""
        return self.add(Constant(dtype, value))

    def apply(self, name: str, *given: int) -> int:
        """An operation on some values of one type."""
        operation = OPERATIONS[name]
        dtype = operation.result_type(value_type(self.instructions[given[0]]))
        return self.add(Apply(operation, given, dtype))

    def read(self, stage: Stage) -> int:
        """The element of a stage at the own place of a body over the same domain."""
        places = tuple(self.add(Index(axis)) for axis in range(len(stage.domain)))
        return self.add(Load(stage.name, places, stage.dtype.compute))

    def join(self, conditions: Iterable[int]) -> int | None:
        """Conditions joined by `and`, in order; None where there are none."""
        guard: int | None = None
        for condition in dict.fromkeys(conditions):
            guard = condition if guard is None else self.apply("and", guard, condition)
        return guard

    def copy(
        self,
        body: Body,
        replaced: Mapping[int, int] = MappingProxyType({}),
        change: Change = lambda number, moved: None,
    ) -> list[int]:
        """The values of another body, by their numbers there: some are `replaced` by others. Of the
        rest `change` is given each, on values that are here, and says which it is, if another."""
        numbers: list[int] = []
        for number, instruction in enumerate(body.instructions):
            found = replaced.get(number)
            if found is None:
                given = tuple([numbers[o] for o in operands(instruction)])
                moved = with_operands(instruction, given)
                found = change(number, moved)
                found = self.add(moved) if found is None else found
            numbers.append(found)
        return numbers

    def make(self, result: int, guard: int | None = None) -> Body:
        """The body that gives one of the values."""
        return Body.make(self.instructions, result, guard)

    def remake(self, stage: Stage, change: Change) -> Stage:
        """A stage with some of its body's values changed, as `copy` does it."""
        numbers = self.copy(stage.body, change=change)
        guard = None if stage.body.guard is None else numbers[stage.body.guard]
        return dataclasses.replace(stage, body=self.make(numbers[stage.body.result], guard))

    def add(self, instruction: Instruction) -> int:
        """The number of the value an instruction gives, after every rule that applies to it."""
        while True:
            # To hash an instruction takes time: it is done once for each.
            number = self._numbers.setdefault(instruction, len(self.instructions))
            if number < len(self.instructions):
                return number
            found = _apply_rules(instruction, self.instructions)
            if found is None:
                self.instructions.append(instruction)
                return number
            del self._numbers[instruction]
            if isinstance(found, int):
                return found
            instruction = found


def _apply_rules(
    instruction: Instruction, values: Sequence[Instruction]
) -> int | Instruction | None:
    """What the first rule that applies makes of an instruction; None where none does."""
    # Rules are about these alone.
    if not isinstance(instruction, Apply | Select | Cast):
        return None
    for rule in RULES:
        found = rule(instruction, values)
        if found is not None:
            return found
    return None
