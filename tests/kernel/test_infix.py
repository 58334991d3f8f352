"""Parentheses that a reader can do without are left out, and no others."""

from __future__ import annotations

import itertools

import pytest

from dmlc.kernel.infix import needs_parentheses

OPERATORS = ("+", "-", "*", "/", "%", "<", ">=", "==", "&&", "||", "&", "<<")


@pytest.mark.parametrize(
    ("operand", "outer", "first", "needed"),
    [
        ("*", "+", True, False),
        ("/", "-", False, False),
        ("+", "-", True, False),
        ("+", "-", False, True),
        ("+", "*", True, True),
        ("*", "*", True, False),
        ("*", "*", False, True),
        ("/", "%", True, True),
        ("/", "*", True, True),
        ("+", "<", False, False),
        ("<", "<", True, True),
        ("<", "&&", False, False),
        ("&&", "&&", True, False),
        ("&&", "||", True, True),
        ("+", "<<", True, True),
        ("&", "==", True, True),
        ("", "+", True, True),
        ("+", "", True, True),
    ],
)
def test_parentheses(operand: str, outer: str, first: bool, needed: bool) -> None:
    assert needs_parentheses(operand, outer, is_first=first) == needed


@pytest.mark.parametrize(("left", "right"), list(itertools.product(OPERATORS[:8], repeat=2)))
def test_what_is_left_out_means_the_same(left: str, right: str) -> None:
    """Python binds arithmetic and comparisons as C does, but for chains of comparisons, which
    keep their parentheses."""
    numbers = (7, 3, 2)
    for first in (True, False):
        inner, outer = (left, right) if first else (right, left)
        if needs_parentheses(inner, outer, is_first=first):
            continue
        a, b, c = numbers
        bare = f"{a} {left} {b} {right} {c}"
        spelled = f"({a} {left} {b}) {right} {c}" if first else f"{a} {left} ({b} {right} {c})"
        assert eval(bare) == eval(spelled)
