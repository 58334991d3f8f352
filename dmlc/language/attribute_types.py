"""Types of attributes, one record each, with everything that differs between them. A new type of
numbers is one more record. No field has a default: an `AttributeType` without one raises
`TypeError`, which names it, at import."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.scalars import DataType


class What(enum.Enum):
    """Kinds of values of the language."""

    NUMBER = "a number"
    BOOL = "a boolean"
    STRING = "a string"
    ENUM = "a member of an enum"
    TYPE = "a data type"
    UNKNOWN = "unknown"


class Holds(enum.Enum):
    """Numbers that an attribute accepts from callers."""

    FLOAT = "floats"
    INTEGER = "whole numbers"
    EITHER = "floats or whole numbers, which are kept as they are"
    NONE = "none: its values are no numbers"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AttributeType:
    """Record of an attribute type."""

    name: str
    also: tuple[str, ...]
    """Further spellings in tables, in small letters."""
    what: What
    holds: Holds
    must_be: str
    """Words of the message `attribute 'x' must be ...`."""
    limits: tuple[int, int]
    """Smallest and largest whole number accepted."""
    rounds_to: DataType
    """Type that floats are rounded to."""
    opens: bool
    """Whether a single value of it may be left open at compile time."""
    torch: str
    """Type in the schema of a PyTorch operator."""


_SIGNED, _UNSIGNED = (-(2**63), 2**63 - 1), (0, 2**64 - 1)
_RECORDS = (
    AttributeType(
        name="FLOAT", also=("float32", "f32"), what=What.NUMBER, holds=Holds.FLOAT,
        must_be="a number", limits=(0, 0),
        rounds_to=DataType.FLOAT32, opens=True, torch="float",
    ),
    AttributeType(
        name="INT", also=("int32", "int64", "s32", "s64"), what=What.NUMBER, holds=Holds.INTEGER,
        must_be="a whole number", limits=_SIGNED,
        rounds_to=DataType.FLOAT64, opens=False, torch="int",
    ),
    AttributeType(
        name="UINT", also=("uint32", "uint64", "u32", "u64"), what=What.NUMBER, holds=Holds.INTEGER,
        must_be="a whole number of 0 or more", limits=_UNSIGNED,
        rounds_to=DataType.FLOAT64, opens=False, torch="int",
    ),
    AttributeType(
        name="NUMBER", also=("dml_scalar_union",), what=What.NUMBER, holds=Holds.EITHER,
        must_be="a number", limits=(_SIGNED[0], _UNSIGNED[1]),
        rounds_to=DataType.FLOAT64, opens=False, torch="Scalar",
    ),
    AttributeType(
        name="BOOL", also=("boolean",), what=What.BOOL, holds=Holds.NONE,
        must_be="true or false", limits=(0, 0),
        rounds_to=DataType.FLOAT64, opens=False, torch="bool",
    ),
    AttributeType(
        name="TYPE", also=("dml_tensor_data_type",), what=What.TYPE, holds=Holds.NONE,
        must_be="a data type", limits=(0, 0),
        rounds_to=DataType.FLOAT64, opens=False, torch="str",
    ),
    AttributeType(
        name="STRING", also=(), what=What.STRING, holds=Holds.NONE,
        must_be="a string", limits=(0, 0),
        rounds_to=DataType.FLOAT64, opens=False, torch="str",
    ),
)  # fmt: skip

ATTRIBUTE_TYPES: Mapping[str, AttributeType] = MappingProxyType({r.name: r for r in _RECORDS})
"""Attribute types except enums, by name."""

ENUM = AttributeType(
    name="ENUM", also=(), what=What.ENUM, holds=Holds.NONE, must_be="a member of the enum",
    limits=(0, 0), rounds_to=DataType.FLOAT64, opens=False, torch="str",
)  # fmt: skip
"""Type of an attribute whose values are the members of an enum."""
