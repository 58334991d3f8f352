"""`dmlc cache`: results cached on disk."""

from __future__ import annotations

import dataclasses
import json

import click

from dmlc.files import cache_folder
from dmlc.runtime.kept import PARTS, clear, measure
from dmlc.source import UnavailableError


@click.command("cache", epilog="Example: dmlc cache --clear")
@click.option("--clear", "cleared", is_flag=True, help="Remove all entries.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(cleared: bool, as_json: bool) -> None:
    """Show the results that are cached on disk: the folder, the entries and their size.

    Missing entries are computed again. The folder is in $XDG_CACHE_HOME, or in ~/.cache. If the
    environment variable DMLC_NO_CACHE has a value, compiled kernels are neither written nor read.
    Drivers cache machine code themselves, in folders of their own: PoCL in pocl/kcache, Mesa in
    mesa_shader_cache."""
    folder = cache_folder()
    if folder is None:
        raise UnavailableError(
            "there is no home to keep anything in", notes=["name a folder in XDG_CACHE_HOME"]
        )
    if cleared:
        for part in PARTS:
            clear(part)
    found = {part: measure(part) for part in PARTS}
    if as_json:
        parts = {part: dataclasses.asdict(contents) for part, contents in found.items()}
        click.echo(json.dumps({"folder": str(folder), "parts": parts}, indent=2))
        return
    click.echo(folder)
    for part, contents in found.items():
        entries = f"{contents.entries:,} {'entry' if contents.entries == 1 else 'entries'}"
        click.echo(f"  {part}: {entries}, {contents.bytes / 1024:,.1f} KiB ({PARTS[part]})")
