"""Trip counts of machine code: its loops matched with those of the kernel they were compiled from.

A compiler keeps the order of loops, and unrolls some with few and known iterations. So the loops of
the machine code are a subsequence of the kernel's: the one is chosen for which the bytes loaded and
stored, barriers and shared memory agree best. A loop that loads several times the bytes of the
kernel's own is taken as unrolled by that factor. Conditions count as true, except those that few
waves satisfy: their code is identified among the ranges that branches of the machine code jump
over.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

from dmlc.inspection.listing import InstructionClass, Listing, Stretch
from dmlc.kernel.counts import Body, Loop, Rarity

_MOST_UNROLLED = 64
"""Largest trip count of a loop that a compiler unrolls unasked."""
_MOST_PLANS = 512


@dataclasses.dataclass(frozen=True, slots=True)
class _Counts:
    """Counts by which stretches of code are matched."""

    loaded: float = 0
    """Bytes, since compilers split vectors, and merge neighbouring accesses."""
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
        """Distance of two counts. Compilers drop some loads, but keep barriers."""
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
    """Machine code as loops, with rare code separated, and the number of executions of each by a
    wave; None if its loops are no subsequence of the kernel's."""
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
    """Range that is jumped over and most similar to some rare code in its loads and stores."""
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
    """Number of the kernel's iterations in one iteration of the machine code."""
    pairs = [(ours.loaded, theirs.loaded), (ours.stored, theirs.stored)]
    ratios = [round(there / here) for here, there in pairs if here and there]
    return max(1, min(ratios, default=1))


def _list_plans(loops: Sequence[Loop], most: int) -> Iterator[tuple[list[Loop], _Counts]]:
    """Choices of at most `most` loops to keep, among some loops and those inside unrolled ones,
    each with the counts of the unrolled ones."""
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
    """Number of copies of a loop's body when a compiler unrolls it; None if it cannot."""
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
