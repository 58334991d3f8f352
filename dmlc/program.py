"""A compiled program: everything a host needs to run it, as data.

A `Program` holds sources and how to launch them. Both runtimes, and programs that know nothing
of dmlc, work from it: the same content goes out as `manifest.json` (`Program.manifest`).
It knows no IR; nothing here depends on how the kernels were made.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeAlias

from dmlc.scalars import DataType

VERSION = "0.1.0"
"""The compiler's version, which generated files and manifests carry."""

MANIFEST_VERSION = 1

Extent: TypeAlias = int | str


class Role(enum.Enum):
    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"


@dataclasses.dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of the program. `extents` are sizes, or the one symbol of an element count: then
    any packed array with that many elements is meant, of any shape."""

    name: str
    role: Role
    dtype: DataType
    extents: tuple[Extent, ...]
    strides: tuple[int, ...] | None = None
    """In elements; None is packed, last axis fastest."""
    in_place: tuple[str, ...] = ()
    """Of an output: the inputs whose memory it may be stored over, element for element."""


@dataclasses.dataclass(frozen=True, slots=True)
class BufferBinding:
    """A buffer argument of a kernel, in the order of the kernel's arguments.

    OpenCL: argument number `slot`. HLSL: register `t<slot>` when read, `u<slot>` when written.
    """

    name: str
    """The name in the kernel's source."""
    tensor: str
    dtype: DataType
    written: bool
    read: bool
    slot: int


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarBinding:
    """A scalar argument. OpenCL: argument number `slot`. HLSL: at `offset` bytes of cbuffer b0."""

    name: str
    """The name in the kernel's source."""
    value: str | int
    """What it is: a symbol's name, or a number fixed at compile time."""
    bits: int
    """An unsigned integer of 32 or 64 bits."""
    slot: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Dispatch:
    """`groups = ceil(count / per_group)` groups of `group_size` work items along one dimension.

    Where a target limits one dimension (`row` groups; 65,535 in D3D12), more groups go out as
    `(row, ceil(groups / row), 1)`, and the kernel numbers them `y * row + x`.
    """

    count: int | str
    per_group: int
    group_size: int
    row: int | None = None

    def groups(self, sizes: dict[str, int]) -> tuple[int, int, int]:
        """The number of groups along x, y and z, with symbols bound by `sizes`."""
        count = self.count if isinstance(self.count, int) else sizes[self.count]
        total = -(-count // self.per_group)
        if self.row is None or total <= self.row:
            return (total, 1, 1)
        return (self.row, -(-total // self.row), 1)


@dataclasses.dataclass(frozen=True, slots=True)
class KernelSource:
    """One kernel: its source text (a whole file), entry point, arguments and launch."""

    name: str
    """Unique in the program; a safe file stem."""
    entry_point: str
    source: str
    buffers: tuple[BufferBinding, ...]
    scalars: tuple[ScalarBinding, ...]
    dispatch: Dispatch
    after: tuple[int, ...] = ()
    """Numbers of earlier kernels whose stores this one reads: a barrier stands between."""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Kernels in execution order, and the tensors they work on."""

    name: str
    target: str
    """`opencl` or `hlsl`."""
    profile: str
    tensors: tuple[TensorSpec, ...]
    kernels: tuple[KernelSource, ...]
    max_count: int
    """The largest value a symbol may take (index width and chunking set it)."""

    def tensor(self, name: str) -> TensorSpec:
        return next(t for t in self.tensors if t.name == name)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(t for t in self.tensors if t.role is Role.INPUT)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(t for t in self.tensors if t.role is Role.OUTPUT)

    @property
    def symbols(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for tensor in self.tensors:
            found.update({e: None for e in tensor.extents if isinstance(e, str)})
        return tuple(found)
