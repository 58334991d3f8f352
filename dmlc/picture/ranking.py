"""Which layer each box of a picture is in, given the links between boxes: `layered` places them.

By the longest path; where the layers have a width to keep, some become several.
"""

from __future__ import annotations

import dataclasses
import itertools
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


def rank_boxes(
    boxes: Sequence[Box], links: Sequence[Link], gaps: Gaps | None = None
) -> list[int]:
    """The layer of each box: below all that it is linked from, as close to its neighbours as the
    longest path leaves it. Where `gaps` have a limit, layers keep to it as far as boxes do."""
    ranks = _rank_by_path(boxes, links)
    if gaps is None or gaps.limit is None:
        return ranks
    return _keep_limit(boxes, links, ranks, gaps.across, gaps.limit)


def _rank_by_path(boxes: Sequence[Box], links: Sequence[Link]) -> list[int]:
    """The ranks of boxes in layers of any width."""
    below: list[list[int]] = [[] for _ in boxes]
    above: list[list[int]] = [[] for _ in boxes]
    for link in links:
        below[link.source].append(link.target)
        above[link.target].append(link.source)
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
    boxes: Sequence[Box],
    links: Sequence[Link],
    ranks: Sequence[int],
    across: float,
    limit: float,
) -> list[int]:
    """Ranks with layers of at most a width. Boxes of one layer that are too wide together become
    several layers, which no link forbids. Boxes that only give go above the first box they give
    to: into the layer there if it has room, else into layers of their own."""
    readers: list[list[int]] = [[] for _ in boxes]
    inward = [0] * len(boxes)
    for link in links:
        readers[link.source].append(link.target)
        inward[link.target] += 1
    giving = [n for n, box in enumerate(boxes) if readers[n] and not inward[n] and not box.first]
    # A box that only takes stands near what it is given by: it has the first of the new layers.
    order = sorted(set(range(len(boxes))) - set(giving), key=lambda n: (ranks[n], len(readers[n])))
    found: list[float] = [0.0] * len(boxes)
    used: dict[float, float] = {}
    last, open_rank = -1, -1
    for number in order:
        width = boxes[number].width + across
        if ranks[number] != last or used[open_rank] + width > limit + across:
            open_rank += 1
        last = ranks[number]
        found[number] = open_rank
        used[open_rank] = used.get(open_rank, 0.0) + width
    rim = {found[n] for n in order if boxes[n].first}
    for number in giving:
        width = boxes[number].width + across
        below = min(found[target] for target in readers[number])
        # The layer above; then layers between it and the box, each nearer than the one before.
        for layer in itertools.chain([below - 1], (below - 1 / n for n in itertools.count(2))):
            full = layer in used and used[layer] + width > limit + across
            if layer not in rim and not full:
                break
        found[number] = layer
        used[layer] = used.get(layer, 0.0) + width
    return _close_up(found)


def find_long(
    boxes: Sequence[Box], links: Sequence[Link], longest: int, gaps: Gaps | None = None
) -> list[int]:
    """The links, by number, that would pass more than `longest` layers."""
    ranks = rank_boxes(boxes, links, gaps)
    return [n for n, k in enumerate(links) if ranks[k.target] - ranks[k.source] > longest]


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
