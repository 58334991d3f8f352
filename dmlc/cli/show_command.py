"""`dmlc show`: source of one operator or graph."""

from __future__ import annotations

import click

from dmlc.binding import Operator
from dmlc.cli.arguments import find_subject, import_option
from dmlc.cli.completion import complete_operator
from dmlc.datasheet import write_datasheet
from dmlc.listing import list_subject
from dmlc.source import DmlcError


@click.command("show", epilog="Example: dmlc show directml.ACTIVATION_RELU_GRAD")
@click.argument("operator", shell_complete=complete_operator)
@click.option("--datasheet", is_flag=True, help="Show the operator's page as Markdown: its first "
              "example as a call in Python and C++, the shader, the gradient, the modelled cost on "
              "GPUs, and where DirectML differs.")  # fmt: skip
@import_option
def command(operator: str, datasheet: bool, folders: tuple[str, ...]) -> None:
    """Show an operator: tables, constraints, formula and examples; or a graph.

    For a derived gradient, its values at points without a unique derivative are shown. For an
    operator of the library, its names in ONNX, PyTorch and the other families are shown.

    OPERATOR is a name of the library, or FILE[:NAME]."""
    subject = find_subject(operator, folders)
    if not datasheet:
        click.echo(list_subject(subject), nl=False)
    elif isinstance(subject, Operator):
        click.echo(write_datasheet(subject), nl=False)
    else:
        raise DmlcError(
            f"{subject.name} is a graph, and a datasheet is an operator's",
            notes=["dmlc graph draws a graph, with the bytes that its kernels move"],
        )
