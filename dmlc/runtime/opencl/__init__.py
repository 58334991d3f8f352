"""OpenCL C programs on OpenCL devices: list of devices, and loading of a program.

The parts: `device` (choosing one), `driver` (OpenCL itself), `arrays`, `placement` and `quick` (the
caller's arrays as tensors), `executable` (the run), `oclgrind` (a run under a checker)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dmlc.program import Program
from dmlc.runtime.arrays import Array, Shape
from dmlc.runtime.interface import Tool
from dmlc.runtime.opencl.device import Device, choose
from dmlc.runtime.opencl.driver import discover, open_session
from dmlc.runtime.opencl.executable import Executable
from dmlc.runtime.opencl.oclgrind import find_objections, find_oclgrind

CHOICE = "PYOPENCL_CTX"


def devices() -> tuple[Device, ...]:
    """Every OpenCL device of this machine; empty if there is none."""
    return discover()


def find_device(selector: str | None = None) -> Device:
    """Device of a selector: see `device.choose`. Reads PYOPENCL_CTX."""
    return choose(devices(), selector, os.environ)


def load(program: Program, selector: str | None = None) -> Executable:
    """Builds a program on the selected device. Raises `UnavailableError` if there is no such
    device, `UnsupportedError` for a program that was compiled for another target or exceeds the
    device's limits, and `DmlcError` if the device's compiler refuses a source."""
    return load_on(program, find_device(selector))


def load_on(program: Program, device: Device) -> Executable:
    """Builds a program on one of `devices()`. Raises as `load` does."""
    return Executable(program, open_session(device))


def find_tool() -> Tool | None:
    """Oclgrind; None if it is not installed."""
    return Tool("Oclgrind", check_accesses) if find_oclgrind() else None


def check_accesses(
    program: Program, _: Device, inputs: Mapping[str, Array], outputs: Mapping[str, Shape]
) -> list[str]:
    """Errors that Oclgrind reports for a run: see `oclgrind.find_objections`."""
    return find_objections(program, inputs, outputs)
