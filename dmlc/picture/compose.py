"""Puts a diagram's view on a plane: every kernel a frame around its stages, inputs above it and
outputs below, tags on its rim for what it moves from and to memory.

A kernel is arranged by itself first (`layered`), then the kernels as wholes among inputs and
outputs. So a frame holds its own stages and nothing else, and no two frames meet. Colours and
fonts are the template's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping, Sequence

from dmlc.picture.diagram import Diagram, Kernel, Step, Tensor, Transfer, View
from dmlc.picture.layered import Arrangement, Box, Gaps, Link, Point, arrange, find_long
from dmlc.picture.lettering import cut, measure, show_bytes, show_sizes, wrap, wrap_evenly
from dmlc.picture.summary import describe_traffic

NAME, SMALL, CODE = 12.5, 11.0, 10.5
"""Font sizes: of names, of remarks and of formulas."""

LINE = 14.0
"""From one line of text to the next."""

_FORMULA_WIDTH, _LONG_FORMULA_WIDTH, _FORMULA_LINES = 34, 44, 3
_NAME_LONGEST = 30
_TAG_LONGEST = 22
_TAG_HEIGHT = 33.0
_PAD = 9.0
_OUTSIDE, _INSIDE = 14.0, 12.0
"""Between neighbours, outside kernels and in them."""

_LONGEST_LINK = 7
"""Layers that a line passes at most; beyond, what it carries is named anew at its end."""

_GUTTER = 186.0
_GUTTER_CHARACTERS = 32
CALL_STYLES = 8
"""Colours of stripes; with more calls they come again."""

_MOST_EXPLAINED = 24
"""Kernels in a view whose reasons are still written beside their stages."""


_CORNERS = {"input": 16.0, "output": 16.0, "constant": 16.0, "again": 9.5, "kernel": 10.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line of text: its baseline's start or middle, and the style the template gives it."""

    x: float
    y: float
    text: str
    style: str


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A rectangle with text in it: an input, an output, a stage, a tag or a kernel's frame."""

    x: float
    y: float
    width: float
    height: float
    style: str
    lines: tuple[Line, ...]
    note: str = ""
    """What a pointer that rests on it is told."""
    stripe: str = ""
    """The style of a stripe along its left side; none without."""

    @property
    def corner(self) -> float:
        """The radius of its corners."""
        return _CORNERS.get(self.style.split()[0], 5.0)

    def moved(self, x: float, y: float) -> Shape:
        lines = tuple(dataclasses.replace(n, x=n.x + x, y=n.y + y) for n in self.lines)
        return dataclasses.replace(self, x=self.x + x, y=self.y + y, lines=lines)


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """A link: the points of its route (see `layered`), its style, and how thick it is."""

    points: tuple[Point, ...]
    style: str
    thickness: float
    note: str = ""

    def moved(self, x: float, y: float) -> Curve:
        return dataclasses.replace(self, points=tuple((a + x, b + y) for a, b in self.points))


@dataclasses.dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn, later things over earlier ones, in a plane of this size."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    curves: tuple[Curve, ...]

    def moved(self, x: float, y: float) -> Drawing:
        return dataclasses.replace(
            self,
            shapes=tuple(s.moved(x, y) for s in self.shapes),
            curves=tuple(c.moved(x, y) for c in self.curves),
        )


def find_stripes(diagram: Diagram) -> dict[str, str]:
    """The style of the stripe that marks the stages of each call of a graph."""
    return {name: f"call{at % CALL_STYLES}" for at, name in enumerate(diagram.calls)}


