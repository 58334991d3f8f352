"""Vectors of outputs, made of what a row has at hand."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dmlc import ir
from dmlc.ir.verify import verify
from dmlc.loops.permute import HALF, LANES, Permutation, find_permutation
from dmlc.reference import evaluate
from dmlc.transform.factor import factor_separable
from dmlc.transform.simplify import simplify
from dmlc.transform.tighten import tighten_bounds
from tests.windows import make_windows


def make_sums(
    columns: int, window: int, step: tuple[int, int], pad: int = 0, dtype: str = "f32"
) -> ir.Function:
    """Narrowed sums along rows: the second stage."""
    windows = make_windows(2, columns, window, step, pad, dtype)
    return simplify(tighten_bounds(simplify(factor_separable(windows, 1000))))


def pick_sums(function: ir.Function) -> Permutation | None:
    row, total = function.stages
    return find_permutation(function, total, row.name)


def test_two_outputs_for_every_three_elements() -> None:
    picks = pick_sums(make_sums(40, 2, (3, 2)))
    assert picks is not None
    assert (picks.first, picks.last, picks.patterns.step) == (0, 40, 12)
    assert list(picks.patterns.named.values()) == [
        (0, 1, 3, 4, 6, 7, 9, 10),
        (1, 2, 4, 5, 7, 8, 10, 11),
    ]
    assert (picks.patterns.starts, picks.patterns.loads) == ((0, 6), 2)
    assert picks.stage.reduction is None
    assert picks.stage.body.guard is None


def test_beyond_the_row_there_are_zeros() -> None:
    picks = pick_sums(make_sums(40, 3, (1, 1), 1))
    assert picks is not None
    assert (picks.first, picks.last) == (0, 40)
    assert next(iter(picks.patterns.named.values())) == (-1, 0, 1, 2, 3, 4, 5, 6)
    low, high = picks.reach
    assert low == -1
    assert high > 40


def test_lanes_that_take_nothing_are_zeros() -> None:
    function = read("where eq(div(mul(r0, 2), 3), i0)", "%x[r0]", 60, 40)
    assert (
        find_permutation(function, function.stages[0], "x") is None
    )  # It is no stage of the function.
    function = read(
        "where eq(div(mul(r0, 2), 3), i0)", "%row[r0]", 60, 40, "%row: f32[i0 < 60] = neg(%x[i0])"
    )
    picks = pick_sums(function)
    assert picks is not None
    assert set(picks.patterns.named.values()) == {
        (0, 2, 3, 5, 6, 8, 9, 11), (1, None, 4, None, 7, None, 10, None),
    }  # fmt: skip


def read(
    guard: str, body: str, columns: int, outputs: int, before: str = "", more: str = ""
) -> ir.Function:
    return simplify(tighten_bounds(simplify(ir.parse(f"""
        func @sums(%x: f32[{columns}]{more}) -> (%y) {{
          {before}
          %y: f32[i0 < {outputs}] = sum[r0 < {columns}] {{
            {guard}
            {body}
          }}
        }}"""))))  # fmt: skip


ROW = "%row: f32[i0 < 60] = neg(%x[i0])"
PAIRS = "where eq(div(mul(r0, 2), 3), i0)"


def test_an_infinite_weight_meets_no_zero() -> None:
    weights = "mul(%row[r0], div(1.0, cast(sub(r0, {}), f32)))"
    fine = read(PAIRS, weights.format(-1), 60, 40, ROW)
    assert pick_sums(fine) is not None
    # The second output has two terms, and the table one of infinity where it has no third.
    infinite = read(PAIRS, weights.format(2), 60, 40, ROW)
    assert pick_sums(infinite) is None


def test_a_factor_from_a_tensor_meets_no_zero() -> None:
    tensor = read(PAIRS, "mul(%row[r0], %w[i0])", 60, 40, ROW, ", %w: f32[40]")
    assert pick_sums(tensor) is None
    # Where every lane takes something, it may be anything.
    every = read("where eq(div(r0, 2), i0)", "mul(%row[r0], %w[i0])", 60, 30, ROW, ", %w: f32[30]")
    assert pick_sums(every) is not None


@pytest.mark.parametrize(
    ("columns", "window", "step", "dtype"),
    [
        (15, 3, (1, 1), "f32"),  # too few outputs
        (40, 3, (1, 1), "f64"),  # no 32 bits
        (48, 2, (5, 3), "f32"),  # it does not repeat after eight
        (40, 2, (5, 1), "f32"),  # too many loads
    ],
)
def test_what_is_not_picked(columns: int, window: int, step: tuple[int, int], dtype: str) -> None:
    assert pick_sums(make_sums(columns, window, step, 0, dtype)) is None


def test_a_largest_element_takes_no_zero() -> None:
    text = """
        func @largest(%x: f32[60]) -> (%y) {{
          %row: f32[i0 < 60] = neg(%x[i0])
          %y: f32[i0 < 40] = max[r0 < 60] {{
            where {}
            %row[r0]
          }}
        }}"""
    uneven = simplify(tighten_bounds(simplify(ir.parse(text.format("eq(div(mul(r0, 2), 3), i0)")))))
    # A place is walked again where a window is shorter, so that no zero stands for it.
    assert all(stage.body.guard is None for stage in uneven.stages)
    assert pick_sums(uneven) is not None
    inside = text.format("and(ge(r0, i0), lt(r0, add(i0, 3)))")
    picks = pick_sums(simplify(tighten_bounds(simplify(ir.parse(inside)))))
    assert picks is not None


def read_row(row: np.ndarray, place: int | None) -> float:
    return float(row[place]) if place is not None and 0 <= place < len(row) else 0.0


@settings(deadline=None, max_examples=60)
@given(
    columns=st.integers(16, 60),
    window=st.integers(2, 4),
    step=st.sampled_from([(1, 1), (2, 1), (3, 1), (3, 2), (1, 2), (5, 4), (4, 3), (3, 4)]),
    pad=st.integers(0, 2),
)
def test_it_is_the_same_sum(columns: int, window: int, step: tuple[int, int], pad: int) -> None:
    function = make_sums(columns, window, step, pad)
    assume(len(function.stages) == 2)
    row, total = function.stages
    picks = find_permutation(function, total, row.name)
    assume(picks is not None)
    assert picks is not None
    x = np.random.default_rng(columns).integers(-3, 4, function.parameters[0].extents)
    found = evaluate(dataclasses.replace(function, results=(ir.Result(row.name), ir.Result("y"))),
                     {"x": x.astype(np.float32)})  # fmt: skip
    # Each pattern as a tensor of what it picks, for every output.
    sizes = total.extents
    picked = {name: np.zeros(sizes, np.float32) for name in picks.patterns.named}
    for name, pattern in picks.patterns.named.items():
        for *outer, output in itertools.product(*map(range, sizes)):
            vector, lane = divmod(output, LANES)
            start = pattern[lane]
            place = None if start is None else start + picks.patterns.step * vector
            picked[name][(*outer, output)] = read_row(found[row.name][tuple(outer)], place)
            if place is not None:
                assert place >= picks.patterns.starts[lane // HALF] + picks.patterns.step * vector
    assert picks.stage.body.guard is None
    lifted = lift(function, picks)
    verify(lifted)
    given_ = {f"p{n}": array for n, array in enumerate(picked.values())}
    made = evaluate(lifted, given_)["y"]
    np.testing.assert_array_equal(
        made[..., picks.first : picks.last], found["y"][..., picks.first : picks.last]
    )


def lift(function: ir.Function, picks: Permutation) -> ir.Function:
    """A function of the picked elements alone, each with all axes."""
    stage = picks.stage
    names = {name: f"p{n}" for n, name in enumerate(picks.patterns.named)}
    outer = [ir.Index(axis) for axis in range(len(stage.extents) - 1)]
    shift = len(outer)
    instructions: list[ir.Instruction] = [*outer]
    for instruction in stage.body.instructions:
        moved = ir.with_operands(instruction, tuple(o + shift for o in ir.operands(instruction)))
        if isinstance(moved, ir.Load) and moved.tensor in names:
            moved = ir.Load(names[moved.tensor], (*range(shift), *moved.indices), moved.dtype)
        instructions.append(moved)
    body = ir.Body.make(instructions, stage.body.result + shift)
    dtype = function.stages[0].dtype
    parameters = tuple(ir.Parameter(name, dtype, stage.extents) for name in names.values())
    return dataclasses.replace(
        function, parameters=parameters, stages=(dataclasses.replace(stage, body=body),)
    )
