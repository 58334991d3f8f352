"""Kernel IR: one kernel as structured, typed code that no output language has touched yet.

Expressions are trees; what is used more than once is a named local (`Let`). A kernel works on
flat buffers: all index arithmetic is explicit, in `i32` or `i64` as the kernel says. A type with
`lanes` above 1 is a vector; an operation on vectors is element by element, and a BOOL vector is
what comparisons of vectors give and `Select` takes. Besides buffers there are variables and small
arrays, a work item's own or shared by its group, for what reductions gather; and matrices, which
the items of a subgroup hold together and multiply by instructions of their own.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TypeAlias

from dmlc.scalars import DataType, Operation


@dataclasses.dataclass(frozen=True, slots=True)
class Type:
    """A value's type. INDEX is spelled as an integer of 32 or 64 bits, as the kernel's `index_bits`
    says; unsigned, unless its `index_signed` says otherwise."""

    dtype: DataType
    lanes: int = 1


INDEX = Type(DataType.INDEX)
BOOL = Type(DataType.BOOL)


# Expressions ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Literal:
    """A number as it stands. Two are equal when they are the same bits: -0.0 is not 0.0, and every
    NaN is the one NaN."""

    type: Type
    value: bool | int | float
    """One value; a vector literal repeats it."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal) or self.type != other.type:
            return False
        if self.value == other.value:
            return math.copysign(1, self.value) == math.copysign(1, other.value)
        return math.isnan(self.value) and math.isnan(other.value)

    def __hash__(self) -> int:
        return hash((self.type, 0 if math.isnan(self.value) else self.value))


@dataclasses.dataclass(frozen=True, slots=True)
class Local:
    """A name that a `Let`, a `Variable` or a loop around this place defines."""

    name: str
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar argument of the kernel (the element count, for one)."""

    name: str
    type: Type = INDEX


class Geometry(enum.Enum):
    """Where in the launch this work item is."""

    GROUP = "group"
    """The linear number of the work group."""
    LANE = "lane"
    """The linear number of the work item in its group."""
    SUBGROUP = "subgroup"
    """The number of the item's subgroup in its group."""


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    geometry: Geometry
    type: Type = INDEX


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Elements `index .. index + lanes` of a buffer, widened to the compute type."""

    buffer: str
    index: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Operate:
    operation: Operation
    operands: tuple[Expression, ...]
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Select:
    condition: Expression
    then: Expression
    otherwise: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Convert:
    operand: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Reinterpret:
    """The value whose bits are those of `operand`, in another type as wide."""

    operand: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Broadcast:
    """A scalar repeated in every lane."""

    operand: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """A vector of whole numbers, one for each lane."""

    values: tuple[int, ...]
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Lead:
    """How many elements of a buffer stand before the first one whose address is a multiple of
    so many bytes: seen at run time, below `bytes` / element size."""

    buffer: str
    bytes: int
    type: Type = INDEX


@dataclasses.dataclass(frozen=True, slots=True)
class LoadLocal:
    """Elements `index .. index + lanes` of an array."""

    array: str
    index: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Join:
    """A vector of two vectors of half its lanes."""

    low: Expression
    high: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Extract:
    """Some lanes of a vector: a scalar, where it is one."""

    operand: Expression
    lanes: tuple[int, ...]
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Shuffle:
    """A vector of lanes of two vectors of its type: those of `second` are numbered on after those
    of `first`."""

    first: Expression
    second: Expression
    lanes: tuple[int, ...]
    type: Type


Expression: TypeAlias = (
    Literal
    | Local
    | Scalar
    | Position
    | Load
    | Operate
    | Select
    | Convert
    | Reinterpret
    | Broadcast
    | Numbers
    | Lead
    | LoadLocal
    | Join
    | Extract
    | Shuffle
)


# Statements ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Let:
    local: Local
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A local that `Assign` may change, and what it holds first."""

    local: Local
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Assign:
    local: Local
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class StoreLocal:
    """Elements `index .. index + lanes` of an array take `value`."""

    array: str
    index: Expression
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Barrier:
    """Every work item of the group comes here, and then sees what the others put into shared
    arrays. All of them reach it, or none."""

    memory: bool = False
    """Whether it sees what they stored to buffers, too: in a launch of one group."""