def draw_view(diagram: Diagram, view: View, *, explained: bool) -> Drawing:
    """The drawing of one view. Where it is `explained`, each kernel says what it moves and why its
    stages are one kernel."""
    heavy = _find_heavy(view)
    explained = explained and len(view.kernels) <= _MOST_EXPLAINED
    ends = {name: _draw_tensor(t, "input").width for name, t in diagram.tensors.items()}
    stripes = find_stripes(diagram)
    blocks: list[_Block] = []
    done: set[str] = set()
    for kernel in view.kernels:
        look = _Look(heavy, stripes, done, ends if explained else None)
        blocks.append(_draw_kernel(kernel, look))
        done |= {step.name for step in kernel.steps}
    read = {t.tensor for k in view.kernels for t in k.reads}
    made = {t.tensor for k in view.kernels for t in k.writes}
    sources = [n for n in diagram.tensors if n in read and n not in made]
    sinks = [n for n in diagram.outputs if n in made]
    pills = [
        *(_draw_tensor(diagram.tensors[n], _source_style(diagram, n)) for n in sources),
        *(_draw_tensor(diagram.tensors[n], "output") for n in sinks),
    ]
    boxes = [
        *(Box(b.drawing.width, b.drawing.height) for b in blocks),
        *(Box(p.width, p.height) for p in pills),
    ]
    numbers = {name: len(blocks) + at for at, name in enumerate(sources)}
    links: list[Link] = []
    carried: list[tuple[int | None, str, str]] = []
    writers = {t.tensor: at for at, k in enumerate(view.kernels) for t in k.writes}
    for at, (kernel, block) in enumerate(zip(view.kernels, blocks, strict=True)):
        for transfer in kernel.reads:
            source = numbers.get(transfer.tensor, writers.get(transfer.tensor))
            if source is None:
                continue
            leave = blocks[source].writes[transfer.tensor] if source < len(blocks) else 0.0
            links.append(Link(source, at, leave, block.reads[transfer.tensor]))
            carried.append((transfer.bytes, f"{transfer.tensor}: {transfer.text}", transfer.tensor))
    for at, name in enumerate(sinks):
        writer = writers[name]
        target = len(blocks) + len(sources) + at
        links.append(Link(writer, target, blocks[writer].writes[name], 0.0))
        carried.append((diagram.tensors[name].bytes, name, name))
    kernels = [_title(k) for k in view.kernels]
    for number in find_long(boxes, links, _LONGEST_LINK):
        link = links[number]
        name, at = carried[number][2], link.source
        about = ("as above",) if at >= len(blocks) else ("from", kernels[at].lower())
        style = pills[at - len(blocks)].style if at >= len(blocks) else "again"
        pill = _draw_pill(name, about, style)
        links[number] = dataclasses.replace(link, source=len(boxes), leave=0.0)
        boxes.append(Box(pill.width, pill.height))
        pills.append(pill)
    found = arrange(boxes, links, Gaps(across=_OUTSIDE, down=34))
    curves = [
        Curve(route, "memory", _thickness(size, heavy), note)
        for route, (size, note, _) in zip(found.routes, carried, strict=True)
    ]
    shapes: list[Shape] = []
    for block, place in zip(blocks, found.places, strict=False):
        moved = block.drawing.moved(place.x, place.y)
        shapes += moved.shapes
        curves += moved.curves
    for pill, place in zip(pills, found.places[len(blocks) :], strict=True):
        shapes.append(pill.moved(place.x, place.y))
    return Drawing(found.width, found.height, tuple(shapes), tuple(curves))


def _source_style(diagram: Diagram, name: str) -> str:
    return "input" if name in diagram.inputs else "constant"


def _find_heavy(view: View) -> int:
    """The bytes of the largest transfer of a view: what the others are compared with."""
    sizes = (t.bytes for k in view.kernels for t in (*k.reads, *k.writes))
    return max((s for s in sizes if s is not None), default=0)


def _is_heavy(size: int | None, largest: int) -> bool:
    return size is None or size * 20 >= largest


def _thickness(size: int | None, largest: int) -> float:
    """Wider for more bytes, by their logarithm: a thousandth of the largest is a thin line."""
    if size is None or largest == 0:
        return 1.6
    share = math.log10(max(size, 1) / largest) / 3 + 1
    return round(1.1 + 2.4 * min(max(share, 0.0), 1.0), 1)


# Tensors and tags ---------------------------------------------------------------------------------


def _draw_tensor(tensor: Tensor, style: str) -> Shape:
    sizes = show_sizes(tensor.sizes)
    size = show_bytes(tensor.bytes) if tensor.bytes is not None else tensor.open_bytes
    note = f"{style} {tensor.name}: {tensor.dtype} {sizes}, {size}"
    return _draw_pill(tensor.name, (tensor.dtype, sizes), style, note)


def _draw_pill(tensor: str, about: Sequence[str], style: str, note: str = "") -> Shape:
    """A tensor outside kernels: its name and lines about it."""
    name = cut(tensor, _NAME_LONGEST)
    widest = max(measure(line, CODE, code=True) for line in about)
    width = max(measure(name, NAME, bold=True), widest) + 2 * _PAD
    lines = [Line(width / 2, 17, name, "name middle")]
    lines += [
        Line(width / 2, 18.5 + 12.5 * at, text, "code muted middle")
        for at, text in enumerate(about, 1)
    ]
    return Shape(0, 0, width, 28 + 12.5 * len(about), style, tuple(lines), note)


def _draw_tag(transfer: Transfer, kind: str, largest: int) -> Shape:
    name = cut(transfer.tensor, _TAG_LONGEST)
    size = transfer.text
    width = max(measure(name, SMALL), measure(size, SMALL, bold=True)) + 14
    style = f"{kind} heavy" if _is_heavy(transfer.bytes, largest) else kind
    lines = (
        Line(width / 2, 13.5, name, "small middle"),
        Line(width / 2, 27, size, "small strong middle"),
    )
    verb = "reads" if kind == "read" else "writes"
    return Shape(0, 0, width, _TAG_HEIGHT, style, lines, f"{verb} {transfer.tensor}: {size}")


