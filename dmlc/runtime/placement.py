"""Placement of a run: a program and the caller's arrays become operands.

All checks of a caller's arguments are here: names, types, sizes, and memory that inputs and outputs
share. It decides what is copied, with the reason; it knows nothing of devices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from dmlc.program import Program, TensorSpec
from dmlc.runtime.arrays import (
    Array,
    Copy,
    Operand,
    Shape,
    bind_symbols,
    check_dtype,
    check_names,
    check_output,
    copy_input,
    element_strides,
    name_inputs,
    name_outputs,
    new_output,
    place_input,
    place_output,
    show_shape,
)
from dmlc.runtime.foreign import Given, receive
from dmlc.sizes import evaluate_size
from dmlc.source import DmlcError

Inputs: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""Arrays by name, or one per input in order: NumPy's, or any that `foreign` imports."""
Outputs: TypeAlias = Mapping[str, Any]
"""Arrays to write into, or sizes, by name."""

NO_ALIGNMENTS: Mapping[str, int] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Memory of the tensors of one run."""

    sizes: dict[str, int]
    """Value of each symbol."""
    operands: dict[str, Operand]
    """Inputs and outputs by name."""
    scratch: dict[str, int]
    """Size in bytes of each scratch tensor."""
    offsets: dict[str, int]
    """Offsets of the scratch tensors that may share one allocation."""
    copies: tuple[Copy, ...]


def read_call(names: Sequence[str], inputs: Inputs, outputs: Outputs | None) -> Given:
    """Caller's arguments for a run of a program with these inputs, by name; `place` checks the
    names. Raises `DmlcError` for anything but arrays."""
    return receive(name_inputs(names, inputs), name_outputs(outputs))


def place(
    program: Program, call: Given, *, gaps: bool, alignments: Mapping[str, int] = NO_ALIGNMENTS
) -> Placement:
    """Checks the arrays of a run and finds memory for every tensor.

    `gaps` says whether a kernel may write to a caller's strided array in place, gaps included.
    `alignments` has the required alignments in bytes of tensors that kernels access in the caller's
    memory. Raises `DmlcError` for everything that does not fit the program.
    """
    arrays = call.inputs
    check_names(arrays, program.inputs, "input")
    check_names(call.outputs, program.outputs, "output")
    missing = [s.name for s in program.inputs if s.name not in arrays]
    if missing:
        raise DmlcError(f"no array is given for the input {', '.join(missing)}")
    for spec in program.inputs:
        check_dtype("input", spec, arrays[spec.name])
    given, wanted = _split_outputs(call.outputs)
    sizes, shapes = bind_symbols(program, arrays, wanted)

    operands: dict[str, Operand] = {}
    for spec in program.outputs:
        shape = shapes[spec.name]
        if wanted.get(spec.name, shape) != shape:
            raise DmlcError(
                f"the output {spec.name} has the sizes {show_shape(shape)}, "
                f"and {show_shape(wanted[spec.name])} are asked for"
            )
        if spec.name in given:
            array = check_output(spec, given[spec.name], shape)
            alignment = alignments.get(spec.name, 1)
            operands[spec.name] = place_output(spec, array, shape, gaps, alignment)
        else:
            operands[spec.name] = new_output(spec, shape, call.large)
    _check_outputs_apart(given)
    for spec in program.inputs:
        array = arrays[spec.name]
        shape = shapes[spec.name]
        operand = place_input(spec, array, shape, alignments.get(spec.name, 1))
        output = None
        if operand.reason is None:
            output = _overwriting_output(program, spec, array, given, operands)
        if output is not None:
            strides = element_strides(spec, shape)
            operand = copy_input(spec, array, strides, f"it overlaps the output {output}")
        operands[spec.name] = operand

    scratch = {s.name: math.prod(_extents(s, sizes)) * s.dtype.bytes for s in program.scratch}
    offsets = {s.name: s.offset for s in program.scratch if s.offset is not None}
    copies = tuple(
        Copy(s.name, reason)
        for s in (*program.inputs, *program.outputs)
        if (reason := operands[s.name].reason) is not None
    )
    return Placement(sizes, operands, scratch, offsets, copies)


def _split_outputs(
    outputs: Mapping[str, Array | Shape],
) -> tuple[dict[str, Array], dict[str, Shape]]:
    """Arrays among a caller's outputs, and the sizes of all."""
    arrays = {n: o for n, o in outputs.items() if isinstance(o, np.ndarray)}
    sizes = {n: o.shape if isinstance(o, np.ndarray) else o for n, o in outputs.items()}
    return arrays, sizes


def _extents(spec: TensorSpec, sizes: Mapping[str, int]) -> Shape:
    return tuple(evaluate_size(e, sizes) for e in spec.extents)


def _check_outputs_apart(given: Mapping[str, Array]) -> None:
    names = list(given)
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            if np.shares_memory(given[first], given[second]):
                raise DmlcError(
                    f"the arrays given for the outputs {first} and {second} share memory"
                )


def _overwriting_output(
    program: Program,
    spec: TensorSpec,
    array: Array,
    given: Mapping[str, Array],
    operands: Mapping[str, Operand],
) -> str | None:
    """Output whose stores could change an input before it is read, or None.

    Storing over an input is harmless if the program permits it and both are the very same elements;
    an output with memory of its own is copied to the caller's array afterwards.
    """
    for output in program.outputs:
        target = given.get(output.name)
        if target is None or operands[output.name].reason is not None:
            continue
        if not np.may_share_memory(array, target):
            continue
        if spec.name in output.in_place and _same_elements(array, target):
            continue
        return output.name
    return None


def _same_elements(first: Array, second: Array) -> bool:
    return (
        first.dtype == second.dtype
        and first.shape == second.shape
        and first.__array_interface__["data"][0] == second.__array_interface__["data"][0]
        and all(
            a == b
            for n, a, b in zip(first.shape, first.strides, second.strides, strict=True)
            if n > 1
        )
    )
