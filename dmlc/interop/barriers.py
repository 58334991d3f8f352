"""Barriers that a Direct3D 12 host records between the kernels of a program.

A buffer is in one state as a whole: a shader resource view (`t`) reads it in one state, an
unordered access view (`u`) reads and stores it in another. A buffer that one kernel stores and
another reads changes its state, and that transition waits. A buffer that stays in the state for
storing needs a barrier of its own. The program says which kernels must wait for which:
`KernelSource.after`."""

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
    """Barrier on a buffer, which has the name of its tensor."""

    buffer: str
    wait: Wait


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """Kernel, by its number, after its barriers."""

    kernel: int
    barriers: tuple[Barrier, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Kernels in a row, or those of a loop. The barriers at the end of each step bring every buffer
    back to the state that it had before the loop."""

    repeat: Repeat | None
    launches: tuple[Launch, ...]
    last: tuple[Barrier, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """All launches of a program in order, and the barriers after them, which restore the state of
    each buffer's first use, so that the program can run again."""

    parts: tuple[Part, ...]
    last: tuple[Barrier, ...]
    stored: frozenset[str]
    """The buffers that are in the state for storing before and after the program. All others are in
    the one for reading: inputs, constants, and what the first step of a loop reads of no step."""


def plan_barriers(program: Program) -> Schedule:
    """Kernels of a program with the barriers between them. Scratch tensors that share a buffer
    (`Program.scratch_homes`) share its state; kernels that are never dispatched are left out."""
    planner = _Planner(program)
    parts = tuple(planner.plan_part(repeat, numbers) for repeat, numbers in program.parts())
    return Schedule(parts, planner.finish(), planner.first)


class _Planner:
    """State of each buffer that the program stores, while its kernels run."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._homes = program.scratch_homes()
        self._uses = [self._list_uses(kernel) for kernel in program.kernels]
        ran = [n for n, kernel in enumerate(program.kernels) if kernel.dispatch.count != 0]
        first: dict[str, bool] = {}
        for number in ran:
            first |= {b: s for b, s in self._uses[number].items() if b not in first}
        changed = {b for n in ran for b, stored in self._uses[n].items() if stored}
        self.first = frozenset(b for b, stored in first.items() if stored)
        self._stored = {b: stored for b, stored in first.items() if b in changed}
        """Whether each buffer that the program stores is in the state for storing."""
        self._users: dict[str, set[int]] = {b: set() for b in self._stored}
        """The kernels that had each in that state since the last barrier on it."""

    def _list_uses(self, kernel: KernelSource) -> Mapping[str, bool]:
        """Buffers of a kernel, each with whether the kernel needs it in the state for storing."""
        uses: dict[str, bool] = {}
        for binding in kernel.buffers:
            buffer = self._homes.get(binding.tensor, binding.tensor)
            if uses.setdefault(buffer, binding.written) is not binding.written:
                raise InternalError(f"{kernel.name} reads and stores {buffer} in two views")
        return uses

    def plan_part(self, repeat: Repeat | None, numbers: range) -> Part:
        """Kernels in a row. What the steps of a loop have in common is that each begins in the
        states before it."""
        before = dict(self._stored)
        launches = self._launch(numbers)
        if repeat is None:
            return Part(None, launches, ())
        used = {b for each in launches for b in self._uses[each.kernel]}
        last = self._finish({b: stored for b, stored in before.items() if b in used})
        return Part(repeat, launches, last)

    def _launch(self, numbers: range) -> tuple[Launch, ...]:
        made: list[Launch] = []
        for number in numbers:
            kernel = self._program.kernels[number]
            if kernel.dispatch.count == 0:
                continue
            barriers = [
                Barrier(buffer, wait)
                for buffer, stored in self._uses[number].items()
                if buffer in self._stored
                and (wait := self._use(buffer, stored, number, set(kernel.after))) is not None
            ]
            made.append(Launch(number, tuple(barriers)))
        return tuple(made)

    def _use(self, buffer: str, stored: bool, number: int, after: set[int]) -> Wait | None:
        """Barrier before a kernel uses a buffer; None if it needs none."""
        was, users = self._stored[buffer], self._users[buffer]
        waits = was is not stored or (stored and not users.isdisjoint(after))
        self._stored[buffer] = stored
        if waits:
            users.clear()
        if stored:
            users.add(number)
        if was is not stored:
            return Wait.READ_TO_STORED if stored else Wait.STORED_TO_READ
        return Wait.STORED_AGAIN if waits else None

    def finish(self) -> tuple[Barrier, ...]:
        """Barriers after the program."""
        return self._finish({b: b in self.first for b in self._stored})

    def _finish(self, wanted: Mapping[str, bool]) -> tuple[Barrier, ...]:
        """Barriers that bring buffers into the given states and end all uses of them."""
        made: list[Barrier] = []
        for buffer, stored in wanted.items():
            was, users = self._stored[buffer], self._users[buffer]
            if was is not stored:
                wait = Wait.READ_TO_STORED if stored else Wait.STORED_TO_READ
                made.append(Barrier(buffer, wait))
            elif users:
                made.append(Barrier(buffer, Wait.STORED_AGAIN))
            self._stored[buffer] = stored
            users.clear()
        return tuple(made)
