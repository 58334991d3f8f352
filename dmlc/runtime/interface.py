"""Interface of every runtime: devices, and programs loaded on them.

A runtime is a package of `dmlc.runtime`, and its devices are named after it: `vulkan`, `vulkan:0`,
`vulkan:llvmpipe`. It has the functions of `Runtime`, its devices the properties of `AnyDevice`, and
its loaded programs the methods of `AnyExecutable`.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, TypedDict, TypeVar, cast

from dmlc.program import Program
from dmlc.runtime.arrays import Array, Shape
from dmlc.runtime.executable import ArrayExecutable, BoundCall
from dmlc.runtime.floats import FloatPromises
from dmlc.source import DmlcError, Note, UnavailableError, UnsupportedError

AnyExecutable: TypeAlias = ArrayExecutable[BoundCall]
"""Program built for a device of any runtime."""


class CompileOptions(TypedDict, total=False):
    """Options for compiling a program for a device, where they differ from the language's
    defaults."""

    profile: str
    root_signature: bool
    shader_model: str
    interpreted: bool


class AnyDevice(Protocol):
    """Device that runs programs: plain frozen data."""

    runtime: ClassVar[str]
    """Name of its runtime."""

    @property
    def index(self) -> int | str:
        """Part of a selector after the colon: its number in `devices()`."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def driver(self) -> str:
        """Version of the driver, in its own form."""
        ...

    @property
    def note(self) -> str:
        """Choice made before its driver started, with the reason; empty for none."""
        ...

    @property
    def facts(self) -> tuple[str, ...]:
        """Properties in words."""
        ...

    @property
    def floats(self) -> FloatPromises:
        """Floating-point promises."""
        ...

    @property
    def compile_options(self) -> CompileOptions: ...


class DeviceType(enum.Enum):
    """Type of a device, in order of preference. The values are words for people."""

    DISCRETE_GPU = "discrete GPU"
    INTEGRATED_GPU = "integrated GPU"
    VIRTUAL_GPU = "virtual GPU"
    CPU = "CPU"
    OTHER = "other"

    @property
    def shares_memory(self) -> bool:
        """Whether such a device works in the host's own memory, so that copies gain nothing."""
        return self in (DeviceType.INTEGRATED_GPU, DeviceType.CPU)


class TypedDevice(AnyDevice, Protocol):
    """Device of a known type."""

    @property
    def type(self) -> DeviceType: ...


_Device = TypeVar("_Device", bound=AnyDevice)
_Typed = TypeVar("_Typed", bound=TypedDevice)
_K = TypeVar("_K")
_V = TypeVar("_V")


class Watch(Protocol):
    """Run of a program under a tool that checks its memory accesses."""

    def __call__(
        self,
        program: Program,
        device: Any,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Shape],
        /,
    ) -> list[str]:
        """Errors that the tool reports, one sentence each; `outputs` gives their sizes. Raises
        `UnavailableError`, with the cure, if the tool is missing."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """Tool that checks each memory access of a run."""

    name: str
    watch: Watch


class Runtime(Protocol):
    """Contents of a runtime's package."""

    CHOICE: str
    """Environment variable with the default selector; empty for none."""

    def devices(self) -> Sequence[AnyDevice]:
        """Devices on this machine. Raises `UnavailableError`, with the cure, if none is
        possible."""
        ...

    def find_device(self, selector: str | None = None) -> AnyDevice:
        """Device of a selector. Raises `UnavailableError` if there is none."""
        ...

    def load_on(self, program: Program, device: Any) -> AnyExecutable:
        """Builds a program on one of its devices."""
        ...

    def find_tool(self) -> Tool | None:
        """Tool that checks the memory accesses of runs on its devices; None if there is none
        here."""
        ...


class Compiler(Protocol):
    """Contents of a module that compiles sources to machine code."""

    def check_tools(self) -> None:
        """Raises `UnavailableError`, with the cure, if the compiler is missing."""
        ...

    def compile_files(self, program: Program) -> dict[str, bytes]:
        """Compiled kernels of a program, by file name; empty without the compiler."""
        ...


