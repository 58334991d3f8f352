"""Instruction sets for CPU drivers: no AVX-512 where LLVM miscompiles it.

PoCL and lavapipe compile kernels with LLVM. Versions 13 (at least) to 22 give wrong bits when they
combine logic on three values, selected by a mask, into one instruction of AVX-512: two of the truth
tables for reordered operands are swapped (LLVM's issue 157929). `select(x == x, (y & ~sign) | (x &
sign), x)` is such logic, and so are parts of PoCL's own functions. Both drivers can be started
without AVX-512.

The choice is a function of facts, which `read_flags` and the drivers' modules collect. The
known-answer tests decide whether a driver is correct after all.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

LAST_WRONG_LLVM = 22
"""Last version known to be wrong. Versions 13, 14, 15, 16, 19 and 22 were tried."""

_CPUINFO = Path("/proc/cpuinfo")
_WRONG_WITH = "avx512f"
_INSTEAD = frozenset({"avx2", "fma", "f16c", "bmi2"})
"""Instruction sets of the drivers' other code path."""


@dataclasses.dataclass(frozen=True, slots=True)
class Override:
    """Environment variable that makes a driver avoid AVX-512."""

    variable: str
    value: str


POCL = Override("POCL_KERNELLIB_NAME", "avx2")
LAVAPIPE = Override("GALLIUM_OVERRIDE_CPU_CAPS", "avx")


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """Inputs of the choice."""

    flags: frozenset[str]
    """Processor features in Linux's names; empty if unknown."""
    llvm: int | None
    """Version of the driver's LLVM; None if it is unknown, or the driver has no such setting."""
    environment: Mapping[str, str]
    started: bool = False
    """Whether the driver was started in this process already."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Choice for a driver, with its reason."""

    variable: str
    value: str | None
    """Value of the variable while the driver starts; None to leave it unchanged."""
    note: str
    """Reason for lists of devices; empty if there was nothing to choose."""


def may_go_wrong(flags: frozenset[str]) -> bool:
    """Whether a processor has AVX-512, and the instruction sets used in its place."""
    return _WRONG_WITH in flags and flags >= _INSTEAD


def choose(override: Override, facts: Facts) -> Choice:
    """Decides whether a driver is started without AVX-512. The user's own setting takes
    precedence."""
    wrong = facts.llvm is not None and facts.llvm <= LAST_WRONG_LLVM
    if not (wrong and may_go_wrong(facts.flags)):
        return Choice(override.variable, None, "")
    fault = f"LLVM {facts.llvm} compiles wrongly"
    if override.variable in facts.environment:
        said = facts.environment[override.variable]
        mine = f"{override.variable}={said}, as you set it"
        note = f"with {mine}, where dmlc avoids AVX-512, which {fault}"
        if said == override.value:
            note = f"without AVX-512, which {fault}, as you set it"
        return Choice(override.variable, None, note)
    if facts.started:
        return Choice(override.variable, None, started_note(override))
    note = f"without AVX-512, which {fault} ({override.variable}={override.value})"
    return Choice(override.variable, override.value, note)


def started_note(override: Override) -> str:
    """Note on a driver that was started before the choice."""
    return (
        "with AVX-512, which its LLVM compiles wrongly: something else in this process started it "
        f"first (set {override.variable}={override.value} before that)"
    )


@functools.cache
def read_flags() -> frozenset[str]:
    """Features of this machine's processor; empty if Linux does not list them."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    return find_flags(text)


def find_flags(cpuinfo: str) -> frozenset[str]:
    """Flags of the first processor in the text of `/proc/cpuinfo`."""
    for line in cpuinfo.splitlines():
        name, colon, flags = line.partition(":")
        if colon and name.strip() == "flags":
            return frozenset(flags.split())
    return frozenset()