# Kernels ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
    """A kernel's drawing, and where the tags of what it reads and writes are: as distances of
    their middles from the drawing's."""

    drawing: Drawing
    reads: Mapping[str, float]
    writes: Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class _Look:
    """What the drawing of a kernel depends on beside the kernel."""

    heavy: int
    """The bytes of the largest transfer of the view."""
    stripes: Mapping[str, str]
    done: Container[str]
    """The stages that kernels before it have computed."""
    ends: Mapping[str, float] | None
    """The widths of inputs and outputs where the kernel says what it moves and why it is one: its
    tags stand as far apart then as what is above them."""


def _draw_kernel(kernel: Kernel, look: _Look) -> _Block:
    """A kernel by itself."""
    heavy, ends = look.heavy, look.ends
    tags_in = [_draw_tag(t, "read", heavy) for t in kernel.reads]
    tags_out = [_draw_tag(t, "write", heavy) for t in kernel.writes]
    if len(kernel.steps) == 1 and ends is None:
        rows = [sum(t.width + 8 for t in tags) - 8 for tags in (tags_in, tags_out)]
        step = _draw_step(kernel.steps[0], look, max(rows))
        return _draw_single(step, kernel, tags_in, tags_out)
    steps = [_draw_step(step, look) for step in kernel.steps]
    parts = [*tags_in, *steps, *tags_out]
    boxes = [
        *(Box(w, _TAG_HEIGHT, first=True) for w in _give_room(tags_in, kernel.reads, ends)),
        *(Box(s.width, s.height) for s in steps),
        *(Box(w, _TAG_HEIGHT, last=True) for w in _give_room(tags_out, kernel.writes, ends)),
    ]
    links, names = _list_links(kernel)
    for number in find_long(boxes, links, _LONGEST_LINK):
        # Its line would only confuse: the value's name stands above its reader once more.
        copy = _draw_copy(names[number])
        links[number] = dataclasses.replace(links[number], source=len(boxes))
        boxes.append(Box(copy.width, copy.height))
        parts.append(copy)
    found = arrange(boxes, links, Gaps(across=_INSIDE, down=20))
    return _frame(kernel, parts, boxes, found, ends is not None)


def _give_room(
    tags: Sequence[Shape], transfers: Sequence[Transfer], ends: Mapping[str, float] | None
) -> list[float]:
    """The widths that tags take in a kernel."""
    if ends is None:
        return [tag.width for tag in tags]
    return [
        max(tag.width, ends[t.tensor] + _OUTSIDE - _INSIDE)
        for tag, t in zip(tags, transfers, strict=True)
    ]


def _list_links(kernel: Kernel) -> tuple[list[Link], list[str]]:
    """What goes from tags to stages, from stage to stage, and from stages to tags; and the names
    of the values."""
    read = {t.tensor: at for at, t in enumerate(kernel.reads)}
    step = {s.name: len(read) + at for at, s in enumerate(kernel.steps)}
    first = len(read) + len(step)
    links: dict[Link, str] = {}
    for wire in kernel.wires:
        source = (read if wire.from_memory else step).get(wire.source)
        if source is not None:
            links[Link(source, step[wire.target])] = wire.source
    for at, transfer in enumerate(kernel.writes):
        links[Link(step[transfer.tensor], first + at)] = transfer.tensor
    return list(links), list(links.values())


def _draw_copy(name: str) -> Shape:
    text = cut(name, _TAG_LONGEST)
    width = measure(text, SMALL) + 14
    return Shape(0, 0, width, 19, "again", (Line(width / 2, 13.5, text, "small middle"),))


def _frame(
    kernel: Kernel,
    parts: Sequence[Shape],
    boxes: Sequence[Box],
    found: Arrangement,
    explained: bool,
) -> _Block:
    """The frame of a kernel around its parts, with what it says about itself at its left."""
    remarks = _write_remarks(kernel) if explained else ()
    gutter = _GUTTER if remarks else 0.0
    half = _TAG_HEIGHT / 2
    # Tags stand on the rim; without any, the rim keeps its distance.
    above, top = (half, 0.0) if kernel.reads else (0.0, 12.0)
    needed = above + half + (len(remarks) + 0.5) * LINE + 2 * _PAD + half
    spare = max(needed - found.height - top, 0.0)
    left, width = 12 + gutter, found.width + gutter + 24
    height = found.height + spare + top
    drop = len(kernel.reads) + len(kernel.steps)
    frame = Shape(
        0,
        above,
        width,
        height - above - half,
        "kernel",
        tuple(dataclasses.replace(n, y=n.y + (2 * above + 2 if above else 6)) for n in remarks),
        f"kernel {kernel.label}: {_plain(kernel.reason)}" if kernel.reason else "",
    )
    shapes: list[Shape] = [frame]
    for at, (part, place) in enumerate(zip(parts, found.places, strict=True)):
        # What there is to spare goes between the stages and the tags of what is written.
        x = place.x + left + (boxes[at].width - part.width) / 2
        low = drop <= at < drop + len(kernel.writes)
        shapes.append(part.moved(x, place.y + top + (spare if low else 0.0)))
    curves: list[Curve] = []
    lowest = found.height - _TAG_HEIGHT
    for route in found.routes:
        points = [(x + left, y + top + (spare if y >= lowest - 0.01 else 0.0)) for x, y in route]
        curves.append(Curve(tuple(points), "register", 1.3))
    middles = [s.x + s.width / 2 - width / 2 for s in shapes[1:]]
    return _Block(
        Drawing(width, height, tuple(shapes), tuple(curves)),
        {t.tensor: m for t, m in zip(kernel.reads, middles, strict=False)},
        {t.tensor: m for t, m in zip(kernel.writes, middles[drop:], strict=False)},
    )


