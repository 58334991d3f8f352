"""`dmlc check`: errors in files, and slow code in their kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import dmlc
from dmlc.cli.arguments import Bindings, binding_options, count_subjects, find_file
from dmlc.cli.completion import complete_file
from dmlc.cli.messages import show
from dmlc.source import Diagnostic, DmlcError
from dmlc.testing.findings import THOROUGH, find_mistakes


@click.command(
    "check",
    epilog="Example: dmlc check my_operators.dml, or "
    "dmlc check my_operators.dml:MINE --bind --tensor x=FLOAT32[4096]",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_file)
@click.option("--bind", is_flag=True,
              help="Also bind FILE, or FILE:NAME if it defines several operators, with --tensor, "
              "--attr and --dim as in compile, and warn of kernels that are slow on GPUs.",
              )  # fmt: skip
@binding_options
@click.option("--thorough", is_flag=True,
              help=f"Also try {THOROUGH} random calls from the tables of each operator, as dmlc "
              "test does, and report those that the formula cannot take.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Write the diagnostics as JSON.")
def command(
    files: tuple[str, ...],
    bind: bool,
    bindings: Bindings,
    thorough: bool,
    as_json: bool,
) -> int:
    """Parse and check files, and report every error with its location. Warnings are about likely
    mistakes, and do not change the exit status.

    Each operator of a file without errors is bound to its examples and to a few calls from its
    tables, and the reference evaluates the examples. This finds gradients that are 0, numbers that
    overflow, and permitted calls that the formula cannot take. No kernel runs: dmlc test FILE
    checks results."""
    if bind and len(files) > 1:
        raise click.UsageError("--bind takes one FILE, or one FILE:NAME")
    if not bind and bindings:
        raise click.UsageError("--tensor, --attr and --dim are what --bind binds with: give it too")
    found: list[Diagnostic] = []

    def warn(warnings: Sequence[Diagnostic]) -> None:
        found.extend(warnings)
        for warning in () if as_json else warnings:
            show(warning)

    for file in files:
        try:
            module = dmlc.load(find_file(file) if bind else file, bindings.folders)
            warn(module.diagnostics)
            said = count_subjects(module)
            own = [o for o in module.operators.values() if _is_of(o, file)]
            mistakes = [m for o in own for m in find_mistakes(o, THOROUGH if thorough else 0)]
            warn([m for m in mistakes if m.warning])
            errors = [m for m in mistakes if not m.warning]
            if errors:
                raise DmlcError(errors)
            if bind:
                function = bindings.bind(file)
                program = dmlc.compile(function, target="hlsl")
                warn(program.warnings)
                kernels = len(program.kernels)
                said = f"{function.name} binds to {kernels} kernel{'s' if kernels != 1 else ''}"
        except DmlcError as error:
            found += error.diagnostics
            if not as_json:
                show(error)
            continue
        if not as_json:
            click.echo(f"{file}: {said}, no mistakes")
    if as_json:
        click.echo(json.dumps([_describe(d) for d in found], indent=2))
    return 0 if all(d.warning for d in found) else 1


def _is_of(operator: dmlc.Operator, file: str) -> bool:
    """Whether an operator is declared in a file, and not in an import of it."""
    path = Path(operator.definition.syntax.span.source.name)
    return path.resolve() == Path(find_file(file)).resolve()


def _describe(diagnostic: Diagnostic) -> dict[str, Any]:
    span = diagnostic.span
    return {
        "code": diagnostic.code,
        "message": diagnostic.message,
        "warning": diagnostic.warning,
        "file": None if span is None else span.source.name,
        "line": None if span is None else span.line,
        "column": None if span is None else span.column,
        "end_line": None if span is None else span.end_line,
        "end_column": None if span is None else span.end_column,
        "notes": [note.message for note in diagnostic.notes],
    }
