"""Definitions of a checked file: operators, graphs, enums and functions with every name resolved.

`check` makes these from the syntax tree; the binder reads them. Table cells have become types and
ranks, and each definition holds everything that its expressions name, so that nothing has to look
back into the file.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterable, Mapping
from typing import Protocol

from dmlc.language import syntax
from dmlc.language.attribute_types import AttributeType
from dmlc.scalars import DataType
from dmlc.source import Diagnostic, DmlcError, Note, Source, Span

FORMULA_CURE = "write it as 'compute { ... }', or derive it with 'gradient of NAME'"
"""Suggestion for an operator without a formula."""


def qualify(module: str | None, name: str) -> str:
    """Name qualified by its module; a dotted one is qualified already."""
    return f"{module}.{name}" if module is not None and "." not in name else name


@dataclasses.dataclass(frozen=True, slots=True)
class EnumDefinition:
    """An enum; `members` maps each name to its value, in order of declaration."""

    name: str
    members: Mapping[str, int]
    span: Span

    def find(self, name: str) -> str | None:
        """The member with that name, short (`LINEAR`) or full (`DML_INTERPOLATION_MODE_LINEAR`)."""
        short = name if name in self.members else name.removeprefix(self.name + "_")
        return short if short in self.members else None


@dataclasses.dataclass(frozen=True, slots=True)
class Dimension:
    """One entry of a `Dimensions` cell: a named size or a fixed one. `optional` is `[X]`."""

    name: str | None
    size: int | None
    optional: bool


@dataclasses.dataclass(frozen=True, slots=True)
class TensorDefinition:
    """A row of a tensor table."""

    name: str
    output: bool
    optional: bool
    array: bool
    """True for `Array of inputs` and `Array of outputs`."""
    shape_name: str | None
    """Name from `{ InputDimensions[] }`: tensors that share it have equal sizes."""
    dimensions: tuple[Dimension, ...] | None
    """Dimensions from `{ N, C, H, W }`."""
    ranks: tuple[int, ...]
    """Permitted dimension counts, ascending; 1 to 8 where the table does not say."""
    dtypes: tuple[DataType, ...]
    """Permitted data types, in the table's order."""
    span: Span
    array_name: str | None = None
    """Array that an entry such as `InputTensors[0]` belongs to."""

    @property
    def row(self) -> str:
        """The name in the table."""
        return self.name if self.array_name is None else self.array_name

    @property
    def holds_floats(self) -> bool:
        """Whether it may hold floating-point numbers, and so have a gradient."""
        return any(t.is_float for t in self.dtypes)

    def entry(self, number: int) -> TensorDefinition:
        """One tensor of an array."""
        name = f"{self.name}[{number}]"
        return dataclasses.replace(self, name=name, array=False, array_name=self.name)


@dataclasses.dataclass(frozen=True, slots=True)
class AttributeDefinition:
    """A row of an attribute table. Of type ENUM it has an `enum`, and of type STRING `values`."""

    name: str
    type: AttributeType
    enum: EnumDefinition | None
    values: tuple[str, ...] | None
    """Permitted values of a string, or of a number with a `Values` column."""
    is_array: bool
    length: syntax.Expression | None
    """Length of an array, or None for any (`UINT[]`)."""
    default: syntax.Expression | None
    span: Span

    @property
    def base(self) -> str:
        """Name of its type; ENUM for all enums."""
        return self.type.name


def mistake(
    declared: TensorDefinition | AttributeDefinition, message: str, *notes: Note, code: str
) -> Diagnostic:
    """Diagnostic about a caller's value for a row of a table, with a note at the row."""
    return Diagnostic(message, None, (*notes, Note("declared here", declared.span)), code=code)


@dataclasses.dataclass(frozen=True, slots=True)
class TensorLevel:
    """Tensors of one feature level; `level` is None if the table names none."""

    level: str | None
    tensors: tuple[TensorDefinition, ...]

    @property
    def outputs(self) -> tuple[TensorDefinition, ...]:
        return tuple(t for t in self.tensors if t.output)

    @property
    def inputs(self) -> tuple[TensorDefinition, ...]:
        return tuple(t for t in self.tensors if not t.output)

    def tensor(self, name: str) -> TensorDefinition | None:
        return next((t for t in self.tensors if t.name == name), None)


def level_number(level: str | None) -> tuple[int, int] | None:
    """The number of a feature level: `(5, 1)` of `DML_FEATURE_LEVEL_5_1`."""
    match = re.search(r"(\d+)_(\d+)$", level or "")
    return None if match is None else (int(match[1]), int(match[2]))


