"""Makes buffers and shared arrays of vectors, where what is read and put there is of vectors.

Compilers see of a buffer of vectors that one is moved at once. What lies in shared memory is read
in vectors where these begin at multiples of their lanes; where it is not, they are put there lane
by lane.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index
from dmlc.kernel.rewrite import find_body, replace_body, walk_parts, walk_statements
from dmlc.kernel.sums import Sum, add_up, find_rest, note
from dmlc.kernel.target import Limits


def hold_buffers(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """The same kernel, whose buffers are made of vectors where some of what it reads or stores is
    one. Where vectors may lie anywhere, a buffer is made of them only if all have as many lanes,
    and each begins at a multiple of these."""
    lanes = limits.whole_lanes
    if lanes < 2:
        return kernel
    wide, uneven, sums = dict[str, int](), set[str](), dict[str, Sum]()

    def widen(buffer: str, place: k.Expression, own: int) -> None:
        if own == 1:
            return
        whole = max(lanes, own)
        if limits.vector_lanes == 0 and (
            own != wide.get(buffer, whole) or find_rest(add_up(place, sums), own, sums) != 0
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
    """The same kernel, whose shared arrays are made of vectors where all that is read of one is
    one, which begins where those do, and all that is put there is of one."""
    lanes = limits.vector_lanes
    if lanes < 2:
        return kernel
    narrow, read, parted, uneven = set[str](), set[str](), set[str](), set[str]()
    matrices, sums = {m.name: m for m in kernel.matrices}, dict[str, Sum]()
    for statement in walk_statements(kernel.body):
        note(statement, sums)
        if isinstance(statement, k.StoreLocal) and statement.value.type.lanes == 1:
            # The lanes of a vector may lie in several vectors.
            of_vector = isinstance(statement.value, k.Extract)
            (parted if of_vector else narrow).add(statement.array)
        if isinstance(statement, k.LoadMatrix | k.StoreMatrix):
            # Its rows begin where vectors do, unless these are longer.
            is_even = matrices[statement.matrix].align(statement) % lanes == 0
            (read if is_even else narrow).add(statement.array)
        for part in walk_parts(statement):
            if isinstance(part, k.LoadLocal):
                (narrow if part.type.lanes == 1 else read).add(part.array)
                if find_rest(add_up(part.index, sums), lanes, sums) != 0:
                    uneven.add(part.array)
    wide = read - narrow - (parted & uneven)
    arrays = tuple(
        dataclasses.replace(a, lanes=lanes) if a.shared and a.name in wide else a
        for a in kernel.arrays
    )
    return dataclasses.replace(kernel, arrays=arrays)


def part_vectors(kernel: k.Kernel, limits: Limits) -> k.Kernel:
    """The same kernel, where the lanes of a vector are put one by one into an array that is not
    made of vectors. As it is, where vectors may lie anywhere."""
    if limits.vector_lanes == 0:
        return kernel
    whole = {array.name for array in kernel.arrays if array.lanes > 1}

    def write(statements: Sequence[k.Statement]) -> tuple[k.Statement, ...]:
        made: list[k.Statement] = []
        for statement in statements:
            body = find_body(statement)
            if body:
                statement = replace_body(statement, write(body))
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
