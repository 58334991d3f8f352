"""`dmlc devices`: what programs can run on here."""

from __future__ import annotations

import json
from typing import Any

import click

from dmlc.runtime import opencl
from dmlc.runtime.device import INSTALL_NOTE, Device


@click.command("devices", epilog="Example: dmlc devices --json")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(as_json: bool) -> int:
    """List the devices that programs can run on, and how to get one where there is none."""
    devices = opencl.devices()
    if as_json:
        click.echo(json.dumps([_describe(d) for d in devices], indent=2))
    for device in () if as_json else devices:
        float64 = "float64" if device.float64 else "no float64"
        click.echo(
            f"opencl:{device.index}  {device.name} ({device.platform}, {device.version.strip()}): "
            f"{device.kind.value}, {device.compute_units} compute units, "
            f"{device.memory_size >> 20:,} MiB, {float64}, memory {device.memory.value}"
        )
    if not devices:
        click.echo(f"there is no OpenCL device; {INSTALL_NOTE.message}", err=True)
        return 3
    return 0


def _describe(device: Device) -> dict[str, Any]:
    return {
        "selector": f"opencl:{device.index}",
        "name": device.name,
        "platform": device.platform,
        "kind": device.kind.value,
        "version": device.version.strip(),
        "compute_units": device.compute_units,
        "memory_bytes": device.memory_size,
        "largest_buffer_bytes": device.max_allocation,
        "float64": device.float64,
        "memory": device.memory.value,
    }
