"""The derivatives of scalar operations, one table.

A rule is given the adjoint of an operation's result, and gives what each operand gets of it. It
holds exactly, kinks included: `docs/explanation/gradients.md` publishes the choices, and a `Choice`
says which of them a function makes. Roundings and signs do not move with their operands, nor do
comparisons, and integers.

A part may hold under conditions. These stay outside everything that is computed from it, so that
the NaN of a value that was not chosen stays out of the gradient.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from dmlc.ir import Apply, Constant, value_type
from dmlc.ir.builder import BodyBuilder
from dmlc.scalars import DataType
from dmlc.source import DmlcError, Span

Condition: TypeAlias = tuple[int, bool]
"""A BOOL value of a body, and whether it is to hold or not."""


@dataclasses.dataclass(frozen=True, slots=True)
class Adjoint:
    """The derivative of what is differentiated by a value: `value` where all conditions hold, and
    0 elsewhere."""

    value: int
    conditions: tuple[Condition, ...] = ()

    def under(self, conditions: tuple[Condition, ...]) -> Adjoint:
        """The same under other conditions as well."""
        new = tuple(c for c in conditions if c not in self.conditions)
        return Adjoint(self.value, (*self.conditions, *new))


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """An operation of a body at which its adjoint is known."""

    builder: BodyBuilder
    adjoint: int
    operands: tuple[int, ...]
    result: int
    moving: tuple[bool, ...]
    """Which operands depend on what is differentiated by."""
    ending: bool = False
    """Whether the first operand is at its least where it is 0: it may be, and cannot be negative,
    by its formula."""

    @property
    def dtype(self) -> DataType:
        return value_type(self.builder.instructions[self.result])

    def number(self, value: float) -> int:
        """The nearest literal of the result's type."""
        return self.builder.add(Constant(self.dtype, float(self.dtype.dtype.type(value))))

    def apply(self, name: str, *given: int) -> int:
        return self.builder.apply(name, *given)

    def times(self, *factors: int) -> int:
        """The adjoint times some values."""
        product = self.adjoint
        for factor in factors:
            product = self.apply("mul", product, factor)
        return product

    def over(self, divisor: int) -> int:
        """The adjoint by a value."""
        return self.apply("div", self.adjoint, divisor)


Part: TypeAlias = tuple[int, Adjoint]
"""The number of an operand, and what it gets."""

Rule: TypeAlias = Callable[[Point], Sequence[Part]]


def _plain(*values: int) -> tuple[Part, ...]:
    return tuple((operand, Adjoint(value)) for operand, value in enumerate(values))


def _extreme(point: Point, before: str) -> Sequence[Part]:
    """Of the larger or smaller of two values. Where one of them is fixed, the other gets the
    adjoint only where it is beyond it; where both move, each gets half of it at a tie."""
    a, b = point.operands
    is_first = point.apply(before, a, b)
    if not all(point.moving):
        operand = point.moving.index(True)
        is_chosen = is_first if operand == 0 else point.apply(before, b, a)
        return ((operand, Adjoint(point.adjoint, ((is_chosen, True),))),)
    select, half = point.builder.select, point.times(point.number(0.5))
    tied = select(point.apply("eq", a, b), half, point.number(0))
    chosen = (is_first, point.apply(before, b, a))
    return _plain(*(select(condition, point.adjoint, tied) for condition in chosen))


def _sqrt(point: Point) -> Sequence[Part]:
    """`0.5 / sqrt(x)`; of what cannot be negative, 0 where it is 0: there it does not move."""
    half = point.apply("div", point.times(point.number(0.5)), point.result)
    return ((0, Adjoint(half, _leave_end(point, point.result))),)


def _leave_end(point: Point, value: int) -> tuple[Condition, ...]:
    """That a value is not 0, where what is 0 there is at its least."""
    return ((point.apply("ne", value, point.number(0)), True),) if point.ending else ()


