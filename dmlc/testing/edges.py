"""Boundary values of constraints: comparisons that just hold, or just fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from dmlc.binding.values import COMPARED
from dmlc.language import syntax
from dmlc.testing.trace import Comparison

_NEAR = 1e-3
"""Largest distance of real numbers at a boundary, relative to 1 or the larger one."""
_TURNED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


def list_comparisons(
    condition: syntax.Expression, turned: bool
) -> Iterator[tuple[syntax.Binary, bool]]:
    """Comparisons in a condition, each with whether `!` negates it."""
    match condition:
        case syntax.Binary(operator="&&" | "||"):
            yield from list_comparisons(condition.left, turned)
            yield from list_comparisons(condition.right, turned)
        case syntax.Binary(operator=operator) if operator in COMPARED.values():
            yield condition, turned
        case syntax.Unary(operator="!"):
            yield from list_comparisons(condition.operand, not turned)
        case syntax.Ternary():
            yield from list_comparisons(condition.then, turned)
            yield from list_comparisons(condition.otherwise, turned)
        case syntax.Pack():
            yield from list_comparisons(condition.operand, turned)
        case syntax.Call(function=syntax.Reference(name="all" | "any")):
            for argument in condition.arguments:
                yield from list_comparisons(argument.value, turned)
        case _:
            return


def turn(comparison: Comparison, turned: bool) -> Comparison:
    """Comparison, or its negation."""
    if not turned:
        return comparison
    return dataclasses.replace(comparison, operation=_TURNED[comparison.operation])


def _measure(comparison: Comparison) -> tuple[float, float] | None:
    """Difference of the left side from the right one, and the distance of neighbours: 1 for whole
    numbers. None for values that are no numbers."""
    left, right = comparison.left, comparison.right
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    whole = isinstance(left, int) and isinstance(right, int)
    return left - right, 1 if whole else _NEAR * max(1.0, abs(left), abs(right))


_EDGES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "ge": ((0,), (-1,)), "le": ((0,), (1,)), "gt": ((1,), (0,)), "lt": ((-1,), (0,)),
    "eq": ((0,), (-1, 1)), "ne": ((-1, 1), (0,)),
}  # fmt: skip
"""Differences in steps of the left side from the right one at the boundary, and just beyond."""


def is_at_edge(comparison: Comparison, beyond: bool) -> bool:
    """Whether a comparison just holds, or, `beyond`, just fails. Values that are no numbers are
    always at the boundary."""
    steps = _EDGES[comparison.operation][beyond]
    measured = _measure(comparison)
    if measured is None:
        return (comparison.left == comparison.right) == (0 in steps)
    difference, step = measured
    return any(
        difference == 0 if wanted == 0 else 0 < difference * wanted <= step for wanted in steps
    )
