"""Layout of shapes within a width: in layers with links, and with names in place of long links.

A link that passes many layers, or more than fit the width, does not help the eye: a small *copy* of
its tensor's name is placed above its end instead.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence

from dmlc.picture.layered import Arrangement, Point, arrange
from dmlc.picture.ranking import Box, Gaps, Link, measure_links
from dmlc.picture.shapes import Shape

_LONGEST = 7
"""Largest number of layers that a link passes."""

_LONGEST_IN_ORDER = (7, 3, 1)
"""The same for boxes that keep their order, with fewer if the width has no room for the links."""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Positions of shapes, with the added copies last in `found`."""

    found: Arrangement
    copies: tuple[Shape, ...]
    copied: frozenset[int] = frozenset()
    """Numbers of the links that come from a copy."""


def lay_out(
    boxes: Sequence[Box], links: Sequence[Link], gaps: Gaps, copy: Callable[[int], Shape]
) -> Layout:
    """Layout of boxes in layers no wider than the limit of the gaps. `copy` draws the copy for a
    link. If the links do not fit even so, there are none, and boxes are placed in rows."""
    limit = math.inf if gaps.limit is None else gaps.limit + 0.01
    layout = _try(list(boxes), list(links), gaps, _LONGEST, copy)
    if layout.found.width <= limit and not layout.copies:
        return layout
    ordered = dataclasses.replace(gaps, in_order=True)
    for longest in _LONGEST_IN_ORDER:
        tried = _try(list(boxes), list(links), ordered, longest, copy)
        if tried.found.width <= limit:
            return tried
    return Layout(arrange_rows(boxes, gaps), ())


def _try(
    boxes: list[Box],
    links: list[Link],
    gaps: Gaps,
    longest: int,
    copy: Callable[[int], Shape],
) -> Layout:
    """Layout in which no link except those of copies passes more than `longest` layers."""
    copies: list[Shape] = []
    first = len(boxes)
    while True:
        lengths = measure_links(boxes, links, gaps)
        free = [n for n in _find_free(boxes, links) if links[n].source < first]
        most = max((lengths[n] for n in free), default=0)
        if most <= longest:
            copied = frozenset(n for n, link in enumerate(links) if link.source >= first)
            return Layout(arrange(boxes, links, gaps), tuple(copies), copied)
        # The longest alone: without them others may be short.
        for number in (n for n in free if lengths[n] == most):
            shape, link = copy(number), links[number]
            links[number] = dataclasses.replace(
                link, source=len(boxes), leave=0.0, after=link.source
            )
            boxes.append(Box(shape.width, shape.height))
            copies.append(shape)


def _find_free(boxes: Sequence[Box], links: Sequence[Link]) -> list[int]:
    """Numbers of the links that may be long: all except those of boxes with no other link, which
    are placed next to their neighbour."""
    leaving = Counter(link.source for link in links)
    arriving = Counter(link.target for link in links)

    def is_beside(link: Link) -> bool:
        source, target = boxes[link.source], boxes[link.target]
        gives = leaving[link.source] == 1 and not arriving[link.source] and not source.first
        takes = arriving[link.target] == 1 and not leaving[link.target] and not target.last
        return gives or takes

    return [number for number, link in enumerate(links) if not is_beside(link)]


def arrange_rows(boxes: Sequence[Box], gaps: Gaps) -> Arrangement:
    """Boxes in rows no wider than the limit, in their order, without links. `first` boxes have rows
    of their own above all others, and `last` ones below them."""
    limit = gaps.limit or 0.0
    order = sorted(range(len(boxes)), key=lambda n: boxes[n].last - boxes[n].first)
    corners: dict[int, Point] = {}
    x = y = height = widest = 0.0
    kind = None
    for number in order:
        box = boxes[number]
        here = box.last - box.first
        if x > 0 and (x + box.width > limit or here != kind):
            x, y, height = 0.0, y + height + gaps.down, 0.0
        kind = here
        corners[number] = Point(x, y)
        widest = max(widest, x + box.width)
        x += box.width + gaps.across
        height = max(height, box.height)
    found = tuple(corners[number] for number in range(len(boxes)))
    return Arrangement(found, (), widest, y + height)
