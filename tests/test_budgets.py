"""The lines of the compiler's middle: each folder has a budget, and no module is a long one.

A budget is what the folder holds now, and only goes down: what a change adds is made up for in the
same folder. Where they all should end is 29,000 lines."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "dmlc"

BUDGETS = {
    "index": 305,
    "ir": 5_195,
    "kernel": 7_430,
    "transform": 11_650,
    "loops": 10_760,
    "schedules": 3_045,
    "lowering": 5_635,
}
"""By folder, in lines; 44,120 in all."""
LONGEST = 600
"""Lines of a module."""


def count_lines(folder: str) -> dict[str, int]:
    """The lines of each module of a folder, by its path in the package."""
    paths = sorted((PACKAGE / folder).rglob("*.py"))
    return {str(path.relative_to(PACKAGE)): len(path.read_text("utf-8").splitlines())
            for path in paths}  # fmt: skip


@pytest.mark.parametrize("folder", BUDGETS)
def test_a_folder_keeps_to_its_budget(folder: str) -> None:
    lines = sum(count_lines(folder).values())
    over = lines - BUDGETS[folder]
    assert over <= 0, f"dmlc/{folder} has {lines:,} lines, {over:,} more than its budget"


@pytest.mark.parametrize("folder", BUDGETS)
def test_no_module_is_long(folder: str) -> None:
    long = {path: lines for path, lines in count_lines(folder).items() if lines > LONGEST}
    assert not long, long
