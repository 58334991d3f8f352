"""SVG of a diagram: one self-contained picture.

The template has the colours, for light and dark pages, and the elements; positions are from
`compose`. No script, no font and no other file is needed to show it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from dmlc.picture.compose import draw_view, find_stripes
from dmlc.picture.diagram import VIEWS, Diagram, View, find_view
from dmlc.picture.fold import count_steps, fold_chains
from dmlc.picture.layered import Point
from dmlc.picture.lettering import TIMES, measure, show_bytes, wrap_to
from dmlc.picture.shapes import SMALL, Curve, Drawing, Line
from dmlc.picture.summary import compare, describe
from dmlc.source import UnsupportedError
from dmlc.templates import Filters, load_template

_MARGIN = 22.0
_NARROWEST = 680.0
TITLE, SUBTITLE = 17.0, 13.5
"""Font sizes above a view."""

_MOST_UNFOLDED, _MOST_DRAWN = 80, 400
"""Number of stages up to which chains are not folded, and beyond which nothing is drawn."""

_MOST_CALLS = 12
"""Largest number of calls in the key."""

_BAR = 260.0
"""Width of the bar of all bytes moved before fusion."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Bar:
    """Segment of a bar of bytes."""

    x: float
    y: float
    width: float
    height: float
    style: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Heading:
    """Heading of a view."""

    width: float
    height: float
    lines: tuple[Line, ...]
    bars: tuple[_Bar, ...]

    def moved(self, x: float, y: float) -> _Heading:
        return dataclasses.replace(
            self,
            lines=tuple(line.moved(x, y) for line in self.lines),
            bars=tuple(dataclasses.replace(b, x=b.x + x, y=b.y + y) for b in self.bars),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _ViewPanel:
    """View with its heading, at its position in the picture."""

    drawing: Drawing
    heading: _Heading


def write_svg(diagram: Diagram, views: Sequence[str] = VIEWS) -> str:
    """Picture of a diagram: its view `before`, its view `after`, or both, one below the other.
    Raises `UnsupportedError` for too many stages."""
    drawings = [
        draw_view(diagram, _reduce(diagram, name), explained=name == "after") for name in views
    ]
    widest = max(drawing.width for drawing in drawings)
    headings = [_write_heading(diagram, name, widest) for name in views]
    width = max(heading.width for heading in headings)
    width += 2 * _MARGIN
    panels: list[_ViewPanel] = []
    y = 8.0
    for heading, drawing in zip(headings, drawings, strict=True):
        moved = drawing.moved((width - drawing.width) / 2, y + heading.height)
        panels.append(_ViewPanel(moved, heading.moved(_MARGIN, y)))
        y += heading.height + drawing.height + _MARGIN
    return load_template("graph.svg.j2", FILTERS).render(
        title=f"{diagram.name}: {' and '.join(views)} fusion",
        description=describe(diagram),
        width=width,
        height=y,
        panels=panels,
    )


def _reduce(diagram: Diagram, name: str) -> View:
    """Part of a view of the diagram that is drawn."""
    other = "after" if name == "before" else "before"
    view = find_view(diagram, name)
    return fold_view(diagram, view, f"{name} fusion", f", or only {other} fusion")


def fold_view(diagram: Diagram, view: View, title: str, cure: str = "") -> View:
    """View to be drawn: all of it, or with folded chains if that is large. `cure` is a suggestion
    in the `UnsupportedError` raised if it is too large even so."""
    if count_steps(view) <= _MOST_UNFOLDED:
        return view
    folded = fold_chains(view, diagram.outputs)
    count = count_steps(folded)
    if count > _MOST_DRAWN:
        raise UnsupportedError(
            f"'{diagram.name}' has {count_steps(view):,} stages {title}, and {count:,} with "
            f"its chains folded: more than the {_MOST_DRAWN} that a picture can show legibly",
            notes=[f"show it as text or DOT{cure}, or draw a part of it"],
        )
    return folded


def _write_heading(diagram: Diagram, name: str, widest: float) -> _Heading:
    """Heading of a drawing no wider than `widest`: its title, the meaning of frames, and its bytes
    as a bar, which is the key to the colours as well; for a graph, a key to the calls."""
    view = find_view(diagram, name)
    whole = max(diagram.before.bytes or 0, view.bytes or 0)
    scale = _BAR / whole if whole else 0.0
    read, written = ((count or 0) * scale for count in (view.read_bytes, view.written_bytes))
    lines: list[Line] = []
    width = max(_NARROWEST, widest)
    y = 26.0
    for text, style, size in (
        (f"{diagram.name}: {name} fusion", "title", TITLE),
        (_MEANINGS[name], "subtitle", SUBTITLE),
        (compare(diagram, name), "subtitle strong", SUBTITLE),
    ):
        for part in wrap_to(text, width, size, bold=True):
            lines.append(Line(0, y, part, style))
            y += 18
        y += 5
    y -= 9
    bars = [_Bar(0, y, _BAR, 14, "track")] if whole else []
    stretches = ((0.0, read, "read heavy"), (read, written, "write heavy"))
    bars += [_Bar(at, y, long, 14, style) for at, long, style in stretches if long > 0]
    start = _BAR + 20.0 if whole else 0.0
    remark = "thicker lines carry more bytes"
    if any(t.times > 1 for k in view.kernels for t in k.reads):
        remark = f"2 {TIMES} is read twice, in two passes"
    keys = [
        ("read heavy", f"read from memory: {show_bytes(view.read_bytes)}"),
        ("write heavy", f"written: {show_bytes(view.written_bytes)}"),
        ("", remark),
    ]
    if any(step.folds for kernel in view.kernels for step in kernel.steps):
        keys.insert(2, ("fold", "a reduction"))
    y = _lay_keys(keys, start, y + 1.5, width, lines, bars)
    stripes = find_stripes(diagram)
    calls = [
        (stripes[call], f"{call}: {operator}" if call != operator else call)
        for call, operator in list(diagram.calls.items())[:_MOST_CALLS]
    ]
    more = len(diagram.calls) - len(calls)
    if more > 0:
        calls.append(("", f"and {more} more calls"))
    if calls:
        y = _lay_keys(calls, 0.0, y + 21, width, lines, bars)
    return _Heading(width, y + 36, tuple(lines), tuple(bars))


def _lay_keys(
    keys: Sequence[tuple[str, str]],
    start: float,
    y: float,
    width: float,
    lines: list[Line],
    bars: list[_Bar],
) -> float:
    """Adds coloured squares with their meanings, in rows; returns the y of the last row."""
    x = start
    for style, text in keys:
        room = (17 if style else 0) + measure(text, SMALL)
        if x > start and x + room > width:
            x, y = start, y + 18
        if style:
            bars.append(_Bar(x, y, 11, 11, style))
        lines.append(Line(x + (17 if style else 0), y + 9.5, text, "small muted"))
        x += room + 16
    return y


_MEANINGS = {
    "before": "Each stage is a kernel of its own: it reads what it needs from memory and writes "
    "its result back.",
    "after": "A frame is one kernel. Inside it values stay in registers; only what is tagged on "
    "its rim goes through memory.",
}


def _number(value: float) -> str:
    """Coordinate, rounded to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def _path(curve: Curve) -> str:
    """Path data of a route; it stops short of its end, for the arrow head."""
    points = list(curve.points)
    x, y = points[-1]
    points[-1] = Point(x, y - _arrow_length(curve))
    texts = [f"M{_number(points[0][0])} {_number(points[0][1])}"]
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        if abs(x1 - x2) < 0.05:
            texts.append(f"V{_number(y2)}")
            continue
        middle = (y1 + y2) / 2
        ends = ((x1, middle), (x2, middle), (x2, y2))
        texts.append("C" + " ".join(f"{_number(a)} {_number(b)}" for a, b in ends))
    return "".join(texts)


def _arrow(curve: Curve) -> str:
    """Head of an arrow that points down, at the end of a route."""
    x, y = curve.points[-1]
    length = _arrow_length(curve)
    half = length * 0.5
    corners = ((x - half, y - length), (x + half, y - length), (x, y))
    return "M" + "L".join(f"{_number(a)} {_number(b)}" for a, b in corners) + "Z"


def _arrow_length(curve: Curve) -> float:
    return 4.5 + 1.6 * curve.thickness


FILTERS: Filters = (("n", _number), ("path", _path), ("arrow", _arrow))
"""Filters by which the templates of pictures write shapes."""
