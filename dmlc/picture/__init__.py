"""Pictures of a graph, or of an operator, before and after fusion: SVG, DOT and text.

`diagram` says what there is to show, `compose` where it goes on a plane, `layered` and `ordering`
how boxes and links are arranged at all; `svg`, `dot` and `text` write it. What was fused, and why,
is `dmlc.report`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.binding import Graph
from dmlc.picture.diagram import VIEWS, list_calls, make_diagram
from dmlc.picture.dot import write_dot
from dmlc.picture.svg import write_svg
from dmlc.picture.text import write_text
from dmlc.report import Report
from dmlc.source import UnknownNameError, unknown_name

__all__ = ["FORMATS", "SUFFIXES", "VIEWS", "draw"]

FORMATS = ("svg", "dot", "text")

SUFFIXES = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".txt": "text"}
"""What the end of a file's name says of its format."""

_WRITERS = {"svg": write_svg, "dot": write_dot, "text": write_text}


def draw(
    report: Report,
    form: str = "svg",
    views: Sequence[str] = VIEWS,
    graph: Graph | None = None,
) -> str:
    """The picture of what a function was compiled to, in one of `FORMATS`. `views` are `before`,
    where every stage is a kernel, and `after` fusion. With the `graph` that was bound, it says
    which of its calls a stage comes from.

    Raises `UnknownNameError` for another format or view, and `UnsupportedError` where there is
    more to show than an SVG can hold legibly.
    """
    if form not in _WRITERS:
        raise UnknownNameError(unknown_name("format", form, dict.fromkeys(FORMATS)))
    for view in views:
        if view not in VIEWS:
            raise UnknownNameError(unknown_name("view", view, dict.fromkeys(VIEWS)))
    calls = () if graph is None else list_calls(graph)
    return _WRITERS[form](make_diagram(report, calls), views)
