"""How kernels are shaped that keep a row of a reduction at hand."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.target import CPU, GPU, Profile
from dmlc.pipeline import rewrite
from dmlc.transform.fuse import Fusion, fuse
from tests.kernel.lowering import lower_fusion
from tests.kernel.statements import list_shuffles, walk
from tests.windows import make_windows

LIMITS = find_dialect("opencl").limits


def fuse_rows(function: ir.Function, profile: Profile = CPU) -> Fusion:
    return fuse(rewrite(function, profile.row), profile.row)


def lower(function: ir.Function, profile: Profile = CPU) -> tuple[k.Kernel, ...]:
    return lower_fusion(fuse_rows(function, profile), profile)


def test_a_row_at_a_time_is_all_there_is_of_it() -> None:
    (kernel,) = lower(make_windows(20, 40, 4, (2, 1), 1, "f64"))
    assert [(a.name, a.size) for a in kernel.arrays] == [("y_rows_row", 80), ("y_row", 40)]
    assert [b.name for b in kernel.buffers] == ["x", "y"]
    assert kernel.launch.count == 3 * 20
    assert "rows of 40 outputs" in kernel.walk


def test_rows_are_made_and_stored_in_vectors() -> None:
    (kernel,) = lower(make_windows(20, 40, 4, (2, 1), 1, "f64"))
    puts = [s for s in walk(kernel.body) if isinstance(s, k.StoreLocal) and s.array == "y_rows_row"]
    assert {p.value.type.lanes for p in puts} == {16}
    stores = [s for s in walk(kernel.body) if isinstance(s, k.Store)]
    assert [s.value.type.lanes for s in stores] == [16, 4]


def test_inner_rows_and_outputs_are_written_out() -> None:
    (kernel,) = lower(make_windows(20, 40, 4, (2, 1), 1, "f64"))
    loops = [s for s in walk(kernel.body) if isinstance(s, k.For)]
    bounds = [
        (s.start.value, s.stop.value, s.step)
        for s in loops
        if isinstance(s.start, k.Literal) and isinstance(s.stop, k.Literal)
    ]
    # One output at either edge has no loop of its own, and the others none over their points.
    assert (0, 38, 1) in bounds
    assert {(0, 1, 1), (39, 40, 1)}.isdisjoint(bounds)


def test_outputs_are_picked_from_four_rows_and_leave_as_vectors() -> None:
    (kernel,) = lower(make_windows(20, 40, 4, (2, 1), 1))
    # Eight zeros before a row of eighty, and as many behind it, which vectors reach into.
    assert [(a.name, a.size) for a in kernel.arrays] == [("y_rows_row", 4 * 96)]
    assert [b.name for b in kernel.buffers] == ["x", "y"]
    # Four rows are made at once.
    assert 4 * kernel.launch.count == 3 * 20
    stores = [s for s in walk(kernel.body) if isinstance(s, k.Store)]
    assert [s.value.type.lanes for s in stores] == [8]
    lanes = set(list_shuffles(kernel))
    assert len(lanes) == 6
    # Every second element, from either of the first two; what reaches further takes a third load.
    assert {(0, 2, 8, 10, 4, 6, 12, 14), (1, 3, 9, 11, 5, 7, 13, 15)} < lanes


def test_outputs_that_fill_no_vector_go_by_an_array() -> None:
    (kernel,) = lower(make_windows(20, 37, 3, (3, 2), 1))
    assert [a.name for a in kernel.arrays] == ["y_rows_row", "y_row"]
    row, total = kernel.arrays
    assert row.size % 4 == 0
    assert total.size == 40
    stores = [s for s in walk(kernel.body) if isinstance(s, k.Store)]
    assert [s.value.type.lanes for s in stores] == [16, 4, 1]


def test_rows_that_do_not_come_out_even_are_made_one_by_one() -> None:
    even = TWO.format(more="", lead="i0", extra="")
    odd = even.replace("f32[6,", "f32[7,").replace("i0 < 6", "i0 < 7").replace("i1 < 18", "i1 < 11")
    sizes = [kernel.arrays[0].size for text in (even, odd) for kernel in lower(ir.parse(text))]
    assert sizes == [4 * 40, 40]


def test_what_derives_from_the_outputs_is_computed_with_them() -> None:
    (kernel,) = lower(make_windows(20, 40, 4, (2, 1), 1, masked=True))
    assert [b.name for b in kernel.buffers if b.access is k.Access.WRITE] == ["y"]
    assert "m" in [b.name for b in kernel.buffers]


def test_a_gpu_folds_all_points_of_an_output_at_once() -> None:
    (kernel,) = lower(make_windows(20, 40, 4, (2, 1), 1), GPU)
    assert kernel.arrays == ()
    assert "each computes 8 neighbouring outputs" in kernel.walk


def test_the_reason_names_the_row() -> None:
    (group,) = fuse_rows(make_windows(20, 40, 4, (2, 1), 1)).groups
    assert group.row == "y_rows"
    assert "a row of %y_rows at a time is kept for it in a line buffer" in group.reason


def test_traffic_leaves_the_row_out() -> None:
    fusion = fuse_rows(make_windows(20, 40, 4, (2, 1), 1))
    moved = fusion.traffic(fusion.groups[0])
    assert moved is not None
    read, written = moved
    image = 3 * 40 * 80 * 4
    assert image <= read < image + 2000
    assert written == 3 * 20 * 40 * 4


TWO = """
func @two(%x: f32[6, 20, 30]) -> (%y{more}) {{
  %rows: f32[i0 < 6, i1 < 18, i2 < 30] = sum[r0 < 3] %x[i0, add(i1, r0), i2]
  %y: f32[i0 < 6, i1 < 18, i2 < 28] = sum[r0 < 3] %rows[{lead}, i1, add(i2, r0)]
{extra}}}
"""
OTHER = "  %z: f32[i0 < 6, i1 < 18, i2 < 30] = neg(%rows[i0, i1, i2])\n"


@pytest.mark.parametrize(
    ("more", "lead", "extra", "kernels"),
    [
        ("", "i0", "", 1),
        (", %z", "i0", OTHER, 2),  # another stage reads the rows
        (", %rows", "i0", "", 2),  # they leave
        ("", "sub(5, i0)", "", 2),  # the reader is elsewhere
    ],
)
def test_a_row_has_one_reader_at_its_own_place(
    more: str, lead: str, extra: str, kernels: int
) -> None:
    function = ir.parse(TWO.format(more=more, lead=lead, extra=extra))
    assert len(lower(function)) == kernels


def test_rows_that_are_too_long_are_stored() -> None:
    long = TWO.replace("30]", "5000]").replace("i2 < 30", "i2 < 5000").replace("28", "4998")
    assert len(lower(ir.parse(long.format(more="", lead="i0", extra="")))) == 2


def test_what_has_fewer_axes_than_a_row_keeps_none() -> None:
    function = ir.parse(
        "func @f(%x: f32[12, 9]) -> (%y) {\n"
        "  %p: f32[i0 < 12] = product[r0 < 9] %x[i0, r0]\n"
        "  %y: f32[] = sum[r0 < 12] %p[r0]\n"
        "}\n"
    )
    assert len(lower(function)) == 2
