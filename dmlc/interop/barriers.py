"""Which barriers a Direct3D 12 host records between the kernels of a program.

A buffer is in one state as a whole. A shader resource view (`t`) reads it in one state, an
unordered access view (`u`) reads and stores it in another. A buffer that one kernel stores and
another one reads goes from state to state, and that transition waits. Where a buffer stays in the
state for storing, a barrier of its own waits. What has to wait for what is the program's to know:
`KernelSource.after`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

from dmlc.program import KernelSource, Program, Repeat
from dmlc.source import InternalError


class Wait(enum.Enum):
    """A barrier on one buffer."""

    STORED_TO_READ = "stored_to_read"
    """From the state for storing to the one for reading."""
    READ_TO_STORED = "read_to_stored"
    STORED_AGAIN = "stored_again"
    """Kernels before are done with it before the next one begins; it stays in its state."""


@dataclasses.dataclass(frozen=True, slots=True)
class Barrier:
    """What is waited for on a buffer, by the tensor it is named after."""

    buffer: str
    wait: Wait


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, by its number, behind its barriers."""

    kernel: int
    barriers: tuple[Barrier, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """Kernels that run once for each step, behind the barriers before the first step. Their own
    barriers are the same in every step."""

    repeat: Repeat
    barriers: tuple[Barrier, ...]
    launches: tuple[Launch, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """All of a program, in order, and the barriers behind it. Before and after it, every buffer
    that it stores is in the state for storing, and all others are in the one for reading."""

    parts: tuple[Launch | Loop, ...]
    last: tuple[Barrier, ...]


def plan_barriers(program: Program) -> Schedule:
    """The kernels of a program with the barriers between them. Scratch tensors that share a buffer
    (`Program.scratch_homes`) share its state; kernels that are never dispatched are left out."""
    planner = _Planner(program)
    parts: list[Launch | Loop] = []
    number = 0
    while number < len(program.kernels):
        repeat = next((r for r in program.repeats if r.first == number), None)
        if repeat is None:
            parts += planner.launch(number, number)
            number += 1
        else:
            parts.append(planner.repeat(repeat))
            number = repeat.last + 1
    return Schedule(tuple(parts), planner.finish())


class _Planner:
    """The state of each buffer that the program stores, as its kernels run."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._homes = program.scratch_homes()
        uses = [self._list_uses(kernel) for kernel in program.kernels]
        self._stored = {b: True for use in uses for b, stored in use.items() if stored}
        """Whether each is in the state for storing."""
        self._users: dict[str, set[int]] = {b: set() for b in self._stored}
        """The kernels that had each in that state since the last barrier on it."""

    def _list_uses(self, kernel: KernelSource) -> Mapping[str, bool]:
        """The buffers that a kernel uses, and whether in the state for storing."""
        uses: dict[str, bool] = {}
        for binding in kernel.buffers:
            buffer = self._homes.get(binding.tensor, binding.tensor)
            if uses.setdefault(buffer, binding.written) is not binding.written:
                raise InternalError(f"{kernel.name} reads and stores {buffer} in two views")
        return uses

    def launch(self, first: int, last: int) -> list[Launch]:
        """Kernels in a row."""
        made: list[Launch] = []
        for number in range(first, last + 1):
            kernel = self._program.kernels[number]
            if kernel.dispatch.count == 0:
                continue
            barriers = [
                Barrier(buffer, wait)
                for buffer, stored in self._list_uses(kernel).items()
                if buffer in self._stored
                and (wait := self._use(buffer, stored, number, set(kernel.after))) is not None
            ]
            made.append(Launch(number, tuple(barriers)))
        return made

    def _use(self, buffer: str, stored: bool, number: int, after: set[int]) -> Wait | None:
        """The barrier before a kernel uses a buffer."""
        was, users = self._stored[buffer], self._users[buffer]
        # A number that is not less than the kernel's own is one of the step before.
        waits = stored and any(n in after or n >= number for n in users)
        self._stored[buffer] = stored
        if was is not stored or waits:
            users.clear()
        if stored:
            users.add(number)
        if was is not stored:
            return Wait.READ_TO_STORED if stored else Wait.STORED_TO_READ
        return Wait.STORED_AGAIN if waits else None

    def repeat(self, repeat: Repeat) -> Loop:
        """A loop: each step begins in the states that the one before it left."""
        before = dict(self._stored)
        self.launch(repeat.first, repeat.last)
        moved = [b for b, stored in before.items() if self._stored[b] is not stored]
        barriers = [Barrier(b, _move(stored=self._stored[b])) for b in moved]
        launches = self.launch(repeat.first, repeat.last)
        return Loop(repeat, tuple(barriers), tuple(launches))

    def finish(self) -> tuple[Barrier, ...]:
        """What follows may use every buffer in the state for storing."""
        read = {b: not stored for b, stored in self._stored.items()}
        return tuple(
            Barrier(buffer, Wait.READ_TO_STORED if read[buffer] else Wait.STORED_AGAIN)
            for buffer in self._stored
            if read[buffer] or self._users[buffer]
        )


def _move(*, stored: bool) -> Wait:
    return Wait.READ_TO_STORED if stored else Wait.STORED_TO_READ
