"""Machine code of a listing: instructions in classes, and the loops around them.

Each assembler's module (`amd`, `nvidia`) parses its own text into `Instruction`s with their labels;
this module finds the loops, from backward branches, and the loads in flight at each wait.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence


class InstructionClass(enum.Enum):
    """Class of an instruction, as far as counts distinguish them."""

    LOAD = "load"
    """Load from a buffer by every lane."""
    UNIFORM_LOAD = "uniform load"
    """Load from a buffer once for all lanes of a wave."""
    STORE = "store"
    SHARED = "shared"
    """Access to memory shared by a group."""
    SPILL = "spill"
    """Access to private memory of a lane: spilled registers, or an array."""
    BARRIER = "barrier"
    WAIT = "wait"
    HINT = "hint"
    """Hint that the scheduler consumes without issuing it to a unit."""
    BRANCH = "branch"
    FMA = "fused multiply-add"
    OTHER = "other"


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """Line of machine code."""

    name: str
    kind: InstructionClass
    bytes: int = 0
    """Bytes that a lane loads or stores; for a uniform load, those of the wave."""
    target: str | None = None
    """Label that a branch jumps to."""
    left: int | None = None
    """Number of the latest loads that a wait leaves in flight, or None if it waits for none."""
    queued: bool = False
    """Whether waits count a store among the loads."""
    writes: tuple[str, ...] = ()
    """Registers that a load writes, for listings without waits: their first use is a wait."""
    reads: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True, eq=False)
class Stretch:
    """Loop, or the whole kernel: its own instructions, and the loops in it, in order."""

    numbers: list[int] = dataclasses.field(default_factory=list[int])
    """Indices of its instructions in the listing."""
    instructions: list[Instruction] = dataclasses.field(default_factory=list[Instruction])
    loops: list[Stretch] = dataclasses.field(default_factory=list["Stretch"])

    def walk(self) -> Iterator[Stretch]:
        yield self
        for loop in self.loops:
            yield from loop.walk()

    def count(self, kind: InstructionClass) -> int:
        return sum(i.kind is kind for i in self.instructions)

    def measure(self, kind: InstructionClass) -> int:
        """Bytes that instructions of a class move."""
        return sum(i.bytes for i in self.instructions if i.kind is kind)

    def split(self, first: int, stop: int) -> Stretch:
        """Moves its instructions in a range of the listing into a new stretch inside it."""
        made, kept = Stretch(), Stretch()
        for number, instruction in zip(self.numbers, self.instructions, strict=True):
            into = made if first <= number < stop else kept
            into.numbers.append(number)
            into.instructions.append(instruction)
        self.numbers, self.instructions = kept.numbers, kept.instructions
        self.loops.append(made)
        return made

    def find_flight(self) -> tuple[int, int]:
        """Largest numbers of bytes and of loads in flight of a thread."""
        most, loads = 0, 0
        pending: list[Instruction] = []
        for instruction in self.instructions:
            kind, used = instruction.kind, set(instruction.reads)
            for number, load in enumerate(pending if used else ()):
                if used & set(load.writes):
                    del pending[: number + 1]
                    break
            if kind is InstructionClass.LOAD or (
                kind is InstructionClass.STORE and instruction.queued
            ):
                pending.append(instruction)
            elif kind is InstructionClass.WAIT and instruction.left is not None:
                del pending[: max(0, len(pending) - instruction.left)]
            asked = [load.bytes for load in pending if load.kind is InstructionClass.LOAD]
            most, loads = max(most, sum(asked)), max(loads, len(asked))
        return most, loads


@dataclasses.dataclass(frozen=True, slots=True)
class Listing:
    """Machine code of a kernel."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    """Index of the instruction after each label."""

    def count_widths(self, kind: InstructionClass) -> dict[int, int]:
        """Number of instructions of a class by the bytes they move, ascending."""
        widths = sorted(i.bytes for i in self.instructions if i.kind is kind)
        return {width: widths.count(width) for width in dict.fromkeys(widths)}

    def list_skipped(self, stretch: Stretch) -> list[tuple[int, int]]:
        """Ranges of the listing that branches of a stretch jump over."""
        found: list[tuple[int, int]] = []
        for number, instruction in zip(stretch.numbers, stretch.instructions, strict=True):
            target = None if instruction.target is None else self.labels.get(instruction.target)
            if target is not None and target > number + 1:
                found.append((number + 1, target))
        return found

    def find_stretches(self) -> Stretch:
        """Kernel as nested loops: one for each label that a later branch jumps to."""
        ends: dict[int, int] = {}
        for number, instruction in enumerate(self.instructions):
            target = None if instruction.target is None else self.labels.get(instruction.target)
            # A jump to itself ends a listing, and is never executed.
            if target is not None and target < number:
                ends[target] = max(number, ends.get(target, -1))
        whole = Stretch()
        _fill(whole, self.instructions, 0, len(self.instructions), sorted(ends.items()))
        return whole


def _fill(
    into: Stretch,
    code: Sequence[Instruction],
    first: int,
    stop: int,
    loops: Sequence[tuple[int, int]],
) -> None:
    """Adds the instructions of a range to a stretch, those of loops in it to theirs."""
    at = first
    inner = list(loops)
    while inner:
        begin, end = inner.pop(0)
        if begin < at:
            continue
        into.numbers += range(at, begin)
        into.instructions += code[at:begin]
        made = Stretch()
        into.loops.append(made)
        within = [(b, e) for b, e in inner if b <= end]
        inner = [(b, e) for b, e in inner if b > end]
        last = min(max([end, *(e for _, e in within)]), stop - 1)
        _fill(made, code, begin, last + 1, within)
        at = last + 1
    into.numbers += range(at, stop)
    into.instructions += code[at:stop]
