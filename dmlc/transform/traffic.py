"""Counts the bytes that kernels of some stages read and write, tensor by tensor.

What counts is memory as a whole, each element once in every pass over it; what caches save is not
known here. Which elements of a tensor are read, `parts_read` says.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterable

from dmlc.ir import Function, Load, Parameter, Stage, Table
from dmlc.ir.index import IndexFacts, list_arrays
from dmlc.transform.parts_read import count_read


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """What a kernel reads and writes of one tensor, in bytes; None where a size is known at run
    time only."""

    tensor: str
    read: int | None = 0
    written: int | None = 0


def list_moves(
    function: Function, stages: Iterable[str], near: Container[str] = ()
) -> tuple[Move, ...]:
    """What one pass of these stages moves: every tensor that they read and do not compute, and
    then every stage itself, but for those `near`, which the kernel has at hand.

    An element that a stride of 0 repeats is counted once. Of a tensor that is read in part, the
    part counts, exactly where positions along each axis are index-only and no index drives two
    axes, as in slices, windows and strides; conditions that tie axes together are not looked at.
    Where that is not so, as where elements say what is read, the tensor counts as a whole.
    """
    tensors = function.tensors()
    tables = list_arrays(function.tables)
    own = dict.fromkeys(stages)
    read: dict[str, list[tuple[IndexFacts, Load]]] = {}
    for name in own:
        stage = tensors[name]
        if isinstance(stage, Stage):
            facts = IndexFacts(stage, tables)
            for load in stage.body.loads():
                if load.tensor not in own:
                    read.setdefault(load.tensor, []).append((facts, load))
    incoming = [Move(n, read=_count_bytes_read(tensors[n], loads)) for n, loads in read.items()]
    outgoing = [Move(n, written=count_bytes(tensors[n])) for n in own]
    return tuple(m for m in (*incoming, *outgoing) if m.tensor not in near)


def _count_bytes_read(
    tensor: Parameter | Table | Stage, reads: list[tuple[IndexFacts, Load]]
) -> int | None:
    """The bytes of the elements that some loads read, each once; None where a size is known at
    run time only."""
    sizes = [e for e in tensor.extents if isinstance(e, int)]
    if len(sizes) != len(tensor.extents):
        return None
    strides = tensor.strides if isinstance(tensor, Parameter) else None
    repeated = [stride == 0 for stride in strides or [1] * len(sizes)]
    return count_read(reads, sizes, repeated) * tensor.dtype.bytes


def add_moves(moves: Iterable[Move]) -> tuple[Move, ...]:
    """One move for each tensor, in the order they first come in."""
    added: dict[str, Move] = {}
    for move in moves:
        before = added.get(move.tensor, Move(move.tensor))
        added[move.tensor] = Move(
            move.tensor, _add(before.read, move.read), _add(before.written, move.written)
        )
    return tuple(added.values())


def total(moves: Iterable[Move]) -> tuple[int, int] | None:
    """The bytes read and written in all; None where one of them is unknown."""
    read: int | None = 0
    written: int | None = 0
    for move in moves:
        read, written = _add(read, move.read), _add(written, move.written)
    return None if read is None or written is None else (read, written)


def _add(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def count_bytes(tensor: Parameter | Table | Stage) -> int | None:
    """The bytes of a tensor's elements, each once; None where a size is known at run time only."""
    sizes = [e for e in tensor.extents if isinstance(e, int)]
    if len(sizes) != len(tensor.extents):
        return None
    if isinstance(tensor, Parameter) and tensor.strides is not None and 0 not in sizes:
        sizes = [n for n, stride in zip(sizes, tensor.strides, strict=True) if stride]
    return math.prod(sizes) * tensor.dtype.bytes
