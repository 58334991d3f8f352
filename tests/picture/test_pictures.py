"""SVG, DOT and text: all that is to be seen is there, once, and nothing lies over anything else."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import xml.etree.ElementTree as ET
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.picture import FORMATS, VIEWS, draw
from dmlc.picture.compose import WIDEST, draw_view
from dmlc.picture.diagram import (
    Diagram,
    Kernel,
    Step,
    View,
    find_view,
    list_calls,
    make_diagram,
)
from dmlc.picture.dot import write_dot
from dmlc.picture.lettering import measure
from dmlc.picture.shapes import Drawing, Line, Shape
from dmlc.picture.svg import write_svg
from dmlc.picture.text import write_text
from dmlc.pipeline import explain
from dmlc.source import UnknownNameError, UnsupportedError
from tests.graphs import graphs
from tests.picture.samples import (
    GRAPHS,
    INDEX_ONLY,
    OPEN,
    SHIFTED,
    SMALL,
    explain_residual,
    load_graph,
    make_chain,
)

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {"title": 17.0, "subtitle": 13.5, "name": 12.5, "small": 11.0, "code": 10.5}


def draw_residual(form: str, views: tuple[str, ...] = VIEWS) -> str:
    return draw(explain_residual(), form, views, load_graph("residual_block_backward"))


@functools.cache
def diagrams() -> tuple[Diagram, ...]:
    functions = [*map(ir.parse, (SMALL, SHIFTED, OPEN, INDEX_ONLY)), make_chain(9)]
    residual = make_diagram(explain_residual(), list_calls(load_graph("residual_block_backward")))
    return (residual, *(make_diagram(explain(f)) for f in functions))


# Layout -------------------------------------------------------------------------------------------


def check_shapes(shapes: tuple[Shape, ...]) -> None:
    """Frames hold what is in them; nothing else overlaps but tags and the box they are on; text
    stays in its shape, and off others."""
    frames = [s for s in shapes if s.style == "kernel"]
    groups = [s for s in shapes if s.style == "group"]
    tags = [s for s in shapes if s.style.split()[0] in ("read", "write")]
    others = [s for s in shapes if s not in frames and s not in tags and s not in groups]
    for kind in (frames, groups, tags, others):
        for a, b in itertools.combinations(kind, 2):
            assert not overlap(a, b), (a, b)
    for outer, inner in ((frames, others), (groups, [*frames, *tags, *others])):
        for frame, other in itertools.product(outer, inner):
            if overlap(frame, other):
                assert frame.x < other.x
                assert other.x + other.width < frame.x + frame.width
                assert frame.y < other.y
                assert other.y + other.height < frame.y + frame.height
    for tag, other in itertools.product(tags, others):
        if overlap(tag, other):
            # On the rim of a kernel that is a single stage, over no text of it.
            assert "alone" in other.style
            lines = [line.y for line in other.lines]
            top, bottom = min(lines) - 11, max(lines) + 3
            assert tag.y + tag.height <= top or tag.y >= bottom
    for shape in shapes:
        for line in shape.lines:
            check_line(line, shape)
    for frame in (*frames, *groups):
        inner = [s for s in shapes if s is not frame and s not in groups]
        for line, other in itertools.product(frame.lines, [*tags, *others] if inner else []):
            width = width_of(line.text, line.style)
            assert not overlap(Shape(line.x, line.y - 9, width, 11, "", ()), other), (line, other)


def check_line(line: Line, shape: Shape) -> None:
    half = width_of(line.text, line.style) / 2
    left = line.x - half if "middle" in line.style else line.x
    assert left >= shape.x - 0.5
    assert left + 2 * half <= shape.x + shape.width + 0.5
    assert shape.y + 8 < line.y < shape.y + shape.height - 2


def check_drawing(drawing: Drawing) -> None:
    """No wider than a page, and everything is in it."""
    check_shapes(drawing.shapes)
    assert drawing.width <= WIDEST + 0.05
    for shape in drawing.shapes:
        assert shape.x >= 0
        assert shape.y >= 0
        assert shape.x + shape.width <= drawing.width + 0.05
        assert shape.y + shape.height <= drawing.height + 0.05
    for curve in drawing.curves:
        for x, y in curve.points:
            assert -0.05 <= x <= drawing.width + 0.05
            assert -0.05 <= y <= drawing.height + 0.05


def check_kernels(drawing: Drawing, view: View) -> None:
    """A box for each kernel, with all its stages and transfers in it."""
    boxes = [s for s in drawing.shapes if s.style == "kernel" or "alone" in s.style]
    assert sorted(s.home for s in boxes) == sorted(k.label for k in view.kernels)
    for kernel in view.kernels:
        own = [s for s in drawing.shapes if s.home == kernel.label and s.style != "kernel"]
        stages = [s for s in own if s.style.split()[0] in ("stage", "fold")]
        assert [s.key for s in stages] == [f"stage {step.name}" for step in kernel.steps]
        known = {step.name for step in kernel.steps}, {t.tensor for t in kernel.reads}
        for wire in kernel.wires:
            assert wire.target in known[0]
            assert wire.source in known[wire.from_memory]
        used = {w.source for w in kernel.wires} | {t.step for t in kernel.writes}
        assert known[0] | known[1] <= used
    tags = Counter(
        s.style.split()[0] for s in drawing.shapes if s.style.split()[0] in ("read", "write")
    )
    assert tags["read"] == sum(len(k.reads) for k in view.kernels)
    assert tags["write"] == sum(len(k.writes) for k in view.kernels)


def width_of(text: str, style: str) -> float:
    styles = style.split()
    bold = styles[0] in ("name", "title") or "strong" in styles
    return measure(text, SIZES[styles[0]], bold=bold, code=styles[0] == "code")


def overlap(a: Shape, b: Shape) -> bool:
    across = a.x + 0.05 < b.x + b.width and b.x + 0.05 < a.x + a.width
    return across and a.y + 0.05 < b.y + b.height and b.y + 0.05 < a.y + a.height


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("diagram", diagrams(), ids=lambda d: d.name)
def test_nothing_lies_over_anything(diagram: Diagram, view: str) -> None:
    drawing = draw_view(diagram, find_view(diagram, view), explained=view == "after")
    check_drawing(drawing)
    check_kernels(drawing, find_view(diagram, view))


@functools.cache
def make_example(name: str, target: str) -> Diagram:
    """The diagram of an example graph, for a CPU or for a GPU."""
    graph = load_graph(name)
    function = graph.bind(dims={name: SIZES_OF_GRAPHS.get(name, 64) for name in graph.symbols})
    return make_diagram(explain(function, target), list_calls(graph))


SIZES_OF_GRAPHS = {"C": 16, "H": 16, "W": 16, "K": 10, "D": 48}
"""Those of symbols that are not 64."""


@pytest.mark.grid(3)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("target", ["opencl", "hlsl"])
@pytest.mark.parametrize("name", [path.stem for path in sorted(GRAPHS.glob("*.dml"))])
def test_example_graphs_fit_a_page(name: str, target: str, view: str) -> None:
    diagram = make_example(name, target)
    shown = find_view(diagram, view)
    drawing = draw_view(diagram, shown, explained=view == "after")
    check_drawing(drawing)
    check_kernels(drawing, shown)
    width = float(ET.fromstring(write_svg(diagram, (view,))).get("width", "0"))
    assert width <= 960
    if view == "after":
        # Work and parallelism are said of each.
        texts = [line.text for shape in drawing.shapes for line in shape.lines]
        assert sum("float" in t for t in texts) >= len(shown.kernels)
        item = "threads in" if target == "hlsl" else "work item"
        assert sum(item in t for t in texts) == len(shown.kernels)


@st.composite
def functions(draw: st.DrawFn) -> ir.Function:
    """Stages over rows, which read any before them: element by element, or a row's sum."""
    names = {"x": False, "y": False}
    lines: list[str] = []
    for number in range(draw(st.integers(1, 14))):
        chosen = draw(st.lists(st.sampled_from(list(names)), min_size=1, max_size=3, unique=True))
        folds = draw(st.booleans())
        across = "r1" if folds else "i1"
        reads = [f"%{n}[i0, {0 if names[n] else across}]" for n in chosen]
        body = reads[0]
        for read in reads[1:]:
            body = f"max({body}, {read})"
        if folds:
            lines.append(f"%s{number}: f32[i0 < 8, i1 < 1] = sum[r1 < 32] {body}")
        else:
            lines.append(f"%s{number}: f32[i0 < 8, i1 < 32] = exp({body})")
        names[f"s{number}"] = folds
    results = draw(st.lists(st.sampled_from(list(names)[2:]), min_size=1, max_size=4, unique=True))
    given_names = ", ".join(f"%{n}: f32[8, 32]" for n in ("x", "y"))
    wanted = ", ".join(f"%{n}" for n in results)
    return ir.parse(f"func @f({given_names}) -> ({wanted}) {{\n" + "\n".join(lines) + "\n}")


