"""What an operator is bound to: the tensors at hand and the attributes' values.

Sizes and data types may still be open while outputs are inferred; asking for an open one is the
caller's mistake, and says what to give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dmlc import ir
from dmlc.binding.values import Constant
from dmlc.language.definitions import OperatorDefinition, TensorDefinition
from dmlc.scalars import DataType
from dmlc.source import DmlcError, Span

SYMBOL = "n"
"""The extent of every tensor of a function bound without sizes."""


def ir_name(name: str) -> str:
    """What the bound function calls a tensor: entries of arrays, `InputTensors[0]`, have names
    without brackets there, `InputTensors_0`."""
    return name.replace("[", "_").replace("]", "")


@dataclasses.dataclass(frozen=True, slots=True)
class BoundTensor:
    """A tensor that takes part. `dtype` or `sizes` is None while it is not known."""

    definition: TensorDefinition
    dtype: DataType | None
    sizes: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    """None where packed."""
    given: bool
    """Whether the caller described it; what is inferred for the others is not their mistake."""

    @property
    def name(self) -> str:
        return self.definition.name


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """An operator with what it is bound to. `tensors` holds those present, in table order."""

    operator: OperatorDefinition
    tensors: Mapping[str, BoundTensor]
    attributes: Mapping[str, Constant]
    definitions: Mapping[str, TensorDefinition]
    """Every tensor of the feature level in use, present or not."""
    symbolic: bool
    """True where no sizes are given: each tensor is a run of `n` elements."""

    def members(self, row: str) -> list[BoundTensor]:
        """The tensors that take part under a name of the table: the entries of an array."""
        if row in self.tensors:
            return [self.tensors[row]]
        return [t for t in self.tensors.values() if t.definition.array_name == row]

    def tensor(self, name: str, span: Span | None) -> BoundTensor:
        """A tensor that an expression needs. Raises `DmlcError` if it is not given."""
        found = self.tensors.get(name)
        if found is None:
            raise DmlcError(
                f"tensor '{name}' is not given, and this needs it",
                span,
                [f"give a description of '{name}'"],
            )
        return found

    def sizes(self, name: str, span: Span | None) -> tuple[int, ...]:
        """The sizes of a tensor as an expression asks for them."""
        found = self.tensor(name, span).sizes
        if found is None:
            who = "the tensors" if self.symbolic else f"'{name}'"
            raise DmlcError(
                f"the sizes of '{name}' are needed here, and are not given",
                span,
                [f"give the sizes of {who} when binding"],
            )
        return found

    def dtype(self, name: str, span: Span | None) -> DataType:
        """The data type of a tensor as an expression asks for it."""
        found = self.tensor(name, span).dtype
        if found is None:
            raise DmlcError(
                f"the data type of '{name}' is needed here, and is not given",
                span,
                [f"give a description of '{name}' when binding"],
            )
        return found

    def extents(self, name: str, span: Span | None) -> tuple[ir.Extent, ...]:
        """The extents of a tensor in the bound function."""
        if self.symbolic:
            self.tensor(name, span)
            return (SYMBOL,)
        return self.sizes(name, span)
