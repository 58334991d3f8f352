"""What is counted of the work items of a kernel: `steps` counts it.

A *body* is what stands in a loop, or in the kernel around all loops. It keeps the order of its
loops, by which those of the machine code that a compiler makes of it can be told apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """A load or a store of a buffer, as the kernel writes it."""

    buffer: str
    bytes: int
    """What a work item reads or writes at once."""
    elements: int
    """The same in elements."""
    written: bool
    count: float
    """How often a work item does it, on average."""
    lines: float
    """Lines of memory that a wave asks for in all these, on average."""
    stored: float = 0
    """Sectors that a wave stores into in all these, on average: what it stores goes through to the
    cache of all units at once, and is not joined with what it stores next."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rarity:
    """What a condition lets few waves come to, such as those at the end of a tensor."""

    often: float
    """The part of the waves in the body around that come to it."""
    loaded: int
    """Bytes, as the code has them once."""
    stored: int


RARE = 1 / 16
"""Waves that come to what is rare: this part at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """Statements, the loops among them in order; what is in conditions belongs to it."""

    accesses: tuple[Access, ...] = ()
    barriers: int = 0
    shared: int = 0
    """Reads and writes of arrays that a group shares."""
    loops: tuple[Loop, ...] = ()
    rarities: tuple[Rarity, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """A loop in a body."""

    turns: float
    """Of a wave each time it is in the body around, on average: none where a condition keeps it
    out, else as many as its last lane does."""
    fixed: int | None
    """Its turns, where that is the same number in every work item, written in the kernel."""
    unrolled: bool
    """Whether the output language is asked to unroll it."""
    body: Body


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """What a launch does."""

    groups: int
    working: int
    """Those of them that have something to do: others fill up a row of groups."""
    group_size: int
    body: Body
    longest: float | None
    """The steps of the work item that does most; None where elements of tensors decide."""
    total: float | None
    """Those of all."""
    sector_bytes: float
    """What the cache of all groups moves for loads and stores."""
    line_bytes: float
    """What the caches of units look up for them: lines, each once for an access of a wave."""

    @property
    def threads(self) -> int:
        """The work items of groups that have something to do."""
        return self.working * self.group_size

    @property
    def loads(self) -> float:
        """Elements that all work items load, how often each."""
        return self.threads * sum(
            a.count * a.elements for a in list_accesses(self.body) if not a.written
        )


def list_accesses(body: Body) -> Iterator[Access]:
    """All loads and stores in a body, and in its loops."""
    pending = [body]
    while pending:
        body = pending.pop()
        yield from body.accesses
        pending += (loop.body for loop in body.loops)


def merge_bodies(bodies: Sequence[tuple[Body, float]]) -> Body:
    """What a body is in all turns together, each with the part of the lanes that take it."""
    first, *others = [body for body, _ in bodies]
    if not others:
        return first
    whole = sum(share for _, share in bodies)
    accesses = tuple(
        dataclasses.replace(
            first.accesses[n],
            count=sum(b.accesses[n].count for b, _ in bodies),
            lines=sum(b.accesses[n].lines for b, _ in bodies),
            stored=sum(b.accesses[n].stored for b, _ in bodies),
        )
        for n in range(len(first.accesses))
    )
    loops = tuple(
        dataclasses.replace(
            first.loops[n],
            turns=sum(s * b.loops[n].turns for b, s in bodies) / whole if whole else 0.0,
            body=merge_bodies([(b.loops[n].body, share) for b, share in bodies]),
        )
        for n in range(len(first.loops))
    )
    # What is rare in one turn may be common in another, and is then not rare.
    alike = {len(body.rarities) for body, _ in bodies} == {len(first.rarities)}
    return dataclasses.replace(
        first, accesses=accesses, loops=loops, rarities=first.rarities if alike else ()
    )
