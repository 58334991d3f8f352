"""A compiled function called on PyTorch's tensors of the CPU, with little in between.

What a call could find out is settled when a `Call` is made: the sizes, the strides and the types
of all tensors. A call makes the results and launches; it checks nothing. Whoever calls knows that
the tensors are what the program was compiled for, as the guards of a compiled graph do, or a
cache with types, sizes and strides as its keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from dmlc.devices import compile_for
from dmlc.ir import Function
from dmlc.known_answers import find_trusted
from dmlc.program import TensorSpec
from dmlc.runtime import opencl
from dmlc.runtime.arrays import element_strides, packed
from dmlc.runtime.opencl.device import Device
from dmlc.runtime.opencl.executable import Executable
from dmlc.sizes import evaluate_size
from dmlc.source import UnavailableError
from dmlc.torch.tensors import TORCH_TYPES, view_array

Layout: TypeAlias = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Type, sizes and strides."""

_NO_SIZES: Mapping[str, int] = {}


@functools.cache
def find_device() -> Device:
    """The device that PyTorch's tensors of the CPU are computed on: the default of OpenCL."""
    found = find_trusted("opencl")
    if not isinstance(found, Device):
        raise UnavailableError("there is no OpenCL device to compute PyTorch's tensors on")
    return found


@functools.lru_cache(maxsize=1024)
def load(function: Function) -> Executable:
    """A function compiled and built for `find_device`; the latest are kept."""
    device = find_device()
    return opencl.load_on(compile_for(function, device), device)


class Call:
    """A program with its sizes fixed: tensors in, new tensors out. Safe to call from several
    threads at once."""

    def __init__(
        self,
        executable: Executable,
        sizes: Mapping[str, int] = _NO_SIZES,
        results: Sequence[Layout] | None = None,
        inputs: Sequence[Layout] | None = None,
    ) -> None:
        """`sizes` gives the program's symbols. `results` and `inputs` say types, sizes and strides
        of the results and of what is given, where they are others than the program's: that may only
        have a count of their elements."""
        program = executable.program
        self.program = program
        self.results = tuple(results or (_layout_of(t, sizes) for t in program.outputs))
        """The layouts of the results."""
        given = inputs or [_layout_of(t, sizes) for t in program.inputs]
        self._makers = tuple(_make_maker(layout, given) for layout in self.results)
        direct = executable.direct(sizes)
        self._launch: Callable[[Sequence[torch.Tensor]], None] = (
            functools.partial(_run, executable)
            if direct is None
            else lambda tensors: direct([t.data_ptr() for t in tensors])
        )

    @staticmethod
    def of(function: Function, sizes: Mapping[str, int] = _NO_SIZES) -> Call:
        """A function compiled for the default device, and its call. `sizes` gives its symbols."""
        return Call(load(function), sizes)

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """New results of these tensors: in the order of the program's inputs, of the types, sizes
        and strides it was compiled for, and on the CPU. Nothing of that is checked."""
        outputs = [make(inputs) for make in self._makers]
        self._launch((*inputs, *outputs))
        return outputs

    def fill(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """The same into given tensors of the layouts of `results`, which share no memory with
        others."""
        self._launch((*inputs, *outputs))


def _layout_of(spec: TensorSpec, sizes: Mapping[str, int]) -> Layout:
    shape = tuple(evaluate_size(extent, sizes) for extent in spec.extents)
    return TORCH_TYPES[spec.dtype], shape, element_strides(spec, shape)


def _make_maker(
    layout: Layout, given: Sequence[Layout]
) -> Callable[[Sequence[torch.Tensor]], torch.Tensor]:
    """What makes a result in the least time: like a packed input, where there is one like it."""
    dtype, shape, strides = layout
    if strides == packed(shape) and layout in given:
        number, like = given.index(layout), torch.empty_like
        return lambda inputs: like(inputs[number])
    return lambda _: torch.empty_strided(shape, strides, dtype=dtype)


def _run(executable: Executable, tensors: Sequence[torch.Tensor]) -> None:
    """By way of arrays, where a device has memory of its own."""
    program = executable.program
    names = [t.name for t in (*program.inputs, *program.outputs)]
    arrays = dict(zip(names, map(view_array, tensors), strict=True))
    outputs = {t.name: arrays.pop(t.name) for t in program.outputs}
    executable.run(arrays, outputs)
