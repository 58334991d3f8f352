"""`dmlc show`: one operator or graph, as its file has it."""

from __future__ import annotations

import click

from dmlc.binding import Graph
from dmlc.cli.arguments import find_subject, import_option
from dmlc.language.format import format_graph, format_operator


@click.command("show", epilog="Example: dmlc show directml.ACTIVATION_RELU_GRAD")
@click.argument("operator")
@import_option
def command(operator: str, folders: tuple[str, ...]) -> None:
    """Show an operator: tables, constraints, formula and examples; or a graph.

    OPERATOR is a name of the library, or FILE[:NAME].
    """
    found = find_subject(operator, folders)
    click.echo(f"// {found.name}")
    if isinstance(found, Graph):
        click.echo(format_graph(found.definition.syntax), nl=False)
    else:
        click.echo(format_operator(found.definition.syntax), nl=False)
