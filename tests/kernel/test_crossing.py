"""Rows and columns in one pass: what is grouped, how a group's rows are shared out, and that work
items wait for each other where they must."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.interpret import run_kernels
from dmlc.pipeline import explain, find_fusion, make_kernels
from dmlc.reference import evaluate
from dmlc.testing.bounds import bound_errors
from tests.crossing import KINDS, ROWS, Rows
from tests.kernel.statements import walk
from tests.reductions import make_inputs


def check(function: ir.Function, target: str) -> tuple[k.Kernel, ...]:
    """The kernels of a function, which are interpreted: there is no race, nothing beyond the end of
    a tensor, and results are the reference's."""
    fused, kernels = make_kernels(function, target, "gpu")
    inputs = make_inputs(function)
    found = run_kernels(fused, kernels, inputs)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in found.items():
        gone = np.abs(values.astype(np.float64) - wanted[name].astype(np.float64))
        assert (gone <= allowed[name]).all(), name
    return kernels


CASES = [
    *(("hlsl", name, kind) for name in ROWS for kind in KINDS),
    *(
        (target, "pieces of several lengths", kind)
        for target in ("opencl", "wgsl")
        for kind in KINDS
    ),
]


@pytest.mark.grid(3)
@pytest.mark.parametrize(("target", "name", "kind"), CASES)
def test_one_kernel_goes_through_the_rows_and_one_combines(
    target: str, name: str, kind: str
) -> None:
    function = ROWS[name].make(kind)
    (group,) = find_fusion(function, target, "gpu").groups
    assert group.crossed is not None
    kernels = check(function, target)
    assert len(kernels) == 2
    read = {b.name for b in kernels[1].buffers if b.access is not k.Access.WRITE}
    assert all("_parts" in name for name in read)


@pytest.mark.parametrize(("name", "vectors"), [("vectors", 2), ("steps beyond the end", 4)])
def test_rows_are_held_between_their_reductions_and_their_use(name: str, vectors: int) -> None:
    (first, _) = check(ROWS[name].make("layer_norm"), "hlsl")
    loads = [s.value for s in walk(first.body) if isinstance(s, k.Let)]
    read = [e.buffer for e in loads if isinstance(e, k.Load)]
    assert sorted(read) == sorted(["x", "dy", "scale"] * vectors)
    assert all(e.type.lanes == 4 for e in loads if isinstance(e, k.Load))


def test_a_group_takes_rows_enough_that_its_parts_are_few() -> None:
    for rows, groups in ((8192, 512), (65536, 1024), (1024, 128), (301, 38)):
        (first, second) = make_kernels(Rows((rows, 256)).make("layer_norm"), "hlsl", "gpu")[1]
        assert (first.launch.count, first.launch.per_group) == (groups, 1)
        parts = {b.name: b.count for b in second.buffers if "_parts" in b.name}
        assert parts == {"sum_parts": groups * 256, "product_parts": groups * 256}


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (Rows((1024, 96)), "layer_norm"),
        (Rows((200, 256)), "layer_norm"),
        (Rows((300, 16384)), "layer_norm"),
    ],
    ids=["short rows", "few rows", "long rows"],
)
def test_other_rows_are_reduced_apart(rows: Rows, kind: str) -> None:
    groups = find_fusion(rows.make(kind), "hlsl").groups
    assert [group.crossed for group in groups] == [None, None]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cpu_takes_rows_and_columns_one_after_the_other(kind: str) -> None:
    groups = find_fusion(ROWS["vectors"].make(kind), "opencl", "cpu").groups
    assert [group.crossed for group in groups] == [None, None]


def test_the_report_counts_what_is_held_once() -> None:
    (work,) = explain(ROWS["vectors"].make("layer_norm"), "hlsl").after
    size = 512 * 256 * 4
    moved = {move.tensor: (move.read, move.written) for move in work.moves}
    assert moved["x"] == moved["dy"] == (size, 0)
    assert moved["dx"] == (0, size)
    assert moved["db"] == moved["ds"] == (0, 1024)
    assert "%sum and %product are reduced over its rows" in work.reason


_CHAIN = """\
func @chain(%x: f32[512, 256], %w: f32[512, 256]) -> (%y, %z) {{
  %row: f32[i0 < 512] = sum[r1 < 256] mul(%x[i0, r1], %x[i0, r1])
  %column: f32[i0 < 256] = sum[r0 < 512] %x[r0, i0]
  {stages}
}}"""


@pytest.mark.parametrize(
    "stages",
    [
        # What is applied to a row takes the sums of all columns.
        """%y: f32[i0 < 512, i1 < 256] = mul(%x[i0, i1], add(%row[i0], %column[i1]))
  %z: f32[i0 < 1] = 1.0""",
        # What a column gets takes the sums of all rows.
        """%y: f32[i0 < 256] = mul(%column[i0], %row[i0])
  %z: f32[i0 < 512, i1 < 256] = mul(%x[i0, i1], %row[i0])""",
    ],
    ids=["rows wait for columns", "columns wait for rows"],
)
def test_what_waits_for_all_of_the_other_runs_after_it(stages: str) -> None:
    function = ir.parse(_CHAIN.format(stages=stages))
    assert all(group.crossed is None for group in find_fusion(function, "hlsl").groups)
    check(function, "hlsl")
