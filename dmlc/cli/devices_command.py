"""`dmlc devices`: what programs can run on here."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from dmlc.devices import AnyDevice
from dmlc.known_answers import find_wrong_answers
from dmlc.runtime import d3d12, opencl, vulkan
from dmlc.runtime.d3d12 import D3D12Device
from dmlc.runtime.dxc_library import load_library
from dmlc.runtime.opencl.device import INSTALL_NOTE, Device
from dmlc.runtime.vulkan import VulkanDevice
from dmlc.source import DmlcError, UnavailableError

_Row = dict[str, Any]


@click.command("devices", epilog="Example: dmlc devices --check")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--check", is_flag=True, help="Say of each device whether it computes rightly.")
def command(as_json: bool, check: bool) -> int:
    """List the devices that programs can run on, and how to get what is missing.

    With --check, each runs small kernels whose answers are known; the exit status is 1 where one
    is wrong.
    """
    missing: list[DmlcError] = []
    found: list[AnyDevice] = []
    try:
        found += opencl.devices()
    except UnavailableError as error:
        missing.append(error)
    if not found and not missing:
        missing.append(UnavailableError("there is no OpenCL device", notes=[INSTALL_NOTE]))
    try:
        found += vulkan.devices()
        load_library()
    except UnavailableError as error:
        missing.append(error)
    if sys.platform == "win32":
        try:
            found += d3d12.devices()
        except UnavailableError as error:
            missing.append(error)
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
        click.echo(str(error), err=True)
    if any(row.get("wrong") for row in rows):
        return 1
    return 0 if rows else 3


def _check(device: AnyDevice) -> list[str]:
    """What a device gets wrong, or why that cannot be found out."""
    try:
        return list(find_wrong_answers(device))
    except UnavailableError as error:
        return [f"cannot be checked: {error.diagnostics[0].message}"]


def _describe(device: AnyDevice) -> _Row:
    if isinstance(device, VulkanDevice):
        return _describe_vulkan(device)
    if isinstance(device, D3D12Device):
        return _describe_d3d12(device)
    return _describe_opencl(device)


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
