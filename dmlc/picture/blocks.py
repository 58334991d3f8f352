"""Drawing of one kernel: a frame around its stages, a description at the left, and tags on its rim
for its memory traffic. Each kernel is laid out by itself, so that its frame contains its own stages
and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping, Sequence

from dmlc.picture.diagram import Kernel, Step, Transfer
from dmlc.picture.layered import Arrangement, Point
from dmlc.picture.lettering import (
    measure,
    show_sizes,
    wrap,
    wrap_evenly,
    wrap_name,
    wrap_to,
)
from dmlc.picture.placing import lay_out
from dmlc.picture.ranking import Box, Gaps, Link
from dmlc.picture.shapes import (
    CODE,
    LINE,
    NAME,
    PAD,
    SMALL,
    Curve,
    Drawing,
    Line,
    Shape,
    draw_copy,
    draw_tag,
)
from dmlc.picture.summary import describe_traffic, describe_work

OUTSIDE, INSIDE = 14.0, 12.0
"""Gaps between neighbours, outside kernels and inside."""

TAG_HEIGHT = 33.0
"""Height of a tag of two lines, half of which is above the rim."""

_GUTTER = 190.0
_FORMULA_WIDTH, _LONG_FORMULA_WIDTH, _FORMULA_LINES = 34, 44, 3
_NAME_LONGEST = 38


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Drawing of a kernel, or a group, with the horizontal offsets of its tags from its middle. A
    tensor without a tag on the rim has no link."""

    drawing: Drawing
    reads: Mapping[str, float]
    writes: Mapping[str, float]
    above: float = 0.0
    """Distance from the drawing's upper side to the tags there."""
    under: float = 0.0
    """Distance from the tags below to the drawing's lower side."""


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """Parameters of the drawing of a kernel besides the kernel."""

    heavy: int
    """Bytes of the largest transfer of the view."""
    stripes: Mapping[str, str]
    done: Container[str]
    """Stages that earlier kernels have computed."""
    limit: float
    """Largest width."""
    ends: Mapping[str, float]
    """Widths of inputs and outputs, by tensor: tags are as far apart as the boxes above them."""
    framed: bool = True
    """Whether the kernel has a frame with remarks at its left."""
    reasons: bool = True
    """Whether the remarks give the reasons that its stages are one kernel."""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Source of each tensor that it reads, in words."""
    targets: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Destination of each tensor that it writes, in words."""
    said: Container[str] = ()
    """Tensors whose tags have these words, since no link shows them; tags inside the rim always
    have."""
    linked: bool = True
    """Whether links from outside lead to its tags."""


def draw_kernel(kernel: Kernel, look: Look) -> Block:
    """Drawing of a kernel by itself."""
    reads = [_draw_transfer(t, "read", look) for t in kernel.reads]
    writes = [_draw_transfer(t, "write", look) for t in kernel.writes]
    if len(kernel.steps) == 1 and not look.framed:
        rows = [math.fsum(t.width + 8 for t in tags) - 8 for tags in (reads, writes)]
        step = draw_step(kernel.steps[0], look, max(rows), head=kernel.title)
        if max(rows) + 16 <= look.limit:
            return _draw_single(step, kernel, _level(reads), _level(writes))
    return _draw_framed(kernel, reads, writes, look)


def _draw_transfer(transfer: Transfer, kind: str, look: Look, *, said: bool = False) -> Shape:
    heavy = transfer.bytes is None or transfer.bytes * 20 >= look.heavy
    words = look.sources if kind == "read" else look.targets
    said = said or transfer.tensor in look.said
    ends = words.get(transfer.tensor, "") if said else ""
    return draw_tag(transfer, kind, heavy=heavy, ends=ends)


def _level(tags: Sequence[Shape]) -> list[Shape]:
    """Tags of equal height for a rim."""
    height = max((tag.height for tag in tags), default=0.0)
    return [dataclasses.replace(tag, height=height) for tag in tags]


def _draw_framed(
    kernel: Kernel, reads: Sequence[Shape], writes: Sequence[Shape], look: Look
) -> Block:
    """Kernel with its frame. Tags for which the rim has no room are inside."""
    gutter = _GUTTER if look.framed else 0.0
    limit = look.limit - gutter - 24
    (reads, on_top), (writes, below) = (
        _split_tags(tags, transfers, kind, look, limit)
        for tags, transfers, kind in (
            (reads, kernel.reads, "read"),
            (writes, kernel.writes, "write"),
        )
    )
    steps = [draw_step(step, look, limit=limit) for step in kernel.steps]
    boxes = [
        *(_make_tag_box(s, t, look, first=n < on_top)
          for n, (s, t) in enumerate(zip(reads, kernel.reads, strict=True))),
        *(Box(s.width, s.height) for s in steps),
        *(_make_tag_box(s, t, look, last=n < below)
          for n, (s, t) in enumerate(zip(writes, kernel.writes, strict=True))),
    ]  # fmt: skip
    links, names = _list_links(kernel)
    gaps = Gaps(across=INSIDE, down=20, limit=limit)
    layout = lay_out(boxes, links, gaps, lambda number: draw_copy(names[number]))
    parts = [*reads, *steps, *writes, *layout.copies]
    rim = _Rim(on_top, len(reads) + len(steps), below)
    return _frame(kernel, parts, layout.found, rim, look)


