"""Products of a few rows on CPUs: vectors along the points, whose lanes are added up at the end."""

from __future__ import annotations

import re

import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.nodes import Kernel
from dmlc.loops.naive import naive
from dmlc.loops.phases import collect_phases
from dmlc.loops.primitives import apply
from dmlc.loops.script import ScheduleError, parse_script
from dmlc.pipeline import find_fusion, make_kernels
from dmlc.reference import evaluate
from tests.kernel.lowering import run
from tests.products import Product, Windows, expect_some_finite, fill_beside_infinities

LIMITS = find_dialect("opencl").limits


def make(function: ir.Function) -> Kernel:
    """The one kernel of a function on a CPU, after a run that gives the reference's results."""
    fused, kernels = make_kernels(function, "opencl", "cpu")
    run(fused, kernels)
    (kernel,) = kernels
    return kernel


def is_dot(kernel: Kernel) -> bool:
    return [call.partition(" ")[0] for call in kernel.script] == ["dot"]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
@pytest.mark.parametrize(("columns", "depth"), [(17, 131), (70, 128)])
def test_a_few_rows_of_any_number(rows: int, columns: int, depth: int) -> None:
    product = Product(rows, columns, depth, b_transposed=True, a_transposed=bool(rows % 2))
    assert is_dot(make(product.make()))


def test_a_few_columns_are_distributed_over_work_items() -> None:
    """A product of one row has few columns for a work item, as its row is packed in vectors."""
    assert make(Product(1, 100, 4000, b_transposed=True).make()).script == ("dot 16 8",)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_results_lie_along_either_side(turned: bool, batch: int) -> None:
    assert is_dot(make(Product(3, 40, 24, batch, b_transposed=True, y_transposed=turned).make()))
    assert is_dot(make(Product(40, 3, 24, batch, y_transposed=turned).make()))


@pytest.mark.parametrize("depth", [16, 27])
def test_short_sums(depth: int) -> None:
    assert is_dot(make(Product(5, 17, depth, b_transposed=True).make()))


@pytest.mark.parametrize(("rows", "depth"), [(17, 256), (6, 47), (16, 127)])
def test_more_rows_than_pay_are_packed_with_the_columns(rows: int, depth: int) -> None:
    assert not is_dot(make(Product(rows, 32, depth, b_transposed=True).make()))


def test_columns_whose_points_lie_apart_have_vectors_across() -> None:
    assert not is_dot(make(Product(4, 32, 32).make()))


@pytest.mark.parametrize(
    "windows",
    [Windows(1, 5, 2, 2, 16, 3, 1, 1), Windows(1, 4, 4, 4, 18, 3, 2, 1),
     Windows(2, 8, 2, 3, 32, 2, 1, 0, 1, 2), Windows(1, 16, 1, 1, 16, 1)],
)  # fmt: skip
def test_convolutions_of_few_positions(windows: Windows) -> None:
    assert is_dot(make(windows.make("forward")))


def test_integers_are_summed_as_well() -> None:
    function = ir.parse("""
        func @f(%A: s32[4, 21], %B: s32[16, 21]) -> (%Y) {
          %Y: s32[i0 < 4, i1 < 16] = sum[r0 < 21] mul(%A[i0, r0], %B[i1, r0])
        }""")
    assert is_dot(make(function))


def test_padding_meets_no_infinity() -> None:
    """A product of a zero beside an image with an infinite weight is no number: those outputs are
    summed again without it."""
    function = Windows(1, 16, 2, 2, 16, 3, 1, 1).make("forward")
    inputs = fill_beside_infinities(function)
    fused, kernels = make_kernels(function, "opencl", "cpu")
    assert all(map(is_dot, kernels))
    expect_some_finite(run_kernels(fused, kernels, inputs), evaluate(function, inputs))


def test_a_window_is_packed_once_for_all_columns_of_a_work_item() -> None:
    script = " ".join(make(Windows(1, 8, 2, 2, 64, 3, 1, 1).make("forward")).script)
    assert re.fullmatch(r"dot \d+ 8", script)


@pytest.mark.parametrize(
    ("columns", "numbers", "message"),
    [
        (16, "8 4", "vectors of 8 or 16 lanes"),
        (16, "0 8", "a tile has columns"),
        (16, "8 16", "fewer points than lanes"),
        (0, "8 8", "no sum of products of rows and columns"),
    ],
)
def test_what_is_refused(columns: int, numbers: str, message: str) -> None:
    text = f"%B[{'i1, r0' if columns else 'r0, i1'}]"
    sizes = "16, 12" if columns else "12, 16"
    function = ir.parse(f"""
        func @f(%A: f32[12, 4], %B: f32[{sizes}]) -> (%Y) {{
          %Y: f32[i0 < 4, i1 < 16] = sum[r0 < 12] mul(%A[r0, i0], {text})
        }}""")
    fusion = find_fusion(function, "opencl", "cpu")
    (group,) = fusion.groups
    phases = collect_phases(fusion.function, group.parallel, group.passes, {"Y"})
    with pytest.raises(ScheduleError, match=message):
        apply(naive(phases), fusion.function, LIMITS, *parse_script(f"dot {numbers}"))
