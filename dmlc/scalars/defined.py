"""Operations of the IR by those of a language that leaves cases open: a division by 0, a shift by
more bits than there are, NaN among minima, a float beyond a type of integers. ONNX and MLIR are
such languages.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

import numpy as np

from dmlc.scalars.expression import Domain, Held, Value
from dmlc.scalars.operation import Record
from dmlc.scalars.types import DataType, Kind
from dmlc.source import UnsupportedError


class OpenDomain(Domain[Held]):
    """Values of a language whose own operations leave cases open."""

    @abc.abstractmethod
    def plain(self, name: str, *given: Held) -> Held | None:
        """The language's own operation, wrapped to the type; None if it has none."""

    @abc.abstractmethod
    def number(self, held: Held) -> int | float | None:
        """Number that a constant is; None for other values."""

    @abc.abstractmethod
    def truncate(self, held: Held, dtype: DataType) -> Held:
        """The language's own conversion of a float within the limits of a type of integers."""

    def define(self, record: Record, *given: Held) -> Held | None:
        """Operation as the IR defines it; None if the language cannot express it."""
        is_float = self.type_of(given[0]).is_float
        definition = (_ON_FLOATS if is_float else _ON_INTEGERS).get(record.name)
        if definition is not None:
            return self.compute(definition, *given)
        made = self.plain(record.name, *given)
        if made is None and is_float and record.formula is not None:
            return self.compute(record.formula, *given)
        return made

    def saturate(self, held: Held, dtype: DataType) -> Held:
        """Float as an integer: truncated, held within the limits of the type, and 0 for NaN."""
        x, limits = self.wrap(held), np.iinfo(dtype.dtype)
        # A limit that floats lack is the next power of two.
        low, high = (np.array(end, x.dtype.dtype).item() for end in (limits.min, limits.max))
        inside = ((x > low) & (x < high)).select(x, 0)
        whole = self.wrap(self.truncate(self.unwrap(inside), dtype))
        whole = (x >= high).select(int(limits.max), whole)
        return self.unwrap((x <= low).select(int(limits.min), whole))


def _plain(name: str, *given: Value) -> Value:
    domain = cast("OpenDomain[object]", given[0].domain)
    made = domain.plain(name, *(each.held for each in given))
    if made is None:
        raise UnsupportedError(f"the language has no '{name}' of {given[0].dtype.name}")
    return Value(domain, made)


def _find_number(value: Value) -> int | float | None:
    return cast("OpenDomain[object]", value.domain).number(value.held)


def _is_never_nan(value: Value) -> bool:
    number = _find_number(value)
    return number is not None and number == number


# Floats -----------------------------------------------------------------------------------------


def _choose(beyond: str, within: str) -> Callable[[Value, Value], Value]:
    """The second of two floats if it is `beyond` the first or NaN, and else the first."""

    def define(x: Value, y: Value) -> Value:
        if _is_never_nan(x):
            return y.apply(within, x).select(x, y)
        second = y.apply(beyond, x)
        if not _is_never_nan(y):
            second = second | y.apply("isnan")
        return second.select(y, x)

    return define


def _sign(x: Value) -> Value:
    """Zeros and NaN stay what they are."""
    return (x > 0).select(1, (x < 0).select(-1, x))


_ON_FLOATS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {"min": _choose("lt", "ge"), "max": _choose("gt", "le"), "sign": _sign}
)

# Integers ---------------------------------------------------------------------------------------


def _divide(x: Value, y: Value) -> Value:
    if _find_number(y) not in (None, 0, -1):
        return _plain("div", x, y)
    by_zero = y.equals(0)
    if x.dtype.kind is Kind.UNSIGNED:
        return by_zero.select(0, _plain("div", x, by_zero.select(1, y)))
    # The smallest number has no opposite, which is a fault on some machines.
    by_minus_one = y.equals(-1)
    quotient = _plain("div", x, (by_zero | by_minus_one).select(1, y))
    return by_zero.select(0, by_minus_one.select(-x, quotient))


def _modulo(x: Value, y: Value) -> Value:
    if _find_number(y) not in (None, 0, -1):
        return _plain("mod", x, y)
    # The remainder is 0 by 0, by 1 and by -1 alike.
    unsafe = y.equals(0)
    if x.dtype.kind is not Kind.UNSIGNED:
        unsafe = unsafe | y.equals(-1)
    return _plain("mod", x, unsafe.select(1, y))


def _shift(name: str) -> Callable[[Value, Value], Value]:
    def define(x: Value, y: Value) -> Value:
        width, distance = 8 * x.dtype.bytes, _find_number(y)
        if distance is None or not 0 <= distance < width:
            y = y & (width - 1)
        return _plain(name, x, y)

    return define


def _absolute(x: Value) -> Value:
    return x if x.dtype.kind is Kind.UNSIGNED else _plain("abs", x)


def _integer_sign(x: Value) -> Value:
    limited = x.apply("min", 1)
    return limited if x.dtype.kind is Kind.UNSIGNED else limited.apply("max", -1)


_ON_INTEGERS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "div": _divide,
        "mod": _modulo,
        "abs": _absolute,
        "sign": _integer_sign,
        "shift_left": _shift("shift_left"),
        "shift_right": _shift("shift_right"),
    }
)
