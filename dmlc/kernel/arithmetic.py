"""Arithmetic, most of it of positions, and the conditions made of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.scalars import OPERATIONS


@functools.lru_cache(4096)
def index(value: int) -> k.Literal:
    return k.Literal(k.INDEX, value)


ZERO = index(0)


def add(*terms: k.Expression) -> k.Expression:
    """The sum of index expressions; zeros drop out, and negative numbers are taken off."""
    kept = [t for t in terms if not (isinstance(t, k.Literal) and t.value == 0)]
    total: k.Expression = kept[0] if kept else index(0)
    for term in kept[1:]:
        if isinstance(term, k.Literal) and term.value < 0:
            total = operate("sub", total, index(-int(term.value)))
        else:
            total = operate("add", total, term)
    return total


def multiply(left: k.Expression, right: int) -> k.Expression:
    """An index times a constant."""
    if isinstance(left, k.Literal):
        return index(int(left.value) * right)
    if right == 0:
        return index(0)
    return left if right == 1 else operate("mul", left, index(right))


def split_number(number: k.Expression, extents: Sequence[int]) -> list[k.Expression]:
    """The digits of a number that counts so many of each, the last of which changes first."""
    digits: list[k.Expression] = []
    inner, is_outermost = math.prod(extents), True
    for extent in extents:
        inner //= max(extent, 1)
        digit = number if inner == 1 else operate("div", number, index(inner))
        if extent == 1:
            digit = ZERO
        elif not is_outermost:
            digit = operate("mod", digit, index(extent))
        is_outermost &= extent == 1
        digits.append(digit)
    return digits


def operate(name: str, *operands: k.Expression) -> k.Operate:
    """An operation of that name, on scalars or lane by lane."""
    operation, first = OPERATIONS[name], operands[0].type
    made = k.Type(operation.result_type(first.dtype), first.lanes)
    return k.Operate(operation, operands, made)


def widen(value: k.Expression, lanes: int) -> k.Expression:
    """A value in all of so many lanes."""
    if value.type.lanes == lanes:
        return value
    return k.Broadcast(value, k.Type(value.type.dtype, lanes))


def subtract_known(left: k.Expression, right: k.Expression) -> int | None:
    """The difference of two positions that are known as they are written."""
    if isinstance(left, k.Literal) and isinstance(right, k.Literal):
        return int(left.value) - int(right.value)
    return None


def both(first: k.Expression, second: k.Expression) -> k.Expression:
    return operate("and", first, second)


def either(first: k.Expression, second: k.Expression) -> k.Expression:
    return operate("or", first, second)


def guard(
    conditions: Sequence[k.Expression], statements: Sequence[k.Statement]
) -> list[k.Statement]:
    """The statements where all conditions hold."""
    if not conditions or not statements:
        return list(statements)
    return [k.If(functools.reduce(both, conditions), tuple(statements))]
