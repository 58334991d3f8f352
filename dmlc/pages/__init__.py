"""The import of reference pages: a page becomes a description of its operator in the language.

The names below are imported when they are first used, and with them the packages that read
Markdown and reStructuredText, which are an extra: `pip install 'dmlc[import]'`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dmlc.source import Note, UnavailableError

if TYPE_CHECKING:
    from dmlc.pages.importing import ImportedPage, import_page, import_text
    from dmlc.pages.ledger import Figures

__all__ = ["Figures", "ImportedPage", "import_page", "import_text"]

_PLACES: Mapping[str, str] = {
    "Figures": "dmlc.pages.ledger",
    "ImportedPage": "dmlc.pages.importing",
    "import_page": "dmlc.pages.importing",
    "import_text": "dmlc.pages.importing",
}
"""The modules that define them."""

_PACKAGES = {"markdown_it": "markdown-it-py", "docutils": "docutils"}
"""What the extra brings, by the name that it is imported by."""

_INSTALL = Note("install it with: pip install 'dmlc[import]'")


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    try:
        module = importlib.import_module(_PLACES[name])
    except ModuleNotFoundError as error:
        package = _PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        message = f"reference pages are read with the Python package '{package}', not found here"
        raise UnavailableError(message, notes=[_INSTALL]) from None
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
