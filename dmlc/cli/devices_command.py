"""`dmlc devices`: what programs can run on here."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from dmlc.runtime import d3d12, opencl, vulkan
from dmlc.runtime.d3d12 import D3D12Device
from dmlc.runtime.dxc_library import load_library
from dmlc.runtime.opencl.device import INSTALL_NOTE, Device
from dmlc.runtime.vulkan import VulkanDevice
from dmlc.source import DmlcError, UnavailableError

_Row = dict[str, Any]


@click.command("devices", epilog="Example: dmlc devices --json")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def command(as_json: bool) -> int:
    """List the devices that programs can run on, and how to get what is missing."""
    rows: list[_Row] = []
    missing: list[DmlcError] = []
    try:
        rows += [_describe_opencl(device) for device in opencl.devices()]
    except UnavailableError as error:
        missing.append(error)
    if not rows and not missing:
        missing.append(UnavailableError("there is no OpenCL device", notes=[INSTALL_NOTE]))
    try:
        rows += [_describe_vulkan(device) for device in vulkan.devices()]
        load_library()
    except UnavailableError as error:
        missing.append(error)
    if sys.platform == "win32":
        try:
            rows += [_describe_d3d12(device) for device in d3d12.devices()]
        except UnavailableError as error:
            missing.append(error)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    for row in () if as_json else rows:
        click.echo(f"{row['selector']}  {row['name']}: {', '.join(row['facts'])}")
    for error in missing:
        click.echo(str(error), err=True)
    return 0 if rows else 3


def _describe_opencl(device: Device) -> _Row:
    return {
        "selector": f"opencl:{device.index}",
        "name": device.name,
        "facts": [
            f"{device.platform}, {device.version.strip()}",
            device.kind.value,
            f"{device.compute_units} compute units",
            f"{device.memory_size >> 20:,} MiB",
            f"largest buffer {device.max_allocation >> 20:,} MiB",
            "float64" if device.float64 else "no float64",
            f"memory {device.memory.value}",
            *([device.note] if device.note else []),
        ],
    }


def _describe_vulkan(device: VulkanDevice) -> _Row:
    return {
        "selector": f"vulkan:{device.index}",
        "name": device.name,
        "facts": [
            f"Vulkan, {device.type.label}",
            f"largest binding {device.limits.storage_range >> 20:,} MiB",
            f"{device.limits.group_threads:,} threads per group",
            *([device.note] if device.note else []),
        ],
    }


def _describe_d3d12(device: D3D12Device) -> _Row:
    return {
        "selector": f"d3d12:{device.index}",
        "name": device.name,
        "facts": ["Direct3D 12", device.type.value, device.note],
    }
