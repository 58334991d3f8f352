"""A compiled function called on PyTorch's tensors of the CPU, with little in between.

What a call could find out is settled when a `Call` is made: the sizes, the strides and the types
of all tensors. A call makes the results and launches; it checks nothing. Whoever calls knows that
the tensors are what the program was compiled for, as the guards of a compiled graph do, or a
cache with types, sizes and strides as its keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

import torch

from dmlc.devices import DEFAULT, compile_for, load_on, selector_of
from dmlc.ir import Function
from dmlc.known_answers import find_trusted
from dmlc.program import Program, TensorSpec
from dmlc.runtime.arrays import element_strides, packed
from dmlc.runtime.interface import AnyDevice, AnyExecutable, find_runtime
from dmlc.runtime.opencl.executable import Executable
from dmlc.sizes import evaluate_size
from dmlc.source import DmlcError, UnavailableError
from dmlc.torch.tensors import TORCH_TYPES, view_array

Layout: TypeAlias = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Type, sizes and strides."""

_NO_SIZES: Mapping[str, int] = {}


GPU = "gpu"
"""The device text of the first GPU that OpenCL has, or else Vulkan."""


@functools.cache
def find_device(name: str = DEFAULT) -> AnyDevice:
    """The device that PyTorch's tensors of the CPU are computed on: the default of OpenCL, another
    that a device text names, or `GPU`. Raises `UnavailableError` where there is none."""
    found = find_trusted(_find_gpu() if name == GPU else name)
    if found is None:
        raise UnavailableError("the reference computes no graphs of PyTorch: name a device")
    return found


def _find_gpu() -> str:
    for device in (*_list_devices("opencl"), *_list_devices("vulkan")):
        if "gpu" in " ".join(device.facts).lower():
            return selector_of(device)
    raise UnavailableError(
        "neither OpenCL nor Vulkan has a GPU here",
        notes=["name another device: torch.compile(model, backend='dmlc', "
               "options={'device': 'vulkan'})"],
    )  # fmt: skip


def _list_devices(runtime: str) -> Sequence[AnyDevice]:
    try:
        return find_runtime(runtime).devices()
    except UnavailableError:
        return ()


_KEPT = 1024
"""How many functions are kept, compiled and built."""


@functools.lru_cache(_KEPT)
def _compile(function: Function, device: str) -> Program:
    return compile_for(function, find_device(device))


@functools.lru_cache(_KEPT)
def load(function: Function, device: str = DEFAULT) -> AnyExecutable:
    """A function compiled and built for a device of `find_device`; the latest are kept."""
    return load_on(_compile(function, device), find_device(device))


def make_calls(functions: Sequence[Function], device: str = DEFAULT) -> list[Call | DmlcError]:
    """The call of each function, whose sizes are fixed, or why it has none. The driver builds one
    in a thread of its own while the next is compiled; equal functions are built once. Each is run
    once, on ones: drivers leave much of their work for then."""
    made: dict[Function, Future[Call]] = {}
    failed: dict[Function, DmlcError] = {}
    with ThreadPoolExecutor(1) as builder:
        for function in dict.fromkeys(functions):
            try:
                _compile(function, device)
            except DmlcError as error:
                failed[function] = error
            else:
                made[function] = builder.submit(_rehearse, function, device)
        for function, future in made.items():
            error = future.exception()
            if isinstance(error, DmlcError):
                failed[function] = error
    return [failed[f] if f in failed else made[f].result() for f in functions]


def _rehearse(function: Function, device: str) -> Call:
    call = Call(load(function, device))
    call(*make_ones(call))
    return call


def make_ones(call: Call) -> list[torch.Tensor]:
    """Inputs of a call whose sizes are fixed, each filled with ones."""
    layouts = [_layout_of(spec, _NO_SIZES) for spec in call.program.inputs]
    return [
        torch.empty_strided(shape, strides, dtype=dtype).fill_(1)
        for dtype, shape, strides in layouts
    ]


class Call:
    """A program with its sizes fixed: tensors in, new tensors out. Safe to call from several
    threads at once."""

    def __init__(
        self,
        executable: AnyExecutable,
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
        direct = executable.direct(sizes) if isinstance(executable, Executable) else None
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


def _run(executable: AnyExecutable, tensors: Sequence[torch.Tensor]) -> None:
    """By way of arrays, where a device has memory of its own."""
    program = executable.program
    names = [t.name for t in (*program.inputs, *program.outputs)]
    arrays = dict(zip(names, map(view_array, tensors), strict=True))
    outputs = {t.name: arrays.pop(t.name) for t in program.outputs}
    executable.run(arrays, outputs)
