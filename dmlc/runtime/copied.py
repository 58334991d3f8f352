"""Programs on devices that arrays are copied to and back from: what runs on such have in common.

A run goes in windows: an element-wise program of tensors larger than a buffer takes one stretch of
them after another. For the windows of one size a `Frame` holds what is needed on the device; the
latest are kept, over all programs. Any thread may call; those that use one device take turns.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Protocol

from dmlc.program import KernelSource, Program, Role, TensorSpec
from dmlc.runtime.arrays import Array, Bytes, as_bytes, span
from dmlc.runtime.foreign import Given
from dmlc.runtime.interface import AnyDevice, Inputs, Outputs
from dmlc.runtime.placement import Placement, place, read_call
from dmlc.runtime.profile import RUNS, Profile, refuse
from dmlc.runtime.report import Report
from dmlc.sizes import evaluate_size

_KEPT_FRAMES = 4
"""What an executable keeps between runs, at most."""
_KEPT_BYTES = 256 << 20
"""What all of them keep together, at most."""

_recent: weakref.WeakKeyDictionary[CopyingExecutable, None] = weakref.WeakKeyDictionary()
"""Those that keep frames; the one that ran last is the last."""
_keeping = threading.Lock()


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a run that goes to the device at once: `sizes` are its own, and `start` is the
    number of the first element of every tensor that it works on."""

    start: int
    sizes: Mapping[str, int]


def list_windows(
    program: Program, sizes: Mapping[str, int], buffer_bytes: int, elements: int
) -> list[Window]:
    """The stretches of a run, first to last: one, unless the program is element-wise and a tensor
    has more than `buffer_bytes` or more than so many elements."""
    if not (program.elementwise and program.symbols):
        return [Window(0, sizes)]
    symbol = program.symbols[0]
    total, step = sizes[symbol], window_elements(program, buffer_bytes, elements)
    starts = range(0, total, step)
    return [Window(start, {**sizes, symbol: min(step, total - start)}) for start in starts]


