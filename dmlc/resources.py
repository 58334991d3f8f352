"""Finds the data files that stand at the top of the repository and inside the installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_path(name: str) -> Path:
    """The path of a data file or folder, such as `templates`. An installed package holds it
    itself; a checkout has it at the top level."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _PACKAGE.parent / name


def read_resource(name: str) -> str:
    """The text of a data file, such as `grammar/dml.lark`."""
    return resource_path(name).read_text(encoding="utf-8")
