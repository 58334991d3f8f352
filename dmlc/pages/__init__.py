"""Import of reference pages: conversion of a page to a description of its operator in the language.

The names below are imported at their first use, and with them the packages that read Markdown and
reStructuredText, which are an extra: `pip install 'dmlc[import]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmlc.lazy import Extra, import_lazily

if TYPE_CHECKING:
    from dmlc.pages.importing import ImportedPage, import_page, import_text
    from dmlc.pages.ledger import Figures

__all__ = ["Figures", "ImportedPage", "import_page", "import_text"]

__getattr__, __dir__ = import_lazily(
    __name__,
    {"importing": ("ImportedPage", "import_page", "import_text"), "ledger": ("Figures",)},
    Extra("import", {"markdown_it": "markdown-it-py", "docutils": "docutils"}),
)
