"""Cache of kernels built by a driver's compiler, many per module.

A driver's fixed cost per module, such as reading OpenCL C's built-in functions, equals that of
several kernels. So the kernels of a program are built together, equal ones once. Drivers keep built
kernels on disk, or pyopencl does for those that do not: a further cache here would gain nothing."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from dmlc.program import KernelSource
from dmlc.runtime.opencl.device import Device
from dmlc.runtime.renaming import find_identity
from dmlc.runtime.threads import map_threads
from dmlc.source import DmlcError, Source, Span

if TYPE_CHECKING:
    import pyopencl as cl

BUILD_OPTIONS = ("-w",)
"""Warnings are off: what a compiler thinks of generated code is of no use to who runs it."""

_DIVIDES_CORRECTLY = "DIVIDES_CORRECTLY"
"""What programs ask for, which then divide as they are: see `div_nearest` of OpenCL's functions."""

_PLATFORM_OPTIONS = MappingProxyType({"Oclgrind": ("-cl-opt-disable",)})
"""What some platforms are told besides. Oclgrind stops at instructions that LLVM's optimizations
make (`llvm.bitreverse.i2`), and accesses that these remove would not be seen."""

_KEPT = 128
"""Modules that a session keeps: on PoCL, each takes a megabyte."""
_MOST_KERNELS = 64
"""Kernels of a module: with more, what is done once a module hardly counts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Built:
    """Kernel in a module, under its name there."""

    module: cl.Program
    entry_point: str


class Builds:
    """Kernels built in a context, by unit and by kernel. Thread-safe. `units` are the devices for
    which modules are built, one by one."""

    def __init__(
        self,
        device: Device,
        context: cl.Context,
        units: Sequence[cl.Device],
    ) -> None:
        self._device = device
        self.context = context
        self.units = units
        self._lock = threading.Lock()
        self._built: dict[tuple[object, ...], Built] = {}

    def find(self, kernels: Sequence[KernelSource], unit: int) -> list[Built]:
        """Kernels built for a unit, from the cache if they are among the latest. Kernel objects
        keep their module alive. Raises `DmlcError` with the source's lines if the driver's compiler
        refuses one."""
        keys = [(unit, *find_identity(kernel)) for kernel in kernels]
        with self._lock:
            missing = {
                key: kernel
                for key, kernel in zip(keys, kernels, strict=True)
                if key not in self._built
            }
            there = self._built | self._build(missing, unit)
            found = {key: there.pop(key) for key in keys if key in there}
            self._built = self._keep({**there, **found})
            return [found[key] for key in keys]

    def _keep(self, built: dict[tuple[object, ...], Built]) -> dict[tuple[object, ...], Built]:
        """Built kernels of the latest modules, whose number is bounded."""
        modules = dict.fromkeys(id(each.module) for each in reversed(built.values()))
        kept = set(list(modules)[:_KEPT])
        return {key: each for key, each in built.items() if id(each.module) in kept}

    def _build(
        self, kernels: dict[tuple[object, ...], KernelSource], unit: int
    ) -> dict[tuple[object, ...], Built]:
        """Builds kernels that are not cached, several modules in parallel."""
        parts = _group_kernels(kernels.items(), self._device)

        def build(part: list[_Entry]) -> list[cl.Program]:
            return self._build_module([kernel for _, kernel in part], unit)

        made = map_threads("building modules of kernels", build, parts)
        return {
            key: Built(module, kernel.entry_point)
            for part, modules in zip(parts, made, strict=True)
            for (key, kernel), module in zip(part, modules, strict=True)
        }

    def _build_module(self, kernels: Sequence[KernelSource], unit: int) -> list[cl.Program]:
        """Module of each kernel: one for all, or one for each if the driver refuses that, so that
        its messages are about one kernel."""
        import pyopencl as cl

        options = list_options(kernels[0], self._device)
        if len(kernels) > 1:
            try:
                module = self.compile(join_sources([k.source for k in kernels]), options, unit)
            except cl.Error:
                return [module for k in kernels for module in self._build_module([k], unit)]
            return [module] * len(kernels)
        (kernel,) = kernels
        try:
            return [self.compile(kernel.source, options, unit)]
        except cl.Error as problem:
            raise _build_error(kernel, self._device, str(problem)) from problem

    def compile(self, source: str, options: Sequence[str], unit: int) -> cl.Program:
        """Source built for a unit. Raises the driver's error."""
        import pyopencl as cl

        return cl.Program(self.context, source).build(list(options), devices=[self.units[unit]])


