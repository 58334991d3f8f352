"""The oracle: evaluates tensor IR in NumPy, plainly and slowly.

Floats are computed in float64 from the inputs as stored and rounded once, to nearest even, where a
stage is stored; constants are as written in the function. An explicit cast to FLOAT32 rounds, as
devices do. Integers compute in their own type and wrap. Every backend is tested against this.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dmlc.ir import (
    Apply,
    Body,
    Cast,
    Constant,
    Extent,
    Function,
    Index,
    Load,
    Parameter,
    Select,
    Stage,
)
from dmlc.scalars import COMBINERS, Array, DataType, combiner_identity, convert, data_type_of
from dmlc.source import DmlcError, unknown_name

_BLOCK = 1 << 20
"""Points of a reduction evaluated at a time."""


def evaluate(function: Function, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The function's results, each packed, in its stage's type and sizes.

    `inputs` has an array of each parameter's type and sizes, by name. Parameters of run-time
    size take arrays of any one shape; results of that size have it too. Raises `DmlcError` where
    an input is missing, unknown, or of another type or shape.
    """
    tensors, symbols, shape = _bind(function, inputs)
    results = {r.name for r in function.results}
    out: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        for stage in function.stages:
            values = _evaluate_stage(stage, tensors, symbols)
            stored = round_to(values, stage.dtype)
            tensors[stage.name] = stored
            if stage.name in results:
                run_time = any(isinstance(e, str) for e in stage.domain)
                out[stage.name] = stored.reshape(shape) if run_time else stored
    return {r.name: out[r.name] for r in function.results}


def _bind(
    function: Function, inputs: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, int], tuple[int, ...]]:
    """The parameters' arrays, what each symbol is, and the shape of run-time tensors."""
    known = [p.name for p in function.parameters]
    for name in inputs:
        if name not in known:
            raise DmlcError(unknown_name("input", name, known))
    tensors: dict[str, Array] = {}
    symbols: dict[str, int] = {}
    shape: tuple[int, ...] = ()
    first: Parameter | None = None
    for parameter in function.parameters:
        if parameter.name not in inputs:
            raise DmlcError(f"input '{parameter.name}' is missing")
        array = np.asarray(inputs[parameter.name])
        if data_type_of(array.dtype) is not parameter.dtype:
            raise DmlcError(
                f"input '{parameter.name}' must be {parameter.dtype.name}, not {array.dtype}"
            )
        if any(isinstance(e, str) for e in parameter.extents):
            if first is None:
                first, shape = parameter, array.shape
                symbols.update({e: array.size for e in parameter.extents if isinstance(e, str)})
            elif array.shape != shape:
                raise DmlcError(
                    f"'{first.name}' and '{parameter.name}' must have the same sizes, "
                    f"not {list(shape)} and {list(array.shape)}"
                )
            array = array.reshape(-1)
        elif array.shape != parameter.extents:
            raise DmlcError(
                f"input '{parameter.name}' must have sizes {list(parameter.extents)}, "
                f"not {list(array.shape)}"
            )
        tensors[parameter.name] = array
    return tensors, symbols, shape


def widen(values: Array) -> Array:
    """Values as they are computed with here: floats in float64, the rest as they are."""
    found = data_type_of(values.dtype)
    return values.astype(np.float64) if found is not None and found.is_float else values


def round_to(values: Array, dtype: DataType) -> Array:
    """Values as a tensor of that type stores them, rounded once."""
    if dtype is DataType.BFLOAT16:
        return _round_to_odd(values).astype(dtype.dtype)
    return values.astype(dtype.dtype)


def _round_to_odd(values: Array) -> Array:
    """float64 to float32, inexact values to the neighbour with an odd last bit.

    A second rounding to a type of 22 bits or fewer then gives what one rounding would have.
    """
    near = values.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = (near.astype(np.float64) != values) & np.isfinite(values) & np.isfinite(near)
    toward_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(values), bits - 1, bits)
    return np.where(inexact, toward_zero | 1, bits).astype(np.uint32).view(np.float32)


# Stages ------------------------------------------------------------------------------------


def _size(extent: Extent, symbols: Mapping[str, int]) -> int:
    return extent if isinstance(extent, int) else symbols[extent]


def _evaluate_stage(
    stage: Stage, tensors: Mapping[str, Array], symbols: Mapping[str, int]
) -> Array:
    domain = tuple(_size(e, symbols) for e in stage.domain)
    axes: dict[Index, Array] = {
        Index(a): np.arange(n, dtype=np.int64).reshape((-1,) + (1,) * (len(domain) - 1 - a))
        for a, n in enumerate(domain)
    }
    if stage.reduction is None:
        values, _ = _evaluate_body(stage.body, axes, tensors)
        return np.broadcast_to(values, domain)
    return _reduce(stage, domain, axes, tensors, symbols)