@dataclasses.dataclass(frozen=True, slots=True)
class TypeCombination:
    """A row of a `types` table: for each tensor it names, the permitted types."""

    types: Mapping[str, tuple[DataType, ...]]
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class GradientDefinition:
    """Forward operator of an operator with `gradient of`, and the rows that match its tensors."""

    forward: OperatorDefinition
    gradients: Mapping[str, str]
    """Row of the gradient of each forward tensor: an input for its outputs, an output for its
    inputs."""
    values: Mapping[str, str]
    """Input with the value of each forward tensor."""
    attributes: Mapping[str, str]
    """Attribute with the value of each forward attribute."""
    span: Span

    def rows(self, name: str) -> tuple[str, ...]:
        """Rows of a forward tensor: its value first, then its gradient."""
        return tuple(found[name] for found in (self.values, self.gradients) if name in found)


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorDefinition:
    name: str
    """Qualified: `directml.ACTIVATION_RELU_GRAD`."""
    doc: str | None
    introduced: str | None
    forward: str | None
    """Qualified name of the forward operator that `forward` declares."""
    attributes: tuple[AttributeDefinition, ...]
    levels: tuple[TensorLevel, ...]
    """Feature levels, oldest first, at least one."""
    combinations: tuple[TypeCombination, ...]
    constraints: tuple[syntax.Constraint, ...]
    compute: tuple[syntax.Statement, ...] | None
    gradient: GradientDefinition | None
    """Derivation in place of `compute`; None also in a file checked without the library that has
    the forward operator."""
    examples: tuple[syntax.Example, ...]
    functions: Mapping[str, syntax.ScalarFunction]
    """Declared in the file or its imports; the functions of `compute` are among its statements."""
    enums: Mapping[str, EnumDefinition]
    syntax: syntax.Operator
    partner: OperatorDefinition | None = dataclasses.field(default=None, repr=False)
    """Operator that `forward` names, if the file, an import or the library has it."""
    broken: frozenset[str] = frozenset()
    """Names of table rows that could not be read; an error was reported there."""

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def differences(self) -> tuple[syntax.Difference, ...]:
        """Sections `differs`: results that differ from those of other implementations."""
        return self.syntax.differences

    @property
    def requirements(self) -> list[syntax.Require]:
        return [c for c in self.constraints if isinstance(c, syntax.Require)]

    def sentences(self, *kinds: str) -> list[syntax.Sentence]:
        """Sentences of these kinds; of all kinds if none is named."""
        found = [c for c in self.constraints if isinstance(c, syntax.Sentence)]
        return [c for c in found if not kinds or c.kind in kinds]

    @property
    def has_formula(self) -> bool:
        """Whether it has a formula. A description without one is checked, formatted and shown, but
        cannot be bound."""
        derived = self.gradient is not None or self.syntax.gradient_of is not None
        return derived or self.compute is not None

    def expect_formula(self) -> None:
        """Raises `DmlcError` if it, or its forward operator, has no formula."""
        if self.gradient is not None:
            self.gradient.forward.expect_formula()
        if not self.has_formula:
            message = f"operator '{self.name}' has no formula: it cannot be compiled"
            raise DmlcError(message, self.syntax.name.span, [FORMULA_CURE], code="E0508")

    @property
    def newest(self) -> TensorLevel:
        """The tensors of the newest feature level."""
        return self.levels[-1]

    @property
    def order(self) -> int:
        """Order of the gradient: 0 for an operator with `compute`."""
        count, gradient = 0, self.gradient
        while gradient is not None:
            count, gradient = count + 1, gradient.forward.gradient
        return count

    @property
    def is_differentiable(self) -> bool:
        """Whether it has both floating-point inputs and floating-point outputs."""
        tensors = self.newest
        return all(any(t.holds_floats for t in some) for some in (tensors.inputs, tensors.outputs))

    def attribute(self, name: str) -> AttributeDefinition | None:
        return next((a for a in self.attributes if a.name == name), None)

    def arrays_of_length(self, name: str) -> tuple[AttributeDefinition, ...]:
        """The array attributes whose length is the attribute of that name: `UINT[AxisCount]`."""
        return tuple(
            a
            for a in self.attributes
            if isinstance(a.length, syntax.Reference) and a.length.name == name
        )

    def list_missing(self, given: Container[str]) -> list[TensorDefinition | AttributeDefinition]:
        """Rows that a call must give and does not. The length of an array, `AxisCount` for `Axes`,
        follows from the array; if both are missing, only the array is listed."""
        tensors = [t for t in self.newest.tensors if not t.optional and (not t.output or t.array)]
        attributes = [
            a
            for a in self.attributes
            if a.default is None
            and not any(
                array.default is None or array.name in given
                for array in self.arrays_of_length(a.name)
            )
        ]
        return [row for row in (*tensors, *attributes) if row.name not in given]


@dataclasses.dataclass(frozen=True, slots=True)
class GraphDefinition:
    name: str
    """Qualified, as an operator's."""
    syntax: syntax.Graph
    operators: Mapping[str, OperatorDefinition]
    """Operators that the graph calls, by the names in its calls."""
    functions: Mapping[str, syntax.ScalarFunction]
    enums: Mapping[str, EnumDefinition]

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


class Library(Protocol):
    """Operators that a graph may call without an import, by qualified name."""

    def names(self) -> Iterable[str]: ...

    def find(self, name: str) -> OperatorDefinition | None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class ModuleDefinition:
    """A checked file with its imports: operators and graphs by qualified name.

    `diagnostics` holds warnings; errors are raised instead.
    """

    source: Source
    operators: Mapping[str, OperatorDefinition]
    graphs: Mapping[str, GraphDefinition]
    diagnostics: tuple[Diagnostic, ...]