def _split_tags(
    tags: Sequence[Shape], transfers: Sequence[Transfer], kind: str, look: Look, limit: float
) -> tuple[list[Shape], int]:
    """Tags of a kernel, and the number of those on its rim; the others have more text."""
    rooms = [max(s.width, _find_end(t, look)) for s, t in zip(tags, transfers, strict=True)]
    count = _count_fitting(rooms, limit)
    inside = [_draw_transfer(t, kind, look, said=True) for t in transfers[count:]]
    return [*_level(tags[:count]), *inside], count


def _find_end(transfer: Transfer, look: Look) -> float:
    """Width that a tag takes on a rim, with the box above or below it."""
    if not look.framed or transfer.tensor in look.said:
        return 0.0
    return look.ends.get(transfer.tensor, 0.0) + OUTSIDE - INSIDE


def _make_tag_box(
    tag: Shape, transfer: Transfer, look: Look, *, first: bool = False, last: bool = False
) -> Box:
    room = _find_end(transfer, look) if first or last else 0.0
    return Box(max(tag.width, room), tag.height, first=first, last=last)


def _count_fitting(widths: Sequence[float], limit: float) -> int:
    """Number of boxes that fit in one row."""
    used = -INSIDE
    for count, width in enumerate(widths):
        used += width + INSIDE
        if used > limit:
            return count
    return len(widths)


def _list_links(kernel: Kernel) -> tuple[list[Link], list[str]]:
    """Links from tags to stages, between stages, and from stages to tags; and the names of the
    values."""
    read = {t.tensor: at for at, t in enumerate(kernel.reads)}
    step = {s.name: len(read) + at for at, s in enumerate(kernel.steps)}
    first = len(read) + len(step)
    links: dict[Link, str] = {}
    for wire in kernel.wires:
        source = (read if wire.from_memory else step).get(wire.source)
        if source is not None:
            links[Link(source, step[wire.target])] = wire.source
    for at, transfer in enumerate(kernel.writes):
        links[Link(step[transfer.step], first + at)] = transfer.step
    return list(links), list(links.values())


@dataclasses.dataclass(frozen=True, slots=True)
class _Rim:
    """Parts of a kernel on its rim: `on_top` from 0 on, and `below` from number `first`
    on."""

    on_top: int
    first: int
    below: int


def _frame(
    kernel: Kernel, parts: Sequence[Shape], found: Arrangement, rim: _Rim, look: Look
) -> Block:
    """Frame of a kernel around its parts, with its description at its left."""
    remarks = write_remarks(kernel, reasons=look.reasons) if look.framed else ()
    gutter = _GUTTER if remarks else 0.0
    top_height = parts[0].height if rim.on_top else 0.0
    low_height = parts[rim.first].height if rim.below else 0.0
    half = TAG_HEIGHT / 2
    # Tags stand on the rim; without any, the rim keeps its distance.
    above, top = (half, 0.0) if rim.on_top else (0.0, 12.0)
    under, bottom = (low_height - half, 0.0) if rim.below else (0.0, 12.0)
    needed = above + max(half, top_height - half, (len(remarks) + 0.5) * LINE + PAD) + PAD + under
    spare = max(needed + half - found.height - top - bottom, 0.0)
    left, width = 12 + gutter, found.width + gutter + 24
    height = found.height + spare + top + bottom
    drop = 2 * above + 2 if above else 6
    frame = Shape(
        0,
        above,
        width,
        height - above - under,
        "kernel",
        tuple(line.moved(0, drop) for line in remarks),
        f"{kernel.title}: {plain(kernel.reason)}" if kernel.reason else "",
        key=f"kernel {kernel.label}",
        home=kernel.label,
    )
    shapes: list[Shape] = [frame]
    lowest = found.height - low_height
    for at, (part, (x, y)) in enumerate(zip(parts, found.corners, strict=True)):
        # Spare room is left between the stages and the tags of written tensors.
        low = rim.below and rim.first <= at < rim.first + rim.below
        room = _find_room(at, part, kernel, rim, look)
        placed = part.moved(x + left + (room - part.width) / 2, y + top + spare * bool(low))
        shapes.append(dataclasses.replace(placed, home=kernel.label))
    curves: list[Curve] = []
    for route in found.routes:
        points = [
            Point(x + left, y + top + (spare if rim.below and y >= lowest - 0.01 else 0.0))
            for x, y in route
        ]
        curves.append(Curve(tuple(points), "register", 1.3))
    middles = [s.x + s.width / 2 - width / 2 for s in shapes[1:]]
    reads = [t.tensor for t in kernel.reads[: rim.on_top]]
    writes = [t.tensor for t in kernel.writes[: rim.below]]
    return Block(
        Drawing(width, height, tuple(shapes), tuple(curves)),
        dict(zip(reads, middles, strict=False)),
        dict(zip(writes, middles[rim.first :], strict=False)),
    )


