"""Which layer each box of a picture is in, given the links between boxes: `layered` places them.

By the longest path; where the layers have a width to keep, some become several.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """What is to be placed: its size, and whether it stands above, or below, all others."""

    width: float
    height: float
    first: bool = False
    last: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """A link from one box to another, by number. `leave` and `arrive` say where it touches them,
    as distances from their middle; `arrive` is None where links are to be spread."""

    source: int
    target: int
    leave: float = 0.0
    arrive: float | None = None
    after: int | None = None
    """A box that the target stays below, as if the link came from there."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gaps:
    """The least distances: between neighbours in a layer, and between layers."""

    across: float
    down: float
    beside_links: float = 14.0
    """Across, where a link passes by."""
    limit: float | None = None
    """The width that a layer should have at most; boxes that one layer has no room for get
    several. Links that pass take room too: `Arrangement.width` says what came of it."""
    in_order: bool = False
    """Whether no box stands above one with a lower number, where there is a limit: but for those
    that only give, and those that only take, which stand next to the others."""


def rank_boxes(boxes: Sequence[Box], links: Sequence[Link], gaps: Gaps | None = None) -> list[int]:
    """The layer of each box: below all that it is linked from, as close to its neighbours as the
    longest path leaves it. Where `gaps` have a limit, layers keep to it as far as boxes do."""
    ranks = _rank_by_path(boxes, links)
    if gaps is None or gaps.limit is None:
        return ranks
    return _keep_limit(boxes, links, ranks, gaps)


def _rank_by_path(boxes: Sequence[Box], links: Sequence[Link]) -> list[int]:
    """The ranks of boxes in layers of any width."""
    below: list[list[int]] = [[] for _ in boxes]
    above: list[list[int]] = [[] for _ in boxes]
    for link in links:
        for source in (link.source,) if link.after is None else (link.source, link.after):
            below[source].append(link.target)
            above[link.target].append(source)
    order = _sort(above, below)
    floor = 1 if any(box.first for box in boxes) else 0
    ranks = [0 if box.first else floor for box in boxes]
    for number in order:
        for target in below[number]:
            ranks[target] = max(ranks[target], ranks[number] + 1)
    if any(box.last for box in boxes):
        inner = [r for r, box in zip(ranks, boxes, strict=True) if not box.last]
        lowest = max([*(r + 1 for r in inner), *ranks])
        ranks = [lowest if box.last else r for r, box in zip(ranks, boxes, strict=True)]
    for number in reversed(order):
        # A box with more links down than up is better off near the lower ones.
        free = not boxes[number].first and not boxes[number].last
        if free and len(below[number]) > len(above[number]):
            ranks[number] = min(ranks[t] for t in below[number]) - 1
    return _close_up(ranks)


def _close_up(ranks: Sequence[float]) -> list[int]:
    """The same ranks, counted from 0 without gaps."""
    used = {rank: place for place, rank in enumerate(sorted(dict.fromkeys(ranks)))}
    return [used[rank] for rank in ranks]


def _keep_limit(
    boxes: Sequence[Box], links: Sequence[Link], ranks: Sequence[int], gaps: Gaps
) -> list[int]:
    """Ranks with layers of at most a width. Boxes of one layer that are too wide together become
    several layers, which no link forbids. Boxes that only give stand above the first that they give
    to, and those that only take below the one that gives to them."""
    readers: list[list[int]] = [[] for _ in boxes]
    givers: list[list[int]] = [[] for _ in boxes]
    for link in links:
        readers[link.source].append(link.target)
        givers[link.target].append(link.source)
    giving = {n for n, box in enumerate(boxes) if readers[n] and not givers[n] and not box.first}
    ends = [n for n, box in enumerate(boxes) if len(givers[n]) == 1 and not box.last]
    taking = {n for n in ends if not readers[n] and givers[n][0] not in giving}
    held = [n for n in range(len(boxes)) if n not in giving and n not in taking]
    if gaps.in_order:
        ranks = _rank_in_order(boxes, held, givers)
    layers = _Layers(boxes, gaps)
    layers.place(held, ranks)
    for number in sorted(giving):
        layers.insert(number, min(layers.found[t] for t in readers[number]), -1)
    for number in sorted(taking):
        layers.insert(number, layers.found[givers[number][0]], 1)
    return _close_up(layers.found)


