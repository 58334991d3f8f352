"""Contractions: which sums of products are recognized, and what tiles and panels make of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.kernel import target as schedule
from dmlc.kernel.interpret import KernelFault, run_kernels
from dmlc.kernel.nodes import Kernel, Select, StoreLocal
from dmlc.kernel.rewrite import walk_parts, walk_statements
from dmlc.loops.contraction import Contraction, find_contraction, part_axes
from dmlc.loops.phases import collect_phases
from dmlc.pipeline import compile, find_fusion, make_kernels
from dmlc.reference import evaluate
from dmlc.scalars import Array
from dmlc.testing.bounds import bound_errors
from tests.goldens import make_inputs
from tests.kernel.lowering import interpret, run
from tests.products import (
    KINDS,
    Product,
    Windows,
    draw_product,
    draw_windows,
    expect_some_finite,
    fill_beside_infinities,
)
from tests.testing.mutate import list_mutants

PROFILES = (("hlsl", "gpu"), ("opencl", "gpu"), ("opencl", "cpu"))


def find(text: str) -> Contraction | None:
    """The contraction that the one kernel of a function is."""
    fusion = find_fusion(ir.parse(text), "opencl", "gpu")
    (group,) = fusion.groups
    if not group.passes:
        return None
    stored = {r.name for r in fusion.function.results}
    phases = collect_phases(fusion.function, group.parallel, group.passes, stored)
    return find_contraction(part_axes(phases))


def product(sizes: str, value: str, tensors: str, where: str = "", combiner: str = "sum") -> str:
    """A reduction over `r0 < 20`."""
    return f"""func @f({tensors}) -> (%y) {{
        %y: f32[{sizes}] = {combiner}[r0 < 20{where}] {value} }}"""


def sizes_of(found: Contraction | None) -> tuple[int, int, int, int] | None:
    """Batches, rows, columns and points."""
    return found and (found.batches, found.rows, found.columns, found.depth)


FOUND: dict[str, tuple[str, tuple[int, int, int, int]]] = {
    "a product": (
        product("i0 < 7, i1 < 9", "mul(%A[i0, r0], %B[r0, i1])", "%A: f32[7, 20], %B: f32[20, 9]"),
        (1, 7, 9, 20),
    ),
    "columns come first": (
        product("i0 < 7, i1 < 9", "mul(%B[r0, i1], %A[i0, r0])", "%A: f32[7, 20], %B: f32[20, 9]"),
        (1, 7, 9, 20),
    ),
    "factors are transposed": (
        product("i0 < 7, i1 < 9", "mul(%A[r0, i0], %B[i1, r0])", "%A: f32[20, 7], %B: f32[9, 20]"),
        (1, 7, 9, 20),
    ),
    "a batch": (
        product(
            "i0 < 3, i1 < 7, i2 < 9",
            "mul(%A[i0, i1, r0], %B[i0, r0, i2])",
            "%A: f32[3, 7, 20], %B: f32[3, 20, 9]",
        ),
        (3, 7, 9, 20),
    ),
    "one factor for a whole batch, whose rows are many then": (
        product(
            "i0 < 3, i1 < 7, i2 < 9",
            "mul(%A[i0, i1, r0], %B[r0, i2])",
            "%A: f32[3, 7, 20], %B: f32[20, 9]",
        ),
        (1, 21, 9, 20),
    ),
    "a factor is computed": (
        product(
            "i0 < 7, i1 < 9",
            "mul(exp(sub(%A[i0, r0], %C[i0])), %B[r0, i1])",
            "%A: f32[7, 20], %B: f32[20, 9], %C: f32[7]",
        ),
        (1, 7, 9, 20),
    ),
    "a window": (
        product(
            "i0 < 7, i1 < 9",
            "mul(%A[i0, r0], %B[sub(add(i1, r0), 3)])",
            "%A: f32[7, 20], %B: f32[25]",
            " where ge(sub(add(i1, r0), 3), 0)",
        ),
        (1, 7, 9, 20),
    ),
    "groups of channels": (
        product(
            "i0 < 12, i1 < 9",
            "mul(%A[i0, r0], %B[add(mul(div(i0, 4), 20), r0), i1])",
            "%A: f32[12, 20], %B: f32[60, 9]",
        ),
        (3, 4, 9, 20),
    ),
}


@pytest.mark.parametrize("kind", FOUND)
def test_contractions_are_found(kind: str) -> None:
    text, wanted = FOUND[kind]
    assert sizes_of(find(text)) == wanted


OTHERS: dict[str, str] = {
    "one factor": product("i0 < 7", "%A[i0, r0]", "%A: f32[7, 20]"),
    "no columns": product(
        "i0 < 7", "mul(%A[i0, r0], %B[r0])", "%A: f32[7, 20], %B: f32[20]"
    ),
    "a factor with rows and columns": product(
        "i0 < 7, i1 < 9", "mul(%A[i0, r0], %B[i0, r0, i1])", "%A: f32[7, 20], %B: f32[7, 20, 9]"
    ),
    "a guard on rows and columns": product(
        "i0 < 7, i1 < 9",
        "mul(%A[i0, r0], %B[r0, i1])",
        "%A: f32[7, 20], %B: f32[20, 9]",
        " where le(add(i0, i1), r0)",
    ),
    "an extreme": product(
        "i0 < 7, i1 < 9", "mul(%A[i0, r0], %B[r0, i1])", "%A: f32[7, 20], %B: f32[20, 9]",
        combiner="max",
    ),
    "a quotient": product(
        "i0 < 7, i1 < 9", "div(%A[i0, r0], %B[r0, i1])", "%A: f32[7, 20], %B: f32[20, 9]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_other_reductions_are_none(kind: str) -> None:
    assert find(OTHERS[kind]) is None


def test_conditions_are_those_of_the_factor_they_leave_points_of_out() -> None:
    text, _ = FOUND["a window"]
    found = find(text)
    assert found is not None
    assert found.has_holes
    assert [len(found.left.conditions), len(found.right.conditions)] == [0, 1]
    triangle = find(
        product(
            "i0 < 7, i1 < 9",
            "mul(%A[i0, r0], %B[r0, i1])",
            "%A: f32[7, 20], %B: f32[20, 9]",
            " where ne(mod(r0, 3), 1)",
        )
    )
    assert triangle is not None
    assert not triangle.has_holes
    assert [len(triangle.left.conditions), len(triangle.right.conditions)] == [1, 1]


# What schedules make of them -------------------------------------------------------------------


def is_tiled(kernels: tuple[Kernel, ...]) -> bool:
    return any("put into" in line for kernel in kernels for line in kernel.schedule)


@pytest.mark.parametrize(("target", "profile"), PROFILES)
def test_products_are_tiled(target: str, profile: str) -> None:
    _, kernels = make_kernels(Product(65, 67, 33).make(), target, profile)
    assert is_tiled(kernels)
    _, kernels = make_kernels(Product(3, 67, 33).make(), target, profile)
    assert not is_tiled(kernels)


@settings(deadline=None, max_examples=20)
@given(product=draw_product(), which=st.sampled_from(PROFILES))
@example(product=Product(65, 130, 17, before=True), which=PROFILES[0])
@example(product=Product(64, 64, 32, 2, b_transposed=True), which=PROFILES[1])
@example(product=Product(63, 65, 33, 3, "b", a_transposed=True), which=PROFILES[2])
@example(product=Product(33, 16, 3, y_transposed=True, dtype="f16"), which=PROFILES[0])
@example(product=Product(200, 270, 17), which=PROFILES[2])
@example(product=Product(17, 33, 601), which=PROFILES[2])
@example(product=Product(9, 17, 270, 3, b_transposed=True), which=PROFILES[2])
def test_products_are_those_of_the_reference(product: Product, which: tuple[str, str]) -> None:
    fused, kernels = make_kernels(product.make(), *which)
    run(fused, kernels)


@settings(deadline=None, max_examples=20)
@given(
    windows=draw_windows(),
    kind=st.sampled_from(KINDS),
    which=st.sampled_from(PROFILES),
)
@example(windows=Windows(2, 16, 9, 9, 17, 3, 2, 1), kind="data", which=PROFILES[0])
@example(windows=Windows(2, 18, 9, 7, 32, 3, 1, 2, 2, 2), kind="forward", which=PROFILES[0])
@example(windows=Windows(2, 18, 9, 7, 32, 3, 1, 2, 2, 2), kind="weights", which=PROFILES[2])
@example(windows=Windows(2, 2, 10, 9, 17, 2, 1, 2), kind="forward", which=PROFILES[2])
@example(windows=Windows(2, 6, 6, 8, 16, 3, 4, 1, 2), kind="data", which=PROFILES[2])
def test_windows_are_those_of_the_reference(
    windows: Windows, kind: str, which: tuple[str, str]
) -> None:
    if min(*windows.results, *windows.spread) < 1:
        return
    fused, kernels = make_kernels(windows.make(kind), *which)
    run(fused, kernels)


@pytest.fixture
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that one work group keeps busy, so that small products have large tiles."""
    profiles = (schedule.CPU, dataclasses.replace(schedule.GPU, groups=1))
    monkeypatch.setattr(schedule, "PROFILES", profiles)


