"""The page of all passes: one file, every shape told of, and text that stays text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import dmlc
from dmlc import ir
from dmlc.picture import draw_page
from dmlc.picture.diagram import Origins, make_diagram
from dmlc.picture.stops import ABOUT, describe_change, list_stops
from dmlc.pipeline import list_passes, trace
from dmlc.source import UnsupportedError
from dmlc.transform.rewrite import PASSES
from tests.picture.samples import OPEN, load_graph, make_chain

DIMS = {"N": 32, "C": 64, "H": 56, "W": 56}


class Page(HTMLParser):
    """A page taken apart: its tags, the shapes of each section, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.sections: list[list[dict[str, str]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if tag == "section":
            self.sections.append([])
        if "data-key" in found:
            self.sections[-1].append(found)
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        (self.scripts if self._in_script else self.texts).append(data)

    @property
    def details(self) -> list[dict[str, Any]]:
        return json.loads(self.scripts[0])


@pytest.fixture(scope="module", params=["opencl", "hlsl"])
def residual(request: pytest.FixtureRequest) -> tuple[Any, str]:
    graph = load_graph("residual_block_backward")
    found = trace(graph.bind(dims=DIMS), request.param)
    return found, draw_page(found, graph)


def test_a_page_stands_by_itself(residual: tuple[Any, str]) -> None:
    page = Page(residual[1])
    assert residual[1].startswith("<!DOCTYPE html>")
    links = [a for _, attrs in page.tags for a in attrs if a in ("src", "href", "srcset", "action")]
    assert not links
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp|innerHTML|eval\(", residual[1])
    places = set(re.findall(r"\w+://[^\"' ]*", residual[1]))
    assert places == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme: dark" in residual[1]
    data, script = page.scripts
    assert json.loads(data)
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    asked = set(re.findall(r'getElementById\("([^"]+)"\)', script))
    assert asked
    assert asked <= ids


def test_every_stage_and_kernel_is_told_of(residual: tuple[Any, str]) -> None:
    found, text = residual
    page = Page(text)
    titles = [a["aria-label"] for tag, a in page.tags if tag == "section"]
    assert titles == ["as bound", "after take_out_factors", "fused groups", "kernels"]
    assert len(page.details) == len(titles)
    for shapes, details in zip(page.sections, page.details, strict=True):
        assert shapes
        for shape in shapes:
            # They can be reached by keyboard, and a reader says what they are.
            assert shape["tabindex"] == "0"
            assert shape["role"] == "button"
            assert shape["aria-label"]
            assert details[shape["data-key"]]["title"]
            assert details[f"kernel {shape['data-home']}"]["moves"]
    bound, *_, fused, kernels = page.details
    stage = bound["stage dbias"]
    assert stage["formula"].startswith("dbias[i0, i1, i2, i3] = sum[r0 < 32")
    assert stage["call"] == "bn: BATCH_NORMALIZATION_TRAINING_GRAD"
    assert re.search(r"residual_block_backward\.dml:\d+:\d+$", stage["place"])
    assert "directml.BATCH_NORMALIZATION_TRAINING_GRAD(" in stage["source"]
    assert stage["ir"].startswith("%dbias: f32[")
    codes = [k["code"] for key, k in kernels.items() if key.startswith("kernel ")]
    assert codes == [kernel.source for kernel in found.program.kernels]
    groups = [k["code"] for key, k in fused.items() if key.startswith("kernel ")]
    assert "\n".join(groups) == "\n".join(codes)
    assert all(not k["code"] for key, k in bound.items() if key.startswith("kernel "))
    assert "float operations" in kernels["kernel 1"]["work"]


def test_the_slider_goes_over_all_stops(residual: tuple[Any, str]) -> None:
    page = Page(residual[1])
    (slider,) = (a for tag, a in page.tags if a.get("type") == "range")
    assert (slider["min"], slider["max"]) == ("0", str(len(page.sections) - 1))
    assert slider["aria-label"]
    buttons = [a["data-stop"] for tag, a in page.tags if tag == "button" and "data-stop" in a]
    assert buttons == [str(n) for n in range(len(page.sections))]
    idle = next(t for t in page.texts if t.startswith("Passes that changed nothing"))
    assert set(re.findall(r"\w+", idle)) >= {*PASSES} - {"take_out_factors"}


HOSTILE = """// </script><script>alert(1)</script>
graph g(a: FLOAT32[8, 8], b: FLOAT32[8, 8]) {
    output y = a < b && b > 0 ? a : 0   // </script> <b> & "quotes" 'more' <!--
    output s = sum(y * // </script><i>&amp;"'
        b, axes: [1])
}"""


def test_text_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "a<b>&\"c'.dml"
    path.write_text(HOSTILE, "utf-8")
    graph = dmlc.load(path).graphs["g"]
    text = draw_page(trace(graph.bind(), "opencl"), graph)
    page = Page(text)
    assert text.count("</script>") == text.count("<script") == 2
    assert "<!--" not in text
    assert "<i>" not in text
    assert "<b>" not in text
    assert "alert" not in text
    stage = page.details[0]["stage s"]
    assert stage["source"] == "\n".join(
        f"{n:>4} | {line}" for n, line in enumerate(HOSTILE.splitlines()[3:5], 4)
    )
    assert stage["place"] == f"{path}:4:5"
    assert "a[i0, i1] < b[i0, i1] && b[i0, i1] > 0" in page.details[0]["stage y"]["formula"]
    label = next(s["aria-label"] for s in page.sections[0] if s["data-key"] == "stage y")
    assert label == "y = (a < b && b > 0) ? a : 0"
    assert any("(a < b && b > 0) ? a : 0" in t for t in page.texts)


def test_passes_that_changed_something_are_stops() -> None:
    function = load_graph("conv_net_training_step").bind(
        dims={"N": 64, "C": 3, "H": 32, "W": 32, "F": 4, "K": 10}
    )
    found = trace(function, "hlsl")
    assert [name for name, _ in found.passes] == list(PASSES)
    assert dict(found.passes) == dict(list_passes(function, "hlsl"))
    stops, idle = list_stops(found, make_diagram(found.report), Origins(()))
    titles = [s.title.removeprefix("after ") for s in stops]
    assert sorted([*titles[1:-2], *idle]) == sorted(PASSES)
    assert {"simplify", "take_out_factors"} <= set(titles)
    for stop in stops[1:-2]:
        assert [s.name for k in stop.view.kernels for s in k.steps] == [
            s.name for s in stop.function.stages
        ]
    groups, kernels = stops[-2:]
    assert len(groups.view.kernels) == len(found.report.after)
    assert len(kernels.view.kernels) == len(found.program.kernels) > len(groups.view.kernels)
    assert groups.view.kernels[0].title == "group 1"
    assert set(ABOUT) == set(PASSES)


def test_changes_are_named() -> None:
    first = ir.parse(
        "func @f(%X: f32[4]) -> (%Y) { %a: f32[i0 < 4] = neg(%X[i0]) "
        "%b: f32[i0 < 4] = exp(%a[i0]) %Y: f32[i0 < 4] = abs(%b[i0]) }"
    )
    second = ir.parse(
        "func @f(%X: f32[4]) -> (%Y) { %c: f32[i0 < 4] = neg(%X[i0]) "
        "%b: f32[i0 < 4] = exp(%c[i0]) %Y: f32[i0 < 4] = abs(%b[i0]) }"
    )
    assert describe_change(first, second) == "New: c. Changed: b. Gone: a."
    assert describe_change(first, first) == "Its stages are the same."


def test_sizes_that_are_open_and_graphs_that_are_large() -> None:
    assert "ceil(n / " in draw_page(trace(ir.parse(OPEN), "hlsl"))
    page = Page(draw_page(trace(make_chain(90))))
    assert any("a chain of 90 stages" in t for t in page.texts)
    with pytest.raises(UnsupportedError, match=r"show it as text or DOT, or draw a part of it"):
        draw_page(trace(make_many(420)))


def make_many(count: int) -> ir.Function:
    """Stages that form no chain."""
    lines = [f"%s{n}: f32[i0 < 8] = mul(%x[i0], {n}.0)" for n in range(count)]
    results = ", ".join(f"%s{n}" for n in range(count))
    return ir.parse(f"func @many(%x: f32[8]) -> ({results}) {{\n" + "\n".join(lines) + "\n}")
