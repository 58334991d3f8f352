"""A program on the simulated device, ready to run: arrays in, arrays out.

The arrays are checked and placed as on every device (`placement`); how their values come to the
device and back is said in `copied`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Mapping

import numpy as np

from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import run_kernel
from dmlc.kernel.memory import Memory
from dmlc.program import KernelSource, Program, Role, TensorSpec
from dmlc.runtime.arrays import Array, Bytes, constant_array, is_loaded
from dmlc.runtime.copied import CopyingExecutable, Window, list_windows, tensor_bytes
from dmlc.runtime.hlsl import list_special
from dmlc.runtime.interface import check_target
from dmlc.runtime.placement import Placement
from dmlc.runtime.strict.device import StrictDevice
from dmlc.runtime.strict.freedoms import Freedom, draw_bits, draw_key
from dmlc.runtime.strict.launch import StrictLaunch
from dmlc.source import UnsupportedError

_LARGEST = 1 << 30
"""What a tensor may take, in bytes."""


class Executable(CopyingExecutable):
    """A program built for a device. Safe to call from several threads at once."""

    def __init__(self, program: Program, device: StrictDevice) -> None:
        check_target(program, "hlsl", "simulated strict devices")
        super().__init__(program, device, threading.Lock())
        self.device = device
        self._kernels = [_read_kernel(program, source) for source in program.kernels]

    def plan(self, placement: Placement) -> tuple[Window, ...]:
        return tuple(list_windows(self.program, placement.sizes, _LARGEST, _LARGEST))

    def make_frame(self, window: Window) -> _Frame:
        return _Frame(self.device, self.program, self._kernels, window)

    def reporting(self, what: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def _read_kernel(program: Program, source: KernelSource) -> k.Kernel:
    """The kernel that a source was rendered from, for the sizes that the source is for."""
    kernel = source.interpreted
    if not isinstance(kernel, k.Kernel):
        raise UnsupportedError(
            f"{program.name} has no kernels that could be interpreted beside its HLSL",
            notes=["compile it for the device, as dmlc.run(..., device='strict') does"],
        )
    values = (scalar.value for scalar in source.scalars)
    scalars = tuple((s, value) for (s, _), value in zip(kernel.scalars, values, strict=True))
    launch = dataclasses.replace(kernel.launch, count=source.dispatch.count)
    return dataclasses.replace(kernel, scalars=scalars, launch=launch)


class _Frame:
    """What the windows of one size need. Used by one thread at a time."""

    def __init__(
        self, device: StrictDevice, program: Program, kernels: list[k.Kernel], window: Window
    ) -> None:
        self._device, self._program, self._kernels = device, program, kernels
        self._sizes = window.sizes
        self.bytes = 0
        self._dialect = find_dialect(program.target, program.kernels[0].shader_model or None)

    def run(self, memories: Mapping[str, Bytes]) -> None:
        """Runs the window on these bytes of each input and output."""
        held = {tensor.name: self._lay_out(tensor, memories) for tensor in self._program.tensors}
        for number, step in self._program.order():
            source, kernel = self._program.kernels[number], self._kernels[number]
            bound = zip(kernel.buffers, source.buffers, strict=True)
            make = functools.partial(
                StrictLaunch,
                device=self._device,
                dialect=self._dialect,
                special=list_special(source, self._device.floats),
            )
            named = {buffer.name: held[binding.tensor] for buffer, binding in bound}
            run_kernel(kernel, named, {**self._sizes, **step}, make)
        for tensor in self._program.outputs:
            found = held[tensor.name].values.view(np.uint8)
            memories[tensor.name][: found.size] = found

    def _lay_out(self, tensor: TensorSpec, memories: Mapping[str, Bytes]) -> Memory:
        """A tensor's memory: what the host gives, or what nobody has written."""
        dtype = tensor.dtype.dtype
        if tensor.role is Role.CONSTANT:
            return Memory(constant_array(tensor).ravel(), filled=True)
        count = tensor_bytes(tensor, self._sizes) // tensor.dtype.bytes
        if is_loaded(tensor):
            given = memories[tensor.name][: count * tensor.dtype.bytes]
            values: Array = given.copy().view(dtype)
            return Memory(values, filled=True)
        if Freedom.MEMORY not in self._device.freedoms:
            return Memory(np.zeros(count, dtype), filled=True)
        key = draw_key(self._device.index, tensor.name)
        return Memory(draw_bits(count, dtype, key), filled=True)
