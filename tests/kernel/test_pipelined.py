"""Tiles that are read a step ahead: into registers, while those of the step before are used."""

from __future__ import annotations

import numpy as np
import pytest

from dmlc.kernel import nodes as k
from dmlc.kernel.arithmetic import add, index, operate
from dmlc.kernel.expand import start_at_zero
from dmlc.kernel.interpret import run_kernels
from dmlc.kernel.rewrite import find_body, list_expressions, walk, walk_statements
from dmlc.loops.nodes import Stage
from dmlc.loops.nodes import walk as walk_nodes
from dmlc.loops.primitives import apply
from dmlc.loops.script import ScheduleError, parse_script
from dmlc.reference import evaluate
from tests.kernel.test_primitives import LIMITS, STAGED, TILED, change, read, start

FILLED = (
    *TILED,
    *STAGED,
    "split left_point 4 as left_part",
    "unroll left_point",
    "unroll left_part",
    "unroll right_point",
)


def count_loads(statements: tuple[k.Statement, ...]) -> int:
    found = (e for s in walk_statements(statements) for e in list_expressions(s))
    return sum(isinstance(part, k.Load) for each in found for part in walk(each))


def test_loops_behind_a_condition_count_their_steps_too() -> None:
    """The elements that a work item reads ahead are numbered by the steps of all loops around."""
    offset, outer, inner = (k.Local(name, k.INDEX) for name in ("offset", "outer", "inner"))
    store = k.StoreLocal("tile", inner, k.Literal(k.INDEX, 0))
    each = k.For(inner, offset, add(offset, index(4)), 1, (store,), unroll=True)
    tested = k.If(operate("lt", outer, index(1)), (each,))
    (made,) = find_body(start_at_zero(k.For(outer, index(0), index(2), 1, (tested,), unroll=True)))
    (loop,) = find_body(made)
    assert isinstance(loop, k.For)
    assert (loop.start, loop.stop) == (index(0), index(4))
    assert find_body(loop) == (k.StoreLocal("tile", add(offset, inner), store.value),)


@pytest.mark.parametrize("sizes", [(7, 6, 21), (4, 4, 8), (8, 5, 7)])
@pytest.mark.parametrize("fold", ["sum", "max"])
def test_a_product_reads_its_next_tiles_meanwhile(sizes: tuple[int, int, int], fold: str) -> None:
    kernels = read("product", sizes, fold)
    (nest,) = start(kernels)
    lines = "\n".join((*FILLED, "pipeline k"))
    nest = apply(nest, kernels.function, LIMITS, *parse_script(lines))
    inputs = kernels.inputs(0)
    (kernel,) = kernels.lower([nest])
    got = run_kernels(kernels.function, [kernel], inputs)["Y"]
    assert np.array_equal(got, evaluate(kernels.function, inputs)["Y"])
    assert "ahead yes: put into shared left_tile (40), right_tile (32)" in str(nest)
    if sizes[2] <= 8:
        return
    (loop,) = [s for s in kernel.body if k.Barrier() in find_body(s)]
    assert isinstance(loop, k.For)
    assert count_loads(kernel.body[: kernel.body.index(loop)]) > 0
    # Work items wait once a step. What one puts into the tiles, after it has used the others, was
    # read before.
    assert sum(isinstance(s, k.Barrier) for s in loop.body) == 1
    shared = {a.name: a.size for a in kernel.arrays if a.shared}
    assert shared == {"left_tile": 80, "right_tile": 64}
    puts = [s for s in loop.body if {p.array for p in list_puts(s)} & set(shared)]
    assert puts
    assert all(count_loads((s,)) == 0 for s in puts)
    used = [n for n, s in enumerate(loop.body) if shared.keys() & list_read(s)]
    assert used
    assert max(used) < min(map(loop.body.index, puts))


def list_puts(statement: k.Statement) -> list[k.StoreLocal]:
    return [s for s in walk_statements((statement,)) if isinstance(s, k.StoreLocal)]


def list_read(statement: k.Statement) -> set[str]:
    found = (e for s in walk_statements((statement,)) for e in list_expressions(s))
    return {p.array for each in found for p in walk(each) if isinstance(p, k.LoadLocal)}


@pytest.mark.parametrize(
    ("lines", "refused", "message"),
    [
        (TILED, "pipeline k", "no tiles are filled there"),
        ((*TILED, *STAGED), "pipeline k", "loops that are written out"),
        ((*FILLED, "pipeline k"), "pipeline k", "no tiles are filled there, a step behind"),
        ((*FILLED, "pipeline k"), "reverse k", "in order|last|first"),
        (
            (*TILED[:2], "tile k 32 as point", *TILED[3:], "stage k left shared row",
             "split left_point 8 as part", "unroll left_point", "unroll part", "unroll left_row"),
            "pipeline k", "128 elements are read ahead, of 64 at most",
        ),
        (
            ("tile k 2 as point", "tile i1 4 as column", "jam column",
             "stage point right shared column", "unroll right_column"),
            "pipeline point", "some of its steps may not be there",
        ),
    ],
)  # fmt: skip
def test_tiles_are_not_read_ahead_where_that_cannot_be(
    lines: tuple[str, ...], refused: str, message: str
) -> None:
    begun = change("product", *lines, sizes=(24, 16, 32))
    kernels = read("product", (24, 16, 32), "sum")
    with pytest.raises(ScheduleError, match=message):
        apply(begun, kernels.function, LIMITS, *parse_script(refused))


def test_calls_of_one_line() -> None:
    """A comment of a kernel has several calls in a line, which may be copied."""
    nest = change("product", "; ".join((*FILLED, "pipeline k")), sizes=(24, 16, 32))
    assert nest == change("product", *FILLED, "pipeline k", sizes=(24, 16, 32))
    assert any(isinstance(n, Stage) and n.ahead for n in walk_nodes(nest.body))
    with pytest.raises(ScheduleError, match="no primitive is called so") as error:
        change("product", "tile k 8 as point; ; spilt i0 2")
    assert error.value.diagnostics[0].span is not None
    assert error.value.diagnostics[0].span.text == "spilt i0 2"
