"""What loops that are written out read of shared tiles: once, in vectors, and held in registers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dmlc.kernel import nodes as k
from dmlc.kernel.expand import expand_loops
from dmlc.kernel.fragments import hold_fragments
from dmlc.kernel.interpret import Memory, run_kernel
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.registers import find_turned, name_registers
from dmlc.kernel.rewrite import list_expressions, walk, walk_statements
from dmlc.scalars import Array

FILL = """
    for j in 0 .. 8 { store_local tile[add(mul(lane, 8), j)] = x[add(mul(lane, 8), j)] }
    barrier
"""
PRODUCT = """
    for j in 0 .. 4 unroll { store_local sums[j] = 0.0 }
    for points in 0 .. 2 rolled {
        for point in mul(points, 4) .. add(mul(points, 4), 4) unroll {
            for row in 0 .. 2 unroll {
                let left: f32 = tile[add(add(mul(lane, 4), mul(row, 8)), point)]
                for column in 0 .. 2 unroll {
                    let right: f32 = tile[add(add(lane, mul(point, 3)), column)]
                    let place: index = add(mul(row, 2), column)
                    store_local sums[place] = add(sums[place], mul(left, right))
                }
            }
        }
    }
    for j in 0 .. 4 unroll { store y[add(mul(lane, 4), j)] = sums[j] }
"""


def read(body: str) -> k.Kernel:
    return parse_kernel(f"""kernel f {{
        launch ceil(8 / 8) groups of 8, index u32
        buffer x: f32 read
        buffer y: f32 read_write
        shared array tile: f32[64]
        registers array sums: f32[4]
        {FILL}{body}
    }}""")


def run(kernel: k.Kernel) -> Array:
    memories = {
        "x": Memory(np.arange(1, 65, dtype=np.float32), filled=True),
        "y": Memory(np.zeros(64, np.float32), filled=True),
    }
    run_kernel(kernel, memories)
    return memories["y"].values


def count_reads(kernel: k.Kernel) -> dict[int, int]:
    """The reads of the tile in the text, by the lanes that each has."""
    found: dict[int, int] = {}
    for statement in walk_statements(kernel.body):
        for part in (p for e in list_expressions(statement) for p in walk(e)):
            if isinstance(part, k.LoadLocal) and part.array == "tile":
                found[part.type.lanes] = found.get(part.type.lanes, 0) + 1
    return found


@pytest.mark.parametrize("lanes", [0, 1, 4])
@pytest.mark.parametrize("keeps", [False, True])
def test_elements_of_a_tile_are_read_once(lanes: int, keeps: bool) -> None:
    kernel = read(PRODUCT)
    held = hold_fragments(kernel, lanes)
    made = name_registers(expand_loops(held, keeps=keeps))
    for each in (held, made):
        np.testing.assert_array_equal(run(each), run(kernel))
    # Of `left`, vectors along the points; of `right`, which begins anywhere, elements.
    wide = lanes != 1
    assert count_reads(held) == ({4: 1, 1: 1} if wide else {1: 2})
    if not keeps:
        assert not any(a.registers for a in made.arrays)
        # Two rows; two columns of four points.
        assert count_reads(made) == ({4: 2, 1: 8} if wide else {1: 16})


def test_loops_over_registers_stay_where_a_compiler_writes_them_out() -> None:
    kernel = read(PRODUCT)
    made = name_registers(expand_loops(hold_fragments(kernel, 4), keeps=True))
    loops = [s for s in walk_statements(made.body) if isinstance(s, k.For) and s.unroll]
    assert len(loops) > 4
    assert all(n.start == k.Literal(k.INDEX, 0) for n in loops)
    registers = {a.name for a in made.arrays if a.registers}
    assert registers == {"sums", "left_part#h0", "right_part#h1"}
    assert registers <= find_turned(made)
    # One work item has no compiler that is asked.
    alone = parse_kernel("""kernel f {
        launch ceil(1 / 1) groups of 1, index u32
        buffer y: f32 read_write
        registers array sums: f32[4]
        for j in 0 .. 4 unroll { store_local sums[j] = 1.0 }
        for j in 0 .. 4 unroll { store y[j] = sums[j] }
    }""")
    assert not name_registers(expand_loops(alone, keeps=True)).arrays


@pytest.mark.parametrize(
    "inside",
    [
        # Others write to the tile meanwhile.
        "store_local tile[add(lane, mul(point, 8))] = 9.0",
        "barrier",
    ],
)
def test_what_may_change_is_read_each_time(inside: str) -> None:
    kernel = read(f"""
    for point in 0 .. 4 unroll {{
        for row in 0 .. 2 unroll {{
            let left: f32 = tile[add(mul(lane, 4), point)]
            store_local sums[row] = left
        }}
        {inside}
    }}
    for j in 0 .. 2 unroll {{ store y[add(mul(lane, 4), j)] = sums[j] }}""")
    assert count_reads(hold_fragments(kernel, 4)) == {1: 1}


def test_places_that_an_element_gives_are_not_looked_ahead() -> None:
    kernel = read("""
    for point in 0 .. 2 unroll {
        for row in 0 .. 2 unroll {
            let there: index = cast(x[row], index)
            let left: f32 = tile[there]
            store_local sums[row] = left
        }
    }
    for j in 0 .. 2 unroll { store y[add(mul(lane, 4), j)] = sums[j] }""")
    made = hold_fragments(kernel, 4)
    assert count_reads(made) == {1: 1}
    assert len(made.arrays) == len(kernel.arrays)
    np.testing.assert_array_equal(run(made), run(kernel))


ROWS = """
    for j in 0 .. 12 unroll { store_local sums[j] = 0.0 }
    for point in 0 .. 2 unroll {
        for row in 0 .. 2 unroll {
            let left: f32 = tile[add(mul(lane, 4), add(row, point))]
            for column in 0 .. 4 unroll {
                let right: f32 = tile[add(mul(column, 8), point)]
                let place: index = add(mul(row, 4), COLUMN)
                store_local sums[place] = VALUE
            }
        }
    }
    for j in 0 .. 8 unroll { store y[add(mul(lane, 8), j)] = sums[j] }
"""
ADDED = "add(sums[place], mul(left, right))"


@pytest.mark.parametrize(
    ("column", "value", "is_wide"),
    [
        ("column", ADDED, True),
        ("column", "add(sums[place], left)", True),
        # Not a whole vector, none at all, one of other steps, or in another order.
        ("add(column, 1)", ADDED, False),
        ("0", ADDED, False),
        ("column", "add(sums[mul(row, 4)], left)", False),
        ("sub(3, column)", ADDED, False),
        ("column", "select(lt(column, 2), left, 1.0)", False),
    ],
)
def test_outputs_in_a_row_are_vectors(column: str, value: str, *, is_wide: bool) -> None:
    kernel = read(ROWS.replace("VALUE", value).replace("COLUMN", column))
    tile, sums = kernel.arrays
    kernel = dataclasses.replace(kernel, arrays=(tile, dataclasses.replace(sums, size=12)))
    made = hold_fragments(kernel, 4)
    np.testing.assert_array_equal(run(made), run(kernel))
    (lanes,) = [a.lanes for a in made.arrays if a.name == "sums"]
    assert lanes == (4 if is_wide else 1)
    stores = [s for s in walk_statements(made.body) if isinstance(s, k.StoreLocal)]
    assert {s.value.type.lanes for s in stores if s.array == "sums"} == {lanes}
