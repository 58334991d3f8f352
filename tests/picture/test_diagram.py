"""What a diagram says: stages, what joins them, bytes; held against the report it is made of."""

from __future__ import annotations

import re

import pytest

import dmlc
from dmlc import ir
from dmlc.picture import draw
from dmlc.picture.diagram import Kernel, Transfer, find_peak, list_calls, make_diagram
from dmlc.picture.formula import summarize
from dmlc.picture.joint import Wire
from dmlc.picture.summary import describe_work, show_count
from dmlc.pipeline import compile, explain
from tests.picture.samples import (
    GRAPHS,
    OPEN,
    SHIFTED,
    SMALL,
    explain_residual,
    load_graph,
    make_chain,
)

HALF = SMALL.replace("f32", "f16").replace("@smooth", "@smooth_in_16_bits")
ALL = [ir.parse(text) for text in (SMALL, SHIFTED, HALF)] + [make_chain(6, 3)]


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.name)
def test_bytes_are_those_of_the_report(function: ir.Function) -> None:
    report = explain(function)
    diagram = make_diagram(report)
    for view, works in ((diagram.before, report.before), (diagram.after, report.after)):
        for kernel, work in zip(view.kernels, works, strict=True):
            assert (kernel.read_bytes, kernel.written_bytes) == work.traffic()
            names = {s.name for s in kernel.steps}
            assert {*work.stages, *work.inlined} == names
            assert {t.tensor for t in kernel.writes} == {*work.stages} - {*work.near}
            read = {t.tensor for t in kernel.reads}
            for wire in kernel.wires:
                assert wire.target in names
                assert wire.source in (read if wire.from_memory else names)
            # Whatever is computed or read is of use.
            used = {w.source for w in kernel.wires} | {t.tensor for t in kernel.writes}
            assert names | read == used
    assert [s.name for k in diagram.before.kernels for s in k.steps] == [
        s.name for s in function.stages
    ]
    assert diagram.inputs == tuple(p.name for p in function.parameters)
    assert diagram.outputs == tuple(r.name for r in function.results)


def test_the_residual_block_is_one_kernel_that_reads_twice() -> None:
    diagram = make_diagram(explain_residual(), list_calls(load_graph("residual_block_backward")))
    assert len(diagram.before.kernels) == 8
    (kernel,) = diagram.after.kernels
    times = {t.tensor: t.times for t in kernel.reads}
    assert all(times[name] == 2 for name in ("x", "y", "dy_main", "dy_skip"))
    text = "2 \N{MULTIPLICATION SIGN} 25.7 MB"
    assert Transfer("x", 2 * 25_690_112, text, 2) in kernel.reads
    assert Wire("x", "bn_centered", True) in kernel.wires
    assert Wire("masked", "dbias", False) in kernel.wires
    formulas = {s.name: s.formula for s in kernel.steps}
    assert formulas["masked"] == "(y > 0) ? dy : 0"
    assert formulas["dbias"] == "sum over axes 0, 2, 3 of masked"
    calls = {s.name: s.call for s in kernel.steps}
    assert calls["dy"] is None
    assert calls["masked"] == "masked"
    assert calls["bn_centered"] == calls["dx"] == "bn"
    assert diagram.calls == {
        "masked": "ACTIVATION_RELU_GRAD",
        "bn": "BATCH_NORMALIZATION_TRAINING_GRAD",
    }


def test_calls_are_those_of_operators() -> None:
    calls = {path.stem: list_calls(load_graph(path.stem)) for path in GRAPHS.glob("*.dml")}
    assert [c.name for c in calls["softmax_cross_entropy_backward"]] == ["target", "log_odds"]
    assert calls["softmax_cross_entropy_backward"][0].operator == "ROW_LABELS"
    assert calls["sgd_momentum"] == ()


def test_stages_of_gradients_are_those_of_their_statement() -> None:
    text = """graph g(x: FLOAT32[8, 8], w: FLOAT32[1, 8]) {
        output y = exp(x * w)
        output dx, dw = gradient of sum(y * y, axes: [0, 1]) with respect to x, w
    }"""
    graph = dmlc.parse(text).graphs["g"]
    (call,) = list_calls(graph)
    assert (call.name, call.operator) == ("dx, dw", "gradient")
    diagram = make_diagram(explain(graph.bind()), [call])
    steps = {s.name: s.call for kernel in diagram.before.kernels for s in kernel.steps}
    assert steps == {"y": None, "dx": "dx, dw", "dw": "dx, dw"}


def test_sizes_known_at_run_time_only() -> None:
    diagram = make_diagram(explain(ir.parse(OPEN)))
    kernel = diagram.after.kernels[0]
    assert kernel.reads[0].text == "4 B \N{MULTIPLICATION SIGN} n"
    assert kernel.read_bytes is None
    assert diagram.after.bytes is None
    assert diagram.before.scratch == 0


def test_kernels_are_numbered_by_launch() -> None:
    function = ir.parse("""func @f(%X: f32[4194304]) -> (%S, %Y) {
      %S: f32[i0 < 1] = sum[r0 < 4194304] %X[r0]
      %t: f32[i0 < 4194304] = mul(%X[i0], %S[0])
      %Y: f32[i0 < 4194304] = add(%t[sub(4194303, i0)], 1.0)
    }""")
    view = make_diagram(explain(function, "hlsl")).after
    assert [k.label for k in view.kernels] == [str(n + 1) for n in range(len(view.kernels))]
    assert view.launches == len(view.kernels) == len(compile(function, "hlsl").kernels)
    groups = [k.group for k in view.kernels]
    assert groups[0] == groups[1] is not None


