"""`Value`: a tensor, or a symbol, of a graph under construction.

A value holds its syntax and its operands; the builder decides which values are named. Its data type
and sizes are those that tables and constraints imply; the checker and the binder have the last
word.
"""

from __future__ import annotations

import enum
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dmlc.language import syntax
from dmlc.language.limits import LARGEST_INTEGER
from dmlc.parameters import expect_text
from dmlc.scalars import OPERATIONS, DataType, OperatorMethods
from dmlc.source import DmlcError, InternalError, Source, Span, find_named

NOWHERE = Span(Source("<graph>", ""), 0, 0)
"""Span of the syntax of a graph built in Python, until it is printed."""

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LITERALS = ("inf", "nan", "true", "false")
_FLOATS = {DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16}
"""Types whose values are of type FLOAT32 where they meet."""

Shape: TypeAlias = tuple[int | str, ...] | None
"""Sizes, as numbers or as expressions of symbols; empty for a scalar, None if unknown."""

Make: TypeAlias = Callable[[Sequence[syntax.Expression]], syntax.Expression]


class Role(enum.Enum):
    """Syntactic form of a value."""

    LEAF = "an input, a symbol or a number: always where it is read"
    EXPRESSION = "where it is read, unless it is read more than once"
    CALL = "in a statement of its own"
    OUTPUT = "as an output of a call: always where it is read"
    GRADIENT = "in a statement of its own, which defines its parts"
    PART = "as a name that such a statement defines: always where it is read"


class Value(OperatorMethods):
    """Tensor or symbol of one `GraphBuilder`. Arithmetic and comparisons are elementwise and give
    values; `&`, `|` and `~` are those of booleans."""

    def __init__(
        self,
        record: list[Value],
        role: Role,
        make: Make,
        operands: Sequence[Value] = (),
        shape: Shape = None,
        dtype: DataType | None = None,
    ) -> None:
        self.record = record
        """All values of the builder, in order of creation."""
        self.role = role
        self.make = make
        self.operands = tuple(operands)
        self.shape = shape
        """Sizes, with symbols by name; empty for a scalar, None if known only when the graph is
        bound."""
        self.data_type = dtype
        """Data type; None if known only when the graph is bound."""
        self.stem = ""
        """Stem of its statement's name, if it needs one and has no name."""
        if role is not Role.LEAF or shape != ():
            record.append(self)

    def __repr__(self) -> str:
        dtype = "?" if self.data_type is None else self.data_type.name
        sizes = "?" if self.shape is None else ", ".join(map(str, self.shape))
        return f"<value {dtype}[{sizes}]>"

    def __bool__(self) -> bool:
        raise DmlcError(
            "the elements of a graph's value are not known while it is built",
            notes=["choose element by element with where(condition, a, b); join with &, | and ~"],
        )

    __hash__ = object.__hash__

    def combine(self, name: str, *given: object) -> Value:
        return apply(name, *given)

    def __eq__(self, other: object) -> Any:
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return apply("ne", self, other)


class Outputs:
    """Outputs of a call that has several, as attributes; an array of outputs is a tuple."""

    def __init__(self, operator: str, found: Mapping[str, Value | tuple[Value, ...]]) -> None:
        self._operator = operator
        self._found = found

    def __getattr__(self, name: str) -> Value | tuple[Value, ...]:
        if name.startswith("__"):
            raise AttributeError(name)
        return find_named(f"output of {self._operator}", name, self._found)

    def __dir__(self) -> list[str]:
        return list(self._found)


class Derivation(Value):
    """Gradients `dx, dw = gradient of y with respect to x, w from dy`; `parts` has each."""

    def __init__(
        self,
        record: list[Value],
        of: Sequence[Value],
        wrt: Sequence[Value],
        given: Sequence[Value],
    ) -> None:
        super().__init__(record, Role.GRADIENT, _no_expression, (*of, *wrt, *given))
        self.of, self.wrt, self.given = tuple(of), tuple(wrt), tuple(given)
        self.parts = tuple(
            Value(record, Role.PART, _no_expression, (), w.shape, w.data_type) for w in wrt
        )


def _no_expression(parts: Sequence[syntax.Expression]) -> syntax.Expression:
    raise InternalError("a statement defines this by name")


# Making values ----------------------------------------------------------------------------------


def as_value(given: object, record: list[Value]) -> Value:
    """Value itself, or a number as a value. Raises `DmlcError` for anything else, and for values of
    another graph."""
    if isinstance(given, Value):
        if given.record is not record:
            raise DmlcError("this value belongs to another graph")
        return given
    expression = literal(given)
    return Value(record, Role.LEAF, lambda _: expression, (), ())


