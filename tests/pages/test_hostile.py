"""Pages of strangers: they take no longer than they are, and say what is wrong in words."""

from __future__ import annotations

import time

import pytest

from dmlc.pages.blocks import Formula
from dmlc.pages.markdown import read_markdown

LONG = {
    "brackets": "[" * 50_000 + "\n" + "]" * 50_000,
    "links": "[a](" * 40_000,
    "images": "![[" * 40_000,
    "emphasis": "*a_" * 40_000,
    "formulas": "\\f[" * 40_000,
    "tags": "<a " * 40_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_time_does_not_grow_with_the_square_of_the_length(text: str) -> None:
    """Each takes a tenth of a second, and would take 5 to 20."""
    begun = time.process_time()
    read_markdown("page.md", text * 4)
    assert time.process_time() - begun < 3


@pytest.mark.parametrize("text", ["a\rb\r\rc\r# d\r", "| a |\r| - |\r| b |\r\r> x\r- y", "\r```\r"])
def test_old_line_breaks_are_line_breaks(text: str) -> None:
    made = read_markdown("page.md", text)
    assert made == read_markdown("page.md", text.replace("\r", "\n"))


def test_a_formula_begins_at_the_last_mark_before_its_end() -> None:
    made = read_markdown("page.md", "\\f[ a \\f[ b \\f]")
    assert [block.text for block in made.blocks if isinstance(block, Formula)] == [" b "]
