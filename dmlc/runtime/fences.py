"""Detection of stray stores: a program run with guard words around its tensors.

`fence` makes a program that every runtime can run. Each of its tensors, scratch and constants
included, is an output with memory of its own, which extends beyond the last element: kernels are
bound to all of it, so that a store after a tensor is brought back. On host memory there is a guard
before the first element too. Guards are random, and differ from tensor to tensor, so that copies of
them are detected. They differ between two runs: results that differ too come from a read out of
bounds, or of uninitialised memory.

Without such an error, the program itself runs on arrays between guard words, once with its own
strides and once with others, so that values are copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dmlc.program import STEP, KernelSource, Program, Role, TensorSpec
from dmlc.runtime.arrays import (
    Array,
    Bytes,
    Shape,
    bind_symbols,
    constant_array,
    element_strides,
    may_repeat,
    packed,
    repeated_axes,
    span,
)
from dmlc.runtime.interface import AnyExecutable
from dmlc.sizes import evaluate_size

GUARD_BYTES = 1 << 14
"""Size in bytes of the guard before and after a tensor."""
_ALIGNMENT = 64
_WORD = 4
_SPREAD = 3
"""Stride in elements of arrays that must be copied."""

Load = Callable[[Program], AnyExecutable]


def check_stores(
    program: Program, load: Load, inputs: Mapping[str, Array], outputs: Mapping[str, Shape]
) -> list[str]:
    """Stray stores and invalid reads of a program, one sentence each; `outputs` gives their sizes.
    Raises as loading and running the program does."""
    check = _Check(program, load, inputs, outputs)
    # Kernels that store into guard words could spoil more than those without them.
    return list(check.check_kernels()) or list(check.check_arrays())


def fence(program: Program, sizes: Mapping[str, int]) -> Program:
    """Program for these sizes only, with each tensor as an output with guard words after its
    elements."""
    tensors = tuple(
        TensorSpec(
            tensor.name,
            Role.OUTPUT,
            tensor.dtype,
            (span(*_layout(tensor, sizes)) + GUARD_BYTES // tensor.dtype.bytes,),
            (1,),
        )
        for tensor in program.tensors
    )
    kernels = tuple(_fix(kernel, sizes) for kernel in program.kernels)
    repeats = tuple(
        dataclasses.replace(each, steps=evaluate_size(each.steps, sizes))
        for each in program.repeats
    )
    return dataclasses.replace(
        program, tensors=tensors, kernels=kernels, elementwise=False, checks=(), repeats=repeats
    )


def _fix(kernel: KernelSource, sizes: Mapping[str, int]) -> KernelSource:
    scalars = tuple(
        s if s.value == STEP else dataclasses.replace(s, value=evaluate_size(s.value, sizes))
        for s in kernel.scalars
    )
    count = evaluate_size(kernel.dispatch.count, sizes)
    dispatch = dataclasses.replace(kernel.dispatch, count=count)
    return dataclasses.replace(kernel, scalars=scalars, dispatch=dispatch)


def _layout(tensor: TensorSpec, sizes: Mapping[str, int]) -> tuple[Shape, Shape]:
    """Sizes and strides of a tensor; one axis if the symbol counts elements."""
    shape = tuple(evaluate_size(e, sizes) for e in tensor.extents)
    strides = packed(shape) if tensor.role is Role.SCRATCH else element_strides(tensor, shape)
    return shape, strides


class Fenced:
    """Elements of a tensor in host memory, between guard words."""

    def __init__(
        self,
        dtype: np.dtype[Any],
        shape: Shape,
        strides: Shape,
        random: np.random.Generator,
        misaligned: int = 0,
    ) -> None:
        """`misaligned` is the offset in bytes of its beginning from a cache line."""
        item = dtype.itemsize
        size = span(shape, strides) * item
        whole = size + 2 * (GUARD_BYTES + _ALIGNMENT)
        self._whole: Bytes = np.zeros(whole, np.uint8)
        start = GUARD_BYTES + -(self._whole.ctypes.data + GUARD_BYTES) % _ALIGNMENT
        self._start = start = start + misaligned
        self._end = start + size
        # The same bytes at the same elements, wherever the memory lies.
        around = random.integers(0, 256, size + 2 * GUARD_BYTES, np.uint8)
        self._whole[start - GUARD_BYTES : self._end + GUARD_BYTES] = around
        self.memory: Array = self._whole[start : self._end + GUARD_BYTES].view(dtype)
        """Elements with the gaps between them and the guard after them."""
        steps = [s * item for s in strides]
        self.view: Array = as_strided(self.memory, shape, steps)
        """Elements with their sizes and strides."""
        self._own = np.zeros(self._whole.size, bool)
        places = as_strided(self._own[start:], (*shape, item), (*steps, 1))
        places[...] = True
        self._before = self._whole
        self._may_change = np.zeros(1, bool)

    def settle(self, written: bool, words: bool = False) -> None:
        """Takes a snapshot: from here on only the elements may change, if `written`, and then also
        the padding of the last of whole `words`."""
        self._before = self._whole.copy()
        self._may_change = self._own & written
        if words and written:
            self._may_change[self._end : self._end + -(self._end - self._start) % _WORD] = True

    def find_stray(self) -> list[int]:
        """Offsets from the first element of the bytes that must not change and did."""
        changed = (self._whole != self._before) & ~self._may_change
        return [int(place) - self._start for place in np.flatnonzero(changed)]

    def describe(self, places: Sequence[int]) -> str:
        """Message about such bytes."""
        first, item = places[0], self.view.itemsize
        if first < 0:
            where = "before its first element"
        elif first >= self._end - self._start:
            where = "behind its last element"
        elif self._own[first + self._start]:
            where = "an input's own"
        else:
            where = "in a gap between its elements"
        return f"at element {first // item} ({where}; {len(places):,} bytes in all)"


def run_between_guards(
    program: Program,
    load: Load,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Shape],
    seed: int = 0,
) -> tuple[dict[str, Array], list[str]]:
    """Results of a program whose tensors lie between guard words, by name, and its stray stores,
    one sentence each.

    The `seed` determines the contents of the guards and of unwritten tensors: results that depend
    on it come from there.
    """
    check = _Check(program, load, inputs, outputs, seed)
    return check.run_once(load(check.fenced), 0)


class _Check:
    """Program with its data."""

    def __init__(
        self,
        program: Program,
        load: Load,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Shape],
        seed: int = 0,
    ) -> None:
        self._program = program
        self._load = load
        self._inputs = inputs
        self._sizes, self._shapes = bind_symbols(program, inputs, outputs)
        self._random = np.random.default_rng(seed)
        self.fenced = fence(program, self._sizes)

    # The caller's arrays ----------------------------------------------------------------------

    def check_arrays(self) -> Iterator[str]:
        """Changes of the caller's arrays, and of their guards, by runs of the program itself."""
        executable = self._load(self._program)
        for spread in (False, True):
            arrays = {s.name: self._fence_array(s, spread) for s in self._program.inputs}
            results = {s.name: self._fence_array(s, spread) for s in self._program.outputs}
            given = ({n: a.view for n, a in found.items()} for found in (arrays, results))
            executable(*given)
            how = "copied" if spread else "used as they lie"
            for name, array in (arrays | results).items():
                places = array.find_stray()
                if places:
                    yield f"with arrays {how}, a run changes {name} {array.describe(places)}"

    def _fence_array(self, spec: TensorSpec, spread: bool) -> Fenced:
        shape = self._shapes[spec.name]
        strides = element_strides(spec, shape)
        if spread and not repeated_axes(shape, strides) and not may_repeat(shape, strides):
            strides = tuple(_SPREAD * s for s in strides)
        made = Fenced(spec.dtype.dtype, shape, strides, self._random)
        if spec.role is Role.INPUT:
            made.view[...] = self._inputs[spec.name]
        made.settle(written=spec.role is Role.OUTPUT)
        return made

    # The kernels ------------------------------------------------------------------------------

    def check_kernels(self) -> Iterator[str]:
        """Stray stores of kernels to any tensor or guard, and their reads of guards."""
        executable = self._load(self.fenced)
        results: list[dict[str, Array]] = []
        for misaligned in (0, 1):
            found, stray = self.run_once(executable, misaligned)
            yield from stray
            results.append(found)
        yield from _compare(*results)

    def run_once(
        self, executable: AnyExecutable, misaligned: int
    ) -> tuple[dict[str, Array], list[str]]:
        """Results of a run of the kernels, and their stray stores."""
        tensors = self._fence_tensors(misaligned)
        # Arrays that are fixed may be lent to a device, others go through its own buffers.
        _run(executable, tensors, fixed=not misaligned)
        stray: list[str] = []
        for name, tensor in tensors.items():
            places = tensor.find_stray()
            if places:
                kernel = self._find_kernel(self.fenced, name)
                stray.append(f"{kernel} stores into {name} {tensor.describe(places)}")
        return {s.name: tensors[s.name].view for s in self._program.outputs}, stray

    def _fence_tensors(self, misaligned: int) -> dict[str, Fenced]:
        """All tensors, each offset from a cache line by `misaligned` times its required
        alignment."""
        # Where two elements share a word of a buffer, kernels store all of the last one.
        bindings = [b for kernel in self._program.kernels for b in kernel.buffers]
        words = (b for b in bindings if b.structure_bytes == _WORD)
        shared = {b.tensor for b in words if b.dtype.is_storage_only}
        alignments = self._program.alignments
        found: dict[str, Fenced] = {}
        for spec in self._program.tensors:
            shape, strides = _layout(spec, self._sizes)
            beyond = misaligned * max(spec.dtype.bytes, alignments.get(spec.name, 1))
            made = Fenced(spec.dtype.dtype, shape, strides, self._random, beyond)
            if spec.role is Role.INPUT:
                made.view[...] = self._inputs[spec.name].reshape(shape)
            elif spec.role is Role.CONSTANT:
                made.view[...] = constant_array(spec)
            made.settle(spec.role in (Role.OUTPUT, Role.SCRATCH), spec.name in shared)
            found[spec.name] = made
        return found

    def _find_kernel(self, program: Program, tensor: str) -> str:
        """First kernel with a stray store to a tensor."""
        for number, kernel in enumerate(program.kernels, 1):
            repeats = tuple(
                dataclasses.replace(r, last=min(r.last, number - 1))
                for r in program.repeats
                if r.first < number
            )
            kernels = program.kernels[:number]
            first = dataclasses.replace(program, kernels=kernels, repeats=repeats)
            tensors = self._fence_tensors(0)
            _run(self._load(first), tensors, fixed=True)
            if tensors[tensor].find_stray():
                return f"the kernel {kernel.name}"
        return "a kernel, in one run of two,"


def _run(executable: AnyExecutable, tensors: Mapping[str, Fenced], fixed: bool) -> None:
    memories = {name: tensor.memory for name, tensor in tensors.items()}
    if fixed:
        executable.bind({}, memories)()
    else:
        executable({}, memories)


def _compare(first: Mapping[str, Array], second: Mapping[str, Array]) -> Iterator[str]:
    """Differences between two runs with other guard contents."""
    for name, one in first.items():
        other = second[name]
        differing = np.flatnonzero(as_bits(one) != as_bits(other))
        if differing.size:
            at = tuple(int(k) for k in np.unravel_index(int(differing[0]), one.shape))
            yield (
                f"{name}{list(at)} is {one[at]} or {other[at]} by what lies outside all tensors: "
                "it comes from a read out of bounds, or of what nothing stored before "
                f"({differing.size:,} of {one.size:,} elements)"
            )


def as_bits(array: Array) -> Array:
    """Bits of an array's elements, as unsigned numbers in one axis."""
    return np.ascontiguousarray(array).view(np.dtype(f"u{array.itemsize}")).ravel()