LARGE: dict[str, tuple[ir.Function, int, int]] = {
    # The rows, and columns, of outputs that a group has, and a work item.
    "one tile": (Product(63, 33, 17).make(), 64, 4),
    "a part of a tile": (Product(65, 34, 17, before=True).make(), 64, 8),
    "a batch": (Product(64, 64, 32, 2, b_transposed=True).make(), 64, 8),
    "a factor that all share": (Product(40, 68, 33, 3, "b", a_transposed=True).make(), 64, 8),
    "transposed outputs": (Product(68, 33, 3, y_transposed=True, dtype="f16").make(), 64, 8),
    "a convolution": (Windows(2, 4, 9, 7, 68, 3, 1, 2, 2, 2).make("forward"), 64, 8),
    "a gradient": (Windows(2, 34, 9, 9, 17, 3, 2, 1).make("data"), 64, 8),
    "large tiles, which outputs fill": (Product(121, 127, 17, 2).make(), 128, 8),
}


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("target", ["hlsl", "opencl"])
@pytest.mark.usefixtures("small_gpu")
def test_large_tiles_are_those_of_the_reference(kind: str, target: str) -> None:
    function, side, each = LARGE[kind]
    fused, kernels = make_kernels(function, target, "gpu")
    words = f"a group computes a tile of {side} by {side} outputs, and each {each} by {each}"
    assert words in [kernel.walk for kernel in kernels]
    run(fused, kernels)


