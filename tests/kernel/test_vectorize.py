"""Which outputs go together where a reduction depends on positions, and what their kernels look
like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.ir.index import IndexFacts
from dmlc.ir.repeat import Cycle
from dmlc.kernel import nodes as k
from dmlc.kernel.target import CPU
from dmlc.loops import primitives, vectorize
from dmlc.pipeline import make_kernels, rewrite
from dmlc.schedules import cpu
from dmlc.transform.fuse import fuse
from tests.kernel.lowering import lower_fusion, run
from tests.kernel.statements import list_parts, walk

LIMITS = find_dialect("opencl").limits

POOL = """
func @pool(%x: {dtype}[4, {height}, {width}]{more}) -> (%y){pairs} {{
  %{total}: {dtype}[i0 < 4, i1 < {n}, i2 < {n}] = {combiner}[r0 < {window}, r1 < {window}] {{
    v0 = sub(add(mul(i1, {stride}), r0), {pad})
    v1 = sub(add(mul(i2, {stride}), r1), {pad})
    where and(and(ge(v0, 0), lt(v0, {height})), and(ge(v1, 0), lt(v1, {width})))
    %x[i0, v0, v1]
  }}{after}
}}
"""  # fmt: skip


def make_pool(
    size: int,
    window: int,
    stride: int,
    pad: int,
    combiner: str = "max",
    dtype: str = "f32",
    after: str = "",
    more: str = "",
    pairs: str = "",
) -> ir.Function:
    outputs = (size + 2 * pad - window) // stride + 1
    return ir.parse(
        POOL.format(
            dtype=dtype, height=size, width=size, n=outputs, combiner=combiner,
            window=window, stride=stride, pad=pad, total="s" if after else "y", more=more,
            pairs=pairs, after=after,
        )
    )  # fmt: skip


def lower(function: ir.Function) -> k.Kernel:
    fusion = fuse(rewrite(function, CPU.row), CPU.row)
    (kernel,) = lower_fusion(fusion, CPU)
    return kernel


def list_rows(kernel: k.Kernel) -> list[tuple[object, object, int]]:
    """Start, end and step of the loops along rows."""
    return [
        (s.start.value, s.stop.value, s.step)
        for s in walk(kernel.body)
        if isinstance(s, k.For)
        and isinstance(s.start, k.Literal)
        and isinstance(s.stop, k.Literal)
        and any(isinstance(inner, k.Variable) for inner in s.body)
    ]


def count_conditions(kernel: k.Kernel, step: int) -> int:
    """The tests in the loop along a row that goes by such steps."""
    (loop,) = (s for s in walk(kernel.body) if isinstance(s, k.For) and s.step == step)
    return sum(isinstance(s, k.If) for s in walk(loop.body))


def test_inside_outputs_go_together() -> None:
    kernel = lower(make_pool(40, 3, 1, 1))
    # One at either edge, without a loop; the last vector takes some of the one before once more.
    assert list_rows(kernel) == [(1, 39, 8)]
    # Rows above and below are tested for, columns beside are not there.
    assert count_conditions(kernel, 8) == 1


def test_without_padding_every_output_does() -> None:
    kernel = lower(make_pool(42, 3, 1, 0))
    assert list_rows(kernel) == [(0, 40, 8)]


def test_every_second_element_is_shuffled_into_place() -> None:
    kernel = lower(make_pool(80, 2, 2, 0))
    # The loads of the last output would leave the tensor.
    assert list_rows(kernel) == [(0, 39, 8)]
    assert "each computes" in kernel.walk


def test_what_may_lie_in_the_result_is_read_once() -> None:
    after = """
  %y: f32[i0 < 4, i1 < 40, i2 < 40] = add(%s[i0, i1, i2], %z[i0, i1, i2])"""
    for pairs in ("", " in place (%y over %z)"):
        more = ", %z: f32[4, 40, 40]"
        kernel = lower(make_pool(40, 3, 1, 1, after=after, more=more, pairs=pairs))
        assert list_rows(kernel) == [(1, 33, 8), (33, 40, 1)]


def list_numbers(kernel: k.Kernel) -> set[tuple[int, ...]]:
    """How far positions in the lanes are from the first."""
    return {p.values for p in list_parts(kernel.body) if isinstance(p, k.Numbers)}


def test_places_of_the_largest_are_numbered_in_lanes() -> None:
    kernel = lower(
        ir.parse("""
