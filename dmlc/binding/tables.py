"""Tables of an operator for callers: `Operator.tensors`, `attributes` and `types`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from dmlc.language.definitions import AttributeDefinition, OperatorDefinition, TensorDefinition
from dmlc.language.format import format_expression
from dmlc.scalars import DataType


@dataclasses.dataclass(frozen=True, slots=True)
class TensorRow:
    """Row of an operator's table of tensors."""

    name: str
    kind: str
    """Kind in the table's words: `Input`, `Optional output`, `Array of inputs`."""
    output: bool
    optional: bool
    array: bool
    """Whether the row is a list of tensors."""
    ranks: tuple[int, ...]
    """Permitted numbers of dimensions, ascending."""
    data_types: tuple[DataType, ...]
    """Permitted data types, in the table's order; `Operator.types` may restrict them."""


@dataclasses.dataclass(frozen=True, slots=True)
class AttributeRow:
    """Row of an operator's table of attributes."""

    name: str
    type: str
    """Type in the table's words: `FLOAT`, `UINT[AxisCount]`, or the name of an enum."""
    optional: bool
    """Whether it may be omitted: it has a default, or is the length of an array that is given."""
    default: str | None
    """Default in the language; it may depend on tensors and on other attributes."""
    values: tuple[str, ...] | None
    """Permitted values: the members of an enum, or those that the table lists; None for all."""


def list_tensors(definition: OperatorDefinition) -> Mapping[str, TensorRow]:
    """The rows of the newest feature level, by name."""
    return MappingProxyType({t.name: _tensor(t) for t in definition.newest.tensors})


def list_attributes(definition: OperatorDefinition) -> Mapping[str, AttributeRow]:
    return MappingProxyType({a.name: _attribute(definition, a) for a in definition.attributes})


def list_types(definition: OperatorDefinition) -> tuple[Mapping[str, tuple[DataType, ...]], ...]:
    """The rows of the `types` table."""
    return tuple(MappingProxyType(dict(c.types)) for c in definition.combinations)


def _tensor(tensor: TensorDefinition) -> TensorRow:
    kind = "output" if tensor.output else "input"
    if tensor.array:
        kind = f"array of {kind}s"
    elif tensor.optional:
        kind = f"optional {kind}"
    return TensorRow(
        tensor.name,
        kind.capitalize(),
        tensor.output,
        tensor.optional,
        tensor.array,
        tensor.ranks,
        tensor.dtypes,
    )


def _attribute(definition: OperatorDefinition, attribute: AttributeDefinition) -> AttributeRow:
    base = attribute.type.name if attribute.enum is None else attribute.enum.name
    length = "" if attribute.length is None else format_expression(attribute.length)
    default = attribute.default
    implied = bool(definition.arrays_of_length(attribute.name))
    return AttributeRow(
        attribute.name,
        f"{base}[{length}]" if attribute.is_array else base,
        default is not None or implied,
        None if default is None else format_expression(default),
        attribute.values if attribute.enum is None else tuple(attribute.enum.members),
    )
