"""`dmlc devices`: devices of this machine."""

from __future__ import annotations

import json
from typing import Any

import click

from dmlc.cli.messages import show
from dmlc.devices import list_devices, selector_of
from dmlc.known_answers import find_all_wrong
from dmlc.runtime.interface import AnyDevice
from dmlc.source import UnavailableError


@click.command("devices", epilog="Example: dmlc devices --check")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--check", is_flag=True, help="Test each device on kernels with known answers.")
def command(as_json: bool, check: bool) -> int:
    """List the devices that programs can run on, and how to install what is missing.

    With --check, each device runs kernels with known answers: every function and every kind of
    statement, in every type and width. The exit status is 1 if an answer is wrong. The test takes
    some seconds; a passed one is cached."""
    found, missing = list_devices()
    rows = [_describe(device) for device in found]
    for row, device in zip(rows if check else (), found, strict=False):
        row["wrong"] = _check(device)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    for row in () if as_json else rows:
        click.echo(f"{row['selector']}  {row['name']}: {', '.join(row['facts'])}")
        if check:
            for line in row["wrong"] or ["every known answer is right"]:
                click.echo(f"    {line}")
    for error in missing:
        show(error)
    if any(row.get("wrong") for row in rows):
        return 1
    # A simulated device is no reason to be content.
    return 0 if any(not device.compile_options.get("interpreted") for device in found) else 3


def _check(device: AnyDevice) -> list[str]:
    """Wrong answers of a device, or the reason that there are no answers."""
    try:
        return list(find_all_wrong(device))
    except UnavailableError as error:
        return [f"cannot be checked: {error.diagnostics[0].message}"]


def _describe(device: AnyDevice) -> dict[str, Any]:
    notes = [device.note] if device.note else []
    facts = [*device.facts, *notes]
    return {
        "selector": selector_of(device),
        "name": device.name,
        "facts": facts,
        "floats": device.floats.to_json(),
    }