@settings(max_examples=25, deadline=None)
@given(st.one_of(functions(), graphs(16)), st.sampled_from(["opencl", "hlsl"]))
def test_nothing_lies_over_anything_in_random_graphs(function: ir.Function, target: str) -> None:
    report = explain(function, target)
    diagram = make_diagram(report)
    for name in VIEWS:
        view = find_view(diagram, name)
        drawing = draw_view(diagram, view, explained=name == "after")
        check_drawing(drawing)
        check_kernels(drawing, view)
    assert diagram.after.read_bytes == sum((w.traffic() or (0, 0))[0] for w in report.after)


def make_wide(count: int, results: int) -> ir.Function:
    """A sum of many inputs with long names, and results that read many at once."""
    names = [f"an_input_with_quite_a_long_name_of_its_own_{n}" for n in range(count)]
    inputs = ", ".join(f"%{name}: f32[64, 4096]" for name in names)
    lines: list[str] = []
    body = f"%{names[0]}[i0, i1]"
    for name in names[1:]:
        body = f"add({body}, %{name}[i0, i1])"
    lines.append(f"%all: f32[i0 < 64, i1 < 4096] = {body}")
    for n in range(results):
        body = f"mul(%all[i0, sub(4095, i1)], %{names[n % count]}[i0, i1])"
        lines.append(f"%result_{n}: f32[i0 < 64, i1 < 4096] = {body}")
        lines.append(f"%sum_{n}: f32[i0 < 64] = sum[r1 < 4096] %result_{n}[i0, r1]")
    wanted = ", ".join(f"%sum_{n}, %result_{n}" for n in range(results))
    return ir.parse(f"func @wide({inputs}) -> ({wanted}) {{\n" + "\n".join(lines) + "\n}")


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
@pytest.mark.parametrize(("count", "results"), [(2, 1), (9, 3), (24, 4)])
def test_many_tensors_get_several_rows(count: int, results: int, target: str) -> None:
    diagram = make_diagram(explain(make_wide(count, results), target))
    for name in VIEWS:
        view = find_view(diagram, name)
        drawing = draw_view(diagram, view, explained=name == "after")
        check_drawing(drawing)
        check_kernels(drawing, view)
        names = "".join(t.text for s in drawing.shapes for t in s.lines)
        for n in range(count):
            assert f"_of_its_own_{n}" in names
        assert "…" not in names


