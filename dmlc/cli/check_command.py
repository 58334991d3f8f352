"""`dmlc check`: every mistake in some files."""

from __future__ import annotations

import json
from typing import Any

import click

import dmlc
from dmlc.cli.arguments import count_subjects, import_option
from dmlc.source import Diagnostic, DmlcError


@click.command("check", epilog="Example: dmlc check my_operators.dml")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@import_option
@click.option("--json", "as_json", is_flag=True, help="Write the diagnostics as JSON.")
def command(files: tuple[str, ...], folders: tuple[str, ...], as_json: bool) -> int:
    """Parse and check files; report every mistake with its place. Warnings are of what may well
    be meant, and leave the status at 0."""
    found: list[Diagnostic] = []
    for file in files:
        try:
            module = dmlc.load(file, folders)
        except DmlcError as error:
            found += error.diagnostics
            if not as_json:
                click.echo(str(error), err=True)
            continue
        found += module.diagnostics
        if not as_json:
            for warning in module.diagnostics:
                click.echo(warning.render(), err=True)
            click.echo(f"{file}: {count_subjects(module)}, no mistakes")
    if as_json:
        click.echo(json.dumps([_describe(d) for d in found], indent=2))
    return 0 if all(d.warning for d in found) else 1


def _describe(diagnostic: Diagnostic) -> dict[str, Any]:
    span = diagnostic.span
    return {
        "message": diagnostic.message,
        "warning": diagnostic.warning,
        "file": None if span is None else span.source.name,
        "line": None if span is None else span.line,
        "column": None if span is None else span.column,
        "notes": [note.message for note in diagnostic.notes],
    }
