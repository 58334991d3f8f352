"""Output of the commands that import models of other tools as functions of the tensor IR."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dmlc.cli.arguments import show_commands
from dmlc.cli.arrays import encode_array, find_weights
from dmlc.files import name_file, write_files
from dmlc.processes import spell_command

if TYPE_CHECKING:
    from dmlc.onnx import ImportedModel


def show_imported(found: ImportedModel, path: str, directory: str | None) -> None:
    """Writes the function of a model to a file in a folder, and its weights beside it, or prints
    the function."""
    if directory is None:
        click.echo(str(found.function))
        return
    name = name_file(Path(path).stem, ".ir")
    folder = Path(directory)
    weights = {name_file(n, ".npy"): encode_array(array) for n, array in found.weights.items()}
    paths = write_files(find_weights(folder / name), weights) if weights else []
    for written in (*write_files(folder, {name: f"{found.function}\n".encode()}), *paths):
        click.echo(written)
    given = [f"{own}={name_file(own, '.npy')}" for own in found.inputs.values()]
    words = [word for each in given for word in ("--input", each)]
    show_commands("to run it", [spell_command("dmlc", "run", folder / name, *words)])
