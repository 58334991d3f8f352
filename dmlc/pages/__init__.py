"""The import of reference pages: a page becomes a description of its operator in the language.

The names below are imported when they are first used, and with them the packages that read
Markdown and reStructuredText, which are an extra: `pip install 'dmlc[import]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlc.lazy import import_lazily
from dmlc.source import Note, UnavailableError

if TYPE_CHECKING:
    from dmlc.pages.importing import ImportedPage, import_page, import_text
    from dmlc.pages.ledger import Figures

__all__ = ["Figures", "ImportedPage", "import_page", "import_text"]

_PACKAGES = {"markdown_it": "markdown-it-py", "docutils": "docutils"}
"""What the extra brings, by the name that it is imported by."""


def _explain(_: str, package: str) -> UnavailableError | None:
    if package not in _PACKAGES:
        return None
    found = _PACKAGES[package]
    message = f"reference pages are read with the Python package '{found}', not found here"
    return UnavailableError(message, notes=[Note("install it with: pip install 'dmlc[import]'")])


__getattr__, __dir__ = import_lazily(
    globals(),
    {
        "dmlc.pages.ledger": ("Figures",),
        "dmlc.pages.importing": ("ImportedPage", "import_page", "import_text"),
    },
    _explain,
)