def _pow(point: Point) -> Sequence[Part]:
    """`pow(x, y)` moves with x by `y * pow(x, y - 1)`, nowhere with a y of 0, nor at 0 where x
    cannot be negative; and with y by `pow(x, y) * log(x)`, which is 0 where the power is 0, and for
    an x and a y of 0."""
    x, y = point.operands
    zero = point.number(0)
    one = point.apply("sub", y, point.number(1))
    still = point.apply("ne", y, zero)
    risen = point.apply("ne", point.result, zero)
    corner = point.apply("and", point.apply("eq", x, zero), point.apply("eq", y, zero))
    by_x = point.times(y, point.apply("pow", x, one))
    by_y = point.times(point.result, point.apply("log", x))
    return (
        (0, Adjoint(by_x, ((still, True), *_leave_end(point, x)))),
        (1, Adjoint(by_y, ((risen, True), (corner, False)))),
    )


def _atan2(point: Point) -> Sequence[Part]:
    y, x = point.operands
    square = point.apply("add", point.apply("mul", x, x), point.apply("mul", y, y))
    unit = point.over(square)
    return _plain(point.apply("mul", unit, x), point.apply("neg", point.apply("mul", unit, y)))


def _one_minus_square(point: Point, value: int) -> int:
    return point.apply("sub", point.number(1), point.apply("mul", value, value))


def _one_plus_square(point: Point, value: int) -> int:
    return point.apply("add", point.apply("mul", value, value), point.number(1))


def _rsqrt(point: Point) -> Sequence[Part]:
    cube = point.apply("mul", point.result, point.apply("mul", point.result, point.result))
    return _plain(point.times(point.number(-0.5), cube))


def _erf(point: Point) -> Sequence[Part]:
    (x,) = point.operands
    bell = point.apply("exp", point.apply("neg", point.apply("mul", x, x)))
    return _plain(point.times(point.number(2 / math.sqrt(math.pi)), bell))


def _product(point: Point) -> Sequence[Part]:
    """The adjoint times the other operand; of a square, times twice the operand."""
    left, right = point.operands
    if left == right:
        return ((0, Adjoint(point.times(left, point.number(2)))),)
    return _plain(point.times(right), point.times(left))


def _quotient(point: Point) -> Sequence[Part]:
    _, divisor = point.operands
    unit = point.over(divisor)
    return _plain(unit, point.apply("neg", point.apply("mul", unit, point.result)))


def _remainder(point: Point) -> Sequence[Part]:
    """`x % y` is `x - y * trunc(x / y)`."""
    quotient = point.apply("trunc", point.apply("div", *point.operands))
    return _plain(point.adjoint, point.apply("neg", point.times(quotient)))


def _with_gradient(point: Point) -> Sequence[Part]:
    """The value moves by itself, and with the second operand by the slope. The slope is a formula
    like any other, so that a second derivative is the derivative of the slope."""
    _, _, slope = point.operands
    return _plain(point.adjoint, point.times(slope))


def _unary(derivative: Callable[[Point, int], int]) -> Rule:
    """The rule of a function of one value, from its derivative there."""
    return lambda point: _plain(point.times(derivative(point, point.operands[0])))


def _by(divisor: Callable[[Point, int], int]) -> Rule:
    """The same where one over the derivative is at hand."""
    return lambda point: _plain(point.over(divisor(point, point.operands[0])))


