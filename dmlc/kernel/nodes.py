"""Kernel IR: one kernel as structured, typed code, independent of the output language.

Expressions are trees; a value used more than once is a named local (`Let`). A kernel accesses flat
buffers: all index arithmetic is explicit, in `i32` or `i64` as the kernel says. A type with `lanes`
above 1 is a vector; operations on vectors are element-wise, and a BOOL vector is the result of
comparing vectors and the condition of `Select`. Besides buffers there are variables; small arrays,
private to a work item or shared by its group, for reductions; and matrices, which a subgroup holds
together and multiplies by special instructions.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TypeAlias

from dmlc.scalars import DataType, Operation


@dataclasses.dataclass(frozen=True, slots=True)
class Type:
    """Type of a value. INDEX is an integer of the kernel's `index_bits`, unsigned unless
    `index_signed`."""

    dtype: DataType
    lanes: int = 1


INDEX = Type(DataType.INDEX)
BOOL = Type(DataType.BOOL)


# Expressions ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Literal:
    """A number. Literals are equal if their bits are (so -0.0 is not 0.0), except that all NaNs are
    equal."""

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
    """Reference to a local that a preceding `Let` or `Variable`, or an enclosing loop, defines."""

    name: str
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar argument of the kernel, such as the element count."""

    name: str
    type: Type = INDEX


class Geometry(enum.Enum):
    """Coordinate of a work item in the launch."""

    GROUP = "group"
    """Linear number of the work group."""
    LANE = "lane"
    """Linear number of the work item in its group."""
    SUBGROUP = "subgroup"
    """Number of the item's subgroup in its group."""


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
    """Bits of `operand` as a value of another type of the same width."""

    operand: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Broadcast:
    """A scalar repeated in every lane."""

    operand: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """A vector of integer constants, one for each lane."""

    values: tuple[int, ...]
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Lead:
    """Number of elements of a buffer before the first one aligned to `bytes`, known at run time:
    less than `bytes` / element size."""

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
    """Concatenation of two vectors of equal length."""

    low: Expression
    high: Expression
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Extract:
    """Selected lanes of a vector; a scalar if there is one."""

    operand: Expression
    lanes: tuple[int, ...]
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Shuffle:
    """Selected lanes of two vectors of one type. Lanes of `second` are numbered after those of
    `first`."""

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
    """A local that `Assign` may change, with its initial value."""

    local: Local
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Assign:
    local: Local
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class StoreLocal:
    """Stores `value` to elements `index .. index + lanes` of an array."""

    array: str
    index: Expression
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class Barrier:
    """Synchronization of a group's work items, after which each sees the others' stores to shared
    arrays. All of them reach it, or none."""

    memory: bool = False
    """Whether stores to buffers become visible too; only in a launch of one group."""


@dataclasses.dataclass(frozen=True, slots=True)
class For:
    """`for (variable = start; variable < stop; variable += step)`. The output language is asked to
    unroll it with `unroll`, and not to with `rolled`. With `backwards`, it runs from the last value
    to the first, and the step is 1."""

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
    """Hint that the condition is almost never true."""


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """Stores `value` to elements `index .. index + lanes` of a buffer, rounded to its type."""

    buffer: str
    index: Expression
    value: Expression
    streaming: Expression | None = None
    """Hint, as a BOOL: if true, the store may bypass the caches."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prefetch:
    """Hint that element `index` of a buffer is read soon."""

    buffer: str
    index: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class InsertHalf:
    """Sets half of a word, the lower (0) or the upper (1), to `value` rounded to the type of
    `buffer`. The half must not have been set before."""

    word: Local
    buffer: str
    half: Expression
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class StoreWord:
    """Stores `word`, two adjacent 16-bit elements, to word `index` of a buffer."""

    buffer: str
    index: Expression
    word: Local


@dataclasses.dataclass(frozen=True, slots=True)
class FillMatrix:
    """Sets all elements of a matrix to a value that is uniform in the subgroup."""

    matrix: str
    value: Expression


@dataclasses.dataclass(frozen=True, slots=True)
class LoadMatrix:
    """Loads a matrix from an array or a buffer: from `index` on, row by row with rows `stride`
    elements apart; column by column if `transposed`. The index is uniform in the subgroup. Each row
    is aligned to its length, or to `ROW_BYTES` if it is longer, as Vulkan requires."""

    matrix: str
    array: str
    index: Expression
    stride: int
    transposed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class StoreMatrix:
    """Stores a matrix to an array or a buffer: from `index` on, row by row with rows `stride`
    elements apart, aligned as for `LoadMatrix`."""

    array: str
    index: Expression
    matrix: str
    stride: int


@dataclasses.dataclass(frozen=True, slots=True)
class MultiplyMatrices:
    """Adds the product of two matrices to `sum`: in order of the inner index, each product exact
    and each sum rounded. A device's order and precision may differ."""

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
    """Memory of a tensor. `name` is the IR tensor's name; an output language may have to change
    it."""

    name: str
    dtype: DataType
    access: Access
    count: int | str | None = None
    """Number of elements, or its size expression, of memory between two kernels that is no tensor
    of the function."""
    bytes: int | None = None
    """Bytes that the kernel touches; None if known at run time only."""
    lanes: int = 1
    """Above 1: it is an array of vectors of as many lanes, and accesses move one of these, or one
    element."""


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """Array of fixed size, private to a work item or shared by its group. Its initial elements are
    undefined."""

    name: str
    dtype: DataType
    """Stored type; values are computed in `dtype.compute`, as with buffers."""
    size: int
    shared: bool = False
    lanes: int = 1
    """Above 1: it is an array of vectors of as many lanes, and accesses move one of these; loads
    from registers may also move one element."""
    registers: bool = False
    """Whether each element, or vector of elements, becomes a local: all indices are constants once
    the loops over it are unrolled, by a pass or by the output language's compiler."""


