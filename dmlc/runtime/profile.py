"""Times of a program's kernels on a device, by the device's own clock."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dmlc.parameters import expect_integer, wrong_kind
from dmlc.program import KernelSource, Program
from dmlc.sizes import evaluate_size
from dmlc.source import UnsupportedError, counted

RUNS = 11
"""Default number of timed runs."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """Time of one launch of a kernel, with the kernel's index."""

    kernel: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class KernelTime:
    """Time of a kernel in a run, and the bytes it moves."""

    name: str
    stages: tuple[str, ...]
    """Names of the compiled function's stages that it computes."""
    launches: int
    """Number of launches in a run: several in a loop, or if a launch covers a part of a tensor."""
    microseconds: float
    """Microseconds of all its launches in a run: the median of the runs."""
    percent: float
    """Percentage of the time of all kernels."""
    bytes: int
    """Bytes that it reads and writes in a run: each tensor as a whole in every pass over it, or
    once if the program was compiled for all sizes."""

    @property
    def gigabytes_a_second(self) -> float | None:
        """Rate in 10^9 bytes per second; None if the clock is too coarse."""
        if not self.microseconds:
            return None
        return self.bytes / self.microseconds / 1e3


@dataclasses.dataclass(frozen=True, slots=True)
class Timings:
    """Times of a program's kernels, in execution order; it prints as a table."""

    device: str
    runs: int
    kernels: tuple[KernelTime, ...]

    @property
    def microseconds(self) -> float:
        """Microseconds of all kernels in a run."""
        return sum(kernel.microseconds for kernel in self.kernels)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        kernels = [
            dataclasses.asdict(k) | {"gigabytes_a_second": k.gigabytes_a_second}
            for k in self.kernels
        ]
        return {
            "device": self.device,
            "runs": self.runs,
            "microseconds": self.microseconds,
            "kernels": kernels,
        }

    def __str__(self) -> str:
        rows = [("kernel", "us", "%", "launches", "bytes", "GB/s", "stages")]
        for each in self.kernels:
            rate = each.gigabytes_a_second
            rows.append(
                (
                    each.name,
                    f"{each.microseconds:,.1f}",
                    f"{each.percent:.1f}",
                    str(each.launches),
                    f"{each.bytes:,}",
                    "?" if rate is None else f"{rate:.1f}",
                    ", ".join(each.stages),
                )
            )
        rows.append(("all", f"{self.microseconds:,.1f}", "", "", "", "", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.device}, the median of {counted(self.runs, 'run')}"]
        for first, *middle, last in rows:
            numbers = [cell.rjust(size) for cell, size in zip(middle, widths[1:-1], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *numbers, last]).rstrip())
        return "\n".join(lines)


class Timed(Protocol):
    """Run bound to its arrays whose launches can be timed."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Values of the program's symbols."""
        ...

    def time_launches(self) -> list[Interval]:
        """Runs once, with launches that do not overlap."""
        ...


def measure(program: Program, device: str, call: Timed, runs: int) -> Timings:
    """Times of a program's kernels on a device: the medians of several runs, after one that is not
    counted."""
    if expect_integer("runs", runs) < 1:
        raise wrong_kind("runs", "a whole number from 1 on", runs)
    call.time_launches()
    taken: list[list[float]] = [[] for _ in program.kernels]
    launches = [0] * len(program.kernels)
    for _ in range(runs):
        sums = [0.0] * len(program.kernels)
        launches = [0] * len(program.kernels)
        for interval in call.time_launches():
            sums[interval.kernel] += interval.seconds
            launches[interval.kernel] += 1
        for own, seconds in zip(taken, sums, strict=True):
            own.append(seconds * 1e6)
    medians = [statistics.median(own) for own in taken]
    whole = sum(medians)
    kernels = [
        KernelTime(
            kernel.name,
            kernel.origin.stages,
            count,
            own,
            100 * own / whole if whole else 0.0,
            _count_bytes(program, kernel, call.sizes),
        )
        for kernel, count, own in zip(program.kernels, launches, medians, strict=True)
    ]
    return Timings(device, runs, tuple(kernels))


def _count_bytes(program: Program, kernel: KernelSource, sizes: Mapping[str, int]) -> int:
    """Bytes that a kernel reads and writes: those of its origin, or every tensor once."""
    if kernel.origin.traffic is not None:
        return sum(kernel.origin.traffic)
    moved = 0
    for binding in kernel.buffers:
        tensor = program.tensor(binding.tensor)
        count = math.prod(evaluate_size(extent, sizes) for extent in tensor.extents)
        moved += count * tensor.dtype.bytes * (binding.read + binding.written)
    return moved


def refuse(device: object) -> UnsupportedError:
    """Error about a device without a clock for kernels."""
    return UnsupportedError(
        f"{device} has no clock that kernels can be timed by",
        notes=["OpenCL devices have one, and Vulkan devices with timestamps"],
    )


def read_ticks(kernels: Sequence[int], ticks: Sequence[int], period: float) -> list[Interval]:
    """Launches of kernels, by index, from one clock reading before the first and one after each. A
    tick takes `period` nanoseconds."""
    return [
        Interval(kernel, max(0, ticks[k + 1] - ticks[k]) * period * 1e-9)
        for k, kernel in enumerate(kernels)
    ]