@dataclasses.dataclass(frozen=True, slots=True)
class For:
    """`for (variable = start; variable < stop; variable += step)`. With `unroll`, the output
    language is asked to unroll it, and with `rolled`, not to; with `backwards`, the last comes
    first, and the step is 1."""

    variable: Local
    start: Expression
    stop: Expression
    step: int
    body: tuple[Statement, ...]
    unroll: bool = False
    backwards: bool = False
    rolled: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class If:
    condition: Expression
    then: tuple[Statement, ...]
    rare: bool = False
    """Whether it is for what hardly ever happens. Changes nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """Elements `index .. index + lanes` of a buffer take `value`, rounded to what it stores."""

    buffer: str
    index: Expression
    value: Expression
    streaming: Expression | None = None
    """A BOOL: where it holds, the store may pass the caches by (a hint, no change of meaning)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prefetch:
    """A hint, without which nothing changes: element `index` of a buffer is read soon."""

    buffer: str
    index: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class InsertHalf:
    """Half a word, the lower (0) or the upper (1), takes `value` rounded to what `buffer`
    stores. It is put in once."""

    word: Local
    buffer: str
    half: Expression
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class StoreWord:
    """Word `index` of a buffer takes `word`: two neighbouring elements of 16 bits."""

    buffer: str
    index: Expression
    word: Local


@dataclasses.dataclass(frozen=True, slots=True)
class FillMatrix:
    """All elements of a matrix take a value, the same in all items of a subgroup."""

    matrix: str
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class LoadMatrix:
    """A matrix takes elements of an array or a buffer: from `index` on row by row, rows `stride`
    apart; if it is `transposed`, column by column. Items of a subgroup agree on the index. Each row
    begins at a multiple of its bytes, or of `ROW_BYTES` where it is longer: Vulkan demands that."""

    matrix: str
    array: str
    index: Expression
    stride: int
    transposed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class StoreMatrix:
    """An array or a buffer takes the elements of a matrix: from `index` on row by row, rows
    `stride` apart, as `LoadMatrix` reads them."""

    array: str
    index: Expression
    matrix: str
    stride: int


@dataclasses.dataclass(frozen=True, slots=True)
class MultiplyMatrices:
    """A matrix of sums takes the product of two others in addition: point by point, each product
    exact and each sum rounded. Devices add in an order, and with a precision, of their own."""

    sum: str
    left: str
    right: str


Statement: TypeAlias = (
    Let
    | Variable
    | Assign
    | StoreLocal
    | Barrier
    | For
    | If
    | Store
    | Prefetch
    | InsertHalf
    | StoreWord
    | FillMatrix
    | LoadMatrix
    | StoreMatrix
    | MultiplyMatrices
)


# Kernels -------------------------------------------------------------------------------------


