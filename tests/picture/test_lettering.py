"""Texts in pictures: widths, wrapping, bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlc.picture.lettering import (
    measure,
    show_bytes,
    show_sizes,
    wrap,
    wrap_evenly,
    wrap_name,
    wrap_to,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (25_690_112, "25.7 MB"),
        (99_960, "100 KB"),
        (999_499, "999 KB"),
        (999_500, "1.0 MB"),
        (123_456_789_012, "123 GB"),
        (5 * 10**18, "5000 PB"),
        (None, "unknown bytes"),
    ],
)
def test_bytes(count: int | None, text: str) -> None:
    assert show_bytes(count) == text


def test_sizes() -> None:
    assert show_sizes((32, "n", 56)) == "32\N{MULTIPLICATION SIGN}n\N{MULTIPLICATION SIGN}56"
    assert show_sizes(()) == "one"


@given(st.lists(st.text("ab(*)", min_size=1, max_size=14), max_size=12), st.integers(4, 20))
def test_wrapped_lines_hold_all_words(words: list[str], width: int) -> None:
    lines = wrap(" ".join(words), width)
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(words)
    even = wrap_evenly(" ".join(words), width)
    assert len(even) == len(lines)
    assert all(len(line) <= width for line in even)


def test_even_lines_leave_no_word_alone() -> None:
    text = "= (normalized > 0) ? gradient : 0"
    assert wrap(text, 31)[1] == "0"
    assert wrap_evenly(text, 31) == ["= (normalized > 0) ?", "gradient : 0"]


def test_widths_are_those_of_a_wide_font() -> None:
    assert measure("ll", 10) < measure("mm", 10)
    assert measure("abc", 10, bold=True) > measure("abc", 10)
    assert measure("abc", 10, code=True) == pytest.approx(18.06)
    assert measure("\N{MULTIPLICATION SIGN}", 10) == 10


@given(st.text("ab_.", max_size=60), st.integers(4, 20))
def test_names_are_wrapped_and_whole(name: str, width: int) -> None:
    lines = wrap_name(name, width)
    assert "".join(lines) == name
    assert all(0 < len(line) <= width for line in lines) or not name


def test_names_break_before_an_underscore() -> None:
    assert wrap_name("residual_block_backward", 16) == ["residual_block", "_backward"]


@given(st.lists(st.text("mil", min_size=1, max_size=30), min_size=1, max_size=8))
def test_lines_are_no_wider_than_their_room(words: list[str]) -> None:
    lines = wrap_to(" ".join(words), 120.0, 11.0, bold=True)
    assert all(measure(line, 11.0, bold=True) <= 120.0 for line in lines)
    assert "".join("".join(lines).split()) == "".join(words)
