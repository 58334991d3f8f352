"""Counts of a kernel's dynamic steps and memory accesses, as `steps` finds them.

A *body* is the content of a loop, or of the kernel outside all loops. Its loops keep their order,
so that they can be matched with the loops of compiled machine code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """A load or a store of a buffer in the kernel."""

    buffer: str
    bytes: int
    """Bytes that one work item moves at once."""
    elements: int
    """Elements that one work item moves at once."""
    written: bool
    count: float
    """Executions per work item, on average."""
    lines: float
    """Cache lines that a wave requests in all executions, on average."""
    stored: float = 0
    """Sectors that a wave stores to in all executions, on average. Each store goes through to the
    L2 cache at once, and is not merged with later ones."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rarity:
    """Memory accesses under a condition that few waves fulfil, such as those at the end of a
    tensor."""

    often: float
    """Fraction of the waves in the enclosing body that execute it."""
    loaded: int
    """Bytes loaded by one execution of each load."""
    stored: int


RARE = 1 / 16
"""Largest fraction of waves that counts as rare."""


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """Statements with their accesses and their loops in order; the content of conditionals is
    included."""

    accesses: tuple[Access, ...] = ()
    barriers: int = 0
    shared: int = 0
    """Accesses of arrays in shared memory."""
    loops: tuple[Loop, ...] = ()
    rarities: tuple[Rarity, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """A loop in a body."""

    turns: float
    """Iterations of a wave per execution of the enclosing body, on average: as many as the wave's
    last lane makes, or none if a condition excludes it."""
    fixed: int | None
    """Number of iterations, if it is a constant in the kernel."""
    unrolled: bool
    """Whether the output language is asked to unroll it."""
    body: Body


@dataclasses.dataclass(frozen=True, slots=True)
class Steps:
    """Work of one launch."""

    groups: int
    working: int
    """Groups that have work; others pad a row of groups."""
    group_size: int
    body: Body
    longest: float | None
    """Steps of the work item with the most; None if they depend on elements of tensors."""
    total: float | None
    """Steps of all work items together."""
    sector_bytes: float
    """Bytes that the L2 cache moves for loads and stores."""
    line_bytes: float
    """Bytes of the cache lines that L1 caches look up, each line once per access of a wave."""

    @property
    def threads(self) -> int:
        """Work items of groups that have work."""
        return self.working * self.group_size

    @property
    def loads(self) -> float:
        """Number of element loads by all work items."""
        return self.threads * sum(
            a.count * a.elements for a in list_accesses(self.body) if not a.written
        )


def list_accesses(body: Body) -> Iterator[Access]:
    """Loads and stores in a body and its loops."""
    pending = [body]
    while pending:
        body = pending.pop()
        yield from body.accesses
        pending += (loop.body for loop in body.loops)


def merge_bodies(bodies: Sequence[tuple[Body, float]]) -> Body:
    """Average of a body over iterations, each weighted by the fraction of lanes that execute it."""
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
    # Accesses that are rare in one iteration only are not rare.
    alike = {len(body.rarities) for body, _ in bodies} == {len(first.rarities)}
    return dataclasses.replace(
        first, accesses=accesses, loops=loops, rarities=first.rarities if alike else ()
    )
