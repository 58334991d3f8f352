"""Running programs on OpenCL devices: which devices there are, and a program loaded on one.

The parts: `device` (choosing one), `driver` (OpenCL itself), `arrays`, `placement` and `quick`
(the caller's arrays as tensors), `executable` (the run), `oclgrind` (a run that is watched).
"""

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
    """Every OpenCL device of this machine; empty where there is none."""
    return discover()


def find_device(selector: str | None = None) -> Device:
    """The device that a selector means: see `device.choose`. Reads PYOPENCL_CTX."""
    return choose(devices(), selector, os.environ)


def load(program: Program, selector: str | None = None) -> Executable:
    """Builds a program on the device that the selector means.

    Raises `UnavailableError` where there is no such device, `UnsupportedError` where the program
    was compiled for another target or exceeds the device's limits, and `DmlcError` where the
    device's compiler refuses a source.
    """
    return load_on(program, find_device(selector))


def load_on(program: Program, device: Device) -> Executable:
    """Builds a program on one of `devices()`. Raises as `load` does."""
    return Executable(program, open_session(device))


def find_tool() -> Tool | None:
    """Oclgrind, where it is installed."""
    return Tool("Oclgrind", check_accesses) if find_oclgrind() else None


def check_accesses(
    program: Program, _: Device, inputs: Mapping[str, Array], outputs: Mapping[str, Shape]
) -> list[str]:
    """What Oclgrind objects to in a run: see `oclgrind.find_objections`."""
    return find_objections(program, inputs, outputs)
