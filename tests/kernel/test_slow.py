"""Kernels that are serial or dense are warned of, where they are written, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

import dmlc
import dmlc.cli
from dmlc import ir
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.slow import find_density, find_slow
from dmlc.kernel.steps import count_steps
from dmlc.pipeline import explain, make_kernels

TEXT = """operator GATHERED {{
    tensors {{
        | Tensor | Kind   | Dimensions | Ranks | Types |
        | x      | Input  | {{ N }}      | 1     | f32   |
        | y      | Output | {{ N }}      | 1     | f32   |
    }}
    compute {{
        y[i] = {formula}
    }}
}}
"""
SCATTERED = "sum[r : x.Sizes[0] where r * 7919 % 20000 == i] (x[r])"
CHOSEN = "sum[r : x.Sizes[0]] (r * 7919 % 20000 == i ? x[r] : 0)"
FACTOR = "sum[r : x.Sizes[0]] ((r * 7919 % 20000 == i ? 2 : 0) * x[r])"
BAND = "sum[r : x.Sizes[0] where i - 2 <= r && r <= i + 2] (x[r])"
FEW = "sum[r : x.Sizes[0] where r * 7919 % 20000 - i >= 0 && r * 7919 % 20000 - i < 5] (x[r])"
SIZE = 20000


def bind(formula: str, size: int = SIZE) -> ir.Function:
    (operator,) = dmlc.parse(TEXT.format(formula=formula), "own.dml").operators.values()
    return operator.bind({"x": dmlc.TensorDesc("FLOAT32", (size,))})


def warn(formula: str, size: int = SIZE) -> list[str]:
    return [w.render() for w in dmlc.compile(bind(formula, size), "hlsl").warnings]


@pytest.mark.parametrize(
    ("formula", "count"), [(SCATTERED, "1"), (CHOSEN, "1"), (FACTOR, "1"), (FEW, "5")]
)
def test_a_dense_kernel_is_warned_of_where_it_is_written(formula: str, count: str) -> None:
    (warning,) = warn(formula)
    first, line, caret, note = warning.splitlines()
    assert first == (
        "own.dml:8:9: warning: 'y' goes through 20,000 positions for each element that it gives, "
        f"of which about {count} count [W0902]"
    )
    assert formula in line
    assert "^^^" in caret
    assert note == (
        "  note: write what counts as a window with a few positions of its own: "
        "sum[k : 5] (x[i + k - 2] else 0)"
    )


CONDITION = "eq(%I[r0], cast(i0, s32))"


def warn_of_choice(text: str, dtype: str = "f32") -> list[str]:
    """What is said of a reduction of 9,000 points, of which elements choose about two for each of
    4,500 elements."""
    function = ir.parse(
        "func @f(%I: s32[9000], %X: f32[9000, 8]) -> (%Y) {\n"
        f"  %Y: {dtype}[i0 < 4500, i1 < 8] = {text}\n}}"
    )
    return [w.render() for w in dmlc.compile(function, "hlsl").warnings]


def test_a_sum_over_points_that_elements_choose_is_short() -> None:
    assert warn_of_choice(f"sum[r0 < 9000 where {CONDITION}] %X[r0, i1]") == []
    assert warn_of_choice(f"sum[r0 < 9000] select({CONDITION}, %X[r0, i1], 0.0)") == []


@pytest.mark.parametrize(
    ("text", "dtype", "why"),
    [
        (
            f"sum[r0 < 9000 where and(ne(mod(r0, 3), 2), {CONDITION})] %X[add(r0, mod(r0, 3)), i1]",
            "f32",
            "it reads what its condition protects: clamp the positions of what it reads",
        ),
        (
            f"argmax[r0 < 9000 where {CONDITION}] %X[r0, i1]",
            "s32",
            "an index of the points of each is built for sums, products, extremes, 'any' and "
            "'all', and for up to 2 ** 31 elements and points",
        ),
    ],
)
def test_what_is_dense_where_elements_choose_is_warned_of(text: str, dtype: str, why: str) -> None:
    (warning,) = warn_of_choice(text, dtype)
    first, *_, note = warning.splitlines()
    assert "warning: 'Y' goes through " in first
    assert first.endswith(
        " for each element that it gives, of which elements of tensors choose about 2 [W0903]"
    )
    assert note == f"  note: {why}"


def test_a_sum_that_an_index_would_not_shorten_much_is_warned_of_with_both_costs() -> None:
    function = ir.parse(
        "func @f(%I: s32[1000000], %X: f32[1000000]) -> (%Y) {\n"
        f"  %Y: f32[i0 < 40] = sum[r0 < 1000000 where {CONDITION}] %X[r0]\n}}"
    )
    (warning,) = [w.render() for w in dmlc.compile(function, "hlsl").warnings]
    assert "goes through 1,000,000 positions" in warning
    assert "choose about 25,000" in warning
    note = warning.splitlines()[-1]
    assert note.startswith("  note: an index of the points of each would take about ")
    assert note.endswith(" steps, and without it there are 40,000,000")


def test_short_sums_over_points_that_elements_choose_are_not_warned_of() -> None:
    function = ir.parse(
        "func @f(%I: s32[5000], %X: f32[5000]) -> (%Y) {\n"
        f"  %Y: f32[i0 < 5000] = sum[r0 < 5000 where {CONDITION}] %X[r0]\n}}"
    )
    assert dmlc.compile(function, "hlsl").warnings == ()


@pytest.mark.parametrize(
    "formula",
    [
        # As the note says.
        "sum[k : 5] (x[i + k - 2] else 0)",
        # Everything counts.
        "sum[r : x.Sizes[0]] (x[r] * x[i])",
        # Elements say what counts.
        "sum[r : x.Sizes[0]] (x[r] > 0 ? x[r] : 0)",
        # Every second one: a loop that skips some is no worse.
        "sum[r : x.Sizes[0] where r * r % 2 == i % 2] (x[r])",
        # What is left out is no zero.
        "sum[r : x.Sizes[0]] (r * 7919 % 20000 == i ? x[r] : 1)",
        "max[r : x.Sizes[0]] (r * 7919 % 20000 == i ? x[r] : 0)",
    ],
)
def test_what_is_not_dense_is_not_warned_of(formula: str) -> None:
    assert warn(formula) == []


def test_a_loop_that_is_bounded_is_not_dense() -> None:
    assert warn(BAND) == []
    lowered, (kernel,) = make_kernels(bind(BAND), "hlsl")
    steps = count_steps(kernel, lowered.tables)
    assert steps is not None
    # A thread has four outputs, whose windows share most of what they read.
    assert steps.longest < 4 * 5


def test_graphs_and_reports_carry_the_warnings() -> None:
    for target in ("hlsl", "opencl"):
        report = explain(bind(SCATTERED), target)
        assert [w.render() for w in report.warnings] == warn(SCATTERED)


def test_a_size_of_every_axis_is_no_more_than_there_can_be() -> None:
    """A long size of all eight axes would be more elements than are counted."""
    operator = dmlc.operator("directml.ELEMENT_WISE_LOGICAL_NOT")
    shape = dmlc.TensorDesc("UINT32", ("N",) * 8)
    assert dmlc.compile(operator.bind({"InputTensor": shape}), "hlsl").warnings == ()


def test_a_cpu_is_given_few_threads_on_purpose() -> None:
    assert dmlc.compile(bind(SCATTERED), "opencl").warnings == ()
    assert len(dmlc.compile(bind(SCATTERED), "opencl", "gpu").warnings) == 1


def test_density_is_the_part_that_counts() -> None:
    function = bind(BAND, 1000)
    # Five of a thousand, less the three that are missing at each end.
    assert find_density(function, function.stages[0]) == pytest.approx(5 / 1000)
    function = bind("sum[r : x.Sizes[0]] (x[r] * x[i])", 1000)
    assert find_density(function, function.stages[0]) == 1


# Serial -----------------------------------------------------------------------------------------

FUNCTION = """func @f(%x: f32[4194304]) -> (%y) {
  %y: f32[i0 < 1] = sum[r0 < 4194304] %x[r0]
}"""


def judge(launch: str, turns: int) -> list[str]:
    kernel = parse_kernel(f"""kernel f {{
        stages (y)
        launch {launch}, index u32
        buffer x: f32 read
        buffer y: f32 write
        var v: f32 = 0.0
        for i in 0 .. {turns} {{
            set v = add(v, x[i])
        }}
        store y[0] = v
    }}""")
    return [
        f"{w.message} [{w.code}]"
        for w in find_slow(ir.parse(FUNCTION), [kernel], [count_steps(kernel)])
    ]


def test_a_serial_kernel_is_warned_of() -> None:
    said = "'y' takes 4,194,304 steps, and a GPU does at most 1 of them at once"
    assert judge("ceil(1 / 1) groups of 1", 1 << 22) == [f"{said} [W0901]"]
    (message,) = judge("ceil(3 / 1) groups of 256", 1 << 14)
    assert message.endswith("steps, and a GPU does at most 768 of them at once [W0901]")


def test_few_steps_or_many_threads_are_not_serial() -> None:
    assert judge("ceil(1 / 1) groups of 1", 1 << 20) == []
    assert judge("ceil(4 / 1) groups of 256", 1 << 22) == []
    assert judge("ceil(n / 1) groups of 1", 1 << 22) == []


# The library and the examples -------------------------------------------------------------------


def test_the_command_warns_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.dml"
    path.write_text(TEXT.format(formula=SCATTERED), "utf-8")
    for command in (["compile", "--target", "hlsl"], ["graph"], ["check", "--bind"]):
        status = dmlc.cli.run([*command, str(path), "--tensor", "x=FLOAT32[20000]"])
        out, err = capsys.readouterr()
        assert status == 0
        assert out
        assert err.count("warning: 'y' goes through 20,000 positions") == 1