def literal(given: object) -> syntax.Expression:
    """Syntax of a number or a boolean, Python's or NumPy's. Raises `DmlcError`."""
    item = getattr(given, "item", None)
    if callable(item) and getattr(given, "ndim", 1) == 0:
        given = item()
    if isinstance(given, bool):
        return syntax.Literal("true" if given else "false", given, span=NOWHERE)
    if not isinstance(given, numbers.Real):
        raise DmlcError(
            f"a value of a graph or a number is expected, not a {type(given).__name__}",
            notes=["arrays are given to the graph when it runs: declare them with input(...)"],
        )
    value = int(given) if isinstance(given, numbers.Integral) else float(given)
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise DmlcError(
            f"a number is larger than any integer type holds: the largest is {LARGEST_INTEGER}, "
            "of UINT64",
            notes=["write float(...) where a fraction may stand"],
        )
    text = repr(value).lstrip("-")
    positive = syntax.Literal(text, type(value)(text), span=NOWHERE)
    return syntax.Unary("-", positive, span=NOWHERE) if repr(value).startswith("-") else positive


def apply(name: str, *given: object) -> Value:
    """Operator or function of the language, by the name of its operation, element by element."""
    operation = OPERATIONS.get(name)
    symbol = None if operation is None else operation.symbol

    def make(parts: Sequence[syntax.Expression]) -> syntax.Expression:
        if symbol is None:
            return call_expression(name, parts)
        if len(parts) == 1:
            return syntax.Unary(symbol, parts[0], span=NOWHERE)
        return syntax.Binary(symbol, parts[0], parts[1], span=NOWHERE)

    truth = operation is not None and operation.gives_bool
    return _elementwise(make, given, DataType.BOOL if truth else None)


def choose(condition: object, then: object, otherwise: object) -> Value:
    """Choice `condition ? then : otherwise`, element by element."""

    def make(parts: Sequence[syntax.Expression]) -> syntax.Expression:
        return syntax.Ternary(parts[0], parts[1], parts[2], span=NOWHERE)

    return _elementwise(make, [condition, then, otherwise], typed=slice(1, None))


def call_expression(
    name: str, positional: Sequence[syntax.Expression], **named: syntax.Expression
) -> syntax.Call:
    """Syntax of `name(a, b, label: c)`."""
    arguments = [syntax.Argument(None, e, span=NOWHERE) for e in positional]
    arguments += [
        syntax.Argument(syntax.Name(label, span=NOWHERE), e, span=NOWHERE)
        for label, e in named.items()
    ]
    first, *rest = name.split(".")
    function: syntax.Expression = syntax.Reference(first, span=NOWHERE)
    for part in rest:
        function = syntax.Member(function, syntax.Name(part, span=NOWHERE), span=NOWHERE)
    return syntax.Call(function, tuple(arguments), span=NOWHERE)


def _elementwise(
    make: Make, given: Sequence[object], dtype: DataType | None = None, typed: slice = slice(None)
) -> Value:
    """Elementwise result of some values, of the type `dtype`, or else of that of the operands
    `typed`. Its sizes and type are known as far as those of the operands are."""
    record = next((v.record for v in given if isinstance(v, Value)), None)
    if record is None:
        raise DmlcError("one operand at least must be a value of the graph")
    operands = [as_value(v, record) for v in given]
    shape: Shape = ()
    for operand in operands:
        shape = join_shapes(shape, operand.shape)
    types = {operand.data_type for operand in operands[typed] if operand.shape != ()}
    if dtype is None and len(types) == 1:
        (dtype,) = types
    elif dtype is None and types and types <= _FLOATS:
        dtype = DataType.FLOAT32
    return Value(
        record, Role.EXPRESSION if shape != () else Role.LEAF, make, operands, shape, dtype
    )


def join_shapes(left: Shape, right: Shape) -> Shape:
    """Broadcast shape of two values; None if it depends on symbols. Raises `DmlcError` if there is
    none."""
    if left == () or right == ():
        return right if left == () else left
    if left is None or right is None:
        return None
    pairs = list(zip(left, right, strict=False))
    unequal = [(a, b) for a, b in pairs if a != b and 1 not in (a, b)]
    if len(left) != len(right) or any(type(a) is int and type(b) is int for a, b in unequal):
        shown = " and ".join(f"[{', '.join(map(str, s))}]" for s in (left, right))
        raise DmlcError(
            f"tensors of sizes {shown} do not combine element by element: they need the same "
            "number of dimensions, and each size the same or 1"
        )
    return None if unequal else tuple(b if a == 1 else a for a, b in pairs)


def check_name(name: str) -> str:
    """Name, checked to be an identifier of the language. Raises `DmlcError`."""
    expect_text("name", name)
    if not _NAME.fullmatch(name) or name in _LITERALS:
        raise DmlcError(f"'{name}' is no name: letters, digits and underscores, and no digit first")
    return name
