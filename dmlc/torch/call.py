"""Calls of a compiled function on PyTorch's CPU tensors, with little overhead.

Everything that does not change between calls is settled when a `Call` is made: sizes, strides and
types of all tensors. A call only allocates the results and launches. The caller ensures that the
tensors match the program, by the guards of a compiled graph, or by a cache keyed by types, sizes
and strides."""

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
    """Device that computes PyTorch's CPU tensors: the default of OpenCL, another by its device
    text, or `GPU`. Raises `UnavailableError` if there is none."""
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
    """Function compiled and built for a device of `find_device`; the most recent ones are
    cached."""
    return load_on(_compile(function, device), find_device(device))


def make_calls(functions: Sequence[Function], device: str = DEFAULT) -> list[Call | DmlcError]:
    """Call of each function, whose sizes are fixed, or the error if it has none. The driver builds
    one in a thread of its own while the next is compiled; equal functions are built once. Each is
    run once, on ones, as drivers defer work to the first run."""
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
    """Inputs of a call with fixed sizes, filled with ones."""
    layouts = [_layout_of(spec, _NO_SIZES) for spec in call.program.inputs]
    return [
        torch.empty_strided(shape, strides, dtype=dtype).fill_(1)
        for dtype, shape, strides in layouts
    ]


class Call:
    """Program with fixed sizes: takes tensors, and returns new tensors. Thread-safe."""

    def __init__(
        self,
        executable: AnyExecutable,
        sizes: Mapping[str, int] = _NO_SIZES,
        results: Sequence[Layout] | None = None,
        inputs: Sequence[Layout] | None = None,
    ) -> None:
        """`sizes` gives the program's symbols. `results` and `inputs` give types, sizes and strides
        of the tensors where these differ from the program's, which may only have the number of
        their elements."""
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
        """Function compiled for the default device, and its call. `sizes` gives its symbols."""
        return Call(load(function), sizes)

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """New results for tensors in the order of the program's inputs, with the types, sizes and
        strides it was compiled for, on the CPU. None of that is checked."""
        outputs = [make(inputs) for make in self._makers]
        self._launch((*inputs, *outputs))
        return outputs

    def fill(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Computes results into given tensors with the layouts of `results`, which share no memory
        with others."""
        self._launch((*inputs, *outputs))


def _layout_of(spec: TensorSpec, sizes: Mapping[str, int]) -> Layout:
    shape = tuple(evaluate_size(extent, sizes) for extent in spec.extents)
    return TORCH_TYPES[spec.dtype], shape, element_strides(spec, shape)


def _make_maker(
    layout: Layout, given: Sequence[Layout]
) -> Callable[[Sequence[torch.Tensor]], torch.Tensor]:
    """Fastest function that allocates a result: like a packed input, if one has its layout."""
    dtype, shape, strides = layout
    if strides == packed(shape) and layout in given:
        number, like = given.index(layout), torch.empty_like
        return lambda inputs: like(inputs[number])
    return lambda _: torch.empty_strided(shape, strides, dtype=dtype)


def _run(executable: AnyExecutable, tensors: Sequence[torch.Tensor]) -> None:
    """Runs by copies in arrays, for devices with memory of their own."""
    program = executable.program
    names = [t.name for t in (*program.inputs, *program.outputs)]
    arrays = dict(zip(names, map(view_array, tensors), strict=True))
    outputs = {t.name: arrays.pop(t.name) for t in program.outputs}
    executable.run(arrays, outputs)
