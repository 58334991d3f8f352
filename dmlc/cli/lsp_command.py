"""`dmlc lsp`: language server for editors."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from dmlc import editor
from dmlc.cli.arguments import import_option
from dmlc.source import DmlcError


@click.command("lsp", epilog="Example: dmlc lsp --log dmlc-lsp.log")
@import_option
@click.option("--log", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write errors to this file instead of standard error.")  # fmt: skip
def command(folders: tuple[str, ...], log: str | None) -> None:
    """Serve an editor: mistakes with quick fixes, completion, hover, definitions, references,
    renames, signatures, colours and formatting of .dml files, by the Language Server Protocol over
    standard input and output.

    The editor starts it; docs/how-to/editor.md shows how for some. It needs
    pip install 'dmlc[lsp]'.
    """
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    try:
        logging.basicConfig(filename=log, level=logging.WARNING, format=form)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DmlcError(f"cannot write '{log}': {reason}", code="E0005") from error
    editor.serve([Path(folder) for folder in folders])