@pytest.mark.usefixtures("small_gpu")
def test_an_output_of_a_large_tile_that_is_nan_is_computed_again() -> None:
    function = Windows(2, 16, 8, 8, 34, 3, 1, 1).make("forward")
    inputs = {name: values.copy() for name, values in make_inputs(function, 1).items()}
    inputs["weights"][5, 3, 0, 0] = np.inf
    found, wanted = interpret(function, inputs, "hlsl", "gpu"), evaluate(function, inputs)
    for name, values in wanted.items():
        assert not np.isfinite(values).all()
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("target", "profile"), PROFILES[:2])
def test_no_barrier_of_a_tile_can_be_left_out(target: str, profile: str) -> None:
    function = Product(33, 17, 40).make()
    fused, (kernel,) = make_kernels(function, target, profile)
    inputs = make_inputs(function, 1)
    mutants = list(list_mutants(kernel, "a barrier is missing"))
    assert len(mutants) == 2
    for broken in mutants:
        with pytest.raises(KernelFault, match="another item"):
            run_kernels(fused, (broken,), inputs)


@pytest.mark.parametrize(("points", "zeros"), [(32, False), (33, True)])
@pytest.mark.parametrize(("target", "profile"), PROFILES[:2])
def test_only_the_end_of_a_sum_is_filled_up_with_zeros(
    target: str, profile: str, points: int, zeros: bool
) -> None:
    """Rows and columns beyond the end are stored by nobody."""
    function = Product(65, 67, points).make()
    fused, (kernel,) = make_kernels(function, target, profile)
    choices = [p for s in walk_statements(kernel.body) for p in walk_parts(s)]
    assert any(isinstance(part, Select) for part in choices) == zeros
    inputs = make_inputs(function, 1)
    wanted = evaluate(function, inputs)
    for name, found in run_kernels(fused, (kernel,), inputs).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("target", "profile"), PROFILES)
def test_a_long_sum_of_few_outputs_is_taken_in_pieces(target: str, profile: str) -> None:
    fused, kernels = make_kernels(Product(16, 17, 3000).make(), target, profile)
    assert len(kernels) == 2
    assert is_tiled(kernels)
    run(fused, kernels)


FEW_TILES: dict[str, ir.Function] = {
    "few rows and columns": Product(256, 256, 4096).make(),
    "as many tiles as units of a device": Product(768, 768, 2048).make(),
    "the weights of a convolution": Windows(32, 128, 28, 28, 128, 3, 1, 1).make("weights"),
    "those of its groups": Windows(8, 128, 28, 28, 128, 3, 1, 1, 1, 4).make("weights"),
    "those of strides": Windows(32, 128, 28, 28, 128, 3, 2, 1).make("weights"),
}


