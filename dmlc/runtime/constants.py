"""Scalar arguments of a kernel as the bytes of its constant buffer."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from dmlc.program import KernelSource, constant_buffer_bytes
from dmlc.sizes import evaluate_size
from dmlc.source import UnsupportedError


def fill_constants(kernel: KernelSource, sizes: Mapping[str, int]) -> bytes:
    """Constant buffer of a kernel for the symbols in `sizes`; empty without scalars."""
    block = bytearray(constant_buffer_bytes(kernel.scalars))
    for scalar in kernel.scalars:
        value = evaluate_size(scalar.value, sizes)
        if value >> scalar.bits:
            raise UnsupportedError(
                f"{scalar.name} is {value:,}, and the kernel {kernel.name} takes it in "
                f"{scalar.bits} bits"
            )
        struct.pack_into("<Q" if scalar.bits == 64 else "<I", block, scalar.offset, value)
    return bytes(block)
