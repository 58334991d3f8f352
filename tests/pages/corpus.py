"""The pages of the tests: those kept here, and the published ones where they are at hand."""

from __future__ import annotations

from pathlib import Path

KEPT = Path(__file__).parents[1] / "data" / "pages"
PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "pages"


def list_pages(folder: Path) -> list[Path]:
    """The pages of a folder, and of those in it."""
    found = [p for p in folder.rglob("*") if p.suffix in (".md", ".rst")]
    return sorted(p for p in found if p.name != "README.md")


def read(name: str) -> str:
    """The text of a page that is kept here."""
    return (KEPT / name).read_text("utf-8")
