"""Devices of every runtime by name, and functions compiled for and loaded on them.

The targets list the runtimes. A runtime's word names its devices, optionally followed by `:` and an
index or a part of a device's name; `reference` evaluates in NumPy. The runtime resolves the
selector.
"""

from __future__ import annotations

import functools

from dmlc.codegen.dialect import Dialect
from dmlc.codegen.targets import TARGETS
from dmlc.ir import Function
from dmlc.matrices import NOTHING, Instruction
from dmlc.parameters import expect_text
from dmlc.pipeline import USUAL, Steps, compile_by
from dmlc.program import FLOAT_WIDTHS, Program
from dmlc.runtime.floats import CORRECT, Division, FloatPromises
from dmlc.runtime.interface import (
    AnyDevice,
    AnyExecutable,
    ForeignError,
    find_compiler,
    find_runtime,
)
from dmlc.source import UnavailableError, check_known

DEFAULT = "opencl"
"""Default device."""
REFERENCE = "reference"

_TARGETS = {runtime: target for target in TARGETS for runtime in target.runtimes}
RUNTIMES: tuple[str, ...] = tuple(sorted(_TARGETS, key=lambda name: name != DEFAULT))
"""Words that name devices, the default first."""


def find_device(device: str) -> AnyDevice | None:
    """Device of a device text, or None for the reference."""
    expect_text("device", device, "the name of a device, such as 'opencl'")
    if device == REFERENCE:
        return None
    head = device.partition(":")[0]
    if head not in RUNTIMES:
        check_known("device", (*RUNTIMES, REFERENCE), device)
    return find_runtime(head).find_device(device)


def list_devices() -> tuple[list[AnyDevice], list[UnavailableError]]:
    """Every device of this machine, and the missing parts of others."""
    found: list[AnyDevice] = []
    missing: list[UnavailableError] = []
    for name in RUNTIMES:
        runtime, compiler = find_runtime(name), _TARGETS[name].compiler
        try:
            found += runtime.devices() or [runtime.find_device()]
            if compiler:
                find_compiler(compiler).check_tools()
        except ForeignError:
            continue
        except UnavailableError as error:
            missing.append(error)
    return found, missing


def find_promises(device: str) -> FloatPromises:
    """Floating-point promises of the device of a text. The reference rounds correctly, and keeps
    all special values."""
    found = find_device(device)
    return _EXACT if found is None else found.floats


_EXACT = FloatPromises(
    FLOAT_WIDTHS, FLOAT_WIDTHS, Division(CORRECT, CORRECT), Division(CORRECT, CORRECT)
)


def selector_of(device: AnyDevice) -> str:
    """Text that names this device and no other."""
    return f"{device.runtime}:{device.index}"


def load_on(program: Program, device: AnyDevice) -> AnyExecutable:
    """Builds a program on a device. Raises as the device's runtime does."""
    return find_runtime(device.runtime).load_on(program, device)


def list_profiles(device: AnyDevice) -> tuple[str, ...]:
    """Profiles that programs for a device may have, its own first."""
    target = _TARGETS[device.runtime]
    own = device.compile_options.get("profile", target.profiles[0])
    return tuple(sorted(target.profiles, key=lambda name: name != own))


def list_matrices(device: AnyDevice) -> tuple[Instruction, ...]:
    """Matrix instructions that kernels for a device may use."""
    return getattr(device, "matrices", NOTHING).list_usable()


def compile_for(
    function: Function, device: AnyDevice, steps: Steps = USUAL, profile: str | None = None
) -> Program:
    """Program of a function in the device's language, and in its profile unless another is
    given."""
    options = device.compile_options.copy()
    if profile is not None:
        options["profile"] = profile
    return compile_by(steps, function, _TARGETS[device.runtime].name, **options)


def list_dialects(device: AnyDevice) -> tuple[Dialect, ...]:
    """Dialects that a device accepts, the default first."""
    target = _TARGETS[device.runtime]
    first = target.find_dialect(device.compile_options.get("shader_model"))
    return target.dialects[target.dialects.index(first) :]


@functools.lru_cache(maxsize=256)
def load_function(function: Function, device: AnyDevice, steps: Steps = USUAL) -> AnyExecutable:
    """Function compiled for a device by some steps, and built there; the latest are kept."""
    return load_on(compile_for(function, device, steps), device)
