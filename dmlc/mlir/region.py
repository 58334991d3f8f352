"""Values of MLIR, and the lines that define them: of a function, and of the bodies in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.ir import Table
from dmlc.ir.naming import take_name
from dmlc.mlir.spelling import (
    list_bytes,
    name_number,
    spell_number,
    spell_table,
    spell_tensor,
    spell_type,
)
from dmlc.scalars import DataType, Kind

_LONGEST = 4096
"""Largest table in bytes that is written inline; a larger one is a resource of the file."""


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """Scalar value."""

    name: str
    dtype: DataType
    constant: bool | int | float | None = None
    """Constant value, if known."""

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionSymbols:
    """Names of a function, and the definitions at its top."""

    taken: dict[str, None] = dataclasses.field(default_factory=dict[str, None])
    tables: list[str] = dataclasses.field(default_factory=list[str])
    """Lines that define tables."""
    constants: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Names of constants, by value and type."""
    resources: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Contents of long tables in hexadecimal, by their names in the file."""

    def take(self, wanted: str) -> str:
        """Unique name for a value of the function."""
        return f"%{take_name(wanted, self.taken)}"

    def add_constant(self, wanted: str, text: str) -> str:
        """Name of a constant, shared by equal ones."""
        if text not in self.constants:
            self.constants[text] = self.take(wanted)
        return self.constants[text]

    def add_table(self, function: str, table: Table) -> None:
        """Defines a table under its own name."""
        text = spell_table(table)
        if table.array().nbytes > _LONGEST and table.dtype.kind is not Kind.BOOL:
            resource = f"{function}.{table.name}"
            # The first four bytes say how the elements are aligned.
            alignment = table.dtype.bytes.to_bytes(4, "little")
            self.resources[resource] = (alignment + list_bytes(table)).hex().upper()
            text = f"dense_resource<{resource}> : {spell_tensor(table.dtype, table.extents)}"
        self.tables.append(f"%{table.name} = arith.constant {text}")

    def list_constants(self) -> list[str]:
        """Lines that define the constants."""
        numbers = (f"{name} = arith.constant {text}" for text, name in self.constants.items())
        return [*self.tables, *numbers]


class Region:
    """Lines of a function, or of a body in it, under construction. Unnamed results are numbered,
    separately in each body."""

    def __init__(self, names: FunctionSymbols, *, prefix: str = "") -> None:
        self.names = names
        self.lines: list[str] = []
        self._prefix = prefix
        self._local: dict[str, None] = {}
        self._count = 0

    def name(self, wanted: str) -> str:
        """Unique name for a value of this body."""
        while wanted in self.names.taken:
            wanted += "_"
        return f"%{take_name(wanted, self._local)}"

    def define(self, text: str, name: str | None = None) -> str:
        """Adds an operation, and returns the name of its result."""
        if name is None:
            name = f"%{self._count}" if not self._prefix else self.names.take(self._prefix)
            self._count += 1
        self.lines.append(f"{name} = {text}")
        return name

    def constant(self, value: bool | int | float, dtype: DataType) -> Value:
        literal = spell_number(dtype, value)
        typed = literal if dtype.kind is Kind.BOOL else f"{literal} : {spell_type(dtype)}"
        name = self.names.add_constant(name_number(dtype, value), typed)
        return Value(name, dtype, value)

    def apply(self, operation: str, *given: Value) -> Value:
        """Operation whose result has its operands' type."""
        dtype = given[0].dtype
        text = f"{operation} {', '.join(map(str, given))} : {spell_type(dtype)}"
        return Value(self.define(text), dtype)

    def compare(self, predicate: str, left: Value, right: Value) -> Value:
        """Comparison; `predicate` is one of `arith.cmpf` or `arith.cmpi`."""
        operation = "arith.cmpf" if left.dtype.is_float else "arith.cmpi"
        text = f"{operation} {predicate}, {left}, {right} : {spell_type(left.dtype)}"
        return Value(self.define(text), DataType.BOOL)

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        text = f"arith.select {condition}, {then}, {otherwise} : {spell_type(then.dtype)}"
        return Value(self.define(text), then.dtype)

    def convert(self, operation: str, value: Value, dtype: DataType) -> Value:
        """Conversion to another type."""
        text = f"{operation} {value} : {spell_type(value.dtype)} to {spell_type(dtype)}"
        return Value(self.define(text), dtype)

    def extract(self, tensor: str, kind: str, at: Sequence[Value], dtype: DataType) -> Value:
        """Element of a tensor."""
        text = f"tensor.extract {tensor}[{', '.join(map(str, at))}] : {kind}"
        return Value(self.define(text), dtype)
