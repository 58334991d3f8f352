"""Chains of large graphs as one step."""

from __future__ import annotations

import pytest

from dmlc.picture.diagram import View, make_diagram
from dmlc.picture.fold import count_steps, find_chains, fold_chains
from dmlc.pipeline import explain
from tests.picture.samples import make_chain


def test_chains_end_where_others_read() -> None:
    names = list("abcdefgh")
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("d", "f"), ("f", "g"), ("g", "h")]
    assert find_chains(names, pairs, []) == [("a", "b", "c", "d"), ("f", "g", "h")]
    assert find_chains(names, pairs, ["b"]) == [("f", "g", "h")]
    assert find_chains(list("abc"), [("a", "b"), ("b", "c")], ["a"]) == []
    assert find_chains(["a", "b", "d"], [("a", "b"), ("b", "c"), ("c", "d")], []) == []


def fold(count: int, outputs: int, which: str) -> tuple[View, View]:
    diagram = make_diagram(explain(make_chain(count, outputs)))
    view: View = getattr(diagram, which)
    return view, fold_chains(view, diagram.outputs)


def test_a_chain_in_a_kernel() -> None:
    whole, folded = fold(10, 2, "after")
    assert count_steps(whole) == 10
    (kernel,) = folded.kernels
    assert [s.name for s in kernel.steps] == ["s8", "s9"]
    assert kernel.steps[0].members == tuple(f"s{n}" for n in range(9))
    assert kernel.steps[0].formula == "a chain of 9 stages, from s0 to s8"
    assert {(w.source, w.target) for w in kernel.wires} == {
        ("x", "s8"), ("y", "s8"), ("s8", "s9"), ("y", "s9"),
    }  # fmt: skip
    assert (kernel.reads, kernel.writes) == (whole.kernels[0].reads, whole.kernels[0].writes)


def test_a_chain_of_kernels() -> None:
    whole, folded = fold(10, 1, "before")
    assert len(whole.kernels) == 10
    (kernel,) = folded.kernels
    assert kernel.label == "1 to 10"
    assert kernel.launches == folded.launches == 10
    assert kernel.steps[0].formula == "a chain of 10 stages, from s0 to s9, a kernel each"
    reads = {t.tensor: t for t in kernel.reads}
    assert reads["y"].bytes == 320
    assert reads["y"].text == "320 B in all"
    assert reads["x"].text == "32 B"


@pytest.mark.parametrize("which", ["before", "after"])
def test_short_runs_stay(which: str) -> None:
    whole, folded = fold(2, 1, which)
    assert whole == folded
