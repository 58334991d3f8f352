"""Program on a WebGPU device: arrays in, arrays out. `placement` checks and places the arrays, as
for every device; `copied` has the transfers."""

from __future__ import annotations

import contextlib

from dmlc.program import Program
from dmlc.runtime.copied import CopyingExecutable, Window
from dmlc.runtime.placement import Placement
from dmlc.runtime.wgpu.device import Context, WgpuDevice, reporting
from dmlc.runtime.wgpu.frame import Frame, Pipeline
from dmlc.runtime.wgpu.plan import check_program, plan_windows


class Executable(CopyingExecutable):
    """Program built for a device. Thread-safe."""

    def __init__(self, program: Program, context: Context) -> None:
        check_program(program, context.device)
        super().__init__(program, context.device, context.lock)
        self.device: WgpuDevice = context.device
        self._context = context
        with context.lock:
            self._pipelines = [Pipeline(context, kernel) for kernel in program.kernels]

    def plan(self, placement: Placement) -> tuple[Window, ...]:
        return plan_windows(self.program, placement.sizes, self.device)

    def make_frame(self, window: Window) -> Frame:
        return Frame(self._context, self.program, self._pipelines, window)

    def reporting(self, what: str) -> contextlib.AbstractContextManager[None]:
        return reporting(what)
