"""Addresses of tensor slices in kernels of one step of a loop.

Such a kernel is lowered as if each slice (`Row`) were a tensor. `place_rows` adds the offset of the
step's slice to accesses, and `name_memory` replaces each slice's buffer by that of its whole
tensor.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence

from dmlc.ir import OneStep, Row
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import (
    OPEN,
    add,
    index,
    multiply,
    name_sizes,
    operate,
    size,
    widen,
    zero_of,
)
from dmlc.kernel.cleanup import clean_up
from dmlc.kernel.names import Names, split_words
from dmlc.kernel.rewrite import map_all, map_operands, rename_memory
from dmlc.sizes import measure

STEP = "step"
"""Value of the kernel argument that is the step's number: see `program.STEP`."""


def step_number() -> k.Scalar:
    """Number of the step, as a scalar argument that is not named yet."""
    return k.Scalar(f"{OPEN}{STEP}")


def place_rows(
    statements: Sequence[k.Statement], one_step: OneStep, names: Names
) -> list[k.Statement]:
    """Statements that access slices at their offsets in the whole tensors."""
    starts: dict[Row, k.Local] = {}
    made: list[k.Statement] = []

    def move(buffer: str, place: k.Expression) -> k.Expression:
        row = one_step.rows.get(buffer)
        if row is None or row.size == 0:
            return place
        # Slices of equal size share the offset.
        key = Row("", row.size, row.before)
        if key not in starts:
            wanted = f"{split_words(row.whole)}_{'before' if row.before else 'now'}"
            starts[key] = k.Local(names.take(wanted), k.INDEX)
            made.append(k.Let(starts[key], multiply(_find_index(row, one_step), measure(row.size))))
        return add(starts[key], place)

    def change(expression: k.Expression) -> k.Expression:
        found = map_operands(expression, change)
        if isinstance(found, k.Load):
            return dataclasses.replace(found, index=move(found.buffer, found.index))
        return found

    def finish(found: k.Statement) -> k.Statement:
        if isinstance(found, k.Store | k.Prefetch):
            return dataclasses.replace(found, index=move(found.buffer, found.index))
        return found

    changed = map_all(statements, change, finish)
    return [*made, *changed]


def _find_index(row: Row, one_step: OneStep) -> k.Expression:
    """Index of a slice along the loop's axis. At the first step, the previous one wraps around to
    the last, whose elements are read but not used."""
    if not row.before:
        return step_number()
    steps = measure(one_step.steps)
    beside = 1 if one_step.backwards else steps - 1
    return operate("mod", add(step_number(), size(beside)), size(steps))


def guard_rows(kernel: k.Kernel, one_step: OneStep) -> k.Kernel:
    """Kernel that does not read the previous step's row if there is only one step, since it would
    then be the row that it stores; the kernel itself if there are known to be more steps."""
    if not isinstance(one_step.steps, str):
        return kernel
    known = {text: scalar for scalar, text in kernel.scalars}
    follows = operate("gt", known.get(one_step.steps, size(measure(one_step.steps))), index(1))

    def change(expression: k.Expression) -> k.Expression:
        found = map_operands(expression, change)
        row = one_step.rows.get(found.buffer) if isinstance(found, k.Load) else None
        if row is None or not row.before:
            return found
        nothing = widen(zero_of(found.type.dtype), found.type.lanes)
        return k.Select(follows, found, nothing, found.type)

    body = map_all(kernel.body, change)
    if all(map(operator.is_, body, kernel.body)):
        return kernel
    taken = (*(b.name for b in kernel.buffers), *(scalar.name for scalar in known.values()))
    named, added = name_sizes(body, Names(taken))
    scalars = (*kernel.scalars, *added)
    return clean_up(dataclasses.replace(kernel, scalars=scalars, body=tuple(named)))


def name_memory(kernel: k.Kernel, names: Mapping[str, str]) -> k.Kernel:
    """Kernel with renamed buffers; those with equal new names are merged."""
    # An array may have the name of a tensor that the kernel does not access.
    names = {b.name: names.get(b.name, b.name) for b in kernel.buffers}
    if all(old == new for old, new in names.items()):
        return kernel
    buffers: dict[str, k.Buffer] = {}
    for buffer in kernel.buffers:
        name = names[buffer.name]
        other = buffers.get(name)
        moved = dataclasses.replace(buffer, name=name)
        buffers[name] = moved if other is None else _join(other, moved)

    def change(expression: k.Expression) -> k.Expression:
        return rename_memory(map_operands(expression, change), names)

    body = map_all(kernel.body, change, lambda statement: rename_memory(statement, names))
    return dataclasses.replace(kernel, buffers=tuple(buffers.values()), body=body)


def _join(one: k.Buffer, other: k.Buffer) -> k.Buffer:
    """Union of two buffers of one tensor's memory."""
    access = one.access if one.access is other.access else k.Access.READ_WRITE
    touched = None if one.bytes is None or other.bytes is None else one.bytes + other.bytes
    lanes = max(one.lanes, other.lanes)
    return dataclasses.replace(one, access=access, bytes=touched, lanes=lanes)
