"""How much of a tensor some stages read: against the reads listed one by one."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc import ir
from dmlc.ir.index import evaluate_positions
from dmlc.pipeline import explain
from dmlc.scalars import Array
from dmlc.transform.traffic import add_moves, list_moves
from tests.examples.graphs import load


def parse(*stages: str, parameters: str = "%X: f32[6, 8]", result: str = "Y") -> ir.Function:
    function = ir.parse(f"func @f({parameters}) -> (%{result}) {{\n" + "\n".join(stages) + "\n}")
    ir.verify(function)
    return function


def bytes_read(function: ir.Function, tensor: str = "X") -> int | None:
    names = [s.name for s in function.stages]
    (move,) = [m for m in list_moves(function, names) if m.tensor == tensor]
    return move.read


def list_elements(function: ir.Function, tensor: str) -> int:
    """The elements that index-only loads of all stages read, each once: point by point."""
    found: set[tuple[int, ...]] = set()
    for stage in function.stages:
        body, reduction = stage.body, stage.reduction
        over = [ir.Index(axis) for axis in range(len(stage.extents))]
        over += [] if reduction is None else [ir.Index(axis, True) for axis, _ in reduction.axes]
        sizes = [int(stage.extent(index) or 0) for index in over]
        for read in body.loads():
            if read.tensor == tensor:
                wanted = list(read.indices) + ([] if body.guard is None else [body.guard])
                values = evaluate_positions(stage, wanted, over)
                places: list[Array] = [np.broadcast_to(v, sizes).reshape(-1) for v in values]
                holds = np.ones(places[0].shape, np.bool_) if body.guard is None else places.pop()
                found |= {tuple(int(p[k]) for p in places) for k in np.flatnonzero(holds)}
    return len(found)


EXACT = {
    "the whole": ["  %Y: f32[i0 < 6, i1 < 8] = neg(%X[i0, i1])"],
    "transposed": ["  %Y: f32[i0 < 8, i1 < 6] = neg(%X[i1, i0])"],
    "columns": ["  %Y: f32[i0 < 6, i1 < 3] = neg(%X[i0, add(i1, 2)])"],
    "every third column": ["  %Y: f32[i0 < 6, i1 < 3] = neg(%X[i0, mul(i1, 3)])"],
    "backwards": ["  %Y: f32[i0 < 6, i1 < 3] = neg(%X[i0, sub(5, i1)])"],
    "one row": ["  %Y: f32[i0 < 3, i1 < 8] = neg(%X[4, i1])"],
    "columns that meet": [
        "  %Z: f32[i0 < 6, i1 < 3] = neg(%X[i0, add(i1, 2)])",
        "  %Y: f32[i0 < 6, i1 < 2] = neg(%X[i0, add(i1, 5)])",
    ],
    "columns that overlap": [
        "  %Z: f32[i0 < 6, i1 < 4] = neg(%X[i0, add(i1, 2)])",
        "  %Y: f32[i0 < 6, i1 < 4] = neg(%X[i0, add(i1, 4)])",
    ],
    "rows and columns that cross": [
        "  %Z: f32[i0 < 2, i1 < 8] = neg(%X[add(i0, 1), i1])",
        "  %Y: f32[i0 < 6, i1 < 3] = neg(%X[i0, add(i1, 4)])",
    ],
    "four corners": [
        "  %Y: f32[i0 < 2, i1 < 2] = add(add(%X[i0, i1], %X[i0, add(i1, 6)]),"
        " add(%X[add(i0, 4), i1], %X[add(i0, 4), add(i1, 6)]))"
    ],
    "windows": [
        "  %Y: f32[i0 < 6, i1 < 2] = sum[r0 < 2] %X[i0, add(mul(i1, 4), r0)]",
    ],
    "windows over an edge": [
        "  %Y: f32[i0 < 6, i1 < 3] = sum[r0 < 2 where and(ge(sub(add(mul(i1, 4), r0), 1), 0),"
        " lt(sub(add(mul(i1, 4), r0), 1), 8))] %X[i0, sub(add(mul(i1, 4), r0), 1)]",
    ],
    "many parts that overlap": [
        *(f"  %Z{k}: f32[i0 < 1, i1 < {8 - k}] = neg(%X[{k}, add(i1, {k})])" for k in range(6)),
        *(f"  %W{k}: f32[i0 < {6 - k}, i1 < 1] = neg(%X[add(i0, {k}), {k}])" for k in range(6)),
        "  %Y: f32[i0 < 1, i1 < 1] = neg(%X[5, 7])",
    ],
    "clamped": ["  %Y: f32[i0 < 6, i1 < 9] = neg(%X[i0, min(i1, 4)])"],
}


@pytest.mark.parametrize("stages", EXACT.values(), ids=EXACT)
def test_what_is_read_counts(stages: list[str]) -> None:
    function = parse(*stages)
    assert bytes_read(function) == 4 * list_elements(function, "X")


WHOLE = {
    "where elements say": (
        "%X: f32[6, 8], %P: s32[3]",
        ["  %Y: f32[i0 < 3] = neg(%X[0, min(max(cast(%P[i0], index), 0), 7)])"],
    ),
    "along a diagonal": ("%X: f32[6, 8]", ["  %Y: f32[i0 < 3] = neg(%X[i0, i0])"]),
    "in too many parts": (
        "%X: f32[64, 64]",
        [f"  %Y{k}: f32[i0 < 1] = neg(%X[{k}, {k}])" for k in range(32)]
        + ["  %Y: f32[i0 < 1] = neg(%X[32, 32])"],
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_where_the_whole_counts(name: str) -> None:
    parameters, stages = WHOLE[name]
    function = parse(*stages, parameters=parameters)
    sizes = function.parameters[0].extents
    assert bytes_read(function) == 4 * int(np.prod([int(e) for e in sizes]))


def test_a_condition_that_ties_axes_is_not_looked_at() -> None:
    stage = "  %Y: f32[i0 < 6] = sum[r0 < 4 where lt(i0, r0)] %X[i0, r0]"
    assert bytes_read(parse(stage)) == 6 * 4 * 4


def test_a_long_axis_is_not_evaluated() -> None:
    length = 1 << 24
    local = f"  %Y: f32[i0 < {length - 5}] = neg(%X[add(i0, 5)])"
    assert bytes_read(parse(local, parameters=f"%X: f32[{length}]")) == 4 * (length - 5)
    far = f"  %Y: f32[i0 < {length}] = neg(%X[min(i0, {length - 2})])"
    assert bytes_read(parse(far, parameters=f"%X: f32[{length}]")) == 4 * length


def test_what_strides_repeat_counts_once() -> None:
    stage = "  %Y: f32[i0 < 6, i1 < 3] = neg(%X[i0, add(i1, 2)])"
    for strides, expected in (("8, 1", 18), ("0, 1", 3), ("1, 0", 6), ("0, 0", 1)):
        function = parse(stage, parameters=f"%X: f32[6, 8]{{{strides}}}")
        assert bytes_read(function) == 4 * expected


def test_nothing_is_read_of_an_empty_tensor_and_little_for_few_elements() -> None:
    empty = parse("  %Y: f32[i0 < 0] = neg(%X[i0])", parameters="%X: f32[0]")
    assert bytes_read(empty) == 0
    none = parse("  %Y: f32[i0 < 6] = sum[r0 < 0] %X[i0, r0]")
    assert bytes_read(none) == 0


def test_positions_out_of_a_table() -> None:
    stages = [
        "  table %T: s32[2] = {6, 1}",
        "  %Y: f32[i0 < 6, i1 < 2] = neg(%X[i0, cast(%T[i1], index)])",
    ]
    assert bytes_read(parse(*stages)) == 6 * 2 * 4


def test_run_time_sizes() -> None:
    stage = "  %Y: f32[i0 < n] = add(%X[i0], %Z[2])"
    function = parse(stage, parameters="%X: f32[n], %Z: f32[8]")
    assert bytes_read(function) is None
    assert bytes_read(function, "Z") == 4


def test_a_split_reads_its_parts() -> None:
    """Two kernels read two parts of one tensor: together, all of it once."""
    dims = {"N": 2, "C": 3, "S": 4, "H": 5, "W": 6}
    report = explain(load("unet_decoder_backward").bind(dims=dims))
    plane = 2 * 10 * 12 * 4
    found = [[m.read for m in w.moves if m.tensor in ("y", "dy")] for w in report.after]
    assert sorted(found, key=str) == [[3 * plane] * 2, [4 * plane] * 2]
    moves = add_moves(m for w in report.after for m in w.moves)
    assert [m.read for m in moves if m.tensor in ("y", "dy")] == [7 * plane] * 2
