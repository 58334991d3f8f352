"""The listing of an operator or a graph: its text, and what is known of it besides.

`dmlc show` prints it, and editors show it.
"""

from __future__ import annotations

from dmlc.binding import Graph, Operator
from dmlc.language.format import format_graph, format_operator
from dmlc.library.equivalents import list_other_names
from dmlc.source import Span
from dmlc.testing.choices import find_choices

_SHOWN = 60
"""How much of a formula is shown."""


def list_subject(subject: Operator | Graph) -> str:
    """The lines of a listing. Of an operator of the library they say what others call the same, and
    of a gradient that is derived what it is at points that have no one derivative."""
    head = f"// {subject.name}\n"
    if isinstance(subject, Graph):
        return head + format_graph(subject.definition.syntax)
    if others := list_other_names(subject.name):
        head += f"// elsewhere: {', '.join(others)}\n"
    for choice in find_choices(subject):
        head += f"// {choice.text}{_quote(choice.span)}\n"
    return head + format_operator(subject.definition.syntax)


def _quote(span: Span | None) -> str:
    """A piece of a formula, as a line has room for it."""
    if span is None:
        return ""
    text = " ".join(span.text.split())
    return f": {text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}"
