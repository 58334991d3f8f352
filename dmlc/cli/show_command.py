"""`dmlc show`: one operator or graph, as its file has it."""

from __future__ import annotations

import click

from dmlc.cli.arguments import find_subject, import_option
from dmlc.cli.completion import complete_operator
from dmlc.listing import list_subject


@click.command("show", epilog="Example: dmlc show directml.ACTIVATION_RELU_GRAD")
@click.argument("operator", shell_complete=complete_operator)
@import_option
def command(operator: str, folders: tuple[str, ...]) -> None:
    """Show an operator: tables, constraints, formula and examples; or a graph. Of a gradient that
    is derived, also what it is at points that have no one derivative. Of an operator of the
    library, also what others call the same: ONNX, PyTorch, and its other families.

    OPERATOR is a name of the library, or FILE[:NAME].
    """
    click.echo(list_subject(find_subject(operator, folders)), nl=False)
