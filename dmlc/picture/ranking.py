"""Layer of each box of a picture, from the links between boxes: by the longest path, with a layer
split into several if it exceeds the width. `layered` computes the positions."""

from __future__ import annotations

import dataclasses
import graphlib
import heapq
import itertools
import math
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """Box to be placed: its size, and whether it is above, or below, all others."""

    width: float
    height: float
    first: bool = False
    last: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """Link between two boxes, by number. `leave` and `arrive` are the offsets from their middles
    where it touches them; if `arrive` is None, links are spread."""

    source: int
    target: int
    leave: float = 0.0
    arrive: float | None = None
    after: int | None = None
    """Box that the target stays below, as if the link came from it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gaps:
    """Smallest distances: between neighbours in a layer, and between layers."""

    across: float
    down: float
    beside_links: float = 14.0
    """Horizontal gap at a passing link."""
    limit: float | None = None
    """Largest width of a layer; too many boxes get several layers. Passing links take room too: see
    `Arrangement.width`."""
    in_order: bool = False
    """Whether no box is above one with a lower number, if there is a limit, except sources and
    sinks, which are next to their neighbours."""


def rank_boxes(boxes: Sequence[Box], links: Sequence[Link], gaps: Gaps | None = None) -> list[int]:
    """Layer of each box: below all its predecessors, as close to its neighbours as the longest path
    permits. With a limit in `gaps`, layers keep it as far as boxes do."""
    ranks = _rank_by_path(boxes, links)
    if gaps is None or gaps.limit is None:
        return ranks
    return _keep_limit(boxes, links, ranks, gaps)


def _rank_by_path(boxes: Sequence[Box], links: Sequence[Link]) -> list[int]:
    """Ranks of boxes in layers of any width."""
    below: list[list[int]] = [[] for _ in boxes]
    above: list[list[int]] = [[] for _ in boxes]
    for link in links:
        for source in (link.source,) if link.after is None else (link.source, link.after):
            below[source].append(link.target)
            above[link.target].append(source)
    order = list(graphlib.TopologicalSorter(dict(enumerate(above))).static_order())
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
    """Ranks renumbered from 0 without gaps."""
    used = {rank: place for place, rank in enumerate(sorted(dict.fromkeys(ranks)))}
    return [used[rank] for rank in ranks]


def _keep_limit(
    boxes: Sequence[Box], links: Sequence[Link], ranks: Sequence[int], gaps: Gaps
) -> list[int]:
    """Ranks with layers of at most a width. Boxes of one layer that are too wide together are split
    into several layers, which no link forbids. Sources are above their first successor, and sinks
    below their predecessor."""
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
    """Nondecreasing ranks in the order of the boxes, except those that are first or last."""
    ranks, latest = [0] * len(boxes), int(any(box.first for box in boxes))
    inner = [n for n in numbers if not boxes[n].first and not boxes[n].last]
    held = set(inner)
    sorter = graphlib.TopologicalSorter({n: held.intersection(givers[n]) for n in inner})
    sorter.prepare()
    ready: list[int] = []
    while sorter.is_active():
        # By number, but after all predecessors.
        for number in sorter.get_ready():
            heapq.heappush(ready, number)
        number = heapq.heappop(ready)
        latest = max([latest, *(ranks[g] + 1 for g in givers[number] if g in held)])
        ranks[number] = latest
        sorter.done(number)
    for number in numbers:
        if boxes[number].last:
            ranks[number] = latest + 1
    return ranks


class _Layers:
    """Layers under construction. Others are inserted between those of whole numbers."""

    def __init__(self, boxes: Sequence[Box], gaps: Gaps) -> None:
        self._boxes, self._across = boxes, gaps.across
        self._limit = (gaps.limit or math.inf) + gaps.across
        self._used: dict[float, float] = {}
        self._rims: set[float] = set()
        self.found: list[float] = [0.0] * len(boxes)

    def place(self, numbers: Sequence[int], ranks: Sequence[int]) -> None:
        """Places boxes in layers by their ranks, in several layers if there are too many."""
        layer, last = -1, None
        for number in sorted(numbers, key=lambda n: ranks[n]):
            if ranks[number] != last or not self._fits(number, layer):
                layer += 1
            last = ranks[number]
            self._add(number, layer)
            if self._boxes[number].first or self._boxes[number].last:
                self._rims.add(layer)

    def insert(self, number: int, beside: float, way: int) -> None:
        """Places a box next to the layer `beside`, above it if `way` is -1 and below it if it is 1:
        in an existing layer, or in a new one between the layers."""
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
    """Number of layers that each link passes, including its last."""
    ranks = rank_boxes(boxes, links, gaps)
    return [ranks[link.target] - ranks[link.source] for link in links]
