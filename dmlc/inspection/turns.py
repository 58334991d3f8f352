"""How often machine code runs: its loops told apart by those of the kernel they were made of.

A compiler keeps the order of loops, and unrolls some whose turns are few and known. So the loops of
the machine code are a part of the kernel's, in order: the part is chosen under which the bytes that
are loaded and stored, barriers and shared memory agree best. A loop that loads several times what
the kernel's own does is taken to do as many turns at once. Conditions count as met, but for those
that few waves meet: what they let through is found among what the branches of the machine code jump
over.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from dmlc.inspection.listing import InstructionClass, Listing, Stretch
from dmlc.kernel.counts import Body, Loop, Rarity

_MOST_UNROLLED = 64
"""Turns that a compiler unrolls unasked, at most."""
_MOST_PLANS = 512


@dataclasses.dataclass(frozen=True, slots=True)
class _Counts:
    """What tells one stretch of code from another."""

    loaded: float = 0
    """Bytes: compilers split vectors, and join what lies side by side."""
    stored: float = 0
    barriers: float = 0
    shared: float = 0

    def plus(self, other: _Counts, times: float) -> _Counts:
        return _Counts(
            self.loaded + other.loaded * times,
            self.stored + other.stored * times,
            self.barriers + other.barriers * times,
            self.shared + other.shared * times,
        )

    def distance(self, other: _Counts) -> float:
        """How far apart two are. Compilers drop some loads, but keep barriers."""
        return (
            _differ(self.loaded, other.loaded)
            + _differ(self.stored, other.stored)
            + 4 * _differ(self.barriers, other.barriers)
            + _differ(self.shared > 0, other.shared > 0)
        )


def _differ(a: float, b: float) -> float:
    return abs(a - b) / max(a, b) if a != b else 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Match:
    distance: float
    times: Mapping[Stretch, float]
    bodies: Mapping[Stretch, Body]


def weigh_stretches(body: Body, listing: Listing) -> tuple[Stretch, Mapping[Stretch, float] | None]:
    """The machine code with its loops and with what is rare apart, and how often a wave goes
    through each; None where its loops are not a part of the kernel's."""
    whole = listing.find_stretches()
    found = _match(body, whole, 1)
    if found is None:
        return whole, None
    times = dict(found.times)
    for stretch, own in found.bodies.items():
        for rarity in own.rarities:
            skipped = _find_rare(rarity, listing, stretch)
            if skipped is not None:
                times[stretch.split(*skipped)] = times[stretch] * rarity.often
    return whole, times


def _find_rare(rarity: Rarity, listing: Listing, stretch: Stretch) -> tuple[int, int] | None:
    """What is jumped over and most like something rare in what it loads and stores."""
    best: tuple[float, int, int] | None = None
    wanted = _Counts(rarity.loaded, rarity.stored)
    for first, stop in listing.list_skipped(stretch):
        here = [
            instruction
            for number, instruction in zip(stretch.numbers, stretch.instructions, strict=True)
            if first <= number < stop
        ]
        counts = _count_stretch(Stretch(instructions=here))
        found = (_Counts(counts.loaded, counts.stored).distance(wanted), first, stop)
        if bool(counts.stored) is bool(wanted.stored) and (best is None or found < best):
            best = found
    return None if best is None or best[0] > 1 else best[1:]


def _match(body: Body, stretch: Stretch, times: float) -> _Match | None:
    best: _Match | None = None
    plans = _list_plans(body.loops, len(stretch.loops))
    for kept, counts in itertools.islice(plans, _MOST_PLANS):
        if len(kept) < len(stretch.loops):
            continue
        ours, theirs = _count_body(body).plus(counts, 1), _count_stretch(stretch)
        together = _find_unrolling(ours, theirs)
        own = times / together
        distance = ours.plus(ours, together - 1).distance(theirs)
        found: dict[Stretch, float] = {stretch: own}
        bodies = {stretch: body}
        for loop, inner in zip(kept, stretch.loops, strict=True):
            match = _match(loop.body, inner, own * loop.turns)
            if match is None:
                break
            distance += match.distance
            found.update(match.times)
            bodies.update(match.bodies)
        else:
            if best is None or distance < best.distance:
                best = _Match(distance, found, bodies)
    return best


def _find_unrolling(ours: _Counts, theirs: _Counts) -> int:
    """The turns that one turn of the machine code does."""
    pairs = [(ours.loaded, theirs.loaded), (ours.stored, theirs.stored)]
    ratios = [round(there / here) for here, there in pairs if here and there]
    return max(1, min(ratios, default=1))


def _list_plans(loops: Sequence[Loop], most: int) -> Iterator[tuple[list[Loop], _Counts]]:
    """The ways to keep at most so many of some loops and of those in loops that are unrolled, each
    with what the unrolled ones bring."""
    if not loops:
        yield [], _Counts()
        return
    first, rest = loops[0], loops[1:]
    if most:
        for kept, counts in _list_plans(rest, most - 1):
            yield [first, *kept], counts
    copies = _count_copies(first)
    if copies is not None:
        own = _count_body(first.body)
        inner_most = most // copies if copies else most
        for inner, inner_counts in _list_plans(first.body.loops, inner_most):
            repeated = inner * copies
            for kept, counts in _list_plans(rest, most - len(repeated)):
                yield [*repeated, *kept], counts.plus(own, copies).plus(inner_counts, copies)


def _count_copies(loop: Loop) -> int | None:
    """How often a compiler writes the body of a loop that it unrolls; None where it cannot."""
    if loop.fixed is not None and (loop.unrolled or loop.fixed <= _MOST_UNROLLED):
        return loop.fixed
    return 1 if loop.turns <= 1 else None


def _count_body(body: Body) -> _Counts:
    stored = sum(a.bytes for a in body.accesses if a.written)
    loaded = sum(a.bytes for a in body.accesses if not a.written)
    return _Counts(loaded, stored, body.barriers, body.shared)


def _count_stretch(stretch: Stretch) -> _Counts:
    loaded = stretch.measure(InstructionClass.LOAD) + stretch.measure(InstructionClass.UNIFORM_LOAD)
    stored = stretch.measure(InstructionClass.STORE)
    return _Counts(
        loaded,
        stored,
        stretch.count(InstructionClass.BARRIER),
        stretch.count(InstructionClass.SHARED),
    )
