"""`dmlc ops`: operators of the library."""

from __future__ import annotations

import json
from typing import Any

import click

import dmlc
from dmlc.cli.messages import show
from dmlc.cli.patterns import matches_pattern
from dmlc.summaries import Summary, list_files, read_index, summarize

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
    index = read_index()
    library = {name: index.get(name) or _read(name) for name in list_files()}
    gradients: dict[str, list[str]] = {}
    for name, summary in library.items():
        if summary.forward is not None:
            gradients.setdefault(summary.forward, []).append(name)
    rows = [
        _describe(name, summary, gradients.get(name, []))
        for name, summary in library.items()
        if pattern is None or matches_pattern(name, pattern)
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        _print(rows)
    else:
        show(f"no operator matches '{pattern}'")
        return 1
    return 0


def _read(name: str) -> Summary:
    """Summary of an operator that the index lacks, from its file."""
    return summarize(dmlc.operators()[name].definition)


def _describe(name: str, summary: Summary, gradients: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "family": name.rpartition(".")[0],
        "types": list(summary.types),
        "ranks": list(summary.ranks),
        "forward": summary.forward,
        "gradients": gradients,
        "differentiable": summary.differentiable,
    }


def _print(rows: list[dict[str, Any]]) -> None:
    shown = [{title: title for title in _COLUMNS}, *(_cells(row) for row in rows)]
    widths = {c: max(len(row[c]) for row in shown) for c in _COLUMNS}
    for number, row in enumerate(shown):
        line = "  ".join(row[c].ljust(widths[c]) for c in _COLUMNS).rstrip()
        # The titles go to standard error, so that a pipe gets operators only.
        (show if number == 0 else click.echo)(line)


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
