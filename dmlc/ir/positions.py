"""Evaluates *index-only* values: what depends on positions and constants alone.

Such a value is known at compile time at every point of its stage. It is computed in its own type
operation by operation, in the order written, so that it comes out the same wherever it is used:
FLOAT32 rounds after each. The verifier proves reads inside with it, the reference computes with
it, and kernels take their tables from it.

It says nothing about values that depend on elements of tensors; `ranges` bounds positions without
evaluating them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dmlc.ir.nodes import (
    Apply,
    Body,
    Cast,
    Constant,
    Index,
    Instruction,
    Load,
    Select,
    Stage,
    operands,
    value_type,
)
from dmlc.ir.ranges import UNKNOWN, Interval
from dmlc.scalars import Array, convert
from dmlc.source import InternalError

MOST_POINTS = 1 << 22
"""The most points at which positions are evaluated to prove a read inside."""

EMPTY: Interval = (math.inf, -math.inf)
"""The reach of a position that no point takes."""


def find_index_only(body: Body, tables: Container[str] = ()) -> tuple[bool, ...]:
    """For each value of a body, whether it depends on positions and constants alone, and on what
    these find in `tables`."""
    found: list[bool] = []
    for instruction in body.instructions:
        loads = isinstance(instruction, Load) and instruction.tensor not in tables
        found.append(not loads and all(found[o] for o in operands(instruction)))
    return tuple(found)


def find_dependencies(body: Body) -> tuple[tuple[Index, ...], ...]:
    """For each value of a body, the indices it depends on: those of the domain, then those of the
    reduction, ascending."""
    found: list[tuple[Index, ...]] = []
    for instruction in body.instructions:
        if isinstance(instruction, Index):
            found.append((instruction,))
            continue
        given = [found[o] for o in operands(instruction) if found[o]]
        if all(g == given[0] for g in given[1:]):
            found.append(given[0] if given else ())
        else:
            found.append(order_indices(index for indices in given for index in indices))
    return tuple(found)


def order_indices(indices: Iterable[Index]) -> tuple[Index, ...]:
    """Indices, each once: those of the domain, then those of the reduction, ascending."""
    return tuple(sorted(dict.fromkeys(indices), key=lambda index: (index.reduced, index.axis)))


def list_conjuncts(body: Body) -> tuple[int, ...]:
    """The conditions that a body's guard joins by `and`, in the order written; none without a
    guard."""
    found: list[int] = []
    pending = [] if body.guard is None else [body.guard]
    while pending:
        value = pending.pop()
        instruction = body.instructions[value]
        if isinstance(instruction, Apply) and instruction.operation.name == "and":
            pending += reversed(instruction.operands)
        elif value not in found:
            found.append(value)
    return tuple(found)


def count_points(stage: Stage, indices: Sequence[Index]) -> float:
    """The number of points that indices run over together; infinite at a run-time extent."""
    extents = [stage.extent(index) for index in indices]
    return math.prod(e if isinstance(e, int) else math.inf for e in extents)


def evaluate_positions(
    stage: Stage,
    wanted: Sequence[int],
    over: Sequence[Index] | None = None,
    tables: Mapping[str, Array] = MappingProxyType({}),
) -> tuple[Array, ...]:
    """The values of index-only instructions wherever they differ. A table is read at the nearest
    of its places where a position leaves it.

    Each array has one axis for every index of `over`, in that order, and there the extent of that
    index, or 1 where the value does not depend on it. `over` has every index that one of them
    depends on, and is exactly those, in `order_indices`, if it is not given. Raises
    `InternalError` for a value that is not index-only, or an index of run-time extent.
    """
    body = stage.body
    reached = _reach_back(body, wanted)
    if over is None:
        over = order_indices(i for i in (body.instructions[v] for v in reached)
                             if isinstance(i, Index))  # fmt: skip
    axes: dict[Index, Array] = {}
    for axis, index in enumerate(over):
        extent = stage.extent(index)
        if not isinstance(extent, int):
            raise InternalError(f"%{stage.name}: {index.name} has no extent known here")
        shape = [1] * len(over)
        shape[axis] = extent
        axes[index] = np.arange(extent, dtype=np.int64).reshape(shape)
    made: dict[int, Array] = {}
    with np.errstate(all="ignore"):
        for value in reached:
            instruction = body.instructions[value]
            given = [made[o] for o in operands(instruction)]
            if isinstance(instruction, Load) and instruction.tensor in tables:
                table = tables[instruction.tensor]
                ends = zip(given, table.shape, strict=True)
                made[value] = table[tuple(np.clip(g, 0, n - 1) for g, n in ends)]
            else:
                made[value] = evaluate_instruction(instruction, given, axes, body)
    rank = len(over)
    return tuple(made[v].reshape((1,) * (rank - made[v].ndim) + made[v].shape) for v in wanted)


def _reach_back(body: Body, wanted: Sequence[int]) -> list[int]:
    """The values that others are computed from, and those, in order."""
    found: set[int] = set()
    pending = list(wanted)
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending += operands(body.instructions[value])
    return sorted(found)


def evaluate_instruction(
    instruction: Instruction, given: Sequence[Array], axes: Mapping[Index, Array], body: Body
) -> Array:
    """One index-only instruction of a body on the values of its operands, in its own type. `axes`
    are the positions along each index. Warnings of NumPy are the caller's to silence."""
    match instruction:
        case Constant():
            return np.asarray(instruction.value, instruction.dtype.dtype)
        case Index():
            return axes[instruction]
        case Apply():
            return _apply(instruction, given)
        case Select():
            return np.where(given[0], given[1], given[2])
        case Cast():
            if value_type(body.instructions[instruction.operand]) is instruction.dtype:
                return given[0]
            return np.asarray(convert(given[0], instruction.dtype))
        case Load():
            raise InternalError(f"an element of %{instruction.tensor} is no index-only value")


