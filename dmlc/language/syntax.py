"""Syntax tree of the operator language.

Nothing here is resolved: names are text, table cells are text. `check` resolves them
(`definitions`). Spans and spelling do not take part in comparisons, so that `parse(format(tree)) ==
tree`.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from dmlc.source import Source, Span


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """Node with the span of its source, which does not take part in comparisons."""

    span: Span = dataclasses.field(compare=False, repr=False, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Name(Node):
    """An identifier; a dotted one has its dots (`directml.RELU`)."""

    text: str


# Expressions ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Literal(Node):
    """A number, `inf`, `nan`, `true` or `false`; `text` is its spelling."""

    text: str
    value: bool | int | float = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class String(Node):
    """A string enumeration's value, as in `data_format == "NCX"`."""

    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class Array(Node):
    """`[1, 2]`, possibly nested."""

    items: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Reference(Node):
    """A bare name in an expression."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Member(Node):
    """`base.member`: a fact about a tensor, an output of a graph's call, a qualified name."""

    base: Expression
    member: Name


@dataclasses.dataclass(frozen=True, slots=True)
class Index(Node):
    """`base[i, j...]`, with `else value` for indices out of bounds. In a graph's call, `FLOAT32[N,
    C]` states an output's type and sizes."""

    base: Expression
    indices: tuple[Expression, ...]
    otherwise: Expression | None


