"""Simulated device that takes every freedom which HLSL, Vulkan and Direct3D 12 give to devices.

It interprets the kernels that HLSL is generated from, with the decisions of the HLSL generator: a
result that the language leaves undefined is one that no compiler may count on. A program that is
wrong on it and right on every available driver is wrong on some device.

The parts: `device` (promises and selectors), `executable` (a program on it). `dmlc.freedoms` lists
the freedoms, and `dmlc.codegen.simulate` runs the kernels.
"""

from __future__ import annotations

from dmlc.program import Program
from dmlc.runtime.copied import Call
from dmlc.runtime.strict.device import StrictDevice, choose_device
from dmlc.runtime.strict.executable import Executable

__all__ = [
    "CHOICE",
    "Call",
    "Executable",
    "StrictDevice",
    "devices",
    "find_device",
    "find_tool",
    "load_on",
]

CHOICE = ""


def devices() -> tuple[StrictDevice, ...]:
    """Device that takes all freedoms, with seed 0."""
    return (StrictDevice(),)


def find_device(selector: str | None = None) -> StrictDevice:
    """Device of a selector: see `device.choose_device`."""
    return choose_device(selector)


def find_tool() -> None:
    """Returns None: the interpreter of kernels itself checks memory accesses."""


def load_on(program: Program, device: StrictDevice) -> Executable:
    """Loads a program on a device. Raises `UnsupportedError` for one compiled for others."""
    return Executable(program, device)
