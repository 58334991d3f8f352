"""Builder of bodies: equal values are one, and every local rule has been applied.

Passes use it to rewrite bodies, whole or in part. `rules` holds the local rules.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dmlc.ir.nodes import (
    IR_OPERATIONS,
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Index,
    Instruction,
    Load,
    Parameter,
    Select,
    Stage,
    Symbol,
    Table,
    Tensor,
    operands,
    value_type,
    with_operands,
)
from dmlc.ir.operand_types import check_constant, check_operands, check_rank, check_types
from dmlc.ir.rules import RULES
from dmlc.parameters import expect, expect_text, show_kind, wrong_kind
from dmlc.scalars import COMBINERS, DataType, Domain, Operation
from dmlc.sizes import as_extent, parse_size
from dmlc.source import DmlcError, find_named

Change: TypeAlias = Callable[[int, Instruction], "int | None"]


class BodyBuilder(Domain[int]):
    """A body under construction. Values are numbers; equal values have one number.

    `add` takes any instruction unchecked. The other methods check the types of their operands. They
    see one body only: `verify` checks a stage's axes, and its loads against the function's tensors
    and their sizes. `wrap` gives a value Python's operators.
    """

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        """Values by number; `make` drops those that are not used."""
        self._numbers: dict[Instruction, int] = {}

    def type_of(self, value: int) -> DataType:
        """Data type of a value."""
        if type(value) is not int or not 0 <= value < len(self.instructions):
            raise wrong_kind("a value", "the number of a value of this body", value)
        return value_type(self.instructions[value])

    def constant(self, value: bool | int | float, dtype: DataType = DataType.INDEX) -> int:
        """A literal; a FLOAT32 is rounded. Raises `DmlcError` if the type cannot hold it."""
        if type(value) is int and dtype is DataType.INDEX:
            return self.add(_make_position(value))
        return self.add(_make_constant(value, dtype))

    def literal(self, value: bool | int | float, dtype: DataType) -> int:
        """Python number in a type, with the nearest float of the type."""
        if dtype.is_float:
            with np.errstate(over="ignore"):
                value = float(dtype.dtype.type(value))
        elif dtype is DataType.BOOL:
            value = bool(value)
        elif not isinstance(value, float) or value.is_integer():
            value = int(value)
        return self.constant(value, dtype)

    def index(self, axis: int) -> int:
        """Index along a domain axis of the stage."""
        return self.add(Index(_expect_axis("axis", axis)))

    def reduced(self, label: int) -> int:
        """Index along a reduction axis, given by its label."""
        return self.add(Index(_expect_axis("label", label), reduced=True))

    def symbol(self, name: str) -> int:
        """Run-time size as an INDEX: a symbol, or an expression of symbols."""
        return self.size(expect_text("name", name, "a symbol, or a size made of some"))

    def size(self, extent: Extent) -> int:
        """Size of an axis as an INDEX."""
        if isinstance(extent, str):
            extent = as_extent(parse_size(extent))
        return self.add(Symbol(extent)) if isinstance(extent, str) else self.constant(extent)

    def load(self, tensor: Tensor, *indices: int) -> int:
        """Element of a tensor, in its compute type, at one INDEX for each of its axes."""
        expected = "an ir.Parameter, ir.Table or ir.Stage"
        expect("tensor", tensor, (Parameter, Table, Stage), expected)
        _refuse(check_rank(tensor, len(indices)))
        return self._add_checked(Load(tensor.name, indices, tensor.dtype.compute), *indices)

    def read(self, tensor: Tensor) -> int:
        """Element of a tensor at the stage's own index, for a stage over the same domain."""
        return self.load(tensor, *[self.index(axis) for axis in range(len(tensor.extents))])

    def apply(self, name: str, *given: int) -> int:
        """Operation on values of one type. Raises `DmlcError` for operands of another type."""
        operation = find_named("operation", name, IR_OPERATIONS)
        dtype = _find_result_type(operation, *[self.type_of(value) for value in given])
        return self.add(Apply(operation, given, dtype))

    def select(self, condition: int, then: int, otherwise: int) -> int:
        """`condition ? then : otherwise`."""
        made = Select(condition, then, otherwise, self.type_of(then))
        return self._add_checked(made, condition, then, otherwise)

    def cast(self, value: int, dtype: DataType) -> int:
        """Value converted to a compute type."""
        return self._add_checked(Cast(value, _expect_dtype(dtype)), value)

    def _add_checked(self, instruction: Instruction, *given: int) -> int:
        _refuse(check_types(instruction, [self.type_of(value) for value in given]))
        return self.add(instruction)

    def fold(self, name: str, values: Iterable[int]) -> int:
        """Values combined by an operation from left to right; there must be at least one."""
        return functools.reduce(lambda left, right: self.apply(name, left, right), values)

    def join(self, conditions: Iterable[int]) -> int | None:
        """Conjunction of conditions, in order; None if there are none."""
        distinct = dict.fromkeys(conditions)
        return self.fold("and", distinct) if distinct else None

    def copy(
        self,
        body: Body,
        replaced: Mapping[int, int] = MappingProxyType({}),
        change: Change = lambda number, moved: None,
        places: Mapping[Index, int] = MappingProxyType({}),
        needed: Container[int] | None = None,
    ) -> list[int]:
        """Copies the values of another body, and returns their new numbers. Values in `replaced`
        and indices in `places` are replaced by values of this builder. `change` gets each other
        instruction, with its new operands, and may return another value for it. Values that are not
        `needed` are left out, and have the number -1."""
        numbers: list[int] = []
        for number, instruction in enumerate(body.instructions):
            if needed is not None and number not in needed:
                numbers.append(-1)
                continue
            found = replaced.get(number)
            if found is None and isinstance(instruction, Index):
                found = places.get(instruction)
            if found is None:
                given = tuple([numbers[o] for o in operands(instruction)])
                moved = with_operands(instruction, given)
                found = change(number, moved)
                found = self.add(moved) if found is None else found
            numbers.append(found)
        return numbers

    def make(self, result: int, guard: int | None = None) -> Body:
        """Body whose result is a value."""
        return Body.make(self.instructions, result, guard)

    def remake(
        self,
        stage: Stage,
        change: Change = lambda number, moved: None,
        replaced: Mapping[int, int] = MappingProxyType({}),
    ) -> Stage:
        """Stage whose body's values are changed as by `copy`; the same object if nothing
        changes."""
        numbers = self.copy(stage.body, replaced, change)
        guard = None if stage.body.guard is None else numbers[stage.body.guard]
        body = self.make(numbers[stage.body.result], guard)
        return stage if body == stage.body else dataclasses.replace(stage, body=body)

    def nothing(self, combiner: str, dtype: DataType) -> int:
        """Identity of a combiner in a data type."""
        return self.add(Constant(dtype, COMBINERS[combiner].identity(dtype)))

    def total(self, combiner: str, value: int) -> int:
        """Result of a reduction of one point: a sum of one -0 is 0."""
        record, dtype = COMBINERS[combiner], value_type(self.instructions[value])
        if record.keeps_zeros(dtype):
            return value
        return self.apply(record.operation.name, value, self.nothing(combiner, dtype))

    def add(self, instruction: Instruction) -> int:
        """Adds an instruction, and returns the number of its value after all applicable rules."""
        # Hashing an instruction is slow: each is hashed once.
        number = self._numbers.setdefault(instruction, len(self.instructions))
        if number < len(self.instructions):
            return number
        found = _apply_rules(instruction, self.instructions)
        if found is None:
            self.instructions.append(instruction)
            return number
        # The rules are not tried on it again.
        del self._numbers[instruction]
        number = found if isinstance(found, int) else self.add(found)
        self._numbers[instruction] = number
        return number


