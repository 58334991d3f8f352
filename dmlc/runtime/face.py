"""What every runtime offers: devices, and programs loaded on them.

A runtime is a package of `dmlc.runtime`, and devices are named by it: `vulkan`, `vulkan:0`,
`vulkan:llvmpipe`. It has the functions of `Runtime`, its devices the properties of `AnyDevice`,
and what it loads the methods of `AnyExecutable`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict, cast

from dmlc.program import Program
from dmlc.runtime.arrays import Array
from dmlc.runtime.placement import Outputs
from dmlc.runtime.report import Report
from dmlc.source import DmlcError, UnsupportedError


class CompileOptions(TypedDict, total=False):
    """How a program is compiled for a device, where that is not as for the language at large."""

    profile: str
    root_signature: bool


class AnyDevice(Protocol):
    """A device that runs programs: plain frozen data."""

    @property
    def index(self) -> int:
        """Its number in `devices()`, and behind the colon of a selector."""
        ...

    @property
    def runtime(self) -> str:
        """The runtime it belongs to."""
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
    def compile_options(self) -> CompileOptions: ...


class AnyCall(Protocol):
    """A run with its arrays fixed."""

    @property
    def report(self) -> Report: ...

    def __call__(self) -> dict[str, Array]: ...


class AnyExecutable(Protocol):
    """A program built for a device. Safe to call from several threads at once."""

    @property
    def program(self) -> Program: ...

    @property
    def last_report(self) -> Report: ...

    def __call__(
        self, inputs: Mapping[str, Array] | Sequence[Array], outputs: Outputs | None = None
    ) -> dict[str, Array]: ...

    def run(
        self, inputs: Mapping[str, Array] | Sequence[Array], outputs: Outputs | None = None
    ) -> tuple[dict[str, Array], Report]: ...

    def bind(
        self, inputs: Mapping[str, Array] | Sequence[Array], outputs: Outputs | None = None
    ) -> AnyCall: ...


class Runtime(Protocol):
    """The functions of a runtime's package."""

    def is_possible(self) -> bool:
        """Whether this system can have its devices at all."""
        ...

    def devices(self) -> Sequence[AnyDevice]:
        """Its devices here. Raises `UnavailableError`, with the cure, where there can be none."""
        ...

    def check_tools(self) -> None:
        """Raises `UnavailableError`, with the cure, for what it takes to run on them."""
        ...

    def find_device(self, selector: str | None = None) -> AnyDevice:
        """The device that a selector means."""
        ...

    def is_chosen(self) -> bool:
        """Whether the environment names the device that is meant where no selector does."""
        ...

    def load_on(self, program: Program, device: Any) -> AnyExecutable:
        """Builds a program on one of its devices."""
        ...


def find_runtime(name: str) -> Runtime:
    """The runtime of that name, imported now."""
    return cast(Runtime, importlib.import_module(f"dmlc.runtime.{name}"))


def compile_files(compiler: str, program: Program) -> dict[str, bytes]:
    """What a compiler, a module here, makes of a program's kernels, by file name; nothing where it
    is not at hand."""
    module: Any = importlib.import_module(f"dmlc.runtime.{compiler}")
    return module.compile_files(program)


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