def list_options(kernel: KernelSource, device: Device) -> list[str]:
    """Options of the driver's compiler for a kernel."""
    options = [*BUILD_OPTIONS, *_PLATFORM_OPTIONS.get(device.platform, ())]
    if device.divides_correctly and _DIVIDES_CORRECTLY in kernel.source:
        options += ["-cl-fp32-correctly-rounded-divide-sqrt", "-D", _DIVIDES_CORRECTLY]
    return options


_Entry: TypeAlias = tuple[tuple[object, ...], KernelSource]
"""What a kernel is found by, and the kernel."""


_SETTING = re.compile(r"^[ \t]*#[ \t]*(?:define|undef|pragma)\b(?:\\\n|[^\n])*", re.MULTILINE)


def _group_kernels(kernels: Iterable[_Entry], device: Device) -> list[list[_Entry]]:
    """Groups of kernels that share a module: a bounded number with different names and the same
    options, macros and pragmas, which hold for a whole module."""
    parts: list[list[_Entry]] = []
    open_parts: dict[object, tuple[list[_Entry], set[str]]] = {}
    for key, kernel in kernels:
        settings = frozenset(_SETTING.findall(kernel.source))
        kind = (*list_options(kernel, device), settings)
        part, names = open_parts.get(kind, ([], set[str]()))
        if not part or len(part) == _MOST_KERNELS or kernel.entry_point in names:
            part, names = open_parts[kind] = ([], set[str]())
            parts.append(part)
        part.append((key, kernel))
        names.add(kernel.entry_point)
    return parts


def join_sources(sources: Sequence[str]) -> str:
    """Sources as one. Text that several have before their kernels, such as functions that they
    call, occurs once, where the first has it. The parts of a source are separated by blank lines
    before text that is not indented."""
    parts: dict[str, None] = {}
    for source in sources:
        before = _KERNEL.search(source)
        start = before.start() if before is not None else 0
        for part in _BETWEEN.split(source[:start].strip()):
            parts[part] = None
        parts[source[start:].strip()] = None
    return "\n\n".join(parts) + "\n"


_BETWEEN = re.compile(r"\n\n+(?=\S)")
_KERNEL = re.compile(r"^(?:__attribute__\(\(reqd_work_group_size\b.*\n)?_*kernel\b", re.MULTILINE)

_LOG_LINE = re.compile(
    r"error: [^\n]*?:(\d+):(\d+): ([^\n]*)"  # as PoCL writes it
    r"|:(\d+):(\d+): (?:fatal )?error: ([^\n]*)"  # as compilers do
)


def _build_error(kernel: KernelSource, device: Device, log: str) -> DmlcError:
    """Error with the message of the driver's compiler, at the line of the source that it names."""
    message = f"{device} does not compile the kernel {kernel.name}"
    found = _LOG_LINE.search(log)
    if found is None:
        return DmlcError(message, notes=[" ".join(log.split())[:500]])
    row, column, said = (found[k] or found[k + 3] for k in (1, 2, 3))
    source = Source(f"{kernel.name}.cl", kernel.source)
    lines = kernel.source.splitlines(keepends=True)
    line = min(int(row), len(lines))
    start = sum(len(text) for text in lines[: line - 1])
    start += min(int(column) - 1, max(len(lines[line - 1].rstrip()) - 1, 0))
    return DmlcError(f"{message}: {said}", Span(source, start, start + 1))