# SVG ----------------------------------------------------------------------------------------------


def test_an_svg_stands_by_itself() -> None:
    text = draw_residual("svg")
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    width, height = (float(root.get(side, "0")) for side in ("width", "height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text == "residual_block_backward: before and after fusion"
    assert description is not None
    assert description.text is not None
    assert "Fused: 1 kernel, 231 MB moved, no scratch memory." in description.text
    assert "Kernel 1 computes dy, masked," in description.text
    assert "@media (prefers-color-scheme: dark)" in text
    for foreign in ("<script", "@import", "url(", "href", "<image", "font-face"):
        assert foreign not in text
    for element in root.iter(f"{SVG}text"):
        x, y = float(element.get("x", "")), float(element.get("y", ""))
        style, content = element.get("class", ""), element.text or ""
        half = width_of(content, style) / 2
        left = x - half if "middle" in style else x
        assert left >= 0
        assert left + 2 * half <= width
        assert 0 < y < height
    colours = set(re.findall(r"\.dmlc-graph ([\w.]+)", text))
    used = {
        c for e in root.iter() for c in (e.get("class") or "").split() if c not in ("dmlc-graph",)
    }
    known = {part for colour in colours for part in colour.split(".")}
    assert used <= known | {"text", "memory"}


def test_an_svg_shows_every_stage_and_every_transfer() -> None:
    diagram = make_diagram(explain_residual())
    for name in VIEWS:
        root = ET.fromstring(draw_residual("svg", (name,)))
        texts = [e.text for e in root.iter(f"{SVG}text")]
        bold = [e.text for e in root.iter(f"{SVG}text") if "name" in (e.get("class") or "")]
        view = find_view(diagram, name)
        for kernel in view.kernels:
            for step in kernel.steps:
                ends = (step.name in diagram.outputs) + 1
                assert bold.count(step.name) == ends, step.name
            for transfer in (*kernel.reads, *kernel.writes):
                assert transfer.text in texts
        assert all(name in bold for name in (*diagram.inputs, *diagram.outputs))
        lines = [e for e in root.iter(f"{SVG}path") if "line" in (e.get("class") or "")]
        inner = sum(len(k.wires) + len(k.writes) for k in view.kernels)
        outer = sum(len(k.reads) for k in view.kernels) + len(diagram.outputs)
        assert len(lines) == outer + (inner if name == "after" else 0)
        stripes = [e for e in root.iter(f"{SVG}path") if "stripe" in (e.get("class") or "")]
        assert len(stripes) == 7
        assert "masked: ACTIVATION_RELU_GRAD" in texts


def test_what_is_far_away_is_named_again() -> None:
    text = draw(explain(make_chain(40)), "svg", ("after",))
    root = ET.fromstring(text)
    again = [e for e in root.iter(f"{SVG}rect") if e.get("class") == "again"]
    assert len(again) > 20


def test_what_several_kernels_compute_is_marked() -> None:
    diagram = make_diagram(explain(ir.parse(SHIFTED)))
    counts = Counter(s.name for k in diagram.after.kernels for s in k.steps)
    text = draw(explain(ir.parse(SHIFTED)), "svg", ("after",))
    assert text.count(", again<") == sum(counts.values()) - len(counts) > 0


def test_names_are_whole_and_markup_is_escaped() -> None:
    name = "a" * 30 + "b" * 30
    function = ir.parse(f"func @f(%X: f32[4]) -> (%{name}) {{ %{name}: f32[i0 < 4] = %X[i0] }}")
    root = ET.fromstring(draw(explain(function)))
    texts = "".join(e.text or "" for e in root.iter(f"{SVG}text"))
    # In both views as a stage, in its tag, and as an output; and in the reason for its kernel.
    assert texts.count(name) == 7
    assert "…" not in texts
    compared = ir.parse(
        "func @g(%X: f32[4]) -> (%Y) { %Y: f32[i0 < 4] = select(lt(%X[i0], 0.0), 0.0, %X[i0]) }"
    )
    assert "= (X &lt; 0) ? 0 : X" in draw(explain(compared))


def test_large_graphs_are_folded() -> None:
    text = draw(explain(make_chain(90)), "svg", ("after",))
    assert "a chain of 90 stages" in text


def test_what_nobody_could_read_is_refused() -> None:
    diagram = make_diagram(explain(ir.parse(OPEN)))
    kernels = tuple(
        Kernel(str(n), 1, (Step(f"s{n}", "sum of x", "f32", (8,), True),), (), (), ())
        for n in range(1401)
    )
    large = dataclasses.replace(diagram, before=View(kernels, 0))
    with pytest.raises(UnsupportedError) as raised:
        write_svg(large, ("before",))
    assert str(raised.value) == (
        "error: 'negate' has 1,401 stages before fusion, and 1,401 with its chains folded: more "
        "than the 400 that a picture can show legibly [E0901]\n"
        "  note: show it as text or DOT, or only after fusion, or draw a part of it"
    )
    assert write_svg(large, ("after",)).startswith("<svg")
    for write in (write_dot, write_text):
        assert write(large).count("s1400") >= 1


# DOT and text -------------------------------------------------------------------------------------


def test_dot_has_a_cluster_for_each_kernel() -> None:
    text = draw_residual("dot")
    assert text.count("subgraph") == 2 + 8 + 1
    assert text.count("{") == text.count("}")
    assert '"after.0.bn_centered" [label="bn_centered\\n= x - mean\\nf32 ' in text
    assert '"after.0.masked" -> "after.0.dbias" [style=dashed];' in text
    assert '"before.input.x" -> "before.2.bn_centered" [label="x\\n25.7 MB"];' in text
    assert '"before.1.masked" -> "before.4.dbias" [label="masked\\n25.7 MB"];' in text
    assert '"after.0.dx" -> "after.output.dx" [label="dx\\n25.7 MB"];' in text
    defined = set(re.findall(r'^ *("[^"]*") \[', text, re.MULTILINE))
    ends = set(re.findall(r'("[^"]*") ->|-> ("[^"]*")', text))
    assert {e for pair in ends for e in pair if e} <= defined
    alone = draw_residual("dot", ("after",))
    assert alone.count("subgraph") == 2


def test_text_of_a_small_function() -> None:
    times = "\N{MULTIPLICATION SIGN}"
    assert (
        draw(explain(ir.parse(SMALL)), "text")
        == f"""\
smooth
  inputs   X f32 64{times}32, bias f32 32
  outputs  Y f32 64{times}32

before fusion: 4 kernels · 50.3 KB moved · 8.4 KB of scratch memory
     1   in   8.2 KB   out    256 B  m = max over axis 1 of X
     2   in   8.4 KB   out   8.2 KB  e = exp(X - m)
     3   in   8.2 KB   out    256 B  s = sum over axis 1 of e
     4   in   8.6 KB   out   8.2 KB  Y = e / s + bias

after fusion: 1 kernel instead of 4 · 41.1 KB moved instead of 50.3 KB ·
              8.2 KB of scratch memory instead of 8.4 KB
     1   in  24.7 KB   out  16.4 KB  e, Y
         computes  m, s
         reads     X 2 {times} 8.2 KB, bias 128 B
         writes    e 8.2 KB, Y 8.2 KB
         work      1 work item; at most 512 steps each; 12.3 k float operations;
                   each computes 64 outputs
         because   m is a reduction (max); e is stored, which takes as long as moving 24.8 KiB: to
                   compute it wherever it is read takes as long as 33.6 KiB; e is stored in the same
                   loops; s is computed beside it; Y is computed from it at once
"""
    )


@pytest.mark.parametrize("diagram", diagrams(), ids=lambda d: d.name)
def test_text_fits_a_terminal_and_says_all(diagram: Diagram) -> None:
    text = write_text(diagram)
    assert max(len(line) for line in text.splitlines()) <= 100
    words = set(re.findall(r"\w+", text))
    assert {s.name for k in diagram.after.kernels for s in k.steps} <= words
    assert {*diagram.inputs, *diagram.outputs} <= words


def test_unknown_formats_and_views_are_named() -> None:
    report = explain(ir.parse(OPEN))
    with pytest.raises(UnknownNameError, match="unknown format 'pgn'"):
        draw(report, "pgn")
    with pytest.raises(UnknownNameError, match="unknown view 'befor'"):
        draw(report, "svg", ("befor",))
    assert all(draw(report, form) for form in FORMATS)
