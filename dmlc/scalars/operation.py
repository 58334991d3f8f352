"""The record of a scalar operation: all that the compiler knows of it, in one place.

A record's fields are strings, numbers and expressions: Python functions over `Value`s, which
whoever evaluates them makes. So the parts of the compiler read what they need of a record, and
this package imports none of them. No field has a default: `Record` without one raises `TypeError`,
which names it, where the record is made, and that is at import.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dmlc.scalars.expression import Routine, Value
from dmlc.scalars.fractions import Fraction
from dmlc.scalars.types import Array, DataType, Kind


class Operands(enum.Enum):
    """Operand types of an operation. All operands of one operation share one type."""

    NUMBER = "numbers"
    FLOAT = "floating-point numbers"
    FLOAT32 = "numbers of type FLOAT32"
    INTEGER = "integers"
    BOOL = "booleans"
    ANY = "values"

    def accept(self, dtype: DataType) -> bool:
        match self:
            case Operands.NUMBER:
                return dtype.kind is not Kind.BOOL
            case Operands.FLOAT:
                return dtype.is_float
            case Operands.FLOAT32:
                return dtype is DataType.FLOAT32
            case Operands.INTEGER:
                return dtype.is_integer or dtype.kind is Kind.INDEX
            case Operands.BOOL:
                return dtype.kind is Kind.BOOL
            case Operands.ANY:
                return True


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A scalar operation: its name, its operands and its NumPy function. Compared by identity."""

    name: str
    arity: int
    operands: Operands
    evaluate: Callable[..., Array]
    """Function from NumPy arrays of one type to one array. The caller silences warnings."""

    def __repr__(self) -> str:
        return f"Operation({self.name})"

    @property
    def gives_bool(self) -> bool:
        """Whether the result is BOOL, whatever the operands are."""
        return False

    @property
    def transcendental(self) -> bool:
        """Whether a backend may differ from the reference by a few units in the last place."""
        return False

    @property
    def rounds_to(self) -> DataType | None:
        """The 16-bit type whose values alone the result takes, as storing and loading it would."""
        return None

    def result_type(self, operand: DataType) -> DataType:
        """Type of the result for operands of type `operand`."""
        return DataType.BOOL if self.gives_bool else operand


# Spellings ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Spelling:
    """How something is written. In `text`, `{0}` and `{1}` stand for the operands inside infix
    text (compound ones in parentheses), `{a}` and `{b}` for the same operands as arguments of a
    call, `{T}` for their type, `{U}` for the unsigned integer of that width, `{R}` for the type
    of a conversion's result and `{H}` for the helper."""

    text: str
    compound: bool = False
    """Whether it is infix text, which needs parentheses inside other infix text."""
    helper: str | Operation | None = None
    """Callee in the text: a helper function by its key, or a generated function."""
    vector: str | None = None
    """Text for vectors, if it differs; infix if the scalar text is."""
    four: str | None = None
    """Text for vectors of four, if it differs from that."""
    within: str | None = None
    """Infix text for a second operand that is a literal well within its type: a shift by less than
    the number of bits, or a divisor far from the ends of the float range. For scalars; for vectors
    too, if it is just two operands and an operator."""
    vector_helper: str | None = None
    """Key of the helper that the text for vectors calls, if it differs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unsupported:
    """Reason that a language has no way to write something: `HLSL has no ...`."""

    reason: str


Entry: TypeAlias = Spelling | Unsupported


class Way(enum.Enum):
    """Ways of writing shared by many operations."""

    INFIX = "by the infix text that the languages have in common"
    CALL = "by a call of the language's function of the same name"
    HELPER = "by a function of the same name in the language's file of `templates/`"
    ROUTINE = "by the routine of the type, written out"


Spelled: TypeAlias = Entry | Way | tuple[Entry | Way, Entry | Way]
"""Spelling of an operation on floats in a language: for both types, or for FLOAT32 and for
FLOAT64."""


# Derivatives ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """Part of an operand's share of the adjoint: `value` where each condition has the boolean
    beside it, and 0 elsewhere. Conditions are applied last, so that the NaN of a value that is not
    chosen does not reach the gradient."""

    operand: int
    value: Value
    conditions: tuple[tuple[Value, bool], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Reverse:
    """Operation at a point with a known adjoint, the derivative with respect to its result."""

    d: Value
    """Adjoint."""
    y: Value
    """Result."""
    operands: tuple[Value, ...]
    moving: tuple[bool, ...]
    """Whether each operand depends on the differentiated variable."""
    ending: bool
    """Whether the first operand has its least value where it is 0, since its formula cannot be
    negative."""

    @property
    def x(self) -> Value:
        """First operand."""
        return self.operands[0]


Derivative: TypeAlias = Callable[[Reverse], "Value | Sequence[Value] | Sequence[Share]"]
"""Rule that distributes the adjoint to the operands: a value for each of them, in order, or parts.
It is exact, kinks included."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kinks:
    """Sentences about the derivative chosen at points without a unique derivative; None if there
    are no such points."""

    point: str | None
    """At a value of one operand."""
    tie: str | None
    """Instead of `point`, if all operands vary."""
    end: str | None
    """Instead of `point`, if the first operand cannot be negative and is 0."""


