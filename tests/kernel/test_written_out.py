"""Loops over the arrays of tiles: written out, kept in registers, read in vectors, and shortened to
where their conditions hold."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import index, multiply, operate
from dmlc.kernel.expand import copy_statements, expand_loops
from dmlc.kernel.hold_vectors import hold_arrays, hold_buffers, part_vectors
from dmlc.kernel.interpret import Memory, run_kernel
from dmlc.kernel.narrow_loops import narrow_loops
from dmlc.kernel.parse import parse_kernel
from dmlc.kernel.print import print_kernel
from dmlc.kernel.registers import name_registers
from dmlc.kernel.rewrite import find_body
from dmlc.kernel.sums import add_up, find_remainder
from dmlc.kernel.target import Limits
from dmlc.scalars import Array, DataType
from dmlc.source import InternalError

WHOLE = Limits("whole", 8, "", 2**31, "", 32, None, vector_lanes=4)
"""A language whose vectors begin at multiples of four, in buffers and arrays alike."""
ANYWHERE = dataclasses.replace(WHOLE, vector_lanes=0, buffer_lanes=4)
"""One whose vectors may lie anywhere, and that has buffers of vectors."""


def read(body: str, *declared: str, size: int = 8, sign: str = "u") -> k.Kernel:
    return parse_kernel(f"""kernel f {{
        launch ceil({size} / {size}) groups of {size}, index {sign}32
        buffer x: f32 read
        buffer y: f32 read_write
        {" ".join(declared)}
        {body}
    }}""")


def run(kernel: k.Kernel) -> Array:
    values = np.arange(1, 65, dtype=np.float32)
    memories = {
        "x": Memory(values, filled=True),
        "y": Memory(np.zeros(64, np.float32), filled=True),
    }
    run_kernel(kernel, memories)
    return memories["y"].values


def same(kernel: k.Kernel, made: k.Kernel) -> str:
    """The text of what a pass made of a kernel, which computes the same."""
    np.testing.assert_array_equal(run(made), run(kernel))
    return print_kernel(made)


def list_statements(kernel: k.Kernel) -> list[k.Statement]:
    found: list[k.Statement] = []
    pending = list(reversed(kernel.body))
    while pending:
        found.append(pending.pop())
        pending += reversed(find_body(found[-1]))
    return found


SUMS = """
    for j in 0 .. 4 unroll { store_local sums[j] = 0.0 }
    for p in 0 .. 3 {
        for i in 0 .. 2 unroll {
            let a: f32 = x[add(mul(lane, 2), i)]
            for j in 0 .. 2 unroll {
                let b: f32 = x[add(p, j)]
                let place: index = add(mul(i, 2), j)
                store_local sums[place] = add(sums[place], mul(a, b))
            }
        }
    }
    for j in 0 .. 4 unroll { store y[add(mul(lane, 4), j)] = sums[j] }