ROW_BYTES = 16
"""Alignment in bytes of rows in memory that matrices are loaded from and stored to."""


class Use(enum.Enum):
    """Role of a matrix in a product: a factor, or the accumulator."""

    LEFT = "left"
    RIGHT = "right"
    SUM = "sum"


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix that the items of each subgroup hold together. Its initial elements are
    undefined."""

    name: str
    dtype: DataType
    rows: int
    columns: int
    use: Use

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def lay(self, statement: LoadMatrix | StoreMatrix) -> tuple[int, int]:
        """Number of its rows in memory, and elements of each; transposed, these are its columns."""
        is_turned = isinstance(statement, LoadMatrix) and statement.transposed
        return (self.columns, self.rows) if is_turned else (self.rows, self.columns)

    def align(self, statement: LoadMatrix | StoreMatrix) -> int:
        """Alignment of each row in memory, in elements."""
        _, length = self.lay(statement)
        return min(length, ROW_BYTES // self.dtype.bytes)


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """Grid of a kernel: `ceil(count / per_group)` work groups of `group_size` items, where `count`
    is a number or the symbol of a run-time size. With `row`, the grid may have two dimensions, with
    rows of that many groups, and `Geometry.GROUP` numbers them row by row."""

    count: int | str
    per_group: int
    group_size: int
    row: int | None = None
    subgroup: int = 0
    """Items of a subgroup, if there are matrices; else 0."""

    def count_groups(self, count: int) -> int:
        """Number of work groups for a count; whole rows of them if there are several rows."""
        groups = -(-count // self.per_group)
        row = self.row or groups or 1
        return groups if groups <= row else -(-groups // row) * row


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """Code of one launch: statements on flat buffers, and the grid of work items that run them."""

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[tuple[Scalar, int | str], ...]
    """Scalar arguments, each with its value: a number fixed at compile time, or the symbol of a
    run-time size."""
    launch: Launch
    body: tuple[Statement, ...]
    index_bits: int = 32
    summary: tuple[str, ...] = ()
    """For readers: the formula of each stage that the kernel computes."""
    walk: str = ""
    """For readers: the order in which elements are computed."""
    arrays: tuple[Array, ...] = ()
    effort: float = 1.0
    """Estimated number of passes over its buffers, with 16-bit floats counted as the 32 bits they
    are computed in. It is 1 if every byte is moved once and little is computed."""
    index_signed: bool = False
    """Whether intermediate indices may be negative."""
    stages: tuple[str, ...] = ()
    """Stages of the function that it computes, wholly or in part."""
    passes: tuple[tuple[str, ...], ...] = ()
    """Stages whose operands it reads, by pass over its points; empty if its statements come from
    text."""
    apart: str = ""
    """For readers: why it is a separate kernel of its group, if that has several."""
    schedule: tuple[str, ...] = ()
    """For readers: its loops, one per line."""
    title: str = ""
    """Name in files of schedules: that of the last tensor that it stores."""
    script: tuple[str, ...] = ()
    """Schedule primitives that transformed the naive loops into its own; empty without a script."""
    cut: tuple[str, ...] = ()
    """If it makes partial reductions for another kernel: that kernel's title, and the call that
    split the reduction."""
    matrices: tuple[Matrix, ...] = ()
    row: str = ""
    """Row of the schedule table that its parameters come from; empty if none."""
    steps: int | str = 0
    """Number of steps of a loop over time that it runs by itself, if it does: a number or a
    run-time size."""

    @property
    def index_limits(self) -> tuple[int, int]:
        """Smallest and largest value of its index type."""
        half = 1 << (self.index_bits - 1)
        return (-half, half - 1) if self.index_signed else (0, 2 * half - 1)


# Functions -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Definition of an operation for languages that lack it, or whose own gives other results.
    Kernels call it; it depends on its parameters alone."""

    name: str
    parameters: tuple[Scalar, ...]
    steps: tuple[Let, ...]
    result: Expression
    note: tuple[str, ...] = ()
    """For readers: its meaning, in lines."""

    def as_kernel(self) -> Kernel:
        """The steps, then the result as the local `result`, as a kernel without buffers: input of
        the verifier, passes and printers of kernels."""
        last = Let(Local("result", self.result.type), self.result)
        scalars = tuple((p, p.name) for p in self.parameters)
        return Kernel(self.name, (), scalars, Launch(1, 1, 1), (*self.steps, last))
