"""Figures of each kernel of a function on each GPU, as plain data: for people, and as JSON.
`docs/reference/gpu.md` defines every figure."""

from __future__ import annotations

import dataclasses
from typing import Any

from dmlc.inspection.machine import MachineKernel
from dmlc.source import Diagnostic, list_names

VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Modelled:
    """Kernel, or all of them, on a device of the model."""

    device: str
    title: str
    microseconds: float
    bandwidth: float
    """Memory bandwidth in bytes per second."""
    limit: str | None
    """Bottleneck; None for several kernels."""


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled(MachineKernel):
    """Kernel compiled for one GPU, with the counts of its machine code."""

    instructions: int
    """Number of instructions in the machine code."""
    instructions_per_thread: float | None
    """Instructions executed per thread, on average; None if the loops of the machine code could not
    be matched."""
    instructions_per_output: float | None
    instructions_per_point: float | None
    fma_share: float | None
    """Fraction of the executed instructions that are fused multiply-adds."""
    loads: dict[int, int]
    """Load instructions, by bytes per thread."""
    uniform_loads: dict[int, int]
    """Loads of the same address by all threads of a wave, by bytes."""
    stores: dict[int, int]
    shared_accesses: int
    barriers: int
    loads_in_flight: int
    """Largest number of loads in flight."""
    bytes_in_flight: float
    """Bytes in flight of a thread: equivalent to those of its loops, each weighted by its part."""
    devices: tuple[Modelled, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class InspectedKernel:
    """Kernel of the program, independent of the GPU."""

    name: str
    stages: tuple[str, ...]
    groups: int
    group_size: int
    outputs: int
    """Elements of the largest tensor that it writes."""
    points: int
    """Points of its largest stage: of its domain, times those of its reduction."""
    steps: float | None
    """Loads, and iterations of loops without any, of the busiest thread; None if they depend on
    tensors' elements."""
    total_steps: float | None
    reads_per_output: float
    bytes_read: int
    bytes_written: int
    cache_bytes: float
    """Bytes that the shared cache moves for its loads and stores, in sectors."""
    line_bytes: float
    """Bytes of the lines that the units' caches look up for them."""
    assumed: tuple[str, ...]
    """Tensors whose elements decide how long its loops are, and are assumed: slices of equal
    length, whose points lie anywhere."""
    compiled: tuple[Compiled, ...]

    @property
    def threads(self) -> int:
        return self.groups * self.group_size


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramTotal:
    """Totals of a program's kernels on one GPU's machine code, by the model."""

    gpu: str
    devices: tuple[Modelled, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Roofline:
    """Least time of a function on a device."""

    device: str
    title: str
    bytes: int
    operations: float
    microseconds: float
    copy_microseconds: float
    """Time of a copy that moves each input and output once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Inspection:
    """Properties of a function's kernels on GPUs."""

    name: str
    kernels: tuple[InspectedKernel, ...]
    rooflines: tuple[Roofline, ...]
    totals: tuple[ProgramTotal, ...]
    warnings: tuple[Diagnostic, ...] = ()
    """Warnings about slow code in the kernels."""

    def find_share(self, gpu: str, device: str) -> float:
        """Fraction of a device's roofline that the program reaches, by the model."""
        return self._find_roofline(device).microseconds / self._find_time(gpu, device)

    def compare_to_copy(self, gpu: str, device: str) -> float:
        """Time of the program by that of a copy of its inputs and outputs, by the model."""
        return self._find_time(gpu, device) / self._find_roofline(device).copy_microseconds

    def _find_time(self, gpu: str, device: str) -> float:
        total = next(t for t in self.totals if t.gpu == gpu)
        return next(m.microseconds for m in total.devices if m.device == device)

    def _find_roofline(self, device: str) -> Roofline:
        return next(r for r in self.rooflines if r.device == device)

    def to_json(self, isa: bool = False) -> dict[str, Any]:
        """Plain data for JSON; with `isa`, the machine code too."""
        return {
            "version": VERSION,
            "name": self.name,
            "kernels": [_describe_kernel(kernel, isa) for kernel in self.kernels],
            "rooflines": [_without_title(r) for r in self.rooflines],
            "totals": [
                {
                    "gpu": t.gpu,
                    "devices": [
                        {
                            "device": m.device,
                            "microseconds": m.microseconds,
                            "share_of_roofline": self.find_share(t.gpu, m.device),
                        }
                        for m in t.devices
                    ],
                }
                for t in self.totals
            ],
        }

    def to_text(self, isa: bool = False) -> str:
        """Figures as text for people."""
        lines: list[str] = []
        for number, kernel in enumerate(self.kernels, 1):
            lines += [f"kernel {number} of {len(self.kernels)}: {kernel.name}"]
            lines += [f"  {line}" for line in _tell_kernel(kernel)]
            for compiled in kernel.compiled:
                lines += [f"  on {compiled.gpu}"]
                lines += [f"    {line}" for line in _tell_compiled(compiled)]
            if isa:
                for compiled in kernel.compiled:
                    lines += [f"  machine code for {compiled.gpu}", compiled.isa.rstrip()]
            lines.append("")
        lines += self._describe_totals()
        return "\n".join(lines)

    def _describe_totals(self) -> list[str]:
        lines: list[str] = []
        for total in self.totals:
            lines.append(f"all of {self.name} as compiled for {total.gpu}, modelled")
            for modelled, roof in zip(total.devices, self.rooflines, strict=True):
                share = self.find_share(total.gpu, modelled.device)
                lines.append(
                    f"  {modelled.title:<18}{_time(modelled.microseconds)}, roofline "
                    f"{_time(roof.microseconds)}: {100 * share:.1f}%"
                )
        return lines


def _without_title(record: Modelled | Roofline) -> dict[str, Any]:
    return {k: v for k, v in dataclasses.asdict(record).items() if k != "title"}


def _list_fields(record: InspectedKernel | Compiled) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _describe_kernel(kernel: InspectedKernel, isa: bool) -> dict[str, Any]:
    fields = _list_fields(kernel)
    fields |= {"stages": list(kernel.stages), "assumed": list(kernel.assumed)}
    fields["compiled"] = [_describe_compiled(c, isa) for c in kernel.compiled]
    return fields


def _describe_compiled(compiled: Compiled, isa: bool) -> dict[str, Any]:
    fields = _list_fields(compiled)
    del fields["listing"]
    for name in ("loads", "uniform_loads", "stores"):
        # JSON has no numbers for names.
        fields[name] = {str(width): count for width, count in fields[name].items()}
    fields["devices"] = [_without_title(m) for m in compiled.devices]
    if not isa:
        del fields["isa"]
    return fields


def _tell_kernel(kernel: InspectedKernel) -> list[str]:
    steps = "unknown" if kernel.steps is None else f"{kernel.steps:,.0f}"
    groups = f"{kernel.groups:,} group{'s' if kernel.groups != 1 else ''}"
    lines = [
        f"launch        {groups} of {kernel.group_size} threads, at most {steps} steps a thread",
        f"memory        {_bytes(kernel.bytes_read)} read, {_bytes(kernel.bytes_written)} written, "
        f"{_bytes(kernel.cache_bytes)} through the cache, {_bytes(kernel.line_bytes)} in lines; "
        f"{_short(kernel.reads_per_output)} reads an output",
    ]
    if kernel.assumed:
        lines.append(f"assumed       {list_names(kernel.assumed)}: slices of equal length")
    return lines


def _tell_compiled(compiled: Compiled) -> list[str]:
    registers = f"registers     {compiled.registers} a thread"
    if compiled.uniform_registers is not None:
        registers += f", {compiled.uniform_registers} a wave"
    registers += f"; {compiled.spilled_registers or 'none'} spilled"
    if compiled.scratch_bytes:
        registers += f", {compiled.scratch_bytes:,} B of scratch a thread"
    if compiled.shared_bytes:
        registers += f"; {compiled.shared_bytes:,} B shared by a group"
    if compiled.waves is not None:
        registers += f"; {compiled.waves} waves of {compiled.wave} a SIMD"
    run = "of which loops cannot be told apart"
    if compiled.instructions_per_thread is not None:
        run = (
            f"a thread runs {_short(compiled.instructions_per_thread)}: "
            f"{_short(compiled.instructions_per_output)} an output, "
            f"{_short(compiled.instructions_per_point)} a point, "
            f"{100 * (compiled.fma_share or 0):.0f}% multiply-adds"
        )
    moves = [f"{_widths(compiled.loads)} loads"]
    if compiled.uniform_loads:
        moves.append(f"{_widths(compiled.uniform_loads)} loads for a whole wave")
    moves.append(f"{_widths(compiled.stores)} stores")
    if compiled.shared_accesses:
        moves.append(f"{compiled.shared_accesses} shared")
    if compiled.barriers:
        moves.append(f"{compiled.barriers} barriers")
    lines = [
        registers,
        f"instructions  {compiled.instructions:,}; {run}",
        f"accesses      {'; '.join(moves)}",
        f"in flight     {_short(compiled.bytes_in_flight)} B a thread, at most "
        f"{compiled.loads_in_flight} loads",
    ]
    lines += [
        f"{modelled.title:<18}{_time(modelled.microseconds)}, {_bytes(modelled.bandwidth)}/s, "
        f"limited by {modelled.limit}"
        for modelled in compiled.devices
    ]
    return lines


def _widths(counts: dict[int, int]) -> str:
    """Text of widths: `2 x 4 B, 1 x 16 B`."""
    return ", ".join(f"{count} x {width} B" for width, count in counts.items()) or "no"


def _short(number: float | None) -> str:
    if number is None:
        return "unknown"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _time(microseconds: float) -> str:
    return f"{_short(microseconds)} us"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{_short(count)} {unit}"
        count /= 1000
    return f"{_short(count)} TB"
