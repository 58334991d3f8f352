"""Common base of the runtimes of devices that arrays are copied to and from.

A run is split into windows: an element-wise program on tensors larger than a buffer processes one
range of elements after another. A `Frame` holds the device buffers and launches of all windows of
one size; the latest frames are kept, over all programs. Executables are thread-safe; a device runs
one at a time.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from dmlc.program import Program
from dmlc.runtime.arrays import Bytes, as_bytes
from dmlc.runtime.constants import fill_constants
from dmlc.runtime.executable import ArrayExecutable, Give
from dmlc.runtime.interface import AnyDevice
from dmlc.runtime.placement import Placement
from dmlc.runtime.profile import Interval, refuse
from dmlc.runtime.report import Report
from dmlc.source import UnsupportedError

_KEPT_FRAMES = 4
"""Largest number of frames kept by an executable between runs."""
_KEPT_BYTES = 256 << 20
"""Largest total size in bytes of the frames kept by all executables."""

_recent: weakref.WeakKeyDictionary[CopyingExecutable, None] = weakref.WeakKeyDictionary()
"""Executables with kept frames, in order of their latest run."""
_keeping = threading.Lock()


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Range of elements processed at once: `sizes` are its own, and `start` is the index of the
    first element in every tensor."""

    start: int
    sizes: Mapping[str, int]


def list_windows(
    program: Program, sizes: Mapping[str, int], buffer_bytes: int, elements: int
) -> list[Window]:
    """Windows of a run, first to last: one, unless the program is element-wise and a tensor has
    more than `buffer_bytes` bytes or more than `elements` elements."""
    if not (program.elementwise and program.symbols):
        return [Window(0, sizes)]
    symbol = program.symbols[0]
    total, step = sizes[symbol], window_elements(program, buffer_bytes, elements)
    starts = range(0, total, step)
    return [Window(start, {**sizes, symbol: min(step, total - start)}) for start in starts]


