"""Layered layout of boxes with links, top to bottom.

Ranks by longest path, dummy nodes where a link passes a layer, an order within layers with few
crossings (`ordering`), then positions: layer by layer those closest to the neighbours' wishes that
keep the gaps, by isotonic regression. A link runs straight down through its dummy in every layer,
and bends between layers only: it crosses no box.

After Sugiyama, Tagawa and Toda (1981), and for the positions the pool-adjacent-violators algorithm.
The contents of the boxes are unknown here.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from dmlc.picture.ordering import Ties, order_layers
from dmlc.picture.ranking import Box, Gaps, Link, rank_boxes

_SWEEPS = 24
_STEP_ASIDE = 10.0
_ROUNDING = 0.001
_STIFFNESS = (1.0, 3.0, 8.0)
"""Weight of the straightness of a link's segment, by the number of its ends that are dummies."""

_LEAF = 0.05
"""Part of this weight at a box with no other link."""


class Point(NamedTuple):
    """Point of a layout."""

    x: float
    y: float


@dataclasses.dataclass(frozen=True, slots=True)
class Arrangement:
    """Layout of boxes and links. The route of a link is straight between points of one x, and bends
    between others, with vertical tangents."""

    corners: tuple[Point, ...]
    """Top left corner of each box."""
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


def arrange(boxes: Sequence[Box], links: Sequence[Link], gaps: Gaps) -> Arrangement:
    """Layout of boxes; `links` must be acyclic. Deterministic; about linear in the total length of
    the links, in layers."""
    if not boxes:
        return Arrangement((), (), 0.0, 0.0)
    net = _Net(boxes, links, rank_boxes(boxes, links, gaps), gaps)
    net.place_across()
    return net.finish()