"""


def test_arrays_become_registers_once_their_loops_are_written_out() -> None:
    kernel = read(SUMS, "registers array sums: f32[4]")
    made = name_registers(expand_loops(kernel))
    same(kernel, made)
    assert made.arrays == ()
    statements = list_statements(made)
    assert sum(isinstance(s, k.Variable) for s in statements) == 4
    assert sum(isinstance(s, k.Assign) for s in statements) == 4
    # Each element is read once, before the first sum.
    (loop,) = [s for s in made.body if isinstance(s, k.For)]
    kinds = [type(s) for s in loop.body if not isinstance(s, k.Let) or s.local.type != k.INDEX]
    assert kinds == [k.Let] * 4 + [k.Assign] * 4


def test_one_work_item_has_loops_that_stay_but_for_those_over_registers() -> None:
    more = "for j in 0 .. 4 unroll { store y[add(j, 32)] = x[j] }"
    made = expand_loops(read(SUMS + more, "registers array sums: f32[4]", size=1))
    left = [s for s in list_statements(made) if isinstance(s, k.For)]
    assert [loop.unroll for loop in left] == [False, True]


def test_loops_with_conditions_are_written_out_step_by_step() -> None:
    kernel = read(
        """
        for j in 0 .. 2 unroll { store_local sums[j] = x[add(lane, j)] }
        for j in 0 .. 2 unroll {
            if lt(add(lane, j), 6) { store y[add(mul(lane, 2), j)] = sums[j] }
        }""",
        "registers array sums: f32[2]",
    )
    same(kernel, name_registers(expand_loops(kernel)))


def test_vectors_of_registers_give_their_lanes() -> None:
    kernel = read(
        """
        store_local sums[0] = x[mul(lane, 4)]:f32x4
        for j in 0 .. 4 unroll { store y[add(mul(lane, 4), j)] = sums[j] }""",
        "registers array sums: f32[4]",
    )
    assert "extract(sums#r0, [3])" in same(kernel, name_registers(expand_loops(kernel)))


def test_a_vector_is_made_of_registers() -> None:
    kernel = read(
        """
        for j in 0 .. 4 unroll { store_local sums[j] = x[add(lane, j)] }
        store y[mul(lane, 4)] = sums[0]:f32x4""",
        "registers array sums: f32[4]",
    )
    text = same(kernel, name_registers(expand_loops(kernel)))
    assert "join(join(sums#r0, sums#r1), join(sums#r2, sums#r3))" in text


def test_a_register_at_no_known_place_is_a_mistake() -> None:
    kernel = read("store_local sums[lane] = 1.0", "registers array sums: f32[8]")
    with pytest.raises(InternalError, match="no place is known"):
        name_registers(kernel)


@pytest.mark.parametrize(("read_back", "lanes"), [("tile[other]:f32x4", 4), ("tile[other]", 1)])
def test_arrays_are_of_vectors_where_nothing_else_is_read_or_put(
    read_back: str, lanes: int
) -> None:
    kind = "f32x4" if lanes > 1 else "f32"
    kernel = read(
        f"""
        let value: f32x4 = x[mul(lane, 4)]:f32x4
        store_local tile[mul(lane, 4)] = value
        barrier
        let other: index = mul(mod(add(lane, 3), 7), 4)
        let a: {kind} = {read_back}
        store y[mul(lane, {lanes})] = a""",
        "shared array tile: f32[36]",
    )
    made = part_vectors(hold_arrays(kernel, WHOLE), WHOLE)
    same(kernel, made)
    assert [array.lanes for array in made.arrays] == [lanes]
    puts = [s for s in list_statements(made) if isinstance(s, k.StoreLocal)]
    assert [put.value.type.lanes for put in puts] == [lanes] * (4 // lanes)


def test_vectors_may_lie_anywhere_in_arrays_and_not_in_buffers() -> None:
    kernel = read(
        """
        let value: f32x4 = x[mul(lane, 4)]:f32x4
        store_local tile[mul(lane, 4)] = value
        barrier
        let a: f32x4 = tile[mul(lane, 4)]:f32x4
        store y[mul(lane, 4)] = a""",
        "shared array tile: f32[36]",
    )
    made = part_vectors(hold_arrays(hold_buffers(kernel, ANYWHERE), ANYWHERE), ANYWHERE)
    same(kernel, made)
    assert [array.lanes for array in made.arrays] == [1]
    assert [buffer.lanes for buffer in made.buffers] == [4, 4]
    (put,) = (s for s in list_statements(made) if isinstance(s, k.StoreLocal))
    assert put.value.type.lanes == 4


EVEN = [
    "mod(mul(lane, 12), 56)", "min(mul(lane, 4), 44)", "max(mul(lane, 8), 4)",
    "add(mul(div(lane, 7), 28), mod(mul(lane, 4), 28))", "div(mul(lane, 16), 4)",
    "select(lt(lane, 3), 0, mul(lane, 4))", "add(mul(lane, 2), mul(lane, 2))",
    "mul(mul(div(lane, 4), 2), mul(4, add(mod(lane, 2), 1)))",
    "add(mod(add(mul(lane, 8), 4), 8), 12)",
]  # fmt: skip
UNEVEN = [
    "mod(mul(lane, 4), 42)", "min(mul(lane, 4), 30)", "max(mul(lane, 4), 7)", "mul(lane, 2)",
    "div(mul(lane, 8), 4)", "select(lt(lane, 3), 2, mul(lane, 4))", "add(mul(lane, 4), 2)",
]  # fmt: skip


@pytest.mark.parametrize(("place", "lanes"), [*((p, 4) for p in EVEN), *((p, 1) for p in UNEVEN)])
def test_buffers_are_of_vectors_where_each_is_shown_to_begin_at_one(place: str, lanes: int) -> None:
    body = f"""
        let a: f32x4 = x[{place}]:f32x4
        let b: f32x4 = x[mul(lane, 4)]:f32x4
        store y[mul(lane, 4)] = add(a, b)"""
    kernel = read(body)
    made = hold_buffers(kernel, ANYWHERE)
    same(kernel, made)  # The interpreter faults a vector of a buffer of them that begins elsewhere.
    assert [buffer.lanes for buffer in made.buffers] == [lanes, 4]


@pytest.mark.parametrize(("step", "lanes"), [(4, 4), (2, 1)])
def test_vectors_of_loops_begin_where_each_turn_has_them(step: int, lanes: int) -> None:
    kernel = read(f"""
        for i in 4 .. 12 step {step} {{
            let place: index = min(mod(add(i, mul(lane, 8)), 28), 24)
            let a: f32x4 = x[place]:f32x4
            store y[mul(lane, 4)] = a
        }}""")
    made = hold_buffers(kernel, ANYWHERE)
    same(kernel, made)
    assert [buffer.lanes for buffer in made.buffers] == [lanes, 4]


def test_what_a_variable_holds_is_not_what_was_known_by_its_name() -> None:
    kernel = read("""
        if lt(lane, 4) {
            let place: index = mul(lane, 4)
            let a: f32x4 = x[place]:f32x4
            store y[place] = a
        }
        if ge(lane, 4) {
            var place: index = 1
            set place = mul(lane, 3)
            let b: f32x4 = x[place]:f32x4
            store y[mul(lane, 4)] = b
        }""")
    made = hold_buffers(kernel, ANYWHERE)
    same(kernel, made)
    assert [buffer.lanes for buffer in made.buffers] == [1, 4]


def draw_place(draw: random.Random, depth: int) -> k.Expression:
    """A position that is never negative, of a lane and numbers."""
    name = draw.choice(["lane", "number"] if depth == 0 else [*"+*", "mod", "div", "min", "max"])
    if name == "lane":
        return multiply(k.Position(k.Geometry.LANE), draw.choice([1, 2, 4, 8, 12]))
    if name == "number":
        return index(draw.choice([1, 2, 4, 8, 12, 16]))
    first = draw_place(draw, depth - 1)
    if name in ("mod", "div"):
        return operate(name, first, index(draw.choice([2, 3, 4, 8, 16])))
    names = {"+": "add", "*": "mul"}
    return operate(names.get(name, name), first, draw_place(draw, depth - 1))


def find_number(place: k.Expression, lane: int) -> int:
    """A position, for a lane."""
    if isinstance(place, k.Literal):
        return int(place.value)
    if not isinstance(place, k.Operate):
        return lane
    values = [np.array([find_number(o, lane)], np.int64) for o in place.operands]
    return int(np.asarray(place.operation.evaluate(*values))[0])


def test_what_a_position_leaves_over_is_what_each_lane_does() -> None:
    draw, shown = random.Random(1), 0
    for _ in range(1000):
        place, multiple = draw_place(draw, 3), draw.choice([2, 4, 8])
        rest = find_remainder(add_up(place, {}), multiple, {})
        rests = {find_number(place, lane) % multiple for lane in range(48)}
        assert rest is None or rests == {rest}
        shown += rest is not None
    assert shown > 100


def pack(condition: str, *before: str) -> k.Kernel:
    return read(
        f"""
        for j in 0 .. 8 {{ store_local row[j] = 0.0 }}
        for w in 0 .. 3 {{
            for i in 0 .. 8 {{
                let place: index = sub(add(i, w), 1)
                {" ".join(before)}
                if {condition} {{
                    let a: f32 = x[place]
                    store_local row[i] = add(row[i], a)
                }}
            }}
        }}
        for j in 0 .. 8 {{ store y[j] = row[j] }}""",
        "array row: f32[8]",
        size=1,
        sign="s",
    )


def count_conditions(kernel: k.Kernel) -> int:
    return sum(isinstance(s, k.If) for s in list_statements(kernel))


@pytest.mark.parametrize(
    "kernel",
    [
        pack("and(ge(place, 0), lt(place, 6))"),
        pack("and(lt(place, 8), ge(place, 0))"),
        pack("holds", "let holds: boolean = and(ge(place, 0), lt(add(place, 2), 8))"),
        pack("and(ge(place, 20), lt(place, 30))"),
    ],
)
def test_loops_run_where_their_conditions_hold(kernel: k.Kernel) -> None:
    made = narrow_loops(kernel)
    same(kernel, made)
    assert count_conditions(made) == 0


@pytest.mark.parametrize(
    "kernel",
    [
        pack("and(ge(place, 0), eq(mod(i, 2), 1))"),
        pack("ge(sub(mul(i, 2), w), 3)", "let twice: index = mul(i, 2)"),
        pack("and(ge(place, 0), ge(sub(9, i), w))"),
    ],
)
def test_what_no_range_says_stays_a_condition(kernel: k.Kernel) -> None:
    made = narrow_loops(kernel)
    same(kernel, made)
    assert count_conditions(made) == 1


def test_a_copy_has_no_names_of_what_is_named_already() -> None:
    """But a local that is assigned is another value later."""
    kind = k.Type(DataType.FLOAT32)
    total, fixed = k.Local("total", kind), k.Local("fixed", kind)
    before, same = k.Local("before", kind), k.Local("same", kind)
    statements = (
        k.Let(before, total),
        k.Let(same, fixed),
        k.Assign(total, operate("add", same, total)),
        k.StoreLocal("a", index(0), operate("sub", total, before)),
    )

    def rename(local: k.Local) -> k.Local:
        return k.Local(f"{local.name}_1", local.type)

    let, added, stored = copy_statements(statements, {}, rename)
    assert let == k.Let(rename(before), total)
    assert added == k.Assign(total, operate("add", fixed, total))
    assert stored == k.StoreLocal("a", index(0), operate("sub", total, rename(before)))
