"""Runs programs on a CPU's OpenCL device, with as little between as can be.

The tests of the code generator use this rather than the runtime: the buffers lie in host memory
between guard bytes, at any alignment, so that a store where none should be is found out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.lib.stride_tricks import as_strided

from dmlc.program import Program, Role, TensorSpec
from dmlc.runtime.arrays import constant_array
from dmlc.scalars import Array
from tests import quick_builds

_GUARD = 4096
_GUARD_BYTE = 0xA5
_ALIGNMENT = 64


@functools.cache
def open_queue() -> Any:
    """A queue of a CPU."""
    devices = [
        d
        for platform in cl.get_platforms()
        for d in platform.get_devices()
        if d.type & cl.device_type.CPU
    ]
    return cl.CommandQueue(cl.Context(devices[:1]))


@functools.lru_cache(32)
def build(source: str, plain: bool = False) -> Any:
    """A built program; a `plain` one as users build it. PoCL warns of the calling convention of any
    vector wider than the CPU's registers, hence `-w`."""
    context = open_queue().context
    quick = None if plain else quick_builds.build(context, source, context.devices)
    return quick or cl.Program(context, source).build(options=["-w"])


class _Memory:
    """A tensor's bytes between guards."""

    def __init__(self, elements: int, dtype: np.dtype[Any], misaligned: int) -> None:
        size = elements * dtype.itemsize
        self._whole = np.full(size + 2 * _GUARD + _ALIGNMENT, _GUARD_BYTE, np.uint8)
        start = _GUARD + (-(self._whole.ctypes.data + _GUARD)) % _ALIGNMENT
        start += misaligned * dtype.itemsize
        self._inside = slice(start, start + size)
        self.elements = self._whole[self._inside].view(dtype)

    def buffer(self) -> Any:
        # OpenCL has no empty buffers; a kernel that runs nothing is given a byte it leaves alone.
        start = self._inside.start
        stop = max(self._inside.stop, start + 1)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        return cl.Buffer(open_queue().context, flags, hostbuf=self._whole[start:stop])

    def check_guards(self) -> None:
        assert (self._whole[: self._inside.start] == _GUARD_BYTE).all(), "stored before the start"
        assert (self._whole[self._inside.stop :] == _GUARD_BYTE).all(), "stored behind the end"


def run_program(
    program: Program,
    inputs: Mapping[str, Array],
    in_place: Mapping[str, str] | None = None,
    misaligned: int = 0,
    plain: bool = False,
) -> dict[str, Array]:
    """Results by name. `in_place` says which input's memory a result is stored over;
    `misaligned` moves every tensor that many elements off its alignment, but those that kernels
    want aligned; `plain` kernels are built as users build them."""
    shape: tuple[int, ...] = next((a.shape for a in inputs.values()), ())
    sizes = {symbol: math.prod(shape) for symbol in program.symbols}
    memory: dict[str, _Memory] = {}
    for tensor in program.tensors:
        over = (in_place or {}).get(tensor.name)
        if over is not None:
            memory[tensor.name] = memory[over]
            continue
        moved = 0 if tensor.name in program.alignments else misaligned
        made = _Memory(_reach(tensor, sizes), tensor.dtype.dtype, moved)
        memory[tensor.name] = made
        if tensor.role is Role.CONSTANT:
            _view(tensor, made.elements, sizes)[...] = constant_array(tensor)
        if tensor.role is Role.INPUT:
            _view(tensor, made.elements, sizes)[...] = inputs[tensor.name].reshape(
                _extents(tensor, sizes)
            )
    buffers = {name: made.buffer() for name, made in memory.items()}
    buffers |= {result: buffers[over] for result, over in (in_place or {}).items()}
    for kernel in program.kernels:
        compiled = cl.Kernel(build(kernel.source, plain), kernel.entry_point)
        arguments: dict[int, Any] = {b.slot: buffers[b.tensor] for b in kernel.buffers}
        for scalar in kernel.scalars:
            value = scalar.value if isinstance(scalar.value, int) else sizes[scalar.value]
            arguments[scalar.slot] = (np.uint32 if scalar.bits == 32 else np.uint64)(value)
        compiled.set_args(*(arguments[slot] for slot in sorted(arguments)))
        items = kernel.dispatch.groups(sizes)[0] * kernel.dispatch.group_size
        if items:
            local = (kernel.dispatch.group_size,)
            cl.enqueue_nd_range_kernel(open_queue(), compiled, (items,), local)
    open_queue().finish()
    for made in memory.values():
        made.check_guards()
    results: dict[str, Array] = {}
    for tensor in program.outputs:
        view = _view(tensor, memory[tensor.name].elements, sizes)
        symbolic = any(isinstance(e, str) for e in tensor.extents)
        results[tensor.name] = view.reshape(shape).copy() if symbolic else view.copy()
    return results


def _extents(tensor: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(e if isinstance(e, int) else sizes[e] for e in tensor.extents)


def _strides(tensor: TensorSpec, extents: Sequence[int]) -> tuple[int, ...]:
    if tensor.strides is not None:
        return tensor.strides
    return tuple(math.prod(extents[axis + 1 :]) for axis in range(len(extents)))


def _reach(tensor: TensorSpec, sizes: Mapping[str, int]) -> int:
    """The elements from a tensor's first to its last, in memory."""
    extents = _extents(tensor, sizes)
    if 0 in extents:
        return 0
    steps = zip(extents, _strides(tensor, extents), strict=True)
    return 1 + sum((size - 1) * step for size, step in steps)


def _view(tensor: TensorSpec, elements: Array, sizes: Mapping[str, int]) -> Array:
    extents = _extents(tensor, sizes)
    steps = [s * elements.itemsize for s in _strides(tensor, extents)]
    return as_strided(elements, extents, steps)
