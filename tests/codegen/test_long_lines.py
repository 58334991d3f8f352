"""Statements that are too long for a line are broken where a person would."""

from __future__ import annotations

import pytest

from dmlc.codegen.spell import break_line, choose_breaks

A, B, C = "a" * 30, "b" * 30, "c" * 30


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (f"    x = {A};", [f"    x = {A};"]),
        # After a comma of the call, not in a position.
        (
            f"    x[i + 1] = mad({A}[i + 1], {B}[j], {C}[k]);",
            [f"    x[i + 1] = mad({A}[i + 1], {B}[j],", f"        {C}[k]);"],
        ),
        # Before an operator.
        (
            f"    x = {A} + {B} + {C} * 2;",
            [f"    x = {A} + {B}", f"        + {C} * 2;"],
        ),
        # Types stay whole; a call begins on the next line.
        (
            f"    matrix = read_matrix<Matrix<half, 16, 16, 0> >({A}[i / 4 + {B}], 0, 6);",
            [
                "    matrix = read_matrix<Matrix<half, 16, 16, 0> >(",
                f"        {A}[i / 4 + {B}], 0, 6);",
            ],
        ),
        # What is assigned stands on a line of its own, if that is enough.
        (f"    x[{A}] = {A}[{B} + 1];", [f"    x[{A}] =", f"        {A}[{B} + 1];"]),
        # Positions stay whole, though that takes a line more.
        (
            f"    const float4 x = float4({A}[i + 1], {B}[i + j + 2], {C}[i + k + 3], x[i]);",
            [
                f"    const float4 x = float4({A}[i + 1],",
                f"        {B}[i + j + 2], {C}[i + k + 3], x[i]);",
            ],
        ),
        # Positions are broken where that takes fewer lines.
        (
            f"    x = {A}[{B} + {C} * 4 + 1];",
            [f"    x = {A}[{B}", f"        + {C} * 4 + 1];"],
        ),
        (f"    {'x' * 120};", [f"    {'x' * 120};"]),
    ],
)  # fmt: skip
def test_a_line_is_broken(line: str, wanted: list[str]) -> None:
    assert break_line(line, "        ") == wanted


def test_no_text_is_lost() -> None:
    line = f"    x[{A}] = f({B} + {C}[{A} * {B}], g({C}, {A}, {B}[{C} / 2])) - {A} * ({B} + {C});"
    made = break_line(line, "        ")
    assert len(made) > 3
    assert all(len(each) <= 100 for each in made)
    assert "".join("".join(made).split()) == "".join(line.split())


def test_a_rest_is_broken_once() -> None:
    """Without that, the time doubles with each line: this would take hours."""
    line = f"    x = {' + '.join(f'f({A}, {B[:n]})' for n in range(1, 30))};"
    choose_breaks.cache_clear()
    made = break_line(line, "        ")
    assert all(len(each) <= 100 for each in made)
    assert "".join("".join(made).split()) == "".join(line.split())
    assert choose_breaks.cache_info().misses < 200