SMOOTH = Kinks(None, None, None)
"""Kinks of an operation without any."""


# Facts ----------------------------------------------------------------------------------------


class Error(enum.Enum):
    """Class of an operation's error on floats."""

    NONE = "it rounds nothing"
    ROUNDED = "half a unit in the last place, on every device"
    PROMISED = "what a device promises"
    FEW_UNITS = "4 units in the last place"
    FUNCTION = "a few units in the last place, which differ between the backends"


class Keeps(enum.Enum):
    """Condition under which a result inherits a property of its operands."""

    NEVER = "not known to have it"
    OPERANDS = "where all operands have it"
    NUMBER = "wherever it is a number, which it is not for every number"
    ALWAYS = "wherever it is a number"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Record(Operation):
    """Properties of a scalar operation. `None` says that it has no such property."""

    boolean: bool
    """Whether its result is BOOL."""
    symbol: str | None
    """Infix or prefix spelling in the operator language, if it has one."""
    narrows: DataType | None
    """`rounds_to` of the operation."""
    internal: bool
    """Whether the operator language has no name for it, since only passes create it."""
    meaning: str
    """Phrase for the documentation."""
    edges: Mapping[str, str]
    """Edge cases as facts, `min(1, nan) = nan; ...`, by the kind of type that they are of: `float`,
    `integer` (INDEX too), `signed`, `unsigned`, `boolean`. `MIN`, `MAX` and `WIDTH` are those of
    the type. Tests hold the NumPy function to each."""
    derivative: Derivative | Unsupported | None
    """None where it is 0: roundings, signs, comparisons and integers. `Unsupported` where it has
    none: a gradient that goes through it is refused."""
    kinks: Kinks
    cost: int
    """Cost relative to an addition."""
    error: Error
    range: Callable[..., Fraction] | None
    """Range of the result from those of the operands, on every device; None if unbounded."""
    never_negative: Keeps
    """Whether the result is at least 0."""
    whole: Keeps
    """Whether the result is a whole number, infinite or NaN."""
    limits: tuple[float, ...]
    """Limits of its values for growing operands. It is exact where a limit is the nearest number of
    its type."""
    formula: Callable[..., Value] | None
    """Expression of other operations that computes it on floats, within its error, for a language
    without the operation. None if each language must have one."""
    float32: Routine | None
    """Routine on FLOAT32 for a language without a reliable function for it."""
    float64: Routine | None
    """Routine on FLOAT64."""
    infix: str | None
    """C's infix text, `{0} + {1}`: the output languages share it where it means the same."""
    hlsl: Spelled | None
    """HLSL's text for floats; None where it takes none. The text for integers follows from their
    width and sign: `codegen.hlsl` has it."""
    opencl: Spelled | None
    """The same of OpenCL C."""
    wgsl: Spelled | None
    """The same of WGSL."""
    onnx: str | None
    """ONNX's operator for values as `onnx` holds them; None where `formula`, an expression of
    `scalars.defined` or several nodes of `onnx.arithmetic` are in its place."""
    mlir: tuple[str, str, str]
    """The operation of MLIR for floats, for signed integers and positions, and for unsigned
    integers and BOOL; of a comparison, the predicates. Empty for what it does not take, and where
    `formula`, an expression of `scalars.defined` or several operations of `mlir.operations` are in
    its place."""
    cgc: tuple[str, ...]
    """Names of the operation in the dialect `cgc_op` of Windows' Compute Graph Compiler: the one
    that is written, then others that are read. Empty where public texts name none."""
    torch: str | None
    """PyTorch's operator of one tensor that computes it, by its name in `aten`."""
    pages: tuple[str, ...]
    """Words and LaTeX commands that pages of documentation use for it."""

    @property
    def gives_bool(self) -> bool:
        return self.boolean

    @property
    def transcendental(self) -> bool:
        return self.error is Error.FUNCTION

    @property
    def rounds_to(self) -> DataType | None:
        return self.narrows


class Registry:
    """Records by name, in order of registration."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def add(self, record: Record) -> Record:
        """Adds a record. Raises `ValueError` for a duplicate name."""
        if record.name in self.records:
            raise ValueError(f"there are two records of the scalar operation '{record.name}'")
        self.records[record.name] = record
        return record
