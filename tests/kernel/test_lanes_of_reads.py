"""How element-wise kernels are shaped that read what does not lie side by side."""

from __future__ import annotations

import pytest

from dmlc import ir
from dmlc.codegen.targets import find_dialect
from dmlc.kernel import nodes as k
from dmlc.kernel.target import CPU, GPU, Profile
from tests.kernel.lowering import lower_elements
from tests.kernel.statements import list_parts, list_shuffles, walk

LIMITS = find_dialect("opencl").limits


def make(place: str, columns: int, outputs: int, dtype: str = "f32", more: str = "") -> ir.Function:
    return ir.parse(f"""
        func @f(%x: {dtype}[5, {columns}]{more}) -> (%y) {{
          %y: {dtype}[i0 < 5, i1 < {outputs}] = {place}
        }}""")


def make_kernel(function: ir.Function, profile: Profile = CPU) -> k.Kernel:
    return lower_elements(function, profile)


def list_loops(kernel: k.Kernel) -> list[tuple[object, object, int]]:
    """Start, end and step of the innermost loops."""
    loops = [s for s in walk(kernel.body) if isinstance(s, k.For)]
    return [
        (s.start.value, s.stop.value, s.step)
        for s in loops
        if not any(isinstance(inner, k.For) for inner in s.body)
        and isinstance(s.start, k.Literal)
        and isinstance(s.stop, k.Literal)
    ]


def test_each_element_twice() -> None:
    kernel = make_kernel(make("neg(%x[i0, div(i1, 2)])", 20, 40))
    assert list_loops(kernel) == [(0, 40, 8)]
    # One load of four has it all, for either half.
    assert list_shuffles(kernel) == [(0, 0, 1, 1, 6, 6, 7, 7)]


def test_an_output_is_left_where_loads_would_leave_the_tensor() -> None:
    kernel = make_kernel(make("neg(%x[i0, mul(i1, 2)])", 79, 40, "f16"))
    assert list_loops(kernel) == [(0, 39, 8)]


def test_places_held_at_the_edges_are_computed_one_by_one() -> None:
    clamped = "neg(%x[i0, min(max(sub(div(i1, 2), 1), 0), 17)])"
    kernel = make_kernel(make(clamped, 18, 40))
    # The last vector takes some of the one before once more.
    assert list_loops(kernel) == [(0, 2, 1), (2, 38, 8), (38, 40, 1)]


def test_what_may_lie_in_the_result_is_read_once() -> None:
    own = make("add(%z[i0, i1], %x[i0, div(i1, 2)])", 19, 38, more=", %z: f32[5, 38]")
    assert list_loops(make_kernel(own)) == [(0, 32, 8), (32, 38, 1)]
    other = make("add(%z[i0, 0], %x[i0, div(i1, 2)])", 19, 38, more=", %z: f32[5, 1]")
    assert list_loops(make_kernel(other)) == [(0, 38, 8)]


def test_inside_an_image_padding_is_the_same_in_all_lanes() -> None:
    padded = "select(and(ge(i1, 3), lt(i1, 35)), %x[i0, min(max(sub(i1, 3), 0), 31)], 1.0)"
    kernel = make_kernel(make(padded, 32, 40))
    assert list_loops(kernel) == [(0, 3, 1), (3, 35, 8), (35, 40, 1)]
    assert not list_shuffles(kernel)


def test_what_lies_side_by_side_is_read_as_ever() -> None:
    kernel = make_kernel(
        make("mul(%x[i0, div(i1, 2)], %w[i0, i1])", 20, 40, more=", %w: f32[5, 40]")
    )
    lanes = {
        each.type.lanes
        for each in list_parts(kernel.body)
        if isinstance(each, k.Load) and each.buffer == "w"
    }
    assert lanes == {8}


@pytest.mark.parametrize(
    ("place", "dtype"),
    [
        ("select(eq(mod(i1, 2), 0), %x[i0, i1], 1.0)", "f32"),  # a position decides, in each lane
        ("%x[i0, div(mul(i1, 3), 5)]", "f32"),  # does not repeat after eight
        ("%x[i0, cast(cast(i1, f32), index)]", "f64"),
        ("%x[i0, div(i1, 2)]", "f64"),  # no 32 bits
        ("%x[i0, mul(i1, 2)]", "f32"),  # compilers make as good a vector of even steps
        ("%x[i0, div(i1, add(i0, 1))]", "f32"),  # depends on the row
    ],
)
def test_what_is_computed_one_by_one(place: str, dtype: str) -> None:
    kernel = make_kernel(make(place, 80, 40, dtype))
    assert not list_shuffles(kernel)


def test_a_gpu_reads_element_by_element() -> None:
    assert not list_shuffles(make_kernel(make("neg(%x[i0, div(i1, 2)])", 20, 40), GPU))


def test_long_rows_are_cut_into_whole_vectors() -> None:
    kernel = make_kernel(make("neg(%x[i0, div(i1, 2)])", 20_003, 40_006))
    assert list_shuffles(kernel)
    steps = [s.step for s in walk(kernel.body) if isinstance(s, k.For)]
    assert steps == [8, 1]


def test_the_number_of_an_output_goes_in_lanes() -> None:
    place = "select(eq(%p[i0, div(i1, 2)], cast(i1, s32)), %x[i0, div(i1, 2)], 0.0)"
    kernel = make_kernel(make(place, 20, 40, more=", %p: s32[5, 20]"))
    assert list_loops(kernel) == [(0, 40, 8)]
    numbers = {p.values for p in list_parts(kernel.body) if isinstance(p, k.Numbers)}
    assert numbers == {tuple(range(8))}


def test_what_decides_on_positions_is_the_same_in_all_lanes() -> None:
    """A choice between positions is made once; where it would differ, outputs go one by one."""
    place = "add(%x[i0, select(lt(i1, 12), add(i1, 5), i1)], cast(i1, f32))"
    kernel = make_kernel(make(place, 40, 40))
    assert list_loops(kernel) == [(0, 4, 1), (4, 40, 8)]
    parts = list_parts(kernel.body)
    assert {p.values for p in parts if isinstance(p, k.Numbers)} == {tuple(range(8))}
    assert {p.type.lanes for p in parts if isinstance(p, k.Select)} == {1}