@pytest.mark.parametrize("kind", FEW_TILES)
def test_pieces_of_a_product_fill_a_large_device(kind: str) -> None:
    """An H100 has 132 units: each has two waves of work items at least."""
    _, kernels = make_kernels(FEW_TILES[kind], "hlsl", "gpu")
    first, _ = kernels
    assert is_tiled((first,))
    launch = first.launch
    assert isinstance(launch.count, int)
    assert launch.count // launch.per_group * launch.group_size >= 132 * 64


def test_pieces_leave_points_side_by_side() -> None:
    """The weights of points: images are shared out, and their rows are read in vectors."""
    function = Windows(32, 128, 56, 56, 128, 1).make("weights")
    _, kernels = make_kernels(function, "hlsl", "gpu")
    assert any("vector left_point" in line for line in kernels[0].schedule)


SPREAD: dict[str, tuple[Windows, int]] = {
    # The points of each output that are gone through.
    "strides": (Windows(2, 18, 8, 12, 17, 3, 2, 1), 17 * 2 * 2),
    "groups": (Windows(2, 36, 8, 6, 34, 3, 2, 1, 1, 2), 17 * 2 * 2),
    "dilated windows": (Windows(2, 16, 9, 12, 16, 4, 3, 2, 2), 16 * 2 * 2),
    "a size that strides do not divide": (Windows(1, 16, 9, 8, 17, 3, 2, 1), 17 * 3 * 2),
}


@pytest.mark.parametrize("kind", SPREAD)
@pytest.mark.parametrize(("target", "profile"), PROFILES)
def test_points_between_strides_are_left_out(kind: str, target: str, profile: str) -> None:
    windows, points = SPREAD[kind]
    function = windows.make("data")
    fusion = find_fusion(function, target, profile)
    (group,) = fusion.groups
    stored = {r.name for r in fusion.function.results}
    phases = collect_phases(fusion.function, group.parallel, group.passes, stored)
    found = find_contraction(part_axes(phases))
    assert found is not None
    assert found.depth == points
    fused, kernels = make_kernels(function, target, profile)
    assert is_tiled(kernels)
    run(fused, kernels)


@pytest.mark.parametrize("kind", ["data", "transposed"])
@pytest.mark.parametrize("stride", [2, 3])
def test_points_that_strides_leave_take_no_quotient_each(kind: str, stride: int) -> None:
    """Which element a point reads, is a sum of indices and what its group knows."""
    size = 4 * stride
    windows = Windows(2, 16, size, size, 16, stride + 2, stride, 1)
    (kernel,) = compile(windows.make(kind), "hlsl").kernels
    _, loop = kernel.source.split("for (int k = 0;", 1)
    loop, _ = loop.split("is_lost", 1)
    assert "mad(" in loop
    assert "div_signed" not in loop


@pytest.mark.parametrize("target", ["hlsl", "opencl"])
def test_few_channels_leave_points_between_strides_out_as_well(target: str) -> None:
    """Work items reduce outputs of their own: nothing is parted, no size comes out even."""
    fused, kernels = make_kernels(Windows(2, 3, 33, 31, 16, 7, 2, 3).make("data"), target, "gpu")
    assert sum(line.startswith("thin") for kernel in kernels for line in kernel.script) == 2
    run(fused, kernels)


SKINNY: dict[str, tuple[Product, str]] = {
    "few rows": (Product(8, 130, 300), "8 by 128"),
    "few rows of a transposed factor": (Product(3, 68, 257, b_transposed=True), "8 by 128"),
    "few rows, in one piece": (Product(2, 65, 100, before=True), "8 by 128"),
    "no more than 16 rows": (Product(16, 129, 100, 2, "a"), "16 by 128"),
    "few columns": (Product(129, 9, 65, 2, "b", a_transposed=True), "128 by 16"),
    "halves": (Product(8, 128, 264, dtype="f16", b_transposed=True), "8 by 128"),
    "halves in vectors": (Product(4, 64, 100, dtype="f16"), "8 by 128"),
}


@pytest.mark.parametrize("kind", SKINNY)
@pytest.mark.parametrize("target", ["hlsl", "opencl"])
def test_skinny_products_are_those_of_the_reference(kind: str, target: str) -> None:
    product, sides = SKINNY[kind]
    fused, kernels = make_kernels(product.make(), target, "gpu")
    assert f"a group computes a tile of {sides} outputs, and each 4 by 4" == kernels[0].walk
    run(fused, kernels)


