"""Writes a diagram as SVG: one picture that stands by itself, in a page or alone.

The template holds the colours, for light and dark pages, and the elements; positions come from
`compose`. No script, no font and no other file is needed to show it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import jinja2

from dmlc.picture.compose import Curve, Drawing, Line, draw_view
from dmlc.picture.diagram import Diagram, View
from dmlc.picture.lettering import show_bytes
from dmlc.resources import resource_path

_MARGIN = 22.0
_HEAD = 62.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Panel:
    """A view with its heading, at its place in the picture."""

    drawing: Drawing
    heading: tuple[Line, ...]


def write_svg(diagram: Diagram, views: Sequence[str]) -> str:
    """The picture of a diagram: its `before`, its `after`, or both, one below the other."""
    panels: list[_Panel] = []
    y = _MARGIN
    drawings = [
        draw_view(diagram, getattr(diagram, name), explained=name == "after") for name in views
    ]
    width = max([620.0, *(d.width for d in drawings)]) + 2 * _MARGIN
    for name, drawing in zip(views, drawings, strict=True):
        view: View = getattr(diagram, name)
        heading = (
            Line(_MARGIN, y + 18, _title(diagram, name), "title"),
            Line(_MARGIN, y + 38, summarize_view(view), "subtitle"),
        )
        panels.append(_Panel(drawing.moved((width - drawing.width) / 2, y + _HEAD), heading))
        y += _HEAD + drawing.height + 2 * _MARGIN
    template = _environment().get_template("graph.svg.j2")
    return template.render(
        title=f"{diagram.name}: {' and '.join(views)} fusion",
        description=describe(diagram),
        width=width,
        height=y - _MARGIN,
        panels=panels,
    )


def _title(diagram: Diagram, name: str) -> str:
    if name == "before":
        return f"{diagram.name}, unfused: every stage is a kernel"
    return f"{diagram.name}, fused"


def summarize_view(view: View) -> str:
    """A view in one line: its kernels, the bytes it moves, its scratch memory."""
    count = view.launches
    scratch = show_bytes(view.scratch) if view.scratch != 0 else "no"
    return (
        f"{count} kernel{'s' if count != 1 else ''} · {show_bytes(view.bytes)} moved · "
        f"{scratch} scratch memory"
    )


def describe(diagram: Diagram) -> str:
    """The picture in words, for those who do not see it."""
    parts = [
        f"Inputs: {', '.join(diagram.inputs) or 'none'}. Outputs: {', '.join(diagram.outputs)}."
    ]
    for name, view in (("Unfused", diagram.before), ("Fused", diagram.after)):
        parts.append(f"{name}: {summarize_view(view).replace(' · ', ', ')}.")
    parts += [
        f"Kernel {kernel.label} computes {', '.join(s.name for s in kernel.steps)}."
        for kernel in diagram.after.kernels
    ]
    return " ".join(parts)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_path("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["n"] = _number
    environment.filters["path"] = _path
    environment.filters["arrow"] = _arrow
    return environment


def _number(value: float) -> str:
    """A coordinate, to a tenth."""
    return f"{value:.1f}".removesuffix(".0").replace("-0", "0") if abs(value) < 0.05 else (
        f"{value:.1f}".removesuffix(".0")
    )


def _path(curve: Curve) -> str:
    """A route as path data; it stops short of its end, where the arrow head is."""
    points = list(curve.points)
    x, y = points[-1]
    points[-1] = (x, y - _arrow_length(curve))
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
    """The head of an arrow that points down, at the end of a route."""
    x, y = curve.points[-1]
    length = _arrow_length(curve)
    half = length * 0.5
    corners = ((x - half, y - length), (x + half, y - length), (x, y))
    return "M" + "L".join(f"{_number(a)} {_number(b)}" for a, b in corners) + "Z"


def _arrow_length(curve: Curve) -> float:
    return 4.5 + 1.6 * curve.thickness
