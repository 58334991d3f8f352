"""`dmlc fmt`: formatter of files."""

from __future__ import annotations

from pathlib import Path

import click

from dmlc.cli.completion import complete_file
from dmlc.cli.messages import show
from dmlc.files import write_files
from dmlc.language.format import format_file
from dmlc.language.parse import parse, read_source
from dmlc.source import DmlcError


@click.command("fmt", epilog="Example: dmlc fmt --check my_operators.dml")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_file)
@click.option(
    "--check", is_flag=True, help="Change nothing; exit with 1 where a file would change."
)
def command(files: tuple[str, ...], check: bool) -> int:
    """Format files in place: tables aligned, comments kept, parentheses where needed."""
    status = 0
    for name in files:
        path = Path(name)
        try:
            source = read_source(path)
            formatted = format_file(parse(source))
            if formatted == source.text:
                continue
            if not check:
                target = path.resolve()
                write_files(target.parent, {target.name: formatted.encode()})
        except DmlcError as error:
            show(error)
            status = 1
            continue
        click.echo(f"{name}: {'would change' if check else 'formatted'}")
        status = 1 if check else status
    return status
