"""A program on a Direct3D 12 device, ready to run: arrays in, arrays out.

The arrays are checked and placed as on every device (`placement`); their values are copied to the
device and back. Any thread may call; those that use one device take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlc.program import Program
from dmlc.runtime.arrays import Array, as_bytes
from dmlc.runtime.d3d12.device import Context, D3D12Device, reporting
from dmlc.runtime.d3d12.frame import Frame
from dmlc.runtime.d3d12.plan import Window, build_shader, check_program, plan_windows
from dmlc.runtime.placement import Outputs, Placement, place
from dmlc.runtime.report import Report

_KEPT_FRAMES = 4
_KEPT_BYTES = 256 << 20
"""What an executable keeps between runs, at most."""


class Executable:
    """A program built for a device. Safe to call from several threads at once."""

    def __init__(self, program: Program, context: Context) -> None:
        check_program(program)
        self.program = program
        self.device: D3D12Device = context.device
        self._context = context
        self._shaders = [build_shader(kernel) for kernel in program.kernels]
        self._item_bytes = {t.name: t.dtype.bytes for t in (*program.inputs, *program.outputs)}
        self._output_names = tuple(t.name for t in program.outputs)
        self._frames: dict[tuple[int, ...], Frame] = {}
        self._quiet = Report(str(self.device))
        self.last_report = self._quiet
        """The report of the latest call, whichever thread made it."""

    def __repr__(self) -> str:
        return f"<executable {self.program.name} on {self.device}>"

    def __call__(
        self, inputs: Mapping[str, Array] | Sequence[Array], outputs: Outputs | None = None
    ) -> dict[str, Array]:
        """Runs the program once.

        `inputs` maps every input tensor's name to an array, or lists an array for each in order;
        `outputs` may give arrays to write into, or sizes. Returns every output by name; an array
        that was given is returned itself.
        Raises `DmlcError` for arrays that do not fit the program and for what Direct3D refuses,
        `UnsupportedError` for sizes over its limits.
        """
        results, self.last_report = self.run(inputs, outputs)
        return results

    def run(
        self, inputs: Mapping[str, Array] | Sequence[Array], outputs: Outputs | None = None
    ) -> tuple[dict[str, Array], Report]:
        """The same with the report of this very run, whatever other threads do."""
        placement = self._place(inputs, outputs)
        self.run_placed(placement, self.plan(placement))
        return self.results(placement), self.report_on(placement)

    def bind(
        self, inputs: Mapping[str, Array] | Sequence[Array], outputs: Outputs | None = None
    ) -> Call:
        """Fixes the arrays of a run. The call that comes back computes from what the input
        arrays hold at that time, into the same output arrays each time."""
        return Call(self, self._place(inputs, outputs))

    def _place(
        self, inputs: Mapping[str, Array] | Sequence[Array], outputs: Outputs | None
    ) -> Placement:
        return place(self.program, inputs, outputs, gaps=False)

    def plan(self, placement: Placement) -> tuple[Window, ...]:
        """The windows of a run."""
        return plan_windows(self.program, self._shaders, placement.sizes, self.device)

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
        what = f"cannot run {self.program.name} on {self.device.name}"
        with self._context.lock, reporting(what):
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
        frame = self._frames.pop(key, None)
        if frame is None:
            frame = Frame(self._context, self.program, self._shaders, window)
        self._frames[key] = frame
        while len(self._frames) > _KEPT_FRAMES or (
            sum(f.bytes for f in self._frames.values()) > _KEPT_BYTES
        ):
            del self._frames[next(iter(self._frames))]
        return frame


class Call:
    """A run with its arrays fixed: calling it uploads, runs, and returns the outputs."""

    def __init__(self, executable: Executable, placement: Placement) -> None:
        self._executable = executable
        self._placement = placement
        self._windows = executable.plan(placement)
        self._results = executable.results(placement)
        self.report = executable.report_on(placement)

    def __call__(self) -> dict[str, Array]:
        self._executable.run_placed(self._placement, self._windows)
        return self._results.copy()
