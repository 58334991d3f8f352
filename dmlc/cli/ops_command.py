"""`dmlc ops`: the operators of the library."""

from __future__ import annotations

import json
from typing import Any

import click

import dmlc
from dmlc.binding import Operator
from dmlc.cli.arguments import matches_pattern
from dmlc.language.definitions import is_differentiable

_COLUMNS = ("name", "family", "types", "ranks", "gradient")


@click.command("ops", epilog="Example: dmlc ops '*RELU*'")
@click.argument("pattern", required=False)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(pattern: str | None, as_json: bool) -> int:
    """List operators: name, family, types, ranks, and gradient: what an operator is the
    gradient of, or which operators are its gradients; of others, whether theirs can be derived
    ('gradient of', dmlc.gradient) or there is none.

    PATTERN is part of a name, or has '*' and '?' in it; case does not matter.
    """
    library = dmlc.operators()
    gradients: dict[str, list[str]] = {}
    for name, operator in library.items():
        if operator.definition.forward is not None:
            gradients.setdefault(operator.definition.forward, []).append(name)
    rows = [
        _describe(o, gradients)
        for name, o in library.items()
        if pattern is None or matches_pattern(name, pattern)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        _print(rows)
    else:
        click.echo(f"no operator matches '{pattern}'", err=True)
        return 1
    return 0


def _describe(operator: Operator, gradients: dict[str, list[str]]) -> dict[str, Any]:
    definition = operator.definition
    tensors = definition.levels[-1].tensors
    types = [t.name for tensor in tensors for t in tensor.dtypes]
    if definition.combinations:
        types = [t.name for row in definition.combinations for some in row.types.values()
                 for t in some]  # fmt: skip
    return {
        "name": operator.name,
        "family": operator.name.rpartition(".")[0],
        "types": list(dict.fromkeys(types)),
        "ranks": sorted({rank for tensor in tensors for rank in tensor.ranks}),
        "forward": definition.forward,
        "gradients": gradients.get(operator.name, []),
        "differentiable": is_differentiable(definition),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    shown = [{title: title for title in _COLUMNS}, *(_cells(row) for row in rows)]
    widths = {c: max(len(row[c]) for row in shown) for c in _COLUMNS}
    for row in shown:
        click.echo("  ".join(row[c].ljust(widths[c]) for c in _COLUMNS).rstrip())


def _cells(row: dict[str, Any]) -> dict[str, str]:
    ranks = row["ranks"]
    partner = [f"of {row['forward']}"] if row["forward"] else row["gradients"]
    partner = partner or ["derived" if row["differentiable"] else "none"]
    together = ranks == list(range(ranks[0], ranks[-1] + 1)) and len(ranks) > 2
    return {
        "name": row["name"],
        "family": row["family"],
        "types": ", ".join(row["types"]),
        "ranks": f"{ranks[0]} to {ranks[-1]}" if together else ", ".join(map(str, ranks)),
        "gradient": ", ".join(partner),
    }
