"""Arranges shapes within a width: in layers with links between them, and where too many links
would pass, with names in their place.

A link that passes many layers, or more than a width has room for, is no help to the eye: a small
*copy* of what it carries stands above its end instead.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from dmlc.picture.layered import Arrangement, Place, arrange
from dmlc.picture.ranking import Box, Gaps, Link, find_long
from dmlc.picture.shapes import Shape

_LONGEST_LINKS = (7, 3, 1)
"""Layers that a link passes at most; fewer where the width has no room for so many links."""


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Where shapes go, and the copies that were added to them, which come last in `found`."""

    found: Arrangement
    copies: tuple[Shape, ...]


def lay_out(
    boxes: Sequence[Box], links: Sequence[Link], gaps: Gaps, copy: Callable[[int], Shape]
) -> Layout:
    """Arranges boxes in layers no wider than the limit of the gaps. `copy` draws what the link of
    a number carries. Where links do not fit even so, there are none: boxes stand in rows."""
    for longest in _LONGEST_LINKS:
        layout = _try(list(boxes), list(links), gaps, longest, copy)
        if gaps.limit is None or layout.found.width <= gaps.limit + 0.01:
            return layout
    return Layout(arrange_rows(boxes, gaps), ())


def _try(
    boxes: list[Box],
    links: list[Link],
    gaps: Gaps,
    longest: int,
    copy: Callable[[int], Shape],
) -> Layout:
    """An arrangement in which no link but those of copies is longer than that."""
    copies: list[Shape] = []
    first = len(boxes)
    while True:
        # A copy takes room, which may make other links long.
        long = [n for n in find_long(boxes, links, longest, gaps) if links[n].source < first]
        single = _find_single(boxes, links)
        long = [n for n in long if links[n].source not in single]
        if not long:
            return Layout(arrange(boxes, links, gaps), tuple(copies))
        for number in long:
            shape = copy(number)
            links[number] = dataclasses.replace(links[number], source=len(boxes), leave=0.0)
            boxes.append(Box(shape.width, shape.height))
            copies.append(shape)


def _find_single(boxes: Sequence[Box], links: Sequence[Link]) -> set[int]:
    """The boxes that stand above the one they give to, as copies do."""
    readers = Counter(link.source for link in links)
    held = {link.target for link in links} | {n for n, box in enumerate(boxes) if box.first}
    return {number for number, count in readers.items() if count == 1 and number not in held}


def arrange_rows(boxes: Sequence[Box], gaps: Gaps) -> Arrangement:
    """Boxes in rows no wider than the limit, in their order, without links. Those that are to be
    first have rows of their own above all others, and those that are to be last below them."""
    limit = gaps.limit or 0.0
    order = sorted(range(len(boxes)), key=lambda n: boxes[n].last - boxes[n].first)
    places: dict[int, Place] = {}
    x = y = height = widest = 0.0
    kind = None
    for number in order:
        box = boxes[number]
        here = box.last - box.first
        if x > 0 and (x + box.width > limit or here != kind):
            x, y, height = 0.0, y + height + gaps.down, 0.0
        kind = here
        places[number] = Place(x, y)
        widest = max(widest, x + box.width)
        x += box.width + gaps.across
        height = max(height, box.height)
    found = tuple(places[number] for number in range(len(boxes)))
    return Arrangement(found, (), widest, y + height)
