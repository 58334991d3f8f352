"""A kernel as a GPU's compiler made it: the same for every vendor."""

from __future__ import annotations

import dataclasses

from dmlc.inspection.listing import Listing


@dataclasses.dataclass(frozen=True, slots=True)
class MachineKernel:
    """Machine code, and what the compiler says of it."""

    gpu: str
    isa: str = dataclasses.field(repr=False)
    listing: Listing = dataclasses.field(repr=False)
    registers: int
    """Of 32 bits, that every lane has."""
    uniform_registers: int | None
    """Those that a wave shares; None where the GPU has none, or they are not counted."""
    spilled: int
    """Registers that did not suffice."""
    scratch_bytes: int
    """Memory of a lane's own, for them and for arrays."""
    shared_bytes: int
    """Memory that a group shares."""
    waves: int | None
    """Waves that a SIMD unit can hold of it, as the compiler says."""
    wave: int
    """Lanes of a wave."""