def test_peak_of_memory_between_kernels() -> None:
    def kernel(reads: list[str], writes: list[str], size: int | None = 8) -> Kernel:
        return Kernel(
            "1", 1, (), (),
            tuple(Transfer(n, size, "") for n in reads),
            tuple(Transfer(n, size, "") for n in writes),
        )  # fmt: skip

    chain = [kernel(["x"], ["a"]), kernel(["a"], ["b"]), kernel(["b"], ["c"]), kernel(["c"], ["y"])]
    assert find_peak(chain, ["y"]) == 16
    assert find_peak([kernel(["x"], ["y"])], ["y"]) == 0
    assert find_peak([*chain[:3], kernel(["c", "a"], ["y"])], ["y"]) == 24
    assert find_peak([kernel(["x"], ["a"], None), kernel(["a"], ["y"], None)], ["y"]) is None


@pytest.mark.parametrize(
    ("stage", "formula"),
    [
        ("%Y: f32[i0 < 4, i1 < 4] = add(%X[i0, i1], %X[i1, i0])", "X[i0, i1] + X[i1, i0]"),
        ("%Y: f32[i0 < 4, i1 < 4] = add(%X[i0, i1], %b[i1])", "X + b"),
        ("%Y: f32[i0 < 4, i1 < 4] = add(%X[i0, 0], %X[i1, 0])", "X[i0, 0] + X[i1, 0]"),
        ("%Y: f32[i0 < 4] = sum[r1 < 4] %X[i0, r1]", "sum over axis 1 of X"),
        (
            "%Y: f32[i0 < 4] = sum[r1 < 4 where gt(%b[r1], 0.0)] %X[i0, r1]",
            "sum over axis 1 where b > 0 of X",
        ),
        (
            "%Y: f32[i0 < 4] = max[r1 < 2 where lt(add(i0, r1), 4)] %b[add(i0, r1)]",
            "max over r1 < 2 where i0 + r1 < 4 of b[i0 + r1]",
        ),
    ],
)
def test_formulas_name_tensors_where_they_are_read_in_place(stage: str, formula: str) -> None:
    function = ir.parse(f"func @f(%X: f32[4, 4], %b: f32[4]) -> (%Y) {{ {stage} }}")
    assert summarize(function.stages[0]) == formula


APART = ir.parse("""func @f(%X: f32[4194304]) -> (%S, %Y) {
  %S: f32[i0 < 1] = sum[r0 < 4194304] %X[r0]
  %Y: f32[i0 < 4194304] = mul(%X[i0], %S[0])
}""")


def test_each_kernel_of_a_group_is_a_kernel() -> None:
    report = explain(APART, "hlsl")
    diagram = make_diagram(report)
    (work,) = report.after
    assert len(diagram.after.kernels) == len(work.kernels) > 1
    first, second = diagram.after.kernels[:2]
    assert first.group == second.group == 0
    assert [t.tensor for t in first.reads] == ["X"]
    assert [(t.tensor, t.step) for t in first.writes] == [("S_parts", "S")]
    assert [s.formula for s in first.steps] == ["sum over axis 0 of X, in parts"]
    assert second.reads[0].tensor == "S_parts"
    assert second.reads[0].bytes == first.writes[0].bytes
    assert Wire("S_parts", "S", True) in second.wires
    assert second.steps[0].formula == "sum of the parts of S"
    assert second.steps[0].combined
    assert diagram.tensors["S_parts"].bytes == first.writes[0].bytes
    read, written = work.traffic() or (0, 0)
    assert diagram.after.read_bytes == read
    assert diagram.after.written_bytes == written
    assert (first.reason, second.reason) == (work.reason, "")
    text = draw(report, "text", ("after",))
    assert "S_parts" in text
    assert text.count("reads an output") == len(work.kernels)
    assert text.count(f"one of {len(work.kernels)} kernels") == len(work.kernels)


def test_what_several_kernels_combine_is_a_stage_of_each() -> None:
    # Distances from a maximum are no function of those from a piece's own: nothing is recentred.
    text = re.sub(r"\b32\b", "99991", SMALL).replace("exp", "abs")
    view = make_diagram(explain(ir.parse(text), "hlsl")).after
    assert len(view.kernels) == 3
    for kernel in view.kernels:
        known = {s.name for s in kernel.steps}, {t.tensor for t in kernel.reads}
        for wire in kernel.wires:
            assert wire.target in known[0]
            assert wire.source in known[wire.from_memory]
    last = view.kernels[-1]
    combined = {s.name for s in last.steps if s.combined}
    assert combined == {"m", "s"}
    assert {Wire("m_parts", "m", True), Wire("m", "e", False)} <= set(last.wires)


@pytest.mark.parametrize("target", ["opencl", "hlsl"])
def test_kernels_have_their_work(target: str) -> None:
    diagram = make_diagram(explain(APART, target))
    program = compile(APART, target)
    for kernel, made in zip(diagram.after.kernels, program.kernels, strict=True):
        assert kernel.launch is not None
        assert kernel.launch.name == made.name
        assert kernel.launch.group_size == made.dispatch.group_size
        groups, *_ = made.dispatch.groups({})
        assert kernel.launch.groups == groups
    sums, *_ = (k.launch.operations for k in diagram.after.kernels if k.launch is not None)
    assert sums == 4194304
    first, *_ = diagram.after.kernels
    assert "4.2 M float operations" in describe_work(first)
    assert not describe_work(diagram.before.kernels[0])
    assert describe_work(make_diagram(explain(ir.parse(OPEN), target)).after.kernels[0])


def test_counts_are_for_people() -> None:
    shown = [show_count(n) for n in (0, 9_999, 12_345, 4_194_304, 2.5e9)]
    assert shown == ["0", "9,999", "12.3 k", "4.2 M", "2.5 G"]
