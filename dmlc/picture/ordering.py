"""Order of the nodes within layers with few link crossings. Sweeps down and up sort each layer by
the mean position of its neighbours, then neighbours are exchanged as long as that helps; the best
order seen is kept. Deterministic."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

_SWEEPS = 16
_MOST_EXCHANGED = 60
"""Widest layer in which neighbours are exchanged one by one."""


class Ties:
    """Links between adjacent layers: neighbours of each node above and below, with the points where
    the link touches both, as fractions of their widths."""

    def __init__(self, count: int) -> None:
        self.up: list[list[tuple[int, float, float]]] = [[] for _ in range(count)]
        self.down: list[list[tuple[int, float, float]]] = [[] for _ in range(count)]

    def add(self, upper: int, lower: int, leave: float, arrive: float) -> None:
        self.up[lower].append((upper, arrive, leave))
        self.down[upper].append((lower, leave, arrive))


def order_layers(layers: Sequence[Sequence[int]], ties: Ties) -> list[list[int]]:
    """Layers in a good order: few crossings, and among equals the one closest to the order of the
    nodes' numbers."""
    start = _start(layers, ties)
    found = [_improve(order, ties) for order in (start, [layer[::-1] for layer in start])]
    best = min(range(len(found)), key=lambda n: (found[n][0], _disorder(found[n][1])))
    return found[best][1]


def _improve(current: list[list[int]], ties: Ties) -> tuple[int, list[list[int]]]:
    """Best order seen from this one on, and its crossings."""
    best, least = [list(layer) for layer in current], count_crossings(current, ties)
    stale = 0
    for sweep in range(_SWEEPS):
        if least == 0 or stale == 4:
            break
        _sweep(current, ties, downward=sweep % 2 == 0)
        _exchange(current, ties)
        found = count_crossings(current, ties)
        stale += 1
        if found < least:
            best, least, stale = [list(layer) for layer in current], found, 0
    return least, best


def _disorder(layers: Sequence[Sequence[int]]) -> int:
    """Number of neighbours in layers that are not in the order of their numbers, which a reader
    expects."""
    return sum(a > b for layer in layers for a, b in itertools.pairwise(layer))


def _start(layers: Sequence[Sequence[int]], ties: Ties) -> list[list[int]]:
    """Layers in the order of a depth-first search from the lowest nodes, so that the operands of
    one node are adjacent."""
    met: dict[int, None] = {}
    for layer in reversed(layers):
        for root in layer:
            pending = [root]
            while pending:
                node = pending.pop()
                if node not in met:
                    met[node] = None
                    pending.extend(upper for upper, _, _ in reversed(_by_touch(ties.up[node])))
    place = {node: at for at, node in enumerate(met)}
    return [sorted(layer, key=lambda node: place[node]) for layer in layers]


def _by_touch(ties: Sequence[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    return sorted(ties, key=lambda tie: tie[1])


def _sweep(layers: list[list[int]], ties: Ties, downward: bool) -> None:
    numbers = range(1, len(layers)) if downward else range(len(layers) - 2, -1, -1)
    for number in numbers:
        neighbour = layers[number - 1 if downward else number + 1]
        place = {node: at for at, node in enumerate(neighbour)}
        side = ties.up if downward else ties.down
        wish: dict[int, float] = {}
        for at, node in enumerate(layers[number]):
            wishes = [place[other] + touch for other, _, touch in side[node]]
            wish[node] = math.fsum(wishes) / len(wishes) if wishes else float(at)
        layers[number].sort(key=lambda node: wish[node])


def _exchange(layers: list[list[int]], ties: Ties) -> None:
    """Exchanges neighbours if that removes crossings."""
    for number, layer in enumerate(layers):
        if len(layer) > _MOST_EXCHANGED:
            continue
        sides: list[tuple[Sequence[Sequence[tuple[int, float, float]]], dict[int, int]]] = []
        if number > 0:
            sides.append((ties.up, {n: at for at, n in enumerate(layers[number - 1])}))
        if number + 1 < len(layers):
            sides.append((ties.down, {n: at for at, n in enumerate(layers[number + 1])}))
        moved = True
        rounds = 0
        while moved and rounds < 4:
            moved = False
            rounds += 1
            for at in range(len(layer) - 1):
                left, right = layer[at], layer[at + 1]
                kept = turned = 0
                for side, place in sides:
                    ends = [sorted(place[o] + t for o, _, t in side[n]) for n in (left, right)]
                    kept += _count_inversions(*ends)
                    turned += _count_inversions(ends[1], ends[0])
                if turned < kept:
                    layer[at], layer[at + 1] = right, left
                    moved = True


def _count_inversions(left: Sequence[float], right: Sequence[float]) -> int:
    """Number of links of a node that cross those of its right neighbour, by their sorted ends."""
    return sum(bisect.bisect_left(right, end) for end in left)


def count_crossings(layers: Sequence[Sequence[int]], ties: Ties) -> int:
    """Number of pairs of links that cross."""
    crossings = 0
    for number, layer in enumerate(layers[:-1]):
        place = {node: at for at, node in enumerate(layers[number + 1])}
        seen: list[float] = []
        links = sorted(
            (at + touch, place[other] + end)
            for at, node in enumerate(layer)
            for other, touch, end in ties.down[node]
        )
        for _, end in links:
            crossings += len(seen) - bisect.bisect_right(seen, end)
            bisect.insort(seen, end)
    return crossings
