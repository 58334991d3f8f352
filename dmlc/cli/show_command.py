"""`dmlc show`: one operator, as its file has it."""

from __future__ import annotations

import click

from dmlc.cli.arguments import find_operator
from dmlc.language.format import format_operator


@click.command("show", epilog="Example: dmlc show directml.ACTIVATION_RELU_GRAD")
@click.argument("operator")
def command(operator: str) -> None:
    """Show an operator: tables, constraints, formula and examples.

    OPERATOR is a name of the library, or FILE[:NAME].
    """
    found = find_operator(operator)
    click.echo(f"// {found.name}")
    click.echo(format_operator(found.definition.syntax), nl=False)
