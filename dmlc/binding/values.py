"""Compile-time values of attributes, sizes and literals, and arithmetic on them.

Numbers known when an operator is bound are *weak*: plain integers and real numbers, computed in
double precision and given a data type only by the other operand. Dividing two integers is real
division, as on the reference pages: `1 / 2` is 0.5, and `4 / 2` is the integer 2. Arrays (`Scales`,
`T.Sizes`) combine element by element.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dmlc.ir.nodes import IR_OPERATIONS
from dmlc.language.definitions import EnumDefinition
from dmlc.scalars import DataType, Operands, Operation, convert
from dmlc.sizes import Measure, Size, divide_down, divide_up, measure
from dmlc.source import DmlcError, InternalError, Span


@dataclasses.dataclass(frozen=True, slots=True)
class EnumValue:
    """A member of an enum."""

    enum: EnumDefinition = dataclasses.field(compare=False)
    member: str

    def __str__(self) -> str:
        return self.member


@dataclasses.dataclass(frozen=True, slots=True)
class OpenSize:
    """Size that is known when kernels run, or an expression of such sizes; also a fraction, until
    something rounds it."""

    size: Size
    over: int = 1
    """Denominator."""

    @staticmethod
    def of(extent: str) -> OpenSize:
        """Size of an axis of this extent."""
        size = measure(extent)
        if isinstance(size, int):
            raise InternalError(f"the size {extent} is a number")
        return OpenSize(size)

    @staticmethod
    def make(size: Measure, over: int) -> OpenSize | int | float:
        """Quotient of a size and a number, in lowest terms."""
        if isinstance(size, int):
            return size // over if size % over == 0 else size / over
        shared = math.gcd(over, *(n for _, n in size.terms)) * (1 if over > 0 else -1)
        divided = size.divide(shared)
        if not isinstance(divided, Size):
            raise InternalError(f"{size} is no multiple of {shared}")
        return OpenSize(divided, over // shared)

    @property
    def extent(self) -> str | None:
        """Extent of an axis of this size; None for a fraction."""
        return str(self.size) if self.over == 1 else None

    def __str__(self) -> str:
        if self.over == 1:
            return str(self.size)
        return f"{self.size if len(self.size.terms) == 1 else f'({self.size})'} / {self.over}"


@dataclasses.dataclass(frozen=True, slots=True)
class Undecided:
    """Comparison that depends on open sizes, or several joined by `&&` or `||`. No assumption about
    it is made before its truth is needed."""

    name: str
    """The operation: a comparison, `and` or `or`."""
    given: tuple[Scalar, ...]
    span: Span = dataclasses.field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.span.text


Scalar: TypeAlias = bool | int | float | str | EnumValue | DataType | OpenSize | Undecided
Constant: TypeAlias = Scalar | tuple["Constant", ...]
"""A compile-time value; a tuple is an array."""

_LARGEST = 2**64
TO_WHOLE = ("floor", "ceil", "round", "trunc")
"""Operations that map real numbers to whole ones."""


def describe(value: Constant) -> str:
    """Kind of a value, for messages."""
    match value:
        case bool() | Undecided():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case EnumValue():
            return f"a {value.enum.name}"
        case DataType():
            return "a data type"
        case OpenSize():
            return "a size that is left open"
        case tuple():
            return f"an array of {len(value)} values"


def show(value: Constant) -> str:
    """Value as it is written in the language."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case DataType():
            return value.name
        case tuple():
            return f"[{', '.join(show(v) for v in value)}]"
        case _:
            return str(value)


