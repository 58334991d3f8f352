"""`dmlc graph`: text by default, files by the end of their names, graphs and operators."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from tests.cli.conftest import Dmlc

GRAPHS = Path(__file__).resolve().parent.parent.parent / "examples" / "graphs"
RESIDUAL = GRAPHS / "residual_block_backward.dml"
DIMS = [word for dim in ("N=32", "C=64", "H=56", "W=56") for word in ("--dim", dim)]


def test_text_is_the_default(dmlc: Dmlc) -> None:
    done = dmlc("graph", RESIDUAL, *DIMS)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0] == "residual_block_backward"
    assert "before fusion: 8 kernels · 411 MB moved · 51.4 MB of scratch memory" in lines
    assert "after fusion: 1 kernel instead of 8 · 231 MB moved instead of 411 MB ·" in lines
    assert dmlc("graph", RESIDUAL, *DIMS, "--format", "text").out == done.out


def test_the_end_of_the_name_says_the_format(dmlc: Dmlc) -> None:
    for name, start in (("a.svg", "<svg "), ("b.gv", "digraph"), ("c.txt", "residual")):
        done = dmlc("graph", RESIDUAL, *DIMS, "-o", name)
        assert (done.status, done.out.strip()) == (0, name)
        assert Path(name).read_text("utf-8").startswith(start)
    assert dmlc("graph", RESIDUAL, *DIMS, "--format", "dot", "-o", "folder/picture.svg").status == 0
    assert Path("folder/picture.svg").read_text("utf-8").startswith("digraph")
    root = ET.fromstring(Path("a.svg").read_text("utf-8"))
    assert "masked: ACTIVATION_RELU_GRAD" in {e.text for e in root.iter()}


def test_one_view(dmlc: Dmlc) -> None:
    after = dmlc("graph", RESIDUAL, *DIMS, "--view", "after").out
    assert "before fusion" not in after
    assert "after fusion" in after
    assert "after fusion" not in dmlc("graph", RESIDUAL, *DIMS, "--view", "before").out


def test_an_operator_is_a_small_graph(dmlc: Dmlc) -> None:
    done = dmlc("graph", "onednn.SoftMax", "--tensor", "src=FLOAT32[8,100]", "--attr", "axis=1",
                "--target", "hlsl", "--profile", "gpu")  # fmt: skip
    assert done.status == 0, done.err
    assert done.out.startswith("SoftMax\n  inputs   src f32 8")


def test_symbols_that_are_left_open(dmlc: Dmlc) -> None:
    done = dmlc("graph", RESIDUAL, "--dim", "C=64")
    assert done.status == 0, done.err
    assert "x f32 N\u00d764\u00d7H\u00d7W" in done.out


def test_a_page_of_all_passes(dmlc: Dmlc) -> None:
    done = dmlc("graph", RESIDUAL, *DIMS, "--target", "hlsl", "--html", "-o", "graph.html")
    assert (done.status, done.out.strip()) == (0, "graph.html")
    text = Path("graph.html").read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "RWStructuredBuffer" in text
    assert "get_global_id" not in text
    given = ("graph", RESIDUAL, *DIMS)
    printed = dmlc(*given, "--html").out
    assert printed == dmlc(*given, "--format", "html").out
    assert "get_g" in printed
    assert dmlc(*given, "-o", "other.htm").status == 0
    assert Path("other.htm").read_text("utf-8") == printed
    # Whatever the file is called, --html says what it is.
    assert dmlc(*given, "--html", "-o", "a.svg").status == 0
    assert Path("a.svg").read_text("utf-8") == printed


def test_mistakes(dmlc: Dmlc) -> None:
    assert dmlc("graph", RESIDUAL, *DIMS, "--format", "png").status == 2
    done = dmlc("graph", RESIDUAL, *DIMS, "-o", "/proc/none/a.svg")
    assert done.status == 1
    assert done.err.startswith("error: cannot write '/proc/none'")
    done = dmlc("graph", RESIDUAL, *DIMS, "--html", "--view", "after")
    assert (done.status, "--view does not go with HTML, which shows all views" in done.err) == (
        2,
        True,
    )
    done = dmlc("graph", RESIDUAL, *DIMS, "--html", "--format", "svg")
    assert done.status == 2
    assert "--html and --format svg do not go together" in done.err
