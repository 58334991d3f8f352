"""Compiled kernel, independent of the vendor."""

from __future__ import annotations

import dataclasses

from dmlc.inspection.listing import Listing


@dataclasses.dataclass(frozen=True, slots=True)
class MachineKernel:
    """Machine code of a kernel, with the compiler's statistics."""

    gpu: str
    isa: str = dataclasses.field(repr=False)
    listing: Listing = dataclasses.field(repr=False)
    registers: int
    """Number of 32-bit registers of each lane."""
    uniform_registers: int | None
    """Number of registers of a wave; None if the GPU has none, or they are not counted."""
    spilled_registers: int
    """Number of spilled registers."""
    scratch_bytes: int
    """Private memory of a lane in bytes, for spills and for arrays."""
    shared_bytes: int
    """Shared memory of a group in bytes."""
    waves: int | None
    """Number of waves of it that a SIMD unit can hold, as stated by the compiler."""
    wave: int
    """Number of lanes of a wave."""
