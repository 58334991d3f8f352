"""Listing of an operator or a graph: its text, and further facts about it, for `dmlc show` and
editors."""

from __future__ import annotations

from dmlc.binding import Graph, Operator
from dmlc.language.format import format_declaration
from dmlc.library.equivalents import list_other_names
from dmlc.source import Span
from dmlc.testing.choices import find_choices

_SHOWN = 60
"""Longest part of a formula that is shown, in characters."""


def list_subject(subject: Operator | Graph) -> str:
    """Lines of a listing. A library operator has its names elsewhere, and a derived gradient its
    values at points without a unique derivative."""
    head = f"// {subject.name}\n"
    if isinstance(subject, Graph):
        return head + format_declaration(subject.definition.syntax)
    if others := list_other_names(subject.name):
        head += f"// elsewhere: {', '.join(others)}\n"
    for choice in find_choices(subject):
        head += f"// {choice.text}{_quote(choice.span)}\n"
    return head + format_declaration(subject.definition.syntax)


def _quote(span: Span | None) -> str:
    """Part of a formula, shortened to a line."""
    if span is None:
        return ""
    text = " ".join(span.text.split())
    return f": {text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}"
