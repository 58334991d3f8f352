"""Data types and scalar operations: a record of each operation, with everything that is known of
it. The NumPy function of an operation is its definition: the reference evaluator calls it, the
constant folder calls it, and every backend is tested against it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dmlc.parameters import expect, expect_text
from dmlc.scalars.combiners import COMBINERS, AdjointRule, Combiner, is_positional
from dmlc.scalars.expression import Domain, OperatorMethods, Routine, Value, Writer
from dmlc.scalars.functions import REGISTRY
from dmlc.scalars.marks import REGISTRY as MARKS
from dmlc.scalars.operation import Error, Keeps, Operands, Operation, Record, Reverse, Share
from dmlc.scalars.types import (
    CONVERSIONS,
    LARGEST_INDEX,
    TENSOR_TYPES,
    Array,
    DataType,
    Kind,
    as_data_type,
    convert,
    data_type_names,
    data_type_of,
    find_data_type,
    find_same,
    float_limits,
    held_type,
    integer_limits,
    is_float32,
)
from dmlc.source import find_named

__all__ = [
    "COMBINERS", "CONVERSIONS", "GRADIENT_MARKS", "LARGEST_INDEX", "OPERATIONS", "ROUNDINGS",
    "TENSOR_TYPES", "AdjointRule", "Array", "Combiner", "DataType", "Domain", "Error", "Keeps",
    "Kind", "Operands", "Operation", "OperatorMethods", "Record", "Reverse", "Routine", "Share",
    "Value", "Writer", "as_data_type", "combiner_identity", "convert", "data_type_names",
    "data_type_of", "find_data_type", "find_same", "float_limits", "held_type", "integer_limits",
    "is_float32", "is_positional",
]  # fmt: skip

OPERATIONS: Mapping[str, Record] = MappingProxyType(REGISTRY.records)
"""Every scalar operation by name. `select(condition, a, b)` and `cast` are not here: their
operands do not share one type, so both IRs spell them as instructions of their own."""

GRADIENT_MARKS: Mapping[str, Record] = MappingProxyType(MARKS.records)
"""Operations that return their first operand and affect differentiation only, by name."""

ROUNDINGS: Mapping[DataType, Operation] = MappingProxyType(
    {o.rounds_to: o for o in OPERATIONS.values() if o.rounds_to is not None}
)
"""Operation that rounds to a 16-bit type, as a store does."""


def combiner_identity(combiner: str, dtype: DataType) -> bool | int | float:
    """Result of a reduction of no point: 0 for a sum, infinity for a minimum of floats, 0 for the
    number of a point."""
    expect("dtype", dtype, DataType, "a dmlc.DataType")
    name = expect_text("combiner", combiner)
    return find_named("combiner", name, COMBINERS, code="E0204").empty(dtype)
