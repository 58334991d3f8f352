"""Places as editors count them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlc.editor.positions import Encoding, Lines, Position, Range

TEXT = "ab\r\n\u00e9\U0001f600z\rq\n\nend"


@pytest.mark.parametrize(
    ("encoding", "column"), [(Encoding.UTF8, 6), (Encoding.UTF16, 3), (Encoding.UTF32, 2)]
)
def test_columns_count_units_of_the_encoding(encoding: Encoding, column: int) -> None:
    lines = Lines(TEXT, encoding)
    assert lines.position(TEXT.index("z")) == Position(1, column)
    assert lines.offset(Position(1, column)) == TEXT.index("z")


def test_lines_end_where_the_protocol_says() -> None:
    """At all three line breaks, and nowhere else: a form feed is no line break."""
    lines = Lines(TEXT + "\x0c\u2028x", Encoding.UTF16)
    assert lines.position(TEXT.index("q")) == Position(2, 0)
    assert lines.position(TEXT.index("end")) == Position(4, 0)
    assert lines.position(len(TEXT) + 2) == Position(4, 5)


def test_a_place_past_the_end_is_the_end() -> None:
    lines = Lines(TEXT, Encoding.UTF16)
    assert lines.offset(Position(0, 99)) == 2
    assert lines.offset(Position(99, 0)) == len(TEXT)
    assert lines.offset(Position(-1, -1)) == 0


def test_half_of_a_character_is_its_start() -> None:
    lines = Lines("\U0001f600x", Encoding.UTF16)
    assert lines.offset(Position(0, 1)) == 0
    assert lines.offset(Position(0, 2)) == 1


@given(
    st.text("a\u00e9\U0001f600\r\n\x0c", max_size=30), st.sampled_from(Encoding), st.integers(0, 30)
)
def test_an_offset_comes_back(text: str, encoding: Encoding, offset: int) -> None:
    offset = min(offset, len(text))
    between = text[offset - 1 : offset + 1] == "\r\n" and offset > 0
    back = Lines(text, encoding).offset(Lines(text, encoding).position(offset))
    assert back == (offset - 1 if between else offset)


@given(st.text("a\u00e9\U0001f600\n", max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_an_edit_replaces_its_range(text: str, one: int, other: int) -> None:
    start, end = sorted((min(one, len(text)), min(other, len(text))))
    lines = Lines(text, Encoding.UTF16)
    edited = lines.replace(lines.range(start, end), "new")
    assert edited.text == text[:start] + "new" + text[end:]


def test_a_range_may_be_given_backwards() -> None:
    lines = Lines("abc", Encoding.UTF16)
    assert lines.replace(Range(Position(0, 2), Position(0, 1)), "-").text == "a-c"
