"""`dmlc explain`: explanation of an error or warning code."""

from __future__ import annotations

import click

from dmlc.cli.completion import complete_code
from dmlc.diagnostics import explain, list_codes


@click.command("explain", epilog="Example: dmlc explain E0401")
@click.argument("code", required=False, shell_complete=complete_code)
def command(code: str | None) -> None:
    """Explain the CODE of an error or a warning, with an example and its cure. Without CODE,
    list all of them."""
    if code is not None:
        click.echo(explain(code).text.rstrip())
        return
    last = ""
    for known in map(explain, list_codes()):
        group = "Warnings" if known.is_warning else known.group
        if group != last:
            click.echo(f"{group}:")
        last = group
        click.echo(f"  {known.code}  {known.title}")
