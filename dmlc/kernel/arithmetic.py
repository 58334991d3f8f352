"""Constructors of arithmetic, mostly on indices, and of conditions."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.names import Names
from dmlc.kernel.rewrite import map_all, map_operands, name_values, walk
from dmlc.scalars import OPERATIONS, DataType
from dmlc.sizes import Measure, evaluate_size, parse_size
from dmlc.sizes import multiply as multiply_sizes


@functools.lru_cache(4096)
def index(value: int) -> k.Literal:
    return k.Literal(k.INDEX, value)


ZERO = index(0)


def zero_of(dtype: DataType) -> k.Literal:
    """Zero of a data type."""
    return k.Literal(k.Type(dtype), 0.0 if dtype.is_float else 0)


def round_up(count: int) -> int:
    """Smallest power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()


OPEN = "="
"""Before the text of a size that is known at run time only, in the name of the argument that it is
until a kernel's arguments are named."""


def make_size(measure: Measure) -> int | k.Scalar:
    """Size of a dimension: a number, or a scalar argument of the kernel."""
    return measure if isinstance(measure, int) else k.Scalar(f"{OPEN}{measure}")


def size(measure: Measure) -> k.Expression:
    """Size as an expression."""
    made = make_size(measure)
    return index(made) if isinstance(made, int) else made


def measure(size: int | k.Scalar) -> Measure:
    """Size of a dimension, from the result of `make_size`."""
    return size if isinstance(size, int) else parse_size(size.name.removeprefix(OPEN))


def add(*terms: k.Expression) -> k.Expression:
    """Sum of index expressions, simplified: zeros are dropped, negative constants subtracted."""
    kept = [t for t in terms if not (isinstance(t, k.Literal) and t.value == 0)]
    total: k.Expression = kept[0] if kept else index(0)
    for term in kept[1:]:
        if isinstance(term, k.Literal) and term.value < 0:
            total = operate("sub", total, index(-int(term.value)))
        else:
            total = operate("add", total, term)
    return total


def subtract(left: k.Expression, right: k.Expression) -> k.Expression:
    """Difference of index expressions, simplified."""
    return left if right == ZERO else operate("sub", left, right)


def multiply(left: k.Expression, right: Measure) -> k.Expression:
    """Index times a constant or a run-time size."""
    if not isinstance(right, int):
        return ZERO if left == ZERO else operate("mul", left, size(right))
    if isinstance(left, k.Literal):
        return index(int(left.value) * right)
    if right == 0:
        return index(0)
    return left if right == 1 else operate("mul", left, index(right))


def split_number(number: k.Expression, extents: Sequence[Measure]) -> list[k.Expression]:
    """Digits of a linear index in a mixed radix of `extents`, the last of which varies fastest."""
    digits: list[k.Expression] = []
    is_outermost = True
    for place, extent in enumerate(extents):
        inner = multiply_sizes(max(e, 1) if isinstance(e, int) else e for e in extents[place + 1 :])
        digit = number if inner == 1 else operate("div", number, size(inner))
        if extent == 1:
            digit = ZERO
        elif not is_outermost:
            digit = operate("mod", digit, size(extent))
        is_outermost &= extent == 1
        digits.append(digit)
    return digits


def operate(name: str, *operands: k.Expression) -> k.Operate:
    """Operation by name, on scalars or lane by lane."""
    operation, first = OPERATIONS[name], operands[0].type
    made = k.Type(operation.result_type(first.dtype), first.lanes)
    return k.Operate(operation, operands, made)


def widen(value: k.Expression, lanes: int) -> k.Expression:
    """Value broadcast to a number of lanes."""
    if value.type.lanes == lanes:
        return value
    return k.Broadcast(value, k.Type(value.type.dtype, lanes))


def find_repeated(value: k.Expression) -> k.Expression:
    """Scalar that a vector broadcasts; the value itself if it is no broadcast."""
    return value.operand if isinstance(value, k.Broadcast) else value


def subtract_known(left: k.Expression, right: k.Expression) -> int | None:
    """Difference of two indices, if it is evident from their expressions."""
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
    """Statements under the conjunction of all conditions. A condition that they are under already,
    but for indices, joins it."""
    if not conditions or not statements:
        return list(statements)
    *before, last = statements
    if isinstance(last, k.If) and not last.rare and all(map(_defines_index, before)):
        return [*before, k.If(functools.reduce(both, [*conditions, last.condition]), last.then)]
    return [k.If(functools.reduce(both, conditions), tuple(statements))]


def _defines_index(statement: k.Statement) -> bool:
    """Whether a statement names an index, which takes no element of memory."""
    if not isinstance(statement, k.Let) or statement.local.type != k.INDEX:
        return False
    return not any(isinstance(part, k.Load | k.LoadLocal) for part in walk(statement.value))


# Sizes known at run time --------------------------------------------------------------------


def name_sizes(
    statements: Sequence[k.Statement], names: Names
) -> tuple[list[k.Statement], tuple[tuple[k.Scalar, str], ...]]:
    """Statements in which scalar arguments replace run-time sizes, and these arguments, each with
    its size expression."""
    found: dict[str, k.Scalar] = {}

    def change(expression: k.Expression) -> k.Expression:
        if not isinstance(expression, k.Scalar) or not expression.name.startswith(OPEN):
            return map_operands(expression, change)
        text = expression.name.removeprefix(OPEN)
        if text not in found:
            found[text] = k.Scalar(names.take(_size_name(text)))
        return found[text]

    made = list(map_all(statements, change))
    return made, tuple((scalar, text) for text, scalar in found.items())


def bind_sizes(kernel: k.Kernel, sizes: Mapping[str, int]) -> k.Kernel:
    """Kernel with numbers for its run-time sizes."""
    values = {scalar.name: index(evaluate_size(value, sizes)) for scalar, value in kernel.scalars}
    launch = dataclasses.replace(kernel.launch, count=evaluate_size(kernel.launch.count, sizes))
    body = map_all(kernel.body, name_values(values))
    buffers = tuple(
        b if b.count is None else dataclasses.replace(b, count=evaluate_size(b.count, sizes))
        for b in kernel.buffers
    )
    return dataclasses.replace(kernel, buffers=buffers, body=body, scalars=(), launch=launch)


def _size_name(text: str) -> str:
    """Name of a size: `C_N_64` for `64 * C * N`, and `ceil_N_64` for `((N + 63) / 64)`."""
    simple = re.sub(
        r"\(\((.+?) \+ \d+\) / (\d+)\)", lambda m: f"ceil_{_size_name(m[1])}_{m[2]}", text
    )
    words = re.findall(r"\w+", simple)
    is_product = re.fullmatch(r"[\w *]+", simple) is not None
    return "_".join(sorted(words, key=str.isdecimal) if is_product else ["size", *words])
