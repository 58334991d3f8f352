"""Fusion of the kernels of one step of a loop over time into one kernel that runs all steps.

A launch takes as long as much arithmetic does. If a step does little, one work group executes the
groups of each kernel in turn, for all steps. Barriers between the kernels make buffer stores
visible to all items. The kernels' computations, and the order in which each item does them, are
unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from dmlc.ir import OneStep
from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import ZERO, add, guard, index, name_sizes, operate, size
from dmlc.kernel.cleanup import clean_up
from dmlc.kernel.names import Names
from dmlc.kernel.rewrite import (
    map_all,
    map_operands,
    rename_memory,
    walk_parts,
    walk_statements,
)
from dmlc.kernel.rows import STEP
from dmlc.kernel.target import Limits
from dmlc.scalars import DataType
from dmlc.sizes import divide_up, measure, show_count

_GROUP = "group"
"""Name of the loop variable over a kernel's groups."""


def join_steps(kernels: Sequence[k.Kernel], one_step: OneStep, limits: Limits) -> k.Kernel | None:
    """Kernel equivalent to launching the kernels of one step, for all steps. None if impossible:
    open sizes that choose between kernels, too many buffers or too much shared memory, indices of
    different widths, or barriers in a kernel whose group is smaller than another's."""
    group_size = max(kernel.launch.group_size for kernel in kernels)
    buffers = _join_buffers(kernels)
    names = Names(b.name for b in buffers or ())
    step = k.Local(names.take(STEP), k.INDEX)
    arrays: dict[k.Array, k.Array] = {}
    body: list[k.Statement] = []
    for kernel in kernels:
        mover = _Mover(kernel, step, names, arrays)
        if not mover.is_movable or (kernel.launch.group_size < group_size and _waits(kernel)):
            return None
        body += mover.write(group_size)
    shared = sum(a.size * a.lanes * max(4, a.dtype.bytes) for a in arrays.values() if a.shared)
    bits = {kernel.index_bits for kernel in kernels}
    signed = any(kernel.index_signed for kernel in kernels)
    if buffers is None or len(buffers) > limits.buffers or shared > limits.shared_bytes:
        return None
    if len(bits) > 1 or (signed and not all(map(_may_be_signed, kernels))):
        return None
    backwards = one_step.backwards
    steps = size(measure(one_step.steps))
    loop = k.For(step, ZERO, steps, 1, tuple(body), backwards=backwards, rolled=True)
    (loop,), scalars = name_sizes([loop], names)
    order = "from the last to the first" if backwards else "from the first to the last"
    joined = dataclasses.replace(
        kernels[-1],
        buffers=buffers,
        scalars=scalars,
        launch=k.Launch(1, 1, group_size),
        body=(loop,),
        summary=tuple(line for kernel in kernels for line in kernel.summary),
        walk=f"it goes through all {show_count(one_step.steps)} steps, {order}",
        arrays=tuple(arrays.values()),
        effort=max(kernel.effort for kernel in kernels),
        stages=tuple(name for kernel in kernels for name in kernel.stages),
        passes=tuple(names for kernel in kernels for names in kernel.passes),
        apart="",
        schedule=tuple(line for kernel in kernels for line in _show_loops(kernel)),
        script=(),
        cut=(),
        index_signed=signed,
        steps=one_step.steps,
    )
    return clean_up(joined)


def _join_buffers(kernels: Sequence[k.Kernel]) -> tuple[k.Buffer, ...] | None:
    """Buffers of all kernels; None if two of them access one in different vectors."""
    found: dict[str, k.Buffer] = {}
    for buffer in (buffer for kernel in kernels for buffer in kernel.buffers):
        other = found.setdefault(buffer.name, buffer)
        if 1 not in (other.lanes, buffer.lanes) and other.lanes != buffer.lanes:
            return None
        access = other.access if other.access is buffer.access else k.Access.READ_WRITE
        sizes = [b.bytes for b in (other, buffer) if b.bytes is not None]
        found[buffer.name] = dataclasses.replace(
            other,
            access=access,
            bytes=max(sizes) if sizes else None,
            lanes=max(other.lanes, buffer.lanes),
        )
    return tuple(found.values())


def _waits(kernel: k.Kernel) -> bool:
    """Whether a kernel has barriers."""
    return any(isinstance(s, k.Barrier) for s in walk_statements(kernel.body))


def _may_be_signed(kernel: k.Kernel) -> bool:
    """Whether signed indices of the same width can replace a kernel's: no literal exceeds them."""
    most = (1 << (kernel.index_bits - 1)) - 1
    literals = (p for p in walk_parts(*walk_statements(kernel.body)) if isinstance(p, k.Literal))
    return kernel.index_signed or all(
        p.value <= most for p in literals if p.type.dtype is DataType.INDEX
    )


def _show_loops(kernel: k.Kernel) -> Iterator[str]:
    """Schedule of one of several kernels, for readers."""
    yield f"{kernel.title}:"
    yield from (f"  {line}" for line in kernel.script or kernel.schedule)


class _Mover:
    """Rewriter of a kernel's launch into statements of one group."""

    def __init__(
        self, kernel: k.Kernel, step: k.Local, names: Names, arrays: dict[k.Array, k.Array]
    ) -> None:
        self._kernel = kernel
        launch = kernel.launch
        self.is_movable = "?" not in str(launch.count) and not kernel.matrices
        count = measure(launch.count) if self.is_movable else 0
        self._groups = divide_up(count, launch.per_group)
        self._group = ZERO if self._groups == 1 else k.Local(names.take(_GROUP), k.INDEX)
        self._values: dict[k.Expression, k.Expression] = {
            s: step if value == STEP else size(measure(value)) for s, value in kernel.scalars
        }
        self._values[k.Position(k.Geometry.GROUP)] = self._group
        self._renamed: dict[str, str] = {}
        for array in kernel.arrays:
            # Arrays are dead after their kernel, and the next one may reuse them.
            known = dataclasses.replace(array, name="")
            free = [a for key, a in arrays.items() if dataclasses.replace(key, name="") == known]
            free = [a for a in free if a.name not in self._renamed.values()]
            if not free:
                free = [dataclasses.replace(array, name=names.take(array.name))]
                arrays[free[0]] = free[0]
            self._renamed[array.name] = free[0].name

    def write(self, group_size: int) -> list[k.Statement]:
        """Statements for a group of `group_size` items, ending in a barrier."""
        kernel = self._kernel
        body = list(map_all(kernel.body, self._change, lambda s: rename_memory(s, self._renamed)))
        if kernel.launch.group_size < group_size:
            own = index(kernel.launch.group_size)
            body = guard([operate("lt", k.Position(k.Geometry.LANE), own)], body)
        if isinstance(self._group, k.Local):
            shares = any(array.shared for array in kernel.arrays)
            body += [k.Barrier()] * (shares and group_size > 1)
            body = [k.For(self._group, ZERO, size(self._groups), 1, tuple(body), rolled=True)]
        return [*body, *[k.Barrier(memory=True)] * (group_size > 1)]

    def _change(self, expression: k.Expression) -> k.Expression:
        if expression in self._values:
            return self._values[expression]
        made = map_operands(expression, self._change)
        match made:
            case k.Operate(operands=terms, type=k.INDEX) if made.operation.name == "add":
                return add(*terms)
            case _:
                return rename_memory(made, self._renamed)
