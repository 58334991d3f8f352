"""Paths of data files, which are at the top of the repository or inside the installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_path(name: str) -> Path:
    """Path of a data file or folder, such as `templates`: inside an installed package, or at the
    top of a checkout."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _PACKAGE.parent / name


def read_resource(name: str) -> str:
    """Text of a data file, such as `grammar/dml.lark`."""
    return resource_path(name).read_text(encoding="utf-8")
