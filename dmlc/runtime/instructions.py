"""Which instructions drivers for CPUs may use: no AVX-512 where their compiler gets it wrong.

PoCL and lavapipe compile kernels by LLVM. From version 13 (at least) to 22, LLVM computes other
bits than it is asked for where it turns logic on three values, chosen by a mask, into one
instruction of AVX-512: two of the truth tables for reordered operands are swapped (LLVM's issue
157929). `select(x == x, (y & ~sign) | (x & sign), x)` is such logic, and so are parts of PoCL's
own functions. Both drivers can be told, before they start, to do without AVX-512.

The choice is a function of facts; what the facts are, `read_flags` and the drivers' modules find
out. Whether a driver computes rightly after all is for the known-answer check to say.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

LAST_WRONG_LLVM = 22
"""The last version known to be wrong. Versions 13, 14, 15, 16, 19 and 22 were tried."""

_CPUINFO = Path("/proc/cpuinfo")
_WRONG_WITH = "avx512f"
_INSTEAD = frozenset({"avx2", "fma", "f16c", "bmi2"})
"""What the drivers' other path takes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Override:
    """How a driver is told to do without AVX-512."""

    variable: str
    value: str


POCL = Override("POCL_KERNELLIB_NAME", "avx2")
LAVAPIPE = Override("GALLIUM_OVERRIDE_CPU_CAPS", "avx")


@dataclasses.dataclass(frozen=True, slots=True)
class Facts:
    """What the choice depends on."""

    flags: frozenset[str]
    """What the processor can do, as Linux names it; empty where that is not known."""
    llvm: int | None
    """The version of LLVM that the driver compiles by; None where it is not known, or the driver
    cannot be told."""
    environment: Mapping[str, str]
    started: bool = False
    """Whether something else in this process has started the driver already."""


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What is done about a driver, and why."""

    variable: str
    value: str | None
    """What the variable is to hold while the driver starts; None to leave it as it is."""
    note: str
    """A few words for who lists devices; empty where there was nothing to choose."""


def may_go_wrong(flags: frozenset[str]) -> bool:
    """Whether a processor has AVX-512, and what is used in its place."""
    return _WRONG_WITH in flags and flags >= _INSTEAD


def choose(override: Override, facts: Facts) -> Choice:
    """Whether a driver is started without AVX-512. What the user has set stands."""
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
    """What is said of a driver that was started before there was a choice."""
    return (
        "with AVX-512, which its LLVM compiles wrongly: something else in this process started it "
        f"first (set {override.variable}={override.value} before that)"
    )


@functools.cache
def read_flags() -> frozenset[str]:
    """What this machine's processor can do; empty where Linux does not say."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    return find_flags(text)


def find_flags(cpuinfo: str) -> frozenset[str]:
    """The flags of the first processor that a `/proc/cpuinfo` lists."""
    for line in cpuinfo.splitlines():
        name, colon, flags = line.partition(":")
        if colon and name.strip() == "flags":
            return frozenset(flags.split())
    return frozenset()
