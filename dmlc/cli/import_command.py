"""`dmlc import`: reference pages as descriptions of operators."""

from __future__ import annotations

from pathlib import Path

import click

from dmlc import pages
from dmlc.cli.arguments import show_commands
from dmlc.cli.messages import show
from dmlc.files import name_file, write_files
from dmlc.processes import spell_command
from dmlc.source import DmlcError


@click.command(
    "import", epilog="Example: dmlc import activation_relu_grad.md ReLUBackward.rst -o operators"
)
@click.argument("names", nargs=-1, required=True, metavar="PAGE...")
@click.option("-o", "--output", "directory", metavar="DIR",
              help="Write each description to DIR/OPERATOR.dml. Without it, print them.",
              )  # fmt: skip
def command(names: tuple[str, ...], directory: str | None) -> int:
    """Convert reference pages of DirectML and oneDNN Graph to descriptions of operators.

    A page is Markdown or reStructuredText, as published. Its tables, structure and sentences become
    a description that passes dmlc check; a formula becomes its compute section. A sentence that is
    not understood becomes a comment with its line on the page. The number of understood lines of
    each page is printed on standard error. A page that cannot be read does not stop the conversion
    of the others."""
    contents: dict[str, bytes] = {}
    pages_of: dict[str, str] = {}
    status = 0
    read = pages.import_page
    for name in names:
        try:
            made = read(name)
            file = name_file(made.name, ".dml")
            if directory is not None and file in contents:
                raise DmlcError(
                    f"'{name}' and '{pages_of[file]}' both describe {made.name}",
                    notes=["import them into folders of their own"],
                )
        except DmlcError as error:
            show(error)
            status = 1
            continue
        contents[file], pages_of[file] = made.text.encode(), name
        show(str(made.figures))
        if directory is None:
            click.echo(made.text, nl=False)
    if directory is not None and contents:
        written = write_files(directory, contents)
        for path in written:
            click.echo(path)
        files = (Path(directory) / file for file in contents)
        show_commands("to check what was written", [spell_command("dmlc", "check", *files)])
    return status
