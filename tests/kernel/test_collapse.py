"""How dimensions merge before a domain is walked."""

from __future__ import annotations

import re

import pytest

from dmlc import compile, ir
from dmlc.loops.arrange import collapse
from dmlc.loops.element import Elements, collect_elements
from dmlc.sizes import Measure, Size


def walk(text: str) -> Elements:
    return collapse(collect_elements(ir.parse(text), ("y",)))


def by_tensor(made: Elements) -> dict[str, tuple[Measure, ...]]:
    return {view.tensor: view.strides for view in made.views()}


def test_packed_tensors_are_one_dimension() -> None:
    made = walk(
        "func @f(%x: f32[2, 3, 4]) -> (%y) "
        "{ %y: f32[i0 < 2, i1 < 3, i2 < 4] = neg(%x[i0, i1, i2]) }"
    )
    assert made.space.extents == (24,)
    assert made.space.packed
    assert by_tensor(made) == {"x": (1,), "y": (1,)}


def test_a_common_transpose_is_packed_too() -> None:
    made = walk(
        "func @f(%x: f32[2, 3]{1, 2}) -> (%y{1, 2}) { %y: f32[i0 < 2, i1 < 3] = neg(%x[i0, i1]) }"
    )
    assert (made.space.extents, made.space.packed) == ((6,), True)


def test_a_broadcast_keeps_its_axis_apart() -> None:
    made = walk(
        "func @f(%x: f32[2, 3, 4, 5], %m: f32[1, 3, 1, 1]) -> (%y) "
        "{ %y: f32[i0 < 2, i1 < 3, i2 < 4, i3 < 5] = sub(%x[i0, i1, i2, i3], %m[0, i1, 0, 0]) }"
    )
    assert made.space.extents == (2, 3, 20)
    assert by_tensor(made) == {"x": (60, 20, 1), "m": (0, 1, 0), "y": (60, 20, 1)}
    assert not made.space.packed
    assert made.space.count == 120


def test_the_order_is_that_of_the_first_result_in_memory() -> None:
    made = walk(
        "func @f(%x: f32[2, 3, 4]) -> (%y{1, 2, 6}) "
        "{ %y: f32[i0 < 2, i1 < 3, i2 < 4] = neg(%x[i0, i1, i2]) }"
    )
    assert made.space.extents == (4, 3, 2)
    assert made.space.indices == ("i2", "i1", "i0")
    assert by_tensor(made) == {"x": (1, 4, 12), "y": (6, 2, 1)}


def test_merged_dimensions_have_the_names_of_their_indices() -> None:
    made = walk(
        "func @f(%x: f32[2, 1, 4, 5], %m: f32[1, 1, 4, 5]) -> (%y) "
        "{ %y: f32[i0 < 2, i1 < 1, i2 < 4, i3 < 5] = sub(%x[i0, i1, i2, i3], %m[0, 0, i2, i3]) }"
    )
    assert (made.space.extents, made.space.indices) == ((2, 20), ("i0", "i2i3"))


@pytest.mark.parametrize("target", ["hlsl", "wgsl"])
def test_an_index_in_the_code_is_the_index_in_the_formula(target: str) -> None:
    function = ir.parse(
        "func @f(%x: f32[2, 3, 9, 7], %i: s32[9]) -> (%y) { %y: f32[i0 < 2, i1 < 3, i2 < 9, i3 < 7]"
        " = %x[i0, i1, min(max(cast(%i[i2], index), 0), 8), i3] }"
    )
    (kernel,) = compile(function, target).kernels
    assert all(re.search(rf"\b{name}\b[^;]* = ", kernel.source) for name in ("i0i1", "i2", "i3"))


@pytest.mark.parametrize("sizes", ["1, 1", "3, 0"])
def test_one_element_or_none_is_packed_whatever_the_strides(sizes: str) -> None:
    a, b = sizes.split(", ")
    made = walk(
        f"func @f(%x: f32[{sizes}]{{7, 9}}) -> (%y) "
        f"{{ %y: f32[i0 < {a}, i1 < {b}] = neg(%x[i0, i1]) }}"
    )
    assert (made.space.packed, by_tensor(made)) == (True, {"x": (1,), "y": (1,)})
    assert made.space.count == int(a) * int(b)


def test_a_run_time_count_is_packed() -> None:
    made = walk("func @f(%x: f32[n], %s: f32[1]) -> (%y) { %y: f32[i0 < n] = mul(%x[i0], %s[0]) }")
    assert (made.space.count, made.space.packed) == (Size.of("n"), True)
    assert by_tensor(made)["s"] == (0,)


def test_an_element_other_than_the_first_is_not_packed() -> None:
    made = walk("func @f(%x: f32[8], %s: f32[5]) -> (%y) { %y: f32[i0 < 8] = mul(%x[i0], %s[3]) }")
    assert not made.space.packed
    assert {view.offset for view in made.views()} == {0, 3}
