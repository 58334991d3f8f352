"""Tests of random cases draw the same ones in every run, whatever was imported before."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def draw() -> list[object]:
    drawn: list[object] = []

    @settings(max_examples=60)
    @given(st.lists(st.integers() | st.floats() | st.text()))
    def look(values: list[object]) -> None:
        drawn.extend(repr(value) for value in values)

    look()
    return drawn


def test_cases_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are others where others were asked for, with `--hypothesis-profile=random`."""
    before = draw()
    numbers = [10**9 + n * n for n in range(100)]
    (tmp_path / "has_constants.py").write_text(f"VALUES = {numbers}")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("has_constants")
    assert (draw() == before) is settings().derandomize