NARROW: dict[str, tuple[ir.Function, str, int]] = {
    "few of both": (Product(12, 24, 2049).make(), "16 by 16 outputs, and each 2 by 2", 64),
    "points side by side": (
        Product(8, 24, 2752, a_transposed=True, b_transposed=True).make(),
        "8 by 32 outputs, and each 2 by 2",
        43,
    ),
    "short sums of a batch": (
        Product(60, 5, 40, 48).make(), "32 by 8 outputs, and each 2 by 2", 2 * 48
    ),
    "groups of channels": (
        Windows(2, 32, 16, 16, 32, 3, 1, 1, 1, 4).make("weights"),
        "8 by 32 outputs, and each 2 by 2",
        3 * 4 * 8,
    ),
    "few channels": (
        Windows(1, 24, 30, 31, 3, 3, 1, 1).make("weights"), "4 by 64 outputs, and each 2 by 2", 60
    ),
}  # fmt: skip
"""Products of few outputs each, or of windows; their tiles, and the groups of the first kernel."""


@pytest.mark.parametrize("kind", NARROW)
def test_long_sums_of_few_outputs_have_small_tiles(kind: str) -> None:
    """Else an output is reduced by work items of its own, each of which reads both factors."""
    function, tiles, groups = NARROW[kind]
    fused, kernels = make_kernels(function, "hlsl", "gpu")
    assert f"a group computes a tile of {tiles}" == kernels[0].walk
    count, per_group = kernels[0].launch.count, kernels[0].launch.per_group
    assert isinstance(count, int)
    assert -(-count // per_group) == groups
    inputs = make_inputs(function, 0)
    got = run_kernels(fused, kernels, inputs, misaligned=1)
    wanted, allowed = evaluate(function, inputs), bound_errors(function, inputs)
    for name, values in got.items():
        assert (np.abs(values - wanted[name]) <= allowed[name]).all()


def test_few_outputs_are_cut_up_as_products_are() -> None:
    """Partial results that are combined again are those of a product, and fill a device."""
    _, (first, _) = make_kernels(Product(64, 64, 65536, after=False).make(), "hlsl", "gpu")
    _, (second, _) = make_kernels(Product(24, 24, 65536, after=False).make(), "hlsl", "gpu")
    assert first.launch.count == 256
    assert second.launch.count == 512


def test_pieces_of_one_length_are_read_in_vectors() -> None:
    """The points of a 1x1 convolution's gradient lie side by side in both factors."""
    function = Windows(4, 64, 16, 16, 64, 1).make("weights")
    _, (first, _) = make_kernels(function, "hlsl", "gpu")
    assert sum(line.startswith("vectorize") for line in first.script) == 3


def test_a_last_piece_with_fewer_points_leaves_nothing_unwritten() -> None:
    """Six pieces of 131 points are two more than there are: panels have 0 there."""
    fused, kernels = make_kernels(Windows(2, 24, 28, 28, 24, 1).make("weights"), "opencl", "cpu")
    assert kernels[0].cut == ("diff_weights", "rfactor k1 131")
    run(fused, kernels)


def interpret_all(function: ir.Function, inputs: Mapping[str, Array]) -> list[dict[str, Array]]:
    return [interpret(function, inputs, *which) for which in PROFILES]


@pytest.mark.parametrize(("kind", "stride"), [("forward", 1), ("data", 1), ("data", 2)])
def test_padding_meets_no_infinity(kind: str, stride: int) -> None:
    """An element in the padding takes no part, whatever the weight is it would be multiplied by."""
    function = Windows(1, 16, 6, 6, 16, 3, stride, 1).make(kind)
    inputs = fill_beside_infinities(function)
    wanted = evaluate(function, inputs)
    for found in interpret_all(function, inputs):
        expect_some_finite(found, wanted)


@pytest.mark.parametrize(
    ("rows", "columns", "points", "packed"),
    [(18, 96, 512, 18), (18, 96, 16, 96), (96, 18, 512, 18)],
    ids=["deep", "shallow", "few columns"],
)
def test_the_smaller_factor_is_packed_transposed(
    rows: int, columns: int, points: int, packed: int
) -> None:
    """Points of both lie side by side. Columns are what is packed transposed."""
    fused, kernels = make_kernels(ir.parse(f"""func @f(
        %A: f32[{rows}, {points}], %B: f32[{columns}, {points}]) -> (%y) {{
        %y: f32[i0 < {rows}, i1 < {columns}] = sum[r0 < {points}]
            mul(%A[i0, r0], %B[i1, r0]) }}"""), "opencl", "cpu")  # fmt: skip
    assert f"by {packed} outputs" in kernels[0].walk
    run(fused, kernels)


@pytest.mark.parametrize(
    ("height", "depth", "tile", "is_cut"),
    [(40, 64, (64, 240), True), (14, 128, (64, 98), True), (14, 8, (64, 56), False)],
    ids=["large", "small", "shallow"],
)
def test_windows_are_packed_for_many_rows(
    height: int, depth: int, tile: tuple[int, int], is_cut: bool
) -> None:
    """Tiles of few rows would pack the same windows as often as there are tiles of rows."""
    function = Windows(1, depth, height, height, 64, 3, 1, 1).make("forward")
    _, (kernel, *_) = make_kernels(function, "opencl", "cpu")
    rows, columns = tile
    assert f"a tile of {rows} by {columns} outputs" in kernel.walk
    assert bool(kernel.cut) == is_cut


@pytest.mark.parametrize("size", [9, 10, 14, 15])
def test_short_rows_of_windows_are_computed_in_vectors(size: int) -> None:
    """A row of 14 outputs has two vectors of eight, one of which overlaps the other."""
    fused, kernels = make_kernels(ir.parse(f"""func @f(
        %x: f32[3, {size}, {size}], %w: f32[3, 5, 5]) -> (%y) {{
        %y: f32[i0 < 3, i1 < {size}, i2 < {size}] = sum[r0 < 5, r1 < 5] {{
            v0 = sub(add(i1, r0), 2)
            v1 = sub(add(i2, r1), 2)
            where and(and(ge(v0, 0), lt(v0, {size})), and(ge(v1, 0), lt(v1, {size})))
            mul(%x[i0, v0, v1], %w[i0, r0, r1]) }} }}"""), "opencl", "cpu")  # fmt: skip
    vectors = any(line.startswith("vectorize i2 8 gather") for line in kernels[0].script)
    assert vectors == (size > 12)
    run(fused, kernels)


@pytest.mark.parametrize("a_transposed", [False, True])
def test_what_is_packed_transposed_is_stored_in_vectors(a_transposed: bool) -> None:
    """Sizes are no whole number of the squares that go through registers."""
    product = Product(21, 43, 37, a_transposed=a_transposed, b_transposed=True)
    fused, (kernel,) = make_kernels(product.make(), "opencl", "cpu")
    stores = [s for s in walk_statements(kernel.body) if isinstance(s, StoreLocal)]
    wide = [s for s in stores if s.array == "right_panel" and s.value.type.lanes == 8]
    assert len(wide) == 8
    run(fused, (kernel,))


@pytest.mark.parametrize("where", ["lt(add(r0, i1), 20)", "le(r0, i0)", "ge(mul(r0, 2), i1)"])
@pytest.mark.parametrize(("target", "profile"), PROFILES)
def test_a_condition_moves_along_what_is_packed(target: str, profile: str, where: str) -> None:
    text = product(
        "i0 < 40, i1 < 40", "mul(%A[i0, r0], %B[r0, i1])", "%A: f32[40, 20], %B: f32[20, 40]",
        f" where {where}",
    )  # fmt: skip
    run(*make_kernels(ir.parse(text), target, profile))


def test_zeros_of_either_sign_add_up_to_a_positive_one() -> None:
    function = Product(17, 16, 3, after=False).make()
    sizes = {p.name: [int(e) for e in p.extents] for p in function.parameters}
    inputs = {name: np.full(each, -0.0, np.float32) for name, each in sizes.items()}
    inputs["A"] = np.ones(sizes["A"], np.float32)
    for found in interpret_all(function, inputs):
        assert not np.signbit(found["y"]).any()
    assert not np.signbit(evaluate(function, inputs)["y"]).any()


def test_tiles_give_the_same_bits_in_every_language() -> None:
    function = Product(65, 33, 130, 2).make()
    random = np.random.default_rng(5)
    inputs = {
        p.name: random.standard_normal([int(e) for e in p.extents]).astype(np.float32)
        for p in function.parameters
    }
    first, second, _ = interpret_all(function, inputs)
    np.testing.assert_array_equal(first["y"], second["y"])