def window_elements(program: Program, buffer_bytes: int, elements: int) -> int:
    """Largest number of elements of a window of an element-wise program."""
    widest = max(t.dtype.bytes for t in program.tensors)
    # A binding begins at a multiple of the alignment: 64 Ki elements are one of any.
    most = min(program.max_count, elements, buffer_bytes // widest)
    return most // 65536 * 65536 or most


def plan_windows(
    program: Program,
    sizes: Mapping[str, int],
    buffer_bytes: int,
    elements: int,
    check: Callable[[Mapping[str, int]], None],
) -> tuple[Window, ...]:
    """Windows of a run by `list_windows`, without those that have nothing to compute. `check`
    raises UnsupportedError for the sizes of a window that exceed a limit of the device."""
    windows = list_windows(program, sizes, buffer_bytes, elements)
    for window in windows:
        check(window.sizes)
    return tuple(window for window in windows if list_launches(program, window.sizes))


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """Launch of a kernel."""

    kernel: int
    """Number of the kernel."""
    groups: tuple[int, int, int]
    constants: bytes
    """Contents of its constant buffer; empty without one."""


def list_launches(program: Program, sizes: Mapping[str, int]) -> list[Launch]:
    """Launches of a program in order, without those that have no groups."""
    made: list[Launch] = []
    for number, step in program.order(sizes):
        kernel = program.kernels[number]
        groups = kernel.dispatch.groups(dict(sizes))
        if 0 not in groups:
            made.append(Launch(number, groups, fill_constants(kernel, {**sizes, **step})))
    return made


def refuse_excess(device: str, what: str, have: int, most: int, limit: str) -> None:
    """Raises UnsupportedError if a number exceeds a limit of a device or of its interface; the
    message names both."""
    if have > most:
        raise UnsupportedError(f"{what}, and {device} allows {most:,} ({limit})")


def check_groups(
    device: str, program: Program, sizes: Mapping[str, int], most: Sequence[int], limit: str
) -> None:
    """Raises UnsupportedError where a launch has more groups along x, y or z than is allowed."""
    for kernel in program.kernels:
        groups = kernel.dispatch.groups(dict(sizes))
        for axis, have, allowed in zip("xyz", groups, most, strict=True):
            what = f"the kernel {kernel.name} needs {have:,} groups along {axis}"
            refuse_excess(device, what, have, allowed, limit)


class Frame(Protocol):
    """Device buffers and launches for the windows of one size. Used by one thread at a time."""

    @property
    def bytes(self) -> int:
        """Size in bytes, on the host and the device together."""
        ...

    def run(self, memories: Mapping[str, Bytes]) -> None:
        """Runs a window on these bytes of each input and output."""
        ...


class Call:
    """Run bound to its arrays: a call uploads, runs, and returns the outputs."""

    def __init__(
        self, executable: CopyingExecutable, placement: Placement, give: Give, report: Report
    ) -> None:
        self._executable = executable
        self._placement = placement
        self._windows = executable.plan(placement)
        self._give = give
        self.report = report
        self.sizes: Mapping[str, int] = placement.sizes

    def __call__(self) -> dict[str, Any]:
        self._executable.run_windows(self._placement, self._windows)
        return self._give()

    def time_launches(self) -> list[Interval]:
        """Raises `UnsupportedError`: the device has no clock for kernels."""
        raise refuse(self.report.device)


class CopyingExecutable(ArrayExecutable[Call]):
    """Program built for a device. Thread-safe."""

    def __init__(self, program: Program, device: AnyDevice, lock: threading.Lock) -> None:
        super().__init__(program, Report(str(device)))
        self._lock = lock
        self._name = device.name
        self._item_bytes = {t.name: t.dtype.bytes for t in (*program.inputs, *program.outputs)}
        self.frames: dict[tuple[int, ...], Frame] = {}
        """Frames kept for later runs, by sizes."""

    @abc.abstractmethod
    def plan(self, placement: Placement) -> tuple[Window, ...]:
        """Windows of a run. Raises `UnsupportedError` beyond the device's limits."""

    @abc.abstractmethod
    def make_frame(self, window: Window) -> Frame:
        """New frame for windows of these sizes."""

    @abc.abstractmethod
    def reporting(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Converts the device's exceptions to a `DmlcError` that says `what` cannot be done."""

    def run_placed(self, placement: Placement) -> None:
        self.run_windows(placement, self.plan(placement))

    def bind_placed(self, placement: Placement, give: Give, report: Report) -> Call:
        return Call(self, placement, give, report)

    def run_windows(self, placement: Placement, windows: tuple[Window, ...]) -> None:
        """Runs the windows on the arrays of a placement."""
        if not windows:
            return
        operands = placement.operands
        for spec in self.program.inputs:
            operands[spec.name].load()
        memories = {name: as_bytes(operands[name].memory) for name in self._item_bytes}
        whole = len(windows) == 1
        with self._lock, self.reporting(f"cannot run {self.program.name} on {self._name}"):
            for window in windows:
                frame = self._frame(window)
                if whole:
                    frame.run(memories)
                    continue
                count = next(iter(window.sizes.values()))
                start, end = window.start, window.start + count
                frame.run({n: m[start * self._item_bytes[n] : end * self._item_bytes[n]]
                           for n, m in memories.items()})  # fmt: skip
        for name in self.output_names:
            operands[name].store()

    def _frame(self, window: Window) -> Frame:
        """Frame for the window's sizes, kept for later runs. The caller holds the device's lock."""
        key = tuple(window.sizes.values())
        with _keeping:
            found = self.frames.pop(key, None)
        frame = found or self.make_frame(window)
        with _keeping:
            self.frames[key] = frame
            _recent.pop(self, None)
            _recent[self] = None
            if len(self.frames) > _KEPT_FRAMES:
                del self.frames[next(iter(self.frames))]
            if found is None:
                _drop_oldest()
        return frame


def _drop_oldest() -> None:
    """Drops frames, those of the least recently run executables first, until few bytes are kept."""
    kept = [(executable.frames, key) for executable in _recent for key in executable.frames]
    excess = sum(frames[key].bytes for frames, key in kept) - _KEPT_BYTES
    for frames, key in kept:
        if excess <= 0:
            return
        excess -= frames.pop(key).bytes
