"""Pictures of a graph, or of an operator, before and after fusion: SVG, DOT and text; and a page
that shows the result of each pass.

`diagram` has the contents, and `joint` the data flow inside a kernel. `blocks` draws a kernel,
`groups` the kernels of a group, and `compose` a whole view; `placing` limits its width, and
`ranking`, `ordering` and `layered` lay out boxes and links in general. `svg`, `dot` and `text`
write it; `page` writes the page of all `stops`. `dmlc.report` has the fusion decisions and their
reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.binding import Graph
from dmlc.picture.diagram import VIEWS, list_calls, make_diagram
from dmlc.picture.dot import write_dot
from dmlc.picture.page import write_page
from dmlc.picture.svg import write_svg
from dmlc.picture.text import write_text
from dmlc.report import Report, Trace
from dmlc.source import check_known, find_named

__all__ = ["FORMATS", "SUFFIXES", "VIEWS", "draw", "draw_page"]

FORMATS = ("svg", "dot", "text")

SUFFIXES = {".svg": "svg", ".dot": "dot", ".gv": "dot", ".txt": "text"}
"""Formats by the suffix of a file."""

_WRITERS = {"svg": write_svg, "dot": write_dot, "text": write_text}


def draw(
    report: Report,
    form: str = "svg",
    views: Sequence[str] = VIEWS,
    graph: Graph | None = None,
) -> str:
    """Picture of a compiled function, in one of `FORMATS`.

    `views` are `before`, where every stage is a kernel, and `after` fusion. With the `graph` that
    was bound, it names the call of each stage. Raises `UnknownNameError` for another format or
    view, and `UnsupportedError` for more stages than an SVG can show legibly.
    """
    write = find_named("format", form, _WRITERS)
    check_known("view", VIEWS, *views)
    calls = () if graph is None else list_calls(graph)
    return write(make_diagram(report, calls), views)


def draw_page(trace: Trace, graph: Graph | None = None) -> str:
    """Page of HTML, in one file, that shows a function as it was bound, after each pass that
    changed it, in groups, and as kernels: `dmlc.pipeline.trace` gives these.

    The stage or kernel under the pointer is shown with its formula, its source location and its
    generated kernel. With the `graph` that was bound, the page names the call of each stage. Raises
    `UnsupportedError` for more stages than a picture can show legibly.
    """
    return write_page(trace, graph)
