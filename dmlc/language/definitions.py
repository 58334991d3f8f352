"""What a checked file means: operators, graphs, enums and functions with every name resolved.

`check` makes these from the syntax tree; binding reads them. Table cells have become types and
ranks, and each definition carries what its expressions may name, so that nothing has to look
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
"""What mends an operator without a formula."""


def qualify(module: str | None, name: str) -> str:
    """A declared name with its module; a dotted one has it already."""
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
class FunctionDefinition:
    """A scalar function, inlined at its calls."""

    name: str
    parameters: tuple[str, ...]
    body: syntax.Expression
    span: Span
    gradients: tuple[syntax.FunctionGradient, ...] = ()
    """Its derivatives with respect to some parameters, where they are not those of the body."""

    @staticmethod
    def of(function: syntax.ScalarFunction) -> FunctionDefinition:
        name, parameters = function.name, tuple(p.text for p in function.parameters)
        return FunctionDefinition(
            name.text, parameters, function.body, name.span, function.gradients
        )

    @property
    def expressions(self) -> tuple[syntax.Expression, ...]:
        """The body, and the formulas of its gradients."""
        return (self.body, *(gradient.value for gradient in self.gradients))


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
    """From `{ InputDimensions[] }`: tensors that share it have equal sizes."""
    dimensions: tuple[Dimension, ...] | None
    """From `{ N, C, H, W }`."""
    ranks: tuple[int, ...]
    """Permitted dimension counts, ascending; 1 to 8 where the table does not say."""
    dtypes: tuple[DataType, ...]
    """Permitted data types, in the table's order."""
    span: Span
    array_name: str | None = None
    """Of an entry of an array of tensors, `InputTensors[0]`: the array's name."""

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
    """What a string may be, or the values a number is limited to by the `Values` column."""
    is_array: bool
    length: syntax.Expression | None
    """Of an array: its length, or None where any will do (`UINT[]`)."""
    default: syntax.Expression | None
    span: Span

    @property
    def base(self) -> str:
        """The name of its type, which is ENUM where it has an enum."""
        return self.type.name


def mistake(
    declared: TensorDefinition | AttributeDefinition, message: str, *notes: Note, code: str
) -> Diagnostic:
    """A mistake in what a caller gives for a row of a table, with the row."""
    return Diagnostic(message, None, (*notes, Note("declared here", declared.span)), code=code)


@dataclasses.dataclass(frozen=True, slots=True)
class TensorLevel:
    """The tensors of one feature level; `level` is None where the table names none."""

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
    """What an operator with `gradient of` is derived from, and what its own tables call that."""

    forward: OperatorDefinition
    gradients: Mapping[str, str]
    """Of tensors of the forward operator, the row that holds the gradient: an input of its outputs,
    an output of its inputs."""
    values: Mapping[str, str]
    """Of tensors of the forward operator, the input that holds the value."""
    attributes: Mapping[str, str]
    """Of attributes of the forward operator, the attribute that says it."""
    span: Span

    def rows(self, name: str) -> tuple[str, ...]:
        """The rows that stand for a tensor of the forward operator, its value first."""
        return tuple(found[name] for found in (self.values, self.gradients) if name in found)


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorDefinition:
    name: str
    """Qualified: `directml.ACTIVATION_RELU_GRAD`."""
    doc: str | None
    introduced: str | None
    forward: str | None
    """Qualified name of the operator this one is the gradient of."""
    attributes: tuple[AttributeDefinition, ...]
    levels: tuple[TensorLevel, ...]
    """Oldest first, at least one."""
    combinations: tuple[TypeCombination, ...]
    constraints: tuple[syntax.Constraint, ...]
    compute: tuple[syntax.Statement, ...] | None
    gradient: GradientDefinition | None
    """In place of `compute`; None too where a file is checked without the library that has the
    operator it names."""
    examples: tuple[syntax.Example, ...]
    functions: Mapping[str, FunctionDefinition]
    """Declared in the file or its imports; the functions of `compute` are among its statements."""
    enums: Mapping[str, EnumDefinition]
    syntax: syntax.Operator
    partner: OperatorDefinition | None = dataclasses.field(default=None, repr=False)
    """The operator that `forward` names, where the file, an import or the library has it."""
    broken: frozenset[str] = frozenset()
    """The names of rows of its tables that could not be read: a mistake was reported there."""

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def differences(self) -> tuple[syntax.Difference, ...]:
        """What others give something else for than it does."""
        return self.syntax.differences

    @property
    def has_formula(self) -> bool:
        """Whether it says how its outputs are computed. A description without that is checked,
        formatted and shown; it cannot be bound."""
        derived = self.gradient is not None or self.syntax.gradient_of is not None
        return derived or self.compute is not None

    def expect_formula(self) -> None:
        """Raises `DmlcError` where it has no formula, or what it is derived from has none."""
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
        """How many gradients are taken to get to it."""
        count, gradient = 0, self.gradient
        while gradient is not None:
            count, gradient = count + 1, gradient.forward.gradient
        return count

    @property
    def is_differentiable(self) -> bool:
        """Whether the operator is given floating-point numbers and gives some."""
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
        """What a call has to give and does not. An array brings its own length, `AxisCount` for
        `Axes`, and where it is missing only it is named."""
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
    """What the graph calls, by the name that each call has for it."""
    functions: Mapping[str, FunctionDefinition]
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
