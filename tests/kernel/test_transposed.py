"""Tiles of what lies across: which work has them, how they are cut, and that they change no bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings

from dmlc import ir
from dmlc.kernel import nodes as k
from dmlc.kernel.rewrite import list_expressions, walk
from dmlc.kernel.steps import count_steps
from dmlc.pipeline import make_kernels
from dmlc.scalars import Array
from tests.kernel.lowering import interpret, run
from tests.reductions import make_inputs
from tests.transposed import Transposed, draw_transposed, reduce_both_ways

TARGETS = ("opencl", "hlsl")


def lower(function: ir.Function, target: str = "hlsl") -> k.Kernel:
    _, (kernel,) = make_kernels(function, target, "gpu")
    return kernel


def find_tiles(function: ir.Function, target: str = "hlsl") -> list[int]:
    """The elements of each shared array."""
    return [array.size for array in lower(function, target).arrays if array.shared]


def bits(values: Array) -> bytes:
    return np.ascontiguousarray(values).tobytes()


# What they compute -----------------------------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(work=draw_transposed())
@example(work=Transposed(64, 96))
@example(work=Transposed(70, 33, 2, across=2, along=1, dtype="f16", stored="f16"))
@example(work=Transposed(8, 256, 3))
@example(work=Transposed(256, 8, 3, along=1))
@example(work=Transposed(9, 130))
@example(work=Transposed(64, 64, shifted=True, along=1))
@example(work=Transposed(64, 128, turned=True, along=1))
@example(work=Transposed(33, 40, 2, across=5, along=1, turned=True))
def test_tiles_change_no_bit(work: Transposed) -> None:
    function = work.make()
    inputs = make_inputs(function)
    wanted = interpret(function, inputs, "opencl", "cpu")
    for target in TARGETS:
        found = interpret(function, inputs, target, "gpu")
        for name, values in found.items():
            assert bits(values) == bits(wanted[name]), (target, name)


@pytest.mark.parametrize("work", [Transposed(64, 96, along=1), Transposed(33, 70, 2)])
def test_wgsl_has_tiles_too(work: Transposed) -> None:
    function = work.make()
    assert find_tiles(function, "wgsl") == [32 * 33]
    inputs = make_inputs(function)
    found = interpret(function, inputs, "wgsl")
    assert bits(found["y"]) == bits(interpret(function, inputs, "opencl", "cpu")["y"])


# Which work gets them --------------------------------------------------------------------------


def test_a_tile_has_as_many_elements_whatever_its_sides() -> None:
    assert find_tiles(Transposed(64, 64).make()) == [32 * 33]
    # Each row has as many elements more as make those of a column lie in all banks.
    assert find_tiles(Transposed(8, 256).make()) == [8 * (128 + 4)]
    assert find_tiles(Transposed(16, 256).make()) == [16 * (64 + 2)]
    assert find_tiles(Transposed(256, 8).make()) == [128 * (8 + 1)]
    assert find_tiles(Transposed(4096, 4096).make()) == [64 * 33]


@pytest.mark.parametrize(("rows", "columns"), [(4096, 7), (7, 4096), (8, 64), (16, 32)])
def test_short_axes_have_none(rows: int, columns: int) -> None:
    assert find_tiles(Transposed(rows, columns, 2).make()) == []


def test_what_lies_along_has_none() -> None:
    function = ir.parse("""
        func @f(%X: f32[64, 64], %B: f32[64]) -> (%y) {
          %y: f32[i0 < 64, i1 < 64] = mul(%X[i0, i1], add(%B[i0], %B[i1]))
        }""")
    assert find_tiles(function) == []


def test_what_is_computed_across_goes_through_one_tile() -> None:
    assert find_tiles(Transposed(64, 64, across=4).make()) == [32 * 33]
    # Three operands lie each before one that lies along.
    function = ir.parse("""
        func @f(%A: f32[64, 64], %B: f32[64, 64], %C: f32[64, 64], %D: f32[64, 64],
                %Z: f32[64, 64]) -> (%y) {
          %y: f32[i0 < 64, i1 < 64] = add(mul(%A[i1, i0], %Z[i0, i1]),
            max(mul(%B[i1, i0], add(%Z[i0, i1], 1.0)),
                mul(add(%C[i1, i0], %D[i1, i0]), max(%Z[i0, i1], 0.5))))
        }""")
    assert find_tiles(function) == [32 * 33] * 3


def test_tiles_take_no_more_memory_than_there_is() -> None:
    function = ir.parse("""
        func @f(%A: f32[64, 64], %B: f32[64, 64], %C: f32[64, 64], %D: f32[64, 64],
                %Z: f32[64, 64]) -> (%y) {
          %y: f32[i0 < 64, i1 < 64] = add(add(mul(%A[i1, i0], %Z[i0, i1]),
            mul(%B[i1, i0], max(%Z[i0, i1], 0.5))), add(mul(%C[i1, i0], add(%Z[i0, i1], 2.0)),
            mul(%D[i1, i0], add(%Z[i0, i1], 1.0))))
        }""")
    assert sum(find_tiles(function)) * 4 <= 1 << 14


def test_a_result_that_lies_across_is_stored_along_its_own_axis() -> None:
    kernel = lower(Transposed(64, 128, turned=True, along=1).make())
    steps = count_steps(kernel)
    assert steps is not None
    # Three operands and results, every byte once.
    assert steps.sector_bytes == steps.line_bytes == 4 * 4 * 64 * 128


# How memory is accessed ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("sizes", [(4096, 2048), (64, 96), (8, 256), (256, 8), (3136, 64)])
def test_every_line_is_asked_for_once(dtype: str, sizes: tuple[int, int]) -> None:
    rows, columns = sizes
    work = Transposed(rows, columns, 4, dtype=dtype, stored=dtype, along=1)
    steps = count_steps(lower(work.make()))
    assert steps is not None
    moved = 3 * 4 * rows * columns * (4 if dtype == "f32" else 2)
    assert steps.sector_bytes == pytest.approx(moved)
    # Sides shorter than a line end within one.
    most = {"f32": 1, "f16": 2}[dtype] * (1 if min(sizes) >= 32 else 4)
    assert steps.line_bytes <= moved * most * 1.001


def test_vectors_are_read_and_stored_where_sizes_allow() -> None:
    def find_widths(function: ir.Function) -> set[int]:
        steps = count_steps(lower(function))
        assert steps is not None
        return {access.bytes for access in steps.body.accesses}

    assert find_widths(Transposed(64, 96, along=1).make()) == {16}
    assert find_widths(Transposed(63, 96, along=1).make()) == {4, 16}
    assert find_widths(Transposed(63, 97).make()) == {4}


def list_shared(statements: tuple[k.Statement, ...]) -> Iterator[k.Expression]:
    """The positions that are stored and read in shared arrays."""
    for statement in statements:
        if isinstance(statement, k.StoreLocal):
            yield statement.index
        for expression in list_expressions(statement):
            yield from (e.index for e in walk(expression) if isinstance(e, k.LoadLocal))


def find_places(kernel: k.Kernel) -> list[Array]:
    """Where the work items of a group store and read in shared arrays, access by access."""
    known: dict[str, Array] = {}

    def evaluate(node: k.Expression) -> Array:
        match node:
            case k.Literal(value=value):
                return np.array(value)
            case k.Position(geometry=geometry):
                return np.arange(256) if geometry is k.Geometry.LANE else np.array(0)
            case k.Local(name=name):
                return known[name]
            case k.Operate(operation=operation, operands=operands):
                return np.asarray(operation.evaluate(*map(evaluate, operands)))
            case _:
                raise AssertionError(node)

    for statement in kernel.body:
        if isinstance(statement, k.Let) and statement.local.type == k.INDEX:
            known[statement.local.name] = evaluate(statement.value)
    return [np.broadcast_to(evaluate(place), 256) for place in list_shared(kernel.body)]


@pytest.mark.parametrize(
    "work",
    [Transposed(64, 96), Transposed(2048, 1024), Transposed(64, 96, dtype="f16", stored="f16")],
)
def test_work_items_that_run_together_use_different_banks(work: Transposed) -> None:
    places = find_places(lower(work.make()))
    assert places
    for place in places:
        for wave in place.reshape(-1, 32):
            assert sorted(wave % 32) == list(range(32))


def test_a_nest_says_how_a_tile_is_filled() -> None:
    assert lower(Transposed(64, 96).make()).schedule == (
        "group tile by 1 as tile: 0..6 of i1, i2",
        "  stage [x0#tile] repeats no: put into shared x0_tile (1,056)",
        "    lane x0_column by 1 as x0_rows extent 32",
        "      lane x0_row by 4 as x0_columns extent 8",
        "        vector x0_row by 4 as x0_row extent 1",
        "          point 1 into [(buffer x0#tile dim x0_column tile [[x0_column 1] [x0_row 33]]"
        " loose [x0_row x0_column] lane 33)]: keep x0_tile",
        "  lane row by 1 as rows extent 32",
        "    lane column by 4 as columns extent 8",
        "      vector column by 4 as column extent 1",
        "        point 0: store y",
    )


# Reductions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("sizes", [(40, 70), (8, 300), (300, 8), (129, 17), (16, 4100)])
@pytest.mark.parametrize("target", TARGETS)
def test_reductions_of_what_lies_both_ways(target: str, sizes: tuple[int, int], dtype: str) -> None:
    fused, kernels = make_kernels(reduce_both_ways(*sizes, dtype), target, "gpu")
    run(fused, kernels)


@pytest.mark.parametrize(("dtype", "sectors", "lines"), [("f32", 1.22, 7), ("f16", 2.02, 14)])
@pytest.mark.parametrize("sizes", [(4096, 4096), (512, 32768), (65536, 64)])
def test_work_items_take_whole_sectors_both_ways(
    sizes: tuple[int, int], dtype: str, sectors: float, lines: float
) -> None:
    fused, kernels = make_kernels(reduce_both_ways(*sizes, dtype), "hlsl", "gpu")
    found = [steps for each in kernels if (steps := count_steps(each, fused.tables)) is not None]
    # Both operands twice, and the result, of which a wave stores half a sector of floats at once,
    # or a quarter of one of halves.
    moved = 5 * sizes[0] * sizes[1] * (4 if dtype == "f32" else 2)
    assert sum(steps.sector_bytes for steps in found) <= sectors * moved
    assert sum(steps.line_bytes for steps in found) <= lines * moved


# What has no tile though it lies across ----------------------------------------------------------


def test_what_elements_say_where_to_read_has_no_tile() -> None:
    function = ir.parse("""
        func @f(%T: f32[64, 64], %I: INT32[64], %Z: f32[64, 64]) -> (%y) {
          %y: f32[i0 < 64, i1 < 64] =
            add(%T[i1, max(min(cast(%I[i0], index), 63), 0)], %Z[i0, i1])
        }""")
    assert find_tiles(function) == []


def test_types_of_eight_bytes_have_none() -> None:
    function = ir.parse("""
        func @f(%X: INT64[64, 64], %Z: INT64[64, 64]) -> (%y, %w{1, 64}) {
          %y: INT64[i0 < 64, i1 < 64] = add(%X[i1, i0], %Z[i0, i1])
          %w: INT64[i0 < 64, i1 < 64] = add(%X[i1, i0], %Z[i0, i1])
        }""")
    assert find_tiles(function) == []
    inputs = make_inputs(function)
    for name, values in interpret(function, inputs, "opencl", "gpu").items():
        assert bits(values) == bits(interpret(function, inputs, "opencl", "cpu")[name])


def test_a_result_may_be_stored_over_the_operand_it_lies_like() -> None:
    function = ir.parse("""
        func @f(%X: f32[64, 64]{1, 64}, %Z: f32[64, 64]) -> (%y, %w{1, 64}) in place (%w over %X) {
          %y: f32[i0 < 64, i1 < 64] = mul(%Z[i0, i1], 2.0)
          %w: f32[i0 < 64, i1 < 64] = add(%X[i0, i1], %Z[i0, i1])
        }""")
    # The one that both need.
    assert find_tiles(function) == [32 * 33]
