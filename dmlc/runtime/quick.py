"""Fast path of the usual call, in which nothing is copied.

`match` only checks. If every array is packed, aligned, in native byte order and disjoint from the
others, it returns them; otherwise it returns None, and `placement` takes over and explains. So this
module has no messages and makes no copies.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlc.program import Program, Role, TensorSpec
from dmlc.runtime.arrays import LARGE, Array, Shape, empty, fixed_shape, packed, symbol_of


@dataclasses.dataclass(frozen=True, slots=True)
class QuickPlan:
    """Data of `match`, arranged for fast checks."""

    inputs: tuple[tuple[str, np.dtype[Any], Shape | None], ...]
    """Name, type and sizes; None for sizes given by the program's one symbol."""
    outputs: tuple[tuple[str, np.dtype[Any], Shape | None], ...]
    symbol: str | None
    counted: int
    """Position of an input with the symbol's element count."""
    max_count: int

    def match(
        self,
        inputs: Mapping[str, object] | Sequence[object],
        outputs: Mapping[str, object] | None,
        large: int = LARGE,
    ) -> list[Array] | None:
        """Inputs, then outputs, with new ones made by `empty`; or None."""
        if not isinstance(inputs, dict) or not (outputs is None or isinstance(outputs, dict)):
            return None
        shape: Shape | None = None
        arrays: list[Array] = []
        ndarray = np.ndarray
        if len(inputs) != len(self.inputs):
            return None
        for name, dtype, fixed in self.inputs:
            array = inputs.get(name)
            if type(array) is not ndarray or array.dtype is not dtype:
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
            if fixed is None:
                if shape is None:
                    shape = array.shape
                elif array.shape != shape:
                    return None
            elif array.shape != fixed:
                return None
            arrays.append(array)
        if self.symbol is not None and arrays[self.counted].size > self.max_count:
            return None
        given = 0
        for name, dtype, fixed in self.outputs:
            array = None if outputs is None else outputs.get(name)
            wanted = shape if fixed is None else fixed
            if array is None:
                if wanted is None:
                    return None
                made = np.empty(wanted, dtype)
                arrays.append(made if made.nbytes < large else empty(wanted, dtype, large))
                continue
            given += 1
            if (
                type(array) is not ndarray
                or array.dtype is not dtype
                or array.shape != wanted
                or not array.flags.carray
            ):
                return None
            for other in arrays:
                if np.may_share_memory(array, other):
                    return None
            arrays.append(array)
        if outputs and given != len(outputs):
            return None
        return arrays


def plan_quick(program: Program, max_allocation: int) -> QuickPlan | None:
    """Plan of a program whose tensors are all packed, or None. `max_allocation`, in bytes, is the
    device's limit for one buffer."""
    if program.symbols and program.counted is None:
        return None
    if any(t.role is Role.SCRATCH for t in program.tensors):
        return None
    for spec in program.tensors:
        if symbol_of(spec) is None:
            shape = fixed_shape(spec)
            tight = spec.strides is None or spec.strides == packed(shape)
            if not tight or not 0 < math.prod(shape) * spec.dtype.bytes <= max_allocation:
                return None
        elif spec.strides is not None:
            return None
    counted = [k for k, s in enumerate(program.inputs) if symbol_of(s) is not None]
    if program.symbols and not counted:
        return None
    widest = max((t.dtype.bytes for t in program.tensors), default=1)
    return QuickPlan(
        inputs=tuple(_entry(s) for s in program.inputs),
        outputs=tuple(_entry(s) for s in program.outputs),
        symbol=program.symbols[0] if program.symbols else None,
        counted=counted[0] if counted else 0,
        max_count=min(program.max_count, max_allocation // widest),
    )


def _entry(spec: TensorSpec) -> tuple[str, np.dtype[Any], Shape | None]:
    shape = None if symbol_of(spec) is not None else fixed_shape(spec)
    return spec.name, spec.dtype.dtype, shape