def _reduce(
    stage: Stage,
    domain: tuple[int, ...],
    axes: dict[Index, Array],
    tensors: Mapping[str, Array],
    symbols: Mapping[str, int],
) -> Array:
    """Folds block by block, in the order of the reduction's axes, last fastest."""
    reduction = stage.reduction
    if reduction is None:
        raise ValueError("the stage has no reduction")
    extents = [_size(e, symbols) for _, e in reduction.axes]
    dtype = stage.body.dtype
    positional = reduction.combiner in ("argmin", "argmax")
    number = np.float64 if dtype.is_float else dtype.dtype
    identity = 0 if positional else combiner_identity(reduction.combiner, dtype)
    total: Array = np.full(domain, identity, number)
    best: Array | None = None
    where = np.zeros(domain, np.int64)
    outer = {index: positions[..., None] for index, positions in axes.items()}
    for start, points in _blocks(extents, max(1, _BLOCK // max(1, math.prod(domain)))):
        inner = {Index(label, True): points[axis] for axis, (label, _) in enumerate(reduction.axes)}
        values, guard = _evaluate_body(stage.body, {**outer, **inner}, tensors)
        count = len(points[0]) if points else 1
        values = np.broadcast_to(values, (*domain, count))
        if guard is not None and not positional:
            values = np.where(guard, values, np.asarray(identity, number))
        if not positional:
            total = _fold(reduction.combiner, total, values.astype(number))
            continue
        if guard is not None:
            guard = np.broadcast_to(guard, values.shape)
        for k in range(count):
            better = _is_better(reduction.combiner, values[..., k], best)
            if guard is not None:
                better = better & guard[..., k]
            best = values[..., k].copy() if best is None else np.where(better, values[..., k], best)
            where = np.where(better, start + k, where)
    return where if positional else total


def _is_better(combiner: str, values: Array, best: Array | None) -> Array:
    """Where new values beat the best so far; the first of equals wins, and NaN beats numbers."""
    if best is None:
        return np.ones(values.shape, np.bool_)
    beats = values < best if combiner == "argmin" else values > best
    if values.dtype.kind == "f":
        beats = beats | (np.isnan(values) & ~np.isnan(best))
    return np.asarray(beats)


def _fold(combiner: str, total: Array, values: Array) -> Array:
    match combiner:
        case "sum":
            return total + values.sum(axis=-1, dtype=total.dtype)
        case "product":
            return total * values.prod(axis=-1, dtype=total.dtype)
        case _:
            evaluate_pair = COMBINERS[combiner].evaluate
            for k in range(values.shape[-1]):
                total = evaluate_pair(total, values[..., k])
            return total


def _blocks(extents: list[int], size: int) -> Iterator[tuple[int, list[Array]]]:
    """Runs of points of a box, as one array of positions per axis, with the first one's number."""
    count = math.prod(extents)
    for start in range(0, count, size):
        numbers = np.arange(start, min(start + size, count), dtype=np.int64)
        points: list[Array] = []
        step = 1
        for extent in reversed(extents):
            points.append(numbers // step % extent)
            step *= extent
        yield start, list(reversed(points))


# Bodies ------------------------------------------------------------------------------------


def _evaluate_body(
    body: Body, axes: Mapping[Index, Array], tensors: Mapping[str, Array]
) -> tuple[Array, Array | None]:
    values: list[Any] = []
    for instruction in body.instructions:
        match instruction:
            case Constant():
                number = np.float64 if instruction.dtype.is_float else instruction.dtype.dtype
                values.append(np.asarray(instruction.value, number))
            case Index():
                values.append(axes[instruction])
            case Load():
                tensor = tensors[instruction.tensor]
                positions = tuple(values[i] for i in instruction.indices)
                values.append(_load(tensor, positions))
            case Apply():
                given = [values[o] for o in instruction.operands]
                given = list(np.broadcast_arrays(*given)) if len(given) > 1 else given
                values.append(np.asarray(instruction.operation.evaluate(*given)))
            case Select():
                parts = (instruction.condition, instruction.then, instruction.otherwise)
                values.append(np.where(*(values[p] for p in parts)))
            case Cast():
                values.append(_cast(values[instruction.operand], instruction.dtype))
    return values[body.result], None if body.guard is None else values[body.guard]


def _load(tensor: Array, positions: tuple[Array, ...]) -> Array:
    if not positions:
        return widen(tensor)
    shape = np.broadcast_shapes(*(p.shape for p in positions))
    if 0 in tensor.shape or 0 in shape:
        return widen(np.zeros(shape, tensor.dtype))
    return widen(np.asarray(tensor[positions]))


def _cast(values: Array, dtype: DataType) -> Array:
    if dtype is DataType.FLOAT32:
        return convert(values, dtype).astype(np.float64)
    return convert(values, dtype)
