"""Declaration of buffers and shared arrays as arrays of vectors, where accesses are vectors.

Compilers then see that a vector is moved at once. Shared arrays are read as vectors if these are
aligned; vectors that are not are stored lane by lane.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index
from dmlc.kernel.rewrite import map_body, walk_parts, walk_statements
from dmlc.kernel.sums import Sum, add_up, find_remainder, note
from dmlc.kernel.target import Limits


def hold_buffers(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """Kernel whose buffers have vector elements if some access is a vector. In a language with
    unaligned vectors, a buffer has them only if all accesses have as many lanes and are aligned."""
    lanes = limits.whole_lanes
    if lanes < 2:
        return kernel
    wide, uneven, sums = dict[str, int](), set[str](), dict[str, Sum]()

    def widen(buffer: str, place: k.Expression, own: int) -> None:
        if own == 1:
            return
        whole = max(lanes, own)
        if limits.vector_lanes == 0 and (
            own != wide.get(buffer, whole) or find_remainder(add_up(place, sums), own, sums) != 0
        ):
            uneven.add(buffer)
        wide[buffer] = whole

    for statement in walk_statements(kernel.body):
        note(statement, sums)
        if isinstance(statement, k.Store):
            widen(statement.buffer, statement.index, statement.value.type.lanes)
        for part in walk_parts(statement):
            if isinstance(part, k.Load):
                widen(part.buffer, part.index, part.type.lanes)
    made = wide.keys() - uneven
    buffers = tuple(
        dataclasses.replace(b, lanes=wide[b.name]) if b.name in made else b for b in kernel.buffers
    )
    return dataclasses.replace(kernel, buffers=buffers)


def hold_arrays(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """Kernel whose shared arrays have vector elements if every load is an aligned vector, and every
    store is a vector or one of its lanes. Elements that are stored one by one are such lanes."""
    lanes = limits.vector_lanes
    if lanes < 2:
        return kernel
    narrow, read, parted, uneven = set[str](), set[str](), set[str](), set[str]()
    matrices, sums = {m.name: m for m in kernel.matrices}, dict[str, Sum]()
    for statement in walk_statements(kernel.body):
        note(statement, sums)
        if isinstance(statement, k.StoreLocal) and statement.value.type.lanes == 1:
            # The lanes of a stored vector may belong to several elements.
            parted.add(statement.array)
        if isinstance(statement, k.LoadMatrix | k.StoreMatrix):
            # Its rows are aligned to vectors, unless these are longer.
            is_even = matrices[statement.matrix].align(statement) % lanes == 0
            (read if is_even else narrow).add(statement.array)
        for part in walk_parts(statement):
            if isinstance(part, k.LoadLocal):
                (narrow if part.type.lanes == 1 else read).add(part.array)
                if find_remainder(add_up(part.index, sums), lanes, sums) != 0:
                    uneven.add(part.array)
    wide = read - narrow - (parted & uneven)
    arrays = tuple(
        dataclasses.replace(a, lanes=lanes) if a.shared and a.name in wide else a
        for a in kernel.arrays
    )
    return dataclasses.replace(kernel, arrays=arrays)


def part_vectors(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """Kernel that stores vectors lane by lane to arrays of scalars. Unchanged for a language with
    unaligned vectors."""
    if limits.vector_lanes == 0:
        return kernel
    whole = {array.name for array in kernel.arrays if array.lanes > 1}

    def write(statements: Sequence[k.Statement]) -> tuple[k.Statement, ...]:
        made: list[k.Statement] = []
        for statement in statements:
            statement = map_body(statement, write)
            match statement:
                case k.StoreLocal(array=array, index=at, value=value) if (
                    array not in whole and value.type.lanes > 1
                ):
                    for lane in range(value.type.lanes):
                        part = k.Extract(value, (lane,), k.Type(value.type.dtype))
                        made.append(k.StoreLocal(array, add(at, index(lane)), part))
                case _:
                    made.append(statement)
        return tuple(made)

    return dataclasses.replace(kernel, body=write(kernel.body))