def window_elements(program: Program, buffer_bytes: int, elements: int) -> int:
    """The most elements of an element-wise program that go to the device at once."""
    widest = max(t.dtype.bytes for t in program.tensors)
    most = min(program.max_count, elements, buffer_bytes // widest)
    return most // 65536 * 65536 or most


def groups_of(kernel: KernelSource, window: Window) -> tuple[int, int, int]:
    """The work groups of a kernel in a window."""
    return kernel.dispatch.groups(dict(window.sizes))


def tensor_bytes(tensor: TensorSpec, sizes: Mapping[str, int]) -> int:
    """The memory that a tensor covers."""
    shape = tuple(evaluate_size(e, sizes) for e in tensor.extents)
    if tensor.strides is None or tensor.role is Role.SCRATCH:
        return math.prod(shape) * tensor.dtype.bytes
    return span(shape, tensor.strides) * tensor.dtype.bytes


class Frame(Protocol):
    """What the windows of one size need on the device. Used by one thread at a time."""

    @property
    def bytes(self) -> int:
        """What it takes, on the host and the device together."""
        ...

    def run(self, memories: Mapping[str, Bytes]) -> None:
        """Runs a window on these bytes of each input and output."""
        ...


class CopyingExecutable(abc.ABC):
    """A program built for a device. Safe to call from several threads at once."""

    def __init__(self, program: Program, device: AnyDevice, lock: threading.Lock) -> None:
        self.program = program
        self._lock = lock
        self._name = device.name
        self._item_bytes = {t.name: t.dtype.bytes for t in (*program.inputs, *program.outputs)}
        self._input_names = tuple(t.name for t in program.inputs)
        self._output_names = tuple(t.name for t in program.outputs)
        self.frames: dict[tuple[int, ...], Frame] = {}
        """What it keeps for later runs, by sizes."""
        self._quiet = Report(str(device))
        self.last_report = self._quiet
        """The report of the latest call, whichever thread made it."""

    def __repr__(self) -> str:
        return f"<executable {self.program.name} on {self._quiet.device}>"

    @abc.abstractmethod
    def plan(self, placement: Placement) -> tuple[Window, ...]:
        """The windows of a run. Raises `UnsupportedError` for what exceeds the device's limits."""

    @abc.abstractmethod
    def make_frame(self, window: Window) -> Frame:
        """A frame for the windows of that one's sizes."""

    @abc.abstractmethod
    def reporting(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Gives what the device refuses as a `DmlcError` that says `what` cannot be."""

    def __call__(self, inputs: Inputs, outputs: Outputs | None = None) -> dict[str, Any]:
        """Runs the program once.

        `inputs` maps every input tensor's name to an array, or lists an array for each in order;
        `outputs` may give arrays to write into, or sizes. Arrays are NumPy's or of any library
        that shares memory, as `dmlc.run` takes them. Returns every output by name, as an array of
        the first such library, or NumPy's; an array that was given is returned itself.
        Raises `DmlcError` for arrays that do not fit the program and for what the device refuses,
        `UnsupportedError` for sizes over its limits.
        """
        results, self.last_report = self.run(inputs, outputs)
        return results

    def run(self, inputs: Inputs, outputs: Outputs | None = None) -> tuple[dict[str, Any], Report]:
        """The same with the report of this very run, whatever other threads do."""
        call = read_call(self._input_names, inputs, outputs)
        found, report = self.run_given(call)
        return call.hand_over(found), report

    def run_given(self, call: Given) -> tuple[dict[str, Array], Report]:
        """A run of NumPy arrays alone, as a caller's were read."""
        placement = place(self.program, call, gaps=False)
        self.run_placed(placement, self.plan(placement))
        return self.results(placement), self.report_on(placement)

    def profile(self, inputs: Inputs, outputs: Outputs | None = None, runs: int = RUNS) -> Profile:
        """Raises `UnsupportedError`: there is no clock that kernels can be timed by."""
        raise refuse(self._quiet.device)

    def bind(self, inputs: Inputs, outputs: Outputs | None = None) -> Call:
        """Fixes the arrays of a run. The call that comes back computes from what the input
        arrays hold at that time, into the same output arrays each time; where a library's arrays
        never change, into new ones."""
        call = read_call(self._input_names, inputs, outputs)
        return Call(self, call, place(self.program, call, gaps=False))

    def results(self, placement: Placement) -> dict[str, Array]:
        """The arrays that a run of this placement gives."""
        return {name: placement.operands[name].array for name in self._output_names}

    def report_on(self, placement: Placement) -> Report:
        """How a run of this placement goes."""
        return Report(self._quiet.device, placement.copies) if placement.copies else self._quiet

    def run_placed(self, placement: Placement, windows: tuple[Window, ...]) -> None:
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
        for name in self._output_names:
            operands[name].store()

    def _frame(self, window: Window) -> Frame:
        """A frame for the window's sizes, kept for later runs. Called with the device's lock."""
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
                _give_up_oldest()
        return frame


def _give_up_oldest() -> None:
    """Drops frames, those of the executables first that ran longest ago, until few bytes are
    kept."""
    kept = [(executable.frames, key) for executable in _recent for key in executable.frames]
    excess = sum(frames[key].bytes for frames, key in kept) - _KEPT_BYTES
    for frames, key in kept:
        if excess <= 0:
            return
        excess -= frames.pop(key).bytes


class Call:
    """A run with its arrays fixed: calling it uploads, runs, and returns the outputs."""

    def __init__(self, executable: CopyingExecutable, call: Given, placement: Placement) -> None:
        self._executable = executable
        self._placement = placement
        self._windows = executable.plan(placement)
        self._give, copies = call.keep(executable.results(placement))
        self.report = executable.report_on(placement).with_copies(copies)

    def __call__(self) -> dict[str, Any]:
        self._executable.run_placed(self._placement, self._windows)
        return self._give()
