"""Tensors of a program as rows of host code: size and position of each buffer."""

from __future__ import annotations

import dataclasses

from dmlc.codegen.names import make_comment
from dmlc.interop.cpp_text import fill_lines, spell_array, wrap_text
from dmlc.interop.host_names import Names
from dmlc.program import Program, Role, TensorSpec
from dmlc.runtime.arrays import constant_array
from dmlc.sizes import is_multiple, multiply

_WORD = 4
"""The bytes of what buffers hold whole numbers of."""


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """Tensor as a row of a table. Texts are expressions of the host's language."""

    name: str
    title: str
    """The tensor's own name, fit for a text."""
    role: str
    data_type: str
    element_bytes: int
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    bytes: str
    alignment: int
    axes: tuple[int, ...]
    """For each axis the number of the symbol that its size is; -1 where the size is none alone."""
    spec: TensorSpec
    """The tensor that it is named after."""
    comment: tuple[str, ...]
    """Of scratch: the tensors that lie in its buffer, and when."""

    @property
    def values(self) -> list[str]:
        """The bytes of a constant in lines, as numbers with commas."""
        return fill_lines([str(byte) for byte in constant_array(self.spec).tobytes()])

    @property
    def elements(self) -> tuple[str, list[str]]:
        """The type in C++ of a constant's elements, and these in lines."""
        kind, words = spell_array(self.spec)
        return kind, fill_lines(words)


def list_slots(program: Program, names: Names) -> list[Slot]:
    """The rows of a program's buffers."""
    return [_describe_slot(program, program.tensor(name), names) for name in names.slots]


def _describe_slot(program: Program, tensor: TensorSpec, names: Names) -> Slot:
    alignment = _find_alignment(program, tensor.name, names)
    symbols = list(names.symbols)
    return Slot(
        name=names.slots[tensor.name],
        title=make_comment(tensor.name).replace('"', "_"),
        role=tensor.role.value,
        data_type=tensor.dtype.name,
        element_bytes=tensor.dtype.bytes,
        sizes=tuple(names.spell_size(e) for e in tensor.extents),
        strides=tuple(names.spell_size(s) for s in _spell_strides(tensor)),
        bytes=_spell_bytes(tensor, alignment, names),
        alignment=alignment,
        axes=tuple(symbols.index(e) if e in symbols else -1 for e in map(str, tensor.extents)),
        spec=tensor,
        comment=_describe_tenants(program, tensor.name, names)
        if tensor.role is Role.SCRATCH
        else (),
    )


def _find_alignment(program: Program, buffer: str, names: Names) -> int:
    """Bytes of the largest structure that a kernel sees in a buffer."""
    bindings = (b for kernel in program.kernels for b in kernel.buffers)
    return max([_WORD, *(b.structure_bytes for b in bindings if names.home(b.tensor) == buffer)])


def _spell_bytes(tensor: TensorSpec, alignment: int, names: Names) -> str:
    """Minimum size of a tensor's buffer: whole structures, and at least one."""
    if tensor.bytes is not None:
        return str(max(1, -(-tensor.bytes // alignment)) * alignment)
    size = multiply(tensor.extents) * tensor.dtype.bytes
    text = names.spell_size(size)
    return text if is_multiple(size, alignment) else names.spelling.round_up.format(text, alignment)


def _describe_tenants(program: Program, buffer: str, names: Names) -> tuple[str, ...]:
    told: list[str] = []
    for tensor in program.scratch:
        if names.home(tensor.name) == buffer and tensor.lifetime is not None:
            first, last = (program.kernels[number].name for number in tensor.lifetime)
            when = f"in {first}" if first == last else f"from {first} to {last}"
            told.append(f"{tensor.name} {when}")
    return wrap_text(f"Holds {', '.join(told)}.")


def _spell_strides(tensor: TensorSpec) -> list[str]:
    """Strides of a tensor in elements, as formulas of its symbols; of a packed tensor, the products
    of the later extents."""
    if tensor.strides is not None:
        return [str(stride) for stride in tensor.strides]
    strides: list[str] = []
    for axis in range(len(tensor.extents)):
        behind = tensor.extents[axis + 1 :]
        product = multiply(behind)
        factors = [str(e) if str(e).isalnum() else f"({e})" for e in behind if e != 1]
        strides.append(str(product) if isinstance(product, int) else " * ".join(factors))
    return strides
