"""Which positions lie inside an axis whose size is a symbol, whatever that is.

A position is proved inside by the way it is computed: it is an index over the axis itself, a clamp
to it, a choice or a minimum of such, or the stage's guard compares it with the size. Numbers that
sizes do not come into are `ranges`' to bound.
"""

from __future__ import annotations

from dmlc.ir.nodes import Apply, Constant, Index, Instruction, Select, Stage, Symbol
from dmlc.ir.ranges import Ranges
from dmlc.scalars import DataType

_DEEPEST = 16
"""Operations that a proof looks into, one in the other."""


def is_inside_open(stage: Stage, value: int, symbol: str, ranges: Ranges) -> bool:
    """Whether an INDEX value of a stage is 0 or more and below the size that a symbol has, at every
    point that the guard lets through. `ranges` are the intervals of the values up to it."""
    proof = _Proof(stage, symbol, ranges)
    return proof.is_counted(value) and proof.is_below(value, 0)


class _Proof:
    def __init__(self, stage: Stage, symbol: str, ranges: Ranges) -> None:
        self._stage = stage
        self._values = stage.body.instructions
        self._symbol = symbol
        self._ranges = ranges
        self._conditions = _list_conditions(stage)

    def is_counted(self, value: int) -> bool:
        """Whether a value is 0 or more."""
        if self._ranges[value][0] >= 0:
            return True
        match self._values[value]:
            case Apply(operation=operation, operands=(left, _)) if operation.name == "mod":
                return self.is_counted(left)
            case _:
                pass
        return any(
            name == "ge" and left == value and self._constant(right) == 0
            for name, left, right in self._conditions
        )

    def is_below(self, value: int, depth: int) -> bool:
        """Whether a value is less than the size."""
        instruction = self._values[value]
        if depth > _DEEPEST:
            return False
        if self._is_limited(value):
            return True
        match instruction:
            case Index():
                return self._stage.extent(instruction) == self._symbol
            case Constant(dtype=DataType.INDEX):
                return int(instruction.value) <= 0
            case Select():
                branches = (instruction.then, instruction.otherwise)
                return all(self.is_below(branch, depth + 1) for branch in branches)
            case Apply(operation=operation, operands=given):
                return self._is_made_below(operation.name, given, depth + 1)
            case _:
                return False

    def _is_limited(self, value: int) -> bool:
        """Whether the guard compares a value with the size."""
        return any(
            (name == "lt" and left == value and self._is_size(right))
            or (name == "le" and left == value and self._is_last(right))
            for name, left, right in self._conditions
        )

    def _is_made_below(self, name: str, given: tuple[int, ...], depth: int) -> bool:
        match name:
            case "min":
                return any(self.is_below(each, depth) for each in given)
            case "max":
                return all(self.is_below(each, depth) for each in given)
            case "add":
                ends = zip(given, reversed(given), strict=True)
                still = [one for one, other in ends if self._ranges[other] == (0, 0)]
                return any(self.is_below(each, depth) for each in still)
            case "sub":
                if self._is_size(given[0]):
                    return self._ranges[given[1]][0] >= 1
                return self._ranges[given[1]][0] >= 0 and self.is_below(given[0], depth)
            case "div":
                return (
                    self._ranges[given[0]][0] >= 0
                    and self._ranges[given[1]][0] >= 1
                    and self.is_below(given[0], depth)
                )
            case "mod":
                return self._is_size(given[1]) or self.is_below(given[0], depth)
            case _:
                return False

    def _is_size(self, value: int) -> bool:
        return self._values[value] == Symbol(self._symbol)

    def _is_last(self, value: int) -> bool:
        """Whether a value is the last place along the axis."""
        match self._values[value]:
            case Apply(operation=operation, operands=(size, one)) if operation.name == "sub":
                return self._is_size(size) and self._constant(one) == 1
            case _:
                return False

    def _constant(self, value: int) -> bool | int | float | None:
        instruction = self._values[value]
        return instruction.value if isinstance(instruction, Constant) else None


_MIRRORED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}


def _list_conditions(stage: Stage) -> list[tuple[str, int, int]]:
    """The comparisons that the guard joins by `and`, both ways round."""
    found: list[tuple[str, int, int]] = []
    pending = [] if stage.body.guard is None else [stage.body.guard]
    while pending:
        instruction: Instruction = stage.body.instructions[pending.pop()]
        if not isinstance(instruction, Apply):
            continue
        name, given = instruction.operation.name, instruction.operands
        if name == "and":
            pending += given
        elif name in _MIRRORED:
            left, right = given
            found += [(name, left, right), (_MIRRORED[name], right, left)]
    return found
