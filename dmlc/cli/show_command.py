"""`dmlc show`: one operator or graph, as its file has it."""

from __future__ import annotations

import click

from dmlc.binding import Graph
from dmlc.cli.arguments import find_subject, import_option
from dmlc.cli.completion import complete_operator
from dmlc.language.format import format_graph, format_operator
from dmlc.library.equivalents import list_other_names
from dmlc.source import Span
from dmlc.testing.choices import find_choices

_SHOWN = 60
"""How much of a formula is shown."""


@click.command("show", epilog="Example: dmlc show directml.ACTIVATION_RELU_GRAD")
@click.argument("operator", shell_complete=complete_operator)
@import_option
def command(operator: str, folders: tuple[str, ...]) -> None:
    """Show an operator: tables, constraints, formula and examples; or a graph. Of a gradient that
    is derived, also what it is at points that have no one derivative. Of an operator of the
    library, also what others call the same: ONNX, PyTorch, and its other families.

    OPERATOR is a name of the library, or FILE[:NAME].
    """
    found = find_subject(operator, folders)
    click.echo(f"// {found.name}")
    if isinstance(found, Graph):
        click.echo(format_graph(found.definition.syntax), nl=False)
        return
    if others := list_other_names(found.name):
        click.echo(f"// elsewhere: {', '.join(others)}")
    for choice in find_choices(found):
        click.echo(f"// {choice.text}{_quote(choice.span)}")
    click.echo(format_operator(found.definition.syntax), nl=False)


def _quote(span: Span | None) -> str:
    """A piece of a formula, as a line has room for it."""
    if span is None:
        return ""
    text = " ".join(span.text.split())
    return f": {text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...'}"
