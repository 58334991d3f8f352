"""Names in sources and files: nothing a user calls a thing gets out of its place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlc.codegen.names import (
    Mangler,
    make_comment,
    make_file_stem,
    make_identifier,
    wrap_comment,
)
from dmlc.codegen.targets import find_dialect

OPENCL = find_dialect("opencl")


@given(st.text(max_size=100))
def test_identifiers_and_file_stems_are_plain(name: str) -> None:
    for made in (make_identifier(name), make_file_stem(name)):
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", made)
        assert "__" not in made
        assert make_identifier(made) == made


@given(st.text(max_size=100))
def test_comments_stay_on_their_line(text: str) -> None:
    made = make_comment(text)
    assert made.isascii()
    assert made.isprintable() or made == ""
    assert "\\" not in made
    assert "??" not in made


@given(st.lists(st.text(max_size=12), max_size=30))
def test_spellings_are_unique_and_steady(names: list[str]) -> None:
    mangler = Mangler(OPENCL.reserved)
    spellings = {name: mangler.spell(name) for name in names}
    assert len(set(spellings.values())) == len(spellings)
    for name, spelling in spellings.items():
        assert mangler.spell(name) == spelling
        assert not OPENCL.reserved(spelling)


@pytest.mark.parametrize(
    ("name", "spelling"),
    [("x", "x"), ("kernel", "kernel_"), ("vload4", "t_vload4"), ("a b", "a_b"), ("../../x", "t_x")],
)
def test_spelling(name: str, spelling: str) -> None:
    assert Mangler(OPENCL.reserved).spell(name) == spelling


def test_names_that_collide_are_numbered() -> None:
    mangler = Mangler(OPENCL.reserved)
    mangler.take("main_kernel")
    assert mangler.spell("main_kernel") == "main_kernel_2"
    assert [mangler.spell(n) for n in ("a b", "a.b", "a-b")] == ["a_b", "a_b_2", "a_b_3"]


def test_long_comments_break_outside_brackets() -> None:
    assert wrap_comment("y[i0, i1] = (a[i0, i1] + b[i0, i1]) * c[i0]", 30) == [
        "y[i0, i1] =",
        "    (a[i0, i1] + b[i0, i1]) *",
        "    c[i0]",
    ]
    assert wrap_comment("y = 1") == ["y = 1"]
    assert wrap_comment("x" * 120) == ["x" * 120]
    text = "y = " + " + ".join(f"x{n}[i0, (i1 * 3 + {n}) / 2]" for n in range(40))
    lines = wrap_comment(text)
    assert " ".join(line.strip() for line in lines) == text
    assert max(map(len, lines)) <= 94
