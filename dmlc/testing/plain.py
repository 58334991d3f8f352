"""Builder of bodies that applies no rewrite rule, since compilers are judged by its results."""

from __future__ import annotations

from dmlc.ir import Apply, Body, Instruction
from dmlc.ir.builder import BodyBuilder
from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.scalars import Value

EMPTY = Body((), 0)


class PlainBuilder(BodyBuilder):
    """Body under construction that starts with the values of another. New values are shared among
    themselves only."""

    def __init__(self, body: Body = EMPTY) -> None:
        super().__init__()
        self.instructions += body.instructions

    def add(self, instruction: Instruction) -> int:
        if instruction not in self._numbers:
            self._numbers[instruction] = len(self.instructions)
            self.instructions.append(instruction)
        return self._numbers[instruction]

    def apply(self, name: str, *given: int) -> int:
        """Operation on values of any type: errors are FLOAT64, whatever the operation takes."""
        operation = IR_OPERATIONS[name]
        return self.add(Apply(operation, given, operation.result_type(self.type_of(given[0]))))

    def value(self, instruction: Instruction) -> Value:
        """Number of an instruction's value."""
        return self.wrap(self.add(instruction))

    def finish(self, result: int | Value, guard: int | Value | None = None) -> Body:
        """Body whose result is a value."""
        if isinstance(guard, Value):
            guard = self.unwrap(guard)
        return self.make(self.unwrap(result) if isinstance(result, Value) else result, guard)
