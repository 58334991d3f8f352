"""Program on the simulated device: arrays in, arrays out. `placement` checks and places the arrays,
as for every device; `copied` has the transfers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping

import numpy as np

from dmlc.freedoms import Freedom, draw_bits, draw_key
from dmlc.program import Program, Role, TensorSpec
from dmlc.runtime.arrays import Array, Bytes, constant_array, is_loaded, tensor_bytes
from dmlc.runtime.copied import CopyingExecutable, Window, list_windows
from dmlc.runtime.hlsl import list_special
from dmlc.runtime.interface import check_target
from dmlc.runtime.placement import Placement
from dmlc.runtime.strict.device import StrictDevice
from dmlc.source import UnsupportedError

_LARGEST = 1 << 30
"""Largest size of a tensor in bytes."""


class Executable(CopyingExecutable):
    """Program built for a device. Thread-safe."""

    def __init__(self, program: Program, device: StrictDevice) -> None:
        check_target(program, "hlsl", "simulated strict devices")
        super().__init__(program, device, threading.Lock())
        self.device = device
        if any(source.interpreted is None for source in program.kernels):
            raise UnsupportedError(
                f"{program.name} has nothing that could be interpreted beside its HLSL",
                notes=["compile it for the device, as dmlc.run(..., device='strict') does"],
            )

    def plan(self, placement: Placement) -> tuple[Window, ...]:
        return tuple(list_windows(self.program, placement.sizes, _LARGEST, _LARGEST))

    def make_frame(self, window: Window) -> _Frame:
        return _Frame(self.device, self.program, window)

    def reporting(self, what: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class _Frame:
    """Launches for the windows of one size. Used by one thread at a time."""

    def __init__(self, device: StrictDevice, program: Program, window: Window) -> None:
        self._device, self._program, self._sizes = device, program, window.sizes
        self.bytes = 0

    def run(self, memories: Mapping[str, Bytes]) -> None:
        """Runs the window on these bytes of each input and output."""
        shared = self._fill(self._program.scratch_bytes, np.dtype(np.uint8), "scratch")
        held = {t.name: self._lay_out(t, memories, shared) for t in self._program.tensors}
        for number, step in self._order():
            source = self._program.kernels[number]
            bound = [held[buffer.tensor] for buffer in source.buffers]
            taken = self._device.take(list_special(source, self._device.floats))
            assert source.interpreted is not None
            source.interpreted.run(source, bound, {**self._sizes, **step}, taken)
        for tensor in self._program.outputs:
            found = held[tensor.name].view(np.uint8)
            memories[tensor.name][: found.size] = found

    def _order(self) -> list[tuple[int, dict[str, int]]]:
        """Kernels in any topological order of their dependencies. Repeated kernels keep their
        order."""
        order, kernels = list(self._program.order(self._sizes)), self._program.kernels
        if Freedom.ORDER not in self._device.freedoms or self._program.repeats:
            return order
        waiting, found = dict(order), list[int]()
        while waiting:
            ready = [n for n in waiting if not any(a in waiting for a in kernels[n].after)]
            found.append(min(ready, key=lambda n: draw_key(self._device.seed, "kernel", n)))
            del waiting[found[-1]]
        return [(number, {}) for number in found]

    def _lay_out(self, tensor: TensorSpec, memories: Mapping[str, Bytes], shared: Array) -> Array:
        """Elements of a tensor: the host's, or uninitialised ones. Tensors with disjoint lifetimes
        use the same bytes of `shared`."""
        dtype = tensor.dtype.dtype
        if tensor.role is Role.CONSTANT:
            return constant_array(tensor).ravel()
        size = tensor_bytes(tensor, self._sizes)
        if is_loaded(tensor):
            values: Array = memories[tensor.name][:size].copy().view(dtype)
            return values
        if tensor.offset is not None:
            return shared[tensor.offset :][:size].view(dtype)
        return self._fill(size // tensor.dtype.bytes, dtype, tensor.name)

    def _fill(self, count: int, dtype: np.dtype[np.generic], name: str) -> Array:
        """Uninitialised elements."""
        if Freedom.MEMORY not in self._device.freedoms:
            return np.zeros(count, dtype)
        return draw_bits(count, dtype, draw_key(self._device.seed, name))
