"""Machine code as a listing tells of it: instructions in classes, and the loops they stand in.

Each assembler's module (`amd`, `nvidia`) reads its own text into `Instruction`s with their labels;
the loops are found here, from jumps that go back, and what a thread has asked for at each wait.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence


class InstructionClass(enum.Enum):
    """What an instruction does, as far as counts tell it from others."""

    LOAD = "load"
    """Of a buffer, by every lane."""
    UNIFORM_LOAD = "uniform load"
    """Of a buffer, once for all lanes of a wave."""
    STORE = "store"
    SHARED = "shared"
    """Memory that a group shares."""
    SPILL = "spill"
    """Memory of a lane's own: registers that did not suffice, or an array."""
    BARRIER = "barrier"
    WAIT = "wait"
    HINT = "hint"
    """What hands instructions out takes it by the way, and no unit runs it."""
    BRANCH = "branch"
    OTHER = "other"


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One line of machine code."""

    name: str
    kind: InstructionClass
    bytes: int = 0
    """What a lane loads or stores; of a uniform load, what the wave does."""
    target: str | None = None
    """Of a branch: its label."""
    left: int | None = None
    """Of a wait: how many of the latest loads it leaves under way. None: it waits for none."""
    queued: bool = False
    """Of a store: whether waits count it among the loads."""
    writes: tuple[str, ...] = ()
    """Registers that a load fills, where its listing has no waits: the first use is one."""
    reads: tuple[str, ...] = ()


@dataclasses.dataclass(slots=True, eq=False)
class Stretch:
    """A loop, or the whole kernel: its own instructions, and the loops in it, in order."""

    numbers: list[int] = dataclasses.field(default_factory=list[int])
    """Where its instructions stand in the listing."""
    instructions: list[Instruction] = dataclasses.field(default_factory=list[Instruction])
    loops: list[Stretch] = dataclasses.field(default_factory=list["Stretch"])

    def walk(self) -> Iterator[Stretch]:
        yield self
        for loop in self.loops:
            yield from loop.walk()

    def count(self, kind: InstructionClass) -> int:
        return sum(i.kind is kind for i in self.instructions)

    def measure(self, kind: InstructionClass) -> int:
        """The bytes that instructions of a kind move."""
        return sum(i.bytes for i in self.instructions if i.kind is kind)

    def split(self, first: int, stop: int) -> Stretch:
        """Its instructions in a range of the listing, which it is then without, as a stretch in
        it."""
        made, kept = Stretch(), Stretch()
        for number, instruction in zip(self.numbers, self.instructions, strict=True):
            into = made if first <= number < stop else kept
            into.numbers.append(number)
            into.instructions.append(instruction)
        self.numbers, self.instructions = kept.numbers, kept.instructions
        self.loops.append(made)
        return made

    def find_flight(self) -> tuple[int, int]:
        """The most bytes, and the most loads, that a thread has asked for and not yet got."""
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
    """A kernel's machine code."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    """The number of the instruction that each label stands before."""

    def count_widths(self, kind: InstructionClass) -> dict[int, int]:
        """How many instructions of a kind move each number of bytes, ascending."""
        widths = sorted(i.bytes for i in self.instructions if i.kind is kind)
        return {width: widths.count(width) for width in dict.fromkeys(widths)}

    def list_skipped(self, stretch: Stretch) -> list[tuple[int, int]]:
        """The ranges of the listing that branches of a stretch jump over."""
        found: list[tuple[int, int]] = []
        for number, instruction in zip(stretch.numbers, stretch.instructions, strict=True):
            target = None if instruction.target is None else self.labels.get(instruction.target)
            if target is not None and target > number + 1:
                found.append((number + 1, target))
        return found

    def find_stretches(self) -> Stretch:
        """The kernel as nested loops: one for each label that a later branch jumps to."""
        ends: dict[int, int] = {}
        for number, instruction in enumerate(self.instructions):
            target = None if instruction.target is None else self.labels.get(instruction.target)
            # What jumps to itself ends a listing, and is never run.
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
    """Puts the instructions of a range into a stretch, those of loops in it into theirs."""
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