def _write_remarks(kernel: Kernel) -> tuple[Line, ...]:
    count = sum(len(s.members) or 1 for s in kernel.steps)
    launches = f" in {kernel.launches} launches" if kernel.launches > 1 else ""
    texts = [
        (_title(kernel), "name"),
        (f"{count:,} stage{'s' if count > 1 else ''}{launches}", "small muted"),
    ]
    styles = ("small readtext", "small writetext")
    texts += zip(describe_traffic(kernel), styles, strict=False)
    lines = [Line(14, LINE * at + LINE, *text) for at, text in enumerate(texts)]
    y = LINE * (len(texts) + 1) + LINE / 2
    for at, text in enumerate(wrap(_plain(kernel.reason), _GUTTER_CHARACTERS)):
        lines.append(Line(14, y + LINE * at, text, "small muted"))
    return tuple(lines)


def _title(kernel: Kernel) -> str:
    return f"Kernel{'s' if kernel.launches > 1 else ''} {kernel.label}"


def _plain(reason: str) -> str:
    """A reason without the marks of names."""
    return reason.replace("%", "")


def _draw_single(
    step: Shape, kernel: Kernel, tags_in: Sequence[Shape], tags_out: Sequence[Shape]
) -> _Block:
    """A kernel of one stage, whose frame is the stage's own."""
    rows = [sum(t.width for t in tags) + 8 * (len(tags) - 1) for tags in (tags_in, tags_out)]
    width = max(step.width, *(row + 16 for row in rows))
    above, below = (_TAG_HEIGHT - 4 if tags else 0.0 for tags in (tags_in, tags_out))
    inside = dataclasses.replace(
        step,
        width=width,
        style=f"{step.style} alone",
        height=step.height + 8 + (4 if tags_in else 0) + (4 if tags_out else 0),
        lines=tuple(
            dataclasses.replace(n, x=n.x + (width - step.width) / 2, y=n.y + (8 if tags_in else 4))
            for n in step.lines
        ),
    ).moved(0, above)
    shapes = [inside]
    middles: list[dict[str, float]] = []
    bottom = above + inside.height
    sides = (
        (tags_in, kernel.reads, rows[0], 0.0),
        (tags_out, kernel.writes, rows[1], bottom + below - _TAG_HEIGHT),
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
    return _Block(drawing, middles[0], middles[1])


def _draw_step(step: Step, look: _Look, room: float = 0.0) -> Shape:
    """A stage: its name, its formula, the type and sizes of what it gives, and whether a kernel
    before has computed it too."""
    name = cut(step.name, _NAME_LONGEST)
    width = _FORMULA_WIDTH
    if len(wrap(f"= {step.formula}", width)) > _FORMULA_LINES:
        width = max(_LONG_FORMULA_WIDTH, int((room - 2 * _PAD) / measure(" ", CODE, code=True)))
    formula = wrap_evenly(f"= {step.formula}", width, _FORMULA_LINES)
    about = f"{step.dtype} {show_sizes(step.sizes)}"
    if step.name in look.done:
        about += ", again"
    width = (
        2 * _PAD
        + 2
        + max(
            measure(name, NAME, bold=True),
            *(measure(line, CODE, code=True) for line in (*formula, about)),
        )
    )
    lines = [Line(width / 2, 17, name, "name middle")]
    lines += [
        Line(width / 2, 17 + LINE * at, text, "code middle") for at, text in enumerate(formula, 1)
    ]
    y = 17 + LINE * (len(formula) + 1)
    lines.append(Line(width / 2, y, about, "code muted middle"))
    note = f"{step.name} = {step.formula}"
    if step.call is not None:
        note += f" (of the call {step.call})"
    style = "fold" if step.folds else "stage"
    return Shape(
        0, 0, width, y + 8, style, tuple(lines), note, look.stripes.get(step.call or "", "")
    )
