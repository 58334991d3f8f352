"""What every runtime offers: devices, and programs loaded on them.

A runtime is a package of `dmlc.runtime`, and devices are named by it: `vulkan`, `vulkan:0`,
`vulkan:llvmpipe`. It has the functions of `Runtime`, its devices the properties of `AnyDevice`,
and what it loads the methods of `AnyExecutable`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, TypedDict, cast

from dmlc.program import Program
from dmlc.runtime.arrays import Array, Shape
from dmlc.runtime.floats import FloatPromises
from dmlc.runtime.foreign import Given
from dmlc.runtime.profile import RUNS, Profile
from dmlc.runtime.report import Report
from dmlc.source import DmlcError, UnavailableError, UnsupportedError

Inputs: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Arrays by name, or one for every input in order: NumPy's, or what `foreign` takes."""
Outputs: TypeAlias = Mapping[str, Any]
"""Arrays to write into, or sizes."""


class CompileOptions(TypedDict, total=False):
    """How a program is compiled for a device, where that is not as for the language at large."""

    profile: str
    root_signature: bool
    shader_model: str
    interpreted: bool


class AnyDevice(Protocol):
    """A device that runs programs: plain frozen data."""

    runtime: ClassVar[str]
    """The runtime it belongs to."""

    @property
    def index(self) -> int | str:
        """What stands behind the colon of a selector: its number in `devices()`."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def driver(self) -> str:
        """The driver's version, as it gives it."""
        ...

    @property
    def note(self) -> str:
        """What was chosen before its driver started, and why; empty for nothing."""
        ...

    @property
    def facts(self) -> tuple[str, ...]:
        """What it is and can do, for people."""
        ...

    @property
    def floats(self) -> FloatPromises:
        """What it promises of floating-point numbers."""
        ...

    @property
    def compile_options(self) -> CompileOptions: ...


class AnyExecutable(Protocol):
    """A program built for a device. Safe to call from several threads at once."""

    @property
    def program(self) -> Program: ...

    def __call__(self, inputs: Inputs, outputs: Outputs | None = None) -> dict[str, Any]: ...

    def run(
        self, inputs: Inputs, outputs: Outputs | None = None
    ) -> tuple[dict[str, Any], Report]: ...

    def run_given(self, call: Given) -> tuple[dict[str, Array], Report]: ...

    def bind(
        self, inputs: Inputs, outputs: Outputs | None = None
    ) -> Callable[[], dict[str, Any]]: ...

    def profile(
        self, inputs: Inputs, outputs: Outputs | None = None, runs: int = RUNS
    ) -> Profile: ...


class Watch(Protocol):
    """Runs a program once under a tool that watches its accesses to memory."""

    def __call__(
        self,
        program: Program,
        device: Any,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Shape],
        /,
    ) -> list[str]:
        """What the tool objects to, a sentence each; `outputs` gives their sizes. Raises
        `UnavailableError`, with the cure, where it is missing."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """What watches each access of a run to memory."""

    name: str
    watch: Watch


class Runtime(Protocol):
    """What a runtime's package has."""

    CHOICE: str
    """The environment variable that names the device where no selector does; empty for none."""

    def devices(self) -> Sequence[AnyDevice]:
        """Its devices here. Raises `UnavailableError`, with the cure, where there can be none."""
        ...

    def find_device(self, selector: str | None = None) -> AnyDevice:
        """The device that a selector means. Raises `UnavailableError` where there is none."""
        ...

    def load_on(self, program: Program, device: Any) -> AnyExecutable:
        """Builds a program on one of its devices."""
        ...

    def find_tool(self) -> Tool | None:
        """What watches what a run on its devices does in memory; None where there is no such
        tool here."""
        ...


class Compiler(Protocol):
    """What a module has that turns sources into machine code."""

    def check_tools(self) -> None:
        """Raises `UnavailableError`, with the cure, where the compiler is not at hand."""
        ...

    def compile_files(self, program: Program) -> dict[str, bytes]:
        """What comes of a program's kernels, by file name; nothing without the compiler."""
        ...


class ForeignError(UnavailableError):
    """What no machine with this system can have."""


def find_runtime(name: str) -> Runtime:
    """The runtime of that name, imported now."""
    return cast(Runtime, importlib.import_module(f"dmlc.runtime.{name}"))


def find_compiler(name: str) -> Compiler:
    """The module of that name, imported now."""
    return cast(Compiler, importlib.import_module(f"dmlc.runtime.{name}"))


def check_target(program: Program, target: str, devices: str) -> None:
    """UnsupportedError for a program that was compiled for another target than the `devices`,
    such as `Vulkan devices`, run."""
    if program.target != target:
        raise UnsupportedError(
            f"{program.name} was compiled for {program.target}, and {devices} run programs "
            f"compiled for {target}",
            notes=[f"compile it with target='{target}'"],
        )


def part_of_selector(selector: str | None, runtime: str) -> str:
    """The index or the part of a name in a selector: what stands behind the colon, or all of it
    where it does not begin with the runtime. Raises `DmlcError` for a colon with nothing behind."""
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


def no_such_device(
    kind: str, wanted: str, runtime: str, devices: Iterable[tuple[int, object]]
) -> UnavailableError:
    """The error of a selector that means none of some devices, each with its number."""
    shown = [f"{runtime}:{index} is {device}" for index, device in devices]
    said = f"has the number {wanted}" if wanted.isdigit() else f"matches '{wanted}'"
    return UnavailableError(
        f"no {kind} device {said}", notes=[f"devices here: {'; '.join(shown[:_MOST_DEVICES])}"]
    )