def _refuse(why: str | None) -> None:
    if why is not None:
        raise DmlcError(why)


def _make_constant(value: bool | int | float, dtype: DataType) -> Constant:
    value = expect("value", value, (bool, int, float), "a number or a boolean")
    if _expect_dtype(dtype).is_float and not isinstance(value, bool):
        try:
            value = float(value)
            if dtype is DataType.FLOAT32:
                (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            raise DmlcError(f"{show_kind(value)} is no {dtype.name}") from None
    made = Constant(dtype, value)
    _refuse(check_constant(made))
    return made


@functools.lru_cache(maxsize=4096)
def _make_position(value: int) -> Constant:
    return _make_constant(value, DataType.INDEX)


def _expect_dtype(given: DataType) -> DataType:
    return expect("dtype", given, DataType, "an ir.DataType")


def _expect_axis(parameter: str, given: int) -> int:
    if type(given) is not int or given < 0:
        raise wrong_kind(parameter, "a whole number, 0 or more", given)
    return given


@functools.cache
def _find_result_type(operation: Operation, *given: DataType) -> DataType:
    _refuse(check_operands(operation, given))
    return operation.result_type(given[0])


def _apply_rules(
    instruction: Instruction, values: Sequence[Instruction]
) -> int | Instruction | None:
    """Result of the first rule that applies to an instruction; None if none does."""
    # No rule applies to another instruction.
    if not isinstance(instruction, Apply | Select | Cast):
        return None
    found = (rule(instruction, values) for rule in RULES)
    return next((each for each in found if each is not None), None)
