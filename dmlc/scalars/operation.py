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
    """Which operands an operation takes. All operands of one operation share one type."""

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
    """NumPy arrays of one type in, one array out. Warnings are the caller's to silence."""

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
        """The type of the result where the operands have type `operand`."""
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
    """True for infix text: inside other infix text it goes in parentheses."""
    helper: str | Operation | None = None
    """What the text calls: a helper function by its key, or a function that is written out."""
    vector: str | None = None
    """The text for vectors, where it differs; as compound as the other."""
    four: str | None = None
    """The text for vectors of four, where it differs from that."""
    within: str | None = None
    """The infix text where the second operand is a literal well within its type: a shift by less
    than the number of bits, or a divisor far from where floats end. For scalars; for vectors too,
    where it is two operands and an operator, and nothing else."""
    vector_helper: str | None = None
    """The key of the helper that the text for vectors calls, where it is another."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unsupported:
    """Why a language has no way to write something: `HLSL has no ...`."""

    reason: str


Entry: TypeAlias = Spelling | Unsupported


class Way(enum.Enum):
    """Ways in which many operations are written."""

    INFIX = "by the infix text that the languages have in common"
    CALL = "by a call of the language's function of the same name"
    HELPER = "by a function of the same name in the language's file of `templates/`"
    ROUTINE = "by the routine of the type, written out"


Spelled: TypeAlias = Entry | Way | tuple[Entry | Way, Entry | Way]
"""How a language writes an operation on floats: of both types, or of FLOAT32 and of FLOAT64."""


# Derivatives ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Share of the adjoint that an operand gets: `value` where each condition is as the boolean
    beside it says, and 0 elsewhere. Conditions stay outside of all that is computed from a value,
    so that the NaN of a value that was not chosen stays out of the gradient."""

    operand: int
    value: Value
    conditions: tuple[tuple[Value, bool], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """An operation where its adjoint, the derivative by its result, is known."""

    d: Value
    """The adjoint."""
    y: Value
    """The result."""
    operands: tuple[Value, ...]
    moving: tuple[bool, ...]
    """Which operands depend on what is differentiated by."""
    ending: bool
    """Whether the first operand is at its least where it is 0: it may be, and cannot be negative,
    by its formula."""

    @property
    def x(self) -> Value:
        """The first operand."""
        return self.operands[0]


Derivative: TypeAlias = Callable[[Point], "Value | Sequence[Value] | Sequence[Part]"]
"""Rule that shares the adjoint among the operands: a value for each of them, in order, or parts. It
holds exactly, kinks included."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kinks:
    """Sentences that publish the derivative chosen where an operation has no one derivative; None
    where it has no such place."""

    point: str | None
    """At a value of one operand."""
    tie: str | None
    """In place of that, where all operands move."""
    end: str | None
    """In place of that, where the first operand cannot be negative and is 0."""


SMOOTH = Kinks(None, None, None)
"""Those of an operation that has none."""


# Facts ----------------------------------------------------------------------------------------


class Error(enum.Enum):
    """How far an operation on floats may be from the exact result."""

    NONE = "it rounds nothing"
    ROUNDED = "half a unit in the last place, on every device"
    PROMISED = "what a device promises"
    FEW_UNITS = "4 units in the last place"
    FUNCTION = "a few units in the last place, which differ between the backends"


class Keeps(enum.Enum):
    """When a result has a property that its operands may have."""

    NEVER = "not known to have it"
    OPERANDS = "where all operands have it"
    NUMBER = "wherever it is a number, which it is not for every number"
    ALWAYS = "wherever it is a number"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Record(Operation):
    """All that is known of a scalar operation. `None` says that there is no such thing."""

    boolean: bool
    """Whether it gives BOOL."""
    symbol: str | None
    """The infix or prefix spelling in the operator language, if it has one."""
    narrows: DataType | None
    """`rounds_to` of the operation."""
    internal: bool
    """True where the operator language has no name for it: passes alone make it."""
    meaning: str
    """A phrase for the documentation."""
    edges: Mapping[str, str]
    """Edge cases as facts, `min(1, nan) = nan; ...`, by the kind of type that they are of: `float`,
    `integer` (INDEX too), `signed`, `unsigned`, `boolean`. `MIN`, `MAX` and `WIDTH` are those of
    the type. Tests hold the NumPy function to each."""
    derivative: Derivative | Unsupported | None
    """None where it is 0: roundings, signs, comparisons and integers. `Unsupported` where it has
    none: a gradient that goes through it is refused."""
    kinks: Kinks
    cost: int
    """Its time, in additions."""
    error: Error
    range: Callable[..., Fraction] | None
    """The range of the result from those of the operands, on every device; None where anything is
    possible."""
    never_negative: Keeps
    """Whether the result is 0 or more."""
    whole: Keeps
    """Whether the result is a whole number, infinite or NaN."""
    limits: tuple[float, ...]
    """Numbers that it comes ever nearer to as its operand grows. It is exact from where a limit is
    the nearest number of its type."""
    formula: Callable[..., Value] | None
    """Expression of other operations that computes it of floats, within its error, for a language
    that has no operation for it. None where each language must have one."""
    float32: Routine | None
    """Routine of FLOAT32 for a language that has no function for it, or none that can be relied
    on."""
    float64: Routine | None
    """The same of FLOAT64."""
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
    """ONNX's operator for values as `onnx` holds them; None where `formula` or several nodes of
    `onnx.arithmetic` are in its place."""
    mlir: tuple[str, str, str]
    """The operation of MLIR for floats, for signed integers and positions, and for unsigned
    integers and BOOL; of a comparison, the predicates. Empty for what it does not take, and where
    `formula` or several operations of `mlir.operations` are in its place."""
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
    """Records by name, in the order in which they are made."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def add(self, record: Record) -> Record:
        """Adds a record. Raises `ValueError` where there is one of that name."""
        if record.name in self.records:
            raise ValueError(f"there are two records of the scalar operation '{record.name}'")
        self.records[record.name] = record
        return record
