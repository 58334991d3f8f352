"""Page that shows a function on its way to kernels: one picture per stop, a slider, and for the
stage or kernel under the pointer its formula, its source location and the generated kernel.

The page is one file: the template has its style and its script, and the script's data are in a
block of JSON. The script sets text and never markup.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from dmlc.binding import Graph
from dmlc.ir import Function, Stage
from dmlc.ir.print import print_stage
from dmlc.kernel.formula import describe_stage
from dmlc.picture.compose import draw_view
from dmlc.picture.diagram import Diagram, Kernel, Origins, list_calls, make_diagram
from dmlc.picture.lettering import show_bytes, show_sizes
from dmlc.picture.shapes import Drawing
from dmlc.picture.stops import Stop, list_stops
from dmlc.picture.summary import compare, describe, describe_traffic, describe_work
from dmlc.picture.svg import FILTERS, fold_view
from dmlc.report import Trace
from dmlc.source import Span
from dmlc.templates import load_template

_MOST_LINES = 16
"""Largest number of lines of the source that are quoted."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Scene:
    """Stop in the form of the template."""

    title: str
    about: str
    drawing: Drawing


def write_page(trace: Trace, graph: Graph | None = None) -> str:
    """Page of a function, as HTML. With the `graph` that was bound, it names the call of each
    stage.

    Raises `UnsupportedError` for more stages than a picture can show legibly.
    """
    calls = () if graph is None else list_calls(graph)
    diagram = make_diagram(trace.report, calls)
    stops, idle = list_stops(trace, diagram, Origins(calls))
    scenes = [
        _Scene(
            stop.title,
            stop.about,
            draw_view(
                diagram,
                fold_view(diagram, stop.view, stop.title),
                explained=stop.explained,
            ),
        )
        for stop in stops
    ]
    return load_template("graph.html.j2", FILTERS).render(
        name=diagram.name,
        description=describe(diagram),
        figures=compare(diagram, "after"),
        language=trace.program.language.title,
        profile=trace.program.profile.upper(),
        idle=idle,
        scenes=scenes,
        details=[_describe_stop(stop, diagram, trace) for stop in stops],
    )


def _describe_stop(stop: Stop, diagram: Diagram, trace: Trace) -> dict[str, Any]:
    """Details of each stage and each kernel of a stop, by their keys."""
    calls = {s.name: s.call for kernel in stop.view.kernels for s in kernel.steps}
    steps = dict.fromkeys(s.name for kernel in stop.view.kernels for s in kernel.steps)
    steps |= dict.fromkeys(m for k in stop.view.kernels for s in k.steps for m in s.members)
    stages = {s.name: s for s in stop.function.stages}
    details: dict[str, Any] = {
        f"stage {name}": _describe_stage(stop.function, stages[name], calls.get(name), diagram)
        for name in steps
        if name in stages
    }
    sources = {kernel.name: kernel.source for kernel in trace.program.kernels}
    for kernel in stop.view.kernels:
        name = "" if kernel.launch is None else kernel.launch.name
        names = [name] if stop.kernels else []
        if kernel.kind == "group":
            names = list(trace.report.after[int(kernel.label) - 1].kernels)
        source = "\n".join(sources[n] for n in names)
        details[f"kernel {kernel.label}"] = _describe_kernel(kernel, name, source)
    return details


def _describe_stage(
    function: Function, stage: Stage, call: str | None, diagram: Diagram
) -> dict[str, Any]:
    place, lines = "", ""
    if stage.span is not None:
        place = f"{stage.span.source.name}:{stage.span.line}:{stage.span.column}"
        lines = _quote(stage.span)
    origin = ""
    if call is not None:
        origin = f"{call}: {diagram.calls[call]}" if call in diagram.calls else call
    return {
        "title": stage.name,
        "type": f"{stage.dtype.short} {show_sizes(stage.extents)}",
        "call": origin,
        "formula": describe_stage(function, stage.name),
        "ir": "\n".join(print_stage(stage)),
        "place": place,
        "source": lines,
    }


def _quote(span: Span) -> str:
    """Source lines of a span, with their numbers; only the first of a long one."""
    first, last = span.line, span.source.locate(span.end)[0]
    shown = range(first, min(last, first + _MOST_LINES - 1) + 1)
    lines = [f"{line:>4} | {span.source.line_text(line)}" for line in shown]
    return "\n".join([*lines, *(["     | ..."] if last > shown[-1] else [])])


def _describe_kernel(kernel: Kernel, name: str, source: str) -> dict[str, Any]:
    unfused = kernel.launch is None and kernel.kind == "kernel"
    title = kernel.title.capitalize() + (f": {name}" if name else "")
    moves = [f"reads {t.tensor}: {t.text}" for t in kernel.reads]
    moves += [f"writes {t.tensor}: {t.text}" for t in kernel.writes]
    if kernel.inside:
        moves.append(f"reads back {show_bytes(sum(m.read or 0 for m in kernel.inside))}")
    return {
        "title": "As a kernel of its own" if unfused else title,
        "work": "" if unfused else "; ".join([*describe_work(kernel), *describe_traffic(kernel)]),
        "reason": kernel.reason.replace("%", ""),
        "moves": moves,
        "code": source,
    }