def _rank_in_order(
    boxes: Sequence[Box], numbers: Sequence[int], givers: Sequence[Sequence[int]]
) -> list[int]:
    """Ranks that never fall from one box to the next, but for those that are first or last."""
    ranks, latest = [0] * len(boxes), int(any(box.first for box in boxes))
    inner = [n for n in numbers if not boxes[n].first and not boxes[n].last]
    held = set(inner)
    missing = {n: held.intersection(givers[n]) for n in inner}
    readers: dict[int, list[int]] = {}
    for number, known in missing.items():
        for giver in known:
            readers.setdefault(giver, []).append(number)
    ready = [number for number in inner if not missing[number]]
    heapq.heapify(ready)
    while ready:
        # By number, but none before what it is given.
        number = heapq.heappop(ready)
        latest = max([latest, *(ranks[g] + 1 for g in givers[number] if g in missing)])
        ranks[number] = latest
        for reader in readers.get(number, ()):
            missing[reader].discard(number)
            if not missing[reader]:
                heapq.heappush(ready, reader)
    for number in numbers:
        if boxes[number].last:
            ranks[number] = latest + 1
    return ranks


class _Layers:
    """Layers being filled. Between those of whole numbers there are others where need be."""

    def __init__(self, boxes: Sequence[Box], gaps: Gaps) -> None:
        self._boxes, self._across = boxes, gaps.across
        self._limit = (gaps.limit or math.inf) + gaps.across
        self._used: dict[float, float] = {}
        self._rims: set[float] = set()
        self.found: list[float] = [0.0] * len(boxes)

    def place(self, numbers: Sequence[int], ranks: Sequence[int]) -> None:
        """Boxes in layers by their ranks: several layers of a rank with too many."""
        layer, last = -1, None
        for number in sorted(numbers, key=lambda n: ranks[n]):
            if ranks[number] != last or not self._fits(number, layer):
                layer += 1
            last = ranks[number]
            self._add(number, layer)
            if self._boxes[number].first or self._boxes[number].last:
                self._rims.add(layer)

    def insert(self, number: int, beside: float, way: int) -> None:
        """A box next to the layer `beside`, above it where `way` is -1 and below it where that is
        1: in a layer that is there, or else in one of its own between the layers."""
        nearest = beside + way / 2
        there = [at for at in (nearest, beside + way) if at in self._used]
        between = (beside + way / n for n in itertools.count(2))
        free = (at for at in itertools.chain(there, between) if at not in self._rims)
        self._add(number, next(at for at in free if self._fits(number, at)))

    def _fits(self, number: int, layer: float) -> bool:
        if layer not in self._used:
            return True
        return self._used[layer] + self._boxes[number].width + self._across <= self._limit

    def _add(self, number: int, layer: float) -> None:
        self.found[number] = layer
        width = self._boxes[number].width + self._across
        self._used[layer] = self._used.get(layer, 0.0) + width


def measure_links(
    boxes: Sequence[Box], links: Sequence[Link], gaps: Gaps | None = None
) -> list[int]:
    """How many layers each link passes, and the one it ends in."""
    ranks = rank_boxes(boxes, links, gaps)
    return [ranks[link.target] - ranks[link.source] for link in links]


def _sort(above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> list[int]:
    """The boxes so that links lead forward."""
    missing = [len(sources) for sources in above]
    ready = [number for number, count in enumerate(missing) if count == 0]
    for number in ready:
        for target in below[number]:
            missing[target] -= 1
            if missing[target] == 0:
                ready.append(target)
    if len(ready) != len(above):
        raise ValueError("links in a cycle cannot be layered")
    return ready