class Access(enum.Enum):
    READ = "read"
    WRITE = "write"
    READ_WRITE = "read_write"


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor's memory. `name` is the IR tensor's name; output languages may have to alter it."""

    name: str
    dtype: DataType
    access: Access
    count: int | str | None = None
    """The number of elements, or the size that it is, where this is no tensor of the function but
    memory between two of its kernels."""
    bytes: int | None = None
    """What the kernel touches of it; None where that is known at run time only."""
    lanes: int = 1
    """Where more than 1, it is an array of vectors of so many elements: what is read and stored of
    it is one of these, or one element."""


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """An array of fixed size: a work item's own, or shared by its group. What they
    hold first is undefined."""

    name: str
    dtype: DataType
    """What it holds: values are computed with in `dtype.compute`, as those of buffers are."""
    size: int
    shared: bool = False
    lanes: int = 1
    """Where more than 1, it is an array of vectors of so many elements: what is read and stored of
    it is one of these. Of registers, an element may be read, too."""
    registers: bool = False
    """Whether each of its elements, or vectors of them, becomes a local of its own: all places are
    known once the loops are written out that go over them, by the time that it is printed or by a
    compiler."""


ROW_BYTES = 16
"""At a multiple of so many bytes begins each row that a matrix is read from or stored to."""


class Use(enum.Enum):
    """What a matrix is in a product: a factor, or the sum of products."""

    LEFT = "left"
    RIGHT = "right"
    SUM = "sum"


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix that the items of each subgroup hold together. What it holds first is undefined."""

    name: str
    dtype: DataType
    rows: int
    columns: int
    use: Use

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def lay(self, statement: LoadMatrix | StoreMatrix) -> tuple[int, int]:
        """How many rows it has in memory, and the elements of each: those of a matrix that is
        transposed are its columns."""
        is_turned = isinstance(statement, LoadMatrix) and statement.transposed
        return (self.columns, self.rows) if is_turned else (self.rows, self.columns)

    def align(self, statement: LoadMatrix | StoreMatrix) -> int:
        """The elements of which a multiple lies before each row."""
        _, length = self.lay(statement)
        return min(length, ROW_BYTES // self.dtype.bytes)


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """How many work groups run: `ceil(count / per_group)` of `group_size` items, where `count`
    is a number or the symbol of a run-time size. With `row`, they may be laid out in rows of that
    many groups, and `Geometry.GROUP` numbers them row by row."""

    count: int | str
    per_group: int
    group_size: int
    row: int | None = None
    subgroup: int = 0
    """The items of a subgroup, of which matrices are; 0 where it does not matter."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """What one launch runs: statements on flat buffers, and how many work items run them."""

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[tuple[Scalar, int | str], ...]
    """Each with what it is: a number fixed at compile time, or the symbol of a run-time size."""
    launch: Launch
    body: tuple[Statement, ...]
    index_bits: int = 32
    summary: tuple[str, ...] = ()
    """Lines for a person: the formula of each stage the kernel computes."""
    walk: str = ""
    """For a person: in which order the elements are computed."""
    arrays: tuple[Array, ...] = ()
    effort: float = 1.0
    """About how often it goes through its buffers, 16-bit floats counting as the 32 bits they are
    computed in; 1 where it moves every byte once and computes little."""
    index_signed: bool = False
    """Whether intermediate positions may be negative."""
    stages: tuple[str, ...] = ()
    """The stages of the function that it computes, or reduces a part of."""
    passes: tuple[tuple[str, ...], ...] = ()
    """Those of them whose operands it reads, pass by pass over its points; none where its
    statements are text, whose steps no formula counts."""
    apart: str = ""
    """For a person: why it is but one of the kernels of its group, where that has several."""
    schedule: tuple[str, ...] = ()
    """For a person: its loops, one per line."""
    title: str = ""
    """What a file of schedules calls it: after the last tensor that it stores."""
    script: tuple[str, ...] = ()
    """The calls that have made its loops of the naive ones; nothing where no script has."""
    cut: tuple[str, ...] = ()
    """Where it reduces pieces for another kernel: what that is called, and the call that has cut
    the points."""
    matrices: tuple[Matrix, ...] = ()
    row: str = ""
    """The row of the schedule table that its numbers are of; empty: of none."""
    steps: int | str = 0
    """Where it goes through the steps of a loop over time itself, how many these are: a number, or
    a run-time size."""

    @property
    def index_limits(self) -> tuple[int, int]:
        """The least and the largest position that it computes with."""
        half = 1 << (self.index_bits - 1)
        return (-half, half - 1) if self.index_signed else (0, 2 * half - 1)


# Functions -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Function:
    """What an operation computes, written out for languages that lack it or have it with other
    results. Kernels call it; it reads nothing but its parameters."""

    name: str
    parameters: tuple[Scalar, ...]
    steps: tuple[Let, ...]
    result: Expression
    note: tuple[str, ...] = ()
    """Lines for a person: what it computes."""

    def as_kernel(self) -> Kernel:
        """The steps, and then the result as a local of that name, as a kernel without buffers: for
        what verifies, changes and spells kernels."""
        last = Let(Local("result", self.result.type), self.result)
        scalars = tuple((p, p.name) for p in self.parameters)
        return Kernel(self.name, (), scalars, Launch(1, 1, 1), (*self.steps, last))
