"""Program on a Direct3D 12 device: arrays in, arrays out. `placement` checks and places the arrays,
as for every device; `copied` has the transfers."""

from __future__ import annotations

import contextlib

from dmlc.program import Program
from dmlc.runtime.copied import CopyingExecutable, Window
from dmlc.runtime.d3d12.device import Context, D3D12Device, reporting
from dmlc.runtime.d3d12.frame import Frame
from dmlc.runtime.d3d12.plan import build_shader, check_program, plan_windows
from dmlc.runtime.placement import Placement


class Executable(CopyingExecutable):
    """Program built for a device. Thread-safe."""

    def __init__(self, program: Program, context: Context) -> None:
        check_program(program, context.device)
        super().__init__(program, context.device, context.lock)
        self.device: D3D12Device = context.device
        self._context = context
        self._shaders = [build_shader(kernel) for kernel in program.kernels]

    def plan(self, placement: Placement) -> tuple[Window, ...]:
        return plan_windows(self.program, self._shaders, placement.sizes, self.device)

    def make_frame(self, window: Window) -> Frame:
        return Frame(self._context, self.program, self._shaders, window)

    def reporting(self, what: str) -> contextlib.AbstractContextManager[None]:
        return reporting(what)