def measure_all(given: Sequence[Scalar]) -> tuple[list[Measure], int] | None:
    """Numbers and sizes times their common denominator, and that denominator; None for any other
    value."""
    parts = [_as_fraction(value) for value in given]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    over = math.lcm(*(part[1] for part in found))
    return [size * (over // own) for size, own in found], over


def _as_fraction(value: Scalar) -> tuple[Measure, int] | None:
    """Numerator and denominator of a number; None for a value that has none, or too large a
    denominator."""
    if isinstance(value, OpenSize):
        return value.size, value.over
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    above, below = value.as_integer_ratio()
    return (above, below) if below <= _FINEST else None


_FINEST = 2**20
"""Largest denominator of a fraction of an open size: doubles hold the product of such a fraction
and every size exactly, so that compile time and run time agree."""


def apply_open(operation: Operation, given: Sequence[Scalar]) -> Scalar | None:
    """Result of an operation on open sizes if it is the same for all sizes: a size, or the truth of
    a comparison; None otherwise."""
    found = measure_all(given)
    if found is None:
        return None
    sizes, over = found
    if operation.name in COMPARED:
        return _compare_open(operation.name, sizes[0], sizes[1])
    match operation.name, sizes:
        case ("add", [left, right]):
            return OpenSize.make(left + right, over)
        case ("sub", [left, right]):
            return OpenSize.make(left - right, over)
        case ("mul", [left, right]):
            return OpenSize.make(left * right, over * over)
        case ("neg", [size]):
            return OpenSize.make(size * -1, over)
        case ("div", [size, int(divisor)]) if divisor:
            return OpenSize.make(size * (1 if divisor > 0 else -1), abs(divisor))
        case ("mod", [Size() as size, int(divisor)]) if divisor and size.divide(divisor):
            return 0
        case ("mod", [Size() as size, int(divisor)]) if divisor > 0 and size.bounds()[0] >= 0:
            # The remainder has the sign of the dividend.
            return OpenSize.make(size - divide_down(size, divisor) * divisor, over)
        case ("floor", [size]):
            return OpenSize.make(divide_down(size, over), 1)
        case ("ceil", [size]):
            return OpenSize.make(divide_up(size, over), 1)
        case ("trunc" | "round", [size]) if over == 1:
            return OpenSize.make(size, 1)
        case ("min" | "max", [left, right]):
            below = _compare_open("le", left, right)
            if below is not None:
                return OpenSize.make(left if below == (operation.name == "min") else right, over)
        case _:
            pass
    return None


def _compare_open(name: str, left: Measure, right: Measure) -> bool | None:
    difference = left - right
    low, high = difference.bounds() if isinstance(difference, Size) else (difference, difference)
    match name:
        case "eq" | "ne":
            equal = True if low == high == 0 else False if low > 0 or high < 0 else None
            return equal if name == "eq" or equal is None else not equal
        case "lt":
            return True if high < 0 else False if low >= 0 else None
        case "le":
            return True if high <= 0 else False if low > 0 else None
        case _:
            return _compare_open("lt" if name == "gt" else "le", right, left)


COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
"""Comparisons, and their spelling in C."""


def expect_extent(value: OpenSize, what: str, span: Span) -> str:
    """Extent of an axis of this size. Raises `DmlcError` for a fraction."""
    extent = value.extent
    if extent is None:
        raise DmlcError(
            f"{what} comes to {value}, which may be a fraction: round it, as in floor(...), or "
            f"give {' and '.join(value.size.symbols)} numbers when binding",
            span,
            code="E0809",
        )
    return extent


def refuse_open(given: Sequence[Scalar], span: Span) -> DmlcError:
    """Error about a value that depends on open sizes and must be known at compile time."""
    symbols = dict.fromkeys(s for v in given if isinstance(v, OpenSize) for s in v.size.symbols)
    names = " and ".join(f"'{symbol}'" for symbol in symbols)
    left_open = f"the size {names} is" if len(symbols) == 1 else f"the sizes {names} are"
    notes = ["give it a number when binding"]
    if len(symbols) > 1:
        notes = ["give both one name if they are the same, or numbers when binding"]
    return DmlcError(
        f"{span_text(span)} must be known when binding, and {left_open} left open",
        span,
        notes,
        code="E0809",
    )


def is_number(value: Constant) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole_number(value: object) -> int | None:
    """Whole number of any representation as an `int`; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value == math.floor(value) else None


def apply_constant(operation: Operation, given: Sequence[Scalar], span: Span) -> Scalar:
    """Scalar operation on compile-time values."""
    if operation.operands is Operands.BOOL:
        return _apply_booleans(operation, given, span)
    if operation.name in ("eq", "ne"):
        return _equal(given[0], given[1], span) == (operation.name == "eq")
    numbers = [v for v in given if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) != len(given):
        wrong = next(v for v in given if not is_number(v))
        raise DmlcError(
            f"{spell(operation)} takes numbers, but {show(wrong)} is {describe(wrong)}",
            span,
            code="E0301",
        )
    integers = [v for v in numbers if isinstance(v, int)]
    if len(integers) == len(numbers):
        found = _apply_integers(operation, integers, span)
        if found is not None:
            if abs(found) > _LARGEST:
                raise DmlcError("a compile-time integer grows beyond 64 bits", span, code="E0307")
            return found
    if operation.operands is Operands.INTEGER:
        raise DmlcError(
            f"{spell(operation)} takes integers, but one operand is a fraction", span, code="E0301"
        )
    with np.errstate(all="ignore"):
        result = operation.evaluate(*(np.asarray(v, np.float64) for v in numbers))
    if operation.gives_bool:
        return bool(result)
    rounded = float(result)
    if operation.name in TO_WHOLE and abs(rounded) < _LARGEST:
        return int(rounded)  # A zero loses its sign: a whole number has none.
    return rounded


def _apply_booleans(operation: Operation, given: Sequence[Scalar], span: Span) -> bool:
    for value in given:
        if not isinstance(value, bool):
            raise DmlcError(
                f"{spell(operation)} takes booleans, but {show(value)} is {describe(value)}",
                span,
                code="E0301",
            )
    return bool(operation.evaluate(*given))


def _equal(left: Scalar, right: Scalar, span: Span) -> bool:
    if is_number(left) and is_number(right):
        return left == right
    if describe(left) != describe(right):
        raise DmlcError(
            f"{describe(left)} cannot be compared with {describe(right)}: "
            f"{show(left)} and {show(right)}",
            span,
            code="E0301",
        )
    return left == right


_EXACT: Mapping[str, Callable[[int, int], int | bool]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "neg": lambda x, _: -x, "abs": lambda x, _: abs(x), "sign": lambda x, _: (x > 0) - (x < 0),
    "min": lambda x, y: min(x, y), "max": lambda x, y: max(x, y),
    "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
    **dict.fromkeys(TO_WHOLE, lambda x, _: x),
    "bit_and": lambda x, y: x & y, "bit_or": lambda x, y: x | y, "bit_xor": lambda x, y: x ^ y,
    "bit_not": lambda x, _: ~x,
    "shift_left": lambda x, y: x << (y & 63), "shift_right": lambda x, y: x >> (y & 63),
}  # fmt: skip
"""Exact operations from whole numbers to whole numbers or booleans; those of one operand get it
twice."""


def _apply_integers(operation: Operation, given: list[int], span: Span) -> int | bool | None:
    """Exact result on integers; None for a fraction."""
    x, y = given[0], given[-1]
    if operation.name in ("div", "mod"):
        if y == 0:
            raise DmlcError("division by zero in a compile-time expression", span, code="E0307")
        if operation.name == "mod":
            return x - y * (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)
        return x // y if x % y == 0 else None
    exact = _EXACT.get(operation.name)
    return None if exact is None else exact(x, y)


def cast_constant(value: Scalar, to: DataType, span: Span) -> bool | int | float:
    """Compile-time value converted to a data type, with the rules of `cast` at run time."""
    if not isinstance(value, bool | int | float):
        raise DmlcError(
            f"cast takes a number, but {show(value)} is {describe(value)}", span, code="E0301"
        )
    if to is DataType.BOOL:
        return value != 0
    real = to.is_float or isinstance(value, float)
    given = np.asarray(float(value) if real else int(value) % _LARGEST)
    made = convert(convert(given, to.compute), to)
    return float(made) if to.is_float else made.item()


def round_float(value: float, to: DataType) -> float:
    """Nearest value of a floating compute type, as a Python float."""
    if to is DataType.FLOAT64:
        return value
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def span_text(span: Span) -> str:
    """Source text of an expression in quotes, on one line, shortened if long."""
    text = " ".join(span.text.split())
    return f"'{text}'" if len(text) <= 60 else f"'{text[:57]}...'"


def spell(operation: Operation) -> str:
    """Operation in messages: `'+'`, `'exp'`."""
    return f"'{IR_OPERATIONS[operation.name].symbol or operation.name}'"
