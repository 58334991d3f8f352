"""Inputs of a binding: tensors and attribute values.

Sizes and data types may still be unknown while outputs are inferred. A request for an unknown one
is the caller's error, and names what to give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from dmlc import ir
from dmlc.binding.values import Constant, OpenSize
from dmlc.language.definitions import Dimension, OperatorDefinition, TensorDefinition
from dmlc.scalars import DataType
from dmlc.sizes import Size, known, measure, multiply, pack_strides
from dmlc.source import DmlcError, Span

SYMBOL = "n"
"""The extent of every tensor of a function bound without sizes."""


def ir_name(name: str) -> str:
    """Name of a tensor in the bound function; an entry of an array, `InputTensors[0]`, is
    `InputTensors_0` there."""
    return name.replace("[", "_").replace("]", "")


@dataclasses.dataclass(frozen=True, slots=True)
class BoundTensor:
    """Tensor of a binding. `dtype` or `sizes` is None while unknown."""

    definition: TensorDefinition
    dtype: DataType | None
    sizes: tuple[ir.Extent, ...] | None
    strides: tuple[int, ...] | None
    """None where packed."""
    given: bool
    """Whether the caller described it. An error in an inferred property is not reported as the
    caller's."""

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of a tensor without open ones; empty while unknown."""
        return known(self.sizes or ())


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """Operator with its tensors and attributes. `tensors` holds those present, in table order."""

    operator: OperatorDefinition
    tensors: Mapping[str, BoundTensor]
    attributes: Mapping[str, Constant]
    definitions: Mapping[str, TensorDefinition]
    """Every tensor of the feature level in use, present or not."""
    symbolic: bool
    """True where no sizes are given: each tensor is a run of `n` elements."""
    level: str | None = None
    """The feature level that was asked for; None for the newest."""
    absent: Mapping[str, tuple[DataType, ...]] = dataclasses.field(
        default_factory=dict[str, tuple[DataType, ...]]
    )
    """Data types that each absent input might have."""
    opened: tuple[str, ...] = ()
    """Attributes whose values are arguments of the kernels: inputs of one element."""
    forward: Binding | None = None
    """Binding of the forward operator, for the same sizes, if the operator has `gradient of`."""
    checks: dict[str, None] = dataclasses.field(default_factory=dict[str, None])
    """Assumptions about open sizes, as conditions in C; each run of the kernels checks them."""

    def members(self, row: str) -> list[BoundTensor]:
        """Tensors of a table row: one, or the entries of an array."""
        if row in self.tensors:
            return [self.tensors[row]]
        return [t for t in self.tensors.values() if t.definition.array_name == row]

    def tensor(self, name: str, span: Span | None) -> BoundTensor:
        """Tensor that an expression names. Raises `DmlcError` if it is absent."""
        found = self.tensors.get(name)
        if found is None:
            message = f"tensor '{name}' is not given, and this needs it"
            raise DmlcError(message, span, [f"give a description of '{name}'"], code="E0805")
        return found

    def sizes(self, name: str, span: Span | None) -> tuple[int | OpenSize, ...]:
        """Sizes of a tensor, as values of an expression."""
        return as_values(self._known_sizes(name, span))

    def _known_sizes(self, name: str, span: Span | None) -> tuple[ir.Extent, ...]:
        found = self.tensor(name, span).sizes
        if found is None:
            who = "the tensors" if self.symbolic else f"'{name}'"
            message = f"the sizes of '{name}' are needed here, and are not given"
            raise DmlcError(message, span, [f"give the sizes of {who} when binding"], code="E0805")
        return found

    def dtype(self, name: str, span: Span | None) -> DataType:
        """Data type of a tensor, as a value of an expression."""
        found = self.tensor(name, span).dtype
        if found is None:
            message = f"the data type of '{name}' is needed here, and is not given"
            raise DmlcError(
                message, span, [f"give a description of '{name}' when binding"], code="E0805"
            )
        return found

    def count(self, name: str, span: Span | None) -> int | OpenSize:
        """Number of elements of a tensor."""
        count = multiply(self._known_sizes(name, span))
        return OpenSize(count) if isinstance(count, Size) else count

    def strides(self, name: str, span: Span | None) -> tuple[int | OpenSize, ...]:
        """Strides of a tensor in elements, as values of an expression."""
        stored = self.tensor(name, span).strides
        if stored is not None:
            return stored
        packed = pack_strides([measure(e) for e in self._known_sizes(name, span)])
        return tuple(OpenSize(s) if isinstance(s, Size) else s for s in packed)

    def extents(self, name: str, span: Span | None) -> tuple[ir.Extent, ...]:
        """Extents of a tensor in the bound function."""
        if self.symbolic:
            self.tensor(name, span)
            return (SYMBOL,)
        return self._known_sizes(name, span)

    # Names of sizes -------------------------------------------------------------------------

    def names_dimension(self, name: str) -> bool:
        """Whether a name of the `Dimensions` column is that of a size or of a shape."""
        return any(_declares(t, name) for t in self.definitions.values())

    def dimension(self, name: str, span: Span) -> int | OpenSize | tuple[int | OpenSize, ...]:
        """Size, or sizes, that a name of the `Dimensions` column denotes. Raises `DmlcError` if no
        tensor present has it."""
        having = [t for t in self.tensors.values() if _declares(t.definition, name)]
        shape = next((t for t in having if t.definition.shape_name == name), None)
        if shape is not None:
            known = next((t for t in having if t.sizes is not None), shape)
            return self.sizes(known.name, span)
        found = name_sizes(having).get(name)
        if found is not None:
            return OpenSize.of(found) if isinstance(found, str) else found
        if having and all(t.sizes is None for t in having):
            self.sizes(having[0].name, span)
        raise DmlcError(
            f"no tensor that is given has dimension '{name}', and this needs it",
            span,
            [f"ask first whether there is one, as in 'X.DimensionCount == 5 ? {name} : 1'"],
            code="E0805",
        )


def _declares(tensor: TensorDefinition, name: str) -> bool:
    return tensor.shape_name == name or any(d.name == name for d in tensor.dimensions or ())


def as_values(sizes: tuple[ir.Extent, ...]) -> tuple[int | OpenSize, ...]:
    """Sizes as values of expressions."""
    return tuple(OpenSize.of(e) if isinstance(e, str) else e for e in sizes)


def name_sizes(tensors: Iterable[BoundTensor]) -> dict[str, ir.Extent]:
    """Sizes and shapes that names of the `Dimensions` column denote, as far as known."""
    found: dict[str, ir.Extent] = {}
    for tensor in tensors:
        if tensor.sizes is None or tensor.definition.dimensions is None:
            continue
        matched = match_dimensions(tensor.definition.dimensions, len(tensor.sizes))
        for dimension, size in zip(matched or (), tensor.sizes, strict=matched is not None):
            if dimension.name is not None:
                found.setdefault(dimension.name, size)
    return found


def match_dimensions(pattern: tuple[Dimension, ...], rank: int) -> tuple[Dimension, ...] | None:
    """Dimensions of a tensor of this rank: the first optional ones are omitted, as in `{ N, C, [D],
    [H], W }`; None if the pattern has no such rank. A dimension that one tensor omits and another
    has is 1, which `unify_dimensions` checks."""
    spare = len(pattern) - rank
    optional = [k for k, dimension in enumerate(pattern) if dimension.optional]
    if not 0 <= spare <= len(optional):
        return None
    left_out = optional[:spare]
    return tuple(d for k, d in enumerate(pattern) if k not in left_out)
