"""Pictures of a graph, or of an operator, before and after fusion: SVG, DOT and text; and a page
that shows what each pass makes of it.

`diagram` says what there is to show, and `joint` how the stages of a kernel are joined. `blocks`
draws a kernel, `groups` the kernels of a group, and `compose` all of a view; `placing` keeps it to
the width of a page, and `ranking`, `ordering` and `layered` arrange boxes and links at all. `svg`,
`dot` and `text` write it; `page` writes the page of all `stops`. What was fused, and why, is
`dmlc.report`'s.
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
from dmlc.source import UnknownNameError, unknown_name

__all__ = ["FORMATS", "SUFFIXES", "VIEWS", "draw", "draw_page"]

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


def draw_page(trace: Trace, graph: Graph | None = None) -> str:
    """A page of HTML, in one file, that shows a function as it was bound, after each pass that
    changed it, in groups, and as kernels: `dmlc.pipeline.trace` gives these. A stage or a kernel
    that is pointed at has its formula, its place in the source and its generated kernel beside it.
    With the `graph` that was bound, the page says which of its calls a stage comes from.

    Raises `UnsupportedError` where there is more to show than a picture can hold legibly.
    """
    return write_page(trace, graph)