def _find_room(at: int, part: Shape, kernel: Kernel, rim: _Rim, look: Look) -> float:
    """Width of a part's box."""
    if at < rim.on_top:
        return max(part.width, _find_end(kernel.reads[at], look))
    if rim.first <= at < rim.first + rim.below:
        return max(part.width, _find_end(kernel.writes[at - rim.first], look))
    return part.width


def write_remarks(kernel: Kernel, *, reasons: bool = True) -> tuple[Line, ...]:
    """Description of a kernel: its work, its bytes, and the reasons that it is one."""
    count = sum(len(s.members) or 1 for s in kernel.steps)
    texts = [
        (kernel.title.capitalize(), "name"),
        (f"{count:,} stage{'s' if count > 1 else ''}", "small muted"),
        *((text, "small") for text in describe_work(kernel)),
    ]
    styles = ("small readtext", "small writetext")
    texts += zip(describe_traffic(kernel), styles, strict=False)
    lines: list[Line] = []
    for text, style in texts:
        for part in wrap_to(text, _GUTTER - 18, SMALL):
            lines.append(Line(14, LINE * len(lines) + LINE, part, style))
    y = LINE * (len(lines) + 1) + LINE / 2
    why = wrap_to(plain(kernel.reason), _GUTTER - 18, SMALL) if kernel.reason and reasons else ()
    for at, text in enumerate(why):
        lines.append(Line(14, y + LINE * at, text, "small muted"))
    return tuple(lines)


def plain(reason: str) -> str:
    """Reason without the marks of names."""
    return reason.replace("%", "")


def _draw_single(
    step: Shape, kernel: Kernel, tags_in: Sequence[Shape], tags_out: Sequence[Shape]
) -> Block:
    """Kernel of one stage, whose frame is the stage's own."""
    rows = [math.fsum(t.width for t in tags) + 8 * (len(tags) - 1) for tags in (tags_in, tags_out)]
    width = max(step.width, *(row + 16 for row in rows))
    above, below = (tags[0].height - 4 if tags else 0.0 for tags in (tags_in, tags_out))
    inside = dataclasses.replace(
        step,
        width=width,
        style=f"{step.style} alone",
        height=step.height + 8 + (4 if tags_in else 0) + (4 if tags_out else 0),
        home=kernel.label,
        lines=tuple(n.moved((width - step.width) / 2, 8 if tags_in else 4) for n in step.lines),
    ).moved(0, above)
    shapes = [inside]
    middles: list[dict[str, float]] = []
    bottom = above + inside.height
    sides = (
        (tags_in, kernel.reads, rows[0], 0.0),
        (tags_out, kernel.writes, rows[1], bottom - 4),
    )
    for tags, transfers, row, y in sides:
        x = (width - row) / 2
        found: dict[str, float] = {}
        for tag, transfer in zip(tags, transfers, strict=True):
            shapes.append(tag.moved(x, y))
            found[transfer.tensor] = x + tag.width / 2 - width / 2
            x += tag.width + 8
        middles.append(found)
    drawing = Drawing(width, bottom + below, tuple(shapes), ())
    return Block(drawing, middles[0], middles[1])


def draw_step(
    step: Step, look: Look, room: float = 0.0, *, limit: float | None = None, head: str = ""
) -> Shape:
    """Stage: its name, its formula, the type and sizes of its result, and whether an earlier kernel
    has computed it too. It is as wide as `room` if its formula needs that, and never wider than
    `limit`. `head` is above its name."""
    most = int(((limit or look.limit) - 2 * PAD - 2) / measure(" ", CODE, code=True))
    width = _FORMULA_WIDTH
    if len(wrap(f"= {step.formula}", width)) > _FORMULA_LINES:
        width = max(_LONG_FORMULA_WIDTH, int((room - 2 * PAD) / measure(" ", CODE, code=True)))
    width = min(width, most)
    names = wrap_name(step.name, _NAME_LONGEST)
    formula = wrap_evenly(f"= {step.formula}", width)
    about = f"{step.dtype} {show_sizes(step.sizes)}"
    if step.name in look.done and not step.combined:
        about += ", again"
    abouts = wrap_name(about, _LONG_FORMULA_WIDTH)
    widest = max(
        measure(head, SMALL),
        *(measure(name, NAME, bold=True) for name in names),
        *(measure(line, CODE, code=True) for line in (*formula, *abouts)),
    )
    middle = widest / 2 + PAD + 1
    texts = [(head, "small muted middle")] if head else []
    texts += [(name, "name middle") for name in names]
    texts += [(line, "code middle") for line in formula]
    texts += [(line, "code muted middle") for line in abouts]
    lines = tuple(Line(middle, 17 + LINE * at, *text) for at, text in enumerate(texts))
    note = f"{step.name} = {step.formula}"
    if step.call is not None:
        note += f" (of the call {step.call})"
    style = "fold" if step.folds else "stage"
    stripe = look.stripes.get(step.call or "", "")
    height = 25 + LINE * (len(texts) - 1)
    key = f"stage {step.name}"
    return Shape(0, 0, 2 * middle, height, style, lines, note, stripe, key)