func @f(%x: f32[4, 40, 80]) -> (%y) {
  %y: s32[i0 < 4, i1 < 40, i2 < 40] = argmax[r0 < 40, r1 < 80] {
    v0 = sub(r1, mul(i2, 2))
    where and(eq(r0, i1), and(ge(v0, 0), lt(v0, 2)))
    %x[i0, r0, r1]
  }
}""")
    )
    assert list_rows(kernel) == [(0, 39, 8)]
    assert list_numbers(kernel) == {tuple(range(0, 16, 2))}
    # No point is left out: the first is the place until another beats it.
    literals = [p.value for p in list_parts(kernel.body) if isinstance(p, k.Literal)]
    assert 2**32 - 1 not in literals


def test_conditions_that_differ_from_lane_to_lane_leave_lanes_out() -> None:
    """Every second place is in two windows."""
    kernel = lower(
        ir.parse("""
func @f(%x: f32[400, 25]) -> (%y) {
  %y: f32[i0 < 400, i1 < 50] = sum[r0 < 25] {
    v0 = sub(add(i1, 1), mul(r0, 2))
    where and(ge(v0, 0), lt(v0, 3))
    %x[i0, r0]
  }
}""")
    )
    assert list_rows(kernel) == [(0, 48, 8), (48, 50, 1)]
    assert list_numbers(kernel) == {(0, 0, 1, 1, 2, 2, 3, 3), (0, 1, 1, 2, 2, 3, 3, 4)}


@pytest.mark.parametrize(
    ("size", "window", "stride", "pad"),
    [
        (8, 3, 1, 1),  # no more outputs than one vector
        (200, 5, 6, 1),  # elements so far apart take too many loads
        (17, 17, 1, 8),  # edges everywhere
    ],
)
def test_what_goes_one_by_one(size: int, window: int, stride: int, pad: int) -> None:
    kernel = lower(make_pool(size, window, stride, pad))
    assert {step for *_, step in list_rows(kernel)} <= {1}


@pytest.mark.parametrize("place", ["div(i1, 2)", "mod(i1, 8)", "sub(199999, i1)"])
def test_places_repeat_along_rows_of_any_length(place: str) -> None:
    kernel = lower(
        ir.parse(f"""
func @f(%x: f32[4, 200000]) -> (%y) {{
  %y: f32[i0 < 4, i1 < 200000] = %x[i0, {place}]
}}""")
    )
    loads = [part for part in list_parts(kernel.body) if isinstance(part, k.Load)]
    assert any(load.type.lanes > 1 for load in loads)


@pytest.mark.grid(3)
@pytest.mark.parametrize("size", [64, 131, 259])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pad", [0, 1, 2])
def test_what_is_alike_need_not_be_looked_at(
    size: int, stride: int, pad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool(size, 3, stride, pad)
    quick = lower(pool)

    def find_nothing(found: Sequence[Cycle], size: int, period: int) -> tuple[int, int, int]:
        return 0, 0, period

    monkeypatch.setattr(vectorize, "join_repeats", find_nothing)
    assert lower(pool) == quick


def test_large_results_stream_though_reads_lie_apart() -> None:
    text = """
    func @f(%X: f32[512, 56, 56]) -> (%Y) {{
      %Y: f32[i0 < {n}, i1 < 112, i2 < 112] = %X[i0, div(i1, 2), div(i2, 2)]
    }}"""
    for count, streams in ((512, True), (8, False)):
        _, (kernel,) = make_kernels(ir.parse(text.format(n=count)), "opencl", "cpu")
        stores = [s for s in walk(kernel.body) if isinstance(s, k.Store)]
        assert [(s.value.type.lanes, s.streaming is not None) for s in stores] == [(8, streams)]


def test_a_condition_on_elements_is_no_condition_of_all_lanes() -> None:
    """Along axes of one place both reads are of one element, which no position tells apart."""
    function = ir.parse("""
    func @rank(%X: u32[29, 1, 18]{19, 18, 1}) -> (%Y) {
      %Y: s32[i0 < 29, i1 < 1, i2 < 18] = sum[r0 < 1] {
        v0 = %X[i0, r0, i2]
        v1 = %X[i0, i1, i2]
        where or(gt(v0, v1), and(eq(v0, v1), le(r0, i1)))
        1:s32
      }
    }""")
    lowered, kernels = make_kernels(function, "opencl", "cpu")
    run(lowered, kernels)


def test_vectors_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule asks whether outputs go together before the primitive does."""
    asked: list[int] = []
    find = vectorize.IndexFacts

    def count(*given: Any) -> IndexFacts:
        asked.append(len(given))
        return find(*given)

    def find_anew(function: ir.Function, work: Any, **how: bool) -> Any:
        work[0][0].vectorized.clear()
        return vectorize.vectorize_reads(function, work, **how)

    pool = make_pool(40, 3, 1, 1)
    monkeypatch.setattr(vectorize, "IndexFacts", count)
    first = lower(pool)
    once = len(asked)
    for owner in (cpu, primitives):
        monkeypatch.setattr(owner, "vectorize_reads", find_anew)
    assert lower(pool) == first
    assert len(asked) > 2 * once