@dataclasses.dataclass(frozen=True, slots=True)
class Argument(Node):
    """Argument of a call; `name` for `like: T` or a graph's `InputTensor: x`."""

    name: Name | None
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Call(Node):
    """`function(arguments)`; the function is a Reference or, in a graph, a Member chain."""

    function: Expression
    arguments: tuple[Argument, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Binding(Node):
    """`k : 3` or `o... : Sizes` in a reduction or an indexed definition: an index variable, and its
    extent if it is stated."""

    variable: Name
    pack: bool
    extent: Expression | None

    @property
    def text(self) -> str:
        """Variable in its source spelling."""
        return self.variable.text + ("..." if self.pack else "")


@dataclasses.dataclass(frozen=True, slots=True)
class Reduce(Node):
    """`sum[k : 3, l : n where condition](body)`."""

    combiner: Name
    bindings: tuple[Binding, ...]
    condition: Expression | None
    body: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Unary(Node):
    operator: str
    operand: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Binary(Node):
    operator: str
    left: Expression
    right: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Ternary(Node):
    condition: Expression
    then: Expression
    otherwise: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Pack(Node):
    """`expression...`: once per axis."""

    operand: Expression


Expression: TypeAlias = (
    Literal | String | Array | Reference | Member | Index | Call | Reduce | Unary | Binary
    | Ternary | Pack
)  # fmt: skip
"""Expressions. Parentheses have no node: the formatter writes those that are needed, and drops a
redundant pair around a whole right-hand side, `= (X > 0 ? dY : 0)`."""


# Declarations --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Import(Node):
    path: str


@dataclasses.dataclass(frozen=True, slots=True)
class EnumMember(Node):
    name: Name
    value: int


@dataclasses.dataclass(frozen=True, slots=True)
class Enum(Node):
    name: Name
    members: tuple[EnumMember, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionGradient(Node):
    """`gradient of f with respect to x = e`, behind the function `f`."""

    function: Name
    parameter: Name
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarFunction(Node):
    """`function f(x, y) = e`, or `f(x, y) = e` inside `compute`; `keyword` tells which."""

    name: Name
    parameters: tuple[Name, ...]
    body: Expression
    keyword: bool
    gradients: tuple[FunctionGradient, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Cell(Node):
    """Table cell, trimmed, with its emphasis marks."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class TableRow(Node):
    cells: tuple[Cell, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Table(Node):
    """The first row is the header; a `| --- |` row is not kept (`ruled` says there was one)."""

    header: TableRow
    rows: tuple[TableRow, ...]
    ruled: bool = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence(Node):
    """`A and B must have the same X and Y.`, `A must be broadcastable to B.`, `A must be a scalar.`
    `kind` is `same`, `broadcastable` or `scalar`."""

    kind: str
    subjects: tuple[Name, ...]
    objects: tuple[Name, ...]
    """Facts for `same` (DataType, DimensionCount, Sizes), the one target of `broadcastable`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Require(Node):
    condition: Expression
    message: str | None


Constraint: TypeAlias = Sentence | Require


@dataclasses.dataclass(frozen=True, slots=True)
class Assignment(Node):
    """`name = e`, or `name[i, j... : Sizes] = e` with index variables."""

    name: Name
    indices: tuple[Binding, ...] | None
    """None for a whole tensor."""
    value: Expression


Statement: TypeAlias = Assignment | ScalarFunction


@dataclasses.dataclass(frozen=True, slots=True)
class GradientLine(Node):
    """`dY = gradient of Y`, or `X = InputTensor`: the row for the gradient of a forward tensor, or
    for a tensor or attribute of the forward operator."""

    name: Name
    of: Name
    gradient: bool


@dataclasses.dataclass(frozen=True, slots=True)
class GradientOf(Node):
    """`gradient of NAME with respect to TENSORS`, or `gradient of NAME { ... }`."""

    operator: Name
    tensors: tuple[Name, ...]
    lines: tuple[GradientLine, ...] | None
    """None if the tensors are named instead."""


@dataclasses.dataclass(frozen=True, slots=True)
class Forward(Node):
    """`forward NAME`, or `forward NAME { ... }` with lines as `gradient of` has them."""

    operator: Name
    lines: tuple[GradientLine, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TensorsSection(Node):
    level: Name | None
    table: Table


@dataclasses.dataclass(frozen=True, slots=True)
class ExampleItem(Node):
    """`Name = value`, or `expect Name = value within 1e-5`; `Name[0] = value` for an array of
    tensors, `Name: INT8 = value` with a data type."""

    name: Name
    value: Expression
    expected: bool
    entry: int | None = None
    within: Literal | None = None
    """Largest permitted error of an element; None for the derived error bounds."""
    dtype: Name | None = None
    instead: Expression | None = None
    """Value after `instead of` in `differs`: the result of other implementations."""

    @property
    def tensor(self) -> str:
        """Name with its number, in its source spelling."""
        return self.name.text if self.entry is None else f"{self.name.text}[{self.entry}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Example(Node):
    title: str
    items: tuple[ExampleItem, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Difference(Example):
    """`differs "title" in Y[i...] where condition { ... }`: a deviation from other implementations,
    with an example."""

    tensor: Name | None = None
    """Output that differs; None for any."""
    indices: tuple[Binding, ...] | None = None
    condition: Expression | None = None
    """Condition on the elements, or on the calls, that may differ; None for all."""

    @property
    def defined(self) -> Assignment:
        """Condition as a statement that defines it, for each element of the output if it is
        indexed."""
        name = self.tensor or Name("differs", span=self.span)
        condition = self.condition or Literal("true", True, span=self.span)
        return Assignment(name, self.indices, condition, span=condition.span)


@dataclasses.dataclass(frozen=True, slots=True)
class Operator(Node):
    name: Name
    doc: str | None
    introduced: Name | None
    forward: Forward | None
    attributes: Table | None
    tensors: tuple[TensorsSection, ...]
    types: Table | None
    constraints: tuple[Constraint, ...] | None
    compute: tuple[Statement, ...] | None
    gradient_of: GradientOf | None
    examples: tuple[Example, ...]
    sections: tuple[tuple[str, Span], ...] = dataclasses.field(compare=False, repr=False)
    """Kind and span of every section, in source order."""
    differences: tuple[Difference, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TensorType(Node):
    """`FLOAT32[N, C, 1, 1]`: a data type name and sizes (numbers, symbols, expressions)."""

    dtype: Name
    sizes: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class GraphInput(Node):
    name: Name
    type: TensorType


@dataclasses.dataclass(frozen=True, slots=True)
class Gradient(Node):
    """`gradient of y with respect to x, w from dy`, of a graph."""

    of: tuple[Expression, ...]
    wrt: tuple[Expression, ...]
    """Names, or outputs of calls."""
    given: tuple[Expression, ...]
    """Gradient of each of `of`; empty if those are one value each."""


@dataclasses.dataclass(frozen=True, slots=True)
class GraphStatement(Node):
    """`name = e`, or `output name = e`; a gradient has a name for each tensor that it is with
    respect to."""

    names: tuple[Name, ...]
    value: Expression | Gradient
    output: bool

    @property
    def name(self) -> Name:
        """First name, which is the only one except in a gradient."""
        return self.names[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Graph(Node):
    name: Name
    symbols: tuple[Name, ...]
    inputs: tuple[GraphInput, ...]
    statements: tuple[GraphStatement, ...]


Declaration: TypeAlias = Import | Enum | ScalarFunction | Operator | Graph


@dataclasses.dataclass(frozen=True, slots=True)
class Comment(Node):
    """`// ...` or `/* ... */`, with its marks."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """One `.dml` text."""

    module: Name | None
    declarations: tuple[Declaration, ...]
    comments: tuple[Comment, ...] = dataclasses.field(compare=False)
    source: Source = dataclasses.field(compare=False, repr=False)
