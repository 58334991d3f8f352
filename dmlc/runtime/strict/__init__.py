"""A simulated device that takes every freedom which HLSL, Vulkan and Direct3D 12 give to devices.

It interprets the kernels that HLSL is made of, by the decisions that the HLSL is written by: where
a language leaves a result open, it gives one that no compiler may count on. What is wrong on it and
right on every driver at hand is wrong on some device.

The parts: `device` (what it promises, and the text that names it), `executable` (a program on it).
`dmlc.freedoms` has what there is to take, and `dmlc.codegen.simulate` the kernels as it runs them.
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
    "load",
    "load_on",
]

CHOICE = ""


def devices() -> tuple[StrictDevice, ...]:
    """The device that takes all freedoms, by seed 0."""
    return (StrictDevice(),)


def find_device(selector: str | None = None) -> StrictDevice:
    """The device that a selector means: see `device.choose_device`."""
    return choose_device(selector)


def find_tool() -> None:
    """No tool of its own watches what kernels do in memory: the interpreter of kernels does."""


def load(program: Program, selector: str | None = None) -> Executable:
    """Takes a program to the device that the selector means. Raises `UnsupportedError` where the
    program was not compiled for it."""
    return load_on(program, find_device(selector))


def load_on(program: Program, device: StrictDevice) -> Executable:
    """Takes a program to a device. Raises as `load` does."""
    return Executable(program, device)