class ForeignError(UnavailableError):
    """Raised for a feature that no machine with this system has."""


def find_runtime(name: str) -> Runtime:
    """Runtime of that name, imported now."""
    return cast(Runtime, importlib.import_module(f"dmlc.runtime.{name}"))


def find_compiler(name: str) -> Compiler:
    """Compiler module of that name, imported now."""
    return cast(Compiler, importlib.import_module(f"dmlc.runtime.{name}"))


def check_target(program: Program, target: str, devices: str) -> None:
    """Raises UnsupportedError for a program compiled for another target than the one that
    `devices`, such as `Vulkan devices`, run."""
    if program.target != target:
        raise UnsupportedError(
            f"{program.name} was compiled for {program.target}, and {devices} run programs "
            f"compiled for {target}",
            notes=[f"compile it with target='{target}'"],
        )


def part_of_selector(selector: str | None, runtime: str) -> str:
    """Index or part of a name in a selector: the text after the colon, or all of it without the
    runtime's name. Raises `DmlcError` if nothing follows the colon."""
    head, colon, tail = (selector or "").partition(":")
    if head != runtime:
        return (selector or "").strip()
    if colon and not tail.strip():
        ways = f"`{runtime}`, or `{runtime}:` with an index or a part of a device's name"
        raise DmlcError(
            f"the device '{selector}' names nothing after the colon", notes=[f"write {ways}"]
        )
    return tail.strip()


_MOST_DEVICES = 20


def find_matching(
    kind: str,
    devices: Sequence[_Device],
    selector: str | None,
    describe: Callable[[_Device], str] = str,
) -> _Device | None:
    """Device that has the number in a selector, or a description with that part; None if there is
    none of both in it. Raises `UnavailableError` if no device matches."""
    runtime = devices[0].runtime
    wanted = part_of_selector(selector, runtime)
    if not wanted:
        return None
    matching = [d for d in devices if wanted == str(d.index)]
    matching += [d for d in devices if wanted.lower() in describe(d).lower()]
    if not matching:
        shown = [f"{runtime}:{d.index} is {d}" for d in devices]
        said = f"has the number {wanted}" if wanted.isdigit() else f"matches '{wanted}'"
        raise UnavailableError(
            f"no {kind} device {said}", notes=[f"devices here: {'; '.join(shown[:_MOST_DEVICES])}"]
        )
    return matching[0]


def choose_device(
    kind: str,
    devices: Sequence[_Typed],
    selector: str | None,
    cure: Sequence[str | Note] = (),
    describe: Callable[[_Typed], str] = str,
    memory: Callable[[_Typed], int] = lambda _: 0,
) -> _Typed:
    """Device of a selector: the name of the runtime, `RUNTIME:<index or part of a description>`,
    the part after the colon alone, or None. Without such a part it is one of the type that comes
    first in `DeviceType`: that with the most memory.

    Raises `UnavailableError` without devices, which `cure` helps against, or if none matches, and
    `DmlcError` if nothing follows the colon.
    """
    if not devices:
        raise UnavailableError(f"no {kind} device was found", notes=cure)
    preference = list(DeviceType)
    usual = min(devices, key=lambda d: (preference.index(d.type), -memory(d)))
    return find_matching(kind, devices, selector, describe) or usual


def refuse_fork(kind: str, process: int) -> None:
    """Raises `UnavailableError` unless this is the process that opened the devices of a kind."""
    if process != os.getpid():
        raise UnavailableError(
            f"{kind} was used before this process was forked, and serves the parent alone",
            notes=[f"start worker processes by 'spawn', or use {kind} only after the fork"],
        )


_opening = threading.RLock()


def open_once(opened: dict[_K, _V], device: _K, make: Callable[[_K], _V]) -> _V:
    """Object of a device from `opened`; at the first call, in any thread, made by `make`."""
    with _opening:
        if device not in opened:
            opened[device] = make(device)
        return opened[device]
