"""Steps, loads and sectors of kernels, against counts by hand."""

from __future__ import annotations

import pytest

import dmlc
from dmlc import ir
from dmlc.kernel.counts import RARE, Rarity, Steps
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.steps import count_steps
from dmlc.pipeline import make_kernels


def count(function: dmlc.ir.Function) -> list[Steps]:
    lowered, kernels = make_kernels(function, "hlsl")
    counted = [count_steps(kernel, lowered.tables) for kernel in kernels]
    return [steps for steps in counted if steps is not None]


def bind(name: str, attributes: dict[str, object], **sizes: tuple[int, ...]) -> dmlc.ir.Function:
    tensors = {n: dmlc.TensorDesc("FLOAT32", s) for n, s in sizes.items()}
    return dmlc.operator(name).bind(tensors, attributes=attributes)


def reduce(size: int) -> dmlc.ir.Function:
    return bind("directml.REDUCE", {"Function": "SUM", "Axes": [1]}, InputTensor=(64, size))


def test_an_element_wise_kernel_loads_each_operand_once() -> None:
    whole = (256, 256)
    (steps,) = count(
        bind("directml.ACTIVATION_RELU_GRAD", {}, InputTensor=whole, InputGradientTensor=whole)
    )
    assert (steps.groups, steps.working, steps.group_size) == (16, 16, 256)
    assert steps.loads == 2 * 65536
    # Vectors of four elements.
    assert steps.total == 2 * 65536 / 4
    assert steps.longest == 8
    # Packed floats: two operands and a result, every byte once.
    assert steps.sector_bytes == 3 * 4 * 65536


def test_the_end_of_a_tensor_counts_for_what_it_is() -> None:
    # 100 groups of 4,096 elements, and one of a single element.
    whole = (1, 100 * 4096 + 1)
    (steps,) = count(
        bind("directml.ACTIVATION_RELU_GRAD", {}, InputTensor=whole, InputGradientTensor=whole)
    )
    assert steps.working == 101
    assert steps.loads == pytest.approx(2 * whole[1], rel=1e-3)


def test_loops_are_counted_by_their_turns() -> None:
    (steps,) = count(reduce(4096))
    assert steps.groups == 64
    turns = [loop.turns for loop in steps.body.loops]
    # 256 lanes fold four vectors each, 16 of them those of the others, and all the 16 of these.
    assert turns == pytest.approx([15 / 8, 15])
    assert [loop.fixed for loop in steps.body.loops] == [15, 15]
    assert steps.loads == 64 * 4096
    # One of the 16: its 4 loads, and turns that load nothing.
    assert steps.longest == 4 + 15 + 15


def test_a_product_reads_its_factors_once_for_each_tile() -> None:
    whole = (1, 1, 256, 256)
    (steps,) = count(bind("directml.GEMM", {}, ATensor=whole, BTensor=whole))
    # Tiles of 32 by 32.
    assert steps.loads == 2 * 256**3 / 32


def test_what_fills_up_a_row_of_groups_does_nothing() -> None:
    whole = (70000, 4096)
    (steps,) = count(
        bind("directml.ACTIVATION_RELU_GRAD", {}, InputTensor=whole, InputGradientTensor=whole)
    )
    assert (steps.groups, steps.working) == (2 * 65535, 70000)
    assert steps.loads == pytest.approx(2 * 70000 * 4096)


def test_sizes_at_run_time_are_not_counted() -> None:
    lowered, kernels = make_kernels(dmlc.operator("directml.ACTIVATION_RELU").bind(), "hlsl")
    assert [count_steps(kernel, lowered.tables) for kernel in kernels] == [None]


def steps_of(body: str, groups: int = 1, size: int = 64, *tables: ir.Table) -> Steps:
    kernel = parse_kernel(f"""kernel f {{
        launch ceil({groups} / 1) groups of {size}, index u32
        buffer x: f32 read
        buffer n: int32 read
        buffer y: f32 write
        {body}
    }}""")
    found = count_steps(kernel, tables)
    assert found is not None
    return found


def test_loops_that_depend_on_the_lane_take_as_long_as_the_last() -> None:
    steps = steps_of("for i in 0 .. lane { store y[i] = x[i] }")
    (loop,) = steps.body.loops
    # Two waves of 32 lanes: the longest does 31 turns in one, and 63 in the other.
    assert loop.turns == (31 + 63) / 2
    assert steps.longest == 63
    assert steps.total == 64 * 63 / 2


def test_loops_in_loops_multiply() -> None:
    steps = steps_of("for i in 0 .. 10 { for j in 0 .. 6 step 2 { store y[j] = x[i] } }")
    assert steps.longest == 30
    (outer,) = steps.body.loops
    assert (outer.turns, outer.fixed) == (10, 10)
    assert [(inner.turns, inner.fixed) for inner in outer.body.loops] == [(3, 3)]


def test_short_loops_are_looked_at_turn_by_turn() -> None:
    # The last of four turns is outside for all lanes, and the third for half of them.
    steps = steps_of("for j in 0 .. 4 { if lt(add(mul(j, 64), lane), 160) { store y[j] = x[j] } }")
    assert steps.loads == 160
    assert steps.longest == 4
    # The second loop turns as often as the first has turned: 0 + 1 + 2 + 3 in all.
    steps = steps_of("for i in 0 .. 4 { for j in 0 .. i { store y[j] = x[j] } }")
    assert steps.loads == 64 * 6
    (outer,) = steps.body.loops
    assert [loop.turns for loop in outer.body.loops] == [6 / 4]
    # A loop that goes backwards.
    steps = steps_of("for i in 0 .. 4 backwards { if lt(lane, i) { store y[i] = x[i] } }")
    assert steps.loads == 3 + 2 + 1