class _Net:
    """Boxes and dummies in layers. A node below `len(boxes)` is that box; others are dummies."""

    def __init__(
        self, boxes: Sequence[Box], links: Sequence[Link], ranks: Sequence[int], gaps: Gaps
    ) -> None:
        self.boxes, self.links, self.gaps = boxes, links, gaps
        self.ranks = list(ranks)
        self.widths = [box.width for box in boxes]
        self.chains: list[list[int]] = []
        for link in links:
            chain = [link.source]
            for rank in range(ranks[link.source] + 1, ranks[link.target]):
                chain.append(len(self.ranks))
                self.ranks.append(rank)
                self.widths.append(0.0)
            self.chains.append([*chain, link.target])
        layers: list[list[int]] = [[] for _ in range(max(self.ranks) + 1)]
        for number, rank in enumerate(self.ranks):
            layers[rank].append(number)
        self.layers = order_layers(layers, self._list_ties())
        self.arrivals = self._spread()
        self.leaving = [0] * len(boxes)
        for link in links:
            self.leaving[link.source] += 1
        self.x = [0.0] * len(self.ranks)

    def _list_ties(self) -> Ties:
        """Neighbours of each node above and below it, and the point where the link touches each: as
        a fraction of the width, from -0.5 to 0.5."""
        ties = Ties(len(self.ranks))
        for link, chain in zip(self.links, self.chains, strict=True):
            leave = self._share(link.source, link.leave)
            arrive = self._share(link.target, link.arrive or 0.0)
            last = len(chain) - 2
            for place, (upper, lower) in enumerate(itertools.pairwise(chain)):
                first, final = place == 0, place == last
                ties.add(upper, lower, leave if first else 0.0, arrive if final else 0.0)
        return ties

    def _share(self, number: int, distance: float) -> float:
        return distance / self.widths[number] if self.widths[number] else 0.0

    def _spread(self) -> list[float]:
        """Offset from the middle where each link touches its target: if not given, side by side in
        the order of their sources."""
        order = {number: at for layer in self.layers for at, number in enumerate(layer)}
        found = [link.arrive or 0.0 for link in self.links]
        free: dict[int, list[int]] = {}
        for number, link in enumerate(self.links):
            if link.arrive is None:
                free.setdefault(link.target, []).append(number)
        for target, numbers in free.items():
            numbers.sort(key=lambda n: (order[self.chains[n][-2]], self.links[n].leave))
            step = min(18.0, 0.7 * self.widths[target] / max(len(numbers) - 1, 1))
            for at, number in enumerate(numbers):
                found[number] = (at - (len(numbers) - 1) / 2) * step
        return found

    # Across ----------------------------------------------------------------------------------

    def place_across(self) -> None:
        """Computes the middle of every node."""
        up: list[list[tuple[int, float, float]]] = [[] for _ in self.ranks]
        down: list[list[tuple[int, float, float]]] = [[] for _ in self.ranks]
        count = len(self.boxes)
        leaves = self._find_leaves()
        for number, chain in enumerate(self.chains):
            last = len(chain) - 2
            for place, (upper, lower) in enumerate(itertools.pairwise(chain)):
                leave = self.links[number].leave if place == 0 else 0.0
                arrive = self.arrivals[number] if place == last else 0.0
                weight = _STIFFNESS[(upper >= count) + (lower >= count)]
                if upper in leaves or lower in leaves:
                    weight *= _LEAF
                up[lower].append((upper, leave - arrive, weight))
                down[upper].append((lower, arrive - leave, weight))
        for layer in self.layers:
            self._assign_positions(layer, [0.0] * len(layer), [1.0] * len(layer))
        both = [[*above, *below] for above, below in zip(up, down, strict=True)]
        for sweep in range(_SWEEPS):
            # Towards one side at a time first, which carries far; then between both.
            settled = sweep * 2 >= _SWEEPS
            for layer in self.layers:
                self._pull(layer, both if settled else up)
            for layer in reversed(self.layers):
                self._pull(layer, both if settled else down)
        for _ in range(_SWEEPS // 2):
            for layer in (*self.layers, *reversed(self.layers)):
                self._straighten(layer, both)

    def _find_leaves(self) -> set[int]:
        """Boxes with one link, which follow their neighbour and do not move it."""
        ends = [0] * len(self.boxes)
        for link in self.links:
            ends[link.source] += 1
            ends[link.target] += 1
        return {number for number, count in enumerate(ends) if count == 1}

    def _pull(
        self, layer: Sequence[int], ties: Sequence[Sequence[tuple[int, float, float]]]
    ) -> None:
        """Moves a layer to the mean of its neighbours' wishes."""
        wanted: list[float] = []
        weights: list[float] = []
        for node in layer:
            total = math.fsum(weight for _, _, weight in ties[node])
            wishes = math.fsum(
                (self.x[other] + apart) * weight for other, apart, weight in ties[node]
            )
            wanted.append(wishes / total if total else self.x[node])
            weights.append(total or _LEAF)
        self._assign_positions(layer, wanted, weights)

    def _straighten(
        self, layer: Sequence[int], ties: Sequence[Sequence[tuple[int, float, float]]]
    ) -> None:
        """Moves nodes to where most of their links are straight, as far as there is room: pushing
        others would make everything drift."""
        for at, node in enumerate(layer):
            wishes = sorted((self.x[other] + apart, weight) for other, apart, weight in ties[node])
            if not wishes:
                continue
            wanted = _find_median(wishes)
            least, most = self._bound([node], 0.0)
            wanted = max(min(wanted, max(most, self.x[node])), min(least, self.x[node]))
            if at > 0:
                left = layer[at - 1]
                wanted = max(wanted, self.x[left] + self._apart(left, node))
            if at + 1 < len(layer):
                right = layer[at + 1]
                wanted = min(wanted, self.x[right] - self._apart(node, right))
            self.x[node] = wanted

    def _assign_positions(
        self, layer: Sequence[int], wanted: Sequence[float], weights: Sequence[float]
    ) -> None:
        """Gives a layer the positions closest to those wanted that keep order and gaps."""
        offsets = [0.0]
        for left, right in itertools.pairwise(layer):
            offsets.append(offsets[-1] + self._apart(left, right))
        found = fit_rising([w - o for w, o in zip(wanted, offsets, strict=True)], weights)
        least, most = self._bound(layer, offsets[-1])
        if least <= most + _ROUNDING:
            found = [max(min(at, most), least) for at in found]
        for node, at, offset in zip(layer, found, offsets, strict=True):
            self.x[node] = at + offset

    def _bound(self, layer: Sequence[int], span: float) -> tuple[float, float]:
        """Interval of a layer's first middle in which all of the layer is within the limit; `span`
        is the distance of the last middle from it."""
        if self.gaps.limit is None:
            return -math.inf, math.inf
        half = self.gaps.limit / 2
        first, last = (self.widths[layer[at]] / 2 for at in (0, -1))
        return first - half, half - last - span

    def _apart(self, left: int, right: int) -> float:
        count = len(self.boxes)
        passing = left >= count or right >= count
        gap = self.gaps.beside_links if passing else self.gaps.across
        return (self.widths[left] + self.widths[right]) / 2 + gap

    # Down ------------------------------------------------------------------------------------

    def finish(self) -> Arrangement:
        """Computes the layers' heights and the links' routes."""
        count = len(self.boxes)
        heights = [
            max((self.boxes[n].height for n in layer if n < count), default=0.0)
            for layer in self.layers
        ]
        slants = [0.0] * len(self.layers)
        for number, chain in enumerate(self.chains):
            xs = self._stations(number)
            for node, (left, right) in zip(chain, itertools.pairwise(xs), strict=False):
                slants[self.ranks[node]] = max(slants[self.ranks[node]], abs(left - right))
        tops = [0.0]
        for height, slant in zip(heights, slants, strict=True):
            tops.append(tops[-1] + height + self.gaps.down + min(slant * 0.1, 40.0))
        left = min(self.x[n] - self.widths[n] / 2 for n in range(len(self.ranks)))
        right = max(self.x[n] + self.widths[n] / 2 for n in range(len(self.ranks)))
        corners = tuple(
            Point(self.x[n] - box.width / 2 - left, tops[self.ranks[n]])
            for n, box in enumerate(self.boxes)
        )
        routes: list[tuple[Point, ...]] = []
        for number, chain in enumerate(self.chains):
            xs = [x - left for x in self._stations(number)]
            first = chain[0]
            bottom = tops[self.ranks[first]] + self.boxes[first].height
            points = [Point(xs[0], bottom)]
            for node, x in zip(chain, xs, strict=True):
                rank = self.ranks[node]
                if node != first:
                    points.append(Point(x, tops[rank]))
                if node != chain[-1]:
                    points.append(Point(x, tops[rank] + heights[rank]))
            routes.append(tuple(dict.fromkeys(points)))
        height = tops[len(heights) - 1] + heights[-1]
        return Arrangement(corners, tuple(routes), right - left, height)

    def _stations(self, number: int) -> list[float]:
        """Position of a link in each layer from its source to its target."""
        chain = self.chains[number]
        xs = [self.x[node] for node in chain]
        xs[0] += self.links[number].leave
        xs[-1] += self.arrivals[number]
        # Straight beats centred, where it takes but a small step aside; links of one box start
        # together all the same.
        if self.leaving[chain[0]] == 1 and abs(xs[0] - xs[1]) <= _STEP_ASIDE:
            xs[0] = xs[1]
        elif self.links[number].arrive is not None and abs(xs[-1] - xs[-2]) <= _STEP_ASIDE:
            xs[-1] = xs[-2]
        return xs


def _find_median(wishes: Sequence[tuple[float, float]]) -> float:
    """Weighted median; the mean of two equal ones."""
    total, passed = math.fsum(weight for _, weight in wishes), 0.0
    for number, (at, weight) in enumerate(wishes):
        passed += weight
        if passed * 2 > total:
            return at
        if passed * 2 == total:
            return (at + wishes[number + 1][0]) / 2
    return wishes[-1][0]


def fit_rising(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Nondecreasing numbers with the least weighted sum of squared differences from those
    wanted."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(wanted, weights, strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            before = blocks.pop()
            total = before[1] + block[1]
            mean = (before[0] * before[1] + block[0] * block[1]) / total
            block = (mean, total, before[2] + block[2])
        blocks.append(block)
    return [value for value, _, count in blocks for _ in range(count)]
