"""Layout of a diagram's view: kernels with their stages, inputs above them and outputs below, and
links for values that pass through memory.

A kernel is laid out by itself first (`blocks`), then the kernels of a group (`groups`), then these
as units among inputs and outputs, within the width of a page (`placing`). So a frame contains its
own stages and nothing else, and no two frames intersect.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dmlc.picture.blocks import OUTSIDE, Block, Look
from dmlc.picture.diagram import Diagram, Kernel, View
from dmlc.picture.groups import draw_group
from dmlc.picture.layered import Arrangement, Point
from dmlc.picture.placing import Layout, lay_out
from dmlc.picture.ranking import Box, Gaps, Link
from dmlc.picture.shapes import Curve, Drawing, Shape, draw_pill, draw_tensor

WIDEST = 900.0
"""Largest width of a drawing; with its margins, that of a page."""

CALL_STYLES = 8
"""Number of colours of stripes; with more calls they repeat."""

_MOST_EXPLAINED = 24
"""Largest number of kernels in a view with reasons beside their stages."""


def find_stripes(diagram: Diagram) -> dict[str, str]:
    """Style of the stripe on the stages of each call of a graph."""
    return {name: f"call{at % CALL_STYLES}" for at, name in enumerate(diagram.calls)}


def draw_view(diagram: Diagram, view: View, *, explained: bool) -> Drawing:
    """Drawing of one view, at most `WIDEST` wide. If `explained`, each kernel has its work, its
    traffic and the reasons that its stages are one kernel."""
    groups = view.groups
    words = _TensorEnds(diagram, view)
    look = Look(
        _find_heavy(view),
        find_stripes(diagram),
        set[str](),
        WIDEST,
        {name: draw_tensor(t, "input").width for name, t in diagram.tensors.items()},
        explained,
        explained and len(view.kernels) <= _MOST_EXPLAINED,
        words.sources,
    )
    plan = _ViewPlan(diagram, view, groups, _draw_groups(groups, look, words))
    layout = plan.lay_out()
    if plan.links and not layout.found.routes:
        # There is no room for lines: tags say in words where tensors come from and go to.
        said = dataclasses.replace(look, said=frozenset(diagram.tensors), linked=False)
        plan = _ViewPlan(diagram, view, groups, _draw_groups(groups, said, words), linked=False)
        layout = plan.lay_out()
    return plan.draw(layout)


class _TensorEnds:
    """Sources and destinations of tensors, in words."""

    def __init__(self, diagram: Diagram, view: View) -> None:
        made = {t.tensor: k for k in view.kernels for t in k.writes}
        self.sources: dict[str, str] = {}
        self.targets: dict[str, dict[str, str]] = {name: {} for name in made}
        for name in diagram.tensors:
            kind = "input" if name in diagram.inputs else "constant"
            self.sources[name] = f"from {made[name].title}" if name in made else kind
        for kernel in view.kernels:
            for transfer in kernel.reads:
                if transfer.tensor in made:
                    self.targets[transfer.tensor][kernel.label] = f"to {kernel.title}"
        for name in diagram.outputs:
            if name in made:
                self.targets[name]["output"] = "output"


def _draw_groups(groups: Sequence[Sequence[Kernel]], look: Look, words: _TensorEnds) -> list[Block]:
    blocks: list[Block] = []
    done: set[str] = set()
    for kernels in groups:
        own = dataclasses.replace(look, done=frozenset(done))
        blocks.append(draw_group(kernels, own, words.targets))
        done |= {step.name for kernel in kernels for step in kernel.steps}
    return blocks


class _ViewPlan:
    """Groups of kernels, inputs and outputs, with their links, before the layout."""

    def __init__(
        self,
        diagram: Diagram,
        view: View,
        groups: Sequence[Sequence[Kernel]],
        blocks: Sequence[Block],
        *,
        linked: bool = True,
    ) -> None:
        self.diagram, self.blocks, self.groups = diagram, blocks, groups
        self.heavy = _find_heavy(view)
        read = {n for block in blocks for n in block.reads}
        made = {t.tensor for k in view.kernels for t in k.writes}
        written = {n for block in blocks for n in block.writes}
        sources = [n for n in diagram.tensors if n in read and n not in made] if linked else []
        sinks = [n for n in diagram.outputs if n in written] if linked else []
        self.pills = [
            *(draw_tensor(diagram.tensors[n], self._find_style(n)) for n in sources),
            *(draw_tensor(diagram.tensors[n], "output") for n in sinks),
        ]
        self.links: list[Link] = []
        self.carried: list[tuple[int | None, str, str]] = []
        """Bytes, note and tensor of each link."""
        if linked:
            first = len(blocks)
            self._link(
                {name: first + at for at, name in enumerate(sources)},
                {name: first + len(sources) + at for at, name in enumerate(sinks)},
            )

    def _find_style(self, name: str) -> str:
        return "input" if name in self.diagram.inputs else "constant"

    def _link(self, sources: Mapping[str, int], sinks: Mapping[str, int]) -> None:
        """Adds the links: into groups, between them, and out of them."""
        writers = {t.tensor: at for at, ks in enumerate(self.groups) for k in ks for t in k.writes}
        for at, (kernels, block) in enumerate(zip(self.groups, self.blocks, strict=True)):
            for transfer in kernels[0].reads:
                name = transfer.tensor
                source = sources.get(name, writers.get(name))
                if source is None or source == at or name not in block.reads:
                    continue
                leave = self._find_leave(source, name)
                if leave is not None:
                    self.links.append(Link(source, at, leave, block.reads[name]))
                    self.carried.append((transfer.bytes, f"{name}: {transfer.text}", name))
        for name, target in sinks.items():
            leave = self._find_leave(writers[name], name)
            if leave is not None:
                self.links.append(Link(writers[name], target, leave, 0.0))
                self.carried.append((self.diagram.tensors[name].bytes, name, name))

    def _find_leave(self, source: int, name: str) -> float | None:
        """Point where a link leaves a box; None if it starts at no tag on a rim."""
        return 0.0 if source >= len(self.blocks) else self.blocks[source].writes.get(name)

    def lay_out(self) -> Layout:
        boxes = [
            *(Box(b.drawing.width, b.drawing.height) for b in self.blocks),
            *(Box(p.width, p.height) for p in self.pills),
        ]
        gaps = Gaps(across=OUTSIDE, down=34, limit=WIDEST)
        return lay_out(boxes, self.links, gaps, self._copy)

    def _copy(self, number: int) -> Shape:
        """Copy of the name of a long link's tensor."""
        name, source = self.carried[number][2], self.links[number].source
        if source >= len(self.blocks):
            pill = self.pills[source - len(self.blocks)]
            return draw_pill(name, ("as above",), pill.style)
        return draw_pill(name, (f"from {_name_group(self.groups[source])}",), "again")

    def draw(self, layout: Layout) -> Drawing:
        """Drawing with every part at its position."""
        found: Arrangement = layout.found
        shapes: list[Shape] = []
        curves: list[Curve] = []
        for number, route in enumerate(found.routes):
            size, note, _ = self.carried[number]
            points = self._lead(number, route, copied=number in layout.copied)
            curves.append(Curve(points, "memory", _thickness(size, self.heavy), note))
        for block, corner in zip(self.blocks, found.corners, strict=False):
            moved = block.drawing.moved(*corner)
            shapes += moved.shapes
            curves += moved.curves
        pills = (*self.pills, *layout.copies)
        for pill, corner in zip(pills, found.corners[len(self.blocks) :], strict=True):
            shapes.append(pill.moved(*corner))
        return Drawing(found.width, found.height, tuple(shapes), tuple(curves))

    def _lead(self, number: int, route: Sequence[Point], *, copied: bool) -> tuple[Point, ...]:
        """Route extended to the tags that it joins, which may be within the box of a group."""
        link, points = self.links[number], list(route)
        if link.source < len(self.blocks) and not copied:
            x, y = points[0]
            points.insert(0, Point(x, y - self.blocks[link.source].under))
        if link.target < len(self.blocks):
            x, y = points[-1]
            points.append(Point(x, y + self.blocks[link.target].above))
        return tuple(dict.fromkeys(points))


def _name_group(kernels: Sequence[Kernel]) -> str:
    return kernels[-1].title


def _find_heavy(view: View) -> int:
    """Bytes of the largest transfer of a view, as the scale of the others."""
    sizes = (t.bytes for k in view.kernels for t in (*k.reads, *k.writes))
    return max((s for s in sizes if s is not None), default=0)


def _thickness(size: int | None, largest: int) -> float:
    """Line width, logarithmic in the bytes: a thousandth of the largest is a thin line."""
    if size is None or largest == 0:
        return 1.6
    share = math.log10(max(size, 1) / largest) / 3 + 1
    return round(1.1 + 2.4 * min(max(share, 0.0), 1.0), 1)