def test_a_loop_that_loads_nothing_counts_its_turns() -> None:
    assert steps_of("for i in 0 .. 100 backwards { store y[i] = 1.0 }").longest == 100


def test_ends_that_elements_decide_are_not_known() -> None:
    steps = steps_of("let e: int32 = n[lane] for i in 0 .. cast(e, index) { store y[i] = x[i] }")
    assert (steps.longest, steps.total) == (None, None)


def test_ends_that_a_table_decides_are_known() -> None:
    table = ir.Table("n", dmlc.DataType.INT32, (64,), (5,) * 64)
    steps = steps_of(
        "let e: int32 = n[lane] for i in 0 .. cast(e, index) { store y[i] = x[i] }", 1, 64, table
    )
    assert steps.longest == 6


def test_what_lanes_read_side_by_side_shares_sectors() -> None:
    # 64 floats side by side are 8 sectors; 8 floats apart, each has one of its own.
    assert steps_of("store y[lane] = 1.0").sector_bytes == 8 * 32
    assert steps_of("store y[mul(lane, 8)] = 1.0").sector_bytes == 64 * 32
    # A group reads a sector once, and each of its two waves stores it.
    assert steps_of("store y[0] = x[0]").sector_bytes == 3 * 32


def test_a_wave_asks_for_each_line_once_in_an_access() -> None:
    # Two waves of 32 floats side by side have a line each; 32 floats apart, each lane has one.
    assert steps_of("store y[lane] = 1.0").line_bytes == 2 * 128
    assert steps_of("store y[mul(lane, 2)] = 1.0").line_bytes == 4 * 128
    assert steps_of("store y[mul(lane, 32)] = 1.0").line_bytes == 64 * 128
    assert steps_of("store y[0] = x[0]").line_bytes == 4 * 128
    # What a lane reads side by side is one access.
    pair = "let a: f32 = x[mul(lane, 2)] let b: f32 = x[add(mul(lane, 2), 1)]"
    assert steps_of(pair).line_bytes == 4 * 128
    # Waves that a condition keeps out ask for none, and those in a loop again in each turn.
    assert steps_of("if lt(lane, 32) { store y[mul(lane, 32)] = 1.0 }").line_bytes == 32 * 128
    assert steps_of("for i in 0 .. 3 { store y[lane] = 1.0 }").line_bytes == 3 * 2 * 128
    assert steps_of("for i in 0 .. 80 { let a: f32 = x[lane] }").line_bytes == 80 * 2 * 128


def test_a_sector_is_fetched_once_for_turns_side_by_side() -> None:
    # Every lane walks the same 80 floats, 10 sectors in all: 1 at first, and then every eighth
    # turn brings another. The turn in the middle is one that brings none, or one.
    steps = steps_of("let v: f32 = 1.0 for i in 0 .. 80 { let a: f32 = x[mul(i, 8)] }")
    assert steps.sector_bytes == 80 * 32
    steps = steps_of("for i in 0 .. 80 { let a: f32 = x[div(i, 80)] }")
    assert steps.sector_bytes == 32


def test_what_few_groups_come_to_is_rare() -> None:
    steps = steps_of("if eq(group, 999) { store y[lane] = x[lane] }", groups=1000)
    assert steps.loads == pytest.approx(64)
    assert steps.longest == 1
    (rarity,) = steps.body.rarities
    assert rarity == Rarity(pytest.approx(1 / 1000), 4, 4)
    steps = steps_of("if ne(group, 999) { store y[lane] = x[lane] }", groups=1000)
    assert steps.body.rarities == ()
    assert steps.loads == pytest.approx(999 * 64)


def test_loops_in_what_is_rare_turn_seldom() -> None:
    (loop,) = steps_of(
        "if eq(group, 999) { for i in 0 .. 50 { store y[i] = x[i] } }", groups=1000
    ).body.loops
    assert loop.turns == pytest.approx(50 / 1000)
    assert RARE > 1 / 1000


def test_places_beyond_any_memory_are_counted_as_others() -> None:
    """They have more bits than the numbers of lanes leave."""
    far = steps_of(f"store y[add(lane, {1 << 46})] = 1.0")
    assert (far.line_bytes, far.sector_bytes) == (2 * 128, 8 * 32)
    apart = steps_of(f"store y[mul(lane, {1 << 42})] = 1.0")
    assert (apart.line_bytes, apart.sector_bytes) == (64 * 128, 64 * 32)


def test_steps_are_the_same_without_the_lines_of_caches() -> None:
    for function in (reduce(4096), reduce(1 << 20)):
        lowered, kernels = make_kernels(function, "hlsl")
        for kernel in kernels:
            whole = count_steps(kernel, lowered.tables)
            few = count_steps(kernel, lowered.tables, traffic=False)
            assert whole is not None
            assert few is not None
            assert (few.groups, few.threads, few.longest, few.total, few.loads) == (
                whole.groups, whole.threads, whole.longest, whole.total, whole.loads
            )  # fmt: skip
            assert whole.sector_bytes > 0
            assert few.sector_bytes == few.line_bytes == 0