DERIVATIVES: Mapping[str, Rule] = MappingProxyType(
    {
        "with_gradient": _with_gradient,
        "add": lambda p: _plain(p.adjoint, p.adjoint),
        "sub": lambda p: _plain(p.adjoint, p.apply("neg", p.adjoint)),
        "mul": _product,
        "fma": lambda p: _plain(p.times(p.operands[1]), p.times(p.operands[0]), p.adjoint),
        "div": _quotient,
        "div_nearest": _quotient,
        "mod": _remainder,
        "neg": lambda p: _plain(p.apply("neg", p.adjoint)),
        "abs": _unary(lambda p, x: p.apply("sign", x)),
        "min": lambda p: _extreme(p, "lt"),
        "max": lambda p: _extreme(p, "gt"),
        "sqrt": _sqrt,
        "rsqrt": _rsqrt,
        "round_float16": lambda p: _plain(p.adjoint),
        "round_bfloat16": lambda p: _plain(p.adjoint),
        "exp": lambda p: _plain(p.times(p.result)),
        "exp2": lambda p: _plain(p.times(p.result, p.number(math.log(2)))),
        "expm1": lambda p: _plain(p.times(p.apply("exp", p.operands[0]))),
        "log": lambda p: _plain(p.over(p.operands[0])),
        "log2": _by(lambda p, x: p.apply("mul", x, p.number(math.log(2)))),
        "log1p": _by(lambda p, x: p.apply("add", x, p.number(1))),
        "pow": _pow,
        "sin": _unary(lambda p, x: p.apply("cos", x)),
        "cos": lambda p: _plain(p.apply("neg", p.times(p.apply("sin", p.operands[0])))),
        "tan": lambda p: _plain(p.times(_one_plus_square(p, p.result))),
        "asin": _by(lambda p, x: p.apply("sqrt", _one_minus_square(p, x))),
        "acos": _by(lambda p, x: p.apply("neg", p.apply("sqrt", _one_minus_square(p, x)))),
        "atan": _by(_one_plus_square),
        "atan2": _atan2,
        "sinh": _unary(lambda p, x: p.apply("cosh", x)),
        "cosh": _unary(lambda p, x: p.apply("sinh", x)),
        "tanh": lambda p: _plain(p.times(_one_minus_square(p, p.result))),
        "asinh": _by(lambda p, x: p.apply("sqrt", _one_plus_square(p, x))),
        "acosh": _by(
            lambda p, x: p.apply(
                "mul",
                p.apply("sqrt", p.apply("sub", x, p.number(1))),
                p.apply("sqrt", p.apply("add", x, p.number(1))),
            )
        ),
        "atanh": _by(_one_minus_square),
        "erf": _erf,
        "sigmoid": lambda p: _plain(p.times(p.result, p.apply("sub", p.number(1), p.result))),
    }
)
"""By the name of an operation on floats that moves with its operands."""

_STILL = frozenset(("floor", "ceil", "round", "trunc", "sign", "stop_gradient"))
"""Operations on floats whose derivative is 0 wherever they have one, as in PyTorch and JAX."""


def list_leading(made: Apply, span: Span | None = None) -> tuple[int, ...]:
    """The operands that a float operation moves with; none where its derivative is 0. Raises
    `DmlcError` for an operation that has no derivative: 0 would be wrong, and nothing would say so.
    `span` is its place."""
    name, operation = made.operation.name, made.operation
    if name == "with_gradient":
        return made.operands[:2]
    if name in DERIVATIVES:
        return made.operands
    is_number = operation.operands.accept(DataType.FLOAT32) and not operation.gives_bool
    if is_number and name not in _STILL:
        parameters = ", ".join("xyz"[: operation.arity])
        raise DmlcError(
            f"'{name}' has no derivative, and a gradient goes through it",
            span,
            [
                f"write its gradient: function f({parameters}) = {name}({parameters}), then "
                "gradient of f with respect to x = ...",
                "stop_gradient(x) around what it is given says that the gradient is 0 there",
            ],
            code="E0703",
        )
    return ()


KINKS: Mapping[str, str] = MappingProxyType(
    {
        "abs": "abs(x) has the derivative 0 at x = 0",
        "max": "max(x, c) has the derivative 0 in x where x = c",
        "min": "min(x, c) has the derivative 0 in x where x = c",
        "mod": "x % c has the derivative 1 in x where x is a multiple of c",
    }
)
"""What is chosen where an operation has no one derivative."""

_TIE = "{}(a, b) has the derivative 1/2 in each where a = b"
_END = "{} has the derivative 0 in x where x = 0, and x cannot be negative"


def find_kink(made: Apply, moving: Sequence[bool], ending: bool = False) -> str | None:
    """The choice that an operation makes where it has a kink; `ending` as a `Point` has it."""
    name = made.operation.name
    if name in ("min", "max") and all(moving):
        return _TIE.format(name)
    if ending and moving[0] and name in _ROOTS:
        return _END.format(_ROOTS[name])
    return KINKS.get(name)


_ROOTS: Mapping[str, str] = MappingProxyType({"sqrt": "sqrt(x)", "pow": "pow(x, y)"})
