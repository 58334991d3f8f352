"""`dmlc check`: every mistake in some files."""

from __future__ import annotations

import json
from typing import Any

import click

import dmlc
from dmlc.source import Diagnostic, DmlcError


@click.command("check", epilog="Example: dmlc check my_operators.dml")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Write the diagnostics as JSON.")
def command(files: tuple[str, ...], as_json: bool) -> int:
    """Parse and check files; report every mistake with its place."""
    found: list[Diagnostic] = []
    for file in files:
        try:
            module = dmlc.load(file)
        except DmlcError as error:
            found += error.diagnostics
            if not as_json:
                click.echo(str(error), err=True)
            continue
        if not as_json:
            click.echo(f"{file}: {_count(module)}, no mistakes")
    if as_json:
        click.echo(json.dumps([_describe(d) for d in found], indent=2))
    return 1 if found else 0


def _count(module: dmlc.Module) -> str:
    kinds = (("operator", len(module.operators)), ("graph", len(module.graphs)))
    parts = [f"{n} {kind}" if n == 1 else f"{n} {kind}s" for kind, n in kinds if n]
    return ", ".join(parts) or "no operators"


def _describe(diagnostic: Diagnostic) -> dict[str, Any]:
    span = diagnostic.span
    return {
        "message": diagnostic.message,
        "file": None if span is None else span.source.name,
        "line": None if span is None else span.line,
        "column": None if span is None else span.column,
        "notes": [note.message for note in diagnostic.notes],
    }
