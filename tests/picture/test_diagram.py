"""What a diagram says: stages, what joins them, bytes; held against the report it is made of."""

from __future__ import annotations

import pytest

import dmlc
from dmlc import ir
from dmlc.picture import draw
from dmlc.picture.diagram import Kernel, Transfer, Wire, find_peak, list_calls, make_diagram
from dmlc.picture.formula import summarize
from dmlc.pipeline import explain
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
    first = view.kernels[0]
    assert first.launches > 1
    assert first.label == f"1 {'and' if first.launches == 2 else 'to'} {first.launches}"
    assert view.launches == sum(k.launches for k in view.kernels)


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
        ("%Y: f32[i0 < 4, i1 < 4] = add(%X[i0, i1], %X[i1, i0])", "X + X[…]"),
        ("%Y: f32[i0 < 4, i1 < 4] = add(%X[i0, i1], %b[i1])", "X + b"),
        ("%Y: f32[i0 < 4, i1 < 4] = add(%X[i0, 0], %X[i1, 0])", "X + X[…]"),
        ("%Y: f32[i0 < 4] = sum[r1 < 4] %X[i0, r1]", "sum over axis 1 of X"),
        (
            "%Y: f32[i0 < 4] = sum[r1 < 4 where gt(%b[r1], 0.0)] %X[i0, r1]",
            "sum over axis 1 where b > 0 of X",
        ),
        (
            "%Y: f32[i0 < 4] = max[r1 < 2 where lt(add(i0, r1), 4)] %b[add(i0, r1)]",
            "max over 2 places, within bounds, of b[…]",
        ),
    ],
)
def test_formulas_name_tensors_where_they_are_read_in_place(stage: str, formula: str) -> None:
    function = ir.parse(f"func @f(%X: f32[4, 4], %b: f32[4]) -> (%Y) {{ {stage} }}")
    assert summarize(function.stages[0]) == formula


def test_what_launches_hand_to_one_another_counts_and_has_no_tag() -> None:
    function = ir.parse("""func @f(%X: f32[4194304]) -> (%S, %Y) {
      %S: f32[i0 < 1] = sum[r0 < 4194304] %X[r0]
      %Y: f32[i0 < 4194304] = mul(%X[i0], %S[0])
    }""")
    report = explain(function, "hlsl")
    diagram = make_diagram(report)
    (kernel,) = diagram.after.kernels
    assert kernel.launches > 1
    assert (kernel.read_bytes, kernel.written_bytes) == report.after[0].traffic()
    (parts,) = kernel.inside
    assert (parts.tensor, parts.read) == ("S_parts", parts.written)
    assert [t.tensor for t in kernel.reads] == ["X"]
    assert [t.tensor for t in kernel.writes] == ["S", "Y"]
    assert "between   S_parts" in draw(report, "text", ("after",))