def _apply(instruction: Apply, given: Sequence[Array]) -> Array:
    operation = instruction.operation
    if not operation.transcendental:
        return np.asarray(operation.evaluate(*given))
    # Rounded once from float64: what NumPy gives in float32 depends on the machine.
    exact = [np.asarray(g, np.float64) for g in np.broadcast_arrays(*given)]
    return np.asarray(operation.evaluate(*exact)).astype(instruction.dtype.dtype)


# Reach -------------------------------------------------------------------------------------


def find_reach(stage: Stage, position: int, size: int) -> Interval:
    """The smallest and the largest value of an INDEX value where the stage's guard holds.

    It is exact where that matters: once the position is known to stay within `0` to `size - 1`,
    or if evaluating it takes more than `MOST_POINTS` points, fewer conditions of the guard are
    looked at, and the interval may be too wide. `UNKNOWN` for what depends on elements of tensors
    or on run-time extents; `EMPTY` where no point passes the guard.
    """
    body = stage.body
    index_only, dependencies = find_index_only(body), find_dependencies(body)
    if not index_only[position]:
        return UNKNOWN
    conditions = [c for c in list_conjuncts(body) if index_only[c]]
    over = dependencies[position]
    found = UNKNOWN
    while count_points(stage, over) <= MOST_POINTS:
        known = [c for c in conditions if set(dependencies[c]) <= set(over)]
        found = _evaluate_reach(stage, position, known, over)
        if found[0] >= 0 and found[1] < size:
            break
        wider = order_indices(
            (*over, *(i for c in conditions if set(dependencies[c]) & set(over)
                      for i in dependencies[c]))
        )  # fmt: skip
        if wider == over:
            # Conditions on other indices alone may let no point through.
            wider = order_indices((*over, *(i for c in conditions for i in dependencies[c])))
        if wider == over:
            break
        over = wider
    return found


def _evaluate_reach(
    stage: Stage, position: int, conditions: Sequence[int], over: Sequence[Index]
) -> Interval:
    values, *holds = evaluate_positions(stage, [position, *conditions], over)
    if conditions:
        passing: Array = np.asarray(True)
        for condition in holds:
            passing = passing & condition
        values, passing = np.broadcast_arrays(values, passing)
        values = values[passing]
    if values.size == 0:
        return EMPTY
    return int(values.min()), int(values.max())
