"""A program on the simulated device, ready to run: arrays in, arrays out.

The arrays are checked and placed as on every device (`placement`); how their values come to the
device and back is said in `copied`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping

import numpy as np

from dmlc.freedoms import Freedom, draw_bits, draw_key
from dmlc.program import Program, Role, TensorSpec
from dmlc.runtime.arrays import Array, Bytes, constant_array, is_loaded
from dmlc.runtime.copied import CopyingExecutable, Window, list_windows, tensor_bytes
from dmlc.runtime.hlsl import list_special
from dmlc.runtime.interface import check_target
from dmlc.runtime.placement import Placement
from dmlc.runtime.strict.device import StrictDevice
from dmlc.source import UnsupportedError

_LARGEST = 1 << 30
"""What a tensor may take, in bytes."""


class Executable(CopyingExecutable):
    """A program built for a device. Safe to call from several threads at once."""

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
    """What the windows of one size need. Used by one thread at a time."""

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
        """The kernels as they run: in any order in which each comes after those that it waits for.
        What is repeated keeps its order."""
        order, kernels = list(self._program.order()), self._program.kernels
        if Freedom.ORDER not in self._device.freedoms or self._program.repeats:
            return order
        waiting, found = dict(order), list[int]()
        while waiting:
            ready = [n for n in waiting if not any(a in waiting for a in kernels[n].after)]
            found.append(min(ready, key=lambda n: draw_key(self._device.seed, "kernel", n)))
            del waiting[found[-1]]
        return [(number, {}) for number in found]

    def _lay_out(self, tensor: TensorSpec, memories: Mapping[str, Bytes], shared: Array) -> Array:
        """A tensor's elements: what the host gives, or what nobody has written. Tensors that are
        never needed together have the same bytes, among those that are `shared`."""
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
        """So many elements that nobody has written."""
        if Freedom.MEMORY not in self._device.freedoms:
            return np.zeros(count, dtype)
        return draw_bits(count, dtype, draw_key(self._device.seed, name))
