"""`dmlc ops`: the operators of the library."""

from __future__ import annotations

import fnmatch
import json

import click

import dmlc
from dmlc.binding import Operator


@click.command("ops", epilog="Example: dmlc ops '*RELU*'")
@click.argument("pattern", required=False)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(pattern: str | None, as_json: bool) -> int:
    """List operators: name, family, types, ranks, and the forward operator of a gradient.

    PATTERN is part of a name, or has '*' and '?' in it; case does not matter.
    """
    found = [o for name, o in dmlc.operators().items() if _matches(name, pattern)]
    rows = [_describe(operator) for operator in found]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        _print(rows)
    else:
        click.echo(f"no operator matches '{pattern}'", err=True)
        return 1
    return 0


def _matches(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    folded = pattern.lower()
    whole = folded if any(c in folded for c in "*?[") else f"*{folded}*"
    return fnmatch.fnmatchcase(name.lower(), whole)


def _describe(operator: Operator) -> dict[str, str]:
    definition = operator.definition
    tensors = definition.levels[-1].tensors
    types = dict.fromkeys(t.name for tensor in tensors for t in tensor.dtypes)
    if definition.combinations:
        types = dict.fromkeys(
            t.name for row in definition.combinations for some in row.types.values() for t in some
        )
    ranks = sorted({rank for tensor in tensors for rank in tensor.ranks})
    return {
        "name": operator.name,
        "family": operator.name.rpartition(".")[0],
        "types": ", ".join(types),
        "ranks": f"{ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else str(ranks[0]),
        "forward": definition.forward or "",
    }


def _print(rows: list[dict[str, str]]) -> None:
    columns = list(rows[0])
    widths = {c: max(len(c), *(len(row[c]) for row in rows)) for c in columns}
    for row in ({c: c for c in columns}, *rows):
        click.echo("  ".join(row[c].ljust(widths[c]) for c in columns).rstrip())
